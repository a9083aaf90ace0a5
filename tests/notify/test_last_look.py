"""When the dashboard lists changes, which it takes as seen, and where that is stored."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.config import user_state
from metlmon.health.changes import (
    PURPOSE,
    Change,
    ChangeKind,
    Changes,
    LastSeen,
    load_last_seen,
    seen,
)
from metlmon.snapshot.records import Hold
from screens import app as application
from screens.app import AppOptions, LastLook
from tests.support.sample_snapshots import AS_OF, FakeFeed, ledger, status, update
from tests.support.screen_view import NARROW, WIDE, opened

LATER = replace(status(), as_of=AS_OF + timedelta(days=1))
LINE = "since 14 Nov 08:14: 1 hold"


def changes_since(since: datetime) -> Changes:
    """One hold, an hour after the last look."""
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
def _clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path / "dagdir")


def seen_before(clock: Clock) -> LastLook:
    """A session a day after one with a look."""
    first = clock.look()
    assert first.show(status(), changes_since) == "", "nobody has looked before"
    first.save()
    clock.seconds += 86400
    return clock.look()


def test_next_session_shows_changes_for_a_minute(clock: Clock) -> None:
    look = seen_before(clock)
    assert look.show(LATER, lambda wanted: None) == "", "it is being added up"
    clock.seconds += 30
    assert look.show(LATER, changes_since) == LINE
    clock.seconds += 59
    assert look.show(LATER, changes_since) == LINE
    clock.seconds += 2
    assert look.show(LATER, changes_since) == ""
    assert look.since == AS_OF, "the screen of changes goes on from there"


def test_key_dismisses_changes_after_a_moment(clock: Clock) -> None:
    look = seen_before(clock)
    look.show(LATER, changes_since)
    clock.seconds += 1
    look.record_input()
    assert look.show(LATER, changes_since) == LINE
    clock.seconds += 2
    look.record_input()
    assert look.show(LATER, changes_since) == ""


def test_first_key_after_a_pause_shows_changes(clock: Clock) -> None:
    look = clock.look()
    look.show(status(), changes_since)
    clock.seconds = 7200
    assert look.show(LATER, changes_since) == "", "nobody is there"
    look.record_input()
    assert look.show(LATER, changes_since) == LINE


def test_changes_without_keys_are_not_seen(clock: Clock) -> None:
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
async def test_overview_shows_changes_until_the_next_key(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    monkeypatch.setattr(application, "READ_SECONDS", 0.0)
    seen_before(clock)
    feed = FakeFeed(update(replace(LATER, dagdir=str(clock.dagdir))))
    hold = Hold(AS_OF + timedelta(hours=1), None, 60.0, 1, 0, "held", None, None)
    held = replace(ledger(feed.latest).jobs[0], holds=(hold,))
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


# --- where it is remembered how far the user has seen an ensemble -----------------------------


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_record_is_outside_the_dagdir(tmp_path: Path) -> None:
    dagdir, link = tmp_path / "dagdir", tmp_path / "link"
    dagdir.mkdir()
    link.symlink_to(dagdir)
    assert load_last_seen(dagdir) is None
    assert user_state.write_state(user_state.state_path(PURPOSE, dagdir), seen(status()))
    assert load_last_seen(link) == LastSeen(AS_OF), "it is the same directory"
    assert load_last_seen(tmp_path) is None
    assert list(dagdir.iterdir()) == []
    (file,) = (tmp_path / "state/metlmon/seen").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_end_of_dagman_after_the_newest_event_is_seen() -> None:
    ended = AS_OF + timedelta(seconds=2)
    made = status(live=False)
    assert seen(replace(made, dags=(replace(made.dags[0], ended=ended),))) == LastSeen(ended)


def test_record_writable_by_others_is_not_read(tmp_path: Path) -> None:
    path = user_state.state_path("seen", tmp_path / "dagdir")
    assert path is not None
    user_state.write_state(path, {"a": 1})
    assert user_state.read_state(path, dict[str, int]) == {"a": 1}
    path.chmod(0o666)
    assert user_state.read_state(path, dict[str, int]) is None
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text('{"a": 1}')
    assert user_state.read_state(path, dict[str, int]) is None
    path.unlink()
    path.write_bytes(b"\xff{")
    assert user_state.read_state(path, dict[str, int]) is None, "damaged"


def test_number_and_size_of_records_are_bounded(tmp_path: Path) -> None:
    path = user_state.state_path("seen", tmp_path / "dagdir")
    assert path is not None
    assert not user_state.write_state(path, "x" * user_state.MAX_STATE_BYTES)
    assert user_state.write_state(path, "first")
    for number in range(user_state.MAX_FILES):
        file = path.with_name(f"{number:032}.json")
        file.touch()
        os.utime(file, (1, 1 + number))
    assert user_state.write_state(path, "second")
    names = {file.name for file in path.parent.iterdir()}
    assert len(names) == user_state.MAX_FILES
    assert path.name in names
    assert f"{0:032}.json" not in names


def test_lock_is_exclusive(tmp_path: Path) -> None:
    path = user_state.state_path("seen", tmp_path / "dagdir")
    assert path is not None
    with user_state.state_lock(path) as first, user_state.state_lock(path) as second:
        assert (first, second) == (True, False)
    with user_state.state_lock(path) as third:
        assert third
