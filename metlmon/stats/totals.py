"""Totals of GPU-seconds and executions of any entries, and by group.

All definitions are those of ``metlmon/README.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import ClassVar, Final, TypeVar

from msgspec import Struct

from metlmon.model.reasons import REQUEUED
from metlmon.model.states import Outcome
from metlmon.snapshot.derive import AN_HOUR, SECOND, ExecutionTotals
from metlmon.snapshot.records import Execution, GpuHours, HourUnit, Ledger

TRANSFER_SECONDS: Final = 1800.0
"""Length of an input transfer from which it counts as stalled: those of tens of GB take minutes;
one still in progress after this long has in every real log ended in an eviction."""

K = TypeVar("K")
T = TypeVar("T")


class UsageTotals(Struct, frozen=True):
    """Totals of executions: counts, hours by outcome, and completed epochs.

    ``executions``: those that ended in the window, or are in flight. ``completed_epochs``: distinct
    epochs whose successful execution is among them. ``run_hours``: of the runs' own nodes only,
    including side nodes.
    """

    json_omits: ClassVar = frozenset({"run_hours"})
    json_properties: ClassVar = ("success_rate", "hours_per_epoch")

    executions: int = 0
    good_executions: int = 0
    bad_executions: int = 0
    completed_epochs: int = 0
    hours: GpuHours = GpuHours()
    run_hours: GpuHours = GpuHours()

    @property
    def hours_per_epoch(self) -> float | None:
        """Hours of the runs' ended executions, bad ones included, per epoch that one completed.

        None if either number is 0.
        """
        ended = self.run_hours.ended
        return ended / self.completed_epochs if self.completed_epochs and ended else None

    @property
    def lost_per_epoch(self) -> float | None:
        """The part of :attr:`hours_per_epoch` from bad executions."""
        known = self.hours_per_epoch is not None
        return self.run_hours.badput / self.completed_epochs if known else None

    @property
    def success_rate(self) -> float | None:
        """The share of good executions among the ended ones, 0–1; None if none has ended."""
        ended = self.good_executions + self.bad_executions
        return self.good_executions / ended if ended else None


def sum_executions(entries: Iterable[Execution], measure: HourUnit = HourUnit.GPU) -> UsageTotals:
    """The totals of the executions, with hours in the unit ``measure``."""
    totals, of_runs = ExecutionTotals(measure), ExecutionTotals(measure)
    for entry in entries:
        totals.add(entry)
        if entry.key is not None:
            of_runs.add(entry)
    return UsageTotals(
        executions=totals.executions,
        good_executions=totals.good_executions,
        bad_executions=totals.bad_executions,
        completed_epochs=totals.completed,
        hours=totals.hours,
        run_hours=of_runs.hours,
    )


def group_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Group items by key, in their original order."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


# --- by place and by cause --------------------------------------------------------------------


class SiteRow(Struct, frozen=True):
    """What ran at a site.

    ``seconds_median``: of the executions that ended well there. ``epoch_seconds_median``: of those
    that completed an epoch, as in :class:`metlmon.stats.usage.GroupUsage`.
    """

    site: str | None
    target: tuple[str, ...]
    executions: int
    completed_epochs: int
    hours: GpuHours
    seconds_median: float | None
    epoch_seconds_median: float | None


class GpuRow(Struct, frozen=True):
    gpu: str | None
    executions: int
    completed_epochs: int
    hours: GpuHours


class CauseRow(Struct, frozen=True):
    """Badput by cause, which is the reason with its variable parts folded.

    ``example``: the reason that the last job logged. ``end_unknown``: the log lost the true end of
    these executions; it is taken from the event that proves they were over.
    """

    cause: str
    code: int | None
    subcode: int | None
    executions: int
    badput: float
    example: str | None
    end_unknown: bool = False


class Count(Struct, frozen=True):
    """A number of things, and the sum of their seconds."""

    n: int = 0
    seconds: float = 0.0


class TransferTotals(Struct, frozen=True):
    """Input transfers by outcome, output transfers that succeeded, and bytes of all jobs."""

    input_ok: Count
    input_aborted: Count
    input_unfinished: Count
    output: Count
    bytes_sent: int
    bytes_received: int


class Breakdown(Struct, frozen=True):
    """The hours by site, by GPU model and, of those lost, by cause, the most first; transfers."""

    sites: tuple[SiteRow, ...]
    gpus: tuple[GpuRow, ...]
    causes: tuple[CauseRow, ...]
    transfers: TransferTotals


def break_down(ledger: Ledger) -> Breakdown:
    """The hours of an ensemble by place and by cause, and its transfers."""
    return Breakdown(
        sites=tuple(
            SiteRow(
                site=site,
                target=tuple(sorted({each.target for each in entries if each.target})),
                executions=totals.executions,
                completed_epochs=totals.completed,
                hours=totals.hours,
                seconds_median=_median(e.seconds for e in entries if e.outcome is Outcome.GOOD),
                epoch_seconds_median=_median(e.trained for e in entries if e.final),
            )
            for site, entries, totals in _by_hours(ledger, "site")
        ),
        gpus=tuple(
            GpuRow(gpu, totals.executions, totals.completed, totals.hours)
            for gpu, _, totals in _by_hours(ledger, "gpu")
        ),
        causes=tuple(_causes(ledger)),
        transfers=_transfers(ledger),
    )


def _by_hours(
    ledger: Ledger, place: str
) -> list[tuple[str | None, list[Execution], ExecutionTotals]]:
    """The executions of each place, with their totals, the most hours first."""
    charged = (each for each in ledger.executions if not each.at_access_point)
    groups = [
        (name, entries, ExecutionTotals(ledger.measure, entries))
        for name, entries in group_by(charged, attrgetter(place)).items()
    ]
    return sorted(groups, key=lambda g: (-g[2].hours.total, -g[2].executions, g[0] or ""))


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return quartiles(known)[1] if known else None


def _causes(ledger: Ledger) -> list[CauseRow]:
    """Badput by cause; losses due to a gap in the log are not mixed with known ones."""

    def cause_of(entry: Execution) -> tuple[str, int | None, int | None, bool]:
        cause = (entry.cause or "").removesuffix(REQUEUED)
        return cause, entry.code, entry.subcode, entry.uncertain

    def order(row: CauseRow) -> tuple[object, ...]:
        codes = (-1 if number is None else number for number in (row.code, row.subcode))
        return -row.badput, -row.executions, row.cause, *codes, row.end_unknown

    weight = ledger.measure.weight
    bad = (
        each for each in ledger.executions if each.cause is not None and not each.at_access_point
    )
    rows = [
        CauseRow(
            cause=cause,
            code=code,
            subcode=subcode,
            executions=len(entries),
            badput=sum(round(e.lost * SECOND) * (weight(e) or 0) for e in entries) / AN_HOUR,
            example=entries[-1].reason,
            end_unknown=unknown,
        )
        for (cause, code, subcode, unknown), entries in group_by(bad, cause_of).items()
    ]
    return sorted(rows, key=order)


def _transfers(ledger: Ledger) -> TransferTotals:
    def count(direction: str, outcome: str) -> Count:
        found = [t for t in ledger.transfers if (t.direction, t.outcome) == (direction, outcome)]
        ended = (each.seconds for each in found if each.end is not None)
        return Count(len(found), sum(round((each or 0) * SECOND) for each in ended) / SECOND)

    return TransferTotals(
        input_ok=count("input", "ok"),
        input_aborted=count("input", "aborted"),
        input_unfinished=count("input", "unfinished"),
        output=count("output", "ok"),
        bytes_sent=sum(job.bytes_sent or 0 for job in ledger.jobs),
        bytes_received=sum(job.bytes_received or 0 for job in ledger.jobs),
    )


# --- quantiles --------------------------------------------------------------------------------


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile (the inclusive method)."""
    # Not at the top: it takes ten milliseconds, which most commands need not spend.
    from statistics import quantiles

    if len(values) == 1:
        return values[0], values[0], values[0]
    lower, middle, upper = quantiles(values, n=4, method="inclusive")
    return lower, middle, upper


def percentile(ordered: Sequence[float], share: float) -> float:
    """The quantile at ``share`` (0–1) of sorted values (the inclusive method)."""
    position = share * (len(ordered) - 1)
    lower = int(position)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (ordered[upper] - ordered[lower]) * (position - lower)
