"""W&B runs written offline by the real library, read without it."""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from metlmon.jobfiles import wandb_run
from tests.generated import sweeps
from tests.support.commands import Captured, json_output, text_output
from tests.support.wandb_files import HEADER, history_record, log_file, log_records, run_record
from tests.support.wandb_runs import HISTOGRAM, RunRequest, run_file, write_runs

EPOCHS = 40
"""Of a run whose rows are in several blocks."""

LOSSES = {3: math.nan, 5: math.inf, 6: -math.inf}


def loss(epoch: int) -> float:
    return LOSSES.get(epoch, 1 / (epoch + 3))


def rows_of_epochs() -> Iterator[dict[str, Any]]:
    """Twelve rows of single steps in each epoch, and one of its validation."""
    for epoch in range(EPOCHS):
        for step in range(12):
            yield {"train_loss": epoch + step / 100, "epoch": epoch, "trainer/global_step": step}
        yield {
            "val_loss": loss(epoch),
            "epoch": epoch,
            "score": {"rank": {"spearman": epoch / 8}, "f1": -epoch},
            "weights": HISTOGRAM,
            "best": epoch % 2 == 0,
            "remark": "x" * (70_000 if epoch == 7 else 10),
            "lr.Adam": 10.0**-epoch,
            "naïve loss": 2**40 + epoch,
        }
    yield {"test_loss": 0.125, "epoch": EPOCHS}


EXPECTED = {
    "train_loss": {epoch: epoch + 11 / 100 for epoch in range(EPOCHS)},
    "val_loss": {epoch: loss(epoch) for epoch in range(EPOCHS)},
    "score.rank.spearman": {epoch: epoch / 8 for epoch in range(EPOCHS)},
    "score.f1": {epoch: float(-epoch) for epoch in range(EPOCHS)},
    "lr.Adam": {epoch: 10.0**-epoch for epoch in range(EPOCHS)},
    "naïve loss": {epoch: float(2**40 + epoch) for epoch in range(EPOCHS)},
    "test_loss": {EPOCHS - 1: 0.125},
}

SECRET = "0123456789abcdef0123456789abcdef01234567"
"""What the library would send, not a key of anybody's."""


class WrittenRuns(NamedTuple):
    """The bytes of three files: with epochs, without, and of a killed process.

    ``sweep``: a dagdir whose trainings wrote ``metrics.csv`` and W&B runs with the same values.
    """

    epochs: bytes
    steps: bytes
    killed: bytes
    sweep: Path


@pytest.fixture(name="written", scope="module")
def _written(tmp_path_factory: pytest.TempPathFactory) -> WrittenRuns:
    if find_spec("wandb") is None:
        pytest.skip("no wandb here")
    place = tmp_path_factory.mktemp("wandb")
    config = {"lr": 0.001, "api_token": SECRET}
    sweep = place / "sweep"
    sweeps.write(sweep, rates=("1e-4", "0.1"), widths=("1024",))
    requests = [
        *(
            RunRequest(str(path.parents[1]), path.parents[1].name, _rows_of(path))
            for path in sorted(sweep.glob("output/training_logs/*/version_0/metrics.csv"))
        ),
        RunRequest(str(place / "epochs"), "epochs", list(rows_of_epochs()), config),
        RunRequest(str(place / "steps"), "steps", [{"val_loss": n / 4} for n in range(9)]),
        RunRequest(str(place / "killed"), "killed", list(rows_of_epochs()), config, killed=True),
    ]
    write_runs(requests, place)
    data = (run_file(place / name).read_bytes() for name in ("epochs", "steps", "killed"))
    return WrittenRuns(*data, sweep)


def _rows_of(metrics_csv: Path) -> list[dict[str, float]]:
    with open(metrics_csv, newline="") as file:
        rows = list(csv.DictReader(file))
    return [{"epoch": int(row["epoch"]), "val_loss": float(row["val_loss"])} for row in rows]


def blocks_of(data: bytes) -> Iterator[bytes]:
    return (
        data[at : at + wandb_run.BLOCK_BYTES] for at in range(0, len(data), wandb_run.BLOCK_BYTES)
    )


def read(data: bytes) -> wandb_run.WandbRun:
    return wandb_run.read_wandb_run(blocks_of(data))


def comparable(values: Any) -> str:
    """As JSON, where NaN equals NaN, with sorted names."""
    return json.dumps(values, sort_keys=True)


# --- files of the library ----------------------------------------------------------------------


def test_values_are_those_logged(written: WrittenRuns) -> None:
    assert len(written.epochs) > 3 * wandb_run.BLOCK_BYTES
    run = read(written.epochs)
    assert run.table.problems == ()
    assert comparable(run.table.values) == comparable(EXPECTED)
    assert run.newest == {}
    assert SECRET.encode() in written.epochs
    assert SECRET not in repr(run)


def test_rows_agree_with_the_librarys_protobuf_classes(written: WrittenRuns) -> None:
    rows = 0
    for data in (written.epochs, written.steps, written.killed):
        theirs = list(_parsed_by_library(data))
        assert comparable(_parsed(data)) == comparable(theirs)
        rows += len(theirs)
    assert rows > EPOCHS * 13 + 9


def _parsed(data: bytes) -> list[dict[str, float]]:
    return [wandb_run.numbers_of(row) for row in wandb_run.WandbLog(blocks_of(data)).rows()]


def records_of_library(data: bytes) -> Iterator[Any]:
    from wandb.proto import wandb_internal_pb2

    return map(wandb_internal_pb2.Record.FromString, log_records(data))


def _parsed_by_library(data: bytes) -> Iterator[dict[str, float]]:
    for record in records_of_library(data):
        if record.WhichOneof("record_type") != "history":
            continue
        values = {
            ".".join(item.nested_key) or item.key: json.loads(item.value_json)
            for item in record.history.item
        }
        others = tuple(name[:-5] for name in values if name.endswith("._type"))
        yield {
            name: float(value)
            for name, value in values.items()
            if type(value) in (int, float) and not (others and name.startswith(others))
        }


def test_start_is_that_of_the_librarys_record(written: WrittenRuns) -> None:
    records = records_of_library(written.epochs)
    (run,) = (record.run for record in records if record.HasField("run"))
    assert read(written.epochs).started == run.start_time.seconds


def test_last_values_of_rows_without_an_epoch(written: WrittenRuns) -> None:
    run = read(written.steps)
    assert run.table.values == {}
    assert run.newest == {"val_loss": 2.0}


def test_killed_run_is_read_to_its_last_complete_row(written: WrittenRuns) -> None:
    assert sum(each.HasField("exit") for each in records_of_library(written.epochs)) == 1
    assert not any(each.HasField("exit") for each in records_of_library(written.killed))
    run = read(written.killed)
    assert run.table.problems == ()
    read_losses = run.table.values["train_loss"]
    assert 0 < len(read_losses) <= EPOCHS
    epochs = range(len(read_losses) - 1)
    assert comparable([read_losses[n] for n in epochs]) == comparable(
        [EXPECTED["train_loss"][n] for n in epochs]
    )


# --- torn and damaged files ----------------------------------------------------------------------


def test_file_cut_anywhere_has_the_rows_before(written: WrittenRuns) -> None:
    step = 1 if os.environ.get("CI") else 7
    whole = comparable(_parsed(written.steps))
    for length in range(0, len(written.steps), step):
        run = read(written.steps[:length])
        assert run.table.problems == ()
        assert whole.startswith(comparable(_parsed(written.steps[:length]))[:-1])


def test_damaged_block_is_skipped_and_reported() -> None:
    records = [history_record({"val_loss": n / 2, "epoch": n}) for n in range(2000)]
    data = bytearray(log_file([run_record(1_795_860_000), *records]))
    assert len(data) > 2 * wandb_run.BLOCK_BYTES
    data[wandb_run.BLOCK_BYTES + 5000] ^= 1
    run = read(bytes(data))
    (problem,) = run.table.problems
    assert problem.startswith("is damaged at byte 3")
    epochs = run.table.values["val_loss"]
    assert {0, 1, 1999} <= epochs.keys()
    assert all(value == epoch / 2 for epoch, value in epochs.items())
    assert 1000 < len(epochs) < 2000


@pytest.mark.parametrize("data", [b"epoch,val_loss\n0,1\n", b"\0" * 100, HEADER[:6] + b"\1"])
def test_other_file_is_reported(data: bytes) -> None:
    assert read(data).table.problems == ("is not in the format of a W&B run",)


def test_new_file_is_empty() -> None:
    for length in range(8):
        assert read(HEADER[:length]) == read(b"")
        assert read(HEADER[:length]).table.problems == ()


def test_oversized_record_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wandb_run, "LARGEST_RECORD", 50_000)
    rows = [{"a": 1, "epoch": 0}, {"b": "x" * 50_000, "epoch": 0}, {"c": 1, "epoch": 0}]
    run = read(log_file(map(history_record, rows)))
    assert run.table.values == {"a": {0: 1.0}, "c": {0: 1.0}}
    assert len(run.table.problems) == 1


# --- rows ------------------------------------------------------------------------------------


def table_of(rows: Iterable[dict[str, Any]]) -> dict[str, dict[int, float]]:
    table = read(log_file(map(history_record, rows))).table
    assert table.problems == ()
    return dict(table.values)


NESTED = {"a": 1, "b": {"c": math.nan, "flag": True, "list": [1]}, "h": {"_type": "x", "n": 1}}
OWN = {"_step": 3, "_timestamp": 1.5, "_runtime": 2, "step": 1, "loss_step": 2}


@pytest.mark.parametrize(
    ("rows", "values"),
    [
        # An epoch may be a whole float; rows with other numbers have none.
        (
            [{"a": 1, "epoch": 0.0}, {"a": 2, "epoch": 1.0}, {"a": 3, "epoch": 1}],
            {"a": {0: 1.0, 1: 3.0}},
        ),
        *(
            ([{"a": 1, "epoch": epoch}, {"b": 2, "epoch": 0}], {"b": {0: 2.0}})
            for epoch in (-1, 0.5, True, "0", math.nan, 1e9, None)
        ),
        # Nested metrics of old versions are JSON objects.
        ([{"epoch": 0, "all": NESTED}], {"all.a": {0: 1.0}, "all.b.c": {0: math.nan}}),
        # The library's own values and counters are not metrics.
        ([{**OWN, "epoch": 0, "loss": 4}], {"loss": {0: 4.0}}),
    ],
)
def test_values_of_rows(rows: list[dict[str, Any]], values: dict[str, Any]) -> None:
    assert comparable(table_of(rows)) == comparable(values)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e400", math.inf),
        ("-2.5E-3", -0.0025),
        ('"NaN"', math.nan),
        ('"-Infinity"', -math.inf),
        ("9" * 400, None),
        ("1" + " " * 80 + "x", None),
        ('"12"', None),
        ("null", None),
        ("true", None),
        ("[1]", None),
        ("", None),
    ],
)
def test_numbers_in_all_notations(text: str, value: float | None) -> None:
    expected = {} if value is None else {"a": value}
    assert comparable(wandb_run.numbers_of({"a": text.encode()})) == comparable(expected)
    if text not in ("", '"NaN"', '"-Infinity"') and "x" not in text:
        nested = wandb_run.numbers_of({"a": b'{"b":' + text.encode() + b"}"})
        assert list(nested.values()) == list(expected.values())


def test_too_deeply_nested_object_has_no_values() -> None:
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    assert wandb_run.numbers_of({"deep": deep, "a": b"1"}) == {"a": 1.0}


def test_names_are_bounded_in_length_and_number() -> None:
    row = {"epoch": 0, **{f"m{n}": n for n in range(300)}}
    table = read(log_file([history_record(row)])).table
    assert len(table.values) == 256
    assert table.problems == ("has more than 256 metrics: only those are read",)
    (name,) = table_of([{"x" * 5000: 1, "epoch": 0}])
    assert len(name) == 200


BEST = round(min(sweeps.loss("1e-4", "1024", epoch) for epoch in range(sweeps.EPOCHS)), 5)


@pytest.mark.parametrize("command", ["status", "curves", "grid", "health", "report"])
def test_commands_agree_for_wandb_runs_and_metrics_csv(
    written: WrittenRuns, command: str, tmp_path: Path, capsys: Captured
) -> None:
    """Of two copies of a sweep, one has its values in W&B runs only."""
    theirs = copy_without("wandb", written.sweep, tmp_path / "csv")
    ours = copy_without("version_*", written.sweep, tmp_path / "wandb")
    result = _without_places(json_output(command, capsys, ours))
    assert result == _without_places(json_output(command, capsys, theirs))
    assert command not in ("curves", "grid") or str(BEST) in json.dumps(result)


def copy_without(name: str, sweep: Path, copy: Path) -> Path:
    """A copy of a sweep, without the directories of its trainings with this name."""
    shutil.copytree(sweep, copy, symlinks=True)
    for path in copy.glob(f"output/training_logs/*/{name}"):
        shutil.rmtree(path)
    return copy


def _without_places(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_places(each)
            for name, each in value.items()
            if name not in ("file", "version", "dagdir", "title")
        }
    return [_without_places(each) for each in value] if isinstance(value, list) else value


def test_curves_of_wandb_runs(written: WrittenRuns, tmp_path: Path, capsys: Captured) -> None:
    dagdir = copy_without("version_*", written.sweep, tmp_path / "wandb")
    text = text_output("curves", capsys, dagdir)
    assert f"{BEST:.4f}" in text
    assert "NaN" in text
    files = {str(path.relative_to(dagdir)) for path in dagdir.glob("output/**/run-*.wandb")}
    runs = json_output("curves", capsys, dagdir)["runs"]
    assert {run["points"][0]["file"] for run in runs} == files
    assert len(files) == 2
