"""Build the health of an ensemble from one snapshot."""

from __future__ import annotations

from typing import Final

from metlmon.health.types import Health, HealthEntry, Severity
from metlmon.live.feed import StatsInput
from metlmon.model.states import State
from metlmon.stats.incident_rules import Incident, IncidentSeverity
from metlmon.stats.incidents import incidents

SEVERITIES: Final = {
    IncidentSeverity.ALARM: Severity.STOPPED,
    IncidentSeverity.WARNING: Severity.COSTLY,
    IncidentSeverity.NOTE: Severity.NOTE,
}


def make_health(stats_input: StatsInput) -> Health:
    """The health of the ensemble at as-of."""
    ledger = stats_input.ledger
    stopped = [run for run in ledger.runs if run.state in (State.FAILED, State.REMOVED)]
    ranks = list(Severity)
    entries = [_entry(incident) for incident in incidents(stats_input)]
    entries.sort(key=lambda e: (not e.open, ranks.index(e.severity), -e.epochs_blocked))
    return Health(
        entries=tuple(entries),
        runs_total=len(ledger.runs),
        runs_stopped=len(stopped),
        epochs_left=sum(run.epochs_total - run.epochs_done for run in stopped),
        jobs_queued=sum(1 for job in ledger.jobs if job.queued and not job.dagman),
        names={run.run: run.run_name for run in ledger.runs},
    )


def _entry(incident: Incident) -> HealthEntry:
    return HealthEntry(
        key=incident.key,
        kind=incident.kind,
        severity=SEVERITIES[incident.severity],
        open=incident.ongoing,
        text=incident.headline,
        advice=incident.advice,
        runs=incident.runs,
        jobs=incident.jobs,
        since=incident.since,
        until=incident.until,
        site=incident.site,
    )
