"""Home: the lines, opening an ensemble and returning, the filters, the user's list."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metlmon.errors import InputError
from metlmon.health.advice import HOLD_ADVICE
from metlmon.health.types import Severity
from metlmon.home.places import load_list, save_list
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import NullFeed
from metlmon.live.session import Session
from metlmon.pool.client import FeedAndPool
from metlmon.remote import machine, paths
from metlmon.remote.paths import UnusableMachine
from metlmon.stats.estimates import Interval
from metlmon.tables.home import columns, detail_lines, home_rows, urgency
from metlmon.text import spans
from screens.actions import name_of_screen
from screens.app import AppOptions
from screens.home import HomeScreen
from tests.support.fake_home import ENSEMBLES, TROUBLE, FakeHome, summary
from tests.support.recordings import FIXTURES
from tests.support.screen_view import NARROW, EagerApp, RunningApp, opened


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@asynccontextmanager
async def shown(
    home: FakeHome | None = None,
    size: tuple[int, int] = NARROW,
    pool: Any = None,
    remember: bool = True,
) -> AsyncIterator[RunningApp]:
    sessions: list[Session] = []

    def open_dagdir(path: Path) -> FeedAndPool:
        if not path.exists():
            raise InputError(f"{path}: no such directory")
        reader = DagdirReader(path)
        reader.open()
        sessions.append(Session(reader))
        return FeedAndPool(sessions[-1], pool, "no pool in this test")

    home = home or FakeHome(*ENSEMBLES)
    options = AppOptions(home=home, open_dagdir=open_dagdir, remember_choices=remember)
    async with opened(NullFeed(Path("/data")), size, options) as seen:  # type: ignore[arg-type]
        yield seen
        for session in sessions:
            session.stop()


def names(seen: RunningApp) -> list[str]:
    """The first words of the table's rows."""
    first = next(i for i, text in enumerate(seen.lines) if "ENSEMBLE" in text)
    rows = [text.lstrip("▌ ").split() for text in seen.lines[first + 1 :]]
    return [row[0] for row in rows[: next(i for i, row in enumerate(rows) if not row)]]


async def test_every_ensemble_has_a_line_and_the_worst_live_one_is_first() -> None:
    async with shown() as seen:
        assert names(seen) == ["gb1", "long", "closed", "alice/sweep", "bob/sweep"]
        assert "5 ensembles   2 live   2 need attention   4 of 5 read" in seen.lines[0]
        assert "held by the acces" in seen.under_cursor
        assert TROUBLE in seen.text
        assert "→ 1. Free space" in seen.text
        assert "ETA 23 Nov" in seen.line(" long")
        assert "31 %" in seen.line("bob/sweep")
        assert "reading 20 MB" in seen.line("bob/sweep")
        assert "Permission denied" in seen.line("closed")
        assert "30/30" in seen.line("alice/sweep")
        assert "10 %" in seen.line("alice/sweep")


ENDS = Interval(6 * 86400.0, 9 * 86400.0, 14 * 86400.0, 40, "its epochs")
NOW = datetime(2026, 1, 1)


@pytest.mark.parametrize(
    ("live", "of", "last", "state", "eta"),
    [
        (True, "running", "2h ago", "▶ 5 running", "23 Nov (20–28 Nov)"),
        (False, "running", "47d ago", "was ▶ 5 running", "9d left on 14 Nov 2025 08:14"),
        (False, "jobs-held", "47d ago", "was ■ jobs held", "9d left on 14 Nov 2025 08:14"),
    ],
)
def test_old_line_has_no_past_end(live: bool, of: str, last: str, state: str, eta: str) -> None:
    row = summary("/data/a", of, live=live, running=5, remaining=ENDS,
                  last_event=datetime(2025, 11, 14, 6))  # fmt: skip
    (shown_row,) = rows = home_rows([row])
    drawn = {each.name: spans.text(each.draw(shown_row)) for each in columns(rows, None, NOW)}
    assert (drawn["last"], drawn["state"], drawn["eta"]) == (last, state, eta)


def test_every_step_of_the_advice_is_readable() -> None:
    first, second = HOLD_ADVICE[36, None].steps
    row = summary("/a", severity="blocked", trouble="x", headline="x " * 99, steps=(first, second))
    shown = " ".join(spans.text(each).strip() for each in detail_lines(row, None, 78))
    assert shown.endswith(f"→ 1. {first} 2. {second}")


def test_finished_line_has_its_failed_nodes_and_live_ones_are_first() -> None:
    trouble = {"trouble": TROUBLE, "headline": TROUBLE}
    rows = home_rows([
        summary("/data/done", "done", nodes_failed=3),
        summary("/data/costly", "failed", severity=Severity.COSTLY, **trouble),
        summary("/data/stopped", "failed", severity=Severity.STOPPED, **trouble),
        summary("/data/live"),
    ])  # fmt: skip
    (state,) = (each for each in columns(rows, None, NOW) if each.name == "state")
    assert spans.text(state.draw(rows[0])) == "✓ done, 3 failed"
    names = [row.name for row in sorted(rows, key=urgency)]
    assert names == ["live", "stopped", "costly", "done"]


async def test_cursor_stays_on_the_first_row_until_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EagerApp, "last_key_time", 0.0)
    home = FakeHome(ENSEMBLES[0])
    async with shown(home) as seen:
        home.give(*ENSEMBLES)
        await seen.until(lambda: "gb1" in seen.text)
        assert "gb1" in seen.under_cursor
        await seen.press("down", "down")
        assert "closed" in seen.under_cursor
        home.give(removed=("/data/alice/gb1",))
        await seen.until(lambda: "gb1" not in seen.text)
        assert "closed" in seen.under_cursor


@pytest.mark.parametrize("key", ["q", "escape"])
async def test_enter_opens_an_ensemble_and_back_returns_to_it(key: str) -> None:
    rescue, holds = (summary(FIXTURES / name, "done") for name in ("rescue", "holds"))
    async with shown(home := FakeHome(rescue, holds)) as seen:
        await seen.press("down")
        assert "rescue" in seen.under_cursor
        await seen.press("enter")
        await seen.until(lambda: "goodput" in seen.text and "rescue" in "".join(seen.lines[:3]))
        assert name_of_screen(seen.app.screen) == "overview"
        await seen.press("3", key, key) if key == "q" else await seen.press(key)
        assert name_of_screen(seen.app.screen) == "home"
        assert "rescue" in seen.under_cursor
        assert isinstance(seen.app.feed, NullFeed)
        assert home.looked_at == [rescue.path]
        await seen.press("up", "enter")
        await seen.until(lambda: "goodput" in seen.text and "holds" in "".join(seen.lines[:3]))


async def test_running_action_ends_before_its_pool_closes() -> None:
    class Pool:
        queue_snapshot = None
        closed = False

        def close(self) -> None:
            assert action.ended
            self.closed = True

    action, pool = SimpleNamespace(ended=False), Pool()
    async with shown(FakeHome(summary(FIXTURES / "rescue")), pool=pool) as seen:
        await seen.press("enter")
        await seen.until(lambda: "goodput" in seen.text)
        seen.app.running_action = action  # type: ignore[assignment]
        await seen.pilot.press("q")
        await seen.pilot.pause()
        assert name_of_screen(seen.app.screen) == "home"
        assert not pool.closed
        action.ended = True
        await seen.until(lambda: pool.closed)


async def test_unopenable_ensemble_has_a_reason() -> None:
    async with shown() as seen:
        await seen.press("enter")
        await seen.until(lambda: "no such directory" in seen.text)
        await seen.press("3")
        assert "open an ensemble first" in seen.text
        assert name_of_screen(seen.app.screen) == "home"


async def test_faults_filter_shows_only_trouble() -> None:
    async with shown() as seen:
        await seen.press("f")
        assert names(seen) == ["gb1", "closed"]
        await seen.press("f", "slash", *"alice", "enter")
        assert names(seen) == ["gb1", "long", "alice/sweep"]
    async with shown(FakeHome(ENSEMBLES[0])) as seen:
        await seen.press("f")
        assert "No ensemble needs attention." in seen.text


async def test_submitted_ensemble_is_watched_and_listed() -> None:
    async with shown(home := FakeHome(*ENSEMBLES)) as seen:
        seen.app.watch_dagdir(FIXTURES / "rescue")
        await seen.until(lambda: "goodput" in seen.text)
        assert home.request.paths == ("/data", str(FIXTURES / "rescue"))
        await seen.press("q")
        assert name_of_screen(seen.app.screen) == "home"


async def test_empty_home_explains_how_to_fill_it() -> None:
    async with shown(FakeHome()) as seen:
        assert "There is no ensemble below /data." in seen.text
        assert "[+] adds a directory to your list" in seen.text
        assert "metlmon --queue" in seen.text


async def test_remote_directory_is_added_once_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(word: str, *, ask: bool) -> str:
        assert not ask
        if word.startswith("none:"):
            raise UnusableMachine("none: ssh: Could not resolve hostname none")
        return "/ap40:/home/alice/runs"

    messages: list[str] = []
    monkeypatch.setattr(HomeScreen, "show_message", lambda _, text: messages.append(text))
    monkeypatch.setattr(machine, "connect_to", connect)
    monkeypatch.setattr(paths, "HOSTS", {"ap40"})
    home = FakeHome(*ENSEMBLES)
    async with shown(home) as seen:
        await seen.press("plus", *"none:runs", "enter")
        await seen.until(lambda: messages == ["none: ssh: Could not resolve hostname none"])
        await seen.press("plus", *"ap40:runs", "enter")
        await seen.until(lambda: "added to your list: ap40:/home/alice/runs" in messages)
    assert home.request.paths == ("/data", "/ap40:/home/alice/runs")


async def test_directory_is_added_and_removed() -> None:
    home = FakeHome(*ENSEMBLES)
    async with shown(home) as seen:
        await seen.press("minus")
        assert "not in your list" in seen.text
        await seen.press("plus", *"/data/alice", "enter")
        assert load_list() == ("/data/alice",)
        assert home.request.paths == ("/data", "/data/alice")
        await seen.press("plus", *"/data/x", "escape")
        assert load_list() == ("/data/alice",)
        await seen.press("minus")
        assert "with 3 ensembles" in seen.text
        assert load_list() == ("/data/alice",)
        await seen.press("minus")
        assert load_list() == ()
        assert home.request.paths == ("/data",)


async def test_read_only_home_saves_no_list() -> None:
    save_list(["/data/alice"])
    home = FakeHome(*ENSEMBLES)
    async with shown(home, remember=False) as seen:
        await seen.press("plus", *"/data/bob", "enter")
        assert home.request.paths == ("/data", "/data/bob")
        await seen.press("minus")
        assert "read-only here" in seen.text
    assert load_list() == ("/data/alice",)


def test_damaged_list_is_ignored(tmp_path: Path) -> None:
    assert save_list(["/a", "relative"])
    assert load_list() == ("/a",)
    file = tmp_path / "state/metlmon/home.json"
    for content in (b"", b"[]", b"\xff", b"[" * 9999):
        file.write_bytes(content)
        assert load_list() == ()
