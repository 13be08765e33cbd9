"""The manifests: every right that the controller needs is granted, and none that it does not use."""

import threading

import pytest

from reprieve.adapters.k8s.lease import Elector
from reprieve.core.objects import ObjectKind
from reprieve.core.ports import EventKind
from reprieve.core.reasons import Reason
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.runtime import run_once
from reprieve.entrypoints.leases import LEASE_NAME
from tests.integration.deployed import NOW, Authorizer, grants, make_world, manifests


@pytest.fixture
def authorizer(api):
    made = Authorizer()
    api.authorize = made
    return made


@pytest.fixture
def world(store, cluster):
    return make_world(store, cluster)


def follow(world, reconcilers):
    """A list and the first event of a watch of each kind that a controller follows."""
    for watch in (watch for each in reconcilers for watch in each.watches()):
        world.cluster.list(watch.kind, namespace=watch.namespace)
        next(world.cluster.watch(watch.kind, namespace=watch.namespace, resource_version="1"))


def test_the_manifests_grant_what_the_controller_does_and_nothing_else(api, store, cluster, authorizer, world):
    built = build_controllers(world, names=[], stop=threading.Event())
    follow(world, built.reconcilers)
    report = run_once(built.reconcilers, now=NOW)
    built.close()
    for _ in range(3):
        elector = Elector(cluster, namespace="velero", name=LEASE_NAME, identity="pod")
        elector.step()
        world.events.flush()
        for decision in report.decisions:
            world.events.record(decision.ref, kind=EventKind.NORMAL, reason="Completed", message="again", now=NOW)

    assert authorizer.refused == []
    ended = [each.subject for each in report.decisions if each.reason is Reason.COMPLETED]
    assert sorted(ended) == ["nightly", "old"]
    assert [each["metadata"]["name"] for each in store.list(ObjectKind("velero.io/v1", "Backup")).items] == ["only"]
    assert sorted(set(authorizer.grants) - authorizer.used) == [], "rights that nothing needs"


def test_nothing_is_named_by_a_wildcard():
    assert [grant for grant in grants() if "*" in grant] == []


def test_everything_is_in_one_namespace_and_of_one_account():
    scoped = [each for each in manifests() if not each["kind"].startswith(("Cluster", "Kustomization"))]
    subjects = [each["subjects"] for each in manifests() if each["kind"].endswith("Binding")]

    assert {each["metadata"]["namespace"] for each in scoped} == {"velero"}
    assert all(each == [{"kind": "ServiceAccount", "name": "reprieve", "namespace": "velero"}] for each in subjects)


def test_the_configuration_of_the_manifests_is_one(tmp_path):
    from reprieve.entrypoints.configuration import load_configuration

    (config,) = (each for each in manifests() if each["kind"] == "ConfigMap")
    path = tmp_path / "reprieve.yaml"
    path.write_text(config["data"]["reprieve.yaml"], "utf-8")

    assert load_configuration(path).backups.namespace == "velero"


def test_the_deployment_is_probed_where_it_serves():
    (deployment,) = (each for each in manifests() if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]

    assert container["image"] == "reprieve:VERSION"
    assert container["args"][-1] == str(container["ports"][0]["containerPort"])
    probes = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert probes == {"startupProbe": "/readyz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"}
