"""Keys of object storage: which ones can be asked for byte for byte, and how they hang below a location's prefix.

A key is refused when a store may silently take it for another one: object storage clients drop slashes at either end,
and know no empty segment, no ``.``, no ``..`` and no control character; a file system neither. Percent signs, spaces,
``+``, quotes and non-ASCII text stand for themselves. A prefix is a directory: ``a`` and ``a/`` are the same, and
neither holds ``ab``.

Guarantee: ``full_key(prefix, key)`` is the key in the bucket, byte for byte, and lies below the prefix.
Not guaranteed: that every key of a bucket passes; docs/buckets.md says what happens to the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from reprieve.core.errors import InvalidError

LONGEST_KEY = 1024
"""Bytes of UTF-8, as S3 and Google Cloud Storage count; Azure counts characters, and so takes a little more."""

DELETE = 0x7F
FIRST_PRINTABLE = 0x20


def check_key(key: str, *, refused: str = "") -> str:
    """Give the key back. Raises ``InvalidError`` when it cannot be asked for byte for byte.

    ``refused``: characters that this store changes.
    """
    fault = _fault(key) or next((f"it has a {c!r}" for c in key if c in refused), "")
    if fault:
        raise InvalidError(f"key {key[:200]!r} cannot be used: {fault}")
    return key


def check_directory(prefix: str) -> str:
    """Give a prefix back without its closing slash; empty for the whole location.

    Raises ``InvalidError`` as for keys.
    """
    directory = prefix.removesuffix("/")
    return check_key(directory) if directory or prefix else ""


def full_key(prefix: str, key: str, *, refused: str = "") -> str:
    """The key in the bucket of a key below a location's prefix. Raises ``InvalidError`` as ``check_key`` does."""
    return check_key(join(prefix, check_key(key)), refused=refused)


def join(prefix: str, key: str) -> str:
    """Put a key below a prefix; either may be empty."""
    return f"{prefix}/{key}" if prefix and key else prefix or key


def strip(prefix: str, path: str) -> str:
    """Take the prefix off a path that lies below it."""
    return path.removeprefix(f"{prefix}/") if prefix else path


def start_of(directory: str) -> str:
    """What the keys below a directory start with; empty for the whole bucket."""
    return f"{directory}/" if directory else ""


def common_directory(paths: Iterable[str]) -> str:
    """The deepest directory that holds all of these paths, empty for the root."""
    columns = zip(*(path.split("/")[:-1] for path in paths), strict=False)
    return "/".join(names[0] for names in takewhile(lambda names: len(set(names)) == 1, columns))


def _fault(key: str) -> str:
    if not key:
        return "it is empty"
    segments = key.split("/")
    if "" in segments:
        return "it starts or ends with a slash, or has two in a row"
    if "." in segments or ".." in segments:
        return "it has a segment '.' or '..'"
    if any(ord(c) < FIRST_PRINTABLE or ord(c) == DELETE for c in key):
        return "it has a control character"
    return _encoding_fault(key)


def _encoding_fault(key: str) -> str:
    try:
        size = len(key.encode("utf-8"))
    except UnicodeEncodeError:
        return "it is no valid Unicode text"
    return f"it has {size} bytes, more than {LONGEST_KEY}" if size > LONGEST_KEY else ""
