"""The ensembles of the queue: the directories of the user's DAGMan jobs."""

from __future__ import annotations

import threading
from typing import Final

from metlmon.errors import describe_error
from metlmon.pool.connection import PoolConnection
from metlmon.pool.queue_checks import dagman_directory
from metlmon.pool.types import PoolError

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

    A directory stays when its DAGMan has left the queue. ``error``: why the schedd gave no answer.
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
        """Stop asking; an answer that is awaited is not waited for."""
        self._stop.set()
        self._connection.close()
