"""Whatever strangers write into the cluster or the bucket: a clear refusal, the right exit code, nothing touched."""

import gzip
import json

import pytest

from tests.integration.folders import (
    NOW,
    backup,
    entry,
    location,
    make_folder,
    packed,
    request,
    snapshot_location,
    thing,
)

STATE = "reprieve.dev/state"
BEGUN = {"uid": "uid-Backup-good", "location": "primary", "bucket": "bkt", "prefix": "", "previousPhase": "Completed"}


@pytest.fixture
def folder(tmp_path, capsys):
    return make_folder(tmp_path / "world", capsys)


def refused(folder, name, reason):
    """A request is refused, in the plan and in the run, and nothing but the request changes."""
    before = folder.data()
    planned, done = folder.plan(), folder.carry_out()
    assert (planned.code, done.code) == (3, 3)
    assert folder.data() == before
    for said in (planned, done):
        decision = said.decisions[name]
        assert (decision["verdict"], decision["reason"]) == ("KEEP", reason)
    return done.decisions[name]["message"]


def deleted(folder, name="ask"):
    """A request is carried out: the backup goes with its snapshot and its files, and nothing else does."""
    planned, done = folder.plan(), folder.carry_out()
    assert (planned.code, done.code) == (2, 0), planned.err + done.err
    assert done.decisions[name]["reason"] == "Completed"
    assert "good" not in folder.objects("Backup")
    assert [each for each in folder.data() if each.startswith("buckets/bkt/backups/good/")] == []
    assert b"other" in folder.data()["snapshots.yaml"]
    assert b"snap-1" not in folder.data()["snapshots.yaml"]


# Requests


@pytest.mark.parametrize(
    ("parts", "reason", "said"),
    [
        pytest.param({"spec": None}, "NameMissing", "spec.backupName is required", id="no-spec"),
        pytest.param({"spec": ["good"]}, "NameInvalid", "it is list", id="spec-a-list"),
        pytest.param({"spec": "good"}, "NameInvalid", "it is str", id="spec-a-text"),
        pytest.param({"backup_name": ""}, "NameMissing", "spec.backupName is required", id="empty"),
        pytest.param({"backup_name": None}, "NameMissing", "spec.backupName is required", id="null"),
        pytest.param({"backup_name": 5}, "NameInvalid", "it is int", id="a-number"),
        pytest.param({"backup_name": ["good"]}, "NameInvalid", "it is list", id="a-list"),
        pytest.param({"backup_name": "a" * 300}, "NameInvalid", "300 characters", id="too-long"),
        pytest.param({"backup_name": "../good"}, "NameInvalid", "'../good'", id="a-path-up"),
        pytest.param({"backup_name": "good/.."}, "NameInvalid", "'good/..'", id="a-path-down-and-up"),
        pytest.param({"backup_name": "/etc"}, "NameInvalid", "'/etc'", id="an-absolute-path"),
        pytest.param({"backup_name": "."}, "NameInvalid", "'.'", id="a-dot"),
        pytest.param({"backup_name": " good "}, "NameInvalid", "' good '", id="spaces"),
        pytest.param({"backup_name": "góod"}, "NameInvalid", "góod", id="beyond-ascii"),
        pytest.param({"backup_name": "good\x1b[31m"}, "NameInvalid", "\\x1b[31m", id="control-characters"),
        pytest.param({"backup_name": "good\nrm"}, "NameInvalid", "\\n", id="two-lines"),
        pytest.param({"backup_name": "nobody"}, "BackupNotFound", "backup not found", id="nobody"),
    ],
)
def test_a_request_that_names_no_backup_is_refused(folder, parts, reason, said):
    """Somebody creates requests by hand, or by a script that forgot to fill in the name."""
    folder.put(request("ask", **parts))
    assert said in refused(folder, "ask", reason)


@pytest.mark.parametrize("name", ["../good", "a/b", "/abs", "..", "A B", "é", "x" * 300, "a\nb\x1b[2J"])
def test_a_record_with_a_name_that_no_backup_has_is_left_alone(folder, name):
    """A dump that was edited by hand has a Backup called ``../good``, and a request for it."""
    folder.put(backup(name), request("ask", name))
    refused(folder, "ask", "NameInvalid")
    assert folder.run("backup", "describe", "--", name).code == 1
    listed = folder.run("backup", "list")
    assert listed.code == 0
    assert "\x1b" not in listed.out
    assert len(listed.out.splitlines()) == 3  # a name cannot make a line of its own


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"metadata": {"labels": None}}, id="labels-null"),
        pytest.param({"status": "InProgress"}, id="status-a-text"),
        pytest.param({"status": {"phase": ["New"]}}, id="phase-a-list"),
        pytest.param({"status": {"phase": "Weird", "errors": "none"}}, id="phase-unknown"),
        pytest.param({"status": {"phase": "InProgress"}}, id="in-progress-without-state"),
        pytest.param({"metadata": {"creationTimestamp": "yesterday"}}, id="created-yesterday"),
    ],
)
def test_a_request_with_odd_parts_counts_by_what_it_names(folder, parts):
    """Hands and other versions write odd things beside the name; the name is what was asked for."""
    folder.put(request("ask", **parts))
    deleted(folder)


def worked_on(state):
    """A request that says of itself that it is at work, with this state."""
    text = state if isinstance(state, str) else json.dumps(state)
    return request("ask", metadata={"annotations": {STATE: text}}, status={"phase": "InProgress"})


@pytest.mark.parametrize(
    "state",
    [
        pytest.param("x" * 1_000_000, id="huge"),
        pytest.param("[" * 100_000 + "]" * 100_000, id="nested"),
        pytest.param([1], id="a-list"),
        pytest.param({key: [1] for key in [*BEGUN, "attempts", "firstAttempt", "nextAttempt", "stage"]}, id="lists"),
        pytest.param({**BEGUN, "attempts": 10**30}, id="attempts-beyond-counting"),
        pytest.param({**BEGUN, "attempts": -1}, id="attempts-negative"),
        pytest.param({**BEGUN, "firstAttempt": "0001-01-01T00:00:00Z"}, id="begun-in-year-one"),
        pytest.param({**BEGUN, "firstAttempt": "9999-12-31T23:59:59Z"}, id="begun-in-the-last-year"),
        pytest.param({**BEGUN, "previousPhase": "Ünfug"}, id="previous-phase-unknown"),
    ],
)
def test_a_state_annotation_that_is_broken_counts_as_absent(folder, state):
    """The annotation is anybody's to write: what cannot be read in it neither stops nor widens the deletion."""
    folder.put(worked_on(state))
    deleted(folder)


@pytest.mark.parametrize(
    "state",
    [
        pytest.param({**BEGUN, "bucket": "other"}, id="another-bucket"),
        pytest.param({**BEGUN, "location": "../../x"}, id="another-location"),
        pytest.param({**BEGUN, "nextAttempt": "9999-12-31T23:59:59Z"}, id="an-attempt-that-never-comes"),
        pytest.param({**BEGUN, "stage": "bucketFiles"}, id="a-stage-that-nobody-reached"),
    ],
)
def test_a_forged_state_neither_turns_a_deletion_nor_stops_it(folder, state):
    """Somebody writes another bucket, another location, a stage or a time into the state of a request: not believed."""
    folder.put(worked_on(state))
    deleted(folder)


def test_a_request_that_says_to_be_for_another_backup_is_refused(folder):
    folder.put(worked_on({**BEGUN, "uid": "somebody-else"}))
    refused(folder, "ask", "BackupRecreated")


def test_a_label_that_no_api_server_takes_fails_that_request_alone(folder):
    """A label of 300 characters in a dump: its request cannot be written to, the others go on."""
    folder.put(
        request("bad", "good", metadata={"labels": {"velero.io/backup-name": "x" * 300}}),
        backup("fine"),
        request("ask", "fine"),
    )
    folder.put_files("fine")
    done = folder.carry_out()
    assert done.code == 1
    assert "metadata.labels" in done.err
    assert done.decisions["ask"]["reason"] == "Completed"
    assert folder.objects("Backup") == ["good"]


def test_the_same_request_twice_is_one_deletion(folder):
    """Two people ask for the same backup: one deletion ends both requests."""
    folder.put(request("ask"), request("ask-again"))
    planned, done = folder.plan(), folder.carry_out()
    assert planned.decisions["ask-again"]["reason"] == "Queued"
    assert done.code == 0
    assert folder.objects("DeleteBackupRequest") == []
    assert {each["reason"] for each in done.decisions.values()} == {"Completed"}


def test_thousands_of_requests_are_decided_one_by_one(folder):
    """velero#685: thousands of requests for backups that nobody has; each gets its answer, and nothing else happens."""
    folder.put(*(request(f"ask-{number}", f"nobody-{number % 1500}") for number in range(3000)))
    planned = folder.plan()
    reasons = [each["reason"] for each in planned.decisions.values()]
    assert planned.code == 3
    assert (len(reasons), reasons.count("BackupNotFound"), reasons.count("Queued")) == (3000, 1500, 1500)


# Restores


@pytest.mark.parametrize("name", ["../x", "../backups/kept", "..", ".", "/x", "a/../../backups/kept"])
def test_the_files_of_a_restore_are_those_below_its_own_name(folder, name):
    """A Restore whose name is a path would lead a deletion to other backups' files."""
    folder.put(backup("kept"), thing("Restore", name, spec={"backupName": "good"}, status={"phase": "Completed"}))
    folder.put(request("ask"), file="ask.yaml")
    folder.put_files("kept")
    for outside in ("restores/kept/f", "x/f"):
        (folder.path / "buckets/bkt" / outside).parent.mkdir(parents=True)
        (folder.path / "buckets/bkt" / outside).write_text("stays", encoding="utf-8")
    kept = {each: data for each, data in folder.data().items() if "/good/" not in each and each != "snapshots.yaml"}
    folder.carry_out()
    assert kept.items() <= folder.data().items()
    assert folder.objects("Backup")[-1] == "kept"


# Locations


@pytest.mark.parametrize(
    ("bucket", "prefix"),
    [
        pytest.param("..", "", id="bucket-up"),
        pytest.param("../x", "", id="bucket-path"),
        pytest.param("/etc", "", id="bucket-absolute"),
        pytest.param("", "", id="bucket-empty"),
        pytest.param("a/b", "", id="bucket-with-a-slash"),
        pytest.param("nosuch", "", id="bucket-not-there"),
        pytest.param("bkt\0", "", id="bucket-with-nul"),
        pytest.param("x" * 300, "", id="bucket-too-long"),
        pytest.param("bkt", "..", id="prefix-up"),
        pytest.param("bkt", "../other", id="prefix-to-another-bucket"),
        pytest.param("bkt", "a//b", id="prefix-with-a-hole"),
    ],
)
def test_a_location_that_leads_elsewhere_is_not_followed(folder, bucket, prefix):
    """A location whose bucket or prefix is a path: the deletion waits, says why, and no file anywhere is touched."""
    for outside in ("backups/good/f", "buckets/other/backups/good/f", "x/backups/good/f"):
        (folder.path / outside).parent.mkdir(parents=True)
        (folder.path / outside).write_text("stays", encoding="utf-8")
    folder.put(location(bucket=bucket, prefix=prefix), snapshot_location(), file="locations.yaml")
    folder.put(request("ask"))
    assert "primary cannot be read" in refused(folder, "ask", "LocationUnavailable")


@pytest.mark.parametrize(
    "credential",
    [
        pytest.param({}, id="empty"),
        pytest.param("cloud-credentials", id="a-text"),
        pytest.param({"name": 5, "key": "cloud"}, id="a-number-for-a-name"),
        pytest.param({"name": "cloud-credentials"}, id="no-key"),
        pytest.param({"name": "../x", "key": "cloud"}, id="a-path"),
        pytest.param({"name": "garbled", "key": "cloud"}, id="not-base64"),
        pytest.param({"name": "garbled", "key": "empty"}, id="an-empty-key"),
        pytest.param({"name": "nosuch", "key": "cloud"}, id="no-secret"),
    ],
)
def test_a_credential_that_cannot_be_read_is_not_passed_over(folder, credential):
    """With the default account instead, snapshots of the right one are "not found", and not found counts as deleted."""
    place = location()
    place["spec"]["credential"] = credential
    folder.put(place, snapshot_location(), file="locations.yaml")
    secret = {**thing("Secret", "garbled", data={"cloud": "!!!", "empty": ""}), "apiVersion": "v1"}
    folder.put(request("ask"), secret)
    assert "primary cannot be read" in refused(folder, "ask", "LocationUnavailable")


# What lies in the bucket

LISTS = [
    pytest.param(b"", "truncated", id="empty"),
    pytest.param(packed([entry("snap-1")])[:-9], "truncated", id="cut-off"),
    pytest.param(b"hello", "not gzip", id="not-gzip"),
    pytest.param(b"[]", "not gzip", id="plain-json"),
    pytest.param(gzip.compress(b" " * 100_000_000, 1), "more than 64 MiB", id="100-mb-of-spaces"),
    pytest.param(gzip.compress(b"\0" * 100_000_000, 1), "not JSON", id="100-mb-of-zeros"),
    pytest.param(gzip.compress(b"[" + b"{}," * 9_000_000 + b"{}]", 1), "60000 entries", id="nine-million-objects"),
    pytest.param(gzip.compress(b"[" * 1_000_000), "recursion", id="deep"),
    pytest.param(gzip.compress(b"[" + b"9" * 10_000 + b"]"), "not JSON", id="a-number-of-10000-digits"),
    pytest.param(gzip.compress(bytes(range(128, 256))), "not JSON", id="binary"),
    pytest.param(packed("text"), "not a list", id="a-text"),
    pytest.param(packed({}), "not a list", id="an-object"),
    pytest.param(packed([1]), "where an object must be", id="a-number-in-it"),
    pytest.param(packed([None]), "where an object must be", id="a-null-in-it"),
    pytest.param(packed([{"spec": [1], "status": {}}]), "its spec is a list", id="a-spec-that-is-a-list"),
    pytest.param(packed([{"spec": {}, "status": "x"}]), "its status is a str", id="a-status-that-is-a-text"),
    pytest.param(packed([entry(5)]), "its providerSnapshotID is a int", id="an-id-that-is-a-number"),
    pytest.param(packed([entry(["snap-1"])]), "its providerSnapshotID is a list", id="an-id-that-is-a-list"),
    pytest.param(packed([entry("snap-1", location=5)]), "its location is a int", id="a-location-that-is-a-number"),
    pytest.param(packed([entry("snap-1"), entry(None), entry(7)]), "entry [2]", id="one-bad-entry-of-three"),
    pytest.param(packed(None), "it names 0 snapshots", id="null"),
    pytest.param(packed([]), "it names 0 snapshots", id="none-of-those-that-were-made"),
    pytest.param(packed([entry("")]), "it names 0 snapshots", id="an-empty-id-for-one-that-was-made"),
    pytest.param(packed([entry("snap-1")]) + b"more", "follow after its end", id="more-after-the-end"),
    pytest.param(packed([entry("snap-1")]) + packed([entry("other")]), "follow after its end", id="two-in-one"),
]


@pytest.mark.parametrize(("data", "said"), LISTS)
def test_a_snapshot_list_is_believed_whole_or_not_at_all(folder, data, said):
    """velero#9077 and #9319: with the list lost, the files went and the snapshots stayed for ever, paid for by nobody.

    A list of which a part cannot be read, or that names fewer snapshots than were made, is no basis for a deletion.
    """
    folder.put_files("good", volumesnapshots=data)
    folder.put(request("ask"))
    message = refused(folder, "ask", "ListCorrupt")
    assert "backups/good/good-volumesnapshots.json.gz" in message
    assert said in message


def test_a_file_of_100_mb_is_not_read_into_memory(folder):
    """Somebody uploads 100 MB in the place of a list: it is refused by its size."""
    path = folder.path / "buckets/bkt/backups/good/good-volumesnapshots.json.gz"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    folder.put(request("ask"))
    planned = folder.plan()
    assert (planned.code, planned.decisions["ask"]["reason"]) == (3, "ListCorrupt")


@pytest.mark.parametrize(
    ("name", "document"),
    [
        pytest.param("podvolumebackups", [{"status": "x"}], id="volume-backup"),
        pytest.param("podvolumebackups", [{"status": {"snapshotID": 5}}], id="volume-backup-id"),
        pytest.param("csi-volumesnapshotcontents", [{"metadata": []}], id="csi"),
        pytest.param("itemoperations", [{"spec": {"operationID": ["du-1"]}}], id="operation"),
        pytest.param("volumeinfo", [{"snapshotDataMoved": "true"}], id="moved-volume"),
    ],
)
def test_the_other_lists_are_believed_whole_or_not_at_all(folder, name, document):
    """An entry of the wrong type could be data that no adapter can delete: not to see it would orphan it."""
    folder.put_files("good", **{"volumesnapshots": packed([entry("snap-1")]), name: packed(document)})
    folder.put(request("ask"))
    assert f"good-{name}.json.gz" in refused(folder, "ask", "ListCorrupt")


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        pytest.param(b"hello", "MetadataCorrupt", id="garbage"),
        pytest.param(b"\xff\xfe", "MetadataCorrupt", id="binary"),
        pytest.param(b"[]", "MetadataCorrupt", id="a-list"),
        pytest.param(b"null", "MetadataCorrupt", id="null"),
        pytest.param(b"[" * 100_000, "MetadataCorrupt", id="deep"),
        pytest.param(b" " * 34_000_000, "MetadataCorrupt", id="too-large"),
        pytest.param(b"{}", "NotTheOwner", id="says-nothing"),
        pytest.param(b'{"status": {"startTimestamp": 5}}', "NotTheOwner", id="started-at-a-number"),
    ],
)
def test_a_metadata_file_that_tells_nothing_protects_its_directory(folder, metadata, reason):
    """Whose files these are is not known, so they are nobody's to delete."""
    folder.put_files("good", metadata=metadata)
    folder.put(request("ask"))
    refused(folder, "ask", reason)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"x", id="garbage"),
        pytest.param(b"", id="empty"),
        pytest.param(b"[]", id="a-list"),
        pytest.param(b'{"reprieve.dev/hold": 5}', id="a-number"),
        pytest.param(b'{"reprieve.dev/hold": "law", "reprieve.dev/hold-until": "soon"}', id="an-unreadable-date"),
        pytest.param(b" " * 1_000_000, id="too-large"),
    ],
)
def test_a_hold_file_that_cannot_be_read_holds(folder, content):
    """The mirrored hold was damaged: what it said is not known, so it holds, and the request waits."""
    (folder.path / "buckets/bkt/backups/good/reprieve-hold.json").write_bytes(content)
    folder.put(request("ask"))
    refused(folder, "ask", "Held")


@pytest.mark.parametrize("odd", ["\ud800", "snap\n-1", "\x1b[2J", "../x", "💥"])
@pytest.mark.parametrize("output", ["json", "yaml", "table"])
def test_an_odd_snapshot_id_is_shown_and_harms_nothing(folder, odd, output):
    """An id with half a surrogate pair or a terminal's escape codes reaches every kind of output."""
    folder.put_files("good", volumesnapshots=packed([entry("snap-1"), entry(odd)]))
    said = folder.run("backup", "describe", "good", "-o", output)
    assert said.code == 0
    assert "\x1b" not in said.out
    said.out.encode()


# The folder's own files


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        pytest.param("x.yaml", b"a: [", "line", id="broken"),
        pytest.param("x.json", b'{"kind": ', "line", id="broken-json"),
        pytest.param("x.yaml", b"apiVersion: v1\nkind: X\nkind: Y\n", "'kind' is there twice", id="a-key-twice"),
        pytest.param("x.yaml", b"apiVersion: v1\n\tkind: X\n", "tab", id="tabs"),
        pytest.param("x.yaml", b"a: b\n", "this is missing", id="no-object"),
        pytest.param("x.yaml", bytes(range(128, 256)), "UTF-8", id="binary"),
        pytest.param("x.yaml", b"\0", "control characters", id="nul"),
        pytest.param("x.yaml", b"- a\n", "a list instead of an object", id="a-list"),
        pytest.param("x.yaml", b"kind: X\nmetadata: {name: x}\n", "apiVersion", id="no-version"),
        pytest.param("x.yaml", b"apiVersion: v1\nkind: X\nmetadata: [a]\n", "metadata.name", id="metadata-a-list"),
        pytest.param("x.yaml", b"!!python/object/apply:os.abort []\n", "tag", id="a-tag-that-would-run-code"),
        pytest.param("x.yaml", b"[" * 20_000, "nest", id="deep"),
        pytest.param(
            "x.yaml",
            b"apiVersion: v1\nkind: X\nmetadata: {name: x, annotations: {reprieve.dev/hold: 4711}}\n",
            "metadata.annotations.reprieve.dev/hold: a number instead of a string; put it in quotes",
            id="a-hold-without-quotes",
        ),
        pytest.param(
            "x.yaml",
            b"apiVersion: v1\nkind: X\nmetadata: {name: x, labels: {velero.io/backup-uid: true}}\n",
            "metadata.labels.velero.io/backup-uid: a boolean instead of a string; put it in quotes",
            id="a-label-without-quotes",
        ),
        pytest.param(
            "x.yaml",
            b"apiVersion: v1\nkind: X\nmetadata: {name: x, annotations: [hold]}\n",
            "metadata.annotations: a list instead of a mapping",
            id="annotations-a-list",
        ),
    ],
)
def test_a_file_that_is_no_dump_of_objects_stops_everything(folder, name, content, said):
    """One broken file in a folder: nothing can be known for sure, so nothing is done, and the file is named."""
    folder.put(request("ask"))
    (folder.path / "cluster" / name).write_bytes(content)
    before = folder.content()
    for arguments in (["plan"], ["run", "--once"], ["backup", "list"], ["backup", "delete", "good", "--confirm"]):
        shown = folder.run(*arguments, "-o", "json")
        assert (shown.code, shown.out) == (1, "")
        assert f"cluster/{name}" in shown.err
        assert said in shown.err
    assert folder.content() == before


def test_aliases_that_multiply_are_not_expanded(folder):
    """Nine lines of YAML that stand for a billion values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    bomb = "\n".join(lines)
    (folder.path / "cluster" / "x.yaml").write_text(bomb, encoding="utf-8")
    assert "aliases expand" in folder.run("plan").err
    (folder.path / "cluster" / "x.yaml").unlink()
    (folder.path / "reprieve.yaml").write_text(bomb, encoding="utf-8")
    said = folder.run("plan")
    assert (said.code, "aliases expand" in said.err, "reprieve.yaml" in said.err) == (1, True, True)


def test_links_are_not_followed(folder):
    """A link below ``cluster`` to a file elsewhere, and one in the bucket to a folder elsewhere."""
    outside = folder.path.parent / "outside"
    outside.mkdir()
    (outside / "f").write_text("stays", encoding="utf-8")
    (folder.path / "buckets/bkt/backups/good/link").symlink_to(outside)
    (folder.path / "buckets/bkt/backups/good/loop").symlink_to(folder.path / "buckets")
    (folder.path / "cluster/loop").symlink_to(folder.path / "cluster")
    folder.put(request("ask"))
    folder.run("run", "--once", "--controllers", "deletion", "--now", NOW)
    assert (outside / "f").read_text(encoding="utf-8") == "stays"
    (folder.path / "cluster/link.yaml").symlink_to("/etc/passwd")
    said = folder.run("plan")
    assert (said.code, "links are not followed" in said.err) == (1, True)


def test_a_folder_whose_name_ends_like_a_file_is_a_folder(folder):
    """A folder called ``objects.yaml`` may hold objects as any other."""
    (folder.path / "cluster/objects.yaml").mkdir()
    folder.put(request("ask"), file="objects.yaml/ask.yaml")
    assert folder.plan().decisions["ask"]["reason"] == "Admitted"


HEAD = "apiVersion: reprieve.dev/v1alpha1\nkind: Configuration\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(HEAD + "backup: {}\n", "unknown key backup; allowed are", id="unknown-key"),
        pytest.param(HEAD + "backups: {deletion: {tries: 5}}\n", "backups.deletion: unknown key tries", id="deeper"),
        pytest.param(HEAD + "backups: {}\nbackups: false\n", "line 4", id="a-key-twice"),
        pytest.param(HEAD + "---\n" + HEAD, "2 documents", id="two-documents"),
        pytest.param(HEAD + "backups: {deletion: {attempts: '" + "9" * 9000 + "'}}\n", "…", id="a-long-value"),
        pytest.param("", "the document", id="empty"),
        pytest.param("[]", "the document", id="a-list"),
        pytest.param("a: [", "line", id="broken"),
        pytest.param("\tx: y", "line", id="tabs"),
        pytest.param("!!python/object/apply:os.abort []", "tag", id="a-tag-that-would-run-code"),
    ],
)
def test_a_configuration_that_is_not_understood_stops_everything(folder, content, said):
    """A mistyped key must not mean its default: what the operator wanted is not known."""
    folder.put(request("ask"))
    (folder.path / "reprieve.yaml").write_text(content, encoding="utf-8")
    before = folder.content()
    for arguments in (["plan"], ["run", "--once"], ["backup", "list"], ["backup", "delete", "good", "--confirm"]):
        shown = folder.run(*arguments, "-o", "json")
        assert (shown.code, shown.out) == (1, "")
        assert "reprieve.yaml" in shown.err
        assert said in shown.err
        assert len(shown.err) < 1000
    assert folder.content() == before


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param("- [", "line", id="broken"),
        pytest.param("a: b", "one list", id="no-list"),
        pytest.param("- {provider: aws, id: 5}", "[0].id", id="a-number-for-an-id"),
        pytest.param("- {provider: aws, id: a}\n- {provider: aws, id: a}", "[1]", id="twice"),
        pytest.param("- {provider: aws, id: a, fails: Boo}", "[0].fails", id="an-unknown-failure"),
    ],
)
def test_a_list_of_snapshots_that_is_not_understood_stops_everything(folder, content, said):
    """A broken ``snapshots.yaml`` must not look like an account without snapshots."""
    folder.put(request("ask"))
    (folder.path / "snapshots.yaml").write_text(content, encoding="utf-8")
    before = folder.content()
    shown = folder.run("run", "--once", "-o", "json")
    assert (shown.code, shown.out, folder.content()) == (1, "", before)
    assert "snapshots.yaml" in shown.err
    assert said in shown.err


def test_a_folder_that_nobody_may_write_is_planned_all_the_same(folder):
    """A backup of a cluster is looked at from a read-only mount: a plan needs no right to write."""
    folder.put(request("ask"))
    paths = [folder.path, *(path for path in folder.path.rglob("*"))]
    modes = {path: path.stat().st_mode for path in paths}
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert folder.plan().code == 2
    finally:
        for path in paths:
            path.chmod(modes[path])


def test_the_folders_time_has_its_bounds(folder):
    """``--now 9999-12-31T23:59:59Z``: no later time can be counted from it, so it is refused at once."""
    for moment in ("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"):
        said = folder.run("plan", "--now", moment)
        assert (said.code, "does not lie between" in said.err) == (1, True)
