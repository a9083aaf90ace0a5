"""``metlmon report`` for scripts: files are complete or absent, the dagdir is unchanged, and
windows sum to the whole."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from metlmon.cli import Exit
from metlmon.cli.commands import report
from metlmon.report.to_text import text_lines
from tests.support.commands import Captured, json_output, run_command, usage_error
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log
from tests.support.sample_reports import FIXTURES, report_of


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Dagdir:
    """One epoch that spans the end of a month."""
    dagdir = Dagdir(tmp_path / "ensemble")
    log = Log().submit(77, NODE, at="2025-10-31 20:00:00")
    log.execute(77, gpus=2, at="2025-10-31 22:00:00")
    log.terminate(77, run=(5, 6), total=(5, 6), at="2025-11-01 04:00:00")
    dagdir.write("metl.log", log.data)
    return dagdir


spoken = partial(run_command, "report")
a_sentence = partial(usage_error, "report")


def listing(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_html_and_markdown_are_written(capsys: Captured, tmp_path: Path, dagdir: Dagdir) -> None:
    before = listing(dagdir.path)
    out = tmp_path / "out"
    out.mkdir()
    html, md = out / "report.html", out / "report.md"
    code, result, err = spoken(capsys, str(dagdir.path), "--html", str(html), "--md", str(md))
    assert (code, result) == (Exit.OK, "")
    assert err.count("written") == 2
    assert html.read_text().startswith("<!DOCTYPE html>")
    assert "\n# Report of ensemble" in md.read_text()
    # No other file is left, and the dagdir is unchanged.
    assert listing(out) == ["report.html", "report.md"]
    assert listing(dagdir.path) == before
    mask = os.umask(0)
    os.umask(mask)
    assert md.stat().st_mode & 0o777 == 0o666 & ~mask


def test_order_of_rows_is_independent_of_the_hash_seed() -> None:
    """Sites with transfers and without executions were in the order of a set."""
    argv = [sys.executable, "-m", "metlmon", "report", str(FIXTURES / "first-round"), "--json"]
    outputs = {
        subprocess.run(
            argv, capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": str(seed)}
        ).stdout
        for seed in (1, 2)
    }
    assert len(outputs) == 1


@pytest.mark.parametrize("form", ["--html", "--md"])
def test_only_reports_are_replaced_without_force(
    capsys: Captured, tmp_path: Path, dagdir: Dagdir, form: str
) -> None:
    file = tmp_path / "thesis"
    for mine in (b"mine", b"\xff" * 5000, b"# Report of ensemble\n", b""):
        file.write_bytes(mine)
        result = a_sentence(capsys, str(dagdir.path), form, str(file))
        assert f"{file}: is there already; --force overwrites it" in result
        assert file.read_bytes() == mine
    assert spoken(capsys, str(dagdir.path), form, str(file), "--force")[0] == Exit.OK
    assert len(file.read_bytes()) > 1000
    # A report is replaced without asking, whatever its name.
    title = ("--title", "t" * 3000)
    assert spoken(capsys, str(dagdir.path), form, str(file), *title)[0] == Exit.OK
    assert b"ttt" in file.read_bytes()
    assert spoken(capsys, str(dagdir.path), form, str(file))[0] == Exit.OK
    assert b"ttt" not in file.read_bytes()


def test_target_of_a_link_is_kept_unless_forced(
    capsys: Captured, tmp_path: Path, dagdir: Dagdir
) -> None:
    precious, link = tmp_path / "precious", tmp_path / "report.html"
    precious.write_text("mine")
    link.symlink_to(precious)
    assert "is there already" in a_sentence(capsys, str(dagdir.path), "--html", str(link))
    assert precious.read_text() == "mine"
    precious.unlink()
    assert spoken(capsys, str(dagdir.path), "--html", str(link))[0] == Exit.OK
    assert link.is_symlink()
    assert precious.read_text().startswith("<!DOCTYPE html>")


def test_file_created_meanwhile_is_kept(
    capsys: Captured, tmp_path: Path, dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "report.html"

    def made(*_: object) -> str:
        file.write_text("mine")
        return "theirs"

    monkeypatch.setattr(report.to_html, "render_html", made)
    assert "is there already" in a_sentence(capsys, str(dagdir.path), "--html", str(file))
    assert listing(tmp_path) == ["ensemble", "report.html"]
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    "name",
    [
        *("report.html", "metl.log", "output/../report.html", "./below/report.html"),
        *("../link.html", "../folder/report.md"),
    ],
)
def test_report_into_the_dagdir_is_refused(capsys: Captured, dagdir: Dagdir, name: str) -> None:
    """Through a link, too."""
    (dagdir.path / "output").mkdir()
    (dagdir.path / "below").mkdir()
    (dagdir.path.parent / "link.html").symlink_to(dagdir.path / "metl.log")
    (dagdir.path.parent / "folder").symlink_to(dagdir.path)
    before = {path: path.read_bytes() for path in dagdir.path.rglob("*") if path.is_file()}
    result = a_sentence(capsys, str(dagdir.path), "--html", str(dagdir.path / name))
    assert "this is in the dagdir" in result
    assert {p: p.read_bytes() for p in dagdir.path.rglob("*") if p.is_file()} == before


def test_unwritable_files_are_refused(capsys: Captured, tmp_path: Path, dagdir: Dagdir) -> None:
    where = tmp_path / "nowhere" / "report.html"
    assert "No such file or directory" in a_sentence(capsys, str(dagdir.path), "--html", str(where))
    assert "this is a directory" in a_sentence(capsys, str(dagdir.path), "--md", str(tmp_path))
    assert "give each a file" in a_sentence(
        capsys, str(dagdir.path), "--md", str(tmp_path / "x"), "--html", str(tmp_path / "x")
    )
    assert "only one of them" in a_sentence(capsys, str(dagdir.path), "--md", "-", "--html", "-")
    assert "leave out --html, or --json" in a_sentence(
        capsys, str(dagdir.path), "--json", "--html", str(tmp_path / "x")
    )


def test_months_sum_to_the_whole(capsys: Captured, dagdir: Dagdir) -> None:
    october, november, whole = (
        json_output("report", capsys, str(dagdir.path), *arguments)
        for arguments in (["--month", "2025-10"], ["--month", "2025-11"], [])
    )
    assert [t["totals"]["goodput"] for t in (october, november, whole)] == [4, 8, 12]
    assert [t["totals"]["epochs"] for t in (october, november, whole)] == [0, 1, 1]
    assert [t["totals"]["bytes_to_jobs"] for t in (october, november, whole)] == [0, 6, 6]
    assert october["window"] == {"since": "2025-10-01T00:00:00", "until": "2025-11-01T00:00:00"}
    assert whole["gpus"]["rows"][0]["gpu"] == "L40S"
    assert whole["gpus"]["total"]["epochs"] == 1
    assert "hidden compute" in whole["definitions"]["by_longest"]


def test_report_is_written_to_standard_output(capsys: Captured, dagdir: Dagdir) -> None:
    code, out, err = spoken(capsys, str(dagdir.path), "--md", "-", "--title", "Two nights")
    assert (code, err) == (Exit.OK, "")
    assert out.startswith("[//]: # (metlmon report)\n\n# Two nights\n")
    code, out, _ = spoken(capsys, str(dagdir.path), "--ascii")
    assert code == Exit.OK
    assert out.isascii()
    assert "1 of 2 epochs of 1 run completed, with 12.00 GPU-hours: 12.00 goodput" in out
    assert re.search(r"^L40S +1 +100\.0 %", out, re.MULTILINE)


def test_lines_fit_the_terminal() -> None:
    for name in ("trainer", "first-round"):
        report = report_of(name)
        for width in (40, 60, 80, 120, 200):
            assert max(map(len, text_lines(report, width))) <= width
