"""Controllers that run as they do in a cluster (workers, watches, timed requeues), over a namespace in memory."""

import threading
from contextlib import contextmanager

from attrs import evolve
from structlog.testing import capture_logs

from reprieve.core.errors import InvalidError
from reprieve.entrypoints.controller.serve import serve
from tests.unit.overtime import CountedCluster

PATIENCE = 60  # seconds until a test gives up; none waits that long when it passes


class Noticed(CountedCluster):
    """A cluster that wakes who waits after every write, and that takes no larger writes than an API server."""

    LARGEST = 1_500_000  # bytes: what etcd takes

    def __init__(self, cluster):
        super().__init__(cluster)
        self.changed = threading.Condition()
        self.refused = 0

    def _noticed(self, write, *arguments, **options):
        try:
            return write(*arguments, **options)
        finally:
            with self.changed:
                self.changed.notify_all()

    def create(self, manifest):
        return self._noticed(super().create, manifest)

    def patch(self, ref, patch, **options):
        if len(repr(patch)) > self.LARGEST:
            self.refused += 1
            raise InvalidError("etcdserver: request is too large")
        return self._noticed(super().patch, ref, patch, **options)

    def delete(self, ref, **options):
        return self._noticed(super().delete, ref, **options)

    def until(self, condition):
        """Wait until something holds after a write; tells whether it ever did."""
        with self.changed:
            return bool(self.changed.wait_for(condition, timeout=PATIENCE))


@contextmanager
def running(scene, *names):
    """Run controllers over a scene until the block ends. Their clock is the scene's own."""
    scene.cluster = Noticed(scene.cluster.cluster)
    with capture_logs():  # thousands of lines that nobody reads take longer than what is tested
        yield from _serving(scene, names)


def _serving(scene, names):
    world = evolve(scene.world, local=True)
    built = scene.build(*names)
    thread = threading.Thread(
        target=serve, args=(built, world), kwargs={"stop": scene.stop, "clock": lambda: scene.now}, daemon=True
    )
    thread.start()
    try:
        yield scene.cluster
    finally:
        scene.stop.set()
        thread.join(PATIENCE)
        built.close()
        assert not thread.is_alive()
        scene.stop = threading.Event()
