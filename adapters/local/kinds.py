"""Which kinds are cluster-scoped, what a kind's plural is, and what a CustomResourceDefinition serves.

Guarantee: for the kinds of Kubernetes itself, of Velero, Ark and Faros the answers are right.
Not guaranteed: a guess for other kinds (namespaced, plural by English rules) that no CRD and no object corrects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from reprieve.adapters.local.status import ServedKind
from reprieve.core.objects import ObjectKind, mapping, text

_NAMESPACED_GROUPS = frozenset({"", "apps", "batch", "autoscaling", "policy", "velero.io", "ark.heptio.com"})
_CLUSTER_SCOPED = {
    "": {"Namespace", "Node", "PersistentVolume", "ComponentStatus"},
    "admissionregistration.k8s.io": {
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    },
    "apiextensions.k8s.io": {"CustomResourceDefinition"},
    "apiregistration.k8s.io": {"APIService"},
    "certificates.k8s.io": {"CertificateSigningRequest", "ClusterTrustBundle"},
    "faros.pusher.com": {"ClusterGitTrack", "ClusterGitTrackObject"},
    "flowcontrol.apiserver.k8s.io": {"FlowSchema", "PriorityLevelConfiguration"},
    "networking.k8s.io": {"IngressClass", "IPAddress", "ServiceCIDR"},
    "node.k8s.io": {"RuntimeClass"},
    "rbac.authorization.k8s.io": {"ClusterRole", "ClusterRoleBinding"},
    "scheduling.k8s.io": {"PriorityClass"},
    "snapshot.storage.k8s.io": {"VolumeSnapshotClass", "VolumeSnapshotContent"},
    "storage.k8s.io": {"CSIDriver", "CSINode", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"},
}
_KNOWN_GROUPS = _NAMESPACED_GROUPS | _CLUSTER_SCOPED.keys()
_IRREGULAR = {"Endpoints": "endpoints", "ServiceCIDR": "servicecidrs"}
CRD = "CustomResourceDefinition"


def plural_of(kind: str) -> str:
    """The plural that a kind most likely has in paths: lower case, English rules."""
    low = kind.lower()
    if kind in _IRREGULAR:
        return _IRREGULAR[kind]
    if low.endswith(("s", "x", "z", "ch", "sh")):
        return low + "es"
    return low[:-1] + "ies" if low.endswith("y") and low[-2:-1] not in set("aeiou") else low + "s"


@cache
def known(kind: ObjectKind) -> ServedKind | None:
    """How a kind of a group that is known here is served; None for every other group."""
    if kind.group not in _KNOWN_GROUPS:
        return None
    namespaced = kind.kind not in _CLUSTER_SCOPED.get(kind.group, ())
    return ServedKind(kind.api_version, kind.kind, plural_of(kind.kind), namespaced=namespaced)


def home(kind: ObjectKind, namespace: str) -> str:
    """The namespace that an object lives in.

    Where its kind is known: ``default`` when it says none, and none for a cluster-scoped one.
    """
    served = known(kind)
    if served is None:
        return namespace
    return (namespace or "default") if served.namespaced else ""


def guessed(kind: ObjectKind, namespaces: Iterable[str]) -> ServedKind:
    """How a kind is served, as far as the namespace of its first object tells.

    Without objects it is taken for one in namespaces, unless it is a ``Cluster…``.
    """
    first = next(iter(namespaces), None)
    namespaced = not kind.kind.startswith("Cluster") if first is None else bool(first)
    return ServedKind(kind.api_version, kind.kind, plural_of(kind.kind), namespaced=namespaced)


def is_definition(kind: ObjectKind) -> bool:
    """Whether objects of this kind define kinds."""
    return kind.group == "apiextensions.k8s.io" and kind.kind == CRD


def defined(definition: Mapping[str, Any]) -> list[ServedKind]:
    """The kinds that a CustomResourceDefinition serves, one a version (also the old form with one ``version``).

    There are none when it is malformed.
    """
    spec = mapping(definition.get("spec"))
    names, versions = mapping(spec.get("names")), spec.get("versions")
    listed = (
        [v for v in versions if isinstance(v, Mapping) and v.get("served") is not False]
        if isinstance(versions, list)
        else []
    )
    served = [(text(v.get("name")), v) for v in listed] or [(text(spec.get("version")), spec)]
    group, kind, plural = text(spec.get("group")), text(names.get("kind")), text(names.get("plural"))
    if not (group and kind and plural):
        return []
    scoped = spec.get("scope") != "Cluster"
    return [
        ServedKind(
            f"{group}/{name}",
            kind,
            plural,
            namespaced=scoped,
            status="status" in mapping(v.get("subresources") or spec.get("subresources")),
        )
        for name, v in served
        if name
    ]
