"""What passes between a screen (or command) and the queue: plain records.

Nothing here imports HTCondor's bindings: they run in a process of their own
(:mod:`metlmon.pool.worker`), so that what they print, or an end they come to, never reaches
a screen.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from metlmon.frozen import frozen
from metlmon.model.states import State
from metlmon.redact import redact_secrets
from metlmon.snapshot.types import JobRow, RunRow


class PoolError(Exception):
    """The pool did not do it: one sentence that says what was asked, the answer, and what to
    do about it. What looks like a secret is not quoted."""

    def __init__(self, sentence: str) -> None:
        super().__init__(redact_secrets(sentence))


class PoolAction(StrEnum):
    """What can be done to jobs, to a DAG, or to runs."""

    HOLD = "hold"
    RELEASE = "release"
    REMOVE = "remove"
    VACATE = "vacate"
    PRIORITY = "priority"
    RETARGET = "retarget"
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


JOB_ACTS: Final = (
    PoolAction.HOLD,
    PoolAction.RELEASE,
    PoolAction.REMOVE,
    PoolAction.VACATE,
    PoolAction.PRIORITY,
    PoolAction.RETARGET,
)
DAG_ACTS: Final = (
    PoolAction.HALT,
    PoolAction.RESUME,
    PoolAction.RELEASE_DAG,
    PoolAction.REMOVE_DAG,
    PoolAction.RESUBMIT,
)
RUN_ACTS: Final = (
    PoolAction.STOP,
    PoolAction.STOP_NOW,
    PoolAction.PAUSE,
    PoolAction.RESUME_RUN,
    PoolAction.SEND,
)
"""What is asked of a run's gate, in a file; only STOP_NOW needs the schedd as well."""

AS_THE_DAG_SAYS: Final = ""
"""The site of a SEND that takes an earlier one back."""


@frozen
class Target:
    """One job that an order touches; ``dag`` is its DAG file, ``state`` the logs' word; ``file``,
    beside the DAG file, is written with it (RETARGET, where its submit file includes that)."""

    cluster: int
    proc: int
    dag: str | None
    node: str | None
    run: str | None
    epoch: int | None
    state: State
    file: str | None = None

    @property
    def id(self) -> str:
        """``cluster.proc``."""
        return f"{self.cluster}.{self.proc}"


@frozen
class SelectedRun:
    """A run that is selected, and its jobs that are in the queue by their logs."""

    row: RunRow
    jobs: tuple[JobRow, ...] = ()


@frozen
class RunTarget:
    """One run that an order touches: by ``files``, beside its DAG file ``dag``, that are written
    or (RESUME_RUN, or a SEND that takes one back) deleted, and by removing ``jobs`` (STOP_NOW).
    ``epoch`` is its latest one, as in its node's name; ``state`` the logs' word."""

    run: str
    uuid: str | None
    dag: str
    epoch: int | None
    state: State
    files: tuple[str, ...] = ()
    jobs: tuple[Target, ...] = ()

    @property
    def id(self) -> str:
        """The uuid; without one the name."""
        return self.uuid or self.run


@frozen
class ActionRequest:
    """One thing to do, to exactly these. ``targets``: jobs (for RELEASE_DAG and REMOVE_DAG the
    job is DAGMan's own). ``dag``: the DAG file as given in the picture, for the DAG's acts.
    ``value``: the new priority. ``runs``: of the runs' acts. ``site``: where RETARGET and SEND
    are to go (:data:`AS_THE_DAG_SAYS`: nothing but what the DAG file says). ``dry``: check what
    can be checked, and change nothing. ``confirmed``: what RESUBMIT keeps of the earlier
    submission although it leads out of the DAG's directory, by name."""

    act: PoolAction
    targets: tuple[Target, ...] = ()
    dag: str | None = None
    value: int | None = None
    runs: tuple[RunTarget, ...] = ()
    site: str | None = None
    dry: bool = False
    confirmed: tuple[str, ...] = ()

    @property
    def touched(self) -> tuple[RunTarget | Target, ...]:
        """What gets an answer each: the runs, each with its jobs behind it, or the jobs."""
        of_runs: list[RunTarget | Target] = []
        for run in self.runs:
            of_runs += [run, *run.jobs]
        return (*of_runs, *self.targets)


@frozen
class ActionPreview:
    """An act as a screen offers it for what is selected. ``refused`` None: it can be asked
    for with ``order``; else the reason, and it is shown grey. ``left_out``: jobs or runs among
    the selected ones that it does not touch, and why (a completed job cannot be held).
    ``subject``: what is touched, in words ("3 jobs of run4", "ens.dag").
    ``effect``: what will happen. ``undo``: how to take it back."""

    act: PoolAction
    subject: str
    order: ActionRequest | None
    refused: str | None
    left_out: tuple[tuple[Target | RunTarget, str], ...]
    effect: str
    undo: str


class ResultCode(StrEnum):
    """The schedd's answer for one job."""

    DONE = "done"
    ALREADY = "already so"
    DENIED = "permission denied"
    NOT_FOUND = "not found"
    BAD_STATE = "not possible in this state"
    FAILED = "failed"


@frozen
class ActionResult:
    """What became of one target. ``subject`` is ``cluster.proc``, a run's uuid (without one its
    name), or the DAG file's name;
    ``text`` says more where there is more to say (whose job it is, which file was written)."""

    subject: str
    reply: ResultCode
    text: str = ""


@frozen
class QueueJob:
    """One job as the queue has it (attributes of its ClassAd in brackets). ``status``
    [JobStatus] 1 idle, 2 running, 3 removed, 4 completed, 5 held, 6 transferring output,
    7 suspended. ``position``: its place among this ensemble's idle jobs by priority, then by
    age, from 1; None when it is not idle. ``nodes_log`` [DAGManNodesLog], ``dagman``
    [DAGManJobId], ``universe`` [JobUniverse; 7 is DAGMan's], ``arguments`` [Arguments].
    ``site``: where it is to go [MetlSite]; ``by_site``: its requirements look at that."""

    cluster: int
    proc: int
    status: int
    owner: str
    priority: int
    matches: int
    position: int | None
    waiting: int
    rejection: str | None
    rejected_at: float | None
    submitted_at: float | None
    node: str | None
    directory: str | None
    log: str | None
    hold_reason: str | None
    transferring: str | None = None
    nodes_log: str | None = None
    dagman: int | None = None
    universe: int | None = None
    arguments: str | None = None
    site: str | None = None
    by_site: bool = False


@frozen
class QueueSnapshot:
    """What the schedd said, as of ``asked`` (seconds since the epoch). ``error``: why there
    is no word (no HTCondor here, the schedd does not answer), None when there is one.
    ``asking``: the first answer is still awaited. ``jobs`` by (cluster, proc). ``user``: who
    we are to the schedd. ``next_try``: when it is asked again, after an error. ``dagmans``:
    DAGMan's own jobs, for the top-level DAGs. ``strangers``: jobs that have an id of ours but
    belong to another directory (the logs are a copy, or another machine's)."""

    schedd: str | None = None
    version: str | None = None
    user: str | None = None
    asked: float | None = None
    jobs: tuple[QueueJob, ...] = ()
    error: str | None = None
    asking: bool = False
    next_try: float | None = None
    dagmans: tuple[QueueJob, ...] = ()
    strangers: tuple[tuple[int, int], ...] = ()

    def job(self, cluster: int, proc: int) -> QueueJob | None:
        """The job with this id, if the queue has it."""
        for job in self.jobs:
            if (job.cluster, job.proc) == (cluster, proc):
                return job
        return None


@frozen
class SubmitResult:
    """A DAG in the queue: DAGMan's cluster, and by which way it came there ("htcondor2" or
    "condor_submit_dag")."""

    cluster: int
    way: str
    text: str = ""


@frozen
class SiteInfo:
    """A site that the collector knows now: the value of GLIDEIN_ResourceName, how many slots
    advertise it, and the names of their GPUs."""

    name: str
    slots: int
    gpus: tuple[str, ...]


@frozen
class ScheddInfo:
    """The pool at hand. ``dagman``: is condor_dagman at hand for the bindings;
    ``submit_command``: path of condor_submit_dag, None when there is none."""

    schedd: str
    version: str
    user: str
    dagman: bool
    submit_command: str | None
