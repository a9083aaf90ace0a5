"""A report as Markdown, for a paper or a wiki: pipe tables, figures as a line of blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Final

from metlmon.report.document import (
    BandSeries,
    BarChart,
    Facts,
    LineChart,
    Report,
    ReportColumn,
    ReportFigure,
    ReportRow,
    ReportTable,
    ValueKind,
)
from metlmon.report.values import format_value, visible

_MARKUP: Final = re.compile(
    r"([\\`*_{}\[\]<>#|~&$]|(?<=[A-Za-z]):(?=\S)|(?<=\bwww)\.)", re.IGNORECASE
)
"""What means something to Markdown; also what makes an address of the web a link by itself."""

_TALL: Final = "▁▂▃▄▅▆▇█"

SPARKS: Final = 60
"""Blocks in a line: longer series are told in so many steps."""

MARK: Final = "[//]: # (metlmon report)"
"""The first line, a link definition that no page shows: tells a report from other files."""


def document(report: Report) -> str:
    """The whole text."""
    return "\n".join(_document(report)).rstrip() + "\n"


def _document(report: Report) -> Iterable[str]:
    yield from (MARK, "", f"# {_text(report.title)}", "", f"**{_text(report.headline)}**", "")
    yield from (f"- {_text(name)}: {_text(value)}" for name, value in report.lead)
    for section in report.sections:
        yield from ("", f"## {_text(section.head)}", "")
        for block in section.blocks:
            if isinstance(block, ReportTable):
                yield from _table(report, block)
            elif isinstance(block, Facts):
                yield from _facts(report, block)
            else:
                yield from _figure(report, block)
    if report.unknown:
        yield from ("", "## What is not known", "")
        yield from (f"- {_text(sentence)}" for sentence in report.unknown)
    yield from ("", "## Definitions", "")
    yield from (
        f"[^{number}]: {_text(note.text)}" for number, note in enumerate(report.notes, start=1)
    )


def _text(text: str) -> str:
    """Foreign text that no Markdown, and no HTML in it, is read from."""
    return _MARKUP.sub(r"\\\1", visible(text))


def _ref(report: Report, key: str | None) -> str:
    number = report.number(key)
    return f"[^{number}]" if number else ""


def _table(report: Report, table: ReportTable) -> Iterable[str]:
    yield from (f"**{_text(table.caption)}**", "")
    if not table.rows:
        yield from (_text(table.empty), "")
        return
    columns = table.columns
    heads = [_text(_head(column)) + _ref(report, column.note) for column in columns]
    lines = [_cells(report, columns, row) for row in table.rows]
    if table.total is not None:
        lines.append([f"**{cell}**" if cell else "" for cell in _total(report, columns, table)])
    yield _line(heads)
    yield _line(["---" if column.kind is ValueKind.TEXT else "---:" for column in columns])
    yield from (_line(cells) for cells in lines)
    yield ""
    if table.remark:
        yield from (_text(table.remark), "")


def _head(column: ReportColumn) -> str:
    return f"{column.group}, {column.head}" if column.group else column.head


def _cells(report: Report, columns: Sequence[ReportColumn], row: ReportRow) -> list[str]:
    cells = [
        _text(format_value(column.kind, value, report.hours_digits))
        for column, value in zip(columns, row.cells, strict=True)
    ]
    if row.part:
        cells[1] = f"– {cells[1]}"
    return cells


def _total(report: Report, columns: Sequence[ReportColumn], table: ReportTable) -> list[str]:
    return _cells(report, columns, table.total) if table.total else []


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _facts(report: Report, facts: Facts) -> Iterable[str]:
    yield from ("| | |", "|---|---:|")
    for fact in facts.facts:
        value = _text(format_value(fact.kind, fact.value, report.hours_digits))
        remark = f" {_text(fact.remark)}" if fact.remark else ""
        yield _line([_text(fact.head) + _ref(report, fact.note), value + remark])
    yield ""


def _figure(report: Report, figure: ReportFigure) -> Iterable[str]:
    """In words, and over time as blocks; boxes and causes are in the tables."""
    caption = _text(figure.caption).rstrip(".")
    told_of = f"**{caption}.**{_ref(report, figure.note)} {_text(figure.summary)}"
    yield from (told_of, "")
    if isinstance(figure.chart, BarChart):
        moments = figure.chart.edges
        values = _summed(figure.chart.bands)
    elif isinstance(figure.chart, LineChart) and figure.chart.stacked:
        moments = figure.chart.moments
        values = _summed(figure.chart.bands)
    else:
        return
    # A bar ends where the next would begin.
    last = moments[-1] - timedelta(microseconds=1)
    yield from (f"`{sparks(values)}` {moments[0]:%Y-%m-%d} to {last:%Y-%m-%d}", "")


def _summed(bands: Sequence[BandSeries]) -> list[float]:
    return [sum(values) for values in zip(*(band.values for band in bands), strict=True)]


def sparks(values: Sequence[float]) -> str:
    """Values as blocks, the largest the tallest; of a long series the largest of each step."""
    steps = min(SPARKS, len(values))
    cuts = [at * len(values) // steps for at in range(steps + 1)]
    kept = [max(values[a:b]) for a, b in pairwise(cuts)]
    most = max(kept)
    if most <= 0:
        return _TALL[0] * len(kept)
    return "".join(_TALL[min(7, int(value / most * 7.999))] for value in kept)
