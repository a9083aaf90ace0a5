"""Columns of the tables of pool actions: actions, jobs, runs and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

from metlmon.pool.types import (
    DAG_ACTS,
    ActionPreview,
    PoolAction,
    QueueSnapshot,
    RunTarget,
    Target,
)
from metlmon.tables.layout import Column
from metlmon.text import formatting
from metlmon.text.formatting import STATES, plain
from metlmon.text.spans import ALARM, BOLD, DIM, KEY, Line, file_name, line, symbol_span
from screens.pool_actions.running_action import (
    IRREVERSIBLE,
    TargetResult,
    action_of,
    common_folder,
    is_possible,
    name_of,
    refusal_text,
    target_text,
)


def _text(value: str | None) -> Line:
    return line(plain(value, 60) if value else (formatting.UNKNOWN, DIM))


def _epoch(target: Target | RunTarget, _: int | None) -> Line:
    return line(formatting.epoch_text(target.epoch))


def _state(target: Target | RunTarget, _: int | None) -> Line:
    return symbol_span(STATES[target.state])


def action_columns(previews: Sequence[ActionPreview]) -> list[Column[ActionPreview]]:
    """Columns of the menu. With several DAGs, a refusal names its DAG."""
    several_dags = len({each.subject for each in previews if each.act in DAG_ACTS}) > 1

    def key(preview: ActionPreview, _: int | None) -> Line:
        return line((action_of(preview.act).cap, KEY if is_possible(preview) else DIM))

    def name(preview: ActionPreview, _: int | None) -> Line:
        style = ALARM if preview.act in IRREVERSIBLE else BOLD
        return line((name_of(preview.act), style if is_possible(preview) else DIM))

    def targets(preview: ActionPreview, _: int | None) -> Line:
        if is_possible(preview):
            return line(target_text(preview))
        one_dag = several_dags and preview.act in DAG_ACTS
        prefix = f"{plain(preview.subject, 40)}: " if one_dag else ""
        return line((f"✗ {prefix}{refusal_text(preview, 200)}", DIM))

    return [
        Column("key", "KEY", key),
        Column("name", "ACT", name),
        Column("what", "TOUCHES", targets, minimum=20, comfortable=20),
    ]


def job_columns(
    targets: Sequence[Target], act: PoolAction, queue: QueueSnapshot | None
) -> list[Column[Target]]:
    """Columns of jobs; with the value in the queue that the action changes, which guides the new
    one and is needed to go back."""

    def text_column(name: str) -> Callable[[Target, int | None], Line]:
        return lambda target, _: _text(getattr(target, name))

    def dag(target: Target, max_width: int | None) -> Line:
        return _text(file_name(target.dag, max_width) if target.dag else None)

    def priority(target: Target, _: int | None) -> Line:
        job = queue.job(target.cluster, target.proc) if queue is not None else None
        return line("" if job is None else str(job.priority))

    def site(target: Target, _: int | None) -> Line:
        job = queue.job(target.cluster, target.proc) if queue is not None else None
        return line("" if job is None or job.site is None else plain(job.site, 40))

    columns: list[Column[Target]] = [
        Column("job", "JOB", text_column("id"), "right"),
        Column("run", "RUN", text_column("run"), minimum=6, comfortable=10, maximum=24),
        Column("epoch", "EPOCH", _epoch, "right"),
        Column("state", "STATE", _state),
        Column("node", "NODE", text_column("node"), drop=2, maximum=40, comfortable=16),
    ]
    if len({target.dag for target in targets}) > 1:
        columns.append(Column("dag", "DAG", dag, drop=1, maximum=30, comfortable=12))
    if queue is not None and act is PoolAction.PRIORITY:
        columns.insert(3, Column("now", "NOW", priority, "right"))
    if queue is not None and act is PoolAction.RETARGET:
        columns.insert(3, Column("now", "NOW FOR", site, maximum=24))
    return columns


def run_columns(runs: Sequence[RunTarget]) -> list[Column[RunTarget]]:
    """Columns of runs, and of the files that are written for them."""
    one_folder = common_folder(runs) is not None

    def files(target: RunTarget, _: int | None) -> Line:
        names = [PurePath(file).name if one_folder else file for file in target.files]
        return line(plain("  ".join(names), 300))

    def run(target: RunTarget, _: int | None) -> Line:
        return line(plain(target.run, 60))

    return [
        Column("run", "RUN", run, minimum=6, comfortable=10, maximum=24),
        Column("epoch", "EPOCH", _epoch, "right", drop=2),
        Column("state", "STATE", _state, drop=1),
        Column("files", "FILE", files, minimum=20, comfortable=40),
    ]


def result_columns(results: Sequence[TargetResult]) -> list[Column[TargetResult]]:
    """Columns of results: of jobs, of runs (identified by name) or of a DAG."""
    only_dags = all(part.target is None for part in results)
    any_job = any(isinstance(part.target, Target) for part in results)
    any_run = any(part.target is not None and part.target.run is not None for part in results)

    def subject(part: TargetResult, _: int | None) -> Line:
        return line("" if isinstance(part.target, RunTarget) else plain(part.subject, 60))

    def run(part: TargetResult, _: int | None) -> Line:
        return line(plain(part.target.run or "", 24) if part.target else "")

    def epoch(part: TargetResult, _: int | None) -> Line:
        return _epoch(part.target, None) if isinstance(part.target, Target) else ()

    columns = []
    if any_job:
        columns.append(Column("job", "JOB", subject, "right"))
    if only_dags:
        columns.append(Column("job", "DAG", subject))
    if any_run:
        columns.append(Column("run", "RUN", run, minimum=6, comfortable=10, maximum=24))
    if any_run and any_job:
        columns.append(Column("epoch", "EPOCH", epoch, "right"))
    return [*columns, Column("answer", "ANSWER", lambda part, _: symbol_span(part.symbol))]
