"""``metlmon timeline``: one JSON object that agrees with ``jobs``, and a picture for people."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.commands import Captured, json_output, text_output
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
TRAINER = FIXTURES / "trainer"

output_of = partial(json_output, "")


def printed(capsys: Captured, *arguments: str) -> list[str]:
    return text_output("timeline", capsys, *arguments).splitlines()


@pytest.mark.parametrize("name", ["trainer", "rescue", "metl-aws"])
def test_the_area_under_the_steps_is_what_jobs_executed(
    name: str, capsys: Captured, shared: Callable[[str], Path]
) -> None:
    dagdir = str(shared("examples/metl-aws") if name == "metl-aws" else FIXTURES / name)
    timeline, jobs = output_of(capsys, "timeline", dagdir), output_of(capsys, "jobs", dagdir)
    executions = [e for job in jobs["jobs"] for e in job["executions"]]
    steps = timeline["steps"]
    edges = [datetime.fromisoformat(step["time"]) for step in steps]
    edges.append(datetime.fromisoformat(timeline["last"]))
    lasted = [(b - a).total_seconds() for a, b in pairwise(edges)]
    area = sum(step["jobs"] * s for step, s in zip(steps, lasted, strict=True))
    worth = sum(step["gpus"] * s for step, s in zip(steps, lasted, strict=True))
    assert area == sum(e["seconds"] for e in executions)
    assert worth == sum(e["seconds"] * (e["gpus"] or 0) for e in executions)
    assert timeline["job_seconds"] == area
    assert timeline["gpu_seconds"] == worth
    assert timeline["max_jobs"] == max(step["jobs"] for step in steps)
    assert timeline["mean_gpus"] == pytest.approx(worth / timeline["seconds"])
    mine = [e for run in timeline["runs"] for e in run["executions"]]
    assert sorted((e["job"], e["start"], e["seconds"], e["outcome"]) for e in mine) == sorted(
        (f"{job['cluster']}.{job['proc']}", e["start"], e["seconds"], e["outcome"])
        for job in jobs["jobs"]
        for e in job["executions"]
    )


def test_spans_follow_each_other_and_sum_to_each_jobs_life(capsys: Captured) -> None:
    timeline, jobs = (
        output_of(capsys, "timeline", str(TRAINER)),
        output_of(capsys, "jobs", str(TRAINER)),
    )
    spent: dict[str, float] = {}
    for run in timeline["runs"]:
        for span in run["spans"]:
            spent[span["job"]] = spent.get(span["job"], 0) + span["seconds"]
    for job in jobs["jobs"]:
        submitted = datetime.fromisoformat(job["submitted"])
        ended = datetime.fromisoformat(job["since"])
        life = (ended - submitted).total_seconds()
        name = f"{job['cluster']}.{job['proc']}"
        assert spent.get(name, 0) == life, name


def test_what_is_not_over_has_no_end(tmp_path: Path, capsys: Captured) -> None:
    dagdir = Dagdir(tmp_path / "ensemble")
    log = Log().submit(77, NODE, at="10:00:00").execute(77, gpus=2, at="10:05:00")
    log.submit(78, "run0-train_epoch1", at="10:15:00")
    dagdir.write("metl.log", log.data)
    value = output_of(capsys, "timeline", str(dagdir.path), "--no-live")
    [run] = value["runs"]
    assert [(s["state"], s["end"] is None, s["seconds"]) for s in run["spans"]] == [
        ("idle", False, 300),
        ("running", True, 600),
        ("idle", True, 0),
    ]
    assert [(s["jobs"], s["gpus"]) for s in value["steps"]] == [(1, 2)]
    assert value["stalls"] == []
    assert value["seconds"] == 900


def test_it_fits_the_terminal(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = printed(capsys, str(TRAINER), "--ascii")
        lanes = [line for line in lines if line.startswith("run")]
        assert len(lanes) == 6
        assert all(len(line) <= columns for line in lanes)
        assert max(map(len, lanes)) > columns - 12
        assert all(line.isascii() for line in lines)
    assert "idle 5 times, 8s in total" in "\n".join(lines)


def test_it_says_what_stalled(capsys: Captured, shared: Callable[[str], Path]) -> None:
    text = "\n".join(printed(capsys, str(shared("examples/metl-aws")), "--ascii"))
    assert "idle 12 times, 3d13h in total; longest:" in text
    assert "2d16h  7 Nov 16:02 > 10 Nov 08:14" in text
    assert "GPUs at a time 10 max, 4.44 mean" in text


def test_before_anything_there_is_no_time_to_show(capsys: Captured) -> None:
    lines = printed(capsys, str(TRAINER), "--as-of", "2020-01-01")
    assert lines == ["No job has an event yet: there is no time to show."]
    value = output_of(capsys, "timeline", str(TRAINER), "--as-of", "2020-01-01")
    assert value["first"] is None
    assert value["steps"] == []


def test_as_of_cuts_it_off(capsys: Captured) -> None:
    value = output_of(capsys, "timeline", str(TRAINER), "--as-of", "2026-11-21T14:21:50")
    assert value["last"] == "2026-11-21T14:21:50"
    assert value["seconds"] == 20
    ends = [s["end"] for run in value["runs"] for s in run["spans"] if s["end"]]
    assert max(ends) <= "2026-11-21T14:21:50"
