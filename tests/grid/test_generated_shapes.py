"""What metlmon writes itself is found again: a sweep's variables, and a bag's shards."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from metlmon.authoring.plan import make_plan
from metlmon.authoring.request import EnsembleShape, Request, SweepMode, SweptVariable
from metlmon.authoring.request import SweepRequest as Asked
from metlmon.snapshot.builder import describe_dags
from metlmon.snapshot.types import DagDescription
from metlmon.stats.bags import find_bags
from metlmon.stats.sweep import find_sweep
from tests.support.records import read_dagdir

A, B = ("0.01", "0.02", "0.1"), ("10", "9", "100")


def written(request: Request) -> DagDescription:
    """The nodes of what is written for a request, as they are read back."""
    request.directory.mkdir(exist_ok=True)
    for file in make_plan(request).files:
        place = request.directory / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.data)
    return describe_dags(read_dagdir(request.directory))


@pytest.fixture(name="template")
def _template(tmp_path: Path) -> str:
    path = tmp_path / "mine.sub"
    path.write_text("executable = t.sh\narguments = $(a) $(b) $(shard)\nlog = x.log\nqueue\n")
    return str(path)


@pytest.mark.parametrize("how", list(SweepMode))
def test_a_sweep_is_found_again(how: SweepMode, template: str, tmp_path: Path) -> None:
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


def test_a_bag_is_found_again(template: str, tmp_path: Path) -> None:
    result = written(
        Request(template, tmp_path / "dag", name="infer", shape=EnsembleShape.BAG, shards=12)
    )
    (found,) = find_bags(result.nodes)
    assert (found.name_pattern, found.dag) == ("shard*", "infer.dag")
    assert [each.node.vars["shard"] for each in found.nodes] == [str(n) for n in range(12)]
    assert find_sweep(result.nodes).axes == ()


def test_a_chain_is_neither(template: str, tmp_path: Path) -> None:
    result = written(Request(template, tmp_path / "dag", runs=6, epochs=5))
    assert find_sweep(result.nodes).axes == ()
    assert find_bags(result.nodes) == ()
