"""The JSON of ``sites`` and ``timeline``."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Final

from metlmon.cli.json_output.jobs import ENSEMBLE
from metlmon.cli.json_output.objects import JsonObject, Kind
from metlmon.cli.json_output.status import HOURS
from metlmon.snapshot.ledger import HOUR, EpochEntry
from metlmon.stats.causes import Cause, CauseReason
from metlmon.stats.pool_profiles import PoolProfile, ProfileFigure
from metlmon.stats.usage import (
    GroupUsage,
    SiteGpuUsage,
    Usage,
)

# --- sites ------------------------------------------------------------------------------------

_BADPUT: Final = {"badput": (float, lambda cause: round(cause.badput / HOUR, 6))}
REASON: Final = JsonObject(
    CauseReason,
    "A reason within a cause, as its executions ended.",
    "reason=text outcome executions",
    name="Reason",
    computed=_BADPUT,
)
SITE_CAUSE: Final = JsonObject(
    Cause,
    "Lost hours by reason; times counts executions, and holds that ended none.",
    "cause=text code subcode end_unknown outcomes times=occurrences executions holds "
    "holds_that_ended_one=ended_by_hold reasons example",
    name="SiteCause",
    computed=_BADPUT,
)
MACHINES: Final = JsonObject(
    None,
    "A GPU model, and how many GPUs of it.",
    name="Machines",
    given={"gpu": str | None, "gpus": int | None},
)
_TOTALS: Final = (
    "executions=totals.executions good_executions=totals.good_executions "
    "bad_executions=totals.bad_executions completed_epochs=totals.completed"
)
_HOURS: Final = (
    "success_rate=totals.success_rate goodput=totals.gpu_hours.goodput "
    "badput=totals.gpu_hours.badput running=totals.gpu_hours.running"
)
GROUP: Final = JsonObject(
    GroupUsage,
    "What ran at a place. success_rate: the share of ended executions that ended well or stored "
    "a checkpoint. "
    "hidden_epochs: completed ones with an execution over twice as long as the successful one.",
    f"{_TOTALS} {_HOURS} targets ran_at=sites epoch_seconds=epoch hidden_epochs=hidden "
    "wait_seconds=wait input evictions holds causes",
    name="Group",
    computed={
        "machines": (
            [MACHINES],
            lambda place: [{"gpu": gpu, "gpus": n} for gpu, n in place.machines],
        ),
        "hours_per_epoch": (
            float | None,
            lambda place: (
                None if place.totals.per_epoch is None else round(place.totals.per_epoch / HOUR, 6)
            ),
        ),
    },
)
SITE_GROUP: Final = JsonObject(
    GroupUsage, "A site.", "site=name", name="SiteGroup", base=GROUP, main=False
)
GPU_GROUP: Final = JsonObject(
    GroupUsage, "A GPU model.", "gpu=name", name="GpuGroup", base=GROUP, main=False
)
SITE_GPU: Final = JsonObject(
    SiteGpuUsage,
    "A GPU model, so many of them, at a site. times: its median epoch against that of the fastest "
    "site.",
    f"{_TOTALS} {_HOURS} gpu gpus site epoch_seconds=epoch hidden_epochs=hidden "
    "fastest=fastest_site",
    name="SiteGpu",
    computed={
        "times": (
            float | None,
            lambda cell: None if cell.relative_time is None else round(cell.relative_time, 4),
        ),
        "slow": (
            bool | None,
            lambda cell: None if cell.relative_time is None else cell.slow,
        ),
    },
)
HIDDEN_EPOCH: Final = JsonObject(
    EpochEntry,
    "A completed epoch with an execution over twice as long as the successful one.",
    "run=run_name uuid dag in_dag node epoch site gpu longest_site longest_gpu seconds "
    "longest_seconds",
    name="HiddenEpoch",
)
PROFILE_FIGURE: Final = JsonObject(
    ProfileFigure,
    "An expected value with its 80 % interval. samples: observations there; censored: those that "
    "give a lower bound alone; borrowed: whose values have a part in it.",
    "samples censored value low high",
    computed={"borrowed": (str | None, lambda figure: figure.borrowed or None)},
)


def _profile_figure(name: str) -> tuple[Kind, Callable[[PoolProfile], ProfileFigure | None]]:
    return (PROFILE_FIGURE, None), attrgetter(name)


PROFILE: Final = JsonObject(
    PoolProfile,
    "What to expect of an epoch at a pool. lost_hours: of an execution that does not complete; "
    "slots: the most at a time, of advise those of the plan; excluded: why no epoch should go "
    "there, until one tries at probe_at (null while one does).",
    "executions=starts epochs running slots probe_at lost_hours gpus",
    computed={
        "site": (str | None, lambda profile: profile.pool.site or None),
        "gpu": (str | None, lambda profile: profile.pool.gpu or None),
        "annex": (str | None, lambda profile: profile.pool.annex or None),
        "hours_per_epoch": _profile_figure("hours"),
        "wait_hours": _profile_figure("wait"),
        "transfer_hours": _profile_figure("transfer"),
        "loss": (PROFILE_FIGURE, attrgetter("loss")),
        "excluded": (str | None, lambda profile: profile.excluded or None),
    },
)
SITES_OUTPUT: Final = JsonObject(
    Usage,
    "metlmon sites --json: places of each kind sum to total. nodes_unlogged: nodes that ran, but "
    "have no execution in the logs: hours lack theirs.",
    "window nodes_unlogged total sites gpus site_gpu=site_gpus causes waiting hidden_epochs=hidden "
    "profiles",
    name="SitesOutput",
    kinds={"sites": [SITE_GROUP], "gpus": [GPU_GROUP]},
    given={**ENSEMBLE, "hours": HOURS},
)
