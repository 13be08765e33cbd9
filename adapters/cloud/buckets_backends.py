"""Backends: one opened bucket of a provider, as the object store of this package drives it.

obstore stores are made here and nowhere else. Retries are off, since retry is the core's, and every call has a
time-out. Nothing is asked before the first call.

Guarantee: a store reaches its own endpoint and nothing else (``egress``); plain HTTP only where the endpoint's own URL
says ``http://``; certificates go unchecked only where the location says so.
Not guaranteed: that a folder is as strict as a bucket: obstore follows symbolic links in it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from attrs import frozen

from reprieve.adapters.cloud import buckets_credentials as credentials
from reprieve.adapters.cloud import buckets_locations as locations
from reprieve.adapters.cloud.buckets_credentials import Credential
from reprieve.adapters.cloud.buckets_locations import Endpoint
from reprieve.adapters.cloud.egress import Passage, Unconnected, gate
from reprieve.adapters.cloud.endpoints import EndpointPolicy, Place, admit
from reprieve.adapters.cloud.known import hide
from reprieve.adapters.cloud.tables import native
from reprieve.core.backups import StorageLocation, plain_provider
from reprieve.core.errors import InvalidError, ReprieveError
from reprieve.core.values import cut

S3_BATCH = 1000
AZURE_BATCH = 256
AZURE_REFUSED = "\\"  # Azure takes a backslash for a slash: it would be another key
ANSWER = timedelta(seconds=30)
NOBODY = "nobody.invalid"


@frozen(repr=False)
class Backend:
    """One bucket, and what is peculiar to its provider.

    ``store``: obstore's; ``single``: the one for deleting key by key; ``batch``: how many keys a bulk delete takes (0:
    there is none); ``remote``: answers come over a network, so they are doubted; ``refused``: characters that no key
    may have; ``exists``: whether a folder or a bucket in memory is there; ``unconnected``: why the last connection was
    not made, where that is known.
    """

    store: Any
    single: Any
    batch: int = 0
    remote: bool = True
    refused: str = ""
    exists: Callable[[], bool] = lambda: True
    unconnected: Callable[[], Unconnected | None] = lambda: None


@frozen
class Timeouts:
    """The longest wait for a whole answer, and for a connection."""

    answer: timedelta = ANSWER
    connect: timedelta = timedelta(seconds=5)


def open_s3(location: StorageLocation, secret: bytes | None, timeouts: Timeouts, policy: EndpointPolicy) -> Backend:
    """Open an S3 bucket. The second store asks with plain DELETEs: some S3-compatible stores have no bulk delete."""
    from obstore.store import S3Store

    credential, region = credentials.aws_credential(location, secret)
    endpoint = locations.s3_endpoint(location, region=region)
    passage = _admitted(location, endpoint, credential, policy)
    settings: dict[str, Any] = {
        "region": region,
        "virtual_hosted_style_request": not endpoint.path_style,
        **locations.s3_encryption(location),
        "endpoint": str(endpoint.url),
        "aws_endpoint_url_s3": str(endpoint.url),  # else the environment's wins
        **credential.config,
    }
    insecure = locations.flag(location, "insecureSkipTLSVerify")
    options = _options(location, passage, credential, timeouts, insecure=insecure)

    def make(**more: Any) -> Any:
        config: Any = {**settings, **more}
        return _made(location, lambda: S3Store(location.bucket, config=config, **options))

    single = make(disable_bulk_delete=True)
    return Backend(make(), single, batch=S3_BATCH, unconnected=partial(gate().said, passage))


def open_gcs(location: StorageLocation, secret: bytes | None, timeouts: Timeouts, policy: EndpointPolicy) -> Backend:
    """Open a bucket of Google Cloud Storage, which knows no bulk delete."""
    from obstore.store import GCSStore

    credential, endpoint = credentials.gcp_credential(location, secret), locations.gcs_endpoint(location)
    passage = _admitted(location, endpoint, credential, policy)
    config: Any = {**credential.config, "base_url": str(endpoint.url)}
    options = _options(location, passage, credential, timeouts)
    store = _made(location, lambda: GCSStore(location.bucket, config=config, **options))
    return Backend(store, store, unconnected=partial(gate().said, passage))


def open_azure(location: StorageLocation, secret: bytes | None, timeouts: Timeouts, policy: EndpointPolicy) -> Backend:
    """Open a container of Azure Blob Storage."""
    from obstore.store import AzureStore

    try:
        values = credentials.azure_values(secret)
    except ReprieveError as error:
        raise locations.named(location, error) from error
    account = locations.azure_account(location)
    host = locations.azure_host(location, values.get("AZURE_CLOUD_NAME", ""))
    credential = credentials.azure_credential(location, values, from_secret=secret is not None)
    endpoint = locations.azure_endpoint(location, account=account, host=host)
    passage = _admitted(location, endpoint, credential, policy)
    config: Any = {"account_name": account, "endpoint": str(endpoint.url), **credential.config}
    options = _options(location, passage, credential, timeouts)
    store = _made(location, lambda: AzureStore(location.bucket, config=config, **options))
    unconnected = partial(gate().said, passage)
    return Backend(store, store, batch=AZURE_BATCH, refused=AZURE_REFUSED, unconnected=unconnected)


def open_folder(location: StorageLocation, root: Path) -> Backend:
    """Open the folder of that name below ``root``; it need not be there yet."""
    from obstore.store import LocalStore

    if location.bucket in {".", ".."}:
        raise InvalidError(f"{locations.what(location)}: bucket {location.bucket!r} is no folder's name")
    folder = root / location.bucket
    made: list[Any] = []

    def exists() -> bool:
        if folder.is_dir() and not made:
            made.append(LocalStore(folder))
        return folder.is_dir()

    return Backend(_Late(made), _Late(made), remote=False, exists=exists)


def open_memory(store: Any) -> Backend:
    """Open a bucket in memory; None is a bucket that is missing."""
    return Backend(store, store, remote=False, exists=lambda: store is not None)


def unwrapped(store: Any) -> Any:
    """The store that obstore's functions take."""
    return store.made[0] if isinstance(store, _Late) else store


@frozen
class _Late:
    """A store that is made when its folder is first seen."""

    made: list[Any]


def _admitted(location: StorageLocation, endpoint: Endpoint, credential: Credential, policy: EndpointPolicy) -> Passage:
    """What the store may connect to, with this credential. Raises what ``endpoints.admit`` does."""
    place = Place(
        what=locations.what(location),
        provider=plain_provider(location.provider),
        authority=endpoint.authority,
        operators=endpoint.operators,
        as_pod=credential.as_pod,
        bearer=credential.bearer,
    )
    return Passage(endpoint.authority, admit(place, policy))


def _options(
    location: StorageLocation, passage: Passage, credential: Credential, timeouts: Timeouts, *, insecure: bool = False
) -> dict[str, Any]:
    client: dict[str, Any] = {
        "timeout": timeouts.answer,
        "connect_timeout": min(timeouts.connect, timeouts.answer),
        "allow_http": passage.authority.scheme == "http",
        "allow_invalid_certificates": insecure,
        "proxy_url": gate().url(passage),
        "http1_only": True,  # one answer at a time on a connection, so that the gate can tell how long each is
        "proxy_excludes": NOBODY,  # else the environment's exceptions would go around it
    }
    certificate = locations.ca_certificate(location)
    if certificate:
        client["root_certificate"] = certificate
    options: dict[str, Any] = {"client_options": client, "retry_config": {"max_retries": 0}}
    return options | ({"credential_provider": credential.provider} if credential.provider else {})


def _made(location: StorageLocation, make: Callable[[], Any]) -> Any:
    """Make a store.

    obstore's own words are left out where they may quote a credential: only the first line's head is told.
    """
    try:
        with native():
            return make()
    except Exception as error:
        said = hide(cut(error)).split("\n", 1)[0].split(":", 1)[0][:200]
        raise InvalidError(f"{locations.what(location)}: its configuration cannot be used: {said}") from error
