"""The overview's header: progress, DAGs, GPU-hours, incidents. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import product
from pathlib import PurePath
from typing import Final

from msgspec.structs import replace

from metlmon.health.advice import own_steps
from metlmon.health.headline import health_headline
from metlmon.health.types import Health, HealthEntry, Severity, numbered
from metlmon.live.feed import Snapshot
from metlmon.model.states import FAILED_JOB, TERMINAL, DagState, State
from metlmon.pool.types import PoolAction
from metlmon.snapshot import row_text
from metlmon.snapshot.records import DagRow, GpuHours, NodeRow, Progress, SideCounts, Status
from metlmon.snapshot.row_text import KINDS, PAUSED, paused_epochs
from metlmon.stats.estimates import Forecast
from metlmon.tables import estimates as estimates_table
from metlmon.tables import health as health_table
from metlmon.text import formatting
from metlmon.text.formatting import DAG_STATES, STATES, apportion, dag_sign, directory_name, plain
from metlmon.text.spans import (
    ALARM,
    BAD,
    BOLD,
    DIM,
    GOOD,
    KEY,
    MOVING,
    NOTE,
    Line,
    TextStyle,
    crop,
    file_name,
    first_that_fits,
    join,
    justify,
    line,
    style_of,
    symbol_span,
    width,
    wrap,
)
from metlmon.text.spans import width as cells
from screens.actions import DIRECT
from screens.pool_actions import action_of

_STATES: Final[Mapping[State, tuple[str, int]]] = {
    State.COMPLETED: ("█", 9),
    State.SKIPPED: ("▁", 8),
    State.POST: ("▓", 6),
    State.TRANSFERRING_OUTPUT: ("▓", 2),
    State.RUNNING: ("▓", 10),
    State.SUSPENDED: ("╳", 14),
    State.DISCONNECTED: ("╳", 15),
    State.STARTING: ("▒", 1),
    State.TRANSFERRING_INPUT: ("▒", 3),
    State.PRE: ("▒", 7),
    State.IDLE: ("░", 4),
    State.RETRYING: ("╳", 13),
    State.HELD: ("╳", 18),
    State.FAILED: ("╳", 17),
    State.REMOVED: ("╳", 16),
    State.FUTILE: ("╳", 12),
    State.UNKNOWN: ("╳", 11),
    State.WAITING: ("─", 5),
}
"""Texture in the bar, which distinguishes the parts without colours, and the rank by which words
are dropped on a narrow terminal. From finished to not started, with trouble before the latter."""

_OVER: Final = TERMINAL | {State.SKIPPED, State.FUTILE}
"""States of nodes that have ended."""

_SHORT_WORDS: Final = {
    State.TRANSFERRING_INPUT: "in",
    State.TRANSFERRING_OUTPUT: "out",
    State.PRE: "pre",
    State.POST: "post",
}

SEVERAL_DAGS: Final = 3
"""Maximum number of DAGs with a line each in the header; of more, states are counted."""


def seconds_ago(as_of: datetime | None, when: datetime | None) -> float | None:
    """Seconds from ``when`` to ``as_of``; None if unknown, or in different zones."""
    if as_of is None or when is None or (as_of.tzinfo is None) != (when.tzinfo is None):
        return None
    return (as_of - when).total_seconds()


def header(
    snapshot: Snapshot,
    dagdir: str,
    width: int,
    *,
    read_only: bool = False,
    several: int = SEVERAL_DAGS,
    endings: Sequence[Line] = (),
) -> list[Line]:
    """Directory, live state and age of the logs on the first line, DAGs below it.

    With more than ``several`` DAGs, states are counted. With 0, a single DAG is on the first line.
    ``endings``: the forecast in ever shorter forms, on the first line if there is room.
    """
    name = plain(directory_name(dagdir), 48)
    title = line(("metlmon", TextStyle(formatting.Colour.SKY, formatting.Weight.BOLD)), "  ")
    title += line(("read-only  " if read_only else "", NOTE), (name, BOLD))
    if not snapshot.opened:
        return [_with_margins(title, (), width), line(" ", ("opening the directory", DIM))]
    status = snapshot.status
    gap, live, warnings = line("   "), _live_state(snapshot), _warnings(status)
    rights = [join((live, _log_ages(snapshot, width), warnings), gap)]
    if endings:
        # The end of the ensemble matters more than the age of the logs, or the number of warnings.
        rights = [join((live, warnings), gap), live]
    ends = [gap + ending for ending in endings]
    error = [line(" ", (plain(snapshot.error, 4 * width), ALARM))] if snapshot.error else []
    if not several and len(status.dags) == 1:
        (dag,) = status.dags
        glyph = line((dag_sign(dag.state, dag.nodes_failed).glyph, _dag_style(dag.state)))
        starts = (title, line(("read-only  " if read_only else "", NOTE), (name, BOLD)))
        for right, end, start in [*product(rights, ends, starts), *product(rights, [()], starts)]:
            room = width - 7 - cells(right)
            left = start + gap + dag_state(dag, status, room - cells(start) - cells(end)) + end
            if cells(left) <= room + 3:
                break
        else:
            left = starts[1] + gap + glyph
        return [_with_margins(left, right, width), *error]
    for right, end in [*product(rights, ends), (rights[0], ())]:
        if cells(title + end) <= width - 6 - cells(right):
            break
    return [_with_margins(title + end, right, width), *error, *_dag_lines(status, width, several)]


def _with_margins(left: Line, right: Line, width: int) -> Line:
    return line(" ") + justify(left, right, width - 2) + line(" ")


def _live_state(snapshot: Snapshot) -> Line:
    status = snapshot.status
    if status.as_of is None and not snapshot.is_complete:
        return ()
    if status.as_of is None:
        return line((formatting.nothing_logged((dag.ended for dag in status.dags)), DIM))
    if status.live:
        return line(("● live", MOVING), " ", f"{status.as_of:%H:%M:%S}")
    return line(("snapshot ", DIM), formatting.moment(status.as_of))


def _log_ages(snapshot: Snapshot, width: int) -> Line:
    if not snapshot.is_complete:
        return reading_progress(snapshot.progress, 12 if width >= 100 else 0)
    status = snapshot.status
    if not status.live:
        return ()
    ages = [(seconds_ago(status.as_of, log.last), log.file) for log in status.logs]
    known = sorted((age, file) for age, file in ages if age is not None)
    if not known:
        return ()
    if width >= 150 and len(known) <= 3:
        return join(
            (
                line((plain(PurePath(file).name, 24), DIM), f" {formatting.age(age)} ago")
                for age, file in known
            ),
            line("  "),
        )
    noun = "log" if len(known) == 1 else "logs"
    newest = formatting.age(known[0][0])
    oldest = formatting.age(known[-1][0])
    if oldest != newest and width >= 100:
        return line((f"{noun} ", DIM), f"{newest} to {oldest} ago")
    return line((f"{noun} ", DIM), f"{newest} ago")


def _warnings(status: Status) -> Line:
    if not status.warnings:
        return ()
    text = formatting.count(len(status.warnings), "warning")
    return line((text, NOTE), (" [8]", KEY))


def reading_progress(progress: Progress, bar: int) -> Line:
    """``reading 31 % of 40.2 MB``, after a bar of ``bar`` cells."""
    done = formatting.share(progress.done, progress.total)
    size = formatting.size(progress.total)
    rendered = formatting.progress_bar(progress.done, progress.total, bar)
    return line((rendered, MOVING), " " if bar else "", f"reading {done} of {size}")


def _dag_lines(status: Status, room: int, several: int) -> list[Line]:
    dags = status.dags
    if not dags:
        return [_logs_line(status)]
    if len(dags) <= max(1, several):
        longest = max(width(_dag_name(dag)) for dag in dags)
        return [_dag_line(dag, status, longest, room) for dag in dags]
    counts = {state: sum(dag.state is state for dag in dags) for state in DagState}
    states = join(
        (
            line((f"{DAG_STATES[state].glyph} {n} {DAG_STATES[state].word}", _dag_style(state)))
            for state, n in counts.items()
            if n
        ),
        line("   "),
    )
    nodes = sum(dag.nodes_done for dag in dags), sum(dag.nodes_total for dag in dags)
    done, all_nodes = (formatting.number(n) for n in nodes)
    incomplete = any(dag.is_lower_bound for dag in dags)
    total = f"   {formatting.at_least(done, incomplete)} of {all_nodes} nodes done"
    return [line(" ", f"{len(dags)} DAGs   ") + states + line((total, DIM))]


def _logs_line(status: Status) -> Line:
    """The event logs, which are read in place of a DAG."""
    logs = [log for log in status.logs if log.events]
    if not logs:
        return line(" ", ("no DAG file", DIM))
    name = plain(logs[0].file, 40) if len(logs) == 1 else formatting.count(len(logs), "event log")
    queued = status.jobs_queued
    rest = f"{formatting.count(queued, 'job')} in the queue" if queued else "no job in the queue"
    return line(" ", name, "   ", (rest, MOVING if queued else DIM), ("   no DAG file", DIM))


def _dag_style(state: DagState) -> TextStyle:
    return style_of(DAG_STATES[state])


def _dag_name(dag: DagRow) -> Line:
    return line(file_name(dag.file, 44))


def _dag_line(dag: DagRow, status: Status, longest: int, room: int) -> Line:
    name = _dag_name(dag)
    start = line(" ") + name + line(" " * (longest - width(name) + 2))
    return start + dag_state(dag, status, room - 1 - width(start))


NO_DAGMAN_OUT: Final = "no .dagman.out here"


def dag_state(dag: DagRow, status: Status, room: int) -> Line:
    """State, failures and progress of a DAG; the least important are dropped first."""
    done, total = (formatting.number(n) for n in (dag.nodes_done, dag.nodes_total))
    done = formatting.at_least(done, dag.is_lower_bound)
    year = formatting.year_of(status.as_of)
    submitted, short_submitted = (
        line((row_text.submission_text(dag, year, last), DIM)) for last in (True, False)
    )
    state = symbol_span(dag_sign(dag.state, dag.nodes_failed))
    unknown: Line = ()
    if dag.state is DagState.UNKNOWN:
        # Known facts come first.
        running = row_text.running_text(status, dag)
        state, unknown = line((running, MOVING)), line((NO_DAGMAN_OUT, DIM))
    failed = row_text.failed_nodes_text(status, dag.nodes_failed)
    parts = [
        state,
        line((plain((dag.hold.reason or "")[:200], 60), ALARM)) if dag.hold else (),
        line(("halted", NOTE)) if dag.halted else (),
        line((failed, ALARM)) if dag.nodes_failed else (),
        line((f"{done} of {total} nodes done", DIM)),
        submitted,
        line((f"{dag.refused} refused", NOTE)) if dag.refused else (),
        unknown and line((f"{NO_DAGMAN_OUT}, so DAGMan's state is unknown", DIM)),
    ]
    gap = line("   ")
    candidates = [join(parts, gap)]
    # Drop, in order: the time of the last submission, the refusals, the submissions, a reason, and
    # finally the failures, which the counts below repeat.
    for index, shorter in (
        (5, short_submitted),
        (7, unknown),
        (4, line((f"{done} of {total} done", DIM))),
        (6, ()),
        (5, ()),
        (7, ()),
        (4, ()),
        (1, ()),
        (2, ()),
        (3, ()),
    ):
        parts[index] = shorter
        candidates.append(join(parts, gap))
    return first_that_fits(candidates, room)


def state_bar(states: Mapping[State, int], cells: int) -> Line:
    """All epochs as one bar; every state that occurs has at least one cell."""
    present = [(state, states.get(state, 0)) for state in _STATES if states.get(state, 0) > 0]
    total = sum(count for _, count in present)
    if not total:
        return line("─" * cells)
    shares = apportion([count for _, count in present], cells)
    return line(
        *(
            (_STATES[state][0] * share, style_of(STATES[state]))
            for (state, _), share in zip(present, shares, strict=True)
        )
    )


BAR_CELLS: Final = (12, 8, 4)
"""Possible lengths of the bar beside the counts; few, so that the counts seldom move."""

SHORT_COUNTS: Final = 40
"""Cells that the counts of the states need before a bar is shown beside them."""


def total_text(status: Status) -> str:
    """``36 epochs``, or the number of nodes if no node is an epoch."""
    counted = row_text.counted_states(status)
    noun = status.item if counted is status.epoch_states else "node"
    return formatting.count(sum(counted.values()), noun)


def progress_line(status: Status, room: int) -> Line:
    """A short bar of the states, their total and their counts, on one line."""
    counted = row_text.counted_states(status)
    start = line((total_text(status), DIM), "  ")
    candidates = _count_candidates(counted, paused_epochs(status))
    room -= width(start)
    spare = room - width(candidates[1])
    states = sum(map(bool, counted.values()))
    bar_cells = next((cells for cells in BAR_CELLS if states <= cells <= spare - 2), 0)
    if spare < 0 and room - BAR_CELLS[0] - 2 >= SHORT_COUNTS:
        bar_cells = BAR_CELLS[0]
    if bar_cells:
        room -= bar_cells + 2
        start = state_bar(counted, bar_cells) + line("  ") + start
    return start + first_that_fits(candidates, room)


def state_counts(states: Mapping[State, int], cells: int, paused: int = 0) -> Line:
    """``✓ 412 done   ▶ 9 running   …``: states that occur, and always done ones.

    While something is left to do, running ones, too.
    """
    return first_that_fits(_count_candidates(states, paused), cells)


def _count_candidates(states: Mapping[State, int], paused: int) -> list[Line]:
    """The counts of the states: all words, short words, then ever fewer words."""
    paused_count = min(paused, states.get(State.PRE, 0))
    paused_text: Line = ()
    if paused_count:
        paused_text = line((PAUSED.glyph, style_of(PAUSED)), f" {formatting.number(paused_count)}")
        paused_text += line((f" {PAUSED.word}", style_of(PAUSED)))
        states = {**states, State.PRE: states[State.PRE] - paused_count}
    is_over = all(state in _OVER for state, count in states.items() if count)
    always = {State.COMPLETED} if is_over else {State.COMPLETED, State.RUNNING}
    present = [s for s in _STATES if states.get(s, 0) or s in always]

    words = {s: "done" if s is State.COMPLETED else STATES[s].word for s in State}
    short = words | _SHORT_WORDS
    gaps = line("   "), line("  ")
    candidates = [join((_count(s, states, words) for s in present), gaps[0])]
    candidates.append(join((_count(s, states, short) for s in present), gaps[1]))
    for dropped in sorted(present, key=lambda state: _STATES[state][1]):
        short[dropped] = ""
        candidates.append(join((_count(s, states, short) for s in present), gaps[1]))
    return [join((candidate, paused_text), gaps[0]) for candidate in candidates]


def _count(state: State, states: Mapping[State, int], words: Mapping[State, str]) -> Line:
    count = states.get(state, 0)
    style = style_of(STATES[state]) if count else DIM
    word = f" {words[state]}" if words[state] else ""
    return line((STATES[state].glyph, style), f" {formatting.number(count)}", (word, style))


def other_nodes(status: Status) -> Line:
    """Active or failed nodes that are not epochs, after a count of failed evaluations."""
    if row_text.counted_states(status) is not status.epoch_states:
        return ()
    counts = row_text.active_other_nodes(status)
    parts = [
        _count(state, counts, {state: STATES[state].word}) for state in _STATES if state in counts
    ]
    active = line(("other nodes  ", DIM)) + join(parts, line("  ")) if parts else ()
    return join((failed_evaluations(status.side_nodes), active), line("   "))


def failed_evaluations(side: SideCounts) -> Line:
    """``2 evaluations failed``: an alarm if that fails the DAG, else a note."""
    text, detail = row_text.failed_evaluations(side)
    detail_span = (f" ({detail})" if detail else "", ALARM if side.failed else DIM)
    return line((text, ALARM if side.failed and not side.overruled else NOTE), detail_span)


def special_nodes(rows: Sequence[NodeRow], cells: int) -> Line:
    """``PROVISIONER provision ▶ running 0:12:00  ·  SERVICE monitor ▶ running``."""
    dot = line(("  ·  ", DIM))
    candidates = [join((_special(row, short) for row in rows), dot) for short in (False, True)]
    # Finished and waiting nodes are dropped first, from the end.
    droppable = sorted(rows, key=lambda row: row.state in row_text.INACTIVE)[::-1]
    for number in range(1, len(rows) + 1):
        left_out = droppable[:number]
        shown = (_special(row, True) for row in rows if row not in left_out)
        candidates.append(join((*shown, line((f"{number} more", DIM), (" [6]", KEY))), dot))
    return first_that_fits([*candidates, ()], cells)


def _special(row: NodeRow, short: bool) -> Line:
    symbol = STATES[row.state]
    style = style_of(symbol)
    kind = f"{row.kind.upper()} " if row.kind in KINDS else ""
    content = line(
        (kind, DIM), (plain(row.node, 24), BOLD if _in_trouble(row) else TextStyle()), " "
    )
    if short and not _in_trouble(row):
        content += line((symbol.glyph, style))
    else:
        content += symbol_span(symbol)
    if row.overruled:
        content += line((" job failed", NOTE))
    if row.seconds is not None and row.state not in row_text.INACTIVE:
        content += line(" ", formatting.duration(row.seconds))
    return content


def _in_trouble(row: NodeRow) -> bool:
    return row.state in (State.HELD, State.FAILED, State.REMOVED)


QUIET_SECONDS: Final = 600
"""DAGMan submits ready nodes within seconds; a PRE script or a throttle may take minutes."""


def standstill_warning(status: Status) -> Line:
    """A warning if a DAG runs and has nodes waiting, but nothing is queued or running."""
    ages = [seconds_ago(status.as_of, log.last) for log in status.logs]
    newest = min((age for age in ages if age is not None), default=0.0)
    running = any(dag.state is DagState.RUNNING for dag in status.dags)
    if not (status.live and running and newest > QUIET_SECONDS):
        return ()
    waiting = status.node_states.get(State.WAITING, 0)
    inactive = row_text.INACTIVE | {State.FAILED, State.REMOVED}
    if not waiting or any(
        count for state, count in status.node_states.items() if state not in inactive
    ):
        return ()
    return line(("nothing is queued or running", ALARM))


def gpu_hours(hours: GpuHours, least: bool = False) -> Line:
    """``GPU-hours  5 879 goodput  ·  3 902 badput (40 %)  ·  212 running``.

    The percentage refers to the hours of ended executions. The last part is shown only if something
    runs. ``least``: lower bounds, since the logs are incomplete.
    """
    dot = line(("  ·  ", DIM))
    lost = formatting.share(hours.badput, hours.goodput + hours.badput)
    (good, bad, in_flight), _ = formatting.hours_added((hours.goodput, hours.badput, hours.running))
    share = line((f" ({lost})", DIM)) if hours.badput > 0 else ()
    parts = [
        line((good, GOOD), " goodput"),
        line((bad, BAD if hours.badput > 0 else DIM), " badput") + share,
    ]
    if hours.running > 0:
        parts.append(line((in_flight, MOVING), " running"))
    start = line((f"{hours.measure.hours}  ", DIM), ("at least " if least else "", NOTE))
    return start + join(parts, dot)


def forecast_candidates(forecast: Forecast | None) -> Sequence[Line]:
    """``17 epochs/day   ETA 20 Nov (18–23 Nov) · 6d left``, and shorter forms of it."""
    if forecast is None or not forecast.epochs_total:
        return ()
    long, brief = (estimates_table.remaining_text(forecast, brief=short) for short in (False, True))
    style = BOLD if forecast.remaining is not None else NOTE
    if forecast.completed_at is not None:
        style = GOOD
    rate = line((estimates_table.rate_text(forecast.rate, forecast.item), DIM))
    shortest = estimates_table.remaining_text(replace(forecast, excluded=()))
    candidates = [join((rate, line((text, style))), line("   ")) for text in (long, brief)]
    return candidates + [line((text, style)) for text in (brief, shortest)]


def end_candidates(forecast: Forecast) -> Sequence[Line]:
    """``ETA 20 Nov (18–23 Nov) · 6d left``, and shorter forms of it."""
    texts = [estimates_table.remaining_text(replace(forecast, excluded=()))]
    if forecast.as_of is not None and forecast.remaining is not None:
        end = estimates_table.eta_text(forecast.as_of, forecast.remaining)
        texts += [f"ETA {end}", f"ETA {end.partition(' (')[0]}"]
    return [line((text, BOLD)) for text in texts]


def hours_and_forecast(
    hours: GpuHours, forecasts: Sequence[Line], cells: int, *, least: bool = False
) -> list[Line]:
    """GPU-hours and one of the forecasts, on one line if there is room."""
    gap = line("     ")
    candidates = forecasts or ((),)
    hours_line = gpu_hours(hours, least=least)
    room = cells - width(hours_line) - width(gap)
    forecast = first_that_fits(candidates, room)
    if width(forecast) <= room:
        return [join((hours_line, forecast), gap)]
    return [hours_line, crop(first_that_fits(candidates, cells), cells)]


# --- health -----------------------------------------------------------------------------------

SUBCAUSES: Final = 4
"""Maximum entries of one heading, in a header that has room for them."""

DOT: Final = line((" · ", DIM))


def is_stopped(health: Health, status: Status) -> bool:
    """Whether nothing continues: each run that is not done is stopped."""
    if not health.runs_stopped or health.jobs_queued:
        return False
    stopped = {run for e in health.open_entries if e.severity is Severity.STOPPED for run in e.runs}
    return all(run.state in TERMINAL or run.key in stopped for run in status.runs)


def health_lines(health: Health | None, status: Status, room: int, *, roomy: bool) -> list[Line]:
    """The state of the ensemble in one line, or the worst entry, its extent and what to do."""
    if health is None:
        return []
    worst = health.worst
    hint = line(("[2]", KEY))
    if worst is None:
        right = hint if health.entries else ()
        calm = first_that_fits(_calm(health, status), room - width(right) - 1)
        return [justify(calm, right, room)]
    lines = [_stopped(health)] if is_stopped(health, status) else []
    group = [e for e in health.open_entries if worst.heading and e.heading == worst.heading]
    serious = [e for e in health.open_entries if e.severity is not Severity.NOTE]
    others = len(serious) - max(1, len(group))
    right = join((line((f"{others} more" if others else "", DIM)), hint), line(" "))
    first = _cause(health, worst, group, status.as_of, room - width(right) - 2)
    advice = advice_line(worst.steps, worst)
    one = first + line("   ") + advice
    if not group and width(one) + width(right) + 2 <= room:
        return [*lines, justify(one, right, room)]
    lines.append(justify(first, right, room))
    shared = health_table.group_steps(group) if group else ()
    if shared and roomy:
        lines.append(line("  ") + advice_line(shared, worst, room - 2))
    if group and roomy:
        shown = group[: SUBCAUSES + 1 if len(group) == SUBCAUSES + 1 else SUBCAUSES]
        lines += _subcauses(health, shown, room)
        more = len(group) - len(shown)
        return [*lines, *([line((f"    {more} more", DIM))] if more else [])]
    if group:
        hidden = line((f"{len(group) - 1} more" if len(group) > 1 else "", DIM))
        lines.append(justify(crop(line("    ") + _subcause(health, worst), room), hidden, room))
    return [*lines, line("  ") + advice_line(worst.steps, worst, room - 2)]


def _calm(health: Health, status: Status) -> list[Line]:
    """The line that nothing is wrong, in ever shorter forms."""
    states = status.node_states
    texts, sites = ["nothing needs attention"], line()
    if not any(states.get(state) for state in (State.HELD, *FAILED_JOB)):
        headline = health_headline(health)
        # The second form omits the hours of the cause.
        without_hours = headline.line.rpartition(" (")[0] or headline.text
        texts = [headline.line, without_hours, headline.text]
        sites = line((" [3]", KEY)) if headline.cause else ()
    notes = len(health.open_entries)
    end = line((f"   {formatting.count(notes, 'note')}" if notes else "", DIM))
    forms = [(text, key) for text in texts for key in dict.fromkeys((sites, ()))]
    return [line(("✓ ", GOOD), (text, DIM)) + key + end for text, key in forms]


def _stopped(health: Health) -> Line:
    headline = health_headline(health)
    return line((f"✗ {headline.label}", ALARM), "   ", (headline.text, BOLD))


def _cause(
    health: Health,
    worst: HealthEntry,
    group: Sequence[HealthEntry],
    as_of: datetime | None,
    room: int,
) -> Line:
    """``■ wall-time limit reached (hold 47) · 3 runs``, after the name of a single run."""
    glyph, style = health_table.mark(worst)
    start = line((f"{glyph} ", style))
    text = plain(worst.heading if group and worst.heading else worst.text, health_table.TEXT_LIMIT)
    names = health_table.run_names(health, worst)
    if len(names) == 1 and len(group) < 2:
        start, extent = start + line((f"{names[0]}: ", style)), ""
    else:
        extent = health_table.concerned(health, group or [worst])
        # The text of an entry on one node names it.
        extent = "" if extent == "1 node" else extent
    clock = health_table.removal_clock(worst, as_of)
    rest = [part for part in (line((extent, BOLD)), line((clock, ALARM))) if width(part)]
    left = room - width(start) - sum(width(DOT) + width(part) for part in rest)
    return start + join((crop(line((text, style)), left), *rest), DOT)


def _subcause(health: Health, entry: HealthEntry) -> Line:
    names = health_table.run_names(health, entry)
    text = plain(entry.text, health_table.TEXT_LIMIT)
    return line(text, "   ", (str(len(names)), BOLD), "   ", (" ".join(names), DIM))


def _subcauses(health: Health, group: Sequence[HealthEntry], room: int) -> list[Line]:
    """The entries of one heading: cause, number of runs, their names, and what to do."""
    texts = [plain(entry.text, health_table.TEXT_LIMIT) for entry in group]
    names = [" ".join(health_table.run_names(health, entry)) for entry in group]
    steps = [advice_line(own_steps(entry.steps), None) for entry in group]
    columns = [max(map(len, texts)), max(map(len, names))]
    if sum(columns) + max(map(width, steps)) + 16 > room:
        columns[1] = 0
    lines = []
    for entry, text, runs, own in zip(group, texts, names, steps, strict=True):
        start = line(f"    {text:<{columns[0]}}  ", (f"{len(entry.runs):>3}", BOLD), "   ")
        start += line((f"{runs:<{columns[1]}}   " if columns[1] else "", DIM))
        lines.append(crop(start + own, room))
    return lines


def advice_line(steps: Sequence[str], entry: HealthEntry | None, room: int | None = None) -> Line:
    """``→ 1. Free space  2. Release [R]``: what to do, and the key of the entry's act."""
    keys = () if entry is None else act_keys(entry)
    style = TextStyle(KEY.colour)
    own = own_steps(steps)
    brief = [step.partition("; ")[0] for step in own]
    texts = [map(plain, numbered(each)) for each in (steps, own, brief)]
    candidates = [line((f"→ {'  '.join(text)}", style)) for text in texts]
    if room is None:
        return candidates[0] + keys
    if entry is not None and width(candidates[0] + keys) > room:
        keys = act_keys(entry, brief=True)
    if keys and len(own) < len(steps) and width(candidates[0] + keys) > room:
        # The act is a common step, which is omitted here.
        keys = line((", then", style)) + keys
    left = room - width(keys)
    return crop(first_that_fits(candidates, left), left) + keys


def run_trouble(health: Health | None, run: str, room: int, *, brief: bool = False) -> list[Line]:
    """Why a run needs attention: the cause, its line of evidence, and what to do; else empty."""
    entries = () if health is None else health.open_entries
    entry = next((e for e in entries if run in e.runs and e.severity is not Severity.NOTE), None)
    if entry is None:
        return []
    glyph, style = health_table.mark(entry)
    evidence = plain(entry.evidence or "", health_table.TEXT_LIMIT)
    text = plain(f"{entry.heading}: {entry.text}" if entry.heading else entry.text)
    if brief:
        cause = crop(line(" ", (f"{glyph} {text}", style)), room)
        return [cause, line("   ") + advice_line(entry.steps, entry, room - 3)]
    return [
        *wrap(f"{glyph} {text}", room, style, indent=1),
        *(wrap(evidence, room, indent=3) if evidence else []),
        *health_table.step_lines(entry.steps, act_keys(entry), room + 1, 3),
    ]


def act_keys(entry: HealthEntry, *, brief: bool = False) -> Line:
    """`` [R]`` or `` [a][U]``: the keys of its act; empty if the screens do not offer it."""
    if entry.act is None or entry.act not in set(PoolAction):
        return ()
    action = action_of(PoolAction(entry.act))
    keys = f"[{action.cap}]" if action.name in DIRECT else f"[a][{action.cap}]"
    return (
        line((f" {keys}", DIM))
        if brief and entry.act_when
        else health_table.how_to_act(entry, keys)
    )
