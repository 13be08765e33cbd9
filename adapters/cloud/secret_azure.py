"""An Azure credential out of a Secret, or out of a file of the pod's own: lines of ``KEY=value``.

Guarantee: of a Secret only the keys that are listed here count, and those that a location names for an account's key;
another key of Azure's is refused by its name. None of them is an address, and none is a file but the pod's own token.
Not guaranteed: that it reads all that a shell would: values over several lines are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from reprieve.adapters.cloud.known import remember
from reprieve.adapters.cloud.secret_text import called, check_pod_token, read_lines
from reprieve.core.errors import InvalidError

EXPECTED = "no lines like AZURE_TENANT_ID=…"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_QUOTED = re.compile(r"""(?P<quote>['"])(?P<text>(?:(?!(?P=quote)).)*)(?P=quote)[ \t]*(?:[ \t]#.*)?""")
_ID = re.compile(r"[A-Za-z0-9._-]{1,256}")

KEYS: Mapping[str, re.Pattern[str]] = {
    "AZURE_SUBSCRIPTION_ID": _ID,
    "AZURE_RESOURCE_GROUP": re.compile(r"[\w().-]{1,90}", re.ASCII),
    "AZURE_CLOUD_NAME": _ID,
    "AZURE_TENANT_ID": _ID,
    "AZURE_CLIENT_ID": _ID,
    "AZURE_CLIENT_SECRET": re.compile(r".{1,4096}"),
    "AZURE_FEDERATED_TOKEN_FILE": re.compile(r".{1,512}"),
    "AZURE_STORAGE_ACCOUNT_ACCESS_KEY": re.compile(r"[A-Za-z0-9+/=]{1,1024}"),
    "AZURE_STORAGE_KEY": re.compile(r"[A-Za-z0-9+/=]{1,1024}"),
    "AZURE_STORAGE_ACCOUNT_ID": _ID,
}
"""What a Secret may say, in the words of Velero's plugin, and what may stand there."""

CLIENT_SECRET = "AZURE_CLIENT_SECRET"  # noqa: S105 (the key's name)
ACCOUNT_KEYS = frozenset({"AZURE_STORAGE_ACCOUNT_ACCESS_KEY", "AZURE_STORAGE_KEY"})

REFUSED: Mapping[str, str] = {
    "AZURE_AUTHORITY_HOST": "a Secret does not say where to log in: that follows from AZURE_CLOUD_NAME",
    "AZURE_CLIENT_CERTIFICATE_PATH": "no file is read because a Secret names it. Mount the certificate, and name it in "
    "the file that AZURE_CREDENTIALS_FILE of this process names",
}
"""Keys that the SDK or Velero know and that are not taken, with the reason."""


def read_secret(credential: bytes) -> dict[str, str]:
    """Read the lines of a Secret. Raises ``InvalidError``, without a value of it."""
    values = read_values(credential)
    for key, value in values.items():
        if key in REFUSED:
            raise InvalidError(f"the credential's Secret has {key}: {REFUSED[key]}")
        if key not in KEYS and key.upper().startswith("AZURE_"):
            raise InvalidError(f"the credential's Secret has {called(key)}, which is refused: {', '.join(KEYS)} count")
        if value and key in KEYS and not KEYS[key].fullmatch(value):
            raise InvalidError(f"the credential's Secret has a {key} that is none")
    if file := values.get("AZURE_FEDERATED_TOKEN_FILE"):
        check_pod_token(file, what="AZURE_FEDERATED_TOKEN_FILE")
    return values


def is_account_key(variable: str) -> bool:
    """Whether a variable may hold an account's key: not one that has a meaning of its own."""
    return variable in ACCOUNT_KEYS or (variable not in KEYS and variable not in REFUSED)


def read_values(file: bytes) -> dict[str, str]:
    """Read a file of ``KEY=value`` lines, whatever its keys.

    Comments, ``export`` and quotes are understood. No value gets into an error.
    """
    values: dict[str, str] = {}
    for line in read_lines(file, expected=EXPECTED, comments="#"):
        said = line.text.strip(" \t").removeprefix("export ")
        key, equals, value = (part.strip(" \t") for part in said.partition("="))
        if not equals or not _NAME.fullmatch(key):
            raise InvalidError(f"line {line.number} of the credential's Secret is not of the form AZURE_TENANT_ID=…")
        if key in values:
            raise InvalidError(f"line {line.number} of the credential's Secret has {called(key)} once more")
        values[key] = _unquote(value)
    remember(*(value for key, value in values.items() if key == CLIENT_SECRET or is_account_key(key)))
    return values


def _unquote(value: str) -> str:
    """The value without its quotes or a comment behind it. A quoted one ends with the first quote of its kind."""
    if found := _QUOTED.fullmatch(value):
        return found["text"]
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return re.split(r"[ \t]#", value, maxsplit=1)[0].strip(" \t")
