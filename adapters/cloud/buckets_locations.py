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
import ipaddress
import os
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit, urlunsplit

from attrs import frozen

from reprieve.core.backups import StorageLocation
from reprieve.core.errors import InvalidError, ReprieveError
from reprieve.core.keys import check_directory

TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
FALSE = frozenset({"", "0", "f", "F", "false", "FALSE", "False"})
ENCRYPTIONS = frozenset({"AES256", "aws:kms", "aws:kms:dsse"})
ACCESS_POINT = re.compile(r"arn:(aws[\w-]*):s3:([\w-]+):(\d{12}):accesspoint[/:]([a-z0-9-]+)")


@frozen
class Endpoint:
    """Where requests go.

    ``url``: empty for the provider's own; ``path_style``: the bucket stands in the path, not in the host.
    """

    url: str = ""
    path_style: bool = False

    @property
    def plain_http(self) -> bool:
        """Whether the URL itself asks for HTTP without TLS; nothing else ever allows it."""
        return self.url.startswith("http://")


def what(location: StorageLocation) -> str:
    """How messages call a location."""
    return f"storage location {location.name}"


def check_location(location: StorageLocation) -> StorageLocation:
    """Give the location back when its bucket and prefix can be used.

    A bucket with a slash is refused unless it is an ARN, as in Velero.
    """
    if not location.bucket:
        raise InvalidError(f"{what(location)}: spec.objectStorage.bucket is missing")
    if "/" in location.bucket and not location.bucket.startswith("arn:"):
        raise InvalidError(
            f"{what(location)}: bucket {location.bucket!r} must not hold a slash: "
            "directories below the bucket go into spec.objectStorage.prefix"
        )
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


def checked_url(location: StorageLocation, key: str, value: str) -> SplitResult:
    """Split a URL of the configuration. Raises ``InvalidError`` when it is not http(s)://host[:port][/path]."""
    url = _split(value)
    if not url or url.scheme not in {"http", "https"} or not url.hostname:
        raise InvalidError(f"{what(location)}: {key} is {value[:200]!r}: http(s)://host[:port] is allowed")
    if url.username or url.query or url.fragment:
        raise InvalidError(f"{what(location)}: {key} must not hold a user, a query or a fragment")
    return url._replace(path=url.path.rstrip("/"))


def _split(value: str) -> SplitResult | None:
    try:
        url = urlsplit(value)
        _ = url.port  # a port that is no number shows only when it is asked for
    except ValueError:
        return None
    return url


def s3_endpoint(location: StorageLocation, *, region: str, environ: Mapping[str, str] = os.environ) -> Endpoint:
    """Where S3 is asked: ``s3Url``, else ``AWS_ENDPOINT_URL_S3`` or ``AWS_ENDPOINT_URL``, else AWS.

    The bucket stands in the host unless ``s3ForcePathStyle`` is true, the host is an address, or the bucket's name has
    a dot (no TLS certificate would match it).
    """
    if location.bucket.startswith("arn:"):
        return _access_point(location)
    configured = location.config.get("s3Url", "")
    name = "spec.config.s3Url" if configured else "AWS_ENDPOINT_URL"
    raw = configured or environ.get("AWS_ENDPOINT_URL_S3", "") or environ.get("AWS_ENDPOINT_URL", "")
    raw = raw or (f"https://s3.{region}.amazonaws.com.cn" if region.startswith("cn-") else "")
    path_style = flag(location, "s3ForcePathStyle") or "." in location.bucket
    if not raw:
        return Endpoint(path_style=path_style)
    url = checked_url(location, name, raw)
    if path_style or _is_address(url.hostname or ""):
        return Endpoint(urlunsplit(url), path_style=True)
    return Endpoint(urlunsplit(url._replace(netloc=f"{location.bucket}.{url.netloc}")))


def _access_point(location: StorageLocation) -> Endpoint:
    arn = ACCESS_POINT.fullmatch(location.bucket)
    if not arn:
        raise InvalidError(
            f"{what(location)}: bucket {location.bucket!r}: of ARNs, those of S3 access points can be used "
            "(arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME)"
        )
    domain = "amazonaws.com.cn" if arn[1] == "aws-cn" else "amazonaws.com"
    return Endpoint(f"https://{arn[4]}-{arn[3]}.s3-accesspoint.{arn[2]}.{domain}")


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
        return Endpoint(urlunsplit(url._replace(path=url.path.removesuffix("/storage/v1"))))
    domain = location.config.get("universeDomain", "")
    if not domain or domain == "googleapis.com":
        return Endpoint()
    return Endpoint(urlunsplit(checked_url(location, "spec.config.universeDomain", f"https://storage.{domain}")))


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
        raise InvalidError(f"{what(location)}: spec.config.storageAccount is {account!r}: 3 to 24 of a-z and 0-9")
    return account


def azure_endpoint(location: StorageLocation, *, account: str, host: str) -> Endpoint:
    """Where Azure is asked: ``storageAccountURI`` (Velero's sample has no scheme), else the account's own host."""
    raw = location.config.get("storageAccountURI", "") or f"https://{account}.{host}"
    url = checked_url(location, "spec.config.storageAccountURI", raw if "://" in raw else f"https://{raw}")
    return Endpoint(urlunsplit(url))


def named(location: StorageLocation, error: ReprieveError) -> ReprieveError:
    """The same error, with the location's name before it."""
    return type(error)(f"{what(location)}: {error}")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
