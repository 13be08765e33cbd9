"""JSON documents of strangers, plain or gzipped: what they become in memory is counted before it is built.

A list is unpacked and read entry by entry, so that neither its text nor its entries are ever there at once: a gzipped
list of 189 KB can be 64 MiB of brackets. Whoever reads an entry reduces it before asking for the next.

Guarantee: a document is whole or a ``DocumentError`` with its reason: an iteration over entries that ends without one
has seen the end of the list, of the text and of the gzip stream. Nothing larger than the limits of ``sizes`` is held,
and all of it is charged to the open account of ``budget``. Not guaranteed: that what was yielded before an error is of
any use; nothing is.
"""

from __future__ import annotations

import codecs
import json
import re
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from reprieve.adapters.budget import Passing, charge_json
from reprieve.adapters.sizes import CHUNK, ENTRIES, ENTRY, MIB, UNPACKED
from reprieve.core.errors import TooMuchError

GZIP = 16 + zlib.MAX_WBITS
_DECODER = json.JSONDecoder()
_TAIL = len("e+0")
_SPACE = re.compile(r"[ \t\r\n]*")


class DocumentError(Exception):
    """Why a document cannot be read."""


def read_json(data: bytes, *, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Read a document whole. ``pairs`` makes what an object becomes, or raises. Raises ``DocumentError``."""
    try:
        charge_json(data, "it")
        return json.loads(data, object_pairs_hook=pairs)
    except TooMuchError as fault:
        raise DocumentError(str(fault)) from fault
    except (ValueError, RecursionError) as fault:
        raise DocumentError(f"it is not JSON ({fault})") from fault


def read_entries(data: bytes) -> Iterator[Any]:
    """Read a gzipped list, entry by entry; ``null`` has none, as Go writes an empty one. Raises ``DocumentError``."""
    text = _Text(_decoded(_unpacked(data)))
    if text.peek() != "[":
        rest = text.rest()
        if rest is not None:
            raise DocumentError(f"it is a {type(rest).__name__}, not a list")
        return
    text.skip()
    number, after = 0, text.peek()
    if after != "]":
        while True:
            number += 1
            if number > ENTRIES:
                raise DocumentError(f"it has more than {ENTRIES} entries")
            yield text.value()
            after = text.peek()
            if after != ",":
                break
            text.skip()
    if after != "]":
        raise text.fault("a comma or the end of the list is missing")
    text.skip()
    if text.peek():
        raise text.fault("something follows after the list")


class _Text:
    """A text that comes in chunks, of which no more is held than the value at hand."""

    def __init__(self, chunks: Iterator[str]) -> None:
        self._chunks = chunks
        self._charged = Passing()
        self._text, self._at, self._before = "", 0, 0

    def peek(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more(1):
                return ""

    def skip(self) -> None:
        """Go on after the character that was peeked at."""
        self._at += 1

    def value(self) -> Any:
        """The next value."""
        self.peek()
        while True:
            held = len(self._text) - self._at
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                # Cut off, or wrong: only more of it can tell. Twice as much each time, so that reading stays linear.
                fault = self.fault(error.msg, error.pos)
                if held > ENTRY:
                    raise self.fault(
                        f"{error.msg}, or it has an entry of more than {ENTRY // MIB} MiB", error.pos
                    ) from error
                if not self._more(held):
                    raise fault from error
                continue
            except (ValueError, RecursionError) as error:
                raise self.fault(str(error), self._at) from error
            # Of a number, more may follow, as after the "1." of 1.5.
            if isinstance(value, int | float) and len(self._text) - end < _TAIL and self._more(held):
                continue
            if end - self._at > ENTRY:
                raise self.fault(f"it has an entry of more than {ENTRY // MIB} MiB")
            self._at = end
            return value

    def rest(self) -> Any:
        """All that is left, as one value."""
        if not self.peek():
            raise self.fault("there is nothing in it")
        value = self.value()
        if self.peek():
            raise self.fault("something follows after its end")
        return value

    def fault(self, why: str, at: int | None = None) -> DocumentError:
        return DocumentError(f"it is not JSON ({why} at character {self._before + (self._at if at is None else at)})")

    def _more(self, wanted: int) -> bool:
        """Let go of what was read, and take so many characters more; tells whether there were any."""
        parts, size = [self._text[self._at :]], 0
        while size < wanted and (chunk := next(self._chunks, None)) is not None:
            parts.append(chunk)
            size += len(chunk)
        if not size:
            return False
        self._before += self._at
        self._text, self._at = "".join(parts), 0
        try:
            self._charged.become(partial(charge_json, self._text, "an entry of it"))
        except TooMuchError as fault:
            raise DocumentError(str(fault)) from fault
        return True


def _decoded(chunks: Iterator[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for chunk in chunks:
            yield decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as fault:
        raise DocumentError(f"it is not JSON ({fault.reason}: it is no UTF-8)") from fault


def _unpacked(data: bytes) -> Iterator[bytes]:
    """Unpack, a bounded part at a time."""
    unpacker = zlib.decompressobj(wbits=GZIP)
    size = 0
    for start in range(0, len(data) + CHUNK, CHUNK):  # the last part is empty: it drives out what is left inside
        packed = data[start : start + CHUNK]
        while not unpacker.eof:
            try:
                plain = unpacker.decompress(packed, CHUNK)
            except zlib.error as fault:
                raise DocumentError(f"it is not gzip ({fault})") from fault
            packed, size = unpacker.unconsumed_tail, size + len(plain)
            if size > UNPACKED:
                raise DocumentError(f"it unpacks to more than {UNPACKED // MIB} MiB")
            if plain:
                yield plain
            elif not packed:
                break
        if unpacker.eof:
            after = len(unpacker.unused_data) + max(0, len(data) - start - CHUNK)
            if after:
                raise DocumentError(f"{after} bytes follow after its end")
            return
    raise DocumentError(f"it is truncated after {len(data)} bytes")
