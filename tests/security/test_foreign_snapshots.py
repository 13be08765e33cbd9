"""Whoever may write to a bucket can name any snapshot of the account in a backup's list: only its own go with it."""

import json
from datetime import timedelta

import pytest
import yaml
from attrs import evolve

from reprieve.core.errors import UnavailableError
from reprieve.core.objects import ObjectKind
from reprieve.core.ports import SnapshotInfo
from reprieve.entrypoints.configuration import RetentionSettings
from tests.integration.folders import NOW as FOLDER_NOW
from tests.integration.folders import entry, make_folder, packed, request, snapshot
from tests.security.at_work import running
from tests.unit.overtime import DAY, HOUR, NOW, files_of, made, record
from tests.unit.overtime import packed as packed_list
from tests.unit.test_deletion_controller import LIST, METADATA, REQUEST, Scene, a_record, ask

HELD = ("snap-held-1", "snap-held-2")
LAW = {"reprieve.dev/hold": "case 4711"}


def held():
    """A backup that the lawyers hold, with its files and its snapshots."""
    document = record("weekly", annotations=LAW, volumeSnapshotsCompleted=len(HELD))
    return document, files_of(document, snapshots=HELD)


def attacked(*objects, tags=True, **options):
    """``nightly`` with two snapshots of its own, the held ``weekly``, and ``plain`` without any, which is asked for."""
    document, files = held()
    scene = Scene(document, record("plain"), ask("neighbour", uid="", backup="plain"), *objects, **options)
    scene.stores.buckets["b"] |= files | files_of(record("plain"))
    marks = {"velero.io/backup": "weekly"} if tags else {}
    scene.snapshots.snapshots += [SnapshotInfo("aws", each, marks) for each in HELD]
    return scene


def rewrite(scene, *names, place="aws", key=LIST):
    """Whoever writes to the bucket writes the list that he likes."""
    listed = [{"spec": {"location": place}, "status": {"providerSnapshotID": each}} for each in names]
    scene.stores.buckets["b"][key] = packed_list(listed)


def ends(scene):
    """How each request ended, by the events about it."""
    return {event.ref.name: event.reason for event in scene.events.events}


def run_until_refused(scene, reason="NotTheBackups", name="ask"):
    """Run the deletions until the request is refused and the neighbour is gone; tells what was said."""
    with running(scene, "deletion") as cluster:
        assert cluster.until(lambda: scene.request(name)[0] == "Processed" and "plain" not in scene.names())
    assert ends(scene) == {name: reason, "neighbour": "Completed"}
    return scene.request(name)[1][0]


def test_a_rewritten_list_deletes_nobody_elses_snapshots():
    """The list of one backup was made to name those of another, which was held: they went with the first request."""
    scene = attacked(ask("ask"))
    rewrite(scene, "snap-1", *HELD)
    said = run_until_refused(scene)
    assert "snap-held-1 in aws is tagged for backup weekly; snap-held-2 in aws is tagged for backup weekly;" in said
    assert scene.left() == {"snap-1", "snap-2", *HELD}
    assert (scene.phase(), METADATA in scene.files()) == ("Completed", True)


def test_a_made_up_backup_that_expires_deletes_nobody_elses_snapshots():
    """A directory that somebody made up came in as a record, expired, and took the snapshots of a held backup along.

    Sync, retention and deletion run as they do every day; nobody has asked for anything.
    """
    settings = RetentionSettings(grace_after_sync=timedelta(0))
    scene = attacked(retention=settings)
    forged = record("evil", expires=NOW - DAY, volumeSnapshotsCompleted=2)
    scene.stores.buckets["b"] |= files_of(forged, snapshots=HELD)
    expired = record("honest", expires=NOW - DAY)
    scene.stores.buckets["b"] |= files_of(expired)
    with running(scene, "sync", "retention", "deletion") as cluster:
        assert cluster.until(lambda: len(ends(scene)) == 2 and not scene.names(REQUEST))
    assert set(ends(scene).values()) == {"Completed"}
    assert set(HELD) <= scene.left()
    assert scene.names() == {"nightly", "weekly", "evil"}
    assert scene.run("retention", at=NOW + HOUR).decisions[0].reason == "NotTheBackups"


def test_snapshots_of_nobody_do_not_go_with_a_list_that_names_them():
    """Snapshots of another tool, of another team, in the same account: they carry no tag of any backup."""
    scene = attacked(ask("ask"), tags=False)
    rewrite(scene, *HELD)
    assert "snap-held-1 in aws carries no backup's tag" in run_until_refused(scene)
    assert set(HELD) <= scene.left()


@pytest.mark.parametrize("tags", [True, False], ids=["tagged", "untagged"])
def test_where_no_tag_is_required_what_another_record_names_stays(tags):
    """Old snapshots without tags may go by their list alone; not those that a held record names as well."""
    scene = attacked(ask("ask"), tags=tags)
    scene.configuration = evolve(scene.configuration, untagged=frozenset({"aws"}))
    rewrite(scene, *HELD)
    said = run_until_refused(scene)
    assert "weekly" in said
    assert tags or "held until the hold is taken off: case 4711" in said
    assert set(HELD) <= scene.left()


def test_a_location_that_the_record_does_not_name_refuses():
    """The list named another snapshot location, whose account has a snapshot of that name and tag."""
    other = made("VolumeSnapshotLocation", "other", spec={"provider": "aws", "config": {"region": "us-east-1"}})
    scene = attacked(ask("ask"), other)
    rewrite(scene, "snap-1", place="other")
    assert "location other, but its record names aws" in run_until_refused(scene, "SnapshotLocationNotNamed")
    assert scene.left() == {"snap-1", "snap-2", *HELD}


@pytest.mark.parametrize("identifier", ["../snap-held-1", "snap-held-1\n", "snap-*", "", chr(0xFF41) * 5000])
def test_an_id_that_is_none_names_nothing(identifier):
    scene = attacked(ask("ask"), snapshots=())
    rewrite(scene, identifier)
    with running(scene, "deletion") as cluster:
        assert cluster.until(lambda: "plain" not in scene.names() and "nightly" not in scene.names())
    assert scene.left() == set(HELD), "in memory any text is an id, and one of nothing"


def test_a_place_that_does_not_answer_is_not_an_empty_one():
    """The listing failed, and each question after it: nothing was "not found", and nothing went."""
    scene = attacked(ask("ask"))

    class Silent:
        providers = frozenset({"aws"})

        def open(self, place, *, credential=None):
            raise UnavailableError("no answer")

    asked_in_vain = scene.snapshots
    scene.snapshots = Silent()
    with running(scene, "deletion") as cluster:
        assert cluster.until(lambda: "plain" not in scene.names())
    scene.snapshots = asked_in_vain
    assert (scene.left(), scene.phase(), scene.request()[0]) == ({"snap-1", "snap-2", *HELD}, "Completed", "")
    assert METADATA in scene.files()


def test_made_up_newer_backups_do_not_make_the_last_good_one_expire():
    """Ten directories with newer dates, one of them of tomorrow, pushed the last real backup out of keepLast."""
    made_here = a_record(expires=NOW - DAY, schedule="nightly")
    settings = RetentionSettings(grace_after_sync=timedelta(0))
    scene = Scene(backup=made_here, snapshots=(), retention=settings)
    for number in range(10):
        later = (NOW + (DAY if number == 9 else -HOUR * number)).isoformat()
        fields = {"completionTimestamp": later, "schedule": "nightly", "expires": NOW - HOUR}
        scene.stores.buckets["b"] |= files_of(record(f"evil-{number}", **fields))
    with running(scene, "sync", "retention", "deletion") as cluster:
        assert cluster.until(lambda: len(ends(scene)) == 9 and not scene.names(REQUEST))
    assert {name.split("-")[0] for name in ends(scene)} == {"evil"}
    assert len(scene.names()) == 2
    assert "nightly" in scene.names()
    assert METADATA in scene.files()


def test_the_command_refuses_it_too(tmp_path, capsys):
    """``backup delete``, ``plan`` and ``run`` over a folder, of which a stranger rewrote a list."""
    folder = make_folder(tmp_path / "world", capsys)
    theirs = [snapshot("snap-1", "good"), snapshot("other", "weekly")]
    (folder.path / "snapshots.yaml").write_text(yaml.safe_dump(theirs), encoding="utf-8")
    folder.put_files("good", volumesnapshots=packed([entry("snap-1"), entry("other")]))
    said = folder.run("backup", "delete", "good", "--confirm", "--now", FOLDER_NOW)
    assert (said.code, "other in aws-eu is tagged for backup weekly" in said.err) == (1, True)
    folder.put(request("ask"))
    before = folder.data()
    for done in (folder.plan(), folder.carry_out()):
        assert (done.code, done.decisions["ask"]["reason"]) == (3, "NotTheBackups")
    assert folder.data() == before


def test_what_is_its_own_still_goes():
    """Listed, tagged, in a location that the record names: the snapshots go, and the held ones beside them stay."""
    scene = attacked(ask("ask"))
    with running(scene, "deletion") as cluster:
        assert cluster.until(lambda: not scene.names(REQUEST))
    assert (scene.left(), scene.names()) == (set(HELD), {"weekly"})
    listed = scene.cluster.list(ObjectKind("velero.io/v1", "Backup")).items
    assert json.dumps([each.meta.name for each in listed]) == '["weekly"]'
