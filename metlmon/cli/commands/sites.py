"""``metlmon sites``: where the hours went, as tables or as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.json_output import SCHEMA, JsonWriter, hours_of, warnings
from metlmon.cli.json_output import hours as hours_number
from metlmon.cli.json_output import seconds as seconds_number
from metlmon.cli.output import print_json
from metlmon.cli.reading import open_reader
from metlmon.cli.tables import NAME_LIMIT, TextColumn, console, hours_line, print_table
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
from metlmon.text.formatting import (
    UNKNOWN,
    count,
    duration,
    gpus,
    hours,
    moment,
    number,
    plain,
    share,
    size,
)

if TYPE_CHECKING:
    from rich.text import Text

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

PLACE_COLUMNS: Final = (
    TextColumn("SITE", shrinks=10),
    TextColumn("TARGETS", drop=1, shrinks=8),
    TextColumn("EPOCHS", right=True),
    TextColumn("SUCCESS", right=True),
    TextColumn("GOOD H", right=True, drop=9),
    TextColumn("LOST H", right=True),
    TextColumn("IN FLIGHT H", right=True, drop=6),
    TextColumn("H/EPOCH", right=True, drop=10),
    TextColumn("EPOCH TIME", right=True),
    TextColumn("HALF OF THEM", drop=4),
    TextColumn("WAIT", right=True, drop=11),
    TextColumn("INPUT", right=True, drop=8),
    TextColumn("STALLS", right=True, drop=7),
    TextColumn("RECEIVED", right=True, drop=2),
    TextColumn("EVICTED", right=True, drop=5),
    TextColumn("HELD", right=True, drop=3),
)

CELL_COLUMNS: Final = (
    TextColumn("GPU", shrinks=12),
    TextColumn("SITE", shrinks=10),
    TextColumn("EPOCHS", right=True),
    TextColumn("EPOCH TIME", right=True),
    TextColumn("HALF OF THEM", drop=1),
    TextColumn("SAME GPU"),
    TextColumn("SUCCESS", right=True, drop=2),
    TextColumn("GOOD H", right=True, drop=3),
    TextColumn("LOST H", right=True, drop=4),
)

CAUSE_COLUMNS: Final = (
    TextColumn("LOST H", right=True),
    TextColumn("TIMES", right=True),
    TextColumn("CODE"),
    TextColumn("AT", drop=2, shrinks=10),
    TextColumn("ON", drop=1, shrinks=10),
    TextColumn("CAUSE", shrinks=20),
)

HIDDEN_COLUMNS: Final = (
    TextColumn("RUN", shrinks=10),
    TextColumn("EPOCH", right=True),
    TextColumn("SUCCEEDED IN", right=True),
    TextColumn("AT"),
    TextColumn("LONGEST TRY", right=True),
    TextColumn("AT"),
    TextColumn("DAG", drop=1),
)


def print_sites(found: Usage, spent: GpuHours) -> None:
    """Sites, GPU models, both, causes, and what must be said besides. ``spent``: by all, in the
    measure that the tables are in."""
    from rich.text import Text

    out = console()
    told = "" if found.window.unbounded else f"{window_text(found.window)}, "
    out.print(Text(f"{told}as of {moment(found.as_of)}"))
    out.print(Text(hours_line(spent, found.nodes_unlogged)))
    if not found.executions:
        out.print()
        out.print(Text("Nothing ran: no execution is in the event logs."))
        return
    models = PLACE_COLUMNS[1:]
    for columns, rows in (
        (PLACE_COLUMNS, [_place_cells(p, plain(p.name or "unknown", NAME_LIMIT))
                         for p in found.sites]),
        ((TextColumn("GPU MODEL", shrinks=10), *models),
         [_place_cells(p, plain(p.name or "unknown", NAME_LIMIT))
          for p in found.gpus]),
        (CELL_COLUMNS, [_cell_cells(cell, found.site_gpus) for cell in found.site_gpus]),
        (CAUSE_COLUMNS, [_cause_cells(cause, found) for cause in found.causes]),
    ):  # fmt: skip
        if rows:
            out.print()
            print_table(out, columns, rows)
    for line in _remarks(found):
        out.print()
        out.print(Text(line))
    if found.hidden:
        out.print()
        print_table(out, HIDDEN_COLUMNS, [_hidden_cells(epoch) for epoch in found.hidden])


def _place_cells(place: GroupUsage, name: str) -> list[str | Text]:
    of, split = place.totals, place.totals.gpu_hours
    n = number
    return [
        name,
        ", ".join(plain(target, 24) for target in place.targets),
        n(of.completed),
        share(of.good_executions, of.good_executions + of.bad_executions),
        _exact(split.good),
        _exact(split.bad),
        _exact(split.in_flight),
        hours(None if place.gpu_seconds_per_epoch is None else place.gpu_seconds_per_epoch / HOUR),
        duration(place.epoch.median),
        _half(place.epoch),
        duration(place.wait.median),
        duration(place.input.ok.median),
        n(place.input.stalls),
        size(place.input.received),
        n(place.evictions),
        n(place.holds),
    ]


def _exact(value: float) -> str:
    """Hours to the hundredth."""
    told = f"{value:,.2f}"
    # What is something is never printed as nothing.
    told = "<0.01" if value > 0 and told == "0.00" else told
    return told.replace(",", "\u202f")


def _half(of: Distribution) -> str:
    if of.n < 2:
        return ""
    return f"{duration(of.lower_quartile)} to {duration(of.upper_quartile)}"


def _cell_cells(cell: SiteGpuUsage, cells: Iterable[SiteGpuUsage]) -> list[str | Text]:
    split = cell.totals.gpu_hours
    alone = sum((each.gpu, each.gpus) == (cell.gpu, cell.gpus) for each in cells) == 1
    against = "no other site" if alone else "too few"
    if cell.relative_time is not None:
        fastest = cell.site == cell.fastest_site
        against = "fastest" if fastest else f"{cell.relative_time:.2f}×"
        against += " slow" if cell.slow else ""
    model = plain(cell.gpu, NAME_LIMIT) if cell.gpu else None
    sign = "×"
    return [
        f"{model} {sign}{cell.gpus}" if model and cell.gpus else gpus(model, cell.gpus),
        plain(cell.site or "unknown", NAME_LIMIT),
        number(cell.epoch.n),
        duration(cell.epoch.median),
        _half(cell.epoch),
        against,
        share(
            cell.totals.good_executions, cell.totals.good_executions + cell.totals.bad_executions
        ),
        _exact(split.good),
        _exact(split.bad),
    ]


def _cause_cells(cause: Cause, found: Usage) -> list[str | Text]:
    others = len(cause.reasons) - 1
    more = f" (and {count(others, 'other text')})" if others else ""
    return [
        _exact(cause.bad / HOUR),
        number(cause.occurrences),
        "" if cause.code is None else f"{cause.code}/{cause.subcode or 0}",
        _shares(cause.key, found.sites),
        _shares(cause.key, found.gpus),
        plain(cause.text, REASON_LIMIT) + more,
    ]


def _shares(key: str, places: Iterable[GroupUsage]) -> str:
    """``aws 222.69, delta 3.10``: a cause's hours by place."""
    parts = []
    for place in places:
        for cause in place.causes:
            if cause.key == key:
                name = plain(place.name or "unknown", 28)
                parts.append(f"{name} {_exact(cause.bad / HOUR)}")
    return ", ".join(parts)


def _remarks(found: Usage) -> Iterable[str]:
    """What the tables cannot say: paragraphs."""
    ended = found.total.totals.good + found.total.totals.bad
    for place in found.wasteful_sites:
        name, lost = plain(place.name or "", NAME_LIMIT), _exact(place.totals.bad / HOUR)
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


def _hidden_cells(epoch: EpochEntry) -> list[str | Text]:
    return [
        plain(epoch.run_name, NAME_LIMIT),
        UNKNOWN if epoch.epoch is None else str(epoch.epoch),
        duration(epoch.seconds),
        plain(epoch.site or "unknown", NAME_LIMIT),
        duration(epoch.longest_seconds),
        plain(epoch.longest_site or "unknown", NAME_LIMIT),
        plain(epoch.dag, NAME_LIMIT),
    ]
