"""What an ensemble has learnt from job event logs, as plain data: for whoever keeps it until
the dagdir is opened again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from metlmon.model.clock_evidence import QueueInterval
from metlmon.model.dagman_runs import DagmanJob, Hold
from metlmon.model.event_store import StringTable, pack_event, unpack_event
from metlmon.model.job_events import Job, JobKey
from metlmon.snapshot.types import Notice

if TYPE_CHECKING:
    from metlmon.model.ensemble import Ensemble

JOBS_AT_ONCE: Final = 2000
"""Jobs in one record: some milliseconds of work."""


def dump_jobs(ensemble: Ensemble) -> Iterator[Any]:
    """Records of plain data, which hold what ``ensemble`` has learnt up to this call: what it
    learns while they are taken from the iterator is not in them."""
    strings = ensemble.event_store.strings
    clock = ensemble.clock
    facts: dict[str, Any] = {
        "newest": ensemble.newest,
        "clock": (list(clock._seen), clock._saw_utc, clock._saw_local, clock._hinted),
        "books": [
            (b.file, b.role.value, b.bytes, b.events, b.first, b.last, b.previous, dict(b.notices))
            for b in ensemble.books.values()
        ],
        "notices": [(n.kind, n.file, n.line, n.text) for n in ensemble.notices],
        "dagman_jobs": {
            key: [asdict(job) for job in jobs] for key, jobs in ensemble._dagman_jobs.items()
        },
        "dagman_spans": {
            key: [(cluster, list(span.starts), span.end) for cluster, span in spans.items()]
            for key, spans in ensemble._dagman_intervals.items()
        },
        "nodes_logs": dict(ensemble._nodes_logs),
        "factories": dict(ensemble._factories),
        "scripts": [
            (key[0], event.cluster, event.proc, event.subproc, pack_event(event, strings))
            for key, event in ensemble._scripts.items()
        ],
    }
    jobs = [_plain(job) for job in ensemble.jobs.values()]
    facts["words"], facts["jobs"] = list(strings.by_number), len(jobs)
    return _records(facts, jobs)


def _records(facts: dict[str, Any], jobs: list[Any]) -> Iterator[Any]:
    yield facts
    for start in range(0, len(jobs), JOBS_AT_ONCE):
        yield jobs[start : start + JOBS_AT_ONCE]


def load_jobs(ensemble: Ensemble, records: Iterable[Any]) -> None:
    """Give an ensemble that has been told nothing yet, not even its DAGs, what :func:`dump_jobs`
    told. Records of another shape raise whatever comes first; then it is not to be used."""
    from metlmon.model.ensemble import LogRole, LogStats

    rest = iter(records)
    facts = next(rest)
    ensemble.newest = facts["newest"]
    clock = ensemble.clock
    clock._seen, clock._saw_utc, clock._saw_local, clock._hinted = facts["clock"]
    for file, role, *figures in facts["books"]:
        ensemble.books[file] = LogStats(file, LogRole(role), *figures)
    ensemble.notices = [Notice(*notice) for notice in facts["notices"]]
    for key, dagman_jobs in facts["dagman_jobs"].items():
        ensemble._dagman_jobs[key] = [_dagman_job(**job) for job in dagman_jobs]
    for key, spans in facts["dagman_spans"].items():
        ensemble._dagman_intervals[key] = {
            cluster: QueueInterval(starts, end) for cluster, starts, end in spans
        }
    ensemble._nodes_logs = facts["nodes_logs"]
    ensemble._factories = facts["factories"]
    strings = ensemble.event_store.strings = StringTable(facts["words"])
    for dag_key, cluster, proc, subproc, plain in facts["scripts"]:
        event = unpack_event(plain, cluster, proc, subproc, strings)
        ensemble.note_script(dag_key, event)
    sets: dict[tuple[str, ...], frozenset[str]] = {}
    for jobs in rest:
        for plain in jobs:
            key, job = _job(plain, ensemble, sets)
            ensemble.jobs[key] = job
            ensemble.note_proc(key)
            if key[2]:
                ensemble.lives.recall(key, job)
    if len(ensemble.jobs) != facts["jobs"]:
        raise ValueError("jobs are missing")


def _dagman_job(hold: dict[str, Any] | None, **rest: Any) -> DagmanJob:
    return DagmanJob(hold=Hold(**hold) if hold is not None else None, **rest)


def _plain(job: Job) -> tuple[Any, ...]:
    return (
        job.cluster,
        job.proc,
        job.subproc,
        job.node_name,
        job.batch_name,
        job.aborted_by,
        job.swept,
        tuple(job.nodes_logs),
        tuple(job.user_logs),
        job.memory_max,
        job.memory_updates,
        job.last_image,
        job.newest_sign,
        job.first_submit,
        job.packed(),
    )


def _job(
    plain: Any, ensemble: Ensemble, sets: dict[tuple[str, ...], frozenset[str]]
) -> tuple[JobKey, Job]:
    (
        cluster,
        proc,
        subproc,
        node,
        batch,
        aborted_by,
        swept,
        nodes_logs,
        user_logs,
        memory_max,
        memory_updates,
        last,
        newest,
        first_submit,
        packed,
    ) = plain
    job = Job(cluster, proc, subproc, ensemble.event_store)
    job.node_name = node
    job.batch_name = batch and ensemble.event_store.strings.shared(batch)
    job.aborted_by = aborted_by
    job.swept = swept
    # One object for all jobs that are in the same logs.
    if nodes_logs:
        job.nodes_logs = sets.get(nodes_logs) or sets.setdefault(nodes_logs, frozenset(nodes_logs))
    if user_logs:
        job.user_logs = sets.get(user_logs) or sets.setdefault(user_logs, frozenset(user_logs))
    job.memory_max = memory_max
    job.memory_updates = memory_updates
    job.newest_sign = newest
    job.last_image = last
    job.first_submit = first_submit
    job.set_packed(packed)
    return (cluster, proc, subproc), job
