"""Asking the clouds whose the snapshots of a list are: how often, how much, and what an answer that fails comes to."""

from collections import Counter
from datetime import timedelta

import pytest
from attrs import define, evolve, field

from reprieve.core.errors import DeniedError, InvalidError, UnavailableError
from reprieve.core.outcomes import Denied, InUse
from reprieve.core.ports import SnapshotInfo
from reprieve.core.reasons import Reason
from reprieve.core.requests import Admitted, Deferred, Refused
from reprieve.core.retention import draft_request
from reprieve.entrypoints.controller.build import mark_reader
from reprieve.entrypoints.controller.marks import CHUNK, MarkReader, OtherLists
from reprieve.entrypoints.world import World
from tests.unit.overtime import DAY, HOUR, NOW, files_of, location, packed, record
from tests.unit.test_deletion_controller import LIST, TAGS, Scene, a_record, ask, reasons, restore, the


@define
class Asked:
    """Snapshot stores that count what they are asked, and fail where they are told to."""

    inner: object
    calls: Counter = field(factory=Counter)
    faults: dict = field(factory=dict)
    tags: list = field(factory=list)

    @property
    def providers(self):
        return self.inner.providers

    def open(self, place, *, credential=None):
        return AskedStore(self, self.inner.open(place, credential=credential))


@define
class AskedStore:
    asked: Asked
    store: object

    def _note(self, call, *names):
        self.asked.calls[call] += 1
        for name in (call, *names):
            if name in self.asked.faults:
                raise self.asked.faults[name]

    def list(self, tag, value=""):
        self.asked.tags.append((tag, value))
        self._note("list")
        return self.store.list(tag, value)

    def get(self, snapshot):
        self._note("get", snapshot)
        return self.store.get(snapshot)

    def delete(self, snapshot):
        self._note("delete")
        return self.store.delete(snapshot)


class Watched(Scene):
    """A scene whose clouds count; ``untagged`` are providers that need no tag."""

    def __init__(self, *objects, untagged=(), **options):
        super().__init__(*objects, **options)
        self.clouds = Asked(self.snapshots)
        self.configuration = evolve(self.configuration, untagged=frozenset(untagged))

    @property
    def world(self):
        return World(self.configuration, self.cluster, self.stores, self.clouds, self.events)

    def untag(self, *names):
        """Take the tags off some snapshots, as before somebody began to tag them."""
        self.snapshots.snapshots[:] = [
            SnapshotInfo(each.provider, each.id) if each.id in names else each for each in self.snapshots.snapshots
        ]

    def judge(self, marks=None):
        """What admission says of the backup now, and the reader to ask again with."""
        marks = marks or mark_reader(self.world)
        backup = marks.reader.backup("nightly")
        return marks.judge(marks.reader.gather(draft_request(backup), []), now=NOW)[1]


def test_a_deletion_costs_one_listing_and_not_one_question_a_snapshot():
    scene = Watched(ask("ask"), snapshots=tuple(f"snap-{number}" for number in range(50)))
    assert reasons(scene.delete()) == {"ask": Reason.COMPLETED}
    assert scene.clouds.calls == Counter({"delete": 50, "list": 1})
    assert scene.clouds.tags == [("velero.io/backup", "nightly")]


def test_what_the_listing_lacks_is_asked_for_by_its_id_and_not_deleted_when_it_is_not_there():
    scene = Watched(ask("ask"), snapshots=("snap-1", "snap-2", "snap-3"))
    scene.snapshots.snapshots.pop()
    assert reasons(scene.delete()) == {"ask": Reason.COMPLETED}
    assert scene.clouds.calls == Counter({"list": 1, "get": 1, "delete": 2})


@pytest.mark.parametrize(
    ("request_", "backup"),
    [
        pytest.param(ask("ask"), a_record(annotations={"reprieve.dev/hold": "law"}, snapshots=("a", "b")), id="held"),
        pytest.param(ask("ask", uid="other"), a_record(snapshots=("a", "b")), id="refused"),
        pytest.param(ask("ask", backup="nobody"), a_record(snapshots=("a", "b")), id="for-nobody"),
    ],
)
def test_what_is_not_admitted_anyway_costs_no_call(request_, backup):
    scene = Watched(request_, backup=backup)
    scene.delete()
    assert scene.clouds.calls == Counter()


def test_what_was_seen_gone_is_not_asked_for_again_at_each_look():
    """A deletion that waits for a restore comes back often; a thousand snapshots were asked for each time."""
    finalizer = ("restores.velero.io/external-resources-finalizer",)
    scene = Watched(ask("ask"), restores=(restore("r1", finalizers=finalizer),), snapshots=("snap-1", "snap-2"))
    scene.snapshots.snapshots.pop()
    built = scene.build("deletion")
    (reconciler,) = built.reconcilers
    reconciler.keys()
    for hours in range(5):
        reconciler.reconcile(("velero", "nightly"), now=NOW + hours * HOUR)
        reconciler.keys()
    built.close()
    assert scene.names("Restore") == {"r1"}
    assert scene.clouds.calls == Counter({"list": 5, "get": 1, "delete": 1})


@pytest.mark.parametrize(
    "fault", [UnavailableError("no answer"), DeniedError("not allowed"), InvalidError("no subscription")], ids=repr
)
def test_a_listing_that_fails_is_no_empty_one(fault):
    """Then the deletion waits, and says why; nothing of it was touched."""
    scene = Watched(ask("ask"))
    scene.clouds.faults = {"list": fault}
    report = scene.delete()
    assert (the(report).reason, str(fault) in the(report).message) == (Reason.SNAPSHOTS_UNPROVEN, True)
    assert (scene.left(), scene.phase(), scene.request()) == ({"snap-1", "snap-2"}, "Completed", ("", [], {}))
    scene.clouds.faults = {}
    assert reasons(scene.delete()) == {"ask": Reason.COMPLETED}


def test_a_snapshot_that_cannot_be_asked_for_is_not_gone():
    scene = Watched(ask("ask"))
    scene.untag("snap-2")
    scene.clouds.faults = {"get": UnavailableError("no answer")}
    assert reasons(scene.delete()) == {"ask": Reason.SNAPSHOTS_UNPROVEN}


def test_an_id_that_no_snapshot_can_have_refuses_before_anything_goes():
    """The store refused it only after the others were deleted."""
    scene = Watched(ask("ask"), snapshots=("snap-1", "../other"))
    scene.snapshots.snapshots.pop()
    scene.clouds.faults = {"../other": InvalidError("'../other' is not the id of a snapshot")}
    assert reasons(scene.delete()) == {"ask": Reason.NOT_THE_BACKUPS}
    assert "'../other' is not the id of a snapshot" in scene.request()[1][0]
    assert scene.left() == {"snap-1"}


def test_a_wait_in_the_middle_counts_no_attempt_and_keeps_the_phase_to_give_back():
    scene = Watched(ask("ask"))
    scene.snapshots.outcomes = {each: [InUse("an image"), Denied("no")] for each in ("snap-1", "snap-2")}
    scene.delete()
    scene.clouds.faults = {"list": UnavailableError("no answer")}
    assert reasons(scene.delete(at=NOW + DAY)) == {"ask": Reason.SNAPSHOTS_UNPROVEN}
    assert (scene.noted()["attempts"], scene.noted()["reason"]) == (1, "SnapshotsUnproven")
    scene.clouds.faults = {}
    assert reasons(scene.delete(at=NOW + 2 * DAY)) == {"ask": Reason.FAILED}
    assert scene.phase() == "Completed"


def test_a_list_of_others_snapshots_is_not_asked_for_to_its_end():
    """Twenty thousand made-up entries: some are enough to refuse, and to name."""
    named = tuple(f"snap-{number:05}" for number in range(20_000))
    scene = Watched(snapshots=named)
    scene.untag(*named)
    found = scene.judge()
    assert isinstance(found, Refused)
    assert scene.clouds.calls["get"] == CHUNK


def test_a_long_list_of_old_snapshots_is_asked_for_to_its_end():
    named = tuple(f"snap-{number:05}" for number in range(3 * CHUNK))
    scene = Watched(snapshots=named, untagged=["aws"])
    scene.untag(*named)
    assert isinstance(scene.judge(), Admitted)
    assert scene.clouds.calls["get"] == 3 * CHUNK


# What other records name


def other(name="weekly", *, snapshots=("snap-2",), **options):
    """Another record, and its files."""
    document = record(name, **options)
    document["metadata"]["uid"] = f"uid-of-{name}"
    return document, files_of(document, snapshots=snapshots)


def with_other(*snapshots, untagged=("aws",), **options):
    """A scene with untagged snapshots, of which another record names some."""
    document, files = other(snapshots=snapshots, **options)
    scene = Watched(ask("ask"), document, untagged=untagged)
    scene.stores.buckets["b"] |= files
    scene.untag("snap-1", "snap-2")
    return scene


def test_where_no_tag_is_required_one_that_another_record_names_refuses():
    scene = with_other("snap-2", annotations={"reprieve.dev/hold": "case 4711"})
    assert reasons(scene.delete()) == {"ask": Reason.NOT_THE_BACKUPS}
    said = scene.request()[1][0]
    assert "snap-2 in aws is named by backup weekly too, which is held until the hold is taken off: case 4711" in said
    assert "snap-1" not in said
    assert scene.left() == {"snap-1", "snap-2"}


def test_where_no_tag_is_required_old_ones_go():
    assert reasons(with_other("snap-9").delete()) == {"ask": Reason.COMPLETED}


def test_where_tags_are_required_other_records_are_not_read():
    scene = with_other("snap-9", untagged=())
    keys = []
    scene.fault = lambda _operation, _bucket, key: keys.append(key)
    assert "carries no backup's tag" in scene.judge().message
    assert {key.split("/")[1] for key in keys if key.startswith("backups/")} == {"nightly"}


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        pytest.param(
            lambda scene: scene.stores.buckets["b"].update({LIST.replace("nightly", "weekly"): b"cut off"}),
            "weekly-volumesnapshots.json.gz of backup weekly cannot be read: it is not gzip",
            id="a-damaged-list",
        ),
        pytest.param(
            lambda scene: scene.stores.buckets["b"].pop(LIST.replace("nightly", "weekly")),
            "weekly-volumesnapshots.json.gz of backup weekly cannot be read: it is not there",
            id="a-lost-list",
        ),
        pytest.param(
            lambda scene: scene.change("weekly", {"spec": {"storageLocation": "gone"}}),
            "storage location gone of backup weekly cannot be read",
            id="a-lost-location",
        ),
    ],
)
def test_what_other_records_name_must_be_known(spoil, why):
    """What could not be read may name them: the deletion waits."""
    scene = with_other("snap-9", volumeSnapshotsCompleted=1)
    spoil(scene)
    found = scene.judge()
    assert isinstance(found, Deferred)
    assert why in found.message


def test_a_list_that_another_deletion_has_taken_away_names_nothing_any_more():
    scene = with_other("snap-9", volumeSnapshotsCompleted=1)
    del scene.stores.buckets["b"][LIST.replace("nightly", "weekly")]
    note = {"reprieve.dev/deletion": '{"uid": "uid-of-weekly", "request": "x", "stage": "bucketFiles"}'}
    scene.change("weekly", {"metadata": {"annotations": note}, "status": {"phase": "Deleting"}})
    assert isinstance(scene.judge(), Admitted)


def test_a_backup_that_is_being_made_has_no_list_yet():
    scene = with_other("snap-9", phase="InProgress", volumeSnapshotsCompleted=1)
    del scene.stores.buckets["b"][LIST.replace("nightly", "weekly")]
    assert isinstance(scene.judge(), Admitted)


def test_a_claim_in_a_location_that_is_gone_counts_for_every_provider_that_needs_no_tag():
    scene = with_other("snap-9")
    lost = [{"spec": {"location": "gone"}, "status": {"providerSnapshotID": "snap-1"}}]
    scene.stores.buckets["b"][LIST.replace("nightly", "weekly")] = packed(lost)
    assert "snap-1 in aws is named by backup weekly too" in scene.judge().message


def test_other_lists_are_read_once_a_minute_for_all_who_ask():
    """A thousand old backups that expire would each have read the lists of the other 999."""
    clock = [0.0]
    scene = with_other("snap-9")
    built = mark_reader(scene.world)
    marks = MarkReader(built.reader, scene.clouds, frozenset({"aws"}), others=OtherLists(lambda: clock[0]))
    scene.judge(marks)
    scene.reads.clear()
    scene.judge(marks)
    again = scene.reads["read"]
    clock[0] = 60.0
    scene.reads.clear()
    scene.judge(marks)
    assert scene.reads["read"] > again


def test_the_draft_of_retention_is_judged_alike():
    """A request that would be refused is not filed: the next pass would file it again, for ever."""
    expired = a_record(snapshots=("snap-1", "snap-2"), expires=NOW - DAY)
    scene = Watched(backup=expired)
    scene.untag("snap-2")
    report = scene.run("retention")
    (decision,) = report.decisions
    assert (decision.reason, scene.names("DeleteBackupRequest")) == (Reason.NOT_THE_BACKUPS, set())


def test_a_location_of_its_own_for_each_account():
    """Two snapshot locations: each is asked once, in its own place."""
    places = [location()]
    scene = Watched(ask("ask"), places=places, backup=a_record(snapshots=("snap-1", "snap-2")))
    scene.cluster.cluster.create(
        {
            "apiVersion": "velero.io/v1",
            "kind": "VolumeSnapshotLocation",
            "metadata": {"name": "gcp", "namespace": "velero"},
            "spec": {"provider": "gcp"},
        }
    )
    entries = [
        {"spec": {"location": "aws"}, "status": {"providerSnapshotID": "snap-1"}},
        {"spec": {"location": "gcp"}, "status": {"providerSnapshotID": "snap-2"}},
    ]
    scene.stores.buckets["b"][LIST] = packed(entries)
    scene.change("nightly", {"spec": {"volumeSnapshotLocations": ["aws", "gcp"]}})
    scene.snapshots.snapshots[1] = SnapshotInfo("gcp", "snap-2", TAGS)
    assert reasons(scene.delete(at=NOW + timedelta(seconds=1))) == {"ask": Reason.COMPLETED}
    assert scene.clouds.calls == Counter({"list": 2, "delete": 2})
