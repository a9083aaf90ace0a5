"""Evictions at the end of an annex have a cause of their own."""

from __future__ import annotations

import pytest

from metlmon.model.reasons import ANNEX_EXPIRED, ANNEX_EXPIRED_INFERRED
from metlmon.stats.totals import break_down
from tests.support.event_logs import EnsembleReading, Log, moment, read_ensemble, read_logs

SHUTDOWN = "Unspecified job interruption"
DAG = "".join(f"JOB run{n}-train_epoch0 t.sub\n" for n in range(4))


def started(annex: str | None = None, site: str = "Delta-GPU", jobs: int = 3) -> Log:
    log = Log()
    for n in range(jobs):
        log.submit(77 + n, f"run{n}-train_epoch0", at=f"10:00:0{n}")
        log.execute(77 + n, at=f"10:10:0{n}", site=site, annex=annex)
    return log


def evicted(log: Log, *jobs: int, code: int | None = 1005, at: str = "12:00:0") -> Log:
    for n, job in enumerate(jobs):
        log.evict(job, code, SHUTDOWN if code else None, at=f"{at}{n}")
    return log


def later(log: Log) -> Log:
    """An event at another site, after the time in which jobs may start again."""
    return log.submit(99, "run3-train_epoch0", at="12:20:00")


def causes(log: Log, ends: dict[str, str] | None = None) -> list[str]:
    reading = read_ensemble(DAG, log)
    reading.ensemble.annex_ends = {name: [moment(at)] for name, at in (ends or {}).items()}
    return causes_in(reading)


def causes_in(reading: EnsembleReading) -> list[str]:
    executions = reading.builder().ledger().executions
    return [e.cause for e in executions if e.cause is not None]


@pytest.mark.parametrize("code", [1005, 1013, None, 1004, 1023, 1014])
def test_codes_of_startd_shutdowns_and_users(code: int | None) -> None:
    expected = SHUTDOWN if code in {1004, 1023, 1014} else ANNEX_EXPIRED_INFERRED
    assert causes(later(evicted(started(), 77, 78, 79, code=code))) == [expected] * 3


def test_expiry_needs_three_jobs_at_a_site_or_two_in_an_annex() -> None:
    assert ANNEX_EXPIRED_INFERRED not in causes(later(evicted(started(jobs=2), 77, 78)))
    assert causes(evicted(started("a1", jobs=2), 77, 78)) == [ANNEX_EXPIRED_INFERRED] * 2


def test_other_events_refute_an_expiry() -> None:
    goes_on = later(evicted(started(jobs=4), 77, 78, 79))
    starts_soon = evicted(started(), 77, 78, 79).execute(77, at="12:05:00", site="Delta-GPU")
    not_quiet_yet = evicted(started(), 77, 78, 79)
    for log in (goes_on, later(starts_soon), not_quiet_yet):
        assert causes(log) == [SHUTDOWN] * 3


def test_start_elsewhere_or_much_later_refutes_no_expiry() -> None:
    log = evicted(started(), 77, 78, 79).execute(77, at="12:05:00", site="Expanse-GPU")
    log.execute(78, at="12:30:00", site="Delta-GPU")
    assert causes(log) == [ANNEX_EXPIRED_INFERRED] * 3


def test_evictions_at_two_sites_are_not_an_expiry() -> None:
    log = started()
    log.submit(80, "run3-train_epoch0", at="10:00:04").execute(80, at="10:10:09", site="Expanse")
    assert causes(later(evicted(log, 77, 78, 79, 80))) == [SHUTDOWN] * 4


def test_known_end_makes_one_eviction_an_expiry() -> None:
    log = evicted(started("a1", jobs=1), 77)
    assert causes(log, {"a1": "11:59:57"}) == [ANNEX_EXPIRED]
    assert causes(log, {"a1": "11:50:00"}) == [SHUTDOWN]
    assert causes(log, {"other": "11:59:57"}) == [SHUTDOWN]


def test_known_ends_are_found_in_any_case() -> None:
    reading = read_ensemble(DAG, evicted(started("GPU-Annex", jobs=1), 77))
    ensemble = reading.ensemble
    noon = moment("12:00:00").timestamp()
    assert causes_in(reading) == [SHUTDOWN]
    assert ensemble.add_annex_ends({"gpu-annex": [noon]})
    assert not ensemble.add_annex_ends({"gpu-annex": [noon]})
    assert ensemble.add_annex_ends({"gpu-annex": [noon + 3600]})
    assert causes_in(reading) == [ANNEX_EXPIRED]
    # And outlive DAG files that are read again.
    ensemble.set_dags(list(ensemble.dags.values()))
    assert causes_in(reading) == [ANNEX_EXPIRED]


def test_early_start_revokes_an_expiry() -> None:
    reading = read_ensemble(DAG, evicted(started("a1", jobs=2), 77, 78))
    assert causes_in(reading) == [ANNEX_EXPIRED_INFERRED] * 2
    again = Log("more.log").execute(77, at="12:04:00", site="Delta-GPU", annex="a1")
    read_logs(reading.ensemble, [again])
    assert causes_in(reading) == [SHUTDOWN] * 2
    assert [row.cause for row in break_down(reading.builder().ledger()).causes] == [SHUTDOWN]
