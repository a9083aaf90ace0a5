"""What can be asked of the gates of the runs that are selected, and what cannot, and why.

Pure: it looks at what the files tell. What is asked lies in files, so that no schedd is needed for
it, but for removing jobs as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import PurePath
from typing import Final

from metlmon.model.states import ACTIVE, ALIVE, State
from metlmon.pool.gate_requests import FILE_NAME, request_file
from metlmon.pool.reasons import SOME_NAMES, no_word, not_here, not_running, not_yours, target
from metlmon.pool.types import (
    AS_THE_DAG_SAYS,
    ActionPreview,
    ActionRequest,
    PoolAction,
    QueueJob,
    QueueSnapshot,
    RunTarget,
    SelectedRun,
    SiteInfo,
    Target,
)
from metlmon.snapshot.types import DagRow, GateStatus, RunRow
from metlmon.text.formatting import plain

NO_GATE: Final = "no gate stands before its nodes (metlmon new writes DAGs that have one)"
NO_RETRY: Final = (
    "DAGMan has no retry left for its node, which would fail, and with it all that comes after"
)
LAST: Final = "its last epoch is under way: nothing comes after it"
NOT_ASKED: Final = "nothing is asked of it that could be taken back"
STOPPED: Final = "it is stopped already"
STOP_ASKED: Final = "its stop is asked for already"
PAUSED: Final = "it is paused already"
PAUSE_ASKED: Final = "its pause is asked for already"

ALREADY: Final = frozenset({STOPPED, STOP_ASKED, PAUSED, PAUSE_ASKED, NOT_ASKED})
"""Reasons that mean: it is as it was wished."""

OVER: Final = frozenset({State.FAILED, State.REMOVED})
"""States of a run that goes no further in this DAG."""

EFFECTS: Final = {
    PoolAction.STOP: (
        "the epoch under way ends; those after it are left out, for good; other runs go on"
    ),
    PoolAction.STOP_NOW: (
        "the epoch under way is cut off, what it did since its "
        "last checkpoint is lost; "
        "it and those after it are left out, for good; other runs go on"
    ),
    PoolAction.PAUSE: "the epoch under way ends; the next one waits at its gate; other runs go on",
    PoolAction.RESUME_RUN: "the next epoch starts as soon as its gate looks again",
    PoolAction.SEND: (
        "the epochs from the next one on go there; the one in the queue stays where it is"
    ),
}
UNDOES: Final = {
    PoolAction.STOP: (
        "resume-run, until an epoch is left out; then metlmon continue, from the checkpoint"
    ),
    PoolAction.STOP_NOW: "cannot be undone; metlmon continue goes on from the last checkpoint",
    PoolAction.PAUSE: "resume-run",
    PoolAction.RESUME_RUN: "stop, or pause",
    PoolAction.SEND: "send where the DAG says",
}

ANYWHERE: Final = "any"
"""What submit files take for "wherever the other requirements are met"."""

NEAR: Final = 0.5
"""How alike a site's name must be to one that was given (:mod:`difflib`)."""

_NOT_THERE: Final = (
    ("a machine of that site alone", "a machine anywhere the requirements allow"),
    ("go there;", "go anywhere the requirements allow;"),
)
"""What is said of a site, and what of :data:`ANYWHERE` instead."""

ASKED_BY: Final = {
    PoolAction.STOP: ("stop",),
    PoolAction.STOP_NOW: ("stop",),
    PoolAction.PAUSE: ("pause",),
    PoolAction.RESUME_RUN: ("pause", "stop"),
    PoolAction.SEND: ("target",),
}
"""The files that an act writes, or deletes."""


def run_offer(
    act: PoolAction,
    word: QueueSnapshot,
    queue: Mapping[tuple[int, int], QueueJob],
    runs: Sequence[SelectedRun],
    dags: Mapping[str, DagRow],
    refusal: str | None,
) -> ActionPreview:
    """One of the runs' acts, for these. ``dags`` by file; ``queue``: the word's jobs by id."""
    touched: list[RunTarget] = []
    left_out: list[tuple[RunTarget, str]] = []
    asked = False
    for each in runs:
        jobs = tuple(target(job) for job in each.jobs if is_training(each.row, job.dag, job.node))
        made = _target(act, each.row, jobs)
        why = why_not(act, each.row, dags.get(each.row.dag))
        # What the files rule out needs no schedd to be refused.
        asked |= why is None and act is PoolAction.STOP_NOW
        if why is None and act is PoolAction.STOP_NOW:
            why = _not_removed(each.row, jobs, queue, word)
        if why is None and act is PoolAction.SEND:
            why = _not_by_site(jobs, queue)
        if why is None:
            touched.append(made)
        else:
            left_out.append((made, why))
    refused = refusal or (no_word(word) if asked else None)
    refused = refused or _nothing_left(touched, left_out)
    if act is PoolAction.STOP_NOW:
        refused = refused or not_here(word, [job for run in touched for job in run.jobs])
    order = None if refused else ActionRequest(act, runs=tuple(touched))
    about = touched or [made for made, _ in left_out]
    subject = said_of(about)
    return ActionPreview(
        act, subject, order, refused, tuple(left_out), _effect(act, about), UNDOES[act]
    )


def with_site(offer: ActionPreview, site: str) -> ActionPreview:
    """The offer, its order to go to ``site``; of one that takes an earlier one back, or names no
    single site, what that does."""
    if offer.order is None:
        return offer
    offer = replace(offer, order=replace(offer.order, site=site))
    if site == ANYWHERE:
        effect = offer.effect
        for there, anywhere in _NOT_THERE:
            effect = effect.replace(there, anywhere)
        return replace(offer, effect=effect)
    if site != AS_THE_DAG_SAYS or offer.order is None:
        return offer
    effect = "the epochs from the next one on go where the DAG file says"
    effect += _files("deletes", offer.order.runs)
    return replace(offer, effect=effect, undo="send them elsewhere again")


def unknown_site(site: str, offered: Iterable[SiteInfo], named: Iterable[str]) -> str | None:
    """That the collector knows no such site, in a sentence with the nearest names; None where it
    does, where it knows none at all, and for a site that is ``named`` elsewhere: in the DAG, or
    because jobs ran there. ClassAds compare names without regard to case."""
    names = [each.name for each in offered]
    known = {name.casefold() for name in (*names, *named)}
    if not names or site in (ANYWHERE, AS_THE_DAG_SAYS) or site.casefold() in known:
        return None
    near = get_close_matches(site, names, SOME_NAMES, NEAR) or names[:SOME_NAMES]
    said = ", ".join(plain(name, 60) for name in near)
    return f"the collector knows no site {plain(site, 60)}; it knows {said}" + (
        f" and {len(names) - len(near)} more" if len(names) > len(near) else ""
    )


def is_training(row: RunRow, dag: str | None, node: str | None) -> bool:
    """Is it a job of the epoch under way? Evaluations of epochs that were trained go on."""
    return row.latest is not None and (dag, node) == (row.dag, row.latest.node)


def why_not(act: PoolAction, row: RunRow, dag: DagRow | None) -> str | None:
    """Why this cannot be asked for a run; None when it can."""
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
        return "it is stopped, for good: metlmon continue goes on from its checkpoint"
    if (why := _over(row)) is not None:
        return why
    if dag is None:
        return "its DAG is not in the picture"
    return (None if dag.state in ALIVE else not_running(dag)) or _as_asked(act, row, gate)


def _over(row: RunRow) -> str | None:
    if row.epochs_done + row.epochs_skipped >= row.epochs_total:
        return "it is over: all its epochs are done"
    return f"it is over: it is {row.state}" if row.state in OVER else None


def _as_asked(act: PoolAction, row: RunRow, gate: GateStatus) -> str | None:
    """What was asked before, and whether there is an epoch that could still be met."""
    match act:
        case PoolAction.RESUME_RUN:
            asked = gate.pause_asked or gate.paused or gate.stop_asked
            return None if asked is not None else NOT_ASKED
        case PoolAction.STOP if gate.stop_asked is not None:
            return STOP_ASKED
        case PoolAction.PAUSE if gate.pause_asked is not None:
            return PAUSED if gate.paused is not None else PAUSE_ASKED
        case PoolAction.PAUSE | PoolAction.SEND if gate.stop_asked is not None:
            return "its stop is asked for: resume-run takes that back"
        case PoolAction.STOP | PoolAction.PAUSE | PoolAction.SEND if _last_under_way(row):
            return LAST + (", and stop-now ends it" if act is PoolAction.STOP else "")
    return None


def _last_under_way(row: RunRow) -> bool:
    left = row.epochs_total - row.epochs_done - row.epochs_skipped
    return left == 1 and row.latest is not None and row.latest.state in ACTIVE


def _not_removed(
    row: RunRow,
    jobs: Sequence[Target],
    queue: Mapping[tuple[int, int], QueueJob],
    word: QueueSnapshot,
) -> str | None:
    """Why its jobs must not be removed, or cannot."""
    for job in jobs:
        why = not_yours(queue.get((job.cluster, job.proc)), word)
        if why is not None:
            return f"its job {why}"
    return NO_RETRY if jobs and row.latest is not None and row.latest.retries_left == 0 else None


def _not_by_site(jobs: Sequence[Target], queue: Mapping[tuple[int, int], QueueJob]) -> str | None:
    """Where the schedd tells that it would change nothing."""
    there = [queue[job.cluster, job.proc] for job in jobs if (job.cluster, job.proc) in queue]
    if all(job.by_site for job in there):
        return None
    return "the requirements of its jobs do not look at MetlSite: they would go where they go now"


def _target(act: PoolAction, row: RunRow, jobs: tuple[Target, ...]) -> RunTarget:
    """The run as an order names it."""
    epoch = row.latest.epoch if row.latest is not None else None
    files = files_of(act, row.dag, row.uuid) if row.uuid is not None else ()
    if act is PoolAction.RESUME_RUN and row.gate is not None:
        lies = {"pause": row.gate.pause_asked, "stop": row.gate.stop_asked}
        files = tuple(f for f in files if lies[f.rpartition(".")[2]] is not None) or files[:1]
    of_act = jobs if act is PoolAction.STOP_NOW else ()
    return RunTarget(row.run, row.uuid, row.dag, epoch, row.state, files, of_act)


def files_of(act: PoolAction, dag: str, uuid: str) -> tuple[str, ...]:
    """The files that an act on a run writes or deletes, beside its DAG file."""
    return tuple(request_file(dag, uuid, what) for what in ASKED_BY[act])


def _nothing_left(
    touched: Sequence[RunTarget], left_out: Sequence[tuple[RunTarget, str]]
) -> str | None:
    if touched:
        return None
    if not left_out:
        return "no run is selected"
    if len(left_out) == 1:
        return left_out[0][1]
    whys = Counter(why for _, why in left_out).most_common(SOME_NAMES)
    return "; ".join(f"{count} {'runs' if count > 1 else 'run'}: {why}" for why, count in whys)


def said_of(runs: Sequence[RunTarget]) -> str:
    """``run4``, ``3 runs``."""
    if not runs:
        return "no run"
    return plain(runs[0].run, 60) if len(runs) == 1 else f"{len(runs)} runs"


def _effect(act: PoolAction, about: Sequence[RunTarget]) -> str:
    """What it does, to the files and the jobs that it touches."""
    effect = EFFECTS[act] + _files("deletes" if act is PoolAction.RESUME_RUN else "writes", about)
    jobs = [job for run in about for job in run.jobs]
    if jobs:
        effect += f", then removes {f'job {jobs[0].id}' if len(jobs) == 1 else f'{len(jobs)} jobs'}"
    return effect


def _files(verb: str, about: Sequence[RunTarget]) -> str:
    """What is done to files, as the end of a sentence."""
    files = [file for run in about for file in run.files]
    if len(about) == 1 and files:
        return f"; {verb} {plain(' and '.join(files), 200)}"
    folders = sorted({str(PurePath(file).parent) for file in files})
    return f"; {verb} {len(files)} files in {plain(', '.join(folders), 200)}" if files else ""
