"""The JSON of ``annexes``."""

from __future__ import annotations

from typing import Final

from metlmon.cli.json_output.jobs import ENSEMBLE
from metlmon.cli.json_output.objects import JsonObject
from metlmon.placement.types import Annex, AnnexEpoch, AnnexReport

ANNEX_EPOCH: Final = JsonObject(
    AnnexEpoch,
    "An epoch that runs in the annex; fits: it ends before the annex expires.",
    "key=run run=run_name epoch gpus fits seconds_left",
    computed={"job": (str, lambda epoch: f"{epoch.job[0]}.{epoch.job[1]}")},
)
ANNEX: Final = JsonObject(
    Annex,
    "One annex. state: requested, pending, up, expiring, gone or unknown. alive_until: its first "
    "node leaves then. inferred: from logs alone. epoch_seconds: of the next epoch, with its input "
    "transfer; next_fits: it would end in time. jobs_idle: they target it. pressure: (ready + "
    "expected before expiry) x GPU-hours per epoch / GPU-hours left. balance: of its allocation. "
    "expiries: when jobs were evicted because it expired.",
    "* epochs_fit",
)
ANNEXES_OUTPUT: Final = JsonObject(
    AnnexReport,
    "metlmon annexes --json: annexes with a warning first. asked: schedd or collector answered; "
    "else all is inferred from the logs. generation: old or new, of this access point's htcondor "
    "annex. command: for an annex like the last one; site_command: for the site, then. "
    "annex_warnings: one sentence each.",
    "annexes sites asked generation command site_command annex_warnings=warnings",
    name="AnnexesOutput",
    given=ENSEMBLE,
    main=False,
)
