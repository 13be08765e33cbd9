"""The world that controllers and commands work on: a configuration, and an adapter for every port."""

from __future__ import annotations

from attrs import frozen

from reprieve.core.ports import Cluster, EventSink, ObjectStores, SnapshotStores
from reprieve.entrypoints.configuration import BackupSettings, BackupsOff, Configuration, ConfigurationError


@frozen
class World:
    """What the controllers and commands work on."""

    configuration: Configuration
    cluster: Cluster
    object_stores: ObjectStores
    snapshot_stores: SnapshotStores
    events: EventSink
    local: bool = False

    @property
    def backups(self) -> BackupSettings:
        """The settings of the backups room. Raises ``ConfigurationError`` when it is switched off."""
        if isinstance(self.configuration.backups, BackupsOff):
            raise ConfigurationError("backups: is false in the configuration, so there is nothing to do for backups")
        return self.configuration.backups

    @property
    def handlers(self) -> frozenset[str]:
        """The kinds of data that a configured adapter can delete."""
        return self.snapshot_stores.providers
