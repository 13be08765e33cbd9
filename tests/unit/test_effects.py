"""Carrying out steps: every step that was begun has an outcome, nothing raises, nothing is asked twice that is gone."""

import threading

import pytest

from reprieve.adapters.local import LocalCluster, MemoryObjectStores, MemorySnapshotStores
from reprieve.core.backups import SecretKey, SnapshotLocation, StorageLocation
from reprieve.core.errors import NotFoundError, UnavailableError
from reprieve.core.outcomes import AlreadyGone, Denied, Done, InUse, Invalid, Pending, Retryable, Unknown
from reprieve.core.ports import SnapshotInfo
from reprieve.core.requests import Stage
from reprieve.core.steps import DeleteFiles, DeleteSnapshot
from reprieve.entrypoints.controller.effects import Effects, Places, Pools, delete_files
from reprieve.entrypoints.controller.secrets import Secrets

PLACES = Places(
    {"default": StorageLocation("default", "aws", "b")},
    {"aws": SnapshotLocation("aws", "aws"), "secret": SnapshotLocation("secret", "aws", {}, SecretKey("cloud", "key"))},
)


class Bench:
    """Effects over memory, with what was asked of the snapshot store."""

    def __init__(self, *ids, outcomes=None, before=None, files=None):
        self.asked = []
        self.stores = MemorySnapshotStores(
            [SnapshotInfo("aws", each) for each in ids], outcomes=outcomes, before=before or self.asked.append
        )
        self.cluster = LocalCluster.in_memory()
        self.pools = Pools(4)
        self.stop = threading.Event()
        objects = MemoryObjectStores({"b": files or {}})
        self.effects = Effects(
            self.cluster, objects, self.stores, Secrets(self.cluster, "velero"), self.pools, self.stop
        )

    def delete(self, *ids, location="aws", scope=""):
        steps = [DeleteSnapshot("aws", each, location) for each in ids]
        results = self.effects.run(Stage("snapshots", steps), PLACES, scope=scope)
        return {result.step.id: result.outcome for result in results}


@pytest.fixture
def bench(request):
    """Make benches, and close their threads at the end."""
    made = []

    def make(*ids, **options):
        made.append(Bench(*ids, **options))
        return made[-1]

    yield make
    for each in made:
        each.pools.close()


def test_every_step_has_its_own_outcome(bench):
    """One that is in use does not keep the others from their end."""
    outcomes = bench("a", "b", outcomes={"b": [InUse("image")]}).delete("a", "b", "c")
    assert outcomes == {"a": Done(), "b": InUse("image"), "c": AlreadyGone()}


def test_a_snapshot_that_was_seen_gone_is_not_asked_for_again(bench):
    """A deletion that waited for a restore asked for all of its snapshots again, at every look."""
    made = bench("a", "b", outcomes={"b": [Pending(), InUse("image")]})
    assert made.delete("a", "b", scope="uid-1")["a"] == Done()
    assert made.delete("a", "b", scope="uid-1") == {"a": AlreadyGone(), "b": InUse("image")}
    assert made.delete("a", "b", scope="uid-1") == {"a": AlreadyGone(), "b": Done()}
    assert sorted(made.asked) == ["a", "b", "b", "b"]


def test_what_one_backup_saw_gone_says_nothing_about_another(bench):
    """A name can be used again, by another backup's snapshot."""
    made = bench("a")
    assert made.delete("a", scope="uid-1") == {"a": Done()}
    made.stores.snapshots.append(SnapshotInfo("aws", "a"))
    assert made.delete("a", scope="uid-2") == {"a": Done()}
    assert made.delete("a") == {"a": AlreadyGone()}


def test_a_stop_leaves_steps_untried(bench):
    """A step that was not begun has no outcome, and is not asked for."""
    made = bench("a", "b")
    made.stop.set()
    assert made.delete("a", "b") == {}
    assert made.asked == []


def test_a_missing_secret_is_never_taken_for_a_snapshot_that_is_gone(bench):
    """The credential's Secret answered "not found", and the snapshot would have passed for deleted."""
    outcome = bench("a").delete("a", location="secret")["a"]
    assert isinstance(outcome, Denied)
    assert "Secret velero/cloud" in outcome.message


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        pytest.param(UnavailableError("down"), Retryable, id="unavailable"),
        pytest.param(RuntimeError("a bug"), Unknown, id="a-bug-is-unknown-never-done"),
    ],
)
def test_what_a_store_raises_becomes_an_outcome(bench, fault, kind):
    """Nothing that goes wrong with one step stops the others."""

    def raise_for_a(snapshot):
        if snapshot == "a":
            raise fault

    outcomes = bench("a", "b", before=raise_for_a).delete("a", "b")
    assert isinstance(outcomes["a"], kind)
    assert outcomes["b"] == Done()


class BrokenStores:
    """Object storage that cannot even be opened."""

    def open(self, location, *, credential=None):
        raise NotFoundError("no such thing")


def test_a_place_that_cannot_be_opened_is_never_gone():
    """ "Not found" before the delete was asked for says nothing about the files."""
    cluster, pools = LocalCluster.in_memory(), Pools(1)
    effects = Effects(cluster, BrokenStores(), MemorySnapshotStores(), Secrets(cluster, "velero"), pools)
    (result,) = effects.run(Stage("bucketFiles", [DeleteFiles("default", "backups/x/", "")]), PLACES)
    assert result.outcome == Invalid("no such thing")
    assert result.intact
    pools.close()


# Files


FILES = {"backups/x/a": b"1", "backups/x/velero-backup.json": b"2", "backups/xy/c": b"3"}


class Stubborn:
    """A store that says Done and keeps one key."""

    def __init__(self, inner, kept):
        self.inner, self.kept = inner, kept

    def list(self, prefix):
        return self.inner.list(prefix)

    def delete(self, keys):
        return {key: Done() if key == self.kept else self.inner.delete([key])[key] for key in keys}


def opened(files):
    """A store over these files."""
    return MemoryObjectStores({"b": files}).open(PLACES.locations["default"])


def test_all_files_but_one_go_and_no_other_directory_is_touched():
    """The metadata file is spared; a name that begins alike is another backup."""
    stores = MemoryObjectStores({"b": FILES})
    ended = delete_files(stores.open(PLACES.locations["default"]), "backups/x/", spare="backups/x/velero-backup.json")
    assert ended.outcome == Done()
    assert set(stores.buckets["b"]) == {"backups/x/velero-backup.json", "backups/xy/c"}


def test_a_file_that_is_still_there_is_not_done():
    """A second list tells, whatever the first answer said."""
    ended = delete_files(Stubborn(opened(FILES), "backups/x/a"), "backups/x/", spare="")
    assert isinstance(ended.outcome, Retryable)
    assert "backups/x/a" in ended.outcome.message


def test_no_files_are_gone_already():
    """An empty directory is the aim, reached by somebody else."""
    assert delete_files(opened({}), "backups/x/", spare="").outcome == AlreadyGone()
