"""Jobs as table rows: one line per job. Pure functions."""

from __future__ import annotations

from collections.abc import Callable

from metlmon.snapshot.types import JobRow
from metlmon.tables.layout import Column
from metlmon.text import formatting
from metlmon.text.formatting import OUTCOMES, STATES, UNKNOWN, plain
from metlmon.text.spans import Line, line, symbol_span

NAME_LIMIT = 60


def columns(this_year: int | None = None) -> list[Column[JobRow]]:
    """The columns of the list of jobs."""
    return [
        Column("job", "JOB", _text(lambda row: formatting.job_id(row.cluster, row.proc))),
        Column("node", "NODE", _text(_node), minimum=12),
        Column("state", "STATE", lambda row, _: symbol_span(STATES[row.state])),
        Column(
            "since",
            "SINCE",
            _text(lambda row: formatting.moment(row.since, this_year)),
            "right",
            drop=2,
        ),
        Column("site", "SITE", _text(_site), drop=1),
        Column("gpu", "GPU", _text(lambda row: formatting.gpus(row.gpu, row.gpus)), drop=3),
        Column("tries", "TRIES", _text(lambda row: str(len(row.executions))), "right", drop=4),
        Column("last", "LAST TRY", _last),
        Column("hours", "GPU-H", _text(_hours), "right", drop=5),
        Column("memory", "MEMORY", _text(_memory), "right", drop=6),
    ]


def _text(value: Callable[[JobRow], str]) -> Callable[[JobRow, int | None], Line]:
    return lambda row, _: line(value(row))


def _node(row: JobRow) -> str:
    if row.ambiguous:
        dags = len(row.ambiguous)
        return f"one of {dags} DAGs" if dags > 1 else "owner unknown"
    return plain(row.node or UNKNOWN, NAME_LIMIT)


def _site(row: JobRow) -> str:
    return formatting.site(row.site, row.target, False, state=row.state)


def _last(row: JobRow, max_width: int | None) -> Line:
    if not row.executions:
        return line(UNKNOWN)
    return symbol_span(OUTCOMES[row.executions[-1].outcome])


def _hours(row: JobRow) -> str:
    if not row.executions:
        return UNKNOWN
    return formatting.hours(sum(execution.gpu_hours or 0.0 for execution in row.executions))


def _memory(row: JobRow) -> str:
    return UNKNOWN if row.memory_mb is None else f"{formatting.number(row.memory_mb)} MB"
