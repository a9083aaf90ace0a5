"""A desk that says what a test tells it to, and records what it was asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from metlmon.live.feed import Snapshot
from metlmon.model.states import ACTIVE, DagState, State
from metlmon.pool.reasons import no_word
from metlmon.pool.run_actions import run_offer
from metlmon.pool.types import (
    DAG_ACTS,
    JOB_ACTS,
    RUN_ACTS,
    ActionPreview,
    ActionRequest,
    ActionResult,
    PoolAction,
    PoolError,
    QueueSnapshot,
    ResultCode,
    ScheddInfo,
    SelectedRun,
    SiteInfo,
    SubmitResult,
    Target,
)
from metlmon.snapshot.types import DagRow, JobRow, JobView, QueueRow, Status
from tests.support.sample_snapshots import FakeFeed, run, status, update

NOW = 1_763_100_840.0
WORD = QueueSnapshot(
    schedd="ap40.example.org",
    version="25.0.4",
    user="someone@example.org",
    asked=NOW - 12,
)
EFFECTS = {
    PoolAction.HOLD: ("They stop; what was not checkpointed is lost.", "R releases them"),
    PoolAction.RELEASE: (
        "They become idle, and run when a machine is found.", "H holds them again"
    ),
    PoolAction.REMOVE: ("They leave the queue; their nodes have failed.", "it cannot be undone"),
    PoolAction.VACATE: (
        "They leave their machines and become idle.", "they start again by themselves"
    ),
    PoolAction.PRIORITY: (
        "Those with a larger number are matched first.", "set the number of before"
    ),
    PoolAction.RETARGET: ("They wait for a machine there.", "send them back"),
    PoolAction.HALT: ("Nothing more is submitted; what is queued runs to its end.", "Z resumes it"),
    PoolAction.RESUME: ("DAGMan goes on submitting.", "Z halts it"),
    PoolAction.REMOVE_DAG: ("DAGMan writes a rescue file and ends.", "U submits it again"),
    PoolAction.RESUBMIT: ("DAGMan starts behind what is done.", "D removes it"),
}  # fmt: skip
FITTING = {
    PoolAction.HOLD: ACTIVE - {State.HELD},
    PoolAction.RELEASE: frozenset({State.HELD}),
    PoolAction.REMOVE: ACTIVE,
    PoolAction.VACATE: frozenset({State.RUNNING, State.SUSPENDED, State.TRANSFERRING_INPUT}),
    PoolAction.PRIORITY: ACTIVE,
    PoolAction.RETARGET: frozenset({State.IDLE}),
}


def target(job: JobRow) -> Target:
    return Target(job.cluster, job.proc, job.dag, job.node, job.run, job.epoch, job.state)


class ActingDesk:
    """Offers by the jobs' states; answers DONE, or what ``replies`` has for a subject."""

    def __init__(self) -> None:
        self.word = WORD
        self.orders: list[ActionRequest] = []
        self.replies: dict[str, tuple[ResultCode, str]] = {}
        self.error: Exception | None = None
        self.gate: threading.Event | None = None
        """When set: after the first answer it waits for this before it goes on."""
        self.closed = False
        self.known: tuple[SiteInfo, ...] | PoolError = ()

    def offers(
        self,
        status: Status,
        jobs: Sequence[JobRow],
        dags: Sequence[DagRow],
        runs: Sequence[SelectedRun] = (),
    ) -> tuple[ActionPreview, ...]:
        all_dags = {each.file: each for each in status.dags}
        of_runs = (run_offer(act, self.word, {}, runs, all_dags, None) for act in RUN_ACTS)
        made = (*(self._of_jobs(act, jobs) for act in JOB_ACTS), *self._of_dags(dags))
        if self.word.asking:
            made = tuple(replace(each, order=None, refused=no_word(self.word)) for each in made)
        return (*made, *of_runs)

    def _of_jobs(self, act: PoolAction, jobs: Sequence[JobRow]) -> ActionPreview:
        fit = tuple(target(job) for job in jobs if job.state in FITTING[act])
        out = tuple(
            (target(j), "its state forbids it") for j in jobs if j.state not in FITTING[act]
        )
        runs = ", ".join(dict.fromkeys(each.run or "?" for each in fit))
        subject = f"{len(fit)} job{'s' * (len(fit) != 1)} of {runs}"
        if not fit:
            why = f"no job to {act.value} is selected"
            return ActionPreview(act, "", None, why, out, *EFFECTS[act])
        return ActionPreview(act, subject, ActionRequest(act, fit), None, out, *EFFECTS[act])

    def _of_dags(self, dags: Sequence[DagRow]) -> tuple[ActionPreview, ...]:
        if len(dags) != 1:
            why = "several DAGs" if dags else "no DAG is selected"
            acts = (PoolAction.HALT, PoolAction.RESUME, PoolAction.REMOVE_DAG, PoolAction.RESUBMIT)
            return tuple(ActionPreview(act, "", None, why, (), "", "") for act in acts)
        (dag,) = dags
        runs = dag.state is DagState.RUNNING
        own = Target(14690000, 0, dag.file, None, None, None, State.RUNNING)
        whys = {
            PoolAction.HALT: "it is halted already"
            if dag.halted
            else None
            if runs
            else "it is over",
            PoolAction.RESUME: None if dag.halted else "it is not halted",
            PoolAction.REMOVE_DAG: None if runs else "it is over",
            PoolAction.RESUBMIT: "it is running" if runs else None,
        }
        return tuple(
            ActionPreview(act, dag.file, None, why, (), *EFFECTS[act])
            if why
            else ActionPreview(
                act,
                dag.file,
                ActionRequest(act, (own,) if act is PoolAction.REMOVE_DAG else (), dag.file),
                None,
                (),
                *EFFECTS[act],
            )
            for act, why in whys.items()
        )

    def perform(
        self, order: ActionRequest, told: Callable[[ActionResult], None]
    ) -> tuple[ActionResult, ...]:
        self.orders.append(order)
        made = []
        jobs = [each.id for each in order.touched] if order.act not in DAG_ACTS else []
        for subject in jobs or [order.dag or ""]:
            if made and self.gate is not None:
                assert self.gate.wait(30), "nobody opened the gate"
            if self.error is not None and (made or len(order.touched) < 2):
                raise self.error
            reply, text = self.replies.get(subject, (ResultCode.DONE, ""))
            made.append(ActionResult(subject, reply, text))
            told(made[-1])
        return tuple(made)

    def where(self) -> ScheddInfo:
        return ScheddInfo("ap40.example.org", "25.0.4", "someone@example.org", True, None)

    def sites(self) -> tuple[SiteInfo, ...]:
        if isinstance(self.known, PoolError):
            raise self.known
        return self.known

    def submit_dag(self, dag_file: Path) -> SubmitResult:
        raise AssertionError("no test of acting submits")

    def close(self) -> None:
        self.closed = True


QUEUE = QueueRow(
    queried_at=NOW - 12,
    priority=10,
    matches=2,
    position=3,
    waiting=7,
    rejection="no match found",
    rejected_at=NOW - 240,
)


class QueuedFeed(FakeFeed):
    """A feed whose jobs are in the state of their run, with the queue's word on each."""

    queue: QueueRow | None = QUEUE

    def job_view(self, cluster: int, proc: int) -> JobView | None:
        view = super().job_view(cluster, proc)
        if view is None or (cluster, proc) in self.jobs:
            return view
        rows = self._latest.status.runs if self._latest else ()
        row = next(r for r in rows if (r.run, r.dag) == (view.row.run, view.row.dag))
        newest = row.latest is not None and row.latest.cluster == cluster
        state = row.state if newest else State.COMPLETED
        told = replace(view.row, state=State.WAITING if state is None else state)
        return replace(view, row=told, queue=self.queue if state in ACTIVE else None)


def many(n: int) -> Snapshot:
    """A picture of so many runs that all run."""
    return update(status(tuple(run(f"run{i}", i % 20, 30, State.RUNNING) for i in range(n))))
