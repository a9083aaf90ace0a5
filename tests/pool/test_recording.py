"""The recording of the bundled trainer, which needs no pool: HTCondor's word was kept with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import record
import truth

from metlmon.cli.main import main

RECORDING = Path(__file__).resolve().parents[2] / "fixtures" / "trainer"


def output_of(capsys: pytest.CaptureFixture[str], command: str) -> dict[str, Any]:
    assert main([command, "--json", str(RECORDING)]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_metlmons_last_word_is_htcondors(capsys: pytest.CaptureFixture[str]) -> None:
    expected = truth.read(RECORDING / "truth.json")
    jobs = [job for job in output_of(capsys, "jobs")["jobs"] if job["dag"] is not None]
    assert truth.differences(expected, output_of(capsys, "status"), jobs) == []


def test_dagmans_files_say_what_was_kept() -> None:
    assert truth.totals(RECORDING) == truth.read(RECORDING / "truth.json").totals


def test_it_has_all_the_trouble_that_was_made(capsys: pytest.CaptureFixture[str]) -> None:
    expected = truth.read(RECORDING / "truth.json")
    assert {job.state for job in expected.jobs} == {"completed", "failed", "removed"}
    outcomes = {
        execution["outcome"]
        for job in output_of(capsys, "jobs")["jobs"]
        for execution in job["executions"]
    }
    assert {"good", "failed", "evicted"} <= outcomes
    assert any(job.node in record.EVICTED and len(job.executions) == 2 for job in expected.jobs)
    assert {each.site for job in expected.jobs for each in job.executions} == {
        "Expanse-GPU",
        "Delta-GPU",
        "CHTC-Spark-CE1",
        "PDX-Coeus-CE1",
    }
    (dag,) = output_of(capsys, "status")["dags"]
    assert (dag["state"], dag["rescue"], dag["dagmans"]) == ("done", 1, 2)


def test_nothing_in_it_says_where_it_was_recorded() -> None:
    for path in RECORDING.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            for forbidden in (b"/var/lib/metlmon", b"/root/", b"/tmp/", b"tests-"):
                assert forbidden not in data, f"{path.name} has {forbidden!r}"
