"""The in-memory API server: what Kubernetes promises about objects."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.adapters.local import AdmissionDenied, ClusterStore, ServedKind, StatusError, denial, json_patch
from reprieve.adapters.local.patches import merge
from reprieve.adapters.local.selectors import field_selector, label_selector
from reprieve.core.objects import ObjectKind

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BACKUP = ObjectKind("velero.io/v1", "Backup")
CM = ObjectKind("v1", "ConfigMap")


@pytest.fixture
def store():
    return ClusterStore(now=lambda: NOW)


def backup(name="b", **meta):
    manifest = {"name": name, "namespace": "velero", **meta}
    return {"apiVersion": "velero.io/v1", "kind": "Backup", "metadata": manifest, "spec": {"ttl": "1h"}}


def reference_to(obj):
    meta = obj["metadata"]
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"], "uid": meta["uid"]}


def refusal(call, *args, **kwargs):
    with pytest.raises(StatusError) as caught:
        call(*args, **kwargs)
    return caught.value.code, caught.value.reason


# Creating


def test_create_gives_what_the_server_alone_decides(store):
    hand = backup(uid="mine", generation=7, deletionTimestamp="2020-01-01T00:00:00Z", creationTimestamp="2020")
    meta = store.create(hand)["metadata"]
    assert meta["uid"] not in {"", "mine"}
    assert (meta["generation"], meta["creationTimestamp"]) == (1, "2026-01-02T03:04:05Z")
    assert "deletionTimestamp" not in meta


def test_what_is_handed_in_is_copied(store):
    hand = backup()
    store.create(hand)
    hand["spec"]["ttl"] = "9h"
    assert store.get(BACKUP, "velero", "b")["spec"] == {"ttl": "1h"}


def test_generate_name_cuts_its_base_at_58_characters():
    suffixes = iter(["aaaaa", "aaaaa", "bbbbb"])
    store = ClusterStore(now=lambda: NOW, suffix_source=lambda: next(suffixes))
    names = [store.create(backup(name="", generateName="x" * 100))["metadata"]["name"] for _ in range(2)]
    assert names == ["x" * 58 + "aaaaa", "x" * 58 + "bbbbb"]


def test_a_name_that_is_taken(store):
    store.create(backup(finalizers=["a.b/c"]))
    assert refusal(store.create, backup()) == (409, "AlreadyExists")
    store.delete(BACKUP, "velero", "b")
    with pytest.raises(StatusError, match="object is being deleted"):
        store.create(backup())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"name": "Bad_Name"}, 422, id="bad-name"),
        pytest.param({"name": "../../etc/passwd"}, 422, id="path"),
        pytest.param({"name": "ä"}, 422, id="non-ascii"),
        pytest.param({"name": "x" * 254}, 422, id="too-long"),
        pytest.param({"name": ""}, 422, id="no-name"),
        pytest.param({"name": 5}, 400, id="number-for-a-name"),
        pytest.param({"namespace": ""}, 400, id="no-namespace"),
        pytest.param({"labels": {"a": "x" * 64}}, 422, id="label-value-too-long"),
        pytest.param({"labels": {"a b": "x"}}, 422, id="label-key"),
        pytest.param({"labels": ["a"]}, 400, id="labels-that-are-a-list"),
        pytest.param({"labels": {"a": 1}}, 400, id="label-that-is-a-number"),
        pytest.param({"annotations": {"a": None}}, 400, id="annotation-null"),
        pytest.param({"finalizers": "x"}, 400, id="finalizers-that-are-a-string"),
        pytest.param({"finalizers": ["a b"]}, 422, id="finalizer-name"),
        pytest.param({"finalizers": ["orphan", "foregroundDeletion"]}, 422, id="orphan-and-foreground"),
        pytest.param({"ownerReferences": [{"kind": "A"}]}, 422, id="owner-without-uid"),
        pytest.param({"ownerReferences": {}, "resourceVersion": "5"}, 500, id="resource-version-on-create"),
    ],
)
def test_metadata_that_is_refused(store, change, expected):
    assert refusal(store.create, backup(**change))[0] == expected
    assert store.list(BACKUP).items == ()


def test_a_finalizer_without_a_slash_is_refused_for_kinds_of_kubernetes_alone(store):
    assert store.create(backup(finalizers=["bare"]))["metadata"]["finalizers"] == ["bare"]
    core = {**backup(finalizers=["bare"]), "apiVersion": "v1", "kind": "ConfigMap"}
    assert refusal(store.create, core) == (422, "Invalid")


def test_rbac_names_may_have_colons(store):
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "system:Admin"}}
    assert store.create(role)["metadata"]["name"] == "system:Admin"


def test_absurd_nesting_is_refused(store):
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    assert refusal(store.create, {**backup(), "spec": deep}) == (400, "BadRequest")


def test_namespaces_are_asked_for_only_when_told(store):
    strict = ClusterStore(now=lambda: NOW, require_namespaces=True)
    assert refusal(strict.create, backup()) == (404, "NotFound")
    strict.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "velero", "finalizers": ["a/b"]}})
    assert strict.create(backup())["metadata"]["name"] == "b"
    strict.delete(ObjectKind("v1", "Namespace"), "", "velero")
    assert refusal(strict.create, backup("c")) == (403, "Forbidden")
    assert store.create(backup())["metadata"]["namespace"] == "velero"


# Changing


def test_a_patch_that_changes_nothing_writes_nothing(store):
    before = store.create(backup(labels={"a": "b"}))
    after = store.patch(BACKUP, "velero", "b", {"metadata": {"labels": {"a": "b"}, "finalizers": []}})
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"] == store.resource_version


def test_generation_counts_changes_outside_metadata(store):
    store.create(backup())
    patches = [{"metadata": {"labels": {"a": "b"}}}, {"spec": {"ttl": "2h"}}, {"status": {"phase": "New"}}]
    generations = [store.patch(BACKUP, "velero", "b", patch)["metadata"]["generation"] for patch in patches]
    assert generations == [1, 2, 3]
    assert "generation" not in store.create({**backup("cm"), "apiVersion": "v1", "kind": "ConfigMap"})["metadata"]


def test_the_status_subresource():
    store = ClusterStore(now=lambda: NOW, kinds=[ServedKind("velero.io/v1", "Backup", "backups", status=True)])
    assert "status" not in store.create({**backup(), "status": {"phase": "Lie"}})
    store.patch(BACKUP, "velero", "b", {"status": {"phase": "Lie"}, "spec": {"ttl": "2h"}})
    both = {"status": {"phase": "New"}, "spec": {"ttl": "9h"}, "metadata": {"labels": {"a": "b"}}}
    found = store.patch(BACKUP, "velero", "b", both, subresource="status")
    assert (found["status"], found["spec"], found["metadata"]["generation"]) == ({"phase": "New"}, {"ttl": "2h"}, 2)
    assert "labels" not in found["metadata"]


@pytest.mark.parametrize(
    ("wrong", "patched", "put"),
    [
        pytest.param({"uid": "999"}, (422, "Invalid"), (409, "Conflict"), id="uid"),
        pytest.param({"resourceVersion": "999"}, (409, "Conflict"), (409, "Conflict"), id="version"),
        pytest.param({"resourceVersion": "999", "uid": "999"}, (409, "Conflict"), (409, "Conflict"), id="both"),
        pytest.param({"resourceVersion": "abc"}, (500, ""), (500, ""), id="version-that-is-no-number"),
    ],
)
def test_an_identity_in_a_write_is_a_precondition(store, wrong, patched, put):
    made = store.create(backup())
    assert refusal(store.patch, BACKUP, "velero", "b", {"metadata": {**wrong, "labels": {"a": "b"}}}) == patched
    assert refusal(store.update, {**made, "metadata": {**made["metadata"], **wrong}}) == put
    assert store.get(BACKUP, "velero", "b") == made


def test_put_of_a_custom_object_needs_a_resource_version(store):
    made = store.create(backup())
    assert refusal(store.update, backup()) == (422, "Invalid")
    changed = {**made, "spec": {}}
    assert store.update(changed)["metadata"]["generation"] == 2
    assert refusal(store.update, changed) == (409, "Conflict")


def test_what_a_client_cannot_change_is_kept(store):
    made = store.create(backup())
    new = store.patch(BACKUP, "velero", "b", {"metadata": {"creationTimestamp": None, "generation": 9, "uid": None}})
    assert new == made
    assert refusal(store.patch, BACKUP, "velero", "b", {"metadata": {"name": "c"}})[0] == 400
    assert refusal(store.patch, BACKUP, "velero", "b", {"kind": "Other"})[0] == 400


def test_json_patch(store):
    store.create(backup())
    right = json_patch([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}])
    assert store.patch(BACKUP, "velero", "b", right)["metadata"]["labels"] == {"a": "b"}
    for wrong in ({"op": "test", "path": "/spec/ttl", "value": "x"}, {"op": "remove", "path": "/no"}, {"op": "frob"}):
        assert refusal(store.patch, BACKUP, "velero", "b", json_patch([wrong]))[0] == 422
    assert refusal(json_patch, {"op": "x"})[0] == 400


# Deleting


def test_delete_without_finalizers_is_the_end(store):
    store.create(backup())
    assert store.delete(BACKUP, "velero", "b").gone
    assert refusal(store.get, BACKUP, "velero", "b") == (404, "NotFound")
    assert refusal(store.delete, BACKUP, "velero", "b") == (404, "NotFound")


def test_a_finalizer_holds_a_deleted_object(store):
    store.create(backup(finalizers=["a.b/c"]))
    held = store.delete(BACKUP, "velero", "b")
    meta = held.object["metadata"]
    assert (held.gone, meta["deletionTimestamp"], meta["generation"]) == (False, "2026-01-02T03:04:05Z", 2)
    again = store.delete(BACKUP, "velero", "b").object
    assert again["metadata"]["resourceVersion"] == meta["resourceVersion"]
    added = {"metadata": {"finalizers": ["a.b/c", "new/one"]}}
    assert refusal(store.patch, BACKUP, "velero", "b", added) == (422, "Invalid")
    last = store.patch(BACKUP, "velero", "b", {"metadata": {"finalizers": None}})["metadata"]
    assert ("finalizers" in last, last["resourceVersion"]) == (False, meta["resourceVersion"])
    assert store.list(BACKUP).items == ()


@pytest.mark.parametrize("wrong", [{"uid": "other"}, {"resource_version": "999"}], ids=["uid", "version"])
def test_preconditions_of_a_delete(store, wrong):
    made = store.create(backup())["metadata"]
    assert refusal(store.delete, BACKUP, "velero", "b", **wrong) == (409, "Conflict")
    assert store.delete(BACKUP, "velero", "b", uid=made["uid"], resource_version=made["resourceVersion"]).gone


def test_propagation_is_kept_as_a_finalizer_and_a_later_one_takes_its_place(store):
    store.create(backup(finalizers=["a.b/c"]))
    seen = [
        store.delete(BACKUP, "velero", "b", propagation=policy).object["metadata"]["finalizers"]
        for policy in ("Foreground", "Orphan", "", "Background")
    ]
    assert seen == [["a.b/c", "foregroundDeletion"], ["a.b/c", "orphan"], ["a.b/c", "orphan"], ["a.b/c"]]
    assert refusal(store.delete, BACKUP, "velero", "b", propagation="Sideways") == (422, "Invalid")


def test_delete_collection(store):
    for name in ("a", "b", "c"):
        store.create(backup(name, labels={"keep": "yes" if name == "b" else "no"}))
    gone = store.delete_collection(BACKUP, namespace="velero", selector="keep!=yes")
    assert [obj["metadata"]["name"] for obj in gone] == ["a", "c"]
    assert [obj["metadata"]["name"] for obj in store.list(BACKUP).items] == ["b"]


def test_dry_run_changes_nothing(store):
    made = store.create(backup())
    store.create(backup("other"), dry_run=True)
    store.patch(BACKUP, "velero", "b", {"spec": None}, dry_run=True)
    assert store.delete(BACKUP, "velero", "b", dry_run=True).gone
    assert store.list(BACKUP).items == (made,)


# Listing and watching


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("", "abc"),
        ("tier=web", "a"),
        ("tier==web", "a"),
        ("tier!=web", "bc"),
        ("tier in (web, db)", "ab"),
        ("tier notin (web)", "bc"),
        ("tier", "ab"),
        ("!tier", "c"),
        ("tier,env=prod", "b"),
        ("tier in (web,db),!env", "a"),
        ("env=", ""),
        ("example.com/x", ""),
    ],
)
def test_label_selectors(store, selector, found):
    store.create(backup("a", labels={"tier": "web"}))
    store.create(backup("b", labels={"tier": "db", "env": "prod"}))
    store.create(backup("c"))
    assert "".join(obj["metadata"]["name"] for obj in store.list(BACKUP, selector=selector).items) == found


@pytest.mark.parametrize("selector", ["a=b=c", "a in b", "=x", "a,,b", "a,", "a in (b", "a b", "a=" + "x" * 64, "ä"])
def test_selectors_that_cannot_be_parsed_match_nothing_loosely(store, selector):
    with pytest.raises(ValueError, match="unable to parse"):
        label_selector(selector)
    assert refusal(store.list, BACKUP, selector=selector)[0] == 400


@given(st.text(max_size=30))
def test_any_text_is_a_selector_or_a_value_error(text):
    for parse in (label_selector, field_selector):
        try:
            parse(text)({"metadata": {"labels": {}}})
        except ValueError as error:
            assert str(error)  # noqa: PT017 - both ends are right


def test_field_selectors(store):
    for name in ("a", "b"):
        store.create(backup(name))
    assert len(store.list(BACKUP, field_selector="metadata.name=a,metadata.namespace=velero").items) == 1
    assert len(store.list(BACKUP, field_selector="metadata.name!=a").items) == 1
    assert refusal(store.list, BACKUP, field_selector="spec.ttl=1h")[0] == 400


def test_pages_are_one_snapshot(store):
    for name in "abcde":
        store.create(backup(name))
    first = store.list(BACKUP, limit=2)
    store.create(backup("cc"))
    store.delete(BACKUP, "velero", "d")
    store.patch(BACKUP, "velero", "e", {"spec": {"ttl": "9h"}})
    second = store.list(BACKUP, limit=2, continue_token=first.continue_token)
    third = store.list(BACKUP, limit=2, continue_token=second.continue_token)
    names = [obj["metadata"]["name"] for page in (first, second, third) for obj in page.items]
    assert (names, first.remaining, second.remaining, third.remaining) == (list("abcde"), 3, 1, None)
    assert {page.resource_version for page in (first, second, third)} == {first.resource_version}
    assert third.items[0]["spec"] == {"ttl": "1h"}


def test_a_page_after_compaction_is_expired(store):
    for name in "abc":
        store.create(backup(name))
    token = store.list(BACKUP, limit=1).continue_token
    store.create(backup("d"))
    store.compact()
    with pytest.raises(StatusError) as caught:
        store.list(BACKUP, limit=1, continue_token=token)
    assert (caught.value.code, caught.value.reason) == (410, "Expired")
    rest = store.list(BACKUP, continue_token=caught.value.status()["metadata"]["continue"])
    assert [obj["metadata"]["name"] for obj in rest.items] == ["b", "c", "d"]
    assert refusal(store.list, BACKUP, limit=1, continue_token="garbage")[0] == 400


def events(store, **options):
    watched = store.watch(BACKUP, timeout=0, **options)
    return [(item.type, item.object["metadata"].get("name", "")) for item in watched]


def test_a_watch_tells_every_change_after_its_version(store):
    store.create(backup("before"))
    version = store.resource_version
    store.create(backup("a", finalizers=["x/y"]))
    store.delete(BACKUP, "velero", "a")
    store.patch(BACKUP, "velero", "a", {"metadata": {"finalizers": None}})
    store.create({**backup("cm"), "apiVersion": "v1", "kind": "ConfigMap"})
    seen = events(store, resource_version=version, bookmarks=True)
    assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("BOOKMARK", "")]
    *_, last = store.watch(BACKUP, resource_version=version, timeout=0)
    assert last.object["metadata"]["finalizers"] == ["x/y"]  # the state before the patch that ended it


def test_a_watch_without_a_version_begins_with_what_is_there(store):
    store.create(backup("a"))
    assert events(store) == events(store, resource_version="0") == [("ADDED", "a")]


def test_a_selector_shows_objects_that_enter_and_leave(store):
    version = store.resource_version
    store.create(backup("a"))
    for value in ("yes", "no", "yes"):
        store.patch(BACKUP, "velero", "a", {"metadata": {"labels": {"on": value}}})
    store.delete(BACKUP, "velero", "a")
    kinds = [kind for kind, _ in events(store, resource_version=version, selector="on=yes")]
    assert kinds == ["ADDED", "DELETED", "ADDED", "DELETED"]


def test_a_version_that_was_compacted_is_expired(store):
    version = store.resource_version
    store.create(backup("a"))
    store.compact()
    assert refusal(store.watch, BACKUP, resource_version=version) == (410, "Expired")
    assert events(store, resource_version=store.resource_version) == []
    assert refusal(store.watch, BACKUP, resource_version="x") == (500, "")


def test_history_is_bounded():
    store = ClusterStore(now=lambda: NOW, history=3)
    version = store.resource_version
    for name in range(10):
        store.create(backup(f"b{name}"))
    assert refusal(store.watch, BACKUP, resource_version=version) == (410, "Expired")


def test_a_watch_waits_for_what_comes_and_ends_when_the_store_is_closed(store):
    seen: list[str] = []
    first = threading.Event()

    def follow():
        for item in store.watch(BACKUP, resource_version=store.resource_version, timeout=60):
            seen.append(item.object["metadata"]["name"])
            first.set()

    version = store.resource_version
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    store.create(backup("a")) if version == store.resource_version else None
    while not first.wait(0.05):
        store.patch(BACKUP, "velero", "a", {"spec": {"n": store.resource_version}})  # it began to watch later
    store.close()
    thread.join(30)
    assert not thread.is_alive()
    assert set(seen) == {"a"}


def test_a_watch_can_be_stopped(store):
    assert list(store.watch(BACKUP, resource_version=store.resource_version, timeout=60, stop=lambda: True)) == []


def test_writers_in_parallel_lose_nothing(store):
    store.create({**backup("n"), "spec": {"count": 0}})

    def count():
        for _ in range(50):
            store.patch(BACKUP, "velero", "n", lambda obj: {**obj, "spec": {"count": obj["spec"]["count"] + 1}})

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get(BACKUP, "velero", "n")["spec"] == {"count": 200}


# Kinds


def test_a_closed_world_serves_what_it_is_told():
    store = ClusterStore(now=lambda: NOW, kinds=[])
    assert refusal(store.list, BACKUP) == (404, "NotFound")
    store.register(ServedKind("velero.io/v1", "Backup", "backups"))
    assert store.list(BACKUP).items == ()
    assert store.kind_by_plural("velero.io/v1", "backups").kind == "Backup"
    assert refusal(store.kind_by_plural, "velero.io/v1", "restores") == (404, "NotFound")


def test_a_definition_serves_its_kind():
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "mice.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"kind": "Mouse", "plural": "mice"},
            "versions": [
                {"name": "v1", "served": True, "subresources": {"status": {}}},
                {"name": "v0", "served": False},
            ],
        },
    }
    kinds = [ServedKind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", False)]
    store = ClusterStore(now=lambda: NOW, kinds=kinds)
    store.create(definition)
    mouse = ServedKind("example.com/v1", "Mouse", "mice", namespaced=False, status=True)
    assert store.kind(ObjectKind("example.com/v1", "Mouse")) == mouse
    assert refusal(store.kind, ObjectKind("example.com/v0", "Mouse"))[0] == 404
    in_namespace = {"apiVersion": "example.com/v1", "kind": "Mouse", "metadata": {"name": "m", "namespace": "n"}}
    assert refusal(store.create, in_namespace)[0] == 400
    store.delete(ObjectKind("apiextensions.k8s.io/v1", "CustomResourceDefinition"), "", "mice.example.com")
    assert refusal(store.kind, ObjectKind("example.com/v1", "Mouse"))[0] == 404


@pytest.mark.parametrize(
    ("kind", "namespaced"),
    [
        ("v1/Namespace", False),
        ("v1/Secret", True),
        ("velero.io/v1/Backup", True),
        ("rbac.authorization.k8s.io/v1/ClusterRole", False),
        ("rbac.authorization.k8s.io/v1/Role", True),
        ("faros.pusher.com/v1alpha1/ClusterGitTrackObject", False),
        ("faros.pusher.com/v1alpha1/GitTrackObject", True),
        ("example.com/v1/Thing", True),
        ("example.com/v1/ClusterThing", False),
    ],
)
def test_scopes_of_kinds_that_nobody_declared(store, kind, namespaced):
    assert store.kind(ObjectKind.parse(kind)).namespaced is namespaced


def test_an_object_corrects_a_guessed_scope(store):
    store.load([{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}])
    assert store.kind(ObjectKind("example.com/v1", "Thing")).namespaced is False


# Loading, admission, transactions


def test_loaded_objects_keep_what_they_have_and_get_what_they_lack_always_alike(store):
    kept = backup("kept", uid="u1", resourceVersion="41", creationTimestamp="2025-01-01T00:00:00Z")
    store.load([{**kept, "status": {"phase": "Completed"}}, backup("bare")])
    assert store.get(BACKUP, "velero", "kept")["metadata"]["uid"] == "u1"
    other = ClusterStore(now=lambda: NOW + timedelta(days=1))
    other.load([backup("bare")])
    assert other.get(BACKUP, "velero", "bare") == store.get(BACKUP, "velero", "bare")
    assert int(store.create(backup("new"))["metadata"]["resourceVersion"]) > 41
    assert refusal(store.load, [backup("bare")])[0] == 409


def test_a_restored_snapshot_is_the_cluster_as_it_was(store):
    owner = store.create(backup("owner"))
    store.create(backup("kept", ownerReferences=[reference_to(owner)]))
    before = store.snapshot()
    store.delete(BACKUP, "velero", "kept")
    store.patch(BACKUP, "velero", "owner", {"metadata": {"labels": {"a": "b"}}})
    store.create(backup("new"))
    version = store.resource_version

    store.restore(before)
    assert store.snapshot() == before
    assert [each["metadata"]["name"] for each in store.dependents(owner["metadata"]["uid"])] == ["kept"]
    assert store.by_uid(owner["metadata"]["uid"]) == owner
    assert refusal(store.get, BACKUP, "velero", "new")[0] == 404
    assert int(store.patch(BACKUP, "velero", "owner", {"spec": {"ttl": "2h"}})["metadata"]["resourceVersion"]) > int(
        version
    )
    assert store.snapshot() != before


def test_a_restored_snapshot_has_no_history(store):
    store.create(backup())
    before, version = store.snapshot(), store.resource_version
    store.create(backup("new"))
    store.restore(before)
    assert refusal(store.watch, BACKUP, resource_version=version)[1] == "Expired"


def test_loaded_metadata_may_be_malformed(store):
    odd = backup("odd", labels=["a"], finalizers="x", ownerReferences=[{"kind": "A"}, 5], annotations=7)
    store.load([odd])
    assert [obj["metadata"]["name"] for obj in store.list(BACKUP, selector="!a").items] == ["odd"]
    assert store.delete(BACKUP, "velero", "odd").gone


def test_an_admission_hook_denies_with_the_words_of_a_policy(store):
    seen = []

    def hook(request):
        seen.append((request.operation, request.user, request.name))
        if request.operation == "DELETE":
            raise denial(request, "no", policy="p", binding="b", reason="Forbidden")

    store.admission.append(hook)
    store.create(backup(), user="alice")
    store.patch(BACKUP, "velero", "b", {"spec": None}, user="bob")
    with pytest.raises(AdmissionDenied) as caught:
        store.delete(BACKUP, "velero", "b", user="eve")
    expected = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"
    assert caught.value.message == f'backups.velero.io "b" is forbidden: {expected}'
    assert caught.value.status()["code"] == 403
    assert seen == [("CREATE", "alice", "b"), ("UPDATE", "bob", "b"), ("DELETE", "eve", "b")]


def test_a_journal_that_fails_leaves_everything_as_it_was():
    failing = []

    def journal(change):
        if failing:
            raise OSError("disk full")

    store = ClusterStore(now=lambda: NOW, journal=journal)
    made = store.create(backup())
    failing.append(True)
    for write in (
        lambda: store.create(backup("c")),
        lambda: store.patch(BACKUP, "velero", "b", {"spec": None}),
        lambda: store.delete(BACKUP, "velero", "b"),
    ):
        with pytest.raises(OSError, match="disk full"):
            write()
    assert store.list(BACKUP).items == (made,)
    assert store.resource_version == made["metadata"]["resourceVersion"]


def test_a_transaction_journals_net_changes_owners_last_and_undoes_what_it_could_not():
    told: list[str] = []
    full: list[str] = []

    def journal(change):
        if change.name in full:
            raise OSError("disk full")
        told.append(change.name)

    store = ClusterStore(now=lambda: NOW, journal=journal)
    for name in ("first", "second", "third"):
        store.create(backup(name))
    version, told[:], full[:] = store.resource_version, [], ["first"]

    def write():
        with store.transaction():
            for name in ("first", "second"):
                store.patch(BACKUP, "velero", name, {"spec": {"n": 1}})
                store.delete(BACKUP, "velero", name)
            store.create(backup("flash"))
            store.delete(BACKUP, "velero", "flash")

    with pytest.raises(OSError, match="disk full"):
        write()
    assert told == ["second"]
    assert [obj["metadata"]["name"] for obj in store.list(BACKUP).items] == ["first", "third"]
    assert store.get(BACKUP, "velero", "first")["spec"] == {"ttl": "1h"}
    assert ("DELETED", "first") not in events(store, resource_version=version)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(JSON, st.dictionaries(st.text(max_size=3), JSON, max_size=3))
def test_a_merge_patch_applied_twice_is_applied_once(target, patch):
    once = merge(target, patch)
    assert merge(once, patch) == once


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=3), st.dictionaries(st.text(max_size=3), JSON, max_size=3))
def test_a_merge_patch_leaves_the_rest_alone(target, patch):
    result = merge(target, patch)
    assert {key: value for key, value in result.items() if key not in patch} == {
        key: value for key, value in target.items() if key not in patch
    }
    assert not any(result.get(key, 0) is None for key in patch)
