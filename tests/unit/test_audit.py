"""The audit: records and lists against snapshots. What is missing, what is orphaned, what nobody can tell."""

from datetime import timedelta

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.audit import (
    AuditedBackup,
    AuditFacts,
    AuditReport,
    MissingPart,
    OrphanedSnapshot,
    PlaceUnreadable,
    SnapshotsListed,
    SnapshotsUnreadable,
    UnknownPart,
    audit,
    report_to_json,
)
from reprieve.core.backups import Inventory, ListAbsent, ListCorrupt, RepositorySnapshot, Unlisted, Unnamed
from reprieve.core.ports import SnapshotInfo
from tests.unit.builders import NOW, a_snapshot, a_snapshot_location

DAY = timedelta(days=1)
AWS = a_snapshot_location("vsl-1")
LIST = "backups/foo/foo-volumesnapshots.json.gz"


def backup(*snapshots, name="foo", phase="Completed", troubles=(), absent=()):
    return AuditedBackup(name, "default", phase, Inventory(snapshots, troubles), absent)


def there(snapshot="snap-1", *, tag="foo", key="velero.io/backup", provider="aws", created=NOW - DAY, size=None):
    return SnapshotInfo(provider, snapshot, {key: tag} if tag else {}, created, size)


def facts(*backups, listed=(), location=AWS, unreadable=(), **fields):
    return AuditFacts(backups, **{"listings": [SnapshotsListed(location, listed)], "unreadable": unreadable, **fields})


def report(*backups, **fields):
    return audit(facts(*backups, **fields), now=NOW)


def test_what_is_named_and_there_is_no_finding():
    found = report(backup(a_snapshot()), listed=[there()])

    assert found == AuditReport()
    assert found.is_clean


def test_what_cannot_be_told_of_csi_snapshots_is_unknown_once_and_orphans_what_it_did_before():
    """A count that nothing explains is of no native snapshot; kinds that may not be listed are told once."""
    troubles = [Unnamed("2 were attempted"), Unlisted("VolumeSnapshot", "403")]
    found = report(backup(troubles=troubles), backup(name="bar", phase="Deleting", troubles=troubles), listed=[there()])

    assert found.unknown == (
        UnknownPart("default: backup foo", "2 were attempted"),
        UnknownPart("live objects: VolumeSnapshot", "403"),
    )
    assert [orphan.snapshot.id for orphan in found.orphaned] == ["snap-1"]


def test_a_snapshot_that_is_not_there_is_missing():
    found = report(backup(a_snapshot("snap-1"), a_snapshot("snap-2")), listed=[there("snap-1")])

    assert found == AuditReport(missing=[MissingPart("foo", "aws", "snap-2", "vsl-1")])
    assert not found.is_clean


def test_a_file_that_must_be_there_is_missing():
    found = report(backup(absent=["backups/foo/foo.tar.gz"], troubles=[ListAbsent(LIST)]))

    assert [part.id for part in found.missing] == [LIST, "backups/foo/foo.tar.gz"]
    assert {(part.backup, part.provider, part.location) for part in found.missing} == {("foo", "", "default")}


@pytest.mark.parametrize("phase", ["Deleting", "InProgress", "Finalizing", ""])
def test_nothing_is_missed_while_somebody_works_on_it(phase):
    given_backup = backup(a_snapshot(), phase=phase, absent=["backups/foo/foo.tar.gz"], troubles=[ListAbsent(LIST)])

    assert report(given_backup).missing == ()


@pytest.mark.parametrize(
    "given_backup",
    [
        pytest.param(backup(a_snapshot("")), id="never-taken"),
        pytest.param(backup(RepositorySnapshot("id", "kopia")), id="not-native"),
    ],
)
def test_what_no_provider_could_have_is_not_missed(given_backup):
    assert report(given_backup).is_clean


@pytest.mark.parametrize(
    "key", ["velero.io/backup", "velero.io-backup", "ark.heptio.com/backup", "ark.heptio.com-backup"]
)
def test_a_tagged_snapshot_that_no_record_names_is_orphaned(key):
    """velero#3465, velero#8160: snapshots stay in the cloud, and nobody knows (D-28, D-33)."""
    orphan = there(key=key)

    assert report(listed=[orphan]) == AuditReport(orphaned=[OrphanedSnapshot(orphan, "foo", DAY)])


def test_a_snapshot_that_its_backups_whole_list_does_not_name_is_orphaned():
    found = report(backup(a_snapshot("snap-1")), listed=[there("snap-1"), there("snap-2")])

    assert [orphan.snapshot.id for orphan in found.orphaned] == ["snap-2"]


@pytest.mark.parametrize("tag", ["", None])
def test_a_snapshot_without_the_tag_is_nobodys_business(tag):
    untagged = SnapshotInfo("aws", "snap-1", {} if tag is None else {"velero.io/backup": tag})

    assert report(listed=[untagged]).is_clean


def test_a_provider_that_tells_no_time_tells_no_age():
    assert report(listed=[there(created=None)]).orphaned[0].age is None


@pytest.mark.parametrize("phase", ["InProgress", "New", "WaitingForPluginOperations"])
def test_a_running_backup_has_its_snapshots_before_its_list(phase):
    assert report(backup(phase=phase), listed=[there()]).is_clean


def test_two_locations_of_one_account_show_a_snapshot_once():
    listings = [SnapshotsListed(a_snapshot_location(name), [there()]) for name in ("vsl-1", "vsl-2")]

    assert len(report(listings=listings).orphaned) == 1


def test_a_snapshot_named_under_another_location_of_its_provider_is_no_orphan():
    listings = [SnapshotsListed(a_snapshot_location("vsl-1"), [there()]), SnapshotsListed(a_snapshot_location("vsl-2"))]
    found = report(backup(a_snapshot(location="vsl-2")), listings=listings)

    assert found.orphaned == ()
    assert [part.location for part in found.missing] == ["vsl-2"]


def test_azure_ids_are_the_same_in_upper_and_lower_case():
    location = a_snapshot_location("vsl-1", provider="azure")
    name = "/subscriptions/s/resourceGroups/RG/providers/Microsoft.Compute/snapshots/x"
    found = report(
        backup(a_snapshot(name)), location=location, listed=[there(name.replace("RG", "rg"), provider="azure")]
    )

    assert found.is_clean


# Unknown blames nobody


@pytest.mark.parametrize(
    ("backups", "unreadable", "what"),
    [
        pytest.param([], [PlaceUnreadable("the cluster", "timeout")], "the cluster could not be read", id="cluster"),
        pytest.param([], [PlaceUnreadable("location b", "403")], "location b could not be read", id="location"),
        pytest.param(
            [backup()], [PlaceUnreadable("b/foo", "500", "foo")], "b/foo could not be read", id="the-directory"
        ),
        pytest.param([backup(troubles=[ListCorrupt(LIST, "why")])], [], f"{LIST} cannot be read: why", id="corrupt"),
        pytest.param([backup(troubles=[ListAbsent(LIST)])], [], f"{LIST} is not there", id="list-absent"),
    ],
)
def test_what_could_be_explained_by_something_unread_is_unknown(backups, unreadable, what):
    found = report(*backups, listed=[there()], unreadable=unreadable)

    assert found.orphaned == ()
    assert (
        UnknownPart("aws snapshot snap-1 of backup foo", f"no list that was read names it, but {what}") in found.unknown
    )


@pytest.mark.parametrize(
    ("backups", "unreadable"),
    [
        pytest.param([backup(name="bar", troubles=[ListCorrupt("k", "why")])], [], id="another-backups-list"),
        pytest.param([], [PlaceUnreadable("b/bar", "500", "bar")], id="another-backups-directory"),
    ],
)
def test_what_could_not_have_explained_it_excuses_nothing(backups, unreadable):
    assert [o.snapshot.id for o in report(*backups, listed=[there()], unreadable=unreadable).orphaned] == ["snap-1"]


def test_whatever_was_not_read_is_said():
    listings = [SnapshotsUnreadable(AWS, "denied")]
    found = report(
        backup(a_snapshot(), troubles=[ListCorrupt(LIST, "not gzip")]),
        listings=listings,
        unreadable=[PlaceUnreadable("location b", "no such bucket")],
    )

    assert found.missing == ()
    assert found.unknown == (
        UnknownPart("aws snapshots of location vsl-1", "denied"),
        UnknownPart(f"default: {LIST}", "not gzip"),
        UnknownPart("location b", "no such bucket"),
    )


@pytest.mark.parametrize(("location", "named"), [("gone", "gone"), ("", "(none named)")])
def test_a_snapshot_whose_location_nobody_answers_for_is_unknown(location, named):
    found = report(backup(a_snapshot(location=location)))

    assert found.missing == ()
    why = f"snapshot location {named} does not exist, or its provider is not configured"
    assert found.unknown == (UnknownPart("snapshot snap-1 of backup foo", why),)


def test_a_snapshot_whose_location_is_gone_is_still_named():
    """Its list names it, under a location that is not there any more: that makes it no orphan of the provider."""
    assert report(backup(a_snapshot(location="gone")), listed=[there()]).orphaned == ()


# Output


def test_the_report_for_machines():
    found = report(
        backup(a_snapshot("snap-2"), troubles=[ListCorrupt(LIST, "why")]), listed=[there(tag="bar", size=42)]
    )

    assert report_to_json(found) == {
        "missing": [{"backup": "foo", "provider": "aws", "id": "snap-2"}],
        "orphaned": [
            {
                "provider": "aws",
                "id": "snap-1",
                "tags": {"velero.io/backup": "bar"},
                "created": "2024-04-03T12:00:00Z",
                "size": 42,
            }
        ],
        "unknown": [{"what": f"default: {LIST}", "why": "why"}],
    }


def test_what_a_provider_does_not_tell_is_not_made_up():
    (orphan,) = report_to_json(report(listed=[there(created=None)]))["orphaned"]

    assert orphan == {"provider": "aws", "id": "snap-1", "tags": {"velero.io/backup": "foo"}, "created": None}


# Properties

IDS = st.sampled_from(["snap-1", "snap-2", "snap-3", ""])
PLACES = st.sampled_from(["vsl-1", "vsl-2", "vsl-3", ""])
TROUBLES = st.lists(st.sampled_from([ListCorrupt(LIST, "why"), ListAbsent(LIST)]), max_size=1)
BACKUPS = st.builds(
    lambda name, phase, pairs, troubles: backup(
        *(a_snapshot(i, location=place) for i, place in pairs), name=name, phase=phase, troubles=troubles
    ),
    st.sampled_from(["foo", "bar"]),
    st.sampled_from(["Completed", "InProgress", "Deleting"]),
    st.lists(st.tuples(IDS, PLACES), max_size=3),
    TROUBLES,
)
INFOS = st.builds(there, IDS.filter(bool), tag=st.sampled_from(["foo", "bar", "baz", ""]))
LISTINGS = st.builds(
    lambda name, infos: SnapshotsListed(a_snapshot_location(name), infos),
    st.sampled_from(["vsl-1", "vsl-2"]),
    st.lists(INFOS, max_size=4),
)
UNREADABLE = st.lists(
    st.sampled_from([PlaceUnreadable("b", "why"), PlaceUnreadable("c", "why", "foo")]), max_size=1, unique=True
)
WORLDS = st.builds(
    AuditFacts,
    st.lists(BACKUPS, max_size=4),
    st.lists(LISTINGS, max_size=2, unique_by=lambda listing: listing.location.name),
    UNREADABLE,
)


@given(WORLDS, st.randoms(use_true_random=False))
def test_the_order_of_the_facts_does_not_matter(world, shuffler):
    backups, listings = list(world.backups), list(world.listings)
    shuffler.shuffle(backups)
    shuffler.shuffle(listings)

    assert audit(attrs.evolve(world, backups=backups, listings=listings), now=NOW) == audit(world, now=NOW)


@given(WORLDS)
def test_while_a_place_is_unread_nobody_is_blamed(world):
    blind = attrs.evolve(world, unreadable=[PlaceUnreadable("location b", "403")])

    assert audit(blind, now=NOW).orphaned == ()


@given(WORLDS)
def test_what_is_named_is_never_an_orphan(world):
    named = {item.id for each in world.backups for item in each.inventory.items}

    assert not {orphan.snapshot.id for orphan in audit(world, now=NOW).orphaned} & named
