"""What a report is made of: tables of raw values, charts, and the notes that define them.

Nothing here is formatted: HTML, Markdown, JSON and the terminal each write the same values.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from metlmon.frozen import frozen
from metlmon.stats.report_usage import BoxPlot

Raw = str | int | float | None


class ValueKind(StrEnum):
    """What a value is, and so how it is written. ``hours``: GPU-hours or hours; ``share``: of
    one; ``seconds``: a duration; ``bytes``: bytes."""

    TEXT = "text"
    COUNT = "count"
    HOURS = "hours"
    SHARE = "share"
    SECONDS = "seconds"
    BYTES = "bytes"


@frozen
class ReportColumn:
    """``key``: its name in JSON; ``note``: the key of its definition; ``drop``: when a narrow
    terminal leaves it out (the highest first; 0 last of all); ``group``: a heading over several
    columns."""

    key: str
    head: str
    kind: ValueKind = ValueKind.TEXT
    note: str | None = None
    drop: int = 0
    group: str | None = None


@frozen
class ReportRow:
    """``part``: it is a part of the row above it that is no part, and not added again."""

    cells: tuple[Raw, ...]
    part: bool = False


@frozen
class ReportTable:
    """``total``: the sum of the rows, where they add up to something. ``empty``: the sentence
    in place of a table without rows. ``remark``: a sentence below it."""

    key: str
    caption: str
    columns: tuple[ReportColumn, ...]
    rows: tuple[ReportRow, ...]
    total: ReportRow | None = None
    empty: str = "Nothing to tell."
    remark: str | None = None


@frozen
class Fact:
    """One line of the totals."""

    key: str
    head: str
    kind: ValueKind
    value: Raw
    note: str | None = None
    remark: str | None = None


@frozen
class Facts:
    key: str
    caption: str
    facts: tuple[Fact, ...]


# --- figures --------------------------------------------------------------------------------


@frozen
class BandSeries:
    """One of the values that are stacked, or one line. ``colour``: a number of the palette."""

    name: str
    values: tuple[float, ...]
    colour: int


@frozen
class LineChart:
    """Values over time, each reached at its moment and kept to the next one. ``stacked``: areas
    upon each other."""

    moments: tuple[datetime, ...]
    bands: tuple[BandSeries, ...]
    unit: str
    stacked: bool = False


@frozen
class BarChart:
    """Stacked bars, one from each edge in time to the next."""

    edges: tuple[datetime, ...]
    bands: tuple[BandSeries, ...]
    unit: str


@frozen
class BoxChart:
    """Box plots below one another. ``groups``: heading and its boxes by name."""

    groups: tuple[tuple[str, tuple[tuple[str, BoxPlot], ...]], ...]


@frozen
class LevelChart:
    """Horizontal bars with their names."""

    bars: tuple[tuple[str, float], ...]
    unit: str
    colour: int


Chart = LineChart | BarChart | BoxChart | LevelChart


@frozen
class ReportFigure:
    """``summary``: what is to be seen, in words, for who cannot see it."""

    key: str
    caption: str
    chart: Chart
    summary: str
    note: str | None = None


Block = ReportTable | Facts | ReportFigure


@frozen
class Section:
    head: str
    blocks: tuple[Block, ...]


@frozen
class Note:
    """A definition. Text alone."""

    key: str
    text: str


@frozen
class Report:
    """``lead``: what it is of, and when; ``headline``: its totals in a sentence; ``unknown``:
    what the numbers cannot tell. ``hours_digits``: decimals of all hours in it."""

    title: str
    dagdir: str
    window: str
    since: datetime | None
    until: datetime | None
    as_of: datetime | None
    live: bool
    headline: str
    lead: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    unknown: tuple[str, ...]
    notes: tuple[Note, ...]
    hours_digits: int

    def blocks(self) -> Iterable[Block]:
        """All tables and figures, in order."""
        for section in self.sections:
            yield from section.blocks

    def number(self, key: str | None) -> int | None:
        """The number of a note, from 1."""
        keys = [note.key for note in self.notes]
        return keys.index(key) + 1 if key in keys else None


def referred(blocks: Iterable[Block]) -> list[str]:
    """The keys of the notes that blocks refer to, each once, in order."""
    keys: list[str | None] = []
    for block in blocks:
        if isinstance(block, ReportTable):
            keys += [column.note for column in block.columns]
        elif isinstance(block, Facts):
            keys += [fact.note for fact in block.facts]
        else:
            keys.append(block.note)
    return list(dict.fromkeys(key for key in keys if key is not None))
