"""When the dashboard says what has changed, and what it takes for seen."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.health.last_seen import load_last_seen
from metlmon.model.states import State
from metlmon.snapshot.records import Status
from screens.app import AppOptions
from screens.base import absence
from screens.base.absence import LastLook
from tests.support.sample_snapshots import RUNS, FakeFeed, status, update
from tests.support.screen_view import NARROW, WIDE, opened

START = datetime(2025, 11, 14, 8, 14)
HELD = status((*RUNS[:8], replace(RUNS[8], state=State.HELD), *RUNS[9:]))
LINE = "since 14 Nov 08:14: 1 run held"


class Clock:
    """A clock that the test sets; ``look`` starts a session at its time."""

    def __init__(self, dagdir: Path) -> None:
        self.seconds, self.dagdir = 0.0, dagdir

    def look(self) -> LastLook:
        look = LastLook(lambda: self.seconds, lambda: START + timedelta(seconds=self.seconds))
        look.load(self.dagdir)
        return look


@pytest.fixture(name="clock")
def _clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Clock(tmp_path / "dagdir")


def seen_before(clock: Clock, before: Status) -> LastLook:
    """A session a day after one in which somebody saw ``before``."""
    first = clock.look()
    assert first.show(before) == "", "nobody has looked before"
    first.save()
    clock.seconds += 86400
    return clock.look()


def test_the_next_session_says_what_is_new_for_a_minute(clock: Clock) -> None:
    look = seen_before(clock, status())
    assert look.show(HELD) == LINE
    clock.seconds += 59
    assert look.show(HELD) == LINE
    clock.seconds += 2
    assert look.show(HELD) == ""


def test_a_key_dismisses_it_once_it_could_be_read(clock: Clock) -> None:
    look = seen_before(clock, status())
    look.show(HELD)
    clock.seconds += 1
    look.record_input()
    assert look.show(HELD) == LINE
    clock.seconds += 2
    look.record_input()
    assert look.show(HELD) == ""


def test_whoever_comes_back_to_an_open_dashboard_sees_it_with_the_first_key(
    clock: Clock,
) -> None:
    look = clock.look()
    look.show(status())
    clock.seconds = 7200
    assert look.show(HELD) == "", "nobody is there"
    look.record_input()
    assert look.show(HELD) == LINE


def test_what_happens_while_nobody_looks_is_not_seen(clock: Clock) -> None:
    look = clock.look()
    look.show(status())
    assert not look.has_ended
    clock.seconds = 61
    look.show(HELD)
    assert look.has_ended
    look.save()
    remembered = load_last_seen(clock.dagdir)
    assert remembered is not None
    assert remembered.seen_at == START
    assert RUNS[8].key not in remembered.runs
    assert not look.has_ended


@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_the_overview_shows_it_below_the_runs_up_to_the_next_key(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    monkeypatch.setattr(absence, "READ_SECONDS", 0.0)
    seen_before(clock, status())
    feed = FakeFeed(update(replace(HELD, dagdir=str(clock.dagdir))))
    async with opened(feed, size, AppOptions(remember_seen=True)) as seen:
        head = next(n for n, text in enumerate(seen.lines) if " PROGRESS " in text)
        (line,) = (n for n, text in enumerate(seen.lines) if "since 14 Nov" in text)
        assert "08:14: 1 run held" in seen.lines[line]
        assert line > head
        await seen.press("down")
        assert "since 14 Nov" not in seen.text
