"""Output of a training: progress lines of any kind, and values."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metlmon.jobfiles.records import Streamed
from metlmon.jobfiles.training_files import matched_values, newest_progress, printed_values
from tests.fuzz import targets

METL = "Epoch 3:  45%|####      | 46335/102968 [11:02:13<13:30:01, 1.17it/s, loss=48, v_num=0]"


@pytest.mark.parametrize(
    "text",
    [
        METL,
        # The newest of many progress lines after carriage returns.
        "\r" + "\r".join(METL.replace("46335", done) for done in ("100", "200", "46335")),
        # The tail of a file may begin and end within a line.
        METL[40:] + "\r" + METL + "\r" + METL[:30],
        # A validation in between is not the epoch's progress.
        f"{METL}\rValidation DataLoader 0:  90%|######### | 9/10 [00:01<00:00, 9.0it/s]",
    ],
)
def test_progress_line_of_metl(text: str) -> None:
    found = newest_progress(text)
    assert found == Streamed(46335 / 102968, 46335, 102968, 1.17, 48601.0, 3, 48.0)


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (
            "Epoch 3:  45%|████▌     | 463/1029 [11:02<13:30, 2.50s/it, loss=nan, v_num=0]",
            (463 / 1029, 463, 1029, 0.4, 810.0, 3),
        ),
        ("Epoch 4:   0%|          | 0/140 [00:00<?, ?it/s]", (0.0, 0, 140, None, None, 4)),
        ("Epoch 0: 512it [00:05, 9.90it/s]", (None, 512, None, 9.9, None, 0)),
        ("512it [00:05, ?it/s]", (None, 512, None, None, None, None)),
        ("512it [00:05]", (None, 512, None, None, None, None)),
        ("Epoch 1: 7/? [00:05<?, 9.90batch/s]", (None, 7, None, 9.9, None, 1)),
        (
            "Epoch 2:  50%|#####     | 1.50k/3.00k [1:00:00<30:00, 1.5kbatch/s, train_loss=0.5]",
            (0.5, 1500, 3000, 1500.0, 1800.0, 2),
        ),
        (
            "Epoch 9: 100%|##########| 140/140 [00:04<00:00, 35.00it/s, loss=0.1, val_loss=0.2]",
            (1.0, 140, 140, 35.0, 0.0, 9),
        ),
        (
            "\x1b[1mEpoch 7\x1b[0m:  50%|\x1b[32m#####\x1b[0m     | 5/10 [00:05<00:05,  1.0it/s]",
            (0.5, 5, 10, 1.0, 5.0, 7),
        ),
        (
            "Epoch 5:  25%|##5  | 25/100 [36:00:05<108:00:15, 5184.20s/it, loss=1e-3]",
            (0.25, 25, 100, 1 / 5184.2, 388815.0, 5),
        ),
    ],
)
def test_progress_lines_of_all_kinds(line: str, meant: tuple[float | int | None, ...]) -> None:
    found = newest_progress(f"begun\n{line}")
    names = "fraction step steps steps_per_second seconds_left epoch".split()
    assert tuple(getattr(found, name) for name in names) == pytest.approx(meant)


def test_loss_that_is_nan_is_reported() -> None:
    found = newest_progress(METL.replace("loss=48", "loss=nan"))
    assert found.loss is not None
    assert math.isnan(found.loss)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\r\r\r",
        "no bar here",
        "[12:30:01] started",
        "a/b [see note]",
        "100%",
        "x" * 65536,
        "Validation DataLoader 0:  90%|######### | 9/10 [00:01<00:00, 9.0it/s]",
    ],
)
def test_other_lines_are_not_progress(text: str) -> None:
    assert newest_progress(text) is None


ALMOST = st.lists(
    st.one_of(
        st.text(max_size=30),
        st.sampled_from(
            ["\r", "\n", "Epoch 3: ", "45%|", "####", "| ", "46335/", "102968 ", "[11:02:13", "<",
             "?", ", ", "1.17it/s", "loss=", "nan", "]", "\x1b[", "\x1b]", "9" * 60, "1:" * 40]
        ),
    ),
    max_size=60,
).map("".join)  # fmt: skip


@given(ALMOST.map(str.encode) | st.binary(max_size=3000))
def test_any_output_raises_nothing(data: bytes) -> None:
    targets.printed(data)


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("val_loss=0.27", {None: 0.27}),
        ("val_loss: 0.27", {None: 0.27}),
        ("epoch done, val_loss = 2.7e-01.", {None: 0.27}),
        ("{'val_loss': 0.27, 'val_acc': 1}", {None: 0.27}),
        ("│         val_loss          │    0.27    │", {None: 0.27}),
        ("|  val_loss  |  0.27  |", {None: 0.27}),
        ("val_loss: nan", {None: math.nan}),
        ("Epoch 4, global step 640: 'val_loss' reached 0.27000 (best 0.27000)", {4: 0.27}),
        (METL.replace("v_num=0", "val_loss=0.3"), {}),
        ("Epoch 3: 100%|##########| 9/9 [00:04<00:00, 35.00it/s, val_loss=0.3]", {3: 0.3}),
        ("saving 'checkpoints/epoch=4-step=640-val_loss=0.24.ckpt'", {}),
        ("best_val_loss: 0.1, no val_loss yet", {}),
        ("my.val_loss: 0.1", {}),
    ],
)
def test_printed_values_of_all_forms(line: str, meant: dict[int | None, float]) -> None:
    found = printed_values([line], "val_loss")
    assert found.keys() == meant.keys()
    for epoch, value in meant.items():
        assert found[epoch] == value or (math.isnan(value) and math.isnan(found[epoch]))


def test_most_precise_value_counts_then_the_last() -> None:
    bar = "Epoch 4: 100%|##########| 9/9 [00:04<00:00, 35.00it/s, val_loss=0.24]"
    message = "Epoch 4, global step 640: 'val_loss' reached 0.23981, saving model to 'x'"
    assert printed_values([message, bar], "val_loss") == {4: 0.23981}
    assert printed_values([bar, message], "val_loss") == {4: 0.23981}
    assert printed_values(["val_loss: 0.5", "val_loss: 0.4"], "val_loss") == {None: 0.4}


def test_pattern_with_and_without_epochs() -> None:
    lines = ["ep 0 perplexity 9.5", "ep 1 perplexity 7", "ep x", "ep 2 perplexity fine"]
    with_epoch = re.compile(r"ep (?P<epoch>\d+) perplexity (?P<value>\S+)")
    assert matched_values(lines, with_epoch) == [(0, 9.5), (1, 7.0)]
    without = re.compile(r"perplexity (?P<value>\S+)")
    assert matched_values(lines, without) == [(None, 9.5), (None, 7.0)]
