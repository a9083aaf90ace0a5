"""Garbage is collected while a dashboard stays open."""

from __future__ import annotations

import gc
import tracemalloc
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.file_access import FsExecutor, calls_through
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "gated"


def test_an_error_of_the_file_system_holds_no_frame(tmp_path: Path) -> None:
    asker = FsExecutor(lambda: None)
    missing = tmp_path / "missing"
    with calls_through(asker), asker.prefetched():
        for _ in range(2):
            with pytest.raises(FileNotFoundError):
                asker.call(Path.stat, missing)
    gc.collect()
    held = [each for each in gc.get_objects() if isinstance(each, FileNotFoundError)]
    assert not [each for each in held if each.filename == str(missing) and each.__traceback__]


def test_each_change_of_a_job_costs_the_same_memory(tmp_path: Path) -> None:
    """Nothing that grows with the job's history is stored at each of its events."""
    dagdir = Dagdir(tmp_path / "ensemble")
    dagdir.write("metl.log", Log().submit(77, NODE, at="10:00:00").data)
    reader = DagdirReader(dagdir.path, live=True)
    reader.open()
    reader.read_all()
    begun = datetime(2026, 1, 1, 11)

    def grow(first: int, last: int) -> int:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(first, last):
            at = f"{begun + timedelta(seconds=18 * number):%Y-%m-%d %H:%M:%S}"
            event = Log().release(77, at=at) if number % 2 else Log().hold(77, 34, "x", at=at)
            dagdir.append("metl.log", event.data)
            reader.check()
            reader.read_all()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:
        early = grow(0, 150)
        assert grow(150, 300) < 1.5 * early
    finally:
        tracemalloc.stop()


def test_looking_at_files_leaves_no_cycles(tmp_path: Path) -> None:
    """Cycles keep what they refer to until the collector's rarest pass, hours later."""
    dagdir = Dagdir(tmp_path / "ensemble")
    dagdir.write("metl.log", Log().submit(77, NODE, at="10:00:00").data)
    reader = DagdirReader(dagdir.path, live=True)
    files = FsExecutor(lambda: None)
    with calls_through(files):
        reader.open()
        reader.read_all()
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                with files.prefetched():
                    reader.check()
            assert gc.collect() < 20
        finally:
            gc.enable()
    files.close()
