"""What each situation comes to in each call of an object store, as a table: the same for every store.

A situation is arranged in a store's own words (``contract_buckets`` has the many ways to get there), then every call is
made once. ``render`` puts the table into docs/buckets.md; run this module to write it anew.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from attrs import frozen

from reprieve.core.errors import ReprieveError
from reprieve.core.outcomes import is_gone
from reprieve.core.ports import ObjectStore
from tests.integration.buckets_http import IMPATIENCE, PLAIN_404
from tests.integration.cloud_http import GARBAGE, Answer

KEY, ANOTHER = "backups/a/file", "backups/b/file"
OFTEN = 99
Opener = Callable[[], ObjectStore]


def read(store: ObjectStore, key: str) -> str:
    store.read(key, limit=10)
    return "the file"


def list_all(store: ObjectStore, key: str) -> str:
    directory = f"{key.rpartition('/')[0]}/"
    return "its key" if key in [info.key for info in store.list(directory)] else "nothing"


def write(store: ObjectStore, key: str) -> str:
    store.write(key, b"x")
    return "written"


def delete(store: ObjectStore, key: str) -> str:
    outcome = store.delete([key])[key]
    return "`Done` or `AlreadyGone`" if is_gone(outcome) else f"`{type(outcome).__name__}`"


CALLS: Mapping[str, Callable[[ObjectStore, str], str]] = {
    "read": read,
    "list": list_all,
    "write": write,
    "delete": delete,
}


@frozen
class Situation:
    """``arrange`` brings a store's double into it and gives what opens the store.

    ``expected``: by call; a call that is not named is not made. ``remote``: only over a network.
    """

    name: str
    arrange: Callable[[Any], Opener]
    expected: Mapping[str, str]
    key: str = KEY
    remote: bool = True

    def seen(self, cloud: Any) -> dict[str, str]:
        opener = self.arrange(cloud)
        return {call: seen(CALLS[call], opener(), self.key) for call in self.expected}


def seen(call: Callable[[ObjectStore, str], str], store: ObjectStore, key: str) -> str:
    try:
        return call(store, key)
    except ReprieveError as error:
        return f"`{type(error).__name__}`"


def as_it_is(cloud: Any) -> Opener:
    cloud.put(ANOTHER)
    return cloud.open


def present(cloud: Any) -> Opener:
    cloud.put(KEY)
    return as_it_is(cloud)


def too_large(cloud: Any) -> Opener:
    cloud.put(KEY, b"x" * 11)
    return as_it_is(cloud)


def no_bucket(cloud: Any) -> Opener:
    return partial(cloud.open, "gone")


def locked(cloud: Any) -> Opener:
    cloud.lock(KEY)
    return present(cloud)


def denied_for_the_key(cloud: Any) -> Opener:
    cloud.deny(KEY)
    return present(cloud)


def answered(answer: str | Answer) -> Callable[[Any], Opener]:
    """Every call gets this answer, or the store's own words for it."""

    def arrange(cloud: Any) -> Opener:
        cloud.faults.next(cloud.answers[answer] if isinstance(answer, str) else answer, times=OFTEN)
        return present(cloud)

    return arrange


def down(cloud: Any) -> Opener:
    opener = present(cloud)
    cloud.server.close()
    return opener


def hanging(cloud: Any) -> Opener:
    present(cloud)
    cloud.faults.hanging.set()
    return partial(cloud.open, timeout=IMPATIENCE)


def all_calls(error: str, outcome: str) -> dict[str, str]:
    return dict.fromkeys(("read", "list", "write"), f"`{error}`") | {"delete": f"`{outcome}`"}


GONE = "`Done` or `AlreadyGone`"
SITUATIONS = (
    Situation(
        "the file is there",
        present,
        {"read": "the file", "list": "its key", "write": "written", "delete": GONE},
        remote=False,
    ),
    Situation(
        "the file is missing",
        as_it_is,
        {"read": "`NotFoundError`", "list": "nothing", "delete": GONE, "write": "written"},
        remote=False,
    ),
    Situation("the bucket is missing", no_bucket, all_calls("ContainerMissingError", "ContainerMissing"), remote=False),
    Situation(
        "the key cannot be named", as_it_is, all_calls("InvalidError", "Invalid"), key="backups/../a/file", remote=False
    ),
    Situation(
        "the file is larger than the limit",
        too_large,
        {"read": "`InvalidError`", "list": "its key", "delete": GONE},
        remote=False,
    ),
    Situation("the file is locked", locked, {"read": "the file", "list": "its key", "delete": "`Locked`"}),
    Situation(
        "this file may not be deleted",
        denied_for_the_key,
        {"read": "the file", "list": "its key", "delete": "`Denied`"},
    ),
    Situation("the credential may not", answered("denied"), all_calls("DeniedError", "Denied")),
    Situation("the credential is not valid", answered("unauthenticated"), all_calls("DeniedError", "Denied")),
    Situation("throttled", answered("throttled"), all_calls("ThrottledError", "Retryable")),
    Situation("the server fails", answered("broken"), all_calls("UnavailableError", "Retryable")),
    Situation("the server is down", down, all_calls("UnavailableError", "Retryable")),
    Situation("the server hangs", hanging, all_calls("UnavailableError", "Retryable")),
    Situation("a 404 that does not say of what", answered(PLAIN_404), all_calls("UnknownError", "Unknown")),
    Situation("a proxy's page with status 200", answered(GARBAGE), {"list": "`UnknownError`", "delete": "`Unknown`"}),
)

START, END = "<!-- outcomes: python -m tests.integration.buckets_table -->", "<!-- end of outcomes -->"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "buckets.md"


def table() -> str:
    head = [f"| situation | {' | '.join(CALLS)} | stores |", "|---" * (len(CALLS) + 2) + "|"]
    return "\n".join([*head, *map(row, SITUATIONS)])


def row(situation: Situation) -> str:
    cells = [situation.expected.get(call, "") for call in CALLS]
    return f"| {situation.name} | {' | '.join(cells)} | {'over a network' if situation.remote else 'all'} |"


def render(page: str) -> str:
    """The page with the table as it is now. Raises ``ValueError`` when its two marks are not there."""
    before, _, rest = page.partition(START)
    _, mark, after = rest.partition(END)
    if not mark:
        message = f"{PAGE.name} lacks the marks {START} and {END}"
        raise ValueError(message)
    return f"{before}{START}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
