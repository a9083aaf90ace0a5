"""What DAGMan's files say of single nodes."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Final

from metlmon.dagman import Word
from metlmon.frozen import frozen


class Claim(Enum):
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
class NodeWord:
    """DAGMan's word on one node. ``epoch`` in place of ``time`` for files that count
    seconds since 1970. ``value``: return value (minus the signal), or the number of the retry.
    ``text``: why the node failed, as DAGMan puts it."""

    claim: Claim
    time: datetime | None
    epoch: float | None = None
    value: int | None = None
    text: str | None = None


OUT_CLAIMS: Final = {
    Word.PRE_STARTED: Claim.PRE,
    Word.PRE_OK: Claim.PRE_OK,
    Word.PRE_FAILED: Claim.PRE_FAILED,
    Word.PRE_SKIPPED: Claim.SKIPPED,
    Word.SUBMITTED: Claim.SUBMITTED,
    Word.POST_STARTED: Claim.POST,
    Word.POST_OK: Claim.DONE,
    Word.POST_FAILED: Claim.FAILED,
    Word.RETRYING: Claim.RETRYING,
    Word.NODE_FAILED: Claim.GAVE_UP,
}

JOBSTATE_CLAIMS: Final = {
    "PRE_SCRIPT_STARTED": Claim.PRE,
    "PRE_SCRIPT_SUCCESS": Claim.PRE_OK,
    "PRE_SCRIPT_FAILURE": Claim.PRE_FAILED,
    "PRESKIP": Claim.SKIPPED,
    "SUBMIT": Claim.SUBMITTED,
    "POST_SCRIPT_STARTED": Claim.POST,
    "POST_SCRIPT_SUCCESS": Claim.DONE,
    "POST_SCRIPT_FAILURE": Claim.FAILED,
}

STATUS_CLAIMS: Final = {2: Claim.PRE, 4: Claim.POST, 5: Claim.DONE, 6: Claim.GAVE_UP}
"""NodeStatus of the node status file, where it says something that job events may not."""
