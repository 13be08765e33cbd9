"""Azure Blob Storage for tests: containers, blobs, listings in pages, and batches of deletes.

Source: the REST reference of Blob Storage; the contract also runs against Azurite, where that is installed.
"""

import re
from typing import ClassVar
from urllib.parse import unquote
from xml.sax.saxutils import escape

from tests.integration.buckets_http import MODIFIED, Cloud, Page, xml_error
from tests.integration.cloud_http import Answer, Request

ACCOUNT = "velerobackups"
BATCH = 256

NO_CONTAINER = xml_error(404, "ContainerNotFound", "The specified container does not exist.")
NO_BLOB = xml_error(404, "BlobNotFound", "The specified blob does not exist.")
DENIED = xml_error(403, "AuthorizationPermissionMismatch", "This request is not authorized to perform this operation.")
IMMUTABLE = xml_error(
    409, "BlobImmutableDueToPolicy", "This operation is not permitted as the blob is immutable due to a policy."
)
PHRASES = {
    202: "Accepted",
    403: "This request is not authorized to perform this operation using this permission.",
    404: "The specified blob does not exist.",
    409: "This operation is not permitted as the blob is immutable due to a policy.",
}


class Blobs(Cloud):
    """One storage account."""

    provider = "velero.io/azure"
    refused = "\\"  # taken for a slash
    credential = b'# written by hand\nAZURE_CLOUD_NAME=AzurePublicCloud\nexport MY_KEY="a2V5"\n'
    answers: ClassVar = {
        "denied": DENIED,
        "unauthenticated": xml_error(401, "InvalidAuthenticationInfo", "Server failed to authenticate the request."),
        "throttled": xml_error(503, "ServerBusy", "The server is busy.", headers={"Retry-After": "7"}),
        "broken": xml_error(500, "InternalError", "Server encountered an internal error."),
        "missing": NO_CONTAINER,
    }

    def config(self) -> dict[str, str]:
        return {
            "resourceGroup": "not used",
            "subscriptionId": "not used",
            "storageAccount": ACCOUNT,
            "storageAccountKeyEnvVar": "MY_KEY",
            "storageAccountURI": f"{self.url}/{ACCOUNT}",
        }

    def answer(self, request: Request) -> Answer:
        _, container, key = [*request.path.lstrip("/").split("/", 2), ""][:3]
        if container != "backups":
            return NO_CONTAINER
        if request.query.get("comp") == "batch":
            return self._batch(request)
        return self._blob(request, unquote(key)) if key else self._list(request)

    def _blob(self, request: Request, key: str) -> Answer:
        files = self.bucket.files
        if request.method == "PUT":
            files[key] = request.body
            return Answer(201, b"", {"ETag": '"1"'})
        if request.method == "DELETE":
            return self._delete(key)
        if key not in files:
            return NO_BLOB if request.method != "HEAD" else Answer(404, b"", {"x-ms-error-code": "BlobNotFound"})
        body = files[key] if request.method == "GET" else b""
        return Answer(200, body, {"ETag": '"1"', "Last-Modified": MODIFIED, "x-ms-blob-type": "BlockBlob"})

    def _delete(self, key: str) -> Answer:
        if key not in self.bucket.files:
            return NO_BLOB
        if key in self.bucket.locked:
            return IMMUTABLE
        if key in self.bucket.denied:
            return DENIED
        del self.bucket.files[key]
        return Answer(202)

    def _batch(self, request: Request) -> Answer:
        paths = re.findall(rb"^DELETE (\S+) HTTP/1\.1\r$", request.body, re.MULTILINE)
        if len(paths) > BATCH:
            return xml_error(400, "ExceedsMaxBatchRequestCount", "The batch operation exceeds 256 requests.")
        answers = [self._delete(unquote(path.decode().split("/", 3)[3])) for path in paths]
        parts = "".join(
            f"--b\r\nContent-Type: application/http\r\nContent-ID: {i}\r\n\r\n"
            f"HTTP/1.1 {a.status} {PHRASES[a.status]}\r\nContent-Length: {len(a.body)}\r\n\r\n{a.body.decode()}\r\n"
            for i, a in enumerate(answers)
        )
        return Answer(202, f"{parts}--b--\r\n".encode(), {"Content-Type": "multipart/mixed; boundary=b"})

    def _list(self, request: Request) -> Answer:
        asked = request.query
        page = self.bucket.page(
            prefix=asked.get("prefix", ""), delimiter=asked.get("delimiter", ""), after=asked.get("marker", "")
        )
        return Answer(200, self._page(page).encode(), {"Content-Type": "application/xml"})

    def _page(self, page: Page) -> str:
        files = "".join(
            f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>{MODIFIED}</Last-Modified><Etag>1</Etag>"
            f"<Content-Length>{len(self.bucket.files[key])}</Content-Length>"
            "<Content-Type>application/octet-stream</Content-Type></Properties></Blob>"
            for key in page.keys
        )
        below = "".join(f"<BlobPrefix><Name>{escape(d)}</Name></BlobPrefix>" for d in page.directories)
        return (
            f"<EnumerationResults><Blobs>{files}{below}</Blobs>"
            f"<NextMarker>{escape(page.following)}</NextMarker></EnumerationResults>"
        )
