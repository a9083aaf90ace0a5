"""When the dashboard says what has changed, and what it takes for seen."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.health.changes import (
    Change,
    ChangeKind,
    Changes,
    LastSeen,
    load_last_seen,
)
from metlmon.snapshot.records import Hold
from screens.app import AppOptions
from screens.base import absence
from screens.base.absence import LastLook
from tests.support.sample_snapshots import AS_OF, FakeFeed, ledger, status, update
from tests.support.screen_view import NARROW, WIDE, opened

LATER = replace(status(), as_of=AS_OF + timedelta(days=1))
LINE = "since 14 Nov 08:14: 1 hold"


def changes_since(since: datetime) -> Changes:
    """One hold, an hour after somebody looked."""
    time = AS_OF + timedelta(hours=1)
    hold = Change(kind=ChangeKind.HELD, first=time, last=time, number=1, text="held by ml")
    found = (hold,) if time > since else ()
    return Changes(since, LATER.as_of, "epoch", found)


class Clock:
    """A clock that the test sets; ``look`` starts a session at its time."""

    def __init__(self, dagdir: Path) -> None:
        self.seconds, self.dagdir = 0.0, dagdir

    def look(self) -> LastLook:
        look = LastLook(lambda: self.seconds)
        look.load(self.dagdir)
        return look


@pytest.fixture(name="clock")
def _clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Clock(tmp_path / "dagdir")


def hold_at(time: datetime) -> Hold:
    return Hold(time, None, 60.0, 1, 0, "held", None, None)


def seen_before(clock: Clock) -> LastLook:
    """A session a day after one in which somebody looked."""
    first = clock.look()
    assert first.show(status(), changes_since) == "", "nobody has looked before"
    first.save()
    clock.seconds += 86400
    return clock.look()


def test_the_next_session_says_what_is_new_for_a_minute(clock: Clock) -> None:
    look = seen_before(clock)
    assert look.show(LATER, lambda wanted: None) == "", "it is being added up"
    clock.seconds += 30
    assert look.show(LATER, changes_since) == LINE
    clock.seconds += 59
    assert look.show(LATER, changes_since) == LINE
    clock.seconds += 2
    assert look.show(LATER, changes_since) == ""
    assert look.since == AS_OF, "the screen of changes goes on from there"


def test_a_key_dismisses_it_once_it_could_be_read(clock: Clock) -> None:
    look = seen_before(clock)
    look.show(LATER, changes_since)
    clock.seconds += 1
    look.record_input()
    assert look.show(LATER, changes_since) == LINE
    clock.seconds += 2
    look.record_input()
    assert look.show(LATER, changes_since) == ""


def test_whoever_comes_back_to_an_open_dashboard_sees_it_with_the_first_key(
    clock: Clock,
) -> None:
    look = clock.look()
    look.show(status(), changes_since)
    clock.seconds = 7200
    assert look.show(LATER, changes_since) == "", "nobody is there"
    look.record_input()
    assert look.show(LATER, changes_since) == LINE


def test_what_happens_while_nobody_looks_is_not_seen(clock: Clock) -> None:
    look = clock.look()
    look.show(status(), changes_since)
    assert not look.has_ended
    clock.seconds = 61
    look.show(LATER, changes_since)
    assert look.has_ended
    look.save()
    assert load_last_seen(clock.dagdir) == LastSeen(AS_OF)
    assert not look.has_ended


@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_the_overview_shows_it_below_the_runs_up_to_the_next_key(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    monkeypatch.setattr(absence, "READ_SECONDS", 0.0)
    seen_before(clock)
    feed = FakeFeed(update(replace(LATER, dagdir=str(clock.dagdir))))
    held = replace(ledger(feed.latest).jobs[0], holds=(hold_at(AS_OF + timedelta(hours=1)),))
    feed.book = replace(ledger(feed.latest), jobs=(held,))
    async with opened(feed, size, AppOptions(remember_seen=True)) as seen:
        head = next(n for n, text in enumerate(seen.lines) if " PROGRESS " in text)
        (line,) = (n for n, text in enumerate(seen.lines) if "since 14 Nov" in text)
        assert "[9] since 14 Nov 08:14: 1 hold" in seen.lines[line]
        assert line > head
        await seen.press("down")
        assert "since 14 Nov" not in seen.text
        await seen.press("9")
        assert "since 14 Nov 08:14, when you last looked" in seen.text
