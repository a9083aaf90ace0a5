"""One DAGMan's DAG: what its file says and what DAGMan's own files say of it.

Facts are kept as they were told, each with its time; :mod:`metlmon.ensemble.node` weighs
them against the job events. Manual: "DAGMan Workflows > DAG Monitoring", "Rescue DAG".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import PurePath
from typing import Final

from metlmon.dagman import (
    Jobstate,
    Metrics,
    NodeKind,
    Rescue,
    Said,
    StatusFile,
    Word,
    Workflow,
)
from metlmon.ensemble.clock import Clock
from metlmon.ensemble.states import DagState
from metlmon.eventlog import Event, Terminated
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


@frozen
class NodeWord:
    """DAGMan's word on one node. ``epoch`` in place of ``time`` for files that count
    seconds since 1970. ``value``: return value, or the number of the retry."""

    claim: Claim
    time: datetime | None
    epoch: float | None = None
    value: int | None = None


@dataclass(slots=True)
class Life:
    """One life of DAGMan, as ``.dagman.out`` tells it."""

    start: datetime | None
    recovery: bool = False
    pre_completed: int | None = None
    rescue: str | None = None
    end: datetime | None = None
    status: int | None = None
    ended: bool = False
    removed: bool = False
    error: str | None = None


@dataclass(slots=True)
class Tenure:
    """One DAGMan job in the queue, as ``.dagman.log`` tells it."""

    cluster: int
    start: datetime | None
    end: datetime | None = None
    removed: bool = False
    return_value: int | None = None


_OUT_CLAIMS: Final = {
    Word.PRE_STARTED: Claim.PRE,
    Word.PRE_OK: Claim.PRE_OK,
    Word.PRE_FAILED: Claim.PRE_FAILED,
    Word.PRE_SKIPPED: Claim.SKIPPED,
    Word.SUBMITTED: Claim.SUBMITTED,
    Word.POST_STARTED: Claim.POST,
    Word.POST_OK: Claim.DONE,
    Word.POST_FAILED: Claim.FAILED,
    Word.RETRYING: Claim.RETRYING,
    Word.NODE_FAILED: Claim.FAILED,
}

_JOBSTATE_CLAIMS: Final = {
    "PRE_SCRIPT_STARTED": Claim.PRE,
    "PRE_SCRIPT_SUCCESS": Claim.PRE_OK,
    "PRE_SCRIPT_FAILURE": Claim.PRE_FAILED,
    "PRESKIP": Claim.SKIPPED,
    "SUBMIT": Claim.SUBMITTED,
    "POST_SCRIPT_STARTED": Claim.POST,
    "POST_SCRIPT_SUCCESS": Claim.DONE,
    "POST_SCRIPT_FAILURE": Claim.FAILED,
}

STATUS_CLAIMS: Final = {2: Claim.PRE, 4: Claim.POST, 5: Claim.DONE, 6: Claim.FAILED}
"""NodeStatus of the node status file, where it says something that job events may not."""

CHANGED_CLOCKS: Final = 3600.0
SAME_MOMENT: Final = 60.0
"""Seconds: DAGMan writes its metrics within them of the lines that tell of its start and end."""

DAG_REMOVED: Final = 4
"""``DagStatus`` of ``.metrics`` for a DAGMan that was removed."""


def note_tenure(tenures: list[Tenure], event: Event) -> None:
    """Take one event of ``.dagman.log`` into what it told so far. A repeated 001 (the schedd
    was restarted) changes nothing."""
    if not tenures or tenures[-1].cluster != event.cluster:
        tenures.append(Tenure(event.cluster, event.time))
    tenure = tenures[-1]
    match event.number:
        case 5:
            tenure.end = event.time
            if isinstance(event.detail, Terminated):
                tenure.return_value = event.detail.return_value
        case 9:
            tenure.end, tenure.removed = event.time, True


class Dag:
    """A DAG, top-level or external sub-DAG.

    ``key`` is unique in the ensemble, ``file`` the DAG file's name relative to the dagdir,
    ``top`` the key of the top-level DAG it belongs to (its own for a top-level one).
    """

    def __init__(self, key: str, file: str, workflow: Workflow, top: str | None = None) -> None:
        self.key = key
        self.file = file
        self.workflow = workflow
        self.top = top or key
        self.rescue_files: dict[int, Rescue] = {}
        self.clock = Clock()
        self.cut: datetime | None = None
        self.status: StatusFile | None = None
        self.metrics: Metrics | None = None
        self.lives: list[Life] = []
        self.tenures: list[Tenure] = []
        self.words: dict[str, list[NodeWord]] = {}
        self.submit_epochs: dict[int, float] = {}
        self.jobstate_started: list[float] = []
        self.jobstate_finished: tuple[float, int | None] | None = None
        self.halted = False
        self.heard_until: datetime | None = None
        self._out_submitted: dict[int, str] = {}
        self._jobstate_submitted: dict[int, str] = {}
        self._last_clusters: dict[str, int] = {}
        self._rescues_written: dict[str, datetime] = {}
        self._order: list[str] | None = None
        self._marked: frozenset[str] | None = None
        self._done: tuple[Rescue | None, frozenset[str]] | None = None
        self._found: dict[int, tuple[Rescue, int]] = {}

    @property
    def is_top(self) -> bool:
        return self.top == self.key

    @property
    def counted(self) -> int:
        """Nodes as DAGMan totals them: SERVICE nodes are not among them."""
        return sum(n.kind is not NodeKind.SERVICE for n in self.workflow.nodes.values())

    # --- being told ---------------------------------------------------------------------

    def hear(self, said: Iterable[Said]) -> set[str]:
        """Take lines of ``.dagman.out`` in; returns the names of nodes they speak of."""
        touched: set[str] = set()
        until = self.heard_until
        for line in said:
            time = line.time
            if time is not None and (until is None or time > until):
                until = time
            if line.node is None:
                self._hear(line)
            else:
                touched.add(self._hear_of(line.node, line))
        self.heard_until = until
        return touched

    def _hear(self, line: Said) -> None:
        """What the DAG as a whole came to."""
        life = self.lives[-1] if self.lives else None
        match line.word:
            case Word.STARTED:
                self.lives.append(Life(line.time))
            case Word.RECOVERY if life:
                life.recovery = True
            case Word.PRE_COMPLETED if life:
                life.pre_completed = line.value
            case Word.RESCUE_USED if life:
                life.rescue = line.text
            case Word.RESCUE_WRITTEN if line.text and line.time:
                self._rescues_written[PurePath(line.text).name] = line.time
            case Word.ERROR if life:
                life.error = line.text
            case Word.REMOVED if life:
                life.removed = True
            case Word.EXITED if life:
                life.ended, life.end, life.status = True, line.time, line.value

    def _hear_of(self, name: str, line: Said) -> str:
        """What a node came to; returns its name, as :meth:`_own` has it."""
        node, word, claim = self.workflow.nodes.get(name), line.word, None
        if node is not None:
            name = node.name
        if word is Word.SUBMITTED:
            claim = Claim.SUBMITTED
            if line.cluster is not None:
                self._out_submitted[line.cluster] = name
                self._submitted_as(name, line.cluster)
        elif word is not Word.JOB_OK and word is not Word.JOB_FAILED:
            claim = _OUT_CLAIMS.get(word)
        elif node is not None and node.post is None:
            # The job's result is the node's where no POST script has the last word.
            claim = Claim.JOB_DONE if word is Word.JOB_OK else Claim.JOB_FAILED
        if claim is not None:
            self._say(name, NodeWord(claim, line.time, None, line.value))
        return name

    def forget_out(self) -> None:
        """``.dagman.out`` begins anew; what it said before is not in it any more."""
        self.lives = []
        self.heard_until = None
        self._rescues_written = {}
        self._out_submitted = {}
        self._last_clusters = {}
        for cluster, node in self._jobstate_submitted.items():
            self._submitted_as(node, cluster)
        for node, words in self.words.items():
            self.words[node] = [word for word in words if word.time is None]

    def forget_jobstate(self) -> None:
        """The jobstate log begins anew."""
        self.jobstate_started, self.jobstate_finished = [], None
        self.submit_epochs = {}
        self._jobstate_submitted = {}
        self._last_clusters = {}
        for cluster, node in self._out_submitted.items():
            self._submitted_as(node, cluster)
        for node, words in self.words.items():
            self.words[node] = [word for word in words if word.epoch is None]

    def read_jobstate(self, entries: Iterable[Jobstate]) -> set[str]:
        """Take lines of the jobstate log in; returns the names of nodes they speak of."""
        touched: set[str] = set()
        for entry in entries:
            if entry.node is None:
                if entry.event == "DAGMAN_STARTED":
                    self.jobstate_started.append(entry.epoch)
                    self.jobstate_finished = None
                elif entry.event == "DAGMAN_FINISHED":
                    self.jobstate_finished = (entry.epoch, entry.value)
                continue
            name = self._own(entry.node)
            touched.add(name)
            if entry.event == "SUBMIT" and entry.cluster is not None and entry.cluster > 0:
                self._jobstate_submitted.setdefault(entry.cluster, name)
                self.submit_epochs.setdefault(entry.cluster, entry.epoch)
                if entry.cluster not in self._out_submitted:
                    self._submitted_as(name, entry.cluster)
            claim = _JOBSTATE_CLAIMS.get(entry.event) or self._job_claim(entry)
            if claim is not None:
                self._say(name, NodeWord(claim, None, entry.epoch, entry.value))
        return touched

    def _own(self, name: str) -> str:
        """The name as the DAG file gave it: one object, however often DAGMan says it."""
        node = self.workflow.nodes.get(name)
        return name if node is None else node.name

    def _submitted_as(self, node: str, cluster: int) -> None:
        """Of two files that tell of a node's submissions either may be ahead, and be read first;
        the schedd numbers clusters in the order they were made."""
        self._last_clusters[node] = max(cluster, self._last_clusters.get(node, cluster))

    def _job_claim(self, entry: Jobstate) -> Claim | None:
        """The job's result is the node's where no POST script has the last word."""
        node = self.workflow.nodes.get(entry.node or "")
        if node is None or node.post is not None:
            return None
        return {"JOB_SUCCESS": Claim.JOB_DONE, "JOB_FAILURE": Claim.JOB_FAILED}.get(entry.event)

    def _say(self, node: str, word: NodeWord) -> None:
        self.words.setdefault(node, []).append(word)

    # --- being asked --------------------------------------------------------------------

    def moments(self) -> Iterator[tuple[datetime, float]]:
        """Moments that its files state both ways: (local time, seconds since 1970)."""
        if self.status is not None and self.status.local and self.status.epoch is not None:
            yield self.status.local, self.status.epoch
        life = self._life_of_metrics()
        if self.metrics is not None and life is not None:
            for local, epoch in ((life.start, self.metrics.start), (life.end, self.metrics.end)):
                if local is not None and epoch is not None:
                    yield local, epoch
        for rescue in self.rescue_files.values():
            written = self._rescues_written.get(rescue.path.name)
            if written is not None and rescue.created is not None:
                yield written, rescue.created.timestamp()

    def _life_of_metrics(self) -> Life | None:
        """The life that wrote the metrics file: it lies there until the next one has ended, so
        it is the newest that lasted as long as the file says (an hour more or less, where the
        clocks were changed)."""
        metrics = self.metrics
        if len(self.lives) == 1:
            return self.lives[0]
        if metrics is None or metrics.start is None or metrics.end is None:
            return None
        for life in reversed(self.lives):
            if life.start is not None and life.end is not None:
                lasted = (life.end - life.start).total_seconds()
                off = abs(lasted - (metrics.end - metrics.start))
                if min(off, abs(off - CHANGED_CLOCKS)) <= SAME_MOMENT:
                    return life
        return None

    def submits_all_it_says(self, moment: datetime) -> bool:
        """Does ``.dagman.out`` name every submission of this DAG around ``moment``? It is
        appended to for ever, so it does from its first life to its last line."""
        first = self.lives[0].start if self.lives else None
        if first is None or self.heard_until is None or not self._out_submitted:
            return False
        return first <= moment <= self.heard_until

    def rescues(self) -> dict[int, Rescue]:
        """The rescue files that were there at the cut, by number."""
        if self.cut is None:
            return self.rescue_files
        return {n: r for n, r in self.rescue_files.items() if not self._later(r.created)}

    def _later(self, moment: datetime | None) -> bool:
        """Does a moment (aware) lie behind the cut? Not where no offset is known."""
        return moment is not None and self._behind(moment.timestamp())

    def _behind(self, epoch: float | None) -> bool:
        local = self.clock.local(epoch) if epoch is not None and self.cut is not None else None
        return local is not None and self.cut is not None and local > self.cut

    def rescue(self) -> Rescue | None:
        """The rescue file in force: the highest number wins."""
        rescues = self.rescues()
        return rescues[max(rescues)] if rescues else None

    def done_names(self) -> frozenset[str]:
        """Nodes that the DAG file or the rescue file marks ``DONE``."""
        rescue = self.rescue()
        if self._done is None or self._done[0] is not rescue:
            self._done = rescue, self._with(rescue)
        return self._done[1]

    def _with(self, rescue: Rescue | None) -> frozenset[str]:
        if self._marked is None:
            nodes = self.workflow.nodes
            self._marked = frozenset(name for name, node in nodes.items() if node.done)
        return self._marked | rescue.done if rescue is not None else self._marked

    def fresh_start(self) -> datetime | None:
        """When the newest life began, if it began from its DONE nodes alone.

        None for a recovery, and when the number of nodes that life found DONE is not the
        number we would find in any rescue file here: then a file is missing, and older
        events are all there is to go by.
        """
        if not self.lives or self.lives[-1].recovery:
            return None
        life = self.lives[-1]
        if life.start is None or life.pre_completed is None:
            return None
        counts = {len(self._with(None))}
        counts.update(self._number_done(rescue) for rescue in self.rescues().values())
        return life.start if life.pre_completed in counts else None

    def _number_done(self, rescue: Rescue) -> int:
        known = self._found.get(rescue.number)
        if known is None or known[0] is not rescue:
            known = self._found[rescue.number] = rescue, len(self._with(rescue))
        return known[1]

    def last_start(self) -> datetime | None:
        """When the newest life began that did not recover an older one; None: not known."""
        for life in reversed(self.lives):
            if not life.recovery:
                return life.start
        return None

    def node_of(self, cluster: int) -> str | None:
        """The node that DAGMan submitted the cluster for; None when it does not say."""
        return self._out_submitted.get(cluster) or self._jobstate_submitted.get(cluster)

    def clusters(self) -> set[int]:
        """The clusters that DAGMan says it submitted."""
        return self._out_submitted.keys() | self._jobstate_submitted.keys()

    def last_cluster(self, node: str) -> int | None:
        """The cluster that DAGMan submitted for the node last; None when it does not say."""
        return self._last_clusters.get(node)

    def topological(self) -> list[str]:
        """Nodes, parents before children; nodes of a cycle are left out."""
        if self._order is None:
            self._order = _topological(self.workflow)
        return self._order

    def replace_workflow(self, workflow: Workflow) -> None:
        """The DAG file was written anew."""
        self.workflow = workflow
        self._order = self._marked = self._done = None
        self._found = {}

    def starts(self, clock: Clock) -> tuple[datetime, ...]:
        """When its DAGMans began, oldest first, from the file that tells most."""
        if self.lives:
            return tuple(life.start for life in self.lives if life.start is not None)
        if self.tenures:
            return tuple(t.start for t in self.tenures if t.start is not None)
        return tuple(t for t in map(clock.local, self._started()) if t is not None)

    def _started(self) -> list[float]:
        """When DAGMans began by the jobstate log, up to the cut (seconds since 1970)."""
        return [epoch for epoch in self.jobstate_started if not self._behind(epoch)]

    def dagmans(self) -> int | None:
        """Lives of DAGMan that the files show; None when they cannot tell."""
        return len(self.lives) or len(self.tenures) or len(self._started()) or None

    def ending(self, clock: Clock) -> tuple[DagState, datetime | None] | None:
        """How the newest DAGMan ended, None when no file says that it has."""
        ended = self._ended_by_log() or self._ended_by_out() or self._ended_by_epoch(clock)
        return ended or self._ended_by_status()

    def _ended_by_log(self) -> tuple[DagState, datetime | None] | None:
        if not self.tenures or self.tenures[-1].end is None:
            return None
        tenure = self.tenures[-1]
        begun = self.lives[-1].start if self.lives else None
        if begun is not None and tenure.end is not None and begun > tenure.end:
            return None
        if tenure.removed:
            return DagState.REMOVED, tenure.end
        if self._told_of_removal():
            return DagState.REMOVED, tenure.end
        return (DagState.DONE if tenure.return_value == 0 else DagState.FAILED), tenure.end

    def _told_of_removal(self) -> bool:
        if self.lives and self.lives[-1].removed:
            return True
        return (
            self.metrics is not None
            and self.metrics.dag_status == DAG_REMOVED
            and (not self.lives or self.lives[-1].ended)
        )

    def _ended_by_out(self) -> tuple[DagState, datetime | None] | None:
        if not self.lives or not self.lives[-1].ended:
            return None
        life = self.lives[-1]
        begun = self.tenures[-1].start if self.tenures else None
        # By its start: a DAG can be submitted again in the second in which it ended.
        until = life.start or life.end
        if begun is not None and until is not None and begun > until:
            return None
        if life.removed:
            return DagState.REMOVED, life.end
        return (DagState.DONE if life.status == 0 else DagState.FAILED), life.end

    def _ended_by_epoch(self, clock: Clock) -> tuple[DagState, datetime | None] | None:
        """By the files that count seconds since 1970, if they are of the newest life."""
        if self._has_yet_to_speak():
            return None
        begun = max(self.jobstate_started, default=0.0)
        starts = [clock.epoch(t) for t in self.starts(clock)]
        begun = max([begun, *(s for s in starts if s is not None)])
        metrics = self.metrics
        if metrics is not None and self._of_an_older_dagman(metrics):
            metrics = None
        if metrics is not None and metrics.end is not None and metrics.end >= begun:
            if self.lives and not self.lives[-1].ended and not clock.known:
                return None
            when = clock.local(metrics.end)
            if metrics.dag_status == DAG_REMOVED:
                return DagState.REMOVED, when
            return (DagState.DONE if metrics.exitcode == 0 else DagState.FAILED), when
        if self.jobstate_finished is not None and self.jobstate_finished[0] >= begun:
            epoch, value = self.jobstate_finished
            return (DagState.DONE if value == 0 else DagState.FAILED), clock.local(epoch)
        return None

    def _has_yet_to_speak(self) -> bool:
        """Is the newest DAGMan in the queue, but not yet in ``.dagman.out``? Then what the
        files say of an end is of the one before it."""
        begun = self.lives[-1].start if self.lives else None
        submitted = self.tenures[-1].start if self.tenures else None
        return begun is not None and submitted is not None and submitted > begun

    def _of_an_older_dagman(self, metrics: Metrics) -> bool:
        """Did a DAGMan write them whose job is not the newest?"""
        newest = self.tenures[-1].cluster if self.tenures else None
        return (
            newest is not None
            and (metrics.dagman_id or "").isdigit()
            and (int(metrics.dagman_id or 0) < newest)
        )

    def _ended_by_status(self) -> tuple[DagState, datetime | None] | None:
        """The node status file is believed where no log of DAGMan's is there to ask."""
        if self.lives or self.tenures or self.status is None:
            return None
        if self.status.dag_status == 5:
            return DagState.DONE, self.status.local
        if self.status.dag_status == 6:
            return DagState.FAILED, self.status.local
        return None

    def begun(self) -> bool:
        """True when any file shows that a DAGMan of this DAG ever ran (up to the cut)."""
        if self.lives or self.tenures or self._started():
            return True
        if self.metrics is not None and not self._behind(self.metrics.start):
            return True
        # The node status file is written over and over: that its stamp lies behind the cut
        # says nothing, unless another file tells when DAGMan began.
        dated = self.jobstate_started or self.metrics is not None
        return self.status is not None and not (dated and self._behind(self.status.epoch))

    def alive_at(self, moment: datetime) -> bool | None:
        """Was a DAGMan of this DAG in the queue then? None when its logs cannot tell."""
        if not self.tenures and not self.lives:
            return None
        spans = [(t.start, t.end) for t in self.tenures]
        if not spans:
            spans = [(life.start, life.end) for life in self.lives]
        return any(
            start is not None and start <= moment and (end is None or moment <= end)
            for start, end in spans
        )


def _topological(workflow: Workflow) -> list[str]:
    nodes = workflow.nodes
    missing = {name: len(node.parents & nodes.keys()) for name, node in nodes.items()}
    ready = [name for name, count in missing.items() if count == 0]
    order: list[str] = []
    while ready:
        name = ready.pop()
        order.append(name)
        for child in nodes[name].children:
            if child in missing:
                missing[child] -= 1
                if missing[child] == 0:
                    ready.append(child)
    return order
