"""100,000 owners with a dependent each: decided in one pass, and looked at by the controller when all is settled.

Time and memory are to grow with the number of owners and not faster: each size runs in a process of its own, what one
owner costs is printed, and the largest size may cost at most ``FACTOR`` times what the smallest does. A settled cluster
costs no write, and as many reads for 100,000 owners as for 10,000.
"""

import gc
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from attrs import asdict, frozen

from reprieve.adapters.local import ClusterStore, Collector, LocalCluster, MemoryEvents
from reprieve.core.objects import ObjectKind, ObjectMeta, OwnerReference
from reprieve.core.protection import PROTECT, Policy, PresentDependent, TerminatingOwner, Verb, decide
from reprieve.core.reasons import Verdict
from reprieve.entrypoints.configuration import ProtectionEntry
from reprieve.entrypoints.controller.decisions import Standing
from reprieve.entrypoints.controller.protection import ProtectionReconciler
from reprieve.entrypoints.controller.runtime import run_once

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DATABASE, SECRET = ObjectKind("example.com/v1", "Database"), ObjectKind("v1", "Secret")
SIZES = (10_000, 50_000, 100_000)
FACTOR = 2.0


@frozen
class Measured:
    """Seconds of processor time for so many owners, the bytes that the process grew by, the calls to the cluster."""

    owners: int
    seconds: float
    memory: int
    calls: int = 0

    def __str__(self) -> str:
        """One line of the table."""
        each = f"{self.seconds / self.owners * 1e6:6.1f} us and {self.memory / self.owners:6.0f} bytes an owner"
        calls = f", {self.calls} calls" if self.calls else ""
        return f"{self.owners:>9,} owners {self.seconds:6.2f} s {self.memory / 2**20:5.0f} MiB {each}{calls}"


def peak() -> int:
    """The most memory that this process has had, in bytes (Linux counts in KiB, macOS in bytes)."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


# The pure decision. Every owner terminates and was not asked for, so that every dependent is judged and gets its steps.


def facts(count: int) -> Iterator[tuple[TerminatingOwner, PresentDependent]]:
    """Owners lost by accident, with a dependent each."""
    for number in range(count):
        name = f"db-{number:06}"
        owner = ObjectMeta(name, "shop", f"o{number}", "1", finalizers=[PROTECT], deleted=NOW)
        reference = OwnerReference("example.com/v1", "Database", name, f"o{number}", controller=True)
        dependent = ObjectMeta(name, "shop", f"d{number}", "1", owners=[reference])
        yield TerminatingOwner(DATABASE, owner), PresentDependent(SECRET, dependent)


def decide_all(count: int) -> Measured:
    """Decide about all of them in one pass, keeping every decision; the facts are part of the memory."""
    policy, before = Policy(Verb.DELETE, Verb.ORPHAN), peak()
    given = list(facts(count))
    gc.collect()
    began = time.process_time()
    decisions = [decide(owner, [dependent], policy, now=NOW) for owner, dependent in given]
    seconds = time.process_time() - began
    assert all(decision.dependents[0].verdict is Verdict.ORPHAN for decision in decisions)
    assert all(len(decision.steps) == 2 for decision in decisions)
    return Measured(count, seconds, peak() - before)


# The controller over a settled cluster


def objects(count: int) -> Iterator[dict[str, Any]]:
    """Live, protected owners with a dependent each, as Kubernetes JSON."""
    for number in range(count):
        name = f"db-{number:06}"
        common = {"name": name, "namespace": "shop", "resourceVersion": "1"}
        owner = {**common, "uid": f"o{number}", "finalizers": [PROTECT]}
        reference = {"apiVersion": "example.com/v1", "kind": "Database", "name": name, "uid": f"o{number}"}
        yield {"apiVersion": "example.com/v1", "kind": "Database", "metadata": owner}
        yield {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {**common, "uid": f"d{number}", "ownerReferences": [reference]},
        }


class Counting(LocalCluster):
    """A local cluster that counts the calls that it answers."""

    calls = 0

    def list(self, *args: Any, **options: Any) -> Any:
        """Count and list."""
        self.calls += 1
        return super().list(*args, **options)

    def get(self, *args: Any, **options: Any) -> Any:
        """Count and read."""
        self.calls += 1
        return super().get(*args, **options)


def reconcile_all(count: int) -> Measured:
    """Run the controller once over all owners, from nothing known to nothing left to do; the cluster does not count."""
    store = ClusterStore(now=lambda: NOW)
    store.restore(objects(count))
    cluster = Counting(store, collector=Collector(store))
    entry = ProtectionEntry(DATABASE, "Delete", "Orphan", dependents=(SECRET,))
    reconciler = ProtectionReconciler(cluster, [entry], events=MemoryEvents(), stop=threading.Event())
    gc.collect()
    before, version, began = peak(), store.resource_version, time.process_time()
    report = run_once([reconciler], now=NOW)
    seconds = time.process_time() - began
    assert (len(report.decisions), report.standing) == (count, Standing.SETTLED)
    assert store.resource_version == version, "a settled cluster was written to"
    return Measured(count, seconds, peak() - before, cluster.calls)


# Sizes, each in a process of its own

WORK: dict[str, Callable[[int], Measured]] = {
    "decide(), every owner terminating, one step each to orphan and to release": decide_all,
    "the controller, one pass over a settled cluster in memory, zero writes": reconcile_all,
}


def measure(title: str, count: int) -> Measured:
    """Measure one size in a new process."""
    command = [sys.executable, __file__, title, str(count)]
    made = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - this very file
    return Measured(**json.loads(made.stdout.splitlines()[-1]))


def check_growth(measured: list[Measured]) -> None:
    """Fail when an owner costs more, in time or memory, the more of them there are."""
    small, large = measured[0], measured[-1]
    seconds = (large.seconds / large.owners) / (small.seconds / small.owners)
    memory = (large.memory / large.owners) / (small.memory / small.owners)
    print(f"an owner among {large.owners:,} to one among {small.owners:,}: time x {seconds:.2f}, memory x {memory:.2f}")
    print(f"promised at most x {FACTOR:.1f}")
    assert seconds <= FACTOR, f"time grows faster than the number of owners: x {seconds:.2f}"
    assert memory <= FACTOR, f"memory grows faster than the number of owners: x {memory:.2f}"
    assert small.calls == large.calls, "a settled owner costs a call"


def main() -> None:
    """Print the table and fail when it grows faster than the owners; with two arguments, measure one size."""
    if sys.argv[1:]:
        print(json.dumps(asdict(WORK[sys.argv[1]](int(sys.argv[2])))))
        return
    for title in WORK:
        print(title)
        measured = []
        for count in SIZES:
            measured.append(measure(title, count))
            print(measured[-1], flush=True)
        check_growth(measured)


if __name__ == "__main__":
    main()
