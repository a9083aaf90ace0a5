"""Lines on the health of an ensemble: in headers, and on one entry. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from metlmon.health.headline import CALM, health_headline
from metlmon.health.types import Health, HealthEntry, Severity
from metlmon.model.reasons import code_text
from metlmon.model.states import FAILED_JOB, TERMINAL, State
from metlmon.pool.types import PoolAction
from metlmon.snapshot.records import Status
from metlmon.tables import health as health_table
from metlmon.tables.health import since_text
from metlmon.text import formatting
from metlmon.text.formatting import count, plain
from metlmon.text.spans import (
    ALARM,
    BAD,
    BOLD,
    DIM,
    GOOD,
    KEY,
    NOTE,
    Line,
    TextStyle,
    crop,
    join,
    justify,
    line,
    width,
    wrap,
)
from screens.actions import DIRECT
from screens.pool_actions.running_action import action_of

REASON_LIMIT: Final = 20_000
"""Characters of a reason: one may contain a whole error log."""

SUBCAUSES: Final = 4
"""Entries of one heading in a header that has room for them."""

DOT: Final = line((" · ", DIM))


def is_stopped(health: Health, status: Status) -> bool:
    """Whether nothing goes on: each run that is not done is stopped."""
    if not health.runs_stopped or health.jobs_queued:
        return False
    stopped = {run for e in health.open_entries if e.severity is Severity.STOPPED for run in e.runs}
    return all(run.state in TERMINAL or run.key in stopped for run in status.runs)


def header_lines(health: Health | None, status: Status, room: int, *, roomy: bool) -> list[Line]:
    """The state of the ensemble in one line, or the worst entry, its extent and what to do.

    At most four lines, none before health is known; ``roomy``: up to SUBCAUSES further ones.
    """
    if health is None:
        return []
    worst = health.worst
    hint = line(("[2]", KEY))
    if worst is None:
        return [justify(_calm(health, status), hint if health.entries else (), room)]
    lines = [_stopped(health)] if is_stopped(health, status) else []
    group = [e for e in health.open_entries if worst.heading and e.heading == worst.heading]
    serious = [e for e in health.open_entries if e.severity is not Severity.NOTE]
    others = len(serious) - max(1, len(group))
    right = join((line((f"{others} more" if others else "", DIM)), hint), line(" "))
    first = _cause(health, worst, group, status.as_of, room - width(right) - 2)
    advice = advice_line(worst)
    one = first + line("   ") + advice
    if not group and width(one) + width(right) + 2 <= room:
        return [*lines, justify(one, right, room)]
    lines.append(justify(first, right, room))
    if group and roomy:
        shown = group[: SUBCAUSES + 1 if len(group) == SUBCAUSES + 1 else SUBCAUSES]
        lines += _subcauses(health, shown, room)
        more = len(group) - len(shown)
        return [*lines, *([line((f"    {more} more", DIM))] if more else [])]
    if group:
        lines.append(crop(line("    ") + _subcause(health, worst), room))
    return [*lines, line("  ") + advice_line(worst, room - 2)]


def _calm(health: Health, status: Status) -> Line:
    states = status.node_states
    true = not any(states.get(state) for state in (State.HELD, *FAILED_JOB))
    text = CALM if true else "nothing needs a person"
    notes = len(health.open_entries)
    return line(("✓ ", GOOD), (text, DIM)) + line(
        (f"   {count(notes, 'note')}" if notes else "", DIM)
    )


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
    """``■ wall-time limit reached (hold 47) · 3 runs``, after the name of a single run.

    Where there is no room the cause is cut, not whom it concerns.
    """
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
    advice = [width(advice_line(entry)) for entry in group]
    columns = [max(map(len, texts)), max(map(len, names))]
    if sum(columns) + max(advice) + 16 > room:
        columns[1] = 0
    lines = []
    for entry, text, runs in zip(group, texts, names, strict=True):
        start = line(f"    {text:<{columns[0]}}  ", (f"{len(entry.runs):>3}", BOLD), "   ")
        start += line((f"{runs:<{columns[1]}}   " if columns[1] else "", DIM))
        lines.append(crop(start + advice_line(entry), room))
    return lines


def advice_line(entry: HealthEntry, room: int | None = None) -> Line:
    """``→ Free space, then release [R]``: what to do, and the key of the act."""
    keys = line((act_keys(entry.act), KEY))
    text = line((f"→ {plain(entry.advice, health_table.TEXT_LIMIT)}", TextStyle(KEY.colour)))
    return (text if room is None else crop(text, room - width(keys))) + keys


def act_keys(act: str | None) -> str:
    """`` [R]`` or `` [a][U]``: the keys of an act; empty if the screens do not offer it."""
    if act is None or act not in set(PoolAction):
        return ""
    action = action_of(PoolAction(act))
    return f" [{action.cap}]" if action.name in DIRECT else f" [a][{action.cap}]"


def entry_lines(
    health: Health, entry: HealthEntry, as_of: datetime | None, this_year: int | None, room: int
) -> list[Line]:
    """All of an entry: what, whom, since when, why as logged, and what to do."""
    glyph, style = health_table.mark(entry)
    text = plain(entry.text, REASON_LIMIT)
    text = f"{plain(entry.heading, REASON_LIMIT)}: {text}" if entry.heading else text
    lines = wrap(f"{glyph} {text}", room, style)
    names = health_table.run_names(health, entry)
    if names:
        lines += wrap(f"{count(len(names), 'run')}: {' '.join(names)}", room)
    facts = [fact for fact in _facts(health, entry, as_of, this_year) if fact]
    lines += wrap("   ".join(facts), room, DIM)
    advice = plain(entry.advice, REASON_LIMIT)
    advice_style = TextStyle(KEY.colour)
    lines += wrap(f"→ {advice}{act_keys(entry.act)}", room, advice_style)
    if entry.code is not None:
        lines += wrap(f"code {code_text(entry.code, entry.subcode)}", room, DIM)
    if entry.reason:
        lines += wrap(plain(entry.reason, REASON_LIMIT), room, BAD if entry.open else NOTE)
    if entry.policy:
        lines += wrap(f"policy: {plain(entry.policy, REASON_LIMIT)}", room, DIM)
    return lines


def _facts(
    health: Health, entry: HealthEntry, as_of: datetime | None, this_year: int | None
) -> list[str]:
    jobs = count(len(entry.jobs), "job") if entry.jobs else ""
    blocked = count(entry.epochs_blocked, "epoch") + " left" if entry.epochs_blocked else ""
    hours = (
        f"{formatting.hours(entry.gpu_hours)} {health.hour_unit} badput" if entry.gpu_hours else ""
    )
    period = since_text(entry, as_of)
    if not entry.open and entry.since is not None:
        period = formatting.moment(entry.since, this_year)
        if entry.until is not None and entry.until != entry.since:
            period = formatting.period(entry.since, entry.until, this_year)
    site = f"at {plain(entry.site, 40)}" if entry.site else ""
    return [period, jobs, blocked, hours, site]


EMPTY: Final[Mapping[bool, Sequence[Line]]] = {
    True: (line("  ", ("Entries appear as the logs are read.", DIM)),),
    False: (
        line("  ", (f"{CALM[:1].upper()}{CALM[1:]}.", GOOD)),
        line("  ", ("Holds, removals, failures, black holes, stalled transfers,", DIM)),
        line("  ", ("divergence and gaps in the logs would be listed here.", DIM)),
    ),
}
"""The text of an empty list: while the logs are read, and afterwards."""
