"""Columns of jobs."""

from __future__ import annotations

from collections.abc import Sequence

from metlmon.snapshot.types import JobRow
from metlmon.tables.layout import UNKNOWN_CELL, Column, Kind
from metlmon.tables.runs import site_and_target
from metlmon.text import formatting
from metlmon.text.formatting import STATES, plain
from metlmon.text.spans import Align, file_name, line


def filter_text(row: JobRow) -> str:
    """The text of a job that a filter searches, in lower case."""
    parts = [formatting.job_id(row.cluster, row.proc), row.run, row.uuid, row.node, row.dag]
    parts += [row.site, row.target, STATES[row.state].word]
    return "\n".join(part for part in parts if part is not None).lower()


def job_column(align: Align = "right") -> Column[JobRow]:
    """The job's id."""
    return Column(
        *("job", "JOB", lambda row: formatting.job_id(row.cluster, row.proc)),
        doc="cluster and process",
        align=align,
    )


def gpu_and_tries() -> list[Column[JobRow]]:
    """The GPUs of a job's last execution, and the number of its executions."""
    return [
        Column("gpu", "GPU", lambda row: formatting.gpus(row.gpu, row.gpus), drop=3),
        Column("tries", "TRIES", lambda row: len(row.executions), Kind.COUNT, drop=4),
    ]


def columns(jobs: Sequence[JobRow]) -> list[Column[JobRow]]:
    """The columns of jobs, with a DAG column if there are several DAGs."""
    several = len({job.dag for job in jobs}) > 1
    dag: Column[JobRow] = Column(
        *("dag", "DAG", lambda row: row.dag),
        drop=1,
        cell=lambda row, width: line(file_name(row.dag, width)) if row.dag else UNKNOWN_CELL,
        maximum=24,
    )
    return [
        job_column(),
        *([dag] if several else []),
        Column("run", "RUN", lambda row: plain(row.run or "", 40) or None, minimum=6, maximum=24),
        Column("epoch", "EPOCH", _epoch, Kind.COUNT),
        Column("state", "NOW", lambda row: STATES[row.state], Kind.STATE),
        Column("since", "FOR", lambda row: row.seconds, Kind.DURATION, minimum=9),
        Column(
            *("site", "SITE", lambda row: row.site),
            drop=2,
            cell=lambda row, width: site_and_target(
                row.site, row.target, False, width, state=row.state
            ),
            minimum=7,
            maximum=24,
        ),
        *gpu_and_tries(),
    ]


def _epoch(row: JobRow) -> int | str:
    return "" if row.epoch is None else formatting.epoch_number(row.epoch)
