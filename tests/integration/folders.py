"""Small folders in Velero's layout, made by hand as a stranger would, and the command run over them in this process.

``good`` is a backup with one live snapshot; ``other`` is a snapshot that no backup names. What a test puts beside them
must not reach either.
"""

import gzip
import json
from pathlib import Path

import yaml
from attrs import frozen

from reprieve.entrypoints.cli.root import run

NOW = "2026-03-01T12:00:00Z"
MADE = "2026-02-01T00:00:00Z"
ASKED = "2026-02-20T00:00:00Z"


def thing(kind, name, *, metadata=None, **parts):
    """An object of ``velero.io/v1``; ``metadata`` adds to its name, namespace, uid and creation."""
    head = {"name": name, "namespace": "velero", "uid": f"uid-{kind}-{name}"[:200], "creationTimestamp": MADE}
    return {"apiVersion": "velero.io/v1", "kind": kind, "metadata": head | (metadata or {}), **parts}


def location(name="primary", *, bucket="bkt", prefix="", phase="Available", mode="ReadWrite"):
    """A storage location."""
    spec = {"provider": "aws", "objectStorage": {"bucket": bucket, "prefix": prefix}, "accessMode": mode}
    return thing("BackupStorageLocation", name, spec=spec, status={"phase": phase})


def snapshot_location(name="aws-eu"):
    """A snapshot location."""
    return thing("VolumeSnapshotLocation", name, spec={"provider": "aws", "config": {"region": "eu-west-1"}})


def backup(name, *, phase="Completed", snapshots=0, where="primary", metadata=None):
    """A backup's record."""
    status = {"phase": phase, "startTimestamp": MADE, "volumeSnapshotsCompleted": snapshots}
    spec = {"storageLocation": where, "volumeSnapshotLocations": ["aws-eu"]}
    return thing("Backup", name, spec=spec, status=status, metadata=metadata)


def request(name, backup_name="good", *, metadata=None, **parts):
    """A deletion request without labels, as ``kubectl create`` makes it; ``spec`` may be anything."""
    parts = {"spec": {"backupName": backup_name}} | parts
    return thing("DeleteBackupRequest", name, metadata={"creationTimestamp": ASKED} | (metadata or {}), **parts)


def packed(document):
    """A list in the bucket."""
    return gzip.compress(json.dumps(document).encode(), mtime=0)


def entry(identifier, **spec):
    """An entry of the list of native snapshots."""
    return {
        "spec": {"location": "aws-eu", "volumeAZ": "eu-west-1a", **spec},
        "status": {"providerSnapshotID": identifier},
    }


def snapshot(identifier, backup_name, provider="aws"):
    """An entry of ``snapshots.yaml`` with the tag of its backup."""
    return {"provider": provider, "id": identifier, "tags": {"velero.io/backup": backup_name}}


@frozen
class Said:
    """What a run of the command came to."""

    code: int
    out: str
    err: str

    @property
    def decisions(self):
        """The decisions of the deletion controller, by the name of the request."""
        return {d["object"]["name"]: d for d in json.loads(self.out) if d["controller"] == "deletion"}


@frozen
class Folder:
    """A folder to work on, and the means to look at it."""

    path: Path
    capsys: object

    def put(self, *objects, file="more.yaml"):
        """Write objects into the cluster."""
        (self.path / "cluster" / file).write_text(yaml.safe_dump_all(objects, allow_unicode=True), encoding="utf-8")

    def put_files(self, name, *, bucket="bkt", metadata=None, **files):
        """Write a backup's metadata file, and more files of it by the end of their names."""
        directory = self.path / "buckets" / bucket / "backups" / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "velero-backup.json").write_bytes(metadata or json.dumps(backup(name)).encode())
        for ending, content in files.items():
            (directory / f"{name}-{ending}.json.gz").write_bytes(content)

    def run(self, *arguments, local=True):
        """Run the command; whatever happens, there is no traceback and no fault of ours."""
        self.capsys.readouterr()
        where = ("--local", str(self.path)) if local else ()
        code = run([*map(str, arguments), *where])
        said = self.capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        assert "internal error" not in said.err, said.err
        return Said(code, said.out, said.err)

    def plan(self):
        """Plan the deletions, as JSON; nothing in the folder may change."""
        before = self.content()
        said = self.run("plan", "--controllers", "deletion", "--now", NOW, "-o", "json")
        assert self.content() == before
        return said

    def carry_out(self):
        """Run the deletions once, as JSON; a second run must change nothing more."""
        said = self.run("run", "--once", "--controllers", "deletion", "--now", NOW, "-o", "json")
        after = self.content()
        self.run("run", "--once", "--controllers", "deletion", "--now", NOW, "-o", "json")
        assert self.content() == after
        return said

    def content(self):
        """Every file with its bytes."""
        return {str(p.relative_to(self.path)): p.read_bytes() for p in self.path.rglob("*") if p.is_file()}

    def data(self):
        """Every file but those of the cluster: what a deletion would destroy."""
        return {name: data for name, data in self.content().items() if not name.startswith("cluster")}

    def objects(self, kind):
        """The names of a kind's objects."""
        found = [each for path in (self.path / "cluster").rglob("*.yaml") for each in _documents(path)]
        return sorted(each["metadata"]["name"] for each in found if each["kind"] == kind)


def _documents(path):
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]


def make_folder(path, capsys):
    """The folder with ``good`` and ``other``."""
    (path / "cluster").mkdir(parents=True)
    folder = Folder(path, capsys)
    folder.put(location(), snapshot_location(), file="locations.yaml")
    folder.put(backup("good", snapshots=1), file="good.yaml")
    folder.put_files("good", volumesnapshots=packed([entry("snap-1")]))
    snapshots = [snapshot("snap-1", "good"), {"provider": "aws", "id": "other"}]
    (path / "snapshots.yaml").write_text(yaml.safe_dump(snapshots), encoding="utf-8")
    return folder
