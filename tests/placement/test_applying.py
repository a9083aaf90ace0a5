"""Applying plans by a command: real files, a schedd in memory, and undo."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from functools import partial
from io import StringIO
from itertools import count
from pathlib import Path
from time import time
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from metlmon.cli import Exit
from metlmon.cli.commands import advise, status
from metlmon.placement.application import perform_application
from metlmon.pool import client
from metlmon.pool.annex_ads import AnnexAnswer, FreeGpus
from metlmon.pool.gate_requests import ONE_SITE
from tests.support.advised_dagdir import BROKEN, FAST, RUNS, SLOW, advised
from tests.support.commands import Captured, json_output, run_command, text_output, usage_error
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Log, Out
from tests.support.gate_rows import queued
from tests.support.queue_rows import Schedd, dagman

BOTH = f"{FAST}|{SLOW}"
"""Where run 2 may go, the one with the most epochs left: its list, as a request has it."""
GPU = "NVIDIA L40S"
"""The model at all sites."""


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Dagdir:
    return advised(tmp_path / "ensemble")


@pytest.fixture(name="schedd")
def _schedd(dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch) -> Schedd:
    """Runs 0 and 1 have a running job, run 2 an idle one."""
    place = {"site": "any", "by_site_list": True, "directory": dagdir.path}
    schedd = Schedd(
        queued(101, "run0-train_epoch2", **place),
        queued(102, "run1-train_epoch2", **place),
        queued(103, "run2-train_epoch2", status=1, **place),
        dagman(directory=dagdir.path),
    )
    monkeypatch.setattr(client, "PoolConnection", lambda: schedd)
    monkeypatch.setattr(advise, "query_annexes", lambda reader: AnnexAnswer())
    return schedd


@pytest.fixture(name="yes")
def _yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advise, "confirmed", lambda: True)


run = partial(run_command, "advise")


class Terminal(StringIO):
    """A terminal with typed input and recorded output."""

    def isatty(self) -> bool:
        return True


def targets(dagdir: Dagdir) -> dict[str, str]:
    """The sites that the gate sends each run to."""
    files = {f"run{at}": dagdir.path / f"gate/ens/{uuid}.target" for at, uuid in enumerate(RUNS)}
    return {name: file.read_text() for name, file in files.items() if file.exists()}


def log_lines(dagdir: Dagdir) -> list[dict[str, Any]]:
    path = dagdir.path / "gate" / "ens" / "advice.log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# --- send ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("schedd", "yes")
def test_send_writes_requests_and_a_log_with_reasons(dagdir: Dagdir, capsys: Captured) -> None:
    code, out, err = run(capsys, dagdir.path, "--apply", "send")
    assert code == Exit.OK
    assert "send the next epochs of 3 runs; running jobs are not touched" in err
    assert f"run0, run1 → {FAST}" in err
    expected = {"run0": f"{FAST}\n", "run1": f"{FAST}\n", "run2": f"{BOTH}\n"}
    assert targets(dagdir) == expected
    (record,) = log_lines(dagdir)
    assert (record["way"], record["undo"]) == ("send", f"metlmon advise {dagdir.path} --undo")
    changes = {change["run"]: change for change in record["changes"]}
    assert {name: f"{each['after']}\n" for name, each in changes.items()} == expected
    assert {each["before"] for each in changes.values()} == {None}
    assert all(FAST in each["reason"] for each in changes.values())
    assert not any(BROKEN in text for text in targets(dagdir).values())
    assert "run2  done: gate/ens" in out


@pytest.mark.usefixtures("schedd", "yes")
def test_untried_sites_are_added_while_the_list_has_room(
    dagdir: Dagdir, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = tuple(FreeGpus(f"Far-Away-Site-{number}", GPU, 4, 0.0) for number in range(10, 40))
    answer = AnnexAnswer(free_gpus=free)
    monkeypatch.setattr(advise, "_annex_answer", lambda reader: answer)
    code, _, err = run(capsys, dagdir.path, "--apply", "send")
    assert code == Exit.OK, err
    sites = targets(dagdir)["run2"].strip()
    assert 180 < len(sites) <= 200
    assert {FAST, "Far-Away-Site-10"} <= set(sites.split("|"))


@pytest.mark.usefixtures("schedd")
def test_nothing_is_written_without_confirmation(
    dagdir: Dagdir, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, printed = Terminal("n\n"), Terminal()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", asked)
        patch.setattr(sys, "stderr", printed)
        assert run(capsys, dagdir.path, "--apply", "send")[0] == Exit.REFUSED
    assert printed.getvalue().endswith("go on? [y/N] metlmon: nothing was done\n")
    assert not (dagdir.path / "gate").exists()
    for arguments in (("--apply", "send", "--yes"), ("--every", "12h", "--apply", "send")):
        assert "--yes" in usage_error("advise", capsys, dagdir.path, *arguments)
    assert not (dagdir.path / "gate").exists()


@pytest.mark.usefixtures("schedd", "yes")
def test_interrupt_waits_until_changes_are_logged(
    dagdir: Dagdir, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(application: Any, client: Any, on_result: Callable[..., None]) -> None:
        results: list[Any] = []
        perform_application(application, client, results.append)
        signal.raise_signal(signal.SIGINT)
        for result in results:
            on_result(result)

    monkeypatch.setattr(advise, "perform_application", interrupted)
    assert run(capsys, dagdir.path, "--apply", "send")[0] == Exit.INTERRUPTED
    (record,) = log_lines(dagdir)
    assert {each["run"] for each in record["changes"]} == targets(dagdir).keys()


@pytest.mark.usefixtures("schedd", "yes")
def test_applying_a_plan_twice_changes_nothing(dagdir: Dagdir, capsys: Captured) -> None:
    run(capsys, dagdir.path, "--apply", "send")
    code, _, err = run(capsys, dagdir.path, "--apply", "send")
    assert code == Exit.OK
    assert "nothing is to be changed" in err
    assert "3 runs go there already" in err
    assert len(log_lines(dagdir)) == 1


@pytest.mark.usefixtures("yes")
def test_dag_of_an_earlier_version_gets_single_sites(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    dagdir = advised(tmp_path / "earlier", lists=False)
    monkeypatch.setattr(client, "PoolConnection", Schedd)
    monkeypatch.setattr(advise, "query_annexes", lambda reader: AnnexAnswer())
    _, _, err = run(capsys, dagdir.path, "--apply", "send")
    assert targets(dagdir) == {"run0": f"{FAST}\n", "run1": f"{FAST}\n"}
    assert f"left out: run2: {ONE_SITE}" in err


@pytest.mark.usefixtures("schedd")
def test_print_gives_the_equivalent_commands(dagdir: Dagdir, capsys: Captured) -> None:
    out = text_output("advise", capsys, dagdir.path, "--apply", "print")
    first, second, _ = RUNS
    assert f"\nmetlmon act send {dagdir.path} {first} {second} --to {FAST}\n" in out
    assert f"--to '{BOTH}'\n" in out
    assert not (dagdir.path / "gate").exists()


def test_dag_without_a_gate_gets_a_submit_line(tmp_path: Path, capsys: Captured) -> None:
    dagdir = advised(tmp_path / "own", gated=False)
    out = text_output("advise", capsys, dagdir.path, "--apply", "print")
    line = f'stringListIMember(TARGET.GLIDEIN_ResourceName, "{BOTH}", "|")'
    assert "e.sub, below its requirements (for the next epochs of run0, run1, run2):" in out
    assert f"\n  requirements = ($(requirements:true)) && {line}\n" in out
    pinned = (dagdir.path / "ens.dag").read_text().replace('="any"', f'="{SLOW}"')
    dagdir.write("ens.dag", pinned)
    (row,) = json_output("advise", capsys, dagdir.path)["submit_lines"]
    assert row["line"] == f"requirements = {line}"
    assert not (dagdir.path / "gate").exists()


@pytest.mark.parametrize("case", ["described in the DAG", "named by its host", "all are used"])
def test_useless_submit_lines_are_not_proposed(tmp_path: Path, capsys: Captured, case: str) -> None:
    dagdir = advised(tmp_path / "own", gated=False)
    log = (dagdir.path / "metl.log").read_text()
    if case == "described in the DAG":
        (dagdir.path / "e.sub").unlink()
    elif case == "named by its host":
        dagdir.write("metl.log", log.replace(FAST, "delta"))
    else:
        dagdir.write("metl.log", log.replace(BROKEN, FAST))
    output = json_output("advise", capsys, dagdir.path)
    assert output["plan"]["runs"]
    assert output["submit_lines"] == []


# --- retarget ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("yes")
def test_retarget_of_idle_jobs_and_its_undo(
    dagdir: Dagdir, schedd: Schedd, capsys: Captured
) -> None:
    code, out, _ = run(capsys, dagdir.path, "--apply", "retarget")
    assert code == Exit.OK
    assert schedd.acts() == [("edit", 103, 0, "site", BOTH)]
    assert "run2 103.0  done: its MetlSite was any" in out
    placed = dagdir.path / "placement" / "ens" / "run2-train_epoch2.inc"
    assert placed.read_text() == f"ResourceName = {BOTH}\n"
    (change,) = log_lines(dagdir)[0]["changes"]
    assert (change["job"], change["before"], change["placed"]) == ("103.0", "any", None)
    result = json_output("advise", capsys, dagdir.path, "--undo", "--yes")
    assert [answer["reply"] for answer in result["answers"]] == ["done"]
    assert schedd.jobs[103, 0].site == "any"
    assert not list(placed.parent.iterdir())


# --- undo ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("schedd", "yes")
def test_undo_restores_requests_and_reports_later_changes(dagdir: Dagdir, capsys: Captured) -> None:
    first = dagdir.write(f"gate/ens/{RUNS[0]}.target", f"{SLOW}\n")
    run(capsys, dagdir.path, "--apply", "send")
    assert len(targets(dagdir)) == 3
    third = dagdir.write(f"gate/ens/{RUNS[2]}.target", "Elsewhere\n")
    code, out, _ = run(capsys, dagdir.path, "--undo")
    assert code == Exit.REFUSED
    assert targets(dagdir) == {"run0": f"{SLOW}\n", "run2": "Elsewhere\n"}
    assert first.exists()
    assert third.exists()
    assert "run2  not possible in this state: it was changed since, and is left as it is" in out
    _, _, err = run(capsys, dagdir.path, "--undo", "--yes")
    assert "no plan is applied here" in err


@pytest.mark.usefixtures("yes")
def test_undo_leaves_a_job_that_runs_now(dagdir: Dagdir, schedd: Schedd, capsys: Captured) -> None:
    run(capsys, dagdir.path, "--apply", "retarget")
    schedd.jobs[103, 0] = replace(schedd.jobs[103, 0], status=2)
    code, out, _ = run(capsys, dagdir.path, "--undo", "--yes")
    assert code == Exit.REFUSED
    assert "only idle jobs go" in out
    assert schedd.jobs[103, 0].site == BOTH


@pytest.mark.usefixtures("schedd")
def test_foreign_log_names_no_file(dagdir: Dagdir, capsys: Captured) -> None:
    victim = dagdir.write("precious", "data")
    change = {"run": "../../precious", "uuid": "../../precious", "dag": "ens.dag", "after": "x"}
    job = {**change, "job": "103.0", "node": "../../../precious"}
    record = {"time": "2026", "command": "c", "way": "send", "changes": [change, job]}
    dagdir.write("gate/ens/advice.log", f"nonsense\n{json.dumps(record)}\n")
    code, _, _ = run(capsys, dagdir.path, "--undo", "--yes")
    assert code == Exit.REFUSED
    assert victim.read_text() == "data"
    log = dagdir.path / "gate/ens/advice.log"
    log.unlink()
    log.symlink_to(victim)
    assert "advice.log: it cannot be read" in usage_error("advise", capsys, dagdir.path, "--undo")


# --- repeated plans -------------------------------------------------------------------------------


def test_every_plans_again_after_each_epoch(
    dagdir: Dagdir, schedd: Schedd, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = iter(
        [
            lambda: None,
            lambda: dagdir.append("metl.log", Log().terminate(101, at="10:05:00").data),
            lambda: dagdir.append("ens.dag.dagman.out", Out().exit(1, "11:00:00").data),
        ]
    )
    monkeypatch.setattr(status, "pause", lambda seconds: next(steps)())
    arguments = ("--apply", "send", "--every", "12h", "--yes", "--no-live")
    code, out, _ = run(capsys, dagdir.path, *arguments)
    first, second, last = out.splitlines()
    assert code == Exit.OK
    assert "the first plan; ETA " in first
    assert f"3 runs sent: run0, run1 → {FAST}" in first
    assert "1 epoch ended" in second
    assert last == "the ensemble has ended"
    run(capsys, dagdir.path, "--undo", "--yes")
    assert targets(dagdir) == {}, "all that the command applied is taken back"


def test_every_queries_free_gpus_each_ten_minutes(
    dagdir: Dagdir, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, asked = count(0, 60), []

    def answer(reader: object, *, free_gpus: bool = True) -> AnnexAnswer:
        asked.append(free_gpus)
        return AnnexAnswer(free_gpus=(FreeGpus(FAST, GPU, 9, 0.0),) if free_gpus else ())

    def wait(seconds: float) -> None:
        if len(asked) == 12:
            dagdir.append("ens.dag.dagman.out", Out().exit(1, "11:00:00").data)

    monkeypatch.setattr(advise, "time", SimpleNamespace(monotonic=clock.__next__, time=time))
    monkeypatch.setattr(advise, "_annex_answer", answer)
    monkeypatch.setattr(status, "pause", wait)
    _, out, _ = run(capsys, dagdir.path, "--every", "5m", "--json")
    assert [at for at, is_asked in enumerate(asked) if is_asked] == [0, 10]
    plans = [json.loads(line)["plan"] for line in out.splitlines()]
    assert len(plans) == 3
    assert not any(plan["inferred"] for plan in plans)


# --- what if -------------------------------------------------------------------------------------


def test_what_if_of_one_pool_and_as_a_table(dagdir: Dagdir, capsys: Captured) -> None:
    out = text_output("advise", capsys, dagdir.path, "--what-if", FAST.lower())
    assert f"without {FAST}" in out
    assert "later" in out
    rows = json_output("advise", capsys, dagdir.path, "--what-if", FAST)["what_if"]
    table = json_output("advise", capsys, dagdir.path, "--what-if")["what_if"]
    assert rows[0]["hours"] in [each["hours"] for each in table]
    assert {row["question"] for row in rows} == {f"without {FAST}", f"2 more slots at {FAST}"}
    unknown = usage_error("advise", capsys, dagdir.path, "--what-if", "Nowhere")
    assert f"no pool Nowhere; it has {FAST}, {SLOW}" in unknown
    for options in (("--apply", "send"), ("--every", "12h")):
        refused = usage_error("advise", capsys, dagdir.path, "--what-if", FAST, *options)
        assert "leave out --apply and --every" in refused
