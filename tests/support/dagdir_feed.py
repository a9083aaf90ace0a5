"""A feed that shows what a painter of a generated dagdir draws, and what its trainings wrote."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from metlmon.jobfiles.records import Streamed, TrainingOutput
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.job_files import TrainingFiles
from metlmon.model.job_events import JobId
from metlmon.snapshot.builder import SnapshotBuilder, describe_dags
from metlmon.snapshot.records import DagDescription, JobView, Ledger, Nodes, RunView
from tests.generated import bags, sweeps
from tests.support.sample_snapshots import FakeFeed, update


class DagdirFeed(FakeFeed):
    """Shows a dagdir as it is now."""

    def __init__(self, path: Path, as_of: datetime | None = None) -> None:
        self.painter, written = _read(path, as_of)
        super().__init__(update(self.painter.status()), Path("/nowhere/sweep"))
        self.written = written
        self._nodes: Nodes | None = None

    def ledger(self) -> Ledger:
        return self.painter.ledger()

    def dag_description(self) -> DagDescription:
        result = describe_dags(self.painter, self._nodes)
        self._nodes = result.nodes
        return result

    def training_outputs(self) -> Mapping[str, TrainingOutput]:
        return self.written

    def progress_lines(self) -> Mapping[JobId, Streamed]:
        return {}

    def run_view(self, key: str) -> RunView | None:
        return self.painter.run_view(key)

    def job_view(self, cluster: int, proc: int) -> JobView | None:
        return self.painter.job_view(cluster, proc)


@cache
def _read(
    path: Path, as_of: datetime | None
) -> tuple[SnapshotBuilder, Mapping[str, TrainingOutput]]:
    """A dagdir that does not change, read once for all feeds that show it."""
    reader = DagdirReader(path, as_of=as_of, live=True if as_of is not None else None)
    reader.open()
    reader.read_all()
    painter = reader.snapshot_builder()
    written = TrainingFiles(reader.dagdir, painter.ensemble.settings)
    return painter, written.training_outputs(painter.ledger(), painter)


@cache
def sweep(rates: tuple[str, ...] = sweeps.RATES, widths: tuple[str, ...] = sweeps.WIDTHS) -> Path:
    """A sweep's dagdir, made once."""
    path = Path(_place().name) / f"sweep-{len(rates)}-{len(widths)}"
    sweeps.write(path, rates, widths)
    return path


@cache
def bag() -> Path:
    """A bag's dagdir, four hours after its beginning, made once: two of its shards are held."""
    path = Path(_place().name) / "bag"
    lived = bags.live(240, 24, seed=3)
    held = [e.shard for e in lived.attempts if e.start < BAG_SECONDS - 60 < e.end]
    bags.write(path, lived, until=BAG_SECONDS, held=tuple(held[4:6]))
    return path


BAG_SECONDS = 4 * 3600


@cache
def _place() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="metlmon-grid-")
