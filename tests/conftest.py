"""What all tests share: the same examples everywhere, the last limit of time, a way to tell something at the end."""

import faulthandler
import os
import signal

import hypothesis
import pytest
import structlog

# The same examples on every machine and no timed assertion; raise max_examples by hand to search further.
hypothesis.settings.register_profile("gate", deadline=None, database=None, derandomize=True, max_examples=100)
hypothesis.settings.load_profile("gate")

# Time limits. `timeout` in pyproject.toml fails a test that takes too long, by a signal; the run goes on. A signal does
# not reach what waits inside a native library or holds the interpreter's lock, and that limit is lifted once a test has
# failed, when its clean-up may still wait for ever. So each phase of a test (set-up, call, clean-up) has a second one,
# kept by a thread that needs no interpreter: it prints every stack and ends the process. Under xdist that test has
# failed then, and a new worker takes the rest.
GRACE = 60  # seconds
STANDARD_ERROR = pytest.StashKey()


def pytest_configure(config):
    """Remember standard error before it is captured."""
    config.stash[STANDARD_ERROR] = os.dup(2)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item):
    return (yield from within_the_last_limit(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    return (yield from within_the_last_limit(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    return (yield from within_the_last_limit(item))


def within_the_last_limit(item):
    """Let a phase run; far above the test's own limit, end the process."""
    own, asked = item.get_closest_marker("timeout"), item.config.getoption("timeout")
    limit = own.args[0] if own else float(item.config.getini("timeout") if asked is None else asked)
    if limit > 0:  # --timeout 0 takes both limits off
        faulthandler.dump_traceback_later(limit + GRACE, file=item.config.stash[STANDARD_ERROR], exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def logs():
    """A command sets the level of the logs for its process; the next test finds them as they are from the start."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def interruptible():
    """Children that are started meanwhile end at SIGINT.

    Under ``nohup``, and as a background job of a script, SIGINT is ignored. Children inherit that, and so would a child
    that a test interrupts: it went on, and the test waited for ever.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


TOLD = "told"


@pytest.fixture
def tell(record_property):
    """Say something at the end of the run; it gets there from any worker."""
    return lambda text: record_property(TOLD, text)


def pytest_terminal_summary(terminalreporter):
    """Print what the tests that passed had to say."""
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == TOLD:
                terminalreporter.write_line(f"{report.nodeid}\n{text}\n")
