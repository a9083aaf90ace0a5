"""Travelling in time: every screen shows the ensemble as it was at a moment.

The moment's picture comes from a feed of its own, read in a thread; the present is followed
all the while, so that returning to it takes no time. Of several wishes the newest counts:
what was begun for an older one is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from threading import Event
from typing import TYPE_CHECKING, Final

from textual.message import Message

from metlmon.error_text import describe_error
from metlmon.frozen import frozen
from metlmon.live.errors import InputError
from metlmon.live.feed import Feed, Snapshot
from metlmon.live.null_feed import NullFeed
from metlmon.snapshot.types import Progress
from metlmon.stats.timeline import Timeline, timeline
from metlmon.stats.timeline_text import nice_step, snapped
from metlmon.stats.worker import StatsWorker
from metlmon.text import formatting
from metlmon.text.formatting import plain
from screens.overview.header import seconds_ago
from screens.widgets.spans import ALARM, BOLD, DIM, KEY, NOTE, Line, first_that_fits, line

if TYPE_CHECKING:
    from textual.timer import Timer

    from screens.app import MetlmonApp

SETTLE_SECONDS: Final = 0.15
"""A key that repeats wishes thirty moments a second: reading begins when it rests."""

STEPS: Final = 100
"""The keys that work everywhere go this part of the whole story, rounded: an epoch or less."""


@dataclass(slots=True)
class Reading:
    """A moment on its way: told by its feed's thread, looked at by the screens."""

    moment: datetime
    feed: Feed | None = None
    progress: Progress | None = None
    error: str | None = None
    dropped: Event = field(default_factory=Event)


@frozen
class Then:
    """The past that the screens show."""

    moment: datetime
    feed: Feed
    study: StatsWorker


class TimeTravel:
    """Where in time the screens of ``app`` are. ``then`` None: in the present."""

    class Arrived(Message):
        """A reading has come further, or to its end."""

        def __init__(self, reading: Reading) -> None:
            super().__init__()
            self.reading = reading

    def __init__(self, app: MetlmonApp) -> None:
        self._app = app
        self.then: Then | None = None
        self.wish: datetime | None = None
        self.error: str | None = None
        self._reading: Reading | None = None
        self._timer: Timer | None = None

    @property
    def away(self) -> bool:
        """Not in the present, or on the way out of it."""
        return self.then is not None or self.wish is not None

    @property
    def moment(self) -> datetime | None:
        """The moment that was wished last; None: the present."""
        return self.wish or (self.then.moment if self.then is not None else None)

    # --- going ------------------------------------------------------------------------------

    def go(self, moment: datetime) -> None:
        """Show the ensemble as it was at ``moment``; a moment of the present or later goes
        there."""
        update = self._app.newest
        if update is None or isinstance(self._app.present, NullFeed):
            return
        as_of = update.status.as_of
        if as_of is None or moment >= as_of:
            self.come_back()
            return
        if self.wish is None and self.then is not None and self.then.moment == moment:
            return
        self.wish, self.error = moment, None
        if self._timer is not None:
            self._timer.stop()
        self._timer = self._app.set_timer(SETTLE_SECONDS, self._set_out)
        self._app.show_again()

    def step(self, by: int) -> str | None:
        """So many steps later (earlier, where negative). Returns why not, or None."""
        made = self._app.present_study.of(timeline)
        if made is None:
            return "the times are being added up: try again in a moment"
        if made.first is None or made.last is None:
            return "there is no past: no log has an event yet"
        here = self.moment or made.last
        self.go(stepped(made, here, by))
        return None

    def _set_out(self) -> None:
        moment = self.wish
        if moment is None:
            return
        self._drop()
        reading = self._reading = Reading(moment)
        self._app.run_worker(
            lambda: self._read(self._app.present, reading),
            thread=True,
            group="travel",
            exit_on_error=False,
        )

    def _read(self, present: Feed, reading: Reading) -> None:
        """In a thread: opening a dagdir reads its DAG files."""
        try:
            feed = present.past(reading.moment)
        except (InputError, OSError) as error:
            reading.error = str(error)
            self._tell(reading)
            return
        except Exception as error:
            reading.error = describe_error("opening it failed", error)
            self._tell(reading)
            return

        def heard(update: Snapshot) -> None:
            reading.progress = update.progress
            reading.error = update.error
            self._tell(reading)

        reading.feed = feed
        if not reading.dropped.is_set():
            feed.start(heard)
        if reading.dropped.is_set():
            feed.stop()

    def _tell(self, reading: Reading) -> None:
        if not reading.dropped.is_set():
            self._app.post_message(self.Arrived(reading))

    def arrived(self, reading: Reading) -> None:
        """A reading has news. When it is whole, the screens show it."""
        if reading is not self._reading:
            return
        feed, progress = reading.feed, reading.progress
        if reading.error is not None:
            self.come_back()
            self.error = reading.error
        elif feed is not None and progress is not None and progress.fraction >= 1:
            self._reading = None
            before = self.then
            self.then = Then(reading.moment, feed, StatsWorker(feed, self._app.figures_came))
            if self.wish == reading.moment:
                self.wish = None
            self._app.turn_to(self.then.feed, self.then.study)
            self._close(before)
        self._app.show_again()

    def come_back(self) -> None:
        """To the present."""
        if self._timer is not None:
            self._timer.stop()
        self._drop()
        before, self.then, self.wish, self.error = self.then, None, None, None
        if before is not None:
            self._app.turn_to(self._app.present, self._app.present_study)
            self._close(before)
        self._app.show_again()

    def _drop(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.dropped.set()
            if reading.feed is not None:
                self._app.run_worker(reading.feed.stop, thread=True, exit_on_error=False)

    def _close(self, then: Then | None) -> None:
        if then is not None:
            then.study.close()
            self._app.run_worker(then.feed.stop, thread=True, exit_on_error=False)

    # --- telling ----------------------------------------------------------------------------

    def refusal(self) -> str | None:
        """Why nothing can be acted on; None in the present."""
        if not self.away:
            return None
        when = when_text(self.moment)
        return f"this is how it was {when}; only the present can be acted on (esc returns to it)"

    def banner(self, cells: int, ascii: bool, esc: bool = True) -> Line:
        """What every screen says first while it shows the past; () in the present. ``esc``: that
        key returns to the present, it does nothing else first."""
        if self.error is not None:
            told = plain(self.error, 2 * cells, ascii)
            return line(" ", ("that past cannot be read: ", ALARM), told)
        if not self.away:
            return ()
        dash = "-" if ascii else "—"
        back: Line = line((f" {dash} ", DIM), ("esc", KEY), (" returns to now", DIM))
        short: Line = line((f" {dash} ", DIM), ("esc", KEY), (": now", DIM))
        sign = "<<" if ascii else "◀◀"
        was: Line = line(" ")
        if self.then is not None:
            was = line(
                (f" {sign} as it was ", NOTE),
                (when_text(self.then.moment), BOLD),
                (self._ago(self.then.moment, ascii), NOTE),
            )
        on = self._on_the_way(ascii)
        hints = (was + on + back, was + on + short) if esc else ()
        return first_that_fits((*hints, was + on), cells)

    def _ago(self, moment: datetime, ascii: bool) -> str:
        update = self._app.newest
        ago = None if update is None else seconds_ago(update.status.as_of, moment)
        if update is None or ago is None:
            return ""
        return (
            f" ({formatting.age(ago, ascii)} {'ago' if update.status.live else 'before the end'})"
        )

    def _on_the_way(self, ascii: bool) -> Line:
        if self.wish is None:
            return ()
        reading = self._reading
        told = "reading"
        if reading is not None and reading.progress is not None:
            done = formatting.share(reading.progress.done, reading.progress.total, ascii)
            told += f" {done} of {formatting.size(reading.progress.total, ascii)}"
        return line("  going to " if self.then else "going to ", (when_text(self.wish), BOLD)) + (
            line((f": {told}", DIM))
        )


def when_text(moment: datetime | None) -> str:
    """``2025-11-10 14:00``, with seconds where there are any."""
    if moment is None:
        return ""
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment.second else f"{moment:%Y-%m-%d %H:%M}"


def stepped(made: Timeline, here: datetime, by: int) -> datetime:
    """So many round steps from ``here``, the first of them to the next round moment, and not
    before the first event."""
    step = nice_step(made.length / STEPS)
    at = made.seconds(here)
    near = snapped(made, at, step)
    off_the_grid = abs(near - at) > 1e-6
    if off_the_grid and (near > at) == (by > 0):
        by -= 1 if by > 0 else -1
    found = made.moment(max(0.0, near + by * step))
    return here if found is None else found
