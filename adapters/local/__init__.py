"""The ports of core over memory and over a folder: the embedded default, a simulator, and fakes for users' own tests.

In memory: ``LocalCluster.in_memory(objects)``, ``MemoryObjectStores``, ``MemorySnapshotStores``. Over a directory:
``LocalFolder``.

Guarantee: ``LocalCluster`` behaves as an API server does, with its garbage collector where one is given. The names
below are public. What works in memory needs no library but attrs; a folder needs PyYAML.
Not guaranteed: what the modules hold beside them.
"""

from reprieve.adapters.local.buckets import FolderObjectStores, MemoryObjectStores
from reprieve.adapters.local.cluster import LocalCluster
from reprieve.adapters.local.collector import Collector, Refusal, Sweep
from reprieve.adapters.local.disk import Disk, FolderError
from reprieve.adapters.local.events import MemoryEvents, RecordedEvent
from reprieve.adapters.local.folder import LocalFolder
from reprieve.adapters.local.foldercluster import FolderCluster
from reprieve.adapters.local.snapshots import FolderSnapshotStores, MemorySnapshotStores
from reprieve.adapters.local.store import (
    Admission,
    AdmissionDenied,
    AdmissionRequest,
    ClusterStore,
    ServedKind,
    StatusError,
    denial,
    json_patch,
)

__all__ = [
    "Admission",
    "AdmissionDenied",
    "AdmissionRequest",
    "ClusterStore",
    "Collector",
    "Disk",
    "FolderCluster",
    "FolderError",
    "FolderObjectStores",
    "FolderSnapshotStores",
    "LocalCluster",
    "LocalFolder",
    "MemoryEvents",
    "MemoryObjectStores",
    "MemorySnapshotStores",
    "RecordedEvent",
    "Refusal",
    "ServedKind",
    "StatusError",
    "Sweep",
    "denial",
    "json_patch",
]
