"""A log that is written again and again: its old events are not added to its new ones,
not even for the moment until all is read anew."""

from __future__ import annotations

from pathlib import Path

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.follower import CHUNK
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log


def a_life(second: int) -> bytes:
    """Of one job, in more bytes than are read at once."""
    log = Log().submit(5, NODE, at=f"10:00:{second:02d}").execute(5, at=f"10:01:{second:02d}")
    while len(log.data) < CHUNK // 50:
        log.image(5, 1000)
    reports = b"".join(log.events[2:])
    log.evict(5, at=f"12:01:{second:02d}")
    return b"".join(log.events[:2]) + reports * 60 + log.events[-1]


def sums(reader: DagdirReader) -> tuple[int, int, float]:
    """Jobs, executions, bad hours."""
    painter = reader.snapshot_builder()
    rows = painter.job_rows()
    hours = painter.status().gpu_hours.badput
    return len(rows), sum(len(row.executions) for row in rows), round(hours, 1)


def test_nothing_is_counted_twice_however_often(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path / "d")
    dagdir.write("metl.log", a_life(0))
    reader = dagdir.reader(live=True)
    assert len(a_life(0)) > CHUNK
    for second in range(1, 4):
        dagdir.replace("metl.log", a_life(second))
        reader.check()
        while reader.step().more:
            pass
        assert sums(reader) == (1, 1, 2.0)
