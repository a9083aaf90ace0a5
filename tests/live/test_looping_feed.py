"""The demo: a story of two months that begins again after its end."""

from __future__ import annotations

import threading
from pathlib import Path
from zipfile import ZipFile

import pytest

from metlmon.cli.commands.demo import archive, extract_story
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import Snapshot
from metlmon.live.looping_feed import LoopingFeed
from metlmon.live.replay import Replay
from metlmon.model.states import State
from tests.generated.story import story
from tests.support.patience import PATIENCE

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def test_the_archive_is_what_is_generated() -> None:
    with ZipFile(archive()) as shipped:
        texts = {name: shipped.read(name).decode() for name in shipped.namelist()}
    assert texts == story()


def test_the_story_has_its_size_and_its_troubles(tmp_path: Path) -> None:
    recording, captions = extract_story(tmp_path)
    reader = DagdirReader(recording)
    reader.open()
    reader.read_all()
    builder = reader.snapshot_builder()
    status, ledger = builder.status(), builder.ledger()
    assert (len(status.runs), status.node_states[State.COMPLETED]) == (24, 928)
    assert [run.run for run in status.runs if run.state is State.FAILED] == ["run20"]
    sites = {site.site: site for site in status.sites}
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
def test_it_begins_again_unless_it_is_to_stay(tmp_path: Path, pause: float | None) -> None:
    replay = Replay(FIXTURES / "rescue", tmp_path / "demo", speed=1e9)
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
