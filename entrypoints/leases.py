"""The lease of the controllers: its name, its namespace, and who holds it now."""

from __future__ import annotations

from datetime import datetime

from reprieve.adapters.k8s.lease import Free, Held, lease_holder
from reprieve.entrypoints.configuration import BackupsOff, Configuration
from reprieve.entrypoints.world import World

LEASE_NAME = "reprieve-controller"


def lease_namespace(configuration: Configuration) -> str:
    """The namespace of the controllers' lease: that of the backups."""
    backups = configuration.backups
    return "default" if isinstance(backups, BackupsOff) else backups.namespace


def controller_lease(world: World, *, now: datetime) -> Held | Free:
    """Who holds the controllers' lease. Raises core errors: what cannot be read is not free."""
    return lease_holder(world.cluster, namespace=lease_namespace(world.configuration), name=LEASE_NAME, now=now)
