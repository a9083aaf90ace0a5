"""What DAGMan's files say of single nodes."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Final

from metlmon.dagman import DagmanMessageKind
from metlmon.frozen import frozen


class NodeReportKind(Enum):
    """What DAGMan says of a node at a moment."""

    PRE = "pre"
    PRE_OK = "pre-ok"
    PRE_FAILED = "pre-failed"
    SKIPPED = "skipped"
    SUBMITTED = "submitted"
    POST = "post"
    DONE = "done"
    FAILED = "failed"
    RETRYING = "retrying"
    JOB_DONE = "job-done"
    JOB_FAILED = "job-failed"
    SUBMIT_FAILED = "submit-failed"
    GAVE_UP = "gave-up"


@frozen
class NodeReport:
    """DAGMan's word on one node. ``epoch`` in place of ``time`` for files that count
    seconds since 1970. ``value``: return value (minus the signal), or the number of the retry.
    ``text``: why the node failed, as DAGMan puts it."""

    claim: NodeReportKind
    time: datetime | None
    epoch: float | None = None
    value: int | None = None
    text: str | None = None


OUT_CLAIMS: Final = {
    DagmanMessageKind.PRE_STARTED: NodeReportKind.PRE,
    DagmanMessageKind.PRE_OK: NodeReportKind.PRE_OK,
    DagmanMessageKind.PRE_FAILED: NodeReportKind.PRE_FAILED,
    DagmanMessageKind.PRE_SKIPPED: NodeReportKind.SKIPPED,
    DagmanMessageKind.SUBMITTED: NodeReportKind.SUBMITTED,
    DagmanMessageKind.POST_STARTED: NodeReportKind.POST,
    DagmanMessageKind.POST_OK: NodeReportKind.DONE,
    DagmanMessageKind.POST_FAILED: NodeReportKind.FAILED,
    DagmanMessageKind.RETRYING: NodeReportKind.RETRYING,
    DagmanMessageKind.NODE_FAILED: NodeReportKind.GAVE_UP,
}

JOBSTATE_CLAIMS: Final = {
    "PRE_SCRIPT_STARTED": NodeReportKind.PRE,
    "PRE_SCRIPT_SUCCESS": NodeReportKind.PRE_OK,
    "PRE_SCRIPT_FAILURE": NodeReportKind.PRE_FAILED,
    "PRESKIP": NodeReportKind.SKIPPED,
    "SUBMIT": NodeReportKind.SUBMITTED,
    "POST_SCRIPT_STARTED": NodeReportKind.POST,
    "POST_SCRIPT_SUCCESS": NodeReportKind.DONE,
    "POST_SCRIPT_FAILURE": NodeReportKind.FAILED,
}

STATUS_CLAIMS: Final = {
    2: NodeReportKind.PRE,
    4: NodeReportKind.POST,
    5: NodeReportKind.DONE,
    6: NodeReportKind.GAVE_UP,
}
"""NodeStatus of the node status file, where it says something that job events may not."""
