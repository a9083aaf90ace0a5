"""Typed records of the workflow and of the files that DAGMan writes.

Source followed: HTCondor manual, "DAGMan Workflows", and the public DAGMan source
(``dag_parser.cpp``, ``dag_commands.cpp``, ``parse.cpp``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from enum import Enum
from itertools import chain, zip_longest
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from metlmon.dagman.submit_description import Description, Submission
from metlmon.remote.paths import join

NO_NAMES: Final[frozenset[str]] = frozenset()
NO_ATTRIBUTES: Final[Mapping[str, str]] = {}
NO_SUBMISSION: Final = Submission()
"""Shared by all nodes without any: an empty set takes as much memory as a node."""


class NodeKind(Enum):
    """The kinds of DAG nodes; JOIN is a join node that DAGMan inserts."""

    JOB = "job"
    SUBDAG = "subdag"
    FINAL = "final"
    PROVISIONER = "provisioner"
    SERVICE = "service"
    JOIN = "join"


class Problem(Struct, frozen=True):
    """A problem in an input file. ``error``: DAGMan would reject the file.

    ``str()`` returns ``file:line: text``.
    """

    kind: str
    file: str
    line: int | None
    text: str
    error: bool

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.text}"


class Script(Struct, frozen=True):
    """SCRIPT PRE|POST|HOLD: the command line as written (never run, never expanded).

    ``defer``: the exit status that requests another run, and the delay in seconds. ``debug``: the
    file to which DAGMan adds its output, relative to the directory of the node, and which output
    (STDOUT, STDERR, ALL).
    """

    command: str
    defer: tuple[int, int] | None = None
    debug: tuple[str, str] | None = None

    @property
    def options(self) -> str:
        """DEFER and DEBUG as in a DAG file; DEFER comes first, as before 25.5."""
        defer = "DEFER {} {}".format(*self.defer) if self.defer is not None else ""
        debug = "DEBUG {} {}".format(*self.debug) if self.debug is not None else ""
        return " ".join(filter(None, (defer, debug)))


class Node(Struct, gc=False):
    """One node, as the DAG file describes it.

    ``name`` is the full name as DAGMan logs it (``SPLICE+node``, ``0.node``).
    ``vars`` are the VARS after "last wins", raw (macros unexpanded), names in their
    written case; attributes (``+x``, ``My.x``) are in ``attributes``.
    ``submit`` is the description's name or file name, None for an inline block without
    a name. ``log``, ``output``, ``error`` are expanded from the submit description with
    this node's VARS as far as possible before the job exists: ``$(CLUSTERID)`` and
    ``$(Cluster)``, ``$(ProcId)`` and ``$(Process)`` remain as ``$(Cluster)`` and
    ``$(Process)``; None when the description does not set them or is not readable.
    ``subdag`` is the index into ``Workflow.subdags`` for a SUBDAG EXTERNAL node.
    ``described``: whether its submit description was read.
    ``parents`` and ``children`` are sorted tuples once the DAG is loaded, since a set of one name
    takes four times the memory; ``weak_parents`` is a set.

    ``output_parts``, ``error_parts``: literal text and names of VARS (JOB: the node's own name) by
    turns, since each node has other names of files, but the parts of most are equal.

    Only the loader modifies nodes; their values are shared among nodes.
    """

    name: str
    kind: NodeKind
    file: str
    line: int
    submit: str | None = None
    dir: str | None = None
    noop: bool = False
    done: bool = False
    vars: dict[str, str] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=lambda: NO_ATTRIBUTES)
    retries: int = 0
    unless_exit: int | None = None
    pre: Script | None = None
    post: Script | None = None
    hold: Script | None = None
    pre_skip: int | None = None
    abort_on: int | None = None
    abort_return: int | None = None
    priority: int = 0
    category: str | None = None
    parents: Collection[str] = ()
    children: Collection[str] = ()
    weak_parents: Collection[str] = NO_NAMES
    log: str | None = None
    output_parts: tuple[str, ...] | None = None
    error_parts: tuple[str, ...] | None = None
    submission: Submission = NO_SUBMISSION
    subdag: int | None = None
    described: bool = False

    @property
    def output(self) -> str | None:
        return self.join_parts(self.output_parts)

    @property
    def error(self) -> str | None:
        return self.join_parts(self.error_parts)

    def join_parts(self, parts: tuple[str, ...] | None) -> str | None:
        """The name of a file that consists of these parts."""
        if parts is None:
            return None
        values = [self.vars.get(name, self.name) for name in parts[1::2]]
        return "".join(chain.from_iterable(zip_longest(parts[::2], values, fillvalue="")))


class Workflow(Struct):
    """The DAG of one DAGMan: its DAG files, with splices and includes expanded.

    ``nodes`` are in DAGMan's order and include join nodes. An external sub-DAG is a
    workflow of its own in ``subdags`` (None, and a problem, when its file is missing).
    ``directory``: the working directory of its DAGMan, to which the files of nodes are relative.
    ``files`` are all files that were read: DAG files first, then splices, includes, then
    submit files. ``references`` are the resolved paths of the DAG files that this one
    names (splices, includes, sub-DAGs), existing or not: they are not top-level. ``used``
    is False when DAGMan would reject the file; the readable part is still included.
    ``descriptions``: the submit description of each node, if they were to be kept; ``appended``:
    the names of its VARS that override it.
    """

    path: Path
    directory: Path
    nodes: dict[str, Node] = field(default_factory=dict)
    subdags: list[Workflow | None] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    references: set[Path] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    node_status_file: str | None = None
    jobstate_log: str | None = None
    commands: int = 0
    descriptions: dict[str, Description] = field(default_factory=dict)
    appended: dict[str, set[str]] = field(default_factory=dict)

    @property
    def used(self) -> bool:
        return not any(p.error for p in self.problems)

    def path_of(self, name: str) -> Path:
        """The file ``name`` of a node, or of DAGMan: relative to its working directory."""
        return join(self.directory, name)


# --- files that DAGMan writes ----------------------------------------------------------


class Rescue(Struct, frozen=True):
    """A rescue file ``X.rescueNNN``: applied to the DAG before any log is read.

    ``created`` is its "created … UTC" header (aware), None when absent.
    """

    path: Path
    number: int
    created: datetime | None
    done: frozenset[str]
    failed: frozenset[str]


class StatusNode(Struct, frozen=True):
    """One node of a node status file.

    ``status``: 0 not ready, 1 ready, 2 prerun, 3 submitted, 4 postrun, 5 done, 6 error,
    7 futile (``DagmanUtils`` NodeStatus).
    """

    status: int
    details: str
    retry_count: int
    procs_queued: int


class StatusFile(Struct, frozen=True):
    """The contents of a NODE_STATUS_FILE.

    ``epoch`` is its Timestamp (seconds since 1970), ``local`` the same time in the access
    point's local time from the comment beside it (naive): together they give the UTC offset.
    ``dag_status`` here: 3 running, 5 done, 6 failed. ``totals`` maps NodesTotal, NodesDone,
    NodesPre, … to their numbers.
    """

    path: Path
    dag_files: tuple[str, ...]
    epoch: int | None
    local: datetime | None
    dag_status: int | None
    totals: dict[str, int]
    nodes: dict[str, StatusNode]


class JobstateLine(Struct, frozen=True):
    """One line of a JOBSTATE_LOG.

    ``node`` is None for INTERNAL lines, whose ``event`` is DAGMAN_STARTED, DAGMAN_FINISHED,
    RECOVERY_STARTED, … ; ``value`` is the return value of JOB_SUCCESS/JOB_FAILURE/…, or
    DAGMAN_FINISHED's exit code.
    """

    epoch: int
    node: str | None
    event: str
    cluster: int | None
    value: int | None


NOT_STARTED_TEXT: Final = "could not be started"


class MessageKind(Enum):
    """The kinds of ``.dagman.out`` messages that the state model uses.

    STARTED: a DAGMan process begins ("STARTING UP"); EXITED: value = exit status, None when
    not given; both with the cluster of DAGMan's own job, if given; REFUSED: DAGMan found
    the lock file of another running DAGMan; RECOVERY: DAGMan reads its old logs again
    ("Running in RECOVERY mode"); PRE_COMPLETED: value = nodes DONE at the start;
    RESCUE_USED / RESCUE_WRITTEN: text = file; SUBMITTED: node, cluster, proc;
    PRE_STARTED, PRE_OK, PRE_FAILED, PRE_SKIPPED; POST_STARTED, POST_OK, POST_FAILED;
    JOB_OK, JOB_FAILED: one job (cluster, proc) of the node ended, a retry or a POST script may
    follow; NODE_FAILED: final, unless another message on that node follows (text = DAGMan's
    reason; a node that succeeded has no message: POST_OK and PRE_SKIPPED imply it); RETRYING:
    value = number of the retry; REMOVED: DAGMan received a removal signal;
    ABORTED: ABORT-DAG-ON (text = "job", "PRE script" or "POST script" whose exit code it was);
    TOTAL: the head of the status table (value = number of nodes).

    ERROR: text = DAGMan's error message ("ERROR: …"), for example when it rejects its DAG file;
    ERROR_CONTINUED: one more line of it; LOG_ERROR: an event could not be read, and ends of jobs
    may be lost; BAD_EVENT: an event that contradicts earlier ones. EXITED with an error status:
    text = a line before it that may explain it; without a status: an EXCEPT, text = its message.
    NODE_LOST: a restarted DAGMan found the node's job neither in its log nor in the queue.
    SUBMIT_FAILED: the node's last try to submit failed (text = why). PENDING: a node that DAGMan
    waits for after minutes without an event (cluster, text = its status); without a node the
    heading of such a list. JOB_EVENT: an ``event`` of a job by its number (text = hold reason,
    value = return value); reported on request.

    A ``value`` of …_FAILED is the exit status, or minus the signal. PRE_SKIPPED follows the
    PRE_FAILED with the same exit status. PRE_FAILED, POST_FAILED: text = ``NOT_STARTED_TEXT`` and
    why, for a script that DAGMan could not start.
    """

    STARTED = "started"
    EXITED = "exited"
    REFUSED = "refused"
    RECOVERY = "recovery"
    PRE_COMPLETED = "pre-completed"
    RESCUE_USED = "rescue-used"
    RESCUE_WRITTEN = "rescue-written"
    SUBMITTED = "submitted"
    PRE_STARTED = "pre-started"
    PRE_OK = "pre-ok"
    PRE_FAILED = "pre-failed"
    PRE_SKIPPED = "pre-skipped"
    POST_STARTED = "post-started"
    POST_OK = "post-ok"
    POST_FAILED = "post-failed"
    JOB_OK = "job-ok"
    JOB_FAILED = "job-failed"
    NODE_FAILED = "node-failed"
    RETRYING = "retrying"
    REMOVED = "removed"
    ABORTED = "aborted"
    TOTAL = "total"
    ERROR = "error"
    ERROR_CONTINUED = "error-continued"
    LOG_ERROR = "log-error"
    BAD_EVENT = "bad-event"
    NODE_LOST = "node-lost"
    SUBMIT_FAILED = "submit-failed"
    PENDING = "pending"
    JOB_EVENT = "job-event"


class DagmanMessage(Struct, frozen=True):
    """One message of ``.dagman.out``.

    ``time`` is naive, local to the access point: that of the line, or of the event that the line
    quotes (``{11/21/26 00:17:25}``) or, in a recovery, follows from.
    """

    kind: MessageKind
    time: datetime | None
    node: str | None = None
    cluster: int | None = None
    proc: int | None = None
    value: int | None = None
    text: str | None = None
    event: int | None = None


class DagMetrics(Struct, frozen=True):
    """The contents of a ``.metrics`` file.

    ``succeeded`` and ``failed``: numbers of nodes, including those of sub-DAGs. ``dag_status``
    here: 0 ok, 1 error, 2 node failed, 3 abort, 4 rm, 5 cycle, 6 halted. ``start`` and ``end`` are
    seconds since 1970. A value is None when the file does not contain it.
    """

    path: Path
    start: float | None
    end: float | None
    exitcode: int | None
    dag_status: int | None
    rescue_number: int | None
    total_nodes: int | None
    succeeded: int | None
    failed: int | None
    dagman_id: str | None
