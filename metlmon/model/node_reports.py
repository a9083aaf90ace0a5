"""DAGMan's reports on single nodes, and the lines in its files that produce them."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Final

from metlmon.dagman import DagmanMessageKind
from metlmon.frozen import frozen


class NodeReportKind(Enum):
    """Kind of a report by DAGMan on a node."""

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
    """A report by DAGMan on one node.

    ``epoch`` replaces ``time`` in files with seconds since 1970. ``value``: return value
    (negative: the signal), or the number of the retry. ``text``: DAGMan's reason for the
    failure of the node.
    """

    kind: NodeReportKind
    time: datetime | None
    epoch: float | None = None
    value: int | None = None
    text: str | None = None


OUT_REPORT_KINDS: Final = {
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

JOBSTATE_REPORT_KINDS: Final = {
    "PRE_SCRIPT_STARTED": NodeReportKind.PRE,
    "PRE_SCRIPT_SUCCESS": NodeReportKind.PRE_OK,
    "PRE_SCRIPT_FAILURE": NodeReportKind.PRE_FAILED,
    "PRESKIP": NodeReportKind.SKIPPED,
    "SUBMIT": NodeReportKind.SUBMITTED,
    "POST_SCRIPT_STARTED": NodeReportKind.POST,
    "POST_SCRIPT_SUCCESS": NodeReportKind.DONE,
    "POST_SCRIPT_FAILURE": NodeReportKind.FAILED,
}

STATUS_REPORT_KINDS: Final = {
    2: NodeReportKind.PRE,
    4: NodeReportKind.POST,
    5: NodeReportKind.DONE,
    6: NodeReportKind.GAVE_UP,
}
"""By NodeStatus of the node status file; only values that job events may not show."""
