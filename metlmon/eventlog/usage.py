"""The "Partitionable Resources" table of 004, 005 and 015.

Source followed: ``UsageLineParser`` in ``condor_event.cpp``: a cell lies between the
right edges of the header's words, counted from the colon.  Cells may be blank, so white
space cannot tell which column a number is in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from metlmon.eventlog.records import UsageRow

TITLE: Final = "Partitionable Resources"
_WORD: Final = re.compile(r"\S+")
_LABEL: Final = re.compile(r"(.*?)\s*(?:\(([^)]*)\))?")


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _columns(header: str) -> dict[str, tuple[int, int | None]]:
    """Each column's name with where its cells begin and end behind the colon."""
    columns: dict[str, tuple[int, int | None]] = {}
    edge = 0
    for word in _WORD.finditer(header.partition(":")[2]):
        if word[0] == "Assigned":
            columns["Assigned"] = (edge, None)
            break
        columns[word[0]] = (edge, word.end())
        edge = word.end()
    return columns


def table(lines: Sequence[str]) -> tuple[UsageRow, ...]:
    """The rows of the table in an event's body ``lines``; () where there is no table."""
    titles = (at for at, line in enumerate(lines) if line.lstrip().startswith(TITLE))
    first = next(titles, None)
    if first is None:
        return ()
    columns = _columns(lines[first])
    rows: list[UsageRow] = []
    for line in lines[first + 1 :]:
        label, colon, cells = line.partition(":")
        if not colon or not label.strip() or "=" in label:
            break
        rows.append(_row(label.strip(), cells, columns))
    return tuple(rows)


def _row(label: str, cells: str, columns: dict[str, tuple[int, int | None]]) -> UsageRow:
    def cell(column: str) -> str:
        if column not in columns:
            return ""
        start, end = columns[column]
        return cells[start:end].strip()

    named = _LABEL.fullmatch(label)
    return UsageRow(
        name=named[1] if named else label,
        unit=(named[2] or "") if named else "",
        usage=_number(cell("Usage")),
        request=_number(cell("Request")),
        allocated=_number(cell("Allocated")),
        assigned=cell("Assigned").strip('"') or None,
    )
