"""The interface between the screens and the live ensemble.

Implemented by :class:`metlmon.live.session.Session`; tests may substitute a recorded feed. Every
method may be called from any thread, and returns immutable data at once unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct, field

from metlmon.config.settings import Settings
from metlmon.jobfiles.error_lines import Errors
from metlmon.jobfiles.records import Streamed, TrainingOutput
from metlmon.model.job_events import JobId, NodeKey
from metlmon.model.queue import QueueSnapshot
from metlmon.snapshot.records import (
    DagDescription,
    GpuHours,
    Job,
    JobView,
    Ledger,
    NodeRow,
    Progress,
    RunView,
    Snapshot,
    Status,
)

if TYPE_CHECKING:
    from metlmon.snapshot.node_tree import DagNodes


def unread(dagdir: Path) -> Snapshot:
    """The snapshot of a directory that has not been read yet."""
    status = Status(
        dagdir=str(dagdir),
        as_of=None,
        live=False,
        warnings=(),
        dags=(),
        runs=(),
        epoch_states={},
        node_states={},
        hours=GpuHours(),
        logs=(),
    )
    return Snapshot(status, Progress(0, 1), opened=False)


class JobFiles(Struct, frozen=True):
    """What jobs and scripts wrote beside their logs.

    ``trainings``: the output of the runs' trainings, by run key. ``streams``: the newest progress
    line of each running job that wrote one. ``errors``: those of failed jobs and scripts.
    ``are_read``: False before the first read, when all are empty.
    """

    trainings: Mapping[str, TrainingOutput] = {}
    streams: Mapping[JobId, Streamed] = {}
    errors: Errors = Errors()
    are_read: bool = True


NOT_READ: Final = JobFiles(are_read=False)


class Feed(Protocol):
    """A source of snapshots; methods with a body serve feeds without jobs, and no thread."""

    @property
    def dagdir(self) -> Path: ...

    @property
    def latest(self) -> Snapshot | None:
        """The newest snapshot, None before the first."""

    def start(self, notify: Callable[[Snapshot], None]) -> None:
        """Start the reader thread.

        ``notify`` is called **on that thread** for every new snapshot: at most five a second, and
        once a second as the clock ticks while the ensemble is live.
        """
        return

    def stop(self) -> None:
        """Stop the thread; return when it has ended."""
        return

    def run_view(self, key: str) -> RunView | None:
        return None

    def job_view(self, cluster: int, proc: int) -> JobView | None:
        return None

    def dag_nodes(self) -> tuple[DagNodes, ...]:
        """Return all DAGs with the states of their nodes."""
        return ()

    def node_row(self, key: NodeKey) -> NodeRow | None:
        """Return the node with this key; None if unknown."""
        return None

    def queued_jobs(self, run: str | None = None) -> tuple[Job, ...]:
        """Return the jobs in the queue according to their logs, of one run or of all."""
        return ()

    @property
    def settings(self) -> Settings:
        """The settings with which the dagdir is read."""

    def ledger(self) -> Ledger:
        """Return the ledger of the newest snapshot."""

    def dag_description(self) -> DagDescription:
        """Return the nodes of the DAG files of the newest snapshot."""

    def job_files(self) -> JobFiles:
        """Return what jobs wrote beside their logs. Reads files: not for the UI thread."""
        return JobFiles()

    def queue(self) -> QueueSnapshot:
        """Return the queue as of its last query; empty if unknown."""
        return QueueSnapshot()

    def historical(self, moment: datetime) -> Feed:
        """Return a feed, not started, of this dagdir as of ``moment``. Raises InputError."""

    def set_in_queue(self, present: bool) -> None:
        """Set whether the queue has our jobs: while it does, the ensemble counts as live."""
        return

    def set_annex_ends(self, ends: Mapping[str, Iterable[float]]) -> None:
        """Add ends of annexes, in seconds since 1970, by lower-case name."""
        return

    def set_unattended(self, unattended: bool) -> None:
        """Set whether the screen is unattended.

        If so, snapshots in which only the clock changes are published every few seconds instead
        of every second.
        """
        return


class NullFeed(Feed):
    """A feed with one empty snapshot, for a program started only to submit.

    ``dagdir``: the directory to which paths are relative; ``settings``: the user's.
    """

    def __init__(self, dagdir: Path | None = None, settings: Settings | None = None) -> None:
        self._dagdir = dagdir or Path.cwd()
        self._settings = settings or Settings()
        status = unread(self._dagdir).status
        self._latest = Snapshot(status, Progress(0, 0))

    @property
    def dagdir(self) -> Path:
        return self._dagdir

    @property
    def latest(self) -> Snapshot | None:
        return self._latest

    @property
    def settings(self) -> Settings:
        return self._settings

    def ledger(self) -> Ledger:
        return Ledger(str(self._dagdir), None, False)

    def dag_description(self) -> DagDescription:
        return DagDescription()

    def historical(self, moment: datetime) -> Feed:
        return self


class StatsInput(Struct, frozen=True):
    """The input of every statistic.

    ``load_description`` loads the description of the DAG files' nodes, which few statistics need.
    """

    status: Status
    ledger: Ledger
    settings: Settings = field(default_factory=Settings)
    job_files: JobFiles = NOT_READ
    load_description: Callable[[], DagDescription] = DagDescription
    queue: QueueSnapshot = field(default_factory=QueueSnapshot)
