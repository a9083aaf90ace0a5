"""A node's state: the DAG's word, DAGMan's, its POST script's, and its jobs', in that order
(``domain.md``, "Node state")."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from metlmon.dagman import NodeKind
from metlmon.eventlog import Execute
from metlmon.frozen import frozen
from metlmon.model.clock import Clock
from metlmon.model.dag import Dag
from metlmon.model.job import Execution
from metlmon.model.job_events import Job, NodeRecord, PostResult
from metlmon.model.node_reports import STATUS_REPORT_KINDS, NodeReport, NodeReportKind
from metlmon.model.states import ACTIVE, Outcome, State
from metlmon.snapshot.types import FAILED_JOB

WORST_FIRST: Final = (
    State.HELD,
    State.DISCONNECTED,
    State.SUSPENDED,
    State.IDLE,
    State.TRANSFERRING_INPUT,
    State.STARTING,
    State.TRANSFERRING_OUTPUT,
    State.RUNNING,
)
"""Of several procs of one submission the one that most needs a look stands for the node."""


NEXT_TRY: Final = (NodeReportKind.PRE, NodeReportKind.PRE_FAILED, NodeReportKind.RETRYING)
"""What DAGMan says of a node that it tries again after its POST script."""

BEFORE_ITS_END: Final = (
    NodeReportKind.PRE,
    NodeReportKind.PRE_OK,
    NodeReportKind.SUBMITTED,
    NodeReportKind.RETRYING,
)
"""What DAGMan says of a node while the job that it submits, or has submitted, is not over."""

SUBMISSION: Final = (
    NodeReportKind.SUBMITTED,
    NodeReportKind.JOB_DONE,
    NodeReportKind.JOB_FAILED,
    NodeReportKind.POST,
)
"""What DAGMan says of a node that has a job."""

NOT_AGAIN: Final = (NodeReportKind.SUBMIT_FAILED, NodeReportKind.GAVE_UP)
"""What DAGMan says of a node that it does not try again, whatever its RETRY says."""

FAILURES: Final = {
    NodeReportKind.PRE_FAILED: "pre",
    NodeReportKind.SUBMIT_FAILED: "submit",
    NodeReportKind.FAILED: "post",
    NodeReportKind.JOB_FAILED: "job",
}
"""What failed of a node, by DAGMan's word."""

AFTER_A_FAILURE: Final = (NodeReportKind.GAVE_UP, NodeReportKind.RETRYING)
"""What DAGMan says of a node after it said what of it failed."""

SWEPT_AWAY: Final = "Was STATUS_"
"""StatusDetails of a node that a DAGMan which is removed writes as ERROR only because it was
not over yet. That is no verdict: its job may even have succeeded."""


@frozen
class NodeFailure:
    """Why a node failed, by DAGMan's word alone. ``what``: pre (its PRE script), submit (its
    submission), post (its POST script) or job. ``text``: in DAGMan's words, as they stand in
    StatusDetails of the node status file. ``value``: return value, or minus the signal."""

    what: str
    text: str
    value: int | None = None


@frozen
class NodeState:
    """``job``: the job that stands for the node. ``inferred``: done because a node after it
    was submitted. ``superseded``: its jobs were made void by a later submission of a node
    before it. ``submitted``: when the last submission was. ``failure``: why it failed, where no
    job's events tell. ``behind``: of a futile node, the node before it that failed. ``again``: it
    failed with retries left, which its DAGMan, where it is not alive, did not come to."""

    state: State
    since: datetime | None = None
    job: Job | None = None
    inferred: bool = False
    superseded: bool = False
    submitted: datetime | None = None
    failure: NodeFailure | None = None
    behind: str | None = None
    again: bool = False


@frozen
class NodeSubmission:
    """One submission of a node: all procs of one cluster."""

    cluster: int
    jobs: tuple[Job, ...]
    submitted: datetime | None


def rounds(record: NodeRecord) -> list[NodeSubmission]:
    """The node's submissions, in the order they were made."""
    by_cluster: dict[tuple[int, int], list[Job]] = {}
    for job in record.jobs:
        by_cluster.setdefault((job.cluster, job.subproc), []).append(job)
    made = []
    for (cluster, _), jobs in by_cluster.items():
        jobs.sort(key=lambda j: (j.proc, j.subproc))
        times = [t for t in (_first_sign(j) for j in jobs) if t is not None]
        made.append(NodeSubmission(cluster, tuple(jobs), min(times, default=None)))
    made.sort(key=lambda r: (r.submitted or datetime.min, r.cluster))
    return made


def _first_sign(job: Job) -> datetime | None:
    life = job.life()
    if life.submitted is not None:
        return life.submitted
    events = job.events()
    return events[0].time if events else job.newest_sign


def job_says(round_: NodeSubmission) -> tuple[State, datetime | None, Job]:
    """What the jobs of one submission come to: the worst still-open proc, else the worst
    ending."""
    lives = [(job, job.life()) for job in round_.jobs]
    still_open = [(j, li) for j, li in lives if li.state in ACTIVE]
    if still_open:
        job, life = min(still_open, key=lambda jl: WORST_FIRST.index(jl[1].state or State.IDLE))
        return life.state or State.IDLE, life.since, job
    for state in (State.FAILED, State.REMOVED):
        ended = [(j, li) for j, li in lives if li.state is state]
        if ended:
            job, life = ended[0]
            return state, life.since, job
    done = [(j, li) for j, li in lives if li.state is State.COMPLETED]
    if done:
        job, life = max(done, key=lambda jl: jl[1].since or datetime.min)
        return State.COMPLETED, life.since, job
    job, life = lives[0]
    return life.state or State.IDLE, life.since or job.newest_sign, job


@frozen
class SubmissionResult:
    """What the submissions of a node come to. ``state``, ``since``, ``job``: what the jobs of
    the last one say; ``begun``: when each was made. ``success``: where the last good execution
    of the last good job ran, in brackets; empty without one."""

    last: NodeSubmission
    state: State
    since: datetime | None
    job: Job
    begun: tuple[datetime | None, ...]
    success: tuple[Execute | None, ...]

    @property
    def submitted(self) -> datetime | None:
        return self.last.submitted


def made_of(record: NodeRecord) -> SubmissionResult | None:
    """What the node's submissions come to; None when there was none."""
    made = rounds(record)
    if not made:
        return None
    begun = tuple(round_.submitted for round_ in made)
    success = last_success(made)
    where = (success.machine,) if success is not None else ()
    return SubmissionResult(made[-1], *job_says(made[-1]), begun, where)


def last_success(made: Iterable[NodeSubmission]) -> Execution | None:
    """The execution that completed a node: the last good one of its last good job."""
    for round_ in reversed(list(made)):
        for job in round_.jobs:
            for execution in reversed(job.life().executions):
                if execution.outcome is Outcome.GOOD:
                    return execution
    return None


BY_DAGMAN: Final = "Removed by DAGMan"
"""DAGMan's reason where it ends its SERVICE nodes. Source: ``RemoveServiceNodes`` in ``dag.cpp``,
``RemoveBatchJob`` in ``dag.h``."""


def _at_dags_end(job: Job) -> bool:
    """Was the job removed because its DAG was over?"""
    ended = job.life().executions
    said = ended[-1].reason if ended else None
    return job.swept or (said is not None and said.startswith(BY_DAGMAN))


class NodeStateResolver:
    """Judges the nodes of one DAG, all by the same facts.

    ``alive``: its DAGMan has not ended. ``cut``: nothing told after this moment counts.
    """

    def __init__(self, dag: Dag, clock: Clock, alive: bool, cut: datetime | None = None) -> None:
        self._dag = dag
        self._clock = clock
        self._alive = alive
        self._cut = cut
        self._done = dag.done_nodes()
        self._fresh = dag.fresh_start()

    def own(self, record: NodeRecord, made: SubmissionResult | None) -> NodeState:
        """The node's state by what is said of itself, its neighbours not asked. ``made``: what
        its submissions come to."""
        word = self._word(record)
        skip = self._skip(record, made)
        if self._before_this_life(made, word, skip):
            stays = record.node.name in self._done
            if not stays or skip is None:
                return self._at_rest(stays, made)
        if skip is not None:
            return NodeState(State.SKIPPED, skip.time)
        if record.node.name in self._done:
            return self._marked_done(made)
        return self._judged(record, made, word)

    def _before_this_life(
        self, made: SubmissionResult | None, word: NodeReport | None, skip: NodeReport | None
    ) -> bool:
        """All that is known of the node is older than the newest life of DAGMan."""
        if self._fresh is None:
            return False
        told = word.time if word is not None else None
        submitted = made.submitted if made is not None else None
        skipped = skip.time if skip is not None else None
        newest = max((t for t in (told, submitted, skipped) if t is not None), default=None)
        return newest is not None and newest < self._fresh

    def _at_rest(self, done: bool, made: SubmissionResult | None) -> NodeState:
        if done:
            return self._marked_done(made)
        # Its jobs belong to a life that is over: DAGMan began again as if they were not.
        if made is not None and made.state in ACTIVE:
            return NodeState(made.state, made.since, made.job, submitted=made.submitted)
        return NodeState(State.WAITING, None, None, superseded=made is not None)

    def _marked_done(self, made: SubmissionResult | None) -> NodeState:
        if made is None:
            return NodeState(State.COMPLETED)
        since = None if made.state in ACTIVE else made.since
        return NodeState(State.COMPLETED, since, made.job, submitted=made.submitted)

    def _skip(self, record: NodeRecord, made: SubmissionResult | None) -> NodeReport | None:
        """That PRE_SKIP ended the node, where DAGMan did nothing else with it since. A rescue file
        marks it ``DONE`` then, and that it has jobs, which were cut off, does not change it."""
        words = self._words(record.node.name)
        skips = [word for word in words if word.claim is NodeReportKind.SKIPPED]
        skips += [NodeReport(NodeReportKind.SKIPPED, time) for time in record.skips]
        if not skips:
            return None
        last = max(skips, key=_when)
        if last.time is None:
            return last if words[-1].claim is NodeReportKind.SKIPPED else None
        done = record.node.name in self._done
        since = [w for w in words if _when(w) > last.time and (w.claim in SUBMISSION or not done)]
        begun = made.submitted if made is not None else None
        return None if since or (begun and begun > last.time) else last

    def _word(self, record: NodeRecord) -> NodeReport | None:
        """DAGMan's newest word on the node, with its time made local."""
        words = self._words(record.node.name)
        newest = words[-1] if words else None
        status = self._status_word(record.node.name)
        if status is not None and (
            newest is None or (status.time and newest.time and status.time > newest.time)
        ):
            newest = status
        return newest

    def _words(self, name: str) -> list[NodeReport]:
        """DAGMan's words on a node up to the cut, with local times, in order of these."""
        found: list[NodeReport] = []
        # Of two words of one second the jobstate log's counts, whichever file was read first:
        # DAGMan may keep lines of its .out back, of the jobstate log never.
        for word in sorted(self._dag.words.get(name, ()), key=lambda w: w.epoch is not None):
            time = word.time
            if time is None and word.epoch is not None:
                if self._cut and self._clock.after(word.epoch, self._cut) is not False:
                    continue
                time = self._clock.local(word.epoch)
            found.append(NodeReport(word.claim, time, None, word.value, word.text))
        found.sort(key=_when)
        return found

    def _status_word(self, name: str) -> NodeReport | None:
        status = self._dag.status
        if status is None or name not in status.nodes:
            return None
        local = status.local
        if local is None and status.epoch is not None:
            local = self._clock.local(status.epoch)
        said = status.nodes[name]
        if said.details.startswith(SWEPT_AWAY):
            return None
        claim = STATUS_REPORT_KINDS.get(said.status)
        if claim is None:
            return None
        if claim is NodeReportKind.GAVE_UP and said.procs_queued:
            # DAGMan removes its other jobs, and may try it again then.
            claim = NodeReportKind.FAILED
        return NodeReport(claim, local, None, said.retry_count, said.details or None)

    def _judged(
        self, record: NodeRecord, made: SubmissionResult | None, word: NodeReport | None
    ) -> NodeState:
        if made is None:
            return self._by_word_alone(record, word)
        last, state, since, job = made.last, made.state, made.since, made.job
        if word is not None and self._submitted_since(word, since, state):
            return NodeState(State.IDLE, word.time, None, submitted=word.time)
        post = self._post(record, last)
        if post is not None:
            state, since = (State.COMPLETED if post.ok else State.FAILED), post.time
            if word is not None and word.claim in NEXT_TRY and self._fresher(word, since, state):
                state, since = self._by_fresh_word(word, state, since)
        elif word is not None and self._fresher(word, since, state):
            of_one_proc = word.claim in (NodeReportKind.JOB_DONE, NodeReportKind.JOB_FAILED)
            if len(last.jobs) == 1 or not of_one_proc:
                state, since = self._by_fresh_word(word, state, since)
        elif self._before_its_script(record, word, state):
            state = State.POST
        failure, again = None, False
        if state in (State.FAILED, State.RETRYING):
            when, failure = self._failure(record, word, made, post)
            since = when or since
        if state in (State.FAILED, State.REMOVED):
            codes = self._exit_codes(made, post, failure)
            again = self._retries_left(record, made, word, codes)
            if again and self._alive:
                state = State.RETRYING
        if state is State.REMOVED and record.node.kind is NodeKind.SERVICE and _at_dags_end(job):
            # It was to last as long as its DAG, and has.
            state = State.COMPLETED
        begun = last.submitted
        return NodeState(state, since, job, submitted=begun, failure=failure, again=again)

    def _submitted_since(self, word: NodeReport, since: datetime | None, state: State) -> bool:
        """DAGMan has submitted the node again, and the job logs do not have it yet. It gives
        the time of the submission itself, not of its hearing of it."""
        if word.claim is not NodeReportKind.SUBMITTED or not self._alive or state in ACTIVE:
            return False
        return since is not None and word.time is not None and word.time > since

    def _by_word_alone(self, record: NodeRecord, word: NodeReport | None) -> NodeState:
        """The state of a node of which no job log has a job."""
        post = record.posts[-1] if record.posts else None
        state, since = self._worded(post, word)
        failure, again = None, False
        if state in (State.FAILED, State.RETRYING):
            when, failure = self._failure(record, word, None, post)
            since = when or since
        if state is State.FAILED:
            codes = self._exit_codes(None, post, failure)
            again = self._retries_left(record, None, word, codes)
            if again and self._alive:
                state = State.RETRYING
        submitted = self._told_submitted(record.node.name)
        return NodeState(state, since, submitted=submitted, failure=failure, again=again)

    def _worded(
        self, post: PostResult | None, word: NodeReport | None
    ) -> tuple[State, datetime | None]:
        if post is not None:
            return State.COMPLETED if post.ok else State.FAILED, post.time
        if word is None:
            return State.WAITING, None
        match word.claim:
            case NodeReportKind.PRE | NodeReportKind.PRE_OK:
                return (State.PRE if self._alive else State.WAITING), word.time
            case claim if claim in FAILURES or claim in NOT_AGAIN:
                return State.FAILED, word.time
            case NodeReportKind.RETRYING:
                return (State.RETRYING if self._alive else State.FAILED), word.time
            case NodeReportKind.SUBMITTED:
                return (State.IDLE if self._alive else State.WAITING), word.time
            case NodeReportKind.POST:
                return (State.POST if self._alive else State.WAITING), word.time
            case NodeReportKind.DONE | NodeReportKind.JOB_DONE:
                return State.COMPLETED, word.time
            case _:
                return State.WAITING, None

    def _told_submitted(self, name: str) -> datetime | None:
        """When DAGMan last said that it submitted the node: job logs can lag, or be lost."""
        times = (
            told.time
            for told in self._words(name)
            if told.claim is NodeReportKind.SUBMITTED and told.time is not None
        )
        return max(times, default=None)

    def _post(self, record: NodeRecord, last: NodeSubmission) -> PostResult | None:
        """The POST script's result for the last submission, if it has come."""
        for post in reversed(record.posts):
            if post.cluster == last.cluster:
                return post
            if last.submitted is None or post.time >= last.submitted:
                return post if post.cluster is None or post.cluster <= 0 else None
        return None

    def _before_its_script(self, record: NodeRecord, word: NodeReport | None, state: State) -> bool:
        """Its job has ended, and DAGMan, which is heard of this node, runs its POST script next:
        whatever the job returned, the node is neither done nor failed yet."""
        if record.node.post is None or not self._alive or state in ACTIVE:
            return False
        return word is not None and word.claim in BEFORE_ITS_END

    def _fresher(self, word: NodeReport, since: datetime | None, state: State) -> bool:
        if word.time is None:
            return False
        if since is None:
            return True
        # A POST script starts in the second its job ended in.
        return word.time >= since if word.claim is NodeReportKind.POST else word.time > since

    def _by_fresh_word(
        self, word: NodeReport, state: State, since: datetime | None
    ) -> tuple[State, datetime | None]:
        # Its job may still be open in a log that lost its end, or lags behind DAGMan's own.
        match word.claim:
            case NodeReportKind.PRE:
                return (State.PRE if self._alive else state), word.time
            case NodeReportKind.POST if self._alive:
                return State.POST, word.time
            case NodeReportKind.PRE_FAILED | NodeReportKind.SUBMIT_FAILED:
                return State.FAILED, word.time
            case NodeReportKind.DONE | NodeReportKind.JOB_DONE:
                return State.COMPLETED, since if state is State.COMPLETED else word.time
            case NodeReportKind.FAILED | NodeReportKind.JOB_FAILED | NodeReportKind.GAVE_UP if (
                state not in FAILED_JOB
            ):
                return State.FAILED, word.time
            case NodeReportKind.RETRYING if self._alive:
                return State.RETRYING, word.time
            case _:
                return state, since

    def _failure(
        self,
        record: NodeRecord,
        word: NodeReport | None,
        made: SubmissionResult | None,
        post: PostResult | None,
    ) -> tuple[datetime | None, NodeFailure | None]:
        """When and why a node failed, where neither its job's events nor 016 tell."""
        if word is None:
            return None, None
        told = [w for w in self._words(record.node.name) if w.claim not in AFTER_A_FAILURE]
        last = told[-1] if told else None
        details = word.text if word.claim is NodeReportKind.GAVE_UP else None
        if last is not None and last.claim in FAILURES:
            what, when, value = FAILURES[last.claim], last.time, last.value
        elif details is not None:
            what, when, value = _what_failed(details), word.time, None
        else:
            return None, None
        begun = made.submitted if made is not None else None
        older = when is not None and begun is not None and when < begun
        told_by_events = post is not None or (made is not None and made.state in FAILED_JOB)
        if older or (what in ("job", "post") and told_by_events):
            return None, None
        return when, NodeFailure(what, details or _in_words(what, value), value)

    def _exit_codes(
        self, made: SubmissionResult | None, post: PostResult | None, failure: NodeFailure | None
    ) -> tuple[int | None, ...]:
        """What DAGMan takes for the node's return value, of several procs any."""
        if failure is not None:
            return (failure.value,)
        if post is not None:
            return (post.value,)
        jobs = made.last.jobs if made is not None else ()
        return tuple(code for job in jobs if (code := job.life().return_value))

    def _retries_left(
        self,
        record: NodeRecord,
        made: SubmissionResult | None,
        word: NodeReport | None,
        codes: Sequence[int | None],
    ) -> bool:
        node = record.node
        if node.retries <= 0 or node.kind is NodeKind.SERVICE:
            return False
        if self._dag.aborted or self._given_up(made, word):
            return False
        if made is not None and any(job.swept for job in made.last.jobs):
            return False
        if any(code is not None and code in (node.unless_exit, node.abort_on) for code in codes):
            return False
        return retries_left(self._dag, record, made) > 0

    def _given_up(self, made: SubmissionResult | None, word: NodeReport | None) -> bool:
        """Does DAGMan say so, and of its last submission?"""
        if word is None or word.claim not in NOT_AGAIN:
            return False
        begun = made.submitted if made is not None else None
        return begun is None or word.time is None or word.time >= begun


def _when(word: NodeReport) -> datetime:
    return word.time or datetime.min


def _what_failed(details: str) -> str:
    """Which part of a node failed, by DAGMan's StatusDetails."""
    if details.startswith("Job submit"):
        return "submit"
    if "POST" in details:
        return "post"
    return "pre" if details.startswith("PRE ") else "job"


def _in_words(what: str, value: int | None) -> str:
    """As DAGMan puts it in StatusDetails. Source: ``dag.cpp``."""
    if what == "submit":
        return "Job submit failed"
    part = {"pre": "PRE Script", "post": "POST Script", "job": "Job"}[what]
    if value is None:
        return f"{part} failed"
    return f"{part} died on signal {-value}" if value < 0 else f"{part} failed with status {value}"


def retries_left(dag: Dag, record: NodeRecord, made: SubmissionResult | None) -> int:
    """How often DAGMan, in this life of its, would still try the node again."""
    life = dag.last_start()

    def in_this_life(when: datetime | None) -> bool:
        return life is None or when is None or when >= life

    submissions = sum(map(in_this_life, made.begun if made is not None else ()))
    said = [w for w in dag.words.get(record.node.name, ()) if w.epoch is None]
    said = [w for w in said if in_this_life(w.time)]
    retry = max((w.value or 0 for w in said if w.claim is NodeReportKind.RETRYING), default=0)
    # Even the last retry: it has begun, and its submission was not seen yet.
    begun = bool(said) and said[-1].claim is NodeReportKind.RETRYING and retry >= submissions
    return max(0, record.node.retries + 1 - max(submissions, retry + 1), int(begun))
