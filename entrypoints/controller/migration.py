"""The migration: at start, every live Backup loses the finalizer of old Ark releases, and no other.

The key is a Backup's name; there are keys only while a Backup carries the finalizer, so an unharmed cluster costs one
list (of metadata) and no write. A Backup that was changed since it was read is read again.

Guarantee: one Backup's trouble does not stop the others. Not guaranteed: that nobody puts the finalizer on again; the
next resync finds it.
"""

from __future__ import annotations

from datetime import datetime

import structlog
from attrs import frozen

from reprieve.core.backups import Backup
from reprieve.core.migration import migrate
from reprieve.core.outcomes import Done
from reprieve.core.ports import Cluster
from reprieve.core.reasons import Reason, Verdict
from reprieve.core.records import OLD_FINALIZER
from reprieve.core.steps import RemoveFinalizer, StepResult, merge_patch
from reprieve.entrypoints.controller.decisions import Decision, Result
from reprieve.entrypoints.controller.gathering import BackupReader
from reprieve.entrypoints.controller.runtime import Watch

NAME = "migration"
log = structlog.get_logger()


@frozen
class MigrationReconciler:
    """Takes the old finalizer off. A key is the name of a Backup that carries it."""

    reader: BackupReader
    cluster: Cluster

    name: str = NAME

    def keys(self) -> list[str]:
        """The Backups that carry the old finalizer, by one list of metadata."""
        return [step.ref.name for step in migrate(self.reader.backups(metadata_only=True))]

    def watches(self) -> list[Watch]:
        """Nothing is waited for: the finalizer belongs to releases that nobody runs any more."""
        return []

    def reconcile(self, key: str, *, now: datetime, apply: bool = True) -> Result:  # noqa: ARG002 - a step of no time
        """Take the finalizer off one Backup, read live. Raises core errors; ``ConflictError``: read again."""
        backup = self.reader.backup(key)
        steps = migrate([backup]) if isinstance(backup, Backup) else ()
        if not steps:
            return Result()
        (step,) = steps
        if not apply:
            return Result((_decision(step, step),))
        self.cluster.patch(step.ref, merge_patch(step), resource_version=step.resource_version)
        log.info("finalizer removed", controller=NAME, backup=key, finalizer=OLD_FINALIZER)
        return Result((_decision(step, StepResult(step, Done())),), changed=True)


def _decision(step: RemoveFinalizer, shown: RemoveFinalizer | StepResult) -> Decision:
    others = ", ".join(step.finalizers) or "none"
    message = f"the finalizer {OLD_FINALIZER} of old Ark releases is taken off; others, which stay: {others}"
    return Decision(
        NAME, step.ref, Verdict.KEEP, Reason.OLD_FINALIZER, message, (shown,), subject=step.ref.name, changes=True
    )
