"""Columns of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metlmon.snapshot.records import HOUR, HourUnit, Job
from metlmon.tables.layout import UNKNOWN_CELL, Column, Kind, name_column, searched
from metlmon.tables.runs import site_and_target
from metlmon.text import formatting
from metlmon.text.formatting import OUTCOMES, STATES, UNKNOWN, clip
from metlmon.text.spans import Line, file_name, line


def filter_text(row: Job) -> str:
    names = formatting.job_id(row.cluster, row.proc), row.run, row.uuid, row.node_name, row.dag
    return searched(*names, row.site, row.target, STATES[row.state].word)


def dag_column(**more: Any) -> Column[Any]:
    """The DAG file of a row; ``more``: further fields of the column."""

    def cell(row: Any, width: int | None) -> Line:
        return line(file_name(row.dag, width)) if row.dag else UNKNOWN_CELL

    return Column("dag", lambda row: row.dag, cell=cell, **more)


def columns(jobs: Sequence[Job], this_year: int | None, unit: HourUnit) -> list[Column[Job]]:
    """The columns of jobs, with their DAG if there are several; ``unit``: that of their hours."""

    def node(row: Job) -> str:
        if row.candidates:
            dags = len(row.candidates)
            return f"one of {dags} DAGs" if dags > 1 else "owner unknown"
        return clip(row.node_name or UNKNOWN, 200)

    def hours(row: Job) -> float | None:
        executions = () if row.at_access_point else row.executions
        known = [seconds for each in executions if (seconds := unit.seconds(each)) is not None]
        return sum(known) / HOUR if known else None

    shown: list[Column[Job]] = [
        Column("job", lambda row: formatting.job_id(row.cluster, row.proc)),
        dag_column(drop=1, maximum=24),
        name_column("node", node, minimum=18),
        Column("state", lambda row: STATES[row.state], Kind.STATE),
        Column("since", lambda row: row.since, Kind.TIME, drop=3, year=this_year),
        Column(
            "site",
            lambda row: row.site,
            drop=2,
            cell=lambda row, width: site_and_target(
                row.site, row.target, False, width, state=row.state
            ),
            minimum=7,
            comfortable=9,
        ),
        Column("gpu", lambda row: formatting.gpus(row.gpu, row.gpus), drop=5),
        Column("tries", lambda row: len(row.executions), Kind.COUNT, drop=6),
        Column(
            "last",
            lambda row: OUTCOMES[row.executions[-1].outcome] if row.executions else None,
            Kind.STATE,
            title="LAST TRY",
            drop=4,
        ),
        Column("hours", hours, Kind.HOURS, title=unit.short.upper(), drop=7),
        Column(
            "memory",
            lambda row: row.memory_mb,
            Kind.COUNT,
            drop=8,
            write=lambda megabytes: f"{formatting.number(megabytes)} MB",
        ),
    ]
    several = len({job.dag for job in jobs}) > 1
    return [column for column in shown if several or column.name != "dag"]
