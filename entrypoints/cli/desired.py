"""The desired set: every manifest in a folder, and the owners that it wants.

Guarantee: a set is complete only when every file was read and understood; a file that was not, a folder that cannot be
entered and a link to a folder (which is not followed) make it partial, a missing folder makes it unavailable. What
Faros would ignore is desired all the same: Faros never deletes what is in git. Not guaranteed: that the folder is the
revision that the tracker will see.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from attrs import evolve, field, frozen

from reprieve.adapters.k8s import faros
from reprieve.adapters.local import FolderError
from reprieve.adapters.local.disk import read
from reprieve.adapters.local.manifests import SUFFIXES, parse_file
from reprieve.core.objects import Resource, resource_from_json
from reprieve.core.pruning import (
    CompleteSet,
    DesiredSet,
    FarosTracker,
    Ignored,
    OwnerKey,
    PartialSet,
    UnavailableSet,
    faros_handling,
    faros_key,
    key_of,
)
from reprieve.core.values import as_tuple


@frozen
class Desired:
    """The desired set, how many manifests it was read from, and which of them Faros would ignore, as sentences."""

    keys: DesiredSet
    manifests: int = 0
    ignored: tuple[str, ...] = field(default=(), converter=as_tuple)


def read_desired(folder: Path, parent: Resource) -> Desired:
    """Read what a folder wants of an owner's owner: a GitTrack's owners by Faros' rules, else owners as manifests."""
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "is not there"
        return Desired(UnavailableSet(f"{folder} {what}"))
    troubles: list[str] = []
    manifests = [each for path in _files(folder, troubles) for each in _manifests(path, troubles)]
    keys = frozenset(key for each in manifests for key in _keys(each, parent))
    observed: DesiredSet = PartialSet(keys, troubles) if troubles else CompleteSet(keys)
    return Desired(observed, len(manifests), _ignored(manifests, parent))


def _files(folder: Path, troubles: list[str]) -> Iterator[Path]:
    def unreadable(fault: OSError) -> None:
        troubles.append(f"{fault.filename}: cannot be read: {fault.strerror}")

    for top, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(name for name in folders if name != ".git")
        troubles += [f"{link}: this is a link to a folder: links are not followed" for link in _links(top, folders)]
        paths = [Path(top, name) for name in sorted(files) if Path(name).suffix in SUFFIXES]
        yield from (inside for path in paths if (inside := _inside(folder, path, troubles)) is not None)


def _inside(folder: Path, path: Path, troubles: list[str]) -> Path | None:
    """The file that a name means; none, and a trouble, for a link that leads out of the folder."""
    real = Path(os.path.realpath(path))
    if not path.is_symlink():
        return path
    if real.is_relative_to(os.path.realpath(folder)):
        return real
    troubles.append(f"{path}: this is a link that leads out of the folder: it is not followed")
    return None


def _links(top: str, folders: Iterable[str]) -> list[Path]:
    return [path for name in folders if (path := Path(top, name)).is_symlink()]


def _manifests(path: Path, troubles: list[str]) -> list[Resource]:
    """The objects of a file; none, and a trouble, when any of it cannot be understood."""
    try:
        return [resource_from_json(part.obj) for part in parse_file(path, read(path)).parts]
    except FolderError as fault:
        troubles.append(str(fault))
        return []


def _keys(manifest: Resource, parent: Resource) -> set[OwnerKey]:
    """What a manifest wants. One without a namespace may mean that of the owner's owner: then it wants either."""
    if parent.type.group == faros.GROUP:
        return {faros_key(manifest.type.kind, manifest.meta.name, manifest.meta.namespace)}
    key = key_of(manifest.ref)
    return {key, evolve(key, namespace=key.namespace or parent.meta.namespace)}


def _ignored(manifests: Iterable[Resource], parent: Resource) -> list[str]:
    if parent.type.group != faros.GROUP:
        return []
    tracker = FarosTracker(parent.meta.namespace)
    handled = [(each.ref, faros_handling(tracker, "", each.meta.namespace)) for each in manifests]
    return [f"{ref}: {how.why}" for ref, how in handled if isinstance(how, Ignored)]
