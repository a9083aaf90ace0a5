"""Warnings about the input: conflicting or missing files, jobs of several DAGs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from itertools import islice
from pathlib import PurePath
from typing import Final

from metlmon.dagman.reports import rescue_number
from metlmon.model.attribution import ReusedJobIds
from metlmon.model.clock import Clock
from metlmon.model.dag import Dag
from metlmon.model.dagman_runs import DagmanRun
from metlmon.model.ensemble import Ensemble
from metlmon.model.job_events import NO_DAG, JobKey, LoggedJob, NodeKey
from metlmon.model.model_state import Notice
from metlmon.model.node import (
    current_metrics,
    matches_node_count,
    missing_rescue,
    reported_totals,
)
from metlmon.model.states import DagState, State
from metlmon.snapshot.derive import SPECIAL_KINDS, Derivation
from metlmon.text.formatting import count, listed, moment, plain

GAVE_UP_SUFFIX: Final = " Aborting."
"""End of DAGMan's last message when it aborts and the schedd may start it again."""

MAX_NAME: Final = 60
"""Characters of a node name in a warning."""

OF_A_MOMENT: Final = frozenset({"undated", "before-first-event"})
"""Kinds of notices that apply only to the time of ``--as-of``."""

MAX_FILES_NAMED: Final = 5
"""Number of files named in one warning."""


def input_notices(derivation: Derivation, live: bool) -> Iterator[Notice]:
    """All warnings about the input of an ensemble whose node states are resolved."""
    ensemble = derivation.ensemble
    yield from ensemble.lasting_notices
    yield from _zone_conflict(ensemble.clock)
    yield from _as_of_warnings(ensemble)
    yield from _reused_ids(ensemble.reused_ids)
    yield from ensemble.notices
    yield from _dagman_errors(ensemble)
    for dag in _dags(ensemble):
        yield from _missing_files(derivation, dag)
        yield from _lost_rescue(dag)
        yield from _changed_dag_file(derivation, dag)
        yield from _different_counts(derivation, dag)
        yield from _outdated_files(derivation, dag)
        yield from _lost_ends(derivation, dag)
    if names := derivation.unknown_nodes.get("", ()):
        text = (
            f"epochs that no DAG file here has are in the logs: {_first_name(names)}; they are in "
            "no run: the DAG file was changed since, or is not here"
        )
        yield Notice("unknown-nodes", None, None, text)
    yield from _missing_dag_files(derivation)
    if live:
        yield from _duplicate_jobs(derivation)
    yield from _foreign_jobs(ensemble)
    yield from _ambiguous_jobs(derivation)
    yield from _log_gaps(derivation)


def _dags(ensemble: Ensemble) -> list[Dag]:
    return [dag for key, dag in ensemble.dags.items() if key != NO_DAG]


def _zone_conflict(clock: Clock) -> Iterator[Notice]:
    """Warn if DAGMan's files contradict the time zone of the settings."""
    contradiction = clock.contradiction()
    if contradiction is None:
        return
    local, offset = contradiction
    sign, minutes = "-" if offset < timedelta() else "+", abs(offset) // timedelta(minutes=1)
    states = f"DAGMan's files state UTC{sign}{minutes // 60:02d}:{minutes % 60:02d}"
    text = f"the zone {clock.zone} does not fit: {states} on {local:%Y-%m-%d}; mend tz, or --tz"
    yield Notice("time-zone", None, None, text)


def _undated_files(ensemble: Ensemble) -> Iterator[Notice]:
    """Yield one warning about all files not known to be from before or after ``--as-of``."""
    names = [name for dag in ensemble.dags.values() for name in dag.undated_files()]
    if names:
        reason = "they state UTC, and no file has the logs' zone (give --tz, as America/Chicago)"
        if ensemble.clock.has_offset:
            reason = "they have no date"
        text = (
            f"files are left out, for whether they were written by then is not known: {reason}: "
            f"{listed(names, MAX_FILES_NAMED)}"
        )
        yield Notice("undated", None, None, text)


def _as_of_warnings(ensemble: Ensemble) -> Iterator[Notice]:
    """Yield the warnings that apply only to the time of ``--as-of``."""
    if ensemble.cut is None:
        return
    yield from _undated_files(ensemble)
    first = ensemble.offsets.first_later
    if ensemble.newest is None and first is not None:
        text = f"nothing had been logged by {ensemble.cut}: the first event is of {first}"
        yield Notice("before-first-event", None, None, text)


def _reused_ids(reused: ReusedJobIds) -> Iterator[Notice]:
    """Warn about job ids that another schedd has used again."""
    if not reused:
        return
    examples = ", ".join(f"{cluster}.{proc}" for cluster, proc in islice(reused, 3))
    more = ", …" if len(list(islice(reused, 4))) > 3 else ""
    text = (
        f"job ids were given out again by another schedd: {examples}{more}; "
        "each is a job of its own"
    )
    yield Notice("ids-again", None, None, text)


def _missing_files(derivation: Derivation, dag: Dag) -> Iterator[Notice]:
    """Warn about missing files that would show the state of inferred or unknown nodes."""
    without = derivation.ensemble.states.unrecorded(dag.key)
    if without is None:
        return
    # Nodes to which jobs here may belong have a warning of their own.
    possible = [key for key, record in derivation.nodes.items() if record.possible]
    ambiguous = sum(
        key[0] == dag.key and derivation.states[key].state is State.UNKNOWN for key in possible
    )
    inferred, unknown = without.inferred, without.unknown - ambiguous
    if not inferred and unknown <= 0:
        return
    name = missing_rescue(dag)
    file = name or f"{PurePath(dag.file).name}.rescueNNN"
    states = [
        *([f"{_nodes(inferred)} taken for done"] if inferred else ()),
        *([f"of {_nodes(unknown)} nothing is known"] if unknown > 0 else ()),
    ]
    counted = " and ".join(states)
    if name is not None:
        text = f"the rescue file with which DAGMan began is not here: {counted}"
    elif without.lost:
        text = f"a rescue file was in force that is not here, or an earlier log: {counted}"
    elif unknown:
        text = (
            f"no log of what its DAGMan submitted is here: {counted}; put its .nodes.log beside it"
        )
        yield Notice("missing-record", dag.file, None, text)
        return
    else:
        return
    yield Notice("missing-rescue", file, None, f"{text}; put it beside the DAG file")


def _lost_rescue(dag: Dag) -> Iterator[Notice]:
    """Warn if the newest rescue file that DAGMan wrote since its last start is missing."""
    times = {name: when for name, when in dag.out_times.written.items() if not _is_cut(dag, when)}
    newest = max(times, key=lambda name: times[name], default=None)
    if newest is None:
        return
    number = rescue_number(newest, PurePath(dag.file).name)
    last = dag.processes[-1] if dag.processes else None
    if number is None or number <= max(dag.rescue_files, default=0):
        return
    if last is None or last.start is None or last.start <= times[newest]:
        text = f"DAGMan wrote it at {moment(times[newest])}, and it is not here"
        yield Notice("missing-rescue", newest, None, f"{text}; put it beside the DAG file")


def _is_cut(dag: Dag, when: datetime) -> bool:
    return dag.cut is not None and when > dag.cut


def _nodes(number: int) -> str:
    return f"{number} node" if number == 1 else f"{number} nodes"


def _changed_dag_file(derivation: Derivation, dag: Dag) -> Iterator[Notice]:
    """Warn if the DAG file is not the one that ran: its node names or numbers differ."""
    start = dag.last_fresh_start()
    in_dagman_out = [
        name
        for name, time in dag.unknown_nodes.items()
        if name not in dag.workflow.nodes and (start is None or time is None or time >= start)
    ]
    sources: list[tuple[str, Collection[str]]] = [
        (f"{dag.file}.nodes.log", derivation.unknown_nodes.get(dag.key, ())),
        (f"{dag.file}.dagman.out", in_dagman_out),
        *((file.name, names) for file, names in dag.unknown_names()),
    ]
    for file, names in sources:
        if names:
            yield _other_dag_notice(
                dag, f"{file} has nodes that are not in it: {_first_name(names)}"
            )
            return
    for file, total in reported_totals(dag):
        if not matches_node_count(dag, total):
            yield _other_dag_notice(dag, f"{file} counts {_nodes(total)}, it has {dag.node_count}")
            return


def _first_name(names: Collection[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{plain(min(names), MAX_NAME)}{more}"


def _outdated_files(derivation: Derivation, dag: Dag) -> Iterator[Notice]:
    """Warn if a DAGMan was active after the end that its files report."""
    ending = derivation.ensemble.states.end_state(dag)
    if ending is not None and ending[1] is None and _has_queued(derivation, dag):
        text = (
            "its DAGMan ended by its files, at a time that is unknown without --tz, and jobs "
            "of it are in the queue by the logs: one of them is older than the others"
        )
        yield Notice("log-behind", dag.file, None, text)
    if ending is not None and derivation.ensemble.states.was_active_after(dag.key, ending[1]):
        text = (
            f"its DAGMan ended at {moment(ending[1])} by its files, and something was done since: "
            "files of a later DAGMan are not here, or older than the others"
        )
        yield Notice("log-behind", dag.file, None, text)


def _has_queued(derivation: Derivation, dag: Dag) -> bool:
    attributions = map(derivation.attributions.get, derivation.totals.queued)
    return any(found is not None and found.dag == dag.key for found in attributions)


def _other_dag_notice(dag: Dag, text: str) -> Notice:
    advice = "it was changed since, or is another DAG's; states of nodes may be wrong"
    return Notice("dag-file-changed", dag.file, None, f"not the DAG that ran: {text}; {advice}")


def _different_counts(derivation: Derivation, dag: Dag) -> Iterator[Notice]:
    """Warn if DAGMan's final node counts differ from those of the logs."""
    metrics = current_metrics(dag)
    if metrics is None or metrics.succeeded is None or metrics.total_nodes is None:
        return
    if any(node.kind in SPECIAL_KINDS for node in dag.workflow.nodes.values()):
        return  # DAGMan counts some of these twice.
    counts = derivation.sums.counts[dag.key]
    if (
        counts.unknown
        or counts.done == metrics.succeeded
        or not matches_node_count(dag, metrics.total_nodes)
    ):
        return
    text = (
        f"{_nodes(metrics.succeeded)} done by it, {counts.done} by the other files: one of them is "
        "of another life of DAGMan, or was cut"
    )
    yield Notice("counts-differ", metrics.path.name, None, text)


def _dagman_errors(ensemble: Ensemble) -> Iterator[Notice]:
    """Warn about errors with which DAGMan gave up, and which no failed node explains."""
    for dag in _dags(ensemble):
        last_run = dag.current_run()
        error = (
            last_run.processes[-1].error if last_run is not None and last_run.processes else None
        )
        state = ensemble.dag_state(dag.key)[0]
        if not error or state not in (DagState.FAILED, DagState.UNKNOWN):
            earlier = (process.error for process in dag.processes[:-1] if not process.ended)
            error = next((text for text in earlier if text and text.endswith(GAVE_UP_SUFFIX)), None)
        file = f"{dag.key}.dagman.out"
        if error:
            yield Notice("dagman-error", file, None, f"DAGMan: {error}")
        if last_run is not None:
            yield from _unread_events(last_run, file)


def _unread_events(run: DagmanRun, file: str) -> Iterator[Notice]:
    """Warn about events that DAGMan could not read or understand, and about resulting crashes."""
    if (loop := run.crash_loop) is not None:
        text = f"DAGMan crashed {loop.number} times: {loop.message}"
        yield Notice("dagman-crash", file, None, text)
    bad = [process.bad_events for process in run.processes if process.bad_events is not None]
    if bad:
        number = sum(n for _, n in bad)
        more = f" (and {number - 1} more)" if number > 1 else ""
        yield Notice("dagman-bad-event", file, None, f"DAGMan: BAD EVENT: {bad[0][0]}{more}")
    times = [process.log_error for process in run.processes if process.log_error is not None]
    if times:
        text = f"DAGMan could not read an event of its log at {moment(times[-1])}"
        yield Notice("dagman-log-error", file, None, f"{text}: it may have lost the end of a job")


def _lost_ends(derivation: Derivation, dag: Dag) -> Iterator[Notice]:
    """Warn about ends of jobs that a log has, but DAGMan has not read."""
    lost = [
        state.job
        for key in sorted(derivation.sums.faulty)
        if key[0] == dag.key and (state := derivation.states[key]).state is State.UNKNOWN
        if state.job is not None
    ]
    if lost:
        job = lost[0]
        more = f" (and of {count(len(lost) - 1, 'job')} more)" if len(lost) > 1 else ""
        log = min(job.user_logs or job.nodes_logs, default=None)
        text = (
            f"it has the end of job {job.cluster}.{job.proc}{more}, and DAGMan has not read it, by "
            "DAGMan's own files: its log may lack that event"
        )
        yield Notice("lost-end", log, None, text)


def _duplicate_jobs(derivation: Derivation) -> Iterator[Notice]:
    """Warn about nodes with jobs of several submissions in the queue.

    A DAGMan whose log is missing submits jobs again that are still running.
    """
    by_node: dict[NodeKey, list[JobKey]] = defaultdict(list)
    for key in derivation.totals.queued:
        if (node := derivation.node_of(derivation.ensemble.jobs[key])) is not None:
            by_node[node].append(key)
    duplicated = [node for node, jobs in by_node.items() if len({key[0] for key in jobs}) > 1]
    if not duplicated:
        return
    (dag, name), number = min(duplicated), len(duplicated)
    jobs = by_node[dag, name]
    clusters = sorted({key[0] for key in jobs})
    more = f" (and so have {number - 1} more nodes)" if number > 1 else ""
    text = f"{name} has jobs of {len(clusters)} submissions in the queue by their logs"
    if all(derivation.attributions[k].proven for k in jobs):
        text += (
            f", {', '.join(map(str, clusters))}{more}: DAGMan heeds the newest alone, the "
            "others take slots and may write the same files; condor_rm them if condor_q has "
            "them"
        )
    else:
        text += (
            f"{more}: DAGMan heeds the newest alone; no file here proves that all of them are "
            f"{derivation.dag_file(dag)}'s, so ask condor_q whose they are (DAGManJobId, Iwd)"
        )
    yield Notice("doubled-node", derivation.dag_file(dag), None, text)


def _foreign_jobs(ensemble: Ensemble) -> Iterator[Notice]:
    """Warn about logs that jobs of another directory's DAG write to as well."""
    for log, number in sorted(ensemble.unproven.foreign_by_log.items()):
        text = (
            f"{count(number, 'job')} in it {'was' if number == 1 else 'were'} submitted by a "
            "DAG that is not in this directory but has the same node names, and "
            f"{'is' if number == 1 else 'are'} left out; give each directory a log of its own"
        )
        yield Notice("shared-log", log, None, text)


def _ambiguous_jobs(derivation: Derivation) -> Iterator[Notice]:
    """Warn about jobs that may belong to more than one DAG."""
    groups: dict[tuple[str, ...], list[LoggedJob]] = defaultdict(list)
    for key in sorted(derivation.ambiguous):
        attribution = derivation.attributions.get(key)
        if attribution is not None and attribution.candidates:
            groups[attribution.candidates].append(derivation.ensemble.jobs[key])
    for candidates, jobs in groups.items():
        files = ", ".join(derivation.dags[key].file for key in candidates)
        examples = listed([f"{job.cluster}.{job.proc}" for job in jobs], 3)
        text = (
            f"{len(jobs)} jobs ({examples}) may belong to any of {files}: "
            "keep each DAG's .dagman.out or .nodes.log beside it to distinguish them"
        )
        if len(candidates) == 1:
            text = (
                f"{count(len(jobs), 'job')} ({examples}) may belong to {files}, or to "
                "the DAG of another directory that writes the same log: keep its .dagman.out "
                "and .nodes.log beside it to distinguish them"
            )
        yield Notice("ambiguous-dag", min(jobs[0].user_logs, default=None), None, text)


def _missing_dag_files(derivation: Derivation) -> Iterator[Notice]:
    """Warn if a DAG submitted the jobs of a directory without DAG files."""
    jobs = derivation.ensemble.jobs.values() if not derivation.has_dags else ()
    job = next((job for job in jobs if job.node_name), None)
    if job is None:
        return
    text = (
        "a DAG submitted jobs of this log, and its file was not read: epochs not submitted yet are "
        "not counted, and jobs of one node name are tries of one epoch; give the directory of the "
        "DAG file, or put it beside the log"
    )
    yield Notice("no-dag-file", min(job.user_logs, default=None), None, text)


def _log_gaps(derivation: Derivation) -> Iterator[Notice]:
    """Warn about events that are missing in the logs."""
    for key in derivation.totals.gaps:
        job, record = derivation.ensemble.jobs[key], derivation.jobs.get(key)
        file = min(job.user_logs or job.nodes_logs, default=None)
        for line, text in record.gaps if record is not None else ():
            where = line if job.user_logs else None
            yield Notice("log-gap", file, where, f"job {job.cluster}.{job.proc}: {text}")
