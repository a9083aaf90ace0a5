"""Serialises the state that an ensemble read from job event logs, for the cache."""

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
"""Jobs per record: some milliseconds of work."""


def dump_jobs(ensemble: Ensemble) -> Iterator[Any]:
    """Yield records of plain data with the state of ``ensemble`` at this call.

    Later changes, made while the iterator is consumed, are not included.
    """
    strings = ensemble.event_store.strings
    clock = ensemble.clock
    header: dict[str, Any] = {
        "newest": ensemble.newest,
        "clock": (list(clock._seen), clock._saw_utc, clock._saw_local, clock._hinted),
        "books": [
            (
                log.file,
                log.role.value,
                log.bytes,
                log.events,
                log.first,
                log.last,
                log.previous,
                dict(log.notices),
            )
            for log in ensemble.log_stats.values()
        ],
        "notices": [
            (notice.kind, notice.file, notice.line, notice.text) for notice in ensemble.notices
        ],
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
    jobs = [_job_record(job) for job in ensemble.jobs.values()]
    header["words"], header["jobs"] = list(strings.by_number), len(jobs)
    return _records(header, jobs)


def _records(header: dict[str, Any], jobs: list[Any]) -> Iterator[Any]:
    yield header
    for start in range(0, len(jobs), JOBS_AT_ONCE):
        yield jobs[start : start + JOBS_AT_ONCE]


def load_jobs(ensemble: Ensemble, records: Iterable[Any]) -> None:
    """Restore the records of :func:`dump_jobs` in a new ensemble, still without DAGs.

    Invalid records raise any exception; the ensemble must not be used then.
    """
    from metlmon.model.ensemble import LogRole, LogStats

    iterator = iter(records)
    header = next(iterator)
    ensemble.newest = header["newest"]
    clock = ensemble.clock
    clock._seen, clock._saw_utc, clock._saw_local, clock._hinted = header["clock"]
    for file, role, *stats in header["books"]:
        ensemble.log_stats[file] = LogStats(file, LogRole(role), *stats)
    ensemble.notices = [Notice(*notice) for notice in header["notices"]]
    for key, dagman_jobs in header["dagman_jobs"].items():
        ensemble._dagman_jobs[key] = [_dagman_job(**job) for job in dagman_jobs]
    for key, spans in header["dagman_spans"].items():
        ensemble._dagman_intervals[key] = {
            cluster: QueueInterval(starts, end) for cluster, starts, end in spans
        }
    ensemble._nodes_logs = header["nodes_logs"]
    ensemble._factories = header["factories"]
    strings = ensemble.event_store.strings = StringTable(header["words"])
    for dag_key, cluster, proc, subproc, record in header["scripts"]:
        event = unpack_event(record, cluster, proc, subproc, strings)
        ensemble.note_script(dag_key, event)
    log_sets: dict[tuple[str, ...], frozenset[str]] = {}
    for jobs in iterator:
        for record in jobs:
            key, job = _load_job(record, ensemble, log_sets)
            ensemble.jobs[key] = job
            ensemble.note_proc(key)
            if key[2]:
                ensemble.reused_ids.restore(key, job)
    if len(ensemble.jobs) != header["jobs"]:
        raise ValueError("jobs are missing")


def _dagman_job(hold: dict[str, Any] | None, **rest: Any) -> DagmanJob:
    return DagmanJob(hold=Hold(**hold) if hold is not None else None, **rest)


def _job_record(job: Job) -> tuple[Any, ...]:
    return (
        job.cluster,
        job.proc,
        job.subproc,
        job.node_name,
        job.batch_name,
        job.aborted_by,
        job.removed_with_dag,
        tuple(job.nodes_logs),
        tuple(job.user_logs),
        job.memory_max,
        job.memory_updates,
        job.last_image_size,
        job.newest_time,
        job.logged_submit,
        job.packed(),
    )


def _load_job(
    record: Any, ensemble: Ensemble, log_sets: dict[tuple[str, ...], frozenset[str]]
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
    ) = record
    job = Job(cluster, proc, subproc, ensemble.event_store)
    job.node_name = node
    job.batch_name = batch and ensemble.event_store.strings.shared(batch)
    job.aborted_by = aborted_by
    job.removed_with_dag = swept
    # Share one set among all jobs in the same logs.
    if nodes_logs:
        job.nodes_logs = log_sets.get(nodes_logs) or log_sets.setdefault(
            nodes_logs, frozenset(nodes_logs)
        )
    if user_logs:
        job.user_logs = log_sets.get(user_logs) or log_sets.setdefault(
            user_logs, frozenset(user_logs)
        )
    job.memory_max = memory_max
    job.memory_updates = memory_updates
    job.newest_time = newest
    job.last_image_size = last
    job.logged_submit = first_submit
    job.set_packed(packed)
    return (cluster, proc, subproc), job
