"""Unforeseen errors: the screen reports them, the rest goes on, and the failed part recovers."""

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
from screens.app import ERROR_LIMIT
from screens.base.screens import KeyFooter
from screens.overview import OverviewScreen
from screens.widgets.line_widget import Table
from tests.support.fake_pool import FakePool, QueuedFeed
from tests.support.sample_snapshots import FakeFeed, run, status, update
from tests.support.screen_view import NARROW, EagerApp, RunningApp, opened, visit_all

HOSTILE = "\x1b]0;owned\x07 [red]m[/] \u202e API_KEY=abcdefgh1234567890abcdefgh"
ERRORS = [
    RuntimeError(HOSTILE),
    MemoryError(),
    RecursionError("maximum recursion depth exceeded"),
    KeyError(HOSTILE),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, HOSTILE),
    OSError(5, HOSTILE),
]


class UnspeakableError(Exception):
    """An error whose text raises an error."""

    def __str__(self) -> str:
        raise ValueError


class ToughApp(EagerApp):
    """Under this pilot a handled error is not raised again."""

    PAINTS = True

    def record_error(self, error: Exception) -> None:
        """Keep it: the test is about it."""


def tough(
    feed: FakeFeed | None = None, pool: FakePool | None = None
) -> AbstractAsyncContextManager[RunningApp]:
    return opened(feed or FakeFeed(update()), (120, 24), app_type=ToughApp, pool=pool)


def failing(error: BaseException) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


# --- the sentence -------------------------------------------------------------------------


@pytest.mark.parametrize("error", [*ERRORS, UnspeakableError()], ids=lambda e: type(e).__name__)
def test_message_is_one_line_without_control_characters(error: Exception) -> None:
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


def test_long_message_keeps_place_and_advice() -> None:
    result = describe_error("drawing failed", ValueError("x" * 10**6))
    assert len(result) <= 300
    assert result.endswith("please report this")


# --- the screen ---------------------------------------------------------------------------


@pytest.mark.parametrize("error", ERRORS[:2], ids=lambda e: type(e).__name__)
async def test_failed_screen_is_reported_and_recovers(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async with tough() as seen:
        whole = OverviewScreen.show
        monkeypatch.setattr(OverviewScreen, "show", failing(error))
        await seen.publish(update(status((run("newer", 1, 30, State.RUNNING),))))
        assert "this screen failed and is tried again" in seen.lines[0]
        assert "\x1b" not in seen.text
        # Other screens work.
        await seen.press("question_mark")
        assert "Keys and signs" in seen.text
        assert "is tried again" not in seen.text
        await seen.press("escape")
        monkeypatch.setattr(OverviewScreen, "show", whole)
        await seen.publish(update(status((run("newest", 1, 30, State.RUNNING),))))
        assert "is tried again" not in seen.text
        assert "newest" in seen.text


@pytest.mark.parametrize("where", ["action", "line", "row", "timer", "later", "worker", "message"])
async def test_keys_work_after_an_error_anywhere(
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
            await seen.until(lambda: "broke" in seen.lines[0])
            assert "please report this" in seen.app.banners[0]
        await seen.press("down", "s")
        assert "broke" not in seen.text, "a key takes it away"
        await seen.press("question_mark")
        assert "Keys and signs" in seen.text


async def test_too_many_errors_end_the_program_with_a_message() -> None:
    async with tough() as seen:
        seen.app._failed_at = [monotonic() - 1] * ERROR_LIMIT
        seen.app._handle_exception(RuntimeError(HOSTILE))
        (result,) = seen.app.exit_messages
        assert result.startswith("metlmon: ended by an error: RuntimeError")
        assert result.isprintable()
    assert seen.app.return_code == 70


async def test_ctrl_c_works_in_the_palette() -> None:
    async with tough() as seen:
        await seen.press("colon")
        await seen.pilot.press("ctrl+c")
        await seen.pilot.pause()
    assert seen.app.return_code == 130


@pytest.mark.parametrize("error", ERRORS[:2], ids=lambda e: type(e).__name__)
async def test_aborted_action_is_reported_with_its_effects(error: Exception) -> None:
    pool = FakePool()
    pool.error = error
    async with tough(QueuedFeed(update()), pool) as seen:
        await seen.press("down", "space", "space", "a", "X", "y")
        assert seen.app.running_action.ended, "others can be done"
        assert "it broke off" in (seen.app.running_action.error or "")
        assert not seen.app.pending_task
        assert seen.app.action_refusal() is None


# --- closed screens and checked files leave no objects -------------------------------------------


def living() -> Counter[str]:
    """The number of widgets and of Textual's objects for them, by class."""
    gc.collect()
    found = (each for each in gc.get_objects() if isinstance(each, DOMNode | StylesCache))
    return Counter(type(each).__name__ for each in found)


async def test_closed_screens_are_freed() -> None:
    counts = []
    async with opened(QueuedFeed(update()), NARROW) as seen:
        for _ in range(3):
            await visit_all(seen.press)
            # A busy program closes the last screens later.
            for _ in range(5):
                await seen.publish(update())
            counts.append(living())
    first, second, third = counts
    # A closing screen may exist after one round, a leaked one after each.
    assert set(second - first) & set(third - second) == set()


async def test_widths_of_old_texts_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
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
