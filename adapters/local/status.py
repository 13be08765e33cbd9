"""The API server's refusals: one typed error with what a ``Status`` body needs.

And a maker for each reason that the store gives.

Guarantee: code and reason belong together as on a real API server.
Not guaranteed: the exact words of its messages.
"""

from __future__ import annotations

import copy
from typing import Any

from attrs import frozen

from reprieve.core.objects import ObjectKind

Json = dict[str, Any]

CODES = {
    "BadRequest": 400,
    "Unauthorized": 401,
    "Forbidden": 403,
    "NotFound": 404,
    "MethodNotAllowed": 405,
    "AlreadyExists": 409,
    "Conflict": 409,
    "Expired": 410,
    "RequestEntityTooLarge": 413,
    "Invalid": 422,
    "TooManyRequests": 429,
    "InternalError": 500,
}


@frozen
class ServedKind:
    """A kind that is served.

    ``status``: whether ``status`` is a subresource; then a plain write leaves it alone, and the other way round.
    """

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True
    status: bool = False

    @property
    def type(self) -> ObjectKind:
        """API version and kind."""
        return ObjectKind(self.api_version, self.kind)

    @property
    def resource(self) -> str:
        """``backups.velero.io``, or the plural alone for the core group: what messages call the resource."""
        return f"{self.plural}.{self.type.group}" if self.type.group else self.plural

    @property
    def full_kind(self) -> str:
        """``Backup.velero.io``, or the kind alone for the core group: what messages call the kind."""
        return f"{self.kind}.{self.type.group}" if self.type.group else self.kind

    @property
    def custom(self) -> bool:
        """Whether a CRD makes the kind: groups of Kubernetes itself have no dot, or end in ``.k8s.io``."""
        return "." in self.type.group and not self.type.group.endswith(".k8s.io")


class StatusError(Exception):
    """An API error, with the code, reason (it may be empty), message and details of a Status.

    ``continue_token`` goes into the metadata of the answer to a page that is too old: it leads to the rest, as it is
    now.
    """

    def __init__(
        self, reason: str, message: str, *, details: Json | None = None, code: int = 0, continue_token: str = ""
    ) -> None:
        """``code`` 0: the one that belongs to the reason."""
        super().__init__(message)
        self.continue_token = continue_token
        self.code = code or CODES[reason]
        self.reason = reason
        self.message = message
        self.details: Json = details or {}

    def status(self) -> Json:
        """The body of an error answer: a ``Status`` of ``v1``."""
        meta = {"continue": self.continue_token} if self.continue_token else {}
        head: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": meta,
            "status": "Failure",
            "message": self.message,
        }
        optional = {"reason": self.reason, "details": copy.deepcopy(self.details)}
        return {**head, **{key: value for key, value in optional.items() if value}, "code": self.code}


class AdmissionDenied(StatusError):
    """An admission policy refused; only the class tells it from another 403 or 422."""


def _details(kind: ServedKind, name: str) -> Json:
    return {"name": name, **({"group": kind.type.group} if kind.type.group else {}), "kind": kind.plural}


def not_found(kind: ServedKind, name: str) -> StatusError:
    """404: the object is not there."""
    return StatusError("NotFound", f'{kind.resource} "{name}" not found', details=_details(kind, name))


def not_served() -> StatusError:
    """404 without a name: nothing is served at that path."""
    return StatusError("NotFound", "the server could not find the requested resource")


def already_exists(kind: ServedKind, name: str, *, terminating: bool = False) -> StatusError:
    """409: the name is taken."""
    hint = "object is being deleted: " if terminating else ""
    return StatusError("AlreadyExists", f'{hint}{kind.resource} "{name}" already exists', details=_details(kind, name))


def conflict(kind: ServedKind, name: str, why: str, *, of_delete: bool = False) -> StatusError:
    """409: a precondition does not hold. A delete names the kind where an update names the resource."""
    message = f'Operation cannot be fulfilled on {kind.full_kind if of_delete else kind.resource} "{name}": {why}'
    spelled = {"kind": kind.kind} if of_delete else {}
    return StatusError("Conflict", message, details={**_details(kind, name), **spelled})


def stale(kind: ServedKind, name: str) -> StatusError:
    """409: another resource version."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(kind, name, why)


def invalid(kind: ServedKind, name: str, field: str, why: str, *, cause: str = "FieldValueInvalid") -> StatusError:
    """422: a field is refused."""
    causes = [{"reason": cause, "message": why, "field": field}]
    details = {**_details(kind, name), "kind": kind.kind, "causes": causes}
    return StatusError("Invalid", f'{kind.full_kind} "{name}" is invalid: {field}: {why}', details=details)


def forbidden_in_terminating(kind: ServedKind, namespace: str, name: str) -> StatusError:
    """403: the namespace is terminating."""
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    message = f"namespace {namespace} is being terminated"
    causes = [{"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}]
    message = f'{kind.resource} "{name}" is forbidden: {why}'
    return StatusError("Forbidden", message, details={**_details(kind, name), "causes": causes})


def bad_request(message: str) -> StatusError:
    """400."""
    return StatusError("BadRequest", message)


def expired(message: str, *, continue_token: str = "") -> StatusError:
    """410: the version or the token is too old."""
    return StatusError("Expired", message, continue_token=continue_token)


def unparsable(version: str) -> StatusError:
    """500 without a reason, as a real server has it: a resource version that is no number."""
    return StatusError("", f'strconv.ParseUint: parsing "{version}": invalid syntax', code=500)
