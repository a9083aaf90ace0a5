"""What the commands print for people: tables without Textual, safe to pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from metlmon.cli.warnings import WARNINGS_SHOWN, warning_line
from metlmon.frozen import frozen
from metlmon.model.hour_unit import HourUnit
from metlmon.model.states import UNPLACED, State
from metlmon.snapshot.gate_text import (
    PAUSED,
    REQUESTED,
    epoch_target,
    gate_sentences,
    gate_symbol,
    is_waiting_at,
    paused_epochs,
    waits_since,
)
from metlmon.snapshot.node_text import KINDS, active_other_nodes, counted_states, failed_evaluations
from metlmon.snapshot.types import (
    DagRow,
    EpochRow,
    GpuHours,
    JobRow,
    Latest,
    RunRow,
    RunView,
    Status,
)
from metlmon.text.formatting import (
    BETWEEN,
    OUTCOMES,
    STATES,
    UNKNOWN,
    Colour,
    Symbol,
    Weight,
    at_least,
    between_epochs,
    count,
    dag_sign,
    duration,
    gpus,
    hours,
    hours_added,
    job_id,
    moment,
    nothing_logged,
    number,
    plain,
    progress_bar,
    refused_submissions,
    share,
    site,
    wants,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from metlmon.stats.headline import Headline

PIPE_WIDTH: Final = 1000
"""Columns of a table that no terminal shows: nothing is cut or wrapped for a script."""

NAME_LIMIT: Final = 60
REASON_LIMIT: Final = 160
"""Characters of names and reasons in a table; ``--json`` has them whole."""

SHADES: Final = {
    Colour.PLAIN: "default",
    Colour.GREY: "bright_black",
    Colour.ORANGE: "yellow",
    Colour.SKY: "bright_cyan",
    Colour.GREEN: "green",
    Colour.YELLOW: "bright_yellow",
    Colour.BLUE: "bright_blue",
    Colour.VERMILLION: "bright_red",
    Colour.PURPLE: "magenta",
}
"""The terminal's own sixteen colours: legible on whatever ground it was set up with."""


def console() -> Console:
    """Standard output, as wide as its terminal; a pipe cuts nothing."""
    from rich.console import Console

    class PipeConsole(Console):
        """Leaves it to ``main`` what a closed pipe means; Rich exits with 1."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    # Rich guesses 80 columns for a pipe, and would cut what a script reads.
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return PipeConsole(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)


def signed(sign: Symbol, text: str | None = None) -> Text:
    """Mark and word of a state in its colour, or another text in it."""
    from rich.text import Text

    style = SHADES[sign.colour]
    if sign.weight is Weight.BOLD:
        style += " bold"
    return Text(text if text is not None else sign.text(), style=style)


@frozen
class TextColumn:
    """A column: its heading, the side its values stick to, and when it is dropped on a
    narrow terminal (1 first; 0 never). ``shrinks``: cut rather than dropped, to that many."""

    head: str
    right: bool = False
    drop: int = 0
    shrinks: int = 0


def in_measure(columns: Iterable[TextColumn], measure: HourUnit) -> list[TextColumn]:
    """The columns with their hours named as what they are."""
    named = {GPU_H: f"{measure.value}-H".upper()}
    return [replace(column, head=named.get(column.head, column.head)) for column in columns]


GPU_H: Final = "GPU-H"


def print_table(
    console: Console, columns: Sequence[TextColumn], rows: Sequence[Sequence[str | Text]]
) -> None:
    """Columns side by side, as many as the terminal is wide enough for."""
    from rich.cells import cell_len
    from rich.text import Text

    widths = [
        max([cell_len(column.head), *(cell_len(_words(row[i])) for row in rows)])
        for i, column in enumerate(columns)
    ]
    kept, widths = _fitting(columns, widths, console.width)
    layout = [(i, widths[i], columns[i].right) for i in kept]
    heads = [Text(column.head, style="bold") for column in columns]
    if console.color_system is None:
        # Nothing is to be coloured, and rich takes twenty times as long for a line.
        for cells in (heads, *rows):
            print(_plain_line(cells, layout), file=console.file)
        return
    for cells in (heads, *rows):
        console.print(_line(cells, layout), soft_wrap=True)


Layout = Sequence[tuple[int, int, bool]]
"""Of the columns that are kept: which it is, its width, and whether it sticks to the right."""


def _words(cell: str | Text) -> str:
    return cell if isinstance(cell, str) else cell.plain


def _plain_line(cells: Sequence[str | Text], layout: Layout) -> str:
    from rich.cells import cell_len

    parts = []
    for i, width, right in layout:
        words = _words(cells[i])
        room = width - cell_len(words)
        if room < 0:
            words, room = _cut(words, width).plain, 0
        parts.append(" " * room + words if right else words + " " * room)
    return "  ".join(parts).rstrip()


def _line(cells: Sequence[str | Text], layout: Layout) -> Text:
    from rich.text import Text

    line = Text(no_wrap=True, overflow="ignore")
    for i, width, right in layout:
        shown = _cut(cells[i], width)
        blanks = " " * (width - shown.cell_len)
        if right:
            line.append(blanks)
        line.append_text(shown)
        line.append("  " if right else f"{blanks}  ")
    line.rstrip()
    return line


def _cut(cell: str | Text, width: int) -> Text:
    """As much of it as there is room for."""
    from rich.text import Text

    shown = Text(cell) if isinstance(cell, str) else cell.copy()
    shown.truncate(width, overflow="ellipsis")
    return shown


def _fitting(
    columns: Sequence[TextColumn], widths: list[int], room: int
) -> tuple[list[int], list[int]]:
    """Which columns are kept, and how wide each is."""
    kept = list(range(len(columns)))
    widths = list(widths)

    def total() -> int:
        return sum(widths[i] for i in kept) + 2 * (len(kept) - 1)

    for i in sorted((i for i in kept if columns[i].drop), key=lambda i: columns[i].drop):
        if total() <= room:
            break
        kept.remove(i)
    for i in (i for i in kept if columns[i].shrinks):
        if total() > room:
            widths[i] = max(columns[i].shrinks, widths[i] - (total() - room))
    return kept, widths


# --- status -------------------------------------------------------------------------------


def print_status(status: Status, figures: Headline) -> None:
    """The ensemble on one page: DAGs, counts, GPU-hours, when it will be done, the worst
    incident, a row per run, warnings."""
    from rich.text import Text

    out = console()
    for dag in status.dags:
        out.print(_dag_line(dag))
        if dag.hold is not None:
            out.print(_held("DAGMan", dag.hold.code, dag.hold.reason))
            out.print("  its jobs run on; metlmon act release-dag lets DAGMan go on")
    when = moment(status.as_of)
    what = "live, as of" if status.live else "as of"
    logged = any(log.events for log in status.logs)
    when += "" if logged else ", before anything was logged"
    nothing = nothing_logged(dag.ended for dag in status.dags)
    out.print(Text(f"{what} {when}" if status.as_of else nothing))
    out.print()
    for line in _counts_lines(status, out.width):
        out.print(line)
    for line in _other_nodes(status):
        out.print(line)
    out.print(Text(hours_line(status.gpu_hours, status.nodes_unlogged)))
    for line in _figures(figures):
        out.print(line)
    out.print()
    if status.runs:
        several = len(status.dags) > 1
        bar = WIDE_BAR if out.width >= ROOMY else NARROW_BAR
        rows = [_run_cells(run, several, bar) for run in status.runs]
        shown = [c for c in RUN_COLUMNS if several or c.head != "DAG"]
        print_table(out, in_measure(shown, status.gpu_hours.measure), rows)
    else:
        out.print(Text("No runs: no node of these DAGs is called …-train_epochN."))
    for line in _reasons(status.runs):
        out.print(line)
    _print_warnings(out, status)


def _other_nodes(status: Status) -> Iterable[Text]:
    """The nodes outside the graph, and those of no run; how many of the others that are no epoch
    are at work or in trouble; evaluations that failed."""
    from rich.text import Text

    astir = active_other_nodes(status)
    if status.special_nodes or astir:
        line = Text("Other nodes:", style="bold")
        for row in status.special_nodes:
            kind = f"{row.kind.upper()} " if row.kind in KINDS else ""
            line.append(f"  {kind}{plain(row.node, NAME_LIMIT)} ")
            line.append_text(signed(STATES[row.state]))
        for state, n in astir.items():
            sign = STATES[state]
            told = f"{sign.glyph} {number(n)} {sign.word}"
            line.append("  ").append_text(signed(sign, told))
        yield line
    passed = sum(run.epochs_overruled for run in status.runs)
    if passed:
        of_them = "its job" if passed == 1 else "their jobs"
        told = f"{count(passed, 'epoch')} completed although {of_them} failed"
        yield Text(told, style=SHADES[Colour.ORANGE])
    told, more = failed_evaluations(status.side_nodes)
    if told:
        yield Text(f"{told} ({more})" if more else told, style=SHADES[Colour.ORANGE])


def _figures(figures: Headline) -> Iterable[Text]:
    """The rate, when it will be done, and the worst incident that matters now."""
    from rich.text import Text

    from metlmon.stats.estimate_text import rate_text, remaining_text

    told = figures.forecast
    if told.total:
        parts = [part for part in (remaining_text(told), rate_text(told.rate)) if part]
        if parts:
            yield Text("Estimate: " + "   ".join(parts))
    if figures.worst_incident is not None:
        more = (
            f" (and {figures.other_incidents} more: see --json)" if figures.other_incidents else ""
        )
        text = plain(figures.worst_incident.text, REASON_LIMIT)
        yield Text(f"Incident: {text}{more}", style=SHADES[Colour.VERMILLION])


def _dag_line(dag: DagRow) -> Text:
    from rich.text import Text

    line = Text(plain(dag.file, NAME_LIMIT), style="bold")
    line.append("  ")
    line.append_text(signed(dag_sign(dag.state, dag.nodes_failed)))
    done = at_least(number(dag.nodes_done), dag.is_lower_bound)
    line.append(f"  {done} of {count(dag.nodes_total, 'node')} done")
    if dag.nodes_failed:
        line.append(f", {number(dag.nodes_failed)} failed", style=SHADES[Colour.VERMILLION])
    if dag.submitted:
        line.append(f"  submitted {dag.submitted}×")
    if dag.recoveries:
        line.append(f", recovered {dag.recoveries}×")
    if dag.rescue:
        line.append(f", rescue {dag.rescue}")
    if dag.halted:
        line.append("  halted", style=SHADES[Colour.ORANGE])
    if dag.refused:
        line.append(f"  {refused_submissions(dag.refused)}", style=SHADES[Colour.ORANGE])
    return line


def _counts_lines(status: Status, room: int) -> list[Text]:
    """How many are in each state, broken between two states where they need more room."""
    from rich.text import Text

    counted, paused = counted_states(status), paused_epochs(status)
    what = "epoch" if counted is status.epoch_states else "node"
    lines = [Text(count(sum(counted.values()), what) + ":", style="bold")]
    signs = [
        (STATES[state], counted[state] - (paused if state is State.PRE else 0)) for state in State
    ]
    for sign, n in [*signs, (PAUSED, paused)]:
        if not n:
            continue
        told = f"{sign.glyph} {number(n)} {sign.word}"
        inferred = sum(run.epochs_inferred for run in status.runs) if what == "epoch" else 0
        if sign is STATES[State.COMPLETED] and inferred:
            told += f" ({number(inferred)} inferred)"
        if lines[-1].cell_len + 2 + len(told) > room:
            lines.append(Text())
        lines[-1].append("  ")
        lines[-1].append_text(signed(sign, told))
    return lines


def hours_line(value: GpuHours, missing: int = 0) -> str:
    """GPU-hours, or what there is instead, in one line, with the share that was lost.
    ``missing``: of so many nodes the logs lack what they spent."""
    settled = value.good + value.bad
    parts, total = hours_added((value.good, value.bad, value.in_flight))
    lost = f" ({share(value.bad, settled)} of ended)" if value.bad > 0 else ""
    least = "at least " if missing else ""
    spent = f"{parts[0]} good + {parts[1]} lost{lost} + {parts[2]} in flight"
    nodes = count(missing, "node")
    more = f"; {nodes} without an execution in the logs" if missing else ""
    return f"{value.measure.hours}: {least}{total} = {spent}{more}"


RUN_COLUMNS: Final = (
    TextColumn("RUN", shrinks=12),
    TextColumn("UUID", drop=4),
    TextColumn("DAG", drop=7),
    TextColumn("PROGRESS"),
    TextColumn("EPOCH", right=True),
    TextColumn("STATE"),
    TextColumn("FOR", right=True),
    TextColumn("SITE", shrinks=8),
    TextColumn("GPU", drop=6),
    TextColumn("JOB", drop=3),
    TextColumn("TRY", right=True, drop=2),
    TextColumn(GPU_H, right=True, drop=5),
    TextColumn("LOST H", right=True, drop=1),
)
"""Progress and state never go."""

ROOMY: Final = 100
WIDE_BAR: Final = 12
NARROW_BAR: Final = 6
"""Cells of a progress bar, on terminals of :data:`ROOMY` columns and on narrower ones."""


def _run_cells(run: RunRow, several: bool, width: int) -> list[str | Text]:
    latest, failed = run.shown_epoch, run.failed
    at = failed if failed is not None else latest
    state = failed.state if failed else latest.state if latest else run.state
    done = at_least(f"{run.epochs_done}/{run.epochs_total}", run.epochs_unknown > 0)
    if run.epochs_skipped:
        done += f" ({run.epochs_skipped} skipped)"
    if run.epochs_inferred:
        done += f" ({run.epochs_inferred} inferred)"
    bar = progress_bar(run.epochs_done, run.epochs_total, width)
    dash = UNKNOWN
    return [
        plain(run.run, NAME_LIMIT),
        plain(run.uuid or dash, 16),
        *([plain(run.dag, NAME_LIMIT)] if several else []),
        f"{bar} {done}",
        str(at.epoch) if at and at.epoch is not None else dash,
        signed(gate_symbol(run) or STATES[state], _between(run, state)),
        duration(at.seconds) if at else dash,
        _where(latest) if latest else dash,
        gpus(latest.gpu, latest.gpus) if latest else dash,
        job_id(latest.cluster, latest.proc) if latest else dash,
        str(latest.attempt) if latest else dash,
        hours(run.gpu_hours.total),
        hours(run.gpu_hours.bad),
    ]


def _between(run: RunRow, state: State) -> str | None:
    """Of a run whose next epoch was not submitted yet, and no gate tells why."""
    if gate_symbol(run):
        return None
    waits = between_epochs(state, run.epochs_done + run.epochs_skipped, run.epochs_total)
    passed = run.shown_epoch is not None and run.shown_epoch.overruled
    if not waits and not passed:
        return None
    told = BETWEEN if waits else STATES[state].word
    return f"{STATES[state].glyph} {told}{', job failed' if passed else ''}"


def _where(at: Latest | EpochRow) -> str:
    """The site; without one an arrow and the target: where it is not, but wants to be."""
    if at.site is None and at.target is not None:
        return wants(at.target)
    return site(at.site, at.target, at.off_target, state=at.state)


def _reasons(runs: Sequence[RunRow]) -> Iterable[Text]:
    from rich.text import Text

    for run in runs:
        if run.latest and run.latest.hold_reason:
            name = plain(run.run, NAME_LIMIT)
            yield _held(name, run.latest.hold_code, run.latest.hold_reason)
    for run in runs:
        if run.failed is not None and run.failed.reason is not None:
            name, node = (plain(each, NAME_LIMIT) for each in (run.run, run.failed.node))
            why = plain(run.failed.reason, REASON_LIMIT)
            yield Text(f"{name} failed: {node}: {why}", style=SHADES[Colour.VERMILLION])
    for run in runs:
        yield from _gated(run)


def _gated(run: RunRow) -> Iterable[Text]:
    """What is told of a run's gate."""
    from rich.text import Text

    told = gate_sentences(run)
    if told:
        name = plain(run.run, NAME_LIMIT)
        yield Text(
            f"{name} {'; '.join(told)}", style=SHADES[(gate_symbol(run) or REQUESTED).colour]
        )


def _held(name: str, code: int | None, reason: str | None) -> Text:
    from rich.text import Text

    coded = f" (code {code})" if code is not None else ""
    why = plain(reason or "the log gives no reason", REASON_LIMIT)
    return Text(f"{name} is held{coded}: {why}", style=SHADES[Colour.VERMILLION])


def _print_warnings(console: Console, status: Status) -> None:
    from rich.text import Text

    if not status.warnings:
        return
    console.print()
    console.print(Text(count(len(status.warnings), "warning") + ":", style="bold"))
    for notice in status.warnings[:WARNINGS_SHOWN]:
        told = warning_line(notice)
        told = told
        for line in _broken(told, console.width):
            console.print(Text(line), soft_wrap=True)
    if len(status.warnings) > WARNINGS_SHOWN:
        console.print(Text(f"  and {len(status.warnings) - WARNINGS_SHOWN} more: see --json"))


def _broken(text: str, room: int) -> list[str]:
    return wrap(
        text,
        room - 1,
        initial_indent="  ",
        subsequent_indent="    ",
        break_on_hyphens=False,
    )


# --- run ----------------------------------------------------------------------------------


def print_run(view: RunView) -> None:
    """One run, epoch by epoch."""
    from rich.text import Text

    out = console()
    row = view.row
    out.print(
        Text(
            f"{plain(row.run, NAME_LIMIT)}  {plain(row.uuid or '', 16)}  "
            f"{plain(row.dag, NAME_LIMIT)}  {row.epochs_done} of "
            f"{count(row.epochs_total, 'epoch')} done",
            style="bold",
        )
    )
    out.print(Text(hours_line(row.gpu_hours, view.nodes_unlogged)))
    for line in _gated(row):
        out.print(line)
    out.print()
    rows = [_epoch_cells(row, epoch) for epoch in (*view.epochs, *view.side)]
    for cells, side in zip(rows[len(view.epochs) :], view.side, strict=True):
        # Its number is not that of the epoch it comes after.
        cells[0] = plain(side.node, NAME_LIMIT)
    evaluated = any(epoch.evaluations for epoch in view.epochs)
    if evaluated:
        told = [_evaluated(epoch) for epoch in (*view.epochs, *view.side)]
        rows = [[*row[:2], each, *row[2:]] for row, each in zip(rows, told, strict=True)]
    columns = [*EPOCH_COLUMNS[:2], *[TextColumn("EVALUATION")] * evaluated, *EPOCH_COLUMNS[2:]]
    print_table(out, in_measure(columns, view.row.gpu_hours.measure), rows)


EPOCH_COLUMNS: Final = (
    TextColumn("EPOCH", right=True),
    TextColumn("STATE"),
    TextColumn("JOB", drop=4),
    TextColumn("TARGET", drop=2),
    TextColumn("SITE", shrinks=8),
    TextColumn("GPU", drop=5),
    TextColumn("QUEUED", right=True, drop=6),
    TextColumn("TRANSFER", right=True, drop=1),
    TextColumn("EXECUTION", right=True),
    TextColumn("TRIES", right=True),
    TextColumn(GPU_H, right=True, drop=3),
    TextColumn("LOST H", right=True),
)


def _epoch_cells(run: RunRow, epoch: EpochRow) -> list[str | Text]:
    dash = UNKNOWN
    sign = PAUSED if is_waiting_at(run, epoch) else STATES[epoch.state]
    job = epoch.jobs[-1] if epoch.jobs else (None, None)
    # The target has a column of its own.
    target = None if epoch.state in UNPLACED else epoch.target
    where = site(epoch.site, target, epoch.off_target, state=epoch.state)
    if epoch.trained_on:
        same = epoch.trained_on == epoch.site
        elsewhere = "" if same else f", on {plain(epoch.trained_on, 40)}"
        where += f" (an earlier try trained longest{elsewhere})"
    return [
        str(epoch.epoch) if epoch.epoch is not None else plain(epoch.node, NAME_LIMIT),
        signed(sign, sign.text() + _besides(run, epoch)),
        job_id(job[0], job[1]),
        plain(epoch_target(run, epoch) or dash, 24),
        where,
        gpus(epoch.gpu, epoch.gpus),
        duration(epoch.queue_wait),
        duration(epoch.transfer),
        duration(epoch.execution),
        str(epoch.attempts),
        hours(epoch.gpu_hours.total),
        hours(epoch.gpu_hours.bad),
    ]


def _besides(run: RunRow, epoch: EpochRow) -> str:
    """What is to be said of an epoch's state besides it."""
    if run.gate is not None and is_waiting_at(run, epoch):
        return f" ({waits_since(run.gate)})"
    if epoch.overruled:
        return " (its job failed)"
    return " (inferred)" if epoch.inferred else ""


def _evaluated(epoch: EpochRow) -> str:
    """What the evaluations of an epoch are at."""
    return " ".join(
        f"{STATES[State.FAILED].glyph} job failed" if row.overruled else STATES[row.state].text()
        for row in epoch.evaluations
    )


# --- jobs ---------------------------------------------------------------------------------


def print_jobs(rows: Sequence[JobRow]) -> None:
    """One line per job."""
    from rich.text import Text

    out = console()
    if not rows:
        out.print(Text("No jobs: nothing was submitted yet, or no event log lies here."))
        return
    print_table(out, JOB_COLUMNS, [_job_cells(row) for row in rows])
    held = [row for row in rows if row.state is State.HELD]
    if held:
        out.print()
    for row in held[:HELD_SHOWN]:
        name = f"job {job_id(row.cluster, row.proc)}"
        out.print(_held(name, row.hold_code, row.hold_reason))
    if len(held) > HELD_SHOWN:
        out.print(Text(f"and {len(held) - HELD_SHOWN} more are held: see --json"))


HELD_SHOWN: Final = 20
"""Held jobs whose reasons are printed below the table."""

JOB_COLUMNS: Final = (
    TextColumn("JOB"),
    TextColumn("NODE", shrinks=12),
    TextColumn("STATE"),
    TextColumn("SINCE", drop=5),
    TextColumn("SITE", drop=6),
    TextColumn("GPU", drop=4),
    TextColumn("TRIES", right=True, drop=3),
    TextColumn("LAST TRY"),
    TextColumn("GPU-H", right=True, drop=2),
    TextColumn("MEMORY", right=True, drop=1),
)


def _job_cells(job: JobRow) -> list[str | Text]:
    dash = UNKNOWN
    last = job.executions[-1] if job.executions else None
    spent = sum(e.gpu_hours or 0.0 for e in job.executions)
    node = job.node
    if job.ambiguous:
        several = len(job.ambiguous) > 1
        node = f"one of {len(job.ambiguous)} DAGs" if several else "owner unknown"
    return [
        job_id(job.cluster, job.proc),
        plain(node or dash, NAME_LIMIT),
        signed(STATES[job.state]),
        moment(job.since),
        site(job.site, job.target, False, state=job.state),
        gpus(job.gpu, job.gpus),
        str(len(job.executions)),
        signed(OUTCOMES[last.outcome]) if last else dash,
        hours(spent) if job.executions else dash,
        f"{number(job.memory_mb)} MB" if job.memory_mb is not None else dash,
    ]
