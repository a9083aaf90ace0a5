"""``metlmon notify``, and ``--notify``: notifications without the thread of the dashboard."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from metlmon.cli import Exit
from metlmon.cli.output import print_message
from metlmon.cli.reading import open_reader, read_health
from metlmon.config.loader import load_settings
from metlmon.config.settings import NotifySettings, Settings
from metlmon.errors import InputError
from metlmon.text.formatting import plain

if TYPE_CHECKING:
    from metlmon.live.dagdir_reader import DagdirReader
    from metlmon.notify.channels import Channel
    from metlmon.notify.events import NotifyEvent


def notify(options: argparse.Namespace) -> int:
    """Send one message through each channel, and print the results. Returns the exit status."""
    from metlmon.notify.channels import SendError
    from metlmon.notify.events import Message, make_message

    settings = load_settings(None).notify
    if not settings.configured:
        settings = replace(settings, terminal=("bell",))
    message = Message()
    if options.dir is not None:
        reader = open_reader(options)
        events = current_events(reader, settings)
        if not events:
            print(f"nothing to send: none of {', '.join(settings.about)} holds there now")
            return Exit.OK
        message = make_message(reader.path_given, events)
    channels = terminal_channels(settings)
    if not channels:
        raise InputError("there is no terminal, and [notify] has no command or webhook")
    code = Exit.OK
    for channel in channels:
        try:
            channel.send(message)
        except SendError as error:
            code = Exit.REFUSED
            result = f"failed: {error}"
        else:
            result = "sent"
        print(plain(f"{channel.name} {channel.target}: {result}", 300))
    return code


# --- once, for other commands ---------------------------------------------------------------

LOCKED_SECONDS: Final = 10.0
LOCK_SECONDS: Final = 0.1
"""Time that another process has for sending, and the interval of the checks."""


def notify_settings(settings: Settings, options: argparse.Namespace) -> NotifySettings | None:
    """How notifications are sent; None if they are not.

    Without ``--notify`` they are sent if the settings say how; with it, at least by the bell.
    """
    wanted: bool | None = options.notify
    if wanted is False or options.as_of or options.live is False:
        return None
    if settings.notify.configured:
        return settings.notify
    return replace(settings.notify, terminal=("bell",)) if wanted else None


def notify_once(
    reader: DagdirReader, options: argparse.Namespace, *, at_once: bool = False
) -> None:
    """Send what holds now and was not sent before, for ``--notify``. Raises InputError.

    ``at_once``: ignore the time of the last message.
    """
    from metlmon.notify.delivery import Delivery
    from metlmon.notify.events import is_complete

    if options.as_of:
        raise InputError("--notify is about the present: leave out --as-of")
    settings = notify_settings(reader.ensemble.settings, options)
    if settings is None:
        return
    channels = terminal_channels(settings)
    if not channels:
        raise InputError(
            "--notify: there is no terminal, and [notify] in your metlmon.toml has no command or "
            "webhook; metlmon help notifications says how"
        )
    events, status = current_events(reader, settings), reader.snapshot_builder().status()
    complete = reader.error is None and is_complete(status)
    delivery = Delivery(Path(reader.path_given), channels, settings.interval)
    deadline = time.monotonic() + LOCKED_SECONDS
    while True:
        state = delivery.deliver(
            events, live=status.live, complete=complete, now=time.time(), at_once=at_once
        )
        if not state.locked or time.monotonic() > deadline:
            break
        time.sleep(LOCK_SECONDS)
    for problem in state.problems:
        print_message(f"notifications: {problem}")


def terminal_channels(settings: NotifySettings) -> tuple[Channel, ...]:
    """The channels of a command, whose terminal is that of standard error."""
    from metlmon.notify.channels import open_channels

    return open_channels(settings, _write if sys.stderr.isatty() else None)


def _write(text: str) -> bool:
    try:
        os.write(sys.stderr.fileno(), text.encode())
    except (OSError, ValueError):
        return False
    return True


def current_events(reader: DagdirReader, settings: NotifySettings) -> tuple[NotifyEvent, ...]:
    """All events that hold now."""
    from metlmon.notify.events import find_events

    status = reader.snapshot_builder().status()
    return find_events(read_health(reader), status, settings.about)
