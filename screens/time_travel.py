"""Time travel: all screens show the ensemble as it was at a past moment.

The past snapshot comes from a separate feed, read in a thread. The present feed keeps running, so
that returning to it takes no time. A newer request cancels an older one.
"""

from __future__ import annotations

from datetime import datetime
from threading import Event
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from textual.message import Message
from textual.timer import Timer

from metlmon.errors import InputError, sentence_of
from metlmon.live.feed import Feed, NullFeed, Snapshot
from metlmon.snapshot.records import Progress
from metlmon.stats.timeline import Timeline, timeline
from metlmon.tables.timeline_text import nice_step, snap_to_step
from metlmon.text import formatting
from metlmon.text.formatting import plain, seconds_ago
from metlmon.text.spans import ALARM, BOLD, DIM, KEY, NOTE, Line, first_that_fits, line
from screens.base.stats_worker import StatsWorker

if TYPE_CHECKING:
    from screens.app import MetlmonApp

SETTLE_SECONDS: Final = 0.15
"""Delay before reading starts: a repeating key requests thirty moments a second."""

STEPS: Final = 100
"""The step keys move by this fraction of the whole time span, rounded: an epoch or less."""


class Reading(Struct):
    """A past moment being read: written by its feed's thread, read by the screens."""

    moment: datetime
    feed: Feed | None = None
    progress: Progress | None = None
    error: str | None = None
    cancelled: Event = field(default_factory=Event)


class PastView(Struct, frozen=True):
    """The past moment that the screens show, with its feed and statistics."""

    moment: datetime
    feed: Feed
    stats: StatsWorker


class TimeTravel:
    """The moment that the screens of ``app`` show; ``past_view`` None: the present."""

    class ReadingProgressed(Message):
        """A reading has made progress, or has ended."""

        def __init__(self, reading: Reading) -> None:
            super().__init__()
            self.reading = reading

    def __init__(self, app: MetlmonApp) -> None:
        self._app = app
        self.past_view: PastView | None = None
        self.requested_moment: datetime | None = None
        self.error: str | None = None
        self._reading: Reading | None = None
        self._timer: Timer | None = None

    @property
    def active(self) -> bool:
        """Whether a past moment is shown or being read."""
        return self.past_view is not None or self.requested_moment is not None

    @property
    def moment(self) -> datetime | None:
        """The moment requested last; None: the present."""
        past = None if self.past_view is None else self.past_view.moment
        return self.requested_moment or past

    # --- moving in time ---------------------------------------------------------------------

    def load(self, moment: datetime) -> None:
        """Show the ensemble as it was at ``moment``, or the present if that is not past."""
        snapshot = self._app.newest_snapshot
        if isinstance(self._app.present_feed, NullFeed):
            return
        as_of = snapshot.status.as_of
        if as_of is None or moment >= as_of:
            self.return_to_now()
            return
        if moment == self.moment and self.requested_moment is None:
            return
        self.requested_moment, self.error = moment, None
        if self._timer is not None:
            self._timer.stop()
        self._timer = self._app.set_timer(SETTLE_SECONDS, self._start_reading)
        self._app.refresh_screen()

    def step(self, steps: int) -> str | None:
        """Move by a number of steps (negative: earlier). Returns a refusal, or None."""
        known = self._app.present_stats.value(timeline)
        if known is None:
            return "the times are being added up: try again in a moment"
        if known.first is None or known.last is None:
            return "there is no past: no log has an event yet"
        status = self._app.newest_snapshot.status
        # The statistic may be a little older than the snapshot.
        now = status.as_of if status.live else None
        start = self.moment or now or known.last
        self.load(step_moment(known, start, steps))
        return None

    def _start_reading(self) -> None:
        moment = self.requested_moment
        if moment is None:
            return
        self._cancel_reading()
        reading = self._reading = Reading(moment)
        self._app.run_in_thread(lambda: self._read(self._app.present_feed, reading))

    def _read(self, present: Feed, reading: Reading) -> None:
        """Open the past feed, in a thread: opening a dagdir reads its DAG files."""
        try:
            feed = present.historical(reading.moment)
        except Exception as error:
            reading.error = sentence_of(error, "opening it failed", InputError, OSError)
            self._post_progress(reading)
            return

        def on_snapshot(snapshot: Snapshot) -> None:
            reading.progress = snapshot.progress
            reading.error = snapshot.error
            self._post_progress(reading)

        reading.feed = feed
        if not reading.cancelled.is_set():
            feed.start(on_snapshot)
        if reading.cancelled.is_set():
            feed.stop()

    def _post_progress(self, reading: Reading) -> None:
        if not reading.cancelled.is_set():
            self._app.post_message(self.ReadingProgressed(reading))

    def handle_progress(self, reading: Reading) -> None:
        """Handle progress of a reading; show it once it is complete."""
        if reading is not self._reading:
            return
        feed, progress = reading.feed, reading.progress
        if reading.error is not None:
            self.return_to_now()
            self.error = reading.error
        elif feed is not None and progress is not None and progress.fraction >= 1:
            self._reading = None
            previous = self.past_view
            self.past_view = PastView(
                reading.moment, feed, StatsWorker(feed, self._app.content_changed)
            )
            if self.requested_moment == reading.moment:
                self.requested_moment = None
            self._app.switch_feed(self.past_view.feed, self.past_view.stats)
            self._close(previous)
        self._app.refresh_screen()

    def return_to_now(self) -> None:
        """Return to the present."""
        if self._timer is not None:
            self._timer.stop()
        self._cancel_reading()
        previous, self.past_view = self.past_view, None
        self.requested_moment = self.error = None
        if previous is not None:
            self._app.switch_feed(self._app.present_feed, self._app.present_stats)
            self._close(previous)
        self._app.refresh_screen()

    def _cancel_reading(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancelled.set()
            if reading.feed is not None:
                self._app.run_in_thread(reading.feed.stop)

    def _close(self, past: PastView | None) -> None:
        if past is not None:
            past.stats.close()
            self._app.run_in_thread(past.feed.stop)

    # --- texts ------------------------------------------------------------------------------

    def refusal(self) -> str | None:
        """Why pool actions are refused; None in the present."""
        if not self.active:
            return None
        when = when_text(self.moment)
        return f"this is how it was {when}; only the present can be acted on ([esc] returns to it)"

    def banner(self, width: int, show_key: bool = True) -> Line:
        """The first line of every screen that shows the past; () in the present."""
        if self.error is not None:
            message = plain(self.error, 2 * width)
            return line(" ", ("that past cannot be read: ", ALARM), message)
        if not self.active:
            return ()
        return_hint: Line = line((" — ", DIM), ("esc", KEY), (" returns to now", DIM))
        short_hint: Line = line((" — ", DIM), ("esc", KEY), (": now", DIM))
        shown: Line = line(" ")
        if self.past_view is not None:
            shown = line(
                (" ◀◀ as it was ", NOTE),
                (when_text(self.past_view.moment), BOLD),
                (self._ago(self.past_view.moment), NOTE),
            )
        reading = self._reading_text()
        hints = (shown + reading + return_hint, shown + reading + short_hint) if show_key else ()
        return first_that_fits((*hints, shown + reading), width)

    def _ago(self, moment: datetime) -> str:
        status = self._app.newest_snapshot.status
        seconds = seconds_ago(status.as_of, moment)
        if seconds is None:
            return ""
        reference = "ago" if status.live else "before the end"
        return f" ({formatting.age(seconds)} {reference})"

    def _reading_text(self) -> Line:
        if self.requested_moment is None:
            return ()
        reading = self._reading
        text = "reading"
        if reading is not None and reading.progress is not None:
            done = formatting.share(reading.progress.done, reading.progress.total)
            text += f" {done} of {formatting.size(reading.progress.total)}"
        return line(
            "  going to " if self.past_view else "going to ",
            (when_text(self.requested_moment), BOLD),
        ) + (line((f": {text}", DIM)))


def when_text(moment: datetime | None) -> str:
    """``10 Nov 2025 14:00``, with seconds unless they are 0."""
    return formatting.moment(moment, seconds=bool(moment.second)) if moment else ""


def step_moment(times: Timeline, start: datetime, steps: int) -> datetime:
    """The moment a number of round steps from ``start``, not before the first event."""
    step = nice_step(times.seconds / STEPS)
    seconds = times.position_of(start)
    nearest = snap_to_step(times, seconds, step)
    between_steps = abs(nearest - seconds) > 1e-6
    if between_steps and (nearest > seconds) == (steps > 0):
        steps -= 1 if steps > 0 else -1
    moment = times.time_at(max(0.0, nearest + steps * step))
    return start if moment is None else moment
