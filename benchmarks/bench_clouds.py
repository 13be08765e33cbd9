"""One backup with 1,000 snapshots a cloud at 50 ms a call, over the real SDKs: every fifth answer throttled, or none.

The clouds' stand-ins run in a process of their own, so that they do not take the SDK's time from it. The deletion goes
through the controller, its pools and the limiter. Both runs make the same deletion; what is promised is their ratio,
and that no call is lost: at the end every snapshot is gone and the request is completed.
"""

import gzip
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the stand-ins are the tests'

import structlog
from azure.core.pipeline.policies import SansIOHTTPPolicy

from reprieve.adapters.cloud.aws import AwsSnapshots
from reprieve.adapters.cloud.azure import AzureSnapshots
from reprieve.adapters.cloud.gcp import GcpSnapshots
from reprieve.adapters.cloud.stores import CloudSnapshotStores
from reprieve.adapters.local import LocalCluster, MemoryEvents, MemoryObjectStores
from reprieve.core.reasons import Reason
from reprieve.entrypoints.configuration import Configuration
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.runtime import run_once
from reprieve.entrypoints.world import World
from tests.integration import azure_compute, gcp_compute
from tests.integration.cloud_http import Answer, Request, Server

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SNAPSHOTS = 1_000
WARM_UP = 50
LATENCY = 0.05
EVERY = 5  # every fifth answer: 20 %
ATMOST = 2.0
PASSES = 4
CONFIG = {"aws": {"region": "us-east-1"}, "gcp": {}, "azure": {}}


class Ec2:
    """As much of EC2 as a deletion needs; moto would take longer for a call than the latency that is measured."""

    def __init__(self) -> None:
        """Begin without snapshots."""
        self._ids: set[str] = set()
        self.server = Server(self._answer)

    def add(self) -> str:
        """Add a snapshot."""
        self._ids.add(f"snap-{len(self._ids):017x}")
        return f"snap-{len(self._ids) - 1:017x}"

    def ids(self) -> set[str]:
        """The snapshots that are there."""
        return self._ids

    def credential(self) -> bytes:
        """A file that signs requests which nobody checks."""
        return b"[default]\naws_access_key_id = made-up\naws_secret_access_key = made-up\n"

    def _answer(self, request: Request) -> Answer:
        wanted = request.body.decode().rpartition("SnapshotId=")[2].partition("&")[0]
        if wanted not in self._ids:
            return ec2_refusal("InvalidSnapshot.NotFound", 400)
        self._ids.discard(wanted)
        body = b'<DeleteSnapshotResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><return>true</return>'
        return Answer(200, body + b"</DeleteSnapshotResponse>", {"Content-Type": "text/xml"})


class Azure(azure_compute.AzureCompute):
    """The tests' stand-in, with a credential."""

    def credential(self) -> bytes:
        """An identity that nobody asks for, since the policy that would is replaced."""
        lines = ("TENANT_ID=a", "CLIENT_ID=a", "CLIENT_SECRET=a", f"SUBSCRIPTION_ID={azure_compute.SUBSCRIPTION}")
        return "\n".join(f"AZURE_{line}" for line in lines).encode()


def ec2_refusal(code: str, status: int) -> Answer:
    """An error as EC2 writes it."""
    inner = f"<Errors><Error><Code>{code}</Code><Message>no</Message></Error></Errors>"
    return Answer(status, f"<Response>{inner}<RequestID>1</RequestID></Response>".encode())


CLOUDS: dict[str, tuple[Callable[[], Any], Answer]] = {
    "aws": (Ec2, ec2_refusal("RequestLimitExceeded", 503)),
    "gcp": (gcp_compute.GcpCompute, gcp_compute.refusal(403, "rateLimitExceeded", "Rate Limit Exceeded")),
    "azure": (Azure, azure_compute.refusal(429, "TooManyRequests", "Too many requests.")),
}


def serve(name: str, *, throttled: bool, snapshots: int) -> None:
    """Be a cloud: tell where it is, serve until a line comes in, tell what is left."""
    make, refusal = CLOUDS[name]
    cloud, numbers, refused = make(), count(1), count()
    answer = cloud.server._answer  # noqa: SLF001 - put a latency before it

    def slowly(request: Request) -> Answer:
        time.sleep(LATENCY)
        if throttled and next(numbers) % EVERY == 0:
            next(refused)
            return refusal
        found: Answer = answer(request)
        return found

    cloud.server._answer = slowly  # noqa: SLF001
    ids = [cloud.add() for _ in range(snapshots)]
    print(json.dumps({"url": cloud.server.url, "ids": ids, "credential": cloud.credential().decode()}), flush=True)
    sys.stdin.readline()
    told = {"left": len(cloud.ids()), "calls": len(cloud.server.requests), "refused": next(refused)}
    print(json.dumps(told), flush=True)


@contextmanager
def cloud_process(
    name: str, *, throttled: bool, snapshots: int
) -> Iterator[tuple[dict[str, Any], Callable[[], dict[str, Any]]]]:
    """A cloud in a process of its own: where it is, and how to ask what is left."""
    command = [sys.executable, __file__, "serve", name, "throttled" if throttled else "calm", str(snapshots)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    assert process.stdin
    assert process.stdout
    lines, ask = process.stdout, process.stdin

    def left() -> dict[str, Any]:
        ask.write("\n")
        ask.flush()
        told: dict[str, Any] = json.loads(lines.readline())
        return told

    with process:
        yield json.loads(lines.readline()), left


def opener(name: str, url: str) -> Any:
    """The provider's own adapter, pointed at the stand-in."""
    openers: dict[str, Callable[[], Any]] = {
        "aws": lambda: AwsSnapshots(endpoint=url),
        "gcp": lambda: GcpSnapshots(endpoint=url),
        "azure": lambda: AzureSnapshots(endpoint=url, authentication_policy=SansIOHTTPPolicy()),
    }
    return openers[name]()


def world(name: str, cloud: dict[str, Any]) -> World:
    """A backup with all snapshots of a cloud, and a request for its deletion."""

    def made(kind: str, called: str, **parts: object) -> dict[str, object]:
        metadata = {"name": called, "namespace": "velero", "uid": f"uid-{called}"}
        return {"apiVersion": "velero.io/v1", "kind": kind, "metadata": metadata, **parts}

    started = "2026-02-01T00:00:00Z"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c", "namespace": "velero"}}
    spec = {"provider": name, "config": CONFIG[name], "credential": {"name": "c", "key": "k"}}
    storage = {"provider": "aws", "objectStorage": {"bucket": "b"}}
    status = {"phase": "Completed", "startTimestamp": started, "volumeSnapshotsCompleted": len(cloud["ids"])}
    objects = [
        {**secret, "stringData": {"k": cloud["credential"]}},
        made("BackupStorageLocation", "default", spec=storage, status={"phase": "Available"}),
        made("VolumeSnapshotLocation", name, spec=spec),
        made("Backup", "big", spec={"storageLocation": "default"}, status=status),
        made("DeleteBackupRequest", "big-1", spec={"backupName": "big"}),
    ]
    listed = [{"spec": {"location": name}, "status": {"providerSnapshotID": each}} for each in cloud["ids"]]
    files = {
        "backups/big/velero-backup.json": json.dumps({"status": {"startTimestamp": started}}).encode(),
        "backups/big/big-volumesnapshots.json.gz": gzip.compress(json.dumps(listed).encode()),
    }
    stores = CloudSnapshotStores(providers=[name], openers={name: opener(name, cloud["url"])})
    cluster = LocalCluster.in_memory(objects, now=lambda: NOW)
    return World(Configuration(), cluster, MemoryObjectStores({"b": files}), stores, MemoryEvents())


def measure(name: str, *, throttled: bool, snapshots: int = SNAPSHOTS) -> float:
    """Delete the backup; tells the seconds that it took."""
    with cloud_process(name, throttled=throttled, snapshots=snapshots) as (cloud, left):
        built = build_controllers(world(name, cloud), names=["deletion"], stop=threading.Event())
        began, passes = time.perf_counter(), 0
        reasons: list[Reason] = []
        while Reason.COMPLETED not in reasons and passes < PASSES:
            passes += 1
            report = run_once(built.reconcilers, now=NOW + passes * timedelta(minutes=5))
            reasons = [decision.reason for decision in report.decisions]
        took = time.perf_counter() - began
        built.close()
        end = left()
    assert reasons == [Reason.COMPLETED], reasons
    assert end["left"] == 0, end
    kind = f"{end['refused']} throttled" if throttled else "none throttled"
    print(f"  {name}: {snapshots} snapshots, {end['calls']} calls, {kind}, {passes} passes: {took:.2f} s", flush=True)
    return took


def main() -> None:
    """Measure each cloud without and with throttling, print the ratios, fail above the promised one."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    worst = 0.0
    for name in CLOUDS:
        measure(name, throttled=False, snapshots=WARM_UP)  # loads the SDK, fills its caches
        calm, throttled = measure(name, throttled=False), measure(name, throttled=True)
        print(f"{name}: ratio {throttled / calm:.2f}, promised at most {ATMOST}", flush=True)
        worst = max(worst, throttled / calm)
    assert worst <= ATMOST


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2], throttled=sys.argv[3] == "throttled", snapshots=int(sys.argv[4]))
    else:
        main()
