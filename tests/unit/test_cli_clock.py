"""The time of a command: the real one at its start, or the one that it was told."""

from datetime import UTC, datetime

from freezegun import freeze_time

from reprieve.entrypoints.cli.options import Target

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def target(at=None):
    """A target that nothing is said about but the time."""
    return Target(local=None, kubeconfig=None, context="", config=None, namespace="", at=at)


def test_without_a_time_it_is_now():
    """A cluster has its own clock, and the command asks this machine's."""
    with freeze_time("2026-03-01T12:00:00Z"):
        assert target().now == AT


def test_a_time_that_is_told_stands_still():
    """With ``--now``, whatever this machine's clock says."""
    with freeze_time("2030-01-01T00:00:00Z"):
        assert target(AT).now == AT
