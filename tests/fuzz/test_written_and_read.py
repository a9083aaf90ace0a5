"""Round trips of small files: written values are read back, whatever they are, and the words of a
grammar in any order raise nothing."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metlmon.dagman.reports import read_condor_sub, read_jobstate, read_node_status, read_rescue
from metlmon.jobfiles.training_files import (
    newest_progress,
    printed_values,
    read_args_txt,
    read_metrics_csv,
)
from metlmon.redact import visible
from tests.fuzz.run import raised
from tests.fuzz.seeds import words_of
from tests.fuzz.targets import TARGETS

NAMES = st.text(
    st.characters(codec="utf-8", categories=["L", "N", "P", "S"], exclude_characters="\"'#,"),
    min_size=1,
    max_size=12,
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=20)


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=25)
@given(data=st.data())
def test_words_of_a_grammar_in_any_order_raise_nothing(target: str, data: st.DataObject) -> None:
    words = st.sampled_from(words_of(target)) | st.binary(max_size=6)
    text = b"".join(data.draw(st.lists(words, max_size=40)))
    assert raised(TARGETS[target].look, text) is None


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(st.dictionaries(NAMES, st.tuples(st.integers(0, 7), TEXTS), max_size=5), st.integers(0, 9))
def test_node_status_file_is_read_back(nodes: dict[str, tuple[int, str]], retries: int) -> None:
    ads = ['Type = "DagStatus";\nDagFiles = {\n "run.dag"\n};\nTimestamp = 5; /* "x" */']
    ads += [
        f'Type = "NodeStatus";\nNode = {quoted(name)};\nNodeStatus = {status}; /* "x" */\n'
        f"StatusDetails = {quoted(details)};\nRetryCount = {retries};"
        for name, (status, details) in nodes.items()
    ]
    text = "".join(f"[\n{ad}\n]\n" for ad in [*ads, 'Type = "StatusEnd";'])
    result, problems = read_node_status(Path("s"), text.encode())
    assert (problems, result.dag_files) == ([], ("run.dag",))
    output = {name: (node.status, node.details) for name, node in result.nodes.items()}
    assert output == {
        visible(name): (status, visible(details)) for name, (status, details) in nodes.items()
    }
    assert {node.retry_count for node in result.nodes.values()} <= {retries}


# A trailing backslash joins the next line.
NODES = NAMES.filter(lambda name: not name.endswith("\\"))


@given(st.sets(NODES, max_size=5), st.dictionaries(NODES, st.integers(0, 99), max_size=5))
def test_rescue_file_is_read_back(done: set[str], retries: dict[str, int]) -> None:
    lines = [f"DONE {name}" for name in sorted(done)]
    lines += [f"RETRY {name} {count}" for name, count in retries.items()]
    result, problems = read_rescue(Path("run.dag.rescue003"), "\n".join([*lines, ""]).encode())
    assert (result.number, result.done, problems) == (3, done, [])


@given(st.lists(st.tuples(NAMES, st.integers(0, 10**6)), max_size=6), st.data())
def test_jobstate_log_is_read_back_in_any_pieces(
    jobs: list[tuple[str, int]], data: st.DataObject
) -> None:
    lines = [
        f"{1795220245 + i} {name} SUBMIT {cluster}.0 - - {i}\n"
        for i, (name, cluster) in enumerate(jobs)
    ]
    text = "".join(lines).encode()
    cut = data.draw(st.integers(0, len(text)))
    first, _, used = read_jobstate(text[:cut])
    second, problems, _ = read_jobstate(text[used:])
    output = [(result.node, result.cluster) for result in first + second]
    assert (output, problems) == (jobs, [])


@given(st.lists(TEXTS.filter(str.strip), max_size=5))
def test_arguments_are_read_back(files: list[str]) -> None:
    words = [word for file in files for word in ("-Dag", file)]
    spelled = " ".join("'" + word.replace("'", "''") + "'" for word in words).replace('"', '""')
    result = read_condor_sub(f'arguments\t= "{spelled} -UseDagDir"  \r\n'.encode())
    assert (result.dag_files, result.use_dag_dir) == (tuple(files), True)


VALUES = st.floats() | st.just(math.inf) | st.integers(-(10**9), 10**9).map(float)


@given(st.dictionaries(st.integers(0, 500), VALUES, max_size=8), st.booleans())
def test_metrics_table_is_read_back(values: dict[int, float], windows: bool) -> None:
    file = io.StringIO(newline="")
    written = csv.writer(file, lineterminator="\r\n" if windows else "\n")
    written.writerows([["step", "a,b", "epoch"], *([9, v, e] for e, v in values.items())])
    file.seek(0)
    table = read_metrics_csv(file.readlines())
    assert table.problems == ()
    assert repr(table.values.get("a,b", {})) == repr(values)


@given(st.lists(st.integers(0, 10**6).map(str), max_size=6), st.booleans())
def test_arguments_of_a_training_are_read_back(values: list[str], one_line: bool) -> None:
    result = (
        f"--lr={' '.join(values)}\n" if one_line else "--lr\n" + "".join(f"{v}\n" for v in values)
    )
    assert read_args_txt(f"--wandb\n{result}") == {"wandb": "", "lr": " ".join(values)}


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(0, 99), TEXTS)
def test_progress_line_is_read_back(done: int, total: int, epoch: int, noise: str) -> None:
    line = f"Epoch {epoch}:  45%|####5     | {done}/{total} [00:10<01:30, 2.50it/s, loss=0.5]"
    streamed = newest_progress(f"{noise.replace('[', '')}\r{line}\r")
    assert (streamed.step, streamed.steps, streamed.epoch) == (done, total, epoch)
    assert (streamed.steps_per_second, streamed.seconds_left, streamed.loss) == (2.5, 90.0, 0.5)


@given(VALUES, st.sampled_from(["val_loss={}", "'val_loss': {}", "│ val_loss │ {} │"]))
def test_printed_value_is_read_back(value: float, form: str) -> None:
    result = printed_values([form.format(repr(value))], "val_loss")
    assert repr(result) == repr({None: value})
