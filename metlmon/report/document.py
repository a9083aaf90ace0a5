"""The parts of a report: tables of raw values, charts, and notes with definitions.

HTML, Markdown, JSON and terminal output format the same values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from importlib.resources import files
from statistics import median
from typing import Any, Final, cast

from jinja2 import Environment, StrictUndefined, Template
from msgspec import Struct
from msgspec.structs import replace

from metlmon.model.reasons import code_name
from metlmon.model.states import State
from metlmon.report.usage import WHISKER, BoxPlot, ReportUsage
from metlmon.snapshot.ledger import HOUR, SHORT_SUCCESS, HourUnit
from metlmon.stats.windows import Unit
from metlmon.text.formatting import (
    THIN,
    UNKNOWN,
    count,
    duration,
    metric,
    number,
    plain,
    readable_dates,
    size,
)

Raw = str | int | float | None


class ValueKind(StrEnum):
    """The kind of a value, which determines its format.

    ``period``: a text with ISO dates; ``code``: that of a hold, a vacation or an exit; ``hours``:
    GPU-hours or hours; ``share``: of one; ``seconds``: a duration; ``bytes``: bytes; ``metric``: a
    value that a training reports.
    """

    TEXT = "text"
    PERIOD = "period"
    CODE = "code"
    COUNT = "count"
    HOURS = "hours"
    SHARE = "share"
    SECONDS = "seconds"
    BYTES = "bytes"
    METRIC = "metric"

    @property
    def is_text(self) -> bool:
        """Whether it is aligned left."""
        return self in (ValueKind.TEXT, ValueKind.PERIOD, ValueKind.CODE)


class ReportColumn(Struct, frozen=True):
    """A column of a table.

    ``key``: its name in JSON; ``value``: a function of a row's record, or the path of its attribute
    (of hours: in seconds); ``footnote``: the key of its definition; ``drop``: order in which a
    narrow terminal omits it (highest first; 0 last); ``group``: a heading over several columns.
    """

    key: str
    heading: str
    value: str | Callable[[Any], Raw]
    kind: ValueKind = ValueKind.TEXT
    footnote: str | None = None
    drop: int = 0
    group: str | None = None


class ReportRow(Struct, frozen=True):
    """A row of a table.

    ``is_detail``: it details the last row that is no part, and is not counted in totals.
    """

    cells: tuple[Raw, ...]
    is_detail: bool = False


class ReportTable(Struct, frozen=True):
    """A table.

    ``total``: the sum of the rows, if meaningful; ``empty_text``: a sentence that replaces a table
    without rows; ``comment``: a sentence below the table.
    """

    key: str
    caption: str
    columns: tuple[ReportColumn, ...]
    rows: tuple[ReportRow, ...]
    total: ReportRow | None = None
    empty_text: str = "No data."
    comment: str | None = None


class Fact(Struct, frozen=True):
    """One line of the totals."""

    key: str
    heading: str
    kind: ValueKind
    value: Raw
    footnote: str | None = None
    comment: str | None = None


class Facts(Struct, frozen=True):
    """A list of totals."""

    key: str
    caption: str
    facts: tuple[Fact, ...]


# --- figures --------------------------------------------------------------------------------


class BandSeries(Struct, frozen=True):
    """One line or one band of a stack. ``colour``: index in the palette."""

    name: str
    values: tuple[float, ...]
    colour: int


class LineChart(Struct, frozen=True):
    """A step chart over time; ``stacked``: as stacked areas.

    Each value holds from its time to the next one.
    """

    moments: tuple[datetime, ...]
    bands: tuple[BandSeries, ...]
    unit: str
    stacked: bool = False


class BarChart(Struct, frozen=True):
    """Stacked bars, each from one time to the next."""

    edges: tuple[datetime, ...]
    bands: tuple[BandSeries, ...]
    unit: str


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
    """Lines over epochs, those in grey first; values outside of the range are at its edge."""

    lines: tuple[CurveLine, ...]
    low: float
    high: float
    unit: str


Chart = LineChart | BarChart | BoxChart | LevelChart | CurveChart


class ReportFigure(Struct, frozen=True):
    """A figure. ``summary``: a text alternative."""

    key: str
    caption: str
    chart: Chart
    summary: str
    footnote: str | None = None


Block = ReportTable | Facts | ReportFigure


class Section(Struct, frozen=True):
    """A section with its heading."""

    heading: str
    blocks: tuple[Block, ...]


class Footnote(Struct, frozen=True):
    """A definition, as plain text."""

    key: str
    text: str


class Report(Struct, frozen=True):
    """A report.

    ``metadata``: subject and time; ``headline``: the totals in one sentence; ``limitations``:
    limitations of the numbers; ``hours_digits``: decimals of all hours in it.
    """

    title: str
    dagdir: str
    window: str
    since: datetime | None
    until: datetime | None
    as_of: datetime | None
    live: bool
    headline: str
    metadata: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    limitations: tuple[str, ...]
    footnotes: tuple[Footnote, ...]
    hours_digits: int

    def blocks(self) -> Iterable[Block]:
        """Yield all tables and figures in order."""
        for section in self.sections:
            yield from section.blocks

    def cell_texts(self, columns: Sequence[ReportColumn], row: ReportRow) -> list[str]:
        """Return the formatted values of a row of a table with these ``columns``."""
        return [
            format_value(column.kind, value, self.hours_digits)
            for column, value in zip(columns, row.cells, strict=True)
        ]

    def footnote_number(self, key: str | None) -> int | None:
        """Return the number of a note, from 1."""
        keys = [note.key for note in self.footnotes]
        return keys.index(key) + 1 if key in keys else None


DIGITS: Final = {ValueKind.HOURS: 6, ValueKind.SHARE: 6, ValueKind.SECONDS: 3}
"""Decimals: a millionth of an hour is below the resolution of time stamps, a second."""


def tables_json(report: Report) -> dict[str, Any]:
    """Return rows and ``total`` of each table by its key; facts as one object.

    Numbers are raw. Detail rows are ``parts`` of the row above them.
    """

    def value_json(kind: ValueKind, value: Raw) -> Raw:
        return round(value, DIGITS[kind]) if isinstance(value, float) and kind in DIGITS else value

    def row_json(columns: Sequence[ReportColumn], row: ReportRow) -> dict[str, Any]:
        cells = zip(columns, row.cells, strict=True)
        return {
            column.key: value_json(column.kind, value) for column, value in cells if value != ""
        }

    result: dict[str, Any] = {}
    for block in report.blocks():
        if isinstance(block, Facts):
            result[block.key] = {
                fact.key: value_json(fact.kind, fact.value) for fact in block.facts
            }
        elif isinstance(block, ReportTable):
            rows: list[dict[str, Any]] = []
            for row in block.rows:
                values = row_json(block.columns, row)
                (rows[-1].setdefault("parts", []) if row.is_detail else rows).append(values)
            total = row_json(block.columns, block.total) if block.total else None
            result[block.key] = {"rows": rows, "total": total}
    return result


def footnote_keys(blocks: Iterable[Block]) -> list[str]:
    """Return the keys of the notes to which blocks refer, once each and in order."""
    keys: list[str | None] = []
    for block in blocks:
        if isinstance(block, ReportTable):
            keys += [column.footnote for column in block.columns]
        elif isinstance(block, Facts):
            keys += [fact.footnote for fact in block.facts]
        else:
            keys.append(block.footnote)
    return list(dict.fromkeys(key for key in keys if key is not None))


def with_hour_unit(report: Report, measure: HourUnit) -> Report:
    """Replace GPU-hours by the unit ``measure`` in all headings and sentences.

    Table cells, which quote the logs, stay unchanged.
    """
    if measure is HourUnit.GPU:
        return report
    unit = measure.hours
    return cast(Report, _with_words(report, lambda text: text.replace(HourUnit.GPU.hours, unit)))


def with_item(report: Report, item: str) -> Report:
    """Call what runs consist of ``item`` instead of epoch, as :func:`with_hour_unit` does."""
    if item == "epoch":
        return report

    def reworded(text: str) -> str:
        text = text.replace("an epoch", f"a {item}").replace("epoch", item)
        return text.replace("Epoch", item.capitalize())

    return cast(Report, _with_words(report, reworded))


_NAMES: Final = frozenset({"key", "footnote", "value", "title", "dagdir"})
"""Fields with names, not with words."""


def _with_words(part: Any, reworded: Callable[[str], str]) -> Any:
    if isinstance(part, ReportRow):
        return part
    if isinstance(part, Struct):
        names = [name for name in part.__struct_fields__ if name not in _NAMES]
        return replace(part, **{name: _with_words(getattr(part, name), reworded) for name in names})
    if type(part) is tuple:
        return tuple(_with_words(item, reworded) for item in part)
    # type(), since enumeration members are strings, too.
    return reworded(part) if type(part) is str else part


# --- values -----------------------------------------------------------------------------------

TEXT_LIMIT: Final = 300
"""Maximum length of a name or reason; ``--json`` has the full text."""

NOT_KNOWN: Final = "not known"

_CODE: Final = re.compile(r"(\d{1,4})/\S+")
"""A hold or vacate code with its subcode."""


def format_value(kind: ValueKind, value: Raw, digits: int = 2) -> str:
    """Format one value; ``digits``: decimals of hours.

    An unknown number is a dash, an unknown name is NOT_KNOWN.
    """
    if value == "":
        return ""
    if kind.is_text:
        text = NOT_KNOWN if value is None else plain(str(value), TEXT_LIMIT)
        if kind is ValueKind.CODE and (code := _CODE.fullmatch(text)):
            return f"{text} {code_name(int(code[1]))}".rstrip()
        return readable_dates(text) if kind is ValueKind.PERIOD else text
    if value is None or isinstance(value, str):
        return UNKNOWN
    if kind is ValueKind.COUNT:
        return number(round(value))
    if kind is ValueKind.HOURS:
        return hours(value, digits)
    if kind is ValueKind.SHARE:
        return percent(value)
    if kind is ValueKind.METRIC:
        return metric(value)
    if kind is ValueKind.BYTES:
        return size(round(value)).replace(" ", THIN)
    return duration(value)


def sanitize(text: str) -> str:
    """Return a sentence on one line, without invisible characters.

    As :func:`~metlmon.text.formatting.plain`, but thin spaces within numbers are preserved.
    """
    return THIN.join(plain(part) for part in text.split(THIN))


def hours(value: float, digits: int = 2) -> str:
    """Format hours with ``digits`` decimals; values that round to 0 as ``<0.01``."""
    if 0 < value < 0.5 * 10**-digits:
        return f"<{10**-digits:.{digits}f}"
    grouped = f"{value:,.{digits}f}" if value > 0 else "0"
    return grouped.replace(",", THIN)


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


def definitions(keys: Iterable[str], usage: ReportUsage, digits: int) -> tuple[Footnote, ...]:
    """The footnotes with these keys; ``digits``: decimals of hours."""
    module = load_template("definitions.j2").make_module(_context(usage, digits))
    return tuple(
        Footnote(key, re.sub(r"[ \n]+", " ", str(getattr(module, f"note_{key}")())).strip())
        for key in keys
    )


def _context(usage: ReportUsage, digits: int) -> dict[str, Any]:
    """The numbers and functions of the template; ``hours`` formats seconds as hours."""
    spent = usage.total.totals
    epochs = [epoch for epoch in usage.clipped.epochs if epoch.counts]
    completed = [epoch for epoch in epochs if epoch.state is State.COMPLETED]
    executions = [e for e in usage.clipped.executions if not e.at_access_point]
    side = [e for e in executions if e.run is not None and not e.training]
    measure = next((e.measure for e in usage.clipped.executions), HourUnit.GPU)
    periods = {Unit.DAY: "day", Unit.WEEK: "week (from Monday)", Unit.MONTH: "month"}
    moved = sum(
        epoch.longest_seconds is not None
        and epoch.seconds is not None
        and (epoch.site, epoch.gpu) != (epoch.longest_site, epoch.longest_gpu)
        for epoch in completed
    )
    return {
        "usage": usage,
        "spent": spent,
        "settled": spent.goodput + spent.badput,
        "longest_executions": usage.total.longest,
        "inferred": sum(epoch.inferred for epoch in epochs),
        "skipped": any(run.epochs_skipped for run in usage.ledger.runs),
        "moved": moved,
        "short": f"{SHORT_SUCCESS:.0%}",
        "whisker": f"{WHISKER:g}",
        "jobs": len(usage.jobs),
        "ran": len({e.job for e in executions}),
        "clock_seconds": sum(e.seconds for e in executions),
        "final_seconds": sum(e.gpu_seconds or 0.0 for e in usage.clipped.executions if e.final),
        "side_executions": len(side),
        "side_counted": sum(e.counted for e in side),
        "side_seconds": sum(e.gpu_seconds or 0.0 for e in side),
        "measure": measure,
        "wall_measure": measure is HourUnit.WALL,
        "period_name": periods[usage.period],
        "clear_times": [e.seconds for e in epochs if e.seconds is not None and not e.hidden],
        "longest_times": [e.longest_seconds for e in completed if e.longest_seconds is not None],
        "count": count,
        "number": number,
        "duration": duration,
        "hours": lambda seconds: hours(seconds / HOUR, digits),
        "share": lambda part, whole: percent(part / whole if whole else None),
        "median": _median_text,
    }


def load_template(name: str, autoescape: bool = False, **filters: Any) -> Template:
    """The template ``name``; ``autoescape``: for HTML; ``filters``: functions by name."""
    environment = Environment(
        autoescape=autoescape, undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.filters.update(filters)
    return environment.from_string((files(__package__) / name).read_text("utf-8"))


def _median_text(values: Sequence[float]) -> str:
    """The median of durations and their number: ``1h02 (n = 12)``."""
    middle = duration(median(values)) if values else "–"
    return f"{middle} (n = {number(len(values))})"
