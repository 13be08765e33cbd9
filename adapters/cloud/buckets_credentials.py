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
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from attrs import frozen

from reprieve.adapters.cloud import aws, azure, gcp
from reprieve.adapters.cloud.buckets_locations import flag, named, s3_region, what
from reprieve.adapters.cloud.tables import not_installed, translated
from reprieve.core.backups import SnapshotLocation, StorageLocation
from reprieve.core.errors import DeniedError, InvalidError, ReprieveError, UnavailableError

KEPT = timedelta(minutes=5)
"""How long a credential is used before its SDK is asked again; each of them renews its own in time for that."""

DEFAULT_REGION = "us-east-1"
GCS_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
AZURE_SCOPE = "https://storage.azure.com/.default"

Provider = Callable[[], Any]


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
    """The credential for S3 and the region to sign for.

    The profile of the Secret's file; without a Secret boto3's chain; without boto3 obstore's own.
    """
    profile = location.config.get("profile", "")
    try:
        if secret is not None:
            _, section = aws.read_profile(secret, profile or "default")
            if section.get("aws_access_key_id") and not section.get("role_arn"):
                return _static(section), s3_region(location) or section.get("region") or _environment_region()
        return _from_session(location, secret, profile)
    except ReprieveError as error:
        raise named(location, error) from error


def _static(section: Mapping[str, str]) -> Credential:
    found = {
        "access_key_id": section["aws_access_key_id"],
        "secret_access_key": section["aws_secret_access_key"],
        "token": section.get("aws_session_token") or section.get("aws_security_token"),
        "expires_at": None,
    }
    return Credential({}, lambda: found)


def _environment_region() -> str:
    return os.environ.get("AWS_REGION", "") or os.environ.get("AWS_DEFAULT_REGION", "") or DEFAULT_REGION


def _from_session(location: StorageLocation, secret: bytes | None, profile: str) -> tuple[Credential, str]:
    config = {"region": s3_region(location)} | ({"profile": profile} if profile else {})
    with translated(aws.read_fault, aws.ERRORS, what="credentials"):
        session = aws._session(SnapshotLocation(location.name, config=config), secret)  # noqa: SLF001 (the same files, read in one place)
    return Credential({}, _from_boto3(session), as_pod=secret is None), session.region_name or _environment_region()


def _from_boto3(session: Any) -> Provider:
    def provide() -> dict[str, Any]:
        with translated(aws.read_fault, aws.ERRORS, what="AWS credentials"):
            found = session.get_credentials()
            if found is None:
                raise DeniedError("AWS credentials: none found in the environment, ~/.aws, or the instance's metadata")
            keys = found.get_frozen_credentials()
        return {
            "access_key_id": keys.access_key,
            "secret_access_key": keys.secret_key,
            "token": keys.token,
            "expires_at": datetime.now(UTC) + KEPT,
        }

    return provide


def gcp_credential(location: StorageLocation, secret: bytes | None) -> Credential:
    """The credential for GCS: a service account's key is obstore's business, every other kind google-auth's."""
    if secret is None:
        return _google_default()
    try:
        document = gcp.read_info(secret)
        if document["type"] == "service_account":
            return Credential({"service_account_key": json.dumps(_without_addresses(document))}, bearer=True)
        gcp.credentials_from(document)  # refuses what is malformed, and what would run a command
    except ReprieveError as error:
        raise named(location, error) from error
    as_pod = document["type"] == "external_account"  # it hands in a token of this process' own
    return Credential({}, _from_google(lambda: _google_from(document)), as_pod=as_pod, bearer=True)


def _without_addresses(document: dict[str, Any]) -> dict[str, Any]:
    """A key must have the parts that sign; where to send requests is the location's business, not the key's."""
    missing = [k for k in ("private_key", "private_key_id", "client_email") if not isinstance(document.get(k), str)]
    if missing:
        raise InvalidError(f"the service account's key in the credential's Secret has no {', '.join(missing)}")
    return {k: v for k, v in document.items() if k != "gcs_base_url"}


def _google_default() -> Credential:
    try:
        import google.auth
    except ImportError as error:
        raise not_installed("gcp") from error
    find = _from_google(lambda: google.auth.default(scopes=[GCS_SCOPE])[0])
    return Credential({}, find, as_pod=True, bearer=True)


def _google_from(document: dict[str, Any]) -> Any:
    import google.auth

    load: Any = google.auth.load_credentials_from_dict  # untyped
    return load(document, scopes=[GCS_SCOPE])[0]


def _from_google(find: Callable[[], Any]) -> Provider:
    made: list[Any] = []

    def provide() -> dict[str, Any]:
        try:
            return _google_token(made, find)
        except ImportError as error:
            raise not_installed("gcp") from error
        except Exception as error:
            raise _unusable("Google credentials", error, transport=("TransportError",)) from error

    return provide


def _google_token(made: list[Any], find: Callable[[], Any]) -> dict[str, Any]:
    from google.auth.transport.requests import Request

    if not made:
        made.append(find())
    if not made[0].valid:
        made[0].refresh(Request())
    return {"token": made[0].token, "expires_at": _soon(made[0].expiry)}


def _soon(expiry: datetime | None) -> datetime:
    """The earlier of a token's end (google-auth writes it in UTC, without saying so) and our own."""
    ours = datetime.now(UTC) + KEPT
    return min(ours, expiry.replace(tzinfo=UTC)) if expiry else ours


def _unusable(of: str, error: Exception, *, transport: tuple[str, ...]) -> ReprieveError:
    """No credentials: ``DeniedError``; a server of tokens that cannot be reached: ``UnavailableError``."""
    names = {cls.__name__ for cls in type(error).__mro__}
    kind = UnavailableError if names & set(transport) else DeniedError
    return kind(f"{of}: {type(error).__name__}: {str(error).split(chr(10), 1)[0][:300]}")


def azure_values(secret: bytes | None) -> Mapping[str, str]:
    """The values of a Secret's ``NAME=value`` lines; without one those of the environment and its credentials file."""
    return azure.read_values(secret) if secret is not None else {**os.environ, **azure._environment()}  # noqa: SLF001


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
    key = values.get(variable, "")
    if not key:
        raise InvalidError(
            f"{what(location)}: spec.config.storageAccountKeyEnvVar names {variable[:200]!r}, "
            "which has no value in the Secret that the location names as its credential; the environment is not read"
        )
    return Credential({"credential_type": "access_key", "account_key": key})


def _from_azure(chain: Any) -> Provider:
    def provide() -> dict[str, Any]:
        try:
            token = chain.get_token(AZURE_SCOPE)
        except Exception as error:
            raise _unusable("Azure credentials", error, transport=("ServiceRequestError",)) from error
        ends = datetime.fromtimestamp(token.expires_on, UTC)
        return {"token": token.token, "expires_at": min(ends, datetime.now(UTC) + KEPT)}

    return provide
