"""The stages of a deletion: the pointer outlives the thing it points at."""

import pytest
from attrs import evolve

from reprieve.core.backups import (
    Directory,
    MetadataAbsent,
    MetadataPresent,
    RequestPhase,
    RequestState,
)
from reprieve.core.objects import ObjectRef
from reprieve.core.outcomes import Invalid
from reprieve.core.requests import (
    BUCKET_STAGE,
    Absent,
    InPlace,
    Stage,
    misplaced,
    plan,
    siblings_of_one_backup,
    unnoted_siblings,
)
from reprieve.core.steps import DeleteFile, DeleteFiles, DeleteObject, DeleteRestore, DeleteSnapshot, EndRequest
from tests.unit.builders import (
    METADATA_KEY,
    NOW,
    UID,
    a_backup,
    a_request,
    a_restore,
    a_snapshot,
    a_snapshot_location,
    a_state,
    at_work,
    facts,
    in_progress,
    inventory,
    ref,
    stage_of,
)

ENTIRE = facts(
    restores=[a_restore("r2"), a_restore("other", backup="bar"), a_restore("r1")],
    siblings=[
        a_request("second"),
        a_request("of-another-uid", uid="uid-bar"),
        a_request("unbound", uid=""),
        a_request("ended", phase=RequestPhase.PROCESSED),
    ],
)


def names(deletion):
    return [stage.name for stage in deletion.stages]


def test_the_whole_plan():
    """snapshots -> restores -> bucket files, the metadata file last, in a call of its own -> Backup -> requests."""
    deletion = plan(ENTIRE, inventory(a_snapshot("snap-2"), a_snapshot("snap-1")))

    assert deletion.stages == (
        Stage("snapshots", [DeleteSnapshot("aws", "snap-1", "vsl-1"), DeleteSnapshot("aws", "snap-2", "vsl-1")]),
        Stage(
            "restores",
            [DeleteRestore(ref("Restore", r, f"uid-{r}"), "default", f"restores/{r}/") for r in ("r1", "r2")],
        ),
        Stage("bucketFiles", [DeleteFiles("default", "backups/foo/", METADATA_KEY)]),
        Stage("bucketMetadata", [DeleteFile("default", METADATA_KEY)]),
        Stage("backup", [DeleteObject(a_backup().ref)]),
        Stage("siblings", [EndRequest(a_request(name).ref) for name in ("ended", "second")]),
        Stage("requests", [EndRequest(a_request().ref)]),
    )


def test_stages_without_a_step_are_left_out():
    assert names(plan(facts(), inventory())) == ["bucketFiles", "bucketMetadata", "backup", "requests"]


def test_the_requests_of_this_backup_end_with_it():
    """Completed or Failed ends every request with that UID, and no other."""
    assert [r.meta.name for r in siblings_of_one_backup(ENTIRE)] == ["ended", "second"]


def test_a_request_bound_to_no_uid_takes_no_other_along():
    unbound = facts(request=a_request(uid=""), backup=Absent(), siblings=[a_request("second", uid="")])

    assert siblings_of_one_backup(unbound) == ()


def test_the_working_request_goes_after_all_others():
    """Kill the process between two requests: as long as the working one is there, the deletion is resumed."""
    assert names(plan(ENTIRE, inventory()))[-2:] == ["siblings", "requests"]


def test_snapshots_recorded_with_an_empty_id_are_skipped():
    """Snapshots recorded with an empty id are skipped."""
    deletion = plan(facts(snapshot_locations=[]), inventory(a_snapshot(""), a_snapshot("", location="gone")))

    assert "snapshots" not in names(deletion)


def test_a_snapshot_that_is_listed_twice_is_deleted_once():
    deletion = plan(facts(), inventory(a_snapshot("snap-1"), a_snapshot("snap-1", zone="us-east-1a")))

    assert stage_of(deletion, "snapshots").steps == (DeleteSnapshot("aws", "snap-1", "vsl-1"),)


def test_each_snapshot_goes_to_the_provider_of_its_location():
    locations = [a_snapshot_location("a", provider="aws"), a_snapshot_location("g", provider="gcp")]
    deletion = plan(
        facts(snapshot_locations=locations), inventory(a_snapshot("s", location="g"), a_snapshot("s", location="a"))
    )

    assert stage_of(deletion, "snapshots").steps == (DeleteSnapshot("aws", "s", "a"), DeleteSnapshot("gcp", "s", "g"))


def test_a_record_that_does_not_own_its_directory_goes_alone():
    """A record that does not own that directory: only the record goes."""
    stranger = evolve(ENTIRE, directory=Directory(MetadataPresent(NOW)))

    assert names(plan(stranger, inventory(a_snapshot()))) == ["backup", "siblings", "requests"]


def test_a_directory_without_metadata_belongs_to_its_record():
    """A directory without metadata belongs to its record."""
    assert BUCKET_STAGE in names(plan(facts(directory=Directory(MetadataAbsent())), inventory()))


def test_when_record_and_metadata_are_gone_the_requests_are_left():
    """If its Backup is gone already: metadata gone too -> completed, with those that were noted to end with it."""
    noted = RequestState(uid=UID, request="uid-foo-abcde")
    others = [a_request("unnoted"), a_request("x", uid="y", state=noted), a_request("noted", state=noted)]
    gone = facts(request=in_progress(), backup=Absent(), directory=Directory(), siblings=others)

    assert plan(gone, inventory()).stages == (
        Stage("siblings", [EndRequest(a_request("noted").ref)]),
        Stage("requests", [EndRequest(a_request().ref)]),
    )


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(in_progress(request=None), id="it-does-not-say-that-it-leads"),
        pytest.param(in_progress(request="uid-other"), id="it-says-that-another-leads"),
        pytest.param(a_request(state=a_state()), id="it-is-not-in-progress"),
        pytest.param(in_progress(), id="it-says-that-it-leads"),
    ],
)
def test_a_request_that_somebody_made_up_ends_alone(forged):
    """With the Backup gone nobody can tell it from one that was cut off: nobody who was not noted ends with it."""
    gone = facts(request=forged, backup=Absent(), directory=Directory(), siblings=[a_request("honest")])

    assert plan(gone, inventory()).stages == (Stage("requests", [EndRequest(a_request().ref)]),)


def test_what_ends_together_is_noted_before_the_record_goes():
    """Each with a report that names who works; one that has ended keeps what it says of its end."""
    ended = a_request("ended", phase=RequestPhase.PROCESSED, state=RequestState(uid=UID, finished_at=NOW))
    forged = in_progress("forged", location="nowhere", attempts=9)
    noted = a_request("noted", state=RequestState(uid=UID, request="uid-foo-abcde"))
    given = facts(**at_work(), siblings=[noted, forged, ended, a_request("other", uid="y")])

    assert [(request.meta.name, state) for request, state in unnoted_siblings(given)] == [
        ("ended", RequestState(uid=UID, finished_at=NOW, request="uid-foo-abcde")),
        ("forged", RequestState(uid=UID, request="uid-foo-abcde")),
    ]


def test_every_object_is_deleted_by_its_uid():
    """A request touches only what it names, by name and UID."""
    steps = [step for stage in plan(ENTIRE, inventory()).stages for step in stage.steps]
    refs = [step.ref for step in steps if isinstance(step, DeleteObject | DeleteRestore | EndRequest)]

    assert len(refs) == 6
    assert all(isinstance(each, ObjectRef) and each.uid for each in refs)


# The region


@pytest.mark.parametrize(
    ("provider", "region", "zone", "fits"),
    [
        pytest.param("aws", "us-east-1", "us-east-1a", True, id="zone-of-the-region"),
        pytest.param("aws", "us-west-2", "us-west-2-lax-1a", True, id="local-zone"),
        pytest.param("aws", "us-east-1", "us-east-1", True, id="the-region-itself"),
        pytest.param("aws", "us-east-1", "eu-west-1a", False, id="another-region"),
        pytest.param("aws", "us-east-1", "us-east-10a", False, id="a-region-whose-name-goes-on"),
        pytest.param("aws", "us-east-1", "us-east-2a", False, id="the-neighbour"),
        pytest.param("aws", "", "eu-west-1a", True, id="default-region"),
        pytest.param("aws", "us-east-1", "", True, id="no-zone-recorded"),
        pytest.param("gcp", "us-east-1", "europe-west1-b", True, id="not-aws"),
    ],
)
def test_a_zone_outside_the_locations_region(provider, region, zone, fits):
    """An AWS snapshot whose recorded zone lies outside the location's region is Invalid, never "not found"."""
    answer = misplaced(a_snapshot(zone=zone), a_snapshot_location(provider=provider, region=region))

    assert isinstance(answer, InPlace if fits else Invalid)


def test_a_misplaced_snapshot_is_decided_before_any_store_is_called():
    """A pure function in core, asked for every snapshot before any store is called."""
    region = facts(snapshot_locations=[a_snapshot_location(region="us-east-1")])
    stage = stage_of(plan(region, inventory(a_snapshot("s1", zone="eu-west-1a"), a_snapshot("s2"))), "snapshots")

    assert stage.steps == (DeleteSnapshot("aws", "s2", "vsl-1"),)
    assert [result.step.id for result in stage.decided] == ["s1"]
    assert stage.decided[0].outcome.message == (
        "its volume was in zone eu-west-1a, which is not in region us-east-1 of snapshot location vsl-1: "
        "there it would pass for deleted"
    )


def test_one_misplaced_record_of_a_snapshot_is_enough():
    region = facts(snapshot_locations=[a_snapshot_location(region="us-east-1")])
    twice = inventory(a_snapshot("s1", zone="us-east-1a"), a_snapshot("s1", zone="eu-west-1a"), a_snapshot("s1"))

    assert stage_of(plan(region, twice), "snapshots").steps == ()
