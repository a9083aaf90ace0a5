"""The office: what a screen or a command asks of the pool is done here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from metlmon.ensemble.views import DagRow, JobRow, Status
from metlmon.live.feed import Feed
from metlmon.pool.connection import Connection
from metlmon.pool.queue import Queue
from metlmon.pool.records import Answer, Offer, Order, QueueWord, SiteOffer, Submitted, Where


class Office:
    """Implements :class:`metlmon.pool.desk.Desk` for the ensemble of ``feed`` (None: no dagdir
    yet, only ``where``, ``sites`` and ``submit_dag`` are of use). ``refusal``: why nothing may
    be done here at all (a picture of the past, a recording): every offer is refused with it."""

    def __init__(
        self,
        feed: Feed | None = None,
        connection: Connection | None = None,
        queue: Queue | None = None,
        *,
        refusal: str | None = None,
    ) -> None: ...

    queue: Queue | None
    """Give it to :class:`metlmon.pool.queue.WithQueue`, which starts and stops it."""

    @property
    def word(self) -> QueueWord: ...

    def offers(
        self, status: Status, jobs: Sequence[JobRow], dags: Sequence[DagRow]
    ) -> tuple[Offer, ...]: ...

    def perform(self, order: Order, told: Callable[[Answer], None]) -> tuple[Answer, ...]: ...

    def where(self) -> Where: ...

    def sites(self) -> tuple[SiteOffer, ...]: ...

    def submit_dag(self, dag_file: Path) -> Submitted: ...

    def close(self) -> None: ...


def open_pool() -> Office:
    """An office without an ensemble: to submit the first one."""
    return Office()
