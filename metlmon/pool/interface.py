"""The interface through which screens and commands use the pool.

:class:`metlmon.pool.client.PoolClient` implements it; tests may provide a scripted one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from metlmon.pool.types import (
    ActionPreview,
    ActionRequest,
    ActionResult,
    QueueSnapshot,
    ScheddInfo,
    SelectedRun,
    SiteInfo,
    SubmitResult,
)
from metlmon.snapshot.types import DagRow, JobRow, Status


class PoolActions(Protocol):
    """Actions on the jobs, DAGs and runs of one dagdir.

    Methods marked *non-blocking* may be called from the event loop: they use known data only. The
    others wait for the schedd, must be called in a thread, and raise
    :class:`metlmon.pool.types.PoolError`.
    """

    @property
    def word(self) -> QueueSnapshot:
        """The latest queue snapshot; *non-blocking*."""

    def offers(
        self,
        status: Status,
        jobs: Sequence[JobRow],
        dags: Sequence[DagRow],
        runs: Sequence[SelectedRun] = (),
    ) -> tuple[ActionPreview, ...]:
        """Previews of every action for the selection; *non-blocking*.

        ``jobs``: the selected jobs in whatever state; ``dags``: the DAGs they belong to;
        ``runs``: the selected runs. In the order of :class:`PoolAction`.
        """

    def perform(
        self, request: ActionRequest, on_result: Callable[[ActionResult], None]
    ) -> tuple[ActionResult, ...]:
        """Perform a request; ``on_result`` gets each result, one per target."""

    def where(self) -> ScheddInfo:
        """The local schedd."""

    def sites(self) -> tuple[SiteInfo, ...]:
        """The sites currently known to the collector."""

    def submit_dag(self, dag_file: Path) -> SubmitResult:
        """Submit a DAG from its own directory."""

    def close(self) -> None:
        """End threads and processes; returns when they have ended."""
