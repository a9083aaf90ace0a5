"""Findings: their fields, their collection, and the limits on their number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from metlmon.authoring.lint.rules import KINDS, Severity

ORDER: Final = (Severity.ERROR, Severity.WARNING, Severity.NOTE)

NAMES_SHOWN: Final = 6
"""Most names that one message lists."""

_MAX_REMEMBERED: Final = 100_000
"""Limit of the duplicate detection; hostile files could produce millions."""


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


class _Occurrences(Struct):
    """The first occurrence of a finding, and the number of all."""

    line: int | None
    message: str
    count: int = 0


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
        group = self._occurrences.setdefault((kind, file), {})
        key: object = about or (line, message)
        if key not in group and len(group) >= KINDS[kind].most_listed:
            key = next(reversed(group))
        first = group.setdefault(key, _Occurrences(line, message))
        first.count += 1
        if line is not None and (first.line is None or line < first.line):
            first.line, first.message = line, message

    def all(self) -> tuple[Finding, ...]:
        """All findings, sorted by file, line, then severity, the worst first."""
        findings = [
            Finding(
                severity=KINDS[kind].severity,
                kind=kind,
                file=file,
                line=first.line,
                message=first.message,
                remedy=KINDS[kind].remedy,
                count=first.count,
            )
            for (kind, file), group in self._occurrences.items()
            for first in group.values()
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


def listed(names: Sequence[str]) -> str:
    """The names as text: ``a, b, c and 12 more``."""
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
