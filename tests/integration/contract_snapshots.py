"""One contract for every ``SnapshotStore``.

The same situation comes to the same outcome on every cloud, and in the local adapter.

A case runs on a column (a provider's real SDK against its stand-in, or the local adapter) and gives what was seen as
text. What a provider cannot have is said in ``lacks``, with the reason; it is not imitated. ``render`` writes the
table, and the tables of the SDKs' errors, as docs/errors.md; run this module to write it anew.
"""

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from attrs import field, frozen

from reprieve.adapters.cloud import aws, azure, gcp
from reprieve.adapters.cloud.tables import Rule
from reprieve.adapters.local.snapshots import MemorySnapshotStores
from reprieve.core.backups import SnapshotLocation
from reprieve.core.errors import ReprieveError
from reprieve.core.outcomes import Denied, InUse, Locked, Outcome, Pending, Retryable, is_gone
from reprieve.core.ports import SnapshotInfo, SnapshotStore
from reprieve.core.values import FrozenMap
from tests.integration import azure_compute, ec2, gcp_compute
from tests.integration.cloud_http import GARBAGE, Answer, closed_url

TAG = "velero.io/backup"
MANY = 2_500
SOON = timedelta(seconds=0.2)
LOCKED_UNTIL = datetime(2031, 1, 1, tzinfo=UTC)
AWS_FILE = b"[default]\naws_access_key_id = made-up\naws_secret_access_key = made-up\n"
AZURE_FILE = (
    "AZURE_TENANT_ID=made-up\nAZURE_CLIENT_ID=made-up\nAZURE_CLIENT_SECRET=made-up\n"
    f"AZURE_SUBSCRIPTION_ID={azure_compute.SUBSCRIPTION}\nAZURE_RESOURCE_GROUP={azure_compute.GROUP}\n"
).encode()


class Column(Protocol):
    """A provider in a state that a case can arrange."""

    name: str
    lacks: Mapping[str, str]
    absent: str
    malformed: tuple[str, ...]

    def store(self) -> SnapshotStore: ...
    def close(self) -> None: ...
    def add(self, tags: dict[str, str] | None = None) -> str: ...
    def ids(self) -> set[str]: ...
    def in_use(self, snapshot: str) -> None: ...
    def locked(self, snapshot: str) -> None: ...
    def denied(self, snapshot: str) -> None: ...
    def throttled(self, snapshot: str) -> None: ...
    def elsewhere(self, snapshot: str) -> tuple[SnapshotStore, str]: ...
    def down(self) -> SnapshotStore: ...
    def hanging(self) -> SnapshotStore: ...
    def garbage(self) -> None: ...
    def error_inside(self, snapshot: str) -> None: ...
    def breaks_on_page(self, number: int) -> None: ...


class OverHttp:
    """What the three clouds' columns share. ``cloud`` is the stand-in, ``kit`` the module with its shapes."""

    lacks: Mapping[str, str] = FrozenMap()
    kit: Any
    throttle: Answer
    refusal: Answer

    def __init__(self, cloud: Any) -> None:
        self.cloud = cloud

    def close(self) -> None:
        self.cloud.close()

    def store(self) -> SnapshotStore:
        return self.open(self.cloud.url)

    def open(self, url: str, *, timeout: timedelta = timedelta(seconds=20), **config: str) -> SnapshotStore:
        raise NotImplementedError

    def add(self, tags: dict[str, str] | None = None) -> str:
        return str(self.cloud.add(tags))

    def ids(self) -> set[str]:
        return set(self.cloud.ids())

    def denied(self, snapshot: str) -> None:
        self.cloud.faults.next(self.refusal, when=self.kit.is_delete)

    def throttled(self, snapshot: str) -> None:
        self.cloud.faults.next(self.throttle, when=self.kit.is_delete)

    def down(self) -> SnapshotStore:
        return self.open(closed_url())

    def hanging(self) -> SnapshotStore:
        self.cloud.faults.hanging.set()
        return self.open(self.cloud.url, timeout=SOON)

    def garbage(self) -> None:
        self.cloud.faults.next(GARBAGE, when=self.kit.is_delete)

    def breaks_on_page(self, number: int) -> None:
        seen = count(1)
        self.cloud.faults.next(self.throttle, when=lambda _: next(seen) == number)


class AwsColumn(OverHttp):
    name = "aws"
    absent = "snap-0123456789abcdef0"
    malformed = ("", "nope", "snap-XYZ", "snap-0123456789abcdef0/..", "snap-0123456789abcdef0\n")
    kit = ec2
    throttle = ec2.THROTTLED
    refusal = ec2.refusal("UnauthorizedOperation", "You are not authorized to perform this operation.", status=403)

    def __init__(self) -> None:
        super().__init__(ec2.Ec2())

    def open(self, url: str, *, timeout: timedelta = timedelta(seconds=20), **config: str) -> SnapshotStore:
        location = SnapshotLocation("default", "velero.io/aws", {"region": ec2.REGION, **config})
        return aws.AwsSnapshots(endpoint=url, timeout=timeout).open(location, credential=AWS_FILE)

    def in_use(self, snapshot: str) -> None:
        self.cloud.in_use[snapshot] = "ami-0123456789abcdef0"

    def locked(self, snapshot: str) -> None:
        self.cloud.locked[snapshot] = LOCKED_UNTIL

    def elsewhere(self, snapshot: str) -> tuple[SnapshotStore, str]:
        """A region that does not exist.

        Its endpoint's host has no address (RFC 6761 keeps ``.invalid`` free of any).
        """
        return self.open("http://ec2.xx-nowhere-1.invalid", region="xx-nowhere-1"), snapshot

    def error_inside(self, snapshot: str) -> None:
        inner = ec2.refusal(
            "InvalidSnapshot.InUse", f"The snapshot {snapshot} is currently in use by ami-1", status=200
        )
        self.cloud.faults.next(inner, when=ec2.is_delete)


class GcpColumn(OverHttp):
    name = "gcp"
    lacks = FrozenMap({"locked": "Compute Engine has no lock on a snapshot"})
    absent = "disk-absent"
    malformed = ("", "Upper", "a/b", "-a", "a" * 64, "../a", "a\n")
    kit = gcp_compute
    throttle = gcp_compute.refusal(403, "rateLimitExceeded", "Rate Limit Exceeded")
    refusal = gcp_compute.refusal(403, "forbidden", "Required 'compute.snapshots.delete' permission for 'projects/p'")

    def __init__(self) -> None:
        super().__init__(gcp_compute.GcpCompute())

    def open(self, url: str, *, timeout: timedelta = timedelta(seconds=20), **config: str) -> SnapshotStore:
        location = SnapshotLocation("default", "velero.io/gcp", config)
        return gcp.GcpSnapshots(endpoint=url, timeout=timeout).open(location, credential=self.cloud.credential())

    def in_use(self, snapshot: str) -> None:
        message = f"The resource 'projects/p/global/snapshots/{snapshot}' is already being used by 'projects/p/x'"
        self.cloud.refused[snapshot] = gcp_compute.refusal(400, "resourceInUseByAnotherResource", message)

    def elsewhere(self, snapshot: str) -> tuple[SnapshotStore, str]:
        return self.open(self.cloud.url, project="another-project"), snapshot

    def error_inside(self, snapshot: str) -> None:
        """The operation is accepted, and ends in an error; asking for it answers 200."""
        message = f"The snapshot resource 'projects/p/global/snapshots/{snapshot}' is already being used"
        self.cloud.ends_in[snapshot] = (400, "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", message)


class AzureColumn(OverHttp):
    name = "azure"
    absent = f"{azure_compute.PREFIX}/absent"
    malformed = (
        "",
        "disk-1",
        f"{azure_compute.PREFIX}/a/b",
        f"{azure_compute.PREFIX}/",
        f"{azure_compute.PREFIX}/../a",
        f"x{azure_compute.PREFIX}/a",
        f"{azure_compute.PREFIX}/a\n",
        azure_compute.PREFIX.replace("snapshots", "disks") + "/a",
    )
    kit = azure_compute
    throttle = azure_compute.refusal(429, "TooManyRequests", "Too many requests.", headers={"Retry-After": "3"})
    refusal = azure_compute.refusal(403, "AuthorizationFailed", "The client does not have authorization.")

    def __init__(self) -> None:
        super().__init__(azure_compute.AzureCompute())

    def open(self, url: str, *, timeout: timedelta = timedelta(seconds=20), **config: str) -> SnapshotStore:
        from azure.core.pipeline.policies import SansIOHTTPPolicy

        location = SnapshotLocation("default", "velero.io/azure", config)
        opener = azure.AzureSnapshots(endpoint=url, authentication_policy=SansIOHTTPPolicy(), timeout=timeout)
        return opener.open(location, credential=AZURE_FILE)

    def in_use(self, snapshot: str) -> None:
        message = "There is an active shared access signature outstanding for the snapshot."
        self.cloud.refused[name_of(snapshot)] = azure_compute.refusal(409, "OperationNotAllowed", message)

    def locked(self, snapshot: str) -> None:
        message = f"The scope '{snapshot}' cannot perform delete operation because following scope(s) are locked"
        self.cloud.refused[name_of(snapshot)] = azure_compute.refusal(409, "ScopeLocked", message)

    def elsewhere(self, snapshot: str) -> tuple[SnapshotStore, str]:
        return self.store(), snapshot.replace(f"/{azure_compute.GROUP}/", "/another-group/")

    def error_inside(self, snapshot: str) -> None:
        """The operation is accepted, and ends as ``Failed``; asking for it answers 200."""
        self.cloud.ends_in[name_of(snapshot)] = ("OperationNotAllowed", "The snapshot is being used.")


NO_WIRE = "nothing is asked over a wire"


class LocalColumn:
    name = "local"
    lacks = FrozenMap(
        {
            "container missing": "snapshots are kept by provider, in nothing that could be missing",
            "malformed id": "any text is an id",
            "server down": NO_WIRE,
            "hangs": NO_WIRE,
            "answers garbage": NO_WIRE,
            "answers 200 with an error inside": NO_WIRE,
            "list breaks on a later page": NO_WIRE,
        }
    )
    absent = "snap-absent"
    malformed = ()

    def __init__(self) -> None:
        self.stores = MemorySnapshotStores()
        self._numbers = count(1)

    def close(self) -> None:
        pass

    def store(self) -> SnapshotStore:
        return self.stores.open(SnapshotLocation("default", "velero.io/aws"))

    def add(self, tags: dict[str, str] | None = None) -> str:
        snapshot = f"snap-{next(self._numbers):05d}"
        self.stores.snapshots.insert(0, SnapshotInfo("aws", snapshot, tags or {}))
        return snapshot

    def ids(self) -> set[str]:
        return {snapshot.id for snapshot in self.stores.snapshots}

    def in_use(self, snapshot: str) -> None:
        self.stores.outcomes[snapshot] = [InUse("in use")]

    def locked(self, snapshot: str) -> None:
        self.stores.outcomes[snapshot] = [Locked(None, "locked")]

    def denied(self, snapshot: str) -> None:
        self.stores.outcomes[snapshot] = [Denied("denied")]

    def throttled(self, snapshot: str) -> None:
        self.stores.outcomes[snapshot] = [Retryable(message="throttled")]


COLUMNS: dict[str, Callable[[], Any]] = {
    "aws": AwsColumn,
    "gcp": GcpColumn,
    "azure": AzureColumn,
    "local": LocalColumn,
}


def name_of(snapshot: str) -> str:
    return snapshot.rpartition("/")[2]


def settle(store: SnapshotStore, snapshot: str) -> Outcome:
    """Ask for a deletion until it is no longer pending, as the core does, without its waiting."""
    for _ in range(10):
        outcome = store.delete(snapshot)
        if not isinstance(outcome, Pending):
            return outcome
    return outcome


def called(outcome: Outcome) -> str:
    return type(outcome).__name__


def world(column: Column, snapshot: str) -> str:
    return "kept" if snapshot in column.ids() else "deleted"


def seen(column: Column, snapshot: str, *outcomes: Outcome) -> str:
    return f"{', '.join(map(called, outcomes))}; {world(column, snapshot)}"


def raised(read: Callable[[], object]) -> str:
    try:
        return f"nothing, but {read()!r}"
    except ReprieveError as error:
        return type(error).__name__


def delete_present(column: Column) -> str:
    snapshot, other = column.add(), column.add()
    outcome = settle(column.store(), snapshot)
    return f"{seen(column, snapshot, outcome)}, the other one {world(column, other)}"


def delete_absent(column: Column) -> str:
    other = column.add()
    return seen(column, other, settle(column.store(), column.absent))


def delete_twice_at_once(column: Column) -> str:
    snapshot, store, barrier = column.add(), column.store(), threading.Barrier(2)
    outcomes: list[Outcome] = []

    def ask() -> None:
        barrier.wait()
        outcomes.append(settle(store, snapshot))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return f"{' and '.join('gone' if is_gone(o) else called(o) for o in outcomes)}; {world(column, snapshot)}"


def refused(arrange: Callable[[Any, str], None]) -> Callable[[Column], str]:
    def run(column: Column) -> str:
        snapshot = column.add()
        arrange(column, snapshot)
        return seen(column, snapshot, settle(column.store(), snapshot))

    return run


def throttled_then_fine(column: Column) -> str:
    snapshot, store = column.add(), column.store()
    column.throttled(snapshot)
    return seen(column, snapshot, settle(store, snapshot), settle(store, snapshot))


def container_missing(column: Column) -> str:
    snapshot = column.add()
    store, name = column.elsewhere(snapshot)
    return seen(column, snapshot, settle(store, name))


def malformed_id(column: Column) -> str:
    store = column.store()
    return ", ".join(sorted({called(settle(store, name)) for name in column.malformed}))


def server_down(column: Column) -> str:
    snapshot = column.add()
    return seen(column, snapshot, settle(column.down(), snapshot))


def hangs(column: Column) -> str:
    snapshot = column.add()
    return seen(column, snapshot, settle(column.hanging(), snapshot))


def get_present(column: Column) -> str:
    snapshot = column.add({TAG: "nightly"})
    found = column.store().get(snapshot)
    return "found" if found.id == snapshot and "nightly" in found.tags.values() else repr(found)


def get_absent(column: Column) -> str:
    return raised(lambda: column.store().get(column.absent))


def list_many(column: Column) -> str:
    added = {column.add({TAG: "nightly"}) for _ in range(MANY)}
    listed = [snapshot.id for snapshot in column.store().list(TAG)]
    order = "in order of id" if listed == sorted(listed) else "in no order"
    return f"{len(listed)} of {len(added)}, each once, {order}" if set(listed) == added else f"{len(set(listed))} ids"


def list_by_tag(column: Column) -> str:
    ours = column.add({TAG: "nightly", "velero.io/pv": "pv-1"})
    column.add({"velero.io/pv": "pv-1"})
    column.add({f"{TAG}-name": "nightly"})
    column.add()
    found = list(column.store().list(TAG))
    return "only those with the tag" if [(s.id, s.tags[TAG]) for s in found] == [(ours, "nightly")] else repr(found)


def list_by_value(column: Column) -> str:
    ours = column.add({TAG: "nightly", "velero.io/pv": "pv-1"})
    column.add({TAG: "nightly-2"})
    column.add({TAG: ""})
    column.add({"velero.io/pv": "nightly"})
    found = list(column.store().list(TAG, "nightly"))
    return "only those of that value" if [(s.id, s.tags[TAG]) for s in found] == [(ours, "nightly")] else repr(found)


def list_empty(column: Column) -> str:
    column.add()
    return "nothing" if list(column.store().list(TAG)) == [] else "something"


def list_breaks(column: Column) -> str:
    """An error after the first page must not look like a short list."""
    for _ in range(MANY):
        column.add({TAG: "nightly"})
    column.breaks_on_page(2)
    given: list[SnapshotInfo] = []
    told = raised(lambda: given.extend(column.store().list(TAG)))
    return f"{told}, none given" if not given else f"{told} after {len(given)}"


@frozen
class Case:
    """A situation, and what is to be seen in every column."""

    name: str
    expected: str
    run: Callable[[Any], str] = field(repr=False)


CASES = (
    Case("delete present", "Done; deleted, the other one kept", delete_present),
    Case("delete absent", "AlreadyGone; kept", delete_absent),
    Case("delete twice at once", "gone and gone; deleted", delete_twice_at_once),
    Case("in use", "InUse; kept", refused(lambda c, s: c.in_use(s))),
    Case("locked", "Locked; kept", refused(lambda c, s: c.locked(s))),
    Case("denied", "Denied; kept", refused(lambda c, s: c.denied(s))),
    Case("throttled then fine", "Retryable, Done; deleted", throttled_then_fine),
    Case("container missing", "ContainerMissing; kept", container_missing),
    Case("malformed id", "Invalid", malformed_id),
    Case("server down", "Retryable; kept", server_down),
    Case("hangs", "Retryable; kept", hangs),
    Case("answers garbage", "Unknown; kept", refused(lambda c, _: c.garbage())),
    Case("answers 200 with an error inside", "InUse; kept", refused(lambda c, s: c.error_inside(s))),
    Case("get present", "found", get_present),
    Case("get absent", "NotFoundError", get_absent),
    Case("list of 2,500 in pages", f"{MANY} of {MANY}, each once, in order of id", list_many),
    Case("list by tag", "only those with the tag", list_by_tag),
    Case("list by tag and value", "only those of that value", list_by_value),
    Case("list without any", "nothing", list_empty),
    Case("list breaks on a later page", "ThrottledError, none given", list_breaks),
)

TABLES = {
    "aws": ("AWS: boto3 and botocore", aws.ERRORS),
    "gcp": ("Google Cloud: google-cloud-compute", gcp.ERRORS),
    "azure": ("Azure: azure-mgmt-compute and azure-identity", azure.ERRORS),
}

INTRODUCTION = """# Errors of the clouds

<!-- Generated from the code and the contract suite: python -m tests.integration.contract_snapshots. -->

What a cloud says reaches reprieve as one of a few outcomes, whichever cloud it is. This page lists which, for
snapshots: first the contract that all of them keep, then the table of each SDK. A deletion that was accepted is
followed until it has ended; the table shows that end. Nothing but `Done` and `AlreadyGone` ever counts as gone.

## The contract

Every case runs against the real SDK, over HTTP, and against the local adapter. "kept" and "deleted" tell what is
left in the cloud.
"""

READING = """
## What each SDK says

The first row that fits holds; what no row names is `UnknownError`. Codes are regular expressions for the whole code.
An error that is raised where something is deleted becomes the outcome of the same name (`NotFoundError` becomes
`AlreadyGone`, `ThrottledError` and `UnavailableError` become `Retryable`).
"""

COLUMNS_OF_RULES = ("core's error", "exception", "HTTP status", "code", "words in the message", "remark")


def cell(case: Case, column: Any) -> str:
    why = column.lacks.get(case.name)
    return f"not there: {why}" if why else case.expected


def contract_table() -> str:
    head = ["| case | " + " | ".join(COLUMNS) + " |", "|---|" + "---|" * len(COLUMNS)]
    rows = [f"| {case.name} | " + " | ".join(cell(case, c) for c in COLUMNS.values()) + " |" for case in CASES]
    return "\n".join([*head, *rows])


def rule_row(rule: Rule) -> str:
    parts = [
        f"`{rule.error.__name__}`",
        ", ".join(rule.exceptions),
        ", ".join(map(str, rule.statuses)),
        ", ".join(f"`{code}`".replace("|", "\\|") for code in rule.codes),
        f"`{rule.words}`".replace("|", "\\|") if rule.words else "",
        rule.why,
    ]
    return "| " + " | ".join(parts) + " |"


def sdk_table(title: str, rules: tuple[Rule, ...]) -> str:
    head = f"| {' | '.join(COLUMNS_OF_RULES)} |\n{'|---' * len(COLUMNS_OF_RULES)}|"
    return f"\n### {title}\n\n{head}\n" + "\n".join(map(rule_row, rules)) + "\n"


def render() -> str:
    """docs/errors.md."""
    tables = "".join(sdk_table(title, rules) for title, rules in TABLES.values())
    return f"{INTRODUCTION}\n{contract_table()}\n{READING}{tables}"


PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"

if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
