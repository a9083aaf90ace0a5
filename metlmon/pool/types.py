"""Records exchanged between screens or commands and the pool client.

Nothing here imports HTCondor's bindings: they run in a separate process
(:mod:`metlmon.pool.worker`), so that their output and crashes never reach a screen.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Final, Literal

from msgspec import Struct

from metlmon.model.queue import HELD as HELD
from metlmon.model.queue import QueueJob as QueueJob
from metlmon.model.queue import QueueSnapshot as QueueSnapshot
from metlmon.model.states import State
from metlmon.pool.protocol import ResultCode as ResultCode
from metlmon.pool.protocol import ScheddInfo as ScheddInfo
from metlmon.pool.protocol import SiteInfo as SiteInfo
from metlmon.redact import redact_secrets
from metlmon.snapshot.records import Job, Run
from metlmon.text.formatting import plain
from metlmon.text.record_json import Nullable

QUERY_SECONDS: Final = 30.0
"""Shortest interval: each query makes the shared schedd scan its whole queue."""

LONGEST_PAUSE: Final = 600.0
"""Maximum pause: it doubles after errors, or if the schedd has none of the jobs."""


class PoolError(Exception):
    """A pool operation failed.

    The message is one sentence: the request, the schedd's response, and what to do about it.
    Secrets in it are redacted.
    """

    def __init__(self, message: str) -> None:
        super().__init__(redact_secrets(message))


class PoolAction(StrEnum):
    """An action on jobs, on a DAG, or on runs."""

    HOLD = "hold"
    RELEASE = "release"
    REMOVE = "remove"
    VACATE = "vacate"
    PRIORITY = "priority"
    RETARGET = "retarget"
    RAISE_MEMORY = "raise-memory"
    RAISE_DISK = "raise-disk"
    HALT = "halt"
    RESUME = "resume"
    RELEASE_DAG = "release-dag"
    REMOVE_DAG = "remove-dag"
    RESUBMIT = "resubmit"
    STOP = "stop"
    STOP_NOW = "stop-now"
    PAUSE = "pause"
    RESUME_RUN = "resume-run"
    SEND = "send"
    EXCLUDE_SITE = "exclude-site"
    INCLUDE_SITE = "include-site"
    EXCLUDE_HOST = "exclude-host"
    INCLUDE_HOST = "include-host"


class Act(Struct, frozen=True):
    """An action that applies to ``jobs``, a ``dag``, ``runs``, a ``site`` or a ``host``.

    ``phrase``: what is done to a subject, in the imperative. ``effect``: that on each job, on the
    DAG, or on each run; ``undo``: how to revert it; both depend on the jobs for actions on places.
    ``worker``: what the schedd does to the jobs, or to DAGMan's own job. ``files``: kinds of
    requests to a run's gate that it writes or deletes. ``value``: the value that it needs; for jobs
    also the field of :class:`QueueJob` that it sets, before ``worker``. ``is_final``: no other
    action undoes it.
    """

    on: Literal["jobs", "dag", "runs", "site", "host"]
    phrase: str
    effect: str = ""
    undo: str = ""
    worker: str = ""
    files: tuple[str, ...] = ()
    value: Literal["", "priority", "site", "request_memory", "request_disk"] = ""
    is_final: bool = False


_RAISED: Final = (
    "then released: in the queue for a machine with that much, from its last checkpoint if the job "
    "writes any; retries have the request of the submit file"
)

ACTS: Final[Mapping[PoolAction, Act]] = {
    PoolAction.HOLD: Act(
        on="jobs",
        phrase="hold {}",
        effect="in the queue, held, until released; an execution loses what it did since its last "
        "checkpoint",
        undo="release",
        worker="hold",
    ),
    PoolAction.RELEASE: Act(
        on="jobs",
        phrase="release {}",
        effect="in the queue for a machine again (a sub-DAG's DAGMan starts without one)",
        undo="hold",
        worker="release",
    ),
    PoolAction.REMOVE: Act(
        on="jobs",
        phrase="remove {} from the queue",
        effect="out of the queue; DAGMan retries a node if it has retries left, else the node "
        "fails, and what comes after it never runs",
        undo="cannot be undone; the run continues by a retry of DAGMan, or resubmission",
        worker="remove",
        is_final=True,
    ),
    PoolAction.VACATE: Act(
        on="jobs",
        phrase="vacate {}",
        effect="off the machine, and in the queue for one again; what was done since the last "
        "checkpoint is lost",
        undo="cannot be undone; a new execution starts by itself",
        worker="vacate",
    ),
    PoolAction.PRIORITY: Act(
        on="jobs",
        phrase="set the priority of {}",
        effect="among your idle jobs those of higher priority go first; jobs that run are not "
        "touched",
        undo="set the old priority",
        value="priority",
    ),
    PoolAction.RETARGET: Act(
        on="jobs",
        phrase="retarget {}",
        effect="in the queue for a machine of that site alone (any: wherever their requirements "
        "allow); sets MetlSite",
        undo="retarget to the previous site",
        value="site",
    ),
    PoolAction.RAISE_MEMORY: Act(
        on="jobs",
        phrase="raise request_memory of {}",
        effect=_RAISED,
        undo="hold, then set the former request",
        worker="release",
        value="request_memory",
    ),
    PoolAction.RAISE_DISK: Act(
        on="jobs",
        phrase="raise request_disk of {}",
        effect=_RAISED,
        undo="hold, then set the former request",
        worker="release",
        value="request_disk",
    ),
    PoolAction.HALT: Act(
        on="dag",
        phrase="halt {}",
        effect="running jobs continue, and so do sub-DAGs; nothing else is submitted; after the "
        "last of them DAGMan ends with a rescue file",
        undo="resume, or resubmit once DAGMan has ended",
    ),
    PoolAction.RESUME: Act(
        on="dag", phrase="resume {}", effect="DAGMan submits jobs again", undo="halt"
    ),
    PoolAction.RELEASE_DAG: Act(
        on="dag",
        phrase="release DAGMan of {}",
        effect="DAGMan starts again and continues where it stopped",
        undo="condor_hold of DAGMan's job",
        worker="release",
    ),
    PoolAction.REMOVE_DAG: Act(
        on="dag",
        phrase="remove {}",
        effect="its jobs leave the queue, DAGMan writes a rescue file and ends",
        undo="resubmit continues from the rescue file; running epochs begin again",
        worker="remove",
        is_final=True,
    ),
    PoolAction.RESUBMIT: Act(
        on="dag",
        phrase="submit {} again, from its newest rescue file",
        effect="DAGMan starts again; nodes that are done are not run again",
        undo="remove the DAG",
    ),
    PoolAction.STOP: Act(
        on="runs",
        phrase="stop {} after the current epoch",
        effect="the current epoch ends; those after it are left out, for good; other runs continue",
        undo="resume-run, until an epoch is left out; then metlmon continue, from the checkpoint",
        files=("stop",),
        is_final=True,
    ),
    PoolAction.STOP_NOW: Act(
        on="runs",
        phrase="stop {} now",
        effect="the epoch under way loses what it did since its last checkpoint; it and those "
        "after it are left out, for good; other runs continue",
        undo="cannot be undone; metlmon continue resumes from the last checkpoint",
        worker="remove",
        files=("stop",),
        is_final=True,
    ),
    PoolAction.PAUSE: Act(
        on="runs",
        phrase="pause {} before the next epoch",
        effect="the current epoch ends; the next one waits at its gate; other runs continue",
        undo="resume-run",
        files=("pause",),
    ),
    PoolAction.RESUME_RUN: Act(
        on="runs",
        phrase="resume {}",
        effect="the next epoch starts as soon as its gate looks again",
        undo="stop, or pause",
        files=("pause", "stop"),
    ),
    PoolAction.SEND: Act(
        on="runs",
        phrase="send the next epochs of {}",
        effect="the epochs from the next one on go there (any: wherever their requirements "
        "allow); the one in the queue stays where it is",
        undo="send where the DAG says",
        files=("target",),
        value="site",
    ),
    PoolAction.EXCLUDE_SITE: Act(on="site", phrase="exclude the site {}"),
    PoolAction.INCLUDE_SITE: Act(on="site", phrase="include the site {} again"),
    PoolAction.EXCLUDE_HOST: Act(on="host", phrase="exclude the host {}"),
    PoolAction.INCLUDE_HOST: Act(on="host", phrase="include the host {} again"),
}
"""All actions, in the order of :class:`PoolAction`."""

RAISE_ACTS: Final = (PoolAction.RAISE_MEMORY, PoolAction.RAISE_DISK)
JOB_ACTS: Final = tuple(act for act, row in ACTS.items() if row.on == "jobs")
DAG_ACTS: Final = tuple(act for act, row in ACTS.items() if row.on == "dag")
RUN_ACTS: Final = tuple(act for act, row in ACTS.items() if row.on == "runs")
SITE_ACTS: Final = tuple(act for act, row in ACTS.items() if row.on == "site")
HOST_ACTS: Final = tuple(act for act, row in ACTS.items() if row.on == "host")
PLACE_ACTS: Final = (*SITE_ACTS, *HOST_ACTS)
EXCLUDE_ACTS: Final = (PoolAction.EXCLUDE_SITE, PoolAction.EXCLUDE_HOST)
INCLUDE_ACTS: Final = (PoolAction.INCLUDE_SITE, PoolAction.INCLUDE_HOST)

AS_THE_DAG_SAYS: Final = ""
"""The site of a SEND that cancels an earlier one."""


class Target(Struct, frozen=True):
    """One job that a request affects.

    ``dag`` is its DAG file and ``state`` its state in the logs. ``file``, a path relative to the
    DAG file's directory, is written as well (RETARGET, if the job's submit file includes it).
    ``value``: its new request (RAISE_MEMORY in MB, RAISE_DISK in kB).
    """

    cluster: int
    proc: int
    dag: str | None
    node: str | None
    run: str | None
    epoch: int | None
    state: State
    file: str | None = None
    value: int | None = None

    @property
    def id(self) -> str:
        """``cluster.proc``."""
        return f"{self.cluster}.{self.proc}"


class SelectedRun(Struct, frozen=True):
    """A selected run and those of its jobs that are queued according to the logs."""

    row: Run
    jobs: tuple[Job, ...] = ()


class RunTarget(Struct, frozen=True):
    """One run that a request affects.

    ``files`` (relative to the directory of its DAG file ``dag``) are written or, for RESUME_RUN
    and for a SEND that cancels an earlier one, deleted; ``jobs`` are removed (STOP_NOW).
    ``epoch`` is the latest one, as in its node's name; ``state`` is the state in the logs.
    """

    run: str
    uuid: str | None
    dag: str
    epoch: int | None
    state: State
    files: tuple[str, ...] = ()
    jobs: tuple[Target, ...] = ()

    @property
    def id(self) -> str:
        """The uuid, or the name without one."""
        return self.uuid or self.run


class DagTarget(Struct, frozen=True):
    """One DAG whose later jobs a request affects.

    ``file``, a path relative to the directory of the DAG file ``dag``, is written or deleted; the
    submit files include it. ``runs``: the names of its runs that have epochs left.
    """

    dag: str
    file: str
    runs: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The DAG file."""
        return self.dag


class ActionRequest(Struct, frozen=True):
    """One action on an explicit set of targets.

    ``targets``: jobs (for RELEASE_DAG and REMOVE_DAG, DAGMan's own job). ``dag``: the DAG file as
    in the snapshot, for DAG actions. ``value``: the new priority. ``runs``: targets of run
    actions. ``site``: destination of RETARGET and SEND (:data:`AS_THE_DAG_SAYS`: that of the DAG
    file), or the site or host of PLACE_ACTS, which also apply to the later jobs of ``dags``.
    ``dry``: perform all checks but change nothing. ``confirmed``: names of options and paths of the
    earlier submission that RESUBMIT keeps although they lead out of the DAG's directory.
    """

    act: PoolAction
    targets: tuple[Target, ...] = ()
    dag: str | None = None
    value: int | None = None
    runs: tuple[RunTarget, ...] = ()
    site: str | None = None
    dry: bool = False
    confirmed: tuple[str, ...] = ()
    dags: tuple[DagTarget, ...] = ()

    @property
    def touched(self) -> tuple[DagTarget | RunTarget | Target, ...]:
        """The targets that each get a result: DAGs, then runs, each with its jobs, then jobs."""
        run_targets: list[RunTarget | Target] = []
        for run in self.runs:
            run_targets += [run, *run.jobs]
        return (*self.dags, *run_targets, *self.targets)


class LeftOut(Struct, frozen=True):
    """A selected job or run that an action skips, and the reason."""

    json_omits: ClassVar = frozenset({"target"})
    json_properties: ClassVar = ("subject", "run", "state")

    target: Target | RunTarget
    reason: str

    @property
    def subject(self) -> str:
        """As in :class:`ActionResult`."""
        return self.target.id

    @property
    def run(self) -> str | None:
        return self.target.run

    @property
    def state(self) -> State:
        return self.target.state


class ActionPreview(Struct, frozen=True):
    """An action as a screen offers it for the selection.

    ``refused``: why it is not possible (the action is shown disabled), or None if ``request`` can
    be performed. ``left_out``: selected jobs or runs that the action skips, with the reason (a
    completed job cannot be held). ``subject``: the targets as text ("3 jobs of run4", "ens.dag").
    ``effect``: what will happen. ``undo``: how to revert it. ``line``: the line that the user adds
    to the submit file (to include a place: removes) for jobs that the action cannot reach.
    """

    act: PoolAction
    subject: str
    request: ActionRequest | None = None
    refused: str | None = None
    left_out: tuple[LeftOut, ...] = ()
    effect: str = ""
    undo: str = ""
    line: str | None = None

    def phrase(self, value: int | str | None = None) -> str:
        """The action as text: ``hold job 12.0 of run1``, ``retarget 3 jobs of run1 to delta``.

        ``value``: the priority or site, None until it is known.
        """
        text = ACTS[self.act].phrase.format(plain(self.subject, 120))
        if value is None or not ACTS[self.act].value:
            return text
        if value == AS_THE_DAG_SAYS:
            return f"{text} where the DAG says"
        return f"{text} to {plain(str(value), 60)}"


class ActionResult(Struct, frozen=True):
    """The result for one target.

    ``subject`` is ``cluster.proc``, a run's uuid (or its name if it has none), or the DAG file's
    name; ``text`` adds details (the job's owner, the file written).
    """

    subject: str
    reply: ResultCode
    text: Nullable[str] = ""

    @property
    def succeeded(self) -> bool:
        """Whether what was requested is so, now or before."""
        return self.reply in (ResultCode.DONE, ResultCode.ALREADY)
