"""The variables that a DAG sweeps: found by rules in DAGs of any form."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metlmon.authoring.plan import make_plan
from metlmon.authoring.request import EnsembleShape, Request, SweepMode, SweptVariable
from metlmon.authoring.request import SweepRequest as Asked
from metlmon.snapshot.records import DagDescription
from metlmon.stats.shards import find_bags
from metlmon.stats.sweep import SweepVariables, choices, find_sweep, value_order
from tests.conftest import Shared
from tests.support.event_logs import Log, read_ensemble
from tests.support.records import read_dagdir


def sweep_of(dag: str) -> SweepVariables:
    return find_sweep(read_ensemble({"/a/run.dag": dag}, Log()).builder().dag_description().nodes)


def dag_of(runs: list[list[dict[str, str]]]) -> str:
    """A run for each list, an epoch for each of its nodes' variables."""
    lines = []
    for number, epochs in enumerate(runs):
        for epoch, values in enumerate(epochs):
            name = f"r{number}-train_epoch{epoch}"
            lines.append(f"JOB {name} train.sub")
            text = " ".join(f'{key}="{value}"' for key, value in values.items())
            lines += [f"VARS {name} {text}"] if text else []
    return "\n".join(lines) + "\n"


# --- against an independent computation ---------------------------------------------------------

NAMES = ("lr", "Width", "epoch", "ResourceName", "RUN_UUID", "random_seed", "note")
VALUES = ("1", "2", "10", "x")
NODES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES), max_size=4)
RUNS = st.lists(st.lists(NODES, min_size=1, max_size=3), min_size=1, max_size=5)


@given(RUNS)
def test_swept_variables_are_constant_within_runs_only(runs: list[list[dict[str, str]]]) -> None:
    # Nodes with one uuid are one run, whatever their names.
    named = [
        [{k: v for k, v in node.items() if k != "RUN_UUID"} for node in epochs] for epochs in runs
    ]
    expected = []
    for name in ("lr", "Width", "note"):
        per_run = [{node[name] for node in epochs if name in node} for epochs in named]
        if any(len(values) > 1 for values in per_run):
            continue
        if len({tuple(values) for values in per_run}) > 1:
            expected.append(name)
    found = sweep_of(dag_of(named))
    assert sorted(each.name for each in found.variables) == sorted(expected)
    assert all(len(point) == len(expected) for point in found.runs.values())
    for run, epochs in enumerate(named):
        (values,) = (point for key, point in found.runs.items() if key.endswith(f":r{run}"))
        point = dict(zip((v.name for v in found.variables), values, strict=True))
        for name, value in point.items():
            assert {node[name] for node in epochs if name in node} == ({value} - {None})


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=8))
def test_numbers_sort_as_numbers(numbers: list[float]) -> None:
    texts = [repr(number) for number in numbers]
    assert [float(each) for each in sorted(texts, key=value_order)] == sorted(numbers)


def test_text_sorts_after_numbers_and_missing_values_last() -> None:
    values = [None, "b10", "b2", "1e-3", "-5", ".5", "b2x", "0.10", "²"]
    assert sorted(values, key=value_order) == [
        "-5", "1e-3", "0.10", ".5", "b2", "b2x", "b10", "²", None,
    ]  # fmt: skip


# --- rules, one by one ----------------------------------------------------------------------------


def test_own_variables_are_never_swept() -> None:
    own = ("Run", "NODE", "epochs", "RANDOM_SEED", "resourcename", "Continue_From_Checkpoint")
    runs = [[{name: str(number) for name in own} | {"lr": f"0.{number}"}] for number in (1, 2)]
    assert [each.name for each in sweep_of(dag_of(runs)).variables] == ["lr"]


def test_identifiers_of_runs_are_not_swept() -> None:
    runs = [
        [{"run_uuid": uuid, "out": f"results/{uuid}", "called": f"r{number}", "lr": f"{number}"}]
        for number, uuid in enumerate(("aa11", "bb22"))
    ]
    assert [each.name for each in sweep_of(dag_of(runs)).variables] == ["lr"]


def test_variables_that_vary_together_are_one_axis() -> None:
    """A zip: ten points, not a hundred of which ninety are empty."""
    runs = [[{"a": str(n / 10), "b": str(10 * n)}] for n in range(1, 11)]
    found = sweep_of(dag_of(runs))
    (axis,) = found.axes
    assert axis.names == ("a", "b")
    assert axis.points[0] == ("0.1", "10")
    assert axis.points[-1] == ("1.0", "100")
    first, second = choices(found)
    assert first[1] is None
    assert [each.names for each in second if each] == [("a",), ("b",)]


def test_evaluation_nodes_are_ignored() -> None:
    dag = dag_of([[{"lr": "1"}], [{"lr": "2"}]])
    dag += 'JOB r0-eval_epoch1 e.sub\nVARS r0-eval_epoch1 lr="7" split="a"\n'
    assert [each.values for each in sweep_of(dag).variables] == [("1", "2")]


def test_ordinary_ensemble_has_no_sweep(shared: Shared) -> None:
    builder = read_dagdir(shared("examples/metl-aws"))
    assert find_sweep(builder.dag_description().nodes).axes == ()


# --- ensembles that metlmon writes ------------------------------------------------------------


A, B = ("0.01", "0.02", "0.1"), ("10", "9", "100")


def written(request: Request) -> DagDescription:
    """The nodes written for a request, as they are read back."""
    request.directory.mkdir(exist_ok=True)
    for file in make_plan(request).files:
        place = request.directory / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.data)
    return read_dagdir(request.directory).dag_description()


@pytest.fixture(name="template")
def _template(tmp_path: Path) -> str:
    path = tmp_path / "mine.sub"
    path.write_text("executable = t.sh\narguments = $(a) $(b) $(shard)\nlog = x.log\nqueue\n")
    return str(path)


@pytest.mark.parametrize("how", list(SweepMode))
def test_written_sweep_is_found(how: SweepMode, template: str, tmp_path: Path) -> None:
    variables = (SweptVariable("a", A, "here:1"), SweptVariable("b", B, "here:2"))
    found = find_sweep(
        written(
            Request(
                template,
                tmp_path / "dag",
                epochs=2,
                shape=EnsembleShape.SWEEP,
                sweep=Asked("run", variables, how),
            )
        ).nodes
    )
    assert [each.name for each in found.variables] == ["a", "b"]
    pairs = product(A, B) if how is SweepMode.PRODUCT else zip(A, B, strict=True)
    assert sorted(found.runs.values()) == sorted(pairs)
    assert found.variables[1].values == ("9", "10", "100")
    assert len(found.axes) == (2 if how is SweepMode.PRODUCT else 1)


def test_written_bag_is_found(template: str, tmp_path: Path) -> None:
    result = written(
        Request(template, tmp_path / "dag", name="infer", shape=EnsembleShape.BAG, shards=12)
    )
    (found,) = find_bags(result.nodes)
    assert (found.name_pattern, found.dag) == ("shard*", "infer.dag")
    assert [each.node.vars["shard"] for each in found.nodes] == [str(n) for n in range(12)]
    assert find_sweep(result.nodes).axes == ()
