"""A folder for files that must not stay: certificates and keys of a kubeconfig, which the client reads from files only.

Guarantee: the folder is ours alone (0700, with a random name) and is gone when the block ends. What a process left that
was killed inside of a block is removed by the next one that needs a folder.
Not guaranteed: that nothing of it can be read from the disk afterwards.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "reprieve-private-"
_TRIES = 5


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make a folder, and remove it with all that is in it. Raises ``OSError`` where there is no room for one."""
    remove_left_ones()
    path, handle = _made()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)


def _made() -> tuple[Path, int]:
    """A folder and a lock on it, which ends with this process however it ends."""
    for _ in range(_TRIES):
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        if (handle := _locked(path)) is not None:
            return path, handle
    raise OSError(f"no folder for private files can be kept in {tempfile.gettempdir()}")


def remove_left_ones() -> None:
    """Remove the folders of processes that are no more: they hold no lock."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if (handle := _locked(path)) is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(handle)


def _locked(path: Path) -> int | None:
    """A lock on a folder of our own; None where somebody else has it, or it is not ours, no folder, or gone."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):
        found = os.fstat(handle)
        if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == stat.S_IRWXU:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(found, path.lstat()):  # not one that was removed before it was locked
                return handle
    os.close(handle)
    return None
