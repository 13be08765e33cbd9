"""Metrics of the controllers, in the Prometheus format, in a registry of their own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from reprieve.core.steps import StepResult
from reprieve.entrypoints.controller.decisions import Result


class Metrics:
    """Counts decisions, effects and failures; holds the number of objects that wait."""

    def __init__(self) -> None:
        """Register everything at zero."""
        self.registry = CollectorRegistry()
        self._decisions = Counter(
            "reprieve_decisions", "Decisions.", ["controller", "verdict", "reason"], registry=self.registry
        )
        self._effects = Counter(
            "reprieve_effects", "Effects carried out.", ["controller", "step", "outcome"], registry=self.registry
        )
        self._failures = Counter(
            "reprieve_reconcile_failures", "Reconciles that failed.", ["controller", "error"], registry=self.registry
        )
        self._last = Gauge(
            "reprieve_last_reconcile_timestamp_seconds",
            "When a reconcile last ended well.",
            ["controller"],
            registry=self.registry,
        )

    def observe(self, controller: str, outcome: Result | BaseException) -> None:
        """Count what one reconcile came to."""
        if isinstance(outcome, BaseException):
            self._failures.labels(controller, type(outcome).__name__).inc()
            return
        self._last.labels(controller).set_to_current_time()
        for decision in outcome.decisions:
            self._decisions.labels(controller, decision.verdict.value, decision.reason.value).inc()
            self._count(controller, [step for step in decision.steps if isinstance(step, StepResult)])

    def _count(self, controller: str, results: list[StepResult]) -> None:
        for result in results:
            self._effects.labels(controller, type(result.step).__name__, type(result.outcome).__name__).inc()

    def text(self) -> bytes:
        """The metrics as Prometheus reads them."""
        return generate_latest(self.registry)
