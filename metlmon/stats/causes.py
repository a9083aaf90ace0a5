"""Causes of lost GPU-hours: executions and holds with the same code, or reason."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from errno import EDQUOT, ENOSPC
from functools import lru_cache
from typing import ClassVar, Final

from msgspec import Struct

from metlmon.model.job import SAME_MOMENT
from metlmon.model.job_events import JobId
from metlmon.model.reasons import REQUEUED, is_expiry, with_common_numbers
from metlmon.model.states import Outcome
from metlmon.snapshot.records import HOUR, Execution, Hold, HourUnit, Job, job_key
from metlmon.stats.totals import group_by

QUOTA_REASON: Final = re.compile(r"disk quota exceeded|no space left on device|\bENOSPC\b", re.I)

ERRNO_CODES: Final = frozenset({6, 7, 8, 9, 10, 12, 13, 14, 22})
"""Hold codes whose subcode is an errno."""

USER_VACATE_CODES: Final = frozenset({1004, 1023})
"""Vacate codes of user actions: vacated, removed (``condor_holdcodes.h``)."""

USER_ACTION: Final = re.compile(
    r"condor_(?:hold|rm|vacate)|\(by a user\)|OtherJobRemoveRe|MAX_TRANSFER_"
)
"""What a user or the access point did, wherever the job ran."""

END_UNKNOWN: Final = "end not logged"
"""Part of the key of a cause whose executions have no end event."""

SAME_HOURS: Final = timedelta(hours=12)
"""Time after a failure within which a success of another run shows that the place works."""

MatchedHold = tuple[Hold, Execution | None]
"""A hold, and the execution that it ended, if any."""


class CauseReason(Struct, frozen=True):
    """One folded text of a cause, with the outcome and the lost hours.

    ``common``: the text, with the numbers that are equal wherever it was logged.
    """

    reason: str
    common: str
    outcome: Outcome
    executions: int
    badput: float


class Cause(Struct, frozen=True):
    """A cause of loss: executions and holds with the same code or, without one, the same reason.

    ``executions``: the number it ended; ``holds``: the number of holds; ``ended_by_hold``: the
    holds that ended one of these executions. ``badput``: the lost hours. ``reasons``: the texts,
    the most expensive first; ``example``: one of them as logged. ``end_unknown``: the ends of its
    executions were not logged.
    """

    json_properties: ClassVar = ("occurrences",)

    key: str
    cause: str
    code: int | None
    subcode: int | None
    executions: int
    holds: int
    ended_by_hold: int
    badput: float
    outcomes: tuple[Outcome, ...]
    reasons: tuple[CauseReason, ...]
    example: str | None
    end_unknown: bool

    @property
    def common(self) -> str:
        """Its text, with the numbers that are equal wherever it was logged."""
        text = self.reasons[0].common
        return f"{self.key}: {text}" if self.end_unknown else text.removesuffix(REQUEUED)

    @property
    def occurrences(self) -> int:
        """The number of occurrences; a hold and the eviction it caused count once."""
        return self.executions + self.holds - self.ended_by_hold


def cause_key(code: int | None, subcode: int | None, text: str) -> str:
    """``1023/0``, or the folded reason without a code."""
    return f"{code}/{subcode or 0}" if code else text


def cause_of_execution(entry: Execution) -> str:
    """The cause key of a bad execution.

    Executions without a logged end have a key of their own, since their cost is a guess; so do
    those in an annex that expired, whatever their code. A job that its own policy requeued has the
    cause of a failure without a requeue.
    """
    if is_expiry(entry.cause):
        return entry.cause or ""
    if entry.uncertain:
        return f"{entry.outcome.value}, {END_UNKNOWN}"
    text = (entry.cause or entry.outcome.value).removesuffix(REQUEUED)
    return cause_key(entry.code, entry.subcode, text)


def causes_of(
    executions: Iterable[Execution],
    unit: HourUnit,
    holds: Iterable[MatchedHold] = (),
    key: Callable[[Execution], str] = cause_of_execution,
) -> tuple[Cause, ...]:
    """The causes of bad executions and of holds, by descending badput in the ``unit``.

    A hold that ended an execution has the cause of that execution.
    """
    by_executions = group_by((e for e in executions if e.kind == "badput"), key)
    by_holds = group_by(
        holds,
        lambda pair: (
            cause_key(pair[0].code, pair[0].subcode, pair[0].cause)
            if pair[1] is None
            else key(pair[1])
        ),
    )
    causes = [
        _build_cause(name, by_executions.get(name, []), by_holds.get(name, []), unit)
        for name in by_executions | by_holds
    ]
    return tuple(sorted(causes, key=lambda c: (-c.badput, -c.occurrences, c.key)))


def _build_cause(
    key: str, executions: Sequence[Execution], holds: Sequence[MatchedHold], unit: HourUnit
) -> Cause:
    texts = group_by(executions, lambda e: (e.cause or e.outcome.value, e.outcome))
    holds_alone = (hold for hold, execution in holds if execution is None)
    held = group_by(holds_alone, lambda hold: hold.cause)
    logged = {text: {hold.reason for hold in group} for text, group in held.items()}
    for (text, _), group in texts.items():
        logged.setdefault(text, set()).update(e.reason for e in group)
    common = {text: with_common_numbers(text, reasons) for text, reasons in logged.items()}
    reasons = [
        CauseReason(
            reason=text,
            common=common[text],
            outcome=outcome,
            executions=sum(e.counted for e in group),
            badput=sum(map(unit.lost_seconds, group)) / HOUR,
        )
        for (text, outcome), group in texts.items()
    ]
    execution_texts = {text for text, _ in texts}
    reasons += [
        CauseReason(text, common[text], Outcome.HELD, 0, 0.0)
        for text in held
        if text not in execution_texts
    ]
    reasons.sort(key=lambda reason: (-reason.badput, -reason.executions, reason.reason))
    first = executions[0] if executions else None
    code, subcode = (
        (holds[0][0].code, holds[0][0].subcode) if first is None else (first.code, first.subcode)
    )
    costliest = max(executions, key=unit.lost_seconds, default=None)
    unknown = first is not None and first.uncertain
    return Cause(
        key=key,
        cause=f"{key}: {reasons[0].reason}"
        if unknown
        else reasons[0].reason.removesuffix(REQUEUED),
        code=code or None,
        subcode=subcode if code else None,
        executions=sum(e.counted for e in executions),
        holds=len(holds),
        ended_by_hold=sum(execution is not None for _, execution in holds),
        badput=sum(map(unit.lost_seconds, executions)) / HOUR,
        outcomes=tuple(dict.fromkeys(reason.outcome for reason in reasons)),
        reasons=tuple(reasons),
        example=costliest.reason if costliest is not None else None,
        end_unknown=unknown,
    )


# --- holds ------------------------------------------------------------------------------------


def match_holds(jobs: Iterable[Job], executions: Iterable[Execution]) -> list[MatchedHold]:
    """Every hold with the execution it ended, which is logged seconds before it."""
    bad = (e for e in executions if e.kind == "badput" and e.counted and e.end is not None)
    ended = group_by(bad, job_key)
    matched: list[MatchedHold] = []
    for job in jobs:
        if job.dagman or not job.holds:
            continue
        by_end = sorted(ended.get(job_key(job), ()), key=_end)
        for hold in job.holds:
            index = bisect_left(by_end, hold.start - SAME_MOMENT, key=_end)
            found = index < len(by_end) and _end(by_end[index]) <= hold.start
            matched.append((hold, by_end[index] if found else None))
    return matched


def _end(execution: Execution) -> datetime:
    return execution.end or execution.start


# --- what a place may have caused -------------------------------------------------------------


def is_quota(code: int | None, subcode: int | None, reason: str | None) -> bool:
    """Whether a hold or an end was caused by a full disk or a quota."""
    if code in ERRNO_CODES and subcode in (ENOSPC, EDQUOT):
        return True
    return reason is not None and QUOTA_REASON.search(reason) is not None


def is_of_place(entry: Execution) -> bool:
    """Whether the site or host may be the reason why an execution was lost.

    The place is ruled out if a checkpoint preserved some of the work, a user ended it, the access
    point's disk was full, its annex expired, or its end was not logged.
    """
    if entry.cause is None or entry.checkpoint is not None or entry.uncertain:
        return False
    if (
        entry.outcome is Outcome.REMOVED
        or entry.code in USER_VACATE_CODES
        or is_quota(entry.code, entry.subcode, None)
    ):
        return False
    return not (is_expiry(entry.cause) or _is_elsewhere(entry.cause))


def failures_of_runs(executions: Iterable[Execution]) -> set[tuple[JobId, datetime]]:
    """Executions, as job and start, that failed because of their run and not of their place.

    These are executions whose program ended by itself and whose epoch has completed nowhere, while
    another run completed an epoch at the same site and GPU model: that execution ended after the
    start of the failed one, and started within :data:`SAME_HOURS` after its end.
    """
    training = [entry for entry in executions if entry.training]
    completed = {entry.node_key for entry in training if entry.final}
    good = group_by((e for e in training if e.final), lambda e: (e.site, e.gpu))
    return {
        (entry.job, entry.start)
        for entry in training
        if entry.outcome is Outcome.FAILED
        and entry.node_key not in completed
        and any(
            other.key != entry.key
            and _end(other) > entry.start
            and other.start < _end(entry) + SAME_HOURS
            for other in good.get((entry.site, entry.gpu), ())
        )
    }


@lru_cache(maxsize=4096)
def _is_elsewhere(cause: str) -> bool:
    """Whether a folded reason names the access point or a user, not the place."""
    return USER_ACTION.search(cause) is not None or QUOTA_REASON.search(cause) is not None
