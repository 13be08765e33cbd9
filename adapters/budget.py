"""One budget of memory for a process: whoever reads a stranger's document takes a share of it first, or waits.

::

    with account():                 # one for a document, from its first byte to the record that it is reduced to
        charge(len(data), what)     # adapters charge what they read and what they are about to build
                                    # everything is given back at the end

A charge is granted from what is free. When that does not do, one account at a time may go on with a reserve that is as
large as the largest account; the others wait for what ends. So some account can always go on to its end: nothing waits
for ever, in whatever order and pieces accounts grow.

Guarantee: all accounts together never hold more than the budget; an account that grows beyond the largest is refused
with a ``TooMuchError`` that names the limit. Not guaranteed: that memory is what is charged; costs are those measured
for the worst that a text of so many bytes and values can become.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from attrs import define

from reprieve.adapters.sizes import BUDGET, GIANT, KEPT, LARGEST, MIB, OBJECTS, PAGES, WAIT
from reprieve.core.errors import TooMuchError, UnavailableError
from reprieve.core.objects import ObjectMeta

# What things cost, in bytes; measured on 64 bits with Python 3.11

A_VALUE = 130  # of JSON: a key, its value, and its share of the dict or list that holds them
AN_ELEMENT = 90  # of XML, for each "<": an element has two, or one and is empty
AN_OBJECT = 600  # of a cluster: metadata with a name and nothing else
A_PAIR = 140  # a label or an annotation, besides its text
AN_OWNER = 230  # an owner reference
AN_ITEM = 450  # what a list's entry names: a core value of four texts
A_TEXT = 64  # a string, besides its characters


class Account:
    """What one reader holds. For the thread that opened it alone."""

    def __init__(self, budget: Budget) -> None:
        """Hold nothing."""
        self._budget = budget
        self.held = 0

    def charge(self, size: int, what: str) -> None:
        """Hold ``size`` bytes more for ``what``; waits for them. Raises ``TooMuchError``, ``UnavailableError``."""
        self._budget.grant(self, size, what)

    def settle(self, held: int) -> None:
        """Hold no more than that from now on: what was built on the way is gone."""
        self._budget.take_back(self, max(0, self.held - held))


class Budget:
    """The memory that all accounts share. ``clock`` gives seconds that only grow."""

    def __init__(
        self,
        total: int = BUDGET,
        *,
        largest: int = GIANT,
        wait: float = WAIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Have ``total`` bytes, of which ``largest``, the most that one account may hold, are the reserve."""
        self._free, self._reserve, self._largest = total - largest, largest, largest
        self._wait, self._clock = wait, clock
        self._privileged: Account | None = None
        self._changed = threading.Condition()

    def grant(self, account: Account, size: int, what: str) -> None:
        """Let an account hold ``size`` bytes more; see ``Account.charge``."""
        if account.held + size > self._largest:
            raise TooMuchError(
                f"{what}: reading it would take more than {self._largest // MIB} MiB of memory, "
                "the most that one reader may take: nothing is concluded from it"
            )
        with self._changed:
            until = self._clock() + self._wait
            while not self._granted(account, size):
                left = until - self._clock()
                if left <= 0 or not self._changed.wait(left):
                    raise UnavailableError(
                        f"{what}: not read, since others took all the memory that there is for documents "
                        f"for {self._wait:.0f} s"
                    )

    def _granted(self, account: Account, size: int) -> bool:
        if self._privileged is not account and size <= self._free:
            self._free -= size
        elif self._privileged is account:
            pass  # the reserve is as large as any account
        elif self._privileged is None:
            self._privileged = account
            self._free += account.held  # the reserve takes that over too
        else:
            return False
        account.held += size
        return True

    def take_back(self, account: Account, size: int) -> None:
        """Let an account hold ``size`` bytes less."""
        with self._changed:
            account.held -= size
            if self._privileged is not account:
                self._free += size
            elif account.held <= self._free:
                self._privileged, self._free = None, self._free - account.held
            self._changed.notify_all()


PROCESS = Budget()
_OPEN: ContextVar[Account | None] = ContextVar("account", default=None)


@contextmanager
def account(budget: Budget = PROCESS) -> Iterator[Account]:
    """Open an account for what is read inside; within another one it is that one. All is given back at the end."""
    outer = _OPEN.get()
    if outer is not None:
        yield outer
        return
    opened = Account(budget)
    token = _OPEN.set(opened)
    try:
        yield opened
    finally:
        _OPEN.reset(token)
        opened.settle(0)


def charge(size: int, what: str) -> None:
    """Charge the open account; does nothing where nobody opened one."""
    opened = _OPEN.get()
    if opened is not None:
        opened.charge(size, what)


def gather(chunks: Iterable[bytes], *, limit: int, refusal: bool, what: str) -> bytes:
    """Put an answer's body together, chunk by chunk. Raises ``TooMuchError`` beyond the limit.

    Of a refusal the start will do: it says why, and no more than the limit of it is taken. Whoever gives the chunks
    sees to the connection, which cannot carry another call when this ends early.
    """
    body = bytearray()
    for chunk in chunks:
        charge(len(chunk), what)
        body += chunk
        if len(body) > limit:
            if refusal:
                break
            raise TooMuchError(
                f"{what}: the answer has more than {limit} bytes, the most that is read of one: "
                "nothing is concluded from it"
            )
    return bytes(body[:limit])


class Passing:
    """What is charged for a part that the next one takes the place of."""

    def __init__(self) -> None:
        """Nothing is charged yet."""
        self._charged = 0

    def become(self, charge_next: Callable[[], None]) -> None:
        """Give back what was charged for the part before, and charge the next one. Raises what that raises."""
        opened = _OPEN.get()
        before = 0 if opened is None else opened.held - self._charged
        if opened is not None:
            opened.settle(before)
        self._charged = 0
        charge_next()
        self._charged = 0 if opened is None else opened.held - before


def charge_json(data: bytes | str, what: str) -> None:
    """Charge what the objects cost that JSON becomes, before it is read. Raises ``TooMuchError`` beyond ``LARGEST``."""
    if isinstance(data, bytes):
        values, escaped = data.count(b",") + data.count(b"[") + data.count(b"{"), b"\\u" in data
    else:
        values, escaped = data.count(",") + data.count("[") + data.count("{"), "\\u" in data
    # A character outside of ASCII, written as itself or escaped, makes every other of its string four bytes wide.
    wide = 2 if data.isascii() and not escaped else 9
    _charge(len(data) * wide + values * A_VALUE, what, f"a size of {len(data)}, some {values} values")


def charge_xml(data: bytes, what: str) -> None:
    """Charge what the elements cost that XML becomes; as ``charge_json``."""
    marks = data.count(b"<")
    wide = 3 if data.isascii() and b"&#" not in data else 9
    _charge(len(data) * wide + marks * AN_ELEMENT, what, f"a size of {len(data)}, some {marks} elements")


def _charge(cost: int, what: str, size: str) -> None:
    if cost > LARGEST:
        raise TooMuchError(
            f"{what}: it has {size}, and would take {cost // MIB} MiB of memory, more than the {LARGEST // MIB} MiB "
            "that are granted to one: nothing is concluded from it"
        )
    charge(cost, what)


def size_of(value: Any) -> int:
    """What plain data (of JSON) takes in memory."""
    size, left = 0, [value]
    while left:
        each = left.pop()
        size += sys.getsizeof(each)
        if isinstance(each, dict):
            left.extend(each)
            left.extend(each.values())
        elif isinstance(each, list):
            left.extend(each)
    return size


def weight_of(meta: ObjectMeta) -> int:
    """What an object's metadata takes in memory."""
    pairs = (*meta.labels.items(), *meta.annotations.items())
    owners = sum(AN_OWNER + _text(owner.name) + _text(owner.kind) for owner in meta.owners)
    finalizers = sum(map(_text, meta.finalizers))
    return AN_OBJECT + _text(meta.name) + owners + finalizers + sum(A_PAIR + len(k) + width(v) for k, v in pairs)


def _text(text: str) -> int:
    return A_TEXT + width(text)


def width(text: str) -> int:
    """What a text's characters take in memory, at most."""
    return len(text) if text.isascii() else 4 * len(text)


@define
class Tally:
    """Counts what a list comes to while its pages are read. Each count raises ``TooMuchError`` beyond its limit."""

    what: str
    pages_at_most: int = PAGES
    entries_at_most: int = OBJECTS
    kept_at_most: int = KEPT
    pages: int = 0
    entries: int = 0
    kept: int = 0

    def page(self, entries: int = 0) -> None:
        """Count a page, and the entries on it."""
        self.pages += 1
        self.entries += entries
        if self.pages > self.pages_at_most:
            self._refuse(f"{self.pages_at_most} pages")
        if self.entries > self.entries_at_most:
            self._refuse(f"{self.entries_at_most} entries")

    def keep(self, size: int) -> None:
        """Count what stays in memory, in bytes, and charge it."""
        self.kept += size
        if self.kept > self.kept_at_most:
            self._refuse(f"{self.kept_at_most // MIB} MiB of them in memory")
        charge(size, self.what)

    def _refuse(self, limit: str) -> None:
        raise TooMuchError(
            f"{self.what}: it goes on after {limit}, the most that is read of a list "
            f"({self.pages} pages and {self.entries} entries were seen): nothing is concluded from it"
        )
