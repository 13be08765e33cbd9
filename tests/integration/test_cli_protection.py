"""The commands about protected owners, over a folder: what they say, write, and end with."""

import base64
import fcntl
import json
import os
from datetime import UTC, datetime

import pytest
import structlog
import yaml
from attrs import evolve

from reprieve.adapters.local import LocalFolder
from reprieve.adapters.local.kinds import guessed, known
from reprieve.core.objects import ObjectKind, ObjectRef, resource_from_json
from reprieve.core.ports import Listing, Propagation
from reprieve.core.protection import PROTECT, UnknownDependent
from reprieve.core.steps import DELETION_REQUESTED, ORPHANED_FROM
from reprieve.entrypoints.cli import release
from reprieve.entrypoints.cli.root import run
from reprieve.entrypoints.configuration import read_configuration
from reprieve.entrypoints.controller.dependents import DependentReader
from reprieve.entrypoints.controller.leftovers import SHIELD_KINDS, check_at_start, holders
from tests.integration.apiserver import Answer, times

NOW = "2026-03-01T12:00:00Z"
FAROS = "faros.pusher.com/v1alpha1"
CONFIGURATION = """
apiVersion: reprieve.dev/v1alpha1
kind: Configuration
backups: false
protection:
  - owner: faros.pusher.com/v1alpha1/GitTrackObject
    dialect: faros
    onRequest: Delete
    otherwise: Orphan
  - owner: example.com/v1/Database
    dependents: [v1/Secret]
    onRequest: Delete
    otherwise: Orphan
"""


class Folder:
    """A folder with a cluster, and the command over it."""

    def __init__(self, path, capfd, monkeypatch):
        self.path, self._capfd, self._monkeypatch = path, capfd, monkeypatch
        (path / "cluster").mkdir(parents=True)
        self.configure(CONFIGURATION)
        self.out = self.err = ""

    def configure(self, text):
        (self.path / "reprieve.yaml").write_text(text, encoding="utf-8")

    def add(self, *objects):
        path = self.path / "cluster" / f"{len(list((self.path / 'cluster').iterdir()))}.yaml"
        path.write_text(yaml.safe_dump_all(objects, sort_keys=False), encoding="utf-8")

    def opened(self):
        return LocalFolder(self.path, now=lambda: datetime.fromisoformat(NOW).astimezone(UTC))

    def get(self, api_version, kind, name, namespace="shop"):
        with self.opened() as folder:
            return folder.cluster.get(ObjectRef(api_version, kind, name, namespace))

    def names(self, api_version, kind):
        with self.opened() as folder:
            return sorted(each.meta.name for each in folder.cluster.list(ObjectKind(api_version, kind)).items)

    def call(self, *words, answer=None, local=True):
        """Run a command over the folder; tells its exit code and keeps what it printed."""
        where = ["--local", str(self.path), "--now", NOW] if local else []
        read, write = os.pipe()
        os.write(write, b"" if answer is None else f"{answer}\n".encode())
        os.close(write)
        with os.fdopen(read) as stdin:
            self._monkeypatch.setattr("sys.stdin", stdin)
            code = run([*map(str, words), *where])
        self.out, self.err = self._capfd.readouterr()
        return code


@pytest.fixture
def folder(tmp_path, capfd, monkeypatch):
    return Folder(tmp_path / "folder", capfd, monkeypatch)


def thing(api_version, kind, name, *owners, namespace="shop", **metadata):
    """An object; owners are (apiVersion, kind, name), their UIDs follow from the names."""
    references = [
        {"apiVersion": a, "kind": k, "name": n, "uid": f"uid-{n}", "controller": True, "blockOwnerDeletion": True}
        for a, k, n in owners
    ]
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", **metadata}
    return {"apiVersion": api_version, "kind": kind, "metadata": {**meta, "ownerReferences": references}}


def database(name="orders", **metadata):
    return thing("example.com/v1", "Database", name, **{"finalizers": [PROTECT], **metadata})


def secret(name, *databases, **metadata):
    return thing("v1", "Secret", name, *(("example.com/v1", "Database", each) for each in databases), **metadata)


def tracked(name, track="site", **metadata):
    """A GitTrackObject that carries a ConfigMap, and the ConfigMap."""
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}}
    data = base64.b64encode(json.dumps(manifest).encode()).decode()
    called = f"configmap-{name}"
    owner = thing(FAROS, "GitTrackObject", called, (FAROS, "GitTrack", track), **metadata)
    config = thing("v1", "ConfigMap", name, (FAROS, "GitTrackObject", called))
    return [{**owner, "spec": {"kind": "ConfigMap", "name": name, "data": data}}, config]


def site(folder, count=5):
    """A GitTrack and what it tracks, as a first run leaves them, and the desired set that wants them all."""
    folder.add(thing(FAROS, "GitTrack", "site"), *(each for number in range(count) for each in tracked(f"c{number}")))
    assert folder.call("run", "--once") == 0
    desire(folder, *(f"c{number}" for number in range(count)))


def desire(folder, *names):
    wanted = folder.path / "desired" / "deep"
    wanted.mkdir(parents=True, exist_ok=True)
    manifests = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": n, "namespace": "shop"}} for n in names]
    (wanted / "all.yaml").write_text(yaml.safe_dump_all(manifests), encoding="utf-8")


def marked(folder, kind="GitTrackObject", api_version=FAROS):
    with folder.opened() as opened:
        found = opened.cluster.list(ObjectKind(api_version, kind)).items
    return sorted(each.meta.name for each in found if each.meta.annotations.get(DELETION_REQUESTED) == each.meta.uid)


# run and plan


def test_plan_and_run_include_protection(folder):
    folder.add(database(finalizers=[]), secret("password", "orders"))
    assert folder.call("plan", "-o", "json") == 2
    (planned,) = json.loads(folder.out)
    assert (planned["controller"], planned["verdict"], planned["reason"]) == ("protection", "KEEP", "Protecting")
    assert [step["step"] for step in planned["steps"]] == ["AddFinalizer"]
    assert folder.call("run", "--once", "-o", "json") == 0
    assert folder.get("example.com/v1", "Database", "orders").meta.finalizers == (PROTECT,)
    assert folder.call("plan") == 0


# request-deletion


def test_an_owner_is_asked_for_by_name_and_goes_with_its_dependents_at_the_next_run(folder):
    folder.add(database(), secret("password", "orders"))
    assert folder.call("request-deletion", "database/orders", "--confirm", "-o", "json") == 0
    assert "Secret shop/password: DELETE Asked" in folder.err
    (done,) = json.loads(folder.out)
    assert done["object"]["name"] == "orders"
    assert [(step["step"], step["outcome"]) for step in done["steps"]] == [("MarkOwner", "Done")]
    assert marked(folder, "Database", "example.com/v1") == ["orders"]
    assert folder.call("plan") == 2
    assert folder.call("run", "--once") == 0
    assert folder.names("example.com/v1", "Database") == folder.names("v1", "Secret") == []


@pytest.mark.parametrize("answer", ["n", "N"])
def test_a_no_asks_for_nothing(folder, answer):
    folder.add(database(), secret("password", "orders"))
    assert folder.call("request-deletion", "Database/orders", answer=answer) == 0
    assert "Are you sure you want to continue (Y/N)?" in folder.err
    assert marked(folder, "Database", "example.com/v1") == []


def test_nobody_to_answer_is_an_error(folder):
    folder.add(database())
    assert folder.call("request-deletion", "Database/orders") == 1
    assert "--confirm" in folder.err
    assert marked(folder, "Database", "example.com/v1") == []


def test_a_held_dependent_is_named_before_the_question(folder):
    folder.add(database(), secret("password", "orders", annotations={"reprieve.dev/hold": "audit"}))
    assert folder.call("request-deletion", "example.com/v1/Database/orders", answer="y") == 0
    assert "held until the hold is taken off: audit" in folder.err
    assert "would wait" in folder.err
    assert folder.call("run", "--once") == 3


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["orders"], "is not KIND/NAME"),
        (["Database/"], "is not KIND/NAME"),
        (["Nothing/orders"], "is no kind that is known here"),
        (["v1/Secret/password"], "is not a protected kind"),
        (["Database/gone"], "is not there"),
        (["Database/gone", "-n", "shop"], "not found"),
        (["Database/twice"], "is in 2 namespaces (a, b)"),
    ],
    ids=["no-kind", "no-name", "unknown-kind", "not-protected", "absent", "absent-in-a-namespace", "ambiguous"],
)
def test_what_cannot_be_asked_for_is_an_error_with_the_way_out(folder, words, why):
    folder.add(
        database(), secret("password"), database("twice", namespace="a"), database("twice", namespace="b", uid="b")
    )
    assert folder.call("request-deletion", *words, "--confirm") == 1
    assert why in folder.err
    assert "Traceback" not in folder.err
    assert marked(folder, "Database", "example.com/v1") == []


def test_without_an_entry_the_error_says_what_to_write(folder):
    folder.configure("apiVersion: reprieve.dev/v1alpha1\nkind: Configuration\n")
    assert folder.call("request-deletion", "Database/orders", "--confirm") == 1
    assert "protection:" in folder.err


def test_a_second_request_changes_nothing(folder):
    folder.add(database())
    assert folder.call("request-deletion", "Database/orders", "--confirm") == 0
    assert folder.call("request-deletion", "Database/orders", "--confirm") == 0
    assert "asked for already" in folder.err


# request-deletion --cascade


def test_a_cascade_marks_all_that_is_tracked_before_anything_goes(folder):
    folder.add(thing(FAROS, "GitTrack", "site"), *tracked("a"), *tracked("b"), *tracked("other", "elsewhere"))
    folder.add(thing(FAROS, "GitTrack", "elsewhere"))
    assert folder.call("request-deletion", "gittrack/site", "--cascade", "--confirm") == 0
    assert "2 owners that GitTrack shop/site tracks are marked" in folder.err
    assert folder.names(FAROS, "GitTrack") == ["elsewhere"]
    assert marked(folder) == ["configmap-a", "configmap-b"], "our finalizer holds them, though they had none before"
    assert folder.call("run", "--once") == 0
    assert folder.names("v1", "ConfigMap") == ["other"]
    assert folder.names(FAROS, "GitTrackObject") == ["configmap-other"]


def test_a_cascade_over_something_held_marks_nothing(folder):
    site(folder, 2)
    with folder.opened() as opened:
        held = opened.cluster.get(ObjectRef("v1", "ConfigMap", "c1", "shop"))
        opened.cluster.patch(held.ref, {"metadata": {"annotations": {"reprieve.dev/hold": "audit"}}})
    assert folder.call("request-deletion", "GitTrack/site", "--cascade", "--confirm") == 3
    assert "refused, nothing is marked: ConfigMap shop/c1 is held" in folder.err
    assert marked(folder) == []
    assert folder.names(FAROS, "GitTrack") == ["site"]


def test_a_cascade_under_an_owners_owner_that_goes_already_marks_nothing(folder):
    """pusher/faros#99: under a GitTrack that is being deleted nothing is adopted, and nothing marked."""
    folder.add(thing(FAROS, "GitTrack", "site", finalizers=["example.com/theirs"]), *tracked("a"))
    with folder.opened() as opened:
        opened.cluster.delete(opened.cluster.get(ObjectRef(FAROS, "GitTrack", "site", "shop")).ref)
    assert folder.call("request-deletion", "GitTrack/site", "--cascade", "--confirm") == 3
    assert marked(folder) == []


def test_an_owners_owner_that_is_named_without_cascade_is_pointed_to_it(folder):
    site(folder, 2)
    assert folder.call("request-deletion", "GitTrack/site", "--confirm") == 1
    assert "For an owner's owner use --cascade" in folder.err
    assert marked(folder) == []


@pytest.mark.parametrize("named", ["v1/ConfigMap/c1", "GitTrack/empty"])
def test_a_cascade_over_what_tracks_nothing_deletes_nothing(folder, named):
    """A mistyped kind must not turn the command into one that deletes whatever is named, unmarked."""
    site(folder, 2)
    folder.add(thing(FAROS, "GitTrack", "empty"))
    assert folder.call("request-deletion", named, "--cascade", "--confirm", "-o", "json") == 3
    assert "tracks no owner of a protected kind" in folder.err
    assert json.loads(folder.out) == []
    assert folder.names(FAROS, "GitTrack") == ["empty", "site"]
    assert folder.names("v1", "ConfigMap") == ["c0", "c1"]


# prune


def test_what_left_the_desired_set_is_marked_and_goes_at_the_next_run(folder):
    site(folder)
    desire(folder, "c0", "c1", "c2", "c3")
    assert folder.call("prune", "--owner", "GitTrack/site", "--desired", folder.path / "desired", answer="y") == 0
    assert "configmap-c4: DELETE ManifestGone" in folder.err
    assert marked(folder) == ["configmap-c4"]
    assert folder.call("run", "--once") == 0
    assert folder.names("v1", "ConfigMap") == ["c0", "c1", "c2", "c3"]


def test_a_manifest_that_is_back_takes_its_mark_off(folder):
    site(folder)
    desire(folder, "c0", "c1", "c2", "c3")
    prune = ["prune", "--owner", "GitTrack/site", "--desired", folder.path / "desired", "--confirm", "-o", "json"]
    assert folder.call(*prune) == 0
    desire(folder, "c0", "c1", "c2", "c3", "c4")
    assert folder.call(*prune) == 0
    steps = {each["object"]["name"]: [step["step"] for step in each["steps"]] for each in json.loads(folder.out)}
    assert steps["configmap-c4"] == ["UnmarkOwner"]
    assert marked(folder) == []


@pytest.mark.parametrize(
    ("wanted", "why"), [(["c0"], "would mark 4 of 5 owners (80 %), limit 20 % (1)"), ([], "is empty")]
)
def test_the_brake_stops_everything_and_says_the_numbers(folder, wanted, why):
    """pusher/faros#100, #102: an empty or a wrong subPath deletes everything that is not in it."""
    site(folder)
    desire(folder, *wanted)
    assert folder.call("prune", "--owner", "GitTrack/site", "--desired", folder.path / "desired", "--confirm") == 3
    assert why in folder.err
    assert "request-deletion" in folder.err
    assert marked(folder) == []


def test_the_limit_of_the_entry_counts(folder):
    folder.configure(CONFIGURATION.replace("dialect: faros", "dialect: faros\n    maxPruned: 4"))
    site(folder)
    desire(folder, "c0")
    assert folder.call("prune", "--owner", "GitTrack/site", "--desired", folder.path / "desired", "--confirm") == 0
    assert len(marked(folder)) == 4


def test_a_broken_file_makes_the_set_partial_and_nothing_is_marked(folder):
    site(folder)
    desire(folder, "c0", "c1", "c2", "c3")
    (folder.path / "desired" / "broken.yml").write_text("a: [", encoding="utf-8")
    assert folder.call("prune", "--owner", "GitTrack/site", "--desired", folder.path / "desired", "--confirm") == 1
    assert "incomplete" in folder.err
    assert "broken.yml" in folder.err
    assert marked(folder) == []


def test_a_link_to_a_folder_makes_the_set_partial(folder, tmp_path):
    site(folder)
    desire(folder, "c0", "c1", "c2", "c3")
    (folder.path / "desired" / "linked").symlink_to(tmp_path)
    assert folder.call("prune", "--owner", "GitTrack/site", "--desired", folder.path / "desired", "--confirm") == 1
    assert "links are not followed" in folder.err
    assert marked(folder) == []


def test_a_missing_folder_marks_nothing(folder):
    site(folder)
    assert folder.call("prune", "--owner", "GitTrack/site", "--desired", folder.path / "nowhere", "--confirm") == 1
    assert "is not there" in folder.err
    assert marked(folder) == []


def test_an_empty_name_of_a_folder_is_not_the_working_directory(folder):
    """``--desired "$CHECKOUT"`` with the variable unset: whatever lies about there is not the desired set."""
    site(folder, 2)
    assert folder.call("prune", "--owner", "GitTrack/site", "--desired", "", "--confirm") == 1
    assert "--desired is empty" in folder.err
    assert marked(folder) == []


def test_an_owners_owner_that_is_not_there_prunes_nothing(folder):
    site(folder)
    desire(folder, "c0")
    assert folder.call("prune", "--owner", "GitTrack/gone", "--desired", folder.path / "desired", "--confirm") == 3
    assert "the loss of an owner is no request" in folder.err
    assert marked(folder) == []


def test_an_owners_owner_that_cannot_be_told_is_an_error(folder):
    site(folder, 2)
    folder.add(thing(FAROS, "GitTrack", "site", namespace="other"))
    desire(folder, "c0")
    words = ["prune", "--owner", "GitTrack/site", "--desired", folder.path / "desired", "--confirm"]
    assert folder.call(*words) == 1
    assert "is in 2 namespaces" in folder.err
    assert marked(folder) == []


# shield


def test_the_shield_is_printed_as_kubectl_reads_it(folder):
    assert folder.call("shield") == 0
    policy, binding = yaml.safe_load_all(folder.out)
    assert (policy["kind"], binding["kind"]) == ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    (validation,) = policy["spec"]["validations"]
    assert '"GitTrackObject"' in validation["expression"]
    assert '"Database"' in validation["expression"]
    assert folder.call("shield", "-o", "json") == 0
    listed = json.loads(folder.out)
    assert listed["kind"] == "List"
    assert listed["items"] == [policy, binding]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("apiVersion: reprieve.dev/v1alpha1\nkind: Configuration\n", "protects no owner kind"),
        (
            CONFIGURATION.replace("otherwise: Orphan", "otherwise: Orphan\n    shield: {collector: false}"),
            "switched off",
        ),
    ],
    ids=["no-entry", "off"],
)
def test_without_a_kind_to_shield_there_is_an_error_and_no_policy(folder, text, why):
    folder.configure(text)
    assert folder.call("shield") == 1
    assert why in folder.err
    assert folder.out == ""


def test_the_markers_policy_is_printed_as_kubectl_reads_it(folder):
    folder.configure(CONFIGURATION.replace("backups: false\n", ""))
    assert folder.call("shield", "--markers") == 0
    policy, binding = yaml.safe_load_all(folder.out)
    assert policy["metadata"]["name"] == binding["metadata"]["name"] == "reprieve-markers"
    account, _, guarded = [each["expression"] for each in policy["spec"]["matchConditions"]]
    assert '["system:serviceaccount:velero:reprieve"]' in account
    for kind in (
        "example.com/Database",
        "faros.pusher.com/GitTrackObject",
        "/Secret",
        "/Namespace",
        "velero.io/Backup",
    ):
        assert f'"{kind}"' in guarded
    assert folder.call("shield", "--markers", "--requests", "--service-account", "ops/rep", "-o", "json") == 0
    names = [each["metadata"]["name"] for each in json.loads(folder.out)["items"]]
    assert names == ["reprieve-markers"] * 2 + ["reprieve-requests"] * 2
    assert folder.out.count("system:serviceaccount:ops:rep") == 2


BACKUPS_ONLY = "apiVersion: reprieve.dev/v1alpha1\nkind: Configuration\n"
NOTHING = f"{BACKUPS_ONLY}backups: false\n"


def test_the_markers_policy_guards_backups_without_any_protected_kind(folder):
    folder.configure(f"{BACKUPS_ONLY}backups: {{namespace: ops, dialect: ark, ark: {{bucket: b, provider: aws}}}}\n")
    assert folder.call("shield", "--markers", "--requests") == 0
    assert '["ark.heptio.com/Backup", "ark.heptio.com/DeleteBackupRequest"]' in folder.out
    assert "system:serviceaccount:ops:reprieve" in folder.out
    assert "ownerReferences" not in folder.out


@pytest.mark.parametrize(
    ("text", "words", "why"),
    [
        pytest.param(NOTHING, ["--markers"], "protection: has no entry", id="nothing-to-guard"),
        pytest.param(NOTHING, ["--markers", "--requests"], "guards deletion requests", id="no-requests"),
        pytest.param(CONFIGURATION, ["--requests"], "go with --markers", id="requests-alone"),
        pytest.param(CONFIGURATION, ["--service-account", "a/b"], "go with --markers", id="an-account-alone"),
        pytest.param(CONFIGURATION, ["--markers", "--service-account", "b"], "write NAMESPACE/NAME", id="no-namespace"),
        pytest.param(CONFIGURATION, ["--markers", "--service-account", "a/b/c"], "write NAMESPACE/NAME", id="too-much"),
        pytest.param(CONFIGURATION, ["--markers", "--service-account", 'a/"]'], "write NAMESPACE/NAME", id="no-name"),
    ],
)
def test_a_markers_policy_that_cannot_be_is_an_error_and_nothing_is_printed(folder, text, words, why):
    folder.configure(text)
    assert folder.call("shield", *words) == 1
    assert why in folder.err
    assert folder.out == ""


def test_a_check_needs_a_cluster(folder):
    assert folder.call("shield", "--check") == 1
    assert "--check goes without --local" in folder.err


# release


def test_release_orphans_what_a_terminating_owner_has_and_takes_every_finalizer_off(folder):
    folder.add(database("live"), secret("mine", "live"))
    folder.add(
        database("dying"), secret("yours", "dying"), secret("held", "dying", annotations={"reprieve.dev/hold": "x"})
    )
    with folder.opened() as opened:
        opened.cluster.delete(opened.cluster.get(ObjectRef("example.com/v1", "Database", "dying", "shop")).ref)
    assert folder.call("release", "--confirm") == 0
    assert "Database shop/dying: is being deleted: 2 dependents are orphaned" in folder.err
    assert "kubectl delete validatingadmissionpolicybinding,validatingadmissionpolicy reprieve-shield" in folder.err
    assert folder.names("example.com/v1", "Database") == ["live"]
    assert folder.names("v1", "Secret") == ["held", "mine", "yours"]
    assert folder.get("example.com/v1", "Database", "live").meta.finalizers == ()
    assert folder.get("v1", "Secret", "yours").meta.annotations[ORPHANED_FROM] == "uid-dying/uid-yours"


def test_release_of_one_leaves_the_others(folder):
    folder.add(database("one"), database("two"))
    assert folder.call("release", "Database/one", answer="y") == 0
    assert folder.get("example.com/v1", "Database", "one").meta.finalizers == ()
    assert folder.get("example.com/v1", "Database", "two").meta.finalizers == (PROTECT,)
    assert folder.call("release", "Database/one", "--confirm") == 1
    assert "nothing to take off" in folder.err


def test_release_works_for_kinds_that_are_no_longer_configured(folder):
    folder.add(thing("example.com/v1", "Queue", "jobs", finalizers=[PROTECT, "example.com/theirs"]))
    assert folder.call("release", "example.com/v1/Queue/jobs", "--confirm", "-o", "json") == 0
    assert [step["step"] for step in json.loads(folder.out)[0]["steps"]] == ["RemoveFinalizer"]
    assert folder.get("example.com/v1", "Queue", "jobs").meta.finalizers == ("example.com/theirs",)


def test_release_without_a_name_finds_kinds_that_are_no_longer_configured(folder):
    folder.configure("apiVersion: reprieve.dev/v1alpha1\nkind: Configuration\n")
    folder.add(thing("example.com/v1", "Queue", "jobs", finalizers=[PROTECT]))
    assert folder.call("release", "--confirm") == 0
    assert folder.get("example.com/v1", "Queue", "jobs").meta.finalizers == ()


def test_an_owner_whose_dependents_are_not_known_needs_force(folder):
    undecodable = {**thing(FAROS, "GitTrackObject", "configmap-x", finalizers=[PROTECT]), "spec": {"data": "%"}}
    folder.add(undecodable, thing("v1", "ConfigMap", "x", (FAROS, "GitTrackObject", "configmap-x")), database("live"))
    with folder.opened() as opened:
        opened.cluster.delete(opened.cluster.get(ObjectRef(FAROS, "GitTrackObject", "configmap-x", "shop")).ref)
    assert folder.call("release", "--confirm") == 3
    assert "GitTrackObject shop/configmap-x: stays" in folder.err
    assert "--force" in folder.err
    assert folder.names(FAROS, "GitTrackObject") == ["configmap-x"]
    assert folder.get("example.com/v1", "Database", "live").meta.finalizers == ()
    assert folder.call("release", "--force", "--confirm") == 0
    assert folder.names(FAROS, "GitTrackObject") == []


def test_a_terminating_owner_of_a_kind_that_is_no_longer_configured_needs_force(folder):
    folder.add(thing("example.com/v1", "Queue", "jobs", finalizers=[PROTECT]))
    with folder.opened() as opened:
        opened.cluster.delete(opened.cluster.get(ObjectRef("example.com/v1", "Queue", "jobs", "shop")).ref)
    assert folder.call("release", "--confirm", "-o", "json") == 3
    assert "example.com/v1/Queue is not configured, so its dependents are not known" in folder.err
    assert json.loads(folder.out) == []
    assert folder.call("release", "example.com/v1/Queue/jobs", "--force", "--confirm") == 0
    assert folder.names("example.com/v1", "Queue") == []


def test_release_orphans_what_two_terminating_owners_share(folder):
    """Each takes its own reference off, one after the other: the second rests on what the first left behind."""
    folder.add(database("a"), database("b"), secret("both", "a", "b"), secret("one", "a"), secret("two", "b"))
    with folder.opened() as opened:
        for name in ("a", "b"):
            opened.cluster.delete(opened.cluster.get(ObjectRef("example.com/v1", "Database", name, "shop")).ref)
    assert folder.call("release", "--confirm") == 0, folder.err
    assert folder.names("example.com/v1", "Database") == []
    assert folder.names("v1", "Secret") == ["both", "one", "two"]
    assert folder.get("v1", "Secret", "both").meta.owners == ()


def test_release_does_not_let_an_owner_go_whose_dependents_became_unknown_during_the_question(folder, monkeypatch):
    """What could be read before the question and cannot be read after it is unknown, and unknown is never let go."""
    folder.add(database(), secret("password", "orders"), database("live"))
    with folder.opened() as opened:
        opened.cluster.delete(opened.cluster.get(ObjectRef("example.com/v1", "Database", "orders", "shop")).ref)

    def yes_and_the_read_fails_from_now_on(_question):
        lost = UnknownDependent(ObjectRef("v1", "Secret", "(any)", "shop"), "its kind cannot be listed: 503")
        monkeypatch.setattr(DependentReader, "gather", lambda *_: (lost,))
        return True

    monkeypatch.setattr(release.screen, "ask", yes_and_the_read_fails_from_now_on)
    assert folder.call("release", "-o", "json") == 1
    assert "Database shop/orders: it stays: its kind cannot be listed: 503" in folder.err
    assert {each["object"]["name"]: len(each["steps"]) for each in json.loads(folder.out)} == {"live": 1, "orders": 0}
    assert folder.names("example.com/v1", "Database") == ["live", "orders"]
    assert folder.names("v1", "Secret") == ["password"]


def test_release_says_to_delete_the_shield_only_when_nothing_needs_it_any_more(folder):
    folder.add(database("one"), database("two"))
    assert folder.call("release", "Database/one", "--confirm") == 0
    assert "Once no owner carries our finalizer any more, delete the shield too" in folder.err
    assert folder.call("release", answer="n") == 0
    assert "Once no owner carries our finalizer any more, delete the shield too" in folder.err
    assert folder.call("release", "--confirm") == 0
    assert "If the shield is in the cluster, delete it too: kubectl delete" in folder.err


def test_release_refuses_while_a_run_is_at_work_in_the_folder(folder):
    folder.add(database())
    descriptor = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert folder.call("release", "--confirm") == 1
    finally:
        os.close(descriptor)
    assert "another reprieve is at work in this folder" in folder.err
    assert folder.get("example.com/v1", "Database", "orders").meta.finalizers == (PROTECT,)


def test_what_is_served_in_two_versions_is_released_once():
    """The configuration may name another version than the one that the cluster prefers: the object is the same."""
    both = [ObjectKind("example.com/v1beta1", "Database"), ObjectKind("example.com/v1", "Database")]
    stored = resource_from_json(database())

    class TwoVersions:
        def list(self, kind, **_):
            return Listing([evolve(stored, type=kind)], "1")

    assert [each.type for each in holders(TwoVersions(), both).found] == both[:1]


def test_nothing_to_release_is_said(folder):
    assert folder.call("release", "--confirm") == 0
    assert f"nothing carries {PROTECT}" in folder.err


# demo


def test_the_demo_tells_the_accidents_and_keeps_what_nobody_asked_for(folder, tmp_path):
    assert folder.call("demo", "--keep", tmp_path / "demo", local=False) == 0
    lines = [line.split() for line in folder.out.splitlines() if line]
    left = {line[0]: line[-2:] for line in lines if line[0] in {"GitTracks", "Deployments", "ConfigMaps", "CronJobs"}}
    assert left == {
        "GitTracks": ["4", "1"],
        "Deployments": ["4", "4"],
        "ConfigMaps": ["5", "4"],
        "CronJobs": ["4", "4"],
    }
    assert Propagation.FOREGROUND.value.lower() in folder.out


# Over HTTP


@pytest.fixture
def served(api, tmp_path):
    """The options that lead the command to an API server, which serves a few kinds more."""
    for kind in ("example.com/v1/Database", f"{FAROS}/GitTrack", "example.com/v1/Queue"):
        parsed = ObjectKind.parse(kind)
        api.store.register(known(parsed) or guessed(parsed, ("shop",)))
    cluster = {"name": "c", "cluster": {"server": api.url}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [cluster]}
    config |= {"contexts": [context], "users": [{"name": "u", "user": {"token": "t"}}]}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config), encoding="utf-8")
    (tmp_path / "config.yaml").write_text(CONFIGURATION, encoding="utf-8")
    return ["--kubeconfig", str(tmp_path / "kubeconfig"), "--config", str(tmp_path / "config.yaml")]


def test_the_shield_asks_the_cluster_for_its_version(folder, served):
    assert folder.call("shield", "--check", *served, local=False) == 0
    assert "the cluster runs v1.36.0: it can have the shield" in folder.err


def lease(renewed):
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 15, "renewTime": renewed.isoformat()}
    meta = {"name": "reprieve-controller", "namespace": "default"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


def test_release_refuses_while_a_controller_holds_the_lease(folder, store, served):
    """Also with -n, which is the namespace of what is named and not that of the lease."""
    store.create(database())
    store.create(lease(datetime.now(UTC)))
    assert folder.call("release", "Database/orders", "-n", "shop", "--confirm", *served, local=False) == 1
    assert "a controller runs (somebody holds the lease default/reprieve-controller)" in folder.err
    assert store.get(ObjectKind("example.com/v1", "Database"), "shop", "orders")["metadata"]["finalizers"] == [PROTECT]


def test_release_finds_every_finalizer_by_discovery(folder, store, served):
    store.create(lease(datetime(2026, 1, 1, tzinfo=UTC)))
    for obj in (database(), thing("example.com/v1", "Queue", "jobs", finalizers=[PROTECT])):
        store.create(obj)
    assert folder.call("release", "--confirm", *served, local=False) == 0
    for kind, name in (("Database", "orders"), ("Queue", "jobs")):
        assert "finalizers" not in store.get(ObjectKind("example.com/v1", kind), "shop", name)["metadata"]


def test_a_run_over_http_lets_an_asked_owner_go_with_its_dependents(folder, store, served):
    made = store.create(database())
    reference = {"apiVersion": "example.com/v1", "kind": "Database", "name": "orders", "uid": made["metadata"]["uid"]}
    password = secret("password")
    store.create({**password, "metadata": {**password["metadata"], "ownerReferences": [reference]}})
    assert folder.call("request-deletion", "Database/orders", "--confirm", *served, local=False) == 0
    assert folder.call("run", "--once", *served, local=False) == 0
    assert store.list(ObjectKind("example.com/v1", "Database")).items == ()
    assert store.list(ObjectKind("v1", "Secret")).items == ()


def rights(api, *, allowed):
    """The answer to whether this account may list every kind."""
    review = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}, "spec": {}}
    api.faults.append(
        times(9, Answer(201, {**review, "status": {"allowed": allowed}}), part="selfsubjectaccessreviews")
    )


def warnings(cluster):
    entries = read_configuration(yaml.safe_load(CONFIGURATION)).protection
    with structlog.testing.capture_logs() as logs:
        check_at_start(cluster, entries, local=False)
    return [entry for entry in logs if entry["log_level"] == "warning"]


def test_the_start_warns_of_finalizers_of_kinds_that_are_no_longer_configured(api, store, cluster):
    rights(api, allowed=True)
    store.register(guessed(ObjectKind("example.com/v1", "Queue"), ("shop",)))
    store.create(thing("example.com/v1", "Queue", "jobs", finalizers=[PROTECT]))
    told = [(warning.get("kind"), warning.get("such_as")) for warning in warnings(cluster)]
    assert told == [("example.com/v1/Queue", "shop/jobs"), (None, None)]


def test_an_account_that_may_not_list_everything_does_not_try(api, store, cluster):
    rights(api, allowed=False)
    store.register(guessed(ObjectKind("example.com/v1", "Queue"), ("shop",)))
    store.create(thing("example.com/v1", "Queue", "jobs", finalizers=[PROTECT]))
    assert [warning.get("such_as") for warning in warnings(cluster)] == [None]


def test_the_start_warns_of_a_missing_shield_beside_faros(api, store, cluster):
    rights(api, allowed=True)
    (missing,) = warnings(cluster)
    assert "the shield is not in the cluster" in missing["event"]
    for kind in SHIELD_KINDS:
        store.register(known(kind))
        store.create({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "reprieve-shield"}})
    assert warnings(cluster) == []
