"""The protocol between program and worker: requests and answers, each a line of JSON.

Jobs are identified by integers, so that no text of a log becomes part of a constraint.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from metlmon.model.queue import QueueJob as QueueJob

JobNumber = Annotated[int, Meta(ge=0, lt=2**31)]
Priority = Annotated[int, Meta(gt=-(2**31), lt=2**31)]
EditedField = Literal["priority", "site", "request_memory", "request_disk"]
JobAction = Literal["hold", "release", "remove", "vacate"]
AnnexName = Annotated[str, Meta(min_length=1, max_length=200)]
CollectorAddress = Annotated[str, Meta(min_length=1, max_length=400)]

SITE: Final = re.compile(r"[^\s\"'$\\](?:[^\"'$\\]{0,198}[^\s\"'$\\])?")
"""Valid site names (which must be printable as well). They go into a submit file and a ClassAd, and
must not end the line or the quotes there, or be a macro. The gate accepts the same names."""

SCHEDULER_UNIVERSE: Final = 7
"""The universe of DAGMan's own jobs."""

SLOT_AMOUNTS: Final = {
    "request_memory": "TotalSlotMemory",
    "request_disk": "TotalSlotDisk",
    "request_cpus": "TotalSlotCpus",
    "request_gpus": "TotalSlotGPUs",
    "gpus_minimum_memory": "GPUs_GlobalMemoryMb",
}
"""The attributes of slots with which requests of jobs are compared."""

OPERATIONS: Final[dict[str, Any]] = {
    "where": tuple[()],
    "query": tuple[list[JobNumber], list[JobNumber]],
    "job": tuple[JobNumber, JobNumber],
    "dagmans": tuple[()],
    "act": tuple[JobAction, JobNumber, JobNumber],
    "edit": tuple[JobNumber, JobNumber, EditedField, Priority | str],
    "exclude": tuple[JobNumber, JobNumber, str, bool, Literal["site", "host"]],
    "sites": tuple[()],
    "free_gpus": tuple[()],
    "slots": tuple[()],
    "annex_queue": tuple[()],
    "annex_ads": tuple[CollectorAddress, list[AnnexName]],
}
"""Methods of :class:`metlmon.pool.worker.Pool`, and the types of their arguments."""


def encodable(text: str) -> str:
    """The text without lone surrogates, which JSON in UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


class WorkerRequest(Struct, frozen=True):
    """An operation of :data:`OPERATIONS` and its arguments."""

    op: str
    args: Raw


class ErrorKind(StrEnum):
    """Kinds of failure."""

    NO_BINDINGS = "no-bindings"
    NO_SCHEDD = "no-schedd"
    NO_ANSWER = "no-answer"
    NO_COLLECTOR = "no-collector"
    NO_ANNEX_COLLECTOR = "no-annex-collector"
    ANNEX_COLLECTOR_REFUSED = "annex-collector-refused"
    REFUSED = "refused"
    REQUEST = "request"
    OTHER = "other"


class ResultCode(StrEnum):
    """The result of an action for one target."""

    DONE = "done"
    ALREADY = "already so"
    DENIED = "permission denied"
    NOT_FOUND = "not found"
    BAD_STATE = "not possible in this state"
    FAILED = "failed"


class Answer(Struct, frozen=True, omit_defaults=True):
    """The result of a request, or the kind of a failure and HTCondor's message."""

    value: Raw | UnsetType = UNSET
    error: ErrorKind | None = None
    text: str = ""


class ScheddInfo(Struct, frozen=True):
    """The local schedd. ``user`` is empty if it did not authenticate us.

    ``submit_command``: path of condor_submit_dag, None if it is not in PATH.
    """

    schedd: str
    version: str
    user: str
    submit_command: str | None


class SiteInfo(Struct, frozen=True):
    """A site currently known to the collector.

    ``name``: the value of GLIDEIN_ResourceName; ``slots``: how many slots advertise it; ``gpus``:
    the names of their GPUs.
    """

    name: str
    slots: int
    gpus: tuple[str, ...]
