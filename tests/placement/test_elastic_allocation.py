"""Node allocation of elastic trainings against HiGHS, in two formulations that share no code."""

import random

import pytest

from metlmon.placement.elastic import ElasticRun, allocate_nodes

highspy = pytest.importorskip("highspy", reason="needs highspy, the oracle of linear programs")


def random_runs(
    rng: random.Random, most_runs: int, most_nodes: int
) -> tuple[list[ElasticRun], int]:
    """Trainings of different scaling, and the nodes for all of them."""
    runs = []
    for number in range(rng.randint(1, most_runs)):
        maximum = rng.randint(1, most_nodes)
        minimum = rng.randint(1, maximum)
        rate, exponent = rng.lognormvariate(0, 0.8), rng.uniform(0.5, 1.05)
        noise = [rng.uniform(0.9, 1.1) for _ in range(most_nodes + 1)]
        runs.append(
            ElasticRun(
                run=f"run{number}",
                minimum=minimum,
                maximum=maximum,
                # After a preemption a training may have fewer nodes than its minimum.
                nodes=rng.choice([0, rng.randint(0, maximum)]),
                throughput=tuple(
                    rate * n**exponent * noise[n] if n else 0.0 for n in range(most_nodes + 1)
                ),
                grow_seconds=rng.uniform(17, 19),
                shrink_seconds=rng.uniform(11, 13),
                losses=rng.choice([0.0, rng.uniform(0, 0.02)]),
            )
        )
    return runs, rng.randint(0, most_nodes * 2)


def steady(run: ElasticRun, nodes: int, horizon: float) -> float:
    """The work without a change: each node that is lost pauses the training."""
    pauses = horizon * run.losses * nodes
    return run.throughput[nodes] * max(0.0, horizon - pauses * run.shrink_seconds)


def work(run: ElasticRun, nodes: int, horizon: float) -> float:
    """FreeTrain's objective for one training, from its definition, less pauses by losses."""
    now = run.throughput[run.nodes] if run.nodes >= run.minimum else 0.0
    pause = run.grow_seconds if nodes > run.nodes else run.shrink_seconds
    return steady(run, nodes, horizon) - (pause * now if nodes != run.nodes else 0.0)


def new_program():
    program = highspy.Highs()
    program.silent()
    program.setOptionValue("mip_rel_gap", 0.0)
    program.setOptionValue("mip_abs_gap", 1e-9)
    return program


def choice_optimum(runs: list[ElasticRun], nodes: int, horizon: float) -> float:
    """One binary for each training and number of nodes."""
    program = new_program()
    used, total = [], []
    for run in runs:
        counts = [0, *range(run.minimum, run.maximum + 1)]
        chosen = [program.addBinary() for _ in counts]
        program.addConstr(sum(chosen) == 1)
        used += [n * x for n, x in zip(counts, chosen, strict=True)]
        total += [work(run, n, horizon) * x for n, x in zip(counts, chosen, strict=True)]
    program.addConstr(sum(used) <= nodes)
    program.maximize(sum(total))
    return program.getObjectiveValue()


def node_optimum(runs: list[ElasticRun], nodes: int, horizon: float) -> float:
    """FreeTrain's program: a binary for each training and node, and no node is exchanged."""
    program = new_program()
    total, owned, first = [], [], 0
    for run in runs:
        here = [program.addBinary() for _ in range(nodes)]
        owned.append(here)
        mine, others = here[first : first + run.nodes], [*here[:first], *here[first + run.nodes :]]
        first += run.nodes
        counts = [0, *range(run.minimum, run.maximum + 1)]
        chosen = [program.addBinary() for _ in counts]
        program.addConstr(sum(chosen) == 1)
        program.addConstr(sum(here) - sum(n * x for n, x in zip(counts, chosen, strict=True)) == 0)
        grows, shrinks = program.addBinary(), program.addBinary()
        if others:
            program.addConstr(sum(others) - nodes * grows <= 0)
        if mine:
            program.addConstr(sum(mine) + nodes * shrinks >= len(mine))
        program.addConstr(grows + shrinks <= 1)
        now = run.throughput[run.nodes] if run.nodes >= run.minimum else 0.0
        total += [steady(run, n, horizon) * x for n, x in zip(counts, chosen, strict=True)]
        total += [-run.grow_seconds * now * grows, -run.shrink_seconds * now * shrinks]
    for node in range(nodes):
        program.addConstr(sum(here[node] for here in owned) <= 1)
    program.maximize(sum(total))
    return program.getObjectiveValue()


def found(runs: list[ElasticRun], nodes: int, horizon: float) -> float:
    allocation = allocate_nodes(runs, nodes, horizon)
    assert sum(allocation) <= nodes
    for run, count in zip(runs, allocation, strict=True):
        assert count == 0 or run.minimum <= count <= run.maximum
    return sum(work(run, count, horizon) for run, count in zip(runs, allocation, strict=True))


def test_allocations_equal_highs():
    rng = random.Random(18)
    for _ in range(300):
        runs, nodes = random_runs(rng, most_runs=4, most_nodes=10)
        horizon = rng.choice([10.0, 60.0, 600.0])
        optimum = choice_optimum(runs, nodes, horizon)
        assert found(runs, nodes, horizon) == pytest.approx(optimum, rel=1e-6, abs=1e-5)


def test_no_exchange_of_nodes_does_better():
    rng = random.Random(19)
    for _ in range(25):
        runs, nodes = random_runs(rng, most_runs=3, most_nodes=5)
        nodes = max(1, nodes, sum(run.nodes for run in runs))
        horizon = rng.choice([10.0, 60.0])
        optimum = node_optimum(runs, nodes, horizon)
        assert found(runs, nodes, horizon) == pytest.approx(optimum, rel=1e-6, abs=1e-5)


def test_without_gain_nothing_is_interrupted():
    linear = tuple(float(n) for n in range(9))
    runs = [
        ElasticRun(run=name, minimum=1, maximum=8, nodes=nodes, throughput=linear)
        for name, nodes in (("run0", 3), ("run1", 5))
    ]
    assert allocate_nodes(runs, 8, 120.0) == (3, 5)


def test_a_pause_that_costs_more_than_it_brings_is_not_taken():
    linear = tuple(float(n) for n in range(9))
    run = ElasticRun(run="run0", minimum=1, maximum=8, nodes=4, throughput=linear)
    assert allocate_nodes([run], 8, 10.0) == (4,)
    assert allocate_nodes([run], 8, 60.0) == (8,)


def test_trainings_that_lose_nodes_often_are_spread():
    linear = tuple(float(n) for n in range(17))

    def allocation(losses: float) -> tuple[int, ...]:
        runs = [
            ElasticRun(run=name, minimum=1, maximum=16, nodes=0, throughput=linear, losses=losses)
            for name in ("run0", "run1")
        ]
        return allocate_nodes(runs, 16, 120.0)

    assert sorted(allocation(0.001)) == [8, 8]
    assert sum(allocation(0.0)) == 16
