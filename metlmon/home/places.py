"""The directories that Home shows: the user's list, and those of the user's DAGMan jobs.

The list is ``home.json`` in the directory of the user's state: a JSON object whose ``directories``
are absolute paths of dagdirs, or of directories with dagdirs below them, or ``HOST:DIR`` for those
on other machines.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec import Struct

from metlmon.config.user_state import read_state, state_directory, write_state
from metlmon.errors import describe_error
from metlmon.pool.connection import PoolConnection
from metlmon.pool.queue_checks import dagman_directory
from metlmon.pool.types import PoolError
from metlmon.remote.paths import as_typed


class UserList(Struct):
    """The content of the file."""

    directories: list[str] = []


def _file() -> Path | None:
    directory = state_directory()
    return None if directory is None else directory / "home.json"


def load_list() -> tuple[str, ...]:
    """The paths of the list; none if the file is missing or damaged."""
    content = read_state(_file(), UserList) or UserList()
    return tuple(filter(None, map(_path, content.directories)))


def _path(directory: str) -> str | None:
    if os.path.isabs(directory):
        return directory
    from metlmon.remote.machine import connect_later
    from metlmon.remote.paths import UnusableMachine

    try:
        return connect_later(directory)
    except UnusableMachine:
        return None


def save_list(directories: Iterable[str]) -> bool:
    """Write the list; return whether that succeeded. On failure the old one remains."""
    return write_state(_file(), UserList([as_typed(path) for path in directories]))


# --- the queue ------------------------------------------------------------------------------

QUEUE_SECONDS: Final = 30.0
"""Interval of the query for DAGMan jobs, which are few."""


def user_dagdirs(connection: PoolConnection) -> tuple[str, ...]:
    """The directories of the user's DAGMan jobs, sorted. Raises PoolError."""
    user = connection.where().user.partition("@")[0]
    # A sub-DAG's DAGMan is part of the ensemble of its own DAGMan.
    own = [job for job in connection.dagmans() if job.owner == user and job.dagman is None]
    found = {dagman_directory(job) for job in own}
    return tuple(sorted(path for path in found if path is not None))


class QueueDagdirs:
    """The directories of the user's DAGMan jobs, for which a thread asks the schedd.

    A directory stays after its DAGMan has left the queue. ``error``: why the schedd did not answer.
    ``changed`` is set after each answer.
    """

    def __init__(self) -> None:
        self.directories: tuple[str, ...] = ()
        self.error: str | None = None
        self.changed = threading.Event()
        self._connection = PoolConnection()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metlmon-queue", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                found = user_dagdirs(self._connection)
                self.directories = tuple(dict.fromkeys((*self.directories, *found)))
                self.error = None
            except PoolError as error:
                self.error = str(error)
            except Exception as error:
                self.error = describe_error("asking the queue failed", error)
            self.changed.set()
            self._stop.wait(QUEUE_SECONDS)

    def close(self) -> None:
        """Stop asking, without waiting for a pending answer."""
        self._stop.set()
        self._connection.close()
