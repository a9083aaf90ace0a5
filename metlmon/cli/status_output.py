"""What ``status`` and ``run`` print as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import UNSET, Struct, UnsetType

from metlmon.cli.commands.jobs import NodeOutput, node_output
from metlmon.cli.outputs import EnsembleOutput, print_record
from metlmon.cli.queue_report import QueueReport
from metlmon.cli.reading import select_runs
from metlmon.health.build import make_health
from metlmon.health.types import HealthEntry
from metlmon.live.feed import StatsInput
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.records import Epoch, Run, RunView, Status
from metlmon.stats.estimates import Forecast, make_forecast
from metlmon.stats.lineage import CheckpointOrigin, origin_of
from metlmon.stats.run_figures import RunMetric, run_figures
from metlmon.stats.sweep import Value
from metlmon.text.record_json import Flat


class RunWithFigures(Struct, frozen=True):
    """A run, and what statistics add.

    ``swept``: variables of its nodes that differ between runs. ``wall_seconds``: from its first
    submission to the end of its last job, null while one is queued.
    """

    row: Flat[Run]
    metric: RunMetric | None
    swept: Mapping[str, Value]
    wall_seconds: float | None


class StatusOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon status --json``; queue with --queue only."""

    status: Flat[Status]
    runs: tuple[RunWithFigures, ...]
    special_nodes: tuple[NodeOutput, ...]
    estimate: Forecast
    health: tuple[HealthEntry, ...]
    queue: QueueReport | UnsetType = UNSET


class EpochOutput(Struct, frozen=True):
    """An epoch, or another node of a run, and where its checkpoint comes from.

    ``seconds``: for which it is in its state; ``evaluations``: the side nodes behind it.
    """

    row: Flat[Epoch]
    seconds: float | None
    evaluations: tuple[str, ...]
    checkpoint: CheckpointOrigin | None


class RunOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon run --json``: a run of ``status --json`` with its epochs."""

    run: Flat[RunWithFigures]
    epochs: tuple[EpochOutput, ...]
    side_nodes: tuple[EpochOutput, ...]


def print_status_json(
    builder: SnapshotBuilder,
    stats: StatsInput,
    only: str | None,
    queue: QueueReport | None,
    *,
    one_line: bool,
) -> None:
    """Print the status with the runs of ``--only``."""
    shown = select_runs(builder.status(), only)
    print_record(
        StatusOutput,
        builder,
        one_line=one_line,
        status=shown,
        runs=with_figures(shown.runs, stats),
        special_nodes=tuple(map(node_output, shown.special_nodes)),
        estimate=make_forecast(stats),
        health=make_health(stats).entries,
        queue=queue or UNSET,
    )


def print_run_json(
    builder: SnapshotBuilder,
    stats: StatsInput,
    view: RunView,
    origins: Mapping[int, CheckpointOrigin],
) -> None:
    """Print a run; ``origins``: of its checkpoints, by epoch."""

    def outputs(rows: Iterable[Epoch]) -> tuple[EpochOutput, ...]:
        return tuple(
            EpochOutput(
                row=row,
                seconds=builder.seconds(row.since),
                evaluations=tuple(each.node for each in row.evaluations),
                checkpoint=origin_of(row, origins),
            )
            for row in rows
        )

    (run,) = with_figures([view.row], stats)
    epochs, side_nodes = outputs(view.epochs), outputs(view.side)
    print_record(RunOutput, builder, run=run, epochs=epochs, side_nodes=side_nodes)


def with_figures(rows: Iterable[Run], stats: StatsInput) -> tuple[RunWithFigures, ...]:
    """Runs with their metrics and what else statistics add."""
    figures = run_figures(stats)
    return tuple(
        RunWithFigures(
            row=row,
            metric=figures.metric(row.key),
            swept={name: figures.swept_value(row.key, name) for name in figures.swept_names},
            wall_seconds=figures.wall_seconds.get(row.key),
        )
        for row in rows
    )
