"""The inventory: the union of what all witnesses name, and why it cannot be told."""

import random

import pytest

from reprieve.core.backups import (
    CsiContent,
    DataMoverItem,
    Inventory,
    ListAbsent,
    ListCorrupt,
    NativeSnapshot,
    RepositorySnapshot,
    Unlisted,
    Unnamed,
)
from reprieve.core.witnesses import ListRead, Live, assemble
from tests.unit.builders import a_backup

NATIVE, REPOSITORY, CSI, OPERATIONS, INFO = (
    "volumesnapshots",
    "podvolumebackups",
    "csi-volumesnapshotcontents",
    "itemoperations",
    "volumeinfo",
)
SNAP = NativeSnapshot("snap-1", "vsl-1", "eu-west-1a", "pv")
SNAP_INFO = NativeSnapshot("snap-1", "", "eu-west-1a", "pv")
FAILED = NativeSnapshot("", "vsl-1", "", "pv-2")


def lists(**read):
    """The five lists: what is named was read with these items, or is what it is; the others are absent."""
    names = {"native": NATIVE, "repository": REPOSITORY, "csi": CSI, "operations": OPERATIONS, "info": INFO}
    found = {name: ListAbsent(name) for name in names.values()}
    for word, content in read.items():
        found[names[word]] = ListRead(names[word], content) if isinstance(content, list) else content
    return found


def modern(**read):
    """The lists of a whole backup of Velero 1.17: all but the csi list."""
    return lists(**{"native": [], "repository": [], "operations": [], "info": [], **read})


@pytest.mark.parametrize(
    ("backup", "read", "live", "items"),
    [
        pytest.param({}, modern(), [], [], id="nothing"),
        pytest.param({}, modern(native=[SNAP], info=[SNAP_INFO]), [], [SNAP], id="both-name-a-native-snapshot"),
        pytest.param(
            {"snapshot_locations": ["vsl-1"]},
            modern(info=[SNAP_INFO]),
            [],
            [SNAP],
            id="its-only-location-is-the-records",
        ),
        pytest.param({}, modern(info=[SNAP_INFO]), [], [SNAP_INFO], id="no-location-is-known"),
        pytest.param(
            {"snapshot_locations": ["vsl-1", "vsl-2"]},
            modern(info=[SNAP_INFO]),
            [],
            [SNAP_INFO],
            id="one-of-two-unknown",
        ),
        pytest.param({"legacy_snapshots": [SNAP]}, lists(), [], [SNAP], id="the-record-names-it"),
        pytest.param(
            {},
            modern(repository=[RepositorySnapshot("k", "kopia")], info=[RepositorySnapshot("k", "restic")]),
            [RepositorySnapshot("k", "kopia"), RepositorySnapshot("k2", "kopia")],
            [RepositorySnapshot("k", "kopia"), RepositorySnapshot("k2", "kopia")],
            id="repository-snapshots-by-id",
        ),
        pytest.param(
            {},
            modern(operations=[DataMoverItem("du-1")], info=[DataMoverItem("du-1")]),
            [],
            [DataMoverItem("du-1")],
            id="data-mover-items",
        ),
        pytest.param(
            {},
            modern(operations=[CsiContent("c")], info=[CsiContent("c", "d", "h")]),
            [CsiContent("c", "d", "h"), CsiContent("vsc-1", "d", "h"), CsiContent("e", "d", "i")],
            [CsiContent("c", "d", "h"), CsiContent("e", "d", "i")],
            id="csi-snapshots-by-content-or-handle",
        ),
        pytest.param(
            {},
            modern(info=[CsiContent("c", "d", "h"), CsiContent("", "d", "i"), CsiContent("")]),
            [CsiContent("c", "d", "other"), CsiContent("c", "other", "h"), CsiContent("")],
            [
                CsiContent(""),
                CsiContent("c", "d", "other"),
                CsiContent("c", "other", "h"),
                CsiContent("c", "d", "h"),
                CsiContent("", "d", "i"),
                CsiContent(""),
            ],
            id="what-contradicts-or-names-nothing-counts-by-itself",
        ),
    ],
)
def test_what_two_witnesses_name_counts_once(backup, read, live, items):
    """Nothing that any of them names is lost."""
    found = assemble(a_backup(**backup), read, Live(live))
    assert sorted(found.items, key=repr) == sorted(items, key=repr)
    assert found.troubles == ()


@pytest.mark.parametrize(
    ("backup", "read", "troubles"),
    [
        pytest.param({}, lists(), [], id="nothing-was-written-and-nothing-is-claimed"),
        pytest.param({}, lists(native=[]), [], id="velero-1-12-wrote-what-there-was"),
        pytest.param(
            {},
            lists(info=[]),
            [ListAbsent(REPOSITORY, INFO), ListAbsent(NATIVE, INFO)],
            id="volumeinfo-without-the-lists-beside-it",
        ),
        pytest.param(
            {}, lists(info=ListCorrupt(INFO, "x"), native=[], repository=[]), [ListCorrupt(INFO, "x")], id="corrupt"
        ),
        pytest.param(
            {},
            lists(csi=[], native=[]),
            [ListAbsent(REPOSITORY, CSI)],
            id="a-csi-list-without-the-lists-beside-it",
        ),
        pytest.param({"snapshots_completed": 1}, lists(), [ListAbsent(NATIVE)], id="completed-without-a-list"),
        pytest.param({"snapshots_attempted": 1}, lists(), [ListAbsent(NATIVE)], id="attempted-without-a-list"),
        pytest.param(
            {"snapshots_completed": 2},
            modern(native=[SNAP, SNAP]),
            [ListCorrupt(NATIVE, "it names 1 snapshots, and the record says that 2 were completed")],
            id="one-snapshot-named-twice",
        ),
        pytest.param(
            {"snapshots_completed": 1, "snapshots_attempted": 3},
            modern(native=[SNAP, FAILED]),
            [ListCorrupt(NATIVE, "it has 2 snapshots, and the record says that 3 were attempted")],
            id="an-attempted-one-that-the-list-does-not-have",
        ),
        pytest.param(
            {"snapshots_completed": 1, "snapshots_attempted": 2}, modern(native=[SNAP, FAILED]), [], id="one-failed"
        ),
        pytest.param(
            {"csi_snapshots_attempted": 2},
            modern(),
            [Unnamed("the record says that 2 CSI snapshots were attempted, but no list names them")],
            id="csi-attempted-and-nothing-names-them",
        ),
        pytest.param(
            {"csi_snapshots_attempted": 2, "csi_snapshots_completed": 2, "operations_attempted": 2},
            lists(),
            [Unnamed("the record says that 2 CSI snapshots were completed, but no list names them")],
            id="csi-completed-and-nothing-names-them",
        ),
        pytest.param(
            {"csi_snapshots_attempted": 2},
            modern(info=[CsiContent("c")]),
            [Unnamed("the record says that 2 CSI snapshots were attempted, but only 1 of them are named anywhere")],
            id="csi-attempted-and-one-is-named",
        ),
        pytest.param({"csi_snapshots_attempted": 1}, modern(info=[DataMoverItem("du-1")]), [], id="csi-moved"),
        pytest.param(
            {"operations_attempted": 3},
            lists(),
            [Unnamed("the record says that 3 operations were attempted, but no list names them")],
            id="operations-attempted-and-no-list",
        ),
        pytest.param({"operations_attempted": 3}, modern(), [], id="operations-of-others"),
        pytest.param(
            {"operations_attempted": 3}, lists(csi=[CsiContent("c")], native=[], repository=[]), [], id="made"
        ),
        pytest.param(
            {"moves_data": True},
            lists(),
            [
                Unnamed(
                    "the record says that its snapshots were moved (spec.snapshotMoveData), but no list names what was"
                )
            ],
            id="moved-and-no-list",
        ),
        pytest.param({"moves_data": True, "phase": "Failed"}, lists(), [], id="failed-before-it-moved-anything"),
        pytest.param({"moves_data": True}, modern(), [], id="nothing-to-move"),
    ],
)
def test_what_cannot_be_told_is_said(backup, read, troubles):
    """A list that is absent is missed only where it must have been written."""
    assert sorted(assemble(a_backup(**backup), read, Live()).troubles, key=repr) == sorted(troubles, key=repr)


def test_kinds_that_could_not_be_listed_are_troubles():
    """They may name data."""
    unlisted = Unlisted("VolumeSnapshot", "403")
    assert assemble(a_backup(), modern(), Live((), [unlisted])) == Inventory((), [unlisted])


def test_a_tool_without_lists_misses_none():
    """Ark's records name all themselves."""
    assert assemble(a_backup(snapshots_attempted=2, legacy_snapshots=[SNAP]), {}, Live()) == Inventory([SNAP])


def test_the_order_of_the_witnesses_does_not_matter():
    """The same facts in any order give the same inventory."""
    read = modern(native=[SNAP], operations=[CsiContent("c")], info=[CsiContent("c", "d", "h"), SNAP_INFO])
    live = [CsiContent("c", "d", "h"), CsiContent("e"), RepositorySnapshot("k", "kopia"), DataMoverItem("du")]
    answers = set()
    for seed in range(20):
        shuffled, order = [*live], [*read.items()]
        random.Random(seed).shuffle(shuffled)
        random.Random(seed).shuffle(order)
        answers.add(assemble(a_backup(), dict(order), Live(shuffled)))
    assert len(answers) == 1
