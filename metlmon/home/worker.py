"""The process that reads the ensembles of Home, so that the dashboard never waits for it.

A thread would hold the interpreter for too long: with 50 dagdirs of 20 MB the screen stalls for up
to 212 ms, 135 ms at the 99th percentile; with this process for up to 99 ms, 5 ms at the 99th.

Requests and updates are lines of JSON on standard input and output. It ends when its input ends.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Final

import msgspec
from msgspec import Struct

from metlmon.config.loader import cache_directory
from metlmon.config.user_state import read_state, write_state
from metlmon.home.places import QueueDagdirs
from metlmon.home.reading import HomeReader, HomeUpdate, StoredSummary
from metlmon.remote.paths import HOSTS

NICE: Final = 5
"""How much lower the priority of this process is than the dashboard's."""

UPDATE_SECONDS: Final = 0.2
"""Minimum interval between updates: the screen does not show more of them."""

STORE_SECONDS: Final = 60.0
"""Interval at which changed summaries are stored for the next session."""

STORED_NAME: Final = "home.json"
"""Name of the file with the summaries, in the user's cache."""


class HomeRequest(Struct, frozen=True):
    """The paths below which ensembles are searched.

    ``queue``: whether to include the directories of the user's DAGMan jobs. ``quiet``: one of the
    paths that gets no line unless there is an ensemble below it. ``again``: an ensemble at which
    the user has looked, whose news is determined again soon. ``machines``: the other machines of
    some paths; their connections are those of the parent, at the socket ``relay``.
    """

    paths: tuple[str, ...] = ()
    queue: bool = False
    quiet: str | None = None
    again: str | None = None
    machines: tuple[str, ...] = ()
    relay: str = ""


class _StoredFile(Struct, frozen=True):
    """The content of the file; ``version``: that of the code that made the summaries."""

    version: str
    summaries: list[StoredSummary]


def load_stored(cache: Path | None) -> list[StoredSummary]:
    """The summaries of the last session in this directory; none if other code made them."""
    stored = read_state(cache and cache / STORED_NAME, _StoredFile)
    return stored.summaries if stored is not None and stored.version == _version() else []


def store(cache: Path | None, summaries: Iterable[StoredSummary]) -> None:
    """Store the summaries for the next session, if possible."""
    write_state(cache and cache / STORED_NAME, _StoredFile(_version(), list(summaries)))


@cache
def _version() -> str:
    """Identifies the code that makes the summaries, by size and time of all its files.

    Determined when this process starts: an update may replace the files before it ends.
    """
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    statuses = [(str(file), os.stat(file)) for file in files]
    return repr([(file, s.st_size, s.st_mtime_ns) for file, s in statuses])


def serve(requests: IO[bytes], responses: IO[bytes]) -> None:
    """Read the ensembles of the newest request until ``requests`` ends."""

    def write(update: HomeUpdate) -> None:
        responses.write(msgspec.json.encode(update) + b"\n")
        responses.flush()

    stored_in = cache_directory()
    reader = HomeReader(write, load_stored(stored_in), update_seconds=UPDATE_SECONDS)
    queue: QueueDagdirs | None = None
    request, buffer = HomeRequest(), b""
    stored, stored_at = None, time.monotonic()
    descriptor = requests.fileno()
    pause = 0.0
    while True:
        if select.select([descriptor], [], [], min(pause, 1.0))[0]:
            data = os.read(descriptor, 1 << 16)
            if not data:
                break
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                request = msgspec.json.decode(line, type=HomeRequest)
                for host in request.machines:
                    _reach(host, request.relay)
                if request.again is not None:
                    reader.look_again(request.again)
            if request.queue and queue is None:
                queue = QueueDagdirs()
            if queue is None:
                reader.set_paths(request.paths, request.quiet)
        if queue is not None and (queue.changed.is_set() or request.paths):
            queue.changed.clear()
            paths = (*request.paths, *queue.directories)
            reader.set_paths(paths, request.quiet, queue.error)
        pause = reader.turn()
        if pause > 0 and time.monotonic() - stored_at > STORE_SECONDS:
            summaries, stored_at = reader.stored(), time.monotonic()
            if summaries != stored:
                store(stored_in, summaries)
                stored = summaries
    if queue is not None:
        queue.close()
    store(stored_in, reader.stored())


def _reach(host: str, relay: str) -> None:
    """Make the files of another machine readable, through the parent's connection."""
    if host not in HOSTS:
        from metlmon.remote.machine import add_machine
        from metlmon.remote.relay import RelayedChannel

        add_machine(RelayedChannel(host, relay))


def main() -> None:
    """Run as a child process of :class:`metlmon.home.feed.HomeFeed`."""
    # The terminal's interrupt key is for the parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):
        os.nice(NICE)
    responses = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with suppress(BrokenPipeError):
        serve(os.fdopen(0, "rb", buffering=0), responses)
