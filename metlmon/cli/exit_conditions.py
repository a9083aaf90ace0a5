"""What ``--exit-on`` waits for.

``all`` and ``done`` are about nodes and DAGs, and need only the status. ``failed``, ``held`` and
``stalled`` are open entries of the health, of any severity; ``failed`` includes a DAG that failed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from metlmon.cli import CONDITIONS, Exit
from metlmon.cli.command_line import chosen_words
from metlmon.health.types import Health, HealthSource
from metlmon.jobfiles.gate_files import ABORT_RULE
from metlmon.model.states import ALIVE, CAN_RUN, DONE, ENDED, LOST, OVER, DagState, State
from metlmon.snapshot.records import DagRow, Run, Status


def exit_condition(text: str) -> Callable[[Status, HealthSource], Exit | None]:
    """The function that returns the exit status; None to continue. Raises InputError."""
    names = chosen_words("--exit-on", text, CONDITIONS)

    def met(status: Status, health: HealthSource) -> Exit | None:
        codes = (TESTS[name](status, health) for name in CONDITIONS if name in names)
        return next((code for code in codes if code is not None), None)

    return met


def has_ended(status: Status) -> bool:
    """Whether nothing of the ensemble is running or will run."""
    return _all_runs(status, None) is not None


def _all_runs(status: Status, _: HealthSource | None) -> Exit | None:
    alive = [dag for dag in status.dags if dag.state in ALIVE]
    if alive and all(dag.crashes for dag in alive):
        return Exit.FAILED
    # Jobs beside a DAG do not count among its runs.
    runs = [run for run in status.runs if run.dag or not status.dags]
    if runs and all(_finished(run) for run in runs):
        return _other_nodes(status, Exit.FAILED if all(map(_stopped, runs)) else Exit.OK)
    if runs and all(_finished(run) or _is_over(run) for run in runs):
        return Exit.FAILED
    # Each DAGMan may have ended with 0 and nodes left: after ABORT-DAG-ON … RETURN 0.
    has_succeeded = status.dags and all(dag.state is DagState.DONE for dag in status.dags)
    nodes = status.node_states
    are_done = nodes and sum(nodes.values()) == sum(nodes.get(state, 0) for state in DONE)
    if not runs and (has_succeeded or are_done):
        return Exit.OK
    return _cannot_go_on(status)


def _other_nodes(status: Status, result: Exit) -> Exit | None:
    """``result`` if all runs are finished, unless a node outside of any run says otherwise."""
    if any(map(_is_lost, status.dags)):
        return Exit.FAILED
    for dag in status.dags:
        states = {state for state, number in dag.other_states.items() if number}
        if dag.state is DagState.DONE or dag.continued:
            continue
        if states & OVER:
            return Exit.FAILED
        goes_on = dag.state in ALIVE or (dag.state is DagState.UNKNOWN and status.live)
        if goes_on and states & {*CAN_RUN, State.WAITING}:
            return None
    return result


def _is_lost(dag: DagRow) -> bool:
    """Whether a DAG has failed, or was removed before its end, and no later one continues it."""
    if dag.continued:
        return False
    undone = dag.nodes_done < dag.nodes_total
    return dag.state is DagState.FAILED or (dag.state is DagState.REMOVED and undone)


def _finished(run: Run) -> bool:
    """Whether all its epochs are over, which its state, that of its latest epoch, does not say.

    They are over if ABORT-DAG-ON … RETURN 0 ended the run: DAGMan calls that a success.
    """
    stopped = run.gate.stopped if run.gate is not None else None
    if stopped is not None and stopped.rule == ABORT_RULE:
        return True
    return not run.epochs_left


def _stopped(run: Run) -> bool:
    """Whether its gate ended it before its last epoch was done."""
    stopped = run.gate.stopped if run.gate is not None else None
    if stopped is None or stopped.rule == ABORT_RULE:
        return False
    return run.epochs_done < run.epochs_total


def _is_over(run: Run) -> bool:
    """Whether no further epoch will begin although some are not over, even with a living DAGMan."""
    if run.state in (State.FAILED, State.REMOVED, State.FUTILE):
        return True
    return _stopped(run) and run.state not in CAN_RUN


def _cannot_go_on(status: Status) -> Exit | None:
    """Return FAILED if nothing is at work any longer although not everything is done.

    That is so if every DAGMan has ended. For a finished copy without DAGMan's files the states of
    the nodes decide: something was submitted, and no job is in the queue, including held ones.
    """
    submitted = [dag for dag in status.dags if dag.state is not DagState.NOT_SUBMITTED]
    if submitted and all(dag.state in ENDED for dag in submitted):
        return Exit.FAILED
    if status.live or not submitted or any(dag.state in ALIVE for dag in submitted):
        return None
    return None if any(status.node_states.get(state) for state in CAN_RUN) else Exit.FAILED


def _done(status: Status, health: HealthSource) -> Exit | None:
    if not status.dags:
        return _all_runs(status, health)
    dags = [dag for dag in status.dags if not dag.continued]
    if dags and all(dag.state is DagState.DONE for dag in dags):
        return Exit.OK
    return Exit.FAILED if any(dag.state in LOST or dag.crashes for dag in dags) else None


def _failed(status: Status, health: HealthSource) -> Exit | None:
    lost = any(map(_is_lost, status.dags))
    return Exit.FAILED if lost or _has_open(health(), "failed") else None


def _waits(condition: str, status: Status, health: HealthSource) -> Exit | None:
    return Exit.HELD if _has_open(health(), condition) else None


def _has_open(health: Health | None, condition: str) -> bool:
    """Whether the health has an open entry of this condition."""
    from metlmon.health.types import KINDS

    entries = health.open_entries if health is not None else ()
    return any(KINDS[entry.kind].condition == condition for entry in entries)


TESTS: Final[dict[str, Callable[[Status, HealthSource], Exit | None]]] = {
    "all": _all_runs,
    "done": _done,
    "failed": _failed,
    **{condition: partial(_waits, condition) for condition in ("held", "stalled")},
}
