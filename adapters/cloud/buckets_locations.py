"""Storage locations as Velero writes them, to what obstore needs: pure, no SDK, no call.

Honoured: ``bucket``, ``prefix``, ``caCert`` and the configuration keys of Velero's three object-store plugins that
matter for reading, writing and deleting. Unknown keys are tolerated, as Velero's plugins grow new ones; docs/buckets.md
lists what is done with each.

Guarantee: what cannot be used raises ``InvalidError`` that names the location and the key; no part of a credential gets
into it.
Not guaranteed: that the bucket is there; nothing is asked before the first call.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping

from attrs import evolve, frozen

from reprieve.adapters.cloud.endpoints import REGION, Authority, Url, aws_domain, read_url
from reprieve.adapters.cloud.secret_text import check_config
from reprieve.adapters.cloud.tables import reworded
from reprieve.core.backups import StorageLocation, plain_provider
from reprieve.core.errors import InvalidError, ReprieveError
from reprieve.core.keys import check_directory

TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
FALSE = frozenset({"", "0", "f", "F", "false", "FALSE", "False"})
ENCRYPTIONS = frozenset({"AES256", "aws:kms", "aws:kms:dsse"})
ACCESS_POINT = re.compile(
    rf"arn:(aws[a-z-]{{0,16}}):s3:({REGION}):([0-9]{{12}}):accesspoint[/:]([a-z0-9][a-z0-9-]{{1,48}}[a-z0-9])", re.ASCII
)
BUCKETS: Mapping[str, re.Pattern[str]] = {
    "aws": re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,253}[A-Za-z0-9])?", re.ASCII),
    "gcp": re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,220}[a-z0-9])?", re.ASCII),
    "azure": re.compile(r"[a-z0-9](?:-?[a-z0-9]){0,62}|\$(?:root|web|logs)", re.ASCII),
}
"""Names of buckets: what the providers allow, and no character that means something in a URL.

Of S3 also what it allowed once and what its likes allow; only ``_HOST_SAFE`` ones are put into a host.
"""

_HOST_SAFE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_SIGNED_REGION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
_AWS_REGION = re.compile(REGION, re.ASCII)
_DOMAIN = re.compile(r"[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,8}", re.ASCII | re.IGNORECASE)


@frozen
class Endpoint:
    """Where requests go.

    ``path_style``: the bucket stands in the path, not in the host; ``operators``: the environment says where, not the
    location.
    """

    url: Url
    path_style: bool = False
    operators: bool = False

    @property
    def authority(self) -> Authority:
        """Scheme, host and port that are contacted."""
        return self.url.authority

    @property
    def plain_http(self) -> bool:
        """Whether the URL itself asks for HTTP without TLS; nothing else ever allows it."""
        return self.authority.scheme == "http"


def what(location: StorageLocation) -> str:
    """How messages call a location."""
    return f"storage location {location.name}"


def check_location(location: StorageLocation) -> StorageLocation:
    """Give the location back when its configuration can be used, and its bucket be put into a URL as it is.

    A bucket with a slash is refused unless it is an ARN, as in Velero.
    """
    check_config(location.config, what=what(location))
    if not location.bucket:
        raise InvalidError(f"{what(location)}: spec.objectStorage.bucket is missing")
    if "/" in location.bucket and not location.bucket.startswith("arn:"):
        raise InvalidError(
            f"{what(location)}: bucket {location.bucket!r} must not hold a slash: "
            "directories below the bucket go into spec.objectStorage.prefix"
        )
    provider = plain_provider(location.provider)
    allowed = BUCKETS.get(provider)
    is_arn = provider == "aws" and location.bucket.startswith("arn:")
    if allowed and not is_arn and not allowed.fullmatch(location.bucket):
        raise InvalidError(f"{what(location)}: bucket {location.bucket[:200]!r} is no name of a bucket on {provider}")
    return location


def prefix_of(location: StorageLocation) -> str:
    """The location's prefix without slashes at its ends.

    Raises ``InvalidError`` when no key below it could be asked for.
    """
    try:
        return check_directory(location.prefix.strip("/"))
    except InvalidError as error:
        raise InvalidError(f"{what(location)}: spec.objectStorage.prefix: {error}") from error


def flag(location: StorageLocation, key: str) -> bool:
    """Read a truth value as Velero's plugins do (Go's ``ParseBool``); absent is false."""
    value = location.config.get(key, "")
    if value not in TRUE | FALSE:
        raise InvalidError(f"{what(location)}: spec.config.{key} is {value!r}: true or false is allowed")
    return value in TRUE


def ca_certificate(location: StorageLocation) -> str:
    """The PEM text of ``caCert``, which is base64 in Velero's objects; empty when there is none."""
    raw = location.ca_cert.strip()
    if not raw or raw.startswith("-----BEGIN"):
        return raw
    try:
        pem = base64.b64decode(raw, validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        pem = ""
    if "-----BEGIN CERTIFICATE-----" not in pem:
        raise InvalidError(f"{what(location)}: spec.objectStorage.caCert is no PEM certificate in base64")
    return pem


def checked_url(location: StorageLocation, key: str, value: str) -> Url:
    """Read a URL of the configuration. Raises ``InvalidError`` when it is not http(s)://host[:port][/path]."""
    try:
        return read_url(value)
    except InvalidError as error:
        raise InvalidError(f"{what(location)}: {key}: {error}") from error


def s3_endpoint(location: StorageLocation, *, region: str, environ: Mapping[str, str] = os.environ) -> Endpoint:
    """Where S3 is asked: ``s3Url``, else ``AWS_ENDPOINT_URL_S3`` or ``AWS_ENDPOINT_URL``, else AWS.

    The bucket stands in the host unless ``s3ForcePathStyle`` is true, the host is an address, or the bucket's name is
    no part of a host (one with a dot fits no TLS certificate). Raises ``InvalidError``, also for a region that AWS
    itself cannot have.
    """
    if location.bucket.startswith("arn:"):
        return _access_point(location)
    configured = location.config.get("s3Url", "")
    environments = environ.get("AWS_ENDPOINT_URL_S3", "") or environ.get("AWS_ENDPOINT_URL", "")
    path_style = flag(location, "s3ForcePathStyle") or not _HOST_SAFE.fullmatch(location.bucket)
    check_region(location, region, aws=not (configured or environments))
    if configured:
        url = checked_url(location, "spec.config.s3Url", configured)
    elif environments:
        url = checked_url(location, "AWS_ENDPOINT_URL", environments)
    else:
        url = checked_url(location, "spec.config.region", f"https://s3.{region}.{aws_domain(region)}")
    operators = not configured and bool(environments)
    if path_style or url.authority.address is not None:
        return Endpoint(url, path_style=True, operators=operators)
    host = f"{location.bucket}.{url.authority.host}"
    return Endpoint(evolve(url, authority=evolve(url.authority, host=host)), operators=operators)


def check_region(location: StorageLocation, region: str, *, aws: bool) -> None:
    """Raise ``InvalidError`` for what is no region.

    AWS' own stand in the host (``aws``), another store's only in the signature.
    """
    if not (_AWS_REGION if aws else _SIGNED_REGION).fullmatch(region):
        kind = "region of AWS" if aws else "name of a region"
        raise InvalidError(f"{what(location)}: region {region[:200]!r} is no {kind}")


def is_aws_region(region: str) -> bool:
    """Whether a text looks like a region of AWS."""
    return _AWS_REGION.fullmatch(region) is not None


def _access_point(location: StorageLocation) -> Endpoint:
    arn = ACCESS_POINT.fullmatch(location.bucket)
    if not arn:
        raise InvalidError(
            f"{what(location)}: bucket {location.bucket[:200]!r}: of ARNs, those of S3 access points can be used "
            "(arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME)"
        )
    return Endpoint(read_url(f"https://{arn[4]}-{arn[3]}.s3-accesspoint.{arn[2]}.{aws_domain(arn[2])}"))


def s3_region(location: StorageLocation) -> str:
    """The region that the configuration or an access point's ARN names, else empty."""
    arn = ACCESS_POINT.fullmatch(location.bucket)
    return location.config.get("region", "") or (arn[2] if arn else "")


def s3_encryption(location: StorageLocation) -> dict[str, str]:
    """The headers' settings for what is written; reading and deleting need none, but for SSE-C, which is refused."""
    if location.config.get("customerKeyEncryptionFile"):
        raise InvalidError(
            f"{what(location)}: spec.config.customerKeyEncryptionFile: "
            "files under a customer's own key (SSE-C) cannot be read"
        )
    key = location.config.get("kmsKeyId", "")
    kind = location.config.get("serverSideEncryption", "") or ("aws:kms" if key else "")
    if kind not in ENCRYPTIONS:
        return {}
    return {"server_side_encryption": kind} | ({"sse_kms_key_id": key} if key and kind != "AES256" else {})


def gcs_endpoint(location: StorageLocation) -> Endpoint:
    """Where GCS is asked: ``storeEndpointURI`` (its JSON API path taken off), else ``universeDomain``, else Google."""
    raw = location.config.get("storeEndpointURI", "")
    if raw:
        url = checked_url(location, "spec.config.storeEndpointURI", raw)
        return Endpoint(evolve(url, path=url.path.removesuffix("/storage/v1")), path_style=True)
    domain = location.config.get("universeDomain", "") or "googleapis.com"
    if not _DOMAIN.fullmatch(domain):
        raise InvalidError(f"{what(location)}: spec.config.universeDomain is {domain[:200]!r}: a domain is allowed")
    return Endpoint(checked_url(location, "spec.config.universeDomain", f"https://storage.{domain}"), path_style=True)


AZURE_HOSTS: Mapping[str, str] = {
    "azurepubliccloud": "blob.core.windows.net",
    "azurecloud": "blob.core.windows.net",
    "azureusgovernmentcloud": "blob.core.usgovcloudapi.net",
    "azureusgovernment": "blob.core.usgovcloudapi.net",
    "azurechinacloud": "blob.core.chinacloudapi.cn",
}


def azure_host(location: StorageLocation, cloud: str) -> str:
    """The host of blobs in the cloud of that name (``AZURE_CLOUD_NAME``), in any case; empty is the public one."""
    found = AZURE_HOSTS.get((cloud or "AzurePublicCloud").lower())
    if not found:
        raise InvalidError(
            f"{what(location)}: AZURE_CLOUD_NAME is {cloud!r}: "
            "AzurePublicCloud, AzureUSGovernmentCloud or AzureChinaCloud is allowed"
        )
    return found


def azure_account(location: StorageLocation) -> str:
    """The storage account's name. Raises ``InvalidError`` when it is missing or no such name."""
    account = location.config.get("storageAccount", "")
    if not re.fullmatch(r"[a-z0-9]{3,24}", account):
        raise InvalidError(f"{what(location)}: spec.config.storageAccount is {account[:200]!r}: 3 to 24 of a-z and 0-9")
    return account


def azure_endpoint(location: StorageLocation, *, account: str, host: str) -> Endpoint:
    """Where Azure is asked: ``storageAccountURI`` (Velero's sample has no scheme), else the account's own host."""
    raw = location.config.get("storageAccountURI", "") or f"https://{account}.{host}"
    url = checked_url(location, "spec.config.storageAccountURI", raw if "://" in raw else f"https://{raw}")
    return Endpoint(url, path_style=True)


def named(location: StorageLocation, error: ReprieveError) -> ReprieveError:
    """The same error, with the location's name before it."""
    return reworded(error, f"{what(location)}: {error}")
