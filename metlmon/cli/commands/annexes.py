"""``metlmon annexes``: nodes borrowed for some hours, and what fits before they leave."""

from __future__ import annotations

import argparse
import time
from typing import Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.json_output.jobs import ENSEMBLE
from metlmon.cli.json_output.objects import JsonObject
from metlmon.cli.output import print_output
from metlmon.cli.reading import input_with_trainings, open_reader
from metlmon.cli.session_setup import query_annexes
from metlmon.cli.text_output import TextOutput
from metlmon.placement.annexes import make_annexes
from metlmon.placement.types import Annex, AnnexEpoch, AnnexReport
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

ANNEX_EPOCH: Final = JsonObject(
    AnnexEpoch,
    "An epoch that runs in the annex; fits: it ends before the annex expires.",
    "key=run run=run_name epoch gpus fits seconds_left",
    computed={"job": (str, lambda epoch: f"{epoch.job[0]}.{epoch.job[1]}")},
)
ANNEX: Final = JsonObject(
    Annex,
    "One annex. state: requested, pending, up, expiring, gone, never-seen or unknown. alive_until: "
    "its first node leaves then. inferred: from logs alone. epoch_seconds: of the next epoch, with "
    "its input transfer; next_fits: it would end in time. jobs_idle: they target it. pressure: "
    "(ready + expected before expiry) x GPU-hours per epoch / GPU-hours left. balance: of its "
    "allocation. expiries: when jobs were evicted because it expired.",
    "* epochs_fit",
)
ANNEXES_OUTPUT: Final = JsonObject(
    AnnexReport,
    "metlmon annexes --json: annexes with a warning first. asked: schedd or collector answered; "
    "else all is inferred from the logs. generation: old or new, of this access point's htcondor "
    "annex. command: for an annex like the last one; site_command: for the site, then. "
    "annex_warnings: one sentence each.",
    "annexes sites asked generation command site_command annex_warnings=warnings",
    name="AnnexesOutput",
    given=ENSEMBLE,
    main=False,
)


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
        print_output(ANNEXES_OUTPUT, reader.snapshot_builder(), report)
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
