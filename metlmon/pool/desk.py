"""What a screen asks of the pool, and nothing more.

The real one is :class:`metlmon.pool.office.Office`; tests may give a scripted one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from metlmon.ensemble.views import DagRow, JobRow, Status
from metlmon.pool.records import (
    Answer,
    Offer,
    Order,
    QueueWord,
    SelectedRun,
    SiteOffer,
    Submitted,
    Where,
)


class Desk(Protocol):
    """Acts on jobs and DAGs of one dagdir. Methods marked *at once* may be called from the
    event loop: they look at what is known and never wait. The others wait for the schedd, are
    called in a thread, and raise :class:`metlmon.pool.records.PoolError`."""

    @property
    def word(self) -> QueueWord:
        """What the queue said last; *at once*."""

    def offers(
        self,
        status: Status,
        jobs: Sequence[JobRow],
        dags: Sequence[DagRow],
        runs: Sequence[SelectedRun] = (),
    ) -> tuple[Offer, ...]:
        """Every act, for these jobs (those selected, whatever their state), these DAGs
        (that they belong to) and these runs, in the order of :class:`Act`; *at once*."""

    def perform(self, order: Order, told: Callable[[Answer], None]) -> tuple[Answer, ...]:
        """Do it; ``told`` hears each answer as it comes. Every target gets exactly one."""

    def where(self) -> Where:
        """The schedd at hand."""

    def sites(self) -> tuple[SiteOffer, ...]:
        """The sites that the collector knows now."""

    def submit_dag(self, dag_file: Path) -> Submitted:
        """Submit a DAG, in the directory that it lies in."""

    def close(self) -> None:
        """End threads and processes; returns when they have ended."""
