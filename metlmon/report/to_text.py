"""A report as lines of plain characters, fitted to a terminal's width."""

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
from metlmon.report.values import format_value, visible
from metlmon.text.formatting import clip

GAP: Final = 2

NAME: Final = 48
"""Characters of a name or reason where there is room."""

SHRUNK: Final = 14
"""Characters that it is cut to before columns are left out, and where there is none."""

PROSE: Final = 100
"""Sentences are broken at this column however wide the terminal is."""


def lines(report: Report, width: int, ascii: bool = False) -> Iterable[str]:
    """The report but its figures and definitions, for ``width`` columns."""
    yield from _prose(report.title, width, ascii)
    yield from _prose(report.headline, width, ascii)
    for name, value in report.lead:
        yield clip(f"{_plain(name, ascii)}: {_plain(value, ascii)}", width, ascii)
    for block in report.blocks():
        if isinstance(block, ReportFigure):
            continue
        yield ""
        yield clip(_plain(block.caption, ascii), width, ascii)
        if isinstance(block, Facts):
            yield from _facts(report, block, width, ascii)
        else:
            yield from _table(report, block, width, ascii)
    if report.unknown:
        yield from ("", "What is not known")
        for sentence in report.unknown:
            yield from _prose(sentence, width, ascii)
    yield ""
    yield from _prose(
        "What each number means, and the figures: --html FILE or --md FILE.", width, ascii
    )


def _plain(text: str, ascii: bool) -> str:
    return visible(text, ascii)


def _prose(text: str, width: int, ascii: bool) -> Iterable[str]:
    return wrap(_plain(text, ascii), min(width, PROSE), break_on_hyphens=False)


def _facts(report: Report, facts: Facts, width: int, ascii: bool) -> Iterable[str]:
    cells = [
        (
            _plain(fact.head, ascii),
            format_value(fact.kind, fact.value, report.hours_digits, ascii),
            f"  {_plain(fact.remark, ascii)}" if fact.remark else "",
        )
        for fact in facts.facts
    ]
    names = max(len(name) for name, _, _ in cells)
    values = max(len(value) for _, value, _ in cells)
    for name, value, remark in cells:
        yield clip(f"{name:<{names}}  {value:>{values}}{remark}", width, ascii)


def _table(report: Report, table: ReportTable, width: int, ascii: bool) -> Iterable[str]:
    if not table.rows:
        yield from _prose(table.empty, width, ascii)
        return
    rows = [*table.rows, *([table.total] if table.total is not None else [])]
    heads = [_head(column, ascii) for column in table.columns]
    cells = [
        [
            _cell(report, column, value, row.part and at == 1, ascii)
            for at, (column, value) in enumerate(zip(table.columns, row.cells, strict=True))
        ]
        for row in rows
    ]
    kept, widths = _fitting(table.columns, [heads, *cells], width)
    rule = ("-" if ascii else "─") * (sum(widths[at] for at in kept) + GAP * (len(kept) - 1))
    yield _line(table.columns, heads, kept, widths, width, ascii)
    yield rule[:width]
    for row, texts in zip(rows, cells, strict=True):
        if row is table.total:
            yield rule[:width]
        yield _line(table.columns, texts, kept, widths, width, ascii)
    if len(kept) < len(table.columns):
        left_out = ", ".join(heads[at] for at in range(len(heads)) if at not in kept)
        yield from _prose(f"No room for: {left_out}.", width, ascii)
    if table.remark:
        yield from _prose(table.remark, width, ascii)


def _head(column: ReportColumn, ascii: bool) -> str:
    head = _plain(column.head, ascii)
    short = {**{m.hours: m.short for m in HourUnit}, "Bytes": "bytes"}.get(column.group or "")
    return f"{short} {head}" if short else head


def _cell(report: Report, column: ReportColumn, value: Raw, part: bool, ascii: bool) -> str:
    text = format_value(column.kind, value, report.hours_digits, ascii)
    if column.kind is ValueKind.TEXT:
        text = clip(text, NAME, ascii)
    return f"  {text}" if part else text


def _fitting(
    columns: Sequence[ReportColumn], lines: Sequence[Sequence[str]], room: int
) -> tuple[list[int], list[int]]:
    """Which columns are kept, and how wide each is: columns go until the others fit with their
    names cut short; then names have what room is left."""
    natural = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    kept = list(range(len(columns)))

    names = [at for at in kept if columns[at].kind is ValueKind.TEXT]
    widths = [min(width, SHRUNK) if at in names else width for at, width in enumerate(natural)]

    def over() -> int:
        return sum(widths[at] for at in kept) + GAP * (len(kept) - 1) - room

    for at in sorted((at for at in kept if columns[at].drop), key=lambda at: -columns[at].drop):
        if over() <= 0:
            break
        kept.remove(at)
    # What went before a wide one may have room again without it.
    for at in sorted(set(range(len(columns))) - set(kept), key=lambda at: columns[at].drop):
        if widths[at] + GAP <= -over():
            kept = sorted([*kept, at])
    while over() > 0 and len(kept) > 2:
        del kept[-2]
    for at in (at for at in names if at in kept):
        widths[at] = min(natural[at], widths[at] + max(0, -over()))
    return kept, widths


def _line(
    columns: Sequence[ReportColumn],
    texts: Sequence[str],
    kept: Sequence[int],
    widths: Sequence[int],
    room: int,
    ascii: bool,
) -> str:
    cells = []
    for at in kept:
        text = clip(texts[at], widths[at], ascii)
        left = columns[at].kind is ValueKind.TEXT
        cells.append(f"{text:<{widths[at]}}" if left else f"{text:>{widths[at]}}")
    return clip((" " * GAP).join(cells).rstrip(), room, ascii)
