"""What ``backup describe`` adds to the record: its expiry and what retention says of it, its holds, its restores.

Guarantee: it only reads; what cannot be read is said in its place, and the rest is shown. The keys stand beside those
of the record, and change none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from reprieve.core.backups import Backup, Directory, StorageLocation
from reprieve.core.holds import Held, hold_of
from reprieve.core.reasons import Verdict
from reprieve.core.requests import Absent
from reprieve.core.retention import FileRequest, is_due
from reprieve.core.values import format_instant
from reprieve.entrypoints.cli import screen
from reprieve.entrypoints.configuration import RetentionSettings
from reprieve.entrypoints.controller.gathering import BackupReader
from reprieve.entrypoints.controller.marks import MarkReader
from reprieve.entrypoints.controller.retention import answer_for, rules_of


def further(marks: MarkReader, settings: RetentionSettings, backup: Backup, *, now: datetime) -> dict[str, Any]:
    """The keys ``expiry``, ``holds`` and ``restores``. Raises core errors when the cluster cannot be read."""
    reader = marks.reader
    restores = sorted((r for r in reader.restores() if r.backup == backup.name), key=lambda r: r.ref)
    return {
        "expiry": _expiry(marks, settings, backup, now),
        "holds": _holds(reader, backup, now),
        "restores": [{"name": each.ref.name, "phase": each.phase or "New"} for each in restores],
    }


def _expiry(marks: MarkReader, settings: RetentionSettings, backup: Backup, now: datetime) -> dict[str, Any]:
    verdict = answer_for(marks, rules_of(settings), backup, now=now).verdict
    asks = isinstance(verdict, FileRequest)
    return {
        "due": is_due(backup, now=now),
        "verdict": (Verdict.DELETE if asks else Verdict.KEEP).value,
        "reason": verdict.reason.value,
        "message": verdict.message,
    }


def _holds(reader: BackupReader, backup: Backup, now: datetime) -> list[dict[str, Any]]:
    """The hold on the record, and the one that is mirrored beside its files."""
    file = reader.dialect.layout.hold_key(backup.name)
    places = {"annotation": backup.meta.annotations, file: _mirrored(reader, backup)}
    states = {where: hold_of(holder, now=now) for where, holder in places.items()}
    return [_hold(where, state) for where, state in states.items() if isinstance(state, Held)]


def _mirrored(reader: BackupReader, backup: Backup) -> Mapping[str, str]:
    location = reader.location(backup.storage_location) if backup.storage_location else Absent()
    if not isinstance(location, StorageLocation):
        return {}
    directory = reader.directory(location, backup.name)
    if isinstance(directory, Directory):
        return directory.hold
    screen.say(f"reprieve: the files of {backup.name} cannot be read: {directory.why}", err=True)
    return {}


def _hold(where: str, held: Held) -> dict[str, Any]:
    return {"where": where, "reason": held.reason, "until": format_instant(held.until) if held.until else None}


# For people


def say_expiry_and_holds(described: Mapping[str, Any]) -> None:
    """Print what retention says, and every hold."""
    expiry = described["expiry"]
    screen.say(f"Due:               {'yes' if expiry['due'] else 'no'} ({expiry['reason']}: {expiry['message']})")
    for hold in described["holds"]:
        span = f"until {hold['until']}" if hold["until"] else "until it is taken off"
        screen.say(f"Hold:              {hold['reason']}, {span} ({hold['where']})")
    if not described["holds"]:
        screen.say("Hold:              none")


def say_restores(described: Mapping[str, Any]) -> None:
    """Print the restores that were made from the backup."""
    screen.say(f"Restores:          {len(described['restores'])}")
    for restore in described["restores"]:
        screen.say(f"  {restore['name']}  ({restore['phase']})")
