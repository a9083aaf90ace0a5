"""``metlmon serve``: the dashboard in a browser of this machine."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Final

from metlmon.cli.command_line import is_elsewhere
from metlmon.cli.output import require_package
from metlmon.cli.reading import has_dagdirs_below, names_one, new_reader, stop_watchdog
from metlmon.errors import InputError
from metlmon.remote.paths import split_argument
from metlmon.text.formatting import directory_name, plain

if TYPE_CHECKING:
    from metlmon.serve.server import DashboardServer

END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def serve(options: argparse.Namespace) -> int:
    """Serve the dashboard until ^C. Returns the exit status."""
    require_package("serve", "textual_serve", "serve")
    title = _check(options)
    from metlmon.serve.app_process import watch_command
    from metlmon.serve.server import DashboardServer

    server = DashboardServer(watch_command(watch_arguments(options)), title, options.port)
    print(server.url, flush=True)
    port, host = server.port, plain(socket.gethostname(), 200)
    print(
        "metlmon: open this in a browser of this machine; "
        f"{'' if options.allow_actions else 'read-only; '}^C ends it\n"
        f"metlmon: elsewhere, first: ssh -N -L {port}:127.0.0.1:{port} {host}",
        file=sys.stderr,
        flush=True,
    )
    return asyncio.run(_serve(server))


def _check(options: argparse.Namespace) -> str:
    """The title of the page. Raises InputError if the only directory is unreadable."""
    words = options.dirs or ["."]
    if any(map(is_elsewhere, words)):
        # The dashboard of each tab connects, shows what is wrong, and has this name, too.
        host, directory = split_argument(words[0]) or ("", words[0])
        name = f"{host}:{os.path.basename(directory.rstrip('/'))}"
        return plain(name, 200) if len(words) == 1 else "metlmon"
    is_one = names_one(options) or (len(words) == 1 and not has_dagdirs_below(options))
    if is_one:
        new_reader(options).open()
    elif missing := [word for word in words if not os.path.lexists(word)]:
        raise InputError(f"{missing[0]}: no such file or directory; give one that exists")
    stop_watchdog()
    return plain(directory_name(os.path.abspath(words[0])), 200) if is_one else "metlmon"


def watch_arguments(options: argparse.Namespace) -> list[str]:
    """The arguments of ``metlmon watch`` for a tab."""
    words = ["--no-notify"] if options.allow_actions else ["--no-notify", "--read-only"]
    given = {"--as-of": options.as_of, "--tz": options.tz, "--only": options.only}
    words += [f"{name}={value}" for name, value in given.items() if value is not None]
    if options.live is not None:
        words.append("--live" if options.live else "--no-live")
    words += [f"--{name}" for name in ("ascii", "mouse") if getattr(options, name)]
    return [*words, "--", *options.dirs]


async def _serve(server: DashboardServer) -> int:
    """Serve until a signal, and end all programs. Returns the exit status."""
    loop, stopped, received = asyncio.get_running_loop(), asyncio.Event(), list[int]()

    def stop(number: int) -> None:
        received.append(number)
        # A second ^C takes effect immediately.
        for each in END_SIGNALS:
            loop.remove_signal_handler(each)
        stopped.set()

    for each in END_SIGNALS:
        # Ignored by nohup: keep ignoring it.
        if signal.getsignal(each) is not signal.SIG_IGN:
            loop.add_signal_handler(each, stop, each)
    await server.serve_until(stopped)
    return 128 + received[0]
