"""The shield: the admission policy with which the API server itself keeps the garbage collector off.

A finalizer holds an owner; it does not hold the collector off the owner's dependents: a foreground deletion and an
owner that is absent let it delete at once. The policy denies a DELETE when the requester is the collector *and* the
object names an owner of a protected kind. Nothing is written on dependents, and no webhook has to stay alive.

Guarantee: people, controllers and reprieve itself, who delete by name, are not affected, nor is what no protected kind
owns; a group counts in any of its versions; an error of the evaluation denies (``failurePolicy: Fail``), which again
touches the collector alone. Not guaranteed: anything on a cluster older than 1.30, which does not serve such policies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from attrs import frozen

from reprieve.core.objects import ObjectKind

SHIELD_NAME = "reprieve-shield"
COLLECTORS = ("system:serviceaccount:kube-system:generic-garbage-collector", "system:kube-controller-manager")
NAMESPACE_CONTROLLER = "system:serviceaccount:kube-system:namespace-controller"
OLDEST = (1, 30)
_API = "admissionregistration.k8s.io/v1"
_VERSION = re.compile(r"v?(\d+)\.(\d+)")


@frozen
class ShieldedKind:
    """A protected owner kind, and against whom: the collector, the namespace controller, both, or nobody."""

    owner: ObjectKind
    collector: bool = True
    namespaces: bool = False


def shield_manifests(kinds: Iterable[ShieldedKind]) -> tuple[dict[str, Any], ...]:
    """The ValidatingAdmissionPolicy and its binding, as manifests; nothing when no kind asks for a shield."""
    asked = list(kinds)
    by_collector = _Guard(COLLECTORS, _pairs(each.owner for each in asked if each.collector))
    by_namespace = _Guard((NAMESPACE_CONTROLLER,), _pairs(each.owner for each in asked if each.namespaces))
    if by_collector.kinds == by_namespace.kinds:
        guards = [_Guard((*COLLECTORS, NAMESPACE_CONTROLLER), by_collector.kinds)]
    else:
        guards = [by_collector, by_namespace]
    needed = [guard for guard in guards if guard.kinds]
    return policy_and_binding(SHIELD_NAME, _spec(needed)) if needed else ()


def policy_and_binding(name: str, spec: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """The manifests of a ValidatingAdmissionPolicy and of the binding of the same name that makes it deny."""
    metadata = {"name": name, "labels": {"app.kubernetes.io/managed-by": "reprieve"}}
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return (
        {"apiVersion": _API, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec},
        {"apiVersion": _API, "kind": "ValidatingAdmissionPolicyBinding", "metadata": dict(metadata), "spec": binding},
    )


@frozen
class _Guard:
    """Requesters that may not delete what these kinds (group and kind) own."""

    requesters: tuple[str, ...]
    kinds: tuple[tuple[str, str], ...]


def _pairs(owners: Iterable[ObjectKind]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({(owner.group, owner.kind) for owner in owners}))


def _spec(guards: list[_Guard]) -> dict[str, Any]:
    requesters = [each for guard in guards for each in guard.requesters]
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["DELETE"], "resources": ["*"], "scope": "*"}
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": [rule]},
        "matchConditions": [{"name": "requester", "expression": _requester(requesters)}],
        "validations": [_validation(guard, alone=len(guards) == 1) for guard in guards],
    }


def _validation(guard: _Guard, *, alone: bool) -> dict[str, str]:
    """Allowed is what names no owner of the guarded kinds; beside another guard, also all that others ask."""
    named = ", ".join(f"{kind}.{group}" if group else kind for group, kind in guard.kinds)
    others = "" if alone else f"!({_requester(guard.requesters)}) || "
    unowned = "!has(oldObject.metadata) || !has(oldObject.metadata.ownerReferences)"
    kinds = " || ".join(names_kind("r", *kind) for kind in guard.kinds)
    return {
        "expression": f"{others}{unowned} || !oldObject.metadata.ownerReferences.exists(r, {kinds})",
        "reason": "Forbidden",
        "message": f"reprieve's shield: an owner of a protected kind ({named}) is not to take its dependents along",
        "messageExpression": _message_expression(named),
    }


def _requester(names: Iterable[str]) -> str:
    return f"request.userInfo.username in {cel_text(list(names))}"


def names_kind(reference: str, group: str, kind: str) -> str:
    """Whether an owner reference names this kind, in any version of its group (the core group's have no slash)."""
    api_version = f"{reference}.apiVersion"
    version = f"{api_version}.startsWith({cel_text(group + '/')})" if group else f'!{api_version}.contains("/")'
    return f"({reference}.kind == {cel_text(kind)} && {version})"


def _message_expression(named: str) -> str:
    """One line that names the object, the requester and the way out."""
    before = "reprieve's shield: "
    after = (
        f" may not delete this, because it refers to an owner of a protected kind ({named}). Delete it by name, take "
        "the owner reference off, or ask for the owner's deletion with reprieve request-deletion; to switch the shield "
        f"off, delete the ValidatingAdmissionPolicyBinding {SHIELD_NAME}"
    )
    place = '(has(oldObject.metadata.namespace) ? oldObject.metadata.namespace + "/" : "")'
    thing = f'request.kind.kind + " " + {place} + oldObject.metadata.name'
    return f'{cel_text(before)} + {thing} + ": " + request.userInfo.username + {cel_text(after)}'


def cel_text(value: object) -> str:
    """A CEL literal: JSON's strings and lists are CEL's as well."""
    return json.dumps(value)


# Which clusters can have it


@frozen
class Supported:
    """The cluster serves such policies."""


@frozen
class TooOld:
    """The cluster is older than 1.30; the message says what that means and the way out."""

    message: str


@frozen
class VersionUnreadable:
    """The cluster's version is not understood; whether it has such policies is not known."""

    message: str


def check_version(version: str) -> Supported | TooOld | VersionUnreadable:
    """Whether a cluster of this version (``v1.31.2``, ``v1.30.4-gke.1``, ``1.29``) can have the shield."""
    found = _VERSION.match(version)
    if found is None:
        return VersionUnreadable(
            f"the cluster's version {version!r} is not understood: the shield needs Kubernetes 1.30 or newer"
        )
    if (int(found[1]), int(found[2])) < OLDEST:
        return TooOld(
            f"the cluster runs Kubernetes {version}; the shield, a ValidatingAdmissionPolicy, needs 1.30 or newer. "
            "Without it a foreground deletion, or an owner that is lost, can take dependents: upgrade the cluster, or "
            "delete owners with background or orphan propagation only"
        )
    return Supported()
