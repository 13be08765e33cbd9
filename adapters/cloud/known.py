"""Secrets that this process has read or was given, and how they are kept out of every message.

Whoever answers a call has seen the credential that came with it, and may put it into its error, which is then told in
a status, an event, a log and a plan. So what was used as a credential is remembered here, and is taken out of every
text that an adapter makes of a stranger's words.

A text is compared by its letters and digits alone, after escapes were undone (percent, entities, backslashes, each
of them again): a secret that is wrapped over lines, quoted, indented or in base64 is found as well, and so is a
piece of it of 16 letters and digits or more.

Guarantee: a secret of at least 8 letters and digits that was remembered does not pass ``hide`` in one of these forms.
Not guaranteed: that a secret is found that the other side enciphered, or took apart on purpose: it has the secret
anyway; nor one that hundreds of newer ones have taken the place of.
"""

from __future__ import annotations

import base64
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from reprieve.core.values import cut

HIDDEN = "[hidden]"
KEPT = 256
"""Secrets of a kind: those that were read, and those that pass, which are other ones every hour."""

KEPT_LETTERS = 500_000
"""Letters and digits of all of a kind, in all their forms."""

SHORTEST = 4
"""Letters and digits. Shorter ones are in every word: they could not be told from any text."""

WORD = 8
"""A secret shorter than this is a word, too: it is hidden in a stranger's own words only, and where it stands alone."""

PIECE = 16
"""A piece of a secret from this length on is hidden too."""

_STEP = PIECE // 2  # of a secret's steps of 8 letters, a piece of 15 or more holds a whole one, wherever it begins
_MOST = 200  # steps of secrets that are looked into, in one text
_LONGEST = 16_384  # characters; no message has that many

_ESCAPE = re.compile(
    r"(?:%|\\x)([0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})|(?:&#x|\\u\{)([0-9A-Fa-f]{1,6})[;}]|&#([0-9]{1,7});"
    r"|&([a-z]{2,4});|\\(.)",
    re.DOTALL,
)
_ENTITIES: Mapping[str, str] = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_LETTERS: Mapping[str, str] = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}
_ROUNDS = 3  # escapes of escapes of escapes
_UNICODE = 0x110000
_BEARER = re.compile(r"(?i)\b(bearer|basic|sharedkey)\s+[\w.~+/=:-]{16,}")


Forms = OrderedDict[str, tuple[str, ...]]
"""Secrets, the one that was used last at the end, and what each looks like."""


class Known:
    """What is known to be secret. Safe for threads."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._lock = threading.Lock()
        self._read: Forms = OrderedDict()
        self._passing: Forms = OrderedDict()
        self._index = _Index()

    def remember(self, *values: str | None, passing: bool = False) -> None:
        """Keep secrets: keys, tokens, passwords, private keys. What is known already costs nothing.

        ``passing``: tokens that are good for an hour. However many there are, they do not take the place of others.
        """
        forms = self._passing if passing else self._read
        with self._lock:
            fresh = [value for value in values if value and value not in forms]
            for value in fresh:
                forms[value] = _forms(value)
            for value in filter(None, values):
                forms.move_to_end(value)
            if not fresh:
                return
            while len(forms) > KEPT or sum(map(_size, forms.values())) > KEPT_LETTERS:
                forms.popitem(last=False)
            kinds = (self._read, self._passing)
            self._index = _indexed({text for kind in kinds for each in kind.values() for text in each})

    def hide(self, text: str, *, strangers: bool = False) -> str:
        """The text without what is known to be secret; unchanged where nothing of it is.

        ``strangers``: no word of it is ours, so that what may be a word is hidden too.
        """
        text = _BEARER.sub(rf"\1 {HIDDEN}", cut(text, limit=_LONGEST))
        index = self._index
        if not index.whole:
            return text
        shortest = SHORTEST if strangers else WORD
        found = [span for letters in _readings(text) for span in _found(letters, text, index, shortest)]
        return _without(text, found)


@frozen
class _Index:
    """Secrets to be looked for: all of them one a line, their steps, and those that are found as a whole only."""

    whole: str = ""
    steps: frozenset[str] = frozenset()
    short: tuple[str, ...] = ()


def _indexed(texts: Iterable[str]) -> _Index:
    every = sorted(texts)
    steps = (text[at : at + _STEP] for text in every for at in range(0, len(text) - _STEP + 1, _STEP))
    return _Index("\n".join(every), frozenset(steps), tuple(text for text in every if len(text) < PIECE))


Letter = tuple[str, int, int]
"""A letter or digit that a text says, and from where to where it is said."""


def _forms(value: str) -> tuple[str, ...]:
    """What a secret looks like: itself, and base64 of it, wherever in a triple of bytes it begins."""
    raw = value.encode("utf-8", "replace")
    encoded = (base64.b64encode(b"\0" * before + raw).decode()[4 * bool(before) : -4] for before in range(3))
    own = {_plain(letters) for text in {value, raw.decode("latin-1")} for letters in _readings(text)}
    texts = {text for text in own if len(text) >= SHORTEST}
    return tuple(texts | {"".join(filter(str.isalnum, text)) for text in encoded if len(text) > WORD})


def _size(forms: Iterable[str]) -> int:
    return sum(map(len, forms))


def _plain(letters: Iterable[Letter]) -> str:
    return "".join(letter for letter, _, _ in letters)


def _readings(text: str) -> Iterator[list[Letter]]:
    """The letters and digits of a text as it stands, and with its escapes undone, as often as there are some."""
    said: Sequence[Letter] = [(c, at, at + 1) for at, c in enumerate(text)]
    yield [letter for letter in said if letter[0].isalnum()]
    for _ in range(_ROUNDS):
        undone = list(_undone("".join(c for c, _, _ in said), said))
        if len(undone) == len(said):
            return
        said = undone
        yield [letter for letter in said if letter[0].isalnum()]


def _undone(text: str, said: Sequence[Letter]) -> Iterator[Letter]:
    at = 0
    for found in _ESCAPE.finditer(text):
        yield from said[at : found.start()]
        yield _meant(found), said[found.start()][1], said[found.end() - 1][2]
        at = found.end()
    yield from said[at:]


def _meant(found: re.Match[str]) -> str:
    """The one character that an escape stands for; what stands for none is no letter."""
    byte, four, many, decimal, named, slash = found.groups()
    number = int(byte or four or many or "0", 16) or int(decimal or "0")
    if number:
        return chr(number) if number < _UNICODE else " "
    return _ENTITIES.get(named, " ") if named else _LETTERS.get(slash or "", slash or " ")


def _found(letters: Sequence[Letter], text: str, index: _Index, shortest: int) -> Iterator[tuple[int, int]]:
    """From where to where a text says what is secret. A secret of fewer letters than ``shortest`` is not looked for."""
    plain = _plain(letters)
    for start, end in _pieces(plain, index):
        yield letters[start][1], letters[end - 1][2]
    for secret in index.short:
        if len(secret) < shortest:
            continue
        start = plain.find(secret)
        while start >= 0:
            begins, ends = letters[start][1], letters[start + len(secret) - 1][2]
            if len(secret) >= WORD or _stands_alone(text, begins, ends):
                yield begins, ends
            start = plain.find(secret, start + 1)


def _pieces(plain: str, index: _Index) -> Iterator[tuple[int, int]]:
    """Where letters are a piece of a secret that is long enough; everything, where too many seem to be one."""
    done = hits = 0
    for at in range(len(plain) - _STEP + 1):
        if at < done or plain[at : at + _STEP] not in index.steps:
            continue
        hits += 1
        if hits > _MOST:
            yield 0, len(plain)
            return
        start, end = _piece(plain, at, done, index.whole)
        if end - start >= PIECE:
            yield start, end
            done = end


def _piece(plain: str, at: int, first: int, whole: str) -> tuple[int, int]:
    """How far the piece of a secret reaches that has a step at ``at``; not before ``first``."""
    start = at - _reach(at - first, lambda n: plain[at - n : at + _STEP] in whole)
    end = at + _STEP
    return start, end + _reach(len(plain) - end, lambda n: plain[start : end + n] in whole)


def _reach(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to ``most`` that fits, where all below one that fits do too."""
    reached, step = 0, 1
    while step and reached < most:
        farther = min(reached + step, most)
        reached, step = (farther, step * 2) if fits(farther) else (reached, step // 2)
    return reached


def _stands_alone(text: str, start: int, end: int) -> bool:
    return not text[max(start - 1, 0) : start].isalnum() and not text[end : end + 1].isalnum()


def _without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    parts, at = [], 0
    for start, end in sorted(spans):
        if start >= at:
            parts += [text[at:start], HIDDEN]
        at = max(at, end)
    return "".join([*parts, text[at:]])


_KNOWN = Known()
"""The process's own: a secret of one place may come back from another."""

remember = _KNOWN.remember
hide = _KNOWN.hide


def remember_sent(headers: Mapping[str, Any]) -> None:
    """Keep the tokens that go out with a call, wherever its SDK had them from."""
    for name in ("Authorization", "X-Amz-Security-Token"):
        said = headers.get(name) or ""
        text = said.decode("latin-1") if isinstance(said, bytes) else str(said)
        scheme, _, token = text.rpartition(" ")
        if not scheme or scheme.lower() == "bearer":  # a signature is no secret: it is another one with each call
            remember(token, passing=True)
