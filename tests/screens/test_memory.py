"""Screens that were opened and closed leave nothing behind, and a look at the files neither."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path

import pytest
from rich.cells import cached_cell_len, cell_len
from textual._styles_cache import StylesCache
from textual.dom import DOMNode

from tests.support.fake_pool import QueuedFeed
from tests.support.sample_snapshots import update
from tests.support.screen_view import NARROW, Eager, Seen, visit_all

ROUNDS = 2


def counted() -> Counter[str]:
    """Widgets and what Textual keeps of them, by their class."""
    gc.collect()
    found = (each for each in gc.get_objects() if isinstance(each, DOMNode | StylesCache))
    return Counter(type(each).__name__ for each in found)


async def test_closed_screens_are_forgotten() -> None:
    feed = QueuedFeed(update(), Path("/nowhere/global_pretraining"))
    app = Eager(feed)
    async with app.run_test(size=NARROW) as pilot:
        seen = Seen(app, feed, pilot)
        await visit_all(seen.press)
        await seen.publish(update())
        before = counted()
        for _ in range(ROUNDS):
            await visit_all(seen.press)
            await seen.publish(update())
        more = counted() - before
    # One screen may still be closing: its caches are as many as its widgets.
    caches = more.pop(StylesCache.__name__, 0)
    assert {name: n for name, n in more.items() if n >= ROUNDS} == {}
    assert caches < more.total() + ROUNDS


async def test_widths_of_past_texts_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("screens.app.RELEASE_AFTER", 3)
    feed = QueuedFeed(update(), Path("/nowhere/global_pretraining"))
    app = Eager(feed)
    async with app.run_test(size=NARROW) as pilot:
        seen = Seen(app, feed, pilot)
        cell_len("a text of long ago")
        before = cached_cell_len.cache_info().hits
        cell_len("a text of long ago")
        assert cached_cell_len.cache_info().hits == before + 1
        for _ in range(3):
            await seen.publish(update())
        before = cached_cell_len.cache_info().misses
        cell_len("a text of long ago")
        assert cached_cell_len.cache_info().misses == before + 1
