"""Formats a report as plain text for the width of a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from textwrap import wrap
from typing import Final

from rich.cells import cell_len

from metlmon.report.document import (
    Facts,
    Report,
    ReportColumn,
    ReportFigure,
    ReportRow,
    ReportTable,
    format_value,
    sanitize,
)
from metlmon.snapshot.ledger import HourUnit
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
    yield from _prose(report.title, width)
    yield from _prose(report.headline, width)
    for name, value in report.metadata:
        yield clip(f"{sanitize(name)}: {sanitize(value)}", width)
    for block in report.blocks():
        if isinstance(block, ReportFigure):
            continue
        yield ""
        yield clip(sanitize(block.caption), width)
        if isinstance(block, Facts):
            yield from _facts(report, block, width)
        else:
            yield from _table(report, block, width)
    if report.limitations:
        yield from ("", "What is not known")
        for sentence in report.limitations:
            yield from _prose(sentence, width)
    yield ""
    yield from _prose("What each number means, and the figures: --html FILE or --md FILE.", width)


def _prose(text: str, width: int) -> Iterable[str]:
    return wrap(sanitize(text), min(width, PROSE_WIDTH), break_on_hyphens=False)


def _facts(report: Report, facts: Facts, width: int) -> Iterable[str]:
    cells = [
        (
            sanitize(fact.heading),
            format_value(fact.kind, fact.value, report.hours_digits),
            f"  {sanitize(fact.comment)}" if fact.comment else "",
        )
        for fact in facts.facts
    ]
    names = max(len(name) for name, _, _ in cells)
    values = max(len(value) for _, value, _ in cells)
    for name, value, remark in cells:
        yield clip(f"{name:<{names}}  {value:>{values}}{remark}", width)


def _table(report: Report, table: ReportTable, width: int) -> Iterable[str]:
    if not table.rows:
        yield from _prose(table.empty_text, width)
        return
    rows = [*table.rows, *([table.total] if table.total is not None else [])]
    columns = [_column(index, column) for index, column in enumerate(table.columns)]
    cells = [_cells(report, table, row) for row in rows]
    heading, *lines = (text(each).rstrip() for each in table_lines(columns, cells, width))
    rule = "─" * min(width, max(map(cell_len, (heading, *lines))))
    yield from (heading, rule)
    for row, content in zip(rows, lines, strict=True):
        if row is table.total:
            yield rule
        yield content
    shown = fit_columns(columns, cells, width + MARGIN + 1)
    hidden = [column.title for column in columns if column.name not in shown]
    if hidden:
        yield from _prose(f"No room for: {', '.join(hidden)}.", width)
    if table.comment:
        yield from _prose(table.comment, width)


def _column(index: int, column: ReportColumn) -> Column[Sequence[str]]:
    """The column of the texts at this index of the rows."""
    short = {**{m.hours: m.short for m in HourUnit}, "Bytes": "bytes"}.get(column.group or "")
    title = sanitize(column.heading)
    is_text = column.kind.is_text
    return Column(
        column.key,
        f"{short} {title}" if short else title,
        itemgetter(index),
        align="left" if is_text else "right",
        drop=column.drop,
        maximum=MAX_NAME_WIDTH if is_text else 200,
        comfortable=MIN_NAME_WIDTH if is_text else None,
    )


def _cells(report: Report, table: ReportTable, row: ReportRow) -> list[str]:
    """The texts of a row; the name of a detail is indented."""
    texts = report.cell_texts(table.columns, row)
    return [f"  {each}" if row.is_detail and i == 1 else each for i, each in enumerate(texts)]
