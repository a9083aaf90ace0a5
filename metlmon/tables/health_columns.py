"""Columns of health entries, and the words for them that several screens have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from metlmon.health.kinds import KINDS
from metlmon.health.types import Health, HealthEntry, Severity
from metlmon.model.job_events import JobId, NodeKey
from metlmon.model.states import State
from metlmon.snapshot.types import RunRow
from metlmon.tables.health_lines import SEVERITIES, removal_text, since_text
from metlmon.tables.layout import Column, Kind
from metlmon.text import formatting
from metlmon.text.formatting import count, plain
from metlmon.text.spans import ALARM, BAD, BOLD, DIM, PLAIN, Line, TextStyle, line, style_of, width

TEXT_LIMIT: Final = 400
NAME_LIMIT: Final = 24
NAMES: Final = 12
"""Names of runs in a cell; the entry's own text has all of them."""

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
"""The symbols that the states of the jobs have; others have that of their severity."""

Key = Callable[[HealthEntry], tuple[Any, ...]]

ORDERS: Final[tuple[tuple[str, Key | None], ...]] = (
    ("what it blocks", None),
    ("badput", lambda entry: (-entry.gpu_hours, not entry.open)),
    ("newest first", lambda entry: (_newest_first(entry), not entry.open)),
    ("runs", lambda entry: (-len(entry.runs), -entry.nodes)),
    ("kind", lambda entry: (kind_title(entry), not entry.open)),
)
"""Sort orders by name; None: as ranked, open entries first."""


def _newest_first(entry: HealthEntry) -> float:
    when = entry.since or entry.until
    return 0.0 if when is None else -when.timestamp()


def mark(entry: HealthEntry) -> tuple[str, TextStyle]:
    """The symbol of an entry with its style: that of its severity, dim once it is over."""
    symbol = SEVERITIES[entry.severity]
    return _MARKS.get(entry.kind, symbol.glyph), style_of(symbol) if entry.open else DIM


def kind_title(entry: HealthEntry) -> str:
    """The words for the kind of an entry."""
    kind = KINDS.get(entry.kind)
    return plain(entry.kind, NAME_LIMIT) if kind is None else kind.title


def run_names(health: Health, entry: HealthEntry) -> list[str]:
    """The names of the runs of an entry."""
    return [plain(health.names.get(run, run), NAME_LIMIT) for run in entry.runs]


def faulty_runs(health: Health | None) -> frozenset[str]:
    """The keys of the runs that an open entry above a note concerns."""
    return frozenset(run for entry in _serious(health) for run in entry.runs)


def faulty_nodes(health: Health | None) -> frozenset[NodeKey]:
    """The nodes that an open entry above a note concerns."""
    return frozenset(node for entry in _serious(health) for node in entry.node_keys)


def _serious(health: Health | None) -> list[HealthEntry]:
    entries = () if health is None else health.open_entries
    return [entry for entry in entries if entry.severity is not Severity.NOTE]


def concerned(health: Health, entries: Sequence[HealthEntry]) -> str:
    """Whom entries concern: ``3 runs``, ``2 nodes``, or nothing."""
    runs = {run for entry in entries for run in entry.runs}
    if runs:
        return count(len(runs), "run")
    nodes = sum(entry.nodes for entry in entries)
    return count(nodes, "node") if nodes else ""


def in_groups(entries: Sequence[HealthEntry]) -> list[HealthEntry]:
    """The entries, those of one heading together at the place of the first."""
    groups: dict[str, list[HealthEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.heading or entry.key, []).append(entry)
    return [entry for group in groups.values() for entry in group]


def removal_clock(entry: HealthEntry, as_of: datetime | None) -> str:
    """``held 29d, removed in 1d``: until a policy removes the first held job; else empty."""
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


def with_removal_clocks(
    columns: Sequence[Column[RunRow]], clocks: Mapping[JobId, str]
) -> list[Column[RunRow]]:
    """The columns of runs, the state of a held one with its clock where there is room."""

    def clock(row: RunRow) -> Line:
        latest = row.latest
        held = row.state is State.HELD and latest is not None
        text = clocks.get((latest.cluster or 0, latest.proc or 0)) if held and latest else None
        return line((f", {text}", ALARM)) if text else ()

    def with_clock(column: Column[RunRow]) -> Column[RunRow]:
        def cell(row: RunRow, room: int | None) -> Line:
            state, added = column.draw(row, room), clock(row)
            return state + added if room is not None and width(state + added) <= room else state

        def reserve(row: RunRow) -> int:
            return width(column.draw(row) + clock(row))

        return replace(column, cell=cell, reserve=reserve)

    return [with_clock(each) if clocks and each.name == "state" else each for each in columns]


def filter_text(health: Health, entry: HealthEntry) -> str:
    """The text of an entry that a filter searches, in lower case."""
    parts = [entry.kind, kind_title(entry), entry.text, entry.heading, entry.reason, entry.advice]
    parts += [entry.site, entry.code_name, entry.policy, entry.dag, *run_names(health, entry)]
    parts += [formatting.job_id(*job) for job in entry.jobs]
    parts += ["open" if entry.open else "closed"]
    return "\n".join(part for part in parts if part).lower()


def columns(health: Health, this_year: int | None, *, indented: bool) -> list[Column[HealthEntry]]:
    """The columns of entries; ``indented``: those with a heading are below it."""

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
            text = names[0] if len(names) == 1 else concerned(health, [entry])
        return line((text, DIM))

    return [
        Column(
            *("what", "WHAT", lambda entry: plain(entry.text, TEXT_LIMIT)),
            doc="what is wrong",
            cell=what,
            minimum=24,
            comfortable=46,
            maximum=TEXT_LIMIT,
        ),
        Column(
            *("runs", "RUNS", lambda entry: len(entry.runs), Kind.COUNT),
            doc="the runs that it concerns",
            align="left",
            drop=4,
            cell=runs,
            minimum=6,
            comfortable=7,
            maximum=32,
        ),
        Column(
            *("blocked", "EPOCHS LEFT", lambda entry: entry.epochs_blocked or 0, Kind.COUNT),
            doc="epochs that cannot go on because of it",
            drop=5,
            style=ALARM,
        ),
        Column(
            *("jobs", "JOBS", lambda entry: len(entry.jobs), Kind.COUNT),
            doc="the jobs that it concerns",
            drop=8,
        ),
        Column(
            *("since", "SINCE", lambda entry: entry.since or "", Kind.TIME),
            doc="when it began",
            drop=2,
            year=this_year,
        ),
        Column(
            *("hours", health.hour_unit.upper(), lambda entry: entry.gpu_hours, Kind.HOURS),
            doc="hours that it lost",
            unit=health.hour_unit,
            drop=1,
            style=BAD,
        ),
    ]
