"""What the jobs of an ensemble write beside their logs: found, read, and read again when it
has changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from metlmon.ensemble.ledger import Ledger
from metlmon.ensemble.picture import Painter
from metlmon.ensemble.record import JobId
from metlmon.ensemble.settings import Settings
from metlmon.training.records import Streamed, Training


class WrittenFiles:
    """The files that the trainings below ``dagdir`` write. Its methods may be called from any
    thread, and block for as long as the files take."""

    def __init__(self, dagdir: Path, settings: Settings) -> None:
        self._dagdir = dagdir
        self._settings = settings

    def trainings(self, ledger: Ledger) -> Mapping[str, Training]:
        """What each run's training wrote, by run key."""
        return {}

    def streams(self, painter: Painter) -> Mapping[JobId, Streamed]:
        """The newest progress line of every running job."""
        return {}
