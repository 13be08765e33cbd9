"""What the store gives and asks: pages, changes, watch events, and the requests that admission hooks judge.

Guarantee: the values are immutable, the objects in them are shared and must never be changed in place.
Not guaranteed: that a hook sees defaults that a real server would have set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from reprieve.adapters.local.status import AdmissionDenied, Json, ServedKind
from reprieve.core.objects import ObjectKind


@frozen
class Page:
    """Part of a list: items in order of namespace and name, and the version of the *whole* list."""

    items: tuple[Json, ...]
    resource_version: str
    continue_token: str = ""  # empty: that was all
    remaining: int | None = None  # None: nothing left, or unknown (a selector was given)


@frozen
class Change:
    """One committed write.

    ``old`` is None for a creation, ``new`` for a removal; ``last`` is the state that a watch shows.
    """

    version: int
    type: ObjectKind
    namespace: str
    name: str
    old: Json | None
    new: Json | None
    last: Json


@frozen
class WatchItem:
    """A watch event: ADDED, MODIFIED, DELETED, or BOOKMARK, whose object has only its kind and a resourceVersion."""

    type: str
    object: Json


@frozen
class Deleted:
    """What a delete came to: the object's last (or current) state, and whether it is gone or waits for finalizers."""

    object: Json
    gone: bool = field(kw_only=True)


@frozen
class AdmissionRequest:
    """A write about to be made, for admission hooks.

    ``operation``: CREATE, UPDATE, DELETE; ``object`` is None for DELETE.

    ``options`` are the request's (``propagationPolicy``, ``preconditions``, ``dryRun``) under Kubernetes' names.
    """

    operation: str
    user: str
    kind: ServedKind
    namespace: str
    name: str
    subresource: str
    object: Json | None
    old: Json | None
    options: Mapping[str, Any]


Admission = Callable[[AdmissionRequest], None]
"""Asked before each write; denies by raising ``denial(...)`` (or any ``StatusError``)."""


def denial(
    request: AdmissionRequest,
    message: str,
    *,
    policy: str = "policy",
    binding: str = "binding",
    reason: str = "Invalid",
) -> AdmissionDenied:
    """The error of a ValidatingAdmissionPolicy that refuses.

    Reason ``Invalid`` (the default) is 422, ``Forbidden`` 403.
    """
    text_ = f"ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}"
    full = f'{request.kind.resource} "{request.name}" is forbidden: {text_}'
    group = {"group": request.kind.type.group} if request.kind.type.group else {}
    details = {"name": request.name, **group, "kind": request.kind.plural, "causes": [{"message": text_}]}
    return AdmissionDenied(reason, full, details=details)
