"""How much a deletion says of what went wrong is not up to what went wrong."""

import json

from reprieve.core.outcomes import InUse
from tests.security.at_work import running
from tests.unit.overtime import record
from tests.unit.test_deletion_controller import Scene, ask

SNAPSHOTS = tuple(f"snap-{number:05}" for number in range(20_000))


def test_twenty_thousand_errors_are_told_in_a_status_that_can_be_written():
    """20,000 snapshots of one backup failed at once: the status that named them all was larger than etcd takes.

    The write failed, so nobody learnt of any of them, no attempt was counted, and all 20,000 were asked for again at
    once, and again. An honest neighbour is deleted meanwhile.
    """
    scene = Scene(ask("ask"), record("weekly"), ask("neighbour", uid="", backup="weekly"), snapshots=SNAPSHOTS)
    scene.snapshots.outcomes = {each: [InUse("an image uses it")] * 3 for each in SNAPSHOTS}
    with running(scene, "deletion") as cluster:
        assert cluster.until(lambda: scene.request()[1] and "weekly" not in scene.names())
    phase, errors, state = scene.request()
    assert cluster.refused == 0
    assert (phase, state["attempts"], state["reason"]) == ("InProgress", 1, "Retrying")
    assert (len(errors), errors[-1]) == (20, "and 19981 more")
    assert len(json.dumps(errors)) < 32 * 1024
    assert len(scene.asked_for) == len(SNAPSHOTS), "a pause is a pause"
