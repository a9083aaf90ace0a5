"""Errors that nobody foresaw: the screen says it, the rest goes on, and what failed comes back."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from time import monotonic

import pytest
from rich.cells import cached_cell_len, cell_len
from textual._styles_cache import StylesCache
from textual.dom import DOMNode

from metlmon.errors import describe_error, format_traceback
from metlmon.model.states import State
from screens.app import AppOptions
from screens.base.fault_tolerant_app import ERROR_LIMIT
from screens.overview.screen import OverviewScreen
from screens.widgets.footer import KeyFooter
from screens.widgets.table import Table
from tests.support.fake_pool import FakePool, QueuedFeed
from tests.support.sample_snapshots import FakeFeed, run, status, update
from tests.support.screen_view import NARROW, Eager, Seen, opened, visit_all

HOSTILE = "\x1b]0;owned\x07 [red]m[/] \u202e API_KEY=abcdefgh1234567890abcdefgh"
ERRORS = [
    RuntimeError(HOSTILE),
    MemoryError(),
    RecursionError("maximum recursion depth exceeded"),
    KeyError(HOSTILE),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, HOSTILE),
    OSError(5, HOSTILE),
]


class Unspeakable(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise ValueError


class Tough(Eager):
    """Under this pilot an error that was borne is not raised again."""

    def record_error(self, error: Exception) -> None:
        """It is what the test is about."""


def tough(
    feed: FakeFeed | None = None, options: AppOptions | None = None
) -> AbstractAsyncContextManager[Seen]:
    return opened(feed or FakeFeed(update()), (120, 24), options, Tough)


def failing(error: BaseException) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


# --- the sentence -------------------------------------------------------------------------


@pytest.mark.parametrize("error", [*ERRORS, Unspeakable()], ids=lambda e: type(e).__name__)
def test_the_sentence_is_one_line_that_no_terminal_obeys(error: Exception) -> None:
    try:
        raise error
    except Exception as caught:
        result = [describe_error("drawing failed", caught), *format_traceback(caught)]
    for each in result:
        assert each.isprintable()
        assert "\u202e" not in each
        assert "abcdefgh1234567890" not in each, "a key is hidden"
    assert result[0].startswith("drawing failed: ")
    assert result[0].endswith("please report this")
    assert "test_mishaps.py:" in result[0]


def test_a_long_text_keeps_the_place_and_what_to_do() -> None:
    result = describe_error("drawing failed", ValueError("x" * 10**6))
    assert len(result) <= 300
    assert result.endswith("please report this")


# --- the screen ---------------------------------------------------------------------------


@pytest.mark.parametrize("error", ERRORS[:2], ids=lambda e: type(e).__name__)
async def test_a_screen_that_fails_says_so_and_comes_back(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async with tough() as seen:
        whole = OverviewScreen.show
        monkeypatch.setattr(OverviewScreen, "show", failing(error))
        await seen.publish(update(status((run("newer", 1, 30, State.RUNNING),))))
        assert "this screen failed and is tried again" in seen.lines[0]
        assert "\x1b" not in seen.text
        # Another screen is not harmed.
        await seen.press("question_mark")
        assert "Keys and signs" in seen.text
        assert "is tried again" not in seen.text
        await seen.press("escape")
        monkeypatch.setattr(OverviewScreen, "show", whole)
        await seen.publish(update(status((run("newest", 1, 30, State.RUNNING),))))
        assert "is tried again" not in seen.text
        assert "newest" in seen.text


@pytest.mark.parametrize("where", ["action", "line", "row", "timer", "later", "worker", "message"])
async def test_wherever_it_fails_the_next_keys_work(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    fail = failing(RuntimeError("broke"))
    async with tough() as seen:
        screen = seen.app.screen
        with monkeypatch.context() as broken:
            if where == "action":
                broken.setattr(OverviewScreen, "action_sort", fail)
                await seen.press("s")
            elif where == "line":
                broken.setattr(KeyFooter, "line_at", fail)
                screen.query_one(KeyFooter).refresh()
            elif where == "row":
                broken.setattr(Table, "render_state", fail)
                screen.query_one(Table).refresh()
            elif where == "timer":
                screen.set_timer(0.001, fail)
            elif where == "later":
                screen.call_later(fail)
            elif where == "worker":
                screen.run_worker(fail, thread=True)
            else:
                broken.setattr(Table, "on_resize", fail, raising=False)
                await seen.pilot.resize_terminal(*NARROW)
            for _ in range(50):
                if "broke" in seen.text:
                    break
                await seen.settle()
            assert "broke" in seen.lines[0], seen.text
            assert "please report this" in seen.app.banners[0]
        await seen.press("down", "s")
        assert "broke" not in seen.text, "a key takes it away"
        await seen.press("question_mark")
        assert "Keys and signs" in seen.text


async def test_after_too_many_errors_it_ends_with_a_word() -> None:
    async with tough() as seen:
        seen.app._failed_at = [monotonic() - 1] * ERROR_LIMIT
        seen.app._handle_exception(RuntimeError(HOSTILE))
        (result,) = seen.app.exit_messages
        assert result.startswith("metlmon: ended by an error: RuntimeError")
        assert result.isprintable()
    assert seen.app.return_code == 70


async def test_the_keyboard_interrupts_also_where_the_palette_is_open() -> None:
    async with tough() as seen:
        await seen.press("colon")
        await seen.pilot.press("ctrl+c")
        await seen.pilot.pause()
    assert seen.app.return_code == 130


@pytest.mark.parametrize("error", ERRORS[:2], ids=lambda e: type(e).__name__)
async def test_an_act_that_breaks_off_is_reported_with_what_was_done(error: Exception) -> None:
    pool = FakePool()
    pool.error = error
    async with tough(QueuedFeed(update()), AppOptions(pool_actions=pool)) as seen:
        await seen.press("down", "space", "space", "a", "X", "y")
        assert seen.app.running_action.ended, "others can be done"
        assert "it broke off" in (seen.app.running_action.error or "")
        assert not seen.app.pending_task
        assert seen.app.action_refusal() is None


# --- Screens that were opened and closed leave nothing behind, and a look at the files neither ---


def living() -> Counter[str]:
    """Widgets and what Textual keeps of them, by their class."""
    gc.collect()
    found = (each for each in gc.get_objects() if isinstance(each, DOMNode | StylesCache))
    return Counter(type(each).__name__ for each in found)


async def test_closed_screens_are_forgotten() -> None:
    counts = []
    async with opened(QueuedFeed(update()), NARROW) as seen:
        for _ in range(3):
            await visit_all(seen.press)
            # A busy program closes the last screens later.
            for _ in range(5):
                await seen.publish(update())
            counts.append(living())
    first, second, third = counts
    # A screen that is still closing is there after one round, one that leaks after each.
    assert set(second - first) & set(third - second) == set()


async def test_widths_of_past_texts_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("screens.app.RELEASE_AFTER", 3)
    async with opened(QueuedFeed(update()), NARROW) as seen:
        cell_len("a text of long ago")
        before = cached_cell_len.cache_info().hits
        cell_len("a text of long ago")
        assert cached_cell_len.cache_info().hits == before + 1
        for _ in range(3):
            await seen.publish(update())
        before = cached_cell_len.cache_info().misses
        cell_len("a text of long ago")
        assert cached_cell_len.cache_info().misses == before + 1
