"""Advice for elastic trainings of a DAG whose submit description has ``--nnodes min:max``."""

import random
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.live.feed import StatsInput
from metlmon.placement import elastic
from metlmon.placement.types import Annex, AnnexState
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import DAY, Log
from tests.support.records import stats_input

SUBMIT = """\
executable = train.sh
arguments = torchrun --nnodes=$(nodes_wanted) --nproc-per-node 1 train.py
log = metl.log
queue 4
"""

RUN3 = "run.dag:run3"


def dag(*runs: str, bounds: str = "1:4") -> str:
    lines = []
    for run in runs:
        for epoch in (0, 1):
            node = f"{run}-train_epoch{epoch}"
            lines += [f"JOB {node} train.sub", f'VARS {node} nodes_wanted="{bounds}"']
        lines.append(f"PARENT {run}-train_epoch0 CHILD {run}-train_epoch1")
    return "\n".join(lines) + "\n"


def annex(nodes: int, until: str = f"{DAY} 16:00:00", **changes: object) -> Annex:
    known = Annex(
        name="gpu1",
        site="delta",
        state=AnnexState.UP,
        nodes=nodes,
        alive_until=datetime.fromisoformat(until),
    )
    return replace(known, **changes)


def elastic_input(path: Path, *runs: str, bounds: str = "1:4") -> StatsInput:
    """The first epochs on two workers, from 10:30 to 11:30; then the second on two, from 12:00."""
    dagdir = Dagdir(path / "elastic", dag(*runs, bounds=bounds))
    dagdir.write("train.sub", SUBMIT)
    log = Log()
    for number, run in enumerate(runs):
        jobs = [(100 + 10 * number, proc) for proc in (0, 1)]
        for job in jobs:
            log.submit(job, f"{run}-train_epoch0", at="10:00:00").execute(job, at="10:30:00")
        for job in jobs:
            log.terminate(job, at="11:30:00")
        for cluster, proc in jobs:
            log.submit((cluster + 1, proc), f"{run}-train_epoch1", at="11:45:00")
            log.execute((cluster + 1, proc), at="12:00:00")
    dagdir.write("metl.log", log.data)
    as_of = datetime.fromisoformat(f"{DAY} 13:00:00")
    return stats_input(dagdir.reader(as_of=as_of).snapshot_builder())


@pytest.mark.parametrize("nodes", [6, 10**9])
def test_run_grows_to_the_annex_until_it_expires(tmp_path: Path, nodes: int):
    (advice,) = elastic.elastic_advice(elastic_input(tmp_path, "run3"), [annex(nodes)])
    assert (advice.workers, advice.advised, advice.annex) == (2, 4, "gpu1")
    assert advice.until == datetime.fromisoformat(f"{DAY} 16:00:00")
    assert not advice.inferred
    assert advice.reason == (
        "run3: 4 workers until annex gpu1 expires (4 May 16:00); it has 2, "
        "expected 1.9 times the epochs per hour"
    )


def test_annex_that_expires_too_early_changes_nothing(tmp_path: Path):
    (advice,) = elastic.elastic_advice(
        elastic_input(tmp_path, "run3"), [annex(6, f"{DAY} 13:00:15")]
    )
    assert advice.advised == 2
    assert advice.reason == "run3: keep 2 workers until annex gpu1 expires (4 May 13:00)"


def test_seen_workers_are_shared_without_an_annex(tmp_path: Path):
    advice = elastic.elastic_advice(elastic_input(tmp_path, "run0", "run1"))
    assert [(each.workers, each.advised, each.until) for each in advice] == [(2, 2, None)] * 2
    assert all(each.inferred for each in advice)
    assert advice[0].reason == "run0: keep 2 workers; 4 workers in all, the most that ran at once"


def test_gone_annex_offers_no_workers(tmp_path: Path):
    gone = annex(6, state=AnnexState.GONE)
    (advice,) = elastic.elastic_advice(elastic_input(tmp_path, "run3"), [gone])
    assert (advice.advised, advice.annex) == (2, "")


def test_evicted_workers_are_losses(tmp_path: Path):
    dagdir = Dagdir(tmp_path / "evicted", dag("run3"))
    dagdir.write("train.sub", SUBMIT)
    log = Log().submit(100, "run3-train_epoch0", at="10:00:00").execute(100, at="10:30:00")
    log.evict(100, at="11:30:00").execute(100, at="11:40:00").terminate(100, at="12:40:00")
    dagdir.write("metl.log", log.data)
    ledger = dagdir.reader().snapshot_builder().ledger()
    assert elastic.loss_rate(ledger.executions) == pytest.approx(1 / 7200)
    assert elastic.loss_rate(()) == 0.0


def test_too_few_nodes_for_the_minimum_give_no_advice(tmp_path: Path):
    (advice,) = elastic.elastic_advice(elastic_input(tmp_path, "run3", bounds="3:4"), [annex(2)])
    assert advice.advised == 0
    assert advice.gain is None
    assert "wait until annex gpu1 expires (4 May 16:00); it needs 3 workers" in advice.reason


@pytest.mark.parametrize("value", ["4", "4:2", "0:4", "a:b", "1:99999"])
def test_run_without_a_range_is_not_elastic(tmp_path: Path, value: str):
    given = elastic_input(tmp_path, "run3", bounds=value)
    assert elastic.elastic_bounds(given) == {}
    assert elastic.elastic_advice(given, [annex(6)]) == ()


def test_range_may_be_in_vars(tmp_path: Path):
    given = elastic_input(tmp_path, "run3")
    text = dag("run3").replace("train.sub", "absent.sub").replace("nodes_wanted", "NNodes")
    dagdir = Dagdir(tmp_path / "vars", text)
    dagdir.write("metl.log", Log().submit(100, "run3-train_epoch0").data)
    assert elastic.elastic_bounds(stats_input(dagdir.reader().snapshot_builder())) == {RUN3: (1, 4)}
    assert elastic.elastic_bounds(given) == {RUN3: (1, 4)}


highspy = pytest.importorskip("highspy", reason="needs highspy, the oracle of linear programs")


def random_runs(
    rng: random.Random, most_runs: int, most_nodes: int
) -> tuple[list[elastic.ElasticRun], int]:
    """Trainings of different scaling, and the nodes for all of them."""
    runs = []
    for number in range(rng.randint(1, most_runs)):
        maximum = rng.randint(1, most_nodes)
        minimum = rng.randint(1, maximum)
        rate, exponent = rng.lognormvariate(0, 0.8), rng.uniform(0.5, 1.05)
        noise = [rng.uniform(0.9, 1.1) for _ in range(most_nodes + 1)]
        runs.append(
            elastic.ElasticRun(
                key=f"run{number}",
                minimum=minimum,
                maximum=maximum,
                # A preempted training may have fewer nodes than its minimum.
                nodes=rng.choice([0, rng.randint(0, maximum)]),
                throughput=tuple(
                    rate * n**exponent * noise[n] if n else 0.0 for n in range(most_nodes + 1)
                ),
                losses=rng.choice([0.0, rng.uniform(0, 0.02)]),
            )
        )
    return runs, rng.randint(0, most_nodes * 2)


def work(run: elastic.ElasticRun, nodes: int, horizon: float) -> float:
    """FreeTrain's objective for one training by definition, less pauses by losses."""
    now = run.throughput[run.nodes] if run.nodes >= run.minimum else 0.0
    pause = elastic.GROW_SECONDS if nodes > run.nodes else elastic.SHRINK_SECONDS
    losses = horizon * run.losses * nodes * elastic.SHRINK_SECONDS
    steady = run.throughput[nodes] * max(0.0, horizon - losses)
    return steady - (pause * now if nodes != run.nodes else 0.0)


def choice_optimum(runs: list[elastic.ElasticRun], nodes: int, horizon: float) -> float:
    """One binary for each training and number of nodes."""
    program = highspy.Highs()
    program.silent()
    program.setOptionValue("mip_rel_gap", 0.0)
    program.setOptionValue("mip_abs_gap", 1e-9)
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


def found(runs: list[elastic.ElasticRun], nodes: int, horizon: float) -> float:
    allocation = elastic.allocate_nodes(runs, nodes, horizon)
    assert sum(allocation) <= nodes
    for run, count in zip(runs, allocation, strict=True):
        assert count == 0 or run.minimum <= count <= run.maximum
    return sum(work(run, count, horizon) for run, count in zip(runs, allocation, strict=True))


def test_allocations_equal_those_of_highs():
    rng = random.Random(18)
    for _ in range(40):
        runs, nodes = random_runs(rng, most_runs=4, most_nodes=10)
        horizon = rng.choice([10.0, 60.0, 600.0])
        optimum = choice_optimum(runs, nodes, horizon)
        assert found(runs, nodes, horizon) == pytest.approx(optimum, rel=1e-6, abs=1e-5)
