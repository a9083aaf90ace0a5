"""Findings: their fields, their collection, and the limits on their number."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from metlmon.authoring.lint.rules import KINDS, Severity

ORDER: Final = (Severity.ERROR, Severity.WARNING, Severity.NOTE)

NAMES_SHOWN: Final = 6
"""Most names that one message lists."""


class Finding(Struct, frozen=True):
    """One finding.

    ``kind``: stable, since scripts filter by it. ``file``: relative to the dagdir. ``line``: from
    1; None for the file as a whole. ``message``, ``remedy``: one sentence each; names from the
    files in them are not yet escaped for the terminal. ``count``: the places in this file that it
    stands for; ``line`` is the first of them.
    """

    severity: Severity
    kind: str
    file: str
    line: int | None
    message: str
    remedy: str
    count: int = 1


class LintResult(Struct, frozen=True):
    """The result of a check.

    ``dags``: the top-level DAG files; ``findings``: sorted by file and line.
    """

    dags: tuple[str, ...]
    findings: tuple[Finding, ...]

    def number(self, severity: Severity) -> int:
        """The number of findings of this severity."""
        return sum(finding.severity is severity for finding in self.findings)


class _Occurrences:
    """A finding and the number of its occurrences."""

    __slots__ = ("count", "line", "what")

    def __init__(self, line: int | None, what: str) -> None:
        self.line = line
        self.what = what
        self.count = 1

    def add_occurrence(self, line: int | None, what: str) -> None:
        """Count another occurrence; the first in the file is the one reported."""
        self.count += 1
        if line is not None and (self.line is None or line < self.line):
            self.line, self.what = line, what


class Findings:
    """Collects findings in bounded memory.

    Of each kind and file a limited number is listed; the rest is counted.
    """

    def __init__(self) -> None:
        self._occurrences: dict[tuple[str, str], dict[object, _Occurrences]] = {}
        self._seen: set[tuple[str, str, int | None, str]] = set()

    def add(
        self, kind: str, file: str, line: int | None, message: str, about: str | None = None
    ) -> None:
        """Add a finding.

        An identical one (of a splice used twice) counts once; several of one kind ``about`` the
        same thing (a script that many nodes use) are merged.
        """
        identity = (kind, file, line, message)
        if identity in self._seen:
            return
        if len(self._seen) < _MAX_REMEMBERED:
            self._seen.add(identity)
        occurrences = self._occurrences.setdefault((kind, file), {})
        key = about or (line, message)
        if key in occurrences:
            occurrences[key].add_occurrence(line, message)
        elif len(occurrences) < KINDS[kind].most_listed:
            occurrences[key] = _Occurrences(line, message)
        else:
            next(reversed(occurrences.values())).add_occurrence(line, message)

    def all(self) -> tuple[Finding, ...]:
        """All findings, sorted by file, line, then severity, the worst first."""
        findings = [
            Finding(
                severity=KINDS[kind].severity,
                kind=kind,
                file=file,
                line=occurrences.line,
                message=occurrences.what,
                remedy=KINDS[kind].remedy,
                count=occurrences.count,
            )
            for (kind, file), group in self._occurrences.items()
            for occurrences in group.values()
        ]
        findings.sort(
            key=lambda finding: (
                finding.file,
                finding.line or 0,
                ORDER.index(finding.severity),
                finding.kind,
                finding.message,
            )
        )
        return tuple(findings)


_MAX_REMEMBERED: Final = 100_000
"""Limit of the duplicate detection; hostile files could produce millions."""


def listed(names: list[str]) -> str:
    """The names as text: ``a, b, c and 12 more``."""
    shown = ", ".join(names[:NAMES_SHOWN])
    more = len(names) - NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
