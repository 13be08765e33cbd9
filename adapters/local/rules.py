"""What the API server asks of an object's metadata, and what it fills in.

Names, labels, finalizers, owner references, generation.

Guarantee: what a real server refuses for every kind alike is refused here, with its code.
Not guaranteed: rules of single kinds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from reprieve.adapters.local.selectors import is_label_key, is_label_value
from reprieve.adapters.local.status import Json, ServedKind, bad_request, conflict, invalid, stale, unparsable
from reprieve.core.objects import NAME_LIMIT, ObjectKind, is_object_name

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_STANDARD = frozenset({ORPHAN, FOREGROUND, "kubernetes"})
_OWNER_FIELDS = ("apiVersion", "kind", "name", "uid")
_WITHOUT_GENERATION = frozenset(
    {
        ("", "ConfigMap"),
        ("", "Secret"),
        ("", "Event"),
        ("", "Namespace"),
        ("", "ServiceAccount"),
        ("coordination.k8s.io", "Lease"),
    }
)


def metadata(obj: Mapping[str, Any]) -> Json:
    """The object's metadata, a dict. Raises 400 when it is none."""
    meta = obj.get("metadata")
    if not isinstance(meta, dict):
        raise bad_request("metadata: must be an object")
    return meta


def finalizers(obj: Mapping[str, Any]) -> list[str]:
    """The object's finalizers."""
    found = metadata(obj).get("finalizers")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def owners(obj: Mapping[str, Any]) -> list[Json]:
    """The object's owner references, those that have a UID."""
    found = metadata(obj).get("ownerReferences")
    listed = [owner for owner in found if isinstance(owner, dict)] if isinstance(found, list) else []
    return [owner for owner in listed if isinstance(owner.get("uid"), str)]


def terminating(obj: Mapping[str, Any]) -> bool:
    """Whether the object's deletion was accepted."""
    return bool(metadata(obj).get("deletionTimestamp"))


def check(kind: ServedKind, obj: Json) -> None:
    """Check an object as a whole, and drop metadata fields that are empty. Raises 400 or 422."""
    meta = metadata(obj)
    for field in [name for name, value in meta.items() if value in (None, "", [], {})]:
        del meta[field]
    check_name(kind, meta.get("name", ""))
    _check_maps(kind, meta)
    _check_finalizers(kind, meta)
    _check_owners(kind, meta)


def check_name(kind: ServedKind, name: object) -> None:
    """Check a name: a DNS-1123 subdomain, for RBAC's kinds any path segment, for namespaces a label.

    Raises 400 or 422.
    """
    if not isinstance(name, str):
        raise bad_request("metadata.name: must be a string")
    if not name:
        raise invalid(
            kind, "", "metadata.name", "Required value: name or generateName is required", cause="FieldValueRequired"
        )
    if not _name_fits(kind, name):
        raise invalid(
            kind, name, "metadata.name", f'Invalid value: "{name}": a lowercase RFC 1123 subdomain is required'
        )


def _name_fits(kind: ServedKind, name: str) -> bool:
    if kind.type.group == "rbac.authorization.k8s.io":
        return name not in {".", ".."} and "/" not in name and "%" not in name and len(name) <= NAME_LIMIT
    if kind.type == ObjectKind("v1", "Namespace"):
        return _NAMESPACE.fullmatch(name) is not None
    return is_object_name(name)


def _check_maps(kind: ServedKind, meta: Json) -> None:
    for field in ("labels", "annotations"):
        entries = meta.get(field, {})
        if not isinstance(entries, dict) or not all(isinstance(value, str) for value in entries.values()):
            raise bad_request(f"metadata.{field}: must be an object with strings as values")
        for key in entries:
            if not is_label_key(key if field == "labels" else key.lower()):
                raise invalid(
                    kind,
                    meta["name"],
                    f"metadata.{field}",
                    f'Invalid value: "{key}": name part must be a qualified name',
                )
    for value in meta.get("labels", {}).values():
        if not is_label_value(value):
            raise invalid(
                kind,
                meta["name"],
                "metadata.labels",
                f'Invalid value: "{value}": must be no more than 63 characters of a label value',
            )


def _check_finalizers(kind: ServedKind, meta: Json) -> None:
    listed = meta.get("finalizers", [])
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise bad_request("metadata.finalizers: must be a list of strings")
    for name in listed:
        if not is_label_key(name) or not (kind.custom or "/" in name or name in _STANDARD):
            raise invalid(
                kind,
                meta["name"],
                "metadata.finalizers",
                f'Invalid value: "{name}": name part must be a qualified name',
            )
    if ORPHAN in listed and FOREGROUND in listed:
        raise invalid(
            kind, meta["name"], "metadata.finalizers", "Invalid value: orphan and foregroundDeletion cannot both be set"
        )


def _check_owners(kind: ServedKind, meta: Json) -> None:
    listed = meta.get("ownerReferences", [])
    if not isinstance(listed, list) or not all(isinstance(owner, dict) for owner in listed):
        raise bad_request("metadata.ownerReferences: must be a list of objects")
    for index, owner in enumerate(listed):
        for field in _OWNER_FIELDS:
            if not isinstance(owner.get(field), str) or not owner[field]:
                where, why = f"metadata.ownerReferences[{index}].{field}", "Required value: must not be empty"
                raise invalid(kind, meta["name"], where, why, cause="FieldValueRequired")
    if sum(owner.get("controller") is True for owner in listed) > 1:
        raise invalid(
            kind,
            meta["name"],
            "metadata.ownerReferences",
            "Invalid value: only one reference can have controller set to true",
        )


def check_new_finalizers(kind: ServedKind, old: Json, new: Json) -> None:
    """Refuse (422) finalizers that are added to a terminating object."""
    added = [name for name in finalizers(new) if name not in finalizers(old)]
    if terminating(old) and added:
        quoted = ", ".join(f'"{name}"' for name in added)
        why = (
            "Forbidden: no new finalizers can be added if the object is being deleted, "
            f"found new finalizers []string{{{quoted}}}"
        )
        raise invalid(kind, metadata(old)["name"], "metadata.finalizers", why, cause="FieldValueForbidden")


def check_update(kind: ServedKind, old: Json, new: Json, *, put: bool) -> None:
    """Check a new state's resource version (409), then its UID (409 for a PUT.

    422 for a patch) and immutable fields.
    """
    before, after = metadata(old), metadata(new)
    name, uid, version = before["name"], after.get("uid"), after.get("resourceVersion")
    if version and version != before["resourceVersion"]:
        raise stale(kind, name) if str(version).isdecimal() else unparsable(str(version))
    if uid and uid != before["uid"] and put:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {before['uid']}"
        raise conflict(kind, name, why)
    for field in ("uid", "deletionTimestamp"):
        if after.get(field) not in (None, "", before.get(field)):
            why = f'Invalid value: "{after[field]}": field is immutable'
            raise invalid(kind, name, f"metadata.{field}", why)


def check_delete(kind: ServedKind, old: Json, *, uid: str, resource_version: str) -> None:
    """Check the preconditions of a delete (409); empty ones ask for nothing."""
    meta = metadata(old)
    if uid and uid != meta["uid"]:
        why = f"the UID in the precondition ({uid}) does not match the UID in record ({meta['uid']})"
        hint = "The object might have been deleted and then recreated"
        raise conflict(kind, meta["name"], f"{why}. {hint}", of_delete=True)
    if resource_version and resource_version != meta["resourceVersion"]:
        record = f"does not match the ResourceVersion in record ({meta['resourceVersion']})"
        why = f"the ResourceVersion in the precondition ({resource_version}) {record}"
        raise conflict(kind, meta["name"], f"{why}. The object might have been modified", of_delete=True)


def has_generation(kind: ServedKind) -> bool:
    """Whether objects of a kind carry a generation (a few of the core group do not)."""
    return (kind.type.group, kind.kind) not in _WITHOUT_GENERATION


def generation(kind: ServedKind, old: Json, new: Json) -> int:
    """The generation after a write: one more when something outside metadata (and a status subresource) changed."""
    ignored = {"metadata", "apiVersion", "kind"} | ({"status"} if kind.status else set())
    before = {key: value for key, value in old.items() if key not in ignored}
    after = {key: value for key, value in new.items() if key not in ignored}
    current = int(metadata(old).get("generation") or 0)
    return current + (before != after) if has_generation(kind) else current


def delete_finalizers(listed: list[str], propagation: str) -> list[str]:
    """The finalizers of an object once it is deleted with a propagation policy.

    An empty policy leaves them (source: the API server's store).
    """
    if not propagation:
        return listed
    wanted = {"Orphan": [ORPHAN], "Foreground": [FOREGROUND]}.get(propagation, [])
    kept = [name for name in listed if name not in {ORPHAN, FOREGROUND} or name in wanted]
    return kept + [name for name in wanted if name not in kept]
