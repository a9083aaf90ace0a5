"""``metlmon sites`` for scripts and for people."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.generated.effects import Effects, planted
from tests.support.commands import Captured, json_output, text_output
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log
from tests.support.recordings import FIXTURES


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Path:
    """An epoch that was evicted after an hour on two GPUs at one site and took ten minutes on one
    at another; the next one is idle."""
    dagdir = Dagdir(tmp_path / "ensemble")
    log = Log().submit(77, NODE, at="10:00:00").execute(77, gpus=2, site="far", at="10:30:00")
    log.evict(77, 1005, "Unspecified \x1b[31minterruption", at="11:30:00")
    log.execute(77, gpus=1, site="near", at="12:00:00").terminate(77, at="12:10:00")
    log.submit(78, "run0-train_epoch1", at="12:20:00")
    dagdir.write("metl.log", log.data)
    return dagdir.path


spoken = partial(text_output, "sites")
report_of = partial(json_output, "sites")


def test_tables_are_printed(capsys: Captured, dagdir: Path) -> None:
    out = spoken(capsys, str(dagdir), "--as-of", "2026-05-04T13:00:00")
    assert "GPU-hours: 2.17 = 0.17 goodput + 2.00 badput (92 % of ended) + 0 running" in out
    for heading in ("SITE", "GPU MODEL", "SAME GPU", "CAUSE"):
        assert heading in out
    (cause,) = (line for line in out.splitlines() if "1005/0" in line)
    assert cause.split()[0] == "2.00"
    assert " far " in cause
    assert "1 job idle, longest 40m00s" in out
    assert "far: 2.00 GPU-hours of badput (92 % of what has ended), no epoch completed." in out
    assert "near" in out.split("RUN ")[-1], "the epoch that may have been trained elsewhere"
    assert "\x1b" not in out


def test_black_hole_is_excluded(capsys: Captured) -> None:
    black_hole = FIXTURES / "health" / "black-hole"
    out = spoken(capsys, str(black_hole))
    assert "Expanse-GPU V100-32 is excluded: its last 13 executions were lost, 0 %" in out
    excluded = {
        each["site"]: each["excluded"] for each in report_of(capsys, str(black_hole))["profiles"]
    }
    assert excluded.pop("Expanse-GPU") == "its last 13 executions were lost, 0 % elsewhere"
    assert set(excluded.values()) == {None}


def test_tables_by_host(capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(Effects(slow_hosts=2, gpus=1, sites=2, runs=6), 1).write(tmp_path / "ens")
    monkeypatch.setenv("COLUMNS", "80")
    heading, *rows = spoken(capsys, str(tmp_path / "ens"), "--by", "host").splitlines()[3:]
    read = report_of(capsys, str(tmp_path / "ens"), "--by", "host")["hosts"]
    assert ({"SITE", "LOST", "BADPUT"} < set(heading.split()), len(rows)) == (True, len(read))
    first = next(each for each in read if each["slow"])
    assert read[0] == first, "slow ones first"
    assert rows[0].split()[0] == first["host"]
    assert f"{first['relative_at_site']:.2f}× slow" in rows[0]
    monkeypatch.setenv("COLUMNS", "200")
    wide = spoken(capsys, str(tmp_path / "ens"), "--by", "host").splitlines()
    assert f"{first['gpus_used']['median']:.2f}" in wide[4]
    out = spoken(capsys, str(tmp_path / "ens"))
    assert "HOST" not in out, "they may be hundreds"
    assert f"{first['host']} " in out.split("slow host")[0].splitlines()[-1]


def test_window_splits_executions(capsys: Captured, dagdir: Path) -> None:
    read = report_of(
        capsys, str(dagdir), "--since", "2026-05-04T11:00", "--until", "2026-05-04T12:05"
    )
    by_site = {site["name"]: site for site in read["sites"]}
    assert by_site["far"]["hours"]["badput"] == 1, "the half hour that is in it, on two GPUs"
    assert by_site["far"]["executions"] == 1
    assert by_site["near"]["hours"]["goodput"] == pytest.approx(5 / 60, abs=1e-6)
    assert by_site["near"]["executions"] == 0, "it is counted where it ended"
    out = spoken(capsys, str(dagdir), "--month", "2026-05")
    assert out.startswith("May 2026, snapshot")


def test_sites_without_executions_are_one_line(capsys: Captured) -> None:
    out = spoken(capsys, FIXTURES / "first-round").splitlines()
    assert "nothing ran at 3 sites: unknown (10 held), chtc, nrp.example.net" in out
    assert not [line for line in out if line.startswith("nrp.example.net")]
    sites = report_of(capsys, FIXTURES / "first-round")["sites"]
    idle = {site["name"]: site["holds"] for site in sites if not site["executions"]}
    assert idle == {None: 10, "chtc": 0, "nrp.example.net": 0}


def test_ensemble_without_executions(capsys: Captured, tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path / "ensemble")
    assert "no execution is in the event logs" in spoken(capsys, str(dagdir.path))
    later = spoken(capsys, FIXTURES / "demo", "--since", "2030-01-01")
    assert "Nothing ran: no execution is in this window." in later
    read = report_of(capsys, str(dagdir.path))
    assert read["sites"] == []
    assert read["total"]["success_rate"] is None
