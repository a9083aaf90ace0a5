"""What a screen asks of the pool, and nothing more.

The real one is :class:`metlmon.pool.client.PoolClient`; tests may give a scripted one.
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
    """Acts on jobs and DAGs of one dagdir. Methods marked *at once* may be called from the
    event loop: they look at what is known and never wait. The others wait for the schedd, are
    called in a thread, and raise :class:`metlmon.pool.types.PoolError`."""

    @property
    def word(self) -> QueueSnapshot:
        """What the queue said last; *at once*."""

    def offers(
        self,
        status: Status,
        jobs: Sequence[JobRow],
        dags: Sequence[DagRow],
        runs: Sequence[SelectedRun] = (),
    ) -> tuple[ActionPreview, ...]:
        """Every act, for these jobs (those selected, whatever their state), these DAGs
        (that they belong to) and these runs, in the order of :class:`Act`; *at once*."""

    def perform(
        self, order: ActionRequest, told: Callable[[ActionResult], None]
    ) -> tuple[ActionResult, ...]:
        """Do it; ``told`` hears each answer as it comes. Every target gets exactly one."""

    def where(self) -> ScheddInfo:
        """The schedd at hand."""

    def sites(self) -> tuple[SiteInfo, ...]:
        """The sites that the collector knows now."""

    def submit_dag(self, dag_file: Path) -> SubmitResult:
        """Submit a DAG, in the directory that it lies in."""

    def close(self) -> None:
        """End threads and processes; returns when they have ended."""
