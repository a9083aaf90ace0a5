"""No pattern of metlmon takes time quadratic in a text, or worse.

Each is attacked with texts made from the pattern itself: a prefix of one of its repeats, many
repetitions, and an end that makes the match fail.
"""

from __future__ import annotations

import importlib
import re
import re._constants as sre  # type: ignore[import-untyped]
import re._parser as parser  # type: ignore[import-untyped]
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.effort import effort

ROOT: Final = Path(__file__).resolve().parents[2]

BOUNDED: Final = {"metlmon.redact._HARMLESS_NAME"}
"""Patterns that are given names of 200 characters at most."""

LONGEST: Final = 16_000
SLOW_SECONDS: Final = 0.02
"""Shorter times do not show how a time grows."""

SQUARE: Final = 10.0
"""Four times the text in ten times the time: a straight line is 4, a square 16."""


CALL: Final = re.compile(r"\b(\w+)\.(search|match|fullmatch|sub|split|find\w+)\b")
"""A call of a pattern's method: the pattern's name and the method."""


SOURCES: Final = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text()
    for path in sorted((ROOT / "metlmon").rglob("*.py"))
    if "trainer" not in path.parts
}
"""The text of each module. Importing all of them for other tests would take seconds."""


def patterns_of(module: str) -> Iterator[tuple[str, re.Pattern[Any], set[str]]]:
    """Every compiled pattern of a module, and the methods called on it anywhere."""
    text = SOURCES[module]
    for name, value in vars(importlib.import_module(module.removesuffix(".__init__"))).items():
        if isinstance(value, re.Pattern) and re.search(rf"^{name}\b", text, re.MULTILINE):
            places = [text] if name.startswith("_") else SOURCES.values()
            calls = (call for each in places for call in CALL.findall(each))
            yield name, value, {method for owner, method in calls if owner == name} or {"search"}


def sample(parsed: Any, groups: dict[int, list[Any]]) -> str:
    """A text that a parsed pattern roughly matches."""
    result = ""
    for op, what in parsed:
        if op is sre.LITERAL:
            result += chr(what)
        elif op is sre.NOT_LITERAL:
            result += "a" if what != ord("a") else "b"
        elif op is sre.ANY:
            result += "a"
        elif op is sre.IN:
            result += next(members(what), "a")
        elif op is sre.BRANCH:
            result += sample(what[1][0], groups)
        elif op is sre.SUBPATTERN:
            groups[what[0]] = what[-1]
            result += sample(what[-1], groups)
        elif op is sre.ATOMIC_GROUP:
            result += sample(what, groups)
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            result += sample(what[2], groups) * max(what[0], min(1, what[1]))
        elif op is sre.GROUPREF and what in groups:
            result += sample(groups[what], groups)
    return result


CATEGORIES: Final = {
    sre.CATEGORY_DIGIT: "1",
    sre.CATEGORY_SPACE: " ",
    sre.CATEGORY_WORD: "a",
    sre.CATEGORY_NOT_SPACE: "a",
    sre.CATEGORY_NOT_DIGIT: "a",
    sre.CATEGORY_NOT_WORD: "-",
}


def members(what: Any) -> Iterator[str]:
    """Some members of a class of characters."""
    if what and what[0][0] is sre.NEGATE:
        inside = re.compile("[" + "".join(_spelled(each) for each in what[1:]) + "]")
        yield from (char for char in "a1 -.\"'\\(<:=[{,\n;/" if not inside.match(char))
        return
    for op, value in what:
        if op is sre.LITERAL:
            yield chr(value)
        elif op is sre.RANGE:
            yield chr(value[0])
        elif op is sre.CATEGORY:
            yield CATEGORIES[value]


def _spelled(each: Any) -> str:
    op, value = each
    if op is sre.LITERAL:
        return re.escape(chr(value))
    if op is sre.RANGE:
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    kinds = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}
    name = str(value).removeprefix("CATEGORY_")
    letter = kinds[name.removeprefix("NOT_")]
    return "\\" + (letter.upper() if name.startswith("NOT_") else letter)


def attacks(parsed: Any, before: str = "", groups: dict[int, list[Any]] | None = None) -> list[Any]:
    """(prefix, repeated text) for each unbounded repeat."""
    groups = {} if groups is None else groups
    found: list[tuple[str, str]] = []
    for at, (op, what) in enumerate(parsed):
        lead = before + sample(list(parsed)[:at], groups)
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            if what[1] is sre.MAXREPEAT or what[1] > 200:
                found.append((lead, sample(what[2], groups)))
                inner = list(what[2])
                if len(inner) == 1 and inner[0][0] is sre.IN:
                    found += [(lead, char) for char in list(members(inner[0][1]))[:16]]
            found += attacks(what[2], lead, groups)
        elif op is sre.SUBPATTERN:
            groups[what[0]] = what[-1]
            found += attacks(what[-1], lead, groups)
        elif op is sre.ATOMIC_GROUP:
            found += attacks(what, lead, groups)
        elif op in (sre.ASSERT, sre.ASSERT_NOT):
            found += attacks(what[1], lead, groups)
        elif op is sre.BRANCH:
            for branch in what[1]:
                found += attacks(branch, lead, groups)
    return found


def texts(pattern: re.Pattern[Any]) -> list[tuple[str, str, str]]:
    """(beginning, repeated text, end)"""
    source = pattern.pattern
    spelled = source.decode("latin-1") if isinstance(source, bytes) else source
    parsed = parser.parse(spelled, pattern.flags & ~re.UNICODE & ~re.DEBUG)
    whole = sample(parsed, {})
    pairs = [(lead, pump) for lead, pump in attacks(parsed) if pump]
    # Without a repeat of its own a beginning can still match again at each position.
    pairs += [("", lead + pump) for lead, pump in pairs] + [("", whole)]
    pairs += [(lead + pump, lead + pump) for lead, pump in pairs if lead]
    ends = ("", "\0", "!x", "\nx")
    return [(lead, pump, end) for lead, pump in dict.fromkeys(pairs) if pump for end in ends]


def seconds(use: Callable[[Any], object], text: Any) -> float:
    return effort(lambda: use(text))


def grows_too_fast(use: Callable[[Any], object], made: Callable[[int], Any]) -> str | None:
    """The times, if a text four times as long takes ten times the time; else None."""
    size = 250
    before = 0.0
    while size <= LONGEST:
        took = seconds(use, made(size))
        if took > SLOW_SECONDS and before * SQUARE < took:
            again = min(took, seconds(use, made(size)))
            least = min(seconds(use, made(size // 4)) for _ in range(3))
            if again > SLOW_SECONDS and again > SQUARE * max(least, SLOW_SECONDS / 1000):
                return f"{size // 4} in {least:.4f} s, {size} in {again:.3f} s"
        before = took
        size *= 4
    return None


HAS_PATTERNS: Final = re.compile(r"^\w.*compile\(", re.MULTILINE)


@pytest.mark.parametrize("module", [name for name in SOURCES if HAS_PATTERNS.search(SOURCES[name])])
def test_no_pattern_is_quadratic(module: str) -> None:
    for name, pattern, methods in patterns_of(module):
        place = f"{module}.{name}"
        if place not in BOUNDED:
            check(place, pattern, methods)


def check(place: str, pattern: re.Pattern[Any], methods: set[str]) -> None:
    """Fail if one of these methods takes time quadratic in a text."""
    one_pass = {"sub": lambda text: pattern.sub(lambda _: text[:0], text)}
    whole = {name: getattr(pattern, name) for name in methods - {"sub"}}
    whole |= {
        name: (lambda text, f=f: list(f(text))) for name, f in whole.items() if "iter" in name
    }
    whole |= {name: one_pass[name] for name in methods & {"sub"}}
    for lead, pump, end in texts(pattern):

        def made(size: int, lead: str = lead, pump: str = pump, end: str = end) -> Any:
            text = lead + pump * (size // len(pump)) + end
            return text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text

        for name, use in whole.items():
            slow = grows_too_fast(use, made)
            assert slow is None, f"{place}.{name}: {lead!r} + {pump!r} * n + {end!r}: {slow}"
