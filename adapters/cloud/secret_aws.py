"""An AWS credential out of a Secret: the text of a shared credentials file, of which only what is listed here counts.

Guarantee: what this module accepts, botocore's own reader would read the same way: no section, key or line that it sees
and we do not. Nothing in it names a command, a file, an endpoint or another source of credentials.
Not guaranteed: that it reads all that botocore would: values over several lines and nested settings are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta

from attrs import field, frozen

from reprieve.adapters.cloud.known import remember
from reprieve.adapters.cloud.secret_text import Line, called, read_lines
from reprieve.core.errors import InvalidError
from reprieve.core.values import joined

EXPECTED = "no AWS shared credentials file: [default], then key = value lines"
DEFAULT = "default"

_SECTION = re.compile(r"\[([A-Za-z0-9_.@+/:-]{1,128})\]")
_VISIBLE = re.compile(r"[!-~]+")
_SHORTEST, _LONGEST = timedelta(minutes=15), timedelta(hours=12)

VALUES: Mapping[str, re.Pattern[str]] = {
    "aws_access_key_id": _VISIBLE,
    "aws_secret_access_key": re.compile(r"\S(?:.*\S)?"),  # of an S3-compatible store it may be any password
    "aws_session_token": _VISIBLE,
    "aws_security_token": _VISIBLE,
    "region": re.compile(r"[A-Za-z0-9_-]{1,63}"),
    "role_arn": re.compile(r"arn:aws[a-z-]{0,20}:iam::\d{12}:role/[\w+=,.@/-]{1,576}", re.ASCII),
    "source_profile": re.compile(r"[A-Za-z0-9_.@+/:-]{1,128}"),
    "role_session_name": re.compile(r"[\w+=,.@-]{2,64}", re.ASCII),
    "external_id": re.compile(r"[\w+=,.@:/-]{2,1224}", re.ASCII),
    "duration_seconds": re.compile(r"\d{1,6}", re.ASCII),
    "output": re.compile(r".+"),  # how the aws command prints: it means nothing here
}
"""The keys that a profile may have, and what may stand there."""

REFUSED: Mapping[str, str] = {
    "credential_process": "commands are not run from Secrets",
    "web_identity_token_file": "no file is read because a Secret names it. For the pod's own identity name no "
    "credential in the location",
    "credential_source": "a role is taken on with keys of the same Secret (source_profile). For the pod's own identity "
    "name no credential in the location",
    "endpoint_url": "a Secret does not say where requests go",
    "services": "a Secret does not say where requests go",
    "mfa_serial": "nobody is there to be asked for a code",
}
"""Keys that botocore knows and that are not taken, with the reason."""


@frozen
class Keys:
    """Keys that sign by themselves."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)


@frozen
class Role:
    """A role that is taken on with other keys of the same Secret. ``duration`` is STS's own default where None."""

    arn: str
    source: Keys | Role
    session_name: str = ""
    external_id: str = ""
    duration: timedelta | None = None


@frozen
class Profile:
    """Who to be, and the region that the profile names; empty where it names none."""

    identity: Keys | Role
    region: str = ""


Section = Mapping[str, str]


def read_profile(credential: bytes, name: str = "") -> Profile:
    """Read a profile of a shared credentials file, ``default`` without a name; the whole file is checked.

    Raises ``InvalidError`` where it is of no use, without a value of the file in it.
    """
    sections = _sections(credential)
    name = name or DEFAULT
    if name not in sections:
        raise InvalidError(f"the credential's Secret has no profile [{name[:128]}], only {joined(sections) or 'none'}")
    return Profile(_identity(sections, name, ()), sections[name].get("region", ""))


def _sections(credential: bytes) -> Mapping[str, Section]:
    sections: dict[str, dict[str, str]] = {}
    name, indent = "", None
    for line in read_lines(credential, expected=EXPECTED, comments="#;"):
        said = line.text.strip(" \t")
        deep = len(line.text) - len(line.text.lstrip(" \t"))
        if name and indent is not None and deep > indent:  # to botocore it is one more line of the value above
            raise _faulty(line, "is indented more than the one before, as if its value went on: one key a line")
        if said.startswith("["):
            name, indent = _section(line, said, known=sections), None
            sections[name] = {}
            continue
        if not name:
            raise _faulty(line, f"comes before any profile: it is {EXPECTED}")
        key, value = _pair(line, said, name)
        if key in sections[name]:
            raise _faulty(line, f"has {called(key)} of profile [{name}] once more")
        sections[name][key], indent = value, deep
    return sections


def _section(line: Line, said: str, *, known: Mapping[str, Section]) -> str:
    found = _SECTION.fullmatch(said)
    if not found:
        raise _faulty(line, "is no profile's name: [name], of letters, digits and _.@+/:-")
    if found[1] in known:
        raise _faulty(line, f"begins profile [{found[1]}] once more")
    if found[1] == "DEFAULT":  # to botocore its keys are every profile's
        raise _faulty(line, "is [DEFAULT], which is no profile: [default] is")
    return found[1]


def _pair(line: Line, said: str, section: str) -> tuple[str, str]:
    """A key and its value. Both delimiters of botocore's reader count, and the first of them ends the key."""
    end = next((at for at, c in enumerate(said) if c in "=:"), -1)
    key, value = said[: max(end, 0)].rstrip(" \t"), said[end + 1 :].strip(" \t")
    known = key.lower() if key.isascii() else key
    where = f"profile [{section}] of the credential's Secret"
    if end < 0 or not key:
        raise _faulty(line, f"is neither a profile's name nor key = value: it is {EXPECTED}")
    if known in REFUSED:
        raise InvalidError(f"{where} has a {known}: {REFUSED[known]}")
    if known not in VALUES:
        counts = ", ".join(VALUES)
        raise InvalidError(f"{where} has {called(key, number=line.number)}, which is refused: {counts} count")
    if value and not VALUES[known].fullmatch(value):
        raise InvalidError(f"{where} has a {known} that is none")
    return known, value


def _identity(sections: Mapping[str, Section], name: str, above: tuple[str, ...]) -> Keys | Role:
    """The keys of a profile, or its role with those of its source."""
    section = sections[name]
    if not section.get("role_arn"):
        return _keys(section, name)
    if not (source := section.get("source_profile", "")):
        raise InvalidError(
            f"profile [{name}] of the credential's Secret has a role_arn and no source_profile: name the profile of "
            "the same Secret whose keys take the role on"
        )
    if source not in sections or source in above:
        fault = "comes back to itself" if source in above else "is not in the same Secret"
        raise InvalidError(f"source_profile [{source}] of profile [{name}] of the credential's Secret {fault}")
    own = source == name  # its own keys take the role on, as with botocore
    return Role(
        section["role_arn"],
        _keys(section, name) if own else _identity(sections, source, (*above, name)),
        section.get("role_session_name", ""),
        section.get("external_id", ""),
        _duration(section, name),
    )


def _keys(section: Section, name: str) -> Keys:
    missing = [key for key in ("aws_access_key_id", "aws_secret_access_key") if not section.get(key)]
    if missing:
        raise InvalidError(
            f"profile [{name}] of the credential's Secret has no {' and no '.join(missing)}, and no role_arn"
        )
    token = section.get("aws_session_token") or section.get("aws_security_token", "")
    remember(section["aws_access_key_id"], section["aws_secret_access_key"], token)
    return Keys(section["aws_access_key_id"], section["aws_secret_access_key"], token)


def _duration(section: Section, name: str) -> timedelta | None:
    if not (seconds := section.get("duration_seconds", "")):
        return None
    if not _SHORTEST <= (duration := timedelta(seconds=int(seconds))) <= _LONGEST:
        raise InvalidError(f"profile [{name}] of the credential's Secret: duration_seconds must be 900 to 43200")
    return duration


def _faulty(line: Line, fault: str) -> InvalidError:
    return InvalidError(f"line {line.number} of the credential's Secret {fault}")
