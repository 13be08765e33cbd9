"""Credentials for object storage: from the bytes of the Secret that a location names, or from the SDK's default chain.

obstore asks a provider (a callable) for a credential when it needs one. Ours ask the provider's own SDK, never
obstore's own chains: those are short, and they would ask metadata services through the same client as the bucket.

Guarantee: a credential from a Secret is never mixed with what the environment holds; no command out of a Secret is run;
making a provider makes no call, so a credential that cannot be had shows at the first use, as ``DeniedError``.
Not guaranteed: that a credential is used the moment its Secret changes; open the location again with the new bytes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from attrs import frozen

from reprieve.adapters.cloud import aws, azure, gcp
from reprieve.adapters.cloud.aws_sessions import check_profile, open_session
from reprieve.adapters.cloud.buckets_locations import flag, is_aws_region, named, s3_region, what
from reprieve.adapters.cloud.known import hide, remember
from reprieve.adapters.cloud.secret_aws import Keys, read_profile
from reprieve.adapters.cloud.secret_azure import is_account_key, read_secret
from reprieve.adapters.cloud.secret_gcp import Federation, ServiceAccount, read_key
from reprieve.adapters.cloud.tables import Fault, native, not_installed, said, translated
from reprieve.core.backups import StorageLocation
from reprieve.core.errors import DeniedError, InvalidError, ReprieveError, UnavailableError
from reprieve.core.values import later

KEPT = timedelta(minutes=5)
"""How long a credential is used before its SDK is asked again; each of them renews its own in time for that."""

DEFAULT_REGION = "us-east-1"
GCS_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
AZURE_SCOPE = "https://storage.azure.com/.default"

Provider = Callable[[], Any]

_ACCOUNT_KEY = re.compile(r"[A-Za-z0-9+/=]{1,1024}")


@frozen(repr=False)
class Credential:
    """What obstore is given: settings of its own, and a provider, where there is one.

    ``as_pod``: it is this process' own identity, not a Secret's; ``bearer``: it is sent as it is, as a bearer token.
    Never shown: it may hold secrets.
    """

    config: Mapping[str, Any]
    provider: Provider | None = None
    as_pod: bool = False
    bearer: bool = False


def aws_credential(location: StorageLocation, secret: bytes | None) -> tuple[Credential, str]:
    """The credential for S3 and the region to sign for: a profile of the Secret, without a Secret boto3's chain."""
    name = location.config.get("profile", "")
    check_profile(name, secret=secret is not None, what=what(location))
    try:
        profile = None if secret is None else read_profile(secret, name)
        region = s3_region(location) or (profile.region if profile else "") or _environment_region()
        if profile and isinstance(profile.identity, Keys):
            return _static(profile.identity), region
        with translated(aws.read_fault, aws.ERRORS, what="credentials"):
            session = open_session(profile, region=_token_region(region if profile else s3_region(location)))
    except ReprieveError as error:
        raise named(location, error) from error
    signed_for = region if profile else s3_region(location) or session.region_name or _environment_region()
    return Credential({}, _from_boto3(session), as_pod=secret is None), signed_for


def _static(keys: Keys) -> Credential:
    found = {
        "access_key_id": keys.access_key_id,
        "secret_access_key": keys.secret_access_key,
        "token": keys.session_token or None,
        "expires_at": None,
    }
    return Credential({}, lambda: found)


def _token_region(region: str) -> str:
    """The region whose token service is asked: AWS' own alone. Another word, such as ``s3``, would be another host."""
    return region if not region or is_aws_region(region) else _environment_region()


def _environment_region() -> str:
    return os.environ.get("AWS_REGION", "") or os.environ.get("AWS_DEFAULT_REGION", "") or DEFAULT_REGION


def _from_boto3(session: Any) -> Provider:
    def provide() -> dict[str, Any]:
        with translated(aws.read_fault, aws.ERRORS, what="AWS credentials"):
            found = session.get_credentials()
            if found is None:
                raise DeniedError("AWS credentials: none found in the environment, ~/.aws, or the instance's metadata")
            keys = found.get_frozen_credentials()
            return _usable(
                "AWS credentials",
                {"access_key_id": keys.access_key, "secret_access_key": keys.secret_key, "token": keys.token},
                expires_at=later(datetime.now(UTC), KEPT),
            )

    return provide


def _usable(of: str, found: Mapping[str, str | None], *, expires_at: datetime) -> dict[str, Any]:
    """What obstore is given: remembered as secret, and without what would make it panic.

    Raises ``DeniedError`` where a part has a character that no header takes.
    """
    remember(*found.values(), passing=True)
    for name, value in found.items():
        if name != "secret_access_key" and value and not (value.isascii() and value.isprintable()):
            raise DeniedError(f"{of}: the {name} holds a character that cannot be sent, such as a line's end")
    return {**found, "expires_at": expires_at}


def gcp_credential(location: StorageLocation, secret: bytes | None) -> Credential:
    """The credential for GCS, google-auth's. What obstore would sign by itself would be a token that nobody knows."""
    if secret is None:
        return _google_default()
    try:
        key = read_key(secret)
        if isinstance(key, ServiceAccount) and not key.signs:
            return Credential({"service_account_key": _unsigned(key)})
        made = gcp.credentials_from(key, scope=GCS_SCOPE)
    except ReprieveError as error:
        raise named(location, error) from error
    as_pod = isinstance(key, Federation)  # it hands in a token of this process' own
    return Credential({}, _from_google(lambda: made), as_pod=as_pod, bearer=True)


def _unsigned(key: ServiceAccount) -> str:
    """A key that makes obstore send its requests as they are."""
    parts = {"client_email": key.email, "private_key": "-", "private_key_id": key.private_key_id}
    return json.dumps({"type": "service_account", **parts, "disable_oauth": True})


def _google_default() -> Credential:
    try:
        import google.auth
    except ImportError as error:
        raise not_installed("gcp") from error
    find = _from_google(lambda: google.auth.default(scopes=[GCS_SCOPE])[0])
    return Credential({}, find, as_pod=True, bearer=True)


def _from_google(find: Callable[[], Any]) -> Provider:
    made: list[Any] = []

    def provide() -> dict[str, Any]:
        try:
            with native():
                return _google_token(made, find)
        except ImportError as error:
            raise not_installed("gcp") from error
        except Exception as error:
            raise _unusable("Google credentials", gcp.read_fault(error), transport=("TransportError",)) from error

    return provide


def _google_token(made: list[Any], find: Callable[[], Any]) -> dict[str, Any]:
    from google.auth.transport.requests import Request

    if not made:
        made.append(find())
    if not made[0].valid:
        asking = Request()
        asking.session.max_redirects = 0
        made[0].refresh(asking)
    return _usable("Google credentials", {"token": made[0].token}, expires_at=_soon(made[0].expiry))


def _soon(expiry: datetime | None) -> datetime:
    """The earlier of a token's end (google-auth writes it in UTC, without saying so) and our own."""
    ours = later(datetime.now(UTC), KEPT)
    return min(ours, expiry.replace(tzinfo=UTC)) if expiry else ours


def _unusable(of: str, fault: Fault, *, transport: tuple[str, ...]) -> ReprieveError:
    """No credentials: ``DeniedError``; a server of tokens that cannot be reached: ``UnavailableError``."""
    kind = UnavailableError if set(fault.classes) & set(transport) else DeniedError
    return kind(hide(f"{of}: {said(fault)}"))


def azure_values(secret: bytes | None) -> Mapping[str, str]:
    """The values of a Secret's ``NAME=value`` lines; without one those of the environment and its credentials file."""
    return read_secret(secret) if secret is not None else {**os.environ, **azure._environment()}  # noqa: SLF001


def azure_credential(location: StorageLocation, values: Mapping[str, str], *, from_secret: bool) -> Credential:
    """The credential for blobs: the account's key where ``storageAccountKeyEnvVar`` names one, else Microsoft Entra.

    Entra is used for the blobs themselves, also where ``useAAD`` is not true: listing the account's keys would need
    another SDK, and the right to read keys.
    """
    variable = location.config.get("storageAccountKeyEnvVar", "")
    if variable and not flag(location, "useAAD"):
        return _account_key(location, values if from_secret else {}, variable)
    account = azure.Account(what(location), "", "", KEPT, values, from_secret)
    azure.check_identity(account)
    try:
        chain = azure._credential(account)  # noqa: SLF001 (the same identities as for snapshots, made in one place)
    except ImportError as error:
        raise not_installed("azure") from error
    except ValueError as error:  # its text may quote what is wrong
        raise InvalidError(
            f"{what(location)}: the credential's Secret holds an identity that cannot be used"
        ) from error
    as_pod = not (from_secret and any(values.get(key) for key in azure.OWN_SECRETS))
    return Credential({}, _from_azure(chain), as_pod=as_pod, bearer=True)


def _account_key(location: StorageLocation, values: Mapping[str, str], variable: str) -> Credential:
    key = values.get(variable, "") if is_account_key(variable) else ""
    if not key:
        raise InvalidError(
            f"{what(location)}: spec.config.storageAccountKeyEnvVar names {variable[:200]!r}, "
            "which has no value in the Secret that the location names as its credential; the environment is not read"
        )
    if not _ACCOUNT_KEY.fullmatch(key):
        raise InvalidError(f"{what(location)}: {variable} in the credential's Secret is no account's key: it is base64")
    return Credential({"credential_type": "access_key", "account_key": key})


def _from_azure(chain: Any) -> Provider:
    def provide() -> dict[str, Any]:
        try:
            with native():
                token = chain.get_token(AZURE_SCOPE)
        except Exception as error:
            raise _unusable("Azure credentials", azure.read_fault(error), transport=("ServiceRequestError",)) from error
        ends = datetime.fromtimestamp(token.expires_on, UTC)
        return _usable(
            "Azure credentials", {"token": token.token}, expires_at=min(ends, later(datetime.now(UTC), KEPT))
        )

    return provide
