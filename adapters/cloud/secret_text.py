"""The text of a Secret, read by us and by nobody else: an SDK's own reader sees other lines and other keys than we do.

Whoever may write a Secret must not choose what this process runs, reads or calls. So a Secret is taken apart here, what
counts is on a list, everything else is refused by its name, and the SDKs are given values.

Guarantee: no character passes that one reader takes for the end of a line and another does not. No part of a Secret
gets into an error but the name of a key that looks like one.
Not guaranteed: that a credential works; the first call tells.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping

from attrs import frozen

from reprieve.core.errors import InvalidError

LARGEST = 64 * 1024
"""Bytes. The largest that is known, a key of 8,192 bits in JSON, has a tenth of them."""

_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Unicode's categories of what is no character to be seen: control, format, line ends, half pairs, none at all."""

_PLAIN_KEY = re.compile(r"[a-z]+[0-9]?(_[a-z0-9]+)*|[A-Z]+(_[A-Z0-9]+)+")
_LONGEST_KEY = 48


@frozen
class Line:
    """One line of a Secret that says something: its number from 1, and its text as it stands."""

    number: int
    text: str


def read_text(credential: bytes, *, expected: str) -> str:
    """The text of a Secret. ``expected`` says in an error what it then does not hold. Raises ``InvalidError``."""
    if len(credential) > LARGEST:
        raise InvalidError(f"the credential's Secret has {len(credential)} bytes, more than {LARGEST}: {expected}")
    try:
        return credential.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidError(f"the credential's Secret is no text in UTF-8, and so holds {expected}") from error


def read_lines(credential: bytes, *, expected: str, comments: str) -> Iterable[Line]:
    """The lines of a Secret that are neither empty nor a comment, which begins with one of ``comments``.

    A line ends with LF or CR LF. Raises ``InvalidError`` for any other character that a reader may take for a line's
    end, or that cannot be seen.
    """
    text = read_text(credential, expected=expected).replace("\r\n", "\n")
    lines = [Line(number, line) for number, line in enumerate(text.split("\n"), 1)]
    for line in lines:
        check_seen(line.text, what=f"line {line.number} of the credential's Secret")
    return [line for line in lines if (said := line.text.strip(" \t")) and said[0] not in comments]


def check_seen(text: str, *, what: str, allowed: str = "\t") -> None:
    """Raise ``InvalidError`` when a text holds what cannot be seen, but for the characters that are allowed."""
    found = next((c for c in text if c not in allowed and unicodedata.category(c) in _UNSEEN), "")
    if found:
        raise InvalidError(
            f"{what} holds the character U+{ord(found):04X}, which not every reader takes the same way: write it anew"
        )


def called(key: str, *, number: int = 0) -> str:
    """How messages call a key: by its name where that looks like one; a stray piece of a secret is not shown."""
    if len(key) <= _LONGEST_KEY and _PLAIN_KEY.fullmatch(key):
        return f"the key {key}"
    return f"a key in line {number}" if number else "a key whose name is none"


def check_config(config: Mapping[str, str], *, what: str) -> None:
    """Raise ``InvalidError`` when a location's configuration holds what cannot be seen.

    Native libraries end the thread that gives them such a region, bucket or endpoint.
    """
    for key, value in config.items():
        check_seen(value, what=f"{what}: spec.config.{key}", allowed="")


POD_TOKEN = re.compile(
    r"(?:/var)?/run/secrets/(?:[A-Za-z0-9_-][A-Za-z0-9._-]{0,80}/){1,4}[A-Za-z0-9_-]{0,80}token"
    r"|/var/run/service-account/token"
)
"""Where Kubernetes, and the webhooks of the clouds, put a token of a pod's own."""


def check_pod_token(path: str, *, what: str) -> None:
    """Raise ``InvalidError`` for a file that is no token of this pod's own: a Secret must not choose what is read."""
    if not POD_TOKEN.fullmatch(path):
        raise InvalidError(
            f"{what} in the credential's Secret is no token of this pod, such as "
            "/var/run/secrets/tokens/NAME/token: no other file is read because a Secret names it"
        )
