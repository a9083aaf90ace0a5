"""Feeds on generated dagdirs, including the files of their trainings."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import JobFiles
from metlmon.live.job_files import TrainingFiles
from metlmon.snapshot.builder import SnapshotBuilder
from tests.generated import bags, sweeps
from tests.support.builder_feed import BuilderFeed
from tests.support.recordings import read_all


def dagdir_feed(path: Path, as_of: datetime | None = None) -> BuilderFeed:
    """A feed on a dagdir as it is now."""
    builder, files = _read(path, as_of)
    return BuilderFeed(builder, "sweep", files)


@cache
def _read(path: Path, as_of: datetime | None) -> tuple[SnapshotBuilder, JobFiles]:
    """A dagdir that does not change, read once for all its feeds."""
    reader = read_all(DagdirReader(path, as_of=as_of, live=True if as_of is not None else None))
    builder = reader.snapshot_builder()
    files = TrainingFiles(reader.dagdir, builder.ensemble.settings)
    return builder, files.read(builder)


@cache
def sweep(rates: tuple[str, ...] = sweeps.RATES, widths: tuple[str, ...] = sweeps.WIDTHS) -> Path:
    """A sweep's dagdir, made once."""
    path = Path(_place().name) / f"sweep-{len(rates)}-{len(widths)}"
    sweeps.write(path, rates, widths)
    return path


@cache
def bag() -> Path:
    """A bag's dagdir four hours after its beginning, made once: two of its shards are held."""
    path = Path(_place().name) / "bag"
    lived = bags.live(240, 24, seed=3)
    held = [e.shard for e in lived.attempts if e.start < BAG_SECONDS - 60 < e.end]
    bags.write(path, lived, until=BAG_SECONDS, held=tuple(held[4:6]))
    return path


BAG_SECONDS = 4 * 3600
BAG_AS_OF = bags.BEGUN + timedelta(seconds=BAG_SECONDS)


@cache
def _place() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="metlmon-grid-")
