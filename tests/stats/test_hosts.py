"""Hosts: their executions, and those slower than equal ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import comb
from pathlib import Path
from statistics import median

import pytest
from msgspec.structs import replace

from metlmon.eventlog.events import ResourceUsage
from metlmon.snapshot.records import Execution, Ledger
from metlmon.stats.hosts import SLOW_FACTOR, SLOW_MIN_EPOCHS
from metlmon.stats.usage import HostUsage, Usage, usage_in_window
from tests.conftest import SHARED
from tests.generated.effects import Effects, planted
from tests.support.recordings import FIXTURES
from tests.support.records import read_dagdir

FIRST_ROUND = FIXTURES / "first-round"
METL_AWS = SHARED / "examples" / "metl-aws"


@cache
def ledger_of(source: Path | int) -> Ledger:
    if isinstance(source, int):
        return planted(Effects(slow_hosts=4), source).ledger
    if not source.exists():
        pytest.skip(f"no {source.name} here")
    return read_dagdir(source).ledger()


@pytest.mark.parametrize("source", [FIRST_ROUND, METL_AWS, 1], ids=str)
def test_relative_times_agree_with_a_recount(source: Path | int) -> None:
    ledger = ledger_of(source)
    found = usage_in_window(ledger)
    finals = [e for e in found.executions if e.final and not found.hidden_epoch(e)]
    relative = relative_times(finals)
    for row in found.hosts:
        key = (row.host, row.site, row.gpu, row.gpus)
        own = [e for e in finals if place(e) == key]
        assert row.epoch_seconds.n == len(own)
        assert row.epoch_seconds.median == (median(e.seconds for e in own) if own else None)
        peers = [e for e in finals if place(e)[2:] == key[2:] and e not in own]
        at_site = [e for e in peers if e.site == row.site]
        if row.gpu is None or row.gpus is None or min(len(own), len(peers)) < SLOW_MIN_EPOCHS:
            assert (row.relative_time, row.slow) == (None, None)
            continue
        assert row.peer_epochs == len(peers)
        assert row.epoch_seconds.median is not None
        assert row.relative_time == pytest.approx(
            row.epoch_seconds.median / median(e.seconds for e in peers)
        )
        then = [e for e in peers if any(e.start < o.end and o.start < e.end for o in own)]
        here, there, at_once = ([relative[e.job] for e in each] for each in (own, at_site, then))
        if len(there) < SLOW_MIN_EPOCHS:
            assert (row.relative_at_site, row.slow) == (None, None)
            continue
        assert row.relative_at_site == pytest.approx(median(here) / median(there))
        slow: bool | None = is_beyond(here, there)
        if slow:
            slow = is_beyond(here, at_once) if len(at_once) >= SLOW_MIN_EPOCHS else None
        assert row.slow == slow
    assert sum(row.totals.hours.total for row in found.hosts) == pytest.approx(
        found.total.totals.hours.total
    )
    order = [(not row.slow, -row.totals.completed_epochs) for row in found.hosts]
    assert order == sorted(order)


def place(e: Execution) -> tuple[str | None, str | None, str | None, int | None]:
    return e.host, e.site, e.gpu, e.gpus


def relative_times(finals: Sequence[Execution]) -> dict[tuple[int, int], float]:
    """The time of each job relative to the median of its site, and of its run on several hosts."""
    at_site = {}
    for e in finals:
        at_site[e.job] = e.seconds / median(
            other.seconds for other in finals if place(other)[1:] == place(e)[1:]
        )
    relative = {}
    for e in finals:
        of_run = [at_site[o.job] for o in finals if o.key == e.key]
        hosts = [place(o) for o in finals if o.key == e.key]
        elsewhere = len(hosts) - max(hosts.count(host) for host in hosts)
        enough = e.key is not None and elsewhere >= SLOW_MIN_EPOCHS
        relative[e.job] = at_site[e.job] / (median(of_run) if enough else 1)
    return relative


def is_beyond(own: Sequence[float], peers: Sequence[float]) -> bool:
    here, there = sorted(own), sorted(peers)
    apart = here[outside(len(here))] > there[-1 - outside(len(there))]
    return apart and median(here) > SLOW_FACTOR * median(there)


def outside(number: int) -> int:
    """The number of sorted values below the interval of 80 % of their median, exactly."""
    tails = [2 * sum(comb(number, k) for k in range(n)) / 2**number for n in range(number // 2 + 1)]
    return max(0, sum(tail <= 0.2 for tail in tails) - 2)


def test_slow_site_is_not_a_slow_host() -> None:
    found = usage_in_window(ledger_of(FIRST_ROUND))
    assert [cell.site for cell in found.site_gpus if cell.slow] == ["NRP"]
    assert not any(row.slow for row in found.hosts)


@pytest.mark.parametrize("number", [4, 0])
def test_only_planted_slow_hosts_are_found(number: int) -> None:
    planted_slow, found = 0, 0
    for seed in range(3):
        made = planted(Effects(host=0, slow_hosts=number), seed)
        rows = usage_in_window(made.ledger).hosts
        assert {row.host for row in rows if row.slow} <= made.slow
        planted_slow += sum(row.host in made.slow for row in rows if row.slow is not None)
        found += sum(bool(row.slow) for row in rows)
    assert found >= 0.8 * planted_slow >= number


def test_longer_epoch_and_only_host_of_a_slow_site_make_no_slow_host() -> None:
    """METL's third epoch took twice as long: it ran at one host while no other trained."""
    alone = planted(Effects(host=0, site=0.4, run=0, rest=0.02, hosts=1), 3).ledger
    for ledger, least in ((ledger_of(METL_AWS), 1.9), (alone, SLOW_FACTOR)):
        compared = [row for row in usage_in_window(ledger).hosts if row.relative_time]
        assert max(row.relative_time or 0 for row in compared) > least
        assert not any(row.slow for row in compared)


def used_on(ledger: Ledger, host: str) -> HostUsage:
    found: Usage = usage_in_window(ledger)
    return next(row for row in found.hosts if row.host == host)


def test_usage_covers_measured_executions() -> None:
    ledger = ledger_of(1)
    host = usage_in_window(ledger).hosts[0].host or ""
    here = [e for e in ledger.executions if e.host == host]
    row = used_on(ledger, host)
    assert row.gpus_used.median == median(e.usage.gpus for e in here if e.usage)
    assert row.cpus_used.n == row.gpus_used.n == len(here)
    unmeasured = replace(here[1], usage=ResourceUsage(cpus=1.0))
    others = [e for e in ledger.executions if e != here[1]]
    row = used_on(replace(ledger, executions=(*others, unmeasured)), host)
    assert (row.gpus_used.n, row.cpus_used.n) == (len(here) - 1, len(here))
