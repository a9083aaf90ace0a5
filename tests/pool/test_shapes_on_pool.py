"""Every shape that ``metlmon new`` writes, run to its end on the pool under a session: its numbers
agree with DAGMan's, and its files are complete."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import recount
import truth
from pools import Pool, until
from watching import Watched, without_figures

from tests.pool import new_ensemble
from tests.pool.new_ensemble import NewEnsemble


@dataclass(frozen=True, slots=True)
class Shape:
    """A request, and its expected result, counted by hand. ``nodes``: of the DAG file itself,
    ``inner``: of its sub-DAGs. ``runless``: it has jobs of no run. ``files``: those beside
    ``source``. ``idle``: swept names that no template uses."""

    source: str
    nodes: int
    jobs: int
    runs: int
    epochs: int
    inner: int = 0
    runless: bool = False
    suffix: str = ".toml"
    files: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()


EVERY = "memory = 128\n"
"""Small, so that there is room for all at once."""

REPORTED = """\
PARENT {run}-train_epoch0 CHILD {run}-train_epoch1
PARENT {run}-train_epoch0 CHILD {run}-eval_epoch1
PARENT {run}-train_epoch1 CHILD {run}-train_epoch2
PARENT {run}-train_epoch1 CHILD {run}-eval_epoch2
VARS {run}-train_epoch0 epoch=1 a={a} b={b}
VARS {run}-train_epoch1 epoch=2 a={a} b={b}
VARS {run}-train_epoch2 epoch=3 a={a} b={b}
"""
"""train.subdag, as the report has it."""

INIT = "JOB init init.sub NOOP\n"
"""The report leaves open what init is."""


def workflow(how: str = "", a: str = "0.01 to 0.1 by 0.01", b: str = "0.5 to 5 by 0.5") -> str:
    """workflow.dag as in the report, or with other values."""
    gen = f"GEN SUBDAG train_flow train.subdag a, b from{how and ' ' + how}"
    return f"{gen}\n  {a}\n  {b}\nPARENT init CHILD train_flow\n{INIT}"


SHAPES: Mapping[str, Shape] = {
    "chain": Shape(EVERY + "runs = 2\nepochs = 2\n", 4, 4, 2, 4),
    "evaluated": Shape(EVERY + "runs = 2\nepochs = 2\n[evaluation]\n", 8, 8, 2, 4),
    "sweep": Shape(
        EVERY + 'epochs = 2\n[sweep]\nhow = "product"\nlearning_rate = "0.1 to 0.2 by 0.1"\n'
        "batch_size = [16, 32]\n",
        *(8, 8, 4, 8),
    ),
    "reported": Shape(
        workflow(a="0.01 to 0.02 by 0.01", b="0.5 to 1 by 0.5"),
        *(11, 10, 2, 6),
        suffix=".dag",
        files={"train.subdag": REPORTED},
        options=("--memory", "128"),
        idle=("a", "b"),
    ),
    "stages": Shape(
        EVERY + 'runs = 2\n[[stage]]\nname = "pretrain"\nepochs = 2\n'
        '[[stage]]\nname = "finetune"\nepochs = 1\n',
        *(6, 6, 2, 6),
    ),
    "bag": Shape(
        EVERY + 'gpus = 0\n[bag]\nshards = 4\ngather = "gather"\n', *(5, 5, 0, 0), runless=True
    ),
    "multi-node": Shape(
        EVERY + "runs = 1\nepochs = 2\n[values]\nlinger = 15\n[multi-node]\nmachines = 2\n",
        *(3, 5, 1, 2),
        runless=True,
    ),
    "subdags": Shape(EVERY + "runs = 2\nepochs = 2\nsubdags = true\n", 2, 4, 2, 4, inner=4),
}


@dataclass(frozen=True, slots=True)
class ShapeRun:
    """A finished shape, ``watched`` from its beginning."""

    shape: Shape
    written: NewEnsemble
    watched: Watched
    checked: dict[str, Any]
    _ended: list[dict[str, Any]] = field(default_factory=list)

    def end(self) -> dict[str, Any]:
        """The final status, read once."""
        if not self._ended:
            self._ended.append(self.written.end())
        return self._ended[0]


@pytest.fixture(scope="module")
def submitted(pool: Pool) -> Iterator[dict[str, ShapeRun]]:
    """All shapes, submitted together as their author would."""
    found: dict[str, ShapeRun] = {}
    try:
        for name, shape in SHAPES.items():
            made = new_ensemble.write(
                pool, name, shape.source, *shape.options, files=shape.files, suffix=shape.suffix
            )
            # As written, before DAGMan has a file.
            argv = ["metlmon", "check", "--json"]
            checked = json.loads(pool.run(argv, made.directory, expect=None).stdout)
            pool.run(["condor_submit_dag", "-no_submit", made.dag.name], made.directory)
            watched = Watched.begin(made.directory, shape.inner, shape.runless)
            found[name] = ShapeRun(shape, made, watched, checked)
            pool.run(["condor_submit", f"{made.dag.name}.condor.sub"], made.directory)
        yield found
    finally:
        for each in found.values():
            each.watched.session.stop()


@pytest.fixture(params=SHAPES)
def ran(request: pytest.FixtureRequest, submitted: dict[str, ShapeRun]) -> ShapeRun:
    return submitted[request.param]


def test_shape_is_written_without_findings(ran: ShapeRun) -> None:
    assert ran.checked["dags"] == [ran.written.dag.name]
    assert [each for each in ran.checked["findings"] if each["severity"] != "note"] == []
    result = ran.written.report_of
    complaints = [each["text"].split(": ")[1] for each in result["problems"]]
    assert complaints == [f"{name} has no effect on the jobs" for name in ran.shape.idle]
    counts = (result["nodes"], result["jobs"], len(result["runs"]))
    # It counts nodes with a job; sub-DAG nodes have none.
    assert counts == (ran.shape.inner or ran.shape.nodes, ran.shape.jobs, ran.shape.runs)


def test_numbers_agree_with_dagman(ran: ShapeRun) -> None:
    status = ran.end()
    expected = ran.written.as_htcondor_says(status)
    assert expected.totals == truth.Totals(ran.shape.nodes, ran.shape.nodes, 0, 0)
    dagmans = truth.dagmans(ran.written.pool, ran.written.directory)
    assert len([job for job in expected.jobs if job.cluster not in dagmans]) == ran.shape.jobs
    assert {dag["state"] for dag in status["dags"]} == {"done"}
    states = {name: count for name, count in status["node_states"].items() if count}
    assert states == {"completed": ran.shape.nodes + ran.shape.inner}
    epochs = {name: count for name, count in status["epoch_states"].items() if count}
    assert sum(epochs.values()) == epochs.get("completed", 0) == ran.shape.epochs
    assert [run["state"] for run in status["runs"]] == ["completed"] * ran.shape.runs
    assert sum(run["epochs_done"] for run in status["runs"]) == ran.shape.epochs
    assert sum(run["epochs_total"] for run in status["runs"]) == ran.shape.epochs


def test_hours_agree_with_the_log(ran: ShapeRun) -> None:
    status = ran.end()
    dagmans = truth.dagmans(ran.written.pool, ran.written.directory)
    jobs = truth.jobs_of(ran.written.pool, ran.written.directory)
    jobs = [job for job in jobs if job["cluster"] not in dagmans]
    assert recount.differences(ran.written.directory / "metl.log", status, jobs) == []


def test_watched_session_agrees_with_a_later_reading(ran: ShapeRun) -> None:
    status = ran.end()
    assert ran.watched.ended.wait(new_ensemble.END_SECONDS), "it sees the end"
    assert ran.watched.wrong == []
    assert ran.watched.pictures > 1

    def same() -> bool:
        seen = ran.watched.last()
        same = all(seen[key] == status[key] for key in ("dags", "node_states", "hours"))
        return same and without_figures(seen) == without_figures(status)

    until(same, lambda: f"{ran.watched.last()['node_states']} is not {status['node_states']}")


def test_metrics_and_checkpoints_are_written(ran: ShapeRun) -> None:
    status = ran.end()
    for run in status["runs"]:
        metrics = ran.written.directory / "output/training_logs" / run["uuid"]
        assert sorted(metrics.glob("version_*/metrics.csv")), run["run"]
        assert (metrics / "checkpoints/last.ckpt").exists()


def test_gathered_predictions_have_all_shards(submitted: dict[str, ShapeRun]) -> None:
    bag = submitted["bag"].written
    submitted["bag"].end()
    shards = sorted((bag.directory / "predictions").glob("shard_*.tsv"))
    assert len(shards) == 4
    each = [shard.read_text().splitlines()[1:] for shard in shards]
    gathered = (bag.directory / "gathered" / "predictions.tsv").read_text().splitlines()[1:]
    assert sorted(gathered) == sorted(line for lines in each for line in lines)


def test_reported_example_makes_ten_or_a_hundred_runs(pool: Pool) -> None:
    """Each run trains three epochs and evaluates two; ``init`` precedes all."""
    for how, runs in (("", 10), ("zip", 10), ("product", 100)):
        files = {"train.subdag": REPORTED}
        name = f"example-{how or 'unsaid'}"
        options = ("--dry-run",)
        made = new_ensemble.write(pool, name, workflow(how), *options, files=files, suffix=".dag")
        result = made.report_of
        assert (len(result["runs"]), result["nodes"], result["jobs"]) == (
            runs,
            5 * runs + 1,
            5 * runs,
        )
        assert not made.directory.exists()


def test_condor_dag_checker_accepts_all_shapes(pool: Pool, submitted: dict[str, ShapeRun]) -> None:
    if pool.run(["sh", "-c", "command -v condor_dag_checker"], expect=None).returncode:
        pytest.skip("no condor_dag_checker is here: it came with HTCondor 24, the pool has 23.9")
    for each in submitted.values():
        argv = ["condor_dag_checker", "-CheckJDL", "-CheckSubDags", each.written.dag.name]
        pool.run(argv, each.written.directory)
