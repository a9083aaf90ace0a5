"""Health entries: columns, orders and lines. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, groupby
from typing import Final

from metlmon.health.advice import own_steps
from metlmon.health.types import KINDS, Health, HealthEntry, Severity
from metlmon.model.job_events import JobId
from metlmon.stats.totals import group_by
from metlmon.tables.layout import Column, Kind, searched
from metlmon.text import formatting
from metlmon.text.formatting import (
    Colour,
    Symbol,
    Weight,
    age,
    clip_middle,
    count,
    duration,
    hours,
    moment,
    number,
    plain,
    year_of,
)
from metlmon.text.spans import (
    ALARM,
    BAD,
    BOLD,
    DIM,
    GOOD,
    KEY,
    PLAIN,
    Line,
    TextStyle,
    justify,
    line,
    style_of,
    width,
    wrap,
)

SEVERITIES: Final[Mapping[Severity, Symbol]] = {
    Severity.STOPPED: Symbol("✗", "stopped", Colour.VERMILLION, Weight.BOLD),
    Severity.BLOCKED: Symbol("■", "blocked", Colour.VERMILLION, Weight.BOLD),
    Severity.COSTLY: Symbol("▲", "costly", Colour.ORANGE),
    Severity.NOTE: Symbol("·", "note", Colour.GREY),
}

MAX_RUNS: Final = 24
"""Maximum names of runs in an entry; ``--json`` has all."""

MAX_CLOSED: Final = 12
"""Maximum number of closed entries listed."""

REASON_LIMIT: Final = 4000
"""Maximum characters of a reason: HTCondor's are far shorter, but a job may write a megabyte."""


def health_lines(health: Health, as_of: datetime | None, cells: int | None) -> list[Line]:
    """The health for readers: open entries in full, closed ones in a line each.

    It begins with the figures of stopped runs, or with the statement that all is well; otherwise
    with the worst entry. ``cells``: the width; None for a pipe, whose lines are not wrapped.
    """
    headline = health.headline
    lines = [headline_line(health), ()] if headline.label or headline.severity is None else []
    for (heading, _), entries in groupby(health.open_entries, key=lambda e: (e.heading, e.policy)):
        group = list(entries)
        indent = 1
        if heading is not None:
            lines += _heading_lines(heading, group, cells)
            indent = 3
        for entry in group:
            lines += entry_lines(entry, health, as_of, cells, indent=indent)
        lines.append(())
    lines += _closed_lines(health, as_of, cells)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def headline_line(health: Health, *, brief: bool = False) -> Line:
    """``✗ STOPPED  10 of 10 runs · 206 epochs left · no job queued``.

    ``brief``: if all is well, without the main cause of badput.
    """
    headline = health.headline
    if headline.severity is None:
        return line((f" ✓ {headline.text if brief else headline.line}", GOOD))
    symbol = SEVERITIES[headline.severity]
    if headline.label:
        return line(" ", (f"{symbol.glyph} {headline.label}  {headline.text}", style_of(symbol)))
    things = count(headline.others + 1, "thing")
    needs = "needs" if not headline.others else "need"
    text = f"{things} {needs} attention"
    if headline.severity is Severity.COSTLY:
        text = f"{things} cost{'s' if not headline.others else ''} time or GPU-hours"
    return line(" ", (f"{symbol.glyph} {text}", style_of(symbol)))


def _heading_lines(heading: str, entries: Sequence[HealthEntry], cells: int | None) -> list[Line]:
    runs = {run for entry in entries for run in entry.runs}
    symbol = SEVERITIES[entries[0].severity]
    content = _titled(symbol, heading, count(len(runs), "run") if runs else "", cells, 1)
    policy = entries[0].policy
    if policy:
        content += _wrapped(f"policy: {policy}", cells, 3, DIM)
    return content + step_lines(group_steps(entries), _command(entries[0]), cells, 3)


def entry_lines(
    entry: HealthEntry,
    health: Health,
    as_of: datetime | None,
    cells: int | None,
    *,
    indent: int = 1,
) -> list[Line]:
    """One entry: what, how many and since when; its reason; the next step. Nothing is cut."""
    symbol = SEVERITIES[entry.severity]
    lines = _titled(symbol, entry.text, _extent(entry), cells, indent)
    inner = indent + 2
    facts = _facts(entry, health, as_of)
    if facts:
        lines += _wrapped(facts, cells, inner)
    if entry.evidence:
        lines += _wrapped(entry.evidence, cells, inner, DIM)
    if entry.policy and entry.heading is None and entry.policy not in (entry.reason or ""):
        lines += _wrapped(f"policy: {entry.policy}", cells, inner, DIM)
    if entry.heading is not None:
        return lines + step_lines(own_steps(entry.steps), (), cells, inner)
    return lines + step_lines(entry.steps, _command(entry), cells, inner)


def _command(entry: HealthEntry) -> Line:
    return how_to_act(entry, f"[metlmon act {entry.act}]") if entry.act else ()


def how_to_act(entry: HealthEntry, how: str) -> Line:
    """The keys or the command of its act; if it is not possible now, grey and with when it is."""
    if entry.act_when is None:
        return line((f" {how}", KEY))
    return line((f" {how} {entry.act_when}".rstrip(), DIM))


def step_lines(steps: Sequence[str], how: Line, cells: int | None, indent: int) -> list[Line]:
    """The steps, one per line; ``how``: the keys or the command that do the last one."""
    lines: list[Line] = []
    style = TextStyle(KEY.colour)
    for place, step in enumerate(steps, 1):
        start = ("  " if lines else "→ ") + (f"{place}. " if len(steps) > 1 else "")
        lines += _wrapped(step, cells, indent, style, line((start, style)))
    if not lines or not how:
        return lines
    if cells is None or width(lines[-1] + how) < cells:
        return [*lines[:-1], lines[-1] + how]
    return [*lines, line(" " * (indent + 1)) + how]


FOR_EACH: Final = "Remedy each cause below"


def group_steps(entries: Sequence[HealthEntry]) -> tuple[str, ...]:
    """The steps for entries with one heading: :data:`FOR_EACH` replaces those specific to each."""
    steps, own = entries[0].steps, own_steps(entries[0].steps)
    if own == steps:
        return ()
    return tuple(dict.fromkeys(FOR_EACH if step in own else step for step in steps))


def _extent(entry: HealthEntry) -> str:
    """``3 runs``, ``12 nodes``, ``5 jobs``: the largest unit that is known."""
    return concerned([entry]) or (count(len(entry.jobs), "job") if entry.jobs else "")


def _facts(entry: HealthEntry, health: Health, as_of: datetime | None) -> str:
    """``run0 run5 run8 · 9 epochs blocked · since 2 Jan 10:06 · 6.0 GPU-h badput``."""
    parts = (
        runs_text(entry, health),
        plain(entry.dag or "", 80) if not entry.runs else "",
        f"{count(entry.epochs_blocked, health.item)} blocked" if entry.epochs_blocked else "",
        since_text(entry, as_of),
        f"{hours(entry.gpu_hours)} {health.hour_unit} badput" if entry.gpu_hours else "",
    )
    return " · ".join(filter(None, parts))


def runs_text(entry: HealthEntry, health: Health) -> str:
    """``run0 run5 run8``; the nodes if it concerns no runs."""
    shown = [clip_middle(plain(health.label_of(run)), 60) for run in entry.runs[:MAX_RUNS]]
    hidden = len(entry.runs) - len(shown)
    if not entry.runs:
        shown = [clip_middle(plain(name), 60) for _, name in entry.node_keys[:MAX_RUNS]]
        hidden = entry.nodes - len(shown)
    more = f" and {number(hidden)} more" if hidden > 0 and shown else ""
    return " ".join(shown) + more


def removal_text(removal_at: datetime, as_of: datetime) -> str:
    """``removed in 1d``, or ``to be removed now``."""
    left = (removal_at - as_of).total_seconds()
    return f"removed in {age(left)}" if left > 0 else "to be removed now"


def since_text(entry: HealthEntry, as_of: datetime | None) -> str:
    """``held 29d, removed in 1d`` if a policy will remove jobs; else ``since 2 Jan 10:06``."""
    if entry.since is None:
        return ""
    seconds = (as_of - entry.since).total_seconds() if as_of is not None else 0.0
    if entry.removal_at is not None and as_of is not None:
        return f"held {age(seconds)}, {removal_text(entry.removal_at, as_of)}"
    lasted = f" ({duration(seconds)})" if seconds > 0 else ""
    return f"since {moment(entry.since, year_of(as_of))}{lasted}"


def _closed_lines(health: Health, as_of: datetime | None, cells: int | None) -> Iterator[Line]:
    entries = health.closed_entries
    if not entries:
        return
    this_year = year_of(as_of)
    yield line((f" closed ({number(len(entries))})", BOLD))
    for entry in entries[:MAX_CLOSED]:
        lost = f"{hours(entry.gpu_hours)} {health.hour_unit}" if entry.gpu_hours else ""
        last = f"last {moment(entry.until, this_year)}" if entry.until is not None else ""
        title = entry.heading or KINDS[entry.kind].title
        named = title in entry.text or entry.text.split(" ")[0] == title.split(" ")[0]
        text = entry.text if named else f"{title}: {entry.text}"
        extent = runs_text(entry, health) if len(entry.runs) == 1 else _extent(entry)
        facts = ", ".join(part for part in (extent, lost, last) if part and part not in text)
        closing = f" ({facts})" if facts else ""
        yield from _wrapped(text + closing, cells, 1, DIM, line((f"{mark(entry)[0]} ", DIM)))
    if len(entries) > MAX_CLOSED:
        yield line((f"   and {number(len(entries) - MAX_CLOSED)} more: see --json", DIM))


# --- wrapping -----------------------------------------------------------------------------------


def _titled(symbol: Symbol, text: str, right: str, cells: int | None, indent: int) -> list[Line]:
    """A line with a symbol; ``right`` is at the right edge if it fits, else after the text."""
    sign, content = line((f"{symbol.glyph} ", style_of(symbol))), plain(text, REASON_LIMIT)
    whole = line(" " * indent) + sign + line((content, BOLD))
    if cells is None:
        return [whole + line(f"  {right}" if right else "")]
    if right and width(whole) + len(right) + 4 <= cells:
        return [justify(whole, line(right), cells - 1)]
    return wrap(f"{content}  {right}" if right else content, cells - 1, BOLD, indent, start=sign)


def _wrapped(
    text: str, cells: int | None, indent: int, style: TextStyle = PLAIN, start: Line = ()
) -> list[Line]:
    content = plain(text, REASON_LIMIT)
    if cells is None:
        return [line(" " * indent) + start + line((content, style))]
    return wrap(content, cells - 1, style, indent, start=start)


TEXT_LIMIT: Final = 400
NAME_LIMIT: Final = 24
NAMES: Final = 12
"""Maximum names of runs in a cell; the entry's own text has all of them."""

_MARKS: Final[Mapping[str, str]] = {
    "removed-by-policy": "⌫",
    "removed-by-user": "⌫",
    "run-removed": "⌫",
    "held": "■",
    "quota": "■",
    "dag-held": "■",
    "futile": "⊘",
    "transfer-stalled": "◌",
}
"""The symbols of kinds that look like states of jobs; other kinds have that of their severity."""


def mark(entry: HealthEntry) -> tuple[str, TextStyle]:
    """The symbol of an entry with its style: that of its severity, dim if it is over."""
    symbol = SEVERITIES[entry.severity]
    return _MARKS.get(entry.kind, symbol.glyph), style_of(symbol) if entry.open else DIM


def run_names(health: Health, entry: HealthEntry) -> list[str]:
    """The names of the runs of an entry."""
    return [clip_middle(plain(health.label_of(run)), NAME_LIMIT) for run in entry.runs]


def serious(health: Health | None) -> list[HealthEntry]:
    """The open entries above a note; none while the health is unknown."""
    entries = () if health is None else health.open_entries
    return [entry for entry in entries if entry.severity is not Severity.NOTE]


def concerned(entries: Sequence[HealthEntry]) -> str:
    """What entries concern: ``3 runs``, ``2 nodes``, or nothing."""
    runs = {run for entry in entries for run in entry.runs}
    if runs:
        return count(len(runs), "run")
    nodes = sum(entry.nodes for entry in entries)
    return count(nodes, "node") if nodes else ""


def in_groups(entries: Sequence[HealthEntry]) -> list[HealthEntry]:
    """The entries, with those of one heading moved to the place of the first."""
    groups = group_by(entries, lambda entry: entry.heading or entry.key)
    return list(chain.from_iterable(groups.values()))


def removal_clock(entry: HealthEntry, as_of: datetime | None) -> str:
    """``held 29d, removed in 1d``: for the first held job that a policy will remove; else empty."""
    return since_text(entry, as_of) if entry.open and entry.removal_at is not None else ""


def removal_clocks(health: Health | None, as_of: datetime | None) -> dict[JobId, str]:
    """``removed in 1d`` for each held job that a policy will remove."""
    if health is None or as_of is None:
        return {}
    return {
        job: removal_text(when, as_of)
        for entry in health.open_entries
        for job, when in entry.removal_times.items()
    }


def filter_text(health: Health, entry: HealthEntry) -> str:
    parts = [entry.kind, KINDS[entry.kind].title, entry.text, entry.heading]
    parts += [entry.reason, entry.advice, entry.site, entry.code_name, entry.policy, entry.dag]
    parts += [health.label_of(run) for run in entry.runs]
    parts += [formatting.job_id(*job) for job in entry.jobs]
    return searched(*parts, "open" if entry.open else "closed")


def columns(health: Health, this_year: int | None, *, indented: bool) -> list[Column[HealthEntry]]:
    """The columns of entries; ``indented``: whether those with a heading are listed below it."""

    def what(entry: HealthEntry, _: int | None) -> Line:
        glyph, style = mark(entry)
        under = bool(indented and entry.heading)
        text_style = (BOLD if entry.severity is not Severity.NOTE else PLAIN) if entry.open else DIM
        start = line("  ") if under else line((glyph, style), " ")
        return start + line((plain(entry.text, TEXT_LIMIT), text_style))

    def runs(entry: HealthEntry, room: int | None) -> Line:
        names = run_names(health, entry)
        text = " ".join(names[:NAMES])
        if not names or len(names) > NAMES or (room is not None and len(text) > room):
            text = names[0] if len(names) == 1 else concerned([entry])
        return line((text, DIM))

    def only_run(entry: HealthEntry) -> str:
        return run_names(health, entry)[0] if len(entry.runs) == 1 else ""

    longest = max((len(only_run(entry)) for entry in health.entries), default=0)
    blocks = any(entry.epochs_blocked for entry in health.entries)
    blocked: Column[HealthEntry] = Column(
        "blocked",
        lambda entry: entry.epochs_blocked or 0,
        Kind.COUNT,
        title="EPOCHS LEFT",
        doc="epochs that cannot go on because of it",
        drop=5,
        style=ALARM,
    )
    return [
        Column(
            "what",
            lambda entry: plain(entry.text, TEXT_LIMIT),
            doc="what is wrong",
            cell=what,
            minimum=24,
            comfortable=46,
            maximum=TEXT_LIMIT,
        ),
        Column(
            "runs",
            lambda entry: len(entry.runs),
            Kind.COUNT,
            doc="the runs that it concerns",
            align="left",
            drop=4,
            cell=runs,
            minimum=6,
            comfortable=7,
            maximum=24,
            short=min(max(7, longest), 14),
            identifies=only_run,
        ),
        *([blocked] if blocks or not health.entries else []),
        Column(
            "jobs",
            lambda entry: len(entry.jobs),
            Kind.COUNT,
            doc="the jobs that it concerns",
            drop=8,
        ),
        Column(
            "since",
            lambda entry: entry.since or "",
            Kind.TIME,
            doc="when it began",
            drop=2,
            year=this_year,
        ),
        Column(
            "hours",
            lambda entry: entry.cost,
            Kind.HOURS,
            title=health.hour_unit.upper(),
            doc="hours that it cost: badput, or of idle GPUs those that were not in use",
            drop=1,
            style=BAD,
        ),
    ]
