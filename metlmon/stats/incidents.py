"""Incidents that a person should know of, as pure functions of one snapshot.

An incident is rarer than a problem: a lost execution is a problem, and retried; a full disk, a gap
in a log, or the eviction of many jobs at a site is an incident. Each kind has a rule here or in
:mod:`metlmon.stats.incident_rules`, with its thresholds; no rule matches what DAGMan merely
retries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Final

from msgspec import Struct

from metlmon.live.feed import StatsInput
from metlmon.model.job_events import JobId
from metlmon.model.reasons import fold_reason
from metlmon.model.sites import misses_target, names_other_target, normalize_name
from metlmon.model.states import DagState, State
from metlmon.snapshot.ledger import ExecutionEntry, RunEntry
from metlmon.stats.estimates import Forecast, make_forecast
from metlmon.stats.incident_rules import (
    ALARM,
    DAY,
    MIN_RUNS,
    NOTE,
    WARNING,
    Incident,
    build_incident,
    end_range,
    full_disk,
    listed,
    log_gaps,
    mass_evictions,
    removals,
    silent_logs,
    stalled_transfers,
)
from metlmon.stats.totals import group_by
from metlmon.text.formatting import age, count, epoch_number

UNSERVED_SECONDS: Final = 3 * 3600.0
UNSERVED_TIMES: Final = 5.0
"""A target without any execution, while others have some, is reported after three hours and five
times the median wait of the others."""

RECENT_SECONDS: Final = 3 * DAY
"""Incidents that ended longer ago are not shown in the header."""

LOCATION_ARGUMENTS: Final = re.compile(
    r"path|dir|file|ckpt|checkpoint|output|log|version|uuid|host|resume|wandb|name|^id$|_id$"
    r"|gpus|devices|workers|nodes|slow_factor"
)
"""Arguments about where a training runs, which may differ; they do not affect the model."""


def incidents(stats_input: StatsInput) -> tuple[Incident, ...]:
    """All incidents: the ongoing ones first, then the newest first."""
    matches = [incident for rule in RULES for incident in rule(stats_input)]
    matches.sort(key=lambda match: (match.ongoing, _sort_time(match), match.severity), reverse=True)
    return tuple(matches)


def urgent_incidents(stats_input: StatsInput, all_incidents: Sequence[Incident]) -> list[Incident]:
    """The incidents for the header, most severe first: ongoing or recent, no notes.

    Past incidents of completed runs only are excluded.
    """
    ledger, now = stats_input.ledger, stats_input.ledger.as_of
    done = {run.run for run in ledger.runs if run.state is State.COMPLETED}

    def is_urgent(incident: Incident) -> bool:
        if incident.ongoing:
            return True
        if incident.runs and done.issuperset(incident.runs):
            return False
        until = incident.until
        return now is None or until is None or ledger.seconds_between(until, now) <= RECENT_SECONDS

    urgent = [each for each in all_incidents if each.severity > NOTE and is_urgent(each)]
    urgent.sort(key=lambda each: (each.severity, each.ongoing, _sort_time(each)), reverse=True)
    return urgent


class IncidentList(Struct, frozen=True):
    """All incidents, with those for the header, the most severe first (``urgent``).

    ``seconds``: durations by key, where both ends are known; ``names``: run names by run key.
    """

    incidents: tuple[Incident, ...]
    urgent: tuple[Incident, ...]
    seconds: Mapping[str, float]
    names: Mapping[str, str]


def incident_list(stats_input: StatsInput) -> IncidentList:
    """The statistic of the incidents screen."""
    all_incidents = incidents(stats_input)
    return IncidentList(
        incidents=all_incidents,
        urgent=tuple(urgent_incidents(stats_input, all_incidents)),
        seconds={
            incident.key: stats_input.ledger.seconds_between(incident.since, incident.until)
            for incident in all_incidents
            if incident.since is not None and incident.until is not None
        },
        names={run.run: run.run_name for run in stats_input.ledger.runs},
    )


def run_names(incident: Incident, incident_list: IncidentList) -> tuple[str, ...]:
    """The names of the runs of an incident."""
    return tuple(incident_list.names.get(run, run) for run in incident.runs)


class Headline(Struct, frozen=True):
    """The statistics of the dashboard's header.

    ``worst_incident``: the incident that the header shows, None if there is none;
    ``other_incidents``: the number of further incidents.
    """

    forecast: Forecast
    worst_incident: Incident | None
    other_incidents: int


def headline(stats_input: StatsInput) -> Headline:
    """Compute the header's statistics: tens of milliseconds for a thousand epochs."""
    urgent = urgent_incidents(stats_input, incidents(stats_input))
    return Headline(
        forecast=make_forecast(stats_input),
        worst_incident=urgent[0] if urgent else None,
        other_incidents=max(0, len(urgent) - 1),
    )


# --- stopped runs ---------------------------------------------------------------------------


def held_runs(stats_input: StatsInput) -> Iterator[Incident]:
    """Held runs, by reason."""
    held = [
        (run, run.latest)
        for run in stats_input.ledger.runs
        if run.state is State.HELD and run.latest is not None
    ]
    groups = group_by(held, lambda pair: fold_reason(pair[1].hold_reason or ""))
    for reason, group in groups.items():
        latest = [row for _, row in group]
        since = [row.since for row in latest if row.since is not None]
        hold_reason = next((row.hold_reason for row in latest if row.hold_reason), None)
        text = "is held" if len(group) == 1 else "are held"
        text += f": {hold_reason}" if hold_reason else ", and the log gives no reason"
        which = "a run" if len(group) == 1 else count(len(group), "run")
        yield build_incident(
            kind="held",
            severity=ALARM,
            text=f"{listed([run.run_name for run, _ in group])} {text}",
            short_text=f"{which} {text}",
            advice="Remove the cause, then release it (R); or remove the job (X) to have it "
            "retried",
            since=min(since, default=None),
            ongoing=True,
            runs=[run.run for run, _ in group],
            jobs=[(row.cluster, row.proc or 0) for row in latest if row.cluster is not None],
            key_suffix=f"{reason} {group[0][0].run}",
        )


FAILED_WITHOUT_JOB: Final = {
    "pre": (
        "script-failed",
        "See in the submit directory why its PRE script failed; remove the cause, then submit "
        "the DAG again (U): it continues from there",
    ),
    "submit": (
        "submit-failed",
        "See its submit description (metlmon check), and DAGMan's .dagman.out, which has the "
        "error; then submit the DAG again (U): it continues from there",
    ),
}
"""The kind of incident and the advice, by the part of a node that failed without a job."""


def exhausted_retries(stats_input: StatsInput) -> Iterator[Incident]:
    """Runs that stopped because an epoch failed and has no retries left."""
    dags = {dag.file: dag.state for dag in stats_input.status.dags}
    for run in stats_input.ledger.runs:
        if run.state is not State.FAILED or dags.get(run.dag) is DagState.REMOVED:
            continue
        failed, latest = run.failed, run.latest
        if failed is not None and failed.part in FAILED_WITHOUT_JOB:
            kind, advice = FAILED_WITHOUT_JOB[failed.part or ""]
            text = f"{_epoch_name(failed.epoch, failed.node)} without a job: {failed.reason}"
            yield _stopped_run(run, kind, text, advice, failed.node, failed.since)
        elif latest is not None:
            epoch = _epoch_name(latest.epoch, latest.node)
            text = f"{epoch}, no retry left"
            if latest.attempt > 1:
                text = f"{epoch}, {latest.attempt} of {latest.attempt} tries used"
            yield _stopped_run(
                run,
                kind="exhausted",
                text=text,
                advice="See in the job's output why; remove the cause, then submit the DAG again "
                "(U): it continues from there",
                node=latest.node,
                since=latest.since,
                job=None if latest.cluster is None else (latest.cluster, latest.proc or 0),
            )


def _stopped_run(
    run: RunEntry,
    kind: str,
    text: str,
    advice: str,
    node: str,
    since: datetime | None,
    job: JobId | None = None,
) -> Incident:
    return build_incident(
        kind=kind,
        severity=ALARM,
        text=f"{run.run_name} failed: {text}",
        short_text=f"a run failed: {text}",
        advice=advice,
        since=since,
        ongoing=True,
        runs=[run.run],
        jobs=[job],
        key_suffix=f"{run.run} {node}",
    )


def _epoch_name(epoch: int | None, node: str) -> str:
    return f"epoch {epoch_number(epoch)}" if epoch is not None else node


# --- targets --------------------------------------------------------------------------------


def misdirected_targets(stats_input: StatsInput) -> Iterator[Incident]:
    """Targets that are missed repeatedly; those of several DAGs are unrelated."""
    known = group_by(stats_input.ledger.epochs, lambda epoch: epoch.dag)
    for (dag, target), served in _served_targets(stats_input).items():
        names = frozenset(normalize_name(e.target) for e in known.get(dag or "", ()) if e.target)
        missed = [e for e in served if misses_target(target, e.site, names)]
        if len(missed) == len(served):
            # The site may just be named differently: count only other targets' sites.
            missed = [e for e in missed if names_other_target(target, e.site, names)]
        if len(missed) < MIN_RUNS or 2 * len(missed) <= len(served):
            continue
        ongoing = any(e.end is None for e in missed)
        yield build_incident(
            kind="misdirected",
            severity=WARNING,
            text=f"{len(missed)} of {count(len(served), 'execution')} that requested {target} ran "
            f"at {listed(sorted({e.site for e in missed if e.site}))}",
            advice="Check the requirements of the submit description: they allow other sites",
            since=missed[0].start,
            until=None if ongoing else end_range(missed)[1],
            ongoing=ongoing,
            entries=missed,
            key_suffix=f"{dag} {target}",
        )


def unserved_targets(stats_input: StatsInput) -> Iterator[Incident]:
    """Targets without any execution, while others have some."""
    ledger, served = stats_input.ledger, _served_targets(stats_input)
    waits = [e.wait for entries in served.values() for e in entries if e.wait is not None]
    if ledger.as_of is None or not waits:
        return
    limit = max(UNSERVED_SECONDS, UNSERVED_TIMES * median(waits))
    idle = [job for job in ledger.jobs if job.state is State.IDLE and job.target and job.submitted]
    for (dag, target), jobs in group_by(idle, lambda job: (job.dag, job.target or "")).items():
        since = min(job.submitted for job in jobs if job.submitted)
        waited = ledger.seconds_between(since, ledger.as_of)
        if (dag, target) in served or waited < limit:
            continue
        yield build_incident(
            kind="unserved",
            severity=WARNING,
            text=f"{count(len(jobs), 'job')} for {target} idle for {age(waited)}: no job "
            "of this target has started, jobs of other targets have",
            advice="See whether the name is the site's, and what it offers; or give the epochs "
            "another",
            since=since,
            ongoing=True,
            entries=jobs,
            key_suffix=f"{dag} {target}",
        )


def _served_targets(
    stats_input: StatsInput,
) -> dict[tuple[str | None, str], list[ExecutionEntry]]:
    """The executions of trainings by top-level DAG and requested target."""
    entries = (e for e in stats_input.ledger.executions if e.target and e.training and not e.dagman)
    return group_by(entries, lambda e: (e.dag, e.target or ""))


# --- configuration --------------------------------------------------------------------------


def configuration_changes(stats_input: StatsInput) -> Iterator[Incident]:
    """Arguments that changed between the epochs of one run."""
    runs = {run.run: run for run in stats_input.ledger.runs}
    for key, training in stats_input.trainings.items():
        changes = list(_changes(training.arguments)) if key in runs else []
        if not changes:
            continue
        more = f", and {len(changes) - 3} more" if len(changes) > 3 else ""
        state = runs[key].state
        yield build_incident(
            kind="configuration",
            severity=WARNING,
            text=f"{runs[key].run_name} changed {'; '.join(changes[:3])}{more}",
            advice="If this was not intended, compare the args.txt of these versions: epochs "
            "with other arguments are not of the same model",
            ongoing=state not in (State.COMPLETED, State.FAILED, State.REMOVED),
            runs=[key],
            key_suffix=key,
        )


def _changes(arguments: Mapping[int, Mapping[str, str]]) -> Iterator[str]:
    """The first change of each argument: ``lr: 0.1 in version 1, 0.2 in version 2``."""
    versions = sorted(arguments)
    for name in sorted({name for version in versions for name in arguments[version]}):
        plain = name.lstrip("-").lower()
        values = [(version, arguments[version].get(name, "")) for version in versions]
        if LOCATION_ARGUMENTS.search(plain) or any("/" in value for _, value in values):
            continue
        if ("epoch" in plain or "seed" in plain) and _counts_up(values):
            continue
        for (old, before), (new, after) in pairwise(values):
            if after != before:
                yield (
                    f"{plain}: {before or 'not given'} in version {old}, "
                    f"{after or 'not given'} in version {new}"
                )
                break


def _counts_up(texts: Sequence[tuple[int, str]]) -> bool:
    """Are the values integers that grow by at most one per version?"""
    try:
        values = [(version, int(text)) for version, text in texts]
    except ValueError:
        return False
    return all(0 <= b - a <= new - old for (old, a), (new, b) in pairwise(values))


RULES: Final[tuple[Callable[[StatsInput], Iterable[Incident]], ...]] = (
    held_runs,
    exhausted_retries,
    log_gaps,
    silent_logs,
    full_disk,
    mass_evictions,
    stalled_transfers,
    misdirected_targets,
    unserved_targets,
    configuration_changes,
    removals,
)


def _sort_time(incident: Incident) -> datetime:
    return incident.since or incident.until or datetime.min
