"""A cluster in a directory: what is read, what is written, and what a killed run leaves."""

import json
import multiprocessing
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.adapters.local import Disk, FolderError, LocalFolder
from reprieve.adapters.local.foldercluster import FolderFiles
from reprieve.core import errors
from reprieve.core.objects import ObjectKind, ObjectRef
from reprieve.core.outcomes import AlreadyGone, Denied, Done, Pending, Unknown
from reprieve.core.ports import Propagation

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BACKUP = ObjectKind("velero.io/v1", "Backup")
CM = ObjectKind("v1", "ConfigMap")


def put(root: Path, name: str, text: str | bytes) -> Path:
    path = root / "cluster" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def opened(root: Path, **options):
    return LocalFolder(root, **{"now": lambda: NOW, **options})


def backup(name="b", **meta):
    return {"apiVersion": "velero.io/v1", "kind": "Backup", "metadata": {"name": name, "namespace": "velero", **meta}}


def ref_of(folder, name, kind=BACKUP, namespace="velero"):
    return folder.cluster.get(ObjectRef(kind.api_version, kind.kind, name, namespace)).ref


def names(folder, kind=BACKUP):
    return [item.meta.name for item in folder.cluster.list(kind).items]


TWO = """\
# about the first
apiVersion: velero.io/v1
kind: Backup
metadata: {name: a, namespace: velero}   # kept
spec:
  ttl: 720h0m0s
  when: 2026-01-02T03:04:05Z
---
# about the second
apiVersion: velero.io/v1
kind: Backup
metadata:
  name: b
  namespace: velero
  labels: {answer: no, "on": on}
spec: {hooks: {}}
# the end
"""
LISTED = """\
apiVersion: v1
items:
- apiVersion: velero.io/v1
  kind: Backup
  metadata: {name: a, namespace: velero}
# between
- apiVersion: velero.io/v1
  kind: Backup
  metadata: {name: b, namespace: velero}   # second
kind: List
metadata:
  resourceVersion: ""
"""


# Reading


def test_words_and_dates_are_strings(tmp_path):
    put(tmp_path, "all.yaml", TWO)
    with opened(tmp_path) as folder:
        assert folder.cluster.get(ref_of(folder, "a")).body["spec"]["when"] == "2026-01-02T03:04:05Z"
        assert dict(folder.cluster.get(ref_of(folder, "b")).meta.labels) == {"answer": "no", "on": "on"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("list.yaml", LISTED, id="list"),
        pytest.param("a/b/list.yml", LISTED.replace("items:\n", "items:\n").replace("\n", "\r\n"), id="crlf-deep-yml"),
        pytest.param("two.yaml", TWO, id="two-documents"),
        pytest.param("bom.yaml", "\ufeff" + TWO, id="byte-order-mark"),
        pytest.param(
            "list.json",
            json.dumps({"apiVersion": "v1", "kind": "List", "items": [backup("a"), backup("b")]}),
            id="json",
        ),
        pytest.param("stream.json", json.dumps(backup("a")) + "\n" + json.dumps(backup("b")), id="json-stream"),
        pytest.param(
            "typed.json",
            json.dumps(
                {
                    "apiVersion": "velero.io/v1",
                    "kind": "BackupList",
                    "items": [{"metadata": backup(n)["metadata"]} for n in "ab"],
                }
            ),
            id="typed-list",
        ),
        pytest.param(
            "flow.yaml",
            "kind: List\nitems: [" + json.dumps(backup("a")) + ", " + json.dumps(backup("b")) + "]",
            id="flow",
        ),
    ],
)
def test_every_form_of_a_dump_is_read_changed_and_read_again(tmp_path, name, text):
    path = put(tmp_path, name, text)
    with opened(tmp_path) as folder:
        assert names(folder) == ["a", "b"]
        patched = folder.cluster.patch(ref_of(folder, "b"), {"metadata": {"labels": {"no": "yes"}}})
    with opened(tmp_path, read_only=True) as folder:
        assert names(folder) == ["a", "b"]
        assert folder.cluster.get(patched.ref) == patched
    with opened(tmp_path) as folder:
        assert folder.cluster.delete(ref_of(folder, "a")) == Done()
        assert folder.cluster.get(patched.ref) == patched
    with opened(tmp_path) as folder:
        assert names(folder) == ["b"]
        assert folder.cluster.delete(patched.ref) == Done()
    assert not path.exists()


def test_a_changed_document_leaves_the_others_byte_for_byte(tmp_path):
    path = put(tmp_path, "all.yaml", TWO)
    first, second = TWO.split("---\n")
    with opened(tmp_path) as folder:
        folder.cluster.patch(ref_of(folder, "b"), {"spec": {"ttl": "1h"}})
        assert path.read_text().startswith(first + "---\n# about the second\napiVersion")
        assert path.read_text().endswith("# the end\n")
        folder.cluster.delete(ref_of(folder, "b"))
        assert path.read_text() == first
        folder.cluster.create(backup("c"))
    path.write_text(TWO)
    with opened(tmp_path) as folder:
        folder.cluster.delete(ref_of(folder, "a"))
    assert path.read_text() == "---\n" + second


def test_a_changed_entry_of_a_list_leaves_the_others_byte_for_byte(tmp_path):
    path = put(tmp_path, "list.yaml", LISTED)
    head, rest = LISTED.split("- apiVersion", 1)
    with opened(tmp_path) as folder:
        folder.cluster.patch(ref_of(folder, "a"), {"spec": {"x": "no"}})
        text = path.read_text()
        assert text.startswith(head)
        assert text.endswith("# between\n" + LISTED.split("# between\n")[1])
        folder.cluster.delete(ref_of(folder, "a"))
        assert path.read_text() == head + "# between\n" + rest.split("# between\n")[1]


def test_objects_of_a_hand_get_the_same_identity_in_every_run_and_keep_it_once_written(tmp_path):
    path = put(tmp_path, "all.yaml", TWO)
    with opened(tmp_path, read_only=True) as folder:
        first = folder.cluster.get(ref_of(folder, "a"))
    with opened(tmp_path) as folder:
        assert folder.cluster.get(first.ref) == first
        assert path.read_text() == TWO
        folder.cluster.patch(first.ref, {"metadata": {"labels": {"l": "1"}}})
        version = folder.cluster.get(first.ref).meta.resource_version
    assert f"uid: {first.meta.uid}" in path.read_text()
    with opened(tmp_path) as folder:
        found = folder.cluster.get(first.ref)
        assert (found.meta.uid, found.meta.resource_version) == (first.meta.uid, version)
        later = folder.cluster.patch(found.ref, {"metadata": {"labels": {"l": "2"}}})
        assert int(later.meta.resource_version) > int(version)


def test_kinds_that_are_known_have_their_namespace_or_none(tmp_path):
    put(tmp_path, "a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
    put(tmp_path, "n.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: n, namespace: odd}\n")
    with opened(tmp_path) as folder:
        assert folder.cluster.delete(ref_of(folder, "a", CM, "default")) == Done()
        assert folder.cluster.delete(ref_of(folder, "n", ObjectKind("v1", "Namespace"), "")) == Done()
    assert list((tmp_path / "cluster").iterdir()) == []


def test_an_empty_folder_is_an_empty_cluster(tmp_path):
    with opened(tmp_path) as folder:
        assert names(folder) == []
        assert folder.cluster.create(backup()).meta.name == "b"
    assert [path.name for path in (tmp_path / "cluster" / "velero").iterdir()] == ["backup-b.yaml"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        pytest.param("a: [1\n", "document 1, line 2: while parsing a flow sequence", id="broken"),
        pytest.param(TWO + "---\n- 1\n", "document 3, line 19: a list instead of an object", id="list-document"),
        pytest.param(
            "---\n---\nkind: Backup\nmetadata: {name: a}\n",
            "document 2, line 3, apiVersion: this is missing",
            id="no-version",
        ),
        pytest.param("apiVersion: v1\nmetadata: {name: a}\n", "kind: this is missing", id="no-kind"),
        pytest.param("apiVersion: v1\nkind: Secret\n", "metadata.name: this is missing", id="no-metadata"),
        pytest.param(
            "apiVersion: v1\nkind: Secret\nmetadata: {name: 5}\n",
            "metadata.name: a number instead of a string",
            id="number",
        ),
        pytest.param(
            "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: 5}\n", "metadata.namespace", id="namespace"
        ),
        pytest.param("apiVersion: v1\nkind: List\nitems: {a: 1}\n", "items: a mapping instead of a list", id="items"),
        pytest.param(
            "apiVersion: v1\nkind: List\nitems: [5]\n", r"items\[0\]: a number instead of an object", id="item"
        ),
        pytest.param(
            "apiVersion: v1\nkind: List\nitems: [{kind: A, apiVersion: v1}]\n",
            r"items\[0\].metadata.name",
            id="item-without-name",
        ),
        pytest.param(TWO + "---\n" + TWO, "Backup a is in .* already", id="twice"),
        pytest.param("a: 1\na: 2\n", "line 2: the key 'a' is there twice", id="duplicate-key"),
        pytest.param(b"a: \xff\n", "this is no UTF-8 text", id="not-utf-8"),
        pytest.param("plain text", "a string instead of an object", id="text"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_says_where(tmp_path, text, what):
    path = put(tmp_path, "bad.yaml", text)
    with pytest.raises(FolderError, match=what) as caught:
        opened(tmp_path)
    assert str(caught.value).startswith(str(path))
    assert isinstance(caught.value, errors.ReprieveError)
    with pytest.raises(FolderError, match=what):  # the lock is not left behind
        opened(tmp_path)


def test_broken_json_says_its_line(tmp_path):
    put(tmp_path, "bad.json", '{"kind":\n "A",}')
    with pytest.raises(FolderError, match="document 1, line 2"):
        opened(tmp_path)


def test_links_are_not_followed(tmp_path):
    outside = tmp_path / "outside.yaml"
    outside.write_text(TWO)
    (tmp_path / "dir" / "cluster").mkdir(parents=True)
    (tmp_path / "dir" / "cluster" / "link.yaml").symlink_to(outside)
    with pytest.raises(FolderError, match="this is a link"):
        opened(tmp_path / "dir")


# The folder itself


@pytest.mark.parametrize("made", [False, True], ids=["missing", "a-file"])
def test_what_is_no_folder(tmp_path, made):
    path = tmp_path / "x"
    if made:
        path.write_text("")
    with pytest.raises(FolderError, match="no folder" if made else "not there"):
        opened(path)


def test_one_run_at_a_time_and_readers_share(tmp_path):
    with opened(tmp_path):
        for read_only in (False, True):
            with pytest.raises(FolderError, match="another reprieve is at work"):
                opened(tmp_path, read_only=read_only)
    readers = [opened(tmp_path, read_only=True) for _ in range(2)]
    with pytest.raises(FolderError, match="another reprieve is at work"):
        opened(tmp_path)
    for reader in readers:
        reader.close()
    with opened(tmp_path) as folder:
        assert folder.path == tmp_path


def everything(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def test_read_only_writes_nothing_at_all(tmp_path):
    put(tmp_path, "all.yaml", TWO)
    put(tmp_path, "left.yaml.tmp", "x")
    (tmp_path / "snapshots.yaml").write_text("[{provider: aws, id: snap-1}]\n")
    before = everything(tmp_path)
    with opened(tmp_path, read_only=True) as folder:
        with pytest.raises(errors.DeniedError, match="reading only"):
            folder.cluster.create(backup("c"))
        with pytest.raises(errors.DeniedError, match="reading only"):
            folder.cluster.patch(ref_of(folder, "a"), {"spec": None})
        assert isinstance(folder.cluster.delete(ref_of(folder, "a")), Denied)
        assert names(folder) == ["a", "b"]
    assert everything(tmp_path) == before


def test_leftovers_of_a_killed_run_are_removed(tmp_path):
    put(tmp_path, "velero/.reprieve-1-1.tmp", "x")
    put(tmp_path, "velero/backup-b.yaml.tmp", "x")
    put(tmp_path, "notes.txt", "x")
    (tmp_path / "buckets" / "b" / "k").mkdir(parents=True)
    (tmp_path / "buckets" / "b" / "k" / ".reprieve-1-2.tmp").write_text("x")
    (tmp_path / ".reprieve-1-3.tmp").write_text("x")
    with opened(tmp_path):
        assert list(everything(tmp_path)) == ["cluster/notes.txt"]


# Writing


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "file"),
    [
        ("Backup", "velero", "nightly", "velero/backup-nightly.yaml"),
        ("Backup", "velero", "a.b-c", "velero/backup-a.b-c.yaml"),
        ("ClusterThing", "", "c", "_cluster/clusterthing-c.yaml"),
    ],
)
def test_new_files_are_named_for_their_object(tmp_path, kind, namespace, name, file):
    scoped = {"namespace": namespace} if namespace else {}
    with opened(tmp_path) as folder:
        folder.cluster.create(
            {
                "apiVersion": "velero.io/v1" if namespace else "e.io/v1",
                "kind": kind,
                "metadata": {"name": name, **scoped},
            }
        )
    assert (tmp_path / "cluster" / file).is_file()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["Backup", "backup", "../x"]), st.text(max_size=6), st.text(min_size=1, max_size=300)
        ),
        unique=True,
        max_size=8,
    )
)
def test_any_names_get_files_of_their_own_inside_the_folder(keys):
    files = FolderFiles(Path("/nowhere/cluster"), disk=Disk())
    seen = set()
    for kind, namespace, name in keys:
        path = files._free((ObjectKind("e.io/v1", kind), namespace, name))
        files._names.add(str(path).lower())
        assert str(path.resolve()).startswith("/nowhere/cluster/")
        assert len(path.parts) == 5
        assert len(path.name.encode()) <= 255
        seen.add(str(path).lower())
    assert len(seen) == len(keys)


def test_a_file_stays_as_private_as_it_was(tmp_path):
    path = put(tmp_path, "all.yaml", TWO)
    path.chmod(0o600)
    with opened(tmp_path) as folder:
        folder.cluster.delete(ref_of(folder, "a"))
    assert path.stat().st_mode & 0o777 == 0o600


def test_memory_needs_no_yaml_library():
    code = "import sys; sys.modules['yaml'] = None; from reprieve.adapters.local import *; LocalCluster.in_memory()"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_file_that_is_there_is_not_taken_for_a_new_object(tmp_path):
    other = put(tmp_path, "velero/backup-b.yaml", TWO.replace("name: b", "name: z"))
    with opened(tmp_path) as folder:
        folder.cluster.create(backup("b"))
        ark = {**backup("b"), "apiVersion": "ark.heptio.com/v1"}
        folder.cluster.create(ark)
    assert other.read_text() == TWO.replace("name: b", "name: z")
    with opened(tmp_path, read_only=True) as folder:
        assert names(folder) == ["a", "b", "z"]
        assert names(folder, ObjectKind("ark.heptio.com/v1", "Backup")) == ["b"]


def test_a_file_that_somebody_else_has_changed_is_not_overwritten(tmp_path):
    path = put(tmp_path, "all.yaml", TWO)
    with opened(tmp_path) as folder:
        path.write_text(TWO.replace("720h", "1h"))
        with pytest.raises(FolderError, match="somebody else has changed"):
            folder.cluster.patch(ref_of(folder, "a"), {"spec": None})
        assert isinstance(folder.cluster.delete(ref_of(folder, "a")), Unknown)
    assert path.read_text() == TWO.replace("720h", "1h")


def test_a_patch_that_changes_nothing_writes_nothing(tmp_path):
    path = put(tmp_path, "all.yaml", TWO)
    with opened(tmp_path, disk=Failing(0)) as folder:
        folder.cluster.patch(ref_of(folder, "b"), {"metadata": {"labels": {"answer": "no"}}})
    assert path.read_text() == TWO


def test_what_a_text_file_cannot_hold_is_refused(tmp_path):
    with opened(tmp_path) as folder, pytest.raises(FolderError, match="characters"):
        folder.cluster.create({**backup(), "spec": {"a": "\ud800"}})
    assert everything(tmp_path) == {}


class Failing(Disk):
    """Fails at the n-th effect on the file system: with an error, or as if the process had been killed there."""

    class Killed(BaseException):
        pass

    def __init__(self, at, error=None):
        super().__init__()
        self.left, self.error = at, error or OSError(28, "No space left on device")

    def tick(self, *, after=False):
        """What has happened cannot fail any more; but the process can be killed right after it."""
        if after and isinstance(self.error, OSError):
            return
        self.left -= 1
        if self.left < 0:
            raise self.error

    def fill(self, path, data):
        self.tick()
        super().fill(path, data)
        self.tick(after=True)

    def rename(self, source, target):
        self.tick()
        super().rename(source, target)
        self.tick(after=True)

    def unlink(self, path):
        self.tick()
        super().unlink(path)
        self.tick(after=True)

    def sync(self, descriptor):
        self.tick()


def work(folder):
    """A change of every kind, over files of every form."""
    cluster = folder.cluster
    cluster.create(backup("new", finalizers=["a.b/c"]))
    cluster.patch(ref_of(folder, "a"), {"spec": {"ttl": "1h"}})
    cluster.delete(ref_of(folder, "b"))
    cluster.delete(ref_of(folder, "new"))
    cluster.patch(ref_of(folder, "new"), {"metadata": {"finalizers": None}})
    cluster.delete(ref_of(folder, "a"))


def test_killed_at_any_moment_the_folder_stays_valid(tmp_path):
    for moment in range(200):
        root = tmp_path / str(moment)
        put(root, "all.yaml", TWO)
        disk = Failing(moment, Failing.Killed())
        folder = opened(root, disk=disk)
        finished = True
        try:
            work(folder)
        except Failing.Killed:
            finished = False
        folder.close()
        with opened(root) as again:
            valid = {("a", "b"), ("a", "b", "new"), ("a", "new"), ("a",), ()}
            assert tuple(names(again)) in valid
            assert [name for name in everything(root) if name.endswith(".tmp")] == []
        if finished:
            break
    assert finished
    assert moment > 20


def test_a_full_disk_is_said(tmp_path):
    with opened(tmp_path, disk=Failing(0)) as folder, pytest.raises(FolderError, match="No space left on device"):
        folder.cluster.create(backup("new"))


def test_a_full_disk_leaves_the_old_state_in_memory_and_on_the_disk(tmp_path):
    for moment in range(200):
        root = tmp_path / str(moment)
        put(root, "all.yaml", TWO)
        with opened(root, disk=Failing(moment)) as folder:
            try:
                made = folder.cluster.create(backup("new"))
            except FolderError:
                made = None
            in_memory = names(folder)
        with opened(root) as again:
            assert names(again) == in_memory == (["a", "b"] if made is None else ["a", "b", "new"])
        if made is not None:
            break
    assert made is not None


# The collector over a folder


def owned(name, owner):
    reference = {"apiVersion": "velero.io/v1", "kind": "Backup", "name": owner.meta.name, "uid": owner.meta.uid}
    return backup(name, ownerReferences=[reference])


def family(root):
    root.mkdir()
    with opened(root) as folder:
        owner = folder.cluster.create(backup("owner"))
        for number in range(3):
            folder.cluster.create(owned(f"child-{number}", owner))
        folder.cluster.create(owned("grandchild", folder.cluster.get(ref_of(folder, "child-0"))))


@pytest.mark.parametrize("propagation", list(Propagation))
def test_a_run_that_is_killed_while_the_collector_writes_can_be_run_again_to_the_same_end(tmp_path, propagation):
    """What hangs on an owner is written before the owner goes: else a second run would take it for a partial dump."""
    family(tmp_path / "start")
    ends = set()
    for moment in range(300):
        root = tmp_path / f"run-{moment}"
        shutil.copytree(tmp_path / "start", root)
        finished = True
        folder = opened(root, disk=Failing(moment, Failing.Killed()))
        try:
            folder.cluster.delete(ref_of(folder, "owner"), propagation=propagation)
        except Failing.Killed:
            finished = False
        folder.close()
        with opened(root) as again:
            if "owner" in names(again):
                again.cluster.delete(ref_of(again, "owner"), propagation=propagation)
            ends.add(tuple(names(again)))
        if finished:
            break
    assert finished
    expected = ("child-0", "child-1", "child-2", "grandchild") if propagation is Propagation.ORPHAN else ()
    assert ends == {expected}


@pytest.mark.parametrize(("collect_absent", "left"), [(False, ["stray"]), (True, [])])
def test_owners_that_are_absent_from_a_partial_dump(tmp_path, collect_absent, left):
    stray = backup("stray", ownerReferences=[{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u"}])
    put(tmp_path, "stray.json", json.dumps(stray))
    with opened(tmp_path, collect_absent=collect_absent) as folder:
        folder.cluster.create(backup("other"))
        folder.cluster.delete(ref_of(folder, "other"))
        assert names(folder) == left


def test_a_delete_that_waits_says_for_what(tmp_path):
    put(tmp_path, "a.json", json.dumps(backup("a", finalizers=["a.b/c"])))
    with opened(tmp_path) as folder:
        outcome = folder.cluster.delete(ref_of(folder, "a"))
        assert isinstance(outcome, Pending)
        assert "a.b/c" in outcome.message
        gone = ref_of(folder, "a")
        folder.cluster.patch(gone, {"metadata": {"finalizers": None}})
        assert folder.cluster.delete(gone) == AlreadyGone()


def hold(path, ready, done):
    with LocalFolder(path):
        ready.set()
        done.wait(60)


def test_the_lock_ends_with_the_process(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    process = context.Process(target=hold, args=(tmp_path, ready, done))
    process.start()
    assert ready.wait(60)
    with pytest.raises(FolderError, match="another reprieve"):
        opened(tmp_path)
    process.kill()
    process.join(60)
    with opened(tmp_path) as folder:
        assert names(folder) == []


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=15)


@given(st.dictionaries(TEXT, TEXT, max_size=4), st.dictionaries(TEXT, TEXT | st.booleans() | st.integers(), max_size=4))
def test_any_data_comes_back_from_the_disk(tmp_path_factory, data, spec):
    root = tmp_path_factory.mktemp("any")
    put(root, "all.yaml", TWO)
    with opened(root, disk=Disk(durable=False)) as folder:
        made = folder.cluster.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}, "data": data}
        )
        changed = folder.cluster.patch(ref_of(folder, "a"), {"spec": spec})
    with opened(root, read_only=True) as folder:
        assert folder.cluster.get(made.ref) == made
        assert folder.cluster.get(changed.ref) == changed
    shutil.rmtree(root)
