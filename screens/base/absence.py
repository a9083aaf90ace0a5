"""For a user who is away: notifications, and what has changed when they return."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from metlmon.config.settings import NotifySettings
from metlmon.config.user_state import read_state, state_path, write_state
from metlmon.health.build import make_health
from metlmon.health.changes import PURPOSE, Changes, LastSeen, changes_since, seen, since_seen
from metlmon.live.feed import Snapshot
from metlmon.snapshot.records import Status
from screens.base.stats_worker import StatsWorker, has_job_files

if TYPE_CHECKING:
    from metlmon.home.summary import HomeSummary
    from metlmon.notify.delivery import Notifier
    from screens.app import MetlmonApp


ATTENDED_SECONDS: Final = 60.0
"""Time after a key during which somebody is assumed to look."""

AWAY_SECONDS: Final = 900.0
"""Time without a key after which the next one means that somebody has returned."""

SHOWN_SECONDS: Final = 60.0
READ_SECONDS: Final = 2.0
"""The line is shown for a minute or until the next key, but at least as long as reading takes."""


class LastLook:
    """Tracks when somebody looks, and remembers between sessions how far they saw.

    ``clock`` returns seconds. ``since``: how far they had seen before they came or returned; None
    if unknown.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._path: Path | None = None
        self.since: datetime | None = None
        self._newest: Status | None = None
        self._last: LastSeen | None = None
        self._input_at = clock()
        self._returned = True
        self._text = ""
        self._shown_at = 0.0

    def load(self, dagdir: Path) -> None:
        """Read how far a dagdir was seen; without this call nothing is remembered.

        Reads a file: not for the UI thread.
        """
        path = state_path(PURPOSE, dagdir)
        before = read_state(path, LastSeen)
        self.since = None if before is None else before.until
        self._path = path

    @property
    def has_ended(self) -> bool:
        """Whether nobody is looking any longer, but what was seen has not been saved yet."""
        return self._newest is not None and self._clock() - self._input_at > ATTENDED_SECONDS

    def save(self) -> None:
        """Remember what was seen last, unless that has been done. Writes a file."""
        newest, self._newest = self._newest, None
        if newest is not None and (last := seen(newest)) is not None:
            self._last = last
            write_state(self._path, last)

    def record_input(self) -> None:
        """Record that somebody has pressed a key."""
        now = self._clock()
        if now - self._input_at > AWAY_SECONDS:
            self.save()
            self.since = self._last.until if self._last is not None else self.since
            self._returned = True
        elif now - self._shown_at > READ_SECONDS:
            self._text = ""
        self._input_at = now

    def see(self, status: Status) -> None:
        """Record that a screen shows this status; it is seen if somebody looks."""
        if self._clock() - self._input_at <= ATTENDED_SECONDS:
            self._newest = status

    def show(self, status: Status, changes_since: Callable[[datetime], Changes | None]) -> str:
        """What has changed since the last look, as one line; empty if that is not news.

        ``status``: that of a complete snapshot, which is shown now. ``changes_since`` returns what
        has changed in it, or None while that is unknown.
        """
        self.see(status)
        now = self._clock()
        if self._returned and self.since is not None:
            changes = changes_since(self.since)
            if changes is not None:
                self._returned = False
                self._text, self._shown_at = since_seen(changes), now
        if now - self._shown_at > SHOWN_SECONDS:
            self._text = ""
        return self._text


class Absence:
    """Sends notifications, and tracks when somebody looks at the ensemble.

    ``settings`` None: no notifications are sent; ``remembers``: whether what was seen is remembered
    between sessions.
    """

    def __init__(
        self, application: MetlmonApp, settings: NotifySettings | None, *, remembers: bool
    ) -> None:
        self._application, self._remembers = application, remembers
        self.last_look = LastLook()
        self._dagdir: str | None = None
        self.notifier: Notifier | None = None
        if settings is not None:
            from metlmon.notify.delivery import Notifier

            self.notifier = Notifier(settings, application.write_apart, application.content_changed)

    def take(self, snapshot: Snapshot, stats: StatsWorker) -> None:
        """Take the newest snapshot and statistics of the present."""
        if not snapshot.is_complete:
            return
        status = snapshot.status
        # Before an ensemble is opened, the snapshot is empty.
        dagdir = status.dagdir if status.dags or status.logs else None
        if dagdir != self._dagdir:
            if self._dagdir is not None:
                self._application.run_in_thread(self.last_look.save)
            self.last_look, self._dagdir = LastLook(), dagdir
            if dagdir is not None and self._remembers:
                self._application.run_in_thread(partial(self._load, self.last_look, dagdir))
        if dagdir is None:
            return
        self.last_look.see(status)
        if self.last_look.has_ended:
            self._application.run_in_thread(self.last_look.save)
        if self.notifier is not None:
            self._notify(self.notifier, snapshot, stats)

    def take_home(self, summaries: Iterable[HomeSummary]) -> None:
        """Take what Home knows of all ensembles except the open one."""
        if self.notifier is None:
            return
        from metlmon.home.summary import Phase

        about = self.notifier.settings.about
        for summary in summaries:
            figures, is_open = summary.figures, summary.path == self._dagdir
            if is_open or figures is None or summary.phase is not Phase.READ:
                continue
            events = tuple(event for event in figures.events if event.name in about)
            self.notifier.update(
                Path(summary.path),
                events,
                live=figures.live,
                as_of=figures.as_of,
                complete=figures.complete,
            )

    def _load(self, last_look: LastLook, dagdir: str) -> None:
        last_look.load(Path(dagdir))
        self._application.content_changed()

    def _notify(self, notifier: Notifier, snapshot: Snapshot, stats: StatsWorker) -> None:
        """Pass what holds now to the notifier, after all files have been read."""
        from metlmon.notify.events import find_events, is_complete

        stats.watch_job_files()
        # Requested first, the health is evaluated first: if all files are read, it is not older.
        stats.value(make_health)
        complete = stats.value(has_job_files)
        health = stats.value(make_health)
        if complete and health is not None:
            status = snapshot.status
            notifier.update(
                Path(status.dagdir),
                find_events(health, status, notifier.settings.about),
                live=status.live,
                as_of=status.as_of,
                complete=snapshot.error is None and is_complete(status),
            )

    def news(self, snapshot: Snapshot, stats: StatsWorker) -> str:
        """What has changed since somebody last looked; empty if that is not news."""
        if not snapshot.is_complete:
            return ""
        return self.last_look.show(snapshot.status, lambda since: stats.value(changes_since, since))

    def close(self) -> None:
        """Remember what was seen last; the next process sends what has not been sent."""
        self.last_look.save()
        if self.notifier is not None:
            self.notifier.close()
