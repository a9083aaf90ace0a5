"""What can be done to the jobs, the DAG and the runs that are selected, and what cannot, and why.

Pure: it looks at the logs' state and at the queue's last word, and never asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from metlmon.model.states import ACTIVE, ALIVE, TERMINAL, DagState, State
from metlmon.pool import run_actions
from metlmon.pool.discrepancies import HELD, SUSPENDED
from metlmon.pool.gate_requests import FILE_NAME, placement_file
from metlmon.pool.reasons import (
    SOME_NAMES,
    counted,
    no_word,
    not_here,
    not_running,
    not_yours,
    target,
    user_name,
)
from metlmon.pool.types import (
    DAG_ACTS,
    JOB_ACTS,
    RUN_ACTS,
    ActionPreview,
    ActionRequest,
    PoolAction,
    QueueJob,
    QueueSnapshot,
    SelectedRun,
    Target,
)
from metlmon.snapshot.types import DagRow, JobRow, Status
from metlmon.text.formatting import DAG_STATES, plain

OF_DAGMAN: Final = frozenset({PoolAction.RELEASE_DAG, PoolAction.REMOVE_DAG})
"""Acts on DAGMan's own job."""

PLACED: Final = ACTIVE - {State.IDLE, State.HELD}
"""States of a job that has a place at a machine, and can be put off it."""

EFFECTS: Final = {
    PoolAction.HOLD: (
        "they stop and stay in the queue, held; an execution loses "
        "what it did since its "
        "last checkpoint"
    ),
    PoolAction.RELEASE: "they wait for a machine again",
    PoolAction.REMOVE: (
        "they leave the queue; DAGMan retries a node if it has "
        "retries left, else the "
        "node fails, and what comes after it never runs"
    ),
    PoolAction.VACATE: (
        "their executions end, and they wait for a machine again; "
        "what was done since "
        "the last checkpoint is lost"
    ),
    PoolAction.PRIORITY: (
        "among your idle jobs those of higher priority go first; jobs that run are not touched"
    ),
    PoolAction.RETARGET: "they wait for a machine of that site alone; sets MetlSite",
    PoolAction.HALT: "running jobs go on, no new ones are submitted",
    PoolAction.RESUME: "DAGMan submits jobs again",
    PoolAction.RELEASE_DAG: "DAGMan starts again and goes on where it stopped",
    PoolAction.REMOVE_DAG: "its jobs leave the queue, DAGMan writes a rescue file and ends",
    PoolAction.RESUBMIT: "DAGMan starts again; nodes that are done are not run again",
}
UNDOES: Final = {
    PoolAction.HOLD: "release lets them run again",
    PoolAction.RELEASE: "hold",
    PoolAction.REMOVE: "cannot be undone; the run goes on by DAGMan's retries, or by resubmitting",
    PoolAction.VACATE: "cannot be undone; they start again by themselves",
    PoolAction.PRIORITY: "give them their old priority",
    PoolAction.RETARGET: "retarget them to where they were to go",
    PoolAction.HALT: "resume",
    PoolAction.RESUME: "halt",
    PoolAction.RELEASE_DAG: "condor_hold of DAGMan's job",
    PoolAction.REMOVE_DAG: "resubmit goes on from the rescue file; running epochs begin again",
    PoolAction.RESUBMIT: "remove the DAG",
}

ALREADY: Final = run_actions.ALREADY | {
    "held already",
    "it is halted already",
    "it is not halted",
    "DAGMan is not held",
}
"""Reasons that mean: it is as it was wished."""


def offers(
    word: QueueSnapshot,
    jobs: Sequence[JobRow],
    dags: Sequence[DagRow],
    refusal: str | None = None,
    runs: Sequence[SelectedRun] = (),
    status: Status | None = None,
) -> tuple[ActionPreview, ...]:
    """Every act for these, in the order of :class:`PoolAction`. ``refusal``: why nothing may be
    done at all; ``status``: the picture that they are from."""
    queue = {(job.cluster, job.proc): job for job in word.jobs}
    for_jobs = {act: _job_offer(act, word, queue, jobs, refusal) for act in JOB_ACTS}
    for_jobs[PoolAction.RETARGET] = _with_files(for_jobs[PoolAction.RETARGET], jobs, queue, status)
    for_dags = {act: _dag_offer(act, word, dags, refusal) for act in DAG_ACTS}
    all_dags = {dag.file: dag for dag in (status.dags if status is not None else dags)}
    for_runs = {
        act: run_actions.run_offer(act, word, queue, runs, all_dags, refusal) for act in RUN_ACTS
    }
    return tuple({**for_jobs, **for_dags, **for_runs}[act] for act in PoolAction)


def already_so(offer: ActionPreview) -> bool:
    """Is all that was selected as the act would make it? Of jobs and DAGs only the schedd's word
    tells: where there is none, that is what is wrong."""
    if offer.refused is None or not offer.refused.endswith(tuple(ALREADY)):
        return False
    return all(why in ALREADY for _, why in offer.left_out)


# --- jobs ---------------------------------------------------------------------------------


def _job_offer(
    act: PoolAction,
    word: QueueSnapshot,
    queue: Mapping[tuple[int, int], QueueJob],
    jobs: Sequence[JobRow],
    refusal: str | None,
) -> ActionPreview:
    touched: list[Target] = []
    left_out: list[tuple[Target, str]] = []
    for row in jobs:
        there = queue.get((row.cluster, row.proc))
        why = left_out_because(act, _state(row, there)) or not_yours(there, word)
        why = why or _not_while_suspended(act, row, there) or _not_by_site(act, there)
        if why is None:
            touched.append(target(row))
        else:
            left_out.append((target(row), why))
    refused = refusal or no_word(word) or _nothing_left(jobs, touched, left_out, queue, word)
    refused = refused or not_here(word, touched)
    order = None if refused else ActionRequest(act, tuple(touched))
    about = touched or [target(row) for row in jobs]
    subject = said_of(about)
    effect, undo = EFFECTS[act], UNDOES[act]
    if len(about) == 1:
        effect, undo = _of_one(effect), _of_one(undo)
    return ActionPreview(act, subject, order, refused, tuple(left_out), effect, undo)


def _state(row: JobRow, there: QueueJob | None) -> State:
    """The state that an act finds. A job that was held in the moment in which it ended has ended
    by its log and to DAGMan, but stays in the queue, held, until it is released (then it ends
    once more, and does not run) or removed, at the latest with its DAGMan."""
    held = there is not None and there.status == HELD
    return State.HELD if held and row.state in TERMINAL else row.state


def _not_while_suspended(act: PoolAction, row: JobRow, there: QueueJob | None) -> str | None:
    """A schedd (23.9.6) refuses to vacate a job that is suspended in its own eyes."""
    if act is not PoolAction.VACATE or row.state is not State.SUSPENDED or there is None:
        return None
    return "suspended: only jobs that run can be vacated" if there.status == SUSPENDED else None


def _not_by_site(act: PoolAction, there: QueueJob | None) -> str | None:
    """Where a job goes can be chosen only where its submit file says so."""
    if act is not PoolAction.RETARGET or there is None:
        return None
    if there.site is None:
        return "without MetlSite: its submit file does not let its site be chosen"
    return None if there.by_site else "not placed by MetlSite: its requirements do not look at it"


def _with_files(
    offer: ActionPreview,
    jobs: Sequence[JobRow],
    queue: Mapping[tuple[int, int], QueueJob],
    status: Status | None,
) -> ActionPreview:
    """RETARGET also writes what the submit file of a node with a gate includes: a retry goes there
    too, and who reads the files knows where."""
    if offer.order is None:
        return offer
    runs = {run.uuid: run.gate for run in (status.runs if status is not None else ())}
    gates = {(row.cluster, row.proc): runs.get(row.uuid) for row in jobs if row.uuid}
    targets = tuple(
        replace(each, file=placement_file(each.dag, each.node))
        if each.dag
        and each.node
        and FILE_NAME.fullmatch(each.node)
        and gates.get((each.cluster, each.proc))
        else each
        for each in offer.order.targets
    )
    files = [each.file for each in targets if each.file is not None]
    sent = {gate.target for gate in gates.values() if gate is not None and gate.target}
    effect, undo = offer.effect, offer.undo
    if files:
        effect += (
            f"; writes {files[0] if len(targets) == 1 else f'{len(files)} files in placement'}"
        )
    if files and sent:
        effect += "; a retry goes where its run is sent, " + plain(", ".join(sorted(sent)), 60)
    else:
        effect += f"; a retry goes {'there, too' if files else 'where the DAG file says'}"
    now = queue.get((targets[0].cluster, targets[0].proc))
    if len(targets) == 1 and now is not None and now.site is not None:
        undo = f"retarget it to {plain(now.site, 60)}"
    return replace(offer, order=replace(offer.order, targets=targets), effect=effect, undo=undo)


def left_out_because(act: PoolAction, state: State) -> str | None:
    """Why ``act`` does not touch a job in this state; None when it does."""
    said = str(state).replace("_", " ")
    if state in TERMINAL:
        return f"{said}: no longer in the queue"
    if state not in ACTIVE:
        return f"{said}: not in the queue"
    if act is PoolAction.HOLD and state is State.HELD:
        return "held already"
    if act is PoolAction.RELEASE and state is not State.HELD:
        return f"{said}: not held"
    if act is PoolAction.VACATE and state not in PLACED:
        return f"{said}: at no machine"
    if act is PoolAction.RETARGET and state is not State.IDLE:
        return f"{said}: only idle jobs can be retargeted"
    return None


def _nothing_left(
    jobs: Sequence[JobRow],
    touched: Sequence[Target],
    left_out: Sequence[tuple[Target, str]],
    queue: Mapping[tuple[int, int], QueueJob],
    word: QueueSnapshot,
) -> str | None:
    if not jobs:
        return "no job is selected"
    if touched:
        return None
    owners = {
        job.owner
        for row in jobs
        if (job := queue.get((row.cluster, row.proc))) is not None and not_yours(job, word)
    }
    if owners and word.user:
        named = ", ".join(plain(owner, 40) for owner in sorted(owners)[:SOME_NAMES])
        these = "these jobs belong" if len(jobs) > 1 else "this job belongs"
        return f"{these} to {named}, you are {plain(user_name(word.user), 40)}"
    if len(jobs) == 1:
        return f"the job is {left_out[0][1]}"
    return counted(left_out)


def said_of(targets: Sequence[Target]) -> str:
    """``3 jobs of run4``, ``job 12.0 of run4``, ``5 jobs of 2 runs``."""
    if not targets:
        return "no job"
    what = f"job {targets[0].id}" if len(targets) == 1 else f"{len(targets)} jobs"
    runs = sorted({each.run for each in targets if each.run is not None})
    if len(runs) == 1:
        return f"{what} of {plain(runs[0], 60)}"
    return f"{what} of {len(runs)} runs" if runs else what


def _of_one(text: str) -> str:
    """A sentence on jobs, said of one."""
    for many, one in (
        ("they stop and stay", "it stops and stays"),
        ("they wait", "it waits"),
        ("they leave", "it leaves"),
        ("their executions end, and they wait", "its execution ends, and it waits"),
        ("their executions end, and it waits", "its execution ends, and it waits"),
        ("they start again by themselves", "it starts again by itself"),
        ("lets them", "lets it"),
        ("give them their", "give it its"),
        ("retarget them to where they were", "retarget it to where it was"),
    ):
        text = text.replace(many, one)
    return text


# --- DAGs ---------------------------------------------------------------------------------


def _dag_offer(
    act: PoolAction, word: QueueSnapshot, dags: Sequence[DagRow], refusal: str | None
) -> ActionPreview:
    if len(dags) != 1:
        why = "no DAG is selected" if not dags else "more than one DAG is selected: choose one"
        subject = "no DAG" if not dags else f"{len(dags)} DAGs"
        return ActionPreview(act, subject, None, refusal or why, (), EFFECTS[act], UNDOES[act])
    dag = dags[0]
    name = plain(dag.file, 60)
    refused = refusal or REFUSALS[act](dag, word) or no_word(word)
    if refused is None and act is not PoolAction.RESUBMIT:
        refused = _dagman_refused(dag, word)
    effect = EFFECTS[act]
    if act in (PoolAction.HALT, PoolAction.RESUME):
        effect += f"; {'writes' if act is PoolAction.HALT else 'deletes'} {name}.halt"
    if act is PoolAction.RESUBMIT:
        effect += (
            f"; goes on from rescue file {dag.rescue}"
            if dag.rescue
            else "; there is no rescue file, so it begins at the beginning"
        )
    targets = (dagman_target(dag),) if act in OF_DAGMAN and dag.cluster is not None else ()
    order = None if refused else ActionRequest(act, targets, dag.file)
    return ActionPreview(act, name, order, refused, (), effect, UNDOES[act])


def dagman_target(dag: DagRow) -> Target:
    """DAGMan's own job."""
    assert dag.cluster is not None
    return Target(dag.cluster, 0, dag.file, None, None, None, State.RUNNING)


def _halt(dag: DagRow, word: QueueSnapshot) -> str | None:
    return not_running(dag) or ("it is halted already" if dag.halted else None)


def _resume(dag: DagRow, word: QueueSnapshot) -> str | None:
    return not_running(dag) or (None if dag.halted else "it is not halted")


def _release(dag: DagRow, word: QueueSnapshot) -> str | None:
    if dag.state is not DagState.HELD:
        return "DAGMan is not held"
    return _without_cluster(dag)


def _remove(dag: DagRow, word: QueueSnapshot) -> str | None:
    if dag.state not in ALIVE and (why := not_running(dag)) is not None:
        return why
    return _without_cluster(dag)


def _without_cluster(dag: DagRow) -> str | None:
    return None if dag.cluster is not None else "the number of DAGMan's job is not known"


def _resubmit(dag: DagRow, word: QueueSnapshot) -> str | None:
    if dag.state in (DagState.HELD, DagState.RESTARTING):
        return f"{DAG_STATES[dag.state].word}: it is still in the queue"
    if dag.state is DagState.RUNNING:
        return "the DAG runs: only one that failed or was removed can be resubmitted"
    if dag.state is DagState.NOT_SUBMITTED:
        return "the DAG was never submitted"
    if dag.state is DagState.DONE:
        return "the DAG is done"
    # Whether its DAGMan is still in the queue is asked when it is done: the word may be from
    # before it ended.
    if dag.rescue is None and dag.nodes_done:
        return "there is no rescue file to go on from, and some nodes are done"
    return None


REFUSALS: Final[Mapping[PoolAction, Callable[[DagRow, QueueSnapshot], str | None]]] = {
    PoolAction.HALT: _halt,
    PoolAction.RESUME: _resume,
    PoolAction.RELEASE_DAG: _release,
    PoolAction.REMOVE_DAG: _remove,
    PoolAction.RESUBMIT: _resubmit,
}


def _dagman_refused(dag: DagRow, word: QueueSnapshot) -> str | None:
    """Is its DAGMan in the queue, and ours?"""
    for job in word.dagmans:
        if job.cluster == dag.cluster:
            why = not_yours(job, word)
            return f"the DAG {why}" if why else None
    if (dag.cluster, 0) in word.strangers:
        return (
            f"the queue's job {dag.cluster}.0 is another directory's: the logs are a copy, or "
            "another machine's"
        )
    return (
        f"the schedd {plain(word.schedd or '', 60)} does not have its DAGMan: the logs are "
        "another machine's, or old"
    )
