"""Keep, orphan or delete: what becomes of an owner's dependents, and when the owner itself may go.

For each dependent the first row that matches wins. "Deletion is wanted" when the owner is asked and ``onRequest`` is
``Delete``, or when it is not asked and ``otherwise`` is ``Delete``. *Release* is taking our finalizer off the owner.
What lies in another namespace than its owner is foreign to it, whatever it says of itself (a cluster-scoped owner has
dependents anywhere): that is Kubernetes' own rule, and to its collector such a reference names an absent owner.

|  # | owner               | asked? | dependent               | verdict  | steps; then the owner                      |
|----|---------------------|--------|-------------------------|----------|--------------------------------------------|
|  1 | live, no finalizer  | any    | any                     | KEEP     | add our finalizer, before anything else    |
|    | of ours             |        |                         |          |                                            |
|  2 | live                | no     | any                     | KEEP     | nothing                                    |
|  3 | live                | yes    | any, while one of them  | KEEP     | wait, say who holds it and why; it goes on |
|    |                     |        | (or the owner) is held, |          | by itself                                  |
|    |                     |        | or one is unknown       |          |                                            |
|  4 | live                | yes    | any                     | as rows  | delete the owner; rows 6-13 follow once it |
|    |                     |        |                         | 6-13     | terminates                                 |
|  5 | terminating, our    | any    | any, none of which      | KEEP     | nothing; when one refers to it, rows 6-15  |
|    | finalizer not there |        | refers to the owner     |          | apply and release does nothing             |
|  6 | terminating         | any    | unknown: not read, not  | KEEP     | finalizer stays, retry with back-off       |
|    |                     |        | decoded, not served     |          |                                            |
|  7 | terminating         | any    | absent                  | ORPHAN   | settled; Lost when nobody wanted it to go  |
|  8 | terminating         | any    | foreign: in another     | ORPHAN   | untouched; settled                         |
|    |                     |        | namespace; or no        |          |                                            |
|    |                     |        | reference with the      |          |                                            |
|    |                     |        | owner's UID, and no     |          |                                            |
|    |                     |        | valid orphaned-from     |          |                                            |
|    |                     |        | that the owner records  |          |                                            |
|    |                     |        | as well (row 11)        |          |                                            |
|  9 | terminating         | any    | already terminating     | DELETE,  | deletion wanted: wait until it is gone     |
|    |                     |        |                         | or KEEP  | (DELETE; KEEP, Lost when held); else KEEP, |
|    |                     |        |                         |          | Lost, settled: it cannot be undone         |
| 10 | terminating         | any    | present, and the owner  | ORPHAN   | take our reference and an orphaned-from of |
|    |                     |        | has the orphan          |          | ours off, write none; settled              |
|    |                     |        | finalizer or another    |          |                                            |
|    |                     |        | owner is not confirmed  |          |                                            |
|    |                     |        | absent; or held beyond  |          |                                            |
|    |                     |        | the 500 that an owner   |          |                                            |
|    |                     |        | records (row 11)        |          |                                            |
| 11 | terminating         | yes,   | held                    | ORPHAN   | record it on the owner, then as row 15 at  |
|    |                     | Delete |                         |          | once; not settled until the hold lifts,    |
|    |                     |        |                         |          | then DELETE                                |
| 12 | terminating         | yes,   | present                 | DELETE,  | delete it, by UID (a protected owner gets  |
|    |                     | Delete |                         | or KEEP  | its own marker first); settled when it is  |
|    |                     |        |                         |          | gone. Re-created three times: KEEP, let go |
|    |                     |        |                         |          | as row 10                                  |
| 13 | terminating         | yes,   | present                 | ORPHAN   | as row 15                                  |
|    |                     | Orphan |                         |          |                                            |
| 14 | terminating         | no,    | present, not held       | DELETE,  | as row 12 (opt-in)                         |
|    |                     | Delete |                         | or KEEP  |                                            |
| 15 | terminating         | no     | present                 | ORPHAN   | take off only the reference with our UID,  |
|    |                     |        |                         |          | record orphaned-from in the same patch;    |
|    |                     |        |                         |          | settled                                    |
| 16 | absent, confirmed   | any    | still refers to it      | ORPHAN,  | take the dangling reference off, as row    |
|    | by a live read      |        |                         | or KEEP  | 15; KEEP, Lost when it terminates already  |

The owner is released when every dependent is settled; over several dependents the most cautious answer wins
(``Wait`` before ``RetryAfter`` before ``Release``).

Guarantee: unknown never deletes; held never deletes; ``DELETE`` needs a marker with the owner's own UID or an opt-in;
what a dependent says of itself (``orphaned-from``) authorises nothing that its owner does not say as well;
the order of the dependents does not matter; on a settled world there is no step. Not guaranteed: that dependents
survive a foreground deletion, or the loss of an owner behind our back, without the shield (``reprieve.core.shield``):
the garbage collector acts at once then, whatever finalizers there are.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, ClassVar, assert_never

from attrs import evolve, field, frozen

from reprieve.core.errors import ReprieveError
from reprieve.core.holds import Free, Held, HoldState, any_hold, hold_of
from reprieve.core.objects import ObjectKind, ObjectMeta, ObjectRef, OwnerReference, Resource, mapping
from reprieve.core.reasons import Reason, Verdict
from reprieve.core.requests import backoff
from reprieve.core.steps import (
    DELETION_REQUESTED,
    ORPHANED_FROM,
    AddFinalizer,
    ChangeMetadata,
    DeleteObject,
    MarkOwner,
    RemoveFinalizer,
    RemoveOwnerReference,
    Step,
)
from reprieve.core.values import FrozenMap, as_set, as_tuple, joined, later, string_map

PROTECT = "reprieve.dev/protect"
ON_REQUEST = "reprieve.dev/on-request"
OTHERWISE = "reprieve.dev/otherwise"
HELD_DEPENDENTS = "reprieve.dev/held-dependents"
HELD_DEPENDENTS_LIMIT = 500  # 36 characters a UID: 20 of the 256 KiB that an object's annotations may have
RECREATED_LIMIT = 3
_UNTIL_FREE = 11  # the row of what is orphaned until its hold lifts
_ORPHAN_FINALIZER = "orphan"
_FOREGROUND_FINALIZER = "foregroundDeletion"


# Facts: the owner


@frozen
class LiveOwner:
    """The owner is there, and nobody has deleted it."""

    type: ObjectKind
    meta: ObjectMeta

    @property
    def ref(self) -> ObjectRef:
        """The owner's full reference, UID included."""
        return _ref(self.type, self.meta)


@frozen
class TerminatingOwner:
    """The owner has a deletion timestamp; finalizers still hold it."""

    type: ObjectKind
    meta: ObjectMeta

    @property
    def ref(self) -> ObjectRef:
        """The owner's full reference, UID included."""
        return _ref(self.type, self.meta)


@frozen
class AbsentOwner:
    """A live read (never a cache) found no object of that name, or one of another UID. ``ref.uid`` is the lost UID."""

    ref: ObjectRef


@frozen
class UnknownOwner:
    """Whether the owner is there could not be found out, for that reason; ``attempts`` reads failed in a row."""

    ref: ObjectRef
    why: str
    attempts: int = 1


PresentOwner = LiveOwner | TerminatingOwner
Owner = PresentOwner | AbsentOwner | UnknownOwner


def owner_of(resource: Resource) -> PresentOwner:
    """The facts of an owner that was read: live, or terminating."""
    make = TerminatingOwner if resource.meta.terminating else LiveOwner
    return make(resource.type, resource.meta)


def _ref(kind: ObjectKind, meta: ObjectMeta) -> ObjectRef:
    return ObjectRef(kind.api_version, kind.kind, meta.name, meta.namespace, meta.uid)


# Facts: the dependents


@frozen
class PresentDependent:
    """A dependent that a live read found.

    ``namespace_annotations`` are those of its namespace, ``absent_owners`` the UIDs of other owners that a live read
    confirmed absent, ``recreated`` how often somebody brought it back after we deleted it; ``protected`` says that it
    is an owner of a protected kind itself.
    """

    type: ObjectKind
    meta: ObjectMeta
    namespace_annotations: FrozenMap[str, str] = field(factory=FrozenMap, converter=string_map)
    absent_owners: frozenset[str] = field(default=frozenset(), converter=as_set)
    recreated: int = 0
    protected: bool = False

    @property
    def ref(self) -> ObjectRef:
        """The dependent's full reference, UID included."""
        return _ref(self.type, self.meta)


@frozen
class AbsentDependent:
    """A live read, begun after the owner was seen terminating, found that the dependent is not there."""

    ref: ObjectRef


@frozen
class UnknownDependent:
    """What the dependent is, or whether it is there, could not be found out; ``attempts`` tries failed in a row."""

    ref: ObjectRef
    why: str
    attempts: int = 1


Dependent = PresentDependent | AbsentDependent | UnknownDependent


# The policy


class Verb(enum.StrEnum):
    """What a policy says about dependents."""

    DELETE = "Delete"
    ORPHAN = "Orphan"


class PolicyInvalidError(ReprieveError, ValueError):
    """A policy does not say what is to happen; the text names the place, the key and what is allowed."""


def _check_verb(_: Any, attribute: Any, verb: Any) -> None:
    if not isinstance(verb, Verb):
        raise PolicyInvalidError(f"{attribute.name} is {verb!r}: it must be Verb.DELETE or Verb.ORPHAN")


@frozen
class Policy:
    """What to do with dependents when deletion was asked for, and otherwise. Neither verb has a default."""

    on_request: Verb = field(validator=_check_verb)
    otherwise: Verb = field(validator=_check_verb)
    allow_delete_by_annotation: bool = False


KEEP_EVERYTHING = Policy(on_request=Verb.ORPHAN, otherwise=Verb.ORPHAN)
"""The preset under which nothing is ever deleted."""


def read_policy(entry: Mapping[str, Any], *, where: str) -> Policy:
    """Read a policy from an entry of the configuration; ``where`` is its path, for errors.

    Raises ``PolicyInvalidError`` when a verb is missing or is not ``Delete`` or ``Orphan``: there is no default for a
    verb that destroys.
    """
    allow = entry.get("allowDeleteByAnnotation", False)
    if not isinstance(allow, bool):
        raise PolicyInvalidError(f"{where}.allowDeleteByAnnotation is {allow!r}: write true or false")
    return Policy(_verb_at(entry, "onRequest", where), _verb_at(entry, "otherwise", where), allow)


def _verb_at(entry: Mapping[str, Any], key: str, where: str) -> Verb:
    if key not in entry:
        raise PolicyInvalidError(f"{where}.{key} is missing: write Delete or Orphan, it has no default")
    if entry[key] not in [verb.value for verb in Verb]:
        raise PolicyInvalidError(f"{where}.{key} is {entry[key]!r}: write Delete or Orphan")
    return Verb(entry[key])


def effective_policy(
    config: Policy, namespace: Mapping[str, str], owner: Mapping[str, str], dependent: Mapping[str, str]
) -> Policy:
    """The policy for one dependent, from the annotations of its namespace, its owner and itself.

    The dependent's annotation counts before the owner's, the namespace's and the configuration. ``Delete`` counts only
    where the configuration allows it by annotation; a value that cannot be read counts as ``Orphan``.
    """
    layers = (dependent, owner, namespace)
    on_request = _annotated(ON_REQUEST, layers, config.on_request, allow=config.allow_delete_by_annotation)
    otherwise = _annotated(OTHERWISE, layers, config.otherwise, allow=config.allow_delete_by_annotation)
    return evolve(config, on_request=on_request, otherwise=otherwise)


def _annotated(key: str, layers: tuple[Mapping[str, str], ...], configured: Verb, *, allow: bool) -> Verb:
    said = [Verb.DELETE if layer[key] == Verb.DELETE.value else Verb.ORPHAN for layer in layers if key in layer]
    return next((verb for verb in said if verb is Verb.ORPHAN or allow), configured)


# The decision


@frozen
class Release:
    """Every dependent is settled: the owner may go. ``steps`` is empty when our finalizer is not there."""

    reason: Reason = Reason.SETTLED
    message: str = ""
    steps: tuple[Step, ...] = field(default=(), converter=as_tuple)


@frozen
class Wait:
    """The owner stays until something changes; look again at ``until`` at the latest, where that is known."""

    reason: Reason
    message: str = ""
    until: datetime | None = None
    steps: ClassVar[tuple[Step, ...]] = ()


@frozen
class RetryAfter:
    """Something could not be found out: read again after that time."""

    delta: timedelta
    reason: Reason = Reason.UNKNOWN
    message: str = ""
    steps: ClassVar[tuple[Step, ...]] = ()


@frozen
class DeleteOwner:
    """The owner was asked for, and nothing is in the way: delete it, and look again once it terminates."""

    message: str
    steps: tuple[Step, ...] = field(converter=as_tuple)
    reason: Reason = Reason.ASKED


@frozen
class Guard:
    """The owner gets our finalizer."""

    message: str
    steps: tuple[Step, ...] = field(converter=as_tuple)
    reason: Reason = Reason.PROTECTING


@frozen
class Nothing:
    """Nothing is to be done for the owner."""

    reason: Reason
    message: str = ""
    steps: ClassVar[tuple[Step, ...]] = ()


Settling = Release | Wait | RetryAfter
OwnerAction = Settling | DeleteOwner | Guard | Nothing


@frozen
class DependentVerdict:
    """What is to happen to one dependent, why, and by which row of the table.

    ``then`` is what that means for the owner; ``Nothing`` where a row is about the owner as a whole (1 to 5, and 16).
    """

    ref: ObjectRef
    verdict: Verdict
    reason: Reason
    message: str
    row: int
    steps: tuple[Step, ...] = field(default=(), converter=as_tuple)
    then: Settling | Nothing = field(factory=Release)


@frozen
class ProtectionDecision:
    """One verdict a dependent, in order of reference, and what happens to the owner.

    What is in ``before`` (the record of row 11) has to be there before any other step: carry it out, then decide anew.
    The steps of the dependents come next; those of the owner only when each of them ended ``Done`` or ``AlreadyGone``.
    """

    dependents: tuple[DependentVerdict, ...] = field(converter=as_tuple)
    owner: OwnerAction
    before: tuple[Step, ...] = field(default=(), converter=as_tuple)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps, in the order in which they may be carried out."""
        return (*self.before, *(step for each in self.dependents for step in each.steps), *self.owner.steps)


def decide(owner: Owner, dependents: Iterable[Dependent], policy: Policy, *, now: datetime) -> ProtectionDecision:
    """Decide about one owner and all its dependents, by the table of this module. ``now`` is UTC; it ends holds."""
    ordered = sorted(dependents, key=lambda each: (each.ref, type(each).__name__))
    match owner:
        case LiveOwner():
            return _live(owner, ordered, policy, now)
        case TerminatingOwner():
            return _terminating(owner, ordered, policy, now)
        case AbsentOwner():
            return _absent(owner, ordered)
        case UnknownOwner():
            return _unknown_owner(owner, ordered)
        case _:
            assert_never(owner)


def _live(owner: LiveOwner, dependents: list[Dependent], policy: Policy, now: datetime) -> ProtectionDecision:
    if PROTECT not in owner.meta.finalizers:
        guard = Guard(f"{owner.ref} gets the finalizer {PROTECT} before anything else", [_add_finalizer(owner)])
        return _keep_all(1, dependents, guard)
    if not is_asked(owner.meta):
        return _keep_all(2, dependents, _not_asked(owner))
    obstacles = _obstacles(owner, dependents, now)
    if obstacles:
        return _keep_all(3, dependents, _most_cautious(obstacles, now))
    terminating = TerminatingOwner(owner.type, owner.meta)
    verdicts = [_first_row(terminating, each, policy, now) for each in dependents]
    delete = DeleteOwner(f"{owner.ref} was asked for by its own UID", [_delete_object(owner)])
    return ProtectionDecision([_announced(verdict, delete) for verdict in verdicts], delete)


def _terminating(
    owner: TerminatingOwner, dependents: list[Dependent], policy: Policy, now: datetime
) -> ProtectionDecision:
    if PROTECT not in owner.meta.finalizers and not any(_may_refer(each, owner.meta) for each in dependents):
        why = f"{owner.ref} terminates without a finalizer of ours, and nothing refers to it"
        return _keep_all(5, dependents, Nothing(Reason.OWNER_TERMINATING, why))
    verdicts, before = _recorded(owner, dependents, [_first_row(owner, each, policy, now) for each in dependents])
    answer = _most_cautious([each.then for each in verdicts], now)
    return ProtectionDecision(verdicts, _release(owner) if isinstance(answer, Release) else answer, before)


def _recorded(
    owner: TerminatingOwner, dependents: list[Dependent], verdicts: list[DependentVerdict]
) -> tuple[list[DependentVerdict], list[Step]]:
    """Give each dependent of row 11 a place in the owner's record, and let those go for good that find no room in it.

    The record is written before the reference goes. Killed in between, the next look finds the reference; the other way
    round, what was asked for would be forgotten.
    """
    known = held_dependents(owner.meta)
    new: list[str] = []
    placed: list[DependentVerdict] = []
    for dependent, verdict in zip(dependents, verdicts, strict=True):
        match dependent:
            case PresentDependent(meta=meta) if verdict.row == _UNTIL_FREE and meta.uid not in known:
                if len(known) + len(new) < HELD_DEPENDENTS_LIMIT:
                    new.append(meta.uid)
                    placed.append(verdict)
                else:
                    why = (
                        f"it is held, and {owner.ref} records {HELD_DEPENDENTS_LIMIT} dependents already that go when "
                        "their holds lift, which is the limit: delete it by name when its hold is over"
                    )
                    placed.append(_let_go(owner, dependent, Reason.TOO_MANY_HELD, why))
            case _:
                placed.append(verdict)
    return placed, [record_of_held(owner.ref, owner.meta, (*known, *new))] if new else []


def _first_row(owner: TerminatingOwner, dependent: Dependent, policy: Policy, now: datetime) -> DependentVerdict:
    match dependent:
        case UnknownDependent():
            return _unknown(dependent)
        case AbsentDependent(ref):
            return _gone(owner, ref, policy)
        case PresentDependent():
            return _first_row_present(owner, dependent, policy, now)
        case _:
            assert_never(dependent)


def _first_row_present(
    owner: TerminatingOwner, dependent: PresentDependent, policy: Policy, now: datetime
) -> DependentVerdict:
    asked = is_asked(owner.meta)
    verbs = effective_policy(
        policy, dependent.namespace_annotations, owner.meta.annotations, dependent.meta.annotations
    )
    wanted = (verbs.on_request if asked else verbs.otherwise) is Verb.DELETE
    hold = any_hold([owner.meta.annotations, dependent.meta.annotations], now=now)
    match hold:
        case _ if not concerns(owner.meta, dependent.meta):
            return _foreign(dependent.ref)
        case _ if dependent.meta.terminating:
            return _already_terminating(owner, dependent, hold, wanted=wanted)
        case _ if _ORPHAN_FINALIZER in owner.meta.finalizers:
            why = f"{owner.ref} was deleted with orphan propagation"
            return _let_go(owner, dependent, Reason.ORPHAN_PROPAGATION, why)
        case _ if others := _other_owners(owner, dependent):
            why = f"it has another owner, {_named(others)}"
            return _let_go(owner, dependent, Reason.OTHER_OWNER, why)
        case Held() if wanted and asked:
            return _orphan_until_free(owner, dependent, hold)
        case Free() if wanted:
            return _delete(owner, dependent, asked=asked)
        case Held() if wanted:
            return _orphan(15, owner, dependent, Reason.HELD, f"it is {hold.sentence()}")
        case _ if asked:
            return _orphan(13, owner, dependent, Reason.ORPHAN_ON_REQUEST, "the policy says onRequest: Orphan")
        case _:
            return _orphan(15, owner, dependent, Reason.OWNER_LOST, f"nobody asked for the deletion of {owner.ref}")


def _absent(owner: AbsentOwner, dependents: list[Dependent]) -> ProtectionDecision:
    verdicts = [_row_16(owner, each) for each in dependents]
    retries = [each.then for each in verdicts if isinstance(each.then, RetryAfter)]
    nothing = Nothing(Reason.OWNER_ABSENT, f"{owner.ref} (UID {owner.ref.uid}) is not there")
    return ProtectionDecision(verdicts, min(retries, key=lambda retry: retry.delta, default=nothing))


def _row_16(owner: AbsentOwner, dependent: Dependent) -> DependentVerdict:
    nothing = Nothing(Reason.OWNER_ABSENT, f"{owner.ref} is not there")
    match dependent:
        case UnknownDependent():
            return _unknown(dependent)
        case AbsentDependent(ref):
            return DependentVerdict(ref, Verdict.ORPHAN, Reason.ABSENT, f"{ref} is not there", 7, then=nothing)
        case PresentDependent(meta=meta) if not (
            refers_to(meta, owner.ref.uid) and may_own(owner.ref.namespace, meta.namespace)
        ):
            return evolve(_foreign(dependent.ref), then=nothing)
        case PresentDependent(meta=meta) if meta.terminating:
            lost = f"{dependent.ref} is lost: it terminates already, after its owner {owner.ref} vanished"
            return DependentVerdict(dependent.ref, Verdict.KEEP, Reason.LOST, lost, 16, then=nothing)
        case PresentDependent():
            kept = f"{dependent.ref} is kept without its owner: {owner.ref} (UID {owner.ref.uid}) vanished"
            steps = _take_off(owner.ref.uid, dependent, orphaned_from(owner.ref.uid, dependent.meta))
            return DependentVerdict(
                dependent.ref, Verdict.ORPHAN, Reason.OWNER_ABSENT, kept, 16, steps=steps, then=nothing
            )
        case _:
            assert_never(dependent)


# What is asked of metadata


def is_asked(meta: ObjectMeta) -> bool:
    """Whether deletion was asked for: the marker's value is the object's own UID. Any other value is no request."""
    return bool(meta.uid) and meta.annotations.get(DELETION_REQUESTED) == meta.uid


def refers_to(meta: ObjectMeta, owner_uid: str) -> bool:
    """Whether an owner reference carries this UID. An empty UID is nobody's."""
    return bool(owner_uid) and any(owner.uid == owner_uid for owner in meta.owners)


def orphaned_from(owner_uid: str, meta: ObjectMeta) -> str:
    """The value of ``reprieve.dev/orphaned-from`` that records whom we orphaned this very object from."""
    return f"{owner_uid}/{meta.uid}"


def recorded_owner(meta: ObjectMeta) -> str:
    """The UID of the owner that a valid ``orphaned-from`` names; empty when there is none, or a copied one."""
    owner_uid, _, own_uid = meta.annotations.get(ORPHANED_FROM, "").partition("/")
    return owner_uid if own_uid and own_uid == meta.uid else ""


def may_own(owner_namespace: str, dependent_namespace: str) -> bool:
    """Kubernetes' own rule: an owner in a namespace owns within it; a cluster-scoped one (no namespace) owns anywhere.

    Source: the collector looks for a namespaced owner in the dependent's namespace, and nowhere else.
    """
    return not owner_namespace or owner_namespace == dependent_namespace


def held_dependents(owner: ObjectMeta) -> tuple[str, ...]:
    """The UIDs of the dependents that an owner records as orphaned under a hold, to be deleted when it lifts.

    None when the record names another owner (a copy), or cannot be read; never more than ``HELD_DEPENDENTS_LIMIT``.
    """
    owner_uid, found = _read_record(owner.annotations.get(HELD_DEPENDENTS, ""))
    return found if owner_uid and owner_uid == owner.uid else ()


@lru_cache(maxsize=16)
def _read_record(text: str) -> tuple[str, tuple[str, ...]]:
    """The owner and the dependents that a record names. One text is asked about once for each dependent."""
    try:
        record = mapping(json.loads(text))
    except (ValueError, RecursionError):
        return "", ()
    owner_uid, listed = record.get("owner"), record.get("dependents")
    if not isinstance(owner_uid, str) or not isinstance(listed, list):
        return "", ()
    found = dict.fromkeys(each for each in listed if isinstance(each, str) and each)
    return owner_uid, tuple(found)[:HELD_DEPENDENTS_LIMIT]


def record_of_held(ref: ObjectRef, owner: ObjectMeta, dependents: Iterable[str]) -> Step:
    """The step that records on an owner whom we orphan from it under a hold; with its UID, so that no copy counts."""
    record = json.dumps({"owner": owner.uid, "dependents": list(dependents)}, separators=(",", ":"))
    return ChangeMetadata(ref, owner.resource_version, annotations={HELD_DEPENDENTS: record})


def concerns(owner: ObjectMeta, dependent: ObjectMeta) -> bool:
    """Whether an object is a dependent of an owner, in the only place where it can be one (``may_own``).

    It refers to the owner; or we orphaned it under a hold, and both say so: it by ``orphaned-from``, and the owner by
    its record. What only the object says counts for nothing, since many may write to it who may not delete it.
    """
    if not owner.uid or not may_own(owner.namespace, dependent.namespace):
        return False
    return refers_to(dependent, owner.uid) or (
        recorded_owner(dependent) == owner.uid and dependent.uid in held_dependents(owner)
    )


def _other_owners(owner: TerminatingOwner, dependent: PresentDependent) -> list[OwnerReference]:
    """Other owners that may be there: all that a live read has not confirmed absent."""
    gone = dependent.absent_owners | {owner.meta.uid}
    return [each for each in dependent.meta.owners if each.uid not in gone]


def _may_refer(dependent: Dependent, owner: ObjectMeta) -> bool:
    match dependent:
        case UnknownDependent():
            return True
        case AbsentDependent():
            return False
        case PresentDependent(meta=meta):
            return may_own(owner.namespace, meta.namespace) and refers_to(meta, owner.uid)
        case _:
            assert_never(dependent)


# The rows


def _keep_all(row: int, dependents: list[Dependent], action: OwnerAction) -> ProtectionDecision:
    """Rows 1, 2, 3 and 5: nothing happens to any dependent, for the owner's reason."""
    then = Nothing(action.reason)
    kept = [
        DependentVerdict(each.ref, Verdict.KEEP, action.reason, action.message, row, then=then) for each in dependents
    ]
    return ProtectionDecision(kept, action)


def _not_asked(owner: LiveOwner) -> Nothing:
    marker = owner.meta.annotations.get(DELETION_REQUESTED)
    if marker is None:
        return Nothing(Reason.NOT_ASKED, f"nobody asked for the deletion of {owner.ref}")
    return Nothing(
        Reason.MARKER_FOREIGN,
        f"{DELETION_REQUESTED} of {owner.ref} is {marker!r}, not its own UID {owner.meta.uid}: that is no request; "
        f"use `reprieve request-deletion {owner.type.kind}/{owner.meta.name}`",
    )


def _obstacles(owner: LiveOwner, dependents: list[Dependent], now: datetime) -> list[OwnerAction]:
    """What keeps an owner from being deleted: its own hold, held dependents, unknown dependents."""
    own = _hold_obstacle(owner.ref, owner.meta, now)
    return own + [wait for each in dependents for wait in _obstacle(owner, each, now)]


def _obstacle(owner: LiveOwner, dependent: Dependent, now: datetime) -> list[OwnerAction]:
    match dependent:
        case UnknownDependent():
            return [_unknown(dependent).then]
        case AbsentDependent():
            return []
        case PresentDependent(meta=meta) if not concerns(owner.meta, meta):
            return []
        case PresentDependent(meta=meta):
            return _hold_obstacle(dependent.ref, meta, now)
        case _:
            assert_never(dependent)


def _hold_obstacle(ref: ObjectRef, meta: ObjectMeta, now: datetime) -> list[OwnerAction]:
    hold = hold_of(meta.annotations, now=now)
    return [Wait(Reason.HELD, f"{ref} is {hold.sentence()}", hold.until)] if isinstance(hold, Held) else []


def _announced(verdict: DependentVerdict, delete: DeleteOwner) -> DependentVerdict:
    """Row 4: what will happen once the owner terminates; not yet a step."""
    return evolve(
        verdict, row=4, steps=(), then=Nothing(delete.reason), message=f"once its owner terminates: {verdict.message}"
    )


def _unknown(dependent: UnknownDependent) -> DependentVerdict:
    """Row 6."""
    message = f"{dependent.ref} is unknown, so it is kept and its owner stays: {dependent.why}"
    retry = RetryAfter(backoff(str(dependent.ref), max(dependent.attempts, 1)), Reason.UNKNOWN, message)
    return DependentVerdict(dependent.ref, Verdict.KEEP, Reason.UNKNOWN, message, 6, then=retry)


def _unknown_owner(owner: UnknownOwner, dependents: list[Dependent]) -> ProtectionDecision:
    """Row 6, for an owner that could not be read: nothing is known, nothing is done."""
    message = f"{owner.ref} is unknown, so nothing is done: {owner.why}"
    retry = RetryAfter(backoff(str(owner.ref), max(owner.attempts, 1)), Reason.OWNER_UNKNOWN, message)
    return _keep_all(6, dependents, retry)


def _gone(owner: TerminatingOwner, ref: ObjectRef, policy: Policy) -> DependentVerdict:
    """Row 7. What is gone though nobody wanted it to go is told as lost: else it would be settled in silence."""
    otherwise = effective_policy(policy, {}, owner.meta.annotations, {}).otherwise
    if is_asked(owner.meta) or otherwise is Verb.DELETE or policy.allow_delete_by_annotation:
        return DependentVerdict(ref, Verdict.ORPHAN, Reason.ABSENT, f"{ref} is not there", 7)
    lost = (
        f"{ref} is not there, and nobody asked for the deletion of {owner.ref}: it was deleted before, or a foreground "
        "deletion of its owner took it; the shield prevents that"
    )
    return DependentVerdict(ref, Verdict.ORPHAN, Reason.LOST, lost, 7)


def _foreign(ref: ObjectRef) -> DependentVerdict:
    """Row 8."""
    message = (
        f"{ref} is not touched: it neither refers to the owner, from where the owner may have dependents, nor does the "
        "owner record that it was orphaned under a hold"
    )
    return DependentVerdict(ref, Verdict.ORPHAN, Reason.FOREIGN, message, 8)


def _already_terminating(
    owner: TerminatingOwner, dependent: PresentDependent, hold: HoldState, *, wanted: bool
) -> DependentVerdict:
    """Row 9."""
    ref = dependent.ref
    if wanted and isinstance(hold, Free):
        message = f"{ref} is being deleted; its owner stays until it is gone"
        return DependentVerdict(ref, Verdict.DELETE, Reason.DELETING, message, 9, then=Wait(Reason.DELETING, message))
    foreground = _FOREGROUND_FINALIZER in owner.meta.finalizers
    how = ", after a foreground deletion of its owner: the shield prevents that" if foreground else ""
    held = f" though it is {hold.sentence()}" if isinstance(hold, Held) else ""
    lost = f"{ref} is lost: it terminates already{held}, and that cannot be undone{how}"
    then = Wait(Reason.LOST, lost) if wanted else Release()
    return DependentVerdict(ref, Verdict.KEEP, Reason.LOST, lost, 9, then=then)


def _let_go(owner: TerminatingOwner, dependent: PresentDependent, reason: Reason, why: str) -> DependentVerdict:
    """Row 10: from now on it is foreign to the owner, whatever the marker says."""
    message = f"{dependent.ref} is kept and is no longer ours: {why}"
    steps = _take_off(owner.meta.uid, dependent, "")
    return DependentVerdict(dependent.ref, Verdict.ORPHAN, reason, message, 10, steps=steps)


def _orphan_until_free(owner: TerminatingOwner, dependent: PresentDependent, hold: Held) -> DependentVerdict:
    """Row 11: the collector must not reach it, and the request is remembered by the owner that stays."""
    message = f"{dependent.ref} is {hold.sentence()}; it is deleted when the hold lifts, until then its owner stays"
    orphaned = _orphan(_UNTIL_FREE, owner, dependent, Reason.HELD, message)
    return evolve(orphaned, message=message, then=Wait(Reason.HELD, message, hold.until))


def _delete(owner: TerminatingOwner, dependent: PresentDependent, *, asked: bool) -> DependentVerdict:
    """Rows 12 and 14."""
    ref, row = dependent.ref, 12 if asked else 14
    if dependent.recreated >= RECREATED_LIMIT:
        why = f"somebody re-created it {dependent.recreated} times after it was deleted, limit {RECREATED_LIMIT}"
        kept = _let_go(owner, dependent, Reason.RECREATED, why)
        return evolve(kept, verdict=Verdict.KEEP, row=row)
    reason = Reason.ASKED if asked else Reason.OPTED_IN
    why = f"{owner.ref} was asked for by its own UID" if asked else "the policy says otherwise: Delete"
    message = f"{ref} is deleted with its owner: {why}"
    wait = Wait(Reason.DELETING, f"{ref} is being deleted; its owner stays until it is gone")
    return DependentVerdict(ref, Verdict.DELETE, reason, message, row, steps=[_deletion_step(dependent)], then=wait)


def _deletion_step(dependent: PresentDependent) -> Step:
    """One write at a time: a protected owner gets our finalizer, then its own marker; only then is it deleted."""
    if dependent.protected and PROTECT not in dependent.meta.finalizers:
        return _add_finalizer(dependent)
    if dependent.protected and not is_asked(dependent.meta):
        return MarkOwner(dependent.ref, dependent.meta.resource_version)
    return _delete_object(dependent)


def _orphan(
    row: int, owner: TerminatingOwner, dependent: PresentDependent, reason: Reason, why: str
) -> DependentVerdict:
    """Rows 11, 13 and 15."""
    message = f"{dependent.ref} is kept without its owner: {why}"
    steps = _take_off(owner.meta.uid, dependent, orphaned_from(owner.meta.uid, dependent.meta))
    return DependentVerdict(dependent.ref, Verdict.ORPHAN, reason, message, row, steps=steps)


# Steps


def _take_off(owner_uid: str, dependent: PresentDependent, record: str) -> list[Step]:
    """Take the owner's reference off and set its record (empty: none); no step when both are so already."""
    meta = dependent.meta
    recorded = recorded_owner(meta) == owner_uid
    if not refers_to(meta, owner_uid) and recorded == bool(record):
        return []
    remaining = [each for each in meta.owners if each.uid != owner_uid]
    forget = recorded and not record
    return [RemoveOwnerReference(dependent.ref, meta.resource_version, owner_uid, remaining, record, forget=forget)]


def _add_finalizer(holder: LiveOwner | PresentDependent) -> Step:
    return AddFinalizer(holder.ref, holder.meta.resource_version, [*holder.meta.finalizers, PROTECT])


def _delete_object(thing: LiveOwner | PresentDependent) -> Step:
    return DeleteObject(thing.ref, thing.meta.resource_version)


def _release(owner: TerminatingOwner) -> Release:
    message = f"every dependent of {owner.ref} is settled"
    return Release(message=message, steps=release_steps(owner.ref, owner.meta))


def release_steps(ref: ObjectRef, meta: ObjectMeta) -> tuple[Step, ...]:
    """Take our finalizer off an object, and only ours; nothing when it is not there."""
    others = [each for each in meta.finalizers if each != PROTECT]
    return (RemoveFinalizer(ref, meta.resource_version, others),) if PROTECT in meta.finalizers else ()


# The owner


def _most_cautious(actions: Iterable[OwnerAction], now: datetime) -> Settling:
    """Over several dependents: Wait before RetryAfter before Release; a Wait ends in time for all that may change."""
    waits = [each for each in actions if isinstance(each, Wait)]
    retries = [each for each in actions if isinstance(each, RetryAfter)]
    if waits:
        instants = [each.until for each in waits if each.until] + [later(now, each.delta) for each in retries]
        message = _summary([each.message for each in waits] + [each.message for each in retries])
        return Wait(waits[0].reason, message, min(instants, default=None))
    if retries:
        message = _summary([each.message for each in retries])
        return RetryAfter(min(each.delta for each in retries), retries[0].reason, message)
    return Release()


def _summary(messages: list[str]) -> str:
    return messages[0] if len(messages) == 1 else f"{messages[0]} (and {len(messages) - 1} more)"


def _named(owners: list[OwnerReference]) -> str:
    return joined(sorted(f"{each.kind} {each.name}" for each in owners))


# The page


def table() -> tuple[tuple[str, ...], ...]:
    """The decision table of this module as cells, the head first: number, owner, asked, dependent, verdict, steps."""
    lines = [line.strip().strip("|") for line in (__doc__ or "").splitlines() if line.startswith("|")]
    rows: list[list[str]] = []
    for cells in ([cell.strip() for cell in line.split("|")] for line in lines if not line.startswith("-")):
        if cells[0]:
            rows.append(cells)
        else:
            rows[-1] = [f"{above} {below}".strip() for above, below in zip(rows[-1], cells, strict=True)]
    return tuple(tuple(row) for row in rows)


def render_table() -> str:
    """The decision table in Markdown, as it stands in ``docs/protection.md``."""
    head, *rows = ("| " + " | ".join(cells) + " |" for cells in table())
    return "\n".join([head, "|" + "---|" * len(table()[0]), *rows])
