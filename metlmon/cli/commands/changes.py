"""``metlmon changes``: what has happened since a moment, and what that did to the estimate."""

from __future__ import annotations

import argparse
from datetime import datetime

from metlmon.cli.output import EnsembleOutput, show
from metlmon.cli.reading import input_with_trainings, open_reader, stats_at
from metlmon.cli.text_output import TextOutput
from metlmon.health.changes import Changes, ChangesSince
from metlmon.stats.estimates import Forecast, make_forecast
from metlmon.tables import changes as changes_table
from metlmon.text.formatting import moment, year_of
from metlmon.text.record_json import Flat
from metlmon.text.spans import BOLD, line
from metlmon.text.time_arguments import parse_time_argument


class ChangesOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon changes --json``; the estimate of the end as it was at since, and is now."""

    changes: Flat[Changes]
    estimate_then: Forecast | None
    estimate_now: Forecast


def changes(options: argparse.Namespace) -> int:
    """``metlmon changes``."""
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    as_of, zone = builder.as_of, builder.ensemble.settings.zone
    # Where nothing has happened yet the moment does not matter.
    since = parse_time_argument("--since", options.since, zone, lambda: as_of or datetime.now())
    assert since is not None
    now = input_with_trainings(reader)
    found, forecast = ChangesSince(since)(now), make_forecast(now)
    first = now.ledger.first_time
    begun = first is not None and first <= since
    then = make_forecast(stats_at(options, since)) if begun else None

    def print_text() -> None:
        out = TextOutput()
        summary = found.summary or "nothing has changed"
        out.print(line((f"since {moment(since, year_of(as_of))}: {summary}", BOLD)))
        if estimate := changes_table.estimate_text(then, forecast):
            out.print(estimate)
        out.table(changes_table.columns(year_of(as_of)), found.changes, "")

    return show(
        options,
        ChangesOutput,
        builder,
        print_text,
        changes=found,
        estimate_then=then,
        estimate_now=forecast,
    )
