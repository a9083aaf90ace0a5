"""The parts of a report: tables and totals of raw values, charts, and definitions.

HTML, Markdown, JSON and terminal output format the same values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from statistics import median
from typing import Any, Final, Literal

from jinja2 import Environment, StrictUndefined, Template
from msgspec import Struct

from metlmon.model.states import State
from metlmon.report.usage import WHISKER, BoxPlot, ReportUsage
from metlmon.snapshot.records import HOUR, SHORT_SUCCESS, HourUnit, job_key
from metlmon.stats.windows import TimeWindow, Unit
from metlmon.tables.layout import Column, Kind
from metlmon.text.formatting import THIN, UNKNOWN, count, duration, exact_hours, number, plain

Row = dict[str, Any]
"""The values of a row by the names of its columns; a column without a value is missing."""

PARTS: Final = "parts"
"""The name under which a row has its detail rows, which do not count in totals."""

AT_MOST: Final = "at_most"
"""The names of the columns in which the value of a row is an upper bound."""


def row_of(columns: Iterable[Column[Any]], record: Any) -> Row:
    """The row of a record; empty texts are omitted."""
    values = ((column.name, column.value(record)) for column in columns)
    return {name: value for name, value in values if value != ""}


class ReportTable(Struct, frozen=True):
    """A table.

    ``total``: the sum of the rows, if meaningful; ``empty_text``: a sentence that replaces a table
    without rows; ``comment``: a sentence below the table.
    """

    key: str
    caption: str
    columns: tuple[Column[Any], ...]
    rows: tuple[Row, ...]
    total: Row | None = None
    empty_text: str = "No data."
    comment: str | None = None

    def lines(self) -> Iterator[tuple[Row, bool]]:
        """The rows, each followed by its detail rows, for which the flag is true."""
        for row in self.rows:
            yield row, False
            yield from ((part, True) for part in row.get(PARTS, ()))


class Totals(Struct, frozen=True):
    """A list of totals: one ``row``, with its columns one below the other.

    ``comments``: what follows a value, by column.
    """

    key: str
    caption: str
    columns: tuple[Column[Any], ...]
    row: Row
    comments: Mapping[str, str]


# --- figures --------------------------------------------------------------------------------


class BandSeries(Struct, frozen=True):
    """One line or one band of a stack. ``colour``: index in the palette."""

    name: str
    values: tuple[float, ...]
    colour: int


class TimeChart(Struct, frozen=True):
    """Values over time: steps, or stacked ``areas`` or ``bars``.

    Each value holds from its time to the next one; bars have one value less than times.
    """

    moments: tuple[datetime, ...]
    bands: tuple[BandSeries, ...]
    unit: str
    kind: Literal["steps", "areas", "bars"]


class BoxChart(Struct, frozen=True):
    """Horizontal box plots. ``groups``: heading, and the named boxes below it."""

    groups: tuple[tuple[str, tuple[tuple[str, BoxPlot], ...]], ...]


class LevelChart(Struct, frozen=True):
    """Horizontal bars with their names."""

    bars: tuple[tuple[str, float], ...]
    unit: str
    colour: int


class CurveLine(Struct, frozen=True):
    """The values of one run by epoch number, from 1. ``colour`` None: one of many, in grey."""

    name: str
    points: tuple[tuple[int, float], ...]
    colour: int | None


class CurveChart(Struct, frozen=True):
    """Lines over epochs, grey ones first; values outside of the range are drawn at its edge."""

    lines: tuple[CurveLine, ...]
    low: float
    high: float
    unit: str


Chart = TimeChart | BoxChart | LevelChart | CurveChart


class ReportFigure(Struct, frozen=True):
    """A figure. ``summary``: a text alternative."""

    key: str
    caption: str
    chart: Chart
    summary: str
    footnote: str = ""


Block = ReportTable | Totals | ReportFigure


class Report(Struct, frozen=True):
    """A report.

    ``metadata``: subject and time; ``verdict``: the first line of Health, with what to do, empty
    for a window of time; ``headline``: the totals in one sentence; ``sections``: tables and figures
    by heading; ``limitations``: limitations of the numbers; ``definitions``: by the key that
    columns and figures have as their footnote, in the order of their numbers; ``hours_digits``:
    decimals of all hours.

    Sentences and headings speak of epochs and GPU-hours: :meth:`prose` adapts them.
    """

    title: str
    dagdir: str
    window: TimeWindow
    as_of: datetime | None
    live: bool
    verdict: str
    headline: str
    metadata: tuple[tuple[str, str], ...]
    sections: Mapping[str, tuple[Block, ...]]
    limitations: tuple[str, ...]
    definitions: Mapping[str, str]
    hours_digits: int
    measure: HourUnit = HourUnit.GPU
    item: str = "epoch"

    def blocks(self) -> Iterable[Block]:
        """Yield all tables and figures in order."""
        for blocks in self.sections.values():
            yield from blocks

    def prose(self, text: str) -> str:
        """A sentence or heading in the terms of this ensemble, on one visible line.

        ``measure`` replaces GPU-hours, and ``item`` epochs. Values and names of files are not
        prose.
        """
        text = text.replace(HourUnit.GPU.hours, self.measure.hours)
        if self.item != "epoch":
            text = re.sub(r"\b([aA])n epoch", rf"\1 {self.item}", text)
            text = text.replace("epoch", self.item).replace("Epoch", self.item.capitalize())
        return sanitize(text)

    def text(self, column: Column[Any], row: Row) -> str:
        """The text of a row in a column; an unknown number is a dash, a name NOT_KNOWN."""
        value = row.get(column.name, "")
        if value is None:
            return NOT_KNOWN if column.alignment == "left" else UNKNOWN
        if isinstance(value, str):
            return column.text(plain(value, TEXT_LIMIT))
        if column.kind is Kind.HOURS:
            return exact_hours(value, self.hours_digits)
        if column.kind is Kind.SHARE:
            return percent(value)
        most = "≤" if column.name in row.get(AT_MOST, ()) else ""
        return most + column.text(value).replace(" ", THIN)

    def footnote_number(self, key: str) -> int | None:
        """Return the number of a definition, from 1."""
        keys = list(self.definitions)
        return keys.index(key) + 1 if key in keys else None


DIGITS: Final = {Kind.HOURS: 6, Kind.SHARE: 6, Kind.DURATION: 3}
"""Number of decimals: a millionth of an hour is below the resolution of logged times, a second."""


def tables_json(report: Report) -> dict[str, Any]:
    """Rows and ``total`` of each table by key; details of a row are its ``parts``."""

    def row_json(columns: Sequence[Column[Any]], row: Row) -> Row:
        values = dict(row)
        for column in columns:
            value = row.get(column.name)
            if isinstance(value, float) and column.kind in DIGITS:
                values[column.name] = round(value, DIGITS[column.kind])
        if PARTS in row:
            values[PARTS] = [row_json(columns, part) for part in row[PARTS]]
        return values

    result: dict[str, Any] = {}
    for block in report.blocks():
        if isinstance(block, Totals):
            result[block.key] = row_json(block.columns, block.row)
        elif isinstance(block, ReportTable):
            result[block.key] = {
                "rows": [row_json(block.columns, row) for row in block.rows],
                "total": row_json(block.columns, block.total) if block.total else None,
            }
    return result


def footnote_keys(blocks: Iterable[Block]) -> list[str]:
    """Return the keys of the definitions to which blocks refer, once each and in order."""
    keys: list[str] = []
    for block in blocks:
        if isinstance(block, ReportFigure):
            keys.append(block.footnote)
        else:
            keys += [column.footnote for column in block.columns]
    return list(dict.fromkeys(filter(None, keys)))


# --- values -----------------------------------------------------------------------------------

TEXT_LIMIT: Final = 300
"""Maximum length of a name or reason; ``--json`` has the full text."""

NOT_KNOWN: Final = "not known"


def sanitize(text: str) -> str:
    """Return a sentence on one line, without invisible characters.

    As :func:`~metlmon.text.formatting.plain`, but thin spaces within numbers are preserved.
    """
    return THIN.join(plain(part) for part in text.split(THIN))


def percent(value: float | None) -> str:
    """Format a share of one in per cent with one decimal; None as a dash.

    Values other than 0 and 1 are never formatted as 0.0 % or 100.0 %.
    """
    if value is None:
        return UNKNOWN
    text = f"{100 * value:.1f}"
    if value > 0 and text == "0.0":
        text = "<0.1"
    elif value < 1 and text == "100.0":
        text = ">99.9"
    return f"{text}{THIN}%"


def hours_digits(total: float) -> int:
    """Return the decimals of all hours in a report with ``total`` GPU-hours."""
    return 4 if total < 1 else 3 if total < 10 else 2 if total < 100_000 else 1


# --- definitions: the footnotes, whose text is in definitions.j2 -----------------------------


def definitions(keys: Iterable[str], usage: ReportUsage, digits: int) -> dict[str, str]:
    """The definitions with these keys; ``digits``: decimals of hours."""
    module = load_template("definitions.j2").make_module(_context(usage, digits))
    return {
        key: re.sub(r"[ \n]+", " ", str(getattr(module, f"note_{key}")())).strip() for key in keys
    }


def _context(usage: ReportUsage, digits: int) -> dict[str, Any]:
    """The numbers and functions of the template; ``hours`` formats seconds as hours."""
    spent = usage.total.totals
    epochs = [epoch for epoch in usage.clipped.epochs if epoch.counts]
    completed = [epoch for epoch in epochs if epoch.state is State.COMPLETED]
    executions = [e for e in usage.clipped.executions if not e.at_access_point]
    side = [e for e in executions if e.key is not None and not e.training]
    measure = usage.ledger.measure
    periods = {Unit.DAY: "day", Unit.WEEK: "week (from Monday)", Unit.MONTH: "month"}

    def median_text(values: Sequence[float]) -> str:
        """``1h02 (n = 12)``."""
        middle = duration(median(values)) if values else "–"
        return f"{middle} (n = {number(len(values))})"

    moved = sum(
        epoch.longest is not None
        and epoch.success is not None
        and (epoch.success.site, epoch.success.gpu) != (epoch.longest.site, epoch.longest.gpu)
        for epoch in completed
    )
    return {
        "usage": usage,
        "spent": spent,
        "longest_executions": usage.total.longest,
        "inferred": sum(epoch.inferred for epoch in epochs),
        "skipped": any(run.epochs_skipped for run in usage.ledger.runs),
        "moved": moved,
        "short": f"{SHORT_SUCCESS:.0%}",
        "whisker": f"{WHISKER:g}",
        "jobs": len(usage.jobs),
        "ran": len(set(map(job_key, executions))),
        "clock_seconds": sum(e.seconds for e in executions),
        "final_seconds": sum(
            measure.seconds(e) or 0.0 for e in usage.clipped.executions if e.final
        ),
        "side_executions": len(side),
        "side_counted": sum(e.counted for e in side),
        "side_seconds": sum(measure.seconds(e) or 0.0 for e in side),
        "measure": measure,
        "wall_measure": measure is HourUnit.WALL,
        "period_name": periods[usage.period],
        "clear_times": [e.success.trained for e in epochs if e.success and not e.hidden],
        "longest_times": [e.longest_seconds for e in completed if e.longest_seconds is not None],
        "count": count,
        "number": number,
        "duration": duration,
        "hours": lambda seconds: exact_hours(seconds / HOUR, digits),
        "gpu_hours": lambda hours: exact_hours(hours, digits),
        "share": lambda part, whole: percent(part / whole if whole else None),
        "median": median_text,
    }


@cache
def load_template(name: str, autoescape: bool = False) -> Template:
    """The template ``name``; ``autoescape``: for HTML."""
    environment = Environment(
        autoescape=autoescape, undefined=StrictUndefined, keep_trailing_newline=True
    )
    return environment.from_string((files(__package__) / name).read_text("utf-8"))
