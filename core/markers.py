"""The markers' policy: whoever may only patch an object cannot have it deleted through annotations of ours.

To Kubernetes ``patch`` and ``delete`` are two rights. To reprieve an annotation is a request: a marker asks for a
deletion, and a hold that is taken off lets one go on. So whoever may patch may delete, unless the API server itself
asks. The policy lets those write ``reprieve.dev/`` annotations, take off or weaken a hold, and take off a finalizer of
ours who may delete the object (CEL ``authorizer``); everybody who may patch may put a hold on.

It looks at objects of the kinds that it is told (protected owners, their dependents, backups, deletion requests), and,
whatever their kind, at objects that refer to a protected owner or were orphaned from one.

Guarantee: a request that leaves all of that as it is, is not looked at any further; an error of the evaluation denies
(``failurePolicy: Fail``), and only what has something of ours on it can come to one. Status and other subresources are
looked at like the object, since some kinds take annotations through them. Not guaranteed: what leads to a deletion
without an annotation of ours: an owner reference (Kubernetes' own plugin OwnerReferencesPermissionEnforcement guards
those), a backup's expiration, and the creation of a deletion request (``requests_manifests`` guards that).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reprieve.core.holds import HOLD, HOLD_UNTIL
from reprieve.core.objects import ObjectKind
from reprieve.core.shield import cel_text, names_kind, policy_and_binding
from reprieve.core.steps import ORPHANED_FROM

MARKERS_NAME = "reprieve-markers"
REQUESTS_NAME = "reprieve-requests"
PREFIX = "reprieve.dev/"
_BINDING = ObjectKind("v1", "Binding")
_POD = ("", "Pod")


def markers_manifests(
    *, owners: Iterable[ObjectKind], others: Iterable[ObjectKind], accounts: Iterable[str] = ()
) -> tuple[dict[str, Any], ...]:
    """The policy and its binding: for protected owners, for other kinds, and not for these accounts (reprieve's own).

    Nothing when there is no kind. A group counts in any of its versions.
    """
    protected = sorted({(each.group, each.kind) for each in owners})
    kinds = sorted({*protected, *((each.group, each.kind) for each in others)})
    if not kinds:
        return ()
    if _POD in kinds:  # a pod takes the annotations of its binding
        kinds.append((_BINDING.group, _BINDING.kind))
    conditions = {"account": _not_ours(accounts), "ours": _something_of_ours(), "guarded": _guarded(kinds, protected)}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": _every_write(["*"], ["*/*"]),
        "matchConditions": [{"name": name, "expression": each} for name, each in conditions.items()],
        "variables": [{"name": name, "expression": each} for name, each in _variables().items()],
        "validations": [
            _validation(_writes_ours(), f"write its {PREFIX} annotations"),
            _validation(_weakens_hold(), "take off or weaken its hold (it may put one on)"),
            _validation(_takes_finalizer(), "take off reprieve's finalizer"),
        ],
    }
    return policy_and_binding(MARKERS_NAME, spec)


def requests_manifests(request_kind: ObjectKind, *, accounts: Iterable[str] = ()) -> tuple[dict[str, Any], ...]:
    """The policy and its binding that let only those file a deletion request who may delete the backup that it names.

    Without a name, only those who may delete every backup of the namespace. ``request_kind`` is Velero's or Ark's.
    """
    named = 'has(object.spec) && has(object.spec.backupName) ? object.spec.backupName : ""'
    before = 'request.operation == "UPDATE" && has(oldObject.spec) && has(oldObject.spec.backupName)'
    may = 'namespace(request.namespace).name(variables.backup).check("delete").allowed()'
    after = f" may not delete it, and so may not file a request for it. {_way_out(REQUESTS_NAME)}"
    said = f'{cel_text("reprieve: backup ")} + variables.backup + ": " + request.userInfo.username + {cel_text(after)}'
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": _every_write([request_kind.group], ["deletebackuprequests"]),
        "matchConditions": [{"name": "account", "expression": _not_ours(accounts)}],
        "variables": [
            {"name": "backup", "expression": named},
            {"name": "same", "expression": f"{before} && oldObject.spec.backupName == variables.backup"},
        ],
        "validations": [
            {
                "expression": (
                    f'variables.same || authorizer.group({cel_text(request_kind.group)}).resource("backups").{may}'
                ),
                "reason": "Forbidden",
                "message": "reprieve: a deletion request is filed by whoever may delete the backup that it names",
                "messageExpression": said,
            }
        ],
    }
    return policy_and_binding(REQUESTS_NAME, spec)


def _every_write(groups: list[str], resources: list[str]) -> dict[str, Any]:
    rule = {
        "apiGroups": groups,
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": resources,
        "scope": "*",
    }
    return {"matchPolicy": "Equivalent", "resourceRules": [rule]}


def _way_out(binding: str) -> str:
    return f"Ask somebody who may; to switch this off, delete the ValidatingAdmissionPolicyBinding {binding}"


# Whether a request is looked at. Each of these holds for every object, whatever parts it lacks: none may be an error.


def _not_ours(accounts: Iterable[str]) -> str:
    return f"!(request.userInfo.username in {cel_text(sorted(accounts))})"


def _has(thing: str, field: str) -> str:
    """Whether the object before or after the write is there and has a field of metadata."""
    there = 'request.operation == "UPDATE" && ' if thing == "oldObject" else ""
    return f"{there}has({thing}.metadata) && has({thing}.metadata.{field})"


def _any(thing: str, field: str, truth: str) -> str:
    return f"({_has(thing, field)} && {thing}.metadata.{field}.exists(k, {truth}))"


def _something_of_ours() -> str:
    ours = f"k.startsWith({cel_text(PREFIX)})"
    parts = [(thing, field) for thing in ("object", "oldObject") for field in ("annotations", "finalizers")]
    return " || ".join(_any(thing, field, ours) for thing, field in parts)


def _guarded(kinds: list[tuple[str, str]], protected: list[tuple[str, str]]) -> str:
    """One of the kinds; or it refers, or referred, to an owner of a protected kind; or it was orphaned from one."""
    named = cel_text([f"{group}/{kind}" for group, kind in kinds])
    orphaned = f"({_has('oldObject', 'annotations')} && {cel_text(ORPHANED_FROM)} in oldObject.metadata.annotations)"
    owned = " || ".join(names_kind("k", *kind) for kind in protected)
    parts = [f"(request.kind.group + {cel_text('/')} + request.kind.kind) in {named}", orphaned]
    parts += [_any(thing, "ownerReferences", owned) for thing in ("oldObject", "object") if owned]
    return " || ".join(parts)


# What it may not do


def _variables() -> dict[str, str]:
    """``may``: whether the requester may delete the object (one that is to be made, by the name that it will have)."""
    name = 'has(object.metadata.name) ? object.metadata.name : ""'
    return {
        "before": f"{_has('oldObject', 'annotations')} ? oldObject.metadata.annotations : {{}}",
        "after": f"{_has('object', 'annotations')} ? object.metadata.annotations : {{}}",
        "held": f"{_has('oldObject', 'finalizers')} ? oldObject.metadata.finalizers : []",
        "holds": f"{_has('object', 'finalizers')} ? object.metadata.finalizers : []",
        "place": 'has(request.namespace) ? request.namespace : ""',
        "name": f'request.operation == "UPDATE" ? oldObject.metadata.name : ({name})',
        "may": (
            "authorizer.group(request.resource.group).resource(request.resource.resource)"
            '.namespace(variables.place).name(variables.name).check("delete").allowed()'
        ),
    }


def _writes_ours() -> str:
    """Sets, changes or takes off an annotation of ours; holds apart, which may be put on."""
    ours = f"k.startsWith({cel_text(PREFIX)}) && !(k in {cel_text([HOLD, HOLD_UNTIL])})"
    same = "k in variables.before && variables.before[k] == variables.after[k]"
    set_or_changed = f"variables.after.exists(k, {ours} && !({same}))"
    return f"{set_or_changed} || variables.before.exists(k, {ours} && !(k in variables.after))"


def _weakens_hold() -> str:
    """There was a hold, and what is left is none, or one that has an end it had not before.

    A hold is either annotation, and ends only by its date (``reprieve.core.holds``). So the reason may change, and the
    date may go while the reason stays; any other change of the date counts as weaker, since CEL need not read dates.
    """
    hold, until = cel_text(HOLD), cel_text(HOLD_UNTIL)
    before, after = (f"({hold} in variables.{each} || {until} in variables.{each})" for each in ("before", "after"))
    same = f"{until} in variables.before && variables.before[{until}] == variables.after[{until}]"
    return f"{before} && !({after} && (!({until} in variables.after) || ({same})))"


def _takes_finalizer() -> str:
    return f"variables.held.exists(k, k.startsWith({cel_text(PREFIX)}) && !(k in variables.holds))"


def _validation(done: str, deed: str) -> dict[str, str]:
    """Whoever does this has to be able to delete the object; who does not is not asked about.

    The message names the object, the requester, the deed, and the way out.
    """
    what = f"may not delete this, and so may not {deed}. {_way_out(MARKERS_NAME)}"
    place = '(has(request.namespace) ? request.namespace + "/" : "")'
    thing = f'request.kind.kind + " " + {place} + (has(object.metadata.name) ? object.metadata.name : "")'
    return {
        "expression": f"!({done}) || variables.may",
        "reason": "Forbidden",
        "message": f"reprieve: whoever may not delete an object may not {deed}",
        "messageExpression": (
            f'{cel_text("reprieve: ")} + {thing} + ": " + request.userInfo.username + {cel_text(" " + what)}'
        ),
    }
