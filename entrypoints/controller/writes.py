"""Carrying out steps on objects of the cluster, one at a time, and telling what each left behind.

Guarantee: a step that was begun has an outcome, and nothing raises; what a write leaves behind is told to ``notes``, so
that a cache is not behind its own process. An object that is not there any more is ``AlreadyGone``, for patches too:
what was to be taken off it is off. Not guaranteed: that a step is still right; its preconditions see to that.
"""

from __future__ import annotations

from typing import Protocol

from attrs import frozen

from reprieve.core.errors import NotFoundError, ReprieveError
from reprieve.core.objects import ObjectRef, Resource
from reprieve.core.outcomes import Done, Outcome, Pending, is_gone, outcome_of
from reprieve.core.ports import Cluster
from reprieve.core.steps import DeleteObject, Patch, RemoveFinalizer, StepResult, merge_patch

ObjectStep = DeleteObject | Patch


class Notes(Protocol):
    """Who is told what a write left behind."""

    def note(self, resource: Resource) -> None:
        """Know the object as it now stands."""
        ...

    def gone(self, ref: ObjectRef) -> None:
        """Know that the object is not there any more."""
        ...

    def doubt(self, ref: ObjectRef) -> None:
        """Know that what was known of the object no longer counts."""
        ...


class NoNotes:
    """Nobody is told."""

    def note(self, resource: Resource) -> None:
        """Do nothing."""

    def gone(self, ref: ObjectRef) -> None:
        """Do nothing."""

    def doubt(self, ref: ObjectRef) -> None:
        """Do nothing."""


@frozen
class Writer:
    """Carries out steps on objects."""

    cluster: Cluster
    notes: Notes

    def carry_out(self, step: ObjectStep) -> StepResult:
        """Carry out one step."""
        try:
            outcome = self._delete(step) if isinstance(step, DeleteObject) else self._patch(step)
        except ReprieveError as fault:
            outcome = outcome_of(fault)
        self._tell(step.ref, outcome, ends=isinstance(step, DeleteObject))
        return StepResult(step, outcome)

    def _delete(self, step: DeleteObject) -> Outcome:
        return self.cluster.delete(step.ref, resource_version=step.resource_version)

    def _patch(self, step: Patch) -> Outcome:
        left = self.cluster.patch(step.ref, merge_patch(step), resource_version=step.resource_version)
        if isinstance(step, RemoveFinalizer):  # it may be gone with it: the next look tells
            self.notes.doubt(step.ref)
        else:
            self.notes.note(Resource(step.ref.type, left.meta))
        return Done()

    def _tell(self, ref: ObjectRef, outcome: Outcome, *, ends: bool) -> None:
        if isinstance(outcome, Done) and not ends:
            return
        if is_gone(outcome):
            self.notes.gone(ref)
        elif isinstance(outcome, Pending):
            self._look_again(ref)
        else:
            self.notes.doubt(ref)

    def _look_again(self, ref: ObjectRef) -> None:
        """Know the object with its deletion timestamp."""
        try:
            self.notes.note(self.cluster.get(ref, metadata_only=True))
        except NotFoundError:
            self.notes.gone(ref)
        except ReprieveError:
            self.notes.doubt(ref)
