"""One DAGMan's DAG: what its file says and what DAGMan's own files say of it.

Facts are kept as they were told, each with its time; :mod:`metlmon.model.node` weighs
them against the job events. Manual: "DAGMan Workflows > DAG Monitoring", "Rescue DAG".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path, PurePath
from typing import Final

from metlmon.dagman import (
    CondorSub,
    DagmanMessage,
    DagmanMessageKind,
    DagMetrics,
    JobstateLine,
    NodeKind,
    Rescue,
    StatusFile,
    Workflow,
    rescue_number,
)
from metlmon.model.clock import Clock
from metlmon.model.clock_evidence import (
    Moment,
    OutTimes,
    QueueInterval,
    SubmissionTimes,
    of_jobstate,
    of_metrics,
    of_rescues,
)
from metlmon.model.dagman_runs import (
    DagmanJob,
    DagmanRun,
    Hold,
    Process,
    lives_of,
    newest_of,
    restarts,
)
from metlmon.model.node_reports import JOBSTATE_CLAIMS, OUT_CLAIMS, NodeReport, NodeReportKind
from metlmon.model.states import DagState

DAG_ABORTED: Final = 3
"""``DagStatus`` of ``.metrics`` after ABORT-DAG-ON."""

MOST_STRANGERS: Final = 1000
"""Names of nodes that are kept of which the DAG file has none: enough to say so."""

SETTLED: Final = timedelta(seconds=10)
"""DAGMan writes what it submitted within this time, and nothing else before that."""

ONE_SECOND: Final = timedelta(seconds=1)
"""The schedd and the shadows write the events of one second in any order."""

SUBMIT_FAILURE: Final = "submit failure"
"""DAGMan's reason for not trying a node again whose submission failed as often as it may."""

DAG_REMOVED: Final = 4
"""``DagStatus`` of ``.metrics`` for a DAGMan that was removed."""


class Dag:
    """A DAG, top-level or external sub-DAG.

    ``key`` is unique in the ensemble, ``file`` the DAG file's name relative to the dagdir,
    ``top`` the key of the top-level DAG it belongs to (its own for a top-level one).
    ``nodes_log``: the times of the first event in its nodes.log and of the newest.
    ``heard_until`` and ``jobstate_until`` (seconds since 1970): the newest times in
    ``.dagman.out`` and in the jobstate log.
    """

    def __init__(self, key: str, file: str, workflow: Workflow, top: str | None = None) -> None:
        self.key = key
        self.file = file
        self.workflow = workflow
        self.top = top or key
        self.rescue_files: dict[int, Rescue] = {}
        self.clock = Clock()
        self.cut: datetime | None = None
        self.status_file: StatusFile | None = None
        self.metrics_file: DagMetrics | None = None
        self.command_line: CondorSub | None = None
        self.processes: list[Process] = []
        self.dagman_jobs: list[DagmanJob] = []
        self.words: dict[str, list[NodeReport]] = {}
        self.submit_epochs: dict[int, float] = {}
        self.jobstate_started: list[tuple[float, int | None]] = []
        self.jobstate_finished: list[tuple[float, int | None, int]] = []
        """Ends by the jobstate log: seconds since 1970, return value, and starts before it."""
        self.halted = False
        self.heard_until: datetime | None = None
        self.jobstate_until: float | None = None
        self.nodes_log: tuple[datetime, datetime] | None = None
        self.strangers: dict[str, datetime | None] = {}
        """Nodes that DAGMan speaks of and the DAG file does not have, and when it last did."""
        self._out_submitted: dict[int, str] = {}
        self._jobstate_submitted: dict[int, str] = {}
        self._last_clusters: dict[str, int] = {}
        self.out_times = OutTimes()
        self.dagman_spans: dict[int, QueueInterval] = {}
        """DAGMan's own jobs in ``.dagman.log``, also those behind the cut."""
        self._submission_times = SubmissionTimes()
        self._moments: list[Moment] = []
        self._submissions: tuple[tuple[int, int], Counter[str]] | None = None
        self._final: bool | None = None
        self._order: list[str] | None = None
        self._marked: frozenset[str] | None = None
        self._done: tuple[Rescue | None, frozenset[str]] | None = None
        self._found: dict[int, tuple[Rescue, int]] = {}
        self._lives: list[DagmanRun] | None = None
        self._strange: (
            tuple[StatusFile | None, Rescue | None, list[tuple[Path, frozenset[str]]]] | None
        ) = None

    @property
    def is_top(self) -> bool:
        return self.top == self.key

    @property
    def counted(self) -> int:
        """Nodes as DAGMan totals them: SERVICE nodes are not among them."""
        return sum(n.kind is not NodeKind.SERVICE for n in self.workflow.nodes.values())

    # --- being told ---------------------------------------------------------------------

    def hear(self, said: Iterable[DagmanMessage]) -> set[str]:
        """Take lines of ``.dagman.out`` in; returns the names of nodes they speak of. What lies
        behind the cut tells of the offset alone."""
        touched: set[str] = set()
        until, cut = self.heard_until, self.cut
        for line in said:
            time = line.time
            self._note_time(line)
            if cut is not None and (time is None or time > cut):
                continue
            if time is not None and (until is None or time > until):
                until = time
            if line.node is None:
                self._hear(line)
            else:
                touched.add(self._hear_of(line.node, line))
        self.heard_until = until
        return touched

    def _note_time(self, line: DagmanMessage) -> None:
        """Note a local time that another file may state in UTC."""
        if line.node is None:
            self.out_times.add(line)
        elif (
            line.word is DagmanMessageKind.SUBMITTED
            and line.cluster is not None
            and line.time is not None
        ):
            epoch = self.submit_epochs.get(line.cluster)
            if epoch is None:
                self._submission_times.add(line.cluster, line.time)
            else:
                self._moments.append((line.time, epoch))

    def _hear(self, line: DagmanMessage) -> None:
        """What the DAG as a whole came to."""
        self._lives = None
        process = self._speaking()
        match line.word:
            case DagmanMessageKind.STARTED:
                self.processes.append(Process(line.time, line.cluster))
            case DagmanMessageKind.RECOVERY if process:
                process.recovery = True
            case DagmanMessageKind.PRE_COMPLETED if process:
                process.pre_completed = line.value
            case DagmanMessageKind.RESCUE_USED if process:
                process.rescue = line.text
            case DagmanMessageKind.TOTALS if process:
                process.total = dict(line.totals).get("total")
            case DagmanMessageKind.ERROR if process:
                process.error = line.text
            case DagmanMessageKind.REMOVED if process:
                process.removed = True
            case DagmanMessageKind.ABORTED if process:
                process.aborted = True
            case DagmanMessageKind.REFUSED if process:
                process.refused = True
            case DagmanMessageKind.EXITED:
                self._exited(line)

    def _speaking(self) -> Process | None:
        """The process that writes ``.dagman.out``: the newest that has not ended. A second
        DAGMan may end while the first goes on."""
        newest = self.processes[-1] if self.processes else None
        return next((each for each in reversed(self.processes) if not each.ended), newest)

    def _exited(self, line: DagmanMessage) -> None:
        process = self._speaking()
        if line.cluster is not None:
            named = (p for p in reversed(self.processes) if p.cluster in (None, line.cluster))
            process = next(named, None)
        if process is not None:
            process.ended, process.end, process.status = True, line.time, line.value

    def _hear_of(self, name: str, line: DagmanMessage) -> str:
        """What a node came to; returns its name, as :meth:`_own` has it."""
        node, word, claim = self.workflow.nodes.get(name), line.word, None
        if node is not None:
            name = node.name
        elif len(self.strangers) < MOST_STRANGERS:
            self.strangers[name] = line.time
        if word is DagmanMessageKind.SUBMITTED:
            claim = NodeReportKind.SUBMITTED
            if line.cluster is not None:
                self._out_submitted[line.cluster] = name
                self._submitted_as(name, line.cluster)
        elif word is not DagmanMessageKind.JOB_OK and word is not DagmanMessageKind.JOB_FAILED:
            claim = OUT_CLAIMS.get(word)
        elif node is not None and node.post is None:
            # The job's result is the node's where no POST script has the last word.
            claim = (
                NodeReportKind.JOB_DONE
                if word is DagmanMessageKind.JOB_OK
                else NodeReportKind.JOB_FAILED
            )
        if claim is not None:
            if line.text == SUBMIT_FAILURE:
                claim = NodeReportKind.SUBMIT_FAILED
            self._say(name, NodeReport(claim, line.time, None, line.value, line.text))
        return name

    def forget_out(self) -> None:
        """``.dagman.out`` begins anew; what it said before is not in it any more."""
        self.processes = []
        self._lives = None
        self.strangers = {}
        self.heard_until = None
        self.out_times = OutTimes()
        self._out_submitted = {}
        self._last_clusters = {}
        for cluster, node in self._jobstate_submitted.items():
            self._submitted_as(node, cluster)
        for node, words in self.words.items():
            self.words[node] = [word for word in words if word.time is None]

    def forget_jobstate(self) -> None:
        """The jobstate log begins anew."""
        self.jobstate_started, self.jobstate_finished = [], []
        self.jobstate_until = None
        self.submit_epochs = {}
        self._jobstate_submitted = {}
        self._last_clusters = {}
        for cluster, node in self._out_submitted.items():
            self._submitted_as(node, cluster)
        for node, words in self.words.items():
            self.words[node] = [word for word in words if word.epoch is None]

    def read_jobstate(self, entries: Iterable[JobstateLine]) -> set[str]:
        """Take lines of the jobstate log in; returns the names of nodes they speak of."""
        touched: set[str] = set()
        for entry in entries:
            self.jobstate_until = max(self.jobstate_until or 0.0, entry.epoch)
            if entry.node is None:
                if entry.event == "DAGMAN_STARTED":
                    self.jobstate_started.append((entry.epoch, entry.cluster))
                elif entry.event == "DAGMAN_FINISHED" and not restarts(entry.value):
                    starts = len(self.jobstate_started)
                    self.jobstate_finished.append((entry.epoch, entry.value, starts))
                continue
            name = self._own(entry.node)
            touched.add(name)
            if entry.event == "SUBMIT" and entry.cluster is not None and entry.cluster > 0:
                self._jobstate_submitted.setdefault(entry.cluster, name)
                self.submit_epochs.setdefault(entry.cluster, entry.epoch)
                submitted = self._submission_times.get(entry.cluster)
                if submitted is not None:
                    self._moments.append((submitted, entry.epoch))
                if entry.cluster not in self._out_submitted:
                    self._submitted_as(name, entry.cluster)
            claim = JOBSTATE_CLAIMS.get(entry.event) or self._job_claim(entry)
            if claim is not None:
                self._say(name, NodeReport(claim, None, entry.epoch, entry.value))
        return touched

    def _own(self, name: str) -> str:
        """The name as the DAG file gave it: one object, however often DAGMan says it."""
        node = self.workflow.nodes.get(name)
        return name if node is None else node.name

    def _submitted_as(self, node: str, cluster: int) -> None:
        """Of two files that tell of a node's submissions either may be ahead, and be read first;
        the schedd numbers clusters in the order they were made."""
        self._last_clusters[node] = max(cluster, self._last_clusters.get(node, cluster))

    def _job_claim(self, entry: JobstateLine) -> NodeReportKind | None:
        """The job's result is the node's where no POST script has the last word."""
        node = self.workflow.nodes.get(entry.node or "")
        if node is None or node.post is not None:
            return None
        return {
            "JOB_SUCCESS": NodeReportKind.JOB_DONE,
            "JOB_FAILURE": NodeReportKind.JOB_FAILED,
        }.get(entry.event)

    def _say(self, node: str, word: NodeReport) -> None:
        self.words.setdefault(node, []).append(word)

    # --- being asked --------------------------------------------------------------------

    def moments(self) -> Iterator[Moment]:
        """Moments that its files state both ways; those of submissions are told once."""
        moments, self._moments = self._moments, []
        yield from moments
        status, metrics = self.status_file, self.metrics_file
        if status is not None and status.local and status.epoch is not None:
            yield status.local, status.epoch
        if metrics is not None:
            yield from of_metrics(metrics, self.out_times.lives, self.dagman_spans)
        yield from of_jobstate(self.jobstate_started, self.dagman_spans)
        rescues = self.rescue_files.values()
        yield from of_rescues(rescues, self.out_times.written, self.dagman_spans)

    def submits_all_it_says(self, moment: datetime) -> bool:
        """Does ``.dagman.out`` name every submission of this DAG around ``moment``? It is
        appended to for ever, so it does from its first life to its last line."""
        first = self.processes[0].start if self.processes else None
        if first is None or self.heard_until is None or not self._out_submitted:
            return False
        return first <= moment <= self.heard_until

    @property
    def metrics(self) -> DagMetrics | None:
        """The metrics file, None where it is not sure to have been there at the cut."""
        metrics = self.metrics_file
        if metrics is None or self.cut is None or self._behind(metrics.end) is False:
            return metrics
        return None

    @property
    def status(self) -> StatusFile | None:
        """The node status file, None where it is not sure to have been there at the cut."""
        status = self.status_file
        if status is None or self.cut is None:
            return status
        behind = status.local > self.cut if status.local else self._behind(status.epoch)
        return status if behind is False else None

    def is_in_jobstate(self, moment: datetime) -> bool:
        """Had the jobstate log begun by then, and does it name submissions?"""
        epoch = self.clock.epoch(moment)
        begun = self.jobstate_started[0][0] if self.jobstate_started else None
        return bool(self.submit_epochs) and begun is not None and (epoch or 0.0) >= begun

    def listed_until(self) -> tuple[datetime | None, datetime | None, datetime | None]:
        """Up to when ``.dagman.out``, the jobstate log and nodes.log list the jobs that DAGMan
        submitted."""
        jobstate = self.clock.local(self.jobstate_until) if self.jobstate_until else None
        nodes_log = self.nodes_log[1] if self.nodes_log is not None else None
        return (
            _before(self.heard_until, SETTLED),
            _before(jobstate, SETTLED),
            _before(nodes_log, ONE_SECOND),
        )

    def rescues(self) -> dict[int, Rescue]:
        """The rescue files that were sure to be there at the cut, by number."""
        if self.cut is None:
            return self.rescue_files
        return {n: r for n, r in self.rescue_files.items() if self._rescue_behind(r) is False}

    def _rescue_behind(self, rescue: Rescue) -> bool | None:
        if rescue.created is not None:
            return self._behind(rescue.created.timestamp())
        written = self.out_times.written.get(rescue.path.name)
        return None if written is None or self.cut is None else written > self.cut

    def _behind(self, epoch: float | None) -> bool | None:
        """Does a moment lie behind the cut? None where that is not known."""
        if self.cut is None:
            return False
        return None if epoch is None else self.clock.after(epoch, self.cut)

    def undated(self) -> list[str]:
        """Names of files of which it is not known whether they were there at the cut; they are
        left out."""
        if self.cut is None:
            return []
        rescues = self.rescue_files.items()
        names = [r.path.name for _, r in sorted(rescues) if self._rescue_behind(r) is None]
        metrics, status = self.metrics_file, self.status_file
        if metrics is not None and self._behind(metrics.end) is None:
            names.append(metrics.path.name)
        if status is not None and not status.local and self._behind(status.epoch) is None:
            names.append(status.path.name)
        epochs = [
            *(e for e, _ in self.jobstate_started[:1]),
            *islice(self.submit_epochs.values(), 1),
        ]
        if self.workflow.jobstate_log and any(self._behind(each) is None for each in epochs):
            names.append(PurePath(self.workflow.jobstate_log).name)
        return names

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

    def strange_names(self) -> list[tuple[Path, frozenset[str]]]:
        """Of the node status file and the rescue file those that name nodes which the DAG file
        does not have, and these names."""
        files = (self.status, self.rescue())
        known = self._strange
        if known is None or known[0] is not files[0] or known[1] is not files[1]:
            status, rescue = files
            nodes = self.workflow.nodes.keys()
            found: list[tuple[Path, frozenset[str]]] = []
            if status is not None:
                found.append((status.path, frozenset(status.nodes.keys() - nodes)))
            if rescue is not None:
                found.append((rescue.path, frozenset(rescue.done - nodes)))
            known = self._strange = (*files, found)
        return known[2]

    def fresh_start(self) -> datetime | None:
        """When the newest process began, if it began from its DONE nodes alone.

        None for a recovery, and when the number of nodes that it found DONE is not the
        number we would find in any rescue file here: then a file is missing, and older
        events are all there is to go by.
        """
        newest = next(self._at_work(), None)
        if newest is None or newest.recovery:
            return None
        if newest.start is None or newest.pre_completed is None:
            return None
        counts = {len(self._with(None))}
        counts.update(self._number_done(rescue) for rescue in self.rescues().values())
        return newest.start if newest.pre_completed in counts else None

    def _number_done(self, rescue: Rescue) -> int:
        known = self._found.get(rescue.number)
        if known is None or known[0] is not rescue:
            known = self._found[rescue.number] = rescue, len(self._with(rescue))
        return known[1]

    def last_start(self) -> datetime | None:
        """When the newest process began that did not recover an older one; None: not known."""
        return next((p.start for p in self._at_work() if not p.recovery), None)

    def _at_work(self) -> Iterator[Process]:
        """The processes of all lives but refused ones, the newest first."""
        refused = {id(p) for life in self.lives() if life.refused for p in life.processes}
        return (process for process in reversed(self.processes) if id(process) not in refused)

    def recoveries(self) -> int:
        """Processes that went on where one before was broken off."""
        return sum(process.recovery for process in self._at_work())

    @property
    def aborted(self) -> bool:
        """A node returned its ABORT-DAG-ON value to the newest process: nothing is tried again."""
        newest = next(self._at_work(), None)
        return newest is not None and newest.aborted

    @property
    def has_final(self) -> bool:
        """Has the DAG a FINAL node? DAGMan then reads its logs on after it aborts the DAG."""
        if self._final is None:
            kinds = (node.kind for node in self.workflow.nodes.values())
            self._final = any(kind is NodeKind.FINAL for kind in kinds)
        return self._final

    def submissions_of(self, node: str, clock: Clock) -> int:
        """How often DAGMan says that it submitted a node, up to the cut."""
        told = len(self._out_submitted), len(self._jobstate_submitted)
        if self._submissions is None or self._submissions[0] != told:
            both = {**self._jobstate_submitted, **self._out_submitted}
            self._submissions = told, Counter(both.values())
        found = self._submissions[1][node]
        if self.cut is None or not found:
            return found
        times = [
            w.time or clock.local(w.epoch or 0)
            for w in self.words.get(node, ())
            if w.claim is NodeReportKind.SUBMITTED
        ]
        return min(found, len({t for t in times if t is not None and t <= self.cut}))

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
        self._order = self._marked = self._done = self._final = self._strange = None
        self._found = {}

    # --- its DAGMans --------------------------------------------------------------------

    def lives(self) -> list[DagmanRun]:
        """The lives of its DAGMan, refused submissions among them, in the order they began."""
        if self._lives is None:
            self._lives = lives_of(self.dagman_jobs, self.processes)
        return self._lives

    def dagmans_changed(self) -> None:
        """``dagman_jobs`` tell otherwise than before."""
        self._lives = None

    def life(self) -> DagmanRun | None:
        """The life that the DAG is: that which is alive, else that which ended last."""
        return newest_of(self.lives())

    def starts(self, clock: Clock) -> tuple[datetime, ...]:
        """When its lives began, oldest first, without refused submissions."""
        if lives := self.lives():
            return tuple(each.start for each in lives if each.start and not each.refused)
        begun = {cluster or epoch: epoch for epoch, cluster in reversed(self._started())}
        local = map(clock.local, sorted(begun.values()))
        return tuple(time for time in local if time is not None)

    def _started(self) -> list[tuple[float, int | None]]:
        """When DAGMans began by the jobstate log, up to the cut (seconds since 1970), and the
        clusters of their jobs."""
        return [each for each in self.jobstate_started if self._behind(each[0]) is False]

    def dagmans(self) -> int | None:
        """Lives of DAGMan that the files show; None when they cannot tell."""
        if lives := self.lives():
            return sum(not life.refused for life in lives)
        return len({cluster or epoch for epoch, cluster in self._started()}) or None

    def refused(self) -> int:
        """Submissions that ended at once because another DAGMan runs."""
        return sum(life.refused for life in self.lives())

    def standing(self) -> DagState:
        """What it is while nothing says that its DAGMan has ended."""
        life = self.life()
        return DagState.RUNNING if life is None else life.standing()

    def hold(self) -> Hold | None:
        """The hold of DAGMan's own job, while it is on hold."""
        life = self.life()
        return None if life is None or life.ended else life.hold

    def ending(self, clock: Clock) -> tuple[DagState, datetime | None] | None:
        """How its DAGMan ended, None when no file says that it has."""
        life = self.life()
        if life is None:
            # A refused submission alone: whatever else is here is not of the one that runs.
            return None if self.lives() else self._ended_by_epoch(clock) or self._ended_by_status()
        metrics = self.metrics if self.wrote_metrics(life, clock) else None
        removed = metrics is not None and metrics.dag_status == DAG_REMOVED
        ended = life.ending(removed) or self._ended_by_epoch(clock)
        if ended is not None and ended[0] is DagState.DONE and self._can_go_on(life, metrics):
            return DagState.FAILED, ended[1]
        return ended

    def _can_go_on(self, life: DagmanRun, metrics: DagMetrics | None) -> bool:
        """Was this life aborted, and did it write a rescue file? DAGMan does not after
        ``ABORT-DAG-ON … RETURN 0``, but does where a FINAL node makes its exit status 0."""
        last = life.processes[-1] if life.processes else None
        used = last.rescue if last is not None else None
        before = rescue_number(PurePath(used).name, PurePath(self.file).name) if used else None
        if metrics is not None:
            before = metrics.rescue_number
        told = metrics is not None and metrics.dag_status == DAG_ABORTED
        aborted = told or (last is not None and last.aborted)
        return aborted and max(self.rescues(), default=0) > (before or 0)

    def wrote_metrics(self, life: DagmanRun | None, clock: Clock) -> bool:
        """Did this life write the metrics file? Without a life: is there one?"""
        metrics = self.metrics
        return metrics is not None and self._is_of(life, _cluster_of(metrics), metrics.end, clock)

    def _is_of(
        self, life: DagmanRun | None, cluster: int | None, end: float | None, clock: Clock
    ) -> bool:
        """Did this life end at ``end`` (seconds since 1970), where ``cluster`` ended? Without a
        life, DAGMan as the jobstate log tells of it."""
        if life is not None and life.cluster is not None and cluster is not None:
            return life.cluster == cluster
        if end is None:
            return False
        begun = max((epoch for epoch, _ in self._started()), default=0.0)
        if life is not None and life.start is not None:
            started = clock.epoch(life.start)
            if started is None:
                return life.ended or not self.processes
            begun = max(begun, started)
        return end >= begun

    def _ended_by_epoch(self, clock: Clock) -> tuple[DagState, datetime | None] | None:
        """By the files that count seconds since 1970, if they are of the newest life."""
        life, metrics = self.life(), self.metrics
        if metrics is not None and metrics.end is not None and self.wrote_metrics(life, clock):
            when = clock.local(metrics.end)
            if metrics.dag_status == DAG_REMOVED:
                return DagState.REMOVED, when
            return (DagState.DONE if metrics.exitcode == 0 else DagState.FAILED), when
        if (finished := self.jobstate_end()) is not None:
            epoch, value = finished
            refused = {each.cluster for each in self.lives() if each.refused}
            started = [cluster for _, cluster in self._started()]
            ends = sum(starts == len(started) for _, _, starts in self.jobstate_finished)
            # One that was refused ends first of those that were there.
            if started and started[-1] in refused and ends == 1:
                return None
            told = (cluster for cluster in reversed(started) if cluster not in refused)
            if self._is_of(life, next(told, None), epoch, clock):
                return (DagState.DONE if value == 0 else DagState.FAILED), clock.local(epoch)
        return None

    def jobstate_end(self) -> tuple[float, int | None] | None:
        """When the newest DAGMan ended by the jobstate log, up to the cut (seconds since 1970),
        and its return value."""
        begun = len(self._started())
        for epoch, value, starts in reversed(self.jobstate_finished):
            if self._behind(epoch) is False:
                return (epoch, value) if starts == begun else None
        return None

    def _ended_by_status(self) -> tuple[DagState, datetime | None] | None:
        """The node status file is believed where no log of DAGMan's is there to ask."""
        if self.status is None:
            return None
        if self.status.dag_status == 5:
            return DagState.DONE, self.status.local
        if self.status.dag_status == 6:
            return DagState.FAILED, self.status.local
        return None

    def begun(self) -> bool:
        """True when any file shows that a DAGMan of this DAG ever ran (up to the cut)."""
        if self.lives() or self._started():
            return True
        metrics, status = self.metrics_file, self.status_file
        if metrics is not None and self._behind(metrics.start) is False:
            return True
        # The node status file is written over and over: that its stamp lies behind the cut
        # says nothing, unless another file tells when DAGMan began.
        dated = self.jobstate_started or metrics or self.out_times.lives or self.dagman_spans
        return status is not None and (self.status is not None or not dated)

    def alive_at(self, moment: datetime) -> bool | None:
        """Was a DAGMan of this DAG in the queue then? None when its logs cannot tell."""
        lives = self.lives()
        if not lives:
            return None
        return any(
            life.start is not None
            and life.start <= moment
            and (life.over is None or moment <= life.over)
            for life in lives
            if not life.refused
        )

    def is_dagman(self, cluster: int) -> bool:
        """Is this cluster DAGMan's own job of this DAG?"""
        return any(life.cluster == cluster for life in self.lives())


def _cluster_of(metrics: DagMetrics) -> int | None:
    """The cluster of the DAGMan that wrote them."""
    told = metrics.dagman_id or ""
    return int(told) if told.isdecimal() else None


def _before(time: datetime | None, span: timedelta) -> datetime | None:
    if time is None:
        return None
    with suppress(OverflowError):
        return time - span
    return None


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
