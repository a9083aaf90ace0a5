"""For somebody who is away: notifications, and what has changed when they look again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from metlmon.config.settings import NotifySettings
from metlmon.health.build import make_health
from metlmon.live.feed import Snapshot
from screens.base.last_look import LastLook
from screens.base.stats_worker import StatsWorker, has_job_files

if TYPE_CHECKING:
    from metlmon.notify.notifier import Notifier


class _Application(Protocol):
    def content_changed(self) -> None: ...

    def write_apart(self, text: str) -> bool: ...

    def run_in_thread(self, work: Callable[[], object]) -> None: ...


class Absence:
    """Sends notifications, and follows when somebody looks at the ensemble.

    ``settings`` None: no notifications are sent; ``remembers``: what was seen is remembered
    between sessions.
    """

    def __init__(
        self, application: _Application, settings: NotifySettings | None, *, remembers: bool
    ) -> None:
        self._application, self._remembers = application, remembers
        self.last_look = LastLook()
        self._loaded: str | None = None
        self.notifier: Notifier | None = None
        if settings is not None:
            from metlmon.notify.notifier import Notifier

            self.notifier = Notifier(settings, application.write_apart, application.content_changed)

    def take(self, snapshot: Snapshot | None, stats: StatsWorker) -> None:
        """Take the newest snapshot and statistics of the present."""
        if snapshot is None or snapshot.progress.fraction < 1:
            return
        dagdir = snapshot.status.dagdir
        if self._remembers and self._loaded != dagdir:
            if self._loaded is not None:
                self._application.run_in_thread(self.last_look.save)
                self.last_look = LastLook()
            self._loaded = dagdir
            self._application.run_in_thread(partial(self._load, self.last_look, dagdir))
        self.last_look.see(snapshot.status)
        if self.last_look.has_ended:
            self._application.run_in_thread(self.last_look.save)
        if self.notifier is not None and not snapshot.error:
            self._notify(self.notifier, snapshot, stats)

    def _load(self, last_look: LastLook, dagdir: str) -> None:
        last_look.load(Path(dagdir))
        self._application.content_changed()

    def _notify(self, notifier: Notifier, snapshot: Snapshot, stats: StatsWorker) -> None:
        """Give what holds now to the notifier, once all files have been read."""
        from metlmon.notify.events import find_events

        stats.watch_job_files()
        # In this order: the health is not older than the answer to the second question.
        health = stats.value(make_health)
        if health is not None and stats.value(has_job_files):
            status = snapshot.status
            events = find_events(health, status, notifier.settings.about)
            notifier.update(Path(status.dagdir), events, status.live)

    def news(self, snapshot: Snapshot | None) -> str:
        """What has changed since somebody last looked; empty if that is not new."""
        if snapshot is None or snapshot.progress.fraction < 1:
            return ""
        return self.last_look.show(snapshot.status)

    def close(self) -> None:
        """Remember what was seen last; what has not been sent is sent by the next process."""
        self.last_look.save()
        if self.notifier is not None:
            self.notifier.close()
