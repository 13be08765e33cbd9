"""Object storage through obstore: S3, Google Cloud Storage, Azure Blob Storage, and a folder or memory.

One class drives them all; what a provider does differently is data (``Backend``), what it says is one table
(``buckets_errors``).

Guarantee: "gone" is only said of a key that the store was asked to delete and answered for, or that it no longer lists.
A missing bucket is ``ContainerMissing``, never a missing key. An empty listing is believed only when the other side
proves that it speaks the protocol: a proxy's page with status 200 reads as an empty bucket otherwise. What a listing
names can be read and deleted under that name, byte for byte.
Not guaranteed: that data is destroyed: in a versioned bucket a delete leaves the old versions (docs/buckets.md). A key
that obstore cannot name is refused, never replaced by a similar one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from attrs import evolve

from reprieve.adapters.budget import charge
from reprieve.adapters.cloud import buckets_backends as backends
from reprieve.adapters.cloud.breaker import HUNG, Breaker
from reprieve.adapters.cloud.buckets_backends import ANSWER, Backend, Timeouts, unwrapped
from reprieve.adapters.cloud.buckets_errors import (
    ERRORS,
    NOT_CONNECTED,
    PER_KEY,
    is_unclear_404,
    raised_by_us,
    read_fault,
)
from reprieve.adapters.cloud.buckets_locations import check_location, prefix_of, what
from reprieve.adapters.cloud.endpoints import EndpointPolicy
from reprieve.adapters.cloud.kept import Kept, fingerprint
from reprieve.adapters.cloud.limited import QUICK_FAILURES, GuardedObjectStore
from reprieve.adapters.cloud.tables import Fault, build_error, native, not_installed, told, without_secrets
from reprieve.adapters.sizes import FILES
from reprieve.core.backups import StorageLocation, plain_provider
from reprieve.core.errors import (
    ContainerMissingError,
    DeniedError,
    InvalidError,
    NotFoundError,
    ReprieveError,
    ThrottledError,
    TooMuchError,
    UnavailableError,
    UnknownError,
)
from reprieve.core.keys import check_directory, check_key, common_directory, full_key, join, start_of, strip
from reprieve.core.outcomes import ContainerMissing, Done, Outcome, Retryable, Unknown, outcome_of
from reprieve.core.ports import FileInfo

PAGE = 1000
"""Providers' pages are multiples of this: a listing that ends anywhere else has ended by itself."""

CLOUDS = frozenset({"aws", "gcp", "azure"})

PARALLEL = 16
"""Single deletes at a time."""

HOPELESS = (Retryable, ContainerMissing)
"""Outcomes of the store, not of a key: throttled, unreachable, no bucket."""

PROBE = "reprieve-no-such-file"
"""Read to see how the other side speaks of what is not there."""


class CloudObjectStores:
    """Opens storage locations: providers ``aws``, ``gcp`` and ``azure``, with or without Velero's prefix.

    ``folder`` also serves the provider ``local`` (a bucket is a folder below it), ``memory`` the provider ``memory``
    with the buckets named. Neither is on by default: who may write a storage location must not reach this process's own
    disk.

    One of these for a process: all workers share one breaker for each bucket and credential.
    """

    def __init__(
        self,
        *,
        timeout: timedelta = ANSWER,
        hung: timedelta = HUNG,
        folder: Path | None = None,
        memory: Collection[str] = (),
        policy: EndpointPolicy | None = None,
    ) -> None:
        """Take the longest wait for one answer, and what is served besides the clouds; nothing is imported yet.

        ``hung``: a call that takes longer than this to fail was not answered. ``policy``: where locations may point;
        without it the providers' own hosts.
        """
        self._policy = policy or EndpointPolicy()
        self._hung = hung
        self._timeouts = Timeouts(answer=timeout)
        self._folder = folder
        self._memory: dict[str, Any] = dict.fromkeys(memory)
        self._lock = threading.Lock()
        self._kept: Kept[Hashable, GuardedObjectStore] = Kept()
        self._breakers: Kept[Hashable, Breaker] = Kept()

    def open(self, location: StorageLocation, *, credential: bytes | None = None) -> GuardedObjectStore:
        """Open a location, with the bytes of the Secret's key it names, or with the default chain. Makes no call.

        The same place and credential give the same store. Raises ``InvalidError`` for a configuration that cannot be
        used, ``PlaceRefusedError`` for a place that the operator does not allow, ``ContainerMissingError`` when no
        adapter handles the provider.
        """
        bucket = (location.provider, location.bucket, location.config, location.ca_cert, fingerprint(credential))
        return self._kept.get((*bucket, location.prefix), lambda: self._guarded(bucket, location, credential))

    def _guarded(self, bucket: Hashable, location: StorageLocation, credential: bytes | None) -> GuardedObjectStore:
        store = self._opened(location, credential)
        breaker = self._breakers.get(bucket, lambda: Breaker(quick=QUICK_FAILURES, hung=self._hung))
        return GuardedObjectStore(store, breaker, place=store.place)

    def _opened(self, location: StorageLocation, credential: bytes | None) -> CloudObjectStore:
        provider = plain_provider(location.provider)
        opener = self._opener(location, provider, credential)
        prefix = prefix_of(check_location(location))
        try:
            backend = opener()
        except ModuleNotFoundError as error:
            raise not_installed(provider if provider in CLOUDS else "all") from error
        return CloudObjectStore(backend, prefix=prefix, place=f"bucket {join(location.bucket, prefix)}")

    def _opener(self, location: StorageLocation, provider: str, credential: bytes | None) -> Callable[[], Backend]:
        match provider:
            case "aws":
                return lambda: backends.open_s3(location, credential, self._timeouts, self._policy)
            case "gcp":
                return lambda: backends.open_gcs(location, credential, self._timeouts, self._policy)
            case "azure":
                return lambda: backends.open_azure(location, credential, self._timeouts, self._policy)
            case "local" if self._folder:
                folder = self._folder
                return lambda: backends.open_folder(location, folder)
            case "memory" if self._memory:
                return lambda: backends.open_memory(self._in_memory(location.bucket))
            case _:
                raise ContainerMissingError(
                    f"{what(location)}: no adapter for provider {location.provider!r}, only aws, gcp and azure"
                )

    def _in_memory(self, bucket: str) -> Any:
        from obstore.store import MemoryStore

        with self._lock:
            if bucket in self._memory and self._memory[bucket] is None:
                self._memory[bucket] = MemoryStore()
            return self._memory.get(bucket)


class CloudObjectStore:
    """One storage location. Safe for threads."""

    def __init__(self, backend: Backend, *, prefix: str, place: str) -> None:
        """Keep the opened bucket, the location's prefix, and how messages call the place."""
        self._backend = backend
        self._prefix = prefix
        self.place = place

    def read(self, key: str, *, limit: int) -> bytes:
        """Read a file of at most ``limit`` bytes; never more than that is held.

        Raises ``NotFoundError``, ``InvalidError`` when larger, ``ContainerMissingError`` among others.
        """
        import obstore

        path = self._path(key)
        with self._asking(f"reading {key}"):
            answer = obstore.get(self._store(), path)
            size = answer.meta["size"]
            if size > limit:
                raise InvalidError(f"{self.place}: {key} has {size} bytes, more than the limit of {limit}")
            return self._bounded(key, answer.stream(), limit)

    def _bounded(self, key: str, chunks: Iterable[Any], limit: int) -> bytes:
        """Put the chunks together; a server may send more than it announced."""
        data = bytearray()
        for chunk in chunks:
            charge(len(chunk), f"{self.place}: {key}")
            data += memoryview(chunk)
            if len(data) > limit:
                raise InvalidError(f"{self.place}: {key} has {len(data)} bytes or more, the limit is {limit}")
        return bytes(data)

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """List every key under a prefix, page by page, in order of key; ``a`` and ``a/`` are the same directory.

        Raises ``ContainerMissingError`` when the bucket is missing, also for no keys; ``InvalidError`` at a key that
        cannot be named.
        """
        for meta in self._entries(join(self._prefix, check_directory(prefix))):
            with self._naming():
                key = strip(self._prefix, check_key(meta["path"], refused=self._backend.refused))
            yield FileInfo(key, meta["size"], meta["last_modified"])

    def _entries(self, directory: str) -> Iterator[Mapping[str, Any]]:
        """The entries of a directory.

        Where a listing may have been cut off at the end of a page it is taken up again from there.
        """
        last, seen = "", 0
        while True:
            count = 0
            for meta in self._listed(directory, last):
                count, last, seen = count + 1, meta["path"], seen + 1
                if seen > FILES:
                    raise TooMuchError(
                        f"{self.place}: listing {directory}/ goes on after {FILES} files, the most that is read of a "
                        "directory: nothing is concluded from it"
                    )
                if meta["size"] or self._is_file(meta["path"]):
                    yield meta
            if not self._backend.remote or count % PAGE:
                return
            if not count:
                return self._confirm_empty(directory)

    def _listed(self, directory: str, after: str) -> Iterator[Mapping[str, Any]]:
        import obstore

        with self._asking(f"listing {strip(self._prefix, directory)}/"):
            below = start_of(directory)
            pages = obstore.list(self._store(), directory or None, offset=after or None, chunk_size=PAGE)
            found = (meta for page in self._in_order(pages) for meta in page)
            # Some servers ignore the offset, and a directory's own marker is listed under the directory's name.
            yield from (meta for meta in found if meta["path"].startswith(below) and meta["path"] > after)

    def _in_order(self, pages: Iterable[Sequence[Any]]) -> Iterable[Sequence[Any]]:
        """Clouds list in order of key; a folder does not."""
        if self._backend.remote:
            return pages
        return [sorted((meta for page in pages for meta in page), key=lambda meta: str(meta["path"]))]

    def _is_file(self, path: str) -> bool:
        """Whether an empty entry is a file of that name.

        obstore lists a directory's marker, ``a/b/``, as ``a/b``, which is another key.
        """
        import obstore

        if not self._backend.remote:
            return True
        try:
            with self._asking(f"looking at {strip(self._prefix, path)}"):
                obstore.get(self._store(), path)  # not head: its 404 has no body that says of what
        except NotFoundError:
            return False
        return True

    def _confirm_empty(self, directory: str) -> None:
        """Make sure that nothing listed means nothing there: a file that cannot be there must be missing.

        It must be missing in the protocol's own words, or refused in them: policies may allow listing and no reading.
        """
        import obstore

        probe = join(directory, PROBE)
        try:
            with native():
                obstore.get(self._store(), probe)
        except Exception as error:
            fault = self._fault(error)
            refused = build_error(fault, ERRORS, what=f"{self.place}: listing {strip(self._prefix, directory)}/")
            if isinstance(refused, NotFoundError) or (isinstance(refused, DeniedError) and fault.code):
                return
            raise refused from error
        raise UnknownError(
            f"{self.place}: lists nothing below {directory or '/'}, yet answers for a file that cannot be there "
            f"({probe}): this is no object storage, or something stands before it"
        )

    def list_directories(self, prefix: str) -> Iterator[str]:
        """List the names of the directories right below a prefix, without slashes, in order.

        A directory without a file is none.
        """
        directory = join(self._prefix, check_directory(prefix))
        count, names = self._directories(directory)
        # What fills whole pages may have been cut off between two of them: only the same answer twice counts.
        while count and count % PAGE == 0 and (count, names) != (again := self._directories(directory)):
            count, names = again
        yield from names

    def _directories(self, directory: str) -> tuple[int, tuple[str, ...]]:
        """How many entries there are right below a directory, and the names of those that are directories."""
        import obstore

        with self._asking(f"listing {strip(self._prefix, directory)}/"):
            found = obstore.list_with_delimiter(self._store(), directory or None)
        paths, count = found["common_prefixes"], len(found["common_prefixes"]) + len(found["objects"])
        if self._backend.remote and not count:
            self._confirm_empty(directory)
        names = sorted(path.rpartition("/")[2] for path in paths if self._backend.remote or self._has_file(path))
        return count, tuple(names)

    def _has_file(self, path: str) -> bool:
        return next(self._listed(path, ""), None) is not None

    def write(self, key: str, data: bytes) -> None:
        """Write a file as a whole, in one call. Raises as ``read`` does."""
        import obstore

        path = self._path(key)
        with self._asking(f"writing {key}"):
            obstore.put(self._store(), path, data, use_multipart=False)

    def delete(self, keys: Sequence[str]) -> Mapping[str, Outcome]:
        """Delete many keys: 1,000 a call on S3, 256 on Azure, one elsewhere. ``Done`` too for what was not there.

        After a bulk delete that failed the keys are listed again; what is left is deleted one by one, for each key's
        own reason.
        """
        outcomes: dict[str, Outcome] = {}
        paths: dict[str, str] = {}
        for key in dict.fromkeys(keys):
            try:
                paths[self._path(key)] = key
            except InvalidError as error:
                outcomes[key] = outcome_of(error)
        done = self._in_batches(tuple(paths))
        outcomes |= {key: done[path] for path, key in paths.items()}
        return {key: outcomes[key] for key in dict.fromkeys(keys)}

    def _in_batches(self, paths: Sequence[str]) -> dict[str, Outcome]:
        """Batch after batch, until one shows that the others would fare no better."""
        size = self._backend.batch or max(len(paths), 1)
        outcomes: dict[str, Outcome] = {}
        for start in range(0, len(paths), size):
            outcomes |= self._delete(paths[start : start + size])
            if all(isinstance(outcome, HOPELESS) for outcome in outcomes.values()):
                return dict.fromkeys(paths, next(iter(outcomes.values()))) | outcomes
        return outcomes

    def _delete(self, paths: Sequence[str]) -> dict[str, Outcome]:
        try:
            if not self._backend.batch:
                return self._verified(self._one_by_one(paths))
            return self._in_bulk(paths)
        except ReprieveError as error:
            return dict.fromkeys(paths, outcome_of(error))

    def _in_bulk(self, paths: Sequence[str]) -> dict[str, Outcome]:
        import obstore

        try:
            with native():
                obstore.delete(self._store(), [*paths])
        except Exception as error:  # noqa: BLE001 (what it means is told apart for each key)
            return self._after_failure(paths, error)
        return dict.fromkeys(paths, Done())

    def _after_failure(self, paths: Sequence[str], raw: Exception) -> dict[str, Outcome]:
        """Tell apart what a failed bulk delete did: obstore reports the first failure only."""
        error = self._error(raw, f"deleting {len(paths)} keys")
        if isinstance(error, ContainerMissingError):
            raise error from raw
        left = self._left(paths)
        whole = PER_KEY not in read_fault(raw).classes
        if whole and isinstance(error, ThrottledError | UnavailableError | DeniedError):
            reasons = dict.fromkeys(left, outcome_of(error))  # no use in asking again for each
        else:
            reasons = self._verified(self._one_by_one(left))
        return dict.fromkeys(paths, Done()) | reasons

    def _one_by_one(self, paths: Collection[str]) -> dict[str, Outcome]:
        """Delete key by key, some at a time, until an answer shows that the others would fare no better."""
        ended: list[Outcome] = []

        def delete(path: str) -> Outcome:
            outcome = ended[0] if ended else self._delete_one(path)
            if isinstance(outcome, HOPELESS):
                ended.append(outcome)
            return outcome

        if not self._backend.remote or len(paths) == 1:
            return {path: delete(path) for path in paths}
        with ThreadPoolExecutor(PARALLEL) as pool:
            return dict(zip(paths, pool.map(delete, paths), strict=True))

    def _delete_one(self, path: str) -> Outcome:
        import obstore

        try:
            with self._asking(f"deleting {strip(self._prefix, path)}"):
                obstore.delete(self._store(single=True), path)
        except NotFoundError:
            return Done()
        except ReprieveError as error:
            return outcome_of(error)
        return Done()

    def _verified(self, outcomes: Mapping[str, Outcome]) -> dict[str, Outcome]:
        """Look again after single deletes: any 200 counts as an answer to them, also a proxy's page."""
        done = [path for path, outcome in outcomes.items() if isinstance(outcome, Done)]
        if not done or not self._backend.remote:
            return dict(outcomes)
        try:
            left = self._left(done)
        except ReprieveError as error:
            return dict(outcomes) | dict.fromkeys(done, outcome_of(error))
        still = Unknown(f"{self.place}: answered as if the key was deleted, but lists it still")
        return dict(outcomes) | dict.fromkeys(left, still)

    def _left(self, paths: Collection[str]) -> tuple[str, ...]:
        """Those of the keys that are still listed."""
        listed = {meta["path"] for meta in self._entries(common_directory(paths))}
        return tuple(path for path in paths if path in listed)

    def _path(self, key: str) -> str:
        return full_key(self._prefix, key, refused=self._backend.refused)

    def _store(self, *, single: bool = False) -> Any:
        """The obstore store. Raises ``ContainerMissingError`` for a folder or a bucket in memory that is not there."""
        if not self._backend.exists():
            raise ContainerMissingError(f"{self.place}: there is no such bucket")
        return unwrapped(self._backend.single if single else self._backend.store)

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Say of which place a key is that was found there and cannot be used."""
        try:
            yield
        except InvalidError as error:
            raise InvalidError(f"{self.place}: {error}") from error

    def _asking(self, doing: str) -> AbstractContextManager[None]:
        """Let nothing of obstore out: neither its exceptions nor its panics, nor what they quote of a credential."""
        return told(lambda error: self._error(error, doing))

    def _error(self, error: Exception, doing: str) -> ReprieveError:
        """What an exception means.

        A 404 that does not say of what is looked into: it is the key's only if the bucket lists something.
        """
        ours = error if isinstance(error, ReprieveError) else raised_by_us(error)
        fault = self._fault(error)
        if ours:
            return without_secrets(ours)
        if is_unclear_404(fault) and self._lists_something():
            return NotFoundError(f"{self.place}: {doing}: HTTP 404")
        return build_error(fault, ERRORS, what=f"{self.place}: {doing}")

    def _fault(self, error: Exception) -> Fault:
        """What an exception says; of a connection that was not made, who made it knows more."""
        fault = read_fault(error)
        told = self._backend.unconnected() if NOT_CONNECTED in fault.classes else None
        return evolve(fault, code=told.code, message=told.why) if told else fault

    def _lists_something(self) -> bool:
        import obstore

        try:
            with native():
                return next(iter(obstore.list(self._store(), self._prefix or None, chunk_size=1)), None) is not None
        except Exception as error:
            if isinstance(found := build_error(self._fault(error), ERRORS, what=self.place), ContainerMissingError):
                raise found from error
            return False
