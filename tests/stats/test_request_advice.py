"""Advised requests: against the tables of the logs, and where none is given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from metlmon.stats.requests import RequestAdvice, advise_requests, advised_fields
from tests.conftest import shared_path
from tests.support.commands import Captured, json_output, text_output
from tests.support.event_logs import Log
from tests.support.lint_ensemble import write
from tests.support.recordings import FIXTURES
from tests.support.records import read_dagdir, stats_input

GB = 1 << 20


def advice_of(dagdir: Path) -> tuple[RequestAdvice, ...]:
    return advise_requests(stats_input(read_dagdir(dagdir)))


def test_real_ensemble_fits_a_fourth_of_its_memory() -> None:
    advice = advice_of(shared_path("examples/metl-aws"))
    suggested = {row.command: row.suggested for row in advice}
    assert suggested == {
        "request_memory": 35 * 1024,
        "request_disk": 64 * GB,
        "request_cpus": 6,
        "request_gpus": None,
        "gpus_minimum_memory": None,
    }
    assert {row.submit for row in advice} == {"aws_pretrain.sub"}
    assert next(each.requested for each in advice if "minimum" in each.command) == 32000


TABLE = """\
\tPartitionable Resources :    Usage  Request Allocated Assigned
\t   Cpus                 :{cpus:>9}        8         8
\t   Disk (KB)            :   123456 52428800  52428800
\t   GPUs                 :{gpus:>9}        2         2 "GPU-0a0a0a0a,GPU-0b0b0b0b"
\t   GpusMemory (MB)      :{gpu_memory:>9}
\t   Memory (MB)          :{memory:>9}    65536     65536
"""

SUBMIT = """\
executable = /bin/true
request_cpus = 8
request_memory = $(size)
request_disk = 50GB
request_gpus = 2
gpus_minimum_memory = 40 GB
log = metl.log
queue
"""


def dagdir(path: Path, memory: Sequence[int], cpus: float = 0.95, gpus: object = 0.98) -> Path:
    """A DAG of one run with so many completed jobs, and their peaks in MB."""
    log = Log()
    lines = ['VARS ALL_NODES size="64 GB"']
    for epoch, peak in enumerate(memory):
        node, job = f"run0-train_epoch{epoch}", 100 + epoch
        lines += [f"JOB {node} t.sub", f'VARS {node} epoch="{epoch + 1}" run_uuid="u0"']
        log.submit(job, node).execute(job, gpus=2)
        body = TABLE.format(cpus=cpus, gpus=gpus, gpu_memory=20000, memory=peak)
        log.raw(5, job, "Job terminated.", f"\t(1) Normal termination (return value 0)\n{body}")
    files = {"ens.dag": "\n".join([*lines[1:], lines[0], ""]), "t.sub": SUBMIT}
    return write(path, {**files, "metl.log": log.data})


def by_command(rows: Sequence[RequestAdvice]) -> dict[str, RequestAdvice]:
    return {row.command: row for row in rows}


def test_advised_numbers_are_rounded(tmp_path: Path) -> None:
    rows = by_command(advice_of(dagdir(tmp_path, [9000, 9001, 9002, 9003, 9300, 9000])))
    memory, cpus = rows["request_memory"], rows["request_cpus"]
    assert (memory.suggested, memory.exceeding, memory.completed) == (10 * 1024, 0, 6)
    assert (cpus.suggested, rows["request_disk"].suggested) == (2, GB)
    # 0.98 of two GPUs is the work of one; a device's memory needs a tenth more.
    assert rows["request_gpus"].suggested == 1
    assert rows["gpus_minimum_memory"].requested == 40 * 1024
    assert rows["gpus_minimum_memory"].suggested == 22 * 1024


@pytest.mark.parametrize(
    ("memory", "gpus"),
    [([9000] * 4, 0.98), ([64000] * 6, ""), ([70000] * 6, 1.4)],
    ids=["four epochs", "it fits", "no evidence by a hold"],
)
def test_no_advice_is_given(tmp_path: Path, memory: list[int], gpus: object) -> None:
    rows = by_command(advice_of(dagdir(tmp_path, memory, gpus=gpus)))
    assert rows["request_memory"].suggested is None
    assert rows["request_gpus"].suggested is None


def test_rounded_peaks_are_upper_bounds(tmp_path: Path) -> None:
    """50 and 25 million KB, in whole MB."""
    rows = by_command(advice_of(dagdir(tmp_path, [48829, 24415, 24415, 24415, 24415])))
    assert rows["request_memory"].rounded
    assert not by_command(advice_of(dagdir(tmp_path, [48829, 24416, 24415])))[
        "request_memory"
    ].rounded


def test_hold_raises_the_request_like_the_action(tmp_path: Path) -> None:
    rows = advice_of(FIXTURES / "health/memory")
    raised = [row for row in rows if row.suggested is not None]
    assert {(row.command, row.requested, row.exceeded) for row in raised} == {
        ("request_memory", 64, 1)
    }
    # The slots had 128 MB.
    assert all((row.suggested or 0) >= 128 * 1.5 for row in raised)


def test_check_notes_each_request_at_its_line(tmp_path: Path, capsys: Captured) -> None:
    path = dagdir(tmp_path, [9000] * 6)
    found = json_output("check", capsys, path)["findings"]
    notes = {(f["line"], f["severity"]) for f in found if f["kind"] == "request-too-large"}
    assert notes == {(line, "note") for line in (2, 3, 4, 5, 6)}
    (memory,) = (f["message"] for f in found if f["line"] == 3 and f["file"] == "t.sub")
    assert all(part in memory for part in ("64GB", "6 epochs", "8.79 GB", "10GB", "0 of 6"))
    write(tmp_path, {"t.sub": SUBMIT.replace("$(size)", "10GB")})
    found = json_output("check", capsys, path)["findings"]
    assert 3 not in [each["line"] for each in found if each["kind"] == "request-too-large"]


def test_new_uses_fitting_requests_by_default(tmp_path: Path, capsys: Captured) -> None:
    past = dagdir(tmp_path, [9000] * 6)
    command = (tmp_path / "new", "--dry-run", "--past", past)
    answer = json_output("new", capsys, *command)
    (text,) = (file["text"] for file in answer["files"] if file["name"] == "ensemble.sub")
    for line in ("request_memory = 10240MB", "request_gpus = 1", "request_disk = 1GB"):
        assert line in text
    assert "gpus_minimum_memory = 22528" in text
    assert answer["requests"]["memory_mb"]["measured"] == 6
    answer = json_output("new", capsys, *command, "--memory", "3 GB", "--set", "disk=7GB")
    assert answer["requests"].keys() == {"gpus", "gpu_memory_mb"}
    assert "\n--set disk=1GB, from " in text_output("new", capsys, *command)


def test_fields_apply_to_trainings(tmp_path: Path) -> None:
    assert advised_fields(()) == {}
    assert "memory_mb" not in advised_fields(advice_of(dagdir(tmp_path, [9000] * 4)))
    # A fitting request is used, too: the default may be less.
    assert advised_fields(advice_of(dagdir(tmp_path, [64000] * 6)))["memory_mb"][0] == "65536"


def test_usage_prints_fitting_requests(tmp_path: Path, capsys: Captured) -> None:
    path = dagdir(tmp_path, [9000] * 12)
    first = text_output("usage", capsys, path, "--requests").split("\n")[0]
    assert first.startswith("request_memory = 10GB")
    assert all(part in first for part in ("64GB", "t.sub", "12 epochs", "8.79 GB", "0 of 12"))
    for until, measured in (("2026-05-04 10:17:30", 5), ("2026-05-04 10:14:00", 4)):
        rows = json_output("usage", capsys, path, "--requests", "--until", until)["requests"]
        assert {row["measured"] for row in rows} == {measured}
        assert (rows[0]["suggested"] is None) == (measured < 5)


def test_gain_counts_slots_matched_only_by_the_advice(tmp_path: Path) -> None:
    """Of ten slots four have enough memory only for the advised request, two of them with a GPU."""
    big = dict.fromkeys(("request_disk", "request_cpus", "request_gpus"), float(64 * GB))
    big |= {"request_memory": 65536.0, "gpus_minimum_memory": 81920.0}
    slots = [
        (big, 5),
        ({**big, "request_memory": 10240.0}, 2),
        ({**big, "request_memory": 10240.0, "request_gpus": 0.0}, 2),
        ({**big, "request_memory": 10239.0}, 1),
    ]
    made = stats_input(read_dagdir(dagdir(tmp_path, [9000] * 6)))
    rows = by_command(advise_requests(made, slots=slots))
    assert (rows["request_memory"].slots, rows["request_memory"].gain) == (10, 0.2)
    assert rows["request_gpus"].gain == 0
