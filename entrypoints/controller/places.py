"""Locations that the configuration does not let us ask: which, and the one line that would.

Guarantee: nothing is asked; opening a location makes no call. Not guaranteed: that a location whose Secret cannot be
read would be let through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import structlog
from attrs import frozen

from reprieve.adapters.cloud.endpoints import EndpointPolicy, PlaceRefusedError
from reprieve.adapters.k8s.dialect import ServedLocations
from reprieve.core.backups import StorageLocation
from reprieve.core.errors import ReprieveError
from reprieve.core.objects import ObjectRef
from reprieve.core.ports import EventKind
from reprieve.entrypoints.configuration import BackupsOff
from reprieve.entrypoints.controller.build import backup_reader
from reprieve.entrypoints.world import World

REASON = "EndpointNotAllowed"
SHOWN = 50
"""Locations that are told one by one, and endpoints in a line: whoever can make locations can make many."""

log = structlog.get_logger()


@frozen
class RefusedPlace:
    """A location that may not be asked, and why."""

    location: StorageLocation
    refusal: PlaceRefusedError


def refused_places(world: World) -> tuple[RefusedPlace, ...]:
    """The storage locations that the configuration does not allow. Raises core errors when none can be listed."""
    if isinstance(world.configuration.backups, BackupsOff):
        return ()
    return tuple(_refused(world))


def _refused(world: World) -> Iterator[RefusedPlace]:
    reader = backup_reader(world)
    for location in reader.storage_locations():
        try:
            reader.store(location)
        except PlaceRefusedError as refusal:
            yield RefusedPlace(location, refusal)
        except ReprieveError:
            continue  # whatever else is wrong with it is told where it is used


def line_for(places: Sequence[RefusedPlace], policy: EndpointPolicy) -> str:
    """The one line of configuration that allows all of these."""
    shown = places[:SHOWN]
    return policy.line(
        endpoints=[each for place in shown for each in place.refusal.endpoints],
        pod_identity=[each for place in shown for each in place.refusal.pod_identity],
    )


def told(places: Sequence[RefusedPlace], policy: EndpointPolicy) -> Iterator[str]:
    """What is to be said of them, in sentences: each location and where it points, then the line for all of them."""
    for place in places[:SHOWN]:
        refusal = place.refusal
        asked = ", ".join(dict.fromkeys([*refusal.endpoints, *refusal.pod_identity]))
        identity = ", with the controller's own identity" if refusal.pod_identity else ""
        yield f"storage location {place.location.name} is not asked: it points at {asked}{identity}"
    if len(places) > SHOWN:
        yield f"and {len(places) - SHOWN} more storage locations are not asked"
    yield "to allow these, once you have looked at them, write into the configuration in place of its section cloud:"
    yield line_for(places, policy)


def warn_about_places(world: World, *, now: datetime) -> None:
    """Log the locations that may not be asked, with the line that allows them, and record an event on each.

    Raises nothing.
    """
    try:
        places = refused_places(world)
    except ReprieveError as fault:
        log.warning("whether all storage locations may be asked cannot be read", fault=str(fault))
        return
    if not places:
        return
    log.warning(
        "storage locations point where the configuration allows nothing: they are not asked",
        locations=[place.location.name for place in places[:SHOWN]],
        count=len(places),
        way_out=line_for(places, world.configuration.endpoints),
    )
    locations = backup_reader(world).dialect.locations
    if not isinstance(locations, ServedLocations):
        return
    for place in places[:SHOWN]:
        meta = place.location.meta
        ref = ObjectRef(locations.storage.api_version, locations.storage.kind, meta.name, meta.namespace, meta.uid)
        world.events.record(ref, kind=EventKind.WARNING, reason=REASON, message=str(place.refusal), now=now)
