"""The contract of the cluster port: one suite for whatever implements it.

To bind it: derive from ``ClusterContract`` in a module of its own and give the fixture ``bench``. The kinds in
``KINDS`` must be served as they say, and ``UNSERVED`` must not be; the namespaces ``one`` and ``two`` exist; nothing
else is in the cluster.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest
from attrs import frozen

from reprieve.core import errors
from reprieve.core.objects import ObjectKind, ObjectRef, Resource
from reprieve.core.outcomes import AlreadyGone, Conflict, ContainerMissing, Done, Invalid, Outcome, Pending
from reprieve.core.ports import Bookmark, Cluster, Propagation, Removed, Scope, Upserted, WatchEvent

BACKUP = ObjectKind("velero.io/v1", "Backup")
CONFIG_MAP = ObjectKind("v1", "ConfigMap")
VOLUME = ObjectKind("v1", "PersistentVolume")
TRACK = ObjectKind("faros.pusher.com/v1alpha1", "ClusterGitTrackObject")
KINDS = (
    (BACKUP, "backups", Scope.NAMESPACED),
    (CONFIG_MAP, "configmaps", Scope.NAMESPACED),
    (VOLUME, "persistentvolumes", Scope.CLUSTER),
    (TRACK, "clustergittrackobjects", Scope.CLUSTER),
)
UNSERVED = ObjectKind("nobody.example.com/v1", "Nothing")
PATIENCE = timedelta(seconds=30)
HOLDER = "example.com/holder"
HOSTILE = [
    pytest.param("../../secrets/x", id="up"),
    pytest.param("a/b", id="slash"),
    pytest.param("a?limit=1", id="query"),
    pytest.param("a#b", id="fragment"),
    pytest.param("a%2Fb", id="escaped-slash"),
    pytest.param("größe", id="non-ascii"),
    pytest.param("x" * 300, id="300-characters"),
    pytest.param("a\nb", id="newline"),
    pytest.param(".", id="dot"),
    pytest.param("..", id="dots"),
    pytest.param("", id="empty"),
]


@frozen
class Bench:
    """What a binding gives: the port, a way to make history too old, and how many objects fill more than one page."""

    cluster: Cluster
    expire: Callable[[], None]
    many: int = 7
    shortest_watch: timedelta = timedelta(0)
    checks_namespaces: bool = False


def manifest(kind: ObjectKind, name: str = "", namespace: str = "one", **meta: Any) -> dict[str, Any]:
    scoped = {} if kind in (VOLUME, TRACK) else {"namespace": namespace}
    named = {"name": name} if name else {}
    content: dict[str, Any] = {"data": {"k": "v"}} if kind == CONFIG_MAP else {"spec": {}}
    if kind == VOLUME:
        content = {
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
        }
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {**named, **scoped, **meta}, **content}


def changes(events: Iterator[WatchEvent], count: int) -> list[WatchEvent]:
    """The first events that are no bookmarks."""
    return list(islice((event for event in events if not isinstance(event, Bookmark)), count))


def names(resources: Any) -> list[str]:
    return [resource.meta.name for resource in resources]


def reference(kind: ObjectKind, name: str, namespace: str = "one", uid: str = "") -> ObjectRef:
    return ObjectRef(kind.api_version, kind.kind, name, "" if kind in (VOLUME, TRACK) else namespace, uid)


class ClusterContract:
    """Every test runs against an empty cluster."""

    @pytest.fixture
    def cluster(self, bench: Bench) -> Cluster:
        return bench.cluster

    @pytest.fixture
    def held(self, cluster: Cluster) -> Resource:
        """An object with a finalizer."""
        return cluster.create(manifest(BACKUP, "held", finalizers=[HOLDER]))

    # scope

    @pytest.mark.parametrize(("kind", "scope"), [pytest.param(k, s, id=k.kind) for k, _, s in KINDS])
    def test_scope(self, cluster, kind, scope):
        assert cluster.scope(kind) is scope

    def test_scope_of_a_kind_that_is_not_served(self, cluster):
        with pytest.raises(errors.ContainerMissingError):
            cluster.scope(UNSERVED)

    # create and get

    @pytest.mark.parametrize("kind", [pytest.param(k, id=k.kind) for k, _, _ in KINDS])
    def test_create_then_get(self, cluster, kind):
        made = cluster.create(manifest(kind, "a", labels={"l": "1"}, annotations={"a": "2"}))
        found = cluster.get(reference(kind, "a"))
        assert found == made
        assert (found.type, found.meta.name, found.meta.labels["l"], found.meta.annotations["a"]) == (
            kind,
            "a",
            "1",
            "2",
        )
        assert "" not in (found.meta.uid, found.meta.resource_version)
        assert found.meta.created is not None
        assert not found.meta.terminating

    def test_the_body_is_whole(self, cluster):
        odd = {"data": {"no": "yes", "date": "2020-01-01", "number": "012", "text": "a\n\nb: c # d\n"}}
        cluster.create({**manifest(CONFIG_MAP, "a"), **odd})
        assert cluster.get(reference(CONFIG_MAP, "a")).body["data"] == odd["data"]

    def test_get_metadata_only(self, cluster):
        made = cluster.create(manifest(CONFIG_MAP, "a", labels={"l": "1"}))
        found = cluster.get(made.ref, metadata_only=True)
        assert (found.ref, found.meta, found.body) == (made.ref, made.meta, {})

    def test_get_looks_at_no_uid(self, cluster):
        made = cluster.create(manifest(BACKUP, "a"))
        assert cluster.get(reference(BACKUP, "a", uid="another")) == made

    def test_get_what_is_not_there(self, cluster):
        with pytest.raises(errors.NotFoundError):
            cluster.get(reference(BACKUP, "a"))

    def test_get_in_another_namespace(self, cluster):
        cluster.create(manifest(BACKUP, "a"))
        with pytest.raises(errors.NotFoundError):
            cluster.get(reference(BACKUP, "a", "two"))

    @pytest.mark.parametrize("metadata_only", [False, True])
    def test_get_of_a_kind_that_is_not_served(self, cluster, metadata_only):
        with pytest.raises(errors.ContainerMissingError):
            cluster.get(reference(UNSERVED, "a"), metadata_only=metadata_only)

    def test_generate_name(self, cluster):
        made = [cluster.create(manifest(BACKUP, generateName="nightly-")) for _ in range(3)]
        found = names(made)
        assert len(set(found)) == 3
        assert all(name.startswith("nightly-") and len(name) == len("nightly-") + 5 for name in found)
        assert names(cluster.list(BACKUP).items) == sorted(found)

    def test_generate_name_cuts_a_long_base(self, cluster):
        made = cluster.create(manifest(BACKUP, generateName="n" * 100 + "-"))
        assert made.meta.name.startswith("n" * 58)
        assert len(made.meta.name) == 63

    def test_create_what_is_there(self, cluster):
        made = cluster.create(manifest(BACKUP, "a"))
        with pytest.raises(errors.AlreadyExistsError):
            cluster.create(manifest(BACKUP, "a", labels={"l": "1"}))
        assert cluster.get(made.ref) == made

    def test_create_while_the_old_one_is_terminating(self, cluster, held):
        cluster.delete(held.ref)
        with pytest.raises(errors.AlreadyExistsError):
            cluster.create(manifest(BACKUP, "held"))

    def test_create_of_a_kind_that_is_not_served(self, cluster):
        with pytest.raises(errors.ContainerMissingError):
            cluster.create(manifest(UNSERVED, "a"))

    def test_create_in_a_namespace_that_is_not_there(self, cluster, bench):
        """A folder is often a partial dump without its namespaces: there the object is made."""
        if bench.checks_namespaces:
            with pytest.raises(errors.ContainerMissingError):
                cluster.create(manifest(BACKUP, "a", "three"))
        else:
            cluster.create(manifest(BACKUP, "a", "three"))
        assert len(cluster.list(BACKUP).items) == (not bench.checks_namespaces)

    @pytest.mark.parametrize("name", [p for p in HOSTILE if p.id != "empty"])
    def test_create_with_a_hostile_name(self, cluster, name):
        with pytest.raises(errors.InvalidError):
            cluster.create(manifest(BACKUP, name))
        assert cluster.list(BACKUP).items == ()

    def test_create_without_a_name(self, cluster):
        with pytest.raises(errors.InvalidError):
            cluster.create(manifest(BACKUP))

    def test_create_with_a_label_that_is_none(self, cluster):
        with pytest.raises(errors.InvalidError):
            cluster.create(manifest(BACKUP, "a", labels={"l": "x" * 64}))

    @pytest.mark.parametrize("name", HOSTILE)
    def test_get_with_a_hostile_name(self, cluster, name):
        cluster.create(manifest(BACKUP, "a"))
        with pytest.raises((errors.NotFoundError, errors.InvalidError)):
            cluster.get(reference(BACKUP, name))

    # list

    def test_list(self, cluster):
        for kind, name, namespace in ((BACKUP, "b", "one"), (BACKUP, "a", "two"), (CONFIG_MAP, "c", "one")):
            cluster.create(manifest(kind, name, namespace))
        listing = cluster.list(BACKUP)
        assert [item.ref.key for item in listing.items] == ["one/b", "two/a"]
        assert listing.items == tuple(cluster.get(item.ref) for item in listing.items)
        assert all(item.type == BACKUP for item in listing.items)
        assert listing.resource_version

    def test_list_of_none(self, cluster):
        listing = cluster.list(BACKUP)
        assert listing.items == ()
        assert listing.resource_version not in {"", "0"}

    def test_list_of_one_namespace(self, cluster):
        for namespace in ("one", "two"):
            cluster.create(manifest(BACKUP, f"in-{namespace}", namespace))
        assert names(cluster.list(BACKUP, namespace="two").items) == ["in-two"]
        assert names(cluster.list(BACKUP, namespace="three").items) == []

    def test_list_of_a_cluster_scoped_kind(self, cluster):
        cluster.create(manifest(VOLUME, "v"))
        assert [item.ref for item in cluster.list(VOLUME).items] == [cluster.get(reference(VOLUME, "v")).ref]

    @pytest.mark.parametrize(
        ("selector", "expected"),
        [
            ("tier=web", ["a"]),
            ("tier!=web", ["b", "c"]),
            ("tier in (web,db)", ["a", "b"]),
            ("!tier", ["c"]),
            ("tier,env=prod", ["b"]),
            ("tier=none", []),
        ],
    )
    def test_list_by_labels(self, cluster, selector, expected):
        cluster.create(manifest(BACKUP, "a", labels={"tier": "web"}))
        cluster.create(manifest(BACKUP, "b", labels={"tier": "db", "env": "prod"}))
        cluster.create(manifest(BACKUP, "c"))
        assert names(cluster.list(BACKUP, selector=selector).items) == expected

    def test_list_by_a_selector_that_is_none(self, cluster):
        with pytest.raises(errors.InvalidError):
            cluster.list(BACKUP, selector="a=b=c")

    def test_list_metadata_only(self, cluster):
        made = cluster.create(manifest(CONFIG_MAP, "a", labels={"l": "1"}))
        (found,) = cluster.list(CONFIG_MAP, metadata_only=True).items
        assert (found.ref, found.meta, found.body) == (made.ref, made.meta, {})

    @pytest.mark.parametrize("metadata_only", [False, True])
    def test_list_of_more_than_a_page(self, cluster, bench, metadata_only):
        for number in range(bench.many):
            cluster.create(manifest(CONFIG_MAP, f"n{number:05}"))
        found = cluster.list(CONFIG_MAP, metadata_only=metadata_only).items
        assert names(found) == [f"n{number:05}" for number in range(bench.many)]

    @pytest.mark.parametrize("metadata_only", [False, True])
    def test_list_of_a_kind_that_is_not_served(self, cluster, metadata_only):
        with pytest.raises(errors.ContainerMissingError):
            cluster.list(UNSERVED, metadata_only=metadata_only)

    # watch

    @pytest.mark.parametrize("metadata_only", [False, True])
    def test_watch(self, cluster, metadata_only):
        version = cluster.list(BACKUP).resource_version
        made = cluster.create(manifest(BACKUP, "a"))
        changed = cluster.patch(made.ref, {"metadata": {"labels": {"l": "1"}}})
        cluster.create(manifest(CONFIG_MAP, "other"))
        cluster.delete(made.ref)
        watching = cluster.watch(BACKUP, resource_version=version, metadata_only=metadata_only, timeout=PATIENCE)
        first, second, third = changes(watching, 3)
        assert isinstance(first, Upserted)
        assert isinstance(second, Upserted)
        assert isinstance(third, Removed)
        assert (first.resource.meta, second.resource.meta) == (made.meta, changed.meta)
        assert (third.resource.ref, third.resource.meta.labels["l"]) == (made.ref, "1")
        assert (second.resource.body == {}) is metadata_only

    def test_watch_resumes_where_it_was(self, cluster):
        made = [cluster.create(manifest(BACKUP, name)) for name in ("a", "b", "c")]
        resumed = cluster.watch(BACKUP, resource_version=made[0].meta.resource_version, timeout=PATIENCE)
        assert [event.resource for event in changes(resumed, 2)] == made[1:]

    def test_watch_resumes_after_a_removal(self, cluster):
        made = cluster.create(manifest(BACKUP, "a"))
        cluster.delete(made.ref)
        watching = cluster.watch(BACKUP, resource_version=made.meta.resource_version, timeout=PATIENCE)
        (removed,) = changes(watching, 1)
        cluster.create(manifest(BACKUP, "b"))
        after = removed.resource.meta.resource_version
        resumed = cluster.watch(BACKUP, resource_version=after, timeout=PATIENCE)
        (event,) = changes(resumed, 1)
        assert isinstance(event, Upserted)
        assert event.resource.meta.name == "b"

    def test_watch_of_one_namespace(self, cluster):
        version = cluster.list(BACKUP).resource_version
        for namespace, name in (("two", "not"), ("one", "this")):
            cluster.create(manifest(BACKUP, name, namespace))
        (event,) = changes(cluster.watch(BACKUP, resource_version=version, namespace="one", timeout=PATIENCE), 1)
        assert event.resource.meta.name == "this"

    def test_watch_tells_the_end_of_a_finalized_object(self, cluster, held):
        cluster.delete(held.ref)
        cluster.patch(held.ref, {"metadata": {"finalizers": None}})
        watching = cluster.watch(BACKUP, resource_version=held.meta.resource_version, timeout=PATIENCE)
        first, second = changes(watching, 2)
        assert isinstance(first, Upserted)
        assert first.resource.meta.terminating
        assert isinstance(second, Removed)
        assert second.resource.ref == held.ref

    def test_watch_ends(self, cluster, bench):
        version = cluster.list(BACKUP).resource_version
        assert changes(cluster.watch(BACKUP, resource_version=version, timeout=bench.shortest_watch), 1) == []

    def test_watch_of_a_version_that_is_too_old(self, cluster, bench):
        version = cluster.list(BACKUP).resource_version
        cluster.create(manifest(BACKUP, "a"))
        bench.expire()
        with pytest.raises(errors.ExpiredError):
            changes(cluster.watch(BACKUP, resource_version=version, timeout=PATIENCE), 1)

    def test_watch_of_a_kind_that_is_not_served(self, cluster):
        with pytest.raises(errors.ContainerMissingError):
            changes(cluster.watch(UNSERVED, resource_version="1", timeout=PATIENCE), 1)

    # patch

    def test_patch_merges(self, cluster):
        made = cluster.create(manifest(CONFIG_MAP, "a", labels={"keep": "1", "drop": "1"}))
        patched = cluster.patch(
            made.ref, {"metadata": {"labels": {"drop": None, "new": "1"}}, "data": {"k": None, "l": "w"}}
        )
        assert dict(patched.meta.labels) == {"keep": "1", "new": "1"}
        assert patched.body["data"] == {"l": "w"}
        assert patched.meta.uid == made.meta.uid
        assert cluster.get(made.ref) == patched

    def test_patch_that_changes_nothing(self, cluster):
        made = cluster.create(manifest(BACKUP, "a", labels={"l": "1"}))
        assert cluster.patch(made.ref, {"metadata": {"labels": {"l": "1"}}}) == made

    def test_patch_of_the_version_that_was_read(self, cluster):
        made = cluster.create(manifest(BACKUP, "a"))
        patched = cluster.patch(
            made.ref, {"metadata": {"labels": {"l": "1"}}}, resource_version=made.meta.resource_version
        )
        assert patched.meta.resource_version != made.meta.resource_version
        with pytest.raises(errors.ConflictError):
            cluster.patch(made.ref, {"metadata": {"labels": {"l": "2"}}}, resource_version=made.meta.resource_version)
        assert cluster.get(made.ref) == patched

    def test_patch_of_another_uid(self, cluster):
        made = cluster.create(manifest(BACKUP, "a"))
        cluster.delete(made.ref)
        again = cluster.create(manifest(BACKUP, "a"))
        with pytest.raises(errors.ConflictError):
            cluster.patch(made.ref, {"metadata": {"labels": {"l": "1"}}})
        assert cluster.get(made.ref) == again

    def test_patch_without_a_uid(self, cluster):
        made = cluster.create(manifest(BACKUP, "a"))
        with pytest.raises(errors.InvalidError):
            cluster.patch(reference(BACKUP, "a"), {"metadata": {"labels": {"l": "1"}}})
        assert cluster.get(made.ref) == made

    def test_patch_of_what_is_not_there(self, cluster):
        with pytest.raises(errors.NotFoundError):
            cluster.patch(reference(BACKUP, "a", uid="u"), {"metadata": {"labels": {"l": "1"}}})

    def test_patch_of_a_kind_that_is_not_served(self, cluster):
        with pytest.raises(errors.ContainerMissingError):
            cluster.patch(reference(UNSERVED, "a", uid="u"), {"metadata": {"labels": {"l": "1"}}})

    def test_patch_with_a_label_that_is_none(self, cluster):
        made = cluster.create(manifest(BACKUP, "a"))
        with pytest.raises(errors.InvalidError):
            cluster.patch(made.ref, {"metadata": {"labels": {"l": "ä"}}})
        assert cluster.get(made.ref) == made

    def test_patch_that_adds_a_finalizer_while_terminating(self, cluster, held):
        cluster.delete(held.ref)
        with pytest.raises(errors.InvalidError):
            cluster.patch(held.ref, {"metadata": {"finalizers": [HOLDER, "example.com/late"]}})

    def test_patch_that_takes_the_last_finalizer_off_ends_a_terminating_object(self, cluster, held):
        cluster.delete(held.ref)
        cluster.patch(held.ref, {"metadata": {"finalizers": None}})
        with pytest.raises(errors.NotFoundError):
            cluster.get(held.ref)

    def test_patch_takes_an_owner_reference_off(self, cluster):
        owner = cluster.create(manifest(BACKUP, "owner"))
        head = {"apiVersion": owner.type.api_version, "kind": owner.type.kind, "name": "owner", "uid": owner.meta.uid}
        made = cluster.create(manifest(CONFIG_MAP, "a", ownerReferences=[head]))
        assert [each.uid for each in made.meta.owners] == [owner.meta.uid]
        patched = cluster.patch(
            made.ref, {"metadata": {"ownerReferences": []}}, resource_version=made.meta.resource_version
        )
        assert patched.meta.owners == ()

    @pytest.mark.parametrize("name", HOSTILE)
    def test_patch_with_a_hostile_name(self, cluster, name):
        made = cluster.create(manifest(BACKUP, "a"))
        with pytest.raises((errors.NotFoundError, errors.InvalidError)):
            cluster.patch(reference(BACKUP, name, uid=made.meta.uid), {"metadata": {"labels": {"l": "1"}}})
        assert cluster.list(BACKUP).items == (made,)

    # delete

    @pytest.mark.parametrize("kind", [pytest.param(k, id=k.kind) for k in (BACKUP, CONFIG_MAP, TRACK)])
    def test_delete(self, cluster, kind):
        made = cluster.create(manifest(kind, "a"))
        assert cluster.delete(made.ref) == Done()
        with pytest.raises(errors.NotFoundError):
            cluster.get(made.ref)
        assert cluster.delete(made.ref) == AlreadyGone()

    def test_delete_of_a_held_object_is_pending_each_time(self, cluster, held):
        for _ in range(2):
            assert isinstance(cluster.delete(held.ref), Pending)
        found = cluster.get(held.ref)
        assert found.meta.terminating
        assert found.meta.finalizers == (HOLDER,)

    def test_delete_of_another_uid(self, cluster):
        old = cluster.create(manifest(BACKUP, "a"))
        cluster.delete(old.ref)
        new = cluster.create(manifest(BACKUP, "a"))
        assert isinstance(cluster.delete(old.ref), Conflict)
        assert cluster.get(new.ref) == new

    def test_delete_of_another_version(self, cluster):
        made = cluster.create(manifest(BACKUP, "a"))
        changed = cluster.patch(made.ref, {"metadata": {"labels": {"l": "1"}}})
        assert isinstance(cluster.delete(made.ref, resource_version=made.meta.resource_version), Conflict)
        assert cluster.delete(made.ref, resource_version=changed.meta.resource_version) == Done()

    def test_delete_without_a_uid(self, cluster):
        made = cluster.create(manifest(BACKUP, "a"))
        assert isinstance(cluster.delete(reference(BACKUP, "a")), Invalid)
        assert cluster.get(made.ref) == made

    def test_delete_of_a_kind_that_is_not_served(self, cluster):
        assert isinstance(cluster.delete(reference(UNSERVED, "a", uid="u")), ContainerMissing)

    @pytest.mark.parametrize(
        ("propagation", "finalizer"),
        [(Propagation.FOREGROUND, "foregroundDeletion"), (Propagation.ORPHAN, "orphan"), (Propagation.BACKGROUND, "")],
    )
    def test_propagation_reaches_the_server(self, cluster, held, propagation, finalizer):
        assert isinstance(cluster.delete(held.ref, propagation=propagation), Pending)
        assert set(cluster.get(held.ref).meta.finalizers) == {HOLDER, finalizer} - {""}

    @pytest.mark.parametrize("name", HOSTILE)
    def test_delete_with_a_hostile_name(self, cluster, name):
        made = cluster.create(manifest(BACKUP, "a"))
        outcome: Outcome = cluster.delete(reference(BACKUP, name, uid=made.meta.uid))
        assert isinstance(outcome, AlreadyGone | Invalid)
        assert cluster.list(BACKUP).items == (made,)
