"""A file of Kubernetes objects as a value: which objects it holds, and its text after one of them changed or went.

Guarantee: every other document, and in a block-style List every other entry, keeps its bytes, comments included, and
its place.
Not guaranteed: comments inside the object that is written anew; the layout of a List in JSON or in flow style once it
is changed.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from reprieve.adapters.local.disk import FolderError
from reprieve.adapters.local.kinds import home
from reprieve.adapters.local.status import Json
from reprieve.adapters.local.yamltext import Found, Span, SyntaxFault, read_json, read_yaml, write_item, write_yaml
from reprieve.core.objects import ObjectKind, mapping, text
from reprieve.core.values import as_tuple

Key = tuple[ObjectKind, str, str]
"""Kind, namespace (empty: cluster-scoped) and name."""
SUFFIXES = (".yaml", ".yml", ".json")
_HAND = "write it as `kubectl get -o yaml` prints it, or move the file out of the folder"


@frozen
class Part:
    """One object of a document: where it lives, its JSON as it was read, its text, the text between it and the next."""

    key: Key
    obj: Json = field(hash=False)
    text: str
    after: str = ""


@frozen
class Document:
    """A document: what stands before, its objects, what stands after.

    ``indent`` is that of a List's entries, -1 for one plain object. ``frame`` is a List's JSON without its items;
    ``spliced`` False: the parts have no text of their own yet, ``head`` is all of it.
    """

    head: str
    parts: tuple[Part, ...] = field(default=(), converter=as_tuple)
    tail: str = ""
    indent: int = -1
    frame: Json = field(factory=dict, hash=False)
    spliced: bool = True
    joiner: str = ""

    @property
    def text(self) -> str:
        """The document's text."""
        return self.head + self.joiner.join(part.text + part.after for part in self.parts if self.spliced) + self.tail


@frozen
class ManifestFile:
    """A file of objects; ``data`` is what stands on the disk."""

    path: Path
    documents: tuple[Document, ...] = field(default=(), converter=as_tuple)
    bom: str = ""

    @property
    def is_json(self) -> bool:
        """Whether the file is JSON, by its name."""
        return self.path.suffix == ".json"

    @property
    def data(self) -> bytes:
        """The file's bytes."""
        return (self.bom + "".join(document.text for document in self.documents)).encode()

    @property
    def parts(self) -> list[Part]:
        """Every object of the file, in order."""
        return [part for document in self.documents for part in document.parts]


def parse_file(path: Path, data: bytes) -> ManifestFile:
    """Read a file of objects. Raises ``FolderError`` with the document and the line of what is wrong."""
    content = _decode(path, data)
    bom = "\ufeff" if content.startswith("\ufeff") else ""
    content = content.removeprefix(bom)
    try:
        found = read_json(content) if path.suffix == ".json" else read_yaml(content)
    except SyntaxFault as error:
        way_out = "correct it, or move the file out of the folder"
        raise FolderError(path, str(error), way_out=way_out, document=error.document, line=error.line) from error
    documents = [_document(path, content, number, each) for number, each in enumerate(found, start=1)]
    first, last = (found[0].whole.start, found[-1].whole.end) if found else (0, 0)
    around = [Document(content[:first]), *documents, Document(content[last:])]
    return ManifestFile(path, [document for document in around if document.text], bom)


def new_file(path: Path, obj: Json) -> ManifestFile:
    """Make a file of one object. Raises ``FolderError`` for characters that no text file can hold."""
    empty = ManifestFile(path)
    return evolve(empty, documents=[Document("", [_part(obj, _write(empty, Document(""), obj))])])


def key_of(obj: Mapping[str, Any]) -> Key:
    """An object's kind, namespace and name, as they are in the cluster."""
    meta = mapping(obj.get("metadata"))
    kind = ObjectKind(text(obj.get("apiVersion")), text(obj.get("kind")))
    return kind, home(kind, text(meta.get("namespace"))), text(meta.get("name"))


def replaced(file: ManifestFile, key: Key, obj: Json) -> ManifestFile:
    """The file with another state of one of its objects."""
    return _edited(file, key, lambda document, part: [evolve(part, obj=obj, text=_write(file, document, obj))])


def removed(file: ManifestFile, key: Key) -> ManifestFile:
    """The file without one of its objects; a document without objects goes as a whole."""
    return _edited(file, key, lambda _document, _part: [])


_Edit = Callable[[Document, Part], list[Part]]


def _edited(file: ManifestFile, key: Key, edit: _Edit) -> ManifestFile:
    documents: list[Document] = []
    for document in file.documents:
        if any(part.key == key for part in document.parts):
            ready = document if document.spliced else _respaced(file, document)
            edited = _edited_parts(ready, key, edit)
            documents += [edited] if edited.parts else []
        else:
            documents.append(document)
    return evolve(file, documents=documents)


def _part(obj: Json, own: str = "", after: str = "") -> Part:
    return Part(key_of(obj), obj, own, after)


def _edited_parts(document: Document, key: Key, edit: _Edit) -> Document:
    """A document with one part edited; what stood between a part that goes and the next one stays."""
    head, parts = document.head, list[Part]()
    for part in document.parts:
        new = edit(document, part) if part.key == key else [part]
        parts += new
        if not new and parts:
            parts[-1] = evolve(parts[-1], after=parts[-1].after + part.after)
        elif not new:
            head += part.after
    return evolve(document, head=head, parts=parts)


def _respaced(file: ManifestFile, document: Document) -> Document:
    """A List whose entries had no lines of their own, with one place for each of them."""
    if file.is_json:
        frame = json.dumps({**document.frame, "items": []}, indent=4, ensure_ascii=False)
        head, tail = frame[: frame.rindex("[") + 1] + "\n", "\n    " + frame[frame.rindex("]") :] + "\n"
        shell = evolve(document, head=head, tail=tail, indent=8, joiner=",\n", spliced=True)
    else:
        shell = evolve(document, head=f"---\n{write_yaml(document.frame)}items:\n", tail="", indent=0, spliced=True)
    return evolve(shell, parts=[evolve(part, text=_write(file, shell, part.obj)) for part in document.parts])


def _write(file: ManifestFile, document: Document, obj: Json) -> str:
    """An object's text in its document. Raises ``FolderError`` for characters that no text file can hold."""
    try:
        if file.is_json:
            body = json.dumps(obj, indent=4, ensure_ascii=False, allow_nan=False)
            body.encode()
            return textwrap.indent(body, " " * max(document.indent, 0))
        if document.indent >= 0:
            return write_item(obj, document.indent)
        return ("\n" if document.head and not document.head.endswith("\n") else "") + write_yaml(obj)
    except ValueError as error:
        raise FolderError(file.path, str(error), way_out="write it without them") from error


def _decode(path: Path, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FolderError(path, "this is no UTF-8 text", way_out="save it as UTF-8", line=line) from error


def _document(path: Path, content: str, number: int, found: Found) -> Document:
    if found.data is None:
        return Document(content[found.whole.start : found.whole.end])
    if not isinstance(found.data, dict):
        what = f"a {_name(found.data)} instead of an object"
        raise FolderError(path, what, way_out=_HAND, document=number, line=found.line)
    if _is_list(found.data):
        return _list(path, content, number, found)
    _check(path, found.data, number, found.line)
    head, tail = _outside(content, found.whole, found.content)
    return Document(head, [_part(found.data, content[found.content.start : found.content.end])], tail)


def _is_list(data: Json) -> bool:
    """Whether an object is a list of objects: ``List``, or a typed one such as ``BackupList``."""
    kind = data.get("kind")
    return isinstance(kind, str) and kind.endswith("List") and ("items" in data or kind == "List")


def _list(path: Path, content: str, number: int, found: Found) -> Document:
    items = found.data.get("items") or []
    if not isinstance(items, list):
        raise FolderError(path, f"items: a {_name(items)} instead of a list", way_out=_HAND, document=number)
    objects = [_item(path, found, number, index, item) for index, item in enumerate(items)]
    frame = {key: value for key, value in found.data.items() if key != "items"}
    spans = found.items
    if not objects or len(spans) != len(objects):
        whole = content[found.whole.start : found.whole.end]
        return Document(whole, [_part(obj) for obj in objects], frame=frame, spliced=False)
    head, tail = _outside(content, found.whole, Span(spans[0].start, spans[-1].end))
    starts = [span.start for span in spans[1:]] + [spans[-1].end]
    parts = [
        _part(obj, content[span.start : span.end], content[span.end : start])
        for obj, span, start in zip(objects, spans, starts, strict=True)
    ]
    return Document(head, parts, tail, indent=found.indent, frame=frame)


def _item(path: Path, found: Found, number: int, index: int, item: object) -> Json:
    """An entry of a List; in a typed list it may leave out what the list says."""
    where = f"items[{index}]"
    if not isinstance(item, dict):
        raise FolderError(path, f"a {_name(item)} instead of an object", way_out=_HAND, document=number, field=where)
    kind = text(found.data.get("kind")).removesuffix("List")
    implied = {"apiVersion": found.data.get("apiVersion"), "kind": kind} if kind else {}
    full = {**{key: value for key, value in implied.items() if key not in item}, **item}
    _check(path, full, number, found.line, prefix=f"{where}.")
    return full


def _check(path: Path, obj: Json, number: int, line: int, *, prefix: str = "") -> None:
    """Check what every object must have. Raises ``FolderError``."""
    meta = obj.get("metadata")
    required = {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind")}
    required["metadata.name"] = meta.get("name") if isinstance(meta, dict) else None
    for name, value in required.items():
        if not isinstance(value, str) or not value:
            what = "this is missing" if value in (None, "") else f"a {_name(value)} instead of a string"
            raise FolderError(path, what, way_out=_HAND, document=number, line=line, field=prefix + name)
    namespace = meta.get("namespace") if isinstance(meta, dict) else None
    if namespace is not None and not isinstance(namespace, str):
        what = f"a {_name(namespace)} instead of a string"
        raise FolderError(path, what, way_out="put it in quotes", document=number, field=f"{prefix}metadata.namespace")
    for section in ("labels", "annotations"):
        _check_texts(path, meta, number, section, prefix=prefix)


def _check_texts(path: Path, meta: object, number: int, section: str, *, prefix: str) -> None:
    """Refuse what no API server would store: an unquoted ``hold: 4711`` must not get lost. Raises ``FolderError``."""
    entries = meta.get(section) if isinstance(meta, dict) else None
    where = f"{prefix}metadata.{section}"
    if entries is not None and not isinstance(entries, dict):
        what = f"a {_name(entries)} instead of a mapping"
        raise FolderError(path, what, way_out=_HAND, document=number, field=where)
    for key, value in (entries or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            what = f"a {_name(key if not isinstance(key, str) else value)} instead of a string"
            raise FolderError(path, what, way_out="put it in quotes", document=number, field=f"{where}.{key}")


def _outside(content: str, whole: Span, inner: Span) -> tuple[str, str]:
    return content[whole.start : inner.start], content[inner.end : whole.end]


def _name(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "list"
        case dict():
            return "mapping"
        case _:
            return "null"
