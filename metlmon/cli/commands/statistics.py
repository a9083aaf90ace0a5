"""``metlmon sites``, ``usage``, ``shards``, ``estimate``, ``timeline`` and ``changes``."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from metlmon.cli.output import LISTED, EnsembleOutput, show
from metlmon.cli.queue_report import query_slots
from metlmon.cli.reading import input_with_trainings, open_reader, stats_at, stats_input, window_of
from metlmon.cli.status_text import NAME_LIMIT, hours_line
from metlmon.cli.text_output import TextOutput
from metlmon.health.changes import Changes, changes_since
from metlmon.snapshot.records import Execution
from metlmon.stats.backtest import Backtest, backtest
from metlmon.stats.estimates import Forecast, make_forecast
from metlmon.stats.requests import MIN_EPOCHS, RequestAdvice, advice_text, advise_requests
from metlmon.stats.resources import Resources, resource_use
from metlmon.stats.shards import Bag, bags
from metlmon.stats.timeline import Lane, Timeline, build_timeline
from metlmon.stats.usage import TargetWaits, Usage, usage_in_window
from metlmon.stats.variance import Variation, epoch_variation
from metlmon.stats.windows import TimeWindow, window_text
from metlmon.tables import changes as changes_table
from metlmon.tables import estimates as estimates_table
from metlmon.tables import resources as resources_table
from metlmon.tables import shards as shards_table
from metlmon.tables import usage as usage_table
from metlmon.tables.timeline_text import (
    Cell,
    axis,
    cell_characters,
    chart,
    epoch_labels,
    full_window,
    lane_cells,
    legend,
    stacks,
    totals,
    waiting_symbols,
)
from metlmon.tables.usage import exclusion, pool_site
from metlmon.tables.variance import intervals, place_columns, sentences
from metlmon.text.formatting import (
    count,
    duration,
    exact_hours,
    moment,
    number,
    period,
    plain,
    readable_dates,
    share,
    year_of,
)
from metlmon.text.record_json import Flat
from metlmon.text.spans import BOLD, DIM, NOTE, PLAIN, Line, join, line, style_of, text
from metlmon.text.time_arguments import parse_time_argument

# --- sites ----------------------------------------------------------------------------------


class SitesOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon sites --json``: the places of each kind sum to ``total``."""

    usage: Flat[Usage]
    variation: Variation


def sites(options: argparse.Namespace) -> int:
    builder = open_reader(options).snapshot_builder()
    window, ledger = window_of(options, builder), builder.ledger()
    usage = usage_in_window(ledger, window)
    variation = epoch_variation(ledger, window)
    print_text = partial(print_sites, usage, variation, only_hosts=options.by == "host")
    return show(options, SitesOutput, builder, print_text, usage=usage, variation=variation)


def _period(window: TimeWindow, as_of: datetime | None) -> str:
    """``1 Nov to 7 Nov, snapshot 8 Nov 09:00``: the window, if there is one, and as-of."""
    dates = "" if window.unbounded else f"{readable_dates(window_text(window))}, "
    return f"{dates}snapshot {moment(as_of)}"


def _nothing_ran(window: TimeWindow) -> str:
    place = "the event logs" if window.unbounded else "this window"
    return f"Nothing ran: no execution is in {place}."


def print_sites(usage: Usage, variation: Variation, only_hosts: bool = False) -> None:
    """The hours by site, GPU model, both, and cause, and remarks; or by host."""
    out = TextOutput()
    spent = hours_line(usage.total.totals.hours, usage.nodes_unlogged)
    out.print(_period(usage.window, usage.as_of), spent)
    if not usage.executions:
        out.print("", _nothing_ran(usage.window))
        return
    for view in usage_table.VIEWS:
        rows, idle = usage_table.fold_idle(view.rows(usage), view.noun)
        # There may be hundreds of hosts.
        if not rows or (view is usage_table.HOSTS) is not only_hosts:
            continue
        columns = view.columns_of(rows, usage)
        if view is usage_table.CAUSES:
            columns = usage_table.cause_columns(rows, usage)
        if view is usage_table.CELLS:
            out.print("", sentences(variation, usage.item)[0])
            out.print(*filter(None, [intervals(variation)]))
        out.table(columns, rows, "")
        if idle:
            out.print(idle)
        if view is usage_table.CELLS:
            out.table(place_columns(usage_table.gpu_names(usage)), variation.places, "")
    if only_hosts:
        return
    for remark in _remarks(usage):
        out.print("", remark)
    out.table(usage_table.hidden_columns(), usage.hidden_epochs, "")


def _remarks(usage: Usage) -> Iterable[str]:
    """Paragraphs about what the tables cannot show."""
    ended = usage.total.totals.hours.ended
    for place in usage.wasteful_sites:
        name = plain(place.name or "", NAME_LIMIT)
        lost = exact_hours(place.totals.hours.badput)
        done = place.totals.completed_epochs
        epochs = count(done, usage.item) if done else f"no {usage.item}"
        of_all = share(place.totals.hours.badput, ended)
        hours_ = usage.measure.hours
        yield f"{name}: {lost} {hours_} of badput ({of_all} of what has ended), {epochs} completed."
    if slow := [host for host in usage.hosts if host.slow]:
        name = plain(slow[0].host or "", NAME_LIMIT)
        more = f" and {len(slow) - 1} more" if len(slow) > 1 else ""
        verb = "are slow hosts" if more else "is a slow host"
        yield f"{name}{more} {verb}: see --by host."
    gpu_names = usage_table.gpu_names(usage)
    for profile in usage.profiles:
        if profile.excluded:
            gpu = usage_table.pool_gpu(profile, gpu_names)
            name = plain(f"{pool_site(profile)} {gpu}", NAME_LIMIT)
            yield f"{name} is excluded: {exclusion(profile, usage.item)}."
    if usage.waiting:
        waits = "; ".join(_waited(item) for item in usage.waiting)
        yield f"Waits without an execution, not in the medians: {waits}."
    if usage.hidden_epochs:
        completed = count(usage.total.totals.completed_epochs, f"completed {usage.item}")
        yield (
            f"{number(len(usage.hidden_epochs))} of {completed} with hidden compute (⇄): "
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


# --- shards ---------------------------------------------------------------------------------


class ShardsOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon shards --json``."""

    bags: tuple[Bag, ...]


def shards(options: argparse.Namespace) -> int:
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    found = bags(stats_input(builder))
    return show(options, ShardsOutput, builder, partial(print_bags, found), bags=found)


def print_bags(bag_list: tuple[Bag, ...]) -> None:
    """Each bag: its progress, its rate, and its stragglers."""
    out = TextOutput()
    if not bag_list:
        out.print(*shards_table.no_bag_lines())
    for place, bag in enumerate(bag_list):
        if place:
            out.print()
        _print_bag(out, bag)


def _print_bag(out: TextOutput, bag: Bag) -> None:
    parts = join(shards_table.headline_parts(bag), line(" · "))
    out.print(line((shards_table.name_text(bag), BOLD), "  ") + parts)
    out.print(f"{plain(bag.in_dag, 60)}, {plain(bag.submit, 60)}")
    out.print("  ".join(map(text, shards_table.state_texts(bag))))
    if bag.durations is not None:
        out.print(f"A shard takes {shards_table.times_text(bag.durations)}")
    if bag.overall_rate is not None:
        rates = f"Rate: {shards_table.rate_text(bag.overall_rate)}"
        if bag.recent_rate is not None:
            window = shards_table.window_text(bag.recent_rate)
            rates += f", {shards_table.rate_text(bag.recent_rate)} in {window}"
            rates += f", {bag.machines:.1f} at a time"
        out.print(rates)
    if bag.remaining is not None:
        sure = bag.remaining.quality
        out.print(f"How sure: {sure}, from {bag.remaining.samples} shards that have ended")
    out.print(hours_line(bag.totals.hours))
    out.table(shards_table.straggler_columns(), bag.stragglers[:LISTED], "")
    if len(bag.stragglers) > LISTED:
        out.print(f"and {len(bag.stragglers) - LISTED} more: see --json")


# --- estimate -------------------------------------------------------------------------------


class EstimateOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon estimate --json``; with ``--backtest``, ``backtest`` replaces ``estimate``."""

    estimate: Forecast | UnsetType = UNSET
    backtest: Backtest | UnsetType = UNSET


def estimate(options: argparse.Namespace) -> int:
    """``metlmon estimate``, ``metlmon estimate --backtest``."""
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    if options.backtest:
        tested = backtest(stats_input(builder), partial(stats_at, options))
        print_text = partial(_print_backtest, tested)
        return show(options, EstimateOutput, builder, print_text, backtest=tested)
    forecast = make_forecast(input_with_trainings(reader))
    print_text = partial(_print_forecast, forecast)
    return show(options, EstimateOutput, builder, print_text, estimate=forecast)


def _print_forecast(forecast: Forecast) -> None:
    out = TextOutput()
    out.print(line((first_line(forecast), BOLD)))
    out.table(estimates_table.columns(forecast.runs, year_of(forecast.as_of)), forecast.runs, "")
    if forecast.runs and forecast.remaining is not None:
        note = (
            "80 % interval, if the DAG keeps running: time in which it was removed and not yet "
            "submitted again is neither in the history nor in the estimate. Epochs/day: mean of "
            "the last week, with all interruptions."
        )
        out.print("", line((note, DIM)))


def first_line(forecast: Forecast) -> str:
    """``42 of 150 epochs done; ETA 20 Nov (18–23 Nov) · 6d left; 4.6 epochs/day``."""
    done = estimates_table.epochs_text(forecast)
    if done and forecast.as_of is not None and not forecast.live:
        done += f" by {moment(forecast.as_of)}"
    parts = [
        done,
        estimates_table.remaining_text(forecast),
        estimates_table.rate_text(forecast.rate, forecast.item),
        estimates_table.slots_text(forecast),
    ]
    return "; ".join(part for part in parts if part)


def _print_backtest(backtested: Backtest) -> None:
    out = TextOutput()
    if not backtested.predictions:
        why = (
            "fewer than two epochs were completed"
            if backtested.epochs < 2
            else "no run was active then"
        )
        out.print(f"Nothing to test: {why}.")
        return
    verdict = line((_verdict(backtested), BOLD))
    out.table(estimates_table.backtest_columns(), backtested.predictions, verdict, "")
    note = (
        "Error: of the time that was left, + too late, - too early. Inside: the truth lay in the "
        "interval. The plain guess is a run's last cycle times the epochs that were left. Time in "
        "which a removed DAG waited to be submitted again, and what was lost with it, is not in "
        "the truth. Of what is not finished: until the last epoch that each run has completed."
    )
    out.print("", line((note, DIM)))


def _verdict(backtested: Backtest) -> str:
    parts = []
    for name, summary in (("ensemble", backtested.ensemble), ("runs", backtested.runs)):
        error, naive = summary.error_median, summary.naive_error_median
        if error is None:
            continue
        beside = f", plain guess {100 * naive:.0f} %" if naive is not None else ""
        inside = f"{summary.inside} of {summary.trials} inside"
        parts.append(f"{name}: off by {100 * error:.0f} %{beside}, {inside}")
    return "; ".join(parts)


# --- timeline -------------------------------------------------------------------------------


PIPE_CELLS: Final = 100
"""Number of columns if no terminal defines it (``COLUMNS`` does, too)."""

NAME_CELLS: Final = 16
CHART_LINES: Final = 5
STALLS_SHOWN: Final = 5


class TimelineRun(Struct, frozen=True):
    """The jobs of a run, and their executions; ``key`` is null for jobs outside of any run."""

    lane: Flat[Lane]
    executions: tuple[Execution, ...]


class TimelineOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon timeline --json``."""

    timeline: Flat[Timeline]
    runs: tuple[TimelineRun, ...]


def timeline(options: argparse.Namespace) -> int:
    """Print the timeline as a chart or as JSON. Returns the exit status."""
    builder = open_reader(options).snapshot_builder()
    window = window_of(options, builder)
    data = build_timeline(builder.ledger(), window)
    ran: dict[str, list[Execution]] = {}
    for item in data.executions:
        ran.setdefault(item.key or "", []).append(item)
    runs = tuple(TimelineRun(lane, tuple(ran.get(lane.key, ()))) for lane in data.lanes)

    def print_text() -> None:
        cells = shutil.get_terminal_size((PIPE_CELLS, 24)).columns
        TextOutput().print_cropped([*_timeline_lines(data, window, cells)])

    return show(options, TimelineOutput, builder, print_text, timeline=data, runs=runs)


def _timeline_lines(data: Timeline, period_shown: TimeWindow, cells: int) -> Iterable[Line]:
    if data.first is None:
        nothing = "No job has an event yet: the timeline is empty."
        if not period_shown.unbounded:
            nothing = f"No job was in the queue: {window_text(period_shown)}."
        yield line(nothing)
        return
    names = [plain(lane.run, NAME_CELLS) for lane in data.drawn_lanes]
    indent = max([len(name) for name in names] + [len("99 GPUs")]) + 2
    window = full_window(data, max(20, cells - indent - 1))
    yield line(f"{period(data.first, data.last)}   {duration(data.seconds)}")
    yield from _stall_lines(data)
    if data.mean_jobs is not None:
        yield totals(data)
    yield ()
    yield line((" " * indent + axis(data, window).rstrip(), DIM))
    for name, lane in zip(names, data.drawn_lanes, strict=True):
        cells_of_lane = cell_characters(lane_cells(lane, window))
        yield line(f"{name:<{indent}}") + _cells(cells_of_lane)
        yield line((" " * indent + epoch_labels(lane, window), DIM))
    columns = stacks(data, window, gpus=data.max_gpus > 0)
    unit = "GPUs" if data.max_gpus > 0 else "jobs"
    yield from chart(columns, CHART_LINES, indent, unit, _cells)
    yield ()
    yield from legend(waiting_symbols(data), cells)


def _stall_lines(data: Timeline) -> Iterable[Line]:
    if not data.steps:
        yield line(("nothing has run yet", NOTE))
        return
    if not data.stalls:
        yield line("never idle")
        return
    total = duration(sum(stall.seconds for stall in data.stalls))
    times = count(len(data.stalls), "time")
    yield line(f"idle {times}, {total} in total; longest:")
    longest = sorted(data.stalls, key=lambda stall: -stall.seconds)[:STALLS_SHOWN]
    for stall in longest:
        text = period(stall.start, stall.end, year_of(data.last))
        if stall.ongoing:
            text = f"since {moment(stall.start, year_of(data.last))}"
        yield line((f"  {duration(stall.seconds):>6}  {text}", NOTE))


def _cells(cells: Iterable[Cell]) -> Line:
    return line(*((text, PLAIN if symbol is None else style_of(symbol)) for text, symbol in cells))


# --- usage ---------------------------------------------------------------------------------


class UsageOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon usage --json``."""

    resources: Flat[Resources]


class UsageRequestsOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon usage --requests --json``."""

    window: TimeWindow
    requests: tuple[RequestAdvice, ...]


def usage(options: argparse.Namespace) -> int:
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    ledger, window = builder.ledger(), window_of(options, builder)
    if options.requests:
        slots = query_slots() if reader.as_of is None and not reader.host else ()
        requests = advise_requests(stats_input(builder), window, slots)
        print_text = partial(print_requests, requests, window, ledger.item)
        return show(
            options, UsageRequestsOutput, builder, print_text, window=window, requests=requests
        )
    found = resource_use(ledger, options.by, window)
    print_text = partial(print_resources, found, ledger.item)
    return show(options, UsageOutput, builder, print_text, resources=found)


def print_resources(found: Resources, item: str) -> None:
    """What completed epochs used of each resource; then the same by group."""
    out = TextOutput()
    out.print(_period(found.window, found.as_of))
    if not found.total:
        out.print("", _nothing_ran(found.window))
        return
    out.print(line((resources_table.headline(found, item), BOLD)))
    hours = resources_table.hours_line(found.total)
    if hours:
        out.print(hours)
    if found.completed is not None:
        shown = resources_table.shown_resources([found.completed])
        out.table(resources_table.resource_columns(found.completed), shown, "")
    out.table(resources_table.group_columns(found.by, found.groups), found.groups, "")
    out.print(line((resources_table.NOTE, DIM)))


def print_requests(requests: Sequence[RequestAdvice], window: TimeWindow, item: str) -> None:
    """What would fit, one sentence for each request that does not; then what was used."""
    out = TextOutput()
    if not window.unbounded:
        out.print(readable_dates(window_text(window)))
    if not requests:
        out.print("No completed job has a usage table: nothing is known of what they need.")
        return
    advised = [row for row in requests if row.suggested is not None]
    for row in advised:
        command = f"{row.command} = {row.resource.submitted(row.suggested)}"
        now = f" instead of {row.resource.submitted(row.requested)}"
        where = f" in {plain(row.submit, NAME_LIMIT)}" if row.submit else ""
        out.print(line((command, BOLD), f"{now}{where}: {advice_text(row, item)}"))
    if not advised:
        out.print(
            f"Nothing is suggested: the requests fit, or fewer than {MIN_EPOCHS} {item}s tell."
        )
    out.table(resources_table.request_columns(requests, item), requests, "")
    out.print(line((resources_table.REQUESTS_NOTE, DIM)))
    if any(row.slots for row in requests):
        out.print(line((resources_table.GAIN_NOTE, DIM)))


# --- changes -------------------------------------------------------------------------------


class ChangesOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon changes --json``; with the estimated end as of ``since``, and as of now."""

    changes: Flat[Changes]
    estimate_then: Forecast | None
    estimate_now: Forecast


def changes(options: argparse.Namespace) -> int:
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    as_of, zone = builder.as_of, builder.ensemble.settings.zone
    # If nothing has happened yet, the moment does not matter.
    since = parse_time_argument("--since", options.since, zone, lambda: as_of or datetime.now())
    assert since is not None
    now = input_with_trainings(reader)
    found, forecast = changes_since(now, since), make_forecast(now)
    first = now.ledger.first_time
    begun = first is not None and first <= since
    then = make_forecast(stats_at(options, since)) if begun else None

    def print_text() -> None:
        out = TextOutput()
        summary = found.summary or "nothing has changed"
        out.print(line((f"since {moment(since, year_of(as_of))}: {summary}", BOLD)))
        if estimate := changes_table.estimate_text(then, forecast):
            out.print(estimate)
        out.table(changes_table.columns(now.status.runs, year_of(as_of)), found.changes, "")

    return show(
        options,
        ChangesOutput,
        builder,
        print_text,
        changes=found,
        estimate_then=then,
        estimate_now=forecast,
    )
