"""Home notifies of every ensemble in it."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path

import pytest

from metlmon.config.readers import read_webhook
from metlmon.config.settings import NotifySettings
from metlmon.health.last_seen import load_last_seen
from metlmon.home.summary import make_figures
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import NullFeed
from metlmon.live.session import Session
from metlmon.notify.events import NotifyEvent
from metlmon.pool.client import FeedAndPool
from screens.app import AppOptions
from tests.support.fake_home import FakeHome, summary
from tests.support.recordings import FIXTURES
from tests.support.screen_view import opened
from tests.support.web_listener import WebListener

HELD = NotifyEvent(key="held 12", name="held", text="held (hold 12) · run7")
DIVERGED = NotifyEvent(key="diverged", name="diverged", text="diverged · run8")
LATER, EARLIER = datetime(2025, 11, 14, 8, 20), datetime(2025, 11, 14, 8, 19)


async def arrived(listener: WebListener, number: int) -> list[str]:
    async with asyncio.timeout(20):
        while len(listener.requests) < number:
            await asyncio.sleep(0.01)
    return [request.json()["text"] for request in listener.requests]


async def test_home_notifies_and_remembers_what_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    dagdir = FIXTURES / "trainer"

    reader = DagdirReader(dagdir)
    reader.open()
    session = Session(reader)
    home = FakeHome(summary("/data/sweep"), summary(dagdir, "done"))
    with WebListener() as listener:
        options = AppOptions(
            home=home,
            remember_seen=True,
            notify=NotifySettings(("held",), webhook=read_webhook(listener.url("/")), interval=0),
        )
        async with opened(NullFeed(Path("/data")), (80, 24), options) as seen:  # type: ignore[arg-type]
            home.give(summary("/data/sweep", events=(HELD, DIVERGED), as_of=LATER))
            assert await arrived(listener, 1) == ["sweep: held\nheld (hold 12) · run7"]
            # A summary that is older says nothing of what has ended since.
            home.give(summary("/data/sweep", as_of=EARLIER))
            home.give(summary("/data/sweep", events=(HELD,), as_of=LATER))
            home.give(summary("/data/other", events=(HELD,), as_of=LATER))
            assert (await arrived(listener, 2))[1].startswith("other: held")
            seen.app.show_ensemble(FeedAndPool(session, None, "no pool in this test"))
            async with asyncio.timeout(20):
                while seen.app.snapshot is None or seen.app.snapshot.progress.fraction < 1:
                    await seen.settle()
            await seen.press("q")
            await seen.settle()
            remembered = load_last_seen(dagdir)
            assert remembered is not None
            assert remembered.done == 30
        session.stop()
        assert len(listener.requests) == 2
    assert not any("data" in str(path) for path in tmp_path.iterdir())


def test_a_summary_has_the_events_of_its_ensemble() -> None:
    reader = DagdirReader(FIXTURES / "trainer")
    reader.open()
    reader.read_all()
    (event,) = make_figures(reader).events
    assert (event.name, event.text) == ("done", "ensemble.dag is done: 30 nodes")
