"""What the account of the controller may do is what it does."""

import threading

import pytest

from reprieve.core.objects import ObjectKind
from reprieve.core.reasons import Reason
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.runtime import run_once
from tests.integration.deployed import NOW, Authorizer, make_world, velero
from tests.integration.folders import location, make_folder


@pytest.fixture
def authorizer(api):
    api.authorize = made = Authorizer()
    return made


def test_a_location_cannot_have_a_secret_read_that_the_operator_did_not_name(store, cluster, authorizer):
    """Whoever may create a BackupStorageLocation names any Secret of Velero's namespace as its credential.

    The API server refuses to hand it out; requests at other locations are carried out meanwhile.
    """
    world = make_world(store, cluster)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "payroll", "namespace": "velero"}}
    store.create({**secret, "data": {"key": "c2VjcmV0"}})
    credential = {"name": "payroll", "key": "key"}
    spec = {"provider": "aws", "objectStorage": {"bucket": "acme", "prefix": "theirs"}, "credential": credential}
    store.create(velero("BackupStorageLocation", "theirs", spec=spec, status={"phase": "Available"}))
    status = {"phase": "Completed", "startTimestamp": "2026-02-01T03:00:00Z"}
    backup = store.create(velero("Backup", "bait", spec={"storageLocation": "theirs"}, status=status))
    labels = {"velero.io/backup-name": "bait", "velero.io/backup-uid": backup["metadata"]["uid"]}
    spec = {"backupName": "bait"}
    store.create(velero("DeleteBackupRequest", "ask-bait", spec=spec, metadata={"labels": labels}))

    built = build_controllers(world, names=[], stop=threading.Event())
    report = run_once(built.reconcilers, now=NOW)
    built.close()

    assert {(each.verb, each.resource, each.name) for each in authorizer.refused} == {("get", "secrets", "payroll")}
    assert "nightly" in [each.subject for each in report.decisions if each.reason is Reason.COMPLETED]
    left = {each["metadata"]["name"] for each in store.list(ObjectKind("velero.io/v1", "Backup")).items}
    assert left == {"bait", "only"}


@pytest.mark.parametrize(
    "secret",
    [
        pytest.param("a]\n    verbs:\n      - '*'\n  - apiGroups: ['*']\n    resources: ['*", id="more-rules"),
        pytest.param("a, payroll", id="another-name"),
        pytest.param("*", id="every-name"),
        pytest.param("\u202epayroll", id="turned-around"),
    ],
)
def test_a_location_cannot_write_into_the_rights_that_are_made_from_it(tmp_path, capsys, secret):
    """``reprieve manifests --from-locations`` writes a Role with what locations name, and an operator applies it.

    A name that no Secret has is left out, and told on one line; the Role is what it is without that location.
    """
    folder = make_folder(tmp_path / "world", capsys)
    before = folder.run("manifests", "--from-locations", "--part", "rbac")
    made = location("theirs")
    folder.put(made | {"spec": made["spec"] | {"credential": {"name": secret, "key": "cloud"}}})

    said = folder.run("manifests", "--from-locations", "--part", "rbac")

    assert (said.code, said.out) == (0, before.out)
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith("reprieve: left out: location theirs names ")
    assert said.err.strip().isprintable()
