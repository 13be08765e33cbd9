"""The command over a folder: exit codes, the backup commands beside Velero's own, and the streams around them."""

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from reprieve.entrypoints.cli import backup as backup_command
from reprieve.entrypoints.cli.root import run
from tests.integration.folders import NOW, backup, entry, location, make_folder, packed, request, snapshot, thing

COMMAND = [sys.executable, "-c", "from reprieve.entrypoints.cli import main; main()"]
HELD = {"annotations": {"reprieve.dev/hold": "case 4711"}}


@pytest.fixture
def folder(tmp_path, capsys):
    return make_folder(tmp_path / "world", capsys)


def fail(folder, how, *, which="snap-1"):
    """Let a snapshot's deletion fail."""
    snapshots = [snapshot(which, "good") | {"fails": how}, {"provider": "aws", "id": "other"}]
    (folder.path / "snapshots.yaml").write_text(yaml.safe_dump(snapshots), encoding="utf-8")


def answer(monkeypatch, text):
    """Answer the question, line by line."""
    lines = iter(text.splitlines(keepends=True))
    stdin = type("Stdin", (), {"readline": staticmethod(lambda: next(lines, ""))})
    monkeypatch.setattr(sys, "stdin", stdin)


# Exit codes


def nothing(_folder):
    """Nobody asked for anything."""


def asked(folder):
    folder.put(request("ask"))


def refused(folder):
    folder.put(request("ask", "nobody"))


def held(folder):
    folder.put(backup("good", snapshots=1, metadata=HELD), file="good.yaml")
    asked(folder)


def unavailable(folder):
    folder.put(location("other-place", phase="Unavailable"), file="other-place.yaml")
    folder.put(backup("far", where="other-place"), request("ask", "far"))


def in_use(folder):
    fail(folder, "InUse")
    asked(folder)


def denied(folder):
    fail(folder, "Denied")
    asked(folder)


def locked(folder):
    fail(folder, "Locked")
    asked(folder)


def queued(folder):
    folder.put(request("ask"), request("ask-again"))


def ended_long_ago(folder):
    created = {"creationTimestamp": "2026-02-20T00:00:00Z"}
    folder.put(request("ask", "nobody", metadata=created, status={"phase": "Processed", "errors": ["not found"]}))


def ended_just_now(folder):
    created = {"creationTimestamp": "2026-03-01T11:00:00Z"}
    folder.put(request("ask", metadata=created, status={"phase": "Processed", "errors": ["denied"]}))


def refused_and_denied(folder):
    fail(folder, "Denied")
    folder.put(request("ask"), request("nobodys", "nobody"))


def refused_and_asked(folder):
    folder.put(request("ask"), request("nobodys", "nobody"))


def broken_file(folder):
    (folder.path / "cluster" / "x.yaml").write_text("a: [", encoding="utf-8")


def broken_configuration(folder):
    (folder.path / "reprieve.yaml").write_text("a: b", encoding="utf-8")


@pytest.mark.parametrize(
    ("world", "plans", "runs"),
    [
        pytest.param(nothing, 0, 0, id="nothing-to-do"),
        pytest.param(asked, 2, 0, id="asked"),
        pytest.param(refused, 3, 3, id="refused"),
        pytest.param(held, 3, 3, id="held"),
        pytest.param(unavailable, 3, 3, id="deferred"),
        pytest.param(locked, 2, 3, id="locked"),
        pytest.param(in_use, 2, 3, id="retrying"),
        pytest.param(denied, 2, 1, id="ended-with-failures"),
        pytest.param(queued, 3, 0, id="one-waits-for-the-other"),
        pytest.param(ended_long_ago, 2, 0, id="expired"),
        pytest.param(ended_just_now, 0, 0, id="ended-in-an-earlier-run"),
        pytest.param(refused_and_asked, 3, 3, id="refused-comes-before-pending-changes"),
        pytest.param(refused_and_denied, 3, 1, id="failures-come-first"),
        pytest.param(broken_file, 1, 1, id="a-broken-file"),
        pytest.param(broken_configuration, 1, 1, id="a-broken-configuration"),
    ],
)
@pytest.mark.parametrize("output", ["json", "yaml", "table"])
def test_exit_codes_of_plan_and_run(folder, world, plans, runs, output):
    """Exit codes: 1 error, 3 refused or waiting, 2 pending changes (``plan`` alone), 0; the first that holds."""
    world(folder)
    before = folder.content()
    shared = ("--controllers", "deletion", "--now", NOW, "-o", output)
    planned = folder.run("plan", *shared)
    assert (planned.code, folder.content()) == (plans, before)
    done = folder.run("run", "--once", *shared)
    assert done.code == runs
    for said in (planned, done):
        if output == "json" and said.out:
            assert isinstance(json.loads(said.out), list)
        if output == "yaml" and said.out:
            assert isinstance(yaml.safe_load(said.out), list)


@pytest.mark.parametrize(
    ("world", "arguments", "code"),
    [
        pytest.param(nothing, ["list"], 0, id="list"),
        pytest.param(nothing, ["list", "-l", "a=b"], 0, id="list-none"),
        pytest.param(nothing, ["list", "-l", "a=b=c"], 1, id="list-no-selector"),
        pytest.param(nothing, ["describe", "good"], 0, id="describe"),
        pytest.param(nothing, ["describe", "godo"], 1, id="describe-misspelt"),
        pytest.param(nothing, ["delete", "good", "--confirm"], 0, id="delete"),
        pytest.param(nothing, ["delete", "good", "--confirm", "--wait"], 0, id="delete-and-wait"),
        pytest.param(nothing, ["delete", "godo", "--confirm"], 1, id="delete-misspelt"),
        pytest.param(nothing, ["delete", "good", "godo", "--confirm"], 1, id="delete-one-misspelt"),
        pytest.param(nothing, ["delete", "--all", "--confirm"], 0, id="delete-all"),
        pytest.param(nothing, ["delete", "-l", "a=b", "--confirm"], 0, id="delete-none"),
        pytest.param(nothing, ["delete", "-l", "a=b=c", "--confirm"], 1, id="delete-no-selector"),
        pytest.param(nothing, ["delete", "--confirm"], 1, id="delete-nothing-named"),
        pytest.param(nothing, ["delete", "good", "--all", "--confirm"], 1, id="delete-named-twice"),
        pytest.param(asked, ["delete", "good", "--confirm"], 0, id="delete-asked-already"),
        pytest.param(held, ["delete", "good", "--confirm", "--wait"], 3, id="delete-held-and-wait"),
        pytest.param(in_use, ["delete", "good", "--confirm", "--wait"], 3, id="delete-in-use-and-wait"),
        pytest.param(denied, ["delete", "good", "--confirm", "--wait"], 1, id="delete-denied-and-wait"),
        pytest.param(broken_file, ["delete", "good", "--confirm"], 1, id="delete-in-a-broken-folder"),
        pytest.param(broken_configuration, ["list"], 1, id="list-with-a-broken-configuration"),
    ],
)
@pytest.mark.parametrize("output", ["json", "yaml"])
def test_exit_codes_of_backup(folder, world, arguments, code, output):
    """With ``-o json`` standard output is JSON and nothing else; what failed is said on standard error."""
    world(folder)
    said = folder.run("backup", *arguments, "-o", output)
    assert said.code == code, said.err
    assert bool(said.err) or code == 0
    if said.out:
        read = json.loads(said.out) if output == "json" else yaml.safe_load(said.out)
        assert isinstance(read, list | dict)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param([], "Usage", id="nothing"),
        pytest.param(["nosuch"], "No such command", id="no-command"),
        pytest.param(["plan", "--bogus"], "--bogus", id="no-option"),
        pytest.param(["--local", "x", "plan"], "--local", id="an-option-before-the-command"),
        pytest.param(["plan", "--local", "nosuch"], "nosuch", id="no-folder"),
        pytest.param(["plan", "--now", "2026-03-01T12:00:00Z"], "--local", id="now-without-a-folder"),
        pytest.param(["plan", "--collect-absent"], "--local", id="collect-absent-without-a-folder"),
        pytest.param(["plan", "-o", "xml"], "xml", id="no-output"),
        pytest.param(["run", "--log-level", "loud"], "loud", id="no-level"),
    ],
)
def test_a_wrong_command_line_is_an_error_of_one_screen(folder, arguments, said):
    """Usage errors have exit code 1, as every error: 2 means that changes are pending."""
    shown = folder.run(*arguments, local=False)
    assert (shown.code, shown.out) == (1, "")
    assert said in shown.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["plan", "--now", "yesterday"], "2026-03-01T12:00:00Z", id="no-time"),
        pytest.param(["plan", "--now", "2026-03-01T12:00:00"], "offset", id="a-time-without-an-offset"),
        pytest.param(["plan", "--controllers", "nosuch"], "nosuch is not switched on; there are", id="no-controller"),
        pytest.param(["plan", "--controllers", ","], "names no controller", id="empty-controllers"),
        pytest.param(["plan", "--context", "c"], "--local excludes", id="a-folder-and-a-cluster"),
        pytest.param(["plan", "more"], "more", id="an-argument-too-many"),
        pytest.param(["run", "--now", NOW], "--once", id="now-without-once"),
        pytest.param(["run", "--once", "--probe-port", "8080"], "--once", id="probes-of-a-single-run"),
        pytest.param(["backup", "describe"], "NAME", id="no-name"),
    ],
)
def test_options_that_do_not_go_together_are_an_error(folder, arguments, said):
    """An option that would be passed over in silence is refused instead."""
    before = folder.content()
    shown = folder.run(*arguments)
    assert (shown.code, shown.out, folder.content()) == (1, "", before)
    assert said in shown.err


# backup list and describe


def test_the_list_shows_velero_s_columns_and_the_hold(folder):
    """The status is the phase, ``New`` where it is empty, ``Deleting`` where the record is terminating (B10)."""
    folder.put(backup("b-new", phase=""), backup("a-held", metadata=HELD))
    listed = json.loads(folder.run("backup", "list", "-o", "json").out)
    assert [(each["name"], each["phase"]) for each in listed] == [
        ("a-held", "Completed"),
        ("b-new", "New"),
        ("good", "Completed"),
    ]
    assert "case 4711" in listed[0]["hold"]
    assert folder.run("backup", "list").out.splitlines()[0].split() == [
        *("NAME", "STATUS", "CREATED", "EXPIRES", "LOCATION", "SNAPSHOTS", "HOLD")
    ]


def test_describe_prints_the_documented_json(folder):
    """The documented format, key by key; attempts of the same name and another UID are not this backup's."""
    labels = {"velero.io/backup-name": "good", "velero.io/backup-uid": "uid-Backup-good"}
    state = {"uid": "uid-Backup-good", "attempts": 2, "nextAttempt": "2026-03-01T13:00:00Z"}
    folder.put(
        request("at-work", metadata={"labels": labels, "annotations": {"reprieve.dev/state": json.dumps(state)}}),
        request("failed", metadata={"labels": labels}, status={"phase": "Processed", "errors": ["denied"]}),
        request("another", metadata={"labels": {**labels, "velero.io/backup-uid": "an-older-one"}}),
    )
    documented = {
        "name": "good",
        "uid": "uid-Backup-good",
        "phase": "Completed",
        "expiration": None,
        "storageLocation": "primary",
        "snapshots": [{"id": "snap-1", "provider": "aws", "location": "aws-eu"}],
        "deletionAttempts": {
            "failed": 1,
            "deleteBackupRequests": [
                {
                    "name": "at-work",
                    "creationTimestamp": "2026-02-20T00:00:00Z",
                    "phase": "New",
                    "errors": [],
                    "attempts": 2,
                    "nextAttempt": "2026-03-01T13:00:00Z",
                },
                {
                    "name": "failed",
                    "creationTimestamp": "2026-02-20T00:00:00Z",
                    "phase": "Processed",
                    "errors": ["denied"],
                    "attempts": 0,
                    "nextAttempt": None,
                },
            ],
        },
    }
    shown = json.loads(folder.run("backup", "describe", "good", "-o", "json").out)
    assert {key: shown[key] for key in documented} == documented


def test_describe_shows_attempts_whatever_the_phase(folder):
    """Velero first showed attempts only for the phase Deleting, which hid the failed ones (B10)."""
    labels = {"velero.io/backup-name": "good", "velero.io/backup-uid": "uid-Backup-good"}
    assert "Deletion Attempts" not in folder.run("backup", "describe", "good").out
    folder.put(request("failed", metadata={"labels": labels}, status={"phase": "Processed", "errors": ["denied"]}))
    shown = folder.run("backup", "describe", "good").out
    assert "Deletion Attempts (1 failed):\n  2026-02-20T00:00:00Z: Processed (failed)\n  Errors:\n    denied" in shown


def test_describe_works_where_the_bucket_does_not(folder):
    """The bucket is gone: the record is shown, and that its snapshots are not known."""
    shutil.rmtree(folder.path / "buckets")
    said = folder.run("backup", "describe", "good", "-o", "json")
    assert (said.code, json.loads(said.out)["snapshots"]) == (0, [])
    assert "cannot be read" in said.err


# backup delete


def test_delete_asks_in_velero_s_words_and_for_exactly_that_backup(folder):
    """Both labels bind the request to the name and the UID (B9); without ``--wait`` nothing is deleted yet."""
    said = folder.run("backup", "delete", "good", "--confirm", "-o", "json")
    assert 'Request to delete backup "good" submitted successfully.' in said.err
    assert "The backup will be fully deleted after all associated data (disk snapshots, backup files," in said.err
    [created] = json.loads(said.out)
    [path] = [path for path in (folder.path / "cluster").rglob("*.yaml") if created["name"] in path.name]
    made = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert made["metadata"]["name"].startswith("good-")
    assert made["metadata"]["labels"] == {
        "velero.io/backup-name": "good",
        "velero.io/backup-uid": "uid-Backup-good",
    }
    assert made["spec"] == {"backupName": "good"}
    assert folder.objects("Backup") == ["good"]


def test_of_several_names_a_misspelt_one_does_not_stop_the_others(folder):
    """B9: Velero drops the error and exits 0 when one misspelt name is all there is. Here it is 1, every time."""
    folder.put(backup("fine"))
    folder.put_files("fine")
    said = folder.run("backup", "delete", "godo", "good", "fine", "--confirm", "-o", "json")
    assert said.code == 1
    assert 'backup "godo" not found' in said.err
    assert sorted(each["name"].rpartition("-")[0] for each in json.loads(said.out)) == ["fine", "good"]


def test_delete_by_labels_and_all(folder):
    """The selector takes what it matches, ``--all`` takes all, and neither takes nothing for all."""
    folder.put(backup("fine", metadata={"labels": {"app": "shop"}}))
    folder.put_files("fine")
    assert folder.run("backup", "delete", "-l", "app=none", "--confirm").err == "No backups found\n"
    assert folder.objects("DeleteBackupRequest") == []
    folder.run("backup", "delete", "-l", "app in (shop, x)", "--confirm", "--wait")
    assert folder.objects("Backup") == ["good"]
    folder.run("backup", "delete", "--all", "--confirm", "--wait")
    assert folder.objects("Backup") == []


@pytest.mark.parametrize(
    ("text", "code", "requests"),
    [
        pytest.param("y\n", 0, 1, id="yes"),
        pytest.param("Y\n", 0, 1, id="a-loud-yes"),
        pytest.param("n\n", 0, 0, id="no"),
        pytest.param("yes\n\nno\ny\n", 0, 1, id="asked-until-it-is-one-letter"),
        pytest.param("", 1, 0, id="nobody-there"),
        pytest.param("maybe\n", 1, 0, id="nobody-there-any-more"),
    ],
)
def test_the_question(folder, monkeypatch, text, code, requests):
    """B9: one letter, either case, asked again until it is one. Nobody there to answer is an error, not a yes."""
    answer(monkeypatch, text)
    said = folder.run("backup", "delete", "good")
    assert said.code == code
    assert said.err.startswith("good: DELETE Admitted: 1 snapshot, its files and its record (4 steps)\nAre you sure")
    assert len(folder.objects("DeleteBackupRequest")) == requests


@pytest.mark.parametrize(
    ("name", "parts", "said"),
    [
        pytest.param("archived", {"where": "archive"}, "archive is currently in read-only mode", id="read-only"),
        pytest.param("running", {"phase": "InProgress"}, "backup is still in progress", id="in-progress"),
        pytest.param("lost", {"where": "nowhere"}, "backup storage location nowhere not found", id="no-location"),
        pytest.param("bare", {"snapshots": 3}, "bare-volumesnapshots.json.gz is not in the bucket", id="no-list"),
    ],
)
def test_what_would_be_refused_is_said_before_the_question(folder, name, parts, said):
    """velero#4203: the request was accepted, and the refusal stood in its status, where nobody looked."""
    folder.put(backup(name, **parts), location("archive", mode="ReadOnly"))
    folder.put_files(name)
    shown = folder.run("backup", "delete", name)  # nobody is there to answer, and nobody is asked
    assert shown.code == 1
    assert said in shown.err
    assert "Are you sure" not in shown.err
    assert folder.objects("DeleteBackupRequest") == []


def test_even_in_progress_is_asked_for_by_its_own_option(folder):
    """A backup whose server died stays InProgress for ever; whoever knows that says so."""
    folder.put(backup("stuck", phase="InProgress"))
    folder.put_files("stuck")
    assert folder.run("backup", "delete", "stuck", "--confirm", "--wait").code == 1
    assert folder.run("backup", "delete", "stuck", "--confirm", "--wait", "--even-in-progress").code == 0
    assert folder.objects("Backup") == ["good"]


def test_a_pending_request_is_not_doubled(folder):
    """Asked a second time, also before the first one was ever looked at and has no labels yet."""
    folder.put(request("by-kubectl"))
    said = folder.run("backup", "delete", "good", "--confirm", "-o", "json")
    assert (said.code, json.loads(said.out)) == (0, [])
    assert "already asked for by by-kubectl" in said.err
    assert folder.objects("DeleteBackupRequest") == ["by-kubectl"]


def test_with_wait_the_pending_request_is_waited_for(folder, monkeypatch):
    """In a folder that means to carry it out, so that is agreed to first."""
    folder.put(request("by-kubectl"))
    answer(monkeypatch, "n\n")
    assert folder.run("backup", "delete", "good", "--wait").code == 0
    assert folder.objects("Backup") == ["good"]
    answer(monkeypatch, "y\n")
    said = folder.run("backup", "delete", "good", "--wait")
    assert (said.code, "good is deleted" in said.err) == (0, True)
    assert (folder.objects("Backup"), folder.objects("DeleteBackupRequest")) == ([], [])


def test_a_request_for_an_older_backup_of_that_name_is_not_this_one_s(folder):
    """The backup was made anew under its name: the request that waits is for the older one."""
    folder.put(request("stale", metadata={"labels": {"velero.io/backup-uid": "an-older-one"}}))
    said = folder.run("backup", "delete", "good", "--confirm", "-o", "json")
    assert len(json.loads(said.out)) == 1


def test_waiting_carries_out_what_was_named_and_nothing_else(folder):
    """A folder with another request in it: to wait for one backup must not delete another that no plan has shown."""
    folder.put(backup("fine"), request("ask", "fine"))
    folder.put_files("fine")
    assert folder.run("backup", "delete", "good", "--confirm", "--wait").code == 0
    assert folder.objects("Backup") == ["fine"]
    assert folder.objects("DeleteBackupRequest") == ["ask"]


def test_a_request_that_somebody_takes_back_is_no_success(folder, monkeypatch):
    """While somebody waits, somebody else deletes the request: the backup is there, and the exit code says so."""
    real = backup_command.carry_out

    def taken_back(world, backups, *, now):
        for resource in world.cluster.list(backup_command.backup_reader(world).dialect.request_kind).items:
            world.cluster.delete(resource.ref)
        return real(world, backups, now=now)

    monkeypatch.setattr(backup_command, "carry_out", taken_back)
    said = folder.run("backup", "delete", "good", "--confirm", "--wait")
    assert (said.code, "still there" in said.err) == (1, True)
    assert folder.objects("Backup") == ["good"]


def test_the_backup_commands_speak_ark(folder):
    """With ``dialect: ark`` the same commands work on ``ark.heptio.com/v1``."""
    (folder.path / "reprieve.yaml").write_text(
        "apiVersion: reprieve.dev/v1alpha1\nkind: Configuration\n"
        "backups: {dialect: ark, ark: {bucket: bkt, provider: aws}}\n",
        encoding="utf-8",
    )
    old = {**thing("Backup", "old", spec={}, status={"phase": "Completed"}), "apiVersion": "ark.heptio.com/v1"}
    folder.put(old)
    assert [each["name"] for each in json.loads(folder.run("backup", "list", "-o", "json").out)] == ["old"]
    said = folder.run("backup", "delete", "old", "--confirm", "--wait")
    assert (said.code, folder.objects("Backup")) == (0, ["good"])


# Streams, signals, locks


def process(*arguments, **options):
    """Run the command as a process of its own."""
    shared = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run([*COMMAND, *map(str, arguments)], check=False, **(shared | options))


def test_a_pipe_that_closes_is_no_traceback(folder):
    """``reprieve plan | head -1``."""
    folder.put(request("ask"))
    reader, writer = os.pipe()
    os.close(reader)
    done = process("plan", "--local", folder.path, stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_closed_streams_are_no_traceback(folder):
    """Started by something that closed standard input and output."""
    script = 'exec "$@" <&- >&-'
    shell = ["sh", "-c", script, "sh", *COMMAND, "backup", "delete", "good", "--local", str(folder.path)]
    done = subprocess.run(shell, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert b"nobody answered" in done.stderr
    assert b"internal error" not in done.stderr


def test_a_full_disk_is_an_error_and_no_fault_of_ours(folder):
    """Standard output leads to a disk without space."""
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        done = process("plan", "--local", folder.path, stdout=full)
    assert done.returncode == 1
    assert b"No space left on device" in done.stderr
    assert b"internal error" not in done.stderr


def test_json_stays_json_where_only_ascii_can_be_shown(folder):
    """A container without a locale: names beyond ASCII are escaped, in JSON by JSON's own means."""
    folder.put_files("good", volumesnapshots=packed([entry("snáp-💥"), entry("\ud800")]))
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    done = process("backup", "describe", "good", "-o", "json", "--local", folder.path, env=ascii_only)
    assert done.returncode == 0
    assert [each["id"] for each in json.loads(done.stdout)["snapshots"]] == ["snáp-💥", "\ud800"]
    assert process("backup", "describe", "good", "--local", folder.path, env=ascii_only).returncode == 0


def on_a_terminal(*arguments, typed=b""):
    """Run the command on a terminal of 80 columns; gives its exit code and all that the terminal showed."""
    master, slave = pty.openpty()
    shown, code = b"", 0
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdin=slave, stdout=slave, stderr=slave, env=os.environ | {"COLUMNS": "80"}
    ) as child:
        os.close(slave)
        os.write(master, typed)
        try:
            while chunk := os.read(master, 65536):
                shown += chunk
        except OSError:  # the last process that had the terminal is gone
            pass
        code = child.wait()
    os.close(master)
    return code, shown.decode()


def test_on_a_terminal_names_can_be_read_whole(folder):
    """On 80 columns a table was once cut into slivers: names, phases and times in pieces of six letters."""
    folder.put(backup("a-backup-with-quite-a-long-name", metadata=HELD))
    code, shown = on_a_terminal("backup", "list", "--local", folder.path)
    assert code == 0
    assert "a-backup-with-quite-a-long-name" in shown
    assert "2026-02-01T00:00:00Z" in shown


def test_on_a_terminal_the_question_is_answered(folder):
    """A person types y."""
    code, shown = on_a_terminal("backup", "delete", "good", "--local", folder.path, typed=b"y\n")
    assert (code, "submitted successfully" in shown) == (0, True)


def test_a_folder_is_worked_on_by_one_run_at_a_time(folder):
    """Two runs at once: the second says that the first is at work, and does nothing."""
    folder.put(request("ask"))
    before = folder.content()
    descriptor = os.open(folder.path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        for arguments in (["run", "--once"], ["plan"], ["backup", "delete", "good", "--confirm"]):
            said = folder.run(*arguments, "-o", "json")
            assert (said.code, said.out) == (1, "")
            assert "another reprieve is at work" in said.err
    finally:
        os.close(descriptor)
    assert folder.content() == before


# Asks itself to stop, as a supervisor would, right before its n-th effect on the disk.
STOPPED = """
import itertools, os, signal, sys
from reprieve.adapters.local import disk
from reprieve.entrypoints.cli.root import run

effects, rename = itertools.count(1), disk.Disk.rename

def stopping(self, source, target):
    if next(effects) == int(sys.argv[1]):
        os.kill(os.getpid(), getattr(signal, sys.argv[2]))
    rename(self, source, target)

disk.Disk.rename = stopping
folder, now = sys.argv[3:]
sys.exit(run(["run", "--once", "--controllers", "deletion", "--now", now, "-o", "json", "--local", folder]))
"""


def told_to_stop(folder, *, by, effect=1, before_it=()):
    """The end of a run that asked itself to stop."""
    command = [*before_it, sys.executable, "-c", STOPPED, str(effect), by, str(folder.path), NOW]
    return subprocess.run(command, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("effect", "by"), [(1, "SIGTERM"), (2, "SIGTERM"), (3, "SIGTERM"), (4, "SIGTERM"), (1, "SIGINT")]
)
def test_a_run_that_is_told_to_stop_stops_between_two_effects(folder, interruptible, effect, by):
    """SIGTERM from a supervisor: the effect at hand ends, the rest is left for the next run, and the code says so."""
    folder.put(request("ask"))
    done = told_to_stop(folder, by=by, effect=effect)
    assert done.returncode == 3, done.stderr
    assert b"run again to go on" in done.stderr
    assert isinstance(json.loads(done.stdout), list)
    lists = [each for each in folder.data() if each.endswith("good-volumesnapshots.json.gz")]
    assert lists or b"snap-1" not in folder.data()["snapshots.yaml"]
    assert folder.run("run", "--once", "--controllers", "deletion", "--now", NOW).code == 0
    assert folder.objects("Backup") == []


@pytest.mark.parametrize(("by", "code"), [("SIGINT", 0), ("SIGTERM", 3)])
def test_a_background_job_does_not_hear_ctrl_c(folder, by, code):
    """``nohup`` and a script's ``&`` ignore SIGINT: a Ctrl-C that is meant for another command ends that alone."""
    folder.put(request("ask"))
    done = told_to_stop(folder, by=by, before_it=["sh", "-c", "trap '' INT; exec \"$@\"", "sh"])
    assert done.returncode == code, done.stderr
    assert (folder.objects("Backup") == []) == (code == 0)


WITHOUT_ROOTS_RIGHTS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


def as_nobody_special():
    """What to put before a command so that permissions count for it; None where that cannot be had."""
    if os.geteuid() != 0:
        return []
    tried = shutil.which("setpriv") and subprocess.run([*WITHOUT_ROOTS_RIGHTS, "true"], check=False).returncode == 0
    return WITHOUT_ROOTS_RIGHTS if tried else None


@pytest.mark.parametrize(
    ("what", "arguments", "said"),
    [
        pytest.param("cluster/good.yaml", ["plan"], b"good.yaml: cannot be read", id="a-file"),
        pytest.param("cluster", ["backup", "list"], b"cluster: cannot be read", id="a-folder"),
        pytest.param("snapshots.yaml", ["run", "--once"], b"snapshots.yaml: cannot be read", id="snapshots"),
        pytest.param("reprieve.yaml", ["plan"], b"reprieve.yaml: cannot be read", id="configuration"),
    ],
)
def test_what_may_not_be_read_is_named_and_nothing_is_done(folder, what, arguments, said):
    """A file of root's in a folder of somebody else's: an error with its path, not an empty cluster."""
    before_it = as_nobody_special()
    if before_it is None:
        pytest.skip("permissions do not count for root, and setpriv cannot lay down its rights")
    folder.put(request("ask"))
    (folder.path / "reprieve.yaml").write_text(
        "apiVersion: reprieve.dev/v1alpha1\nkind: Configuration\n", encoding="utf-8"
    )
    before, path = folder.content(), folder.path / what
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        command = [*before_it, *COMMAND, *arguments, "--local", str(folder.path)]
        done = subprocess.run(command, capture_output=True, check=False)
    finally:
        path.chmod(mode)
    assert (done.returncode, done.stdout, folder.content()) == (1, b"", before)
    assert said in done.stderr
    assert b"internal error" not in done.stderr


def test_a_folder_that_may_not_be_written_keeps_everything(folder):
    """Written protection stops the first effect: the error names the file, and no snapshot is gone."""
    before_it = as_nobody_special()
    if before_it is None:
        pytest.skip("permissions do not count for root, and setpriv cannot lay down its rights")
    folder.put(request("ask"))
    before, paths = folder.content(), [folder.path, *folder.path.rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        shared = ["--controllers", "deletion", "--now", NOW, "--local", str(folder.path)]
        planned = subprocess.run([*before_it, *COMMAND, "plan", *shared], capture_output=True, check=False)
        done = subprocess.run([*before_it, *COMMAND, "run", "--once", *shared], capture_output=True, check=False)
    finally:
        for path in paths:
            path.chmod(modes[path])
    assert (planned.returncode, done.returncode, folder.content()) == (2, 1, before)
    assert b"cannot be written" in done.stderr


def until(stream, text):
    """Read until the text comes, or the stream ends without it."""
    shown = b""
    while text not in shown and (more := stream.read(1)):
        shown += more
    assert text in shown
    return shown


def test_interrupting_a_question_leaves_everything(folder, interruptible):
    """Ctrl-C at the question."""
    with subprocess.Popen(
        [*COMMAND, "backup", "delete", "good", "--local", str(folder.path)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        until(child.stderr, b"Are you sure")
        child.send_signal(signal.SIGINT)
        rest = child.stderr.read()
        assert child.wait() == 1
    assert b"interrupted" in rest
    assert folder.objects("DeleteBackupRequest") == []


# What the README shows

README = Path(__file__).parents[2] / "README.md"


def blocks(language):
    """The README's code blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_library_example_does_what_the_readme_says(capsys):
    """The examples are run as they stand there, and print what stands below them."""
    protection, deletion = blocks("python")
    exec(protection, {})
    assert [capsys.readouterr().out] == blocks("text")
    exec(deletion, {})
    stages, errors = capsys.readouterr().out.splitlines()
    assert stages == str(["snapshots", "bucketFiles", "bucketMetadata", "backup", "requests"])
    assert errors == str(("error deleting snapshot snap-1: an image uses it",))


def same(line):
    """A line without what differs each time: times, ends of generated names, widths of columns."""
    line = re.sub(r"\d{4}-\d\d-\d\dT[0-9:]+Z", "TIME", line)
    return " ".join(re.sub(r"shop-nightly-[a-z0-9]{5}\b", "shop-nightly-RANDOM", line).split())


def test_the_walk_through_the_commands_is_as_the_readme_shows_it(tmp_path, capsys, monkeypatch):
    """Each command is run in order; each line that the README shows below it is really said, in that order."""
    monkeypatch.chdir(tmp_path)
    walk = [part for block in blocks("console") for part in block.split("$ reprieve ")[1:]]
    assert len(walk) == 7
    for part in walk:
        command, *lines = part.splitlines()
        answer(monkeypatch, "y\n")
        code = run(command.split())
        said = capsys.readouterr()
        assert code in {0, 1, 3}
        heard = iter(same(line) for line in (said.err + said.out).replace("(Y/N)? ", "(Y/N)? y\n").splitlines())
        for line in map(same, lines):
            assert line in {"", "…"} or line in heard, f"reprieve {command}: {line}"


def test_the_wrong_folder_is_noted(folder, tmp_path):
    """``--local .`` in some folder: "nothing to decide" alone would look as if all was well."""
    (tmp_path / "elsewhere").mkdir()
    said = folder.run("plan", "--local", tmp_path / "elsewhere", local=False)
    assert (said.code, "it is an empty cluster" in said.err) == (0, True)
