"""The markers' policy: its CEL, evaluated against what is to be denied and what is to be left alone."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.holds import HOLD, HOLD_UNTIL, Free, Held, hold_of
from reprieve.core.markers import MARKERS_NAME, REQUESTS_NAME, markers_manifests, requests_manifests
from reprieve.core.objects import ObjectKind
from reprieve.core.protection import HELD_DEPENDENTS, ON_REQUEST, OTHERWISE, PROTECT
from reprieve.core.steps import DELETION_REQUESTED, ORPHANED_FROM
from reprieve.core.values import parse_instant
from tests.unit.cel import denied

DATABASE = ObjectKind("example.com/v1", "Database")
SECRET = ObjectKind("v1", "Secret")
NAMESPACE = ObjectKind("v1", "Namespace")
POD = ObjectKind("v1", "Pod")
DEPLOYMENT = ObjectKind("apps/v1", "Deployment")
BACKUP = ObjectKind("velero.io/v1", "Backup")
REQUEST = ObjectKind("velero.io/v1", "DeleteBackupRequest")
PLURALS = {
    kind.kind: f"{kind.kind.lower()}s" for kind in (DATABASE, SECRET, NAMESPACE, DEPLOYMENT, BACKUP, REQUEST, POD)
}
PLURALS["Binding"] = "pods"
REPRIEVE = "system:serviceaccount:velero:reprieve"
POLICY = markers_manifests(owners=[DATABASE], others=[SECRET, NAMESPACE, BACKUP, REQUEST], accounts=[REPRIEVE])
MALLORY, ADMIN = "mallory", "kubernetes-admin"
OWNED = [{"apiVersion": "example.com/v1", "kind": "Database", "name": "orders", "uid": "o1"}]


def document(kind, annotations=None, **metadata):
    meta = {"name": "orders", "namespace": "shop", "annotations": annotations or {}, **metadata}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}


class Authorizer:
    """Everybody may patch; only the administrator may delete. Remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, user, **parts):
        self.asked.append(parts)
        return user == ADMIN


def ask(before, after, *, user=MALLORY, kind=DATABASE, policy=POLICY, may=None, **parts):
    """What is said to a write from one state to another (None: nothing there); states are annotations, or objects."""
    old, new = (each if each is None or "metadata" in each else document(kind, each) for each in (before, after))
    request = {
        "operation": "CREATE" if before is None else "UPDATE",
        "userInfo": {"username": user},
        "kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "resource": {"group": kind.group, "version": kind.version, "resource": PLURALS[kind.kind]},
        "namespace": "shop",
    }
    return denied(policy, request | parts, new, old, may=may or Authorizer())


UNTIL = {HOLD: "audit", HOLD_UNTIL: "2026-03-02T12:00:00Z"}
LATER = {HOLD: "audit", HOLD_UNTIL: "2027-03-02T12:00:00Z"}

DEEDS = [
    pytest.param({}, {DELETION_REQUESTED: "o1"}, id="marks"),
    pytest.param({DELETION_REQUESTED: "copied"}, {DELETION_REQUESTED: "o1"}, id="makes-a-marker-valid"),
    pytest.param({DELETION_REQUESTED: "o1"}, {}, id="takes-a-marker-off"),
    pytest.param({HOLD: "audit"}, {}, id="takes-a-hold-off"),
    pytest.param({HOLD_UNTIL: "9999-01-01T00:00:00Z"}, {}, id="takes-a-lone-date-off"),
    pytest.param({HOLD: "audit"}, UNTIL, id="gives-an-endless-hold-an-end"),
    pytest.param(LATER, UNTIL, id="ends-a-hold-sooner"),
    pytest.param(UNTIL, LATER, id="changes-a-date-at-all"),
    pytest.param(UNTIL, {HOLD: "audit", HOLD_UNTIL: "not a date"}, id="changes-a-date-to-none"),
    pytest.param({ORPHANED_FROM: "o1/s1"}, {}, id="forgets-the-owner"),
    pytest.param({}, {ORPHANED_FROM: "o1/s1"}, id="claims-an-owner"),
    pytest.param({}, {HELD_DEPENDENTS: "{}"}, id="claims-dependents"),
    pytest.param({}, {ON_REQUEST: "Delete"}, id="on-request"),
    pytest.param({OTHERWISE: "Orphan"}, {}, id="otherwise"),
    pytest.param({"reprieve.dev/state": "{}"}, {"reprieve.dev/state": '{"stage":"x"}'}, id="state"),
    pytest.param({}, {"reprieve.dev/hold-mirrored": "x"}, id="hold-mirrored"),
    pytest.param({}, {"reprieve.dev/whatever-comes-next": ""}, id="what-comes-next"),
    pytest.param(None, {"reprieve.dev/state": "{}"}, id="makes-an-object-with-it"),
]
HARMLESS = [
    pytest.param({}, {HOLD: "audit"}, id="puts-a-hold-on"),
    pytest.param({}, UNTIL, id="puts-a-dated-hold-on"),
    pytest.param(None, {HOLD: "audit"}, id="makes-an-object-that-is-held"),
    pytest.param({HOLD: "audit"}, {HOLD: "another reason"}, id="changes-the-reason"),
    pytest.param(UNTIL, {HOLD: "audit"}, id="takes-the-date-off-a-hold"),
    pytest.param({HOLD_UNTIL: "x"}, {HOLD: "audit", HOLD_UNTIL: "x"}, id="gives-a-reason"),
    pytest.param(UNTIL, {HOLD_UNTIL: UNTIL[HOLD_UNTIL]}, id="takes-the-reason-off"),
    pytest.param({DELETION_REQUESTED: "o1"}, {DELETION_REQUESTED: "o1", "a/b": "c"}, id="changes-something-else"),
    pytest.param({"a/b": "c"}, {"reprieve.dev.example.com/x": "y"}, id="a-longer-prefix"),
    pytest.param({}, {}, id="nothing"),
    pytest.param(None, {}, id="makes-an-object"),
]


@pytest.mark.parametrize("kind", [DATABASE, SECRET, NAMESPACE, BACKUP, REQUEST], ids=lambda kind: kind.kind)
@pytest.mark.parametrize(("before", "after"), DEEDS)
def test_whoever_may_not_delete_an_object_may_not_do_this_to_it(before, after, kind):
    assert "mallory may not delete this" in ask(before, after, kind=kind)


@pytest.mark.parametrize(("before", "after"), DEEDS)
@pytest.mark.parametrize("user", [ADMIN, REPRIEVE])
def test_whoever_may_delete_it_may_and_so_may_reprieve_itself(before, after, user):
    assert ask(before, after, user=user) == ""


@pytest.mark.parametrize(("before", "after"), HARMLESS)
def test_this_may_everybody_and_nobody_is_asked_about(before, after):
    assert ask(before, after) == ""


@pytest.mark.parametrize(("before", "after"), DEEDS)
def test_what_has_nothing_to_do_with_reprieve_is_left_alone(before, after):
    may = Authorizer()
    if before is None or ORPHANED_FROM not in before:
        assert ask(before, after, kind=DEPLOYMENT, may=may) == ""
        assert may.asked == []


@pytest.mark.parametrize(("before", "after"), DEEDS)
def test_what_refers_to_a_protected_owner_is_guarded_whatever_its_kind(before, after):
    """What Faros' owners carry may be of any kind, and no configuration lists them all."""
    old = before if before is None else document(DEPLOYMENT, before, ownerReferences=OWNED)

    assert ask(old, document(DEPLOYMENT, after, ownerReferences=OWNED), kind=DEPLOYMENT)
    assert old is None or ask(old, document(DEPLOYMENT, after), kind=DEPLOYMENT), "the reference goes in the same write"


def test_what_was_orphaned_is_guarded_whatever_its_kind():
    """A dependent that was orphaned under a hold has no reference any more; the hold is all that keeps it."""
    orphaned = {ORPHANED_FROM: "o1/d1", HOLD: "audit"}

    assert ask(orphaned, {ORPHANED_FROM: "o1/d1"}, kind=DEPLOYMENT)
    assert ask(orphaned, {}, kind=DEPLOYMENT)


@pytest.mark.parametrize("api_version", ["example.com/v2", "other.example.com/v1", "v1"])
def test_a_group_counts_in_any_of_its_versions(api_version):
    kind = ObjectKind(api_version, "Database")

    assert bool(ask({}, {DELETION_REQUESTED: "o1"}, kind=kind)) is (kind.group == "example.com")


def test_our_finalizer_is_taken_off_by_whoever_may_delete():
    """Without it a terminating owner goes at once, and the collector takes its dependents."""
    with_it, without = document(DATABASE, finalizers=[PROTECT, "x"]), document(DATABASE, finalizers=["x"])

    assert "take off reprieve's finalizer" in ask(with_it, without)
    assert ask(with_it, document(DATABASE)), "all of them"
    assert ask(with_it, without, user=ADMIN) == ""
    assert ask(with_it, document(DATABASE, finalizers=[PROTECT])) == "", "another's"
    assert ask(without, with_it) == "", "puts it on"


@pytest.mark.parametrize("sub", ["status", "scale"])
def test_subresources_are_looked_at_as_the_object_is(sub):
    """Some built-in kinds take annotations through their status."""
    assert ask({HOLD: "audit"}, {}, subResource=sub)


def test_a_pod_takes_the_annotations_of_its_binding():
    policy = markers_manifests(owners=[DATABASE], others=[POD])

    assert ask(None, {DELETION_REQUESTED: "x"}, kind=ObjectKind("v1", "Binding"), policy=policy, subResource="binding")


def test_the_authorizer_is_asked_about_the_very_object():
    may = Authorizer()
    ask({}, {DELETION_REQUESTED: "o1"}, may=may)
    ask(None, document(NAMESPACE, {OTHERWISE: "Delete"}, generateName="x-"), kind=NAMESPACE, may=may)
    ask(None, {"metadata": {"annotations": {OTHERWISE: "Delete"}}}, kind=SECRET, may=may)

    first, second, third = may.asked
    assert first == {"group": "example.com", "resource": "databases", "namespace": "shop", "name": "orders",
                     "verb": "delete"}  # fmt: skip
    assert (second["group"], second["resource"], second["name"]) == ("", "namespaces", "orders")
    assert third["name"] == "", "one that gets its name later: all of them"


def test_a_cluster_scoped_object_is_asked_for_without_a_namespace():
    may = Authorizer()
    request = {
        "operation": "UPDATE",
        "userInfo": {"username": MALLORY},
        "kind": {"group": "", "version": "v1", "kind": "Namespace"},
        "resource": {"group": "", "version": "v1", "resource": "namespaces"},
    }
    old, new = ({"metadata": {"name": "shop", "annotations": each}} for each in ({}, {OTHERWISE: "Delete"}))

    assert "Namespace shop: mallory" in denied(POLICY, request, new, old, may=may)
    assert may.asked[0]["namespace"] == ""


@pytest.mark.parametrize(
    "strange",
    [
        pytest.param({}, id="no-metadata"),
        pytest.param({"metadata": {}}, id="empty-metadata"),
        pytest.param({"metadata": {"name": "x", "finalizers": []}}, id="no-annotations"),
        pytest.param({"spec": {"token": "x"}, "metadata": {"name": "x"}}, id="a-subresource-of-another-shape"),
    ],
)
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_objects_of_any_shape_go_through(strange, operation):
    """An error would deny, and this is asked at every write in the cluster."""
    request = {
        "operation": operation,
        "userInfo": {"username": MALLORY},
        "kind": {"group": "", "version": "v1", "kind": "Secret"},
        "resource": {"group": "", "version": "v1", "resource": "secrets"},
    }

    assert denied(POLICY, request, strange, strange if operation == "UPDATE" else None, may=Authorizer()) == ""


annotated = st.dictionaries(
    st.sampled_from([HOLD, HOLD_UNTIL]),
    st.sampled_from(["", "audit", "2026-03-01T00:00:00Z", "2026-03-03T00:00:00Z", "tomorrow", "9999-12-31T00:00:00Z"]),
)


@given(annotated, annotated, st.sampled_from(["2026-02-28", "2026-03-02", "2026-03-04"]))
def test_no_hold_ends_earlier_for_what_goes_through(before, after, day):
    """Written from what a hold is: whatever is held at some time before the write is held at that time after it."""
    now = parse_instant(f"{day}T00:00:00Z")

    if isinstance(hold_of(before, now=now), Held) and isinstance(hold_of(after, now=now), Free):
        assert ask(before, after)


def test_the_message_names_the_object_the_requester_and_the_way_out():
    assert ask({HOLD: "audit"}, {}) == (
        "reprieve: Database shop/orders: mallory may not delete this, and so may not take off or weaken its hold (it "
        "may put one on). Ask somebody who may; to switch this off, delete the ValidatingAdmissionPolicyBinding "
        "reprieve-markers"
    )


def test_the_manifests_are_policies_and_their_bindings():
    for (policy, binding), name in ((POLICY, MARKERS_NAME), (requests_manifests(REQUEST), REQUESTS_NAME)):
        assert [policy["kind"], binding["kind"]] == ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
        assert policy["metadata"]["name"] == binding["metadata"]["name"] == binding["spec"]["policyName"] == name
        assert binding["spec"]["validationActions"] == ["Deny"]
        assert policy["spec"]["failurePolicy"] == "Fail"


RESERVED = re.compile(
    "true|false|null|in|as|break|const|continue|else|for|function|if|import|let|loop|package|namespace|return|var|void|"
    "while"
)


@pytest.mark.parametrize("policy", [POLICY[0], requests_manifests(REQUEST)[0]], ids=[MARKERS_NAME, REQUESTS_NAME])
def test_an_api_server_takes_the_names_and_their_order(policy):
    """Names of variables are identifiers of CEL, each made before it is used; none is used where there are none yet."""
    known = set()
    for each in policy["spec"]["variables"]:
        used = set(re.findall(r"variables\.(\w+)", each["expression"]))
        assert used <= known
        assert not RESERVED.fullmatch(each["name"])
        known.add(each["name"])
    for each in policy["spec"]["validations"]:
        assert set(re.findall(r"variables\.(\w+)", each["expression"])) <= known
        assert "authorizer" not in each["messageExpression"]
        assert "\n" not in each["message"]
    assert "variables." not in str(policy["spec"]["matchConditions"])


def test_no_policy_for_no_kind():
    assert markers_manifests(owners=[], others=[]) == ()


def test_the_order_of_the_kinds_does_not_matter():
    assert markers_manifests(owners=[DATABASE], others=[BACKUP, SECRET]) == markers_manifests(
        owners=[DATABASE, DATABASE], others=[SECRET, BACKUP]
    )


def test_without_a_protected_owner_no_reference_is_looked_at():
    policy = markers_manifests(owners=[], others=[BACKUP])

    assert "ownerReferences" not in str(policy)
    assert ask({HOLD: "audit"}, {}, kind=BACKUP, policy=policy)


# Deletion requests


FILING = requests_manifests(REQUEST, accounts=[REPRIEVE])


def filed(backup, **metadata):
    return document(REQUEST, **metadata) | ({} if backup is None else {"spec": {"backupName": backup}})


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        pytest.param(None, filed("nightly"), "backup nightly: mallory may not delete it", id="files-one"),
        pytest.param(None, filed(None), "may not delete it", id="without-a-name"),
        pytest.param(filed("mine"), filed("nightly"), "backup nightly: mallory", id="turns-one-to-another-backup"),
        pytest.param(filed(None), filed("nightly"), "backup nightly: mallory", id="gives-a-name"),
        pytest.param(filed("nightly"), filed("nightly", labels={"a": "b"}), "", id="keeps-it"),
    ],
)
def test_a_deletion_request_is_filed_by_whoever_may_delete_its_backup(before, after, says):
    said = ask(before, after, kind=REQUEST, policy=FILING)

    assert says in said
    assert bool(said) is bool(says)
    for user in (ADMIN, REPRIEVE):
        assert ask(before, after, kind=REQUEST, policy=FILING, user=user) == ""


def test_the_authorizer_is_asked_about_the_backup():
    may = Authorizer()
    ask(None, filed("nightly"), kind=REQUEST, policy=FILING, may=may)

    assert may.asked == [
        {"group": "velero.io", "resource": "backups", "namespace": "shop", "name": "nightly", "verb": "delete"}
    ]
