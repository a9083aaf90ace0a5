"""What was sent, and what is to be sent now: each event once, whatever process sees it.

The record of a dagdir is a file of the user's, outside of the dagdir. Its lock is held while
messages are sent, so that two processes do not send the same; an event counts as sent only when
a channel has taken it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.config.user_state import read_state, state_lock, state_path, write_state
from metlmon.notify.channels import Channel, SendError
from metlmon.notify.events import Message, NotifyEvent, make_message
from metlmon.text.formatting import age, count

PURPOSE: Final = "notified"

RETRY_AFTER: Final = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0)
"""Seconds from each failure to the next try; after the last try the events are given up."""

LOCKED_SECONDS: Final = 5.0
"""Seconds until the next try where another process is sending."""


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
    """An event that holds.

    ``size``: of the event when it was last to be sent; ``unsent``: the names of the channels that
    are still to send it.
    """

    size: int = 0
    unsent: list[str] = []


class SentRecord(Struct):
    """The events that hold, by hash of their key, and the channels by name."""

    events: dict[str, SentEvent] = {}
    channels: dict[str, ChannelRecord] = {}

    def unsent(self, event: NotifyEvent) -> list[str]:
        """The channels that are still to send an event of the record."""
        return self.events[_hash(event)].unsent


class DeliveryState(Struct, frozen=True):
    """What remains to be done for a dagdir.

    ``wait``: seconds until the next call is due; None: nothing is left to be sent.
    ``problems``: what was not sent, and why, one sentence for each channel. ``locked``: another
    process is sending, and nothing was done.
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
        """The record where no file can be written."""

    def deliver(
        self,
        events: Sequence[NotifyEvent],
        *,
        live: bool,
        now: float,
        complete: bool = True,
        at_once: bool = False,
    ) -> DeliveryState:
        """Send those of the events that were not sent before, as one message.

        ``events``: all that hold. Those of an ensemble that was never seen before and is not
        ``live`` are old, and are not sent. ``now``: seconds since the epoch. ``complete``: an
        event that is missing is over; else it may be in a file that could not be read.
        ``at_once``: whenever the last message was sent. Blocks while the channels send.
        """
        if self._path is None:
            return self._update(
                None, events, live=live, now=now, complete=complete, at_once=at_once
            )
        with state_lock(self._path) as locked:
            if not locked:
                return DeliveryState(wait=LOCKED_SECONDS, locked=True)
            record = read_state(self._path, SentRecord)
            return self._update(
                record, events, live=live, now=now, complete=complete, at_once=at_once
            )

    def _update(
        self,
        before: SentRecord | None,
        events: Sequence[NotifyEvent],
        *,
        live: bool,
        now: float,
        complete: bool,
        at_once: bool,
    ) -> DeliveryState:
        """Send, and write the new record. ``before``: the one in the file."""
        before = self._unwritten or before
        names = [channel.name for channel in self._channels]
        unsent = names if live or before is not None else []
        old = before or SentRecord()
        known = {(key := _hash(event)): (event, old.events.get(key)) for event in events}
        record = SentRecord(
            {
                **({} if complete else old.events),
                **{key: _follow(event, of_old, unsent) for key, (event, of_old) in known.items()},
            },
            {name: replace(channel) for name, channel in old.channels.items()},
        )
        if record != before:
            # Before anything is sent: if this process ends meanwhile, the events are known.
            self._write(record)
        waits = []
        for channel in self._channels:
            state = record.channels.setdefault(channel.name, ChannelRecord())
            waiting = [event for event in events if channel.name in record.unsent(event)]
            if not waiting:
                continue
            # A record of the future is that of a clock that was wrong.
            if state.retry_at > now + RETRY_AFTER[-1]:
                state.retry_at = 0.0
            due = max(state.retry_at, state.sent_at + self._interval)
            if not at_once and now < due and state.sent_at <= now:
                waits.append(due - now)
                continue
            if _send(channel, make_message(str(self._dagdir), waiting), state, now):
                for each in record.events.values():
                    each.unsent = [name for name in each.unsent if name != channel.name]
            else:
                waits.append(state.retry_at - now)
            self._write(record)
        problems = (_problem(channel, record, now) for channel in self._channels)
        return DeliveryState(min(waits, default=None), tuple(filter(None, problems)))

    def _write(self, record: SentRecord) -> None:
        self._unwritten = None if write_state(self._path, record) else record


def _follow(event: NotifyEvent, known: SentEvent | None, channels: Sequence[str]) -> SentEvent:
    """The record of an event that holds: ``channels`` send it if it is new, or twice as large."""
    if known is None or (event.size > 1 and event.size >= 2 * known.size):
        return SentEvent(event.size, list(channels))
    return SentEvent(known.size, list(known.unsent))


def _send(channel: Channel, message: Message, state: ChannelRecord, now: float) -> bool:
    """Send a message; return whether the channel is through with it, sent or given up."""
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
