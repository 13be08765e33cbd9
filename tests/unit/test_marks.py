"""Whose a snapshot is: what is asked of the clouds, and what their answers allow."""

from datetime import timedelta

import pytest
from attrs import evolve

from reprieve.core.backups import Directory, Layout, MetadataPresent
from reprieve.core.holds import HOLD
from reprieve.core.marks import (
    BACKUP_TAGS,
    Claim,
    ClaimsRead,
    ClaimsUnread,
    MarksAsked,
    MarksUnasked,
    SnapshotsSeen,
    SnapshotsUnseen,
    identity,
    tagged_backup,
)
from reprieve.core.outcomes import AlreadyGone, Denied, Invalid
from reprieve.core.ports import SnapshotInfo
from reprieve.core.reasons import Reason
from reprieve.core.requests import (
    Absent,
    Admitted,
    Deferred,
    PlaceQuestion,
    Refused,
    admit,
    claims_wanted,
    place_questions,
    plan,
)
from reprieve.core.steps import DeleteSnapshot, StepResult
from tests.unit.builders import (
    NOW,
    a_backup,
    a_snapshot,
    a_snapshot_location,
    at_work,
    facts,
    inventory,
    settle_stage,
    stage_of,
)

LATER = NOW + timedelta(minutes=1)
PLACE = a_snapshot_location()
AZURE = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/snapshots/"


def there(snapshot="snap-1", tag="", *, key=BACKUP_TAGS[0], provider="aws"):
    """A snapshot as its provider tells it, with the tag of a backup."""
    return SnapshotInfo(provider, snapshot, {key: tag} if tag else {})


def seen(*others, **fields):
    """The place answered: these are there without being in its listing by tag."""
    return MarksAsked([SnapshotsSeen("vsl-1", others=others, **fields)])


def answer(marks, *snapshots, **given):
    """What admission says of a backup whose list names these snapshots."""
    return admit(facts(marks=marks, **given), inventory(*map(a_snapshot, snapshots or ("snap-1",))), now=NOW)


# What is asked


def questions(*snapshots, **given):
    return place_questions(facts(marks=MarksUnasked(), **given), inventory(*snapshots), now=NOW)


def test_each_place_is_asked_once_for_all_that_the_list_names_there():
    places = [a_snapshot_location("g", provider="gcp"), PLACE]
    named = [a_snapshot("s2"), a_snapshot("s1"), a_snapshot("s2", zone="x"), a_snapshot("s3", location="g")]

    assert questions(*named, snapshot_locations=places, handlers={"aws", "gcp"}) == (
        PlaceQuestion(places[0], ["s3"]),
        PlaceQuestion(PLACE, ["s1", "s2"]),
    )


@pytest.mark.parametrize(
    ("named", "given"),
    [
        pytest.param((), {}, id="no-snapshots"),
        pytest.param((a_snapshot(""),), {}, id="none-that-was-taken"),
        pytest.param((a_snapshot(),), {"backup": a_backup(annotations={HOLD: "law"})}, id="held"),
        pytest.param((a_snapshot(),), {"backup": a_backup(phase="New")}, id="refused"),
        pytest.param((a_snapshot(),), {"backup": Absent()}, id="gone"),
        pytest.param((a_snapshot(),), {"directory": Directory(MetadataPresent(NOW))}, id="another-backups-directory"),
        pytest.param(
            (a_snapshot(zone="eu-west-1a"),),
            {"snapshot_locations": [a_snapshot_location(region="us-east-1")]},
            id="where-it-cannot-be",
        ),
    ],
)
def test_nothing_is_asked_where_the_answer_does_not_hang_on_it(named, given):
    assert questions(*named, **given) == ()


def test_a_user_of_the_library_cannot_forget_to_ask():
    """Facts without it are no facts; and what was not asked is not admitted."""
    with pytest.raises(TypeError, match="marks"):
        type(facts())(*(getattr(facts(), name) for name in ("request", "backup", "location", "directory")))
    found = answer(MarksUnasked())

    assert found == Deferred(
        Reason.SNAPSHOTS_UNPROVEN,
        LATER,
        "volume snapshot location vsl-1 cannot be asked whose its snapshots are: nobody asked",
    )
    assert isinstance(admit(facts(marks=MarksUnasked()), inventory(), now=NOW), Admitted)


# What the answers allow


@pytest.mark.parametrize(
    "marks",
    [
        pytest.param(seen(tagged=["snap-1"]), id="under-its-tag"),
        pytest.param(seen(absent=["snap-1"]), id="not-there-any-more"),
        pytest.param(seen(there(tag="foo")), id="under-its-tag-though-the-listing-had-it-not"),
        *(pytest.param(seen(there(tag="foo", key=key)), id=f"as-{key}") for key in BACKUP_TAGS[1:]),
    ],
)
def test_what_carries_the_backups_tag_is_its_own(marks):
    assert isinstance(answer(marks), Admitted)


FOREIGN = [
    pytest.param(seen(there(tag="bar")), "snap-1 in vsl-1 is tagged for backup bar", id="of-another-backup"),
    pytest.param(seen(there()), "snap-1 in vsl-1 carries no backup's tag", id="of-nobody"),
    pytest.param(
        seen(nameless={"snap-1": "no id of a snapshot"}),
        "snap-1 in vsl-1 cannot be one (no id of a snapshot)",
        id="no-id",
    ),
    pytest.param(
        evolve(seen(there(tag="bar")), untagged={"aws"}, claims=ClaimsRead()),
        "snap-1 in vsl-1 is tagged for backup bar",
        id="of-another-backup-whether-or-not-tags-are-required",
    ),
    pytest.param(
        evolve(seen(there()), untagged={"gcp"}, claims=ClaimsRead()),
        "snap-1 in vsl-1 carries no backup's tag",
        id="of-nobody-where-only-another-provider-needs-no-tag",
    ),
    pytest.param(
        evolve(
            seen(there()),
            untagged={"aws"},
            claims=ClaimsRead([Claim("gcp", "snap-1", "a"), Claim("aws", "snap-1", "bar", "held until x")]),
        ),
        "snap-1 in vsl-1 is named by backup bar too, which is held until x",
        id="untagged-and-named-by-a-held-one",
    ),
    pytest.param(
        evolve(seen(there()), untagged={"aws"}, claims=ClaimsRead([Claim("aws", "snap-1", "bar")])),
        "snap-1 in vsl-1 is named by backup bar too; nothing was deleted",
        id="untagged-and-named-by-another",
    ),
]


@pytest.mark.parametrize(("marks", "why"), FOREIGN)
def test_what_is_not_the_backups_refuses_the_whole_list(marks, why):
    """One that is its own beside it does not make the other one its own."""
    marks = evolve(marks, places=[evolve(marks.places[0], tagged=["snap-2"])])
    found = answer(marks, "snap-1", "snap-2")

    assert isinstance(found, Refused)
    assert found.reason is Reason.NOT_THE_BACKUPS
    assert why in found.message
    assert "snap-2" not in found.message


def test_a_refusal_names_twenty_of_thousands():
    named = [f"snap-{number:05}" for number in range(20_000)]
    found = answer(seen(*map(there, named)), *named)

    assert len(found.message) < 5_000
    assert "snap-00018 in vsl-1 carries no backup's tag; and 19981 more; nothing was deleted" in found.message


UNTAGGED = evolve(seen(there()), untagged={"aws"})


UNPROVEN = [
    pytest.param(MarksAsked(), "vsl-1 cannot be asked whose its snapshots are: nobody asked", id="not-this-place"),
    pytest.param(
        MarksAsked([SnapshotsUnseen("vsl-1", "no answer")]), "whose its snapshots are: no answer", id="unseen"
    ),
    pytest.param(seen(), "nobody asked whose snapshot snap-1 in vsl-1 is", id="not-this-one"),
    pytest.param(
        UNTAGGED,
        "cannot be told whether another record names snapshot snap-1 in vsl-1: nobody asked",
        id="others-not-asked",
    ),
    pytest.param(evolve(UNTAGGED, claims=ClaimsUnread("it is cut off")), "it is cut off", id="others-unread"),
]


@pytest.mark.parametrize(("marks", "why"), UNPROVEN)
def test_what_cannot_be_told_waits(marks, why):
    """Never gone, and never bold."""
    found = answer(marks)

    assert isinstance(found, Deferred)
    assert (found.reason, found.until) == (Reason.SNAPSHOTS_UNPROVEN, LATER)
    assert why in found.message


def test_a_refusal_comes_before_a_wait():
    """One place does not answer; the other has a snapshot of another backup: waiting will not mend that."""
    marks = MarksAsked([SnapshotsUnseen("vsl-1", "no answer"), SnapshotsSeen("vsl-2", others=[there("s", "bar")])])
    places = [PLACE, a_snapshot_location("vsl-2")]
    named = inventory(a_snapshot(), a_snapshot("s", location="vsl-2"))

    assert admit(facts(marks=marks, snapshot_locations=places), named, now=NOW).reason is Reason.NOT_THE_BACKUPS


def test_an_old_one_without_a_tag_goes_where_none_is_required_and_nobody_else_names_it():
    assert isinstance(answer(evolve(UNTAGGED, claims=ClaimsRead([Claim("aws", "other", "bar")]))), Admitted)


@pytest.mark.parametrize(
    ("marks", "wanted"),
    [
        pytest.param(UNTAGGED, True, id="one-without-a-tag"),
        pytest.param(seen(there()), False, id="where-tags-are-required"),
        pytest.param(evolve(seen(there(tag="bar")), untagged={"aws"}), False, id="one-with-another-tag"),
        pytest.param(evolve(seen(absent=["snap-1"]), untagged={"aws"}), False, id="none-there"),
        pytest.param(MarksAsked([SnapshotsUnseen("vsl-1", "x")], untagged={"aws"}), False, id="unseen"),
    ],
)
def test_other_records_are_read_only_where_it_matters(marks, wanted):
    assert claims_wanted(marks) is wanted


def test_an_azure_id_is_one_in_upper_and_lower_case():
    """The list of Velero and the answers of ARM spell resource groups as each likes."""
    place = a_snapshot_location(provider="azure")
    marks = seen(tagged=[f"{AZURE}ONE".upper()], absent=[f"{AZURE}TWO"])
    given = {"snapshot_locations": [place], "handlers": {"azure"}}
    named = (f"{AZURE}one", f"{AZURE}two")

    assert isinstance(answer(marks, *named, **given), Admitted)
    other = evolve(marks, places=[evolve(marks.places[0], others=[there(f"{AZURE}THREE", "bar", provider="azure")])])
    assert answer(other, *named, f"{AZURE}three", **given).reason is Reason.NOT_THE_BACKUPS
    assert identity("aws", "SNAP-1") != identity("aws", "snap-1")


def test_the_tag_of_velero_goes_before_an_older_one():
    both = SnapshotInfo("aws", "s", {"ark.heptio.com/backup": "old", "velero.io/backup": "new"})

    assert (tagged_backup(both), tagged_backup(SnapshotInfo("aws", "s", {"velero.io/backup": ""}))) == ("new", "")


# Where it was taken


@pytest.mark.parametrize(
    ("named", "message"),
    [
        pytest.param(["vsl-2"], "snapshot location vsl-1, but its record names vsl-2 in", id="another-one"),
        pytest.param([], "snapshot location vsl-1, but its record names none in", id="none"),
    ],
)
def test_a_location_that_the_record_does_not_name_refuses(named, message):
    """Whoever writes to the bucket picks a location whose account has what he wants gone."""
    found = answer(seen(tagged=["snap-1"]), backup=a_backup(snapshot_locations=named))

    assert found.reason is Reason.SNAPSHOT_LOCATION_NOT_NAMED
    assert message in found.message


def test_in_a_dialect_without_locations_no_record_names_one():
    ark = Layout(backups="", restores="", metadata_file="ark-backup.json", located=False)

    assert isinstance(answer(seen(tagged=["snap-1"]), backup=a_backup(snapshot_locations=[]), layout=ark), Admitted)


# What follows


def test_what_is_not_there_any_more_is_known_to_be_gone():
    """It stands in the plan as what it is, and no store is asked to delete it."""
    stage = stage_of(plan(facts(marks=seen(absent=["snap-1"])), inventory(a_snapshot(), a_snapshot("s"))), "snapshots")

    assert stage.steps == (DeleteSnapshot("aws", "s", "vsl-1"),)
    assert stage.decided == (StepResult(DeleteSnapshot("aws", "snap-1", "vsl-1"), AlreadyGone()),)


def test_what_was_gone_already_may_be_a_crashed_runs_doing():
    """Then the phase is not given back: nobody can tell whether the backup is whole."""
    deletion = plan(facts(marks=seen(absent=["snap-1"])), inventory(a_snapshot(), a_snapshot("s")))
    denied = StepResult(deletion.stages[0].steps[0], Denied("no"))

    assert settle_stage(deletion, "snapshots", denied).restore_phase is None


def test_what_cannot_be_in_its_region_never_passes_for_gone():
    """Another region's "not found" says nothing, whatever list asked for it."""
    region = facts(
        **at_work(), marks=seen(absent=["snap-1"]), snapshot_locations=[a_snapshot_location(region="us-east-1")]
    )
    twice = inventory(a_snapshot(zone="us-east-1a"), a_snapshot(zone="eu-west-1a"))
    stage = stage_of(plan(region, twice), "snapshots")

    assert [type(result.outcome) for result in stage.decided] == [Invalid]
