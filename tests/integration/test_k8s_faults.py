"""The Kubernetes adapter against a server that misbehaves: each fault is an error of ours or an outcome."""

import json
import threading
from datetime import timedelta

import pytest
import yaml
from kubernetes.client import Configuration

from reprieve.adapters.k8s.client import connect, connect_to
from reprieve.core import errors
from reprieve.core.objects import ObjectKind, ObjectRef
from reprieve.core.outcomes import (
    AlreadyGone,
    Conflict,
    ContainerMissing,
    Denied,
    Done,
    Invalid,
    Locked,
    Pending,
    Retryable,
    Unknown,
)
from reprieve.core.ports import Propagation, Removed, Upserted
from tests.integration.apiserver import After, Answer, Close, Hang, Lines, Raw, Truncated, once, refusal

BACKUP = ObjectKind("velero.io/v1", "Backup")
SHORT = timedelta(milliseconds=200)


def manifest(name, **meta):
    return {"apiVersion": "velero.io/v1", "kind": "Backup", "metadata": {"name": name, "namespace": "velero", **meta}}


@pytest.fixture
def backup(cluster, api):
    """A backup; what it cost to make it is forgotten."""
    made = cluster.create(manifest("nightly"))
    api.calls.clear()
    return made


FAULTS = [
    pytest.param(Close(), errors.UnavailableError, id="connection-closed"),
    pytest.param(Raw(b"\x00\x01\x02 this is no HTTP\r\n\r\n"), errors.UnavailableError, id="no-http"),
    pytest.param(Truncated(b'{"kind":'), errors.UnavailableError, id="body-cut-off"),
    pytest.param(Hang(), errors.UnavailableError, id="no-answer"),
    pytest.param(Answer(200, b"<html>welcome</html>"), errors.UnknownError, id="a-login-page"),
    pytest.param(Answer(200, b""), errors.UnknownError, id="empty-body"),
    pytest.param(Answer(200, b'{"kind":"Backup"'), errors.UnknownError, id="broken-json"),
    pytest.param(Answer(200, b"[]"), errors.UnknownError, id="another-shape"),
    pytest.param(Answer(200, b"null"), errors.UnknownError, id="null"),
    pytest.param(Answer(204), errors.UnknownError, id="no-content"),
    pytest.param(Answer(302, b"", {"Location": "http://127.0.0.1:9/"}), errors.UnknownError, id="redirect"),
    pytest.param(refusal(429, "TooManyRequests", "slow down"), errors.ThrottledError, id="throttled"),
    pytest.param(refusal(503, "ServiceUnavailable", "no leader"), errors.UnavailableError, id="no-leader"),
    pytest.param(refusal(401, "Unauthorized", "who?"), errors.DeniedError, id="unauthorized"),
]


@pytest.mark.parametrize("metadata_only", [False, True], ids=["whole", "metadata"])
@pytest.mark.parametrize(("fault", "error"), FAULTS)
def test_a_get_that_fails_raises(api, cluster, backup, fault, error, metadata_only):
    api.faults.append(once(fault, method="GET", part="/nightly"))

    with pytest.raises(error):
        cluster.within(SHORT).get(backup.ref, metadata_only=metadata_only)

    assert cluster.get(backup.ref).ref == backup.ref
    assert api.counts()["get"] == 2, "one request a call: nothing is retried behind our back"


@pytest.mark.parametrize("metadata_only", [False, True], ids=["whole", "metadata"])
@pytest.mark.parametrize(("fault", "error"), FAULTS)
def test_a_list_that_fails_raises(api, cluster, backup, fault, error, metadata_only):
    """No observation that failed or is partial ever passes for a complete one."""
    api.faults.append(once(fault, method="GET", part="/backups?"))

    with pytest.raises(error):
        cluster.within(SHORT).list(BACKUP, metadata_only=metadata_only)


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        pytest.param(Close(), Retryable, id="connection-closed"),
        pytest.param(Hang(), Retryable, id="no-answer"),
        pytest.param(Truncated(b"{"), Retryable, id="body-cut-off"),
        pytest.param(Answer(200, b"bye"), Unknown, id="no-json"),
        pytest.param(Answer(200, {"kind": "Status", "status": "Failure"}), Unknown, id="200-that-says-failure"),
        pytest.param(Answer(200, {"kind": "Backup", "metadata": {}}), Unknown, id="object-without-a-name"),
        pytest.param(Answer(200, manifest("nightly", uid="other")), Conflict, id="object-of-another-uid"),
        pytest.param(Answer(204), Unknown, id="no-content"),
        pytest.param(Answer(301, b""), Unknown, id="redirect"),
        pytest.param(Answer(404, b"<html>gone</html>"), Unknown, id="a-proxy's-404-is-not-gone"),
        pytest.param(Answer(404, b"404 page not found\n"), ContainerMissing, id="kind-not-served-any-more"),
        pytest.param(
            refusal(404, "NotFound", "gone", name="other", kind="backups"), Unknown, id="another-object's-404"
        ),
        pytest.param(refusal(404, "NotFound", "gone", name="nightly", kind="backups"), AlreadyGone, id="gone"),
        pytest.param(refusal(409, "Conflict", "changed"), Conflict, id="conflict"),
        pytest.param(refusal(403, "Forbidden", "no right"), Denied, id="no-right"),
        pytest.param(refusal(422, "Invalid", "policy 'p' denied request: held"), Locked, id="policy"),
        pytest.param(refusal(400, "BadRequest", "what?"), Invalid, id="bad-request"),
        pytest.param(refusal(500, "InternalError", "etcd"), Retryable, id="server-error"),
    ],
)
def test_a_delete_that_fails_is_an_outcome(api, cluster, backup, fault, outcome):
    api.faults.append(once(fault, method="DELETE"))

    assert isinstance(cluster.within(SHORT).delete(backup.ref), outcome)
    assert cluster.get(backup.ref).ref == backup.ref, "nothing was deleted"
    assert api.counts()["delete"] == 1


def test_the_pause_of_a_throttled_delete_is_kept(api, cluster, backup):
    """The client by itself repeats a 429 with Retry-After in silence, four times; here it is one call."""
    slow = refusal(429, "TooManyRequests", "slow down")
    api.faults.append(once(Answer(429, slow.body, {"Retry-After": "3"}), method="DELETE"))

    assert cluster.delete(backup.ref).after == timedelta(seconds=3)
    assert api.counts()["delete"] == 1


def test_a_delete_whose_answer_is_lost_can_be_asked_again(api, cluster, backup):
    api.faults.append(once(After(Close()), method="DELETE"))

    assert isinstance(cluster.delete(backup.ref), Retryable)
    assert isinstance(cluster.delete(backup.ref), AlreadyGone)


def test_a_patch_whose_answer_is_lost_can_be_made_again(api, cluster, backup):
    api.faults.append(once(After(Close()), method="PATCH"))

    with pytest.raises(errors.UnavailableError):
        cluster.patch(backup.ref, {"metadata": {"labels": {"a": "b"}}})

    assert cluster.patch(backup.ref, {"metadata": {"labels": {"a": "b"}}}).meta.labels == {"a": "b"}


def test_gone_and_accepted_are_told_apart(cluster):
    held = cluster.create(manifest("held", finalizers=["example.com/wait"]))
    free = cluster.create(manifest("free"))

    assert isinstance(cluster.delete(held.ref, propagation=Propagation.FOREGROUND), Pending)
    assert isinstance(cluster.delete(held.ref), Pending)
    assert isinstance(cluster.delete(free.ref), Done)
    assert isinstance(cluster.delete(free.ref), AlreadyGone)


def test_an_answer_of_202_is_not_gone(api, cluster, backup):
    api.faults.append(once(Answer(202, manifest("nightly", uid=backup.meta.uid)), method="DELETE"))

    assert isinstance(cluster.delete(backup.ref), Pending)


# Lists in pages


def fill(store, count):
    for number in range(count):
        store.create(manifest(f"b{number:04}"))


def test_a_long_list_is_read_to_its_end(api, store, cluster):
    fill(store, 1201)

    assert len(cluster.list(BACKUP, metadata_only=True).items) == 1201
    assert api.counts()["list"] == 3


def test_a_list_whose_token_expires_is_begun_again(api, store, cluster):
    fill(store, 1201)
    api.faults.append(once(refusal(410, "Expired", "too old"), part="continue="))

    assert len({item.meta.name for item in cluster.list(BACKUP).items}) == 1201
    assert api.counts()["list"] == 3, "first page, refused second page, and all of it in one page"


def test_a_list_with_a_failed_page_is_no_list(api, store, cluster):
    fill(store, 1201)
    api.faults.append(once(Close(), part="continue="))

    with pytest.raises(errors.UnavailableError):
        cluster.list(BACKUP)


def test_a_list_that_never_ends_is_given_up(api, store, cluster):
    fill(store, 3)
    page = {"kind": "BackupList", "metadata": {"resourceVersion": "5", "continue": "again"}, "items": [manifest("x")]}
    api.faults.append(lambda method, path, query: Answer(200, page) if "limit" in query else None)

    with pytest.raises(errors.UnknownError, match="for ever"):
        cluster.list(BACKUP)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param({"kind": "BackupList", "metadata": {}, "items": []}, id="no-version"),
        pytest.param({"kind": "Backup", "metadata": {"resourceVersion": "5"}, "items": []}, id="no-list"),
        pytest.param({"kind": "BackupList", "metadata": {"resourceVersion": "5"}}, id="no-items"),
        pytest.param(
            {"kind": "BackupList", "metadata": {"resourceVersion": "5"}, "items": [{}]}, id="item-without-name"
        ),
        pytest.param({"kind": "BackupList", "metadata": {"resourceVersion": "5"}, "items": ["x"]}, id="item-of-text"),
    ],
)
@pytest.mark.parametrize("metadata_only", [False, True], ids=["whole", "metadata"])
def test_what_is_no_list_is_not_an_empty_one(api, cluster, page, metadata_only):
    api.faults.append(once(Answer(200, page), part="/backups?"))

    with pytest.raises(errors.UnknownError):
        cluster.list(BACKUP, metadata_only=metadata_only)


def test_one_odd_object_does_not_hide_the_others(api, cluster):
    """Labels that are a list, an owner without a kind: the object comes with these parts empty, as core reads it."""
    odd = {"metadata": {"name": "odd", "labels": ["x"], "ownerReferences": [5], "creationTimestamp": "yesterday"}}
    fine = {"metadata": {"name": "fine", "labels": {"a": "b"}, "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}
    page = {"kind": "BackupList", "metadata": {"resourceVersion": "5"}, "items": [odd, fine]}
    api.faults.append(once(Answer(200, page), part="/backups?"))

    first, second = cluster.list(BACKUP, metadata_only=True).items

    assert (first.meta.labels, first.meta.owners, first.meta.created) == ({}, (), None)
    assert (second.meta.labels, second.body) == ({"a": "b"}, {})


# Watches


def watch(cluster, version="1", **kwargs):
    return cluster.watch(BACKUP, resource_version=version, timeout=timedelta(seconds=1), **kwargs)


ADDED = b'{"type":"ADDED","object":{"metadata":{"name":"a","uid":"1","resourceVersion":"7"},"spec":{}}}\n'


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        pytest.param(Lines((ADDED,), then="break"), errors.UnavailableError, id="connection-breaks"),
        pytest.param(Lines((ADDED, b'{"type":"MODI')), errors.UnavailableError, id="ends-within-an-event"),
        pytest.param(Lines((ADDED, b"garbage\n")), errors.UnknownError, id="garbage"),
        pytest.param(Lines((ADDED, b'{"type":"ADDED","object":{}}\n')), errors.UnknownError, id="event-about-nothing"),
        pytest.param(Lines((ADDED, b'{"type":"DANCED","object":{}}\n')), errors.UnknownError, id="unknown-event"),
        pytest.param(
            Lines((ADDED, b'{"type":"BOOKMARK","object":{}}\n')), errors.UnknownError, id="bookmark-of-nothing"
        ),
        pytest.param(
            Lines((ADDED, b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n')),
            errors.ExpiredError,
            id="expired-on-the-way",
        ),
        pytest.param(
            Lines((ADDED, b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd"}}\n')),
            errors.UnavailableError,
            id="server-error-on-the-way",
        ),
        pytest.param(Lines((ADDED, b'{"type":"ERROR","object":"what"}\n')), errors.UnknownError, id="unreadable-error"),
    ],
)
@pytest.mark.parametrize("metadata_only", [False, True], ids=["whole", "metadata"])
def test_a_watch_that_goes_wrong_keeps_what_came_and_raises(api, cluster, fault, error, metadata_only):
    api.faults.append(once(fault, part="watch=true"))
    events = watch(cluster, metadata_only=metadata_only)

    first = next(events)
    with pytest.raises(error):
        list(events)

    assert isinstance(first, Upserted)
    assert first.resource.meta.resource_version == "7"


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        pytest.param(refusal(410, "Expired", "too old resource version"), errors.ExpiredError, id="expired"),
        pytest.param(refusal(403, "Forbidden", "no right to watch"), errors.DeniedError, id="no-right"),
        pytest.param(Answer(404, b"404 page not found\n"), errors.ContainerMissingError, id="kind-not-served"),
        pytest.param(Close(), errors.UnavailableError, id="connection-closed"),
        pytest.param(Raw(b"what"), errors.UnavailableError, id="no-http"),
    ],
)
def test_a_watch_that_does_not_begin_raises(api, cluster, fault, error):
    api.faults.append(once(fault, part="watch=true"))

    with pytest.raises(error):
        next(watch(cluster))


@pytest.mark.parametrize("expired_as", ["event", "http"])
def test_a_forgotten_version_is_expired(api, store, cluster, expired_as):
    api.expired_as = expired_as
    fill(store, 3)
    store.compact()

    with pytest.raises(errors.ExpiredError):
        list(watch(cluster, version="1"))


def test_a_watch_is_resumed_where_it_ended(store, cluster):
    fill(store, 2)
    start = cluster.list(BACKUP).resource_version
    store.create(manifest("c"))
    (added,) = (event for event in watch(cluster, start) if isinstance(event, Upserted))
    store.delete(BACKUP, "velero", "c")

    later = [event for event in watch(cluster, added.resource.meta.resource_version) if isinstance(event, Removed)]

    assert [event.resource.meta.name for event in later] == ["c"]


def test_closing_wakes_up_who_waits_for_a_watch(api, store, cluster):
    """A stop must not wait for the end of a watch that nothing happens in."""
    fill(store, 1)
    seen, ended = threading.Event(), []

    def follow():
        try:
            for _ in cluster.watch(BACKUP, resource_version="1", timeout=timedelta(minutes=5)):
                seen.set()
        except errors.ReprieveError as error:
            ended.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    assert seen.wait(10)
    cluster.close()
    thread.join(10)

    assert [type(error) for error in ended] == [errors.UnavailableError]


# Discovery and paths


def test_a_kind_that_comes_later_is_found(api, cluster):
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.demo.example.com"},
        "spec": {
            "group": "demo.example.com",
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": True, "storage": True}],
        },
    }
    widget = ObjectKind("demo.example.com/v1", "Widget")
    with pytest.raises(errors.ContainerMissingError, match="CustomResourceDefinition"):
        cluster.list(widget)

    cluster.create(crd)

    assert cluster.list(widget).items == ()


def test_discovery_is_asked_once(api, cluster):
    for _ in range(3):
        cluster.list(BACKUP)

    assert [call.path for call in api.calls].count("/apis/velero.io/v1") == 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        pytest.param(Close(), errors.UnavailableError, id="unreachable"),
        pytest.param(Answer(200, b"hello"), errors.UnknownError, id="no-discovery"),
        pytest.param(Answer(200, {"kind": "List", "resources": []}), errors.UnknownError, id="another-kind"),
        pytest.param(refusal(403, "Forbidden", "no"), errors.DeniedError, id="no-right"),
    ],
)
def test_a_discovery_that_fails_is_no_missing_kind(api, cluster, fault, error):
    api.faults.append(once(fault, part="/apis/velero.io/v1"))

    with pytest.raises(error):
        cluster.scope(BACKUP)

    assert cluster.list(BACKUP).items == (), "and it is asked again"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="empty"),
        pytest.param(".", id="dot"),
        pytest.param("..", id="dots"),
        pytest.param("../../secrets/s", id="path-like"),
        pytest.param("a/b", id="slash"),
        pytest.param("a%2Fb", id="quoted-slash"),
        pytest.param("nächtlich", id="non-ascii"),
        pytest.param("a\nb", id="control-character"),
        pytest.param("\ud800", id="no-character"),
    ],
)
def test_a_name_that_no_object_can_have_is_absent_without_a_call(api, cluster, name):
    cluster.scope(BACKUP)
    api.calls.clear()
    ref = ObjectRef("velero.io/v1", "Backup", name, "velero", uid="1")

    with pytest.raises(errors.NotFoundError):
        cluster.get(ref)
    with pytest.raises(errors.NotFoundError):
        cluster.patch(ref, {})
    assert isinstance(cluster.delete(ref), AlreadyGone)
    assert api.calls == []


@pytest.mark.parametrize("name", ["a?b=c", "a#b", "a b", "a" * 300, "A&B", "a;b", "~a:b"])
def test_an_odd_name_stays_one_part_of_the_path(api, cluster, name):
    ref = ObjectRef("velero.io/v1", "Backup", name, "velero", uid="1")

    with pytest.raises(errors.NotFoundError):
        cluster.get(ref)

    assert api.calls[-1].path == f"/apis/velero.io/v1/namespaces/velero/backups/{name}"


@pytest.mark.parametrize("namespace", ["..", "a/b", "A", "ns?", "é", "a" * 64])
def test_a_namespace_that_cannot_be_is_refused_without_a_call(api, cluster, namespace):
    cluster.scope(BACKUP)
    api.calls.clear()

    with pytest.raises(errors.InvalidError):
        cluster.list(BACKUP, namespace=namespace)
    with pytest.raises(errors.NotFoundError):
        cluster.get(ObjectRef("velero.io/v1", "Backup", "b", namespace))
    assert api.calls == []


@pytest.mark.parametrize("api_version", ["../v1", "v1/..", "a b/v1", "velero.io", "", "v1?x=y", "velero.io/v1#"])
def test_an_api_version_that_cannot_be_is_not_served(api, cluster, api_version):
    with pytest.raises(errors.ContainerMissingError):
        cluster.list(ObjectKind(api_version, "Backup"))

    assert api.calls == []


def test_nothing_is_changed_by_name_alone(api, cluster, backup):
    nameless = ObjectRef("velero.io/v1", "Backup", "nightly", "velero")

    with pytest.raises(errors.InvalidError, match="UID"):
        cluster.patch(nameless, {"metadata": {"labels": {"a": "b"}}})
    assert isinstance(cluster.delete(nameless), Invalid)
    assert api.writes() == []


# Credentials and configuration


@pytest.mark.parametrize(
    ("token", "error"),
    [
        pytest.param("good", None, id="right-token"),
        pytest.param("bad", errors.DeniedError, id="wrong-token"),
        pytest.param("", errors.DeniedError, id="no-token"),
    ],
)
def test_the_token_of_the_kubeconfig_is_sent(api, tmp_path, token, error):
    api.tokens = {"good": "controller"}
    path = kubeconfig(tmp_path, api.url, token)
    cluster = connect(kubeconfig=path)
    if error is None:
        assert cluster.list(BACKUP).items == ()
    else:
        with pytest.raises(error):
            cluster.list(BACKUP)
    cluster.close()


def test_refused_credentials_name_the_way_out(api, tmp_path):
    """A token that expired is answered with one word, "Unauthorized"; that alone helps nobody."""
    api.tokens = {"good": "controller"}
    cluster = connect(kubeconfig=kubeconfig(tmp_path, api.url, "expired"))

    with pytest.raises(errors.DeniedError, match=r"wrong or have expired \(see users in the kubeconfig\)"):
        cluster.scope(BACKUP)
    cluster.close()


@pytest.mark.parametrize("command", ["/no/such/plugin", "/bin/false", "/bin/echo"])
def test_a_credential_plugin_that_gives_nothing_is_named(api, tmp_path, command):
    """The client only logs a plugin's failure and goes on without credentials, as system:anonymous."""
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": command, "interactiveMode": "Never"}
    content = yaml.safe_load(kubeconfig(tmp_path, api.url, "").read_text("utf-8"))
    content["users"][0]["user"] = {"exec": plugin}
    path = tmp_path / "with-plugin"
    path.write_text(json.dumps(content), "utf-8")

    with pytest.raises(errors.InvalidError, match="the credential plugin gave nothing"):
        connect(kubeconfig=path)


def test_whether_every_kind_may_be_listed_is_asked_and_not_tried(api, cluster):
    """An account without that right would be refused once a kind, which looks like an attack in the audit log."""
    assert cluster.may_list_everything()

    asked = []
    api.authorize = lambda access: asked.append(access) or False
    assert not cluster.may_list_everything()
    assert [(each.verb, each.group, each.resource, each.namespace) for each in asked] == [("list", "*", "*", "")]

    api.faults.append(once(Answer(200, b"{}"), method="POST"))
    with pytest.raises(errors.UnknownError):
        cluster.may_list_everything()
    api.faults.append(once(refusal(503, "ServiceUnavailable", "etcd leader lost"), method="POST"))
    with pytest.raises(errors.UnavailableError):
        cluster.may_list_everything()


def test_the_kinds_that_can_hold_a_finalizer(api, cluster):
    """What can only be read is left out; a kind whose definition is being deleted is told with fewer verbs."""
    api.verbs["configmaps"] = ["get", "list"]
    api.verbs["backups"] = ["delete", "deletecollection", "get", "list", "watch"]

    kinds = cluster.kinds()

    assert BACKUP in kinds
    assert ObjectKind("v1", "ConfigMap") not in kinds


def test_a_deletion_that_waits_for_a_finalizer_is_not_asked_about_all_the_time(store, cluster, backup):
    """Velero's finalizer on a Restore can take minutes; a watch tells of its end, so the timer is for a missed one."""
    store.patch(BACKUP, "velero", "nightly", {"metadata": {"finalizers": ["example.com/holder"]}})

    outcome = cluster.delete(backup.ref)

    assert isinstance(outcome, Pending)
    assert outcome.after >= timedelta(minutes=1)


def test_a_user_without_the_right_is_denied(api, cluster, backup):
    api.authorize = lambda access: access.verb != "delete"

    outcome = cluster.delete(backup.ref)

    assert isinstance(outcome, Denied)
    assert 'cannot delete resource "backups"' in outcome.message


def kubeconfig(folder, url, token):
    path = folder / "config"
    user = f"{{token: {token}}}" if token else "{}"
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
        f"clusters: [{{name: here, cluster: {{server: '{url}'}}}}]\n"
        f"users: [{{name: me, user: {user}}}]\n"
        "contexts: [{name: here, context: {cluster: here, user: me}}]\n"
    )
    return path


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="broken-yaml"),
        pytest.param("apiVersion: v1\nkind: Config\n", id="nothing-in-it"),
        pytest.param("current-context: x\ncontexts: []\nclusters: []\nusers: []\n", id="context-missing"),
        pytest.param("[1, 2]", id="a-list"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path, content):
    path = tmp_path / "config"
    path.write_text(content)

    with pytest.raises(errors.InvalidError, match=str(path)):
        connect(kubeconfig=path)


def test_without_any_configuration_the_way_out_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(errors.InvalidError, match="--local DIR"):
        connect()


@pytest.mark.parametrize(
    ("host", "error"),
    [
        pytest.param("http://127.0.0.1:9", errors.UnavailableError, id="refused"),
        pytest.param("http://no-such-host.invalid", errors.UnavailableError, id="dns"),
        pytest.param("http://127.0.0.1:no-port", errors.InvalidError, id="no-address"),
    ],
)
def test_a_server_that_is_not_there(host, error):
    cluster = connect_to(Configuration(host=host))

    with pytest.raises(error):
        cluster.list(BACKUP)
    assert not isinstance(cluster.delete(ObjectRef("velero.io/v1", "Backup", "b", "velero", "1")), Done | AlreadyGone)


def test_an_http_server_behind_an_https_address(api):
    cluster = connect_to(Configuration(host=api.url.replace("http:", "https:")), timeout=SHORT)

    with pytest.raises(errors.UnavailableError, match="TLS"):
        cluster.list(BACKUP)
