"""Each way by which a text comes in, or a sentence goes out, alone: no key comes along."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from keys import SHAPES

from metlmon.authoring.request import PlanError
from metlmon.dagman.lexer import shown
from metlmon.dagman.reports import read_node_status
from metlmon.errors import InputError
from metlmon.eventlog import Event, Generic, Submit
from metlmon.jobfiles.training_files import read_args_txt
from metlmon.model.job_events import LoggedJob, Stream
from metlmon.pool.protocol import ErrorKind, QueueJob
from metlmon.pool.types import PoolError
from metlmon.pool.worker import WorkerFailure, queue_job
from metlmon.redact import HIDDEN, redact_job_text

KEY = SHAPES["GitHub"]


def test_a_token_of_a_dag_file() -> None:
    assert shown(KEY) == HIDDEN
    assert KEY[:12] not in shown("x" * 20 + "," + KEY), "hidden before it is cut"


def test_the_details_of_a_node() -> None:
    text = (
        '[\n  Type = "DagStatus";\n  DagStatus = 6;\n]\n[\n  Type = "NodeStatus";\n  Node = "A";\n'
        f'  NodeStatus = 6;\n  StatusDetails = "failed: --token {KEY} it was";\n]\n'
        '[\n  Type = "StatusEnd";\n]\n'
    )
    status, _ = read_node_status(Path("x.status"), text.encode())
    assert status is not None
    assert status.nodes["A"].details == f"failed: --token {HIDDEN} it was"


def test_arguments_of_a_training() -> None:
    result = read_args_txt(f"--extra\n--lr\n{KEY}\n--comment\ntoken=hunter2 x\n")
    assert result["lr"] == HIDDEN
    assert result["comment"] == f"token={HIDDEN} x"


def test_what_the_queue_says() -> None:
    ad = {"ClusterId": 1, "ProcId": 0, "JobStatus": 5, "HoldReason": f"train.sh --token {KEY} x"}
    job = queue_job(ad)
    assert job is not None
    assert job.hold_reason == f"train.sh --token {HIDDEN} x"
    assert not {"env", "environment"} & {*QueueJob.__struct_fields__}
    assert KEY not in str(WorkerFailure(ErrorKind.OTHER, f"bad token={KEY} there"))


def test_sentences_of_errors() -> None:
    for error in (InputError, PoolError, PlanError):
        assert str(error(f"no token={KEY} here")) == f"no token={HIDDEN} here"


def test_a_description_that_is_shown() -> None:
    text = f'arguments = --token {KEY} -x\nenvironment = "OMP=sesame"\nqueue'
    result = redact_job_text(text)
    assert "sesame" not in result
    assert result == f"arguments = --token {HIDDEN} -x\nenvironment = {HIDDEN}\nqueue"


def event(number: int, text: str, detail: Submit | Generic | None) -> Event:
    return Event(number, 7, 0, 0, datetime(2026, 11, 21, 9, 0), text, "", detail, 1)


def test_an_event_that_two_logs_have_counts_once() -> None:
    """Also one whose first line is not kept as it was."""
    job = LoggedJob(7, 0)
    result = event(8, f"token={KEY}", Generic(f"token={KEY}"))
    assert job.add(result, Stream(0, "a.log"))
    assert not job.add(result, Stream(1, "b.log"))
    assert [each.text for each in job.events()] == [f"token={HIDDEN}"]


def test_the_name_of_a_batch() -> None:
    job = LoggedJob(7, 0)
    job.add(event(0, "x", Submit("h", "A", f"token={KEY}", (), ())), Stream(0, "a.log"))
    assert job.batch_name == f"token={HIDDEN}"
