"""A recorded dagdir, written again as its time goes by."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.replay import Replay, replay_pieces

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"

RECORDINGS = sorted(path.parent for path in FIXTURES.glob("*/*.dag.metrics"))
DIRS = pytest.mark.parametrize("recording", sorted(set(RECORDINGS)), ids=lambda path: path.name)


def files(directory: Path) -> dict[str, bytes]:
    found = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in found}


def read(dagdir: Path, as_of: datetime | None = None) -> DagdirReader:
    reader = DagdirReader(dagdir, live=False, as_of=as_of)
    reader.open()
    reader.read_all()
    return reader


@DIRS
def test_at_any_moment_it_is_what_had_been_written(recording: Path, tmp_path: Path) -> None:
    """Every file is a prefix of the recorded one, and no event is there before its time; at the
    end it is the recording byte for byte. The replay and ``--as-of`` are the same thing."""
    replay = Replay(recording, tmp_path, speed=1.0)
    whole = files(recording)
    dice = random.Random(recording.name)
    middle = (replay.begin + (replay.end - replay.begin) / 2).replace(microsecond=0)
    others = (replay.begin + (replay.end - replay.begin) * dice.random() for _ in range(2))
    for moment in sorted([*others, middle]):
        replay.write_until(moment)
        for name, data in files(tmp_path).items():
            assert whole[name].startswith(data), name
        newest = read(tmp_path).ensemble.newest
        assert newest is None or newest <= moment
        if moment == middle:
            ours, theirs = (
                read(path, as_of=moment).snapshot_builder() for path in (tmp_path, recording)
            )
            assert [j.state for j in ours.job_rows()] == [j.state for j in theirs.job_rows()]
            assert ours.status().gpu_hours == theirs.status().gpu_hours
    assert not replay.write_until(replay.end)
    assert files(tmp_path) == whole


def test_pieces_are_in_order_and_none_is_lost(shared: Callable[[str], Path]) -> None:
    recording = shared("examples/pool-ensemble")
    pieces = replay_pieces(recording)
    times = [piece.time for piece in pieces]
    assert times == sorted(times)
    written: dict[str, bytes] = {}
    for piece in pieces:
        written[piece.file] = written.get(piece.file, b"") + piece.data
    assert written == files(recording)


@pytest.mark.skipif(not RECORDINGS, reason="no recordings in fixtures/")
def test_its_thread_writes_the_whole_story_and_ends(tmp_path: Path) -> None:
    recording = RECORDINGS[0]
    replay = Replay(recording, tmp_path, speed=1.0)
    replay.set_length(0.2)
    replay.start()
    thread = next(t for t in threading.enumerate() if t.name == "metlmon-replay")
    thread.join(timeout=30.0)
    assert not thread.is_alive()
    assert files(tmp_path) == files(recording)
    assert replay.now() == replay.end
    replay.stop()


@pytest.mark.skipif(not RECORDINGS, reason="no recordings in fixtures/")
def test_it_stops_when_it_is_asked_to(tmp_path: Path) -> None:
    replay = Replay(RECORDINGS[0], tmp_path, speed=1e-6)
    replay.start()
    replay.stop()
    assert "metlmon-replay" not in {thread.name for thread in threading.enumerate()}
    assert list(tmp_path.glob("*.dag")), "what is there from the beginning was written at once"
    assert replay.now() - replay.begin < timedelta(seconds=1)
    assert isinstance(replay.now(), datetime)
