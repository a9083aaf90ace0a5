"""Formats a report as plain text for the width of a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Final

from metlmon.model.hour_unit import HourUnit
from metlmon.report.document import (
    Facts,
    Raw,
    Report,
    ReportColumn,
    ReportFigure,
    ReportTable,
    ValueKind,
)
from metlmon.report.values import format_value, sanitize
from metlmon.text.formatting import clip

COLUMN_GAP: Final = 2

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
        yield clip(f"{_plain(name)}: {_plain(value)}", width)
    for block in report.blocks():
        if isinstance(block, ReportFigure):
            continue
        yield ""
        yield clip(_plain(block.caption), width)
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


def _plain(text: str) -> str:
    return sanitize(text)


def _prose(text: str, width: int) -> Iterable[str]:
    return wrap(_plain(text), min(width, PROSE_WIDTH), break_on_hyphens=False)


def _facts(report: Report, facts: Facts, width: int) -> Iterable[str]:
    cells = [
        (
            _plain(fact.heading),
            format_value(fact.kind, fact.value, report.hours_digits),
            f"  {_plain(fact.comment)}" if fact.comment else "",
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
    heads = [_head(column) for column in table.columns]
    cells = [
        [
            _cell(report, column, value, row.is_detail and index == 1)
            for index, (column, value) in enumerate(zip(table.columns, row.cells, strict=True))
        ]
        for row in rows
    ]
    visible_columns, widths = _fit_columns(table.columns, [heads, *cells], width)
    rule = "─" * (
        sum(widths[index] for index in visible_columns) + COLUMN_GAP * (len(visible_columns) - 1)
    )
    yield _line(table.columns, heads, visible_columns, widths, width)
    yield rule[:width]
    for row, texts in zip(rows, cells, strict=True):
        if row is table.total:
            yield rule[:width]
        yield _line(table.columns, texts, visible_columns, widths, width)
    if len(visible_columns) < len(table.columns):
        left_out = ", ".join(
            heads[index] for index in range(len(heads)) if index not in visible_columns
        )
        yield from _prose(f"No room for: {left_out}.", width)
    if table.comment:
        yield from _prose(table.comment, width)


def _head(column: ReportColumn) -> str:
    head = _plain(column.heading)
    short = {**{m.hours: m.short for m in HourUnit}, "Bytes": "bytes"}.get(column.group or "")
    return f"{short} {head}" if short else head


def _cell(report: Report, column: ReportColumn, value: Raw, part: bool) -> str:
    text = format_value(column.kind, value, report.hours_digits)
    if column.kind is ValueKind.TEXT:
        text = clip(text, MAX_NAME_WIDTH)
    return f"  {text}" if part else text


def _fit_columns(
    columns: Sequence[ReportColumn], lines: Sequence[Sequence[str]], width: int
) -> tuple[list[int], list[int]]:
    """Return the indices of the visible columns, and the width of every column.

    Columns are omitted until the others fit with clipped names; names get the remaining width.
    """
    natural_widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    visible_columns = list(range(len(columns)))

    names = [index for index in visible_columns if columns[index].kind is ValueKind.TEXT]
    widths = [
        min(size, MIN_NAME_WIDTH) if index in names else size
        for index, size in enumerate(natural_widths)
    ]

    def excess() -> int:
        return (
            sum(widths[index] for index in visible_columns)
            + COLUMN_GAP * (len(visible_columns) - 1)
            - width
        )

    for index in sorted(
        (index for index in visible_columns if columns[index].drop),
        key=lambda index: -columns[index].drop,
    ):
        if excess() <= 0:
            break
        visible_columns.remove(index)
    # Columns omitted before a wide one may fit again without it.
    for index in sorted(
        set(range(len(columns))) - set(visible_columns), key=lambda index: columns[index].drop
    ):
        if widths[index] + COLUMN_GAP <= -excess():
            visible_columns = sorted([*visible_columns, index])
    while excess() > 0 and len(visible_columns) > 2:
        del visible_columns[-2]
    for index in (index for index in names if index in visible_columns):
        widths[index] = min(natural_widths[index], widths[index] + max(0, -excess()))
    return visible_columns, widths


def _line(
    columns: Sequence[ReportColumn],
    texts: Sequence[str],
    visible_columns: Sequence[int],
    widths: Sequence[int],
    width: int,
) -> str:
    cells = []
    for index in visible_columns:
        text = clip(texts[index], widths[index])
        left = columns[index].kind is ValueKind.TEXT
        cells.append(f"{text:<{widths[index]}}" if left else f"{text:>{widths[index]}}")
    return clip((" " * COLUMN_GAP).join(cells).rstrip(), width)
