"""Hours are the same however they are grouped."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest

from metlmon.stats import usage
from metlmon.stats.totals import TRANSFER_SECONDS, UsageTotals, sum_executions
from tests.conftest import SHARED, Shared
from tests.support.event_logs import Log, read_ensemble
from tests.support.recordings import FIXTURES
from tests.support.run_histories import recorded

ENSEMBLES = (
    *(FIXTURES / name for name in ("demo", "holds", "scripts", "shared-log", "checkpoints")),
    *(SHARED / "examples" / name for name in ("metl-aws", "pool-ensemble")),
)
EVERYWHERE = pytest.mark.parametrize("path", ENSEMBLES, ids=lambda path: path.name)

L40S, A40 = "NVIDIA L40S", "NVIDIA A40"


def test_cause_has_executions_and_holds(shared: Shared) -> None:
    aws = usage.usage_in_window(recorded(shared("examples/metl-aws")).ledger)
    by_key = {cause.key: cause for cause in aws.causes}
    assert by_key["1023/0"].cause.startswith("removed by a user (condor_rm of the DAG)")
    assert "end not logged" in by_key["removed, end not logged"].cause
    assert by_key["removed, end not logged"].end_unknown
    assert len(by_key["1007/0"].reasons) == 2
    eviction = by_key["12/122"]
    assert eviction.executions == eviction.holds == 1
    assert eviction.ended_by_hold == eviction.occurrences == 1


def added(sums: Iterable[UsageTotals]) -> tuple[float, ...]:
    total = [0.0] * 7
    for of in sums:
        parts = (of.executions, of.good_executions, of.bad_executions, of.completed_epochs)
        hours = (of.hours.goodput, of.hours.badput, of.hours.running)
        for i, value in enumerate((*parts, *hours)):
            total[i] += value
    return tuple(round(value, 6) for value in total)


def moved(places: Iterable[usage.GroupUsage]) -> tuple[float, ...]:
    total = [0.0] * 9
    for place in places:
        of = place.input
        parts = (of.ok.n, of.aborted, of.unfinished, of.in_flight, of.sent, of.received)
        for i, value in enumerate((*parts, place.holds, place.evictions, place.hidden_epochs)):
            total[i] += value
    return tuple(total)


@EVERYWHERE
def test_sites_sum_to_the_whole(path: Path) -> None:
    found = usage.usage_in_window(recorded(path).ledger)
    whole = added([found.total.totals])
    assert added(place.totals for place in found.sites) == whole
    assert added(place.totals for place in found.gpus) == whole
    assert added(cell.totals for cell in found.site_gpus) == whole
    assert moved(found.sites) == moved(found.gpus) == moved([found.total])
    bad = sum(cause.badput for cause in found.causes)
    assert bad == pytest.approx(found.total.totals.hours.badput, abs=1e-9)
    assert sum(cause.holds for cause in found.causes) == found.total.holds
    for place in (*found.sites, *found.gpus):
        lost = sum(cause.badput for cause in place.causes)
        assert lost == pytest.approx(place.totals.hours.badput, abs=1e-9)
        assert place.epoch_seconds.n == place.totals.completed_epochs


@EVERYWHERE
def test_executions_of_a_figure_have_its_sum(path: Path) -> None:
    found = usage.usage_in_window(recorded(path).ledger)
    for kind, groups in (("site", found.sites), ("gpu", found.gpus)):
        for group in groups:
            choice = usage.UsageFilter(**{kind: (group.name,)})
            assert sum_executions(usage.select_executions(found, choice)) == group.totals
    for cell in found.site_gpus:
        choice = usage.UsageFilter(site=(cell.site,), gpu=(cell.gpu,), gpus=(cell.gpus,))
        assert sum_executions(usage.select_executions(found, choice)) == cell.totals
    for cause in found.causes:
        chosen = usage.select_executions(found, usage.UsageFilter(cause=cause.key))
        result = sum_executions(chosen)
        assert result.executions == cause.executions
        assert result.hours.badput == pytest.approx(cause.badput, abs=1e-9)
        stored = sum(entry.stored * (entry.gpus or 0) for entry in chosen)
        assert result.hours.goodput == pytest.approx(stored / 3600, abs=1e-9)


# --- slow sites -------------------------------------------------------------------------------


def epochs_at(*runs: tuple[str, str, int, tuple[int, ...]]) -> usage.Usage:
    """Epochs, each once: site, GPU model, number of GPUs, and the minutes of each epoch."""
    nodes = [
        f"run{n}-train_epoch{m}" for n, (*_, took) in enumerate(runs) for m in range(len(took))
    ]
    log = Log()
    for n, (site, gpu, gpus, took) in enumerate(runs):
        for m, minutes in enumerate(took):
            job = 100 * (n + 1) + m
            log.submit(job, f"run{n}-train_epoch{m}")
            log.execute(job, gpus=gpus, gpu=gpu, site=site)
            log.terminate(job, at=str(log.clock + timedelta(minutes=minutes)))
    text = read_ensemble("".join(f"JOB {node} train.sub\n" for node in nodes), log)
    return usage.usage_in_window(text.builder().ledger())


Runs = tuple[tuple[str, str, int, tuple[int, ...]], ...]


@pytest.mark.parametrize(
    ("runs", "relative_time", "slow"),
    [
        ((("near", A40, 1, (60, 62, 64)), ("far", A40, 1, (90, 92, 94))), 92 / 62, True),
        # Spreads that overlap, and too few epochs.
        ((("near", A40, 1, (40, 60, 120)), ("far", A40, 1, (50, 80, 90))), 80 / 60, False),
        ((("near", A40, 1, (60, 62)), ("far", A40, 1, (900, 920, 940))), None, False),
        # Another number of GPUs, and another model.
        ((("near", A40, 2, (30, 30, 30)), ("far", A40, 1, (60, 60, 60))), None, False),
        ((("near", L40S, 1, (10, 10, 10)), ("far", A40, 1, (60, 60, 60))), None, False),
    ],
)
def test_slow_site_with_the_same_gpu(runs: Runs, relative_time: float | None, slow: bool) -> None:
    near, far = (
        next(cell for cell in epochs_at(*runs).site_gpus if cell.site == site)
        for site in ("near", "far")
    )
    assert far.relative_time == pytest.approx(relative_time)
    assert bool(far.slow) is slow
    assert (near.relative_time, near.slow) in ((1.0, False), (None, None), (None, False))
    assert far.fastest_site == (None if relative_time is None else "near")


def test_most_productive_site() -> None:
    found = epochs_at(("dear", A40, 2, (60, 60, 60)), ("cheap", A40, 1, (90, 90, 90)))
    assert [place.name for place in found.ranked_sites] == ["cheap", "dear"]
    assert [place.totals.hours_per_epoch for place in found.ranked_sites] == [1.5, 2]


# --- causes -----------------------------------------------------------------------------------

DAG = "JOB run0-train_epoch0 train.sub\nJOB run0-train_epoch1 train.sub\n"
NODE, OTHER = "run0-train_epoch0", "run0-train_epoch1"


def places(log: Log, as_of: str | None = None) -> usage.Usage:
    return usage.usage_in_window(read_ensemble(DAG, log).builder(as_of).ledger())


def test_hold_and_its_eviction_are_one_cause() -> None:
    log = Log().submit(77, NODE).execute(77, site="near", at="11:00:00")
    log.evict(77, None, at="12:00:00").hold(77, 34, "memory exceeded", at="12:00:01", subcode=102)
    log.release(77).execute(77, site="near", at="13:00:00").terminate(77, at="14:00:00")
    found = places(log)
    (cause,) = found.causes
    assert (cause.key, cause.occurrences, cause.executions, cause.holds) == ("34/102", 1, 1, 1)
    assert cause.badput == 1
    assert (found.total.evictions, found.total.holds) == (0, 1)


def test_hold_of_a_job_that_never_ran_has_no_site() -> None:
    found = places(Log().submit(77, NODE).hold(77, 13, "no such file", subcode=2))
    (place,) = found.sites
    assert (place.name, place.holds, place.totals.executions) == (None, 1, 0)
    (cause,) = found.causes
    assert (cause.key, cause.occurrences, cause.executions) == ("13/2", 1, 0)


def test_removals_with_unknown_end_are_separate() -> None:
    log = Log()
    log.submit(77, NODE).execute(77, site="near", at="11:00:00").remove(77, at="20:00:00")
    log.submit(78, OTHER, at="20:30:00").execute(78, site="near", at="21:00:00")
    log.remove(78, at="21:10:00")
    by_end = {cause.end_unknown: (cause.key, cause.badput) for cause in places(log).causes}
    assert by_end[True] == ("removed, end not logged", 9)
    assert by_end[False][1] == 1 / 6
    assert "condor_rm" in by_end[False][0]


def test_texts_of_one_code_are_readable() -> None:
    log = Log()
    for job, node, at, why in ((77, NODE, 11, "disk is full"), (78, OTHER, 13, "disk is gone")):
        log.submit(job, node, at=f"{at}:00:00").execute(job, at=f"{at}:10:00")
        log.evict(job, 1007, why, at=f"{at + 1}:00:00")
    (cause,) = places(log).causes
    assert cause.key == "1007/0"
    assert [reason.reason for reason in cause.reasons] == ["disk is full", "disk is gone"]


# --- waits and transfers ----------------------------------------------------------------------


def test_waits_without_a_start_are_separate() -> None:
    log = Log().submit(77, NODE, at="10:00:00").submit(78, OTHER, at="10:30:00")
    log.remove(78, at="11:30:00")
    found = places(log, as_of="13:00:00")
    assert found.waiting == (usage.TargetWaits(None, 1, 3 * 3600, 1, 3600),)
    assert found.total.wait_seconds.n == 0


def test_eviction_with_removal_is_not_a_wait() -> None:
    log = Log().submit(77, NODE, at="10:00:00").execute(77, at="10:05:00")
    log.evict(77, 1023, "DAG Removed", at="12:00:00").remove(77, at="12:00:00")
    found = places(log)
    assert found.waiting == ()
    assert found.total.wait_seconds.median == 300


def test_transfer_without_a_start_is_kept() -> None:
    log = Log().submit(77, NODE, at="10:00:00").transfer(77, "started input", at="10:10:00")
    log.hold(77, 13, "transfer failed", at="12:10:00", subcode=2)
    found = places(log)
    assert (found.total.input.unfinished, found.total.input.stalls) == (1, 1)
    assert found.total.input.stalled_seconds == 2 * 3600
    assert sum(place.input.stalls for place in found.sites) == 1


def test_stall_is_longer_than_usual() -> None:
    assert usage.stall_limit(usage.distribution([3600.0] * 4)) == 3 * 3600
    assert usage.stall_limit(usage.distribution([60.0] * 4)) == TRANSFER_SECONDS
    assert usage.stall_limit(usage.distribution([3600.0])) == TRANSFER_SECONDS, (
        "one transfer makes no habit"
    )
