"""The shield: its CEL, evaluated against what is to be denied and what is to be left alone."""

import celpy
import pytest

from reprieve.core.objects import ObjectKind
from reprieve.core.shield import (
    COLLECTORS,
    NAMESPACE_CONTROLLER,
    ShieldedKind,
    Supported,
    TooOld,
    VersionUnreadable,
    check_version,
    shield_manifests,
)

GTO = ObjectKind("faros.pusher.com/v1alpha1", "GitTrackObject")
CONFIG_MAP = ObjectKind("v1", "ConfigMap")
DATABASE = ObjectKind("example.com/v1", "Database")
COLLECTOR, CONTROLLER_MANAGER = COLLECTORS
CEL = celpy.Environment()


def evaluate(expression, context):
    program = CEL.program(CEL.compile(expression))
    return program.evaluate({name: celpy.json_to_cel(value) for name, value in context.items()})


def denial(manifests, requester, *owners, **parts):
    """Ask as an API server asks: the message of the denial, empty when the request goes through."""
    policy = manifests[0]["spec"]
    old = {"metadata": {"name": "web", "namespace": "shop", "ownerReferences": list(owners)}} | parts
    context = {
        "request": {"userInfo": {"username": requester}, "kind": {"kind": "Deployment"}},
        "oldObject": old,
    }
    if not all(evaluate(each["expression"], context) for each in policy["matchConditions"]):
        return ""
    failed = [each for each in policy["validations"] if not evaluate(each["expression"], context)]
    return str(evaluate(failed[0]["messageExpression"], context)) if failed else ""


def owner(api_version, kind):
    return {"apiVersion": api_version, "kind": kind, "name": "x", "uid": "u"}


ours = owner("faros.pusher.com/v1alpha1", "GitTrackObject")
SHIELD = shield_manifests([ShieldedKind(GTO), ShieldedKind(CONFIG_MAP)])


@pytest.mark.parametrize(
    ("requester", "owners"),
    [
        pytest.param(COLLECTOR, [ours], id="collector"),
        pytest.param(CONTROLLER_MANAGER, [ours], id="controller-manager-without-credentials-of-its-own"),
        pytest.param(COLLECTOR, [owner("apps/v1", "ReplicaSet"), ours], id="one-of-several-owners"),
        pytest.param(COLLECTOR, [owner("faros.pusher.com/v2", "GitTrackObject")], id="another-version"),
        pytest.param(COLLECTOR, [owner("v1", "ConfigMap")], id="core-group"),
    ],
)
def test_the_collector_may_not_delete_what_a_protected_kind_owns(requester, owners):
    assert denial(SHIELD, requester, *owners)


@pytest.mark.parametrize(
    ("requester", "owners"),
    [
        pytest.param(COLLECTOR, [], id="no-owner"),
        pytest.param(COLLECTOR, [owner("apps/v1", "ReplicaSet")], id="another-kind"),
        pytest.param(COLLECTOR, [owner("example.com/v1", "GitTrackObject")], id="same-kind-in-another-group"),
        pytest.param(COLLECTOR, [owner("faros.pusher.com.evil/v1", "GitTrackObject")], id="longer-group"),
        pytest.param(COLLECTOR, [owner("faros.pusher.com/v1alpha1", "GitTrack")], id="another-kind-of-the-group"),
        pytest.param(COLLECTOR, [owner("example.com/v1", "ConfigMap")], id="core-kind-in-a-group"),
        pytest.param(COLLECTOR, [owner("v1", "GitTrackObject")], id="kind-in-the-core-group"),
        pytest.param("kubernetes-admin", [ours], id="person"),
        pytest.param("system:serviceaccount:reprieve:reprieve", [ours], id="reprieve-itself"),
        pytest.param("system:serviceaccount:kube-system:deployment-controller", [ours], id="another-controller"),
        pytest.param("system:serviceaccount:shop:generic-garbage-collector", [ours], id="namesake-elsewhere"),
        pytest.param(NAMESPACE_CONTROLLER, [ours], id="namespace-controller-by-default"),
    ],
)
def test_everything_else_goes_through(requester, owners):
    assert denial(SHIELD, requester, *owners) == ""


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"metadata": {"name": "web"}}, id="no-owner-references"),
        pytest.param({"metadata": {}}, id="empty-metadata"),
    ],
)
def test_absent_fields_are_no_owner(parts):
    assert denial(SHIELD, COLLECTOR, **parts) == ""


def test_an_object_without_metadata_goes_through():
    expression = SHIELD[0]["spec"]["validations"][0]["expression"]

    assert evaluate(expression, {"oldObject": {}})


def test_the_message_names_the_object_the_requester_and_the_way_out():
    message = denial(SHIELD, COLLECTOR, ours)

    assert message == (
        "reprieve's shield: Deployment shop/web: system:serviceaccount:kube-system:generic-garbage-collector may not "
        "delete this, because it refers to an owner of a protected kind (ConfigMap, GitTrackObject.faros.pusher.com). "
        "Delete it by name, take the owner reference off, or ask for the owner's deletion with reprieve "
        "request-deletion; to switch the shield off, delete the ValidatingAdmissionPolicyBinding reprieve-shield"
    )


def test_the_message_names_a_cluster_scoped_object_without_a_namespace():
    message = denial(SHIELD, COLLECTOR, metadata={"name": "web", "ownerReferences": [ours]})

    assert "Deployment web: " in message


both = shield_manifests([ShieldedKind(GTO, namespaces=True), ShieldedKind(DATABASE, collector=False, namespaces=True)])


@pytest.mark.parametrize(
    ("requester", "owned_by", "denied"),
    [
        pytest.param(COLLECTOR, ours, True, id="collector-kind-with-both"),
        pytest.param(COLLECTOR, owner("example.com/v1", "Database"), False, id="collector-kind-for-namespaces-only"),
        pytest.param(NAMESPACE_CONTROLLER, ours, True, id="namespaces-kind-with-both"),
        pytest.param(NAMESPACE_CONTROLLER, owner("example.com/v1", "Database"), True, id="namespaces-kind-alone"),
        pytest.param("kubernetes-admin", ours, False, id="person"),
    ],
)
def test_each_kind_says_against_whom_it_is_shielded(requester, owned_by, denied):
    assert bool(denial(both, requester, owned_by)) is denied


def test_kinds_that_ask_for_the_same_share_one_validation():
    policy = shield_manifests([ShieldedKind(GTO, namespaces=True)])[0]["spec"]

    assert len(policy["validations"]) == 1
    assert "request." not in policy["validations"][0]["expression"]
    assert denial(shield_manifests([ShieldedKind(GTO, namespaces=True)]), NAMESPACE_CONTROLLER, ours)


def test_the_manifests_are_a_policy_and_its_binding():
    policy, binding = SHIELD

    assert [each["apiVersion"] for each in SHIELD] == ["admissionregistration.k8s.io/v1"] * 2
    assert [each["kind"] for each in SHIELD] == ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert policy["spec"]["matchConstraints"]["resourceRules"] == [
        {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["DELETE"], "resources": ["*"], "scope": "*"}
    ]
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}


def test_a_kind_in_several_versions_is_named_once():
    other = ObjectKind("faros.pusher.com/v2", "GitTrackObject")

    assert shield_manifests([ShieldedKind(GTO), ShieldedKind(other)]) == shield_manifests([ShieldedKind(other)])


def test_the_order_of_the_kinds_does_not_matter():
    assert shield_manifests([ShieldedKind(CONFIG_MAP), ShieldedKind(GTO)]) == SHIELD


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param([], id="no-kind"),
        pytest.param([ShieldedKind(GTO, collector=False)], id="switched-off"),
    ],
)
def test_no_shield_for_nobody(kinds):
    assert shield_manifests(kinds) == ()


@pytest.mark.parametrize(
    ("version", "answer"),
    [
        pytest.param("v1.30.0", Supported, id="the-first"),
        pytest.param("v1.36.1-gke.100", Supported, id="with-a-suffix"),
        pytest.param("1.31+", Supported, id="major-and-minor"),
        pytest.param("2.0", Supported, id="next-major"),
        pytest.param("v1.29.9", TooOld, id="too-old"),
        pytest.param("v1.9.0", TooOld, id="numbers-not-text"),
        pytest.param("", VersionUnreadable, id="empty"),
        pytest.param("devel", VersionUnreadable, id="a-word"),
    ],
)
def test_the_cluster_has_to_know_such_policies(version, answer):
    assert type(check_version(version)) is answer


def test_a_cluster_that_is_too_old_is_told_so():
    message = check_version("v1.29.9").message

    assert "v1.29.9" in message
    assert "needs 1.30 or newer" in message
    assert "upgrade the cluster" in message
