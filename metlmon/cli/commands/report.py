"""``metlmon report``: tables and figures, as HTML, Markdown, JSON or printed."""

from __future__ import annotations

import argparse
import os
import sys
from datetime import datetime
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType

from metlmon.cli import Exit
from metlmon.cli.output import STDOUT, Output, OutputFile, print_output, terminal_width
from metlmon.cli.reading import input_with_trainings, open_reader, stats_input, window_of
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.report import to_html, to_markdown
from metlmon.report.document import Report
from metlmon.snapshot.records import HourUnit
from metlmon.stats.windows import ALL, TimeWindow
from metlmon.text.formatting import plain

REPORT_MARKS: Final = (to_html.MARK, to_markdown.MARK)
"""Identifies a file as a report, which a newer one may replace."""

PIPE_WIDTH: Final = 1000
"""A width that no terminal has: nothing is cut or dropped for a script."""


class ReportTable(Struct, frozen=True):
    """A table of the report: rows as objects by column, and their total."""

    rows: tuple[dict[str, Any], ...]
    total: dict[str, Any] | None


class ReportOutput(Output, frozen=True, kw_only=True):
    """``metlmon report --json``: the tables of the report, with unformatted numbers."""

    dagdir: str
    as_of: datetime | None
    live: bool
    title: str
    verdict: str
    headline: str
    limitations: tuple[str, ...]
    window: TimeWindow
    definitions: dict[str, str]
    totals: dict[str, Any]
    moved: dict[str, Any]
    gpus: ReportTable
    sites: ReportTable
    periods: ReportTable
    times: ReportTable
    causes: ReportTable
    transfers: ReportTable
    runs: ReportTable
    profiles: ReportTable | UnsetType = UNSET
    resources: ReportTable | UnsetType = UNSET
    places: ReportTable | UnsetType = UNSET
    variation: ReportTable | UnsetType = UNSET
    labels: ReportTable | UnsetType = UNSET
    best_runs: ReportTable | UnsetType = UNSET
    sweep: ReportTable | UnsetType = UNSET


def report(options: argparse.Namespace) -> int:
    formats = [name for name in ("html", "md") if getattr(options, name) is not None]
    _check(options, formats)
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    window = window_of(options, builder)
    files = {
        name: OutputFile(getattr(options, name), options.force, REPORT_MARKS) for name in formats
    }
    for file in files.values():
        file.check(reader.dagdir)
    # The JSON's GPU-hours are always GPU-hours.
    measure = HourUnit.GPU if options.json else builder.ledger().measure
    document = report_of(reader, window, title=options.title, measure=measure)
    if options.json:
        print_output(_output(document), builder.clock.with_offset)
    elif not formats:
        _print(document)
    writers = {"html": to_html.render_html, "md": to_markdown.render_markdown}
    for name, file in files.items():
        file.write(writers[name](document))
    return Exit.OK


def _output(document: Report) -> ReportOutput:
    from metlmon.report.document import tables_json

    return ReportOutput(
        dagdir=document.dagdir,
        as_of=document.as_of,
        live=document.live,
        title=document.title,
        verdict=document.verdict,
        headline=document.prose(document.headline),
        limitations=tuple(map(document.prose, document.limitations)),
        window=document.window,
        definitions={key: document.prose(text) for key, text in document.definitions.items()},
        **tables_json(document),
    )


def report_of(
    reader: DagdirReader,
    window: TimeWindow = ALL,
    *,
    title: str | None = None,
    measure: HourUnit | None = None,
) -> Report:
    """The report of what was read; ``measure``: that of its hours, by default the ensemble's."""
    from metlmon.report.build import build_report

    builder = reader.snapshot_builder()
    clock = builder.clock
    zone = clock.zone or ("UTC" if clock.utc_only else None)
    stats = input_with_trainings(reader) if window.unbounded else stats_input(builder)
    return build_report(stats, zone, window, title=title, measure=measure)


def _print(document: Report) -> None:
    from metlmon.report.to_text import text_lines

    width = terminal_width() if sys.stdout.isatty() else PIPE_WIDTH
    for line in text_lines(document, width):
        print(line)


def _check(options: argparse.Namespace, formats: list[str]) -> None:
    if options.json and formats:
        raise InputError(f"--json goes to standard output: leave out --{formats[0]}, or --json")
    if [getattr(options, name) for name in formats].count(STDOUT) > 1:
        raise InputError("--html - and --md -: only one of them can go to standard output")
    if len({os.path.realpath(getattr(options, name)) for name in formats}) < len(formats):
        raise InputError(f"--html and --md both name {plain(options.html)}: give each a file")
