"""Object storage in a folder and in memory.

A bucket exists while its folder does, also without files; deleting keys never removes it. A folder below it without a
file is no prefix, and goes with its last file. Keys and prefixes are those of the clouds, by ``reprieve.core.keys``.
Names that begin with a dot are names; only ``.reprieve-*.tmp`` is none: a leftover of a write.

Guarantee: a missing bucket is ``ContainerMissing`` in every operation, never an empty one; no key leads out of its
bucket; what a listing names can be read and deleted under that name. A file whose name is no key stops the listing of
its directory, and so does a FIFO, a device or a socket: what cannot be named cannot be deleted, and half a listing is
none. A bucket, or a location's prefix, that is a link cannot be read: it may lead anywhere.
Not guaranteed: a key ``a`` beside keys ``a/…``, and names of more than 255 bytes between slashes, which a file system
cannot hold; versions, locks, conditions.
"""

from __future__ import annotations

import fnmatch
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path

from reprieve.adapters.budget import charge
from reprieve.adapters.local.disk import (
    LEFTOVER,
    Disk,
    NotRegularError,
    folders,
    is_folder,
    is_link,
    read_regular,
    walk,
)
from reprieve.core import errors
from reprieve.core.backups import StorageLocation
from reprieve.core.keys import check_directory, check_key, full_key, join, start_of, strip
from reprieve.core.outcomes import AlreadyGone, Done, Invalid, Outcome, outcome_of
from reprieve.core.ports import FileInfo, ObjectStore

_NAME_LIMIT, _PATH_LIMIT = 255, 4000
Hook = Callable[[str, str, str], None]
"""Asked before each call with the operation (read, list, write, delete), the bucket and the full key.

Of a list: what the keys start with, a directory and its slash. Raises a core error to let the call fail.
"""


def checked_bucket(location: StorageLocation) -> str:
    """A location's bucket. Raises ``InvalidError`` when it has none, or one that is no plain name."""
    name = location.bucket
    if not name or name in {".", ".."} or "/" in name or "\0" in name:
        raise errors.InvalidError(f"storage location {location.name!r}: {name!r} is no name of a bucket")
    return name


def checked_prefix(location: StorageLocation) -> str:
    """A location's prefix without slashes at its ends. Raises ``InvalidError`` when no key can lie below it."""
    try:
        return check_directory(location.prefix.strip("/"))
    except errors.InvalidError as error:
        raise errors.InvalidError(f"storage location {location.name!r}: prefix: {error}") from error


@contextmanager
def _in(bucket: str) -> Iterator[None]:
    """Say of which bucket a key is that cannot be used."""
    try:
        yield
    except errors.InvalidError as error:
        raise errors.InvalidError(f"bucket {bucket}: {error}") from error


def _too_large(name: str, size: int, limit: int) -> errors.InvalidError:
    return errors.InvalidError(f"{name} has {size} bytes, more than the limit of {limit}")


class FolderObjectStores:
    """Opens buckets below a folder (``DIR/buckets``), for any provider."""

    def __init__(self, root: Path, *, disk: Disk | None = None, read_only: bool = False) -> None:
        self._root, self._disk, self._read_only = root, disk or Disk(), read_only
        self._lock = threading.Lock()

    def open(self, location: StorageLocation, *, credential: bytes | None = None) -> ObjectStore:
        """Open a location; see the port. Credentials are not looked at."""
        folder, prefix = self._root / checked_bucket(location), checked_prefix(location)
        return _FolderStore(folder, prefix, disk=self._disk, lock=self._lock, read_only=self._read_only)


class _FolderStore:
    """One location: a bucket's folder and a prefix."""

    def __init__(self, folder: Path, prefix: str, *, disk: Disk, lock: threading.Lock, read_only: bool) -> None:
        self._folder, self._prefix, self._disk, self._lock, self._read_only = folder, prefix, disk, lock, read_only

    def read(self, key: str, *, limit: int) -> bytes:
        """Read a file; see the port."""
        path = self._path(key)
        try:
            data = read_regular(path.resolve(), limit=limit + 1)
            charge(len(data), self._name(key))
            size = max(len(data), path.stat().st_size)
        except NotRegularError as error:
            raise errors.InvalidError(f"{self._name(key)} is {error}") from error
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise errors.NotFoundError(f"{self._name(key)} is not there") from error
        except OSError as error:
            raise _refusal(error, self._name(key)) from error
        if len(data) > limit:
            raise _too_large(self._name(key), size, limit)
        return data

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """List the keys under a prefix; see the port."""
        for key in self._keys(self._directory(prefix)):
            try:
                status = (self._folder / self._prefix / key).stat()
            except FileNotFoundError:  # deleted meanwhile
                continue
            yield FileInfo(key, status.st_size, _date(status.st_mtime))

    def list_directories(self, prefix: str) -> Iterator[str]:
        """List the directories right below a prefix; see the port."""
        directory = self._directory(prefix)
        if self._is_there(directory):
            names = folders(self._folder / self._prefix / directory)
            with _in(self._folder.name):
                found = [check_key(name) for name in names if any(self._files(join(directory, name)))]
            yield from found

    def write(self, key: str, data: bytes) -> None:
        """Write a file; see the port."""
        path = self._path(key)
        self._writable()
        with self._lock:
            if path.is_dir() or any(parent.is_file() for parent in path.parents if parent != self._folder):
                raise errors.InvalidError(f"{self._name(key)} is a directory, or lies below a file")
            self._disk.write(path, data)

    def delete(self, keys: Sequence[str]) -> Mapping[str, Outcome]:
        """Delete many keys; see the port."""
        return {key: self._delete(key) for key in keys}

    def _delete(self, key: str) -> Outcome:
        try:
            path = self._path(key)
            self._writable()
            with self._lock:
                return self._unlink(path)
        except errors.ReprieveError as error:
            return outcome_of(error)

    def _unlink(self, path: Path) -> Outcome:
        if not path.is_file():
            there = os.path.lexists(path) and not path.is_dir()
            return Invalid(f"{path} is no regular file: remove it by hand") if there else AlreadyGone()
        self._disk.remove(path)
        with suppress(OSError):  # a folder that cannot go is none of a key's business
            for parent in path.parents:
                if parent == self._folder or any(parent.iterdir()):
                    break
                parent.rmdir()
        return Done()

    def _bucket(self) -> None:
        for place in accumulate(Path(self._prefix).parts, lambda above, name: above / name, initial=self._folder):
            if is_link(place):
                what = f"{place} cannot be read: it is a link, and links are not followed"
                raise errors.InvalidError(f"bucket {self._folder.name}: {what}")
        if not is_folder(self._folder):
            raise errors.ContainerMissingError(f"the bucket {self._folder.name} is not there: {self._folder}")

    def _path(self, key: str) -> Path:
        """The file of a key, once the bucket is there. Raises ``InvalidError`` when it would lie outside."""
        with _in(self._folder.name):
            full = full_key(self._prefix, key)
        self._bucket()
        path = self._folder / full
        try:
            if max(map(len, map(os.fsencode, path.parts))) > _NAME_LIMIT or len(os.fsencode(path)) > _PATH_LIMIT:
                raise errors.InvalidError(f"{self._name(key)} is longer than the name of a file can be")
            inside = path.resolve().is_relative_to(self._folder.resolve())
        except (OSError, RuntimeError, ValueError) as error:
            raise errors.InvalidError(f"{self._name(key)!r} is no key that a file can have: {error}") from error
        if not inside or _is_leftover(path):
            why = "is the name of a leftover" if inside else "leads out of its bucket"
            raise errors.InvalidError(f"{self._name(key)} {why}")
        return path

    def _directory(self, prefix: str) -> str:
        """The directory that a prefix names, below the location's own prefix, once the bucket is there."""
        with _in(self._folder.name):
            directory = check_directory(prefix)
        self._bucket()
        return directory

    def _keys(self, directory: str) -> tuple[str, ...]:
        """Every key below a directory, in order. Raises ``InvalidError`` for a file whose name is none."""
        base, files = self._folder / self._prefix, self._files(directory) if self._is_there(directory) else ()
        with _in(self._folder.name):
            found = {check_key(path.relative_to(base).as_posix()): path for path in files}
            for key, path in found.items():
                if not path.is_file():  # listed, it could be neither read nor deleted; left out, "all gone" were untrue
                    raise errors.InvalidError(f"key {key!r} is no regular file: remove it by hand")
            return tuple(sorted(found))

    def _is_there(self, directory: str) -> bool:
        """Whether there is such a directory. Links are not followed: what they lead to has a name of its own."""
        base = self._folder / self._prefix
        steps = accumulate(Path(directory).parts, join)
        return is_folder(base / directory) and not any((base / each).is_symlink() for each in steps)

    def _files(self, directory: str) -> Iterator[Path]:
        for path in walk(self._folder / self._prefix / directory, hidden=True):
            if not _is_leftover(path) and path.resolve().is_relative_to(self._folder.resolve()):
                yield path

    def _writable(self) -> None:
        if self._read_only:
            raise errors.DeniedError(f"{self._folder} is open for reading only: nothing is written")

    def _name(self, key: str) -> str:
        return f"{self._folder.name}/{join(self._prefix, key)}"


def _date(seconds: float) -> datetime | None:
    """A file's date; None for one that no calendar has."""
    with suppress(OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(seconds, UTC)
    return None


def _is_leftover(path: Path) -> bool:
    return fnmatch.fnmatchcase(path.name, LEFTOVER)


def _refusal(error: OSError, name: str) -> errors.ReprieveError:
    """What the operating system said about a file, in core's words."""
    if isinstance(error, PermissionError):
        return errors.DeniedError(f"{name}: {error.strerror}")
    return errors.UnavailableError(f"{name}: {error.strerror or error}")


class MemoryObjectStores:
    """Object storage in memory.

    ``buckets`` maps a bucket's name to its files by full key, and may be read and changed by a test. ``hook`` may let
    any call fail; see ``Hook``. ``now`` dates what is written.
    """

    def __init__(
        self,
        buckets: Mapping[str, Mapping[str, bytes]] | None = None,
        *,
        hook: Hook = lambda *_call: None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self.buckets: dict[str, dict[str, bytes]] = {name: dict(files) for name, files in (buckets or {}).items()}
        self.hook = hook
        self._now = now
        self._modified: dict[tuple[str, str], datetime] = {}
        self._lock = threading.Lock()

    def open(self, location: StorageLocation, *, credential: bytes | None = None) -> ObjectStore:
        """Open a location; see the port."""
        return _MemoryStore(self, checked_bucket(location), checked_prefix(location))

    def modified(self, bucket: str, key: str) -> datetime | None:
        """When a file was written, where a clock was given."""
        return self._modified.get((bucket, key))

    def put(self, bucket: str, key: str, data: bytes) -> None:
        """Put a file into a bucket that is there."""
        with self._lock:
            self.files(bucket)[key] = data
            if self._now is not None:
                self._modified[bucket, key] = self._now()

    def take(self, bucket: str, key: str) -> Outcome:
        """Take a file out of a bucket that is there."""
        with self._lock:
            return AlreadyGone() if self.files(bucket).pop(key, None) is None else Done()

    def files(self, bucket: str) -> dict[str, bytes]:
        """The files of a bucket by full key. Raises ``ContainerMissingError``."""
        if bucket not in self.buckets:
            raise errors.ContainerMissingError(f"the bucket {bucket} is not there")
        return self.buckets[bucket]


class _MemoryStore:
    """One location in memory."""

    def __init__(self, stores: MemoryObjectStores, bucket: str, prefix: str) -> None:
        self._stores, self._bucket, self._prefix = stores, bucket, prefix

    def read(self, key: str, *, limit: int) -> bytes:
        """Read a file; see the port."""
        full = self._begin("read", key)
        data = self._stores.files(self._bucket).get(full)
        if data is None:
            raise errors.NotFoundError(f"{self._bucket}/{full} is not there")
        if len(data) > limit:
            raise _too_large(f"{self._bucket}/{full}", len(data), limit)
        return data

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """List the keys under a prefix; see the port."""
        below = self._below(self._start(prefix))
        # An empty object that ends in a slash is a console's marker of a folder, and no file, as in the clouds.
        found = {full: data for full, data in below.items() if data or not full.endswith("/")}
        for full in self._checked(found):
            yield FileInfo(strip(self._prefix, full), len(found[full]), self._stores.modified(self._bucket, full))

    def list_directories(self, prefix: str) -> Iterator[str]:
        """List the directories right below a prefix; see the port."""
        start = self._start(prefix)
        names = {full[len(start) :].partition("/") for full in self._below(start)}
        yield from self._checked({name for name, slash, _ in names if slash})

    def write(self, key: str, data: bytes) -> None:
        """Write a file; see the port."""
        self._stores.put(self._bucket, self._begin("write", key), data)

    def delete(self, keys: Sequence[str]) -> Mapping[str, Outcome]:
        """Delete many keys; see the port."""
        return {key: self._delete(key) for key in keys}

    def _delete(self, key: str) -> Outcome:
        try:
            return self._stores.take(self._bucket, self._begin("delete", key))
        except errors.ReprieveError as error:
            return outcome_of(error)

    def _start(self, prefix: str) -> str:
        """What the keys below a prefix start with in the bucket."""
        with _in(self._bucket):
            return start_of(join(self._prefix, check_directory(prefix)))

    def _below(self, start: str) -> dict[str, bytes]:
        self._stores.hook("list", self._bucket, start)
        found = self._stores.files(self._bucket).copy()  # in one go: others may write and delete meanwhile
        return {full: data for full, data in found.items() if full.startswith(start)}

    def _checked(self, names: Iterable[str]) -> tuple[str, ...]:
        """Keys, or names of directories, in order. Raises ``InvalidError`` when one is none."""
        with _in(self._bucket):
            return tuple(sorted(map(check_key, names)))

    def _begin(self, operation: str, key: str) -> str:
        with _in(self._bucket):
            full = full_key(self._prefix, key)
        self._stores.files(self._bucket)
        self._stores.hook(operation, self._bucket, full)
        return full
