"""The manifests: every right that the controller needs is granted, and none that it does not use."""

import base64
import ipaddress
import json
import threading
from datetime import timedelta

import attrs
import pytest
import yaml

from reprieve.adapters.cloud.endpoints import EndpointPolicy, read_pattern
from reprieve.adapters.k8s.events import KubernetesEvents
from reprieve.adapters.k8s.lease import Elector
from reprieve.adapters.local import MemoryObjectStores, MemorySnapshotStores
from reprieve.core.objects import ObjectKind
from reprieve.core.ports import EventKind
from reprieve.core.protection import PROTECT
from reprieve.core.reasons import Reason
from reprieve.core.shield import ShieldedKind, shield_manifests
from reprieve.core.steps import DELETION_REQUESTED
from reprieve.entrypoints.cli.deployment import PARTS, Deployed
from reprieve.entrypoints.cli.deployment import manifests as generated
from reprieve.entrypoints.cli.root import run
from reprieve.entrypoints.configuration import (
    ArkPlace,
    BackupSettings,
    BackupsOff,
    Configuration,
    ProtectionEntry,
    SyncSettings,
)
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.leftovers import SHIELD_KINDS, check_at_start
from reprieve.entrypoints.controller.runtime import run_once
from reprieve.entrypoints.leases import LEASE_NAME
from reprieve.entrypoints.world import World
from tests.integration.conftest import served
from tests.integration.deployed import DEPLOY, NOW, Authorizer, grants, make_world, manifests

DATABASE = ObjectKind("example.com/v1", "Database")
SECRET = ObjectKind("v1", "Secret")
CLAIM = ObjectKind("v1", "PersistentVolumeClaim")
TRACKED = ObjectKind("faros.pusher.com/v1alpha1", "GitTrackObject")


@pytest.mark.parametrize("part", PARTS)
def test_the_files_are_what_the_command_prints(part, capsys):
    """``make manifests`` writes them anew."""
    assert run(["manifests", "--part", part]) == 0
    assert (DEPLOY / f"{part}.yaml").read_text("utf-8") == capsys.readouterr().out


def documents(configuration, **given):
    deployed = Deployed(configuration, given.pop("namespace", "velero"), **given)
    return list(yaml.safe_load_all(generated(deployed, ["rbac"])))


def authorized(api, found=None):
    api.authorize = made = Authorizer(found)
    return made


def follow(world, reconcilers):
    """A list and the first event of a watch of each kind that a controller follows."""
    for watch in (watch for each in reconcilers for watch in each.watches()):
        world.cluster.list(watch.kind, namespace=watch.namespace)
        next(world.cluster.watch(watch.kind, namespace=watch.namespace, resource_version="1"))


def work(world, *, lease="velero"):
    """All that the controllers do over that cluster, three times told."""
    built = build_controllers(world, names=[], stop=threading.Event())
    check_at_start(world.cluster, world.configuration.protection, local=False)
    follow(world, built.reconcilers)
    report = run_once(built.reconcilers, now=NOW)
    built.close()
    for _ in range(3):
        Elector(world.cluster, namespace=lease, name=LEASE_NAME, identity="pod").step()
        world.events.flush()
        for decision in report.decisions:
            world.events.record(decision.ref, kind=EventKind.NORMAL, reason="Completed", message="again", now=NOW)
    return report


def backups(store):
    return [each["metadata"]["name"] for each in store.list(ObjectKind("velero.io/v1", "Backup")).items]


def test_the_manifests_grant_what_the_controller_does_and_nothing_else(api, store, cluster):
    world, authorizer = make_world(store, cluster), authorized(api)

    report = work(world)

    assert authorizer.refused == []
    ended = [each.subject for each in report.decisions if each.reason is Reason.COMPLETED]
    assert sorted(ended) == ["nightly", "old"]
    assert backups(store) == ["only"]
    assert authorizer.unused == [], "rights that nothing needs"


def test_without_sync_nothing_may_be_created_but_requests_and_events(api, store, cluster):
    """A record that anybody can have made from a bucket is what sync's right is worth: it goes with sync."""
    configuration = Configuration(backups=BackupSettings(sync=SyncSettings(interval=timedelta(0))))
    authorizer = authorized(api, documents(configuration))

    work(attrs.evolve(make_world(store, cluster), configuration=configuration))

    assert authorizer.refused == []
    assert backups(store) == []
    assert authorizer.unused == []
    created = {resource for _, _, resource, verb, _ in authorizer.grants if verb == "create"}
    assert created == {"deletebackuprequests", "events", "leases"}


def test_ark_has_the_rights_to_its_own_kinds_alone(api, cluster, store):
    """Ark's backups point at nothing outside of their records: nobody reads Velero's kinds, or any other namespace."""
    configuration = Configuration(backups=BackupSettings("heptio-ark", dialect="ark", ark=ArkPlace("acme", "aws")))
    for kind in ("Backup", "DeleteBackupRequest", "Restore", "Schedule"):
        store.register(served(f"ark.heptio.com/v1/{kind}"))
    head = {"apiVersion": "ark.heptio.com/v1"}
    ended = {"phase": "Completed", "startTimestamp": "2026-01-01T03:00:00Z"}

    def put(kind, name, **parts):
        return store.create({**head, "kind": kind, "metadata": {"name": name, "namespace": "heptio-ark"}, **parts})

    made = put("Backup", "nightly", spec={}, status=ended)
    old = put("Backup", "old", spec={}, status={**ended, "expiration": "2026-02-01T03:00:00Z"})
    put("Restore", "nightly-r1", spec={"backupName": "nightly"}, status={"phase": "Completed"})
    put("DeleteBackupRequest", "ask", spec={"backupName": "nightly"})
    only = {**made, "metadata": {"name": "only", "namespace": "heptio-ark", "uid": "of-only"}}
    files = {f"{each['metadata']['name']}/ark-backup.json": json.dumps(each).encode() for each in (made, old, only)}
    events = KubernetesEvents(cluster, threaded=False)
    world = World(configuration, cluster, MemoryObjectStores({"acme": files}), MemorySnapshotStores([]), events)
    authorizer = authorized(api, documents(configuration, namespace="heptio-ark", secrets=[]))

    work(world, lease="heptio-ark")

    assert authorizer.refused == []
    assert authorizer.unused == []
    assert {group for _, group, _, _, _ in authorizer.grants} == {"", "ark.heptio.com", "coordination.k8s.io"}
    assert [each["metadata"]["name"] for each in store.list(ObjectKind("ark.heptio.com/v1", "Backup")).items] == [
        "only"
    ]


def test_without_a_secret_that_a_location_names_none_may_be_read():
    rights = grants(documents(Configuration(), secrets=[]))

    assert [grant for grant in rights if grant[2] == "secrets"] == []


def protecting(store, cluster, *entries, kinds=()):
    """A cluster without Velero, and a world over it that protects these kinds."""
    for kind in (DATABASE, *kinds):
        store.register(served(str(kind)))
    events = KubernetesEvents(cluster, threaded=False)
    stores = (MemoryObjectStores({}), MemorySnapshotStores([]))
    return World(Configuration(backups=BackupsOff(), protection=entries), cluster, *stores, events)


def made(store, kind, name, *owners, **metadata):
    """An object in the namespace shop, with references to its owners."""
    references = [
        {"apiVersion": each["apiVersion"], "kind": each["kind"], **{k: each["metadata"][k] for k in ("name", "uid")}}
        for each in owners
    ]
    head = {"apiVersion": kind.api_version, "kind": kind.kind}
    metadata = {"name": name, "namespace": "shop", "ownerReferences": references, **metadata}
    return store.create({**head, "metadata": metadata})


def asked_for(store, owner):
    patch = {"metadata": {"annotations": {DELETION_REQUESTED: owner["metadata"]["uid"]}}}
    store.patch(DATABASE, "shop", owner["metadata"]["name"], patch)


def test_protection_has_the_rights_to_its_kinds_and_no_other(api, store, cluster):
    """An owner that is asked for goes with its dependents, one that was merely deleted leaves them behind."""
    entry = ProtectionEntry(DATABASE, "Delete", "Orphan", dependents=(SECRET, CLAIM))
    world = protecting(store, cluster, entry)
    for name, finalizers in (("new", []), ("asked", [PROTECT]), ("lost", [PROTECT])):
        owner = made(store, DATABASE, name, finalizers=finalizers)
        made(store, SECRET, f"of-{name}", owner, finalizers=["example.com/theirs"])
        made(store, CLAIM, f"of-{name}", owner, finalizers=["example.com/theirs"])
        if name == "asked":
            asked_for(store, owner)
        if name == "lost":
            store.delete(DATABASE, "shop", name)
    authorizer = authorized(api, documents(world.configuration, namespace="default"))

    work(world, lease="default")

    assert authorizer.refused == []
    assert authorizer.unused == []
    owners = {each["metadata"]["name"] for each in store.list(DATABASE).items}
    assert owners == {"new", "asked"}, "the one that was lost is gone, the one that was asked for waits"
    ending = [each["metadata"]["name"] for each in store.list(SECRET).items if "deletionTimestamp" in each["metadata"]]
    assert ending == ["of-asked"]


def rules(found):
    return [rule for each in found if each["kind"].endswith("Role") for rule in each["rules"]]


def lists_secrets(found):
    return [rule for rule in rules(found) if "secrets" in rule["resources"] and "list" in rule["verbs"]]


def test_every_secret_is_readable_only_where_an_entry_names_secrets_and_that_is_said():
    """RBAC cannot grant metadata alone: whoever may list Secrets can read them."""
    entry = ProtectionEntry(DATABASE, "Delete", "Orphan", dependents=(CLAIM,))
    without = Configuration(protection=[entry])
    named = Configuration(protection=[attrs.evolve(entry, dependents=(CLAIM, SECRET))])

    assert lists_secrets(manifests()) == lists_secrets(documents(without)) == []
    assert len(lists_secrets(documents(named))) == 1
    assert "can read\n    # every Secret" in generated(Deployed(named, "velero"), ["rbac"])
    assert "every Secret of the cluster" not in generated(Deployed(without, "velero"), ["rbac"])


def test_what_trackers_carry_is_granted_by_the_operators_word_alone(api, store, cluster):
    """Whoever may make a GitTrackObject chooses what it carries, and not what the controller may delete."""
    entry = ProtectionEntry(TRACKED, "Delete", "Orphan", dialect="faros")
    world = protecting(store, cluster, entry, kinds=SHIELD_KINDS)
    for manifest in shield_manifests([ShieldedKind(TRACKED)]):
        store.create(manifest)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "root", "namespace": "shop"}}
    store.create({**secret, "data": {"key": "c2VjcmV0"}})
    data = yaml.safe_dump(secret).encode()
    spec = {"name": "root", "kind": "Secret", "data": base64.b64encode(data).decode()}
    head = {"apiVersion": TRACKED.api_version, "kind": TRACKED.kind}
    store.create({**head, "metadata": {"name": "secret-root", "namespace": "shop"}, "spec": spec})
    authorizer = authorized(api, documents(world.configuration, namespace="default"))

    work(world, lease="default")

    assert {each.resource for each in authorizer.refused} == {"secrets"}
    shield = {"validatingadmissionpolicies", "validatingadmissionpolicybindings"}
    assert shield & {resource for _, _, resource, _, _ in authorizer.unused} == set()
    carried = documents(world.configuration, carried=[ObjectKind("v1", "ConfigMap")])
    assert [rule["resources"] for rule in rules(carried) if rule["resources"] == ["configmaps"]]


def test_nothing_is_named_by_a_wildcard():
    assert [grant for grant in grants(manifests()) if "*" in grant] == []


@pytest.mark.parametrize("namespace", ["velero", "elsewhere", "123", "no"])
def test_everything_is_in_one_namespace_and_of_one_account(namespace):
    configuration = Configuration(backups=BackupSettings(namespace=namespace))
    found = list(yaml.safe_load_all(generated(Deployed(configuration, namespace), PARTS)))
    scoped = [each for each in found if not each["kind"].startswith(("Cluster", "Kustomization"))]
    subjects = [each["subjects"] for each in found if each["kind"].endswith("Binding")]
    (config,) = (each for each in found if each["kind"] == "ConfigMap")
    (kustomization,) = (each for each in found if each["kind"] == "Kustomization")

    assert {each["metadata"]["namespace"] for each in scoped} == {namespace}
    assert all(each == [{"kind": "ServiceAccount", "name": "reprieve", "namespace": namespace}] for each in subjects)
    assert yaml.safe_load(config["data"]["reprieve.yaml"])["backups"] == {"namespace": namespace}
    assert {f"{part}.yaml" for part in PARTS} == {"kustomization.yaml", *kustomization["resources"]}


def of_kind(kind, found=None):
    (one,) = (each for each in found or manifests() if each["kind"] == kind)
    return one


# The addresses at which clouds give away identities.
METADATA = ["169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.169.252", "168.63.129.16", "fd00:ec2::254"]


def reached(policy, address):
    """The ports at which a policy lets an address be reached."""
    at = ipaddress.ip_address(address)
    inside = [
        port["port"]
        for rule in policy["spec"]["egress"]
        for port in rule["ports"]
        for block in (each["ipBlock"] for each in rule["to"] if "ipBlock" in each)
        if at in ipaddress.ip_network(block["cidr"])
        and not any(at in ipaddress.ip_network(each) for each in block.get("except", ()))
    ]
    return sorted(set(inside))


@pytest.mark.parametrize("address", METADATA)
def test_no_metadata_service_is_reached(address):
    assert reached(of_kind("NetworkPolicy"), address) == []


@pytest.mark.parametrize("address", ["52.95.150.1", "10.0.0.1", "2600:1901::1"], ids=["provider", "api-server", "ipv6"])
def test_providers_and_the_api_server_are_reached(address):
    assert reached(of_kind("NetworkPolicy"), address) == [443, 6443]


def test_an_endpoint_that_the_operator_allowed_is_reached_at_its_port():
    allowed = EndpointPolicy([read_pattern("http://minio.velero.svc:9000"), read_pattern("https://ceph.example.com")])
    text = generated(Deployed(Configuration(endpoints=allowed), "velero"), ["network"])

    assert reached(of_kind("NetworkPolicy", list(yaml.safe_load_all(text))), "10.0.0.1") == [443, 6443, 9000]


def test_the_policy_is_of_the_controllers_pod_and_lets_its_probes_in():
    policy, template = of_kind("NetworkPolicy")["spec"], of_kind("Deployment")["spec"]["template"]
    (container,) = template["spec"]["containers"]

    assert policy["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == [
        port["containerPort"] for port in container["ports"]
    ]


def test_the_pod_has_no_more_than_it_needs():
    account, pod = of_kind("ServiceAccount"), of_kind("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert (account["automountServiceAccountToken"], pod["automountServiceAccountToken"]) == (False, True)
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [each["emptyDir"]["medium"] for each in pod["volumes"] if "emptyDir" in each] == ["Memory"]


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


@pytest.mark.parametrize("kind", ["volumesnapshots", "volumesnapshotcontents"])
def test_rights_of_before_delete_nothing_and_say_which_is_missing(api, store, cluster, kind):
    """The image was brought up to date and the rights were not: 403 is not "there are none"."""
    api.authorize = lambda access: access.resource != kind
    built = build_controllers(make_world(store, cluster), names=["retention", "deletion"], stop=threading.Event())
    report = run_once(built.reconcilers, now=NOW)
    built.close()

    told = {each.subject: each for each in report.decisions}
    assert {name: each.reason for name, each in told.items()} == dict.fromkeys(["nightly", "old"], Reason.UNREADABLE)
    assert all(kind in each.message and "deploy/rbac.yaml" in each.message for each in told.values())
    assert len(store.list(ObjectKind("velero.io/v1", "Backup")).items) == 2
