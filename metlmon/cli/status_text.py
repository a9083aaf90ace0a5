"""The text output of ``metlmon status`` and ``metlmon run``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from metlmon.cli.output import LISTED, warning_line
from metlmon.cli.text_output import TextOutput
from metlmon.health.build import make_health
from metlmon.model.reasons import code_text
from metlmon.model.states import DagState, State
from metlmon.snapshot.records import DagRow, GpuHours, Run, RunView, Status
from metlmon.snapshot.row_text import (
    KINDS,
    PAUSED,
    REQUESTED,
    failed_evaluations,
    failed_nodes_text,
    gate_sentences,
    gate_symbol,
    is_waiting_at,
    running_text,
    submission_text,
    waits_since,
)
from metlmon.stats.lineage import CheckpointOrigin, origin_of
from metlmon.stats.run_figures import run_figures
from metlmon.tables import epochs, runs
from metlmon.tables.estimates import rate_text, remaining_text
from metlmon.tables.health import entry_lines, serious
from metlmon.tables.layout import ColumnChoice
from metlmon.tables.runs import best_columns
from metlmon.text.formatting import (
    STATES,
    at_least,
    count,
    dag_sign,
    epoch_text,
    hours_added,
    moment,
    nothing_logged,
    number,
    plain,
    refused_submissions,
    share,
)
from metlmon.text.spans import (
    BAD,
    BOLD,
    MOVING,
    NOTE,
    Line,
    TextStyle,
    line,
    style_of,
    symbol_span,
    wrap_parts,
)

if TYPE_CHECKING:
    from metlmon.health.types import Health
    from metlmon.live.feed import StatsInput
    from metlmon.stats.estimates import Forecast

NAME_LIMIT: Final = 60
REASON_LIMIT: Final = 160
"""Maximum characters of names and reasons in a text; ``--json`` has them in full."""

GAP: Final = line("  ")


def print_status(stats: StatsInput, forecast: Forecast, health: Health) -> None:
    """The ensemble on one page: health, DAGs, counts, hours, forecast, runs and warnings."""
    out, status = TextOutput(), stats.status
    for dag in status.dags:
        out.print(_dag_line(dag, status))
        if dag.hold is not None:
            out.print(held_line("DAGMan", dag.hold.code, dag.hold.reason))
            out.print("  its jobs keep running; release it with metlmon act release-dag")
    out.print(_time_line(status), *_health_lines(health), "")
    out.print(*_count_lines(status, out.width), *_other_node_lines(status))
    spent = hours_line(status.hours, status.nodes_unlogged, status.lacks_hours)
    out.print(spent, *_forecast_lines(forecast), "")
    if status.runs:
        figures = run_figures(stats)
        known = runs.columns(status.runs, stats.job_files.streams, figures, stats.settings.metrics)
        chosen = ColumnChoice(stats.settings.columns_of("overview")).choose(known)
        out.table([*best_columns(figures), *chosen], status.runs)
    else:
        no_runs = "no node of these DAGs is called …-train_epochN" if status.dags else "no job"
        out.print(f"No runs: {no_runs}.")
    for reason in _reason_lines(status):
        out.print(reason)
    _print_warnings(out, status)


def print_run(stats: StatsInput, view: RunView, origins: Mapping[int, CheckpointOrigin]) -> None:
    """One run: its hours, trouble and gate, then a line per epoch and per other node."""
    out, row, health = TextOutput(), view.row, make_health(stats)
    names = plain(row.run, NAME_LIMIT), plain(row.uuid or "", 16), plain(row.dag, NAME_LIMIT)
    done = f"{row.epochs_done} of {count(row.epochs_total, row.item)} done"
    title = line(("  ".join(filter(None, (*names, done))), BOLD))
    out.print(title, hours_line(row.hours, row.nodes_unlogged, row.lacks_hours))
    for entry in serious(health):
        if row.key in entry.runs:
            out.print(*entry_lines(entry, health, None, out.width))
    rows = [*view.epochs, *view.side]
    columns = epochs.columns(view, origins=origins, figures=run_figures(stats))
    out.table(columns, rows, *_gate_lines(row), "")
    for epoch in view.epochs:
        origin = origin_of(epoch, origins)
        if origin is not None and (origin.made_by_another or epochs.is_broken(origin)):
            prefix = line(f"epoch {epoch_text(epoch.epoch)}: ")
            out.print(prefix + epochs.detail_line(epoch, UNLIMITED, origin=origin))
    if row.gate is not None and any(is_waiting_at(row, epoch) for epoch in view.epochs):
        out.print("", waits_since(row.gate))


def _time_line(status: Status) -> str:
    if status.as_of is None:
        return nothing_logged(dag.ended for dag in status.dags)
    suffix = ""
    if not any(log.events for log in status.logs):
        ran = any(dag.submissions for dag in status.dags)
        suffix = ", by DAGMan's files alone" if ran else ", before anything was logged"
    return f"{'● live' if status.live else 'snapshot'} {moment(status.as_of)}{suffix}"


def _dag_line(dag: DagRow, status: Status) -> Line:
    done = at_least(number(dag.nodes_done), dag.is_lower_bound)
    running = running_text(status, dag)
    submitted = submission_text(dag, None)
    return line(
        (plain(dag.file, NAME_LIMIT), BOLD),
        "  ",
        (f"{running} · " if running else "", MOVING),
        *symbol_span(dag_sign(dag.state, dag.nodes_failed)),
        " (no .dagman.out)" if dag.state is DagState.UNKNOWN and not dag.dagmans else "",
        f"  {done} of {count(dag.nodes_total, 'node')} done",
        (f", {failed_nodes_text(status, dag.nodes_failed)}" if dag.nodes_failed else "", BAD),
        f"  {submitted}" if submitted else "",
        ("  halted" if dag.halted else "", NOTE),
        (f"  crashed {dag.crashes.number}×" if dag.crashes else "", BAD),
        (f"  {refused_submissions(dag.refused)}" if dag.refused else "", NOTE),
    )


def _count_lines(status: Status, width: int | None) -> list[Line]:
    """The number of epochs (or nodes) in each state, wrapped between two states."""
    counts, paused = status.counted_states, status.paused_epochs
    noun = status.item if counts is status.epoch_states else "node"
    inferred = sum(run.epochs_inferred for run in status.runs) if noun == "epoch" else 0
    total = sum(counts.values())
    parts = [line((f"{count(total, noun)}{':' if total else ''}", BOLD))]
    numbers = [
        (STATES[state], counts[state] - (paused if state is State.PRE else 0)) for state in State
    ]
    for symbol, n in [*numbers, (PAUSED, paused)]:
        if n:
            text = f"{symbol.glyph} {number(n)} {symbol.word}"
            if symbol is STATES[State.COMPLETED] and inferred:
                text += f" ({number(inferred)} inferred)"
            parts.append(line((text, style_of(symbol))))
    return wrap_parts(parts, GAP, width or UNLIMITED)


UNLIMITED: Final = 1_000_000
"""Width in cells for a pipe, whose lines are not wrapped."""


def _other_node_lines(status: Status) -> Iterator[Line]:
    """Active or failed nodes that are not epochs, and failures that were overruled."""
    active = status.active_other_nodes
    if status.special_nodes or active:
        content = line(("Other nodes:", BOLD))
        for row in status.special_nodes:
            kind = f"{row.kind.upper()} " if row.kind in KINDS else ""
            content += line(f"  {kind}{plain(row.node, NAME_LIMIT)} ")
            content += symbol_span(STATES[row.state])
        for state, n in active.items():
            symbol = STATES[state]
            content += line("  ", (f"{symbol.glyph} {number(n)} {symbol.word}", style_of(symbol)))
        yield content
    overruled = sum(run.epochs_overruled for run in status.runs)
    if overruled:
        jobs = "its job" if overruled == 1 else "their jobs"
        yield line((f"{count(overruled, 'epoch')} completed although {jobs} failed", NOTE))
    failed, nodes = failed_evaluations(status.side_nodes)
    if failed:
        yield line((f"{failed} ({nodes})" if nodes else failed, NOTE))


def _forecast_lines(forecast: Forecast) -> Iterator[Line]:
    rate = rate_text(forecast.rate, forecast.item)
    parts = [remaining_text(forecast), rate] if forecast.epochs_total else []
    if any(parts):
        yield line("Estimate: " + " · ".join(part for part in parts if part))


def _health_lines(health: Health) -> Iterator[Line]:
    """The first line of health, unless all is well."""
    headline = health.headline
    if headline.severity is not None:
        others = headline.others
        more = f" (and {number(others)} more: metlmon health)" if others else ""
        yield line((f"Health: {plain(replace(headline, others=0).line)}{more}", BAD))


def hours_line(hours: GpuHours, nodes_unlogged: int = 0, lacks_more: bool = False) -> str:
    """The hours in one line, with the share of badput.

    ``nodes_unlogged``: nodes whose hours are missing: no log has an execution of theirs, or its
    GPUs. ``lacks_more``: those of others may be missing.
    """
    parts, total = hours_added((hours.goodput, hours.badput, hours.running))
    ended = hours.goodput + hours.badput
    bad_share = f" ({share(hours.badput, ended)} of ended)" if hours.badput > 0 else ""
    least = "at least " if nodes_unlogged or lacks_more else ""
    nodes = count(nodes_unlogged, "node")
    suffix = f"; {nodes} without {hours.measure.hours} in the logs" if nodes_unlogged else ""
    spent = f"{parts[0]} goodput + {parts[1]} badput{bad_share} + {parts[2]} running"
    return f"{hours.measure.hours}: {least}{total} = {spent}{suffix}"


def _reason_lines(status: Status) -> Iterator[Line]:
    """Why runs are held or failed, and what their gates do."""
    for run in status.runs:
        if run.latest and run.latest.hold_reason:
            name = plain(run.run, NAME_LIMIT)
            yield held_line(name, run.latest.hold_code, run.latest.hold_reason)
    for run in status.runs:
        if run.failed is not None and run.failed.reason is not None:
            name, node = plain(run.run, NAME_LIMIT), plain(run.failed.node, NAME_LIMIT)
            reason = plain(run.failed.reason, REASON_LIMIT)
            yield line((f"{name} failed: {node}: {reason}", BAD))
    for run in status.runs:
        yield from _gate_lines(run)


def _gate_lines(run: Run) -> Iterator[Line]:
    sentences = gate_sentences(run)
    if sentences:
        style = TextStyle((gate_symbol(run) or REQUESTED).colour)
        yield line((f"{plain(run.run, NAME_LIMIT)} {'; '.join(sentences)}", style))


def held_line(name: str, code: int | None, reason: str | None) -> Line:
    """``run1 is held (34 JobOutOfResources): …``."""
    codes = f" ({code_text(code, reason=reason)})" if code is not None else ""
    text = plain(reason or "the log gives no reason", REASON_LIMIT)
    return line((f"{name} is held{codes}: {text}", BAD))


def _print_warnings(out: TextOutput, status: Status) -> None:
    if not status.warnings:
        return
    out.print("", line((count(len(status.warnings), "warning") + ":", BOLD)))
    for notice in status.warnings[:LISTED]:
        out.print(
            *wrap(
                warning_line(notice),
                (out.width or UNLIMITED) - 1,
                initial_indent="  ",
                subsequent_indent="    ",
                break_on_hyphens=False,
            )
        )
    if len(status.warnings) > LISTED:
        out.print(f"  and {len(status.warnings) - LISTED} more: see --json")
