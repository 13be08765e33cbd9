"""Our finalizers, wherever they are: for the warning at the start, and for the way out (``reprieve release``).

Guarantee: every kind that the cluster says it can list is looked through, metadata only, one after the other; what
cannot be listed is told, never taken for free of our finalizers. Not guaranteed: one consistent instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

import structlog
from attrs import field, frozen

from reprieve.core.errors import ContainerMissingError, NotFoundError, ReprieveError
from reprieve.core.objects import ObjectKind, ObjectRef, Resource
from reprieve.core.ports import Cluster
from reprieve.core.protection import PROTECT
from reprieve.core.pruning import OwnerKey, key_of
from reprieve.core.shield import SHIELD_NAME
from reprieve.core.values import as_tuple
from reprieve.entrypoints.configuration import ProtectionEntry

SHIELD_KINDS = (
    ObjectKind("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
    ObjectKind("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
)
log = structlog.get_logger()


@runtime_checkable
class KnowsItsKinds(Protocol):
    """A cluster that can say which kinds it serves; both adapters' clusters can."""

    def kinds(self) -> Sequence[ObjectKind]:
        """Every kind that can be listed. Raises core errors."""
        ...


@runtime_checkable
class KnowsItsRights(Protocol):
    """A cluster that can say what this account may do; a local one has no accounts."""

    def may_list_everything(self) -> bool:
        """Whether every kind may be listed in every namespace. Raises core errors."""
        ...


@frozen
class Holders:
    """The objects that carry our finalizer, and what could not be looked through, as sentences."""

    found: tuple[Resource, ...] = field(default=(), converter=as_tuple)
    troubles: tuple[str, ...] = field(default=(), converter=as_tuple)


def served_kinds(cluster: Cluster) -> Sequence[ObjectKind]:
    """Every kind that the cluster serves, as far as it says. Raises core errors."""
    return cluster.kinds() if isinstance(cluster, KnowsItsKinds) else ()


def holders(cluster: Cluster, kinds: Iterable[ObjectKind]) -> Holders:
    """The objects of these kinds that carry our finalizer, in order. A kind that is not served has none.

    What is served in several versions of its group counts once, in the version that is named first.
    """
    found: dict[OwnerKey, Resource] = {}
    troubles: list[str] = []
    for kind in dict.fromkeys(kinds):
        try:
            listed = cluster.list(kind, metadata_only=True).items
        except ContainerMissingError:
            continue
        except ReprieveError as fault:
            troubles.append(f"{kind} cannot be looked through: {fault}")
        else:
            found = {key_of(each.ref): each for each in listed if PROTECT in each.meta.finalizers} | found
    return Holders(sorted(found.values(), key=lambda each: each.ref), troubles)


def warn_about_leftovers(cluster: Cluster, entries: Iterable[ProtectionEntry]) -> None:
    """Log a warning for each kind that is no longer configured, yet has objects with our finalizer."""
    configured = {(entry.owner.group, entry.owner.kind) for entry in entries}
    try:
        if isinstance(cluster, KnowsItsRights) and not cluster.may_list_everything():
            log.info(
                "not looked for finalizers of kinds that are no longer protected: this account may not list every kind",
                way_out="reprieve release, by an account that may",
            )
            return
        others = [kind for kind in served_kinds(cluster) if (kind.group, kind.kind) not in configured]
    except ReprieveError as fault:
        log.warning("cannot look for finalizers of kinds that are no longer protected", fault=str(fault))
        return
    left = holders(cluster, others)
    by_kind: dict[ObjectKind, list[str]] = {}
    for each in left.found:
        by_kind.setdefault(each.type, []).append(each.ref.key)
    for kind, names in by_kind.items():
        log.warning(
            "finalizers of a kind that is no longer protected: nobody takes them off",
            kind=str(kind),
            count=len(names),
            such_as=names[0],
            way_out="reprieve release, or put the kind back into the configuration",
        )
    for trouble in left.troubles:
        log.debug("not looked through", trouble=trouble)


def warn_about_shield(cluster: Cluster, entries: Iterable[ProtectionEntry]) -> None:
    """Log a warning when Faros' owners are protected and the shield is not in the cluster.

    A running Faros adds its reference again, also on owners that are being deleted: only the shield stands against it.
    """
    tracked = [str(entry.owner) for entry in entries if entry.dialect == "faros"]
    if not tracked:
        return
    try:
        for kind in SHIELD_KINDS:
            cluster.get(ObjectRef(kind.api_version, kind.kind, SHIELD_NAME), metadata_only=True)
    except (NotFoundError, ContainerMissingError) as fault:
        log.warning(
            "the shield is not in the cluster: a tracker that adds its reference again can lose dependents",
            kinds=tracked,
            missing=str(fault),
            way_out="reprieve shield | kubectl apply -f -",
        )
    except ReprieveError as fault:
        log.warning("whether the shield is in the cluster cannot be read", fault=str(fault))


def check_at_start(cluster: Cluster, entries: Sequence[ProtectionEntry], *, local: bool) -> None:
    """Log what somebody should know before the controllers work. Raises nothing; makes no change."""
    warn_about_leftovers(cluster, entries)
    if not local:
        warn_about_shield(cluster, entries)
