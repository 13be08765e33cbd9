"""The error tables as data: how a rule is read, and what holds for every table."""

from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import HTTPClientError
from hypothesis import given
from hypothesis import strategies as st

from reprieve.adapters.cloud import aws, azure, gcp
from reprieve.adapters.cloud.known import remember
from reprieve.adapters.cloud.tables import Fault, Rule, build_error, error_for, outcome, pause, translated
from reprieve.core.errors import (
    DeniedError,
    InUseError,
    LockedError,
    NotFoundError,
    ReprieveError,
    ThrottledError,
    UnavailableError,
    UnknownError,
)
from reprieve.core.outcomes import AlreadyGone, Done, InUse, Pending, Unknown, is_gone, outcome_of

TABLES = pytest.mark.parametrize("table", [aws.ERRORS, gcp.ERRORS, azure.ERRORS], ids=["aws", "gcp", "azure"])
READERS = pytest.mark.parametrize(
    "read", [aws.read_fault, gcp.read_fault, azure.read_fault], ids=["aws", "gcp", "azure"]
)


@pytest.mark.parametrize(
    ("rule", "fault", "fits"),
    [
        pytest.param(Rule(InUseError, codes=("InUse",)), Fault(code="inuse"), True, id="code without regard to case"),
        pytest.param(Rule(InUseError, codes=("InUse",)), Fault(code="NotInUse"), False, id="the whole code"),
        pytest.param(Rule(InUseError, codes=("A", "B")), Fault(code="B"), True, id="any of the codes"),
        pytest.param(Rule(InUseError, statuses=(409,)), Fault(status=409), True, id="status"),
        pytest.param(
            Rule(InUseError, statuses=(409,), codes=("X",)), Fault(status=409), False, id="every part must hold"
        ),
        pytest.param(
            Rule(InUseError, exceptions=("Timeout",)), Fault(classes=("Read", "Timeout")), True, id="a base class"
        ),
        pytest.param(Rule(InUseError, words="in use"), Fault(message="It is in use."), True, id="words in the message"),
        pytest.param(Rule(InUseError, words="in use"), Fault(), False, id="no message"),
    ],
)
def test_a_rule_fits_when_all_of_its_parts_do(rule, fault, fits):
    assert rule.fits(fault) is fits


def test_the_first_rule_that_fits_counts():
    table = (Rule(InUseError, codes=("X",)), Rule(DeniedError, statuses=(400,)))

    assert error_for(Fault(status=400, code="X"), table) is InUseError
    assert error_for(Fault(status=400, code="Y"), table) is DeniedError
    assert error_for(Fault(status=401, code="Y"), table) is UnknownError


def test_an_error_says_what_was_tried_and_what_was_said():
    fault = Fault(classes=("ClientError",), status=400, code="InUse", message="by  an\nimage")

    assert str(build_error(fault, (Rule(InUseError),), what="deleting snapshot s")) == (
        "deleting snapshot s: InUse, HTTP 400: by an image"
    )


def test_an_endless_message_is_cut():
    assert len(str(build_error(Fault(message="x" * 10_000), (), what="w"))) < 1000


def test_a_pause_and_a_date_come_along():
    until, after = datetime(2030, 1, 1, tzinfo=UTC), timedelta(seconds=3)

    locked = build_error(Fault(until=until), (Rule(LockedError),), what="w")
    throttled = build_error(Fault(after=after), (Rule(ThrottledError),), what="w")
    unavailable = build_error(Fault(after=after), (Rule(UnavailableError),), what="w")

    assert isinstance(locked, LockedError)
    assert locked.until == until
    assert isinstance(throttled, ThrottledError)
    assert throttled.after == after
    assert isinstance(unavailable, UnavailableError)
    assert unavailable.after == after


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        pytest.param("3", 3.0, id="seconds"),
        pytest.param("0.5", 0.5, id="half a second"),
        pytest.param(None, 0.0, id="none"),
        pytest.param("", 0.0, id="empty"),
        pytest.param("-1", 0.0, id="in the past"),
        pytest.param("Wed, 21 Oct 2026 07:28:00 GMT", 0.0, id="a date: the core's own back-off applies"),
        pytest.param("inf", 0.0, id="for ever"),
        pytest.param("nan", 0.0, id="no number"),
        pytest.param("999999999999", 3600.0, id="longer than an hour is an hour"),
    ],
)
def test_retry_after(header, expected):
    assert pause(header) == timedelta(seconds=expected)


def test_whatever_is_raised_leaves_as_a_core_error():
    with pytest.raises(UnknownError) as caught, translated(aws.read_fault, aws.ERRORS, what="w"):
        raise ZeroDivisionError("a bug of ours")

    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_core_error_passes_as_it_is():
    error = NotFoundError("gone")

    with pytest.raises(NotFoundError) as caught, translated(aws.read_fault, (Rule(DeniedError),), what="w"):
        raise error

    assert caught.value is error


def test_an_effect_becomes_an_outcome():
    def fails(error: ReprieveError):
        raise error

    assert outcome(lambda: None) == Done()
    assert outcome(Pending) == Pending()
    assert outcome(lambda: fails(NotFoundError("x"))) == AlreadyGone()
    assert outcome(lambda: fails(InUseError("x"))) == InUse("x")
    assert outcome(lambda: fails(UnknownError("x"))) == Unknown("x")


@TABLES
def test_no_rule_is_empty(table):
    """A rule without parts would fit everything after it."""
    assert [rule for rule in table if not (rule.exceptions or rule.statuses or rule.codes or rule.words)] == []


@TABLES
@pytest.mark.parametrize("status", range(200, 600))
def test_a_status_alone_is_never_gone(table, status):
    """A 404 of a proxy, a load balancer or a wrong endpoint says nothing about a snapshot."""
    assert not is_gone(outcome_of(build_error(Fault(status=status), table, what="w")))


@TABLES
@given(code=st.text(max_size=20), message=st.text(max_size=50), status=st.integers(0, 599))
def test_what_nobody_named_is_never_gone(table, code, message, status):
    fault = Fault(status=status, code=f"Unheard{code}", message=message)

    assert not is_gone(outcome_of(build_error(fault, table, what="w")))


@TABLES
@READERS
def test_nothing_at_all_is_unknown(table, read):
    assert error_for(read(Exception()), table) is UnknownError
    assert error_for(read(ValueError("invalid notFound ResourceNotFound")), table) is UnknownError


class PanicException(BaseException):
    """As a library in Rust raises it, beside ``Exception``."""


@READERS
def test_a_native_library_s_panic_is_unknown_and_ends_nothing(read):
    def effect():
        with translated(read, (Rule(DeniedError, statuses=(403,)),), what="deleting"):
            raise PanicException("called unwrap() on an Err value")

    assert outcome(effect) == Unknown("deleting: NativePanicError: PanicException: called unwrap() on an Err value")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_meant_to_stop_us_does(stop):
    with pytest.raises(stop), translated(aws.read_fault, (), what="deleting"):
        raise stop


SECRET = "a-secret-that-was-echoed-0123456789"


def raising(error):
    raise error


@pytest.mark.parametrize(
    "raised",
    [
        HTTPClientError(error=f"no {SECRET}"),
        PanicException(f"no {SECRET}"),
        LockedError(f"no {SECRET}", datetime(2030, 1, 1, tzinfo=UTC)),
        ThrottledError(f"no {SECRET[:20]}\n{SECRET[20:]}", timedelta(seconds=3)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_error_says_what_is_known_to_be_secret(raised):
    remember(SECRET)
    with pytest.raises(ReprieveError) as caught, translated(aws.read_fault, (), what="deleting"):
        raise raised

    assert str(caught.value).endswith("no [hidden]")
    assert getattr(caught.value, "until", None) == getattr(raised, "until", None)
    assert getattr(caught.value, "after", None) == getattr(raised, "after", None)


@pytest.mark.parametrize(
    "effect",
    [
        lambda: Pending(message=f"operation {SECRET} is running"),
        lambda: raising(DeniedError(f"operation {SECRET} is running")),
        lambda: raising(build_error(Fault(message=f"operation {SECRET} is running"), (), what="w")),
    ],
    ids=["outcome", "error", "an SDK's words"],
)
def test_no_outcome_says_what_is_known_to_be_secret(effect):
    remember(SECRET)

    assert "operation [hidden] is running" in outcome(effect).message


def test_a_secret_behind_the_cut_does_not_come_into_sight():
    """What is hidden makes room: the piece of a secret at the cut would be told else."""
    remember(SECRET)
    text = str(build_error(Fault(message=f"{SECRET} " * 1000), (), what="w"))

    assert SECRET[:12] not in text


def test_a_secret_that_is_a_word_is_hidden_in_a_provider_s_words_only():
    remember("orchid7")

    assert str(build_error(Fault(message="orchid7 is wrong"), (), what="orchid7")) == "orchid7: [hidden] is wrong"
