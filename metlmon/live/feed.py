"""The interface between the screens and the live ensemble.

Implemented by :class:`metlmon.live.session.Session`; tests may substitute a recorded feed. Every
method may be called from any thread, and returns immutable data at once unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from metlmon.config.settings import Settings
from metlmon.frozen import frozen
from metlmon.jobfiles.records import Streamed, TrainingOutput
from metlmon.model.job_events import JobId, NodeKey
from metlmon.snapshot.dag_description import DagDescription
from metlmon.snapshot.ledger import Ledger
from metlmon.snapshot.types import JobRow, JobView, NodeRow, ProblemGroup, Progress, RunView, Status

if TYPE_CHECKING:
    from metlmon.snapshot.node_tree import DagNodes


@frozen
class Snapshot:
    """One snapshot of the ensemble.

    ``changed``: keys of the runs whose rows differ from the previous snapshot; ``progress``: of
    the first reading; ``error``: one sentence if the dagdir has become unreadable (the last
    snapshot stays) or the schedd does not respond.
    """

    status: Status
    changed: frozenset[str]
    progress: Progress
    error: str | None = None


class Feed(Protocol):
    """A source of snapshots."""

    @property
    def dagdir(self) -> Path: ...

    @property
    def latest(self) -> Snapshot | None:
        """The newest snapshot, None before the first."""

    def start(self, notify: Callable[[Snapshot], None]) -> None:
        """Start the reader thread.

        ``notify`` is called **on that thread** for every new snapshot: at most ten a second, and
        once a second as the clock ticks while the ensemble is live.
        """

    def stop(self) -> None:
        """Stop the thread; returns when it has ended."""

    def run_view(self, key: str) -> RunView | None: ...

    def job_view(self, cluster: int, proc: int) -> JobView | None: ...

    def nodes(self) -> tuple[DagNodes, ...]:
        """Return all DAGs with the states of their nodes."""

    def node_row(self, key: NodeKey) -> NodeRow | None:
        """Return one node; ``key``: the key of its DAG, and its name."""

    def problems(self) -> tuple[ProblemGroup, ...]: ...

    def queued_jobs(self, run: str | None = None) -> tuple[JobRow, ...]:
        """Return the jobs in the queue according to their logs, of one run or of all."""

    @property
    def settings(self) -> Settings:
        """The settings with which the dagdir is read."""

    def ledger(self) -> Ledger:
        """Return the ledger of the newest snapshot."""

    def dag_description(self) -> DagDescription:
        """Return the nodes as described by the DAG files of the newest snapshot."""

    def training_outputs(self) -> Mapping[str, TrainingOutput]:
        """Return the training output of the runs, by run key.

        Reads the files that have changed: not for the UI thread.
        """

    def progress_lines(self) -> Mapping[JobId, Streamed]:
        """Return the newest progress line of each running job that wrote one.

        Reads files: not for the UI thread.
        """

    def historical(self, moment: datetime) -> Feed:
        """Return a feed, not started, of this dagdir as it was at ``moment``.

        It reads all logs up to that time. Raises InputError.
        """

    def set_in_queue(self, present: bool) -> None:
        """Set whether a reachable schedd has jobs of this ensemble.

        The ensemble counts as live while it has.
        """

    def set_unattended(self, unattended: bool) -> None:
        """Set whether the screen is unattended.

        While it is, and only the clock changes, there is a new snapshot every few seconds
        instead of every second.
        """
