"""Formats a report as plain text for the width of a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from textwrap import wrap
from typing import Any, Final

from rich.cells import cell_len

from metlmon.report.document import Report, ReportFigure, ReportTable, Row, Totals, sanitize
from metlmon.snapshot.records import HourUnit
from metlmon.stats.resources import RESOURCES
from metlmon.tables.layout import MARGIN, Column, fit_columns, table_lines
from metlmon.text.formatting import clip
from metlmon.text.spans import text

MAX_NAME_WIDTH: Final = 48
"""Maximum width of a name or reason."""

MIN_NAME_WIDTH: Final = 14
"""Width to which names are clipped before columns are omitted."""

PROSE_WIDTH: Final = 100
"""Maximum width of sentences, even on a wider terminal."""


def text_lines(report: Report, width: int) -> Iterable[str]:
    """Yield the lines of a report without its figures and definitions."""
    yield from _wrapped(sanitize(report.title), width)
    if report.verdict:
        yield from _wrapped(f"Health: {sanitize(report.verdict)}", width)
    yield from _wrapped(report.prose(report.headline), width)
    for name, value in report.metadata:
        yield clip(f"{sanitize(name)}: {sanitize(value)}", width)
    for block in report.blocks():
        if isinstance(block, ReportFigure):
            continue
        yield ""
        yield clip(report.prose(block.caption), width)
        if isinstance(block, Totals):
            yield from _totals(report, block, width)
        else:
            yield from _table(report, block, width)
    if report.limitations:
        yield from ("", "What is not known")
        for sentence in report.limitations:
            yield from _wrapped(report.prose(sentence), width)
    yield ""
    yield from _wrapped("What each number means, and the figures: --html FILE or --md FILE.", width)


def _wrapped(sentence: str, width: int) -> Iterable[str]:
    return wrap(sentence, min(width, PROSE_WIDTH), break_on_hyphens=False)


def _totals(report: Report, totals: Totals, width: int) -> Iterable[str]:
    names = [report.prose(column.title) for column in totals.columns]
    values = [report.text(column, totals.row) for column in totals.columns]
    comments = [report.prose(totals.comments.get(column.name, "")) for column in totals.columns]
    longest_name, longest_value = max(map(len, names)), max(map(len, values))
    for name, value, comment in zip(names, values, comments, strict=True):
        remark = f"  {comment}" if comment else ""
        yield clip(f"{name:<{longest_name}}  {value:>{longest_value}}{remark}", width)


def _table(report: Report, table: ReportTable, width: int) -> Iterable[str]:
    if not table.rows:
        yield from _wrapped(report.prose(table.empty_text), width)
        return
    columns = [_column(report, column) for column in table.columns]
    rows = list(table.lines())
    if table.total is not None:
        rows.append((table.total, False))
    cells = [_cells(report, table, row, is_part) for row, is_part in rows]
    heading, *lines = (text(each).rstrip() for each in table_lines(columns, cells, width))
    rule = "─" * min(width, max(map(cell_len, (heading, *lines))))
    yield from (heading, rule)
    if table.total is not None:
        lines.insert(-1, rule)
    yield from lines
    shown = fit_columns(columns, cells, width + MARGIN + 1)
    hidden = [column.title for column in columns if column.name not in shown]
    if hidden:
        yield from _wrapped(f"No room for: {', '.join(hidden)}.", width)
    if table.comment:
        yield from _wrapped(report.prose(table.comment), width)


def _column(report: Report, column: Column[Any]) -> Column[dict[str, str]]:
    """A column that shows the texts of rows under its name."""
    named = {each.noun: each.noun for each in RESOURCES.values()}
    short = {**{m.hours: m.short for m in HourUnit}, **named, "Bytes": "bytes"}.get(
        report.prose(column.group)
    )
    title = report.prose(column.title)
    is_text = column.alignment == "left"
    return Column(
        column.name,
        itemgetter(column.name),
        title=f"{short} {title}" if short else title,
        align=column.alignment,
        drop=column.drop,
        maximum=MAX_NAME_WIDTH if is_text else 200,
        comfortable=MIN_NAME_WIDTH if is_text else None,
    )


def _cells(report: Report, table: ReportTable, row: Row, is_part: bool) -> dict[str, str]:
    """The texts of a row; the name of a detail row is indented."""
    texts = {column.name: report.text(column, row) for column in table.columns}
    if is_part:
        name = table.columns[1].name
        texts[name] = f"  {texts[name]}"
    return texts
