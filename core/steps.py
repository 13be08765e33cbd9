"""Steps: one effect each, as data. Core plans them, entrypoints carry them out, and the plan shows them.

Guarantee: a step names all that its effect needs, down to the UID; it holds no connection and no secret.
Not guaranteed: that a step is still right when it is carried out; preconditions (UID, resource version) see to that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from attrs import field, frozen

from reprieve.core.backups import NewRequest
from reprieve.core.objects import ObjectRef, OwnerReference, owner_to_json
from reprieve.core.outcomes import Outcome
from reprieve.core.values import FrozenMap, as_tuple, string_map, to_plain

DELETION_REQUESTED = "reprieve.dev/deletion-requested"
ORPHANED_FROM = "reprieve.dev/orphaned-from"


@frozen
class DeleteSnapshot:
    """Delete one native snapshot of a cloud. ``location`` names the snapshot location: region and credential."""

    provider: str
    id: str
    location: str


@frozen
class DeleteRestore:
    """Delete a restore's files (all keys under ``prefix``), and then its object."""

    ref: ObjectRef
    location: str
    prefix: str


@frozen
class DeleteFiles:
    """Delete all keys under ``prefix`` (relative to the location's own prefix) but the one to ``spare``."""

    location: str
    prefix: str
    spare: str


@frozen
class DeleteFile:
    """Delete one key, in a call of its own."""

    location: str
    key: str


@frozen
class DeleteObject:
    """Delete one Kubernetes object by name and UID, with background propagation.

    With ``resource_version``, only as it was when that was decided: a hold that came in between makes it a conflict.
    """

    ref: ObjectRef
    resource_version: str = ""


@frozen
class EndRequest:
    """Delete one deletion request that has done its work."""

    ref: ObjectRef


@frozen
class AddFinalizer:
    """Put our finalizer on an owner; ``finalizers`` is the whole list as it is to be."""

    ref: ObjectRef
    resource_version: str
    finalizers: tuple[str, ...] = field(converter=as_tuple)


@frozen
class RemoveFinalizer:
    """Take our finalizer off an owner: it may go; ``finalizers`` are those of other parties, which stay."""

    ref: ObjectRef
    resource_version: str
    finalizers: tuple[str, ...] = field(default=(), converter=as_tuple)


@frozen
class RemoveOwnerReference:
    """Take the references to one owner off a dependent; ``remaining`` are those of other owners, which stay.

    ``orphaned_from`` is recorded in the same patch when it is not empty; with ``forget`` the record there is taken off.
    """

    ref: ObjectRef
    resource_version: str
    owner_uid: str
    remaining: tuple[OwnerReference, ...] = field(default=(), converter=as_tuple)
    orphaned_from: str = ""
    forget: bool = False


@frozen
class MarkOwner:
    """Ask for an owner's deletion: the request annotation, with the owner's own UID as its value."""

    ref: ObjectRef
    resource_version: str


@frozen
class UnmarkOwner:
    """Take the request for an owner's deletion back."""

    ref: ObjectRef
    resource_version: str


@frozen
class ChangeMetadata:
    """Set and take off labels and annotations of one object, all in one patch; what is not named stays."""

    ref: ObjectRef
    resource_version: str
    labels: FrozenMap[str, str] = field(factory=FrozenMap, converter=string_map)
    annotations: FrozenMap[str, str] = field(factory=FrozenMap, converter=string_map)
    without_labels: tuple[str, ...] = field(default=(), converter=as_tuple)
    without_annotations: tuple[str, ...] = field(default=(), converter=as_tuple)


@frozen
class CreateRequest:
    """Create a deletion request, under a generated name."""

    request: NewRequest


@frozen
class CreateRecord:
    """Create the object of a record that lies in a bucket. ``ref`` has no UID: the API server gives it one."""

    ref: ObjectRef
    manifest: Mapping[str, Any] = field(hash=False)


@frozen
class WriteHoldFile:
    """Mirror a backup's hold beside its files, as a whole."""

    location: str
    key: str
    content: str


Patch = AddFinalizer | RemoveFinalizer | RemoveOwnerReference | MarkOwner | UnmarkOwner | ChangeMetadata
Creation = CreateRequest | CreateRecord | WriteHoldFile
Step = DeleteSnapshot | DeleteRestore | DeleteFiles | DeleteFile | DeleteObject | EndRequest | Patch | Creation


@frozen
class StepResult:
    """A step and what it came to.

    ``intact`` is for steps of many parts (``DeleteFiles``, ``DeleteRestore``) that failed: every part is known to be
    there still. Without it, some of them count as gone.
    """

    step: Step
    outcome: Outcome
    intact: bool = False


def describe(step: Step) -> str:
    """Name the thing that a step works on, as Velero's messages do: ``snapshot snap-1``, ``backup velero/nightly``."""
    match step:
        case DeleteSnapshot(id=snapshot):
            return f"snapshot {snapshot}"
        case (
            DeleteRestore(ref=ref)
            | DeleteObject(ref=ref)
            | EndRequest(ref=ref)
            | AddFinalizer(ref=ref)
            | RemoveFinalizer(ref=ref)
            | RemoveOwnerReference(ref=ref)
            | MarkOwner(ref=ref)
            | UnmarkOwner(ref=ref)
            | ChangeMetadata(ref=ref)
            | CreateRecord(ref=ref)
        ):
            return f"{ref.kind.lower()} {ref.key}"
        case DeleteFiles(prefix=prefix):
            return f"backup files under {prefix}"
        case DeleteFile(key=key):
            return f"backup file {key}"
        case CreateRequest(request=request):
            return f"deletion request for backup {request.namespace}/{request.backup}"
        case WriteHoldFile(key=key):
            return f"hold file {key}"
        case _:
            assert_never(step)


def merge_patch(step: Patch) -> dict[str, Any]:
    """Write a patching step as a merge patch (RFC 7386); its UID and resource version are the preconditions to send."""
    match step:
        case AddFinalizer(finalizers=finalizers) | RemoveFinalizer(finalizers=finalizers):
            return {"metadata": {"finalizers": list(finalizers) or None}}
        case RemoveOwnerReference(remaining=remaining):
            owners = [owner_to_json(owner) for owner in remaining] or None
            return {"metadata": {"ownerReferences": owners, **_record_patch(step)}}
        case MarkOwner(ref=ref):
            return {"metadata": {"annotations": {DELETION_REQUESTED: ref.uid}}}
        case UnmarkOwner():
            return {"metadata": {"annotations": {DELETION_REQUESTED: None}}}
        case ChangeMetadata():
            return {"metadata": _metadata_patch(step)}
        case _:
            assert_never(step)


def _metadata_patch(step: ChangeMetadata) -> dict[str, Any]:
    parts = {
        "labels": {**step.labels, **dict.fromkeys(step.without_labels)},
        "annotations": {**step.annotations, **dict.fromkeys(step.without_annotations)},
    }
    return {name: part for name, part in parts.items() if part}


def _record_patch(step: RemoveOwnerReference) -> dict[str, Any]:
    if step.orphaned_from:
        return {"annotations": {ORPHANED_FROM: step.orphaned_from}}
    return {"annotations": {ORPHANED_FROM: None}} if step.forget else {}


def step_to_json(step: Step) -> dict[str, Any]:
    """Write a step for machines: its name under ``step``, then its fields."""
    plain = {_camel(key): value for key, value in to_plain(step).items() if key != "type"}
    refs: dict[str, Any] = {"ref": _ref_to_json(step.ref)} if hasattr(step, "ref") else {}
    if isinstance(step, RemoveOwnerReference):
        refs["remaining"] = [owner_to_json(owner) for owner in step.remaining]
    if isinstance(step, CreateRequest):
        plain["request"].pop("type")
    if not plain.get("resourceVersion", ""):
        plain.pop("resourceVersion", None)
    return {"step": type(step).__name__, **plain, **refs}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _ref_to_json(ref: ObjectRef) -> dict[str, str]:
    named = {
        "apiVersion": ref.api_version,
        "kind": ref.kind,
        "namespace": ref.namespace,
        "name": ref.name,
        "uid": ref.uid,
    }
    return {key: value for key, value in named.items() if value}
