"""``metlmon check``: mistakes in DAG and submit files, before the pool finds them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from metlmon.authoring.lint.rules import LintResult, LintSeverity, RequestedAmount
from metlmon.authoring.lint.run import check as lint
from metlmon.cli import Exit
from metlmon.cli.output import Output, print_output
from metlmon.cli.reading import read_whole, stats_input
from metlmon.config.loader import load_configuration
from metlmon.config.settings import Settings
from metlmon.errors import InputError
from metlmon.stats.requests import advice_text, advise_requests
from metlmon.stats.resources import KILOBYTES
from metlmon.text.formatting import count, plain
from metlmon.text.record_json import Flat

SENTENCE: Final = 400
"""Maximum characters of a sentence, and of a file's name."""

COLOURS: Final = {LintSeverity.ERROR: "1;31", LintSeverity.WARNING: "33", LintSeverity.NOTE: "36"}
"""SGR parameters of the severities, as compilers colour them."""


class CheckOutput(Output, frozen=True, kw_only=True):
    """``metlmon check --json``; ``strict``: whether warnings count as errors."""

    dagdir: str
    strict: bool
    result: Flat[LintResult]


def check(options: argparse.Namespace) -> int:
    """Print the findings. Returns 1 for errors, with ``--strict`` also for warnings."""
    path = Path(options.dir)
    settings = load_configuration(path.parent if path.is_file() else path).settings
    result = lint(path, settings, _requests(path, settings))
    if options.json:
        print_output(CheckOutput(dagdir=options.dir, strict=options.strict, result=result))
    else:
        _print(result)
    failing = result.errors + (result.warnings if options.strict else 0)
    return Exit.FOUND if failing else Exit.OK


def _requests(path: Path, settings: Settings) -> Mapping[RequestedAmount, tuple[str, str]]:
    """What the jobs that ran show about the requests in submit files; nothing for a new DAG."""
    try:
        reader = read_whole(path, settings)
    except InputError:  # Which says what is wrong with the DAG files, as the findings do.
        return {}
    found: dict[RequestedAmount, tuple[str, str]] = {}
    for row in advise_requests(stats_input(reader.snapshot_builder())):
        if row.suggested is not None and row.requested is not None:
            kind = "request-exceeded" if row.exceeded else "request-too-large"
            now = f"{row.command} = {row.resource.submitted(row.requested)}"
            requested = row.requested * (KILOBYTES[row.unit] or 1)
            found[row.submit, row.command, requested] = kind, f"{now}; {advice_text(row)}"
    return found


def _print(result: LintResult) -> None:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    coloured = coloured and os.environ.get("TERM", "") not in ("", "dumb")
    for each in result.findings:
        where = each.file if each.line is None else f"{each.file}:{each.line}"
        more = f" (and {count(each.count - 1, 'more', 'more')})" if each.count > 1 else ""
        word = each.severity.value
        if coloured:
            word = f"\x1b[{COLOURS[each.severity]}m{word}\x1b[0m"
        print(
            f"{plain(where, SENTENCE)}: {word}: {plain(each.message, SENTENCE)}{more} [{each.kind}]"
        )
        print(f"    {plain(each.remedy, SENTENCE)}")
    counts = [
        count(number, severity.value, f"{severity.value}s")
        for severity in LintSeverity
        if (number := result.number(severity))
    ]
    dags = count(len(result.dags), "DAG", "DAGs")
    print(f"{dags}: {', '.join(counts) or 'nothing found'}")
