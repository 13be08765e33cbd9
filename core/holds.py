"""Holds: the one question that every path asks before it deletes anything.

A hold is the annotation ``reprieve.dev/hold: <reason>``, and optionally ``reprieve.dev/hold-until: <RFC 3339>``, on an
owner, a dependent or a backup; or the document ``reprieve-hold.json`` beside a backup's files.

Guarantee: when in doubt, held. A date that cannot be read holds, and so do a lone ``hold-until`` and a document that
cannot be read. A hold ends exactly at its instant. Not guaranteed: that whoever wrote the hold had the right to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from attrs import frozen

from reprieve.core.objects import texts
from reprieve.core.values import format_instant, parse_instant

HOLD = "reprieve.dev/hold"
HOLD_UNTIL = "reprieve.dev/hold-until"
HOLD_FILE = "reprieve-hold.json"
MIRRORED_FROM = "reprieve.dev/mirrored-from"
"""In a hold file: the UID of the record whose hold it mirrors. A UID cannot be chosen by whoever may patch a record."""


@frozen
class Held:
    """Held, for that reason; ``until`` is None when nobody can say."""

    reason: str
    until: datetime | None = None

    def sentence(self) -> str:
        """Say for how long and why, for messages."""
        span = f"until {format_instant(self.until)}" if self.until else "until the hold is taken off"
        return f"held {span}: {self.reason}"


@frozen
class Free:
    """Not held."""


HoldState = Held | Free


def hold_of(annotations: Mapping[str, str], *, now: datetime) -> HoldState:
    """Read the hold of one object's annotations (or of the same two keys in a hold document)."""
    if HOLD not in annotations and HOLD_UNTIL not in annotations:
        return Free()
    reason = annotations.get(HOLD) or "no reason given"
    if HOLD_UNTIL not in annotations:
        return Held(reason)
    until = parse_instant(annotations[HOLD_UNTIL])
    if until is None:
        return Held(
            f"{reason} ({HOLD_UNTIL} {annotations[HOLD_UNTIL]!r} is not an RFC 3339 date with an offset, so it holds)"
        )
    return Held(reason, until) if now < until else Free()


def any_hold(holders: Iterable[Mapping[str, str]], *, now: datetime) -> HoldState:
    """Ask several holders at once: the hold that lasts longest wins. Order does not matter."""
    holds = [hold for hold in (hold_of(each, now=now) for each in holders) if isinstance(hold, Held)]
    endless = sorted((hold for hold in holds if hold.until is None), key=lambda hold: hold.reason)
    dated = sorted((hold for hold in holds if hold.until is not None), key=lambda hold: (hold.until, hold.reason))
    lasting = endless or dated[-1:]
    return lasting[0] if lasting else Free()


def hold_document(annotations: Mapping[str, str]) -> dict[str, str]:
    """Build the document that mirrors an object's hold beside its files; empty when there is nothing to mirror."""
    return {key: annotations[key] for key in (HOLD, HOLD_UNTIL) if key in annotations}


def holder_of_document(document: Any) -> str:
    """The UID of the record that a mirrored hold was written for; empty for one that was put there by hand."""
    return texts(document).get(MIRRORED_FROM, "")


def hold_from_document(document: Any) -> Mapping[str, str]:
    """Read a mirrored hold as annotations. A document of any other shape holds, and says so."""
    found = texts(document)
    kept = {key: found[key] for key in (HOLD, HOLD_UNTIL) if key in found}
    return kept or {HOLD: f"{HOLD_FILE} is there but names no hold"}
