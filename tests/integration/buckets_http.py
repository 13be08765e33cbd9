"""What the stand-ins for object storage share: buckets in memory, pages in order of key, refusals of single keys."""

from collections.abc import Mapping
from datetime import timedelta
from http.server import BaseHTTPRequestHandler

from attrs import frozen

from reprieve.adapters.cloud.buckets import CloudObjectStores
from reprieve.core.backups import StorageLocation
from reprieve.core.ports import ObjectStore
from tests.integration.cloud_http import Answer, Request, Server, stand_ins

MODIFIED = "Mon, 30 Nov 2026 12:00:00 GMT"
MODIFIED_ISO = "2026-11-30T12:00:00.000Z"
PAGE = 1000
PATIENCE = timedelta(seconds=20)
IMPATIENCE = timedelta(milliseconds=300)


class BucketServer(Server):
    """A server of ``cloud_http`` that also answers HEAD."""

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        handler = super()._handler()
        handler.do_HEAD = handler.do_GET
        return handler


@frozen
class Page:
    """One page of a listing: keys, directories, and where the next page begins (empty: nowhere)."""

    keys: tuple[str, ...]
    directories: tuple[str, ...]
    following: str


class Bucket:
    """A bucket: keys and bytes. ``locked`` and ``denied`` keys cannot be deleted."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.locked: set[str] = set()
        self.denied: set[str] = set()

    def page(self, *, prefix: str, delimiter: str, after: str, size: int = PAGE) -> Page:
        """Entries in order, keys and directories counted alike; ``after`` is the last entry that was given before."""
        entries = dict.fromkeys(self._entry(key, prefix, delimiter) for key in self._keys() if key.startswith(prefix))
        rest = [e for e in entries if e > after and not (after.endswith("/") and e.startswith(after))]
        given = rest[:size]
        following = given[-1] if len(rest) > size else ""
        is_directory = [bool(delimiter) and e.endswith(delimiter) and e != prefix for e in given]
        return Page(
            tuple(e for e, d in zip(given, is_directory, strict=True) if not d),
            tuple(e for e, d in zip(given, is_directory, strict=True) if d),
            following,
        )

    def _keys(self) -> list[str]:
        return sorted(self.files, key=str.encode)

    @staticmethod
    def _entry(key: str, prefix: str, delimiter: str) -> str:
        head, sign, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
        return prefix + head + sign if sign else key


class Cloud:
    """A provider: bucket ``backups`` is there, ``gone`` is not. Subclasses speak the provider's protocol.

    ``answers``: what goes wrong, by name, in the provider's own words.
    """

    provider = ""
    credential = b""
    answers: Mapping[str, Answer] = {}

    def __init__(self) -> None:
        self.bucket = Bucket()
        self.server = BucketServer(self.answer)
        self.faults, self.requests, self.url = self.server.faults, self.server.requests, self.server.url

    def close(self) -> None:
        self.server.close()

    def answer(self, request: Request) -> Answer:
        raise NotImplementedError

    def config(self) -> dict[str, str]:
        raise NotImplementedError

    def open(self, bucket: str = "backups", *, prefix: str = "", timeout: timedelta = PATIENCE) -> ObjectStore:
        location = StorageLocation(
            "default", provider=self.provider, bucket=bucket, prefix=prefix, config=self.config()
        )
        return CloudObjectStores(timeout=timeout, policy=stand_ins(self.url)).open(location, credential=self.credential)

    # The state of the world, past the adapter.

    def put(self, key: str, data: bytes = b"x") -> None:
        self.bucket.files[key] = data

    def keys(self) -> set[str]:
        return set(self.bucket.files)

    def lock(self, key: str) -> None:
        self.bucket.locked.add(key)

    def deny(self, key: str) -> None:
        self.bucket.denied.add(key)

    def writes(self) -> list[Request]:
        """The calls that change something."""
        return [r for r in self.requests if r.method not in {"GET", "HEAD"}]

    @staticmethod
    def deletes(request: Request) -> bool:
        """Whether a call deletes, in bulk or not."""
        return request.method in {"DELETE", "POST"}

    @staticmethod
    def lists(request: Request) -> bool:
        """Whether a call lists."""
        return request.method == "GET" and ("list-type" in request.query or request.query.get("comp") == "list")


def xml_error(status: int, code: str, message: str, *, headers: dict[str, str] | None = None) -> Answer:
    """An error as all three providers write it."""
    body = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return Answer(status, body.encode(), {"Content-Type": "application/xml", **(headers or {})})


PLAIN_404 = Answer(404, b"404 page not found\n", {"Content-Type": "text/plain"})
