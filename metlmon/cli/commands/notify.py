"""``metlmon notify``: try the notifications that are set up."""

from __future__ import annotations

import argparse

from msgspec.structs import replace

from metlmon.cli.exit_codes import Exit
from metlmon.cli.notifications import current_events, terminal_channels
from metlmon.cli.reading import open_reader
from metlmon.config.loader import load_settings
from metlmon.errors import InputError
from metlmon.notify.channels import SendError
from metlmon.notify.events import Message, make_message
from metlmon.text.formatting import plain


def notify(options: argparse.Namespace) -> int:
    """Send one message by each channel, and print what came of it. Returns the exit status."""
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
