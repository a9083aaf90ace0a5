"""Changes since a time: counted independently in the logs, printed, and on the screen."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.cli.reading import input_with_trainings
from metlmon.health.build import make_health
from metlmon.health.changes import Change, ChangeKind, Changes, changes_since, since_seen
from metlmon.live.feed import StatsInput
from metlmon.stats.estimates import make_forecast
from metlmon.tables.changes import estimate_text
from screens.changes import ChangesScreen
from tests.support.commands import Captured, json_output, text_output
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Log
from tests.support.recordings import FIXTURES
from tests.support.recordings import opened as read
from tests.support.records import read_dagdir, stats_input
from tests.support.static_sessions import opened, session

EVENT = re.compile(
    r"^(\d{3}) \(\d+\.\d+\.\d+\) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(.*(?:\n\t.*)?)", re.M
)
MIDDLE = {
    "holds": datetime(2026, 11, 21, 9, 42, 40),
    "demo": datetime(2026, 11, 21, 9, 45),
    "rescue": datetime(2026, 11, 21, 9, 43, 50),
}
CASES = [(name, since) for name, middle in MIDDLE.items() for since in (datetime.min, middle)]


@cache
def input_of(name: str) -> StatsInput:
    return input_with_trainings(read(FIXTURES / name))


def changes_of(name: str, since: datetime) -> Changes:
    return changes_since(input_of(name), since)


def total(changes: Changes, *kinds: ChangeKind) -> int:
    return sum(change.number for change in changes.changes if change.kind in kinds)


def logged(log: Path, since: datetime) -> Counter[str]:
    """The numbers of job events in this log after a time; 005 with ``!`` of failed jobs."""
    counted: Counter[str] = Counter()
    for number, time, rest in EVENT.findall(log.read_text()):
        if datetime.fromisoformat(time) > since:
            failed = number == "005" and "(return value 0)" not in rest
            counted[number + "!" * failed] += 1
    return counted


@pytest.mark.parametrize(("name", "since"), CASES)
def test_counts_agree_with_the_events(name: str, since: datetime) -> None:
    events = logged(FIXTURES / name / "metl.log", since)
    changes = changes_of(name, since)
    assert sum(events.values()) > 0
    assert total(changes, ChangeKind.SUBMITTED) == events["000"]
    assert total(changes, ChangeKind.HELD) == events["012"]
    assert total(changes, ChangeKind.RELEASED) == events["013"]
    assert total(changes, ChangeKind.REMOVED) == events["009"]
    assert total(changes, ChangeKind.FAILED) == events["005!"]
    ended = total(changes, ChangeKind.DONE, ChangeKind.FINISHED, ChangeKind.JOB_DONE)
    assert ended == events["005"]
    assert all(change.first > since for change in changes.changes)
    kinds = [change.kind for change in changes.changes]
    assert kinds == [kind for kind in ChangeKind for _ in range(kinds.count(kind))], "trouble first"


def test_each_dagman_has_its_start_and_end() -> None:
    lives = [c for c in changes_of("rescue", datetime.min).changes if c.kind.startswith("dagman")]
    lives.sort(key=lambda change: change.first)
    assert [re.sub(r" \(job \d+\)", "", change.text) for change in lives] == [
        "from the beginning",
        "removed, wrote ens.dag.rescue001",
        "from ens.dag.rescue001",
        "failed, wrote ens.dag.rescue002",
        "from ens.dag.rescue002",
        "done",
    ]


def test_failure_has_the_words_of_health() -> None:
    """Of jobs whose output says nothing about it."""
    changes = changes_of("first-round", datetime.min)
    failed = {each.text for each in changes.changes if each.kind is ChangeKind.FAILED}
    health = {each.text for each in make_health(input_of("first-round")).entries}
    assert failed
    assert failed <= health


def test_new_best_names_the_former_one() -> None:
    def best(since: datetime) -> Change:
        changes = changes_of("first-round", since).changes
        return next(c for c in changes if c.kind is ChangeKind.BEST)

    whole, late = best(datetime.min), best(datetime(2025, 12, 1))
    assert whole.text == "val_loss 0.1926", "there was none before"
    assert late.text == "val_loss 0.1926, was 0.1958 (control4 epoch 30)"
    changes = changes_of("first-round", late.last).changes
    assert not [c for c in changes if c.kind is ChangeKind.BEST]


def test_seen_changes_are_not_new() -> None:
    changes = changes_of("demo", MIDDLE["demo"])
    assert since_seen(changes).startswith("since 21 Nov 09:45: ")
    assert since_seen(replace(changes, changes=())) == ""
    assert changes.as_of is not None
    assert since_seen(changes_of("demo", changes.as_of)) == ""


def test_command_has_the_estimate_then_and_now(capsys: Captured) -> None:
    dagdir, since = str(FIXTURES / "rescue"), "2026-11-21 09:43:50"
    output = json_output("changes", capsys, dagdir, "--since", since)
    then = json_output("estimate", capsys, dagdir, "--as-of", since)["estimate"]
    assert output["estimate_then"] == then
    assert output["estimate_now"] == json_output("estimate", capsys, dagdir)["estimate"]
    printed = text_output("changes", capsys, dagdir, "--since", since)
    assert ", was 21 Nov 09:44 (" in printed.splitlines()[1]
    for change in output["changes"]:
        assert change["text"] in printed


@pytest.mark.parametrize("since", [None, "30d"])
def test_no_estimate_before_the_first_event(capsys: Captured, since: str | None) -> None:
    """The default is a day before the newest event, whatever the date."""
    words = [] if since is None else ["--since", since]
    output = json_output("changes", capsys, str(FIXTURES / "demo"), *words)
    days = 1 if since is None else 30
    period = datetime.fromisoformat(output["as_of"]) - datetime.fromisoformat(output["since"])
    assert period == timedelta(days=days)
    assert output["estimate_then"] is None


def test_known_estimate_is_shown_and_only_once_if_unchanged() -> None:
    forecast = make_forecast(input_of("demo"))
    late = replace(forecast, completed_at=datetime(2026, 11, 21, 9, 45), missing_reason=None)
    assert estimate_text(late, late) == "done 21 Nov 09:45"
    assert estimate_text(forecast, forecast) == "", "neither is known"
    assert estimate_text(late, forecast) == "ETA unknown, was done 21 Nov 09:45"


async def test_screen_lists_changes_since_the_last_look() -> None:
    feed = session(FIXTURES / "demo")
    async with opened(feed, (80, 24)) as seen:  # type: ignore[arg-type]
        seen.app.absence.last_look.since = MIDDLE["demo"]
        await seen.press("9")
        assert isinstance(seen.app.screen, ChangesScreen)
        assert "since 21 Nov 09:45, when you last looked" in seen.lines[0]
        await seen.until(lambda: ", was " in seen.text)
        assert "1 new best" in seen.text
        await seen.press("slash", *"best", "enter")
        assert "new best" in seen.under_cursor
        await seen.press("escape", "v")
        assert "a day before the newest event" in seen.lines[0]
        await seen.press("v", "v")
        assert "from the beginning" in seen.lines[0]
        await seen.press("v")
        assert "when you last looked" in seen.lines[0]


def test_hold_of_dagman_is_a_change_after_its_release(tmp_path: Path) -> None:
    """A released job may be logged as running before its 013, which may be missing."""
    log = Log().submit(50).execute(50).hold(50, reason="big").execute(50).release(50).hold(50)
    Dagdir(tmp_path).write("run.dag.dagman.log", log.hold(50).remove(50).data)
    found = changes_since(stats_input(read_dagdir(tmp_path)), datetime.min).changes
    numbers = {(each.kind.value, each.text): each.number for each in found}
    big, ada = "DAGMan itself: big", "DAGMan itself: via condor_hold (by user ada)"
    assert numbers["held", big] == numbers["released", big] == 1
    assert (numbers["held", ada], numbers["released", ada]) == (2, 1)
