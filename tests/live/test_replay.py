"""A recorded dagdir, written again in the order of its times."""

from __future__ import annotations

import queue
import random
import threading
from datetime import datetime, timedelta
from pathlib import Path
from zipfile import ZipFile

import pytest

from metlmon.cli.commands.demo import archive
from metlmon.live.dagdir_reader import DagdirReader, ReadStep
from metlmon.live.replay import LoopingFeed, Replay
from metlmon.live.session import HistoricalSession, Session
from metlmon.model.states import State
from metlmon.snapshot.records import Snapshot
from metlmon.stats.totals import break_down
from tests.conftest import Shared
from tests.generated.story import story
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log
from tests.support.patience import PATIENCE
from tests.support.recordings import FIXTURES, read_all
from tests.support.replay_pieces import extract_story, replay_pieces

RECORDINGS = [FIXTURES / name for name in ("demo", "rescue", "shared-log")]
"""Those of a real pool."""
DIRS = pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)


def files(directory: Path) -> dict[str, bytes]:
    found = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in found}


def read(dagdir: Path, as_of: datetime | None = None) -> DagdirReader:
    return read_all(DagdirReader(dagdir, live=False, as_of=as_of))


@DIRS
def test_replay_at_any_time_is_what_had_been_written(recording: Path, tmp_path: Path) -> None:
    """Every file is a prefix of the recorded one, without events after the time; at the end it is
    the recording byte for byte. Replay and ``--as-of`` agree."""
    replay = Replay(replay_pieces(recording), tmp_path, speed=1.0)
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
            assert ours.status().hours == theirs.status().hours
    assert not replay.write_until(replay.end)
    assert files(tmp_path) == whole


def test_pieces_are_complete_and_in_order(shared: Shared) -> None:
    recording = shared("examples/pool-ensemble")
    pieces = replay_pieces(recording)
    times = [piece.time for piece in pieces]
    assert times == sorted(times)
    written: dict[str, bytes] = {}
    for piece in pieces:
        written[piece.file] = written.get(piece.file, b"") + piece.data
    assert written == files(recording)


def test_replay_stops_on_request(tmp_path: Path) -> None:
    replay = Replay(replay_pieces(RECORDINGS[0]), tmp_path, speed=1e-6)
    replay.start()
    replay.stop()
    assert "metlmon-replay" not in {thread.name for thread in threading.enumerate()}
    assert list(tmp_path.glob("*.dag")), "what is there from the beginning was written at once"
    assert replay.now() - replay.begin < timedelta(seconds=1)
    assert isinstance(replay.now(), datetime)


# --- a feed of the past, read once in a thread ------------------------------------------------


THEN = datetime(2025, 11, 10, 10, 5)


def written(path: Path) -> Dagdir:
    dagdir = Dagdir(path / "ensemble")
    log = Log().submit(77, NODE, at="10:00:00").execute(77, at="10:10:00")
    dagdir.write("metl.log", log.data)
    return dagdir


def test_past_feed_ends_when_all_is_read(tmp_path: Path) -> None:
    session = Session(read(written(tmp_path).path))
    first = session.take().status.runs[0].latest
    moment = first.since.replace(minute=5)
    past = session.historical(moment)
    assert isinstance(past, HistoricalSession)
    assert past.latest is None
    received: queue.Queue[Snapshot] = queue.Queue()
    past.start(received.put)
    update = received.get(timeout=PATIENCE)
    assert update.progress.fraction == 1.0
    assert update.status.as_of == moment
    assert update.status.runs[0].state == "idle"
    thread = next((t for t in threading.enumerate() if t.name == "metlmon-past"), None)
    if thread is not None:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    past.stop()
    assert past.ledger().executions == ()
    assert past.job_files().streams == {}
    assert past.settings == session.settings


def test_stopping_a_past_feed_drops_unread_files(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Waiting(DagdirReader):
        def step(self, seconds: float = 0.05) -> ReadStep:
            begun.set()
            assert go_on.wait(PATIENCE)
            return ReadStep(super().step(seconds).changed, True)

    reader = Waiting(written(tmp_path).path, as_of=THEN)
    reader.open()
    past = HistoricalSession(reader)
    past.start(lambda update: None)
    assert begun.wait(PATIENCE)
    stopper = threading.Thread(target=past.stop)
    stopper.start()
    go_on.set()
    stopper.join(PATIENCE)
    assert not stopper.is_alive()
    assert not [t for t in threading.enumerate() if t.name == "metlmon-past"]


# --- the demo, a story of two months that restarts at its end ---------------------------------


def test_archive_of_the_demo_equals_the_generated_one() -> None:
    with ZipFile(archive()) as shipped:
        texts = {name: shipped.read(name).decode() for name in shipped.namelist()}
    assert texts == story()


def test_demo_has_its_size_and_troubles(tmp_path: Path) -> None:
    recording, captions = extract_story(tmp_path)
    reader = read_all(DagdirReader(recording))
    builder = reader.snapshot_builder()
    status, ledger = builder.status(), builder.ledger()
    assert (len(status.runs), status.node_states[State.COMPLETED]) == (24, 928)
    assert [run.run for run in status.runs if run.state is State.FAILED] == ["run20"]
    sites = {site.site: site for site in break_down(ledger).sites}
    assert len(sites) == 7
    assert sites["Gridley-GPU-CE1"].completed_epochs == 0
    holds = {hold.code for job in ledger.jobs for hold in job.holds}
    assert holds == {12, 34}
    first, last = captions[0][0], captions[-1][0]
    assert ledger.first_time is not None
    assert abs((first - ledger.first_time).total_seconds()) < 60
    assert abs((last - builder.status().as_of).total_seconds()) < 60
    assert (last - first).days > 45


@pytest.mark.parametrize("pause", [0.3, None])
def test_demo_restarts_unless_it_is_to_stay(tmp_path: Path, pause: float | None) -> None:
    replay = Replay(replay_pieces(FIXTURES / "rescue"), tmp_path / "demo", speed=1e9)
    feed = LoopingFeed(replay, tmp_path / "demo", pause)
    rounds, done = (1 if pause is None else 3), threading.Event()

    def notify(snapshot: Snapshot) -> None:
        runs = snapshot.status.runs
        if feed.rounds >= rounds and all(run.epochs_done == run.epochs_total for run in runs):
            done.set()

    feed.start(notify)
    try:
        assert done.wait(PATIENCE)
    finally:
        feed.stop()
    assert (tmp_path / "demo-2").exists() is (pause is not None)
    assert not {"metlmon-demo", "metlmon-replay"} & {t.name for t in threading.enumerate()}
