"""S3 for tests: moto, with a layer in front that refuses single keys and whole calls on demand.

Source of the shapes: S3's API reference.
"""

import io
import xml.etree.ElementTree as ET
from typing import Any, ClassVar
from urllib.parse import unquote, unquote_to_bytes, urlencode
from xml.sax.saxutils import escape

from tests.integration.buckets_http import BucketServer, Cloud, xml_error
from tests.integration.cloud_http import Answer, Request

ACCOUNT = "123456789012"
BULK = 1000
NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
ET.register_namespace("", NAMESPACE)

LOCKED = ("AccessDenied", "Access Denied because object protected by object lock.")
DENIED = ("AccessDenied", "Access Denied")


class S3(Cloud):
    """One account, through moto. ``backend`` is moto's own model of the bucket."""

    provider = "velero.io/aws"
    credential = b"[default]\naws_access_key_id = a\naws_secret_access_key = b\n"
    answers: ClassVar = {
        "denied": xml_error(403, *DENIED),
        "unauthenticated": xml_error(400, "ExpiredToken", "The provided token has expired."),
        "throttled": xml_error(503, "SlowDown", "Please reduce your request rate.", headers={"Retry-After": "7"}),
        "broken": xml_error(500, "InternalError", "We encountered an internal error. Please try again."),
        "missing": xml_error(404, "NoSuchBucket", "The specified bucket does not exist"),
    }

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from moto.s3.models import s3_backends

        self._app = DomainDispatcherApplication(create_backend_app)
        self.backend = s3_backends[ACCOUNT]["aws"]
        self.backend.reset()
        self.backend.create_bucket("backups", "us-east-1")
        self.locked: set[str] = set()
        self.denied: set[str] = set()
        self.server = BucketServer(self.answer)
        self.faults, self.requests, self.url = self.server.faults, self.server.requests, self.server.url

    def close(self) -> None:
        super().close()
        self.backend.reset()

    def config(self) -> dict[str, str]:
        return {
            "region": "us-east-1",
            "s3Url": self.url,
            "s3ForcePathStyle": "true",
            "publicUrl": "https://not.used.example",
            "checksumAlgorithm": "",
            "serverSideEncryption": "AES256",
        }

    def put(self, key: str, data: bytes = b"x") -> None:
        self.backend.put_object("backups", key, data)

    def keys(self) -> set[str]:
        return set(self.backend.buckets["backups"].keys)

    def lock(self, key: str) -> None:
        self.locked.add(key)

    def deny(self, key: str) -> None:
        self.denied.add(key)

    def answer(self, request: Request) -> Answer:
        if request.method == "POST" and "delete" in request.query:
            return self._bulk(request)
        reason = self._refusal(unquote(request.path).removeprefix("/backups/"))
        if request.method == "DELETE" and reason:
            return xml_error(403, *reason)
        return self.moto(request, request.body)

    def _refusal(self, key: str) -> tuple[str, str] | None:
        return LOCKED if key in self.locked else DENIED if key in self.denied else None

    def _bulk(self, request: Request) -> Answer:
        """DeleteObjects: the keys that are refused never reach moto; more than 1,000 are refused as S3 does."""
        root = ET.fromstring(request.body)
        space = "".join(root.tag.partition("}")[:2]) if "}" in root.tag else ""
        objects = {o.findtext(f"{space}Key", ""): o for o in root.findall(f"{space}Object")}
        if len(objects) > BULK:
            return xml_error(400, "MalformedXML", "The XML you provided was not well-formed")
        refused = {key: reason for key in objects if (reason := self._refusal(key))}
        for key in refused:
            root.remove(objects[key])
        answer = self.moto(request, ET.tostring(root))
        errors = "".join(
            f"<Error><Key>{escape(key)}</Key><Code>{code}</Code><Message>{message}</Message></Error>"
            for key, (code, message) in refused.items()
        )
        return Answer(
            answer.status, answer.body.replace(b"</DeleteResult>", f"{errors}</DeleteResult>".encode()), answer.headers
        )

    def moto(self, request: Request, body: bytes) -> Answer:
        query = urlencode(request.query)
        environ: dict[str, Any] = {
            "REQUEST_METHOD": request.method,
            "PATH_INFO": unquote_to_bytes(request.path).decode("latin-1"),
            "QUERY_STRING": query,
            "RAW_URI": f"{request.path}?{query}",
            "REQUEST_URI": f"{request.path}?{query}",
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": self.url.rpartition(":")[2],
            "SERVER_PROTOCOL": "HTTP/1.1",
            "CONTENT_LENGTH": str(len(body)),
            "CONTENT_TYPE": request.headers.get("content-type", ""),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": io.StringIO(),
            "wsgi.version": (1, 0),
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            **{
                f"HTTP_{key.upper().replace('-', '_')}": value
                for key, value in request.headers.items()
                if key.lower() not in {"content-length", "content-type"}
            },
        }
        seen: list[tuple[int, dict[str, str]]] = []

        def start(status: str, headers: list[tuple[str, str]], _: object = None) -> None:
            seen.append((int(status.split(maxsplit=1)[0]), dict(headers)))

        content = b"".join(self._app(environ, start))
        status, headers = seen[0]
        kept = {
            k: v
            for k, v in headers.items()
            if k.lower() not in {"content-length", "transfer-encoding", "date", "server"}
        }
        return Answer(status, b"" if request.method == "HEAD" else content, kept)
