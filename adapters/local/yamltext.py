"""YAML and JSON texts as documents with places: what each says as JSON data, and where in the text it stands.

Reading keeps strings strings: timestamps and words like ``no`` and ``on`` are no dates and no booleans, as for JSON
and for YAML 1.2. Writing puts in quotes whatever another reader (YAML 1.1 included) would take for something else.

Guarantee: an alias that would expand a thousandfold, absurd nesting, a duplicate key or a tag that is none of JSON's
is a ``SyntaxFault`` with its line; what is written reads back equal.
Not guaranteed: comments inside an object that is written anew.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from functools import cache
from typing import Any

from attrs import field, frozen

from reprieve.core.errors import MissingExtraError
from reprieve.core.values import as_tuple

DEPTH_LIMIT = 100
ALIAS_LIMIT = 100_000
_TAG = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,30}|0o?[0-7]{1,20}|0x[0-9a-fA-F]{1,20})")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS = {
    word: value
    for value, words in ((None, "~ null Null NULL"), (True, "true True TRUE"), (False, "false False FALSE"))
    for word in words.split()
}
_WORDS[""] = None


class SyntaxFault(ValueError):
    """A text that is no YAML or JSON of ours. ``document`` and ``line`` count from 1; line 0: not known."""

    def __init__(self, what: str, *, document: int, line: int = 0) -> None:
        super().__init__(what)
        self.document, self.line = document, line


@frozen
class Span:
    """A part of a text, from ``start`` to before ``end``, in characters."""

    start: int
    end: int


@frozen
class Found:
    """A document: its data, its whole span (marker and comments included), its content's span and first line.

    ``items`` are the spans of the entries of its block sequence ``items`` and ``indent`` the column of their dashes;
    none when there is no such sequence, or when its entries cannot be told apart line by line.
    """

    data: Any
    whole: Span
    content: Span
    line: int
    items: tuple[Span, ...] = field(default=(), converter=as_tuple)
    indent: int = 0


class _Frame:
    """A collection that is being read."""

    __slots__ = ("anchor", "block", "data", "key", "line", "merges", "merging", "size")

    def __init__(self, data: Any, *, anchor: str | None, block: bool, line: int) -> None:
        self.data, self.anchor, self.block, self.line = data, anchor, block, line
        self.key: str | None = None
        self.merging = False
        self.merges: list[Any] = []
        self.size = 1


def _library() -> Any:
    """PyYAML, once it is needed: what works in memory alone does without.

    Raises ``MissingExtraError`` when it is not there.
    """
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise MissingExtraError("PyYAML", extra="cli") from error
    return yaml


def read_yaml(text: str) -> list[Found]:
    """Read all documents of a YAML text; empty ones give None. Raises ``SyntaxFault``."""
    yaml = _library()
    reader = _Reader(text, yaml)
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            reader.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        raise SyntaxFault(what, document=reader.number, line=mark.line + 1 if mark else 0) from error
    except yaml.YAMLError as error:
        line = text.count("\n", 0, getattr(error, "position", 0)) + 1
        raise SyntaxFault(getattr(error, "reason", "no YAML"), document=reader.number, line=line) from error
    return reader.documents()


class _Reader:
    """Builds data of a parser's events, without recursion, and notes where things stand."""

    def __init__(self, text: str, yaml: Any) -> None:
        self._text, self._yaml = text, yaml
        self._frames: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._open: set[str] = set()
        self._expanded = 0
        self._end = 0
        self._starts: list[int] = []
        self._found: list[tuple[Any, int, int, int]] = []
        self._items: list[list[tuple[int, int]]] = []
        self.number = 1

    def documents(self) -> list[Found]:
        """Everything that was read."""
        ends = [*self._starts[1:], len(self._text)][: len(self._starts)]
        return [
            self._document(*found, Span(start, end), items)
            for found, start, end, items in zip(self._found, self._starts, ends, self._items, strict=True)
        ]

    def _document(self, data: Any, start: int, end: int, line: int, whole: Span, items: list[tuple[int, int]]) -> Found:
        content = Span(self._line_start(start), self._line_end(end))
        spans = [Span(self._dash(at), self._line_end(stop)) for at, stop in items]
        if not spans or not all(self._is_dash(span, at) for span, (at, _) in zip(spans, items, strict=True)):
            return Found(data, whole, content, line)
        indent = re.match(" *", self._text[spans[0].start :])
        return Found(data, whole, content, line, spans, indent.end() if indent else 0)

    def _line_start(self, at: int) -> int:
        """The start of the line, when nothing but blanks stands before ``at``, else ``at``."""
        start = self._dash(at)
        return at if self._text[start:at].strip(" ") else start

    def _dash(self, at: int) -> int:
        return self._text.rfind("\n", 0, at) + 1

    def _is_dash(self, span: Span, at: int) -> bool:
        return re.fullmatch(r" *- +", self._text[span.start : at]) is not None

    def _line_end(self, at: int) -> int:
        if at and self._text[at - 1] == "\n":
            return at
        end = self._text.find("\n", at)
        return len(self._text) if end < 0 else end + 1

    def take(self, event: Any) -> None:
        """Take one event of the parser."""
        yaml = self._yaml
        match event:
            case yaml.DocumentStartEvent():
                self._begin_document(event)
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._begin(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._finish(event)
            case _:
                pass

    def _fault(self, what: str, event: Any) -> SyntaxFault:
        return SyntaxFault(what, document=self.number, line=event.start_mark.line + 1)

    def _begin_document(self, event: Any) -> None:
        self._starts.append(event.start_mark.index if event.explicit or self._starts else 0)
        self._items.append([])
        self.number = len(self._starts)
        self._anchors, self._open = {}, set()

    def _scalar(self, event: Any) -> None:
        self._end = event.end_mark.index
        frame = self._frames[-1] if self._frames else None
        if frame is not None and isinstance(frame.data, dict) and frame.key is None:
            self._key(frame, event)
            return
        value = self._resolve(event)
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        self._put(value, 1, event)

    def _key(self, frame: _Frame, event: Any) -> None:
        """Take a scalar as the key of a mapping: keys are strings, whatever they look like."""
        if event.value in frame.data:
            raise self._fault(f"the key {event.value[:100]!r} is there twice", event)
        frame.key = event.value
        frame.merging = event.value == "<<" and event.implicit[0]

    def _resolve(self, event: Any) -> Any:
        name = (event.tag or "").removeprefix(_TAG)
        if name in {"", "!"} and not event.implicit[0]:
            return event.value
        if name in {"", "null", "bool", "int", "float", "timestamp"}:
            return scalar(event.value)
        if name in {"str", "binary", "!"}:
            return event.value
        raise self._fault(f"the tag {event.tag} is none that JSON has", event)

    def _alias(self, event: Any) -> None:
        self._end = event.end_mark.index
        if event.anchor in self._open or event.anchor not in self._anchors:
            raise self._fault(f"the alias *{event.anchor} stands for something that is not complete before it", event)
        value, size = self._anchors[event.anchor]
        self._expanded += size
        if self._expanded > ALIAS_LIMIT:
            raise self._fault(f"aliases expand to more than {ALIAS_LIMIT} values", event)
        frame = self._frames[-1] if self._frames else None
        if frame is not None and isinstance(frame.data, dict) and frame.key is None:
            raise self._fault("an alias cannot be a key here", event)
        self._put(value, size, event)

    def _begin(self, event: Any) -> None:
        parent = self._frames[-1] if self._frames else None
        if len(self._frames) >= DEPTH_LIMIT:
            raise self._fault(f"nested deeper than {DEPTH_LIMIT} levels", event)
        if parent is not None and isinstance(parent.data, dict) and parent.key is None:
            raise self._fault("a mapping or a list cannot be a key", event)
        tag = (event.tag or "").removeprefix(_TAG)
        if tag not in {"", "!", "map", "seq"}:
            raise self._fault(f"the tag {event.tag} is none that JSON has", event)
        data: Any = {} if isinstance(event, self._yaml.MappingStartEvent) else []
        if event.anchor:
            self._open.add(event.anchor)
        frame = _Frame(data, anchor=event.anchor, block=not event.flow_style, line=event.start_mark.line)
        self._note_item(event)
        self._frames.append(frame)
        if len(self._frames) == 1:
            self._begin_root(event)

    def _begin_root(self, event: Any) -> None:
        self._found.append(
            (self._frames[0].data, event.start_mark.index, event.start_mark.index, event.start_mark.line + 1)
        )

    def _note_item(self, event: Any) -> None:
        """Note where an entry of the top-level block sequence ``items`` begins."""
        if self._is_items():
            self._items[-1].append((event.start_mark.index, event.start_mark.index))

    def _is_items(self) -> bool:
        if len(self._frames) != 2 or not isinstance(self._frames[1].data, list):  # noqa: PLR2004 - root and its list
            return False
        return self._frames[0].key == "items" and self._frames[1].block

    def _finish(self, event: Any) -> None:
        frame = self._frames.pop()
        if not frame.block:
            self._end = event.end_mark.index
        for source in frame.merges:
            frame.data.update({key: value for key, value in source.items() if key not in frame.data})
        if frame.anchor:
            self._open.discard(frame.anchor)
            self._anchors[frame.anchor] = (frame.data, frame.size)
        if self._is_items() and self._items[-1]:
            self._items[-1][-1] = (self._items[-1][-1][0], self._end)
        self._put(frame.data, frame.size, event)

    def _put(self, value: Any, size: int, event: Any) -> None:
        """Put a complete value where it belongs."""
        if not self._frames:
            self._end_document(value, event)
            return
        frame = self._frames[-1]
        frame.size += size
        if isinstance(frame.data, list):
            frame.data.append(value)
        elif frame.merging:
            self._merge(frame, value, event)
        else:
            frame.data[frame.key] = value
        frame.key = None

    def _merge(self, frame: _Frame, value: Any, event: Any) -> None:
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            raise self._fault("<< takes a mapping or a list of mappings", event)
        frame.merges.extend(sources)

    def _end_document(self, value: Any, event: Any) -> None:
        if isinstance(value, dict | list) and len(self._found) == len(self._starts):
            data, start, _, line = self._found[-1]
            self._found[-1] = (data, start, self._end, line)
        else:
            self._found.append((value, event.start_mark.index, event.end_mark.index, event.start_mark.line + 1))


def scalar(text: str) -> Any:
    """What a plain scalar stands for: null, a boolean, a number.

    Anything else is a string (so are dates, ``no``, ``.inf``).
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        digits = text.lstrip("+-")
        base = 16 if digits[:2] == "0x" else 8 if digits[0] == "0" and len(digits) > 1 else 10
        return int(digits.removeprefix("0x").removeprefix("0o"), base) * (-1 if text[0] == "-" else 1)
    if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text


def read_json(text: str) -> list[Found]:
    """Read a JSON text, or several one after the other, in time linear to the length. Raises ``SyntaxFault``."""
    decoder = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant)
    found: list[Found] = []
    begin, line = 0, 1
    try:
        while (position := _after_blanks(text, begin)) < len(text):
            line += text.count("\n", begin, position)
            data, end = decoder.raw_decode(text, position)
            found.append(Found(data, Span(begin, end), Span(position, end), line))
            line += text.count("\n", position, end)
            begin = end
    except json.JSONDecodeError as error:
        raise SyntaxFault(error.msg, document=len(found) + 1, line=error.lineno) from error
    except (ValueError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise SyntaxFault(what, document=len(found) + 1) from error
    return found


_BLANKS = re.compile(r"[ \t\r\n]*")


def _after_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"the key {twice[:100]!r} is there twice")
    return data


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


@cache
def _dumper() -> Any:
    """PyYAML's fast dumper, or its slow one.

    Made to put in quotes every string that any reader could take for something else.
    """
    yaml = _library()
    base = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    dumper: Any = type("Dumper", (base,), {"ignore_aliases": lambda _self, _data: True})
    dumper.add_representer(str, _represent_text)
    for pattern in (_INT, _FLOAT):
        dumper.add_implicit_resolver(f"{_TAG}float", re.compile(f"(?:{pattern.pattern})$"), list("-+.0123456789"))
    return dumper


def _represent_text(dumper: Any, text: str) -> Any:
    """Write text of several lines as such."""
    return dumper.represent_scalar(f"{_TAG}str", text, style="|" if "\n" in text else None)


def write_yaml(data: Any) -> str:
    """Write data as one block of YAML, without a document marker, ended by a newline.

    Raises ``ValueError`` for what YAML cannot hold.
    """
    try:
        text: str = _library().dump(data, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=1_000_000)
    except UnicodeEncodeError as error:
        raise ValueError("it holds characters that a text file cannot hold") from error
    if _reads_back(text, data):
        return text
    text = _flow(data)
    if _reads_back(text, data):
        return text
    raise ValueError("it holds characters that a text file cannot hold")


def write_item(data: Any, indent: int) -> str:
    """Write data as an entry of a block sequence whose dashes stand at a column."""
    lines = write_yaml(data).splitlines(keepends=True)
    inner = "".join(f"{' ' * indent}  {line}" if line.strip("\n") else line for line in lines)
    text = f"{' ' * indent}- {inner[indent + 2 :]}"
    return text if _reads_back(text, [data]) else f"{' ' * indent}- {_flow(data)}"


def _flow(data: Any) -> str:
    """One line that is YAML in ASCII: JSON, with what is beyond ASCII escaped as YAML does it."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    return re.sub(r"[^\x20-\x7e]", lambda found: _escape(ord(found[0])), text) + "\n"


def _escape(code: int) -> str:
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004 - the end of the basic plane


def _reads_back(text: str, data: Any) -> bool:
    try:
        text.encode()
        found = read_yaml(text)
    except ValueError:
        return False
    return len(found) == 1 and found[0].data == data
