"""Files that are written as a whole or not at all, and the error that says where in a folder something is wrong.

Guarantee: a process killed at any moment, or a machine that loses power, leaves the old file or the new one, and at
worst a leftover ``.reprieve-*.tmp`` beside it, which ``sweep`` removes.
Not guaranteed: anything on a file system without atomic rename.
"""

from __future__ import annotations

import errno
import fnmatch
import itertools
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reprieve.core.errors import ReprieveError

LEFTOVER = ".reprieve-*.tmp"
NOTHING_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
_COUNTER = itertools.count(1)
_PUT_A_FILE = "put the file or the folder itself here"


class FolderError(ReprieveError):
    """Something in the folder is wrong: where (file, document, line, field), what, and the way out."""

    def __init__(
        self, path: Path, what: str, *, way_out: str, document: int = 0, line: int = 0, field: str = ""
    ) -> None:
        """``document`` and ``line`` count from 1; 0 and an empty ``field`` mean that they are not known."""
        self.path, self.document, self.line, self.field = path, document, line, field
        parts = [str(path), f"document {document}" if document else "", f"line {line}" if line else "", field]
        super().__init__(f"{', '.join(part for part in parts if part)}: {what}; {way_out}")


class Disk:
    """The few effects on a file system.

    Each is a method of its own, so that a test can let one fail or stop the process there.
    """

    def __init__(self, *, durable: bool = True) -> None:
        """``durable`` False leaves fsync out: killed processes do no harm then either, a power cut may."""
        self._durable = durable

    def write(self, path: Path, data: bytes) -> None:
        """Write a file as a whole; its folder is made where it is missing. Raises ``FolderError``."""
        with reported(path, "cannot be written"):
            self._make_folder(path.parent)
            beside = path.parent / f".reprieve-{os.getpid()}-{next(_COUNTER)}.tmp"
            try:
                self.fill(beside, data)
                if path.exists():
                    shutil.copymode(path, beside)  # a file of Secrets stays as private as it was
                self.rename(beside, path)
            except OSError:
                beside.unlink(missing_ok=True)
                raise
            self._settle(path.parent)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there. Raises ``FolderError``."""
        with reported(path, "cannot be removed"):
            self.unlink(path)
            self._settle(path.parent)

    def fill(self, path: Path, data: bytes) -> None:
        """Create a file, write its bytes and bring them to the disk."""
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            self.sync(file.fileno())

    def sync(self, descriptor: int) -> None:
        """Bring a file's bytes to the disk."""
        if self._durable:
            os.fsync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Put a file in another's place."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """Take a file away."""
        path.unlink(missing_ok=True)

    def sync_folder(self, path: Path) -> None:
        """Bring a folder's entries to the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.sync(descriptor)
        finally:
            os.close(descriptor)

    def _settle(self, folder: Path) -> None:
        """Sync a folder after its entry has changed.

        The change is made: an error here can cost it in a power cut, no more.
        """
        with suppress(OSError):
            self.sync_folder(folder)

    def _make_folder(self, path: Path) -> None:
        if path.is_dir():
            return
        self._make_folder(path.parent)
        path.mkdir(exist_ok=True)
        self.sync_folder(path.parent)


@contextmanager
def reported(path: Path, what: str) -> Iterator[None]:
    """Turn what the operating system says about a file into a ``FolderError``."""
    try:
        yield
    except OSError as error:
        way_out = "check its permissions and the space that is left"
        raise FolderError(path, f"{what} ({error.strerror or error})", way_out=way_out) from error
    except ValueError as error:
        raise FolderError(path, f"{what} ({error})", way_out="use another name") from error


def read(path: Path) -> bytes:
    """Read a regular file. Raises ``FolderError``, also for a link, and for what would never end, such as a FIFO."""
    with reported(path, "cannot be read"):
        try:
            return read_regular(path)
        except NotRegularError as error:
            raise FolderError(path, f"this is {error}", way_out=_PUT_A_FILE) from error


class NotRegularError(Exception):
    """Something has the name of a file and is none; the text says what it is. Never passes this package."""


def read_regular(path: Path, *, limit: int = -1) -> bytes:
    """Read at most ``limit`` bytes (-1: all) of a file, without following a link and without waiting for a writer.

    Raises ``NotRegularError`` for a link, a FIFO, a device or a socket, and ``OSError``.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise NotRegularError("a link: links are not followed") from error
        if error.errno == errno.ENXIO:  # a socket, or a device that is not there
            raise NotRegularError("no regular file") from error
        raise
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise NotRegularError("no regular file")
        return file.read(limit)


def is_link(path: Path) -> bool:
    """Whether there is a link of that name; a name that no file can have is none."""
    with suppress(OSError, ValueError):
        return path.is_symlink()
    return False


def refuse_link(path: Path) -> None:
    """Raise ``FolderError`` when there is a link of that name, whatever it leads to: it may lead out of the folder."""
    if is_link(path):
        raise FolderError(path, "this is a link: links are not followed", way_out=_PUT_A_FILE)


def walk(top: Path, *, hidden: bool = False, links: bool = True) -> Iterator[Path]:
    """Every file below a folder, in order; none below a folder that is missing. Links are not followed.

    ``hidden``: also those whose name, or whose folder's name, begins with a dot. ``links`` False: a link to a folder
    is an error, as what lies behind it would be missed in silence. Raises ``FolderError``.
    """
    if not top.exists():
        return
    with reported(top, "cannot be read"):
        for folder, folders, files in os.walk(top, onerror=_raise):
            folders[:] = sorted(name for name in folders if hidden or not name.startswith("."))
            for name in [] if links else folders:
                refuse_link(Path(folder, name))
            yield from (Path(folder, name) for name in sorted(files) if hidden or not name.startswith("."))


def is_folder(path: Path) -> bool:
    """Whether a folder is there. Raises ``FolderError`` when that cannot be seen: it is not missing then."""
    with reported(path, "cannot be read"):
        try:
            return stat.S_ISDIR(path.stat().st_mode)
        except OSError as error:
            if error.errno in NOTHING_THERE:
                return False
            raise


def folders(top: Path) -> list[str]:
    """The names of the folders right below a folder, in order; links are none. Raises ``FolderError``."""
    with reported(top, "cannot be read"), suppress(FileNotFoundError), os.scandir(top) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    return []


def _raise(error: OSError) -> None:
    """A folder that cannot be read is not an empty one; one that went away meanwhile is."""
    if not isinstance(error, FileNotFoundError):
        raise error


def sweep(top: Path, *patterns: str) -> None:
    """Remove leftovers of a killed process below a folder. Raises ``FolderError``."""
    for folder, _, files in os.walk(top):
        for name in files:
            if any(fnmatch.fnmatch(name, pattern) for pattern in (LEFTOVER, *patterns)):
                with reported(Path(folder, name), "cannot be removed"):
                    Path(folder, name).unlink(missing_ok=True)
