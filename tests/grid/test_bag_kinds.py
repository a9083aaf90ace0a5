"""Bags that are not of one job a shard, each with its own name: what is said of them, against what
the lines that are written here say."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest
from dagdirs import DagdirFeed
from eyes import MIDDLE, Show

from metlmon.cli.main import main
from metlmon.ensemble.described import described
from metlmon.live.reader import Reader
from metlmon.live.settings import load_settings
from metlmon.stats.bag import Bag, bags
from metlmon.stats.study import Basis
from tests.ensemble.written import Log, Out, moment

SUBMIT = "executable = infer.sh\nlog = bag.log\nqueue\n"


def bags_of(path: Path) -> tuple[Bag, ...]:
    reader = Reader(path, load_settings(path))
    reader.open()
    reader.read_all()
    painter = reader.painter()
    return bags(
        Basis(
            painter.status(),
            painter.ledger(),
            painter.ensemble.settings,
            described=lambda: described(painter),
        )
    )


def shards(number: int, more: str = "") -> str:
    return "".join(f"JOB shard{n:03} infer.sub\n" for n in range(number)) + more


def write(path: Path, dags: dict[str, str], log: Log, outs: dict[str, Out]) -> None:
    """DAG files by name, the one event log, and DAGMan's own words by DAG file."""
    for name, text in dags.items():
        (path / name).write_text(text)
    (path / "infer.sub").write_text(SUBMIT)
    (path / "bag.log").write_bytes(log.data)
    for name, out in outs.items():
        (path / f"{name}.dagman.out").write_bytes(out.data)


def at(minute: float) -> str:
    """So many minutes after ten."""
    return str(datetime.fromtimestamp(moment("10:00:00").timestamp() + 60 * minute))


# --- two sub-DAGs with the same names -----------------------------------------------------------


@pytest.fixture(name="same_names")
def _same_names(tmp_path: Path) -> Path:
    """Both sub-DAGs call their shards shard000 to shard005. Those of x are over after ten minutes,
    each on one GPU; of those of y two are over after thirty, four run on."""
    log, outs = Log("bag.log"), {name: Out().start(at(0)) for name in ("top.dag", "x.dag", "y.dag")}
    for first, name, minute in ((100, "x.dag", 1), (200, "y.dag", 2)):
        for n in range(6):
            log.submit(first + n, f"shard{n:03}", at=at(minute))
            outs[name].submitted(f"shard{n:03}", first + n, at(minute))
    for n in range(6):
        log.execute(100 + n, at=at(5), site="delta")
    for n in range(6):
        log.execute(200 + n, at=at(6), site="expanse")
    for n in range(6):
        log.terminate(100 + n, at=at(15))
    for n in range(2):
        log.terminate(200 + n, at=at(36))
    top = "SUBDAG EXTERNAL X x.dag\nSUBDAG EXTERNAL Y y.dag\n"
    write(tmp_path, {"top.dag": top, "x.dag": shards(6), "y.dag": shards(6)}, log, outs)
    return tmp_path


def test_each_sub_dag_has_its_own_bag(same_names: Path) -> None:
    one, other = bags_of(same_names)
    assert (one.in_dag, other.in_dag) == ("x.dag", "y.dag")
    assert (one.dag, other.dag) == ("top.dag", "top.dag")
    assert one.key != other.key
    assert [each.job for each in one.shards] == [(100 + n, 0) for n in range(6)]
    assert [each.job for each in other.shards] == [(200 + n, 0) for n in range(6)]
    assert {each.site for each in one.shards} == {"delta"}
    assert (one.executions, other.executions) == (6, 6)
    assert (one.done, other.done) == (6, 2)
    assert one.ended == moment("10:15:00")
    assert one.gpu_hours.total == pytest.approx(6 * 10 / 60)
    assert (other.gpu_hours.good, other.gpu_hours.in_flight) == pytest.approx((1.0, 2.0))
    assert other.times is not None
    assert (other.times.median, other.times.shards) == (1800.0, 2)


def test_json_and_text_say_which_sub_dag(
    same_names: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["shards", str(same_names), "--no-live", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["bags"]
    assert [(each["dag"], each["in_dag"]) for each in told] == [
        ("top.dag", "x.dag"),
        ("top.dag", "y.dag"),
    ]
    assert main(["shards", str(same_names), "--no-live"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "infer.sub" in line] == [
        "x.dag, infer.sub",
        "y.dag, infer.sub",
    ]


async def test_tab_goes_from_one_sub_dags_bag_to_the_others(show: Show, same_names: Path) -> None:
    async with show(DagdirFeed(same_names), size=MIDDLE) as seen:
        await seen.press("B")
        # The first that is not over.
        assert "y.dag" in seen.text
        assert "bag 2 of 2" in seen.text
        await seen.press("tab")
        assert "x.dag" in seen.text
        assert "bag 1 of 2" in seen.text
        await seen.press("tab")
        assert "bag 2 of 2" in seen.text
