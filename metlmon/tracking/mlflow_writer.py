"""Writes the states of a live ensemble to an MLflow server, in a thread of its own.

One state waits at most, and a newer one takes its place: a server that is slow, or does not answer
for hours, costs neither memory nor time of the thread that reads the logs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from metlmon.tracking.mlflow_client import TrackingError
from metlmon.tracking.mlflow_export import ExportResult, MlflowExporter
from metlmon.tracking.mlflow_runs import TrackedEnsemble

FIRST_PAUSE_SECONDS: Final = 2.0
LONGEST_PAUSE: Final = 30
"""Pauses between attempts while the server fails: each is twice the one before, up to this multiple
of the first one."""


class EnsembleState(NamedTuple):
    """What is to be written; ``report``: HTML, None to leave the one that is there."""

    ensemble: TrackedEnsemble
    report: bytes | None = None


class MlflowWriter:
    """Writes the newest of the states that it is given.

    ``show`` is called with each export and its result, ``warn`` with one sentence when the server
    begins to fail and one when it works again; both in the writer's thread. ``failure``: what ended
    the thread, such as a refusal of the first export that will not pass.
    """

    def __init__(
        self,
        exporter: MlflowExporter,
        show: Callable[[TrackedEnsemble, ExportResult], None],
        warn: Callable[[str], None],
        first_pause: float = FIRST_PAUSE_SECONDS,
    ) -> None:
        self.failure: Exception | None = None
        self._exporter = exporter
        self._show = show
        self._warn = warn
        self._first_pause = first_pause
        self._condition = threading.Condition()
        self._waiting: EnsembleState | None = None
        self._busy = False
        self._failures = 0
        self._no_pause = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metlmon-mlflow", daemon=True)

    def start(self) -> None:
        """Start the thread, which ends with the process."""
        self._thread.start()

    def put(self, state: EnsembleState) -> None:
        """Write this state, in place of one that waits. Returns at once."""
        with self._condition:
            self._replace(state)
            self._condition.notify_all()

    @property
    def is_done(self) -> bool:
        """Whether everything is written, or nothing will be any more."""
        with self._condition:
            return self._is_done()

    def flush(self, seconds: float) -> bool:
        """Try at once to write what waits, for at most so long; returns whether it is written."""
        with self._condition:
            self._no_pause.set()
            last = self._failures + 1 + self._busy
            self._condition.wait_for(lambda: self._is_done() or self._failures >= last, seconds)
            return self._is_done()

    def _is_done(self) -> bool:
        return self.failure is not None or (self._waiting is None and not self._busy)

    def _replace(self, newer: EnsembleState) -> None:
        older = self._waiting
        if newer.report is None and older is not None:
            newer = newer._replace(report=older.report)
        self._waiting = newer

    # --- the writing thread -----------------------------------------------------------------

    def _run(self) -> None:
        written = failing = False
        pause = self._first_pause
        while True:
            state = self._take()
            try:
                result = self._exporter.export(state.ensemble, state.report, attempts=1)
                if failing:
                    self._warn("the tracking server works again")
                self._show(state.ensemble, result)
                written, failing, pause = True, False, self._first_pause
                self._put_down(None)
            except TrackingError as error:
                if not written and not error.transient:
                    self._fail(error)
                    return
                if not failing:
                    self._warn(f"{error.event}; it is tried again until it works")
                failing = True
                self._put_down(state)
                self._no_pause.wait(pause)
                self._no_pause.clear()
                pause = min(2 * pause, LONGEST_PAUSE * self._first_pause)
            except Exception as error:  # The main thread ends with it.
                self._fail(error)
                return

    def _take(self) -> EnsembleState:
        with self._condition:
            self._condition.wait_for(lambda: self._waiting is not None)
            state, self._waiting = self._waiting, None
            assert state is not None
            self._busy = True
            return state

    def _put_down(self, again: EnsembleState | None) -> None:
        """The export has ended; ``again``: its state, if it failed."""
        with self._condition:
            self._busy = False
            if again is not None:
                self._failures += 1
                newer, self._waiting = self._waiting, again
                if newer is not None:
                    self._replace(newer)
            self._condition.notify_all()

    def _fail(self, error: Exception) -> None:
        with self._condition:
            self.failure = error
            self._condition.notify_all()
