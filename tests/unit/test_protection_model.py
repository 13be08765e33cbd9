"""Protection explored: every combination of owner, dependent, policy and propagation, run to its end on a small model.

The model applies one step a pass, which is a crash after every effect, and lets one thing happen between any two
effects. The garbage collector is not in it.
"""

import itertools
from datetime import UTC, datetime

from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.holds import Held, any_hold
from reprieve.core.objects import (
    ObjectKind,
    ObjectMeta,
    ObjectRef,
    OwnerReference,
    meta_from_json,
    meta_to_json,
)
from reprieve.core.protection import (
    HELD_DEPENDENTS,
    PROTECT,
    AbsentDependent,
    AbsentOwner,
    LiveOwner,
    Policy,
    PresentDependent,
    TerminatingOwner,
    UnknownDependent,
    UnknownOwner,
    Verb,
    decide,
    effective_policy,
    is_asked,
    refers_to,
)
from reprieve.core.reasons import Verdict
from reprieve.core.steps import DeleteObject, merge_patch

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
OWNER_KIND = ObjectKind("example.com/v1", "Database")
DEPENDENT_KIND = ObjectKind("v1", "Secret")
OURS = OwnerReference("example.com/v1", "Database", "db", "o1", controller=True)
OTHER = OwnerReference("example.com/v1", "Database", "other", "o2")
HOLD = {"reprieve.dev/hold": "audit"}
MARK = "reprieve.dev/deletion-requested"
RECORDED = {"reprieve.dev/orphaned-from": "o1/d1"}
NAMED = {HELD_DEPENDENTS: '{"owner":"o1","dependents":["d1"]}'}

POLICIES = [Policy(*verbs) for verbs in itertools.product(Verb, Verb)]
PROPAGATIONS = {"Background": (), "Foreground": ("foregroundDeletion",), "Orphan": ("orphan",)}
MARKERS_AND_HOLDS = [{}, {MARK: "o1"}, {MARK: "o9"}, HOLD, {MARK: "o1"} | HOLD, {MARK: "o1"} | NAMED, NAMED]

OWNERS = [
    ObjectMeta("db", "shop", "o1", "1", finalizers=finalizers, annotations=annotations, deleted=deleted)
    for guarded, annotations in itertools.product([(), (PROTECT,)], MARKERS_AND_HOLDS)
    for finalizers, deleted in [
        (guarded, None),
        *((guarded + extra, NOW) for extra in PROPAGATIONS.values() if guarded + extra),
    ]
]


def secret(*owners, annotations=None, namespace="shop", **meta):
    return ObjectMeta("key", namespace, "d1", "1", owners=owners, annotations=annotations or {}, **meta)


DEPENDENTS = {
    "absent": None,
    "ours": secret(OURS),
    "held": secret(OURS, annotations=HOLD),
    "foreign": secret(OTHER),
    "shared": secret(OURS, OTHER),
    "elsewhere": secret(OURS, namespace="attic"),
    "elsewhere-and-held": secret(OURS, namespace="attic", annotations=HOLD | RECORDED),
    "elsewhere-and-terminating": secret(OURS, namespace="attic", deleted=NOW, finalizers=["x"]),
    "orphaned": secret(annotations=RECORDED),
    "orphaned-and-held": secret(annotations=RECORDED | HOLD),
    "copied-record": secret(annotations={"reprieve.dev/orphaned-from": "o1/d9"}),
    "terminating": secret(OURS, deleted=NOW, finalizers=["x"]),
    "says-orphan": secret(OURS, annotations={"reprieve.dev/on-request": "Orphan", "reprieve.dev/otherwise": "Orphan"}),
}


@frozen
class World:
    """An owner and its dependent; None: not there. An unreadable dependent is there, but nobody can tell."""

    owner: ObjectMeta | None
    dependent: ObjectMeta | None
    readable: bool = True


def observe(world):
    place = world.dependent.namespace if world.dependent else "shop"  # where its reference looks for the owner
    owner = AbsentOwner(ObjectRef("example.com/v1", "Database", "db", place, "o1"))
    if world.owner:
        owner = (TerminatingOwner if world.owner.terminating else LiveOwner)(OWNER_KIND, world.owner)
    if not world.readable:
        return owner, UnknownDependent(ObjectRef("v1", "Secret", "key", "shop"), "not answered")
    if world.dependent is None:
        return owner, AbsentDependent(ObjectRef("v1", "Secret", "key", "shop"))
    return owner, PresentDependent(DEPENDENT_KIND, world.dependent)


def carry_out(world, step):
    """Apply one step, as an API server would with its preconditions met."""
    name = "owner" if step.ref.kind == "Database" else "dependent"
    meta = getattr(world, name)
    assert (step.ref.uid, step.resource_version) == (meta.uid, meta.resource_version)
    if isinstance(step, DeleteObject):
        meta = evolve(meta, deleted=meta.deleted or NOW)
    else:
        meta = meta_from_json(merged(meta_to_json(meta), merge_patch(step)["metadata"]))
    meta = evolve(meta, resource_version=str(int(meta.resource_version) + 1))
    return evolve(world, **{name: None if meta.terminating and not meta.finalizers else meta})


def merged(document, patch):
    result = dict(document)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key, {}), value) if isinstance(value, dict) else value
    return result


def deletion_allowed(world, policy):
    """Written from the invariants, not from the table."""
    owner, dependent = world.owner, world.dependent
    verbs = effective_policy(policy, {}, owner.annotations, dependent.annotations)
    held = isinstance(any_hold([owner.annotations, dependent.annotations], now=NOW), Held)
    wanted = verbs.on_request if is_asked(owner) else verbs.otherwise
    shared = any(each.uid != owner.uid for each in dependent.owners)
    allowed = owner.terminating and wanted is Verb.DELETE and not held and "orphan" not in owner.finalizers
    return allowed and not shared and is_dependent(world)


def is_dependent(world):
    """Written from the invariants: in the owner's namespace; it refers to the owner, or both say that it was ours."""
    owner, dependent = world.owner, world.dependent
    agreed = RECORDED.items() <= dependent.annotations.items() and NAMED.items() <= owner.annotations.items()
    return dependent.namespace == "shop" and (refers_to(dependent, "o1") or agreed)


def settle(world, policy):
    """Decide and apply one step, again and again, until there is nothing to do. Gives every world on the way."""
    seen = [world]
    for _ in range(10):
        step = first_step(seen[-1], policy)
        if step is None:
            return seen
        seen.append(carry_out(seen[-1], step))
    raise AssertionError(f"it never settles: {world}")


def first_step(world, policy):
    owner, dependent = observe(world)
    steps = decide(owner, [dependent], policy, now=NOW).steps
    if steps and isinstance(steps[0], DeleteObject):
        assert world.readable
        assert deletion_allowed(world, policy) if steps[0].ref.kind == "Secret" else is_asked(world.owner)
    return steps[0] if steps else None


def every_start():
    for owner, dependent, readable in itertools.product([*OWNERS, None], DEPENDENTS.values(), [True, False]):
        yield World(owner, dependent, readable)


# What people, trackers and a bad connection may do between any two effects


def on_owner(change):
    return lambda world: evolve(world, owner=world.owner and written(world.owner, change(world.owner)))


def on_dependent(change):
    return lambda world: evolve(world, dependent=world.dependent and written(world.dependent, change(world.dependent)))


def annotated(added):
    return lambda meta: evolve(meta, annotations={**meta.annotations, **added})


def without(key):
    return lambda meta: evolve(meta, annotations={k: v for k, v in meta.annotations.items() if k != key})


def referring_to(reference):
    return lambda meta: evolve(meta, owners=sorted({*meta.owners, reference}))


def written(before, after):
    return before if after == before else evolve(after, resource_version=str(int(after.resource_version) + 1))


def untouched(world):
    return world


EVENTS = {
    "nothing": untouched,
    "owner-asked": on_owner(annotated({MARK: "o1"})),
    "owner-unasked": on_owner(without(MARK)),
    "owner-held": on_owner(annotated(HOLD)),
    "owner-free": on_owner(without("reprieve.dev/hold")),
    "owner-deleted": on_owner(lambda meta: evolve(meta, deleted=NOW) if meta.finalizers else meta),
    "owner-vanished": lambda world: evolve(world, owner=None),
    "dependent-held": on_dependent(annotated(HOLD)),
    "dependent-free": on_dependent(without("reprieve.dev/hold")),
    "dependent-gone": lambda world: evolve(world, dependent=None),
    "dependent-says-it-was-ours": on_dependent(annotated(RECORDED)),
    "re-created": lambda world: evolve(world, dependent=secret(OURS)),
    "re-added": on_dependent(referring_to(OURS)),
    "adopted": on_dependent(referring_to(OTHER)),
    "unreadable": lambda world: evolve(world, readable=False),
    "readable": lambda world: evolve(world, readable=True),
}


def test_every_start_comes_to_its_end_whatever_happens_once():
    """Each run settles; a terminating owner is released unless something is held, unknown, or still going."""
    states, runs = set(), 0
    for start, policy in itertools.product(every_start(), POLICIES):
        for before, event in itertools.product(
            settle(start, policy), EVENTS.values() if start.readable else [untouched]
        ):
            after = event(before)
            if (after, policy) not in states:
                states.update((each, policy) for each in settle(after, policy))
                runs += 1

    print(f"{runs} runs, {len(states)} states")  # noqa: T201 - how much was explored
    for world, policy in states:
        check_rest(world, policy)
    assert len(states) > len(OWNERS) * len(DEPENDENTS) * len(POLICIES)


def check_rest(world, policy):
    """Where there is nothing more to do, nothing of ours is left, or it is left for a reason."""
    if first_step(world, policy) is not None:
        return
    owner, dependent = world.owner, world.dependent
    clean = dependent is None or dependent.terminating or not refers_to(dependent, "o1")
    if owner is None or (owner.terminating and PROTECT not in owner.finalizers):
        assert clean or not world.readable or (owner is not None and not is_dependent(world))
    elif owner.terminating:
        assert not world.readable or (is_dependent(world) and (dependent.terminating or is_held(world)))
    else:
        assert PROTECT in owner.finalizers
        assert not is_asked(owner) or not world.readable or is_held(world)


def is_held(world):
    metas = [world.owner] + [world.dependent] * (world.dependent is not None and is_dependent(world))
    return isinstance(any_hold([meta.annotations for meta in metas], now=NOW), Held)


def test_foreign_dependents_and_foreign_parts_stay_as_they_are():
    far = [name for name in DEPENDENTS if name.startswith("elsewhere")]
    for owner, name, policy in itertools.product(OWNERS, far, POLICIES):
        end = settle(World(owner, DEPENDENTS[name]), policy)[-1]

        assert end.dependent.deleted == DEPENDENTS[name].deleted
        assert end.owner is None or end.dependent == DEPENDENTS[name]
    for owner, name, policy in itertools.product([*OWNERS, None], ["foreign", "shared", "copied-record"], POLICIES):
        end = settle(World(owner, DEPENDENTS[name]), policy)[-1]

        assert set(end.dependent.owners) - {OURS} == set(DEPENDENTS[name].owners) - {OURS}
        assert name == "shared" or end.dependent == DEPENDENTS[name]


def test_keep_everything_deletes_no_dependent():
    for start in every_start():
        end = settle(start, Policy(Verb.ORPHAN, Verb.ORPHAN))[-1]

        assert (end.dependent is None) == (start.dependent is None)


def test_without_a_request_or_an_opt_in_no_dependent_goes():
    for start, on_request in itertools.product(every_start(), Verb):
        if start.owner is None or not is_asked(start.owner):
            end = settle(start, Policy(on_request, Verb.ORPHAN))[-1]

            assert (end.dependent is None) == (start.dependent is None)


# Invariants over many dependents at once

annotations = st.sampled_from([{}, HOLD, {"reprieve.dev/on-request": "Delete"}, {"reprieve.dev/otherwise": "Delete"}])
references = st.lists(st.sampled_from([OURS, OTHER]), unique=True, max_size=2)


@st.composite
def facts(draw, index):
    name, uid = f"s{index}", f"d{index}"
    ref = ObjectRef("v1", "Secret", name, "shop")
    record = draw(st.sampled_from([{}, {"reprieve.dev/orphaned-from": f"o1/{uid}"}]))
    meta = ObjectMeta(
        name,
        draw(st.sampled_from(["shop", "shop", "shop", "attic", ""])),
        uid,
        "1",
        owners=draw(references),
        annotations=draw(annotations) | record,
        deleted=draw(st.sampled_from([None, NOW])),
    )
    present = PresentDependent(
        DEPENDENT_KIND,
        meta,
        absent_owners=draw(st.sampled_from([set(), {"o2"}])),
        recreated=draw(st.integers(0, 4)),
        protected=draw(st.booleans()),
    )
    return draw(st.sampled_from([present, present, AbsentDependent(ref), UnknownDependent(ref, "not answered")]))


@st.composite
def owners(draw):
    meta = draw(st.sampled_from(OWNERS))
    known = (TerminatingOwner if meta.terminating else LiveOwner)(OWNER_KIND, meta)
    ref = known.ref
    return draw(st.sampled_from([known, known, known, AbsentOwner(ref), UnknownOwner(ref, "timeout")]))


policies = st.builds(Policy, st.sampled_from(Verb), st.sampled_from(Verb), st.booleans())
several = st.integers(0, 4).flatmap(lambda count: st.tuples(*(facts(index) for index in range(count))))


@given(owners(), several, policies, st.randoms(use_true_random=False))
def test_the_order_of_the_dependents_does_not_matter(owner, dependents, policy, random):
    shuffled = random.sample(dependents, len(dependents))

    assert decide(owner, shuffled, policy, now=NOW) == decide(owner, dependents, policy, now=NOW)


@given(owners(), several, policies)
def test_deletion_needs_a_request_or_an_opt_in_and_no_hold(owner, dependents, policy):
    decision = decide(owner, dependents, policy, now=NOW)

    doomed = {each.ref for each in decision.dependents if each.verdict is Verdict.DELETE}
    doomed |= {step.ref for step in decision.steps if isinstance(step, DeleteObject) and step.ref.kind == "Secret"}
    for dependent in (each for each in dependents if each.ref in doomed):
        assert isinstance(owner, LiveOwner | TerminatingOwner)
        assert isinstance(dependent, PresentDependent)
        assert dependent.meta.namespace == "shop"
        assert refers_to(dependent.meta, "o1") or NAMED.items() <= owner.meta.annotations.items()
        verbs = effective_policy(policy, {}, owner.meta.annotations, dependent.meta.annotations)
        assert (verbs.on_request if is_asked(owner.meta) else verbs.otherwise) is Verb.DELETE
        assert not isinstance(any_hold([owner.meta.annotations, dependent.meta.annotations], now=NOW), Held)


@given(owners(), several, policies)
def test_a_held_or_unknown_thing_keeps_an_asked_owner_from_being_deleted(owner, dependents, policy):
    decision = decide(owner, dependents, policy, now=NOW)

    if DeleteObject(owner.ref, "1") in decision.steps:
        assert isinstance(owner, LiveOwner)
        assert is_asked(owner.meta)
        assert not any(isinstance(each, UnknownDependent) for each in dependents)
        mine = [each.meta for each in dependents if isinstance(each, PresentDependent) and refers_to(each.meta, "o1")]
        metas = [owner.meta, *(meta for meta in mine if meta.namespace == "shop")]
        assert not isinstance(any_hold([meta.annotations for meta in metas], now=NOW), Held)


@given(owners(), several, policies)
def test_every_verdict_has_a_reason_and_a_sentence(owner, dependents, policy):
    decision = decide(owner, dependents, policy, now=NOW)

    assert len(decision.dependents) == len(dependents)
    assert all(each.reason and each.message for each in decision.dependents)
