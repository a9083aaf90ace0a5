"""Which actions on the selection are possible, and why others are not.

Covers jobs, DAGs and runs. Pure: uses the state in the logs and the latest queue snapshot, and
sends no query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from metlmon.model.states import ACTIVE, ALIVE, TERMINAL, DagState, State
from metlmon.pool import run_actions, site_exclusion
from metlmon.pool.gate_requests import FILE_NAME, placement_file
from metlmon.pool.queue_checks import (
    EFFECTS,
    MAX_NAMES,
    SUSPENDED,
    count_reasons,
    dagman_not_running,
    jobs_missing,
    missing_queue_reason,
    owner_mismatch,
    target,
    user_name,
)
from metlmon.pool.types import (
    DAG_ACTS,
    HELD,
    JOB_ACTS,
    RUN_ACTS,
    SITE_ACTS,
    ActionPreview,
    ActionRequest,
    LeftOut,
    PoolAction,
    QueueJob,
    QueueSnapshot,
    SelectedRun,
    Target,
)
from metlmon.snapshot.records import DagRow, Job, Status
from metlmon.text.formatting import DAG_STATES, plain

DAGMAN_ACTIONS: Final = frozenset({PoolAction.RELEASE_DAG, PoolAction.REMOVE_DAG})
"""Actions on DAGMan's own job."""

SLOT_STATES: Final = ACTIVE - {State.IDLE, State.HELD}
"""States of a job that occupies a slot and can be vacated from it."""

ALREADY: Final = (
    run_actions.ALREADY
    | site_exclusion.ALREADY
    | {
        "held already",
        "it is halted already",
        "it is not halted",
        "DAGMan is not held",
    }
)
"""Reasons that mean that the desired state is reached already."""


def action_previews(
    snapshot: QueueSnapshot,
    jobs: Sequence[Job],
    dags: Sequence[DagRow],
    refusal: str | None = None,
    runs: Sequence[SelectedRun] = (),
    status: Status | None = None,
) -> tuple[ActionPreview, ...]:
    """The preview of every action for the selection but SITE_ACTS, in :class:`PoolAction` order.

    ``refusal``: why no action is possible at all; ``status``: the snapshot with these rows.
    """
    queue = snapshot.by_id()
    all_dags = {dag.file: dag for dag in (status.dags if status is not None else dags)}
    previews = {act: _job_preview(act, snapshot, queue, jobs, refusal) for act in JOB_ACTS}
    previews[PoolAction.RETARGET] = _with_placement_files(
        previews[PoolAction.RETARGET], jobs, queue, status
    )
    previews |= {act: _dag_preview(act, snapshot, dags, refusal) for act in DAG_ACTS}
    previews |= {
        act: run_actions.run_preview(act, snapshot, queue, runs, all_dags, refusal)
        for act in RUN_ACTS
    }
    return tuple(previews[act] for act in PoolAction if act not in SITE_ACTS)


def is_already_done(preview: ActionPreview) -> bool:
    """Whether the whole selection is already in the action's target state.

    For jobs and DAGs this takes queue data; without it, the missing data is the error.
    """
    if preview.refused is None or not preview.refused.endswith(tuple(ALREADY)):
        return False
    return all(each.reason in ALREADY for each in preview.left_out)


# --- jobs ---------------------------------------------------------------------------------


def _job_preview(
    act: PoolAction,
    snapshot: QueueSnapshot,
    queue: Mapping[tuple[int, int], QueueJob],
    jobs: Sequence[Job],
    refusal: str | None,
) -> ActionPreview:
    targets: list[Target] = []
    left_out: list[LeftOut] = []
    for row in jobs:
        reason = _exclusion_reason(act, row, queue.get((row.cluster, row.proc)), snapshot)
        if reason is None:
            targets.append(target(row))
        else:
            left_out.append(LeftOut(target(row), reason))
    refused = (
        refusal
        or missing_queue_reason(snapshot)
        or _no_target(jobs, targets, left_out, queue, snapshot)
    )
    refused = refused or jobs_missing(snapshot, targets)
    effect, undo = EFFECTS[act]
    described = targets or [target(row) for row in jobs]
    if len(described) == 1:
        effect, undo = _singular(effect), _singular(undo)
    return ActionPreview(
        act=act,
        subject=describe_targets(described),
        request=None if refused else ActionRequest(act, tuple(targets)),
        refused=refused,
        left_out=tuple(left_out),
        effect=effect,
        undo=undo,
    )


def _exclusion_reason(
    act: PoolAction, row: Job, queued: QueueJob | None, snapshot: QueueSnapshot
) -> str | None:
    """Why the action skips a job, or None if it does not.

    A job held at the very moment when it ended has ended in its log and for DAGMan, but stays in
    the queue, held, until it is released (it then ends again without running) or removed, at the
    latest together with its DAGMan.
    """
    held = queued is not None and queued.status == HELD
    state = State.HELD if held and row.state in TERMINAL else row.state
    name = str(state).replace("_", " ")
    if state in TERMINAL:
        return f"{name}: no longer in the queue"
    if state not in ACTIVE:
        return f"{name}: not in the queue"
    if act is PoolAction.HOLD and state is State.HELD:
        return "held already"
    if act is PoolAction.RELEASE and state is not State.HELD:
        return f"{name}: not held"
    if act is PoolAction.VACATE and state not in SLOT_STATES:
        return f"{name}: at no machine"
    if act is PoolAction.RETARGET and state is not State.IDLE:
        return f"{name}: only idle jobs can be retargeted"
    reason = owner_mismatch(queued, snapshot)
    if reason is not None or queued is None:
        return reason
    # A schedd (23.9.6) refuses to vacate a job whose JobStatus is suspended.
    if act is PoolAction.VACATE and state is State.SUSPENDED and queued.status == SUSPENDED:
        return "suspended: only jobs that run can be vacated"
    if act is not PoolAction.RETARGET or (queued.site is not None and queued.by_site):
        return None
    if queued.site is None:
        return "without MetlSite: its submit file does not let its site be chosen"
    return "not placed by MetlSite: its requirements do not look at it"


def _with_placement_files(
    preview: ActionPreview,
    jobs: Sequence[Job],
    queue: Mapping[tuple[int, int], QueueJob],
    status: Status | None,
) -> ActionPreview:
    """The RETARGET preview, including the placement files that it writes.

    The submit file of a node with a gate includes such a file, so that retries use the new site
    as well and the files record it.
    """
    if preview.request is None:
        return preview
    gates_by_uuid = {run.uuid: run.gate for run in (status.runs if status is not None else ())}
    gates = {(row.cluster, row.proc): gates_by_uuid.get(row.uuid) for row in jobs if row.uuid}
    targets = tuple(
        replace(target, file=placement_file(target.dag, target.node))
        if target.dag
        and target.node
        and FILE_NAME.fullmatch(target.node)
        and gates.get((target.cluster, target.proc))
        else target
        for target in preview.request.targets
    )
    files = [target.file for target in targets if target.file is not None]
    run_sites = {gate.target for gate in gates.values() if gate is not None and gate.target}
    effect, undo = preview.effect, preview.undo
    if files:
        effect += (
            f"; writes {files[0] if len(targets) == 1 else f'{len(files)} files in placement'}"
        )
    if files and run_sites:
        effect += "; a retry goes where its run is sent, " + plain(", ".join(sorted(run_sites)), 60)
    else:
        effect += f"; a retry goes {'there, too' if files else 'where the DAG file says'}"
    queued = queue.get((targets[0].cluster, targets[0].proc))
    if len(targets) == 1 and queued is not None and queued.site is not None:
        undo = f"retarget it to {plain(queued.site, 60)}"
    return replace(
        preview, request=replace(preview.request, targets=targets), effect=effect, undo=undo
    )


def _no_target(
    jobs: Sequence[Job],
    targets: Sequence[Target],
    left_out: Sequence[LeftOut],
    queue: Mapping[tuple[int, int], QueueJob],
    snapshot: QueueSnapshot,
) -> str | None:
    """Why the action has no target, or None if it has one."""
    if not jobs:
        return "no job is selected"
    if targets:
        return None
    owners = {
        job.owner
        for row in jobs
        if (job := queue.get((row.cluster, row.proc))) is not None and owner_mismatch(job, snapshot)
    }
    if owners and snapshot.user:
        names = ", ".join(plain(owner, 40) for owner in sorted(owners)[:MAX_NAMES])
        subject = "these jobs belong" if len(jobs) > 1 else "this job belongs"
        return f"{subject} to {names}, you are {plain(user_name(snapshot.user), 40)}"
    if len(jobs) == 1:
        return f"the job is {left_out[0].reason}"
    return count_reasons(left_out)


def describe_targets(targets: Sequence[Target]) -> str:
    """Text for the targets: ``3 jobs of run4``, ``job 12.0 of run4``."""
    if not targets:
        return "no job"
    jobs = f"job {targets[0].id}" if len(targets) == 1 else f"{len(targets)} jobs"
    runs = sorted({target.run for target in targets if target.run is not None})
    if len(runs) == 1:
        return f"{jobs} of {plain(runs[0], 60)}"
    return f"{jobs} of {len(runs)} runs" if runs else jobs


def _singular(text: str) -> str:
    """A plural text about jobs in the singular."""
    for plural, singular in (
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
        text = text.replace(plural, singular)
    return text


# --- DAGs ---------------------------------------------------------------------------------


def _dag_preview(
    act: PoolAction, snapshot: QueueSnapshot, dags: Sequence[DagRow], refusal: str | None
) -> ActionPreview:
    effect, undo = EFFECTS[act]
    if len(dags) != 1:
        reason = "no DAG is selected" if not dags else "more than one DAG is selected: choose one"
        subject = "no DAG" if not dags else f"{len(dags)} DAGs"
        return ActionPreview(
            act=act, subject=subject, refused=refusal or reason, effect=effect, undo=undo
        )
    dag = dags[0]
    name = plain(dag.file, 60)
    refused = refusal or _state_refusal(act, dag) or missing_queue_reason(snapshot)
    if act is PoolAction.RESUBMIT:
        effect += (
            f"; continues from rescue file {dag.rescue}"
            if dag.rescue
            else "; there is no rescue file, so it begins at the beginning"
        )
    else:
        refused = refused or _dagman_refusal(dag, snapshot)
    if act in (PoolAction.HALT, PoolAction.RESUME):
        effect += f"; {'writes' if act is PoolAction.HALT else 'deletes'} {name}.halt"
    targets = (dagman_target(dag),) if act in DAGMAN_ACTIONS and dag.cluster is not None else ()
    return ActionPreview(
        act=act,
        subject=name,
        request=None if refused else ActionRequest(act, targets, dag.file),
        refused=refused,
        effect=effect,
        undo=undo,
    )


def dagman_target(dag: DagRow) -> Target:
    """DAGMan's own job as a target."""
    assert dag.cluster is not None
    return Target(
        cluster=dag.cluster,
        proc=0,
        dag=dag.file,
        node=None,
        run=None,
        epoch=None,
        state=State.RUNNING,
    )


def _state_refusal(act: PoolAction, dag: DagRow) -> str | None:
    """Why the action is not possible in the DAG's state."""
    match act:
        case PoolAction.HALT:
            return dagman_not_running(dag) or ("it is halted already" if dag.halted else None)
        case PoolAction.RESUME:
            return dagman_not_running(dag) or (None if dag.halted else "it is not halted")
        case PoolAction.RESUBMIT:
            return _resubmit_refusal(dag)
        case PoolAction.RELEASE_DAG if dag.state is not DagState.HELD:
            return "DAGMan is not held"
        case PoolAction.REMOVE_DAG if dag.state not in ALIVE and (why := dagman_not_running(dag)):
            return why
    return None if dag.cluster is not None else "the number of DAGMan's job is not known"


def _resubmit_refusal(dag: DagRow) -> str | None:
    if dag.state in (DagState.HELD, DagState.RESTARTING):
        return f"{DAG_STATES[dag.state].word}: it is still in the queue"
    if dag.state is DagState.RUNNING:
        return "the DAG runs: only one that failed or was removed can be resubmitted"
    if dag.state is DagState.NOT_SUBMITTED:
        return "the DAG was never submitted"
    if dag.state is DagState.DONE:
        return "the DAG is done"
    # Whether its DAGMan is still queued is checked when the action is performed: the snapshot
    # may predate its end.
    if dag.rescue is None and dag.nodes_done:
        return "there is no rescue file to continue from, and some nodes are done"
    return None


def _dagman_refusal(dag: DagRow, snapshot: QueueSnapshot) -> str | None:
    """Why the DAG's DAGMan cannot be acted on: not in the queue, or not ours."""
    for job in snapshot.dagmans:
        if job.cluster == dag.cluster:
            reason = owner_mismatch(job, snapshot)
            return f"the DAG {reason}" if reason else None
    if (dag.cluster, 0) in snapshot.foreign_jobs:
        return (
            f"the queue's job {dag.cluster}.0 is another directory's: the logs are a copy, or "
            "another machine's"
        )
    return (
        f"the schedd {plain(snapshot.schedd or '', 60)} does not have its DAGMan: the logs are "
        "another machine's, or old"
    )
