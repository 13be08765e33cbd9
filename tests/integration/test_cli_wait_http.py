"""``backup delete --wait`` against an API server: it says when nobody is there to do the work."""

import threading
from datetime import timedelta

import yaml

from reprieve.core.objects import ObjectKind
from reprieve.core.ports import Upserted
from reprieve.entrypoints.cli.root import run

REQUEST = ObjectKind("velero.io/v1", "DeleteBackupRequest")


def kubeconfig(api, folder):
    """A kubeconfig that leads to the server."""
    path = folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
                "clusters": [{"name": "here", "cluster": {"server": api.url}}],
                "users": [{"name": "me", "user": {}}],
            }
        ),
        encoding="utf-8",
    )
    return str(path)


def made(kind, name, **parts):
    """An object of Velero's."""
    return {"apiVersion": "velero.io/v1", "kind": kind, "metadata": {"name": name, "namespace": "velero"}, **parts}


def test_waiting_says_when_no_controller_is_there(store, api, cluster, tmp_path, capsys):
    """``--wait`` without a controller waited for ever and said nothing; here the request is then taken back by hand."""
    storage = {"provider": "aws", "objectStorage": {"bucket": "b"}}
    store.create(made("BackupStorageLocation", "default", spec=storage, status={"phase": "Unavailable"}))
    store.create(made("Backup", "nightly", spec={"storageLocation": "default"}, status={"phase": "Completed"}))
    codes = []
    arguments = ["backup", "delete", "nightly", "--confirm", "--wait", "--kubeconfig", kubeconfig(api, tmp_path)]
    waiting = threading.Thread(target=lambda: codes.append(run(arguments)))
    start = cluster.list(REQUEST, namespace="velero").resource_version
    waiting.start()
    events = cluster.watch(REQUEST, namespace="velero", resource_version=start, timeout=timedelta(seconds=60))
    asked = next(event.resource.ref for event in events if isinstance(event, Upserted))
    cluster.delete(asked)
    waiting.join(timeout=60)
    assert codes == [1]
    said = capsys.readouterr().err
    assert "no controller holds the lease velero/reprieve-controller" in said
    assert "somebody took it back" in said
