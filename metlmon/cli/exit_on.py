"""``--exit-on``: what a script can wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from metlmon.cli.exit_codes import CONDITIONS, Exit
from metlmon.live.errors import InputError
from metlmon.model.states import ACTIVE, ENDED, DagState, State
from metlmon.snapshot.types import RunRow, Status

UNDER_WAY: Final = frozenset({State.PRE, State.POST, State.RETRYING})
"""States of a node that has no job in the queue, and is not over."""


def pause(seconds: float) -> None:
    """Here, and not where files are read: who only waits for the next look waits for no file
    system."""
    time.sleep(seconds)


def exit_condition(text: str) -> Callable[[Status], Exit | None]:
    """A function that gives the code to exit with, None to go on waiting.

    ``text``: the names in ``--exit-on``. Raises InputError for one that there is not.
    """
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    unknown = sorted(names - CONDITIONS.keys())
    if unknown or not names:
        what = unknown[0] if unknown else text
        raise InputError(f"--exit-on {what!r}: there are {', '.join(CONDITIONS)}")

    def met(status: Status) -> Exit | None:
        codes = (TESTS[name](status) for name in CONDITIONS if name in names)
        return next((code for code in codes if code is not None), None)

    return met


def _all_runs(status: Status) -> Exit | None:
    runs = status.runs
    if runs and all(_finished(run) for run in runs):
        return Exit.FAILED if all(_stopped(run) for run in runs) else Exit.OK
    if runs and all(_finished(run) or _is_over(run) for run in runs):
        return Exit.FAILED
    return _cannot_go_on(status)


def _finished(run: RunRow) -> bool:
    """All its epochs are over. Its state does not say that: it is its latest epoch's."""
    return run.epochs_done + run.epochs_skipped == run.epochs_total


def _stopped(run: RunRow) -> bool:
    """Its gate ended it before its last epoch was done."""
    gate = run.gate
    return gate is not None and gate.stopped is not None and run.epochs_done < run.epochs_total


def _is_over(run: RunRow) -> bool:
    """Not all its epochs are over, and none will be begun, whether its DAGMan lives or not."""
    if run.state in (State.FAILED, State.REMOVED, State.FUTILE):
        return True
    return _stopped(run) and run.state not in ACTIVE and run.state not in UNDER_WAY


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
    dagman = any(dag.state is DagState.HELD for dag in status.dags)
    return Exit.HELD if dagman or status.node_states.get(State.HELD) else None


TESTS: Final[dict[str, Callable[[Status], Exit | None]]] = {
    "all": _all_runs,
    "done": _done,
    "failed": _failed,
    "held": _held,
}
