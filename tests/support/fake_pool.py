"""Pools and feeds for screens: scripted ones, and those of a schedd whose texts are all hostile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from metlmon.model.states import ACTIVE, State
from metlmon.pool import types
from metlmon.pool.previews import action_previews, exclusion_preview
from metlmon.snapshot.records import DagRow, Job, JobView, Snapshot, Status
from tests.support.patience import PATIENCE
from tests.support.sample_snapshots import FakeFeed, run, status, update

SITES = (
    types.SiteInfo("Expanse-GPU", 2, ("NVIDIA A100-SXM4-40GB",)),
    types.SiteInfo("Delta-GPU", 4, ("NVIDIA A40",)),
    types.SiteInfo("CHTC-Spark-CE1", 1, ("NVIDIA L40S", "NVIDIA H100")),
)
HERE = types.ScheddInfo(
    "ap1.example.org", "23.9.6", "someone@example.org", "/usr/bin/condor_submit_dag"
)
NOW = 1_763_100_840.0
WORD = types.QueueSnapshot(
    schedd="ap40.example.org", version="25.0.4", user="someone@example.org", queried_at=NOW - 12
)
DAGMAN = 14690000
"""The cluster of every DAG's DAGMan."""


QUEUED = types.QueueJob(
    1,
    0,
    1,
    priority=10,
    matches=2,
    position=3,
    waiting=7,
    rejection="no match found",
    rejected_at=NOW - 240,
)


def queued_as(job: Job) -> types.QueueJob:
    """The queue's record of a job in the logs."""
    return types.QueueJob(
        job.cluster,
        job.proc,
        status=types.HELD if job.state is State.HELD else 2,
        site="delta",
        by_site=True,
        request_memory=8192,
        request_disk=1_000_000,
    )


class FakePool:
    """Previews as of a queue with all jobs; answers DONE, or ``replies`` for a subject.

    ``where``, ``sites``, ``submitted``: the answers; an error among them is raised. ``gate``, open
    at first: the pool waits for it before it answers, and after its first result.
    """

    def __init__(
        self,
        where: types.ScheddInfo | types.PoolError = HERE,
        sites: Sequence[types.SiteInfo] | types.PoolError = SITES,
        submitted: int | types.PoolError = 4711,
    ) -> None:
        self.queue_snapshot = WORD
        self.answers: dict[str, object] = {"where": where, "sites": sites}
        self.submitted = submitted
        self.orders: list[types.ActionRequest] = []
        self.replies: dict[str, tuple[types.ResultCode, str]] = {}
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.dags: list[Path] = []
        self.asked: list[str] = []
        self.closed = False
        self.queued: tuple[Job, ...] = ()

    def previews(
        self,
        status: Status,
        jobs: Sequence[Job],
        dags: Sequence[DagRow],
        runs: Sequence[types.SelectedRun] = (),
        site: str | None = None,
        host: str | None = None,
    ) -> tuple[types.ActionPreview, ...]:
        snapshot = self.queue_snapshot
        if not snapshot.is_pending:
            queue = {(job.cluster, job.proc): queued_as(job) for job in jobs} | {**snapshot.by_id}
            dagman = types.QueueJob(DAGMAN, 0, status=2)
            snapshot = replace(snapshot, jobs=tuple(queue.values()), dagmans=(dagman,))
        dags = [replace(dag, cluster=DAGMAN) for dag in dags]
        previews = list(action_previews(snapshot, jobs, dags, runs, status))
        for place, acts in ((site, types.SITE_ACTS), (host, types.HOST_ACTS)):
            if place is not None:
                previews += (
                    exclusion_preview(act, snapshot, place, self.queued, status, {}) for act in acts
                )
        return tuple(previews)

    def perform(
        self, order: types.ActionRequest, on_result: Callable[[types.ActionResult], None]
    ) -> tuple[types.ActionResult, ...]:
        self.orders.append(order)
        results = []
        jobs = [each.id for each in order.touched] if order.act not in types.DAG_ACTS else []
        for subject in jobs or [order.dag or ""]:
            assert not results or self.gate.wait(30), "nobody opened the gate"
            if self.error is not None and (results or len(order.touched) < 2):
                raise self.error
            reply, text = self.replies.get(subject, (types.ResultCode.DONE, ""))
            results.append(types.ActionResult(subject, reply, text))
            on_result(results[-1])
        return tuple(results)

    def where(self) -> types.ScheddInfo:
        return self._answer("where")  # type: ignore[return-value]

    def sites(self) -> tuple[types.SiteInfo, ...]:
        return self._answer("sites")  # type: ignore[return-value]

    def _answer(self, question: str) -> object:
        self.asked.append(question)
        assert self.gate.wait(PATIENCE)
        answer = self.answers[question]
        if isinstance(answer, types.PoolError):
            raise answer
        return answer

    def submit_dag(self, dag_file: Path) -> int:
        self.dags.append(dag_file)
        assert self.gate.wait(PATIENCE)
        if isinstance(self.submitted, types.PoolError):
            raise self.submitted
        return self.submitted

    def close(self) -> None:
        self.closed = True
        self.gate.set()


class QueuedFeed(FakeFeed):
    """A feed whose jobs have the state of their run, in the queue as well."""

    queued: types.QueueJob | None = QUEUED

    def job_view(self, cluster: int, proc: int) -> JobView | None:
        view = super().job_view(cluster, proc)
        if view is None or (cluster, proc) in self.jobs:
            return view
        rows = self._latest.status.runs if self._latest else ()
        row = next(r for r in rows if r.key == view.job.key)
        newest = row.latest is not None and row.latest.cluster == cluster
        state = row.state if newest else State.COMPLETED
        result = replace(view.job, state=State.WAITING if state is None else state)
        queued = self.queued if state in ACTIVE else None
        return replace(view, job=result, queue=queued, queried_at=NOW - 12)


def many(n: int) -> Snapshot:
    """A snapshot of so many running runs."""
    return update(status(tuple(run(f"run{i}", i % 20, 30, State.RUNNING) for i in range(n))))


# --- hostile texts -------------------------------------------------------------------------

PAYLOAD = (
    "[b]m[/]\x1b]0;OWNED\x07\x1b[2J\x1b[31m\x9b31m\x1b]52;c;RVZJTA==\x07\x90q\x9c[bold red]mark[/]"
    "[@click=app.exit()]x[/]\u202eesrever\u2066\u200b\u200d\ufeff\x00\x08\x7f\r\n\t\u2028"
    "a\u0301\u0301\u0301\u0301\u0301é模\ud83d"
)


def harmed(thing: Any) -> Any:
    """The record of a pool with the payload before each of its texts."""
    if isinstance(thing, Enum | datetime):
        return thing
    if isinstance(thing, str):
        return f"{PAYLOAD}{thing}"
    if isinstance(thing, tuple):
        return tuple(map(harmed, thing))
    if isinstance(thing, Struct):
        fields = thing.__struct_fields__
        return replace(thing, **{name: harmed(getattr(thing, name)) for name in fields})
    return thing


class HostileFeed(QueuedFeed):
    """A feed of jobs with such texts from the schedd."""

    queued = harmed(replace(QUEUED, differs="x"))


class HostilePool(FakePool):
    """A pool whose schedd answers with such texts."""

    def __init__(self) -> None:
        super().__init__()
        self.queue_snapshot = harmed(self.queue_snapshot)

    def previews(self, *asked: Any, **more: Any) -> tuple[types.ActionPreview, ...]:
        return harmed(super().previews(*asked, **more))

    def perform(
        self, order: types.ActionRequest, on_result: Callable[[types.ActionResult], None]
    ) -> tuple[types.ActionResult, ...]:
        answers = super().perform(order, lambda answer: None)
        return tuple(replace(answer, text=PAYLOAD) for answer in answers)
