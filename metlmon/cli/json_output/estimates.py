"""The JSON of ``estimate``, and the incidents of ``status``."""

from __future__ import annotations

from typing import Final

from metlmon.cli.json_output.objects import JsonObject, job_ids
from metlmon.stats.estimates import EpochDurations, Forecast, Interval, Rate, RunForecast
from metlmon.stats.incident_rules import Incident

INTERVAL: Final = JsonObject(
    Interval,
    "Seconds, an interval that holds in four of five cases, and the samples it is made from.",
    "samples source",
    seconds="low middle=median high",
)
EPOCH_RATE: Final = JsonObject(
    Rate, "Epochs completed lately.", "epochs", name="EpochRate", seconds="seconds", exact="per_day"
)
EPOCH_SECONDS: Final = JsonObject(
    EpochDurations,
    "How long epochs of a run take, from one's end to the next one's.",
    "epochs",
    name="EpochSeconds",
    seconds="median lower_quartile=lower upper_quartile=upper",
)
RUN_ESTIMATE: Final = JsonObject(
    RunForecast,
    "When a run will be done; why_not: why that is unknown.",
    "key=run run=run_name epochs_done=done epochs_total=total epochs_left remaining "
    "at=expected_end ended=completed_at why_not=missing_reason epoch=epoch_number epoch_remaining "
    "seconds_per_epoch=durations",
    name="RunEstimate",
)
LEFT_OUT_RUN: Final = JsonObject(
    None,
    "A run that an estimate leaves out, and why.",
    name="LeftOutRun",
    given={"run": str, "why": str},
)
ESTIMATE: Final = JsonObject(
    Forecast,
    "When all will be done: remaining from as-of, without the runs that are left out.",
    "epochs_done=done epochs_total=total epochs_skipped=skipped remaining at=expected_end "
    "ended=completed_at why_not=missing_reason slowest=slowest_run rate runs",
    name="Estimate",
    computed={
        "without": (
            [LEFT_OUT_RUN],
            lambda forecast: [{"run": run, "why": why} for run, why in forecast.excluded],
        ),
    },
)
INCIDENT: Final = JsonObject(
    Incident,
    "An incident; until null and still true: it lasts.",
    "kind since until still=ongoing text advice runs site",
    computed={
        "severity": (str, lambda incident: incident.severity.name.lower()),
        "jobs": (list[str], job_ids),
    },
)
