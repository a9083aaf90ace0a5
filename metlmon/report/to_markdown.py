"""Formats a report as Markdown: pipe tables, and figures as sparklines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

from metlmon.report.document import (
    Report,
    ReportFigure,
    ReportTable,
    Row,
    TimeChart,
    Totals,
    sanitize,
)
from metlmon.tables.layout import Column
from metlmon.text.formatting import day

_MARKUP: Final = re.compile(
    r"([\\`*_{}\[\]<>#|~&$]|(?<=[A-Za-z]):(?=\S)|(?<=\bwww)\.)", re.IGNORECASE
)
"""Markdown's special characters, and those that make a web address a link."""

_BLOCKS: Final = "▁▂▃▄▅▆▇█"

SPARKS: Final = 60
"""Maximum length of a sparkline; longer series are reduced to it."""

MARK: Final = "[//]: # (metlmon report)"
"""The first line, an invisible link definition that identifies the file as a report."""


def render_markdown(report: Report) -> str:
    return "\n".join(_document(report)).rstrip() + "\n"


def _document(report: Report) -> Iterable[str]:
    yield from (MARK, "", f"# {_text(report.title)}", "")
    if report.verdict:
        yield from (f"**Health: {_text(report.verdict)}**", "")
    yield from (_prose(report, report.headline), "")
    yield from (f"- {_text(name)}: {_text(value)}" for name, value in report.metadata)
    for heading, blocks in report.sections.items():
        yield from ("", f"## {_prose(report, heading)}", "")
        for block in blocks:
            if isinstance(block, ReportTable):
                yield from _table(report, block)
            elif isinstance(block, Totals):
                yield from _totals(report, block)
            else:
                yield from _figure(report, block)
    if report.limitations:
        yield from ("", "## What is not known", "")
        yield from (f"- {_prose(report, sentence)}" for sentence in report.limitations)
    yield from ("", "## Definitions", "")
    yield from (
        f"[^{number}]: {_prose(report, definition)}"
        for number, definition in enumerate(report.definitions.values(), start=1)
    )


def _text(text: str) -> str:
    """Escape untrusted text for Markdown and HTML."""
    return _MARKUP.sub(r"\\\1", sanitize(text))


def _prose(report: Report, text: str) -> str:
    return _text(report.prose(text))


def _ref(report: Report, key: str) -> str:
    number = report.footnote_number(key)
    return f"[^{number}]" if number else ""


def _table(report: Report, table: ReportTable) -> Iterable[str]:
    yield from (f"**{_prose(report, table.caption)}**", "")
    if not table.rows:
        yield from (_prose(report, table.empty_text), "")
        return
    columns = table.columns
    heads = [f"{each.group}, {each.title}" if each.group else each.title for each in columns]
    refs = [_ref(report, column.footnote) for column in columns]
    yield _line([_prose(report, head) + ref for head, ref in zip(heads, refs, strict=True)])
    yield _line(["---" if column.alignment == "left" else "---:" for column in columns])
    for row, is_part in table.lines():
        cells = _cells(report, columns, row)
        if is_part:
            cells[1] = f"– {cells[1]}"
        yield _line(cells)
    if table.total is not None:
        total = _cells(report, columns, table.total)
        yield _line([f"**{cell}**" if cell else "" for cell in total])
    yield ""
    if table.comment:
        yield from (_prose(report, table.comment), "")


def _cells(report: Report, columns: Sequence[Column[Any]], row: Row) -> list[str]:
    return [_text(report.text(column, row)) for column in columns]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _totals(report: Report, totals: Totals) -> Iterable[str]:
    yield from ("| | |", "|---|---:|")
    for column in totals.columns:
        heading = _prose(report, column.title) + _ref(report, column.footnote)
        comment = totals.comments.get(column.name)
        value = _text(report.text(column, totals.row))
        yield _line([heading, f"{value} {_prose(report, comment)}" if comment else value])
    yield ""


def _figure(report: Report, figure: ReportFigure) -> Iterable[str]:
    """Yield caption and summary, and a sparkline of sums over time; the rest is in the tables."""
    caption = _prose(report, figure.caption).rstrip(".")
    text = f"**{caption}.**{_ref(report, figure.footnote)} {_prose(report, figure.summary)}"
    yield from (text, "")
    chart = figure.chart
    if not isinstance(chart, TimeChart) or chart.kind == "steps":
        return
    values = [sum(each) for each in zip(*(band.values for band in chart.bands), strict=True)]
    # A bar ends where the next one would begin.
    last = chart.moments[-1] - timedelta(microseconds=1)
    yield from (f"`{sparkline(values)}` {day(chart.moments[0])} to {day(last)}", "")


def sparkline(values: Sequence[float]) -> str:
    """Format values as a sparkline; a long series by the maxima of its parts."""
    steps = min(SPARKS, len(values))
    cuts = [step * len(values) // steps for step in range(steps + 1)]
    maxima = [max(values[a:b]) for a, b in pairwise(cuts)]
    highest = max(maxima)
    if highest <= 0:
        return _BLOCKS[0] * len(maxima)
    return "".join(_BLOCKS[min(7, int(value / highest * 7.999))] for value in maxima)
