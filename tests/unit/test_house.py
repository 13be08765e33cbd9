"""The rules of the house that an import contract cannot say: what core may import and call, when an SDK loads."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What core may import, besides itself. Each of them computes; none reads a file, a clock, a socket or a die.
PURE = {
    "__future__",
    "abc",
    "attr",
    "attrs",
    "base64",
    "collections",
    "dataclasses",
    "datetime",
    "difflib",
    "enum",
    "fnmatch",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
    "re",
    "string",
    "textwrap",
    "types",
    "typing",
}

# Calls that need no import and yet reach outside, or ask the clock.
BUILTIN_EFFECTS = {"open", "print", "input", "exec", "eval", "breakpoint", "__import__"}
CLOCKS = {"now", "utcnow", "today"}

# These load when they are used, never when their adapter is imported.
SDKS = {"azure", "boto3", "botocore", "google", "kubernetes", "obstore"}


def modules(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported(node: ast.AST) -> set[str]:
    """The top-level names that an import statement brings; relative ones stay inside and count as `reprieve`."""
    match node:
        case ast.Import(names=names):
            return {alias.name.partition(".")[0] for alias in names}
        case ast.ImportFrom(level=0, module=str(module)):
            return {module.partition(".")[0]}
        case ast.ImportFrom():
            return {"reprieve"}
    return set()


def impure_imports(tree: ast.AST) -> set[str]:
    return {name for node in ast.walk(tree) for name in imported(node)} - PURE - {"reprieve"}


def effects(tree: ast.AST) -> set[str]:
    return {f"line {node.lineno}: {ast.unparse(node.func)}()" for node in ast.walk(tree) if is_effect(node)}


def is_effect(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name in BUILTIN_EFFECTS
        case ast.Call(func=ast.Attribute(attr=name, value=ast.Name(id="datetime" | "date" | "dt"))):
            return name in CLOCKS
        case ast.Call(func=ast.Attribute(attr=name, value=ast.Attribute(attr="datetime" | "date"))):
            return name in CLOCKS
    return False


# What puts text on a terminal. ``screen`` makes it harmless first; without click the package says one fixed sentence.
PRINTERS = {"echo", "secho", "echo_via_pager", "prompt", "confirm", "print", "pprint", "writelines", "write"}
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
MAY_PRINT = {"entrypoints/cli/screen.py", "entrypoints/cli/__init__.py"}


def printing(tree: ast.AST) -> set[str]:
    """Calls that print, under whatever name: click's, the built-in, a stream's, a console's."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module="click" | "rich" | "rich.console" | "builtins" | "sys", names=names):
                found |= {f"line {node.lineno}: {n.name}" for n in names if n.name in PRINTERS | STREAMS | {"Console"}}
            case ast.Call(func=ast.Name(id="print" | "pprint" | "Console")):
                found.add(f"line {node.lineno}: {ast.unparse(node.func)}()")
            case ast.Call(func=ast.Attribute(attr=name, value=ast.Name(id="click"))) if name in PRINTERS:
                found.add(f"line {node.lineno}: click.{name}()")
            case ast.Call(func=ast.Attribute(attr="show", value=ast.Name(id="fault" | "error" | "exception"))):
                found.add(f"line {node.lineno}: {ast.unparse(node.func)}()")
            case ast.Call(func=ast.Attribute(attr="write" | "writelines", value=ast.Attribute(attr=stream))) if (
                stream in STREAMS | {"buffer"}
            ):
                found.add(f"line {node.lineno}: {ast.unparse(node.func)}()")
            case ast.Call(func=ast.Attribute(attr="print")):
                found.add(f"line {node.lineno}: {ast.unparse(node.func)}()")
    return found


# Names that hold a date, wherever they stand last in a dotted name. Clocks that count seconds are floats.
DATES = {"now", "until", "instant", "created", "completed", "started", "expiration", "expired", "synced", "last_synced"}
DATES |= {"finished_at", "first_attempt", "next_attempt", "renewed", "released", "last_failure"}
SUMS = {"core/values.py"}  # ``later`` itself
SPANS = {"adapters/k8s/cluster.py"}  # the sum of two spans
FLOATS = {"adapters/cloud/rate.py", "adapters/cloud/breaker.py", "entrypoints/controller/queue.py", "core/durations.py"}
SAMPLES = {"entrypoints/sample.py", "entrypoints/sample_time.py", "entrypoints/cli/demo.py"}  # dates of our own


def dated_sums(tree: ast.AST) -> set[str]:
    """Additions with a date on one side, or a span on one side and not on the other; they may leave the calendar."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case (
                ast.BinOp(op=ast.Add(), left=left, right=right) | ast.AugAssign(op=ast.Add(), target=left, value=right)
            ):
                if is_date(left) or is_date(right) or is_span(left) != is_span(right):
                    found.add(f"line {node.lineno}: {ast.unparse(node)}")
            case ast.BinOp(op=ast.Sub(), left=left, right=right) if is_date(left) and is_span(right):
                found.add(f"line {node.lineno}: {ast.unparse(node)}")
    return found


def is_date(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in DATES
        case ast.Call(func=ast.Attribute(attr="now" | "fromtimestamp")):
            return True
    return False


def is_span(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="timedelta")):
            return True
        case ast.BinOp(left=left, right=right):
            return is_span(left) or is_span(right)
    return False


def run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement that runs when the module is imported: not in a function, not under TYPE_CHECKING."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                continue
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), orelse=otherwise):
                yield from otherwise
            case _:
                yield child
                yield from run_at_import(child)


def eager_sdks(tree: ast.AST) -> set[str]:
    return {name for node in run_at_import(tree) for name in imported(node)} & SDKS


def test_core_imports_only_what_computes() -> None:
    found = {path.name: bad for path in modules("core") if (bad := impure_imports(parsed(path)))}

    assert found == {}


def test_core_calls_no_clock_and_no_outside() -> None:
    found = {path.name: bad for path in modules("core") if (bad := effects(parsed(path)))}

    assert found == {}


@pytest.mark.parametrize("room", ["adapters", "entrypoints"])
def test_sdks_load_only_when_used(room: str) -> None:
    found = {str(path.relative_to(ROOT)): bad for path in modules(room) if (bad := eager_sdks(parsed(path)))}

    assert found == {}


def test_screen_is_the_one_way_out_for_text() -> None:
    """A second way out is where an escape sequence in a name gets through."""
    paths = [path for room in ("core", "adapters", "entrypoints") for path in modules(room)]
    found = {str(path.relative_to(ROOT)): bad for path in paths if (bad := printing(parsed(path)))}

    assert set(found) == MAY_PRINT, found


def test_dates_and_spans_are_added_by_later() -> None:
    """``9999-12-31`` and a second are no date: the sum raises, and dates are written by strangers."""
    paths = [path for room in ("core", "adapters", "entrypoints") for path in modules(room)]
    found = {str(path.relative_to(ROOT)): bad for path in paths if (bad := dated_sums(parsed(path)))}

    assert set(found) - FLOATS - SPANS - SAMPLES <= SUMS, found


def test_the_rooms_are_not_empty() -> None:
    """The three tests above would hold for a tree that they do not find."""
    assert all(modules(room) for room in ("core", "adapters", "entrypoints"))


@pytest.mark.parametrize(
    ("source", "finding"),
    [
        pytest.param("import os.path", {"os"}, id="import"),
        pytest.param("from time import monotonic", {"time"}, id="from-import"),
        pytest.param("def f():\n    import yaml", {"yaml"}, id="in-a-function"),
        pytest.param("from reprieve.core.objects import ObjectRef\nfrom . import holds", set(), id="itself"),
        pytest.param("import json, attrs", set(), id="pure"),
    ],
)
def test_an_impure_import_is_seen(source: str, finding: set[str]) -> None:
    assert impure_imports(ast.parse(source)) == finding


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        pytest.param("datetime.now(UTC)", True, id="datetime-now"),
        pytest.param("datetime.datetime.utcnow()", True, id="module-datetime-utcnow"),
        pytest.param("date.today()", True, id="date-today"),
        pytest.param("open('x')", True, id="open"),
        pytest.param("limits.now()", False, id="somebody-elses-now"),
        pytest.param("datetime.fromisoformat(text)", False, id="parsing-a-time"),
    ],
)
def test_an_effect_is_seen(source: str, seen: bool) -> None:
    assert bool(effects(ast.parse(source))) is seen


@pytest.mark.parametrize(
    ("source", "finding"),
    [
        pytest.param("import boto3", {"boto3"}, id="at-the-top"),
        pytest.param("try:\n    import kubernetes\nexcept ImportError:\n    raise", {"kubernetes"}, id="in-a-try"),
        pytest.param("class A:\n    from google.cloud import compute_v1", {"google"}, id="in-a-class"),
        pytest.param("def f():\n    import boto3", set(), id="in-a-function"),
        pytest.param("if TYPE_CHECKING:\n    import boto3", set(), id="for-types-only"),
        pytest.param("if TYPE_CHECKING:\n    import x\nelse:\n    import boto3", {"boto3"}, id="not-for-types"),
    ],
)
def test_an_eager_sdk_is_seen(source: str, finding: set[str]) -> None:
    assert eager_sdks(ast.parse(source)) == finding


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        pytest.param("click.echo('x')", True, id="click"),
        pytest.param("from click import echo", True, id="from-click"),
        pytest.param("print('x')", True, id="print"),
        pytest.param("sys.stderr.write('x')", True, id="a-stream"),
        pytest.param("sys.stdout.buffer.write(b'x')", True, id="its-bytes"),
        pytest.param("from sys import stdout", True, id="from-sys"),
        pytest.param("Console().print('x')", True, id="rich"),
        pytest.param("fault.show()", True, id="click-error"),
        pytest.param("screen.say('x')", False, id="the-screen"),
        pytest.param("store.write('k', b'x')", False, id="a-store"),
        pytest.param("structlog.PrintLogger(sys.stderr)", False, id="logs"),
    ],
)
def test_printing_is_seen(source: str, seen: bool) -> None:
    assert bool(printing(ast.parse(source))) is seen


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        pytest.param("now + timedelta(hours=1)", True, id="now-and-a-span"),
        pytest.param("backup.expiration + grace", True, id="a-field"),
        pytest.param("datetime.now(UTC) + KEPT", True, id="the-clock"),
        pytest.param("at + timedelta(days=1)", True, id="anything-and-a-span"),
        pytest.param("now - timedelta(days=1)", True, id="back"),
        pytest.param("later(now, span)", False, id="later"),
        pytest.param("now - created", False, id="between-two-dates"),
        pytest.param("timedelta(1) + timedelta(2)", False, id="two-spans"),
        pytest.param("count + 1", False, id="numbers"),
    ],
)
def test_a_sum_of_dates_is_seen(source: str, seen: bool) -> None:
    assert bool(dated_sums(ast.parse(source))) is seen
