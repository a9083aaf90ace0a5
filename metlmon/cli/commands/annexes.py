"""``metlmon annexes``: nodes borrowed for some hours, and what fits before they leave."""

from __future__ import annotations

import argparse
import time

from metlmon.cli.exit_codes import Exit
from metlmon.cli.outputs import EnsembleOutput, print_record
from metlmon.cli.queue_report import query_annexes
from metlmon.cli.reading import input_with_trainings, open_reader
from metlmon.cli.text_output import TextOutput
from metlmon.placement.annexes import make_annexes
from metlmon.placement.types import AnnexReport
from metlmon.remote.paths import is_remote
from metlmon.tables.annexes import (
    WHAT_IT_IS,
    columns,
    command_line,
    head_lines,
    site_columns,
    site_line,
)
from metlmon.text.formatting import year_of
from metlmon.text.record_json import Flat


class AnnexesOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon annexes --json``."""

    report: Flat[AnnexReport]


def annexes(options: argparse.Namespace) -> int:
    """Print all annexes as tables or as JSON; those of the past from the logs alone."""
    reader = open_reader(options)
    # The schedd here has no jobs of another machine.
    asks = reader.as_of is None and not is_remote(reader.dagdir)
    answer = query_annexes(reader) if asks else None
    if answer is not None:
        reader.ensemble.add_annex_ends(answer.ends)
    report = make_annexes(input_with_trainings(reader), answer, time.time())
    if options.json:
        print_record(AnnexesOutput, reader.snapshot_builder(), report=report)
    else:
        print_annexes(report)
    return Exit.OK


def print_annexes(report: AnnexReport) -> None:
    """The annexes, their warnings first; then the sites by the logs."""
    out, year = TextOutput(), year_of(report.as_of)
    out.print(*head_lines(report))
    if report.annexes:
        out.print()
        out.table(columns(report), report.annexes)
    else:
        for paragraph in WHAT_IT_IS:
            out.print("", paragraph)
    if report.command:
        out.print("", command_line(report, report.command))
    if report.site_command:
        out.print(site_line(report.site_command))
    if report.sites:
        out.print("", "By the logs, jobs ran at:")
        out.table(site_columns(year), report.sites)
