"""``metlmon sites``: where the hours went, as tables or as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import replace

from metlmon.cli.exit_codes import Exit
from metlmon.cli.json_output import SCHEMA, JsonWriter, hours_of, warnings
from metlmon.cli.json_output import hours as hours_number
from metlmon.cli.json_output import seconds as seconds_number
from metlmon.cli.output import print_json
from metlmon.cli.reading import open_reader
from metlmon.cli.status_text import NAME_LIMIT, hours_line
from metlmon.cli.text_output import TextOutput
from metlmon.cli.warnings import print_warnings
from metlmon.model.states import HourUnit
from metlmon.snapshot.ledger import HOUR, EpochEntry, in_hour_unit
from metlmon.snapshot.types import GpuHours
from metlmon.stats.causes import Cause
from metlmon.stats.totals import UsageTotals
from metlmon.stats.usage import (
    Distribution,
    GroupUsage,
    SiteGpuUsage,
    TargetWaits,
    TransferStats,
    Usage,
    usage_in_window,
)
from metlmon.stats.windows import parse_window, window_text
from metlmon.tables.layout import Heading, Row, text_columns
from metlmon.tables.usage import VIEWS, hours_text, specs
from metlmon.text.formatting import (
    UNKNOWN,
    count,
    duration,
    moment,
    number,
    plain,
    share,
)

REASON_LIMIT: Final = 160
"""Characters of a cause in a table; ``--json`` has it whole."""


def sites(options: argparse.Namespace) -> int:
    """``metlmon sites``."""
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    window = parse_window(
        options.since, options.until, options.month, builder.ensemble.settings.zone
    )
    ledger = builder.ledger()
    measure = ledger.measure
    usage = usage_in_window(in_hour_unit(ledger), window)
    spent = replace(usage.total.totals.gpu_hours, measure=measure)
    if options.json:
        if measure is not HourUnit.GPU:
            # What is called GPU-hours there is nothing else.
            usage = usage_in_window(ledger, window)
        notices = tuple(builder.notices())
        writer = _Places(JsonWriter(builder.clock.with_offset))
        print_json(
            {
                "schema": SCHEMA,
                "dagdir": builder.dagdir,
                "as_of": writer.time(builder.as_of),
                **writer.sites(usage),
                "hours": hours_of(spent),
                "warnings": warnings(notices),
            }
        )
        print_warnings(notices)
    else:
        print_sites(usage, spent)
    return Exit.OK


# --- JSON -------------------------------------------------------------------------------------


class _Places:
    """Places as JSON (schema 1). Times as logged, durations in seconds, GPU-hours in hours,
    bytes in bytes; null is "not known".

    ``nodes_unlogged``: nodes that ran, or were submitted, and have no execution in the logs: the
    GPU-hours are without theirs.
    ``window``: {since, until}, null where it has no such end. ``total``, ``sites``, ``gpus``:
    places; the places of each kind sum to ``total``. ``site_gpu``: a GPU model, so many of
    them, at a site; ``times``: its median epoch against the fastest site's. ``causes``: see
    :class:`metlmon.stats.usage.Cause`. ``waiting``: waits that led to no execution, by target.
    ``hidden_epochs``: completed ones with an execution over twice as long as the successful one.
    """

    def __init__(self, writer: JsonWriter) -> None:
        self.time = writer.time

    def sites(self, usage: Usage) -> dict[str, Any]:
        window = usage.window
        return {
            "window": {"since": self.time(window.since), "until": self.time(window.until)},
            "nodes_unlogged": usage.nodes_unlogged,
            "total": self._place(usage.total),
            "sites": [{"site": place.name, **self._place(place)} for place in usage.sites],
            "gpus": [{"gpu": place.name, **self._place(place)} for place in usage.gpus],
            "site_gpu": [self._cell(cell) for cell in usage.site_gpus],
            "causes": [self._cause(cause) for cause in usage.causes],
            "waiting": [self._waiting(item) for item in usage.waiting],
            "hidden_epochs": [self._hidden(epoch) for epoch in usage.hidden],
        }

    def _place(self, place: GroupUsage) -> dict[str, Any]:
        return {
            "targets": list(place.targets),
            "machines": [{"gpu": gpu, "gpus": n} for gpu, n in place.machines],
            "ran_at": list(place.sites),
            **_tally(place.totals),
            "hours_per_epoch": None
            if place.gpu_seconds_per_epoch is None
            else hours_number(place.gpu_seconds_per_epoch / HOUR),
            "epoch_seconds": _spread(place.epoch),
            "hidden_epochs": place.hidden,
            "wait_seconds": _spread(place.wait),
            "input": _moved(place.input),
            "evictions": place.evictions,
            "holds": place.holds,
            "causes": [self._cause(cause) for cause in place.causes],
        }

    def _cell(self, cell: SiteGpuUsage) -> dict[str, Any]:
        return {
            "gpu": cell.gpu,
            "gpus": cell.gpus,
            "site": cell.site,
            **_tally(cell.totals),
            "epoch_seconds": _spread(cell.epoch),
            "hidden_epochs": cell.hidden,
            "fastest": cell.fastest_site,
            "times": None if cell.relative_time is None else round(cell.relative_time, 4),
            "slow": cell.slow if cell.relative_time is not None else None,
        }

    def _cause(self, cause: Cause) -> dict[str, Any]:
        return {
            "cause": cause.text,
            "code": cause.code,
            "subcode": cause.subcode,
            "end_unknown": cause.end_unknown,
            "outcomes": [str(outcome) for outcome in cause.outcomes],
            "times": cause.occurrences,
            "executions": cause.executions,
            "holds": cause.holds,
            "holds_that_ended_one": cause.ended_by_hold,
            "bad": hours_number(cause.bad / HOUR),
            "reasons": [
                {
                    "reason": reason.text,
                    "outcome": str(reason.outcome),
                    "executions": reason.executions,
                    "bad": hours_number(reason.bad / HOUR),
                }
                for reason in cause.reasons
            ],
            "example": cause.example,
        }

    def _waiting(self, waits: TargetWaits) -> dict[str, Any]:
        return {
            "target": waits.target,
            "waiting": waits.waiting,
            "waiting_longest": seconds_number(waits.longest),
            "removed": waits.removed,
            "removed_longest": seconds_number(waits.longest_removed),
        }

    def _hidden(self, epoch: EpochEntry) -> dict[str, Any]:
        return {
            "run": epoch.run_name,
            "uuid": epoch.uuid,
            "dag": epoch.dag,
            "in_dag": epoch.in_dag,
            "node": epoch.node,
            "epoch": epoch.epoch,
            "site": epoch.site,
            "gpu": epoch.gpu,
            "seconds": seconds_number(epoch.seconds),
            "longest_site": epoch.longest_site,
            "longest_gpu": epoch.longest_gpu,
            "longest_seconds": seconds_number(epoch.longest_seconds),
        }


def _tally(totals: UsageTotals) -> dict[str, Any]:
    rate = totals.success_rate
    split = totals.gpu_hours
    return {
        "executions": totals.executions,
        "good_executions": totals.good_executions,
        "bad_executions": totals.bad_executions,
        "completed_epochs": totals.completed,
        "success_rate": None if rate is None else round(rate, 6),
        "good": hours_number(split.good),
        "bad": hours_number(split.bad),
        "in_flight": hours_number(split.in_flight),
    }


def _spread(totals: Distribution) -> dict[str, Any]:
    return {
        "n": totals.n,
        "median": seconds_number(totals.median),
        "low_quartile": seconds_number(totals.lower_quartile),
        "high_quartile": seconds_number(totals.upper_quartile),
        "least": seconds_number(totals.minimum),
        "most": seconds_number(totals.maximum),
    }


def _moved(totals: TransferStats) -> dict[str, Any]:
    return {
        "ok_seconds": _spread(totals.ok),
        "aborted": totals.aborted,
        "unfinished": totals.unfinished,
        "in_flight": totals.in_flight,
        "stalls": totals.stalls,
        "stalled_seconds": seconds_number(totals.stalled_seconds),
        "stall_limit_seconds": seconds_number(totals.limit),
        "bytes_sent": totals.sent,
        "bytes_received": totals.received,
    }


# --- tables -----------------------------------------------------------------------------------

HIDDEN_COLUMNS: Final = (
    Heading("RUN"),
    Heading("EPOCH", "right"),
    Heading("SUCCEEDED IN", "right"),
    Heading("AT"),
    Heading("LONGEST TRY", "right"),
    Heading("AT"),
    Heading("DAG", drop=1),
)


def print_sites(usage: Usage, spent: GpuHours) -> None:
    """The hours by site, GPU model, both, and cause, and remarks.

    ``spent``: the hours of all, in the unit of the tables.
    """
    out = TextOutput()
    window = "" if usage.window.unbounded else f"{window_text(usage.window)}, "
    out.print(f"{window}as of {moment(usage.as_of)}", hours_line(spent, usage.nodes_unlogged))
    if not usage.executions:
        out.print("", "Nothing ran: no execution is in the event logs.")
        return
    for index, view in enumerate(VIEWS):
        rows = view.rows(usage)
        if rows:
            out.print()
            out.table(specs(index, rows, usage.measure, usage), rows)
    for line in _remarks(usage):
        out.print("", line)
    if usage.hidden:
        out.print()
        out.table(text_columns(HIDDEN_COLUMNS), [_hidden_cells(epoch) for epoch in usage.hidden])


def _remarks(usage: Usage) -> Iterable[str]:
    """What the tables cannot say: paragraphs."""
    ended = usage.total.totals.good + usage.total.totals.bad
    for place in usage.wasteful_sites:
        name, lost = plain(place.name or "", NAME_LIMIT), hours_text(place.totals.bad)
        done = place.totals.completed
        epochs = count(done, "epoch") if done else "no epoch"
        of_all = share(place.totals.bad, ended)
        hours_ = usage.measure.hours
        yield f"{name} lost {lost} {hours_} ({of_all} of what has ended) and completed {epochs}."
    if usage.waiting:
        waits = "; ".join(_waited(item) for item in usage.waiting)
        yield f"Waits that led to no execution, and are in no median: {waits}."
    if usage.hidden:
        yield (
            f"{number(len(usage.hidden))} of "
            f"{count(usage.total.totals.completed, 'completed epoch')} had an execution "
            "over twice as long as the successful one, which may have trained it:"
        )


def _waited(waits: TargetWaits) -> str:
    parts = []
    if waits.waiting:
        jobs = count(waits.waiting, "job")
        parts.append(f"{jobs} still waiting, up to {duration(waits.longest)}")
    if waits.removed:
        longest = duration(waits.longest_removed)
        parts.append(f"{number(waits.removed)} removed while waiting, up to {longest}")
    target = plain(waits.target, 24) if waits.target else "no target"
    return f"{target} {', '.join(parts)}"


def _hidden_cells(epoch: EpochEntry) -> Row:
    return [
        plain(epoch.run_name, NAME_LIMIT),
        UNKNOWN if epoch.epoch is None else str(epoch.epoch),
        duration(epoch.seconds),
        plain(epoch.site or "unknown", NAME_LIMIT),
        duration(epoch.longest_seconds),
        plain(epoch.longest_site or "unknown", NAME_LIMIT),
        plain(epoch.dag, NAME_LIMIT),
    ]
