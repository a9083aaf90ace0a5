"""Advice for elastic trainings, from a DAG whose submit description says ``--nnodes min:max``."""

from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.jobfiles.records import Streamed
from metlmon.live.feed import StatsInput
from metlmon.placement.elastic_advice import (
    elastic_advice,
    elastic_bounds,
    loss_rate,
    throughput_samples,
)
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


def two_workers(log: Log, cluster: int, run: str) -> None:
    """The first epoch on two workers, from 10:30 to 11:30; then the second on two, from 12:00."""
    for proc in (0, 1):
        log.submit((cluster, proc), f"{run}-train_epoch0", at="10:00:00")
        log.execute((cluster, proc), at="10:30:00")
    for proc in (0, 1):
        log.terminate((cluster, proc), at="11:30:00")
    for proc in (0, 1):
        log.submit((cluster + 1, proc), f"{run}-train_epoch1", at="11:45:00")
        log.execute((cluster + 1, proc), at="12:00:00")


def elastic_input(path: Path, *runs: str, bounds: str = "1:4") -> StatsInput:
    dagdir = Dagdir(path / "elastic", dag(*runs, bounds=bounds))
    dagdir.write("train.sub", SUBMIT)
    log = Log()
    for number, run in enumerate(runs):
        two_workers(log, 100 + 10 * number, run)
    dagdir.write("metl.log", log.data)
    as_of = datetime.fromisoformat(f"{DAY} 13:00:00")
    return stats_input(dagdir.reader(as_of=as_of).snapshot_builder())


def test_a_run_grows_to_the_annex_until_it_expires(tmp_path: Path):
    (advice,) = elastic_advice(elastic_input(tmp_path, "run3"), [annex(6)])
    assert (advice.workers, advice.advised, advice.annex) == (2, 4, "gpu1")
    assert advice.until == datetime.fromisoformat(f"{DAY} 16:00:00")
    assert not advice.inferred
    assert advice.reason == (
        "run3: 4 workers until annex gpu1 expires (4 May 16:00); it has 2, "
        "expected 1.9 times the epochs per hour"
    )


def test_an_annex_that_expires_before_a_change_pays_off_changes_nothing(tmp_path: Path):
    (advice,) = elastic_advice(elastic_input(tmp_path, "run3"), [annex(6, f"{DAY} 13:00:15")])
    assert advice.advised == 2
    assert advice.reason == "run3: keep 2 workers until annex gpu1 expires (4 May 13:00)"


def test_without_an_annex_the_workers_seen_at_once_are_shared(tmp_path: Path):
    advice = elastic_advice(elastic_input(tmp_path, "run0", "run1"))
    assert [(each.workers, each.advised, each.until) for each in advice] == [(2, 2, None)] * 2
    assert all(each.inferred for each in advice)
    assert advice[0].reason == "run0: keep 2 workers; 4 workers in all, the most that ran at once"


def test_an_ad_with_a_billion_nodes_is_no_work(tmp_path: Path):
    (advice,) = elastic_advice(elastic_input(tmp_path, "run3"), [annex(10**9)])
    assert advice.advised == 4


def test_an_annex_that_is_gone_offers_no_workers(tmp_path: Path):
    gone = annex(6, state=AnnexState.GONE)
    (advice,) = elastic_advice(elastic_input(tmp_path, "run3"), [gone])
    assert (advice.advised, advice.annex) == (2, "")


def test_evicted_workers_are_losses(tmp_path: Path):
    dagdir = Dagdir(tmp_path / "evicted", dag("run3"))
    dagdir.write("train.sub", SUBMIT)
    log = Log().submit(100, "run3-train_epoch0", at="10:00:00").execute(100, at="10:30:00")
    log.evict(100, at="11:30:00").execute(100, at="11:40:00").terminate(100, at="12:40:00")
    dagdir.write("metl.log", log.data)
    ledger = dagdir.reader().snapshot_builder().ledger()
    assert loss_rate(ledger.executions) == pytest.approx(1 / 7200)
    assert loss_rate(()) == 0.0


def test_too_few_nodes_for_the_minimum(tmp_path: Path):
    (advice,) = elastic_advice(elastic_input(tmp_path, "run3", bounds="3:4"), [annex(2)])
    assert advice.advised == 0
    assert advice.gain is None
    assert "wait until annex gpu1 expires (4 May 16:00); it needs 3 workers" in advice.reason


def test_samples_are_epochs_and_progress_lines(tmp_path: Path):
    given = elastic_input(tmp_path, "run3")
    (epoch,) = throughput_samples(given, [RUN3])
    assert (epoch.nodes, epoch.rate) == (2, pytest.approx(1 / 3600))
    line = Streamed(0.5, 600, 1200, 0.5, 1200.0, 2, 0.1)
    given = replace(given, streams={(101, 0): line})
    _, running = throughput_samples(given, [RUN3])
    assert (running.nodes, running.rate) == (2, pytest.approx(0.5 / 1200))


@pytest.mark.parametrize("value", ["4", "4:2", "0:4", "a:b", "1:99999"])
def test_what_is_no_range_is_no_elastic_run(tmp_path: Path, value: str):
    given = elastic_input(tmp_path, "run3", bounds=value)
    assert elastic_bounds(given) == {}
    assert elastic_advice(given, [annex(6)]) == ()


def test_vars_alone_say_the_range(tmp_path: Path):
    given = elastic_input(tmp_path, "run3")
    text = dag("run3").replace("train.sub", "absent.sub").replace("nodes_wanted", "NNodes")
    dagdir = Dagdir(tmp_path / "vars", text)
    dagdir.write("metl.log", Log().submit(100, "run3-train_epoch0").data)
    assert elastic_bounds(stats_input(dagdir.reader().snapshot_builder())) == {RUN3: (1, 4)}
    assert elastic_bounds(given) == {RUN3: (1, 4)}
