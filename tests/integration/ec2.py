"""EC2 for tests: moto, with a layer in front for what it gets wrong.

Source of the shapes: EC2's API reference and its list of error codes.

The layer answers itself for malformed ids, snapshots in use by a registered image, locks, throttling and refusals on
demand; it cuts DescribeSnapshots into pages and honours ``Owner.1=self``.
"""

import io
import os
import re
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from tests.integration.cloud_http import Answer, Request, Server

os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"  # else 1,301 snapshots are there from the start, as one's own

ACCOUNT = "123456789012"
SOMEBODY_ELSE = "210987654321"
REGION = "us-east-1"
NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
LENGTHS = {8, 17}


def refusal(code: str, message: str, *, status: int = 400, headers: dict[str, str] | None = None) -> Answer:
    """An error as EC2 writes it; with status 200, what a broken proxy may make of one."""
    inner = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?><Response><Errors>{inner}</Errors><RequestID>1</RequestID></Response>'
    )
    return Answer(status, body.encode(), {"Content-Type": "text/xml;charset=UTF-8", **(headers or {})})


THROTTLED = refusal("RequestLimitExceeded", "Request limit exceeded.", status=503)


def form(request: Request) -> dict[str, str]:
    return dict(parse_qsl(request.body.decode(), keep_blank_values=True))


def is_delete(request: Request) -> bool:
    return form(request).get("Action") == "DeleteSnapshot"


class Ec2:
    """One account and region.

    ``in_use``: id to image; ``locked``: id to the instant the lock expires, or None for a lock without one.
    """

    def __init__(self) -> None:
        from moto.ec2.models import ec2_backends
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self._app = DomainDispatcherApplication(create_backend_app)
        self._backend = ec2_backends[ACCOUNT][REGION]
        self.in_use: dict[str, str] = {}
        self.locked: dict[str, datetime | None] = {}
        self.lock_refusal = "OperationNotPermitted"
        self.server = Server(self._answer)
        self.faults, self.requests, self.url = self.server.faults, self.server.requests, self.server.url
        self._volume = self._backend.create_volume(8, f"{REGION}a")

    def close(self) -> None:
        self.server.close()
        self._backend.reset()

    def add(self, tags: dict[str, str] | None = None, *, owner: str = ACCOUNT) -> str:
        """A snapshot of a volume of 8 GiB."""
        snapshot = self._backend.create_snapshot(self._volume.id, "")
        snapshot.owner_id = owner
        snapshot.add_tags(tags or {})
        return str(snapshot.id)

    def ids(self) -> set[str]:
        return set(self._backend.snapshots)

    def calls(self, action: str) -> list[dict[str, str]]:
        return [form(r) for r in self.requests if form(r).get("Action") == action]

    def _answer(self, request: Request) -> Answer:
        asked = form(request)
        match asked.get("Action"):
            case "DeleteSnapshot":
                return self._refuse(asked["SnapshotId"]) or self._moto(request)
            case "DescribeLockedSnapshots":
                return self._locks(asked)
            case "DescribeSnapshots" if "SnapshotId.1" in asked:
                return malformed(asked["SnapshotId.1"]) or self._moto(request)
            case "DescribeSnapshots":
                return self._page(asked)
        return self._moto(request)

    def _refuse(self, snapshot: str) -> Answer | None:
        if snapshot in self.locked:
            return refusal(self.lock_refusal, f"The snapshot {snapshot} is locked and can not be deleted.")
        if snapshot in self.in_use:
            image = self.in_use[snapshot]
            return refusal("InvalidSnapshot.InUse", f"The snapshot {snapshot} is currently in use by {image}")
        return malformed(snapshot)

    def _locks(self, asked: dict[str, str]) -> Answer:
        wanted = [value for key, value in asked.items() if key.startswith("SnapshotId.")]
        items = "".join(self._lock(one) for one in wanted if one in self.locked)
        body = f'<DescribeLockedSnapshotsResponse xmlns="{NAMESPACE}"><snapshotSet>{items}</snapshotSet>'
        return Answer(200, f"{body}</DescribeLockedSnapshotsResponse>".encode(), {"Content-Type": "text/xml"})

    def _lock(self, snapshot: str) -> str:
        until = self.locked[snapshot]
        ends = f"<lockExpiresOn>{until.isoformat()}</lockExpiresOn>" if until else ""
        return f"<item><snapshotId>{snapshot}</snapshotId><lockState>compliance</lockState>{ends}</item>"

    def _page(self, asked: dict[str, str]) -> Answer:
        """One page of the snapshots that were asked for; moto gives all of them at once, and everybody's."""
        key = asked.get("Filter.1.Value.1") if asked.get("Filter.1.Name") == "tag-key" else None
        mine = [s for s in self._backend.snapshots.values() if asked.get("Owner.1") != "self" or s.owner_id == ACCOUNT]
        found = [s for s in mine if key is None or any(matches(key, tag) for tag in self._tags(s.id))]
        first, size = int(asked.get("NextToken", 0)), int(asked.get("MaxResults", 1000))
        more = f"<nextToken>{first + size}</nextToken>" if first + size < len(found) else ""
        items = "".join(entry(s, self._tags(s.id)) for s in found[first : first + size])
        body = f'<DescribeSnapshotsResponse xmlns="{NAMESPACE}"><snapshotSet>{items}</snapshotSet>{more}'
        return Answer(200, f"{body}</DescribeSnapshotsResponse>".encode(), {"Content-Type": "text/xml;charset=UTF-8"})

    def _tags(self, snapshot: str) -> dict[str, str]:
        return dict(self._backend.tags.get(snapshot, {}))

    def _moto(self, request: Request) -> Answer:
        environ: dict[str, Any] = {
            "REQUEST_METHOD": request.method,
            "PATH_INFO": request.path,
            "QUERY_STRING": "",
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": self.url.rpartition(":")[2],
            "SERVER_PROTOCOL": "HTTP/1.1",
            "CONTENT_TYPE": "application/x-www-form-urlencoded",
            "CONTENT_LENGTH": str(len(request.body)),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(request.body),
            "wsgi.errors": io.StringIO(),
            "wsgi.version": (1, 0),
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            **{f"HTTP_{key.upper().replace('-', '_')}": value for key, value in request.headers.items()},
        }
        seen: list[tuple[int, dict[str, str]]] = []

        def start(status: str, headers: list[tuple[str, str]], _: object = None) -> None:
            seen.append((int(status.partition(" ")[0]), dict(headers)))

        body = b"".join(self._app(environ, start))
        status, headers = seen[0]
        return Answer(status, body, {"Content-Type": headers.get("Content-Type", "text/xml")})


def malformed(snapshot: str) -> Answer | None:
    digits = snapshot.removeprefix("snap-")
    if snapshot.startswith("snap-") and len(digits) in LENGTHS and all(c in "0123456789abcdef" for c in digits):
        return None
    return refusal("InvalidSnapshotID.Malformed", f'Invalid id: "{snapshot}" (expecting "snap-...")')


def matches(pattern: str, name: str) -> bool:
    """EC2's filter values: ``*`` and ``?`` are wildcards, a backslash takes that from them."""
    parts = re.split(r"(\\.|[*?])", pattern)
    regex = "".join({"*": ".*", "?": "."}.get(part) or re.escape(part.removeprefix("\\")) for part in parts)
    return re.fullmatch(regex, name) is not None


def entry(snapshot: Any, tagged: dict[str, str]) -> str:
    """An item of DescribeSnapshots, as far as an adapter can want to read it."""
    pairs = [(escape(key), escape(value)) for key, value in tagged.items()]
    tags = "".join(f"<item><key>{key}</key><value>{value}</value></item>" for key, value in pairs)
    return (
        f"<item><snapshotId>{snapshot.id}</snapshotId><volumeId>{snapshot.volume.id}</volumeId><status>completed</status>"
        f"<startTime>{snapshot.start_time.isoformat()}Z</startTime><ownerId>{snapshot.owner_id}</ownerId>"
        f"<volumeSize>{snapshot.volume.size}</volumeSize><tagSet>{tags}</tagSet></item>"
    )
