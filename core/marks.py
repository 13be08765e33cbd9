"""Whose a snapshot is: what its provider's tags say, and what other records say of it.

Whoever may write to a bucket can name any snapshot of the account in a backup's list; a list is a claim. A snapshot is
deleted with a backup when its provider has it under that backup's tag. Where ``requireTags`` is off for a provider, one
that carries no backup's tag at all is taken for the record's, unless another record names it.

Guarantee: nothing that was not asked, or could not be read, counts as the backup's or as gone. Not guaranteed: that a
tag is a proof; another cluster of the same account may have a backup of the same name.
"""

from __future__ import annotations

from attrs import field, frozen

from reprieve.core.ports import SnapshotInfo
from reprieve.core.values import FrozenMap, as_set, as_tuple, string_map

BACKUP_TAGS = ("velero.io/backup", "velero.io-backup", "ark.heptio.com/backup", "ark.heptio.com-backup")
"""The tags that name a snapshot's backup: Velero's and Ark's, and both as Azure writes them, without a slash."""


def tagged_backup(snapshot: SnapshotInfo) -> str:
    """The backup that a snapshot's tags name; empty when they name none."""
    return next((snapshot.tags[tag] for tag in BACKUP_TAGS if snapshot.tags.get(tag)), "")


def identity(provider: str, snapshot_id: str) -> tuple[str, str]:
    """What makes two snapshot ids one: Azure's are paths of resources, in which upper and lower case are the same."""
    return (provider, snapshot_id.casefold() if provider == "azure" else snapshot_id)


@frozen
class SnapshotsSeen:
    """What the place of a snapshot location answered about the snapshots that one backup's list names there.

    ``tagged`` are the ids that carry the backup's tag, by one listing of the place. Each other one was asked for by its
    id: ``others`` are there, as the provider tells them, ``absent`` are not, and ``nameless`` are ids that no snapshot
    of the place can have, with the reason.
    """

    location: str
    tagged: frozenset[str] = field(default=frozenset(), converter=as_set)
    others: tuple[SnapshotInfo, ...] = field(default=(), converter=as_tuple)
    absent: frozenset[str] = field(default=frozenset(), converter=as_set)
    nameless: FrozenMap[str, str] = field(factory=FrozenMap, converter=string_map)


@frozen
class SnapshotsUnseen:
    """The place of a snapshot location could not be asked."""

    location: str
    why: str


@frozen(order=True)
class Claim:
    """A snapshot that another record's list names. ``held`` is that record's hold as a sentence, empty without one."""

    provider: str
    id: str
    backup: str
    held: str = ""


@frozen
class ClaimsRead:
    """The native snapshots that the lists of all other records of the namespace name."""

    claims: tuple[Claim, ...] = field(default=(), converter=as_tuple)


@frozen
class ClaimsUnread:
    """The lists of the other records could not all be read, for that reason; or nobody asked for them."""

    why: str = "nobody asked"


@frozen
class MarksAsked:
    """The answers of the places. ``untagged`` are the providers whose snapshots need no tag (``requireTags: false``).

    ``claims`` are wanted only for snapshots of those that carry no backup's tag.
    """

    places: tuple[SnapshotsSeen | SnapshotsUnseen, ...] = field(default=(), converter=as_tuple)
    untagged: frozenset[str] = field(default=frozenset(), converter=as_set)
    claims: ClaimsRead | ClaimsUnread = field(factory=ClaimsUnread)


@frozen
class MarksUnasked:
    """No place was asked: enough for a backup that names no native snapshot, and for no other."""


Marks = MarksAsked | MarksUnasked
