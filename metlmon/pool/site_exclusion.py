"""What excluding a site, or including it again, changes, and what it cannot reach.

Pure: uses the state in the logs, the latest queue snapshot and the files that were read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from metlmon.model.states import ALIVE, State
from metlmon.pool.exclusion import can_exclude, submit_line
from metlmon.pool.gate_requests import NO_SITE, exclusion_file
from metlmon.pool.queue_checks import jobs_missing, missing_queue_reason, owner_mismatch, target
from metlmon.pool.types import (
    ActionPreview,
    ActionRequest,
    DagTarget,
    LeftOut,
    PoolAction,
    QueueJob,
    QueueSnapshot,
    Target,
)
from metlmon.snapshot.records import Job, Status
from metlmon.text.formatting import count, plain
from metlmon.text.site_lists import SEPARATOR

NOTHING: Final = "no site is selected"
NO_NAME: Final = f"{NO_SITE}, and without {SEPARATOR}"

EXCLUDED: Final = "excluded already"
NOT_EXCLUDED: Final = "not excluded"

ALREADY: Final = frozenset({EXCLUDED, NOT_EXCLUDED})
"""Reasons that mean that the desired state is reached already."""

WAITING: Final = (State.IDLE, State.HELD)
"""States of jobs for which a site can be excluded; the match of another one is made."""


def exclusion_preview(
    act: PoolAction,
    snapshot: QueueSnapshot,
    site: str,
    jobs: Sequence[Job],
    status: Status,
    files: Mapping[str, Sequence[str]],
    refusal: str | None = None,
) -> ActionPreview:
    """The preview of EXCLUDE_SITE or INCLUDE_SITE.

    ``jobs``: all that are queued according to the logs. ``files``: by DAG file, the sites that its
    file in ``placement`` excludes. ``refusal``: why no action is possible at all.
    """
    exclude = act is PoolAction.EXCLUDE_SITE
    queue = snapshot.by_id()
    waiting = [row for row in jobs if row.state in WAITING]
    targets: list[Target] = []
    left_out: list[LeftOut] = []
    bound = 0
    for row in waiting if exclude else jobs:
        job = queue.get((row.cluster, row.proc))
        is_excluded = job is not None and names(job.excluded, site)
        if is_excluded is exclude:
            left_out += [LeftOut(target(row), EXCLUDED)] * exclude
        elif (reason := owner_mismatch(job, snapshot)) is not None:
            left_out.append(LeftOut(target(row), reason))
        else:
            targets.append(target(row))
            bound += exclude and _is_bound(row, job, site)
    listing = {
        row.dag
        for row in jobs
        if (job := queue.get((row.cluster, row.proc))) is not None and job.by_list
    } | {dag for dag, sites in files.items() if sites}
    dags = _dag_targets(status, listing, files, site, exclude)
    uncovered = [dag.file for dag in status.dags if dag.state in ALIVE and dag.file not in listing]
    line = submit_line(site) if uncovered and can_exclude(site) else None
    unnamed = None if can_exclude(site) else NO_NAME if site else NOTHING
    refused = refusal or unnamed or missing_queue_reason(snapshot)
    refused = refused or jobs_missing(snapshot, [target(row) for row in jobs])
    if refused is None and not targets and not dags:
        refused = _nothing_to_do(exclude, left_out, waiting, uncovered)
    running = len(jobs) - len(waiting) if exclude else 0
    effects = _effects(exclude, len(targets), running, bound, dags)
    if line is not None:
        effects.append(_about_line(exclude, uncovered))
    return ActionPreview(
        act=act,
        subject=plain(site, 60),
        request=None
        if refused
        else ActionRequest(act, tuple(targets), site=site, dags=tuple(dags)),
        refused=refused,
        left_out=tuple(left_out),
        effect="; ".join(effects),
        undo="include-site; then requirements and files are as before"
        if exclude
        else "exclude-site, again",
        line=line,
    )


def names(sites: Sequence[str], site: str) -> bool:
    """Whether the site is among the sites; case is ignored, as in ClassAd string lists."""
    return site.casefold() in (name.casefold() for name in sites)


def _is_bound(row: Job, job: QueueJob | None, site: str) -> bool:
    """Whether the job asks for this site alone, as far as is known."""
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
            tuple(
                run.name
                for run in status.runs
                if run.dag == dag.file and run.epochs_done + run.epochs_skipped < run.epochs_total
            ),
        )
        for dag in status.dags
        if dag.file in listing
        and names(files.get(dag.file, ()), site) is not exclude
        and (dag.state in ALIVE or not exclude)
    ]


def _nothing_to_do(
    exclude: bool,
    left_out: Sequence[LeftOut],
    waiting: Sequence[Job],
    uncovered: Sequence[str],
) -> str:
    """Why there is nothing to change."""
    reasons = [each.reason for each in left_out if each.reason not in ALREADY]
    if reasons:
        return f"the jobs that wait: {reasons[0]}"
    if not exclude:
        return f"the site is {NOT_EXCLUDED}"
    if waiting or not uncovered:
        return f"the site is {EXCLUDED}" if left_out else "nothing of it is in the queue"
    return "no job waits in the queue; for later ones, add the line to the submit file"


def _effects(
    exclude: bool, targets: int, running: int, bound: int, dags: Sequence[DagTarget]
) -> list[str]:
    """The effect on jobs and files."""
    effects = []
    if targets and exclude:
        verb = "match" if targets > 1 else "matches"
        effects.append(f"{count(targets, 'waiting job')} no longer {verb} its machines")
    elif targets:
        jobs = count(targets, "job")
        effects.append(f"{jobs} may run there again, with the requirements of before")
    if dags:
        files = ", ".join(plain(dag.file, 100) for dag in dags[:3])
        more = f" and {len(dags) - 3} more" if len(dags) > 3 else ""
        runs = count(sum(len(dag.runs) for dag in dags), "run")
        verb = "do not go there either; writes" if exclude else "may go there again; changes"
        effects.append(f"the next epochs of {runs} {verb} {files}{more}")
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
    """What the line for the submit file is for."""
    names = plain(", ".join(dags[:3]), 100) + (f" and {len(dags) - 3} more" * (len(dags) > 3))
    if exclude:
        return f"jobs that {names} submits later go there unless its submit file has the line"
    return f"take the line out of the submit file of {names}, if it was added"
