"""The survey: what could not be read is a fact with its reason, and nothing is blamed for it."""

from attrs import evolve

from reprieve.core.audit import audit
from reprieve.core.errors import DeniedError, UnavailableError
from reprieve.core.ports import SnapshotInfo
from reprieve.entrypoints.cli.audit import survey
from tests.unit.overtime import NOW, Namespace, files_of, location, made, record

AWS = made("VolumeSnapshotLocation", "aws", spec={"provider": "aws"})
TAGGED = SnapshotInfo("aws", "snap-1", {"velero.io/backup": "foo"})


class Broken:
    """Snapshot stores whose calls of one name fail."""

    def __init__(self, inner, *, on):
        self.inner, self.on, self.providers = inner, on, inner.providers

    def open(self, location, *, credential=None):
        self.store = self.inner.open(location, credential=credential)
        return self

    def list(self, tag, value=""):
        self._fail("list")
        return self.store.list(tag, value)

    def get(self, snapshot):
        self._fail("get")
        return self.store.get(snapshot)

    def _fail(self, name):
        if name == self.on:
            raise DeniedError("403")


def scene(*, snapshots=(TAGGED,)):
    """A backup with two snapshots in its list."""
    foo = record("foo", volumeSnapshotsCompleted=2)
    return Namespace(
        location(), AWS, foo, buckets={"b": files_of(foo, snapshots=["snap-1", "snap-2"])}, snapshots=snapshots
    )


def report(ns, *, on=""):
    world = ns.world
    world = evolve(world, snapshot_stores=Broken(world.snapshot_stores, on=on))
    return audit(survey(world).facts(), now=NOW)


def whats(found):
    return [part.what for part in found.unknown]


def test_a_snapshot_that_is_not_there_is_missing():
    """The other one is; nothing is unknown."""
    found = report(scene())
    assert [part.id for part in found.missing] == ["snap-2"]
    assert (found.orphaned, found.unknown) == ((), ())


def test_a_provider_that_cannot_be_listed_blames_nobody():
    """No snapshot of it is missing or orphaned."""
    found = report(scene(), on="list")
    assert (found.missing, found.orphaned) == ((), ())
    assert whats(found) == ["aws snapshots of location aws"]


def test_a_snapshot_that_cannot_be_asked_for_is_not_missing():
    """It is unknown, with its reason."""
    found = report(scene(), on="get")
    assert found.missing == ()
    assert whats(found) == ["aws snapshot snap-2 of location aws"]


def test_a_cluster_that_cannot_be_listed_orphans_nothing():
    """A record in it could name the snapshot."""
    ns = scene()

    def refuse(verb, kind, _name):
        if (verb, kind) in {("list", "Backup"), ("list", "VolumeSnapshotLocation")}:
            raise UnavailableError("timeout")

    ns.cluster.before = refuse
    found = report(ns)
    assert (found.missing, found.orphaned) == ((), ())
    assert whats(found) == ["namespace velero of the cluster", "snapshot locations"]


def test_locations_that_cannot_be_listed_are_not_said_to_be_missing():
    """The audit said of every backup that its storage location does not exist; it was forbidden to list them."""
    ns = scene()

    def refuse(verb, kind, _name):
        if (verb, kind) == ("list", "BackupStorageLocation"):
            raise DeniedError("403")

    ns.cluster.before = refuse
    found = report(ns)
    assert (found.missing, found.orphaned) == ((), ())
    assert {part.what: part.why for part in found.unknown} == {
        "namespace velero of the cluster": "403",
        "aws snapshot snap-1 of backup foo": (
            "no list that was read names it, but namespace velero of the cluster could not be read"
        ),
    }


def test_a_directory_that_cannot_be_listed_blames_nobody():
    """Its list could name the snapshots."""
    ns = scene()

    def refuse(operation, _bucket, key):
        if operation == "list" and key == "backups/foo/":
            raise DeniedError("403")

    ns.fault = refuse
    found = report(ns)
    assert (found.missing, found.orphaned) == ((), ())
    assert whats(found) == ["aws snapshot snap-1 of backup foo", "default: backups/foo/"]


def test_what_only_a_directory_without_metadata_and_record_names_is_orphaned():
    """No request can be filed for it, and sync brings no record back: the snapshots are lost unless this tells it."""
    files = files_of(record("foo"), snapshots=["snap-1"])
    left = {key: data for key, data in files.items() if not key.endswith("velero-backup.json")}
    ns = Namespace(location(), AWS, buckets={"b": left}, snapshots=[TAGGED])
    found = report(ns)
    assert [orphan.snapshot.id for orphan in found.orphaned] == ["snap-1"]
    assert (found.missing, found.unknown) == ((), ())


def test_a_listing_that_breaks_off_blames_nobody_for_what_came_after():
    """What was seen is audited; a snapshot of a backup that was not seen is unknown, not orphaned."""
    unseen = SnapshotInfo("aws", "snap-9", {"velero.io/backup": "zoo"})
    ns = scene(snapshots=[TAGGED, unseen])
    open_ = ns.stores.open

    class Half:
        """A store whose listing of directories ends in the middle."""

        def __init__(self, store):
            self.read, self.list = store.read, store.list

        def list_directories(self, _prefix):
            yield "foo"
            raise UnavailableError("reset")

    ns.stores.open = lambda place, *, credential=None: Half(open_(place, credential=credential))
    found = report(ns)
    assert [part.id for part in found.missing] == ["snap-2"]
    assert found.orphaned == ()
    assert whats(found) == ["aws snapshot snap-9 of backup zoo", "storage location default"]
