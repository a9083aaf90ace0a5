"""The first lines of the overview: is it moving, and what needs a person. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import PurePath
from typing import Final

from metlmon.live.discovery import directory_name
from metlmon.live.feed import Snapshot
from metlmon.model.states import DagState, State
from metlmon.snapshot import node_text
from metlmon.snapshot.gate_text import PAUSED
from metlmon.snapshot.node_text import KINDS
from metlmon.snapshot.types import DagRow, GpuHours, NodeRow, Progress, SideCounts, Status
from metlmon.stats import estimate_text
from metlmon.stats.headline import Headline
from metlmon.stats.incidents import IncidentSeverity
from metlmon.text import formatting
from metlmon.text.formatting import DAG_STATES, STATES, dag_sign, plain
from screens.widgets.spans import (
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
    joined,
    line,
    spread,
    style_of,
    symbol_span,
    width,
)

BAR_ORDER: Final = (
    State.COMPLETED,
    State.SKIPPED,
    State.POST,
    State.TRANSFERRING_OUTPUT,
    State.RUNNING,
    State.SUSPENDED,
    State.DISCONNECTED,
    State.STARTING,
    State.TRANSFERRING_INPUT,
    State.PRE,
    State.IDLE,
    State.RETRYING,
    State.HELD,
    State.FAILED,
    State.REMOVED,
    State.FUTILE,
    State.UNKNOWN,
    State.WAITING,
)
"""From what is over to what has not begun, with what needs a person before the latter."""

_TEXTURE: Final[Mapping[State, str]] = {
    State.COMPLETED: "█",
    State.RUNNING: "▓",
    State.POST: "▓",
    State.TRANSFERRING_OUTPUT: "▓",
    State.STARTING: "▒",
    State.TRANSFERRING_INPUT: "▒",
    State.PRE: "▒",
    State.IDLE: "░",
    State.WAITING: "─",
    State.SKIPPED: "▁",
}
_TROUBLE: Final = "╳"
"""Texture of all other states. Textures tell the bar's parts apart where colours do not."""

_ALWAYS: Final = frozenset({State.COMPLETED, State.RUNNING})
_SHORT: Final = {
    State.TRANSFERRING_INPUT: "in",
    State.TRANSFERRING_OUTPUT: "out",
    State.PRE: "pre",
    State.POST: "post",
}
_WORDLESS: Final = (
    State.STARTING,
    State.TRANSFERRING_OUTPUT,
    State.TRANSFERRING_INPUT,
    State.IDLE,
    State.WAITING,
    State.POST,
    State.PRE,
    State.SKIPPED,
    State.COMPLETED,
    State.RUNNING,
    State.UNKNOWN,
    State.FUTILE,
    State.RETRYING,
    State.SUSPENDED,
    State.DISCONNECTED,
    State.REMOVED,
    State.FAILED,
    State.HELD,
)
"""Whose words go first where the terminal is narrow; the glyphs and numbers stay."""

SEVERAL_DAGS: Final = 3
"""DAGs that have a line each in the header; of more, only their states are counted."""


def seconds_ago(as_of: datetime | None, when: datetime | None) -> float | None:
    """Seconds from ``when`` to ``as_of``; None where one is unknown or only one has a zone."""
    if as_of is None or when is None or (as_of.tzinfo is None) != (when.tzinfo is None):
        return None
    return (as_of - when).total_seconds()


def header(
    update: Snapshot | None, dagdir: str, cells: int, ascii: bool, read_only: bool = False
) -> list[Line]:
    """Name, liveness and freshness on the first line, the DAGs below it."""
    name = plain(directory_name(dagdir), 48, ascii)
    title = line(("metlmon", TextStyle(formatting.Colour.SKY, formatting.Weight.BOLD)), "  ")
    title += line(("read-only  " if read_only else "", NOTE), (name, BOLD))
    if update is None:
        return [_inset(title, (), cells, ascii), line(" ", ("opening the directory", DIM))]
    status = update.status
    right = joined(
        (_liveness(status, ascii), _freshness(update, cells, ascii), _warnings(status, ascii)),
        line("   "),
    )
    lines = [_inset(title, right, cells, ascii)]
    if update.error is not None:
        lines.append(line(" ", (plain(update.error, 4 * cells, ascii), ALARM)))
    lines.extend(_dag_lines(status.dags, cells, ascii))
    return lines


def _inset(left: Line, right: Line, cells: int, ascii: bool) -> Line:
    return line(" ") + spread(left, right, cells - 2, ascii) + line(" ")


def _liveness(status: Status, ascii: bool) -> Line:
    if status.as_of is None:
        return line((formatting.nothing_logged((dag.ended for dag in status.dags), ascii), DIM))
    if status.live:
        return line(("* live" if ascii else "● live", MOVING), " ", f"{status.as_of:%H:%M:%S}")
    return line(("as of ", DIM), formatting.moment(status.as_of, ascii), (" not live", DIM))


def _freshness(update: Snapshot, cells: int, ascii: bool) -> Line:
    if update.progress.fraction < 1:
        return reading(update.progress, 12 if cells >= 100 else 0, ascii)
    status = update.status
    if not status.live:
        return ()
    ages = [(seconds_ago(status.as_of, log.last), log.file) for log in status.logs]
    known = sorted((age, file) for age, file in ages if age is not None)
    if not known:
        return ()
    if cells >= 150 and len(known) <= 3:
        return joined(
            (
                line(
                    (plain(PurePath(file).name, 24, ascii), DIM),
                    f" {formatting.age(age, ascii)} ago",
                )
                for age, file in known
            ),
            line("  "),
        )
    what = "log" if len(known) == 1 else "logs"
    newest = formatting.age(known[0][0], ascii)
    oldest = formatting.age(known[-1][0], ascii)
    if oldest != newest and cells >= 100:
        return line((f"{what} ", DIM), f"{newest} to {oldest} ago")
    return line((f"{what} ", DIM), f"{newest} ago")


def _warnings(status: Status, ascii: bool) -> Line:
    if not status.warnings:
        return ()
    told = formatting.count(len(status.warnings), "warning", ascii=ascii)
    return line((told, NOTE), (" !", KEY))


def reading(progress: Progress, bar: int, ascii: bool) -> Line:
    """``reading 31 % of 40.2 MB``, with a bar of so many cells before it."""
    done = formatting.share(progress.done, progress.total, ascii)
    size = formatting.size(progress.total, ascii)
    drawn = formatting.progress_bar(progress.done, progress.total, bar, ascii)
    return line((drawn, MOVING), " " if bar else "", f"reading {done} of {size}")


def _dag_lines(dags: tuple[DagRow, ...], cells: int, ascii: bool) -> list[Line]:
    if not dags:
        return [line(" ", ("no DAG file", DIM))]
    if len(dags) <= SEVERAL_DAGS:
        longest = max(width(_dag_name(dag, ascii)) for dag in dags)
        return [_dag_line(dag, longest, cells, ascii) for dag in dags]
    counts = {state: sum(dag.state is state for dag in dags) for state in DagState}
    states = joined(
        (
            line((f"{DAG_STATES[state].mark(ascii)} {n} {DAG_STATES[state].word}", _dag_ink(state)))
            for state, n in counts.items()
            if n
        ),
        line("   "),
    )
    nodes = sum(dag.nodes_done for dag in dags), sum(dag.nodes_total for dag in dags)
    done, of = (formatting.number(n, ascii) for n in nodes)
    least = any(dag.at_least for dag in dags)
    total = f"   {formatting.at_least(done, least, ascii)} of {of} nodes done"
    return [line(" ", f"{len(dags)} DAGs   ") + states + line((total, DIM))]


def _dag_ink(state: DagState) -> TextStyle:
    return style_of(DAG_STATES[state])


def _dag_name(dag: DagRow, ascii: bool) -> Line:
    return line(file_name(dag.file, 44, ascii))


def _dag_line(dag: DagRow, longest: int, cells: int, ascii: bool) -> Line:
    name = _dag_name(dag, ascii)
    pad = line(" " * (longest - width(name) + 2))
    state = symbol_span(dag_sign(dag.state, dag.nodes_failed), ascii)
    halted = line(("halted", NOTE)) if dag.halted else ()
    done, total = (formatting.number(n, ascii) for n in (dag.nodes_done, dag.nodes_total))
    done = formatting.at_least(done, dag.at_least, ascii)
    nodes = line((f"{done} of {total} nodes done", DIM))
    short = line((f"{done} of {total} done", DIM))
    failed = line((f"{dag.nodes_failed} failed", ALARM)) if dag.nodes_failed else ()
    lives = line((_submitted(dag, ascii), DIM))
    again = line((_recovered(dag, ascii), DIM)) if dag.recoveries else ()
    rescue = line((f"rescue {dag.rescue}", DIM)) if dag.rescue else ()
    hold = line((plain((dag.hold.reason or "")[:200], 60, ascii), ALARM)) if dag.hold else ()
    refused = line((f"{dag.refused} refused", NOTE)) if dag.refused else ()
    gap = line("   ")
    start = line(" ") + name + pad
    return first_that_fits(
        (
            start + joined((state, hold, halted, failed, nodes, lives, refused, rescue), gap),
            start + joined((state, hold, halted, failed, nodes, again, refused, rescue), gap),
            start + joined((state, hold, halted, failed, short, again, refused, rescue), gap),
            start + joined((state, hold, halted, failed, nodes, refused, rescue), gap),
            # Where it is held, its reason stays longer than which rescue file it began from.
            *([start + joined((state, hold, halted, failed, short), gap)] if hold else ()),
            start + joined((state, halted, failed, nodes, lives, refused, rescue), gap),
            start + joined((state, halted, failed, nodes, again, rescue), gap),
            start + joined((state, halted, failed, short, again, rescue), gap),
            start + joined((state, halted, failed, nodes, rescue), gap),
            start + joined((state, halted, failed, short, rescue), gap),
            start + joined((state, halted, failed, short), gap),
            start + joined((state, halted, failed), gap),
        ),
        cells - 1,
    )


def _recovered(dag: DagRow, ascii: bool) -> str:
    return f"recovered {dag.recoveries}{'x' if ascii else '×'}"


def _submitted(dag: DagRow, ascii: bool) -> str:
    if not dag.submitted:
        return ""
    sign = "x" if ascii else "×"
    again = f", {_recovered(dag, ascii)}" if dag.recoveries else ""
    last = f", last {dag.submissions[-1]:%Y-%m-%d %H:%M}" if dag.submissions else ""
    return f"submitted {dag.submitted}{sign}{again}{last}"


def bar(states: Mapping[State, int], cells: int, ascii: bool) -> Line:
    """All epochs as one bar. Every state that occurs has at least one cell."""
    present = [(state, states.get(state, 0)) for state in BAR_ORDER if states.get(state, 0) > 0]
    total = sum(n for _, n in present)
    if not total:
        return line(("-" if ascii else "─") * cells)
    shares = apportioned([n for _, n in present], cells)
    return line(
        *(
            (_texture(state, ascii) * share, style_of(STATES[state]))
            for (state, _), share in zip(present, shares, strict=True)
        )
    )


def apportioned(amounts: list[int], cells: int) -> list[int]:
    """Cells for each amount, in proportion, their sum exactly ``cells``, each at least one
    as long as there are as many cells as amounts."""
    total = sum(amounts)
    shares = [max(1, cells * n // total) for n in amounts]
    while sum(shares) != cells:
        step = 1 if sum(shares) < cells else -1
        # Whoever is furthest below (above) its due gets (gives) the cell.
        due = [(cells * n / total - s) * step for n, s in zip(amounts, shares, strict=True)]
        able = [i for i, s in enumerate(shares) if step > 0 or s > 1] or list(range(len(shares)))
        shares[max(able, key=lambda i: due[i])] += step
    return shares


def _texture(state: State, ascii: bool) -> str:
    return STATES[state].letter if ascii else _TEXTURE.get(state, _TROUBLE)


def counts(states: Mapping[State, int], cells: int, ascii: bool, paused: int = 0) -> Line:
    """``✓ 412 done   ▶ 9 running   …``: what occurs, and always what is done and running.
    ``paused``: of so many runs the next epoch's PRE script is a gate that keeps it waiting."""
    kept = min(paused, states.get(State.PRE, 0))
    if kept:
        told = line((PAUSED.mark(ascii), style_of(PAUSED)), f" {formatting.number(kept, ascii)}")
        told += line((f" {PAUSED.word}", style_of(PAUSED)))
        others = {**states, State.PRE: states[State.PRE] - kept}
        rest = counts(others, cells - width(told) - 3, ascii)
        return rest + line("   ") + told
    present = [s for s in BAR_ORDER if states.get(s, 0) or s in _ALWAYS]

    words = {s: "done" if s is State.COMPLETED else STATES[s].word for s in State}
    short = words | _SHORT
    gaps = line("   "), line("  ")
    candidates = [joined((_count(s, states, words, ascii) for s in present), gaps[0])]
    candidates.append(joined((_count(s, states, short, ascii) for s in present), gaps[1]))
    for silent in _WORDLESS:
        short[silent] = ""
        candidates.append(joined((_count(s, states, short, ascii) for s in present), gaps[1]))
    return first_that_fits(candidates, cells)


def _count(
    state: State, states: Mapping[State, int], words: Mapping[State, str], ascii: bool
) -> Line:
    n = states.get(state, 0)
    how = style_of(STATES[state]) if n else DIM
    word = f" {words[state]}" if words[state] else ""
    return line((STATES[state].mark(ascii), how), f" {formatting.number(n, ascii)}", (word, how))


def others(status: Status, ascii: bool) -> Line:
    """The nodes that are no epoch and are at work or in trouble, without those that
    :func:`special` names; before them how many evaluations failed, and what came of it."""
    counts = node_text.others_astir(status)
    told = [
        _count(state, counts, {state: STATES[state].word}, ascii)
        for state in BAR_ORDER
        if state in counts
    ]
    rest = line(("other nodes  ", DIM)) + joined(told, line("  ")) if told else ()
    return joined((failed_evaluations(status.side_nodes, ascii), rest), line("   "))


def failed_evaluations(side: SideCounts, ascii: bool) -> Line:
    """``2 evaluations failed``: an alarm where that fails the DAG, else no more than a note."""
    told, more = node_text.failed_evaluations(side, ascii)
    behind = (f" ({more})" if more else "", ALARM if side.failed else DIM)
    return line((told, ALARM if side.failed and not side.overruled else NOTE), behind)


def special(rows: Sequence[NodeRow], cells: int, ascii: bool) -> Line:
    """``PROVISIONER provision ▶ running 0:12:00  ·  SERVICE monitor ▶ running``: the nodes outside
    the graph, and those of no run, as many as there is room for; trouble first where there is
    not."""
    dot = line(("  -  " if ascii else "  ·  ", DIM))
    for short in (False, True):
        told = joined((_special(row, ascii, short) for row in rows), dot)
        if width(told) <= cells:
            return told
    kept = list(rows)
    while kept:
        # What is over or has not begun goes first, of those the last named.
        calm = [row for row in kept if row.state in node_text.AT_REST] or kept
        kept = [row for row in kept if row is not calm[-1]]
        more = line((f"{len(rows) - len(kept)} more", DIM), (" d", KEY))
        told = joined((*(_special(row, ascii, True) for row in kept), more), dot)
        if width(told) <= cells:
            return told
    return ()


def _special(row: NodeRow, ascii: bool, short: bool) -> Line:
    sign = STATES[row.state]
    how = style_of(sign)
    kind = f"{row.kind.upper()} " if row.kind in KINDS else ""
    told = line(
        (kind, DIM), (plain(row.node, 24, ascii), BOLD if _troubled(row) else TextStyle()), " "
    )
    if short and not _troubled(row):
        told += line((sign.mark(ascii), how))
    else:
        told += symbol_span(sign, ascii)
    if row.overruled:
        told += line((" job failed", NOTE))
    if row.seconds is not None and row.state not in node_text.AT_REST:
        told += line(" ", formatting.duration(row.seconds, ascii))
    return told


def _troubled(row: NodeRow) -> bool:
    return row.state in (State.HELD, State.FAILED, State.REMOVED)


QUIET_SECONDS: Final = 600
"""DAGMan submits what is ready within seconds; a PRE script or a throttle may take minutes."""


def standstill(status: Status) -> Line:
    """That a DAG runs, has nodes waiting, and yet nothing of it is at work."""
    ages = [seconds_ago(status.as_of, log.last) for log in status.logs]
    newest = min((age for age in ages if age is not None), default=0.0)
    running = any(dag.state is DagState.RUNNING for dag in status.dags)
    if not (status.live and running and newest > QUIET_SECONDS):
        return ()
    waiting = status.node_states.get(State.WAITING, 0)
    over = node_text.AT_REST | {State.FAILED, State.REMOVED}
    if not waiting or any(n for state, n in status.node_states.items() if state not in over):
        return ()
    return line(("nothing is queued or running", ALARM))


def gpu_hours(hours: GpuHours, ascii: bool, flying: bool = True, least: bool = False) -> Line:
    """``GPU-hours  5 879 good · 3 902 lost (40 %) · 212 in flight``; lost is of what ended.
    Without ``flying`` the last of them is only told when it is not 0; ``least``: there were more,
    which the logs lack."""
    dot = line(("  -  " if ascii else "  ·  ", DIM))
    lost = formatting.share(hours.bad, hours.good + hours.bad, ascii)
    (good, bad, now), _ = formatting.hours_added((hours.good, hours.bad, hours.in_flight), ascii)
    parts: Iterable[Line] = (
        line((good, GOOD), " good"),
        line(
            (bad, BAD if hours.bad > 0 else DIM),
            " lost",
            (f" ({lost})" if hours.bad > 0 else "", DIM),
        ),
        line(
            (now, MOVING if hours.in_flight > 0 else DIM),
            " in flight",
        )
        if flying or hours.in_flight > 0
        else (),
    )
    start = line((f"{hours.measure.hours}  ", DIM), ("at least " if least else "", NOTE))
    return start + joined(parts, dot)


def prospects(figures: Headline | None, cells: int, ascii: bool) -> Line:
    """``17 epochs/day   done in 6 d (4–9 d)``, as much of it as there is room for; nothing
    before it is computed, or where there is no run."""
    if figures is None or not figures.outlook.total:
        return ()
    told = figures.outlook
    long, brief = (estimate_text.done_in(told, ascii, brief=short) for short in (False, True))
    how = GOOD if told.ended is not None else BOLD if told.span is not None else NOTE
    rate = line((estimate_text.rate(told.rate, ascii), DIM))
    gap = line("   ")
    alone = line((estimate_text.done_in(replace(told, without=()), ascii), how))
    return first_that_fits(
        (
            joined((rate, line((long, how))), gap),
            joined((rate, line((brief, how))), gap),
            line((brief, how)),
            alone,
        ),
        cells,
    )


def hours_and_prospects(
    hours: GpuHours, figures: Headline | None, cells: int, ascii: bool, least: bool = False
) -> list[Line]:
    """GPU-hours and when it will be done: on one line where there is room for what matters."""
    spent = gpu_hours(hours, ascii, least=least)
    gap = line("     ")
    room = cells - width(spent) - width(gap)
    beside = prospects(figures, room, ascii)
    if width(beside) <= room:
        return [joined((spent, beside), gap)]
    return [spent, crop(prospects(figures, cells, ascii), cells, ascii)]


_INCIDENT: Final = {True: "!", False: "▲"}


def incident(figures: Headline | None, cells: int, ascii: bool) -> Line:
    """The worst incident, and how many more there are; nothing where there is none."""
    if figures is None or figures.worst is None:
        return ()
    worst = figures.worst
    how = ALARM if worst.severity is IncidentSeverity.ALARM else NOTE
    more = f"  and {figures.more} more" if figures.more else ""
    end = line((more, DIM), "  ", ("i", KEY))
    mark = f"{_INCIDENT[ascii]} "
    told = line((mark + plain(worst.headline, 400, ascii), how))
    return crop(told, cells - width(end), ascii) + end
