"""Jobs as table rows: one line per job. Pure functions."""

from __future__ import annotations

from metlmon.snapshot.types import JobRow
from metlmon.tables.layout import Column, text_column
from metlmon.text import formatting
from metlmon.text.formatting import OUTCOMES, STATES, UNKNOWN, moment, plain
from metlmon.text.spans import Line, line, symbol_span

NAME_LIMIT = 60


def columns(this_year: int | None = None) -> list[Column[JobRow]]:
    """The columns of the list of jobs."""
    return [
        text_column("job", "JOB", lambda row: formatting.job_id(row.cluster, row.proc)),
        Column("node", "NODE", lambda row, _: line(_node(row)), minimum=12),
        Column("state", "STATE", lambda row, _: symbol_span(STATES[row.state])),
        text_column("since", "SINCE", lambda row: moment(row.since, this_year), "right", 2),
        text_column("site", "SITE", _site, drop=1),
        text_column("gpu", "GPU", lambda row: formatting.gpus(row.gpu, row.gpus), drop=3),
        text_column("tries", "TRIES", lambda row: str(len(row.executions)), "right", 4),
        Column("last", "LAST TRY", _last),
        text_column("hours", "GPU-H", _hours, "right", 5),
        text_column("memory", "MEMORY", _memory, "right", 6),
    ]


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
