"""A feed without an ensemble, for a program started only to submit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from metlmon.config.settings import Settings
from metlmon.jobfiles.records import Streamed, TrainingOutput
from metlmon.live.feed import Feed, Snapshot
from metlmon.model.job_events import JobId, NodeKey
from metlmon.snapshot.dag_description import DagDescription
from metlmon.snapshot.ledger import Ledger
from metlmon.snapshot.types import (
    Count,
    GpuHours,
    JobRow,
    JobView,
    NodeRow,
    ProblemGroup,
    Progress,
    RunView,
    Status,
    TransferTotals,
)

if TYPE_CHECKING:
    from metlmon.snapshot.node_tree import DagNodes


class NullFeed:
    """Implements :class:`metlmon.live.feed.Feed` with one empty snapshot.

    ``dagdir``: the directory to which paths are relative.
    """

    def __init__(self, dagdir: Path | None = None) -> None:
        self._dagdir = dagdir or Path.cwd()
        no_transfers = Count()
        status = Status(
            dagdir=str(self._dagdir),
            as_of=None,
            live=False,
            warnings=(),
            dags=(),
            runs=(),
            epoch_states={},
            node_states={},
            gpu_hours=GpuHours(),
            sites=(),
            gpus=(),
            causes=(),
            transfers=TransferTotals(no_transfers, no_transfers, no_transfers, no_transfers, 0, 0),
            logs=(),
        )
        self._latest = Snapshot(status, frozenset(), Progress(0, 0))

    @property
    def dagdir(self) -> Path:
        return self._dagdir

    @property
    def latest(self) -> Snapshot | None:
        return self._latest

    def start(self, notify: Callable[[Snapshot], None]) -> None:
        """Do nothing: there are no further snapshots."""

    def stop(self) -> None:
        """Do nothing: there is no thread."""

    def run_view(self, key: str) -> RunView | None:
        return None

    def job_view(self, cluster: int, proc: int) -> JobView | None:
        return None

    def nodes(self) -> tuple[DagNodes, ...]:
        return ()

    def node_row(self, key: NodeKey) -> NodeRow | None:
        return None

    def problems(self) -> tuple[ProblemGroup, ...]:
        return ()

    def queued_jobs(self, run: str | None = None) -> tuple[JobRow, ...]:
        return ()

    @property
    def settings(self) -> Settings:
        return Settings()

    def ledger(self) -> Ledger:
        return Ledger(str(self._dagdir), None, False)

    def dag_description(self) -> DagDescription:
        return DagDescription()

    def training_outputs(self) -> Mapping[str, TrainingOutput]:
        return {}

    def progress_lines(self) -> Mapping[JobId, Streamed]:
        return {}

    def historical(self, moment: datetime) -> Feed:
        return self

    def set_in_queue(self, present: bool) -> None:
        """Do nothing: there are no jobs."""

    def set_unattended(self, unattended: bool) -> None:
        """Do nothing: there are no further snapshots."""
