"""What a screen asks of the live ensemble, and nothing more.

The one real implementation is :class:`metlmon.live.session.Session`; tests may give a
recorded one. Every method may be called from any thread and returns at once with an
immutable picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from metlmon.frozen import frozen
from metlmon.jobfiles.records import Streamed, TrainingOutput
from metlmon.model.job_events import JobId, NodeKey
from metlmon.model.settings import Settings
from metlmon.snapshot.dag_description import DagDescription
from metlmon.snapshot.ledger import Ledger
from metlmon.snapshot.types import JobRow, JobView, NodeRow, ProblemGroup, Progress, RunView, Status

if TYPE_CHECKING:
    from metlmon.snapshot.node_tree import DagNodes


@frozen
class Snapshot:
    """One new picture. ``changed`` are run keys whose rows differ from the picture before;
    ``progress`` tells how far the first reading is; ``error`` a sentence when the dagdir
    cannot be read any more (the last picture stays), or the schedd is silent."""

    status: Status
    changed: frozenset[str]
    progress: Progress
    error: str | None = None


class Feed(Protocol):
    """A source of pictures."""

    @property
    def dagdir(self) -> Path: ...

    @property
    def latest(self) -> Snapshot | None:
        """The newest picture, None before the first."""

    def start(self, notify: Callable[[Snapshot], None]) -> None:
        """Begin reading in a thread of its own; ``notify`` is called **on that thread**
        for every new picture (at most ten a second, and when the clock ticks once a second
        while the ensemble is live)."""

    def stop(self) -> None:
        """End the thread; returns when it has ended."""

    def run_view(self, key: str) -> RunView | None: ...

    def job_view(self, cluster: int, proc: int) -> JobView | None: ...

    def nodes(self) -> tuple[DagNodes, ...]:
        """All DAGs with the states of their nodes."""

    def node_row(self, key: NodeKey) -> NodeRow | None:
        """One node: the key of its DAG, and its name."""

    def problems(self) -> tuple[ProblemGroup, ...]: ...

    def queued(self, run: str | None = None) -> tuple[JobRow, ...]:
        """The jobs that are in the queue by their logs: of the run with this key, or all."""

    @property
    def settings(self) -> Settings:
        """The settings that it is read with."""

    def ledger(self) -> Ledger:
        """The ledger of the newest picture."""

    def described(self) -> DagDescription:
        """The nodes as the DAG files of the newest picture describe them."""

    def trainings(self) -> Mapping[str, TrainingOutput]:
        """What the runs' trainings wrote, by run key. Reads files: not for a screen's own
        thread. Files that did not change are not read again."""

    def streams(self) -> Mapping[JobId, Streamed]:
        """The newest progress line of every job that runs, where it wrote one. Reads files: not
        for a screen's own thread."""

    def past(self, moment: datetime) -> Feed:
        """A feed of the same dagdir as it was at ``moment``, not started yet: a prefix of all
        logs. Raises InputError."""

    def in_queue(self, there: bool) -> None:
        """A reachable schedd has jobs of this ensemble, or has none of them any more: the
        ensemble counts as live while it does."""

    def rest(self, resting: bool) -> None:
        """Nobody looks, or somebody does again: for whom nothing but time goes by there is a new
        picture every few seconds, or at once and every second."""
