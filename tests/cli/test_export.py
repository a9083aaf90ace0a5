"""``metlmon export``: the frames as files, beside the dagdir and never in it."""

from __future__ import annotations

import json
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import metlmon
from metlmon.cli import Exit
from metlmon.cli.commands import export as exporting
from metlmon.cli.main import main
from metlmon.tables.frames import TABLES, dtype
from metlmon.tables.layout import Kind
from tests.support.commands import Captured, run_command, usage_error
from tests.support.dagdir_builder import Dagdir
from tests.support.recordings import FIXTURES

RESCUE = FIXTURES / "rescue"
ALL = list(TABLES)


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


spoken = partial(run_command, "export")
a_sentence = partial(usage_error, "export")


def listing(path: Path) -> dict[str, tuple[int, int]]:
    return {each.name: (each.stat().st_size, each.stat().st_mtime_ns) for each in path.iterdir()}


def test_each_frame_is_a_file_beside_the_dagdir(capsys: Captured) -> None:
    before = listing(RESCUE)
    code, out, err = spoken(capsys, str(RESCUE))
    assert code == Exit.OK
    assert out.splitlines() == [f"rescue-export/{name}.csv" for name in ALL]
    assert sorted(os.listdir("rescue-export")) == sorted(f"{name}.csv" for name in ALL)
    assert re.search(r"rescue-export/runs\.csv: 4 rows, \d+", err)
    assert "jobs.csv: 24 rows" in err
    assert listing(RESCUE) == before


def test_csv_agrees_with_the_frames(capsys: Captured) -> None:
    import pandas as pd

    spoken(capsys, str(RESCUE), "--out", "x")
    frames = metlmon.load(RESCUE)
    for table in TABLES.values():
        types = {c.name: dtype(c) for c in table.columns if c.kind is not Kind.TIME}
        kinds = {name: each for name, each in types.items() if each != "float64"}
        # Python's parser: that of older pandas is off in the last digit.
        floats = {
            name: lambda text: float(text or "nan")
            for name, each in types.items()
            if each == "float64"
        }
        times = [c.name for c in table.columns if c.kind is Kind.TIME]
        file = f"x/{table.name}.csv"
        read = pd.read_csv(file, dtype=kinds, converters=floats, parse_dates=times)
        frame = frames.frame(table.name)
        assert list(read.columns) == list(frame.columns)
        for column in table.columns:
            # The categories of a file are those that occur in it.
            left, right = read[column.name], frame[column.name]
            assert list(left.astype(object).isna()) == list(right.astype(object).isna())
            assert list(left.dropna()) == list(right.dropna()), (table.name, column.name)


def test_json_has_iso_times_and_null(capsys: Captured) -> None:
    code, out, _ = spoken(capsys, str(RESCUE), "--to", "json", "--out", "x", "--only", "jobs,runs")
    assert code == Exit.OK
    assert out.splitlines() == ["x/runs.json", "x/jobs.json"]
    main(["jobs", str(RESCUE), "--json"])
    output: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["jobs"]
    records = json.loads(Path("x/jobs.json").read_text())
    assert [list(record) for record in records] == [[c.name for c in TABLES["jobs"].columns]] * 24
    shared = ("cluster", "proc", "dag", "node", "epoch", "uuid", "state", "submitted", "target")
    shared += ("bytes_sent", "bytes_received", "memory_mb", "request_memory_mb")
    for job, record in zip(output, records, strict=True):
        assert {name: job[name] for name in shared} == {name: record[name] for name in shared}
    assert records[0]["label"] is None


# --- destinations -----------------------------------------------------------------------------


@pytest.mark.parametrize("out", [".", "sub", "sub/deeper", "../rescue"])
def test_export_into_the_dagdir_is_refused(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    dagdir = Dagdir(tmp_path / "rescue")
    before = listing(dagdir.path)
    monkeypatch.chdir(dagdir.path)
    for asked in ([".", "--out", out], ["run.dag", "--out", out], ["--out", out]):
        assert "writes nothing" in a_sentence(capsys, *asked)
    assert "writes nothing" in a_sentence(capsys)
    (tmp_path / "link").symlink_to(dagdir.path)
    assert "writes nothing" in a_sentence(capsys, str(dagdir.path), "--out", "../link/sub")
    assert listing(dagdir.path) == before


def test_existing_files_are_kept_unless_forced(capsys: Captured, tmp_path: Path) -> None:
    Path("x").mkdir()
    Path("x/jobs.csv").write_text("mine")
    result = a_sentence(capsys, str(RESCUE), "--out", "x")
    assert "x/jobs.csv: is there already; --force overwrites it" in result
    assert os.listdir("x") == ["jobs.csv"]
    assert Path("x/jobs.csv").read_text() == "mine"
    assert spoken(capsys, str(RESCUE), "--out", "x", "--force")[0] == Exit.OK
    assert Path("x/jobs.csv").read_text().startswith("cluster,proc,")


def test_link_is_replaced_not_followed(capsys: Captured, tmp_path: Path) -> None:
    Path("x").mkdir()
    (tmp_path / "precious").write_text("mine")
    Path("x/runs.csv").symlink_to(tmp_path / "precious")
    assert "is there already" in a_sentence(capsys, str(RESCUE), "--out", "x", "--only", "runs")
    spoken(capsys, str(RESCUE), "--out", "x", "--only", "runs", "--force")
    assert (tmp_path / "precious").read_text() == "mine"
    assert not Path("x/runs.csv").is_symlink()


def test_unwritable_destinations_are_refused(capsys: Captured) -> None:
    Path("file").write_text("")
    for place in ("file", "file/sub"):
        assert "directory can be made" in a_sentence(capsys, str(RESCUE), "--out", place)
    Path("x/runs.csv").mkdir(parents=True)
    assert "is a directory" in a_sentence(capsys, str(RESCUE), "--out", "x", "--force")


def test_failure_leaves_no_partial_file(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *_: object) -> int:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(exporting.WRITERS, "csv", full)
    result = a_sentence(capsys, str(RESCUE), "--out", "x")
    assert "x/runs.csv: cannot be written: No space left on device" in result
    assert os.listdir("x") == []


# --- extras -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "module", "package", "extra"),
    [
        ("parquet", "pyarrow", "pyarrow", "parquet"),
        ("mlflow", "mlflow", "mlflow", "mlflow"),
        ("optuna", "optuna", "optuna", "optuna"),
        ("openmetrics", "prometheus_client", "prometheus-client", "prometheus"),
    ],
)
def test_missing_extra_is_one_sentence(
    target: str,
    module: str,
    package: str,
    extra: str,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # Every import of it fails.
    sentence = a_sentence(capsys, str(RESCUE), "--to", target)
    expected = f"export --to {target} needs {package}: pip install 'metlmon[{extra}]'"
    assert sentence.strip() == f"metlmon: {expected}"
    assert os.listdir() == []


def test_parquet_agrees_with_the_frames(capsys: Captured) -> None:
    import pandas as pd

    pytest.importorskip("pyarrow", reason="no pyarrow here, which metlmon does not require")
    assert spoken(capsys, str(RESCUE), "--to", "parquet", "--out", "x")[0] == Exit.OK
    frames = metlmon.load(RESCUE)
    for name in ALL:
        pd.testing.assert_frame_equal(pd.read_parquet(f"x/{name}.parquet"), frames.frame(name))


def test_columns_are_listed_without_a_directory(capsys: Captured) -> None:
    code, out, err = spoken(capsys, "--columns")
    assert (code, err) == (Exit.OK, "")
    for table in TABLES.values():
        assert f"{table.name}: a row is {table.row}\n" in out
        for column in table.columns:
            assert f"  {column.name} " in out
    _, out, _ = spoken(capsys, "--columns", "--only", "runs")
    assert "jobs: a row is" not in out
    assert os.listdir() == []
