"""Sends each event once, whichever process sees it; optionally in a thread.

The record of a dagdir is a file of the user's, outside of the dagdir. Its lock is held while
messages are sent, so that two processes do not send the same ones; an event counts as sent only
when a channel has accepted it.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic, time
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.config.settings import NotifySettings
from metlmon.config.user_state import read_state, state_lock, state_path, write_state
from metlmon.errors import describe_error
from metlmon.notify.channels import Channel, SendError, open_channels
from metlmon.notify.events import Message, NotifyEvent, make_message
from metlmon.text.formatting import age, count

PURPOSE: Final = "notified"

RETRY_AFTER: Final = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0)
"""Seconds from each failure to the next try; after the last one the events are given up."""

LOCKED_SECONDS: Final = 5.0
"""Seconds until the next try if another process is sending."""


class ChannelRecord(Struct):
    """The state of one channel; times are in seconds since the epoch.

    ``sent_at``: the last success. Since then: ``tries``: failures in a row; ``retry_at``: the
    earliest time of the next try; ``error``: the last failure; ``lost``: events given up.
    """

    sent_at: float = 0.0
    tries: int = 0
    retry_at: float = 0.0
    error: str = ""
    lost: int = 0


class SentEvent(Struct):
    """An event that currently holds.

    ``size``: that of the event when it was last due to be sent; ``unsent``: names of the channels
    that still have to send it.
    """

    size: int = 0
    unsent: list[str] = []


class SentRecord(Struct):
    """The events that currently hold, by hash of their key, and the channels by name."""

    events: dict[str, SentEvent] = {}
    channels: dict[str, ChannelRecord] = {}

    def unsent(self, event: NotifyEvent) -> list[str]:
        """The channels that still have to send an event of the record."""
        return self.events[_hash(event)].unsent


class DeliveryState(Struct, frozen=True):
    """What remains to be done for a dagdir.

    ``wait``: seconds until the next call is due; None if everything is sent. ``problems``: what was
    not sent, and why, one sentence for each channel. ``locked``: another process is sending, and
    nothing was done.
    """

    wait: float | None = None
    problems: tuple[str, ...] = ()
    locked: bool = False


class Delivery:
    """Sends the events of one dagdir.

    ``interval``: the minimum number of seconds between two messages of one channel.
    """

    def __init__(self, dagdir: Path, channels: Sequence[Channel], interval: float) -> None:
        self._dagdir = dagdir
        self._channels = channels
        self._interval = interval
        self._path = state_path(PURPOSE, dagdir)
        self._unwritten: SentRecord | None = None
        """The record, if no file can be written."""

    def deliver(
        self,
        events: Sequence[NotifyEvent],
        *,
        live: bool,
        now: float,
        complete: bool = True,
        at_once: bool = False,
    ) -> DeliveryState:
        """Send those events that were not sent before, as one message.

        ``events``: all that hold. Those of an ensemble that was never seen before and is not
        ``live`` are old and not sent. ``now``: seconds since the epoch. ``complete``: a missing
        event is over; otherwise it may be in a file that could not be read. ``at_once``: ignore the
        time of the last message. Blocks while the channels send.
        """
        with nullcontext(True) if self._path is None else state_lock(self._path) as locked:
            if not locked:
                return DeliveryState(wait=LOCKED_SECONDS, locked=True)
            before = self._unwritten or read_state(self._path, SentRecord)
            record = self._new_record(before, events, live=live, complete=complete)
            if record != before:
                # Before sending: if this process ends meanwhile, the events are known.
                self._write(record)
            waits = [self._send_due(each, record, events, now, at_once) for each in self._channels]
        problems = (_problem(channel, record, now) for channel in self._channels)
        wait = min((each for each in waits if each is not None), default=None)
        return DeliveryState(wait, tuple(filter(None, problems)))

    def _new_record(
        self,
        before: SentRecord | None,
        events: Sequence[NotifyEvent],
        *,
        live: bool,
        complete: bool,
    ) -> SentRecord:
        """The record with these events; ``before``: the previous one."""
        names = [channel.name for channel in self._channels]
        unsent = names if live or before is not None else []
        old = before or SentRecord()
        known = {(key := _hash(event)): (event, old.events.get(key)) for event in events}
        return SentRecord(
            {
                **({} if complete else old.events),
                **{key: _follow(event, of_old, unsent) for key, (event, of_old) in known.items()},
            },
            {channel: replace(state) for channel, state in old.channels.items()},
        )

    def _send_due(
        self,
        channel: Channel,
        record: SentRecord,
        events: Sequence[NotifyEvent],
        now: float,
        at_once: bool,
    ) -> float | None:
        """Send what a channel has not sent; return the seconds until the next call is due."""
        state = record.channels.setdefault(channel.name, ChannelRecord())
        waiting = [event for event in events if channel.name in record.unsent(event)]
        if not waiting:
            return None
        # A time in the future comes from a clock that was wrong.
        if state.retry_at > now + RETRY_AFTER[-1]:
            state.retry_at = 0.0
        due = max(state.retry_at, state.sent_at + self._interval)
        if not at_once and now < due and state.sent_at <= now:
            return due - now
        is_through = _send(channel, make_message(str(self._dagdir), waiting), state, now)
        if is_through:
            for each in record.events.values():
                each.unsent = [name for name in each.unsent if name != channel.name]
        self._write(record)
        return None if is_through else state.retry_at - now

    def _write(self, record: SentRecord) -> None:
        self._unwritten = None if write_state(self._path, record) else record


def _follow(event: NotifyEvent, known: SentEvent | None, channels: Sequence[str]) -> SentEvent:
    """The record of an event that holds: ``channels`` send it if it is new or has doubled."""
    if known is None or (event.size > 1 and event.size >= 2 * known.size):
        return SentEvent(event.size, list(channels))
    return SentEvent(known.size, list(known.unsent))


def _send(channel: Channel, message: Message, state: ChannelRecord, now: float) -> bool:
    """Send a message; return whether the channel is done with it, as sent or given up."""
    try:
        channel.send(message)
    except SendError as error:
        state.error = str(error)
        state.tries += 1
        if state.tries <= len(RETRY_AFTER):
            state.retry_at = now + RETRY_AFTER[state.tries - 1]
            return False
        state.lost += len(message.events)
    else:
        state.sent_at, state.error, state.lost = now, "", 0
    state.tries, state.retry_at = 0, 0.0
    return True


def _problem(channel: Channel, record: SentRecord, now: float) -> str | None:
    """What a channel has not sent, and why; None if it works."""
    state = record.channels[channel.name]
    if not state.error:
        return None
    parts = [f"{channel.name} {channel.target} {state.error}"]
    if state.lost:
        parts.append(f"{count(state.lost, 'notification')} given up")
    if state.tries:
        unsent = sum(channel.name in each.unsent for each in record.events.values())
        again = age(max(0.0, state.retry_at - now))
        parts.append(f"{count(unsent, 'notification')} not sent, next try in {again}")
    return "; ".join(parts)


def _hash(event: NotifyEvent) -> str:
    return hashlib.sha256(event.key.encode(errors="replace")).hexdigest()[:16]


# --- a thread that delays nothing -----------------------------------------------------------

SLOWEST_READER: Final = timedelta(minutes=15)
"""At the end of daylight saving time, the clock of the access point goes back by more than this."""

CLOSE_SECONDS: Final = 1.0
"""Time that exiting waits for a message in progress."""


class _Ensemble(Struct):
    """The newest events of one dagdir; ``due``: when to look at them again."""

    dagdir: Path
    events: Sequence[NotifyEvent] = ()
    live: bool = False
    as_of: datetime | None = None
    complete: bool = True
    keys: tuple[tuple[str, int], ...] | None = None
    due: float | None = None
    delivery: Delivery | None = None
    problems: tuple[str, ...] = ()


class Notifier:
    """Sends the events of one or several ensembles.

    ``write`` writes to the terminal (:func:`metlmon.notify.channels.open_channels`);
    ``on_change`` is called in the thread when :attr:`problems` has changed.
    """

    def __init__(
        self,
        settings: NotifySettings,
        write: Callable[[str], bool] | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self._channels = open_channels(settings, write)
        self._on_change = on_change
        self._ensembles: dict[Path, _Ensemble] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        """The channels and their targets, without secrets."""
        return tuple(f"{channel.name}: {channel.target}" for channel in self._channels)

    @property
    def problems(self) -> tuple[str, ...]:
        """What was not sent, and why."""
        with self._lock:
            ensembles = list(self._ensembles.values())
        return tuple(dict.fromkeys(text for each in ensembles for text in each.problems))

    def update(
        self,
        dagdir: Path,
        events: Sequence[NotifyEvent],
        *,
        live: bool,
        as_of: datetime | None,
        complete: bool = True,
    ) -> None:
        """Record what holds in an ensemble at ``as_of``; returns at once.

        ``complete``: as for :meth:`metlmon.notify.delivery.Delivery.deliver`. A state slightly
        older than the last update comes from a slower reader and is ignored.
        """
        with self._lock:
            ensemble = self._ensembles.setdefault(dagdir, _Ensemble(dagdir))
            if _is_outdated(as_of, ensemble.as_of):
                return
            ensemble.as_of = as_of
            ensemble.events, ensemble.live, ensemble.complete = events, live, complete
            keys = tuple((event.key, event.size) for event in events)
            if keys == ensemble.keys:
                return
            ensemble.keys, ensemble.due = keys, 0.0
            if self._thread is None and self._channels and not self._stopped.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="metlmon-notify", daemon=True
                )
                self._thread.start()
        self._wake.set()

    def close(self) -> None:
        """Stop the thread; the next process sends what remains."""
        self._stopped.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            now, before = monotonic(), self.problems
            with self._lock:
                due = [e for e in self._ensembles.values() if e.due is not None and e.due <= now]
            for ensemble in due:
                if not self._stopped.is_set():
                    self._deliver(ensemble, now)
            if self.problems != before:
                self._on_change()
            with self._lock:
                waits = [e.due - now for e in self._ensembles.values() if e.due is not None]
            self._wake.wait(max(0.0, min(waits)) if waits else None)

    def _deliver(self, ensemble: _Ensemble, now: float) -> None:
        with self._lock:
            events, live, complete = ensemble.events, ensemble.live, ensemble.complete
            ensemble.due = None
        try:
            if ensemble.delivery is None:
                ensemble.delivery = Delivery(
                    ensemble.dagdir, self._channels, self.settings.interval
                )
            state = ensemble.delivery.deliver(events, live=live, complete=complete, now=time())
        except Exception as error:  # One ensemble must not stop the others.
            ensemble.problems = (describe_error("notifications failed", error),)
            return
        ensemble.problems = state.problems
        with self._lock:
            if state.wait is not None and ensemble.due is None:
                ensemble.due = now + state.wait


def _is_outdated(as_of: datetime | None, newest: datetime | None) -> bool:
    if as_of is None or newest is None or (as_of.tzinfo is None) != (newest.tzinfo is None):
        return False
    return timedelta() < newest - as_of < SLOWEST_READER
