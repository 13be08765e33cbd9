"""What the controller's account may do: each right with its reason, as far as the configuration asks for it.

Guarantee: no wildcard; Secrets by name; ``create`` on backups only where sync is on; what protection needs only for the
kinds that are configured. Tests hold each line against the calls that are really made. Not guaranteed: that a plural is
right where a kind's group is not known here; such a one is marked as a guess.

RBAC knows no right to metadata alone: ``list`` and ``watch`` on a kind show its objects whole. Where that kind is
Secret, the account can read every Secret, and the rule says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta

from attrs import field, frozen

from reprieve.adapters.k8s import velero
from reprieve.adapters.k8s.dialect import ServedLocations
from reprieve.adapters.local.kinds import guessed, known
from reprieve.core.objects import ObjectKind
from reprieve.core.shield import SHIELD_NAME
from reprieve.core.values import as_tuple
from reprieve.entrypoints.configuration import BackupSettings, BackupsOff, Configuration, ProtectionEntry
from reprieve.entrypoints.controller.build import dialect_of
from reprieve.entrypoints.leases import LEASE_NAME, lease_namespace

NAME = "reprieve"
PROTECTION = "reprieve-protection"
EVERY_SECRET = (
    "RBAC cannot grant metadata alone: with list and watch on Secrets this account can read",
    "every Secret of the cluster. It is here because an entry under protection: names v1/Secret.",
)
GUESSED = ("A plural by the rules of English: `kubectl api-resources` tells whether it is right.",)


@frozen
class Rule:
    """Verbs on resources of one group, each with its reason. ``names``: only on objects of these names.

    ``remarks`` are lines to be read beside it.
    """

    group: str
    resources: tuple[str, ...] = field(converter=as_tuple)
    verbs: Mapping[str, str]
    names: tuple[str, ...] = field(default=(), converter=as_tuple)
    remarks: tuple[str, ...] = field(default=(), converter=as_tuple)


@frozen
class Role:
    """Rules in one namespace; without one they hold in every namespace."""

    name: str
    namespace: str
    purpose: str
    rules: tuple[Rule, ...] = field(converter=as_tuple)


def roles(
    configuration: Configuration, *, secrets: Iterable[str], carried: Iterable[ObjectKind] = ()
) -> tuple[Role, ...]:
    """The roles that the controller needs, those of the backups first.

    ``secrets``: the names of the Secrets that locations name. ``carried``: kinds that Faros' owners carry.
    """
    backups, entries = configuration.backups, configuration.protection
    lease = [*_lease()]
    found = []
    if isinstance(backups, BackupsOff):
        found.append(Role(NAME, lease_namespace(configuration), "Who of several replicas works.", lease))
    else:
        of_backups = [*_backups(backups, tuple(secrets)), *_events(), *lease]
        found.append(Role(NAME, backups.namespace, "In the namespace of the backups.", of_backups))
        if dialect_of(backups).lists:
            found.append(Role(NAME, "", "In every namespace: read only.", _elsewhere()))
    if entries:
        purpose = "In every namespace: what protection: needs for the kinds that it names."
        found.append(Role(PROTECTION, "", purpose, [*_protection(entries, tuple(carried)), *_events()]))
    return tuple(found)


def _backups(settings: BackupSettings, secrets: tuple[str, ...]) -> Iterator[Rule]:
    dialect = dialect_of(settings)
    group, sync = dialect.backup_kind.group, settings.sync.interval > timedelta(0)
    yield Rule(
        group,
        ["deletebackuprequests"],
        {
            "list": "every request, at start and at each resync",
            "watch": "a new request is seen at once",
            "create": "retention files requests for what expired",
            "patch": "bind it to its backup's UID; its phase, errors and state",
            "delete": "once it is done, and when it expired",
        },
    )
    yield Rule(
        group,
        ["backups"],
        {
            "get": "the record, live, before each deletion",
            "list": "a follower begins with a list",
            "watch": "a hold that is lifted wakes the request that waits for it",
            **({"create": "sync: a record for what the bucket has"} if sync else {}),
            "patch": "phase Deleting, and back when nothing was destroyed; holds; the finalizer of old Ark releases",
            "delete": "the record, after all that it points at is gone, or that its bucket has no more",
        },
    )
    yield Rule(
        group,
        ["restores"],
        {
            "list": "restores of the backup; one that still runs defers its deletion",
            "watch": "the end of such a restore wakes the request",
            "delete": "restores go with their backup",
        },
    )
    if isinstance(dialect.locations, ServedLocations):
        yield from _locations(group, sync=sync)
    if sync:
        owned = "a record that sync creates belongs to its schedule only where that is there"
        yield Rule(group, ["schedules"], {"list": owned})
    if sync and dialect.lists:
        brought = "sync brings them along with their backup"
        yield Rule(velero.POD_VOLUME_BACKUP.group, ["podvolumebackups"], {"create": brought})
    if dialect.lists:
        moved = "data-mover items of the backup, which have no adapter: their deletion is refused"
        yield Rule("", ["configmaps"], {"list": moved})
    if secrets:
        yield Rule(
            "",
            ["secrets"],
            {"get": "the credential that a location names"},
            names=secrets,
            remarks=(
                "Those that your locations name in spec.credential, and no other: with a right to every Secret,",
                "whoever may create a location could have any Secret of this namespace read.",
            ),
        )


def _locations(group: str, *, sync: bool) -> Iterator[Rule]:
    yield Rule(
        group,
        ["backupstoragelocations"],
        {
            "get": "bucket, prefix, provider, whether it is read-only and available",
            "list": "a follower begins with a list",
            "watch": "a location that is available again wakes the requests that wait for it",
            **({"patch": "lastSyncedTime"} if sync else {}),
        },
    )
    yield Rule(group, ["volumesnapshotlocations"], {"list": "region and provider of each snapshot"})


def _events() -> Iterator[Rule]:
    yield Rule(
        "",
        ["events"],
        {
            "create": "what was decided, and why, on the object itself",
            "get": "an event that repeats …",
            "patch": "… is counted, not written again",
        },
    )


def _lease() -> Iterator[Rule]:
    group = "coordination.k8s.io"
    yield Rule(group, ["leases"], {"create": "cannot be narrowed to a name"})
    yield Rule(
        group, ["leases"], {"get": "who leads", "patch": "take, renew and release leadership"}, names=[LEASE_NAME]
    )


def _elsewhere() -> Iterator[Rule]:
    yield Rule(
        velero.POD_VOLUME_BACKUP.group,
        ["podvolumebackups", "datauploads"],
        {"list": "data in a repository or with a data mover: a backup that has some is refused, not half deleted"},
    )
    yield Rule(
        "snapshot.storage.k8s.io",
        ["volumesnapshots", "volumesnapshotcontents"],
        {"list": "CSI snapshots that a backup left in the cluster, whose handle no list may name: the same"},
    )


def _protection(entries: tuple[ProtectionEntry, ...], carried: tuple[ObjectKind, ...]) -> Iterator[Rule]:
    for owner in dict.fromkeys(entry.owner for entry in entries):
        yield _of_kind(
            owner,
            {
                "get": "an owner, live, before each decision",
                "list": "every owner, at start and at each resync",
                "watch": "a deletion that somebody asked for is seen at once",
                "patch": "our finalizer, and the annotations that say who asked",
                "delete": "an owner whose deletion somebody asked for, by UID",
            },
        )
    dependents = dict.fromkeys([*(kind for entry in entries for kind in entry.dependents), *carried])
    for kind in dependents:
        yield _of_kind(
            kind,
            {
                "get": "a dependent, live, where a list may be too old",
                "list": "what refers to an owner",
                "watch": "a dependent that is gone wakes its owner",
                "patch": "take the reference to an owner off what is orphaned",
                "delete": "a dependent that somebody asked for, with its owner, by UID",
            },
        )
    yield Rule("", ["namespaces"], {"get": "holds, and policies that a namespace sets"})
    if any(entry.dialect == "faros" for entry in entries):
        yield Rule(
            "admissionregistration.k8s.io",
            ["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
            {"get": "whether the shield is in the cluster, for the warning at the start"},
            names=[SHIELD_NAME],
        )


def _of_kind(kind: ObjectKind, verbs: Mapping[str, str]) -> Rule:
    served = known(kind)
    remarks = [] if served is not None else [*GUESSED]
    if (kind.group, kind.kind) == ("", "Secret"):
        remarks += EVERY_SECRET
    return Rule(kind.group, [(served or guessed(kind, ())).plural], verbs, remarks=remarks)
