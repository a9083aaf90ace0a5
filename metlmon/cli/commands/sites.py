"""``metlmon sites``: where the hours went, as tables or as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from metlmon.cli.exit_codes import Exit
from metlmon.cli.outputs import EnsembleOutput, print_record
from metlmon.cli.reading import open_reader, window_of
from metlmon.cli.status_text import NAME_LIMIT, hours_line
from metlmon.cli.text_output import TextOutput
from metlmon.snapshot.records import in_hour_unit
from metlmon.stats.usage import TargetWaits, Usage, usage_in_window
from metlmon.stats.windows import window_text
from metlmon.tables.profiles import exclusion, pool_site
from metlmon.tables.usage import VIEWS, columns, hidden_columns, hours_text
from metlmon.text.formatting import (
    count,
    duration,
    gpu_short,
    moment,
    number,
    plain,
    readable_dates,
    share,
)
from metlmon.text.record_json import Flat


class SitesOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon sites --json``: places of each kind sum to total."""

    usage: Flat[Usage]


def sites(options: argparse.Namespace) -> int:
    """``metlmon sites``."""
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    usage = usage_in_window(in_hour_unit(builder.ledger()), window_of(options, builder))
    if options.json:
        print_record(SitesOutput, builder, usage=usage)
    else:
        print_sites(usage)
    return Exit.OK


# --- tables -----------------------------------------------------------------------------------


def print_sites(usage: Usage) -> None:
    """The hours by site, GPU model, both, and cause, and remarks."""
    out = TextOutput()
    window = "" if usage.window.unbounded else f"{readable_dates(window_text(usage.window))}, "
    spent = hours_line(usage.total.totals.hours, usage.nodes_unlogged)
    out.print(f"{window}snapshot {moment(usage.as_of)}", spent)
    if not usage.executions:
        out.print("", "Nothing ran: no execution is in the event logs.")
        return
    for index, view in enumerate(VIEWS):
        rows = view.rows(usage)
        if rows:
            out.print()
            out.table(columns(index, rows, usage.measure, usage, usage.item), rows)
    for line in _remarks(usage):
        out.print("", line)
    if usage.hidden:
        out.print()
        out.table(hidden_columns(), usage.hidden)


def _remarks(usage: Usage) -> Iterable[str]:
    """What the tables cannot say: paragraphs."""
    ended = usage.total.totals.goodput + usage.total.totals.badput
    for place in usage.wasteful_sites:
        name, lost = plain(place.name or "", NAME_LIMIT), hours_text(place.totals.badput)
        done = place.totals.completed
        epochs = count(done, usage.item) if done else f"no {usage.item}"
        of_all = share(place.totals.badput, ended)
        hours_ = usage.measure.hours
        yield f"{name}: {lost} {hours_} of badput ({of_all} of what has ended), {epochs} completed."
    for profile in usage.profiles:
        if profile.excluded:
            name = plain(f"{pool_site(profile)} {gpu_short(profile.pool.gpu or None)}", NAME_LIMIT)
            yield f"{name} is excluded: {exclusion(profile, usage.item)}."
    if usage.waiting:
        waits = "; ".join(_waited(item) for item in usage.waiting)
        yield f"Waits without an execution, not in the medians: {waits}."
    if usage.hidden:
        completed = count(usage.total.totals.completed, f"completed {usage.item}")
        yield (
            f"{number(len(usage.hidden))} of {completed} with hidden compute (⇄): "
            "a longer, failed try may have done the training"
        )


def _waited(waits: TargetWaits) -> str:
    parts = []
    if waits.waiting:
        jobs = count(waits.waiting, "job")
        parts.append(f"{jobs} idle, longest {duration(waits.longest)}")
    if waits.removed:
        longest = duration(waits.longest_removed)
        parts.append(f"{number(waits.removed)} removed while idle, longest {longest}")
    target = plain(waits.target, 24) if waits.target else "no target"
    return f"{target} {', '.join(parts)}"
