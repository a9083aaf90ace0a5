"""The frames: a row for every entry of the ledger, with the documented types, and harmless text."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest

import metlmon
from metlmon.errors import InputError
from metlmon.model.states import State
from metlmon.tables.frames import TABLES, Frames, dtype, listing, unit
from metlmon.tables.layout import Kind
from tests.support.dagdir_builder import DAG, NODE, Dagdir
from tests.support.event_logs import Log

ROOT = Path(__file__).resolve().parents[2]
DIRS = [ROOT / "fixtures" / name for name in ("demo", "holds", "gated", "shared-log")]


def made(tmp_path: Path, log: Log | None = None, **more: str | None) -> Frames:
    dagdir = Dagdir(tmp_path / "ensemble")
    if log is not None:
        dagdir.write("metl.log", log.data)
    return metlmon.load(dagdir.path, **more)


def types_are_the_documented_ones(frames: Frames) -> None:
    for table in TABLES.values():
        frame = frames.frame(table.name)
        assert list(frame.columns) == [column.name for column in table.columns]
        for column in table.columns:
            found = str(frame[column.name].dtype)
            zoned = column.kind is Kind.TIME and frames.zone is not None
            assert found == (f"datetime64[us, {frames.zone}]" if zoned else dtype(column))


def test_pandas_is_imported_only_for_a_frame() -> None:
    code = (
        "import sys, metlmon; assert not {'pandas', 'numpy', 'metlmon.stats'} & set(sys.modules)\n"
        "frames = metlmon.load(sys.argv[1]); repr(frames), frames.status, frames.values('runs')\n"
        "assert not {'pandas', 'textual'} & set(sys.modules)\n"
        "assert len(frames.runs) and 'pandas' in sys.modules and 'textual' not in sys.modules\n"
    )
    where = str(ROOT / "fixtures" / "rescue")
    subprocess.run([sys.executable, "-c", code, where], cwd=ROOT, check=True, timeout=60)


# --- shape ----------------------------------------------------------------------------------


@cache
def loaded(path: Path) -> Frames:
    return metlmon.load(path)


@pytest.mark.parametrize("path", DIRS, ids=lambda path: path.name)
def test_every_entry_is_a_row_of_the_documented_types(path: Path) -> None:
    frames = loaded(path)
    types_are_the_documented_ones(frames)
    for name in ("runs", "epochs", "jobs", "executions", "transfers"):
        assert len(frames.frame(name)) == len(getattr(frames.ledger, name)) > 0
    assert frames.runs.key.is_unique
    assert not frames.jobs.duplicated(["cluster", "proc"]).any()
    keys = frames.jobs[["cluster", "proc"]]
    for name in ("executions", "transfers", "events"):
        joined = frames.frame(name).merge(keys, on=["cluster", "proc"], how="left", indicator=True)
        assert (joined["_merge"] == "both").all()
    for table in TABLES.values():
        for column in table.columns:
            if column.kind is Kind.STATE:
                # A word unknown to the column would silently become missing.
                found = {value for value in frames.values(table.name)[column.name] if value}
                assert found <= set(column.words), (table.name, column.name)
    owned = frames.executions.key.dropna()
    assert set(owned) <= set(frames.runs.key)


def test_frames_of_an_unsubmitted_ensemble(tmp_path: Path) -> None:
    frames = made(tmp_path)
    types_are_the_documented_ones(frames)
    assert [len(frames.frame(name)) for name in TABLES] == [1, 2, 0, 0, 0, 0]
    assert frames.as_of is None
    assert list(frames.epochs.state) == [str(State.WAITING)] * 2
    assert frames.runs.latest_site.isna().all()


def test_figures_of_one_run(tmp_path: Path) -> None:
    import pandas as pd

    log = Log().submit(77, NODE, at="10:00:00").execute(77, gpus=2, at="10:10:00")
    log.terminate(77, 1, at="10:40:00").submit(78, NODE, at="10:41:00")
    log.transfer(78, "started input", at="10:42:00").transfer(78, "finished input", at="10:45:00")
    log.execute(78, gpus=4, at="10:45:00").terminate(78, 0, at="12:45:00", run=(5, 6), total=(5, 6))
    log.submit(79, "run0-train_epoch1").execute(79, bare=True, at="13:00:00")
    frames = made(tmp_path, log.image(79, 900, at="13:30:00"))

    done = frames.executions.set_index("cluster")
    assert list(done.attempt) == [1, 2, 1]
    assert list(done.kind) == ["badput", "goodput", "running"]
    assert list(done.seconds) == [1800, 7200, 1800]
    assert list(done.gpu_seconds.fillna(-1)) == [3600, 28800, -1]
    assert list(done.gpu_hours.fillna(-1)) == [1, 8, -1]
    assert list(done.final) == [False, True, False]
    assert (done.wait_seconds[78], done.transfer_seconds[78]) == (60, 180)
    assert done.end[79] is pd.NaT
    assert done.start[77] == pd.Timestamp("2026-05-04 10:10:00")
    assert done.cause[77] == "exited with return value 1"
    assert done.return_value[77] == 1
    assert done.gpus[79] is pd.NA

    epoch = frames.epochs.iloc[0]
    assert (epoch.state, epoch.attempts, epoch.jobs) == ("completed", 2, "77.0 78.0")
    assert (epoch.gpu_hours_goodput, epoch.gpu_hours_badput, epoch.gpu_hours) == (8, 1, 9)
    assert frames.runs.gpu_hours.sum() == 9
    assert frames.jobs.set_index("cluster").bytes_received[78] == 6
    assert frames.jobs.set_index("cluster").memory_mb[79] == 900


HEADER = re.compile(rb"(\d{3}) \((\d+)\.(\d+)\.\d+\) (\S+ \S+) ([^\n]*)\n")


@pytest.mark.parametrize("name", ["demo", "holds"])
def test_every_event_except_006_is_a_row(name: str) -> None:
    raw = (ROOT / "fixtures" / name / "metl.log").read_bytes()
    wanted = sorted(
        (int(number), int(cluster), int(proc), at.decode())
        for number, cluster, proc, at, text in set(HEADER.findall(raw))
        if number != b"006"
    )
    frame = metlmon.load(ROOT / "fixtures" / name).events
    found = zip(frame.number, frame.cluster, frame.proc, frame.time.astype(str), strict=True)
    assert sorted(found) == wanted
    assert frame.name.notna().all()


# --- times ----------------------------------------------------------------------------------


def test_times_carry_a_known_zone(tmp_path: Path) -> None:
    import pandas as pd

    log = Log().submit(77, NODE, at="11-01 00:30:00").execute(77, at="11-01 00:40:00")
    # Clocks go back at two: the hour from one to two is repeated.
    log.terminate(77, 0, at="11-01 02:40:00")
    naive = made(tmp_path, log).executions.iloc[0]
    assert naive.start == pd.Timestamp("2026-11-01 00:40:00")
    assert naive.seconds == 7200
    frames = made(tmp_path, log, tz="America/Chicago")
    types_are_the_documented_ones(frames)
    row = frames.executions.iloc[0]
    assert row.seconds == (row.end - row.start).total_seconds() == 10800
    assert str(row.start) == "2026-11-01 00:40:00-05:00"
    assert frames.local_time_text(datetime(2026, 11, 1, 2, 40)) == "2026-11-01T02:40:00-06:00"


def test_times_out_of_range_are_missing(tmp_path: Path) -> None:
    log = Log().submit(77, NODE, at="0001-01-01 00:00:00").execute(77, at="9999-12-31 23:59:59")
    for zone in (None, "America/Chicago", "Asia/Tokyo"):
        frames = made(tmp_path, log, tz=zone)
        assert len(frames.events) == 2
    assert made(tmp_path, log).events.time.max() == datetime(9999, 12, 31, 23, 59, 59)


def test_numbers_out_of_range_are_missing(tmp_path: Path) -> None:
    log = Log().submit(77, NODE).execute(77).hold(77, 10**30, "damaged")
    assert made(tmp_path, log).executions.code.isna().all()


def test_as_of_gives_a_prefix_of_the_log(tmp_path: Path) -> None:
    log = Log().submit(77, NODE, at="10:00:00").execute(77, at="11:00:00")
    log.terminate(77, 0, at="12:00:00")
    row = made(tmp_path, log, as_of="2026-05-04T11:30:00").executions.iloc[0]
    assert (row.kind, row.seconds) == ("running", 1800)
    aware = datetime(2026, 5, 4, 16, 30, tzinfo=UTC)
    frames = metlmon.load(tmp_path / "ensemble", as_of=aware, tz="America/Chicago")
    assert frames.executions.seconds.sum() == 1800


@pytest.mark.parametrize("path", DIRS, ids=lambda path: path.name)
def test_windows_add_up_to_the_whole(path: Path) -> None:
    frames = loaded(path)
    middle = frames.executions.start.median()
    parts = [frames.windowed(until=middle.to_pydatetime()), frames.windowed(since=str(middle))]
    for column in ("seconds", "gpu_seconds"):
        whole = frames.executions[column].sum()
        assert sum(part.executions[column].sum() for part in parts) == pytest.approx(whole)
    assert all(0 < part.executions.counted.sum() < len(frames.executions) for part in parts)
    assert sum(part.executions.counted.sum() for part in parts) == len(frames.executions)
    assert sum(len(part.events) for part in parts) == len(frames.events)
    hours = frames.runs.gpu_hours.sum()
    assert sum(part.runs.gpu_hours.sum() for part in parts) == pytest.approx(hours)


# --- bad input and help ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"as_of": "yesterday"}, "as_of='yesterday' is not a time"),
        ({"as_of": "2026-05-04T10:00:00Z"}, "add tz="),
        ({"tz": "Mars/Olympus"}, "'Mars/Olympus' is not a time zone"),
    ],
)
def test_invalid_arguments_are_refused(
    tmp_path: Path, asked: dict[str, str], sentence: str
) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        made(tmp_path, **asked)


def test_missing_directories_and_frames_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such directory"):
        metlmon.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="no DAG file here"):
        metlmon.load(str(tmp_path))
    frames = made(tmp_path)
    with pytest.raises(InputError, match="no frame is called 'jobz'; there are runs, epochs"):
        frames.frame("jobz")
    with pytest.raises(InputError, match="nothing is between"):
        frames.windowed("2026-05-05", "2026-05-04")


def test_settings_of_the_dagdir_apply(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path / "ensemble", DAG)
    dagdir.write("metlmon.toml", 'tz = "America/Chicago"\n')
    dagdir.write("metl.log", Log().submit(77, NODE).data)
    assert str(metlmon.load(dagdir.path).events.time.dtype) == "datetime64[us, America/Chicago]"


def test_repr_lists_the_frames(tmp_path: Path) -> None:
    frames = made(tmp_path, Log().submit(77, NODE).execute(77))
    result = repr(frames)
    assert "as of 2026-05-04 10:02:00" in result
    for name in TABLES:
        assert re.search(rf"\.{name} +{len(frames.frame(name))} rows? of", result)
    assert "2026-05-04" in repr(frames.windowed("2026-05-04", "2026-05-05"))


def test_every_column_is_documented(tmp_path: Path) -> None:
    result = made(tmp_path).columns
    assert len(result) == sum(len(table.columns) for table in TABLES.values())
    assert not result.duplicated(["frame", "column"]).any()
    assert (result.meaning.str.len() > 5).all()
    for table in TABLES.values():
        text = listing([table], 80)
        for column in table.columns:
            assert re.search(rf"^  {column.name} +{re.escape(dtype(column))}", text, re.MULTILINE)
        assert max(map(len, text.splitlines())) <= 80
        seconds = [c for c in table.columns if c.name.endswith("seconds")]
        assert all(unit(c) in ("s", "GPU s") for c in seconds)
