"""``--exit-on``: what a script can wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from metlmon.cli.codes import CONDITIONS, Exit
from metlmon.ensemble.states import DagState, State
from metlmon.ensemble.views import RunRow, Status

ENDED: Final = frozenset({DagState.DONE, DagState.FAILED, DagState.REMOVED})


def pause(seconds: float) -> None:
    """Here, and not where files are read: who only waits for the next look waits for no file
    system."""
    time.sleep(seconds)


def condition(names: frozenset[str]) -> Callable[[Status], Exit | None]:
    """A test that says with which code to exit, None to go on waiting."""

    def met(status: Status) -> Exit | None:
        answers = (TESTS[name](status) for name in CONDITIONS if name in names)
        return next((answer for answer in answers if answer is not None), None)

    return met


def _all_runs(status: Status) -> Exit | None:
    if status.runs and all(_finished(run) for run in status.runs):
        return Exit.OK
    return _cannot_go_on(status)


def _finished(run: RunRow) -> bool:
    """All its epochs are over. Its state does not say that: it is its latest epoch's."""
    return run.epochs_done + run.epochs_skipped == run.epochs_total


def _cannot_go_on(status: Status) -> Exit | None:
    """Nobody is at work any more, and not all is done."""
    submitted = [dag for dag in status.dags if dag.state is not DagState.NOT_SUBMITTED]
    if submitted and all(dag.state in ENDED for dag in submitted):
        return Exit.FAILED
    return None


def _done(status: Status) -> Exit | None:
    states = [dag.state for dag in status.dags]
    if states and all(state is DagState.DONE for state in states):
        return Exit.OK
    return _failed(status)


def _failed(status: Status) -> Exit | None:
    if any(dag.state in (DagState.FAILED, DagState.REMOVED) for dag in status.dags):
        return Exit.FAILED
    return None


def _held(status: Status) -> Exit | None:
    return Exit.HELD if status.node_states.get(State.HELD) else None


TESTS: Final[dict[str, Callable[[Status], Exit | None]]] = {
    "all": _all_runs,
    "done": _done,
    "failed": _failed,
    "held": _held,
}
