"""What strangers wrote, on the screen on which a person decides: the real command, on a real terminal and in a pipe."""

import json
import os
import pty
import re
import select
import subprocess
import sys

import pytest
import yaml

from tests.integration.folders import NOW, backup, location, make_folder, request, thing

CLEAR, HIDE, TURN = "\x1b[2J\x1b[H", "\x1b[8m", "\u202e"
FORGED = "harmless\ngood: KEEP NotAsked: nothing will be deleted\rnothing to see"
HOSTILE = f"{CLEAR}{FORGED}{HIDE}{TURN}\x9b1A\x07"
COMMAND = (sys.executable, "-c", "from reprieve.entrypoints.cli import main; main()")
OURS = re.compile(r"\x1b\[[0-9;]*m")  # rich's own colours


@pytest.fixture
def folder(tmp_path, capsys):
    """A backup that is held for a reason which is an attack, and the same text wherever a stranger can write."""
    made = make_folder(tmp_path / "world", capsys)
    holding = {"annotations": {"reprieve.dev/hold": HOSTILE}}
    made.put(backup("held", metadata=holding), file="held.yaml")
    made.put(backup("legal", metadata=holding), file="legal.yaml")
    made.put_files("held", metadata=json.dumps(backup("held")).encode())
    made.put(
        location("strange", bucket=HOSTILE),
        backup("elsewhere", where=HOSTILE),
        backup("failed", phase=HOSTILE),
        request("ask", "held"),
        request("mistyped", HOSTILE),
        thing("Restore", "back", spec={"backupName": "good"}, status={"phase": HOSTILE}),
        request("old", "good", status={"phase": "Processed", "errors": [HOSTILE, TURN]}),
    )
    return made


def on_a_terminal(*arguments, answer=b""):
    """Run the command with a terminal of its own as its screen and its keyboard; gives all that it wrote there."""
    ours, its = pty.openpty()
    process = subprocess.Popen([*COMMAND, *arguments], stdin=its, stdout=its, stderr=its, close_fds=True)
    os.close(its)
    written = b""
    try:
        os.write(ours, answer)
        while select.select([ours], [], [], 60)[0]:
            if not (chunk := _read(ours)):
                break
            written += chunk
    finally:
        process.wait(60)
        os.close(ours)
    return written.decode()


def _read(descriptor):
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other side is closed
        return b""


def assert_harmless(text):
    """Nothing but lines of characters that can be seen, and the colours of our own tables."""
    plain = OURS.sub("", text.replace("\r\n", "\n"))
    assert all(line.isprintable() for line in plain.split("\n")), [x for x in plain.split("\n") if not x.isprintable()]
    assert not any(line.startswith(("good: KEEP", "nothing to see")) for line in plain.split("\n"))


CALLS = [
    pytest.param(("plan", "--now", NOW), id="plan"),
    pytest.param(("backup", "list"), id="list"),
    pytest.param(("backup", "describe", "good"), id="describe"),
    pytest.param(("backup", "describe", "held"), id="describe-the-held-one"),
    pytest.param(("audit",), id="audit"),
    pytest.param(("backup", "delete", "held", "good", HOSTILE, "--confirm"), id="delete"),
    pytest.param(("backup", "list", "-l", HOSTILE), id="a-selector"),
    pytest.param(("run", "--once", "--controllers", HOSTILE), id="a-controller"),
    pytest.param(("plan", f"--{HOSTILE}"), id="an-option"),
    pytest.param((HOSTILE,), id="a-command"),
]


@pytest.mark.parametrize("arguments", CALLS)
def test_no_text_of_a_stranger_moves_the_cursor_or_begins_a_line(folder, arguments):
    """A hold's reason clears the screen and writes a verdict of its own over the real one; so may every other text."""
    said = folder.run(*arguments, local=HOSTILE not in arguments)
    assert_harmless(said.out)
    assert_harmless(said.err)


@pytest.mark.parametrize("output", ["json", "yaml"])
@pytest.mark.parametrize("arguments", CALLS[:5])
def test_json_and_yaml_say_it_without_doing_it(folder, arguments, output):
    """A person looks at JSON on a terminal too; a machine still reads exactly what was written."""
    said = folder.run(*arguments, "-o", output)
    assert_harmless(said.out)
    assert (json.loads if output == "json" else yaml.safe_load)(said.out)
    if arguments == ("backup", "list"):
        read = {each["name"]: each for each in yaml.safe_load(said.out)}
        assert (read["failed"]["phase"], read["elsewhere"]["storageLocation"]) == (HOSTILE, HOSTILE)


def test_the_screen_before_the_question_is_ours(folder):
    """What stands above "Are you sure" decides the answer: on a real terminal, with a person who says no."""
    before = folder.content()
    said = on_a_terminal("backup", "delete", "good", "legal", "--local", str(folder.path), answer=b"n\n")
    assert_harmless(said)
    assert "good: DELETE Admitted" in said
    assert r"legal: KEEP Held: backup is held until the hold is taken off: \x1b[2J\x1b[Hharmless\ngood: KEEP" in said
    assert "Are you sure you want to continue (Y/N)?" in said
    assert folder.content() == before


def test_the_log_on_a_terminal_is_lines_of_ours(folder):
    """A controller's log is read on a terminal as well: an entry cannot be made up, and nothing is hidden."""
    said = on_a_terminal("run", "--once", "--log-level", "debug", "--now", NOW, "--local", str(folder.path))
    assert_harmless(said)
    assert r"\x1b[2J" in said


def test_an_error_cannot_forge_a_line_either(folder):
    """The configuration of a stranger's folder is a stranger's text: its faults are lines of ours."""
    (folder.path / "reprieve.yaml").write_text(yaml.safe_dump({"apiVersion": HOSTILE, HOSTILE: 1}), encoding="utf-8")
    said = folder.run("plan")
    assert said.code == 1
    assert_harmless(said.err)
    assert all(line.startswith("reprieve: error: ") for line in said.err.splitlines())
