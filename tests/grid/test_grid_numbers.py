"""A sweep's cells, compared with the written values; and the command that prints them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from metlmon.cli import Exit
from metlmon.cli.main import main
from metlmon.jobfiles.gate_files import Stopped
from metlmon.live.feed import JobFiles, StatsInput
from metlmon.model.run import GateStatus
from metlmon.stats.sweep import Axis, Grid, GridChoice, grid, next_fixed, next_pair
from metlmon.tables import sweep as sweep_table
from metlmon.text.spans import text
from tests.generated import sweeps
from tests.support.commands import Captured, json_output, text_output
from tests.support.dagdir_feed import sweep
from tests.support.records import read_dagdir, stats_input


def basis_of(path: Path) -> StatsInput:
    return stats_input(read_dagdir(path, live=True), files_in=path)


@pytest.fixture(name="basis", scope="module")
def _basis() -> StatsInput:
    return basis_of(sweep())


@pytest.fixture(name="found", scope="module")
def _found(basis: StatsInput) -> Grid:
    return grid(basis, GridChoice())


POINTS = [(rate, width) for rate in sweeps.RATES for width in sweeps.WIDTHS]


def test_every_point_has_a_cell_and_a_run(found: Grid) -> None:
    assert found.columns is not None
    assert found.rows.points == tuple((rate,) for rate in sweeps.RATES)
    assert found.columns.points == tuple((width,) for width in sweeps.WIDTHS)
    assert list(found.cells) == [((rate,), (width,)) for rate, width in POINTS]
    for index, (rate, width) in enumerate(POINTS):
        (run,) = (each.entry for each in found.cells[(rate,), (width,)].runs)
        assert (run.run, run.epochs_done) == (f"run{index:02}", sweeps.reached(index))


def test_best_of_a_cell_is_the_best_written_value(found: Grid) -> None:
    bests = {}
    for index, (rate, width) in enumerate(POINTS):
        losses = [round(sweeps.loss(rate, width, e), 5) for e in range(sweeps.reached(index))]
        cell = found.cells[(rate,), (width,)]
        if losses:
            bests[rate, width] = min(each for each in losses if each == each)
            assert cell.best.reached.value == bests[rate, width]
            assert cell.rank is not None
        else:
            assert cell.best is None
            assert cell.rank is None
    assert (found.best.row[0], found.best.column[0]) == min(bests, key=lambda at: bests[at])
    for (rate, width), best in bests.items():
        better = sum(other < best for other in bests.values())
        assert found.cells[(rate,), (width,)].rank == better + 1
    for rate in sweeps.RATES:
        least = min(best for at, best in bests.items() if at[0] == rate)
        run = found.row_best[(rate,)].best
        assert run.reached.value == least
    for width in sweeps.WIDTHS:
        least = min(best for at, best in bests.items() if at[1] == width)
        run = found.column_best[(width,)].best
        assert run.reached.value == least


def test_progress_of_cells_adds_up(basis: StatsInput, found: Grid) -> None:
    result = found.progress
    states = result.finished, result.active, result.idle, result.needs_action, result.waiting
    assert result.points == sum(states) == 30
    assert result.epochs_total == 180
    assert result.epochs_done == sum(sweeps.reached(n) for n in range(30))
    assert result.epochs_done == sum(run.epochs_done for run in basis.status.runs)
    assert result.needs_action == sum(str(run.state) == "held" for run in basis.status.runs)


def test_maximised_metric(basis: StatsInput) -> None:
    first = next(iter(basis.job_files.trainings.values()))
    assert "val_loss" in first.metrics
    turned = {
        key: replace(each, metrics={"val_acc": each.metrics.get("val_loss", ())})
        for key, each in basis.job_files.trainings.items()
    }
    found = grid(replace(basis, job_files=JobFiles(turned)), GridChoice(metric="val_acc"))
    assert found.goal == "max"
    assert found.best.row == ("0.1",), "the largest value is that of what ran away"


def test_run_stopped_by_its_gate_has_the_reason(basis: StatsInput) -> None:
    stopped = Stopped("patience", 3, "no better for 3 epochs", datetime(2026, 5, 4, 12))
    rows = tuple(
        replace(row, gate=GateStatus(stopped=stopped)) if row.run == "run18" else row
        for row in basis.ledger.runs
    )
    found = grid(replace(basis, ledger=replace(basis.ledger, runs=rows)), GridChoice())
    cell = found.cells[("0.003",), ("256",)]
    assert cell.stopped
    assert cell.runs[0].stopped == "no better for 3 epochs"
    assert sweep_table.cell_symbol(cell).word == "stopped"
    assert "stopped" in sweep_table.cell_state_text(cell)


def test_progress_counts_stopped_and_paused_runs(basis: StatsInput) -> None:
    before = grid(basis, GridChoice()).progress
    stopped = GateStatus(stopped=Stopped("divergence", 3, "NaN", datetime(2026, 5, 4, 12)))
    paused = GateStatus(paused=datetime(2026, 5, 4, 12))
    gates = {"run00": stopped, "run01": stopped, "run27": stopped, "run10": paused}
    rows = tuple(replace(row, gate=gates.get(row.run)) for row in basis.ledger.runs)
    found = grid(replace(basis, ledger=replace(basis.ledger, runs=rows)), GridChoice())
    result = found.progress
    over = [cell.runs[0].entry.run for cell in found.cells.values() if cell.is_finished]
    assert result.stopped == len({"run00", "run01"}.intersection(over)) == 2
    assert "run27" not in over, "asked to end, and not at its end yet"
    assert (result.finished, result.waiting, result.paused) == (before.finished, before.waiting, 1)
    words = text(sweep_table.headline(found, 200))
    assert f"{before.finished} of 30 done · 2 stopped" in words
    assert "1 paused" in words
    assert f"{before.waiting - 1} waiting" in words


# --- three variables ---------------------------------------------------------------------------


def write_points(path: Path, points: Sequence[Mapping[str, str]], values: Sequence[str]) -> Path:
    """Write a run of one epoch for each point, with its value."""
    lines = []
    for n, (point, value) in enumerate(zip(points, values, strict=True)):
        name, uuid = f"r{n:02}-train_epoch0", f"{n:02}feed"
        given = " ".join(f'{key}="{each}"' for key, each in point.items())
        lines.append(f'JOB {name} train.sub\nVARS {name} run_uuid="{uuid}" {given}')
        file = path / f"output/training_logs/{uuid}/version_0/metrics.csv"
        file.parent.mkdir(parents=True)
        file.write_text(f"epoch,val_loss\n0,{value}\n")
    (path / "x.dag").write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(name="cube", scope="module")
def _cube(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve runs: a × b × c, the loss is a + b/10 + c/100."""
    points = [{"a": a, "b": b, "c": c} for a in "123" for b in "12" for c in "78"]
    values = [f"{each['a']}.{each['b']}{each['c']}" for each in points]
    return write_points(tmp_path_factory.mktemp("cube"), points, values)


@pytest.fixture(name="three", scope="module")
def _three(cube: Path) -> StatsInput:
    return basis_of(cube)


def test_remaining_variables_are_folded_to_the_best(three: StatsInput) -> None:
    found = grid(three, GridChoice())
    assert [each.axis.names for each in found.folded] == [("c",)]
    assert [each.max_values for each in found.folded] == [2]
    assert sweep_table.folding_texts(found) == ["best over up to 2 of c"]
    cell = found.cells[("3",), ("2",)]
    assert [run.reached.value for run in cell.runs if run.reached] == [3.27, 3.28]


def test_remaining_variables_can_be_fixed_by_value(three: StatsInput) -> None:
    choice = GridChoice()
    seen = []
    for _ in range(3):
        found = grid(three, choice)
        cell = found.cells[("1",), ("1",)]
        seen.append((found.fixed, len(cell.runs), cell.runs[0].reached.value, found.excluded_runs))  # type: ignore[union-attr]
        choice = next_fixed(found, choice)
    assert seen == [((), 2, 1.17, 0), ((("c", "7"),), 1, 1.17, 6), ((("c", "8"),), 1, 1.18, 6)]
    assert grid(three, choice).fixed == ()


def test_every_pair_of_variables_can_be_chosen(three: StatsInput) -> None:
    choice, seen = GridChoice(), []
    for _ in range(4):
        found = grid(three, choice)
        seen.append((found.rows.names[0], found.columns.names[0]))
        choice = next_pair(found, choice)
    assert seen == [("a", "b"), ("a", "c"), ("b", "c"), ("a", "b")]


# --- the command -------------------------------------------------------------------------------


def report_of(capsys: Captured, *arguments: object) -> dict[str, Any]:
    return json_output("grid", capsys, *arguments)


def values(result: dict[str, Any]) -> list[float]:
    """The best value of each cell."""
    return [cell["runs"][0]["reached"]["value"] for cell in result["cells"]]


def test_json_has_all_figures(found: Grid, capsys: Captured) -> None:
    result = report_of(capsys, sweep(), "--live")
    assert result["schema"] == 1
    assert [each["name"] for each in result["variables"]] == ["lr", "width"]
    assert (result["best"]["row"], result["best"]["column"]) == (["0.003"], ["256"])
    assert len(result["cells"]) == len(found.cells)
    for cell, known in zip(result["cells"], found.cells.values(), strict=True):
        assert cell["rank"] == known.rank
        assert [run["run"] for run in cell["runs"]] == [run.entry.run for run in known.runs]
    assert result["progress"]["points"] == 30


@pytest.mark.parametrize("columns", [50, 80, 200])
def test_table_has_every_value_at_any_width(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    out = text_output("grid", capsys, sweep(), "--ascii")
    assert out.isascii()
    assert out.startswith("best 0.2133 at lr 0.003, width 256")
    assert "run18 epoch 6" in " ".join(out.split())
    assert out.count("0.2133") == 2
    assert "*0.2133 6/6 +" in out
    table = out[out.index("lr / width") :].splitlines()
    assert all(len(line) <= columns for line in table)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--rows", "depth"), "--rows depth: no variable that is swept; there are: lr, width"),
        (("--rows", "lr", "--columns", "lr"), "one of them only"),
        (("--where", "lr"), "write NAME=VALUE"),
        (("--where", "lr=7"), "no run has that value; there are: 1e-4"),
        (("--rows", "lr", "--columns", "width", "--where", "lr=0.1"), "already"),
        (("--metric", "val_los"), "no run has it; there are: val_loss"),
    ],
)
def test_unknown_names_are_refused_in_a_sentence(
    options: tuple[str, ...], why: str, capsys: Captured
) -> None:
    assert main(["grid", str(sweep()), *options]) == Exit.USAGE
    assert why in capsys.readouterr().err


# --- fixed variables ---------------------------------------------------------------------------


def test_fixed_variable_is_neither_row_nor_column(cube: Path, capsys: Captured) -> None:
    """Even where it would be by default."""
    result = report_of(capsys, str(cube), "--where", "a=2")
    assert (result["rows"]["names"], result["columns"]["names"]) == (["b"], ["c"])
    assert (result["fixed"], result["excluded_runs"]) == ([{"name": "a", "value": "2"}], 8)
    assert values(result) == [2.17, 2.18, 2.27, 2.28]
    result = report_of(capsys, str(cube), "--where", "a=2", "--rows", "c")
    assert (result["rows"]["names"], result["columns"]["names"]) == (["c"], ["b"])
    result = report_of(capsys, str(cube), "--where", "a=2", "--where", "c=8")
    assert (result["rows"]["names"], result["columns"]) == (["b"], None)
    assert values(result) == [2.18, 2.28]


def test_grid_without_a_variable_for_rows_is_refused(cube: Path, capsys: Captured) -> None:
    fixed = ("--where", "a=2", "--where", "b=1", "--where", "c=8")
    assert main(["grid", str(cube), *fixed]) == Exit.USAGE
    assert "nothing that is swept is left for the rows; leave one out" in capsys.readouterr().err


def test_missing_value_is_given_as_shown(tmp_path: Path, capsys: Captured) -> None:
    points = [{"a": a, "b": b} for a in "12" for b in "12"] + [{"a": "9"}]
    write_points(tmp_path, points, ["1", "2", "3", "4", "0.5"])
    for dash in ("–", "-"):
        result = report_of(capsys, str(tmp_path), "--where", f"b={dash}")
        assert result["fixed"] == [{"name": "b", "value": None}]
        assert [cell["row"] for cell in result["cells"]] == [["9"]]
        assert values(result) == [0.5]


# --- values that are long, wide, or no numbers --------------------------------------------------


def test_long_values_are_abbreviated_distinctly(tmp_path: Path, capsys: Captured) -> None:
    """By what they differ in; whole in JSON."""
    where = "/a/very/long/path/to/a/config/file"
    points = [{"opt": o, "path": f"{where}/{p}.yaml"} for o in "xy" for p in ("one", "two")]
    write_points(tmp_path, points, ["1", "2", "3", "4"])
    lines = text_output("grid", capsys, tmp_path).splitlines()
    assert lines[0].startswith(f"best 1 at opt x, path {where}/one.yaml")
    assert lines[0].endswith("r00 epoch 1")
    assert next(each for each in lines if each.startswith("opt / path")).split() == [
        "opt", "/", "path", "…one.yaml", "…two.yaml",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (("0.1", "0.2"), ["0.1", "0.2"]),
        (("data/" + "x" * 30 + "/1", "b"), ["data/xxxxxxxxxx…xxxxxx/1", "b"]),
        (("big_" + "x" * 24 + "_lr0.01", "big_" + "x" * 24 + "_lr0.02"), ["…lr0.01", "…lr0.02"]),
        (("y" * 30 + "1", "y" * 30 + "2"), ["…yy1", "…yy2"]),
        (
            ("near" + "a" * 30 + "1", "net" + "b" * 30),
            ["nearaaaaaaaaaaa…aaaaaaa1", "netbbbbbbbbbbbb…bbbbbbbb"],
        ),
        (
            ("s3://b/" + "u" * 40 + "1", "s3://b/v" + "w" * 40),
            ["…uuuuuuuuuuuuuu…uuuuuuu1", "…vwwwwwwwwwwwww…wwwwwwww"],
        ),
    ],
)  # fmt: skip
def test_labels_of_values(values: tuple[str, ...], names: list[str]) -> None:
    axis = Axis(("v",), tuple((each,) for each in values))
    assert list(sweep_table.labels(axis).values()) == names
    assert all(len(each) <= sweep_table.VALUE_LIMIT for each in names)


def test_infinite_value_is_not_nan(tmp_path: Path, capsys: Captured) -> None:
    points = [{"lr": lr} for lr in ("1", "2", "3", "4")]
    write_points(tmp_path, points, ["0.5", "inf", "-inf", "nan"])
    lines = text_output("grid", capsys, tmp_path, "--ascii").splitlines()
    shown = {line.split()[0]: line for line in lines if line[:2] in ("2 ", "3 ", "4 ")}
    assert [line.split()[1] for line in shown.values()] == ["inf", "-inf", "NaN"]
    assert [line.rsplit(", ", 1)[1] for line in shown.values()] == ["inf", "inf", "NaN"]
    out = text_output("curves", capsys, tmp_path, "--ascii")
    assert "inf since epoch 1" in out
    assert "NaN since epoch 1" in out


def test_command_without_a_sweep_explains_sweeps(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "x.dag").write_text("JOB a-train_epoch0 t.sub\n")
    out = text_output("grid", capsys, tmp_path)
    assert "No sweep here" in out
    assert "metlmon new" in out
