"""An application that repaints at once, and the text on its screen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import textual.app
import textual.pilot
from textual._context import active_app
from textual.app import App
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot
from textual.screen import Screen
from textual.worker import WorkerFailed

from metlmon.pool.client import FeedAndPool
from screens.actions import TABS
from screens.app import AppOptions, MetlmonApp
from screens.base import stats_worker
from screens.theme import DARK
from tests.support.patience import PATIENCE
from tests.support.sample_snapshots import FakeFeed, update

_parsed: dict[object, list[RuleSet]] = {}
_parse = Stylesheet._parse_rules


def _parse_once(self: Stylesheet, css: str, **place: object) -> list[RuleSet]:
    """Parsing the same styles for each application would take a tenth of the screen tests' time."""
    key = (css, *place.values(), frozenset(self._variables.items()))
    if key not in _parsed:
        _parsed[key] = _parse(self, css, **place)  # type: ignore[arg-type]
    return _parsed[key]


Stylesheet._parse_rules = _parse_once  # type: ignore[method-assign,assignment]

_paint = Screen._compositor_refresh


def _paint_if_shown(self: Screen[object]) -> None:
    """Painting after each message, which nobody sees, would take a fifth of the time."""
    if isinstance(self.app, EagerApp) and not self.app.PAINTS and self is self.app.screen:
        self._dirty_widgets.clear()
        self.app._update_mouse_over(self)
    else:
        _paint(self)


Screen._compositor_refresh = _paint_if_shown  # type: ignore[method-assign,assignment]


def _update_early(app: App[object]) -> bool:
    """Do what the screen's timer of a 60th of a second does, if anything."""
    for screen in app.screen_stack[-1:]:
        if screen._callbacks or screen._layout_required or screen._scroll_required:
            screen._on_timer_update()
            return True
    return False


async def _finish_all_that_is_ready(*_: float) -> None:
    """Wait until no task can go on and the screen is up to date, at most a second.

    Textual itself sleeps for 20 ms, three times for each key: most of the screen tests' time.
    """
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    deadline = time.monotonic() + 1.0
    await asyncio.sleep(0)
    while time.monotonic() < deadline:
        if not ready and not _update_early(active_app.get()):
            return
        await asyncio.sleep(0)


for _module in (textual.app, textual.pilot):
    _module.wait_for_idle = _finish_all_that_is_ready  # type: ignore[attr-defined]

STATS_SECONDS = 10.0
stats_worker.SHARE = 0.0  # type: ignore[misc]  # The tests wait for each result.
WIDE, NARROW, MIDDLE = (200, 50), (80, 24), (120, 34)


VISITS = (
    *((str(number),) * len(tab) for number, tab in enumerate(TABS, 1)),
    *(("enter", "enter"), ("question_mark",), ("colon",), ("a",), ("slash", "r")),
)
"""Keys from the overview to the screens of each tab, then run, job, help, palette, acts, filter."""


async def visit_all(press: Callable[..., Awaitable[None]]) -> None:
    """Open and close every screen, from the overview; ``press`` takes one key."""
    for keys in VISITS:
        for key in (*keys, *["escape"] * len(keys)):
            await press(key)


class EagerApp(MetlmonApp):
    """Repaints at once, in one theme whatever terminal the tests run in.

    As after a key press: the cursor is on the first row, whatever is in trouble.
    """

    CONFIRM_SECONDS = 0.0
    PAINTS = False
    """Whether it paints after each message, not only once all is settled (:class:`RunningApp`)."""

    last_key_time = 1.0

    def __init__(self, feed: FakeFeed, options: AppOptions | None = None, **pool: Any) -> None:
        """``pool``: the other fields of a :class:`FeedAndPool`."""
        super().__init__(FeedAndPool(feed, **pool), options)
        self.theme = DARK.name


class RunningApp:
    """A running application under a pilot."""

    def __init__(self, app: EagerApp, feed: FakeFeed, pilot: Pilot[int]) -> None:
        self.app, self.feed, self.pilot = app, feed, pilot

    @property
    def lines(self) -> list[str]:
        """The lines on the screen now."""
        return [strip.text for strip in self.app.screen._compositor.render_strips()]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def line(self, having: str) -> str:
        """The first line with this text; fails without one."""
        found = [line for line in self.lines if having in line]
        assert found, f"{having!r} is not on the screen:\n{self.text}"
        return found[0]

    @property
    def under_cursor(self) -> str:
        return self.line("▌")

    async def press(self, *keys: str) -> None:
        """Press keys and let everything settle."""
        for key in keys:
            # It waits until the screen has received the key.
            await self.pilot.press(key)
            await self._finish()

    async def settle(self) -> None:
        """Wait for messages, workers and statistics to end."""
        await self.pilot.pause()
        await self._finish()

    async def _finish(self) -> None:
        await settled(self.app)
        # A new size waits for a timer.
        self.app._check_resize()
        await self.pilot.pause()
        # What a worker has found may start another one.
        while not all(worker.is_finished for worker in self.app.workers):
            await settled(self.app)
            await self.pilot.pause()
        screen = self.app.screen
        screen._compositor.render_update(screen_stack=self.app._background_screens)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for the effect of another thread."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"it never came to that:\n{self.text}"
            await self.pilot.pause()
            # Give the thread a turn, too.
            await asyncio.sleep(0.005)
        await self.settle()

    async def publish(self, new: object) -> None:
        """Publish a snapshot."""
        self.feed.publish(new)  # type: ignore[arg-type]
        await self.settle()


async def settled(app: App[int]) -> None:
    """Wait for the workers and statistics of the application, and for the cursor's rest.

    The application itself reports a worker that fails.
    """
    assert isinstance(app, MetlmonApp)
    deadline = time.monotonic() + PATIENCE
    while getattr(app.screen, "_rest", None) is not None:
        assert time.monotonic() < deadline, "the pane below the list was not filled"
        await asyncio.sleep(0.005)
    with suppress(WorkerFailed):
        await app.workers.wait_for_complete()
    for stats in (app.stats, app.present_stats):
        if not stats.wait_until_idle(0):
            await asyncio.to_thread(stats.wait_until_idle, STATS_SECONDS)


@asynccontextmanager
async def opened(
    feed: FakeFeed | None = None,
    size: tuple[int, int] = MIDDLE,
    options: AppOptions | None = None,
    app_type: type[EagerApp] = EagerApp,
    **pool: Any,
) -> AsyncIterator[RunningApp]:
    """The application on a feed: ``async with opened(size=(80, 24)) as seen``."""
    feed = feed or FakeFeed(update())
    app = app_type(feed, options, **pool)
    async with app.run_test(size=size) as pilot:
        seen = RunningApp(app, feed, pilot)
        await seen.settle()
        yield seen


def pressed(*keys: str, drawn: str = "") -> Callable[[Pilot[int]], Awaitable[None]]:
    """The state for a picture: these keys, each after the effect of the one before.

    ``drawn``: text on the screen after each of them.
    """

    async def go(pilot: Pilot[int]) -> None:
        seen = RunningApp(pilot.app, pilot.app.present_feed, pilot)  # type: ignore[arg-type, attr-defined]
        await seen.settle()
        for key in keys:
            await seen.press(key)
            await seen.until(lambda: drawn in seen.text)

    return go
