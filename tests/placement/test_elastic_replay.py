"""The simulator behind ``tests/bench/elastic.py``: its books, and each policy on a small window."""

import random
from collections.abc import Sequence

import pytest

from metlmon.placement.elastic import _best_totals
from tests.bench.elastic import (
    POLICIES,
    SETTINGS,
    EqualShare,
    best_totals,
    generated_window,
    new_policy,
    scaling_curves,
    workload,
)
from tests.bench.elastic_replay import Job, Policy, Replay, Window, Workload

LINEAR = tuple(float(n) for n in range(65))
NO_NODES = frozenset[int]()


def nodes(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


def endless(parallel: int = 1, size: float = 1e9) -> Workload:
    return Workload({"net": LINEAR}, {"net": size}, ["net"], parallel)


class AllToTheFirst(Policy):
    def allocate(self, jobs: Sequence[Job], nodes: int) -> Sequence[int]:
        return [nodes if index == 0 else 0 for index in range(len(jobs))]


def pauses(seed: int = 1) -> Job:
    """The first training of a window: its pauses."""
    found: list[Job] = []

    class Noted(AllToTheFirst):
        def add(self, job: Job) -> None:
            found.append(job)

    Replay(Window(nodes(1), (), 1.0), endless(), Noted(), seed).run()
    return found[0]


def test_work_is_that_of_the_time_without_pauses():
    job = pauses()
    assert 17 <= job.grow <= 19
    assert 11 <= job.shrink <= 13
    window = Window(
        nodes(1, 2),
        ((200.0, nodes(3, 4), NO_NODES), (400.0, NO_NODES, nodes(1, 3, 4))),
        600.0,
    )
    replay = Replay(window, endless(), AllToTheFirst(), seed=1).run()
    expected = 2 * (200 - job.grow) + 4 * (200 - job.grow) + 1 * (200 - job.shrink)
    assert replay.work == pytest.approx(expected)
    assert replay.pauses == 3


def test_finished_trainings_make_room_for_others():
    replay = Replay(Window(nodes(1), (), 1000.0), endless(size=100.0), AllToTheFirst(), 1).run()
    # Each takes 100 s and a pause of 17 to 19 s.
    assert replay.finished == 8
    assert 800 < replay.work < 900


def test_sums_in_numpy_are_the_same():
    rng = random.Random(3)
    for _ in range(50):
        before = [rng.random() for _ in range(rng.randint(1, 40))]
        values = [rng.random() for _ in range(rng.randint(1, len(before)))]
        minimum = rng.randint(1, 9)
        assert best_totals(before, values, minimum) == _best_totals(before, values, minimum)


def test_equal_shares_differ_by_one_node():
    jobs = [pauses(seed) for seed in range(3)]
    assert sorted(EqualShare().allocate(jobs, 8)) == [2, 3, 3]


def test_profiling_takes_four_stages_of_twenty_seconds():
    class Profiled(AllToTheFirst):
        profiles = True
        rates: tuple[int, ...] = ()

        def profiled(self, job: Job) -> None:
            self.rates = tuple(sorted(job.rates))

    policy, job = Profiled(), pauses()
    took = job.grow + 3 * job.shrink + 4 * 20
    Replay(Window(nodes(*range(20)), (), took - 0.1), endless(), policy, 1).run()
    assert policy.rates == ()
    Replay(Window(nodes(*range(20)), (), took + 0.1), endless(), policy, 1).run()
    assert policy.rates == (1, 2, 4, 8)


@pytest.mark.parametrize("name", POLICIES)
def test_policies_do_no_more_than_all_nodes_could(name: str):
    setting, window = SETTINGS[0], generated_window(64, seed=5)
    curves = scaling_curves()
    load = workload(setting, curves, seed=5)
    replay = Replay(window, load, new_policy(name, setting, load, 5), 5).run()
    now, idle, capacity = 0.0, len(window.first), 0.0
    for moment, joined, left in window.changes:
        capacity += idle * (moment - now)
        now, idle = moment, idle + len(joined) - len(left)
    capacity += idle * (window.seconds - now)
    # In seconds on one node no curve exceeds a linear one by more than 2 %.
    assert 0.2 * capacity < replay.work < 1.02 * capacity
