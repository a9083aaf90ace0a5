"""Each screen as a picture, small and large. Look at a difference before you accept it:
``pytest tests/screens/test_snapshots.py --snapshot-update`` takes new pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from metlmon.live.feed import NullFeed
from screens.app import AppOptions
from tests.support.fake_home import ENSEMBLES, FakeHome
from tests.support.sample_snapshots import FakeFeed, update
from tests.support.screen_view import NARROW, WIDE, Eager, pressed

WAYS = {
    "overview": (),
    "run": ("down", "enter"),
    "job": ("down", "enter", "enter"),
    "health": ("2",),
    "annexes": ("3", "3"),
    "inputs": ("exclamation_mark",),
    "help": ("question_mark",),
    "palette": ("colon",),
}


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "200x50"])
@pytest.mark.parametrize("screen", WAYS)
def test_screen(snap_compare, screen: str, size: tuple[int, int]) -> None:  # type: ignore[no-untyped-def]
    app = Eager(FakeFeed(update(), Path("/nowhere/global_pretraining")))
    assert snap_compare(app, terminal_size=size, run_before=pressed(WAYS[screen]))


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "200x50"])
def test_home(snap_compare, size: tuple[int, int]) -> None:  # type: ignore[no-untyped-def]
    feed = NullFeed(Path("/data"))
    app = Eager(feed, AppOptions(home=FakeHome(*ENSEMBLES)))  # type: ignore[arg-type]
    assert snap_compare(app, terminal_size=size, run_before=pressed(()))


def test_screen_in_ascii(snap_compare) -> None:  # type: ignore[no-untyped-def]
    app = Eager(FakeFeed(update(), Path("/nowhere/x")), AppOptions(ascii=True))
    assert snap_compare(app, terminal_size=(120, 30), run_before=pressed(()))


def test_screen_on_light(snap_compare) -> None:  # type: ignore[no-untyped-def]
    app = Eager(FakeFeed(update(), Path("/nowhere/x")))
    assert snap_compare(app, terminal_size=(120, 30), run_before=pressed(("ctrl+t",)))
