"""``metlmon act stop``, ``pause``, ``send`` and others for scripts: real files, and a schedd in
memory."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from metlmon.authoring.runs import requirements
from metlmon.cli import Exit
from metlmon.cli.commands import act
from metlmon.pool import client
from metlmon.pool.gate_requests import ONE_SITE
from metlmon.pool.types import SiteInfo
from tests.support.commands import Captured, run_command
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Log, Out
from tests.support.gate_rows import OTHER, UUID, queued, rules
from tests.support.gated_dagdir import gated_dag
from tests.support.queue_rows import Schedd, dagman


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Dagdir:
    """Run 0: its first epoch is done, its second runs. Run 1: its first epoch is idle."""
    found = Dagdir(tmp_path / "ensemble", "")
    rules(found.path, "ens", UUID, OTHER)
    found.write("ens.dag", gated_dag([UUID, OTHER], "ens", "delta", retries=2))
    found.write("e.sub", "log = metl.log\nexecutable = train.py\nqueue\n")
    found.write("ens.dag.dagman.out", Out().start("10:00:00").data)
    log = Log().submit(1, "run0-train_epoch0").execute(1, site="delta").terminate(1)
    log.submit(2, "run0-train_epoch1").execute(2, site="delta").submit(3, "run1-train_epoch0")
    found.write("metl.log", log.data)
    return found


@pytest.fixture(name="schedd")
def _schedd(dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch) -> Schedd:
    schedd = Schedd(
        queued(2, "run0-train_epoch1", directory=dagdir.path),
        queued(3, "run1-train_epoch0", directory=dagdir.path, status=1),
        dagman(directory=dagdir.path),
    )
    monkeypatch.setattr(client, "PoolConnection", lambda: schedd)
    return schedd


spoken = partial(run_command, "act")


def output_of(capsys: Captured, *arguments: object) -> dict[str, Any]:
    code, out, _ = spoken(capsys, *arguments, "--yes", "--json")
    found: dict[str, Any] = json.loads(out)
    return {**found, "code": code}


def file(dagdir: Dagdir, what: str, uuid: str = UUID) -> Path:
    return dagdir.path / "gate" / "ens" / f"{uuid}.{what}"


def test_files_are_announced_and_confirmed(
    dagdir: Dagdir, schedd: Schedd, capsys: Captured
) -> None:
    code, out, err = spoken(capsys, "stop", dagdir.path, "run0", "--yes")
    assert (code, out) == (Exit.OK, f"run0  done: gate/ens/{UUID}.stop was written\n")
    assert err.splitlines()[:2] == [
        "stop run0 after the current epoch",
        f"  run0  epoch 2  running  gate/ens/{UUID}.stop",
    ]
    assert file(dagdir, "stop").is_file()
    assert schedd.asked == [], "a file needs no schedd"
    code, out, err = spoken(capsys, "stop", dagdir.path, "run0", "--yes")
    assert (code, out) == (Exit.OK, "")
    assert (
        err
        == "metlmon: no need to stop run0 after the current epoch: its stop is asked for already\n"
    )


def test_all_selects_all_runs_and_a_uuid_one(
    dagdir: Dagdir, schedd: Schedd, capsys: Captured
) -> None:
    result = output_of(capsys, "pause", dagdir.path, "all")
    assert [run["uuid"] for run in result["request"]["runs"]] == [UUID, OTHER]
    assert [answer["reply"] for answer in result["answers"]] == ["done", "done"]
    result = output_of(capsys, "resume-run", dagdir.path, OTHER[:4])
    assert [run["files"] for run in result["request"]["runs"]] == [[f"gate/ens/{OTHER}.pause"]]
    assert file(dagdir, "pause").exists()
    assert not file(dagdir, "pause", OTHER).exists()


def test_dry_run_changes_nothing(dagdir: Dagdir, schedd: Schedd, capsys: Captured) -> None:
    code, out, err = spoken(capsys, "stop-now", dagdir.path, "run0", "--dry-run")
    assert (code, out) == (Exit.OK, "")
    assert f"gate/ens/{UUID}.stop" in err
    assert "2.0  run0  epoch 2  running" in err
    code, out, _ = spoken(capsys, "stop-now", dagdir.path, "run0", "--dry-run", "--json")
    assert code == Exit.OK
    (run,) = json.loads(out)["request"]["runs"]
    assert [job["cluster"] for job in run["jobs"]] == [2]
    assert not (dagdir.path / "gate").exists()
    assert schedd.acts() == []


def test_send_and_its_withdrawal(dagdir: Dagdir, schedd: Schedd, capsys: Captured) -> None:
    result = output_of(capsys, "send", dagdir.path, "run0", "--to", "SDSC PRP")
    assert (result["code"], result["request"]["site"]) == (Exit.OK, "SDSC PRP")
    assert file(dagdir, "target").read_text() == "SDSC PRP\n"
    code, out, err = spoken(capsys, "send", dagdir.path, "run0", "--to", "dag", "--yes")
    assert code == Exit.OK
    assert err.startswith("send the next epochs of run0 where the DAG says\n")
    assert f"go where the DAG file says; deletes gate/ens/{UUID}.target\n" in err
    assert out == f"run0  done: gate/ens/{UUID}.target was deleted\n"
    assert not file(dagdir, "target").exists()


def test_send_to_several_sites_needs_list_requirements(
    dagdir: Dagdir, schedd: Schedd, capsys: Captured
) -> None:
    result = output_of(capsys, "send", dagdir.path, "run0", "--to", "delta|SDSC PRP")
    assert [(each["reply"], each["text"]) for each in result["answers"]] == [
        ("not possible in this state", ONE_SITE)
    ]
    assert not file(dagdir, "target").exists()
    head = f"log = metl.log\nexecutable = train.py\nrequirements = {requirements((), gated=True)}\n"
    dagdir.write("e.sub", f"{head}queue\n")
    result = output_of(capsys, "send", dagdir.path, "run0", "--to", "delta|SDSC PRP")
    assert result["code"] == Exit.OK
    assert file(dagdir, "target").read_text() == "delta|SDSC PRP\n"


def test_idle_job_with_list_requirements_is_retargeted(
    dagdir: Dagdir, schedd: Schedd, capsys: Captured
) -> None:
    result = output_of(capsys, "retarget", dagdir.path, "run1", "--to", "delta|SDSC PRP")
    assert result["answers"][0]["reply"] == "not possible in this state"
    schedd.jobs[3, 0] = replace(schedd.jobs[3, 0], by_site_list=True)
    result = output_of(capsys, "retarget", dagdir.path, "run1", "--to", "delta|SDSC PRP")
    assert result["code"] == Exit.OK
    assert schedd.jobs[3, 0].site == "delta|SDSC PRP"
    placed = dagdir.path / "placement" / "ens" / "run1-train_epoch0.inc"
    assert placed.read_text() == "ResourceName = delta|SDSC PRP\n"


@pytest.mark.parametrize(
    ("arguments", "report_of"),
    [
        (("stop",), "name runs"),
        (("stop", "nobody"), "no such run"),
        (("stop", "2.0"), "no such run"),
        (("send", "run0"), "send needs --to SITE (or --to dag: as the DAG file says)"),
        (("retarget", "all"), "retarget needs --to SITE"),
        (("stop", "run0", "--to", "delta"), "--to is for retarget and send"),
        (("send", "run0", "--to", 'a"b'), "a site's name is one line"),
        (("retarget", "all", "--to", "$(HOME)"), "a site's name is one line"),
        (("stop", "run0", "--value", "3"), "--value is for priority"),
    ],
)
def test_invalid_arguments_are_refused(
    arguments: tuple[str, ...], report_of: str, dagdir: Dagdir, schedd: Schedd, capsys: Captured
) -> None:
    act, *rest = arguments
    code, _, err = spoken(capsys, act, dagdir.path, *rest, "--yes")
    assert code == Exit.USAGE
    assert report_of in err
    assert schedd.asked == []
    assert not (dagdir.path / "gate").exists()


def test_site_unknown_to_the_collector(
    dagdir: Dagdir, schedd: Schedd, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = ("Expanse-GPU", "Delta-GPU", "CHTC-Spark-CE1")
    monkeypatch.setattr(schedd, "sites", lambda: tuple(SiteInfo(name, 1, ()) for name in known))
    unknown = "the collector knows no site Expnse-GPU; it knows Expanse-GPU"
    for way in ("--yes", "--dry-run"):
        code, out, err = spoken(capsys, "send", dagdir.path, "run0", "--to", "Expnse-GPU", way)
        assert (code, out) == (Exit.REFUSED, "")
        assert unknown in err
        assert not file(dagdir, "target").exists()
    # The user may confirm, since sites come and go.
    monkeypatch.setattr(act, "confirmed", lambda: True)
    code, _, err = spoken(capsys, "send", dagdir.path, "run0", "--to", "Expnse-GPU")
    assert code == Exit.OK
    assert f"warning: {unknown}" in err
    assert file(dagdir, "target").read_text() == "Expnse-GPU\n"
