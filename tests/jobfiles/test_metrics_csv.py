"""metrics.csv in every form that trainings write."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metlmon.jobfiles.records import number
from metlmon.jobfiles.training_files import MAX_METRICS, MetricsTable, read_metrics_csv

HEAD = "lr-Adagrad,step,train_loss_step,epoch,val_loss,test_loss\n"


def read(text: str) -> MetricsTable:
    return read_metrics_csv(text.splitlines(keepends=True))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        # Rows are sparse, several per epoch; those of single steps are left out.
        (HEAD + "0.1,49,,,,\n,49,0.9,0,,\n,127,,0,0.45,\n,127,,0,,\n", {"val_loss": {0: 0.45}}),
        (HEAD + "".join(f",{n},{n / 7},0,,\n" for n in range(1000)), {}),
        # Columns are found by name, also below a second header.
        ("epoch,val_loss,step\n3,0.2,5\n", {"val_loss": {3: 0.2}}),
        ("val_loss,step,epoch\r\n0.2,5,3\r\n", {"val_loss": {3: 0.2}}),
        ("epoch,val_loss\n0,0.5\nval_loss,epoch\n0.4,1\n", {"val_loss": {0: 0.5, 1: 0.4}}),
        # The last value of an epoch counts.
        ("epoch,val_loss\n0,0.5\n0,0.4\n", {"val_loss": {0: 0.4}}),
        # Lightning counts up before testing: the row has the number of complete epochs.
        (HEAD + ",127,,4,0.3,\n,128,,5,,0.31\n", {"val_loss": {4: 0.3}, "test_loss": {4: 0.31}}),
        ("epoch,test_loss\n3,0.5\n", {"test_loss": {2: 0.5}}),
        ("epoch,test_loss\n0,0.5\n", {"test_loss": {0: 0.5}}),
        # A test during an epoch belongs to that epoch.
        (
            "epoch,val_loss,test_loss\n0,1,\n1,0.9,\n0,,0.7\n",
            {"val_loss": {0: 1.0, 1: 0.9}, "test_loss": {0: 0.7}},
        ),
        # An incomplete row: half of 0.2743 would be a better loss than the true one.
        ("epoch,val_loss\n0,0.5\n1,0.27", {"val_loss": {0: 0.5}}),
        ("epoch,val_lo", {}),
        ("", {}),
        # Invalid epochs are left out.
        ("epoch,val_loss\n-1,1\n0.5,1\nx,1\n1e9,1\nnan,1\n2.0,0.3\n", {"val_loss": {2: 0.3}}),
    ],
)
def test_values_of_a_file_are_read(text: str, values: dict[str, dict[int, float]]) -> None:
    assert read(text) == MetricsTable(values)


@given(
    st.permutations(["lr-Adam", "step", "loss_step", "epoch", "val_loss", "train_loss"]),
    st.lists(st.lists(st.sampled_from(["", "0", "1", "0.5"]), min_size=1, max_size=8), max_size=12),
    st.sampled_from(["\n", "\r\n"]),
)
def test_skipped_lines_have_no_value(head: list[str], rows: list[list[str]], end: str) -> None:
    """Each line alone below the header has the same values as among the others."""
    lines = [",".join(fields) + end for fields in (head, *rows)]
    expected: dict[str, dict[int, float]] = {}
    for fields in rows:
        cells = dict(zip(head, fields, strict=False))
        for name in ("lr-Adam", "val_loss", "train_loss"):
            if cells.get("epoch") in ("0", "1") and cells.get(name):
                expected.setdefault(name, {})[int(cells["epoch"])] = float(cells[name])
    assert read_metrics_csv(lines).values == expected


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("nan", math.nan),
        ("NaN", math.nan),
        ("-nan", math.nan),
        ("-nan(ind)", math.nan),
        ("1.#QNAN", math.nan),
        ("tensor(nan)", math.nan),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("Infinity", math.inf),
        ("1.#INF", math.inf),
        ("tensor(0.27, device='cuda:0')", 0.27),
        ("np.float64(0.27)", 0.27),
        ("1e-05", 1e-5),
        ("+3.", 3.0),
        (".5", 0.5),
        ("1_000", None),
        ("0x10", None),
        ("", None),
        ("none", None),
        ("infinite", None),
    ],
)
def test_numbers_of_python_torch_and_numpy(written: str, meant: float | None) -> None:
    found = number(written)
    assert (found is None) == (meant is None)
    assert found == meant or (math.isnan(found or 0) and math.isnan(meant or 0))


def test_nan_is_kept_as_a_value() -> None:
    values = read("epoch,val_loss\n0,0.5\n1,nan\n").values["val_loss"]
    assert math.isnan(values[1])


def test_file_without_epochs_is_reported() -> None:
    table = read("step,val_loss\n1,0.5\n")
    assert table.values == {}
    assert table.problems == ("has no column called epoch",)


def test_kept_values_are_bounded() -> None:
    many = MAX_METRICS + 50
    names = ",".join(f"m{n}" for n in range(many))
    table = read(f"epoch,{names}\n0,{','.join('1' for _ in range(many))}\n")
    assert len(table.values) == MAX_METRICS
    assert "more than" in table.problems[0]


def test_unterminated_field_is_reported() -> None:
    table = read('epoch,val_loss\n0,0.5\n1,"' + "x" * 200_000 + "\n")
    assert table.values["val_loss"] == {0: 0.5}
    assert "not read to its end" in table.problems[0]
