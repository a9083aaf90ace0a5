"""Previews of actions: which are possible for the selection, their effects, or the obstacles.

Covers jobs, DAGs, runs (by requests to their gates), sites and hosts. Pure: uses the state in the
logs, the files that were read, and the latest queue snapshot; sends no query. Requests to gates are
files, so that the schedd is needed only for removing jobs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from math import ceil
from pathlib import PurePath
from typing import Final

from msgspec.structs import replace

from metlmon.model.reasons import RAISE_FACTOR, exceeded_request, reached_mb
from metlmon.model.run import GateStatus
from metlmon.model.states import ACTIVE, ALIVE, FAILED_JOB, TERMINAL, DagState, State
from metlmon.pool.exclusion import can_exclude, submit_line
from metlmon.pool.gate_requests import (
    FILE_NAME,
    NO_GATE,
    NO_RETRY,
    NO_SITE,
    exclusion_file,
    placement_file,
    request_file,
)
from metlmon.pool.queue_checks import SUSPENDED, target, user_name
from metlmon.pool.types import (
    ACTS,
    AS_THE_DAG_SAYS,
    EXCLUDE_ACTS,
    HELD,
    RAISE_ACTS,
    ActionPreview,
    ActionRequest,
    DagTarget,
    LeftOut,
    PoolAction,
    QueueJob,
    QueueSnapshot,
    RunTarget,
    SelectedRun,
    SiteInfo,
    Target,
)
from metlmon.snapshot.records import DagRow, Job, Run, Status
from metlmon.text.formatting import (
    DAG_STATES,
    SEPARATOR,
    count,
    listed,
    plain,
    request_amount,
    site_list,
)

LAST: Final = "its last epoch is under way: nothing comes after it"
NOT_REQUESTED: Final = "nothing is asked of it that could be taken back"
STOPPED: Final = "it is stopped already"
STOP_REQUESTED: Final = "its stop is asked for already"
PAUSED: Final = "it is paused already"
PAUSE_REQUESTED: Final = "its pause is asked for already"

ANYWHERE: Final = "any"
"""The MetlSite value for which submit files accept any site."""

SIMILARITY: Final = 0.5
"""Minimum similarity of a suggested site name (:mod:`difflib`)."""

NO_NAMES: Final = {
    "site": f"{NO_SITE}, and without {SEPARATOR}",
    "host": "a host's name, not its address, has letters, digits, dots, - and _ only",
}
"""The requirements on the name of an excluded place, by its kind."""

EXCLUDED: Final = "excluded already"
NOT_EXCLUDED: Final = "not excluded"

WAITING: Final = (State.IDLE, State.HELD)
"""States of jobs for which a site can be excluded; other jobs have been matched already."""

SLOT_STATES: Final = ACTIVE - {State.IDLE, State.HELD}
"""States of a job that occupies a slot and can be vacated from it."""

ALREADY: Final = (
    STOPPED,
    STOP_REQUESTED,
    PAUSED,
    PAUSE_REQUESTED,
    NOT_REQUESTED,
    EXCLUDED,
    NOT_EXCLUDED,
    "held already",
    "it is halted already",
    "it is not halted",
    "DAGMan is not held",
)
"""Reasons that mean that the desired state has already been reached."""

MAX_NAMES: Final = 3
"""Maximum number of reasons, or of sites' names, in a message."""


def action_previews(
    snapshot: QueueSnapshot,
    jobs: Sequence[Job] = (),
    dags: Sequence[DagRow] = (),
    runs: Sequence[SelectedRun] = (),
    status: Status | None = None,
) -> tuple[ActionPreview, ...]:
    """Previews of all actions except PLACE_ACTS; those on DAGs once per DAG."""
    all_dags = {dag.file: dag for dag in (status.dags if status is not None else dags)}
    previews: list[ActionPreview] = []
    for act, row in ACTS.items():
        if row.on == "jobs":
            preview = _job_preview(act, snapshot, jobs)
            if act is PoolAction.RETARGET:
                preview = _with_placement_files(preview, jobs, snapshot, status)
            previews.append(preview)
        elif row.on == "dag":
            of_none = ActionPreview(
                act, "no DAG", refused="no DAG is selected", effect=row.effect, undo=row.undo
            )
            previews += [_dag_preview(act, snapshot, dag) for dag in dags] or [of_none]
        elif row.on == "runs":
            previews.append(run_preview(act, snapshot, runs, all_dags))
    return tuple(previews)


def is_already_done(preview: ActionPreview) -> bool:
    """Whether the whole selection is already in the action's target state.

    False for jobs and DAGs without queue data: then the missing data is the reason.
    """
    if preview.refused is None or not preview.refused.endswith(ALREADY):
        return False
    return all(each.reason in ALREADY for each in preview.left_out)


def _job_preview(act: PoolAction, snapshot: QueueSnapshot, jobs: Sequence[Job]) -> ActionPreview:
    targets: list[Target] = []
    left_out: list[LeftOut] = []
    for row in jobs:
        reason = _exclusion_reason(act, row, snapshot)
        if reason is None:
            targets.append(target(row))
        else:
            left_out.append(LeftOut(target(row), reason))
    refused = missing_queue_reason(snapshot) or (
        jobs_missing(snapshot, targets) if targets else _nothing_left("job", left_out)
    )
    return ActionPreview(
        act=act,
        subject=describe_targets(targets or [target(row) for row in jobs]),
        request=None if refused else ActionRequest(act, tuple(targets)),
        refused=refused,
        left_out=tuple(left_out),
        effect=ACTS[act].effect,
        undo=ACTS[act].undo,
    )


def _exclusion_reason(act: PoolAction, row: Job, snapshot: QueueSnapshot) -> str | None:
    """Why the action skips a job, or None if it does not.

    A job that was held at the moment when it ended has ended for its log and for DAGMan, but stays
    held in the queue until it is released (it then ends again without running) or removed, at the
    latest with its DAGMan.
    """
    queued = snapshot.job(row.cluster, row.proc)
    held = queued is not None and queued.status == HELD
    state = State.HELD if held and row.state in TERMINAL else row.state
    name = str(state).replace("_", " ")
    if state in TERMINAL:
        return f"{name}: no longer in the queue"
    if state not in ACTIVE:
        return f"{name}: not in the queue"
    if act is PoolAction.HOLD and state is State.HELD:
        return "held already"
    # Only the queue shows that a job was submitted on hold, or, at first, that one is held whose
    # shadow still tries to reach its machine. For other acts the log is the fresher one.
    if act is PoolAction.RELEASE and state is not State.HELD and not held:
        return f"{name}: not held"
    if act is PoolAction.VACATE and state not in SLOT_STATES:
        return f"{name}: at no machine"
    if act in RAISE_ACTS and state is not State.HELD:
        return f"{name}: only held jobs get another request"
    if act is PoolAction.RETARGET and state is not State.IDLE:
        return f"{name}: only idle jobs can be retargeted"
    reason = owner_mismatch(queued, snapshot)
    if reason is None and act in RAISE_ACTS:
        return request_refusal(act, row, queued)
    if reason is not None or queued is None:
        return reason
    # A schedd (23.9.6) refuses to vacate a job whose JobStatus is suspended.
    if act is PoolAction.VACATE and state is State.SUSPENDED and queued.status == SUSPENDED:
        return "suspended: only jobs that run can be vacated"
    if act is not PoolAction.RETARGET or (queued.site is not None and queued.by_site):
        return None
    return "not placed by MetlSite: its requirements do not look at it"


def _with_placement_files(
    preview: ActionPreview, jobs: Sequence[Job], snapshot: QueueSnapshot, status: Status | None
) -> ActionPreview:
    """The RETARGET preview, including the placement files that it writes.

    The submit file of a node with a gate includes such a file, so that retries use the new site,
    too, and the file records it.
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
    queued = snapshot.job(targets[0].cluster, targets[0].proc)
    if len(targets) == 1 and queued is not None and queued.site is not None:
        undo = f"retarget to {plain(queued.site, 60)}"
    return replace(
        preview, request=replace(preview.request, targets=targets), effect=effect, undo=undo
    )


def _nothing_left(noun: str, left_out: Sequence[LeftOut]) -> str:
    """Why the action has no target: ``2 jobs: held already; 1 job: completed: …``."""
    reasons = Counter(each.reason for each in left_out)
    if len(left_out) == 1:
        return left_out[0].reason
    texts = (f"{count(n, noun)}: {reason}" for reason, n in reasons.most_common(MAX_NAMES))
    return "; ".join(texts) or f"no {noun} is selected"


def describe_targets(targets: Sequence[Target]) -> str:
    """Text for the targets: ``3 jobs of run4``, ``job 12.0 of run4``."""
    if not targets:
        return "no job"
    jobs = f"job {targets[0].id}" if len(targets) == 1 else f"{len(targets)} jobs"
    runs = sorted({target.run for target in targets if target.run is not None})
    if len(runs) == 1:
        return f"{jobs} of {plain(runs[0], 60)}"
    return f"{jobs} of {len(runs)} runs" if runs else jobs


# --- DAGs ---------------------------------------------------------------------------------


def _dag_preview(act: PoolAction, snapshot: QueueSnapshot, dag: DagRow) -> ActionPreview:
    effect, name = ACTS[act].effect, plain(dag.file, 60)
    refused = _state_refusal(act, dag) or missing_queue_reason(snapshot)
    if act is PoolAction.RESUBMIT:
        effect += (
            f"; continues from rescue file {dag.rescue}"
            if dag.rescue
            else "; without a rescue file, it begins at the beginning"
        )
    else:
        refused = refused or _dagman_refusal(dag, snapshot)
    if act in (PoolAction.HALT, PoolAction.RESUME):
        effect += f"; {'writes' if act is PoolAction.HALT else 'deletes'} {name}.halt"
    targets: tuple[Target, ...] = ()
    if ACTS[act].worker and dag.cluster is not None:
        state = State.HELD if dag.state is DagState.HELD else State.RUNNING
        targets = (Target(dag.cluster, 0, dag.file, node=None, run=None, epoch=None, state=state),)
    return ActionPreview(
        act=act,
        subject=name,
        request=None if refused else ActionRequest(act, targets, dag.file),
        refused=refused,
        effect=effect,
        undo=ACTS[act].undo,
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
        return (
            "it has no rescue file to continue from, and some nodes are done; if its .lock file "
            "is there, condor_submit_dag -update_submit lets a new DAGMan recover"
        )
    return None


def _dagman_refusal(dag: DagRow, snapshot: QueueSnapshot) -> str | None:
    """Why the DAG's DAGMan cannot be acted on: not in the queue, or not ours."""
    for job in snapshot.dagmans:
        if job.cluster == dag.cluster:
            reason = owner_mismatch(job, snapshot)
            return f"the DAG {reason}" if reason else None
    return _missing(snapshot, [] if dag.cluster is None else [(dag.cluster, 0)])


# --- runs --------------------------------------------------------------------------------------


def run_preview(
    act: PoolAction,
    snapshot: QueueSnapshot,
    runs: Sequence[SelectedRun],
    dags: Mapping[str, DagRow],
) -> ActionPreview:
    """The preview of a run action for the selected runs."""
    targets: list[RunTarget] = []
    left_out: list[LeftOut] = []
    needs_schedd = False
    for run in runs:
        latest = run.row.latest
        # Evaluations of earlier epochs continue.
        jobs = tuple(
            target(job)
            for job in run.jobs
            if latest is not None and (job.dag, job.node) == (run.row.dag, latest.node)
        )
        run_target = _target(act, run.row, jobs)
        reason = refusal_reason(act, run.row, dags.get(run.row.dag))
        # Actions refused by the files alone need no schedd.
        needs_schedd |= reason is None and act is PoolAction.STOP_NOW
        if reason is None and act is PoolAction.STOP_NOW:
            reason = _removal_refusal(run.row, jobs, snapshot)
        if reason is None and act is PoolAction.SEND:
            reason = _fixed_site_reason(jobs, snapshot)
        if reason is None:
            targets.append(run_target)
        else:
            left_out.append(LeftOut(run_target, reason))
    refused = missing_queue_reason(snapshot) if needs_schedd else None
    if not targets:
        refused = refused or _nothing_left("run", left_out)
    if act is PoolAction.STOP_NOW:
        refused = refused or jobs_missing(snapshot, [job for run in targets for job in run.jobs])
    skipped = [each.target for each in left_out if isinstance(each.target, RunTarget)]
    described = targets or skipped
    subject = plain(described[0].run, 60) if len(described) == 1 else f"{len(described)} runs"
    return ActionPreview(
        act=act,
        subject=subject if described else "no run",
        request=None if refused else ActionRequest(act, runs=tuple(targets)),
        refused=refused,
        left_out=tuple(left_out),
        effect=_effect(act, described),
        undo=ACTS[act].undo,
    )


def with_value(preview: ActionPreview, value: int | str, snapshot: QueueSnapshot) -> ActionPreview:
    """The preview with the priority, site or request that the action needs."""
    if preview.request is None:
        return preview
    if isinstance(value, int):
        return replace(preview, request=replace(preview.request, value=value))
    if preview.act in RAISE_ACTS:
        return with_request(preview, value, snapshot)
    site = value
    request = replace(preview.request, site=site)
    if site != AS_THE_DAG_SAYS:
        return replace(preview, request=request)
    effect = "the epochs from the next one on go where the DAG file says"
    effect += _files_clause("deletes", request.runs)
    return replace(preview, request=request, effect=effect, undo="send them elsewhere again")


def unknown_site(site: str, sites: Iterable[SiteInfo], named: Iterable[str]) -> str | None:
    """The message that the collector does not know the site, with similar names.

    None if it knows the site, or each of a list, if it knows no site at all, and for a site that is
    ``named`` in the DAG or by past jobs. Case is ignored, as in ClassAd comparisons.
    """
    names = [info.name for info in sites]
    known = {name.casefold() for name in (*names, *named)}
    unknown = [name for name in site_list(site) if name.casefold() not in known]
    if not names or site in (ANYWHERE, AS_THE_DAG_SAYS) or not unknown:
        return None
    site = unknown[0]
    suggestions = get_close_matches(site, names, MAX_NAMES, SIMILARITY) or names[:MAX_NAMES]
    listed = ", ".join(plain(name, 60) for name in suggestions)
    return f"the collector knows no site {plain(site, 60)}; it knows {listed}" + (
        f" and {len(names) - len(suggestions)} more" if len(names) > len(suggestions) else ""
    )


def refusal_reason(act: PoolAction, row: Run, dag: DagRow | None) -> str | None:
    """Why the action is not possible for a run, or None if it is."""
    gate = row.gate
    if gate is None:
        return NO_GATE
    if row.uuid is None:
        return "it has no run_uuid, by which its gate would know it"
    if not FILE_NAME.fullmatch(row.uuid):
        return "its run_uuid cannot be part of a file's name"
    if gate.stopped is not None:
        if act in (PoolAction.STOP, PoolAction.STOP_NOW):
            return STOPPED
        return "it is stopped, for good: metlmon continue resumes from its checkpoint"
    if not row.epochs_left:
        return "it is over: all its epochs are done"
    if row.state in FAILED_JOB:
        return f"it is over: it is {row.state}"
    if dag is None:
        return "its DAG is not in the picture"
    return (None if dag.state in ALIVE else dagman_not_running(dag)) or _request_conflict(
        act, row, gate
    )


def _request_conflict(act: PoolAction, row: Run, gate: GateStatus) -> str | None:
    """Why an earlier request, or the lack of a next epoch, rules out the action."""
    is_last = row.epochs_left == 1 and row.latest is not None and row.latest.state in ACTIVE
    match act:
        case PoolAction.RESUME_RUN:
            requested = gate.pause_requested or gate.paused or gate.stop_requested
            return None if requested is not None else NOT_REQUESTED
        case PoolAction.STOP if gate.stop_requested is not None:
            return STOP_REQUESTED
        case PoolAction.PAUSE if gate.pause_requested is not None:
            return PAUSED if gate.paused is not None else PAUSE_REQUESTED
        case PoolAction.PAUSE | PoolAction.SEND if gate.stop_requested is not None:
            return "its stop is asked for: resume-run takes that back"
        case PoolAction.STOP | PoolAction.PAUSE | PoolAction.SEND if is_last:
            return LAST + (", and stop-now ends it" if act is PoolAction.STOP else "")
    return None


def _removal_refusal(row: Run, jobs: Sequence[Target], snapshot: QueueSnapshot) -> str | None:
    """Why the run's jobs must not, or cannot, be removed."""
    for job in jobs:
        reason = owner_mismatch(snapshot.job(job.cluster, job.proc), snapshot)
        if reason is not None:
            return f"its job {reason}"
    return NO_RETRY if jobs and row.retries_left == 0 else None


def _fixed_site_reason(jobs: Sequence[Target], snapshot: QueueSnapshot) -> str | None:
    """Why a SEND would have no effect, according to the jobs in the queue."""
    queued = (snapshot.job(job.cluster, job.proc) for job in jobs)
    if all(job.by_site for job in queued if job is not None):
        return None
    return "the requirements of its jobs do not look at MetlSite: they would go where they go now"


def _target(act: PoolAction, row: Run, jobs: tuple[Target, ...]) -> RunTarget:
    epoch = row.latest.epoch if row.latest is not None else None
    files: tuple[str, ...] = ()
    if row.uuid is not None:
        files = tuple(request_file(row.dag, row.uuid, kind) for kind in ACTS[act].files)
    if act is PoolAction.RESUME_RUN and row.gate is not None:
        requests = {"pause": row.gate.pause_requested, "stop": row.gate.stop_requested}
        files = (
            tuple(file for file in files if requests[file.rpartition(".")[2]] is not None)
            or files[:1]
        )
    return RunTarget(
        run=row.run,
        uuid=row.uuid,
        dag=row.dag,
        epoch=epoch,
        state=row.state,
        files=files,
        jobs=jobs if act is PoolAction.STOP_NOW else (),
    )


def _effect(act: PoolAction, runs: Sequence[RunTarget]) -> str:
    """The effect on the files and jobs of these runs."""
    verb = "deletes" if act is PoolAction.RESUME_RUN else "writes"
    effect = ACTS[act].effect
    if jobs := [job for run in runs for job in run.jobs]:
        removed = f"job {jobs[0].id}" if len(jobs) == 1 else f"{len(jobs)} jobs"
        verb, effect = f"first {verb}", f"removes {removed}: {effect}"
    return effect + _files_clause(verb, runs)


def _files_clause(verb: str, runs: Sequence[RunTarget]) -> str:
    """The clause about the files that are written or deleted."""
    files = [file for run in runs for file in run.files]
    if len(runs) == 1 and files:
        return f"; {verb} {plain(' and '.join(files), 200)}"
    directories = sorted({str(PurePath(file).parent) for file in files})
    return f"; {verb} {len(files)} files in {plain(', '.join(directories), 200)}" if files else ""


# --- sites -------------------------------------------------------------------------------------


def exclusion_preview(
    act: PoolAction,
    snapshot: QueueSnapshot,
    name: str,
    jobs: Sequence[Job],
    status: Status,
    files: Mapping[str, Sequence[str]],
) -> ActionPreview:
    """The preview of one of PLACE_ACTS.

    ``jobs``: all jobs queued according to the logs. ``files``: the sites and hosts that the file in
    ``placement`` of each DAG excludes, by DAG file.
    """
    exclude, on = act in EXCLUDE_ACTS, ACTS[act].on
    waiting = [row for row in jobs if row.state in WAITING]
    targets: list[Target] = []
    left_out: list[LeftOut] = []
    bound = 0
    for row in waiting if exclude else jobs:
        job = snapshot.job(row.cluster, row.proc)
        is_excluded = job is not None and names(job.excluded, name)
        if is_excluded is exclude:
            left_out += [LeftOut(target(row), EXCLUDED)] * exclude
        elif (reason := owner_mismatch(job, snapshot)) is not None:
            left_out.append(LeftOut(target(row), reason))
        else:
            targets.append(target(row))
            bound += exclude and on == "site" and _is_bound(row, job, name)
    listing = {
        row.dag
        for row in jobs
        if (job := snapshot.job(row.cluster, row.proc)) is not None
        and (job.by_list if on == "site" else job.hosts_by_list)
    }
    # Older submit files take a list of sites, but not of hosts.
    listing |= {dag for dag, own in files.items() if (own if on == "site" else names(own, name))}
    dags = _dag_targets(status, listing, files, name, exclude)
    uncovered = [dag.file for dag in status.dags if dag.state in ALIVE and dag.file not in listing]
    line = submit_line(name, on) if uncovered and can_exclude(name, on) else None
    unnamed = None
    if not can_exclude(name, on):
        unnamed = NO_NAMES[on] if name else f"no {on} is selected"
    refused = unnamed or missing_queue_reason(snapshot)
    refused = refused or jobs_missing(snapshot, [target(row) for row in jobs])
    if refused is None and not targets and not dags:
        refused = _nothing_to_do(on, exclude, left_out, waiting, uncovered)
    if refused is not None and not exclude:
        line = None
    running = len(jobs) - len(waiting) if exclude else 0
    effects = _effects(on, exclude, len(targets), running, bound, dags)
    if line is not None:
        effects.append(_about_line(exclude, uncovered))
    return ActionPreview(
        act=act,
        subject=plain(name, 60),
        request=None
        if refused
        else ActionRequest(act, tuple(targets), site=name, dags=tuple(dags)),
        refused=refused,
        left_out=tuple(left_out),
        effect="; ".join(effects),
        undo=f"include-{on}; then requirements and files are as before"
        if exclude
        else f"exclude-{on}, again",
        line=line,
    )


def names(sites: Sequence[str], site: str) -> bool:
    """Whether the site is among the sites; case is ignored, as in ClassAd string lists."""
    return site.casefold() in (name.casefold() for name in sites)


def _is_bound(row: Job, job: QueueJob | None, site: str) -> bool:
    """Whether the job requires this site alone, as far as is known."""
    if job is not None and job.by_list:
        return False
    wanted = job.site if job is not None and job.by_site else row.target
    return wanted is not None and names([wanted], site)


def _dag_targets(
    status: Status,
    listing: set[str | None],
    files: Mapping[str, Sequence[str]],
    site: str,
    exclude: bool,
) -> list[DagTarget]:
    """The DAGs whose submit files include a list of sites that has to change."""
    return [
        DagTarget(
            dag.file,
            exclusion_file(dag.file),
            tuple(run.run for run in status.runs if run.dag == dag.file and run.epochs_left),
        )
        for dag in status.dags
        if dag.file in listing
        and names(files.get(dag.file, ()), site) is not exclude
        and (dag.state in ALIVE or not exclude)
    ]


def _nothing_to_do(
    on: str,
    exclude: bool,
    left_out: Sequence[LeftOut],
    waiting: Sequence[Job],
    uncovered: Sequence[str],
) -> str:
    reasons = [each.reason for each in left_out if each.reason not in ALREADY]
    if reasons:
        return f"the jobs that wait: {reasons[0]}"
    if not exclude:
        return f"the {on} is {NOT_EXCLUDED}"
    if waiting or not uncovered:
        return f"the {on} is {EXCLUDED}" if left_out else "nothing of it is in the queue"
    return "no job waits in the queue; for later ones, add the line to the submit file"


def _effects(
    on: str, exclude: bool, targets: int, running: int, bound: int, dags: Sequence[DagTarget]
) -> list[str]:
    effects = []
    if targets and exclude:
        verb, its = "match" if targets > 1 else "matches", "it" if on == "host" else "its machines"
        effects.append(f"{count(targets, 'waiting job')} no longer {verb} {its}")
    elif targets:
        jobs = count(targets, "job")
        effects.append(f"{jobs} may run there again, with their previous requirements")
    if dags:
        files = listed([plain(dag.file, 100) for dag in dags], 3)
        runs = count(sum(len(dag.runs) for dag in dags), "run")
        verb = "do not go there either; writes" if exclude else "may go there again; changes"
        effects.append(f"the next epochs of {runs} {verb} {files}")
    if bound:
        effects.append(
            f"{bound} of them {'ask' if bound > 1 else 'asks'} for this site alone and will wait "
            "until it is included or they are retargeted"
        )
    if running:
        verb = "are" if running > 1 else "is"
        effects.append(f"{count(running, 'job')} at machines {verb} not touched")
    return effects


def _about_line(exclude: bool, dags: Sequence[str]) -> str:
    names = plain(", ".join(dags[:3]), 100) + (f" and {len(dags) - 3} more" * (len(dags) > 3))
    if exclude:
        return f"jobs that {names} submits later go there unless its submit file has the line"
    return f"take the line out of the submit file of {names}, if it was added"


# --- reasons -----------------------------------------------------------------------------------


def missing_queue_reason(snapshot: QueueSnapshot) -> str | None:
    """Why queue data to act on is missing; None if it is not."""
    if snapshot.error is not None:
        return snapshot.error
    if snapshot.is_pending or snapshot.queried_at is None:
        return "the schedd has not answered yet"
    return None


def owner_mismatch(job: QueueJob | None, snapshot: QueueSnapshot) -> str | None:
    """The text that the job belongs to another user; None if it does not."""
    if job is None or not snapshot.user or not job.owner or job.owner == user_name(snapshot.user):
        return None
    return f"belongs to {plain(job.owner, 40)}, you are {plain(user_name(snapshot.user), 40)}"


def jobs_missing(snapshot: QueueSnapshot, targets: Sequence[Target]) -> str | None:
    """Why none of the targets can be in this queue, or None.

    They are queued by the logs, but the schedd has no job of ours at all. (Single missing jobs may
    have been submitted after the query.)
    """
    if snapshot.jobs or snapshot.dagmans or not targets:
        return None
    return _missing(snapshot, [(target.cluster, target.proc) for target in targets])


def _missing(snapshot: QueueSnapshot, jobs: Iterable[tuple[int, int]]) -> str:
    """The text that the queue lacks the jobs that are queued by the logs."""
    schedd = plain(snapshot.schedd or "", 60)
    if set(snapshot.foreign_jobs).intersection(jobs):
        return (
            f"the schedd {schedd} has jobs of these numbers that belong to another directory: the "
            "logs are a copy, or another machine's"
        )
    return f"the schedd {schedd} does not have it: the logs are another machine's, or old"


def dagman_not_running(dag: DagRow) -> str | None:
    """Why the DAG has no running DAGMan that could react."""
    if dag.state is DagState.RUNNING:
        return None
    if dag.state is DagState.HELD:
        return "DAGMan is held: release it first (release-dag)"
    if dag.state is DagState.RESTARTING:
        return "DAGMan does not run at the moment: it will be started again"
    if dag.state is DagState.UNKNOWN:
        return "no file here shows whether the DAG runs"
    if dag.state is DagState.NOT_SUBMITTED:
        return "the DAG is not submitted"
    return f"the DAG has ended: {dag.state}"


# --- requests for memory and disk of held jobs ---------------------------------------------


UNITS: Final = {"request_memory": "MB", "request_disk": "KB"}
"""The units of the job's attributes, by the field of :class:`QueueJob`."""

RAISED: Final = f"{RAISE_FACTOR}x"
"""The default of the new request."""

EXPECTED: Final = "a factor above 1 (1.5x) or an amount with its unit (12GB)"

USER_HOLDS: Final = (1, 15)
"""Codes of holds by the user (15: at submission), after which any request may be changed."""

_SIZES: Final = {"KB": 1, "MB": 1 << 10, "GB": 1 << 20, "TB": 1 << 30}
_VALUE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(x|[KMGT]B?)", re.IGNORECASE)
_LARGEST: Final = 2**31 - 1


def amount(field: str, value: int) -> str:
    """``12GB``: a request as in a submit file, in the largest unit without a fraction."""
    return request_amount(value * _SIZES[UNITS[field]])


def is_value(text: str) -> bool:
    """Whether the text is a factor above 1 or an amount."""
    match = _VALUE.fullmatch(text.strip())
    return match is not None and float(match[1]) > (1 if match[2] in "xX" else 0)


def _new_request(field: str, before: int, reason: str | None, text: str) -> int:
    """The new request: an amount, or a factor of the old one or of what the job reached."""
    match = _VALUE.fullmatch(text.strip())
    assert match is not None, "is_value tells"
    number, unit = float(match[1]), match[2].upper()
    if unit != "X":
        return ceil(number * _SIZES[f"{unit[0]}B"] / _SIZES[UNITS[field]])
    reached = [mb * _SIZES["MB"] // _SIZES[UNITS[field]] for mb in reached_mb(reason)]
    return ceil(max([before, *reached]) * number)


def request_refusal(act: PoolAction, row: Job, job: QueueJob | None) -> str | None:
    """Why a held job's request is not changed by this action, or None if it can be."""
    field = ACTS[act].value
    if job is None:
        return "the schedd did not give its request"
    hold = row.holds[-1] if row.holds else None
    code = job.hold_code if hold is None or hold.code is None else hold.code
    subcode = None if hold is None else hold.subcode
    reason = job.hold_reason or (None if hold is None else hold.reason)
    exceeded = exceeded_request(code, subcode, reason)
    if exceeded is not None and exceeded != field:
        return f"it exceeded its {exceeded}, not its {field}"
    if exceeded is None and code not in USER_HOLDS:
        return f"its hold does not say that it exceeded its {field}"
    if getattr(job, field) is None:
        return f"its {field} is an expression, which only condor_qedit replaces"
    return None


def with_request(preview: ActionPreview, text: str, snapshot: QueueSnapshot) -> ActionPreview:
    """The preview with each job's new request, given as a factor or an amount.

    A factor applies to the job's request, or to what it reached by its hold, if that is more.
    ``text``: as :func:`is_value` accepts it.
    """
    if preview.request is None:
        return preview
    field, changes = ACTS[preview.act].value, Counter[tuple[int, int]]()
    targets = []
    for each in preview.request.targets:
        job = snapshot.job(each.cluster, each.proc)
        before = None if job is None else getattr(job, field)
        if job is None or before is None:
            continue
        after = _new_request(field, before, job.hold_reason, text)
        changes[before, after] += 1
        targets.append(replace(each, value=after))
    if not targets or max(after for _, after in changes) > _LARGEST:
        refused = (
            "the request would be too large"
            if targets
            else "the queue does not say what is requested now"
        )
        return replace(preview, request=None, refused=refused)

    def of_jobs(text: str, number: int) -> str:
        return text if len(changes) == 1 else f"{text} ({count(number, 'job')})"

    steps = [
        of_jobs(f"{amount(field, before)} to {amount(field, after)}", number)
        for (before, after), number in changes.items()
    ]
    former = Counter[int]()
    for (before, _), number in changes.items():
        former[before] += number
    values = ", ".join(of_jobs(amount(field, before), n) for before, n in former.items())
    return replace(
        preview,
        request=replace(preview.request, targets=tuple(targets)),
        effect=f"from {', '.join(steps)}, {preview.effect}",
        undo=f"hold, then {preview.act} with {values}",
        line=f"{field} = {amount(field, max(after for _, after in changes))}",
    )
