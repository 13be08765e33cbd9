"""The protection part of the sample: four GitTracks, what they track, and the accidents that happen to them.

Guarantee: it is made from nothing but constants; the objects are as Faros leaves them, before reprieve has seen any.
The accidents are made by the folder's own garbage collector, kept off by the shield as a real one would be. Not
guaranteed: anything about Faros itself, which does not run here.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from reprieve.adapters.k8s import faros
from reprieve.adapters.local import Admission, AdmissionRequest, LocalCluster, denial
from reprieve.core.objects import ObjectKind, ObjectRef
from reprieve.core.ports import Cluster, Propagation
from reprieve.core.shield import COLLECTORS, SHIELD_NAME
from reprieve.entrypoints.sample import uid

CONFIGURATION = """\
apiVersion: reprieve.dev/v1alpha1
kind: Configuration
protection:
  - owner: faros.pusher.com/v1alpha1/GitTrackObject
    dialect: faros         # the dependent is what spec.data carries
    onRequest: Delete      # what was asked for goes
    otherwise: Orphan      # everything else stays
"""
KINDS = (("apps/v1", "Deployment"), ("v1", "Service"), ("v1", "ConfigMap"), ("batch/v1", "CronJob"))
TOOLS = "tools"


@frozen
class Track:
    """A GitTrack of the sample, what happens to it, and by whose hand; without a policy nothing does."""

    name: str
    tells: str
    propagation: Propagation | None = None

    @property
    def dependents(self) -> tuple[tuple[str, str, str], ...]:
        """API version, kind and name of everything that it carries."""
        more = (("v1", "ConfigMap", "banner"),) if self.name == TOOLS else ()
        return (*((version, kind, "web") for version, kind in KINDS), *more)


TRACKS = (
    Track("shop-eu", "its GitTrack was deleted by accident, in the background", Propagation.BACKGROUND),
    Track("shop-us", "its GitTrack was deleted by accident, in the foreground", Propagation.FOREGROUND),
    Track("shop-asia", "its GitTrack was deleted by accident, with orphan propagation", Propagation.ORPHAN),
    Track(TOOLS, "nothing happened to it"),
)
PRUNED = "configmap-banner"
"""The owner whose manifest was taken out of the desired set of the last track."""


def write_protection_sample(directory: Path) -> tuple[Track, ...]:
    """Write this part into a sample folder, with its configuration and the desired set; tells its tracks."""
    (directory / "reprieve.yaml").write_text(CONFIGURATION, encoding="utf-8")
    for track in TRACKS:
        objects = [_git_track(track), *_owners(track), *_dependents(track)]
        _write(directory / "cluster" / f"gittrack-{track.name}.yaml", objects)
    wanted = [_manifest(TOOLS, *each) for each in TRACKS[-1].dependents if owner_name(*each) != PRUNED]
    _write(directory / "desired" / f"{TOOLS}.yaml", wanted)
    return TRACKS


def owner_name(_version: str, kind: str, name: str) -> str:
    """The name of the GitTrackObject that carries a manifest."""
    return f"{kind}-{name}".lower()


def _git_track(track: Track) -> dict[str, Any]:
    spec = {"repository": "https://git.example.com/shop.git", "reference": "main", "subPath": track.name}
    metadata = {"name": track.name, "namespace": track.name, "uid": uid(f"GitTrack/{track.name}")}
    return {"apiVersion": faros.API_VERSION, "kind": "GitTrack", "metadata": metadata, "spec": spec}


def _owners(track: Track) -> Iterable[dict[str, Any]]:
    for version, kind, name in track.dependents:
        called = owner_name(version, kind, name)
        data = base64.b64encode(json.dumps(_manifest(track.name, version, kind, name)).encode()).decode()
        metadata = {"name": called, "namespace": track.name, "uid": uid(f"{track.name}/{called}")}
        parent = _reference("GitTrack", track.name, uid(f"GitTrack/{track.name}"))
        head = {"apiVersion": faros.API_VERSION, "kind": "GitTrackObject"}
        spec = {"name": name, "kind": kind, "data": data}
        yield {**head, "metadata": {**metadata, "ownerReferences": [parent]}, "spec": spec}


def _dependents(track: Track) -> Iterable[dict[str, Any]]:
    for version, kind, name in track.dependents:
        called = owner_name(version, kind, name)
        owner = _reference("GitTrackObject", called, uid(f"{track.name}/{called}"))
        manifest = _manifest(track.name, version, kind, name)
        yield {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}


def _manifest(namespace: str, version: str, kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}


def _reference(kind: str, name: str, owner_uid: str) -> dict[str, Any]:
    head = {"apiVersion": faros.API_VERSION, "kind": kind, "name": name, "uid": owner_uid}
    return {**head, "controller": True, "blockOwnerDeletion": True}


def _write(path: Path, documents: Iterable[Mapping[str, Any]]) -> None:
    import yaml

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump_all(documents, sort_keys=False), encoding="utf-8")


# What happens


def happen(cluster: Cluster) -> None:
    """Let the accidents happen: each GitTrack is deleted in its own way, and the garbage collector follows."""
    for track in TRACKS:
        if track.propagation is not None:
            found = cluster.get(ObjectRef(faros.API_VERSION, "GitTrack", track.name, track.name))
            cluster.delete(found.ref, propagation=track.propagation)


def put_up_shield(cluster: Cluster, kinds: Iterable[ObjectKind]) -> None:
    """Let a local cluster refuse what the admission policy of ``reprieve shield`` would; nothing on any other."""
    if isinstance(cluster, LocalCluster):
        cluster.store.admission.append(_shield(frozenset((kind.group, kind.kind) for kind in kinds)))


def _shield(kinds: frozenset[tuple[str, str]]) -> Admission:
    def admit(request: AdmissionRequest) -> None:
        if request.operation != "DELETE" or request.user not in COLLECTORS:
            return
        owners = (request.old or {}).get("metadata", {}).get("ownerReferences", [])
        named = {(ObjectKind(each["apiVersion"], each["kind"]).group, each["kind"]) for each in owners}
        if named & kinds:
            raise denial(request, "reprieve's shield", policy=SHIELD_NAME, binding=SHIELD_NAME, reason="Forbidden")

    return admit
