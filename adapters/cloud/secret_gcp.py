"""A Google credential out of a Secret: a JSON document, of which only the fields that are listed here count.

Three types are taken: a service account's key, a user's login, and workload identity federation with a token of this
pod. What Google's own tools write into such files besides is checked and left out: the SDK is given values.

Guarantee: no address in a Secret is asked; those that must be there are Google's own. No file is read but a token of
the pod's own, and no command is run.
Not guaranteed: that another universe than googleapis.com can be used with a key of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from reprieve.adapters.cloud.known import remember
from reprieve.adapters.cloud.secret_text import called, check_pod_token, check_seen, read_text
from reprieve.core.errors import InvalidError

EXPECTED = "no JSON: a key file of a service account is expected"
TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 (an address)
STS_URL = "https://sts.googleapis.com/v1/token"

_SEEN = re.compile(r".+", re.DOTALL)
_WORD = re.compile(r"[!-~]{1,1024}")
_EMAIL = re.compile(r"[A-Za-z0-9._%+-]{1,128}@[A-Za-z0-9.-]{1,253}")
_PROJECT = re.compile(r"[a-z0-9.:-]{1,128}|")
_OWN_URL = re.compile(r"https://([a-z0-9-]{1,63}\.)?(googleapis|google)\.com(/[A-Za-z0-9._~%@:/-]{0,512})?")
_PEM = re.compile(
    r"\s*-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[A-Za-z0-9+/=\s]+-----END [A-Z ]{0,20}PRIVATE KEY-----\s*", re.ASCII
)
_IMPERSONATION = re.compile(
    r"https://iamcredentials\.googleapis\.com/v1/projects/-/serviceAccounts/"
    r"(?P<account>[A-Za-z0-9._%+-]{1,128}@[A-Za-z0-9.-]{1,253}):generateAccessToken"
)
_UNIVERSE = re.compile(r"googleapis\.com|")


@frozen
class ServiceAccount:
    """A service account's key. ``signs``: whether its requests are signed at all; those to an emulator are not."""

    email: str
    private_key: str = field(repr=False)
    private_key_id: str = ""
    project: str = ""
    signs: bool = True


@frozen
class User:
    """A person's login."""

    client_id: str
    client_secret: str = field(repr=False)
    refresh_token: str = field(repr=False)
    quota_project: str = ""
    project: str = ""


@frozen
class Federation:
    """Workload identity federation: a token of this pod, out of its file, for one of Google's.

    ``field``: where in the file's JSON it stands; empty where the file is the token. ``account``: the service account
    that is acted for, if any.
    """

    audience: str
    token_type: str
    file: str
    field: str = ""
    account: str = ""
    project: str = ""


GoogleKey = ServiceAccount | User | Federation


def read_key(credential: bytes) -> GoogleKey:
    """Read a credential's JSON. Raises ``InvalidError``, without a value of it."""
    document = _parsed(credential)
    kind = document.get("type")
    reader = READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        raise InvalidError(f"the credential's Secret holds no credential of a known type: {', '.join(sorted(READERS))}")
    return reader(document)


def _parsed(credential: bytes) -> Mapping[str, Any]:
    text = read_text(credential, expected=EXPECTED)
    try:
        document = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise InvalidError(f"the credential's Secret holds {EXPECTED}") from error
    if not isinstance(document, dict):
        raise InvalidError(f"the credential's Secret holds no credential of a known type: {', '.join(sorted(READERS))}")
    return document


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Two readers may take two values for a key that is there twice."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InvalidError(f"the credential's Secret has {called(key)} twice")
        found[key] = value
    return found


def _fields(
    document: Mapping[str, Any], known: Mapping[str, re.Pattern[str]], *, needed: Sequence[str], what: str
) -> Mapping[str, str]:
    """The fields of a document that are texts and look as they should. An absent one is empty."""
    if unknown := [key for key in document if key not in known and key != "type"]:
        fault = f"has {called(unknown[0])}, which is refused: {', '.join(known)} count"
        raise InvalidError(f"the {what} in the credential's Secret {fault}")
    found = {key: "" if document.get(key) is None else document[key] for key in known}
    if missing := [key for key in needed if not found[key]]:
        raise InvalidError(f"the {what} in the credential's Secret has no {', '.join(missing)}: it cannot be used")
    for key, value in found.items():
        where = f"{key} of the {what} in the credential's Secret"
        if not isinstance(value, str) or (value and not known[key].fullmatch(value)):
            raise InvalidError(f"the {what} in the credential's Secret cannot be used: its {key} is none")
        check_seen(value, what=where, allowed="\r\n\t" if known[key] is _PEM else "")
    return found


SERVICE_ACCOUNT: Mapping[str, re.Pattern[str]] = {
    "client_email": _EMAIL,
    "private_key": _PEM,
    "private_key_id": _WORD,
    "project_id": _PROJECT,
    "client_id": _WORD,
    "auth_uri": _OWN_URL,
    "token_uri": _OWN_URL,
    "auth_provider_x509_cert_url": _OWN_URL,
    "client_x509_cert_url": _OWN_URL,
    "universe_domain": _UNIVERSE,
}
"""What Google writes into the key of a service account."""

UNSIGNED = "disable_oauth"
"""A key that says so signs nothing: for emulators, which take whatever they get."""


def _service_account(document: Mapping[str, Any]) -> ServiceAccount:
    signs = document.get(UNSIGNED) is not True
    given = {key: value for key, value in document.items() if signs or key not in {UNSIGNED, "private_key"}}
    needed = ("private_key", "private_key_id", "client_email") if signs else ("client_email",)
    found = _fields(given, SERVICE_ACCOUNT, needed=needed, what="service_account")
    remember(found["private_key"])
    return ServiceAccount(
        found["client_email"], found["private_key"], found["private_key_id"], found["project_id"], signs=signs
    )


USER: Mapping[str, re.Pattern[str]] = {
    "client_id": _WORD,
    "client_secret": _WORD,
    "refresh_token": _WORD,
    "quota_project_id": _PROJECT,
    "project_id": _PROJECT,
    "account": _SEEN,
    "token_uri": _OWN_URL,
    "universe_domain": _UNIVERSE,
}


def _user(document: Mapping[str, Any]) -> User:
    found = _fields(document, USER, needed=("client_id", "client_secret", "refresh_token"), what="authorized_user")
    remember(found["client_secret"], found["refresh_token"])
    return User(
        found["client_id"],
        found["client_secret"],
        found["refresh_token"],
        found["quota_project_id"],
        found["project_id"],
    )


FEDERATION: Mapping[str, re.Pattern[str]] = {
    "audience": _WORD,
    "subject_token_type": re.compile(r"urn:ietf:params:oauth:token-type:(jwt|id_token)"),
    "token_url": re.compile(re.escape(STS_URL)),
    "token_info_url": _OWN_URL,
    "service_account_impersonation_url": _IMPERSONATION,
    "project_id": _PROJECT,
    "universe_domain": _UNIVERSE,
}

SOURCE: Mapping[str, re.Pattern[str]] = {"file": _WORD}
FORMAT: Mapping[str, re.Pattern[str]] = {"type": re.compile(r"text|json"), "subject_token_field_name": _WORD}


def _federation(document: Mapping[str, Any]) -> Federation:
    file, name = _source(document.get("credential_source"))  # first: who tries to have a file read is told that
    given = {key: value for key, value in document.items() if key != "credential_source"}
    found = _fields(given, FEDERATION, needed=("audience", "subject_token_type", "token_url"), what="external_account")
    account = _IMPERSONATION.fullmatch(found["service_account_impersonation_url"])
    return Federation(
        audience=found["audience"],
        token_type=found["subject_token_type"],
        file=file,
        field=name,
        account=account["account"] if account else "",
        project=found["project_id"],
    )


def _source(source: Any) -> tuple[str, str]:
    """The file of the pod's token, and the field of it that is the token."""
    what = "external_account's credential_source"
    if not isinstance(source, dict):
        raise InvalidError(f"the {what} in the credential's Secret cannot be used: it is no object with a file")
    if "executable" in source:
        raise InvalidError(f"the {what} in the credential's Secret has an executable: commands are not run")
    given = {key: value for key, value in source.items() if key != "format"}
    file = _fields(given, SOURCE, needed=("file",), what=what)["file"]
    check_pod_token(file, what=f"file of the {what}")
    said = source.get("format")
    if said is None:
        return file, ""
    if not isinstance(said, dict):
        raise InvalidError(f"the {what} in the credential's Secret cannot be used: its format is none")
    found = _fields({**said, "type": said.get("type", "text")}, FORMAT, needed=(), what=f"{what}.format")
    if found["type"] == "json" and not found["subject_token_field_name"]:
        raise InvalidError(f"the {what}.format in the credential's Secret has no subject_token_field_name")
    return file, found["subject_token_field_name"] if found["type"] == "json" else ""


READERS: Mapping[str, Callable[[Mapping[str, Any]], GoogleKey]] = {
    "service_account": _service_account,
    "authorized_user": _user,
    "external_account": _federation,
}
