"""Velero's objects and files as core values: whatever hands wrote arrives as a value or as a named fault."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from reprieve.adapters.k8s import velero, velero_files
from reprieve.core.backups import (
    CsiContent,
    DataMoverItem,
    ListCorrupt,
    MetadataCorrupt,
    MetadataPresent,
    NativeSnapshot,
    NoSecret,
    RepositorySnapshot,
    RequestPhase,
    RequestState,
    SecretKey,
)
from reprieve.core.holds import HOLD, HOLD_UNTIL
from reprieve.core.objects import resource_from_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
KEYS = ["metadata", "spec", "status", "name", "labels", "annotations", "backupName", "phase", "errors", "objectStorage"]
OBJECTS = st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6)


def read(reader, **parts):
    """Read an object that is made of these parts."""
    return reader(resource_from_json({"apiVersion": "velero.io/v1", "kind": "X", **parts}))


@pytest.mark.parametrize(
    "reader",
    [
        velero.backup,
        velero.deletion_request,
        velero.storage_location,
        velero.snapshot_location,
        velero.restore,
        velero.repository_snapshots,
    ],
)
@given(content=OBJECTS)
def test_no_object_however_wrong_raises(reader, content):
    """Objects are made by hand and by other versions: reading is total."""
    read(reader, **content)


@pytest.mark.parametrize(
    ("parts", "name", "fault"),
    [
        pytest.param({}, "", "", id="no-spec"),
        pytest.param({"spec": {}}, "", "", id="no-name"),
        pytest.param({"spec": {"backupName": ""}}, "", "", id="empty-name"),
        pytest.param({"spec": {"backupName": "nightly"}}, "nightly", "", id="a-name"),
        pytest.param({"spec": {"backupName": "../../etc"}}, "../../etc", "", id="a-path-is-kept-for-core-to-refuse"),
        pytest.param({"spec": {"backupName": 7}}, "", "spec.backupName must be a text, it is int", id="a-number"),
        pytest.param({"spec": ["nightly"]}, "", "spec must be an object with backupName, it is list", id="list-spec"),
    ],
)
def test_what_a_request_asks_for_is_never_guessed(parts, name, fault):
    """velero#1546: a request made by hand crashed the server; a wrong type must not read as "nothing was asked"."""
    request = read(velero.deletion_request, metadata={"name": "r"}, **parts)
    assert (request.backup, request.name_fault) == (name, fault)


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        pytest.param("New", RequestPhase.NEW, id="new"),
        pytest.param(None, RequestPhase.NEW, id="none"),
        pytest.param("InProgress", RequestPhase.IN_PROGRESS, id="in-progress"),
        pytest.param("Processed", RequestPhase.PROCESSED, id="processed"),
        pytest.param("processed", RequestPhase.NEW, id="another-spelling-is-not-processed"),
        pytest.param(["Processed"], RequestPhase.NEW, id="a-list"),
    ],
)
def test_only_veleros_own_phases_count(phase, expected):
    """A phase that nobody knows is a request that nobody has looked at."""
    assert read(velero.deletion_request, metadata={}, status={"phase": phase}).phase is expected


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        pytest.param({"provider": "velero.io/aws"}, {"phase": "Available"}, ("aws", True, False), id="prefixed"),
        pytest.param({"provider": "aws"}, {}, ("aws", False, False), id="never-validated-is-not-available"),
        pytest.param({"accessMode": "ReadOnly"}, {"phase": "Available"}, ("", True, True), id="read-only"),
        pytest.param({"accessMode": "ReadWrite"}, {"phase": "available"}, ("", False, False), id="exactly-available"),
    ],
)
def test_a_location_is_read_as_velero_reads_it(spec, status, expected):
    """Available is exactly the phase ``Available``; an empty access mode is read-write."""
    location = read(velero.storage_location, metadata={"name": "l"}, spec=spec, status=status)
    assert (location.provider, location.available, location.read_only) == expected


def test_the_place_and_the_credential_of_a_location():
    """The prefix loses its slashes; the credential names a Secret's key, or nothing does."""
    spec = {
        "objectStorage": {"bucket": "b", "prefix": "/a/b/"},
        "credential": {"name": "cloud", "key": "aws"},
        "config": {"region": "eu-west-1", "s3ForcePathStyle": "true", "n": 3},
        "backupSyncPeriod": "1m0s",
    }
    location = read(velero.storage_location, metadata={"name": "l"}, spec=spec)
    assert (location.bucket, location.prefix, location.place) == ("b", "a/b", "b/a/b")
    assert location.credential == SecretKey("cloud", "aws")
    assert dict(location.config) == {"region": "eu-west-1", "s3ForcePathStyle": "true"}
    assert read(velero.snapshot_location, metadata={"name": "v"}, spec={}).credential == NoSecret()


def test_binding_writes_only_the_labels_that_are_missing():
    """velero#2258: a patch touches only the fields that it owns; a label that is there is left alone."""
    labels = {"velero.io/backup-name": "kept"}
    request = read(velero.deletion_request, metadata={"labels": labels}, spec={"backupName": "b"})
    assert velero.bind_patch(request, "uid-1") == {"metadata": {"labels": {"velero.io/backup-uid": "uid-1"}}}
    bound = read(
        velero.deletion_request,
        metadata={"labels": {"velero.io/backup-name": "b", "velero.io/backup-uid": "other"}},
        spec={"backupName": "b"},
    )
    assert velero.bind_patch(bound, "uid-1") == {}


def test_a_long_backup_name_becomes_a_safe_label():
    """Velero's own example of a name of more than 63 characters."""
    name = "the-really-long-backup-name-that-is-much-more-than-63-characters"
    request = read(velero.deletion_request, metadata={}, spec={"backupName": name})
    label = velero.bind_patch(request, "u")["metadata"]["labels"]["velero.io/backup-name"]
    assert label == "the-really-long-backup-name-that-is-much-more-than-63-cha6ca4bc"


def test_the_state_comes_back_from_the_patch_that_wrote_it():
    """What the annotation says is what was written, to the second and below."""
    later = datetime(2026, 3, 1, 12, 0, 0, 500, tzinfo=UTC)
    state = RequestState(uid="u", location="l", attempts=2, next_attempt=later)
    patch = velero.progress_patch(state, errors=("e",))
    request = read(velero.deletion_request, metadata=patch["metadata"], status=patch["status"])
    assert (request.state, request.phase, request.errors) == (state, RequestPhase.IN_PROGRESS, ("e",))


# Files in the bucket


def packed(content):
    """Gzip a document."""
    return gzip.compress(json.dumps(content).encode())


NATIVE = {
    "spec": {"location": "aws-eu", "volumeAZ": "eu-west-1a", "persistentVolumeName": "pv"},
    "status": {"providerSnapshotID": "snap-1", "phase": "Completed"},
}


def csi_operation(resource, *more, group="snapshot.storage.k8s.io"):
    """An operation on ``app/v``, and the items to back up after it, as Velero writes them."""
    identifier = {"Group": group, "Resource": resource, "Namespace": "app", "Name": "v"}
    after = [{"Group": group, "Resource": kind, "Name": name} for kind, name in more]
    return {"spec": {"operationID": "app/v/2026", "resourceIdentifier": identifier, "postOperationItems": after}}


def volume(method, **info):
    """An entry of volumeinfo, of volume ``pv``."""
    return {"backupMethod": method, "pvName": "pv", **info}


@pytest.mark.parametrize(
    ("name", "entries", "items"),
    [
        pytest.param(
            "volumesnapshots", [NATIVE], (NativeSnapshot("snap-1", "aws-eu", "eu-west-1a", "pv"),), id="native"
        ),
        pytest.param("volumesnapshots", None, (), id="null-is-an-empty-list"),
        pytest.param("volumesnapshots", [{}], (NativeSnapshot("", ""),), id="a-failed-snapshot-has-no-id"),
        pytest.param(
            "podvolumebackups",
            [
                {"spec": {"uploaderType": "kopia"}, "status": {"snapshotID": "k1"}},
                {"status": {"snapshotID": "r1"}},
                {"spec": {}},
            ],
            (RepositorySnapshot("k1", "kopia"), RepositorySnapshot("r1", "restic")),
            id="repository-an-empty-uploader-is-restic",
        ),
        pytest.param(
            "csi-volumesnapshotcontents",
            [
                {"metadata": {"name": "c"}, "spec": {"driver": "ebs.csi.aws.com"}, "status": {"snapshotHandle": "h"}},
                {"metadata": {"name": "d"}, "spec": {"driver": "x", "source": {"snapshotHandle": "i"}}},
            ],
            (CsiContent("c", "ebs.csi.aws.com", "h"), CsiContent("d", "x", "i")),
            id="csi",
        ),
        pytest.param(
            "itemoperations",
            [
                csi_operation("volumesnapshots", ["volumesnapshots", "v"], ["volumesnapshotcontents", "c"]),
                csi_operation("volumesnapshots"),
                csi_operation("volumesnapshotcontents"),
                csi_operation("persistentvolumeclaims", group=""),
                csi_operation("volumesnapshotclasses"),
            ],
            (CsiContent("c"), CsiContent("app/v"), CsiContent("v")),
            id="csi-operations-by-content-else-by-snapshot",
        ),
        pytest.param(
            "volumeinfo",
            [
                volume("CSISnapshot", csiSnapshotInfo={"driver": "d", "snapshotHandle": "h", "vscName": "c"}),
                volume("CSISnapshot", result="failed"),
                volume("", csiSnapshotInfo={"snapshotHandle": "h2"}),
            ],
            (CsiContent("c", "d", "h"), CsiContent("of volume pv"), CsiContent("", "", "h2")),
            id="csi-snapshots-failed-ones-too",
        ),
        pytest.param(
            "volumeinfo",
            [
                volume("CSISnapshot", skipped=True),
                volume("CSISnapshot", snapshotDataMoved=True, snapshotDataMovementInfo={"operationID": "du-1"}),
                volume(
                    "CSISnapshot",
                    snapshotDataMoved=True,
                    preserveLocalSnapshot=True,
                    csiSnapshotInfo={"driver": "unknown", "snapshotHandle": "unknown", "vscName": "unknown"},
                ),
            ],
            (DataMoverItem("du-1"), DataMoverItem("pv"), CsiContent("of volume pv")),
            id="skipped-volumes-name-nothing-moved-ones-the-movers-item",
        ),
        pytest.param(
            "volumeinfo",
            [
                volume("NativeSnapshot", nativeSnapshotInfo={"snapshotHandle": "snap-1", "volumeAZ": "eu-west-1a"}),
                volume("NativeSnapshot", nativeSnapshotInfo={"Phase": "Failed"}),
                volume("PodVolumeBackup", pvbInfo={"snapshotHandle": "k1", "uploaderType": "kopia"}),
                volume("PodVolumeBackup", pvbInfo={"snapshotHandle": "r1"}),
                volume("PodVolumeBackup", pvbInfo={"Phase": "Failed"}),
            ],
            (
                NativeSnapshot("snap-1", "", "eu-west-1a", "pv"),
                RepositorySnapshot("k1", "kopia"),
                RepositorySnapshot("r1", "restic"),
            ),
            id="native-and-repository-snapshots",
        ),
        pytest.param(
            "itemoperations",
            [{"spec": {"operationID": "du-1"}}, {"spec": {"operationID": "other"}}],
            (DataMoverItem("du-1"),),
            id="data-mover-operations",
        ),
        pytest.param(
            "volumeinfo",
            [{"snapshotDataMoved": True, "pvName": "pv-2"}, {"snapshotDataMoved": False, "pvName": "pv-3"}],
            (DataMoverItem("pv-2"),),
            id="moved-volumes",
        ),
    ],
)
def test_lists_name_the_data_outside_the_directory(name, entries, items):
    """Each of the lists, and what it points at."""
    assert velero_files.read_list("b", name, packed(entries)) == items


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        pytest.param({"backupMethod": "BlockCopy"}, "'BlockCopy', which is not known here", id="unknown-method"),
        pytest.param({"skipped": "true"}, "its skipped is a str", id="skipped-as-a-text"),
        pytest.param({"snapshotDataMoved": 1}, "its snapshotDataMoved is a int", id="moved-as-a-number"),
        pytest.param({"csiSnapshotInfo": [1]}, "its csiSnapshotInfo is a list", id="info-as-a-list"),
    ],
)
def test_a_volume_of_which_it_cannot_be_told_how_it_was_backed_up_is_a_fault(entry, why):
    """Half believed it would hide data."""
    found = velero_files.read_list("b", "volumeinfo", packed([entry]))
    assert isinstance(found, ListCorrupt)
    assert why in found.why


REAL = Path(__file__).parents[1] / "fixtures/velero-1.18.3/buckets/velero-bucket/cluster-a/backups"
DRIVER = "hostpath.csi.k8s.io"
CONTENTS = {
    "csi-snap-286433ba": "snapcontent-286433ba-84fe-4a17-a1d9-6c1544930053",
    "csi-snap-63b28083": "snapcontent-63b28083-4d20-4e3a-8e73-938b21abeec7",
}


@pytest.mark.parametrize(
    ("backup", "name", "items"),
    [
        pytest.param("csi1", "volumesnapshots", [], id="csi-native"),
        pytest.param("csi1", "podvolumebackups", [], id="csi-repository"),
        pytest.param("csi1", "volumeinfo", [CsiContent(c, DRIVER, h) for h, c in CONTENTS.items()], id="csi-volumes"),
        pytest.param("csi1", "itemoperations", [CsiContent(c) for c in CONTENTS.values()], id="csi-operations"),
        pytest.param("b2", "itemoperations", [], id="native-operations"),
    ],
)
def test_the_lists_of_a_real_velero_1_18_are_read(backup, name, items):
    """What Velero 1.18.3 wrote, byte for byte."""
    data = (REAL / backup / f"{backup}-{name}.json.gz").read_bytes()
    assert velero_files.read_list(backup, name, data) == tuple(items)


def test_both_lists_of_a_real_backup_name_the_same_native_snapshots():
    """One names the location, the other does not; the ids, zones and volumes agree."""
    read = {
        name: velero_files.read_list("b2", name, (REAL / f"b2/b2-{name}.json.gz").read_bytes())
        for name in ("volumesnapshots", "volumeinfo")
    }
    assert {s.location for s in read["volumesnapshots"]} == {"default"}
    assert [evolve(s, location="") for s in read["volumesnapshots"]] == list(read["volumeinfo"])
    assert len(read["volumeinfo"]) == 5


@pytest.mark.parametrize(
    ("kind", "parts", "found"),
    [
        pytest.param("VolumeSnapshot", {}, ["app/x"], id="a-snapshot-without-a-content"),
        pytest.param("VolumeSnapshot", {"spec": {"source": {"volumeSnapshotContentName": "c"}}}, ["c"], id="from-one"),
        pytest.param("VolumeSnapshot", {"status": {"boundVolumeSnapshotContentName": "c"}}, ["c"], id="bound"),
        pytest.param("VolumeSnapshot", {"labels": {"velero.io/restore-name": "r"}}, [], id="restored-snapshot"),
        pytest.param("VolumeSnapshotContent", {}, ["x"], id="a-content"),
        pytest.param("VolumeSnapshotContent", {"labels": {"velero.io/restore-name": "r"}}, [], id="restored-content"),
    ],
)
def test_live_csi_objects_name_their_content_but_for_restored_ones(kind, parts, found):
    """A restore labels what it restores with the backup's name as well."""
    labels = parts.pop("labels", {})
    namespace = "app" if kind == "VolumeSnapshot" else ""
    head = {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": kind}
    metadata = {"name": "x", "namespace": namespace, "labels": labels}
    resource = resource_from_json({**head, "metadata": metadata, **parts})
    assert [content.name for content in velero.csi_contents(resource)] == found


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"", "truncated", id="empty-file"),
        pytest.param(b"[]", "not gzip", id="not-gzip"),
        pytest.param(packed([NATIVE])[:20], "truncated", id="truncated"),
        pytest.param(gzip.compress(b"[{]"), "not JSON", id="not-json"),
        pytest.param(gzip.compress(b"\xff\xfe"), "not JSON", id="not-text"),
        pytest.param(packed({}), "not a list", id="an-object"),
        pytest.param(packed([1]), "where an object must be", id="a-number-in-the-list"),
        pytest.param(gzip.compress(b"[" * 100_000), "not JSON", id="deep-nesting"),
        pytest.param(gzip.compress(bytes(100 * 1024 * 1024), compresslevel=9), "not JSON", id="100-mb-of-zeros"),
        pytest.param(gzip.compress(b" " * 100 * 1024 * 1024), "64 MiB", id="100-mb-of-spaces"),
    ],
)
def test_a_list_that_cannot_be_read_is_a_fault_with_its_reason(data, why):
    """A list is believed whole or not at all, and none can fill the memory."""
    found = velero_files.read_list("b", "volumesnapshots", data)
    assert isinstance(found, ListCorrupt)
    assert found.key == "backups/b/b-volumesnapshots.json.gz"
    assert why in found.why


def test_the_lists_of_a_backup_whose_name_ends_like_a_list_are_its_own():
    """A backup named ``x-csi`` must not be taken for the CSI list of ``x``."""
    assert velero_files.list_key("x-csi", "volumesnapshots") == "backups/x-csi/x-csi-volumesnapshots.json.gz"
    assert velero_files.read_list("x-csi", "volumesnapshots", packed([NATIVE]))[0].id == "snap-1"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(
            b'{"status": {"startTimestamp": "2026-03-01T12:00:00Z"}}',
            MetadataPresent(datetime(2026, 3, 1, 12, tzinfo=UTC)),
            id="a-start",
        ),
        pytest.param(b"{}", MetadataPresent(None), id="never-started"),
        pytest.param(b"[]", MetadataCorrupt("it has a list where an object must be"), id="a-list"),
    ],
)
def test_metadata_tells_when_the_backup_was_started(data, expected):
    """The start is what tells whose directory it is."""
    assert velero_files.read_metadata(data) == expected


def test_garbage_metadata_is_corrupt_and_not_absent():
    """What cannot be read is never taken for "not there"."""
    assert isinstance(velero_files.read_metadata(b"\x00garbage"), MetadataCorrupt)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(json.dumps({HOLD: "audit", HOLD_UNTIL: "2027-01-01T00:00:00Z"}).encode(), "audit", id="a-hold"),
        pytest.param(b"{}", "names no hold", id="an-empty-document-holds"),
        pytest.param(b"garbage", "names no hold", id="garbage-holds"),
    ],
)
def test_a_hold_file_holds_whatever_it_says(data, reason):
    """In doubt, held."""
    assert reason in velero_files.read_hold(data)[HOLD]
