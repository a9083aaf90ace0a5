"""Columns of jobs."""

from __future__ import annotations

from collections.abc import Sequence

from metlmon.snapshot.types import JobRow
from metlmon.tables.layout import Column, text_column
from metlmon.tables.runs import site_and_target
from metlmon.text import formatting
from metlmon.text.formatting import STATES, plain
from metlmon.text.spans import DIM, Line, file_name, line, symbol_span


def filter_text(row: JobRow) -> str:
    """The text of a job that a filter searches, in lower case."""
    parts = [formatting.job_id(row.cluster, row.proc), row.run, row.uuid, row.node, row.dag]
    parts += [row.site, row.target, STATES[row.state].word]
    return "\n".join(part for part in parts if part is not None).lower()


def columns(jobs: Sequence[JobRow]) -> list[Column[JobRow]]:
    """The columns of jobs, with a DAG column if there are several DAGs."""

    def text(value: str | None) -> Line:
        return line(plain(value, 40) if value else (formatting.UNKNOWN, DIM))

    def since(row: JobRow, _: int | None) -> Line:
        return line(formatting.duration(row.seconds))

    def where(row: JobRow, max_width: int | None) -> Line:
        return site_and_target(row.site, row.target, False, max_width, state=row.state)

    def dag(row: JobRow, max_width: int | None) -> Line:
        return text(None if row.dag is None else file_name(row.dag, max_width))

    result: list[Column[JobRow]] = [
        text_column("job", "JOB", lambda row: formatting.job_id(row.cluster, row.proc), "right"),
        Column("run", "RUN", lambda row, _: text(row.run), minimum=6, maximum=24),
        text_column("epoch", "EPOCH", _epoch, "right"),
        Column("state", "NOW", lambda row, _: symbol_span(STATES[row.state])),
        Column("since", "FOR", since, "right", minimum=9),
        Column("site", "SITE", where, minimum=7, maximum=24, drop=2),
        text_column("gpu", "GPU", lambda row: formatting.gpus(row.gpu, row.gpus), drop=3),
        text_column("tries", "TRIES", lambda row: str(len(row.executions)), "right", drop=4),
    ]
    if len({job.dag for job in jobs}) > 1:
        result.insert(1, Column("dag", "DAG", dag, drop=1, maximum=24))
    return result


def _epoch(row: JobRow) -> str:
    return "" if row.epoch is None else str(formatting.epoch_number(row.epoch))
