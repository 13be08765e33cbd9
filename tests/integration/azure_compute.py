"""ARM's snapshots for tests.

Source of the shapes: ARM's reference (Microsoft.Compute snapshots, asynchronous operations, error documents).

A delete answers 202 with ``Azure-AsyncOperation`` (or only ``Location``); the operation is ``InProgress`` for as many
polls as asked for and then ``Succeeded``, or ``Failed`` with HTTP 200 and an inner error. A delete of what is not there
answers 204.
"""

import threading
from itertools import count
from typing import Any

from tests.integration.cloud_http import Answer, Request, Server

SUBSCRIPTION = "0b1f6471-1bf0-4dda-aec3-111122223333"
GROUP = "backups"
PREFIX = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Compute/snapshots"
PAGE = 500


def refusal(status: int, code: str, message: str, *, headers: dict[str, str] | None = None) -> Answer:
    """An error as ARM writes it."""
    return Answer.of_json({"error": {"code": code, "message": message}}, status=status, headers=headers)


def is_delete(request: Request) -> bool:
    return request.method == "DELETE"


class AzureCompute:
    """One subscription with one resource group.

    ``refused`` refuses a delete, by name; ``ends_in`` lets its operation fail so.
    """

    def __init__(self) -> None:
        self.snapshots: dict[str, dict[str, Any]] = {}
        self.operations: dict[str, dict[str, Any]] = {}
        self.ends_in: dict[str, tuple[str, str]] = {}
        self.refused: dict[str, Answer] = {}
        self.polls = 1
        self.follow_by = "Azure-AsyncOperation"
        self._lock = threading.Lock()
        self._numbers = count(1)
        self.server = Server(self._answer)
        self.faults, self.requests, self.url = self.server.faults, self.server.requests, self.server.url

    def close(self) -> None:
        self.server.close()

    def add(self, tags: dict[str, str] | None = None) -> str:
        """A snapshot of a disk of 8 GiB, tagged as Velero does it: dashes for slashes."""
        name = f"disk-{next(self._numbers):05d}"
        self.snapshots[name] = {
            "id": f"{PREFIX}/{name}",
            "name": name,
            "type": "Microsoft.Compute/snapshots",
            "location": "westeurope",
            "tags": {key.replace("/", "-"): value for key, value in (tags or {}).items()},
            "properties": {
                "diskSizeGB": 8,
                "diskSizeBytes": 8 * 2**30,
                "timeCreated": "2026-01-01T00:00:00.0000000+00:00",
                "provisioningState": "Succeeded",
            },
        }
        return f"{PREFIX}/{name}"

    def ids(self) -> set[str]:
        return {snapshot["id"] for snapshot in self.snapshots.values()}

    def _answer(self, request: Request) -> Answer:
        with self._lock:
            return self._arm(request)

    def _arm(self, request: Request) -> Answer:
        match request.method, request.path.strip("/").split("/"):
            case "GET", ["operations", name] if name in self.operations:
                return self._poll(self.operations[name])
            case _, ["subscriptions", subscription, *_] if subscription.lower() != SUBSCRIPTION:
                return refusal(404, "SubscriptionNotFound", f"The subscription '{subscription}' could not be found.")
            case "GET", [_, _, "providers", _, "snapshots"]:
                return self._list(request)
            case method, [_, _, _, group, *rest]:
                return self._group(request, method, group, rest)
        return refusal(404, "NotFound", "The requested path does not exist.")

    def _group(self, request: Request, method: str, group: str, rest: list[str]) -> Answer:
        if group.lower() != GROUP:
            return refusal(404, "ResourceGroupNotFound", f"Resource group '{group}' could not be found.")
        match method, rest:
            case "GET", [_, _, "snapshots"]:
                return self._list(request)
            case "GET", [_, _, "snapshots", name] if name in self.snapshots:
                return Answer.of_json(self.snapshots[name])
            case "DELETE", [_, _, "snapshots", name]:
                return self.refused.get(name) or self._begin(name)
            case "GET", [_, _, "snapshots", name]:
                where = f"The Resource 'Microsoft.Compute/snapshots/{name}' under resource group '{GROUP}'"
                return refusal(404, "ResourceNotFound", f"{where} was not found.")
        return refusal(400, "InvalidRequest", "The request is invalid.")

    def _list(self, request: Request) -> Answer:
        found = sorted(self.snapshots.values(), key=lambda s: s["name"], reverse=True)
        first = int(request.query.get("$skiptoken", 0))
        page: dict[str, Any] = {"value": found[first : first + PAGE]}
        if first + PAGE < len(found):
            version = request.query.get("api-version", "")
            page["nextLink"] = f"{self.url}{request.path}?api-version={version}&$skiptoken={first + PAGE}"
        return Answer.of_json(page)

    def _begin(self, name: str) -> Answer:
        if name not in self.snapshots:
            return Answer(204)
        number = str(next(self._numbers))
        self.operations[number] = {"snapshot": name, "polls": self.polls, "status": "InProgress", "number": number}
        headers = {self.follow_by: f"{self.url}/operations/{number}?api-version=1"} if self.follow_by else {}
        if not self.follow_by:
            self._end(self.operations[number])
        return Answer(202, b"", {"Retry-After": "1", **headers})

    def _poll(self, operation: dict[str, Any]) -> Answer:
        operation["polls"] -= 1
        if operation["polls"] <= 0 and operation["status"] == "InProgress":
            self._end(operation)
        if self.follow_by == "Location":
            return Answer(202 if operation["status"] == "InProgress" else 204)
        state = {key: operation[key] for key in ("status", "error") if key in operation}
        return Answer.of_json({"name": operation["number"], **state}, headers={"Retry-After": "1"})

    def _end(self, operation: dict[str, Any]) -> None:
        name = operation["snapshot"]
        if name in self.ends_in:
            code, message = self.ends_in[name]
            operation |= {"status": "Failed", "error": {"code": code, "message": message}}
            return
        operation["status"] = "Succeeded"
        self.snapshots.pop(name, None)
