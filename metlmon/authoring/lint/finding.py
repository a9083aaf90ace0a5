"""What a check finds: findings, how bad they are, and how many of one kind are told apart."""

from __future__ import annotations

from typing import Final

from metlmon.authoring.lint.rules import KINDS
from metlmon.authoring.lint.severity import Severity
from metlmon.frozen import frozen

ORDER: Final = (Severity.ERROR, Severity.WARNING, Severity.NOTE)

NAMES_SHOWN: Final = 6
"""Names that one sentence lists: a sentence, not a page."""


@frozen
class Finding:
    """One thing that is wrong. ``kind`` is stable (scripts filter by it), ``file`` as seen from
    the dagdir, ``line`` from 1 (None: the file as a whole). ``what`` and ``todo`` are one sentence
    each, foreign words in them still as they were written. ``count``: how many places of this file
    it stands for; the line is the first of them."""

    severity: Severity
    kind: str
    file: str
    line: int | None
    what: str
    todo: str
    count: int = 1


@frozen
class LintResult:
    """The answer: ``dags`` are the top-level DAG files, ``findings`` by file and line."""

    dags: tuple[str, ...]
    findings: tuple[Finding, ...]

    def number(self, severity: Severity) -> int:
        """How many findings there are of this severity."""
        return sum(each.severity is severity for each in self.findings)


class _Held:
    __slots__ = ("count", "line", "what")

    def __init__(self, line: int | None, what: str) -> None:
        self.line = line
        self.what = what
        self.count = 1

    def again(self, line: int | None, what: str) -> None:
        """The same at another place: the first in the file is the one that is told."""
        self.count += 1
        if line is not None and (self.line is None or line < self.line):
            self.line, self.what = line, what


class Findings:
    """Gathers findings in bounded memory: of a kind and file only so many are told apart, the
    rest are counted."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], dict[object, _Held]] = {}
        self._seen: set[tuple[str, str, int | None, str]] = set()

    def add(
        self, kind: str, file: str, line: int | None, what: str, about: str | None = None
    ) -> None:
        """Adds one. The same one twice (a splice that is used twice) counts once; several of one
        kind ``about`` one thing (a script that many nodes name) are told together."""
        seen = (kind, file, line, what)
        if seen in self._seen:
            return
        if len(self._seen) < _REMEMBERED:
            self._seen.add(seen)
        held = self._held.setdefault((kind, file), {})
        one = about or (line, what)
        if one in held:
            held[one].again(line, what)
        elif len(held) < KINDS[kind].apart:
            held[one] = _Held(line, what)
        else:
            next(reversed(held.values())).again(line, what)

    def all(self) -> tuple[Finding, ...]:
        """By file and line, the worst first where they share one."""
        found = [
            Finding(
                KINDS[kind].severity, kind, file, held.line, held.what, KINDS[kind].todo, held.count
            )
            for (kind, file), some in self._held.items()
            for held in some.values()
        ]
        found.sort(key=lambda f: (f.file, f.line or 0, ORDER.index(f.severity), f.kind, f.what))
        return tuple(found)


_REMEMBERED: Final = 100_000
"""Findings that are remembered to tell a repetition; hostile files could make millions."""


def listed(names: list[str]) -> str:
    """``a, b, c and 12 more``."""
    shown = ", ".join(names[:NAMES_SHOWN])
    more = len(names) - NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
