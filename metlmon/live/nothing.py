"""A feed of nothing: for a screen that was opened to submit, with no ensemble behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from metlmon.ensemble.described import Described
from metlmon.ensemble.ledger import Ledger
from metlmon.ensemble.record import JobId, NodeKey
from metlmon.ensemble.settings import Settings
from metlmon.ensemble.views import (
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
from metlmon.live.feed import Feed, Update
from metlmon.training.records import Streamed, Training

if TYPE_CHECKING:
    from metlmon.ensemble.nodetree import DagNodes


class Nothing:
    """Implements :class:`metlmon.live.feed.Feed`: one picture, and it is empty. ``dagdir`` is
    the directory that relative paths start from."""

    def __init__(self, dagdir: Path | None = None) -> None:
        self._dagdir = dagdir or Path.cwd()
        none = Count()
        empty = Status(
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
            transfers=TransferTotals(none, none, none, none, 0, 0),
            logs=(),
        )
        self._latest = Update(empty, frozenset(), Progress(0, 0))

    @property
    def dagdir(self) -> Path:
        return self._dagdir

    @property
    def latest(self) -> Update | None:
        return self._latest

    def start(self, notify: Callable[[Update], None]) -> None:
        """There will be no other picture."""

    def stop(self) -> None:
        """No thread was begun."""

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

    def queued(self, run: str | None = None) -> tuple[JobRow, ...]:
        return ()

    @property
    def settings(self) -> Settings:
        return Settings()

    def ledger(self) -> Ledger:
        return Ledger(str(self._dagdir), None, False)

    def described(self) -> Described:
        return Described()

    def trainings(self) -> Mapping[str, Training]:
        return {}

    def streams(self) -> Mapping[JobId, Streamed]:
        return {}

    def past(self, moment: datetime) -> Feed:
        return self

    def in_queue(self, there: bool) -> None:
        """There is nothing that could be in the queue."""

    def rest(self, resting: bool) -> None:
        """There is no other picture anyway."""
