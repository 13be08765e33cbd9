"""Compute Engine's snapshots for tests.

Source of the shapes: the API's reference (snapshots, globalOperations, error responses).

A delete answers with an operation that is ``RUNNING`` for as many polls as asked for and then ``DONE``, with an error
where one is set. The credential is a service account with a key of its own: the SDK signs its tokens itself, as it does
for the real API.
"""

import json
import threading
from datetime import UTC, datetime
from functools import cache
from itertools import count
from typing import Any

from tests.integration.cloud_http import Answer, Request, Server

PROJECT = "backups-1234"
COMPUTE = "/compute/v1/projects"


def refusal(status: int, reason: str, message: str, *, headers: dict[str, str] | None = None) -> Answer:
    """An error as Compute Engine writes it."""
    inner = {"message": message, "domain": "global", "reason": reason}
    error = {"code": status, "message": message, "errors": [inner]}
    return Answer.of_json({"error": error}, status=status, headers=headers)


def is_delete(request: Request) -> bool:
    return request.method == "DELETE"


@cache
def private_key() -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()


class GcpCompute:
    """One project. ``in_use`` and ``refused`` refuse a delete, by name.

    ``ends_in`` lets its operation fail with that code and message.
    """

    def __init__(self) -> None:
        self.snapshots: dict[str, dict[str, Any]] = {}
        self.operations: dict[str, dict[str, Any]] = {}
        self.ends_in: dict[str, tuple[int, str, str]] = {}
        self.refused: dict[str, Answer] = {}
        self.polls = 1
        self._lock = threading.Lock()
        self._numbers = count(1)
        self.server = Server(self._answer)
        self.faults, self.requests, self.url = self.server.faults, self.server.requests, self.server.url

    def close(self) -> None:
        self.server.close()

    def credential(self, **parts: object) -> bytes:
        """A key file of a service account."""
        info = {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": "1",
            "private_key": private_key(),
            "client_email": f"reprieve@{PROJECT}.iam.gserviceaccount.com",
            "client_id": "1",
            "token_uri": "https://oauth2.googleapis.com/token",  # the SDK asks for none: it signs by itself
        }
        return json.dumps(info | parts).encode()

    def add(
        self, tags: dict[str, str] | None = None, *, labels: dict[str, str] | None = None, description: str = ""
    ) -> str:
        """A snapshot of a disk of 8 GB, tagged as Velero does it: JSON in the description."""
        number = next(self._numbers)
        name = f"disk-{number:05d}"
        self.snapshots[name] = {
            "kind": "compute#snapshot",
            "id": str(10**15 + number),
            "name": name,
            "status": "READY",
            "creationTimestamp": datetime(2026, 1, 1, tzinfo=UTC).isoformat(),
            "diskSizeGb": "8",
            "description": json.dumps(tags) if tags else description,
            **({"labels": labels} if labels else {}),
        }
        return name

    def ids(self) -> set[str]:
        return set(self.snapshots)

    def _answer(self, request: Request) -> Answer:
        with self._lock:
            return self._compute(request)

    def _compute(self, request: Request) -> Answer:
        project, _, rest = request.path.removeprefix(f"{COMPUTE}/").partition("/")
        if project != PROJECT:
            return refusal(404, "notFound", f"The resource 'projects/{project}' was not found")
        match request.method, rest.split("/"):
            case "GET", ["global", "snapshots"]:
                return self._list(request.query)
            case "GET", ["global", "snapshots", name] if name in self.snapshots:
                return Answer.of_json(self.snapshots[name])
            case "DELETE", ["global", "snapshots", name] if name in self.snapshots:
                return self.refused.get(name) or self._begin(name)
            case "GET", ["global", "operations", name] if name in self.operations:
                return self._poll(self.operations[name])
        return refusal(404, "notFound", f"The resource '{request.path.removeprefix('/compute/v1/')}' was not found")

    def _list(self, query: dict[str, str]) -> Answer:
        names = sorted(self.snapshots, reverse=True)  # newest first: the order of pages promises nothing
        first, size = int(query.get("pageToken", 0)), min(int(query.get("maxResults", 500)), 500)
        page: dict[str, Any] = {"kind": "compute#snapshotList"}
        if found := names[first : first + size]:
            page["items"] = [self.snapshots[name] for name in found]
        if first + size < len(names):
            page["nextPageToken"] = str(first + size)
        return Answer.of_json(page)

    def _begin(self, name: str) -> Answer:
        operation = {
            "kind": "compute#operation",
            "id": "1",
            "name": f"operation-{next(self._numbers)}",
            "operationType": "delete",
            "targetLink": f"{self.url}{COMPUTE}/{PROJECT}/global/snapshots/{name}",
            "status": "RUNNING",
            "polls": self.polls,
        }
        self.operations[str(operation["name"])] = operation
        return Answer.of_json({key: value for key, value in operation.items() if key != "polls"})

    def _poll(self, operation: dict[str, Any]) -> Answer:
        operation["polls"] -= 1
        if operation["polls"] <= 0 and operation["status"] != "DONE":
            self._end(operation)
        return Answer.of_json({key: value for key, value in operation.items() if key != "polls"})

    def _end(self, operation: dict[str, Any]) -> None:
        name = operation["targetLink"].rpartition("/")[2]
        operation["status"] = "DONE"
        if name in self.ends_in:
            status, code, message = self.ends_in[name]
            operation |= {
                "error": {"errors": [{"code": code, "message": message}]},
                "httpErrorStatusCode": status,
                "httpErrorMessage": "BAD REQUEST",
            }
            return
        self.snapshots.pop(name, None)
