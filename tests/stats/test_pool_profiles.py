"""Profiles of pools, against generated truth and executions of recorded ensembles."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from functools import cache
from math import exp, lgamma
from pathlib import Path
from random import Random
from statistics import mean
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from metlmon.config.settings import Settings
from metlmon.model.states import Outcome
from metlmon.snapshot.records import Ledger
from metlmon.stats.black_holes import beta_cdf, beta_quantile
from metlmon.stats.pool_profiles import (
    Observation,
    PoolProfile,
    ResourcePool,
    learn_profiles,
    observations_of,
    pool_of,
    profiles_in_window,
)
from tests.conftest import shared_path
from tests.support.event_logs import Log, read_ensemble
from tests.support.records import read_dagdir

ROOT = Path(__file__).resolve().parents[2]
START = datetime(2026, 1, 1)
DAG = "JOB run0-train_epoch0 a.sub\nJOB run0-train_epoch1 a.sub\n"
DAG += "PARENT run0-train_epoch0 CHILD run0-train_epoch1\n"
DELTA = ResourcePool("delta", "A40")
ANVIL = ResourcePool("anvil", "A100")


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def executions(
    pool: ResourcePool, *hours: float, finished: bool | None = True, first: float = 0.0
) -> list[Observation]:
    """Executions one after the other, ``first`` hours after the start."""
    observations = []
    for each in hours:
        first += each
        observations.append(
            Observation(pool=pool, seen=at(first), hours=each, finished=finished, wait=1.0)
        )
    return observations


def learned(*parts: list[Observation], as_of: float = 1000.0) -> dict[ResourcePool, PoolProfile]:
    return dict(learn_profiles([each for part in parts for each in part], at(as_of)))


def hours_of(profile: PoolProfile) -> tuple[float, float, float]:
    return profile.hours_per_epoch.value, profile.hours_per_epoch.low, profile.hours_per_epoch.high


# --- figures ----------------------------------------------------------------------------------


def test_slots_at_a_change_of_clocks() -> None:
    """The second epoch begins when the first has ended, and takes seven hours, not six."""
    log = Log().submit(7, "run0-train_epoch0", at="2025-11-01 20:00:00")
    log.execute(7, at="2025-11-01 20:00:00").terminate(7, at="2025-11-01 23:00:00")
    log.submit(8, "run0-train_epoch1", at="2025-11-01 23:00:00")
    log.execute(8, at="2025-11-01 23:00:00").terminate(8, at="2025-11-02 05:00:00")
    chicago = Settings(zone=ZoneInfo("America/Chicago"))
    (profile,) = profiles_in_window(read_ensemble(DAG, log, settings=chicago).builder().ledger())
    assert (profile.epochs, profile.slots) == (2, 1)


def test_mean_of_the_only_pool_is_its_own() -> None:
    profile = learned(executions(DELTA, 2.0, 3.0, 4.0))[DELTA]
    value, low, high = hours_of(profile)
    assert value == pytest.approx(3.0)
    assert low < 3.0 < high
    assert (profile.hours_per_epoch.samples, profile.hours_per_epoch.borrowed) == (3, "")
    assert (profile.executions, profile.epochs, profile.slots, profile.running) == (3, 3, 1, 0)


def test_pool_without_an_epoch_uses_its_gpu_model() -> None:
    here, there = ResourcePool("new", "A40"), executions(DELTA, *[9.0] * 20)
    new = executions(here, 0.5, finished=None)
    hours = learned(there, executions(ANVIL, *[3.0] * 20), new)[here].hours_per_epoch
    assert hours.borrowed == "A40 elsewhere"
    assert hours.samples == 0
    assert hours.censored == 1
    assert 7.0 < hours.value < 9.5
    assert hours.low < 9.0 < hours.high


def test_hours_are_unknown_before_the_first_epoch() -> None:
    profile = learned(executions(DELTA, 2.0, finished=None))[DELTA]
    assert profile.hours_per_epoch is None
    assert profile.wait_hours is not None
    assert profile.running == 1


def test_unfinished_epochs_increase_the_mean() -> None:
    done = executions(DELTA, 2.0, 3.0, 4.0)
    longer = executions(DELTA, 8.0, finished=None, first=20.0)
    shorter = executions(DELTA, 1.0, finished=None, first=20.0)
    assert hours_of(learned(done, longer)[DELTA])[0] > 3.5
    assert hours_of(learned(done, shorter)[DELTA])[0] == pytest.approx(3.0)


def test_open_waits_count_at_their_pool() -> None:
    done = executions(DELTA, *[2.0] * 4)
    waiting = Observation(pool=DELTA, seen=at(100), wait=12.0, started=False)
    wait = learned(done, [waiting])[DELTA].wait_hours
    # Sixteen hours waited for four starts.
    assert wait.value == pytest.approx(4.0)
    assert (wait.samples, wait.censored) == (4, 1)


def test_intervals_hold_in_four_pools_of_five() -> None:
    random, held, errors, own_errors = Random("pools"), [], [], []
    for _ in range(60):
        truth, observations = {}, []
        for gpu in ("A", "B", "C"):
            model = 6 * exp(random.gauss(0, 0.5))
            for site in range(4):
                pool = ResourcePool(f"{gpu}{site}", gpu)
                truth[pool] = model * exp(random.gauss(0, 0.2))
                samples = [
                    truth[pool] * random.gammavariate(16, 1 / 16)
                    for _ in range(random.choice((1, 2, 5, 20)))
                ]
                observations.append(executions(pool, *samples))
        for pool, profile in learned(*observations).items():
            value, low, high = hours_of(profile)
            held.append(low <= truth[pool] <= high)
            own = mean(o.hours for part in observations for o in part if o.pool == pool)
            errors.append((value / truth[pool] - 1) ** 2)
            own_errors.append((own / truth[pool] - 1) ** 2)
    assert 0.74 <= mean(held) <= 0.86
    assert mean(errors) < 0.85 * mean(own_errors)


def test_intervals_of_waits_and_losses_hold() -> None:
    random, waits_held, losses_held = Random("sites"), [], []
    for _ in range(40):
        truth, observations = {}, []
        for site in range(6):
            usual = 10 * exp(random.gauss(0, 0.5))
            for gpu in range(random.choice((1, 1, 2))):
                pool = ResourcePool(f"s{site}", f"g{(site + gpu) % 3}")
                wait, loss = usual * exp(random.gauss(0, 0.15)), random.betavariate(1.2, 4.8)
                truth[pool] = wait, loss
                observations += [
                    Observation(
                        pool=pool,
                        seen=at(9 * n + 9),
                        hours=5.0,
                        wait=random.expovariate(1 / wait),
                        finished=random.random() > loss,
                    )
                    for n in range(random.choice((2, 4, 8, 30)))
                ]
        for pool, profile in learned(observations).items():
            waits_held.append(profile.wait_hours.low <= truth[pool][0] <= profile.wait_hours.high)
            losses_held.append(profile.loss.low <= truth[pool][1] <= profile.loss.high)
    assert 0.73 <= mean(waits_held) <= 0.87
    assert 0.73 <= mean(losses_held) <= 0.87


@pytest.mark.parametrize(("a", "b"), [(0.4, 3.6), (1.0, 1.0), (3.2, 8.0), (20.0, 4.0)])
def test_beta_quantiles_by_numerical_integration(a: float, b: float) -> None:
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b))
    steps = 20_000
    for share in (0.1, 0.5, 0.9):
        x = beta_quantile(share, a, b)
        assert beta_cdf(x, a, b) == pytest.approx(share, abs=1e-5)
        # With x = u^(1/a) the integrand has no pole at 0.
        below = sum((1 - ((i + 0.5) / steps * x**a) ** (1 / a)) ** (b - 1) for i in range(steps))
        assert front * x**a / a * below / steps == pytest.approx(share, abs=3e-4)
    assert beta_quantile(0.1, 0.02, 5.0) == 0.0, "not the error of the bisection"


# --- black holes ------------------------------------------------------------------------------

GOOD_ELSEWHERE = executions(ANVIL, *[3.0] * 20)


def test_black_hole_is_excluded_and_tried_again() -> None:
    lost = executions(DELTA, *[1.0] * 5, finished=False)
    profiles = learned(GOOD_ELSEWHERE, lost)
    assert profiles[DELTA].excluded == "its last 5 executions were lost, 0 % elsewhere"
    assert not profiles[ANVIL].excluded
    assert profiles[ANVIL].probe_at is None
    first_probe = profiles[DELTA].probe_at
    assert first_probe is not None
    assert at(5.0) < first_probe < at(24.0)
    later = learned(GOOD_ELSEWHERE, executions(DELTA, *[1.0] * 7, finished=False))
    later_probe = later[DELTA].probe_at
    assert later_probe is not None
    assert later_probe > first_probe
    probing = executions(DELTA, 0.5, finished=None, first=30.0)
    assert learned(GOOD_ELSEWHERE, lost, probing)[DELTA].probe_at is None
    again = executions(DELTA, 3.0, first=30.0)
    assert not learned(GOOD_ELSEWHERE, lost, again)[DELTA].excluded


def test_black_hole_at_the_latest_date_has_a_profile() -> None:
    end = datetime(9999, 12, 31, 12)
    lost = [Observation(pool=DELTA, seen=end, hours=9.0, finished=False) for _ in range(5)]
    profile = learn_profiles([*GOOD_ELSEWHERE, *lost], end)[DELTA]
    assert profile.excluded
    assert profile.probe_at is not None


def test_few_or_usual_losses_are_no_black_hole() -> None:
    four = executions(DELTA, *[1.0] * 4, finished=False)
    assert not learned(GOOD_ELSEWHERE, four)[DELTA].excluded
    lossy = executions(ANVIL, *[1.0] * 20, finished=False, first=60.0)
    back = executions(ANVIL, 3.0, first=90.0)
    five = executions(DELTA, *[1.0] * 5, finished=False)
    assert not learned(GOOD_ELSEWHERE, lossy, back, five)[DELTA].excluded


def test_removals_by_users_do_not_count() -> None:
    removed = executions(DELTA, *[1.0] * 9, finished=None)
    profile = learned(GOOD_ELSEWHERE, removed)[DELTA]
    assert not profile.excluded
    assert profile.loss.samples == 0


def test_pool_with_losses_only_is_doubtful() -> None:
    one, two = (executions(DELTA, *[0.5] * count, finished=False) for count in (1, 2))
    assert not learned(GOOD_ELSEWHERE, one)[DELTA].doubtful
    profile = learned(GOOD_ELSEWHERE, two)[DELTA]
    assert (profile.doubtful, profile.excluded) == (True, "")
    assert profile.hours_per_epoch is not None
    assert profile.probe_at is not None
    waited = (profile.probe_at - at(1.0)) / timedelta(hours=1)
    assert waited == pytest.approx(profile.hours_per_epoch.value, abs=0.001)
    assert not learned(GOOD_ELSEWHERE, two, executions(DELTA, 2.0, first=2.0))[DELTA].doubtful


def test_simultaneous_evictions_are_one_loss() -> None:
    together = [
        Observation(pool=DELTA, seen=at(9 + n / 600), hours=6.0, finished=False, evicted=True)
        for n in range(12)
    ]
    profile = learned(GOOD_ELSEWHERE, together)[DELTA]
    assert not profile.excluded
    assert (profile.loss.samples, profile.slots) == (12, 12)


def test_numbers_of_gpus_are_separate_pools() -> None:
    """A mean of epochs on one GPU and on two would fit neither."""
    log = Log()
    for number, gpus in enumerate((1, 2), start=1):
        log.submit(number, f"run0-train_epoch{number - 1}", at=f"{8 * number:02}:00:00")
        log.execute(number, site="delta", at=f"{8 * number:02}:30:00", gpus=gpus)
        log.terminate(number, at=f"{8 * number + 4 // gpus:02}:30:00")
    ledger = read_ensemble(DAG, log).builder().ledger()
    assert ledger.as_of is not None
    profiles = learn_profiles(observations_of(ledger), ledger.as_of)
    assert {pool.gpus_per_job: each.epochs for pool, each in profiles.items()} == {1: 1, 2: 1}
    hours = {
        pool.model: each.hours_per_epoch.value
        for pool, each in profiles.items()
        if each.hours_per_epoch
    }
    assert hours["NVIDIA L40S"] > hours["NVIDIA L40S ×2"]


# --- logs -------------------------------------------------------------------------------------


def test_executions_are_read_from_logs() -> None:
    log = Log()
    log.submit(1, "run0-train_epoch0", at="08:00:00").execute(1, site="delta", at="09:00:00")
    log.terminate(1, at="11:00:00")
    log.submit(2, "run0-train_epoch1", at="11:00:00").execute(2, site="delta", at="11:30:00")
    log.evict(2, code=None, at="12:00:00")
    log.execute(2, site="anvil", annex="a1", at="13:00:00")
    log.remove(2, "via condor_rm (by user anna)", at="14:00:00")
    ledger = read_ensemble(DAG, log).builder().ledger()
    done, evicted, removed = observations_of(ledger)
    assert (done.pool.site, done.wait, done.hours, done.finished) == ("delta", 1.0, 2.0, True)
    assert (evicted.wait, evicted.hours, evicted.finished) == (0.5, 0.5, False)
    assert evicted.evicted
    assert (removed.pool, removed.wait) == (ResourcePool("anvil", "NVIDIA L40S", "a1"), 1.0)
    assert removed.finished is None
    assert removed.stopped


@pytest.mark.parametrize(
    ("target", "pool"),
    [
        ("delta", ResourcePool("delta", "NVIDIA L40S")),
        ("anvil", ResourcePool("anvil")),
        ("delta|anvil", None),
        ("any", None),
    ],
)
def test_idle_job_waits_at_its_only_site(target: str, pool: ResourcePool | None) -> None:
    log = Log()
    log.submit(1, "run0-train_epoch0", at="08:00:00").execute(1, site="delta", at="09:00:00")
    log.terminate(1, at="11:00:00").submit(2, "run0-train_epoch1", at="11:00:00")
    dag = DAG + 'VARS run0-train_epoch0 ResourceName="any"\n'
    dag += f'VARS run0-train_epoch1 ResourceName="{target}"\n'
    _, *idle = observations_of(read_ensemble(dag, log).builder().ledger())
    assert [each.pool for each in idle] == ([] if pool is None else [pool])


RECORDED = ("fixtures/first-round", "examples/metl-aws")


@pytest.fixture(name="ledger", params=RECORDED)
def _ledger(request: pytest.FixtureRequest) -> Ledger:
    return recorded(request.param)


@cache
def recorded(name: str) -> Ledger:
    is_fixture = name.startswith("fixtures/")
    return read_dagdir(ROOT / name if is_fixture else shared_path(name)).ledger()


def test_counts_of_recordings_agree_with_their_epochs(ledger: Ledger) -> None:
    assert ledger.as_of is not None
    profiles = learn_profiles(observations_of(ledger), ledger.as_of)
    epochs = Counter(pool_of(e.success) for e in ledger.epochs if e.success)
    assert {pool: p.epochs for pool, p in profiles.items() if p.epochs} == epochs
    for pool, profile in profiles.items():
        there = [e for e in ledger.executions if e.training and pool_of(e) == pool]
        assert profile.executions == len(there)
        assert profile.running == sum(e.outcome is Outcome.IN_FLIGHT for e in there)
        assert profile.gpus == pytest.approx(mean(e.gpus or 0 for e in there))
        ends = [(e.start, e.end or ledger.as_of) for e in there]
        assert profile.slots == max(sum(s <= each < end for s, end in ends) for each, _ in ends)


@st.composite
def histories(draw: st.DrawFn) -> list[Observation]:
    """Executions and waits at a few pools within 100 hours."""
    pools = (DELTA, ANVIL, ResourcePool("anvil", "A40"))
    return [
        Observation(
            pool=draw(st.sampled_from(pools)),
            seen=at(draw(st.integers(1, 100))),
            hours=draw(st.integers(1, 40)) / 2,
            wait=draw(st.integers(0, 20)) / 2,
            finished=draw(st.sampled_from((True, False, None))),
            started=draw(st.booleans()),
            evicted=draw(st.booleans()),
        )
        for _ in range(draw(st.integers(0, 25)))
    ]


@settings(max_examples=25)
@given(histories(), histories(), st.integers(1, 100))
def test_later_events_change_no_past_profile(
    past: list[Observation], future: list[Observation], hour: int
) -> None:
    past = [each for each in past if each.seen <= at(hour)]
    later = [
        replace(each, seen=each.seen + timedelta(hours=hour + each.hours + 20)) for each in future
    ]
    assert learn_profiles(past + later, at(hour)) == learn_profiles(past, at(hour))


@settings(max_examples=25)
@given(histories(), st.integers(1, 100))
def test_later_ends_change_no_past_profile(observations: list[Observation], hour: int) -> None:
    def altered(each: Observation) -> Observation:
        if each.seen <= at(hour):
            return each
        longer = timedelta(hours=3)
        hours = each.hours + 3 if each.started else each.hours
        wait = each.wait if each.started else (each.wait or 0.0) + 3
        return replace(each, seen=each.seen + longer, hours=hours, wait=wait, finished=False)

    changed = [altered(each) for each in observations]
    assert learn_profiles(changed, at(hour)) == learn_profiles(observations, at(hour))
