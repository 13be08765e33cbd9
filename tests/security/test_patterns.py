"""Patterns and hostile texts: an error page of 180 KB stopped the whole process for 12 s, one of 720 KB for 188 s.

Every pattern of the packages is found by itself: those that modules hold, however deep, and those in calls. Each is run
on 100 KB of its own words, repeated; that must take no more than a few times what half of it takes.
"""

import ast
import importlib
import itertools
import pkgutil
import re
import time
from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest

try:
    import re._constants as sre
    import re._parser as parser
except ImportError:  # before Python 3.11
    import sre_constants as sre
    import sre_parse as parser

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("core", "adapters", "entrypoints")
LONG = 100_000
NOTICED = 0.05  # seconds: what is quicker for all of it stops nobody, and cannot be told from noise


def modules():
    for room in ROOMS:
        package = importlib.import_module(f"reprieve.{room}")
        yield package
        for found in pkgutil.walk_packages(package.__path__, f"reprieve.{room}."):
            yield importlib.import_module(found.name)


def held(value, depth=4):
    """The patterns in a value."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, Mapping):
        for each in itertools.chain(value.keys(), value.values()):
            yield from held(each, depth - 1)
    elif depth and isinstance(value, tuple | list | set | frozenset):
        for each in value:
            yield from held(each, depth - 1)
    elif depth and attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            yield from held(getattr(value, field.name, None), depth - 1)


def trees():
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


USES = {"search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"}


def called():
    """The patterns that stand as a literal in a call of ``re``, and how they are used there."""
    for _, tree in trees():
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="re"), attr=use),
                    args=[ast.Constant(value=str() | bytes() as text), *_],
                ) if use in USES:
                    yield re.compile(text), use


def uses_by_name():
    """How the patterns that have a name are used: a pattern that is only matched whole is never searched for."""
    found = {}
    for path, tree in trees():
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr=use) if use in USES:
                    found.setdefault((path, name), set()).add(use)
                case ast.Attribute(attr=use) if use in USES - {"split"}:  # texts are split as well
                    found.setdefault((path, ""), set()).add(use)
    return found


def every_pattern():
    named = uses_by_name()
    found = {}
    for pattern, use in called():
        found.setdefault(pattern, set()).add(use)
    for module in modules():
        for name, value in vars(module).items():
            for pattern in held(value):
                path = Path(module.__file__).resolve()
                mine = named.get((path, name), set())
                loose = {use for (where, _), uses in named.items() if where == path for use in uses}  # out of a table
                found.setdefault(pattern, set()).update(mine or loose or {"match"})
    return [(pattern, frozenset(uses)) for pattern, uses in found.items()]


def words(pattern):  # noqa: C901 - one branch for each kind of node
    """What the pattern looks for, as texts: each letter of it, all of them in a row, and members of its classes."""
    letters = []

    def walk(parsed):
        for operation, argument in parsed:
            if operation is sre.LITERAL:
                letters.append(chr(argument))
            elif operation is sre.IN:
                letters.extend(members(argument))
            elif operation in {sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT}:
                walk(argument[2])
            elif operation is sre.SUBPATTERN:
                walk(argument[3])
            elif operation is sre.BRANCH:
                for each in argument[1]:
                    walk(each)
            elif operation in {sre.ASSERT, sre.ASSERT_NOT}:
                walk(argument[1])
            elif operation is sre.ATOMIC_GROUP:
                walk(argument)

    walk(parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG))
    text = "".join(letters)
    halves = [text[: len(text) // 2], text[len(text) // 2 :]]
    return [each for each in dict.fromkeys([*letters[:20], text, *halves, " ", "\n", "a", "0", "a ", "0."]) if each]


def members(choices):
    for kind, argument in choices:
        if kind is sre.LITERAL:
            yield chr(argument)
        elif kind is sre.RANGE:
            yield chr(argument[0])


def taken(pattern, text, uses):
    """Seconds, the best of three, for all that is done with a pattern."""
    best = float("inf")
    for _ in range(3):
        began = time.thread_time()
        if uses <= {"match", "fullmatch"}:
            pattern.fullmatch(text)
            pattern.match(text)
        else:
            pattern.sub(text[:0], text)
        best = min(best, time.thread_time() - began)
        if best > 1:
            break
    return best


def worse_than_linear(pattern, uses):
    """The words on which a pattern takes far more than its share for a longer text, in time of its own thread."""
    for word in words(pattern):
        for start in ("", "x", word[:1]):

            def spent(length, word=word, start=start):
                text = start + word * (length // len(word)) + "\x01"  # at whose end it turns out to be no match
                return taken(pattern, text.encode() if isinstance(pattern.pattern, bytes) else text, uses)

            short = spent(LONG // 8)
            if short > NOTICED:
                if spent(LONG // 2) > 10 * short:
                    return word
            elif short > NOTICED / 64 and (long := spent(LONG)) > NOTICED and long > 24 * short:
                return word
    return None


PATTERNS = every_pattern()


def test_the_patterns_are_found():
    """The test below would hold for a package without any."""
    assert len(PATTERNS) > 20


def test_no_pattern_is_worse_than_linear():
    """A pattern that begins anew at each character of a long text stops every thread for as long as it takes."""
    worse = [(each.pattern, word) for each, uses in PATTERNS if (word := worse_than_linear(each, uses)) is not None]
    assert worse == []


@pytest.mark.parametrize(
    ("quadratic", "expected"),
    [
        pytest.param(r"a*b", True, id="from-every-start"),
        pytest.param(r"project.*not found", True, id="two-words-and-anything-between"),
        pytest.param(r"\s+$", True, id="blanks-at-the-end"),
        pytest.param(r"[a-z0-9]+", False, id="a-class"),
        pytest.param(r"not found", False, id="words"),
    ],
)
def test_what_is_worse_is_seen(quadratic, expected):
    assert (worse_than_linear(re.compile(quadratic), {"search"}) is not None) is expected
