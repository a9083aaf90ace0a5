"""Which requests to the selected runs' gates are possible, and why others not.

Pure: uses the state in the files. Requests are files, so the schedd is needed only for removing
jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import PurePath
from typing import Final

from msgspec.structs import replace

from metlmon.model.run import GateStatus
from metlmon.model.states import ACTIVE, ALIVE, State
from metlmon.pool.gate_requests import FILE_NAME, request_file
from metlmon.pool.queue_checks import (
    EFFECTS,
    MAX_NAMES,
    NO_GATE,
    NO_RETRY,
    dagman_not_running,
    jobs_missing,
    missing_queue_reason,
    owner_mismatch,
    target,
)
from metlmon.pool.types import (
    AS_THE_DAG_SAYS,
    ActionPreview,
    ActionRequest,
    LeftOut,
    PoolAction,
    QueueJob,
    QueueSnapshot,
    RunTarget,
    SelectedRun,
    SiteInfo,
    Target,
)
from metlmon.snapshot.records import DagRow, Run
from metlmon.text.formatting import plain
from metlmon.text.site_lists import site_list

LAST: Final = "its last epoch is under way: nothing comes after it"
NOT_ASKED: Final = "nothing is asked of it that could be taken back"
STOPPED: Final = "it is stopped already"
STOP_ASKED: Final = "its stop is asked for already"
PAUSED: Final = "it is paused already"
PAUSE_ASKED: Final = "its pause is asked for already"

ALREADY: Final = frozenset({STOPPED, STOP_ASKED, PAUSED, PAUSE_ASKED, NOT_ASKED})
"""Reasons that mean that the desired state is reached already."""

ENDED: Final = frozenset({State.FAILED, State.REMOVED})
"""States of a run that does not continue in this DAG."""

ANYWHERE: Final = "any"
"""The MetlSite value for which submit files accept any site."""

SIMILARITY: Final = 0.5
"""Smallest similarity of a suggested site name (:mod:`difflib`)."""

_ANYWHERE_TEXTS: Final = (
    ("a machine of that site alone", "a machine anywhere the requirements allow"),
    ("go there;", "go anywhere the requirements allow;"),
)
"""Texts about a single site, and their replacements for :data:`ANYWHERE`."""

REQUEST_KINDS: Final = {
    PoolAction.STOP: ("stop",),
    PoolAction.STOP_NOW: ("stop",),
    PoolAction.PAUSE: ("pause",),
    PoolAction.RESUME_RUN: ("pause", "stop"),
    PoolAction.SEND: ("target",),
}
"""Kinds of the request files that an action writes or deletes."""


def run_preview(
    act: PoolAction,
    snapshot: QueueSnapshot,
    queue: Mapping[tuple[int, int], QueueJob],
    runs: Sequence[SelectedRun],
    dags: Mapping[str, DagRow],
    refusal: str | None,
) -> ActionPreview:
    """The preview of a run action for the selected runs.

    ``dags`` are keyed by file, ``queue`` has the snapshot's jobs by id.
    """
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
            reason = _removal_refusal(run.row, jobs, queue, snapshot)
        if reason is None and act is PoolAction.SEND:
            reason = _fixed_site_reason(jobs, queue)
        if reason is None:
            targets.append(run_target)
        else:
            left_out.append(LeftOut(run_target, reason))
    refused = refusal or (missing_queue_reason(snapshot) if needs_schedd else None)
    refused = refused or _no_target(targets, left_out)
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
        undo=EFFECTS[act][1],
    )


def with_site(preview: ActionPreview, site: str) -> ActionPreview:
    """The preview with ``site`` as the destination of its request.

    The effect is adapted for a SEND that cancels an earlier one, and for :data:`ANYWHERE`.
    """
    if preview.request is None:
        return preview
    preview = replace(preview, request=replace(preview.request, site=site))
    if site == ANYWHERE:
        effect = preview.effect
        for site_text, anywhere_text in _ANYWHERE_TEXTS:
            effect = effect.replace(site_text, anywhere_text)
        return replace(preview, effect=effect)
    if site != AS_THE_DAG_SAYS or preview.request is None:
        return preview
    effect = "the epochs from the next one on go where the DAG file says"
    effect += _files_clause("deletes", preview.request.runs)
    return replace(preview, effect=effect, undo="send them elsewhere again")


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
    if row.epochs_done + row.epochs_skipped >= row.epochs_total:
        return "it is over: all its epochs are done"
    if row.state in ENDED:
        return f"it is over: it is {row.state}"
    if dag is None:
        return "its DAG is not in the picture"
    return (None if dag.state in ALIVE else dagman_not_running(dag)) or _request_conflict(
        act, row, gate
    )


def _request_conflict(act: PoolAction, row: Run, gate: GateStatus) -> str | None:
    """Why an earlier request, or the lack of a next epoch, rules the action out."""
    match act:
        case PoolAction.RESUME_RUN:
            requested = gate.pause_requested or gate.paused or gate.stop_requested
            return None if requested is not None else NOT_ASKED
        case PoolAction.STOP if gate.stop_requested is not None:
            return STOP_ASKED
        case PoolAction.PAUSE if gate.pause_requested is not None:
            return PAUSED if gate.paused is not None else PAUSE_ASKED
        case PoolAction.PAUSE | PoolAction.SEND if gate.stop_requested is not None:
            return "its stop is asked for: resume-run takes that back"
        case PoolAction.STOP | PoolAction.PAUSE | PoolAction.SEND if _is_last_epoch(row):
            return LAST + (", and stop-now ends it" if act is PoolAction.STOP else "")
    return None


def _is_last_epoch(row: Run) -> bool:
    epochs_left = row.epochs_total - row.epochs_done - row.epochs_skipped
    return epochs_left == 1 and row.latest is not None and row.latest.state in ACTIVE


def _removal_refusal(
    row: Run,
    jobs: Sequence[Target],
    queue: Mapping[tuple[int, int], QueueJob],
    snapshot: QueueSnapshot,
) -> str | None:
    """Why the run's jobs must not, or cannot, be removed."""
    for job in jobs:
        reason = owner_mismatch(queue.get((job.cluster, job.proc)), snapshot)
        if reason is not None:
            return f"its job {reason}"
    return NO_RETRY if jobs and row.retries_left == 0 else None


def _fixed_site_reason(
    jobs: Sequence[Target], queue: Mapping[tuple[int, int], QueueJob]
) -> str | None:
    """Why a SEND would have no effect, according to the jobs in the queue."""
    queued = [queue[job.cluster, job.proc] for job in jobs if (job.cluster, job.proc) in queue]
    if all(job.by_site for job in queued):
        return None
    return "the requirements of its jobs do not look at MetlSite: they would go where they go now"


def _target(act: PoolAction, row: Run, jobs: tuple[Target, ...]) -> RunTarget:
    """The run as a target of a request."""
    epoch = row.latest.epoch if row.latest is not None else None
    files: tuple[str, ...] = ()
    if row.uuid is not None:
        files = tuple(request_file(row.dag, row.uuid, kind) for kind in REQUEST_KINDS[act])
    if act is PoolAction.RESUME_RUN and row.gate is not None:
        requests = {"pause": row.gate.pause_requested, "stop": row.gate.stop_requested}
        files = (
            tuple(file for file in files if requests[file.rpartition(".")[2]] is not None)
            or files[:1]
        )
    return RunTarget(
        run=row.name,
        uuid=row.uuid,
        dag=row.dag,
        epoch=epoch,
        state=row.state,
        files=files,
        jobs=jobs if act is PoolAction.STOP_NOW else (),
    )


def _no_target(targets: Sequence[RunTarget], left_out: Sequence[LeftOut]) -> str | None:
    """Why the action has no target, or None if it has one."""
    if targets:
        return None
    if not left_out:
        return "no run is selected"
    if len(left_out) == 1:
        return left_out[0].reason
    reasons = Counter(each.reason for each in left_out).most_common(MAX_NAMES)
    return "; ".join(
        f"{count} {'runs' if count > 1 else 'run'}: {reason}" for reason, count in reasons
    )


def _effect(act: PoolAction, runs: Sequence[RunTarget]) -> str:
    """The effect on the files and jobs of these runs."""
    effect = EFFECTS[act][0] + _files_clause(
        "deletes" if act is PoolAction.RESUME_RUN else "writes", runs
    )
    jobs = [job for run in runs for job in run.jobs]
    if jobs:
        effect += f", then removes {f'job {jobs[0].id}' if len(jobs) == 1 else f'{len(jobs)} jobs'}"
    return effect


def _files_clause(verb: str, runs: Sequence[RunTarget]) -> str:
    """The clause about the files that are written or deleted."""
    files = [file for run in runs for file in run.files]
    if len(runs) == 1 and files:
        return f"; {verb} {plain(' and '.join(files), 200)}"
    directories = sorted({str(PurePath(file).parent) for file in files})
    return f"; {verb} {len(files)} files in {plain(', '.join(directories), 200)}" if files else ""
