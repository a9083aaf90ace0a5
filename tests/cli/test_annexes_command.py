"""``metlmon annexes`` for scripts and for people."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from metlmon.cli.commands import advise as command
from metlmon.live.feed import StatsInput
from metlmon.model.queue import QueueJob
from metlmon.placement.types import AnnexReport
from metlmon.pool.annex_ads import (
    AnnexAd,
    AnnexAnswer,
    AnnexCollector,
    AnnexGeneration,
    AnnexSlotType,
)
from tests.support.commands import Captured, json_output, text_output
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Log, moment

THEN = ("--as-of", "2026-05-04T12:30:00")


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Path:
    """Two epochs in an annex that expired at noon, and one at a site that is still there."""
    dagdir = Dagdir(tmp_path / "ensemble")
    nodes = [f"run{n}-train_epoch0" for n in range(3)]
    dagdir.write("run.dag", "".join(f"JOB {node} t.sub\n" for node in nodes))
    log = Log()
    for n, node in enumerate(nodes):
        annex = "gpu-annex" if n < 2 else None
        log.submit(77 + n, node, at=f"10:00:0{n}")
        log.execute(77 + n, at=f"10:10:0{n}", site="Delta-GPU" if annex else "RAILS", annex=annex)
    for n in range(2):
        log.evict(77 + n, 1005, "Unspecified job interruption", at=f"12:00:0{n}")
    dagdir.write("metl.log", log.data)
    return dagdir.path


def test_annexes_from_logs(capsys: Captured, dagdir: Path) -> None:
    report = json_output("annexes", capsys, dagdir, *THEN)
    (row,) = report["annexes"]
    assert (row["name"], row["site"], row["state"]) == ("gpu-annex", "Delta-GPU", "gone")
    assert (row["inferred"], row["gpus"], row["alive_until"]) == (True, None, None)
    assert row["expiries"] == ["2026-05-04T12:00:00"]
    assert [(site["site"], site["annex"], site["running"]) for site in report["sites"]] == [
        ("Delta-GPU", "gpu-annex", 0),
        ("RAILS", "", 1),
    ]
    assert (report["asked"], report["command"], report["annex_warnings"]) == (False, "", [])
    out = text_output("annexes", capsys, dagdir, *THEN)
    assert out.startswith("1 annex, inferred from the logs\n")
    assert "gpu-annex inferred" in out
    assert "4 May 12:00" in out


def test_causes_of_all_commands_agree(capsys: Captured, dagdir: Path) -> None:
    cause = "annex expired (inferred)"
    assert [c["cause"] for c in json_output("sites", capsys, dagdir, *THEN)["causes"]] == [cause]
    status = json_output("status", capsys, dagdir, *THEN)
    assert [c["cause"] for c in status["causes"]] == [cause]
    kinds = [entry["kind"] for entry in status["health"]]
    assert kinds == [e["kind"] for e in json_output("health", capsys, dagdir, *THEN)["entries"]]
    assert "annex-expired" in kinds
    assert cause in text_output("report", capsys, dagdir, *THEN)


def test_empty_table_explains_annexes(capsys: Captured, tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path / "ensemble")
    out = text_output("annexes", capsys, dagdir.path, *THEN)
    assert out.startswith("no annex\n")
    assert "htcondor annex create NAME requests one" in out


def test_answers_of_schedd_and_collector_are_shown(
    capsys: Captured, dagdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    slot = AnnexAd(
        annex="gpu-annex",
        slot="slot1",
        node="n1",
        slot_type=AnnexSlotType.PARTITIONABLE,
        gpus=4,
        site="Delta-GPU",
        started_at=now - 60,
        stops_at=now + 3600,
    )
    answer = AnnexAnswer(
        ads=(slot,),
        jobs=(QueueJob(77, 0, 1, annex="gpu-annex"),),
        collectors=(AnnexCollector(address="ap40:9618", answered_at=now),),
        queried_at=now,
        generation=AnnexGeneration.NEW,
    )
    monkeypatch.setattr(command, "query_annexes", lambda reader: answer)
    report = json_output("annexes", capsys, dagdir)
    (row,) = report["annexes"]
    assert (row["name"], row["state"], row["inferred"]) == ("gpu-annex", "up", False)
    assert (row["gpus"], row["gpus_busy"], row["jobs_idle"], row["nodes"]) == (4, 0, 1, 1)
    assert 3590 < row["seconds_left"] <= 3600
    assert report["command"] == "htcondor annex create gpu-annex"
    there = "sbatch --nodes 1 --time 61 --gpus-per-node 4 hpc.slurm"
    assert (row["site_command"], report["site_command"]) == (there, there)
    out = text_output("annexes", capsys, dagdir)
    assert out.startswith("1 annex, 1 up\n")
    assert "0/4" in out
    assert f"another one: htcondor annex create gpu-annex\nthen at the site: {there}\n" in out


def test_known_end_makes_the_cause_certain(
    capsys: Captured, dagdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noon = moment("12:00:00").timestamp()
    whole = AnnexSlotType.PARTITIONABLE
    slot = AnnexAd(annex="GPU-annex", slot="s1", node="n1", slot_type=whole, stops_at=noon)
    answer = AnnexAnswer(ads=(slot,), queried_at=noon, generation=AnnexGeneration.NEW)
    monkeypatch.setattr(command, "query_annexes", lambda reader: answer)
    ledgers = []
    made = command.make_annexes

    def remember(stats: StatsInput, *more: Any) -> AnnexReport:
        ledgers.append(stats.ledger)
        return made(stats, *more)

    monkeypatch.setattr(command, "make_annexes", remember)
    text_output("annexes", capsys, dagdir)
    causes = [e.cause for e in ledgers[0].executions if e.cause is not None]
    assert causes == ["annex expired"] * 2
