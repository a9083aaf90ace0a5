"""Parses the "Partitionable Resources" table of events 004, 005 and 015.

Source followed: ``UsageLineParser`` in ``condor_event.cpp``: a cell lies between the
right edges of the header's words, counted from the colon. Cells may be blank, so white
space does not determine the column of a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, overload

from metlmon.eventlog.events import UsageRow

TITLE: Final = "Partitionable Resources"
_TABLE: Final = re.compile(
    rf"^[^\S\n]*+{TITLE}.*(?:\n[^\S\n]*+(?=[^:=\n])[^:=\n]*+:.*)+", re.MULTILINE
)
"""The title line, and lines with a label before a colon."""
_WORD: Final = re.compile(r"\S+")
_LONGEST_HEADER: Final = 500
"""Characters up to which a title line is cached: the widest real ones have 200."""


def _parse_number(cell: str) -> float | None:
    try:
        return float(cell) if cell else None
    except ValueError:
        return None


def _columns(header: str) -> dict[str, slice]:
    """The part of a line, counted from the colon, of each column's cells, by name."""
    return _cached_columns(header) if len(header) <= _LONGEST_HEADER else _parse_header(header)


def _parse_header(header: str) -> dict[str, slice]:
    columns: dict[str, slice] = {}
    edge = 0
    for word in _WORD.finditer(header.partition(":")[2]):
        if word[0] == "Assigned":
            columns["Assigned"] = slice(edge, None)
            break
        columns[word[0]] = slice(edge, word.end())
        edge = word.end()
    return columns


_cached_columns = lru_cache(maxsize=64)(_parse_header)


class UsageTable(Sequence[UsageRow]):
    """The rows of a usage table, parsed lazily: most tables are never accessed.

    ``text`` is the table as logged, beginning with its title line.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def rows(self) -> tuple[UsageRow, ...]:
        """Parse all rows; nothing is cached."""
        title, *lines = self.text.split("\n")
        columns = _columns(title)
        return tuple(_parse_row(*_split_line(line), columns) for line in lines)

    def named(self, name: str) -> UsageRow | None:
        """The first row with this name, or None; no other row is parsed."""
        title, *lines = self.text.split("\n")
        columns = _columns(title)
        rows = (_parse_row(*_split_line(line), columns) for line in lines if name in line)
        return next((row for row in rows if row.name == name), None)

    def __len__(self) -> int:
        return self.text.count("\n")

    @overload
    def __getitem__(self, index: int) -> UsageRow: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[UsageRow, ...]: ...
    def __getitem__(self, index: int | slice) -> UsageRow | tuple[UsageRow, ...]:
        return self.rows()[index]

    def __iter__(self) -> Iterator[UsageRow]:
        return iter(self.rows())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, UsageTable):
            return self.text == other.text or self.rows() == other.rows()
        return isinstance(other, tuple) and self.rows() == other

    def __hash__(self) -> int:
        return hash(self.rows())

    def __repr__(self) -> str:
        return f"UsageTable({self.text!r})"

    def __reduce__(self) -> tuple[type[UsageTable], tuple[str]]:
        return UsageTable, (self.text,)


def table(body: str) -> Sequence[UsageRow]:
    """The rows of the table in an event's body; () without a table."""
    match = _TABLE.search(body)
    return UsageTable(match[0]) if match else ()


def _split_line(line: str) -> tuple[str, str]:
    label, _, cells = line.partition(":")
    return label.strip(), cells


def _split_label(label: str) -> tuple[str, str]:
    """Split a label into the resource and the unit in parentheses after it.

    Not by a pattern: a hostile label may be long and consist of parentheses or blanks.
    """
    if label.endswith(")"):
        inner = label[:-1]
        opening = inner.find("(", inner.rfind(")") + 1)
        if opening >= 0:
            return label[:opening].rstrip(), inner[opening + 1 :]
    return label, ""


def _parse_row(label: str, cells: str, columns: dict[str, slice]) -> UsageRow:
    values = {column: cells[part].strip() for column, part in columns.items()}
    name, unit = _split_label(label)
    return UsageRow(
        name=name,
        unit=unit,
        usage=_parse_number(values.get("Usage", "")),
        request=_parse_number(values.get("Request", "")),
        allocated=_parse_number(values.get("Allocated", "")),
        assigned=values.get("Assigned", "").strip('"') or None,
    )
