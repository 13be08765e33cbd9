"""Carrying out steps through the ports, in parallel within a stage, bounded per provider.

Guarantee: every step that was begun has an outcome, and nothing raises; a stop leaves steps untried, never half done;
one stuck provider takes only its own threads. Not guaranteed: an order within a stage.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from typing import Protocol, assert_never

from attrs import evolve, field, frozen

from reprieve.adapters.k8s.dialect import VELERO, Dialect
from reprieve.core.backups import NoSecret, SecretKey, SnapshotLocation, StorageLocation
from reprieve.core.errors import ReprieveError
from reprieve.core.outcomes import (
    AlreadyGone,
    Conflict,
    ContainerMissing,
    Denied,
    Done,
    InUse,
    Invalid,
    Locked,
    Outcome,
    Retryable,
    Unknown,
    combined,
    is_gone,
    outcome_of,
)
from reprieve.core.ports import Cluster, ObjectStore, ObjectStores, SnapshotStores
from reprieve.core.requests import Stage
from reprieve.core.steps import (
    CreateRecord,
    CreateRequest,
    Creation,
    DeleteFile,
    DeleteFiles,
    DeleteObject,
    DeleteRestore,
    DeleteSnapshot,
    EndRequest,
    Step,
    StepResult,
    WriteHoldFile,
    merge_patch,
)

CHUNK = 1000


class Pools:
    """One bounded thread pool a provider (and one for everything else), made when first used."""

    def __init__(self, parallelism: int) -> None:
        """``parallelism`` bounds the calls at once, a provider."""
        self._parallelism = parallelism
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._lock = threading.Lock()

    def submit(self, lane: str, work: Callable[[], StepResult | None]) -> Future[StepResult | None]:
        """Queue work in a provider's lane."""
        with self._lock:
            if lane not in self._pools:
                self._pools[lane] = ThreadPoolExecutor(self._parallelism, thread_name_prefix=f"effects-{lane}")
            return self._pools[lane].submit(work)

    def close(self) -> None:
        """Let the threads end; queued work that was not begun is dropped."""
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)


class Confirmed:
    """Snapshots that this process has seen gone, by the backup that they were of.

    A deletion that waits for something else comes back often; each look would ask for every snapshot again.
    """

    def __init__(self, limit: int = 100_000) -> None:
        """Remember at most ``limit``."""
        self._limit = limit
        self._seen: OrderedDict[tuple[str, Step], None] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, item: tuple[str, Step]) -> bool:
        return item in self._seen

    def add(self, items: Iterable[tuple[str, Step]]) -> None:
        """Remember these, unless they belong to no backup that is known."""
        with self._lock:
            self._seen.update((item, None) for item in items if item[0])
            while len(self._seen) > self._limit:
                self._seen.popitem(last=False)


class Credentials(Protocol):
    """Where the credentials that locations name are read."""

    def read(self, credential: SecretKey | NoSecret) -> bytes | None:
        """The bytes of a credential; None where the default chain applies. Raises core errors."""
        ...


class _ReadOnce:
    """Remembers what was read; a read that failed is asked for again."""

    def __init__(self, credentials: Credentials) -> None:
        self._read = cache(credentials.read)
        self._lock = threading.Lock()

    def read(self, credential: SecretKey | NoSecret) -> bytes | None:
        with self._lock:
            return self._read(credential)


@frozen
class Places:
    """The locations that steps name, as they were gathered."""

    locations: Mapping[str, StorageLocation] = field(factory=dict)
    snapshot_locations: Mapping[str, SnapshotLocation] = field(factory=dict)


@frozen
class Effects:
    """Carries out steps."""

    cluster: Cluster
    object_stores: ObjectStores
    snapshot_stores: SnapshotStores
    secrets: Credentials
    pools: Pools
    stop: threading.Event = field(factory=threading.Event)
    dialect: Dialect = VELERO
    confirmed: Confirmed = field(factory=Confirmed)

    def run(self, stage: Stage, places: Places, *, scope: str = "") -> tuple[StepResult, ...]:
        """Carry out a stage's steps, and wait for all of them. Steps that a stop left untried have no result.

        ``scope`` is the UID of the backup: a snapshot of it that was seen gone is not asked for again. A credential is
        read once a stage, not once a step.
        """
        known = [StepResult(step, AlreadyGone()) for step in stage.steps if (scope, step) in self.confirmed]
        left = [step for step in stage.steps if (scope, step) not in self.confirmed]
        results = evolve(self, secrets=_ReadOnce(self.secrets)).carry_out(left, places)
        self.confirmed.add(
            (scope, r.step) for r in results if isinstance(r.step, DeleteSnapshot) and is_gone(r.outcome)
        )
        return (*known, *results)

    def carry_out(self, steps: Sequence[Step], places: Places) -> tuple[StepResult, ...]:
        """Carry out steps, whatever was seen gone before."""
        if len(steps) == 1:
            return _kept([self._try(steps[0], places)])
        futures = [self.pools.submit(_lane(step), partial(self._try, step, places)) for step in steps]
        return _kept([future.result() for future in futures])

    def _try(self, step: Step, places: Places) -> StepResult | None:
        if self.stop.is_set():
            return None
        try:
            return self._apply(step, places)
        except ReprieveError as fault:
            return StepResult(step, _raised(fault), intact=True)
        except BaseException as fault:  # noqa: BLE001 - a fault, ours or a native library's, must not pass for done
            return StepResult(step, Unknown(f"{type(fault).__name__}: {fault}"))

    def _apply(self, step: Step, places: Places) -> StepResult:
        match step:
            case DeleteSnapshot():
                return StepResult(step, self._delete_snapshot(step, places))
            case DeleteRestore():
                return self._delete_restore(step, places)
            case DeleteFiles(location=location, prefix=prefix, spare=spare):
                files = delete_files(self._store(location, places), prefix, spare=spare)
                return StepResult(step, files.outcome, files.intact)
            case DeleteFile(location=location, key=key):
                return StepResult(step, self._store(location, places).delete([key])[key])
            case DeleteObject(ref=ref, resource_version=version):
                return StepResult(step, self.cluster.delete(ref, resource_version=version))
            case EndRequest(ref=ref):
                return StepResult(step, self.cluster.delete(ref))
            case CreateRequest() | CreateRecord() | WriteHoldFile():
                return StepResult(step, self._create(step, places))
            case _:
                self.cluster.patch(
                    step.ref, self.dialect.to_api(merge_patch(step)), resource_version=step.resource_version
                )
                return StepResult(step, Done())

    def _create(self, step: Creation, places: Places) -> Outcome:
        match step:
            case CreateRequest(request=request):
                self.cluster.create(self.dialect.request_manifest(request))
            case CreateRecord(manifest=manifest):
                self.cluster.create(manifest)
            case WriteHoldFile(location=location, key=key, content=content):
                self._store(location, places).write(key, content.encode())
            case _:
                assert_never(step)
        return Done()

    def _delete_snapshot(self, step: DeleteSnapshot, places: Places) -> Outcome:
        location = places.snapshot_locations[step.location]
        credential = self.secrets.read(location.credential)
        return self.snapshot_stores.open(location, credential=credential).delete(step.id)

    def _delete_restore(self, step: DeleteRestore, places: Places) -> StepResult:
        files = delete_files(self._store(step.location, places), step.prefix, spare="")
        if not is_gone(files.outcome):
            return StepResult(step, files.outcome, files.intact)
        deleted = self.cluster.delete(step.ref)
        return StepResult(step, deleted, intact=isinstance(files.outcome, AlreadyGone) and not is_gone(deleted))

    def _store(self, name: str, places: Places) -> ObjectStore:
        location = places.locations[name]
        return self.object_stores.open(location, credential=self.secrets.read(location.credential))


def _lane(step: Step) -> str:
    return step.provider if isinstance(step, DeleteSnapshot) else "objects"


def _kept(results: Iterable[StepResult | None]) -> tuple[StepResult, ...]:
    return tuple(result for result in results if result is not None)


def _raised(fault: ReprieveError) -> Outcome:
    """What an error came to that was raised before the delete itself was asked for: never gone."""
    outcome = outcome_of(fault)
    return Invalid(str(fault)) if isinstance(outcome, AlreadyGone) else outcome


@frozen
class FilesDeleted:
    """What a deletion of many files came to; ``intact`` when each of them is known to be there still."""

    outcome: Outcome
    intact: bool = False


def delete_files(store: ObjectStore, prefix: str, *, spare: str) -> FilesDeleted:
    """Delete every key under a prefix but one, and list again. Raises core errors when the first list fails."""
    keys = _keys(store, prefix, spare)
    outcomes: dict[str, Outcome] = {}
    for start in range(0, len(keys), CHUNK):
        outcomes |= store.delete(keys[start : start + CHUNK])
    whole = combined(outcomes)
    left = _keys_left(store, prefix, spare) if keys and is_gone(whole) else []
    if left:
        return FilesDeleted(Retryable(message=f"{len(left)} files are still there, such as {left[0]}"))
    return FilesDeleted(whole, intact=bool(outcomes) and not any(map(may_be_gone, outcomes.values())))


def may_be_gone(outcome: Outcome) -> bool:
    """Whether a thing may be gone after this outcome: only a refusal is sure that it is not."""
    return not isinstance(outcome, InUse | Locked | Denied | Invalid | ContainerMissing | Conflict)


def _keys_left(store: ObjectStore, prefix: str, spare: str) -> list[str]:
    try:
        return _keys(store, prefix, spare)
    except ReprieveError as fault:
        return [f"(the second list failed: {fault})"]


def _keys(store: ObjectStore, prefix: str, spare: str) -> list[str]:
    return [info.key for info in store.list(prefix) if info.key != spare]


def did_something(outcome: Outcome) -> bool:
    """Whether an outcome means that the world changed: a further pass is worth it."""
    return isinstance(outcome, Done)
