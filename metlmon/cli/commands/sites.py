"""``metlmon sites``: where the hours went, as tables or as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.json_output import SCHEMA, JsonWriter, hours_of, warnings
from metlmon.cli.json_output import hours as hours_number
from metlmon.cli.json_output import seconds as seconds_number
from metlmon.cli.output import print_json
from metlmon.cli.reading import open_reader
from metlmon.cli.status_text import NAME_LIMIT, hours_line
from metlmon.cli.text_output import TextOutput
from metlmon.cli.warnings import print_warnings
from metlmon.model.hour_unit import HourUnit
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
    painter = reader.snapshot_builder()
    window = parse_window(
        options.since, options.until, options.month, painter.ensemble.settings.zone
    )
    ledger = painter.ledger()
    measure = ledger.measure
    found = usage_in_window(in_hour_unit(ledger), window)
    spent = replace(found.total.totals.gpu_hours, measure=measure)
    if options.json:
        if measure is not HourUnit.GPU:
            # What is called GPU-hours there is nothing else.
            found = usage_in_window(ledger, window)
        notices = tuple(painter.notices())
        writer = _Places(JsonWriter(painter.clock.with_offset))
        print_json(
            {
                "schema": SCHEMA,
                "dagdir": painter.dagdir,
                "as_of": writer.time(painter.as_of),
                **writer.sites(found),
                "hours": hours_of(spent),
                "warnings": warnings(notices),
            }
        )
        print_warnings(notices)
    else:
        print_sites(found, spent)
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

    def sites(self, found: Usage) -> dict[str, Any]:
        window = found.window
        return {
            "window": {"since": self.time(window.since), "until": self.time(window.until)},
            "nodes_unlogged": found.nodes_unlogged,
            "total": self._place(found.total),
            "sites": [{"site": place.name, **self._place(place)} for place in found.sites],
            "gpus": [{"gpu": place.name, **self._place(place)} for place in found.gpus],
            "site_gpu": [self._cell(cell) for cell in found.site_gpus],
            "causes": [self._cause(cause) for cause in found.causes],
            "waiting": [self._waiting(each) for each in found.waiting],
            "hidden_epochs": [self._hidden(epoch) for epoch in found.hidden],
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


def _tally(of: UsageTotals) -> dict[str, Any]:
    rate = of.success_rate
    split = of.gpu_hours
    return {
        "executions": of.executions,
        "good_executions": of.good_executions,
        "bad_executions": of.bad_executions,
        "completed_epochs": of.completed,
        "success_rate": None if rate is None else round(rate, 6),
        "good": hours_number(split.good),
        "bad": hours_number(split.bad),
        "in_flight": hours_number(split.in_flight),
    }


def _spread(of: Distribution) -> dict[str, Any]:
    return {
        "n": of.n,
        "median": seconds_number(of.median),
        "low_quartile": seconds_number(of.lower_quartile),
        "high_quartile": seconds_number(of.upper_quartile),
        "least": seconds_number(of.minimum),
        "most": seconds_number(of.maximum),
    }


def _moved(of: TransferStats) -> dict[str, Any]:
    return {
        "ok_seconds": _spread(of.ok),
        "aborted": of.aborted,
        "unfinished": of.unfinished,
        "in_flight": of.in_flight,
        "stalls": of.stalls,
        "stalled_seconds": seconds_number(of.stalled_seconds),
        "stall_limit_seconds": seconds_number(of.limit),
        "bytes_sent": of.sent,
        "bytes_received": of.received,
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


def print_sites(found: Usage, spent: GpuHours) -> None:
    """The hours by site, GPU model, both, and cause, and remarks.

    ``spent``: the hours of all, in the unit of the tables.
    """
    out = TextOutput()
    window = "" if found.window.unbounded else f"{window_text(found.window)}, "
    out.print(f"{window}as of {moment(found.as_of)}", hours_line(spent, found.nodes_unlogged))
    if not found.executions:
        out.print("", "Nothing ran: no execution is in the event logs.")
        return
    for index, view in enumerate(VIEWS):
        rows = view.rows(found)
        if rows:
            out.print()
            out.table(specs(index, rows, found.measure, found), rows)
    for line in _remarks(found):
        out.print("", line)
    if found.hidden:
        out.print()
        out.table(text_columns(HIDDEN_COLUMNS), [_hidden_cells(epoch) for epoch in found.hidden])


def _remarks(found: Usage) -> Iterable[str]:
    """What the tables cannot say: paragraphs."""
    ended = found.total.totals.good + found.total.totals.bad
    for place in found.wasteful_sites:
        name, lost = plain(place.name or "", NAME_LIMIT), hours_text(place.totals.bad)
        done = place.totals.completed
        epochs = count(done, "epoch") if done else "no epoch"
        of_all = share(place.totals.bad, ended)
        hours_ = found.measure.hours
        yield f"{name} lost {lost} {hours_} ({of_all} of what has ended) and completed {epochs}."
    if found.waiting:
        waits = "; ".join(_waited(each) for each in found.waiting)
        yield f"Waits that led to no execution, and are in no median: {waits}."
    if found.hidden:
        yield (
            f"{number(len(found.hidden))} of "
            f"{count(found.total.totals.completed, 'completed epoch')} had an execution "
            "over twice as long as the successful one, which may have trained it:"
        )


def _waited(waits: TargetWaits) -> str:
    told = []
    if waits.waiting:
        jobs = count(waits.waiting, "job")
        told.append(f"{jobs} still waiting, up to {duration(waits.longest)}")
    if waits.removed:
        longest = duration(waits.longest_removed)
        told.append(f"{number(waits.removed)} removed while waiting, up to {longest}")
    target = plain(waits.target, 24) if waits.target else "no target"
    return f"{target} {', '.join(told)}"


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
