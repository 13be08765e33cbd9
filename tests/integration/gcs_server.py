"""Google Cloud Storage for tests, as far as its XML API goes here. Source: the reference of the XML API.

Emulators speak the JSON API, or an XML that the real client does not read.
"""

import json
from typing import ClassVar
from urllib.parse import unquote
from xml.sax.saxutils import escape

from tests.integration.buckets_http import MODIFIED, MODIFIED_ISO, Cloud, Page, xml_error
from tests.integration.cloud_http import Answer, Request

UNTIL = "2031-05-01T00:00:00.000Z"

NO_BUCKET = xml_error(404, "NoSuchBucket", "The specified bucket does not exist.")
NO_KEY = xml_error(404, "NoSuchKey", "The specified key does not exist.")
DENIED = xml_error(403, "AccessDenied", "Access denied.")
RETAINED = xml_error(
    403,
    "RetentionPolicyNotMet",
    f"Object is subject to bucket's retention policy and cannot be deleted or overwritten until {UNTIL}",
)


class Gcs(Cloud):
    """One project. A key of a service account whose requests go unsigned."""

    provider = "velero.io/gcp"
    credential = json.dumps(
        {
            "type": "service_account",
            "client_email": "a@example.com",
            "private_key": "-",
            "private_key_id": "1",
            "disable_oauth": True,
        }
    ).encode()
    answers: ClassVar = {
        "denied": DENIED,
        "unauthenticated": xml_error(401, "AuthenticationRequired", "Authentication required."),
        "throttled": xml_error(429, "TooManyRequests", "Slow down.", headers={"Retry-After": "7"}),
        "broken": xml_error(503, "ServiceUnavailable", "Internal error, please try again."),
        "missing": NO_BUCKET,
    }

    def config(self) -> dict[str, str]:
        return {"storeEndpointURI": f"{self.url}/storage/v1/", "serviceAccount": "not used", "somethingNew": "1"}

    def answer(self, request: Request) -> Answer:
        bucket, _, key = request.path.lstrip("/").partition("/")
        if bucket != "backups":
            return NO_BUCKET
        return self._object(request, unquote(key)) if key else self._list(request)

    def _object(self, request: Request, key: str) -> Answer:
        files = self.bucket.files
        if request.method == "PUT":
            files[key] = request.body
            return Answer(200, b"", {"ETag": '"1"'})
        if key not in files:
            return NO_KEY if request.method != "HEAD" else Answer(404)
        if request.method == "DELETE":
            return self._delete(key)
        body = files[key] if request.method == "GET" else b""
        return Answer(200, body, {"ETag": '"1"', "Last-Modified": MODIFIED})

    def _delete(self, key: str) -> Answer:
        if key in self.bucket.locked:
            return RETAINED
        if key in self.bucket.denied:
            return DENIED
        del self.bucket.files[key]
        return Answer(204)

    def _list(self, request: Request) -> Answer:
        asked = request.query
        page = self.bucket.page(
            prefix=asked.get("prefix", ""),
            delimiter=asked.get("delimiter", ""),
            after=asked.get("continuation-token", "") or asked.get("start-after", ""),
        )
        return Answer(200, self._page(page).encode(), {"Content-Type": "application/xml"})

    def _page(self, page: Page) -> str:
        files = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{MODIFIED_ISO}</LastModified><ETag>1</ETag>"
            f"<Size>{len(self.bucket.files[key])}</Size></Contents>"
            for key in page.keys
        )
        below = "".join(f"<CommonPrefixes><Prefix>{escape(d)}</Prefix></CommonPrefixes>" for d in page.directories)
        more = f"<NextContinuationToken>{escape(page.following)}</NextContinuationToken>" if page.following else ""
        return f"<ListBucketResult>{files}{below}{more}</ListBucketResult>"
