"""Temporary files left behind by a program that was killed while writing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from metlmon.live import file_access
from metlmon.live.file_access import STALE_DRAFT_SECONDS, draft_name, remove_stale_drafts
from tests.support.recordings import FIXTURES


def draft(directory: Path, name: str, age: float = 0.0) -> Path:
    made = directory / draft_name(name)
    made.write_text("half a file")
    time = made.stat().st_mtime - age
    os.utime(made, (time, time))
    return made


def test_old_drafts_of_the_same_files_are_removed(tmp_path: Path) -> None:
    old = draft(tmp_path, "ens.dag", STALE_DRAFT_SECONDS + 60)
    keep = {
        draft(tmp_path, "ens.dag"),
        draft(tmp_path, "other.dag", STALE_DRAFT_SECONDS + 60),
        draft(tmp_path, "ens.dag.old", STALE_DRAFT_SECONDS + 60),
    }
    remove_stale_drafts(tmp_path, ["ens.dag"])
    assert set(tmp_path.iterdir()) == keep
    assert not old.exists()


def test_drafts_of_a_killed_program_are_removed_at_once(tmp_path: Path) -> None:
    making = "import sys, time; from metlmon.live.file_access import draft_name"
    making += "; open(draft_name('ens.dag'), 'x').close(); print(flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", making],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(FIXTURES.parent)},
        stdout=subprocess.PIPE,
    ) as writer:
        writer.stdout.readline()
        (made,) = tmp_path.iterdir()
        remove_stale_drafts(tmp_path, ["ens.dag"])
        assert made.exists()
        writer.kill()
        writer.wait()
    remove_stale_drafts(tmp_path, ["ens.dag"])
    assert not made.exists()


def test_drafts_of_another_machine_are_kept_for_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: gone.pid)
        patch.setattr(file_access, "_machine", lambda: "00000000")
        made = draft(tmp_path, "ens.dag")
        old = draft(tmp_path, "ens.dag", STALE_DRAFT_SECONDS + 60)
    remove_stale_drafts(tmp_path, ["ens.dag"])
    assert made.exists()
    assert not old.exists()


def test_drafts_in_an_open_directory(tmp_path: Path) -> None:
    draft(tmp_path, "run0.stop", STALE_DRAFT_SECONDS + 60)
    at = os.open(tmp_path, os.O_RDONLY)
    try:
        remove_stale_drafts(at, ["run0.stop"])
    finally:
        os.close(at)
    assert not list(tmp_path.iterdir())


def test_missing_directory_is_no_error(tmp_path: Path) -> None:
    remove_stale_drafts(tmp_path / "none", ["ens.dag"])


def test_report_removes_drafts_of_a_killed_one(tmp_path: Path) -> None:
    old = draft(tmp_path, "report.html", STALE_DRAFT_SECONDS + 60)
    argv = [sys.executable, "-m", "metlmon", "report", str(FIXTURES / "machines")]
    subprocess.run([*argv, "--html", str(tmp_path / "report.html")], check=True)
    assert not old.exists()
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
