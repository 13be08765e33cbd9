"""Sync: records follow one bucket. The tables of answers, the rewriting, the mirror of holds, and the stories."""

import copy
import hashlib
import json
from datetime import timedelta

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.backups import (
    HOLD_MIRRORED,
    METADATA_MISSING,
    SCHEDULE_NAME,
    STORAGE_LOCATION,
    SYNC_INCOMPLETE,
    SYNCED_AT,
    CsiContent,
    DataMoverItem,
    Directory,
    DirectoryUnreadable,
    Inventory,
    Layout,
    ListAbsent,
    ListCorrupt,
    MetadataAbsent,
    MetadataCorrupt,
    MetadataPresent,
    RepositorySnapshot,
)
from reprieve.core.holds import HOLD, HOLD_UNTIL, MIRRORED_FROM
from reprieve.core.objects import ObjectKind, ObjectRef, label_safe
from reprieve.core.pruning import Count, Percentage
from reprieve.core.reasons import Reason
from reprieve.core.records import RecordHome
from reprieve.core.requests import plan
from reprieve.core.steps import ChangeMetadata, CreateRecord, DeleteFile, DeleteObject, WriteHoldFile, merge_patch
from reprieve.core.sync import (
    CompleteListing,
    Create,
    Drop,
    Leave,
    Look,
    NotSynced,
    PartialListing,
    Questions,
    StoredBackup,
    StoredFault,
    Synced,
    SyncFacts,
    SyncLater,
    SyncNow,
    SyncOff,
    TooManyDropped,
    UnavailableListing,
    VolumesRead,
    adopt_hold,
    compare,
    finish,
    hold_content,
    mirror_of,
    mirrored_holds,
    questions,
    sync_time,
)
from reprieve.core.values import format_instant
from tests.unit.builders import NOW, STARTED, a_backup, a_location, a_snapshot, stage_of
from tests.unit.builders import facts as deletion_facts

HOUR = timedelta(hours=1)
KIND = ObjectKind("velero.io/v1", "Backup")
SCHEDULE = ObjectRef("velero.io/v1", "Schedule", "nightly", "velero", "uid-nightly")
HOME = RecordHome(KIND, "velero", "default", schedules={SCHEDULE})
GONE = Directory(MetadataAbsent())
THERE = Directory(MetadataPresent(STARTED))


def record(name="foo", *, labels=None, deleted=None, **fields):
    made = a_backup(name, **{"uid": f"uid-{name}", **fields})
    return attrs.evolve(made, meta=attrs.evolve(made.meta, labels=labels or {}, deleted=deleted))


def document(name="foo", *, phase="Completed", **metadata):
    return {
        "apiVersion": "velero.io/v1",
        "kind": "Backup",
        "metadata": {"name": name, "namespace": "old", "uid": "old-uid", "resourceVersion": "77", **metadata},
        "spec": {"storageLocation": "old", "ttl": "720h0m0s"},
        "status": {"phase": phase},
    }


def stored(name="foo", *, phase="Completed", expiration=None, metadata=None, **fields):
    read = a_backup(name, phase=phase, expiration=expiration)
    fields = {"volumes": ListAbsent("list"), **fields}
    return StoredBackup(name, read, document(name, phase=phase, **(metadata or {})), **fields)


def facts(*records, listing=None, location=None, **fields):
    names = listing if listing is not None else CompleteListing({"other"})
    fields = {"home": HOME, **fields}
    return SyncFacts(location or a_location(), listing=names, records=records, **fields)


def decide(*records, now=NOW, **fields):
    return compare(facts(*records, **fields), now=now)


def answer(name, *records, now=NOW, **fields):
    return {each.ref.name: each for each in decide(*records, now=now, **fields).answers}[name]


def created(found):
    """The one manifest that an answer creates."""
    assert isinstance(found, Create)
    (step,) = found.steps
    assert isinstance(step, CreateRecord)
    return step.manifest


def create(given=None, **fields):
    listing = CompleteListing({"foo"})
    return created(answer("foo", listing=listing, stored=[given or stored()], **fields))


# When


@pytest.mark.parametrize(
    ("fields", "default", "expected"),
    [
        pytest.param({}, HOUR, SyncNow(), id="never-synced"),
        pytest.param({"last_synced": NOW - HOUR}, HOUR, SyncNow(), id="exactly-a-period-ago"),
        pytest.param({"last_synced": NOW}, HOUR, SyncLater(NOW + HOUR), id="just-synced"),
        pytest.param({"last_synced": NOW + HOUR}, HOUR, SyncNow(), id="a-clock-that-runs-ahead-delays-nothing"),
        pytest.param({"last_synced": NOW, "sync_period": 2 * HOUR}, HOUR, SyncLater(NOW + 2 * HOUR), id="own-period"),
        pytest.param({"sync_period": timedelta(0)}, HOUR, SyncOff(), id="own-period-zero-is-off"),
        pytest.param({"sync_period": -HOUR, "last_synced": NOW}, HOUR, SyncLater(NOW + HOUR), id="negative-is-none"),
        pytest.param({}, timedelta(0), SyncOff(), id="default-zero-is-off"),
        pytest.param({"sync_period": HOUR}, timedelta(0), SyncNow(), id="own-period-although-default-is-off"),
    ],
)
def test_when_a_location_is_due(fields, default, expected):
    assert sync_time(a_location(**fields), default, now=NOW) == expected


# Directories without a record


@pytest.mark.parametrize(
    ("given_stored", "reason"),
    [
        pytest.param(StoredFault("foo", MetadataAbsent()), Reason.NO_METADATA, id="no-metadata"),
        pytest.param(StoredFault("foo", MetadataCorrupt("not JSON")), Reason.METADATA_CORRUPT, id="garbage"),
        pytest.param(StoredFault("foo", DirectoryUnreadable("403")), Reason.UNREADABLE, id="unreadable"),
        pytest.param(attrs.evolve(stored("bar"), name="foo"), Reason.NAME_MISMATCH, id="another-name-inside"),
        pytest.param(stored("foo", phase="Finalizing"), Reason.BACKUP_IN_PROGRESS, id="unfinished-never-expires"),
        pytest.param(
            stored("foo", phase="", expiration=NOW + HOUR), Reason.BACKUP_IN_PROGRESS, id="unfinished-not-expired"
        ),
    ],
)
def test_what_gets_no_record(given_stored, reason):
    """velero#6849 among others: directories without metadata are skipped (D-53), and said."""
    found = answer("foo", listing=CompleteListing({"foo"}), stored=[given_stored])

    assert isinstance(found, Leave)
    assert (found.reason, found.steps) == (reason, ())
    assert found.ref == ObjectRef("velero.io/v1", "Backup", "foo", "velero")


def test_a_directory_that_was_not_read_waits():
    found = decide(listing=CompleteListing({"foo"}))

    assert [each.reason for each in found.answers] == [Reason.NOT_EXAMINED]
    assert found.end == NotSynced(["foo: its metadata was not read in this pass"])


def test_a_directory_that_can_be_no_backup_is_not_asked_about():
    listing = CompleteListing({"Not A Name", "..", "foo"})

    assert questions(facts(listing=listing), now=NOW).stored == ("foo",)
    assert answer("..", listing=listing, stored=[stored()]).reason is Reason.NAME_INVALID


def test_the_record_is_rewritten():
    manifest = create(stored(metadata={"labels": {"app": "x", STORAGE_LOCATION: "old"}, "annotations": {"note": "y"}}))

    assert manifest == {
        "apiVersion": "velero.io/v1",
        "kind": "Backup",
        "metadata": {
            "name": "foo",
            "namespace": "velero",
            "labels": {"app": "x", STORAGE_LOCATION: "default"},
            "annotations": {"note": "y", SYNCED_AT: format_instant(NOW)},
        },
        "spec": {"storageLocation": "default", "ttl": "720h0m0s"},
        "status": {"phase": "Completed"},
    }


def test_a_long_location_name_makes_a_safe_label():
    """The label value of a location is its name made 63 characters at most; the spec keeps the name."""
    name = "the-really-long-location-name-that-is-much-more-than-63-characters"
    home = attrs.evolve(HOME, location=name)
    manifest = create(location=a_location(name), home=home)

    assert manifest["metadata"]["labels"][STORAGE_LOCATION] == label_safe(name)
    assert len(label_safe(name)) == 63
    assert manifest["spec"]["storageLocation"] == name


def test_a_dialect_without_locations_names_none():
    home = RecordHome(ObjectKind("ark.heptio.com/v1", "Backup"), "heptio-ark", "", Layout(backups="", located=False))
    manifest = create(home=home)

    assert manifest["apiVersion"] == "ark.heptio.com/v1"
    assert "labels" not in manifest["metadata"]
    assert manifest["spec"] == document()["spec"]


@pytest.mark.parametrize(
    "finalizers",
    [
        pytest.param(["gc.ark.heptio.com"], id="the-old-one"),
        pytest.param(["a/b", "gc.ark.heptio.com", "c/d"], id="others"),
        pytest.param("gc.ark.heptio.com", id="no-list"),
    ],
)
def test_no_finalizer_comes_back(finalizers):
    """heptio/ark#431: sync re-introduced the finalizer faster than the start could take it off.

    Whoever wrote another one here does not live in this cluster, or sets it again.
    """
    assert "finalizers" not in create(stored(metadata={"finalizers": finalizers}))["metadata"]


def test_nothing_that_velero_would_run_comes_back():
    """velero 1.18.3: hooks of a stored record are dropped; and only what a record has is taken over at all."""
    given_stored = stored()
    body = {**given_stored.document, "spec": {"hooks": {"resources": [{}]}, "ttl": "1h"}, "data": {"x": "y"}}
    manifest = create(attrs.evolve(given_stored, document=body))

    assert manifest["spec"] == {"ttl": "1h", "storageLocation": "default"}
    assert set(manifest) == {"apiVersion", "kind", "metadata", "spec", "status"}


MARKS = [
    "argocd.argoproj.io/tracking-id",
    "argocd.argoproj.io/instance",
    "kustomize.toolkit.fluxcd.io/name",
    "helm.toolkit.fluxcd.io/namespace",
    "applyset.kubernetes.io/part-of",
    "sub.argocd.argoproj.io/x",
    "reprieve.dev/deletion",
    "reprieve.dev/orphaned-from",
    "reprieve.dev/anything-to-come",
]
WORDS = {
    "team": "x",
    "example.com/a": "y",
    "velero.io/schedule-name": "nightly",
    "myargocd.argoproj.io.example.com/x": "z",
    "app.kubernetes.io/name": "shop",
}


@pytest.mark.parametrize("key", MARKS)
def test_marks_of_trackers_and_of_ours_stay_behind_and_other_words_come_back(key):
    """A tracker prunes what carries its mark and is not in its source; users select by the others."""
    both = {key: "v", **WORDS}
    metadata = create(stored(metadata={"labels": both, "annotations": both}))["metadata"]

    assert metadata["labels"] == {**WORDS, STORAGE_LOCATION: "default"}
    assert metadata["annotations"] == {**WORDS, SYNCED_AT: format_instant(NOW)}


def test_what_was_last_applied_stays_behind():
    """With it the next ``kubectl apply`` would take away what sync wrote."""
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "y"}
    manifest = create(stored(metadata={"annotations": applied}))

    assert manifest["metadata"]["annotations"] == {"note": "y", SYNCED_AT: format_instant(NOW)}


@pytest.mark.parametrize(
    ("first", "since"),
    [
        pytest.param(None, NOW, id="new"),
        pytest.param(NOW - HOUR, NOW - HOUR, id="created-before"),
        pytest.param(NOW + HOUR, NOW, id="a-date-to-come"),
    ],
)
def test_a_record_that_is_created_again_is_not_new(first, since):
    """Something prunes it as often as sync creates it: its grace would be renewed for ever."""
    manifest = create(stored(first_synced=first))

    assert manifest["metadata"]["annotations"][SYNCED_AT] == format_instant(since)


def owner(kind="Schedule", name="nightly", uid="uid-nightly", version="velero.io/v1"):
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}


@pytest.mark.parametrize(
    ("owners", "kept"),
    [
        pytest.param([owner()], [owner()], id="lives-with-that-uid"),
        pytest.param([owner(uid="uid-before")], None, id="re-created-since"),
        pytest.param([owner(uid="")], None, id="no-uid"),
        pytest.param([owner(name="weekly")], None, id="does-not-live-here"),
        pytest.param([owner(kind="ConfigMap", version="v1")], None, id="another-kind"),
        pytest.param([owner(version="other.io/v1")], None, id="another-group"),
        pytest.param([owner(), owner(kind="Pod")], [owner()], id="the-others-are-dropped"),
        pytest.param("nightly", None, id="no-list"),
        pytest.param(["nightly"], None, id="no-object"),
    ],
)
def test_owner_references_are_never_taken_over_blindly(owners, kept):
    """velero#4093, velero#7031: sync creates what the garbage collector deletes at once, endlessly (D-52).

    The Backup's owner is a Schedule that is missing here, or that was made anew with another UID.
    """
    assert create(stored(metadata={"ownerReferences": owners}))["metadata"].get("ownerReferences") == kept


def test_without_any_schedule_known_no_reference_is_kept():
    home = attrs.evolve(HOME, schedules=[ObjectRef("velero.io/v1", "Schedule", "nightly", "velero")])

    assert "ownerReferences" not in create(stored(metadata={"ownerReferences": [owner(uid="")]}), home=home)["metadata"]


def test_bookkeeping_of_another_life_is_left_behind():
    left = {SYNCED_AT: "2020-01-01T00:00:00Z", HOLD_MIRRORED: "abc", SYNC_INCOMPLETE: "true", "note": "y"}
    manifest = create(stored(metadata={"annotations": left, "labels": {METADATA_MISSING: "true"}}))

    assert manifest["metadata"]["annotations"] == {"note": "y", SYNCED_AT: format_instant(NOW)}
    assert manifest["metadata"]["labels"] == {STORAGE_LOCATION: "default"}


@pytest.mark.parametrize("phase", ["", "New", "InProgress", "WaitingForPluginOperations", "FinalizingPartiallyFailed"])
def test_an_unfinished_backup_comes_only_when_it_has_expired(phase):
    manifest = create(stored(phase=phase, expiration=NOW))

    assert manifest["status"]["phase"] == "PartiallyFailed"


def test_the_mirrored_hold_is_applied():
    """A record that comes back is held again, in place of what its document says, and knows the file as its own."""
    given_stored = stored(
        metadata={"annotations": {HOLD: "old", HOLD_UNTIL: "2020-01-01T00:00:00Z"}},
        hold={HOLD: "legal"},
        hold_sha256="digest",
    )

    assert create(given_stored)["metadata"]["annotations"] == {
        HOLD: "legal",
        HOLD_MIRRORED: "digest",
        SYNCED_AT: format_instant(NOW),
    }


def test_a_hold_in_the_document_alone_stays():
    assert create(stored(metadata={"annotations": {HOLD: "x"}}))["metadata"]["annotations"][HOLD] == "x"


@pytest.mark.parametrize(
    ("volumes", "incomplete"),
    [
        pytest.param(ListAbsent("key"), False, id="no-list"),
        pytest.param(VolumesRead(), False, id="empty-list"),
        pytest.param(VolumesRead([{"metadata": {"name": "v"}}]), True, id="some"),
        pytest.param(ListCorrupt("key", "why"), True, id="corrupt"),
        pytest.param(DirectoryUnreadable("why"), True, id="unreadable"),
    ],
)
def test_a_record_is_incomplete_until_its_volumes_are_here(volumes, incomplete):
    annotations = create(stored(volumes=volumes))["metadata"]["annotations"]

    assert (annotations.get(SYNC_INCOMPLETE) == "true") is incomplete


# Records


def test_no_blind_creates():
    """velero#1091: sync created every backup each period, and got a flood of conflicts (D-21).

    For ten thousand records that are there, nothing is read and nothing is written.
    """
    records = [record(f"b{n}") for n in range(10_000)]
    known = facts(*records, listing=CompleteListing({r.name for r in records}))

    decision = compare(known, now=NOW)

    assert questions(known, now=NOW) == Questions()
    assert all(isinstance(each, Leave) and not each.steps for each in decision.answers)
    assert decision.end == Synced()


def test_a_name_that_another_location_has_is_said():
    """Velero compares by name alone, so that a backup of another bucket hides this one, and nobody hears of it."""
    found = answer("foo", record(storage_location="second"), listing=CompleteListing({"foo"}))

    assert found.reason is Reason.OTHER_LOCATION
    assert "belongs to location second" in found.message
    assert decide(record(storage_location="second")).answers[0].ref.name == "other"


def test_an_unlisted_record_of_another_location_is_not_this_ones_business():
    assert "foo" not in {each.ref.name for each in decide(record(storage_location="second")).answers}


def vanish(*records, look=GONE, items=(), **fields):
    """The first record's directory is not listed; the look at it comes to ``look``."""
    looks = [Look(records[0].name, look, items)] if look else []
    return answer(records[0].name, *records, looks=looks, **{"max_removals": Percentage(100), **fields})


@pytest.mark.parametrize("phase", ["Completed", "PartiallyFailed"])
def test_a_record_follows_its_files(phase):
    found = vanish(record(phase=phase))

    assert isinstance(found, Drop)
    assert found.steps == (DeleteObject(record().ref, "1"),)


@pytest.mark.parametrize(
    ("given_record", "fields", "reason"),
    [
        pytest.param(record(deleted=NOW), {}, Reason.DELETING, id="terminating"),
        pytest.param(record(phase="Failed"), {}, Reason.PHASE_NOT_DROPPED, id="failed"),
        pytest.param(record(phase=""), {}, Reason.PHASE_NOT_DROPPED, id="new"),
        pytest.param(record(phase="Deleting"), {}, Reason.PHASE_NOT_DROPPED, id="deleting"),
        pytest.param(record(phase="InProgress"), {}, Reason.PHASE_NOT_DROPPED, id="running"),
        pytest.param(
            record(), {"listing": PartialListing({"a"}, "page 2: 403")}, Reason.OBSERVATION_INCOMPLETE, id="partial"
        ),
        pytest.param(record(), {"listing": CompleteListing()}, Reason.LISTING_EMPTY, id="empty"),
        pytest.param(record(annotations={HOLD: "x"}), {}, Reason.HELD, id="held"),
        pytest.param(record(), {"look": None}, Reason.NOT_EXAMINED, id="no-second-look"),
        pytest.param(record(), {"look": DirectoryUnreadable("500")}, Reason.UNREADABLE, id="second-look-failed"),
        pytest.param(record(), {"look": THERE}, Reason.LISTED_AFTER_ALL, id="there-after-all"),
        pytest.param(
            record(), {"look": Directory(MetadataCorrupt("x"))}, Reason.LISTED_AFTER_ALL, id="there-but-corrupt"
        ),
    ],
)
def test_what_is_not_dropped(given_record, fields, reason):
    found = vanish(given_record, **fields)

    assert isinstance(found, Leave)
    assert (found.reason, found.steps) == (reason, ())


@pytest.mark.parametrize(
    ("given_record", "items"),
    [
        pytest.param(record(snapshots_completed=1), [], id="native-snapshots"),
        pytest.param(record(csi_snapshots_completed=1), [], id="csi-snapshots"),
        pytest.param(record(legacy_snapshots=[a_snapshot()]), [], id="volume-backups"),
        pytest.param(record(annotations={SYNC_INCOMPLETE: "true"}), [], id="volumes-not-here-yet"),
        pytest.param(record(), [RepositorySnapshot("id", "kopia")], id="pod-volume-backup"),
        pytest.param(record(), [DataMoverItem("upload")], id="data-mover-item"),
        pytest.param(record(), [CsiContent("content")], id="csi-content"),
    ],
)
def test_a_last_pointer_to_data_is_labelled_and_stays(given_record, items):
    """velero#9480: the directory vanished first, sync dropped the record, and the snapshots stayed for ever (D-25).

    velero#9077 is the same from the other side: the lists went first, and a retry could find nothing any more (D-27).
    """
    found = vanish(given_record, items=items)

    assert isinstance(found, Leave)
    assert found.reason is Reason.METADATA_MISSING
    assert merge_patch(found.steps[0]) == {"metadata": {"labels": {METADATA_MISSING: "true"}}}


def test_a_snapshot_that_was_never_taken_is_no_pointer():
    assert isinstance(vanish(record(), items=[a_snapshot("")]), Drop)


def test_the_label_is_written_once_and_nothing_is_read_for_it_again():
    marked = record(snapshots_completed=1, labels={METADATA_MISSING: "true"})
    known = facts(marked)

    assert questions(known, now=NOW).looks == ()
    assert answer("foo", marked).reason is Reason.METADATA_MISSING
    assert answer("foo", marked).steps == ()


def test_the_label_goes_when_the_directory_is_back():
    found = answer("foo", record(labels={METADATA_MISSING: "true"}), listing=CompleteListing({"foo"}))

    assert merge_patch(found.steps[0]) == {"metadata": {"labels": {METADATA_MISSING: None}}}


# The brake


def many(total, gone):
    """So many records, the first of which have no directory any more; and the looks that confirm it."""
    records = [record(f"b{n:03}") for n in range(total)]
    listing = CompleteListing({r.name for r in records[gone:]} | {"other"})
    looks = [Look(each.name, GONE) for each in records[:gone]]
    return facts(*records, listing=listing, looks=looks, stored=[stored("other")])


def dropped(decision):
    return [each.ref.name for each in decision.answers if isinstance(each, Drop)]


def test_the_brake_says_the_numbers_and_the_way_out():
    decision = compare(many(30, 12), now=NOW)

    message = "would drop 12 of 30 records (40 %), limit 20 %: raise `sync.maxRemovals` or drop them by name"
    assert decision.end == TooManyDropped(12, 30, 6, message)
    assert dropped(decision) == []
    assert sum(each.reason is Reason.BRAKE and each.message == message for each in decision.answers) == 12


@pytest.mark.parametrize(
    ("total", "gone", "limit", "goes"),
    [
        pytest.param(30, 6, Percentage(20), True, id="exactly-the-share"),
        pytest.param(30, 7, Percentage(20), False, id="one-above-the-share"),
        pytest.param(2, 1, Percentage(20), True, id="at-least-one"),
        pytest.param(3, 2, Percentage(20), False, id="two-are-more-than-one"),
        pytest.param(10, 3, Count(3), True, id="exactly-the-number"),
        pytest.param(10, 4, Count(3), False, id="one-above-the-number"),
        pytest.param(10, 1, Count(0), True, id="zero-is-one"),
        pytest.param(3, 3, Percentage(100), True, id="no-brake-at-all"),
    ],
)
def test_the_brake(total, gone, limit, goes):
    decision = compare(attrs.evolve(many(total, gone), max_removals=limit), now=NOW)

    assert len(dropped(decision)) == (gone if goes else 0)
    assert isinstance(decision.end, Synced if goes else TooManyDropped)


def test_what_was_not_looked_at_counts_for_the_brake():
    assert isinstance(compare(attrs.evolve(many(30, 12), looks=[]), now=NOW).end, TooManyDropped)


def test_last_pointers_and_what_is_there_do_not_count_for_the_brake():
    known = many(10, 5)
    items = {0: [RepositorySnapshot("id", "kopia")]}
    looks = [Look(f"b{n:03}", THERE if n in {1, 2} else GONE, items.get(n, ())) for n in range(5)]

    decision = compare(attrs.evolve(known, looks=looks), now=NOW)

    assert dropped(decision) == ["b003", "b004"]
    assert decision.end == Synced()


def test_a_last_pointer_is_labelled_also_when_the_brake_trips():
    pointer = record("a", snapshots_completed=2)
    known = many(10, 5)
    records, looks = [pointer, *known.records], [Look("a", GONE), *known.looks]

    decision = compare(attrs.evolve(known, records=records, looks=looks), now=NOW)

    assert isinstance(decision.end, TooManyDropped)
    assert decision.end.dropped == 5
    assert decision.answers[0].reason is Reason.METADATA_MISSING
    assert len(decision.answers[0].steps) == 1


def test_no_more_is_read_than_settles_it():
    """A bucket that lost half of its directories is not asked about each of them: the brake trips anyway."""
    known = attrs.evolve(many(100, 50), looks=[])

    assert len(questions(known, now=NOW).looks) == 20 + 1


def test_all_pointers_are_looked_at():
    pointers = [record(f"p{n}", snapshots_completed=1) for n in range(30)]

    assert len(questions(facts(*pointers, max_removals=Count(1)), now=NOW).looks) == 30


@pytest.mark.parametrize(
    "listing",
    [
        pytest.param(UnavailableListing("no such bucket"), id="unavailable"),
        pytest.param(PartialListing({"b001"}, "page 2"), id="partial"),
        pytest.param(CompleteListing(), id="empty"),
    ],
)
def test_a_listing_that_cannot_be_trusted_asks_for_no_look(listing):
    assert questions(attrs.evolve(many(5, 5), listing=listing), now=NOW).looks == ()


# The end of a pass


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        pytest.param({"listing": CompleteListing({"foo"}), "stored": [stored()]}, Synced(), id="all-read"),
        pytest.param(
            {"listing": CompleteListing({"foo"}), "stored": [StoredFault("foo", MetadataCorrupt("x"))]},
            Synced(),
            id="garbage-is-said-and-no-more",
        ),
        pytest.param(
            {"listing": PartialListing({"foo"}, "page 2"), "stored": [stored()]},
            NotSynced(["the listing broke off: page 2"]),
            id="partial",
        ),
        pytest.param(
            {"listing": UnavailableListing("403")}, NotSynced(["bucket could not be listed: 403"]), id="unavailable"
        ),
        pytest.param(
            {"listing": CompleteListing({"foo"}), "stored": [StoredFault("foo", DirectoryUnreadable("500"))]},
            NotSynced(["foo: backups/foo/velero-backup.json could not be fetched: 500"]),
            id="one-unread",
        ),
    ],
)
def test_a_location_counts_as_synced_only_when_all_was_read(fields, end):
    assert decide(**fields).end == end


def test_an_unavailable_bucket_has_no_answers():
    known = facts(record(annotations={SYNC_INCOMPLETE: "true"}), listing=UnavailableListing("403"))

    assert compare(known, now=NOW).answers == ()
    assert questions(known, now=NOW) == Questions()


def test_what_a_partial_listing_shows_is_created():
    listing = PartialListing({"foo"}, "page 2")

    assert isinstance(answer("foo", listing=listing, stored=[stored()]), Create)


def test_a_location_pointed_at_another_bucket():
    """velero#8661: a location points to another bucket; deleting an old record deletes that bucket's backup (D-47).

    Sync drops none of the records that the new bucket does not have. A deletion of the one whose name it has takes the
    record alone: the directory was started at another time, so it is another backup's.
    """
    records = [record("foo"), *(record(f"b{n}") for n in range(9))]
    decision = compare(facts(*records, listing=CompleteListing({"foo"})), now=NOW)
    strangers = deletion_facts(backup=records[0], directory=Directory(MetadataPresent(STARTED + HOUR)))
    stages = plan(strangers, Inventory()).stages

    assert isinstance(decision.end, TooManyDropped)
    assert dropped(decision) == []
    assert [stage.name for stage in stages] == ["backup", "requests"]
    assert stage_of(plan(strangers, Inventory()), "backup").steps == (DeleteObject(records[0].ref),)


# The mirrored hold


HELD = {HOLD: "legal"}
CONTENT = '{"reprieve.dev/hold": "legal", "reprieve.dev/mirrored-from": "uid-foo"}\n'
DIGEST = hashlib.sha256(CONTENT.encode()).hexdigest()
KEY = "backups/foo/reprieve-hold.json"
LISTED = CompleteListing({"foo"})
WRITE = WriteHoldFile("default", KEY, CONTENT)
MARK = {"metadata": {"annotations": {HOLD_MIRRORED: DIGEST}}}
UNMARK = {"metadata": {"annotations": {HOLD_MIRRORED: None}}}


def there(hold=None, digest="", started=STARTED, of="uid-foo"):
    return Directory(MetadataPresent(started), hold or {}, digest, of if digest else "")


def shown(steps):
    return [merge_patch(step) if isinstance(step, ChangeMetadata) else step for step in steps]


@pytest.mark.parametrize(
    ("annotations", "directory", "steps"),
    [
        pytest.param(HELD, there(), [WRITE, MARK], id="first-held"),
        pytest.param(HELD, there({HOLD: "old"}, "d"), [], id="a-file-that-is-not-ours-stays"),
        pytest.param({**HELD, HOLD_MIRRORED: "d"}, there({HOLD: "old"}, "d"), [WRITE, MARK], id="changed"),
        pytest.param({**HELD, HOLD_MIRRORED: "d"}, there({HOLD: "x"}, "e"), [], id="another-changed-the-file"),
        pytest.param(HELD, there(HELD, DIGEST), [MARK], id="crashed-before-the-mark"),
        pytest.param({**HELD, HOLD_MIRRORED: "d"}, there(HELD, "d"), [], id="same-content-in-other-bytes"),
        pytest.param({**HELD, HOLD_MIRRORED: "d"}, there(), [WRITE, MARK], id="file-removed-by-hand-while-it-changed"),
        pytest.param({HOLD_MIRRORED: "d"}, there(HELD, "d"), [DeleteFile("default", KEY), UNMARK], id="lifted"),
        pytest.param({HOLD_MIRRORED: "d"}, there(), [UNMARK], id="lifted-and-crashed-before-the-mark"),
        pytest.param({HOLD_MIRRORED: "d"}, there(HELD, "e"), [UNMARK], id="lifted-but-the-file-is-another"),
        pytest.param({HOLD_MIRRORED: "d"}, there(HELD, "d", of=""), [UNMARK], id="lifted-and-put-there-by-hand"),
        pytest.param({HOLD_MIRRORED: "d"}, there(HELD, "d", of="uid-x"), [UNMARK], id="lifted-but-another-records"),
        pytest.param({**HELD, HOLD_MIRRORED: "d"}, there({HOLD: "old"}, "d", of=""), [], id="put-there-by-hand"),
        pytest.param({**HELD, HOLD_MIRRORED: "d"}, there({HOLD: "old"}, "d", of="uid-x"), [], id="another-records"),
        pytest.param({**HELD, HOLD_MIRRORED: DIGEST}, there(), [WRITE, MARK], id="marked-but-not-there"),
        pytest.param(HELD, there(started=STARTED + HOUR), [], id="another-backups-directory"),
        pytest.param(HELD, GONE, [], id="no-metadata-no-file"),
        pytest.param(HELD, DirectoryUnreadable("500"), [], id="unreadable"),
        pytest.param(HELD, None, [], id="not-looked-at"),
    ],
)
def test_a_hold_is_mirrored_beside_the_files(annotations, directory, steps):
    held = record(annotations=annotations)
    looks = [Look("foo", directory)] if directory else []

    assert questions(facts(held, listing=LISTED), now=NOW).looks == ("foo",)
    assert shown(answer("foo", held, listing=LISTED, looks=looks).steps) == steps


@pytest.mark.parametrize(
    ("held", "location"),
    [
        pytest.param(record(annotations=HELD), a_location(read_only=True), id="read-only-location"),
        pytest.param(record(annotations=HELD), a_location(available=False), id="location-away"),
        pytest.param(record(annotations=HELD, phase="Deleting"), a_location(), id="being-deleted"),
        pytest.param(record(annotations=HELD, deleted=NOW), a_location(), id="terminating"),
        pytest.param(record(annotations=HELD, phase="InProgress"), a_location(), id="still-running"),
        pytest.param(record("seen", annotations=HELD), a_location(), id="mirrored-already"),
        pytest.param(record(), a_location(), id="not-held"),
    ],
)
def test_where_no_hold_is_mirrored(held, location):
    seen = {mirror_of(record("seen", annotations=HELD))}
    listing, looks = CompleteListing({"foo", "seen"}), [Look("foo", there()), Look("seen", there())]
    known = facts(held, listing=listing, location=location, looks=looks, mirrored=seen)

    assert questions(known, now=NOW).looks == ()
    assert compare(known, now=NOW).answers[0].steps == ()


def test_a_record_without_a_directory_gets_no_hold_file():
    held = record(annotations=HELD)

    assert questions(facts(held), now=NOW).looks == ()


def test_reports_of_the_mirror():
    held = record(annotations=HELD)
    foreign = answer("foo", held, listing=LISTED, looks=[Look("foo", there({HOLD: "old"}, "d"))])
    unread = decide(held, listing=LISTED, looks=[Look("foo", DirectoryUnreadable("500"))])

    assert foreign.reason is Reason.HOLD_FILE_FOREIGN
    assert unread.end == NotSynced(["foo: its hold could not be mirrored: 500"])


def test_the_content_of_the_hold_file_is_fixed():
    both = record(annotations={HOLD_UNTIL: "2030-01-01T00:00:00Z", HOLD: "für später", "other": "x"})

    assert json.loads(hold_content(both)) == {
        HOLD: "für später",
        HOLD_UNTIL: "2030-01-01T00:00:00Z",
        MIRRORED_FROM: "uid-foo",
    }
    assert hold_content(record()) == ""
    assert hold_content(record(annotations=HELD)) == CONTENT


@pytest.mark.parametrize(
    ("look", "seen"),
    [
        pytest.param(there(HELD, "d"), True, id="shown"),
        pytest.param(there(HELD, "d", of=""), True, id="shown-by-a-file-of-nobody"),
        pytest.param(there({HOLD: "x"}, "d"), False, id="another-hold"),
        pytest.param(there(), False, id="no-file"),
        pytest.param(there(HELD, "d", started=STARTED + HOUR), False, id="another-backups-directory"),
        pytest.param(DirectoryUnreadable("500"), False, id="unreadable"),
        pytest.param(None, False, id="not-looked-at"),
    ],
)
def test_a_hold_counts_as_mirrored_once_it_was_seen_in_its_file(look, seen):
    """An annotation that says so is written by whoever may patch the record."""
    held = record(annotations={**HELD, HOLD_MIRRORED: DIGEST})
    known = facts(held, record("bar"), listing=LISTED, looks=[Look("foo", look)] if look else [])

    assert mirrored_holds(known) == ({mirror_of(held)} if seen else frozenset())
    assert mirrored_holds(attrs.evolve(known, looks=(), mirrored={mirror_of(held), "old"})) == {mirror_of(held)}


@pytest.mark.parametrize(
    ("given_stored", "location", "steps"),
    [
        pytest.param({"hold": HELD, "hold_of": "uid-before"}, a_location(), [WRITE, MARK], id="of-the-record-before"),
        pytest.param({"hold": HELD}, a_location(), [], id="put-there-by-hand"),
        pytest.param({"hold": HELD, "hold_of": "uid-before"}, a_location(read_only=True), [], id="read-only"),
        pytest.param({"hold": {HOLD: "x"}, "hold_of": "uid-before"}, a_location(), [], id="not-what-the-record-says"),
    ],
)
def test_a_record_that_came_back_takes_over_its_hold_file(given_stored, location, steps):
    """Else the hold of a backup that came back could be lifted by nobody but who writes to the bucket."""
    assert shown(adopt_hold(record(annotations=HELD), stored(**given_stored), location, Layout())) == steps


# Pod volume backups


@pytest.mark.parametrize(
    ("status", "created"),
    [
        *(
            pytest.param({"phase": phase, "snapshotID": "k1"}, True, id=phase)
            for phase in ("Completed", "Failed", "Canceled")
        ),
        *(
            pytest.param({"phase": phase, "snapshotID": "k1"}, False, id=phase or "no-phase")
            for phase in ("", "New", "Accepted", "Prepared", "InProgress", "Canceling", "completed")
        ),
        pytest.param({"phase": "Completed"}, False, id="no-id"),
        pytest.param({"phase": "Completed", "snapshotID": ""}, False, id="an-empty-id"),
        pytest.param({"phase": "Completed", "snapshotID": 5}, False, id="an-id-that-is-no-text"),
        pytest.param("Completed", False, id="a-status-that-is-none"),
    ],
)
def test_only_volumes_that_have_ended_with_data_come_along(status, created):
    """Velero's node agent would take up any other: it would read a volume into a repository that a stranger names."""
    given_volume = {**volume("v"), "status": status}

    assert [step.ref.name for step in finish(record(), VolumesRead([given_volume]), [], HOME).creates] == (
        ["v"] if created else []
    )


def test_volumes_come_without_finalizers_and_marks():
    """As the record does."""
    marked = {"argocd.argoproj.io/instance": "x", "team": "y"}
    given_volume = volume("v", finalizers=["a/b"], annotations=marked)
    (step,) = finish(record(), VolumesRead([given_volume]), [], HOME).creates

    assert step.manifest["metadata"]["annotations"] == {"team": "y"}
    assert "finalizers" not in step.manifest["metadata"]


def volume(name, *, labels=None, owners=None, **metadata):
    return {
        "apiVersion": "velero.io/v1",
        "kind": "PodVolumeBackup",
        "metadata": {
            "name": name,
            "namespace": "old",
            "uid": "old",
            "labels": labels or {},
            "ownerReferences": owners or [],
            **metadata,
        },
        "spec": {"backupStorageLocation": "old", "volume": "data"},
        "status": {"snapshotID": "s1", "phase": "Completed"},
    }


INCOMPLETE = record(annotations={SYNC_INCOMPLETE: "true"})
DONE = {"metadata": {"annotations": {SYNC_INCOMPLETE: None}}}


def finishing(volumes, existing=()):
    return finish(INCOMPLETE, volumes, existing, HOME)


def test_a_pass_finishes_incomplete_records_first_and_lets_them_alone_otherwise():
    known = facts(INCOMPLETE, record("b"), listing=CompleteListing({"foo", "b"}))

    assert questions(known, now=NOW).finish == (INCOMPLETE,)
    assert compare(known, now=NOW).answers[1].reason is Reason.SYNC_INCOMPLETE


@pytest.mark.parametrize(
    ("volumes", "existing", "creates", "then", "reason"),
    [
        pytest.param(ListAbsent("k"), [], [], [DONE], Reason.RECORDED, id="no-list"),
        pytest.param(VolumesRead(), [], [], [DONE], Reason.RECORDED, id="none"),
        pytest.param(
            VolumesRead([volume("v2"), volume("v1")]), [], ["v1", "v2"], [DONE], Reason.SYNC_INCOMPLETE, id="two"
        ),
        pytest.param(
            VolumesRead([volume("v1"), volume("v2")]), ["v1"], ["v2"], [DONE], Reason.SYNC_INCOMPLETE, id="one-is-there"
        ),
        pytest.param(VolumesRead([volume("v1")]), ["v1"], [], [DONE], Reason.RECORDED, id="all-are-there"),
        pytest.param(
            VolumesRead([volume("v1", labels={"velero.io/backup-name": "bar"}), volume("No Name"), {}]),
            [],
            [],
            [DONE],
            Reason.RECORDED,
            id="another-backups-and-nameless-ones-are-skipped",
        ),
        pytest.param(ListCorrupt("k", "why"), [], [], [], Reason.LIST_CORRUPT, id="corrupt"),
        pytest.param(DirectoryUnreadable("why"), [], [], [], Reason.UNREADABLE, id="unreadable"),
    ],
)
def test_pod_volume_backups_come_along(volumes, existing, creates, then, reason):
    """velero#2746: records that were deleted by hand came back without their pod volume backups (D-53)."""
    found = finishing(volumes, existing)

    assert [step.ref.name for step in found.creates] == creates
    assert [merge_patch(step) for step in found.then] == then
    assert found.reason is reason


def test_a_pod_volume_backup_is_rewritten():
    """velero#6534: it pointed at a stale location after sync (D-53)."""
    labels = {"velero.io/backup-name": "foo", "velero.io/backup-uid": "old", "app": "x"}
    owners = [{"apiVersion": "velero.io/v1", "kind": "Backup", "name": "foo", "uid": "old"}, owner(kind="Pod")]
    document = volume("v1", labels=labels, owners=owners, annotations={"a": "b"}, finalizers=["gc.ark.heptio.com"])
    before = copy.deepcopy(document)

    (step,) = finishing(VolumesRead([document])).creates

    assert step.ref == ObjectRef("velero.io/v1", "PodVolumeBackup", "v1", "velero")
    assert step.manifest == {
        "apiVersion": "velero.io/v1",
        "kind": "PodVolumeBackup",
        "metadata": {
            "name": "v1",
            "namespace": "velero",
            "labels": {**labels, "velero.io/backup-uid": "uid-foo"},
            "annotations": {"a": "b"},
            "ownerReferences": [{"apiVersion": "velero.io/v1", "kind": "Backup", "name": "foo", "uid": "uid-foo"}],
        },
        "spec": {"backupStorageLocation": "default", "volume": "data"},
        "status": {"snapshotID": "s1", "phase": "Completed"},
    }
    assert document == before


def test_a_uid_label_that_is_not_there_is_not_added():
    (step,) = finishing(VolumesRead([volume("v1")])).creates

    assert "labels" not in step.manifest["metadata"]


# A small world that applies the answers


@attrs.define
class World:
    """A bucket of documents, and the records of a namespace; applying a pass changes them as the real ones would."""

    documents: dict
    records: dict
    holds: dict = attrs.field(factory=dict)
    now: object = NOW
    writes: int = 0

    def facts(self):
        known = facts(*self.records.values(), listing=CompleteListing(self.documents), max_removals=Percentage(100))
        asked = questions(known, now=self.now)
        looks = [Look(name, self.look(name)) for name in asked.looks]
        return attrs.evolve(known, stored=[self.read(name) for name in asked.stored], looks=looks)

    def read(self, name):
        found = self.documents[name]
        if found is None:
            return StoredFault(name, MetadataAbsent())
        hold, digest, of = self.hold(name)
        return attrs.evolve(found, hold=hold, hold_sha256=digest, hold_of=of)

    def look(self, name):
        found = self.documents.get(name)
        return Directory(MetadataPresent(STARTED) if found else MetadataAbsent(), *self.hold(name))

    def hold(self, name):
        text = self.holds.get(name)
        if not text:
            return {}, "", ""
        document = json.loads(text)
        of = document.pop(MIRRORED_FROM, "")
        return document, hashlib.sha256(text.encode()).hexdigest(), of

    def pass_(self):
        before = self.writes
        for each in compare(self.facts(), now=self.now).answers:
            for step in each.steps:
                self.writes += 1
                self.apply(step)
        return self.writes - before

    def apply(self, step):
        match step:
            case CreateRecord(ref=ref, manifest=manifest):
                assert ref.name not in self.records
                meta = manifest["metadata"]
                self.records[ref.name] = record(
                    ref.name,
                    phase=manifest["status"]["phase"],
                    labels=meta["labels"],
                    annotations=meta["annotations"],
                )
            case DeleteObject(ref=ref):
                del self.records[ref.name]
            case WriteHoldFile(key=key, content=content):
                self.holds[key.split("/")[1]] = content
            case DeleteFile(key=key):
                del self.holds[key.split("/")[1]]
            case ChangeMetadata(ref=ref):
                live = self.records[ref.name]
                labels = {k: v for k, v in live.meta.labels.items() if k not in step.without_labels}
                annotations = {k: v for k, v in live.meta.annotations.items() if k not in step.without_annotations}
                meta = attrs.evolve(
                    live.meta, labels={**labels, **step.labels}, annotations={**annotations, **step.annotations}
                )
                self.records[ref.name] = attrs.evolve(live, meta=meta)


def test_a_deleted_record_comes_back_held():
    """Invariant: a held thing is never deleted on any path, so the hold survives the loss of its record."""
    world = World({"foo": stored()}, {})
    world.pass_()
    world.records["foo"] = record(annotations=HELD)
    world.pass_()
    del world.records["foo"]
    world.pass_()

    assert world.records["foo"].meta.annotations[HOLD] == "legal"
    assert world.pass_() == 0


def test_a_hold_that_is_lifted_is_lifted_in_the_bucket():
    world = World({"foo": stored()}, {"foo": record(annotations=HELD)})
    world.pass_()
    mirrored = dict(world.holds)
    live = world.records["foo"]
    marks = {HOLD_MIRRORED: live.meta.annotations[HOLD_MIRRORED]}
    world.records["foo"] = attrs.evolve(live, meta=attrs.evolve(live.meta, annotations=marks))
    world.pass_()

    assert mirrored == {"foo": CONTENT}
    assert world.holds == {}
    assert HOLD_MIRRORED not in world.records["foo"].meta.annotations
    assert world.pass_() == 0


NAMES = [f"b{n}" for n in range(6)]
ANNOTATIONS = st.sampled_from([{}, {}, HELD, {HOLD_MIRRORED: "d"}, {**HELD, HOLD_MIRRORED: DIGEST}])
RECORDS = st.builds(
    record,
    st.sampled_from(NAMES),
    phase=st.sampled_from(["Completed", "PartiallyFailed", "Failed", "Deleting", "InProgress", ""]),
    storage_location=st.sampled_from(["default", "default", "default", "second"]),
    snapshots_completed=st.sampled_from([0, 0, 2]),
    annotations=ANNOTATIONS,
    labels=st.sampled_from([{}, {}, {METADATA_MISSING: "true"}, {SCHEDULE_NAME: "nightly"}]),
    deleted=st.sampled_from([None, None, None, NOW]),
)
DOCUMENTS = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from(["Completed", "Failed", "Finalizing", None]), max_size=6
).map(lambda phases: {name: phase and stored(name, phase=phase) for name, phase in phases.items()})


@st.composite
def worlds(draw):
    records = {r.name: r for r in draw(st.lists(RECORDS, max_size=6))}
    holds = draw(st.dictionaries(st.sampled_from(NAMES), st.sampled_from([CONTENT, '{"reprieve.dev/hold": "x"}'])))
    return World(draw(DOCUMENTS), records, holds)


@given(worlds())
def test_the_second_pass_writes_nothing(world):
    world.pass_()

    assert world.pass_() == 0


@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_the_facts_does_not_matter(world, shuffler):
    known = world.facts()
    shuffled = [list(each) for each in (known.records, known.stored, known.looks)]
    for each in shuffled:
        shuffler.shuffle(each)
    records, stored_, looks = shuffled
    mixed = attrs.evolve(known, records=records, stored=stored_, looks=looks)

    assert compare(mixed, now=NOW) == compare(known, now=NOW)
    assert questions(mixed, now=NOW) == questions(known, now=NOW)


@given(worlds(), st.sampled_from(["partial", "empty", "unavailable"]))
def test_a_listing_that_failed_is_partial_or_empty_drops_nothing(world, how):
    known = world.facts()
    listings = {
        "partial": PartialListing(known.listing.names, "why"),
        "empty": CompleteListing(),
        "unavailable": UnavailableListing("why"),
    }

    assert dropped(compare(attrs.evolve(known, listing=listings[how]), now=NOW)) == []


@given(worlds(), st.sampled_from([Count(1), Count(2), Percentage(20), Percentage(50), Percentage(100)]))
def test_what_is_dropped_is_finished_unheld_points_at_nothing_and_is_within_the_limit(world, limit):
    known = attrs.evolve(world.facts(), max_removals=limit)
    gone = dropped(compare(known, now=NOW))

    assert len(gone) <= max(1, limit.number if isinstance(limit, Count) else len(known.records) * limit.percent // 100)
    for name in gone:
        dead = world.records[name]
        assert dead.phase in {"Completed", "PartiallyFailed"}
        assert not dead.snapshots_completed
        assert HOLD not in dead.meta.annotations
        assert name not in world.documents
