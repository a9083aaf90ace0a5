"""Garbage is collected while a dashboard stays open."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from metlmon.live.cache import Cache
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.fs_timeout import FsExecutor, calls_through

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "gated"


@pytest.fixture
def thresholds() -> Iterator[None]:
    """Python's own, whatever a test before has set."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


class Knot:
    """An object in a cycle: only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


@pytest.mark.usefixtures("thresholds")
def test_asking_for_what_is_to_be_cached_leaves_garbage_to_the_collector(tmp_path: Path) -> None:
    """A dashboard asks at every look."""
    dagdir = shutil.copytree(FIXTURE, tmp_path / "dagdir")
    reader = DagdirReader(dagdir, cache=Cache(tmp_path / "cache"))
    reader.open()
    reader.read_all()
    before = gc.get_stats()[0]["collections"]
    for _ in range(200):
        assert reader.keep() == []
        knots = [Knot() for _ in range(100)]
        del knots
    assert gc.get_stats()[0]["collections"] > before
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, Knot)]


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
