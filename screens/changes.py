"""The Changes screen: what has happened since you last looked, and the estimate then and now."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from threading import Event
from typing import ClassVar, Final

from metlmon.errors import InputError
from metlmon.health.changes import Change, ChangeKind, Changes, changes_since
from metlmon.live.discovery import natural_sort_key
from metlmon.live.feed import Feed, StatsInput
from metlmon.snapshot.records import Snapshot
from metlmon.stats.estimates import Forecast, make_forecast
from metlmon.tables import changes as changes_table
from metlmon.tables.layout import empty_text
from metlmon.text.formatting import clip_middle, job_id, listed, moment, period, plain, share
from metlmon.text.spans import BOLD, DIM, KEY, NOTE, Line, crop, line, wrap
from screens.base.screens import ListScreen, ask_in_thread

DAY: Final = timedelta(days=1)
WEEK: Final = timedelta(days=7)

CHECK_SECONDS: Final = 0.2
"""Interval in which reading the past notices that it has been cancelled."""

OF_RUNS: Final = frozenset(
    {ChangeKind.BEST, ChangeKind.FINISHED, ChangeKind.DONE, ChangeKind.JOB_DONE}
    | {ChangeKind.SUBMITTED}
)
"""Changes that require no action: their runs are opened instead of their jobs."""


class ChangesScreen(ListScreen):
    """What has changed, trouble first."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "changes", "below")
    ORDERS = (
        ("trouble", None),
        ("the newest", lambda change: (datetime.max - change.last,)),
        "count",
        "run",
        "why",
    )
    DETAIL_LINES = 3

    def __init__(self) -> None:
        super().__init__()
        self._period = 0
        self._chosen: tuple[Feed, datetime, str] | None = None
        self._then: Forecast | None = None
        self._then_text = ""
        self._stop_reading = Event()

    def show(self, update: Snapshot) -> None:
        # The values of metrics are in files that the trainings write.
        self.context.stats.watch_job_files()
        chosen = self._choose(update)
        if chosen is None:
            reason = "no log has an event yet" if update.is_complete else "reading the logs"
            text = empty_text("", "Changes are listed as soon as the logs have some.")
            self.show_nothing("Changes", text, reason)
            return
        found = self.context.stats.value(changes_since, chosen[1])
        further = line(("v", KEY), (" goes further back: a day, a week, to the beginning", DIM))
        empty = [*empty_text("Nothing has changed."), *empty_text(further)]
        self.show_head(self._head(found))
        self.fill(
            changes_table.columns(update.status.runs, self.this_year),
            () if found is None else found.changes,
            lambda change: change.key,
            changes_table.filter_text,
            empty=empty_text("", "Changes are being added up.") if found is None else empty,
            noun="change",
            details=self._details,
        )

    def _choose(self, update: Snapshot) -> tuple[Feed, datetime, str] | None:
        """The moment since which changes are shown; it stays while the clock advances."""
        feed = self.context.feed
        if self._chosen is not None and self._chosen[0] is feed:
            return self._chosen
        as_of = update.status.as_of
        if as_of is None or not update.is_complete:
            return None
        seen = self.context.absence.last_look.since
        # The clock advances while the list is shown, but the moment stays.
        end = "you opened this" if update.status.live else "the newest event"
        periods = [(seen, "when you last looked")] if seen is not None and seen < as_of else []
        # The calendar of a damaged log may begin before that.
        as_of = max(as_of, datetime.min + WEEK)
        periods += [
            (as_of - DAY, f"a day before {end}"),
            (as_of - WEEK, f"7 days before {end}"),
            (datetime.min, "from the beginning"),
        ]
        since, why = periods[self._period % len(periods)]
        self._chosen = feed, since, why
        self._read_past(feed, since, update)
        return self._chosen

    def _head(self, found: Changes | None) -> list[Line]:
        assert self._chosen is not None
        _, since, why = self._chosen
        room, year = self.app.size.width - 2, self.this_year
        when = "" if since == datetime.min else f"since {moment(since, year)}, "
        title = line(("Changes", BOLD), "  ", when, (why, DIM))
        now = self.context.stats.value(make_forecast)
        estimate = self._then_text
        if now is not None and not estimate:
            estimate = changes_table.estimate_text(self._then, now)
        summary = "adding up" if found is None else found.summary or "nothing has changed"
        lines = [title, *wrap(summary, room, NOTE), *([line((estimate, DIM))] if estimate else [])]
        return [*(line(" ") + crop(text, room) for text in lines), ()]

    def _details(self, change: Change | None) -> list[Line]:
        """When it happened, what it concerns, and the full reason."""
        if change is None:
            return []
        room = self.app.size.width - 2
        when = period(change.first, change.last, self.this_year)
        if change.first == change.last:
            when = moment(change.last, self.this_year, seconds=True)
        names = sorted(change.runs.values(), key=natural_sort_key)
        names = names or [job_id(*job) for job in change.jobs]
        facts = f"{when}   {listed([clip_middle(plain(name), 40) for name in names])}"
        why = wrap(changes_table.what_text(change), room, indent=1)
        return [line(" ", (facts, DIM)), *why][: self.DETAIL_LINES]

    # --- the estimate then ----------------------------------------------------------------

    def _read_past(self, feed: Feed, since: datetime, update: Snapshot) -> None:
        """Read the ensemble as of that time, in a thread, unless nothing had happened yet."""
        self._stop_reading.set()
        self._then, self._then_text = None, ""
        times = [log.first for log in update.status.logs if log.first is not None]
        if times and min(times) <= since:
            stop = self._stop_reading = Event()
            self._then_text = "estimate then: reading"
            query = partial(self._forecast_at, feed, since, stop)
            ask_in_thread(self, query, partial(self._past_read, stop), "the estimate then failed")

    def _forecast_at(self, feed: Feed, since: datetime, stop: Event) -> Forecast | None:
        """The forecast as of a moment; None if it was cancelled. Runs in a thread."""
        past, ended = feed.historical(since), Event()

        def on_snapshot(snapshot: Snapshot) -> None:
            if snapshot.error is not None or snapshot.is_complete or stop.is_set():
                ended.set()
            elif self._stop_reading is stop:
                done = share(snapshot.progress.done, snapshot.progress.total)
                self._then_text = f"estimate then: reading {done}"
                self.context.content_changed()

        past.start(on_snapshot)
        try:
            while not ended.wait(CHECK_SECONDS) and not stop.is_set():
                pass
            latest = past.latest
            if stop.is_set() or latest is None:
                return None
            if latest.error is not None:
                raise InputError(latest.error)
            return make_forecast(StatsInput(latest.status, past.ledger(), past.settings))
        finally:
            past.stop()

    def _past_read(self, stop: Event, forecast: Forecast | None, error: str | None) -> None:
        if self._stop_reading is stop:
            self._then, self._then_text = forecast, "" if error is None else plain(error, 200)
            self._refresh_if_mounted()

    def on_unmount(self) -> None:
        self._stop_reading.set()
        super().on_unmount()

    # --- keys -----------------------------------------------------------------------------

    def action_view(self) -> None:
        self._period += 1
        self._chosen = None
        self._refresh_if_mounted()

    def open_row(self, key: str) -> None:
        """Open what the change concerns; for several jobs or runs, the screen that lists them."""
        change = self.row(key)
        if change is None:
            return
        if change.kind is ChangeKind.BAD_SITE:
            self.context.open_screen("sites")
        elif change.kind in (ChangeKind.DAGMAN_STARTED, ChangeKind.DAGMAN_ENDED):
            self.context.open_screen("inputs")
        elif len(change.jobs) == 1 and change.kind not in OF_RUNS:
            self.context.open_screen("job", *change.jobs[0])
        elif len(change.runs) == 1:
            self.context.open_screen("run", next(iter(change.runs)))
        else:
            self.context.open_screen("timeline" if change.kind in OF_RUNS else "health")
