"""The input of every statistic."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct, field

from metlmon.config.settings import Settings
from metlmon.jobfiles.records import Streamed, TrainingOutput
from metlmon.model.job_events import JobId
from metlmon.snapshot.ledger import Ledger
from metlmon.snapshot.types import DagDescription, Status


class StatsInput(Struct, frozen=True):
    """The input of every statistic.

    ``trainings`` (by run key) and ``streams`` (by job) hold the content of the job files; both
    are empty until the first read (``files_read`` is False). ``load_description`` loads the
    description of the DAG files' nodes, which few statistics need.
    """

    status: Status
    ledger: Ledger
    settings: Settings = field(default_factory=Settings)
    trainings: Mapping[str, TrainingOutput] = field(default_factory=dict)
    streams: Mapping[JobId, Streamed] = field(default_factory=dict)
    files_read: bool = False
    load_description: Callable[[], DagDescription] = DagDescription
