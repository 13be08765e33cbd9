"""Bootstrap: from configuration and options to adapters, by plain constructors.

The only place that knows every adapter.

Guarantee: an SDK is imported only when something of its adapter is used, and a missing extra is named. Opening a
world makes no change to it, but that a writable local folder is locked and its left-over temporary files are removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from reprieve.core.errors import MissingExtraError
from reprieve.entrypoints.configuration import (
    PROVIDERS,
    BackupsOff,
    Configuration,
    load_configuration,
    parse_configuration,
)
from reprieve.entrypoints.world import World


@contextmanager
def open_local(
    directory: Path, *, config: Path | None, read_only: bool, now: datetime | None = None, collect_absent: bool = False
) -> Iterator[World]:
    """Open a cluster in a directory. Raises ``ReprieveError`` for a folder or a configuration that cannot be used.

    ``now`` stands still as the cluster's time; without it the cluster has the real time. ``collect_absent``: owners
    that were absent from the start count for the garbage collector.
    """
    with needs("cli"):
        from reprieve.adapters.local import LocalFolder, MemoryEvents
    configuration = local_configuration(directory, config)
    clock = (lambda: now) if now is not None else (lambda: datetime.now(UTC))
    with LocalFolder(
        directory, read_only=read_only, now=clock, collect_absent=collect_absent, providers=configuration.providers
    ) as folder:
        stores, events = folder.snapshot_stores, MemoryEvents()
        yield World(configuration, folder.cluster, folder.object_stores, stores, events, local=True)


def local_configuration(directory: Path, config: Path | None) -> Configuration:
    """The configuration of a folder: that of ``--config``, else its own ``reprieve.yaml``, else the defaults.

    Raises ``ConfigurationError``, and ``FolderError`` when the folder's own file is a link or no regular file: whoever
    made the folder does not choose which file of this machine is read.
    """
    if config is not None:
        return load_configuration(config)
    with needs("cli"):
        from reprieve.adapters.local.disk import read
    path = directory / "reprieve.yaml"
    return parse_configuration(read(path), source=str(path)) if os.path.lexists(path) else Configuration()


@contextmanager
def open_kubernetes(*, kubeconfig: Path | None, context: str, config: Path | None) -> Iterator[World]:
    """Open a Kubernetes cluster by kubeconfig, or from within a pod. Raises ``ReprieveError``."""
    configuration = load_configuration(config) if config else Configuration()
    with needs("k8s"):
        from reprieve.adapters.k8s.client import connect
        from reprieve.adapters.k8s.events import KubernetesEvents
    from reprieve.adapters.cloud.buckets import CloudObjectStores
    from reprieve.adapters.cloud.stores import CloudSnapshotStores

    with ExitStack() as stack:
        cluster = connect(kubeconfig=str(kubeconfig or ""), context=context)
        stack.callback(cluster.close)
        events = KubernetesEvents(cluster)
        stack.callback(events.close)
        snapshots = CloudSnapshotStores(
            providers=PROVIDERS if configuration.providers is None else configuration.providers,
            parallelism=_parallelism(configuration),
        )
        yield World(configuration, cluster, CloudObjectStores(policy=configuration.endpoints), snapshots, events)


def _parallelism(configuration: Configuration) -> int:
    backups = configuration.backups
    return 1 if isinstance(backups, BackupsOff) else backups.deletion.snapshot_parallelism


def kubernetes_version(*, kubeconfig: Path | None, context: str) -> str:
    """Ask an API server for its version, such as ``v1.31.2``. Raises ``ReprieveError``."""
    with needs("k8s"):
        from reprieve.adapters.k8s.client import connect
    with closing(connect(kubeconfig=str(kubeconfig or ""), context=context)) as cluster:
        return cluster.version()


@contextmanager
def needs(name: str) -> Iterator[None]:
    """Name the extra that brings a library which is not there."""
    try:
        yield
    except MissingExtraError:
        raise
    except ImportError as fault:
        if (fault.name or "").startswith("reprieve"):
            raise
        raise MissingExtraError(str(fault.name), extra=name) from fault
