"""Columns of the runs of one point of a sweep."""

from __future__ import annotations

from metlmon.stats.curves import course_symbol
from metlmon.stats.sweep import CellRun
from metlmon.tables.layout import Column
from metlmon.text import formatting
from metlmon.text.formatting import STATES, plain
from metlmon.text.spans import BAD, DIM, PLAIN, Line, line, symbol_span

ORDERS = (
    ("value", None),
    ("name", lambda run: (run.name,)),
    ("progress", lambda run: (run.done / max(1, run.total),)),
)


def columns() -> list[Column[CellRun]]:
    """Return the columns, the best value before the run's state."""
    return [
        Column("run", "RUN", lambda run, _: line(plain(run.name, 40)), minimum=6),
        Column("best", "BEST", _value, "right", minimum=6),
        Column("epoch", "IN EPOCH", _epoch, "right", drop=1),
        Column("done", "DONE", lambda run, _: line(f"{run.done}/{run.total}"), "right"),
        Column("course", "TREND", _course),
        Column("state", "STATE", lambda run, _: symbol_span(STATES[run.state])),
        Column("why", "STOPPED", _stopped, drop=2),
    ]


def _value(run: CellRun, _: int | None) -> Line:
    if run.value is None:
        return line((formatting.UNKNOWN, DIM))
    return line((formatting.metric(run.value.value), BAD if run.diverged else PLAIN))


def _epoch(run: CellRun, _: int | None) -> Line:
    return line((formatting.epoch_text(None if run.value is None else run.value.epoch), DIM))


def _course(run: CellRun, _: int | None) -> Line:
    return symbol_span(course_symbol(run.course, run.last))


def _stopped(run: CellRun, _: int | None) -> Line:
    return line((plain(run.stopped or "", 200), DIM))
