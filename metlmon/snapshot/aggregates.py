"""What follows from an ensemble, kept up to date: runs, the states of nodes, and all sums.

A picture (:mod:`metlmon.snapshot.builder`) is drawn from it; to bring it up to date costs what
changed since the one before.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from metlmon.dagman import NodeKind
from metlmon.model.attribution import Attribution
from metlmon.model.dag import MOST_STRANGERS, Dag
from metlmon.model.job_events import NodeKey, NodeRecord
from metlmon.model.node import NodeFailure, NodeState
from metlmon.model.node_neighbours import has_failed
from metlmon.model.node_states import NodeStateTable
from metlmon.model.run import Run, Runs, RunState, SubmittedEpoch, is_epoch, standing
from metlmon.model.states import ACTIVE, DONE, State
from metlmon.snapshot.problems import ProblemIndex
from metlmon.snapshot.running_totals import NOBODYS, JobKey, NameTable, Owner, Place, RunningTotals
from metlmon.snapshot.types import FAILED_JOB, RunRow

if TYPE_CHECKING:
    from metlmon.model.ensemble import Ensemble
    from metlmon.snapshot.ledger_builder import LedgerBuilder

AT_ONCE: Final = 32
"""Jobs added up between two looks at the clock: a millisecond."""

APART: Final = frozenset({NodeKind.PROVISIONER, NodeKind.SERVICE, NodeKind.FINAL})

NO_JOB: Final = frozenset({NodeKind.JOIN, NodeKind.SUBDAG})
"""Nodes that run on no machine."""

SUBMITTED: Final = ACTIVE | {State.POST, State.FAILED, State.REMOVED, State.RETRYING}
"""States of a node that had a job, where no PRE script and no submission failed."""

_SPECIAL_ORDER: Final = {
    kind: place
    for place, kind in enumerate(
        (
            NodeKind.PROVISIONER,
            NodeKind.SERVICE,
            NodeKind.JOB,
            NodeKind.SUBDAG,
            NodeKind.FINAL,
        )
    )
}
"""In the order in which DAGMan comes to them."""

MOST_SPECIAL: Final = 30
"""Nodes of no run that are drawn with every picture: the tree of nodes has all of them."""

NODES_AT_ONCE: Final = 200
"""Nodes judged between two looks at the clock: some milliseconds."""


class Counts:
    """Nodes of one DAG, as DAGMan counts them: SERVICE nodes are not among them."""

    __slots__ = ("done", "failed", "total", "unknown")

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.failed = 0
        self.unknown = 0


class Aggregates:
    """Of one ensemble. Not thread-safe, like the ensemble itself.

    ``runs``, ``states``, ``standings``, ``rows`` and ``sums`` are replaced by other ones, not
    emptied, when the DAGs are others: a picture that is shown still goes on with its own.
    ``rows``: the rows of runs that have not changed, as they were drawn.
    """

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble
        self.names = NameTable(ensemble.settings)
        self.version = 0
        self.books: LedgerBuilder | None = None
        self._dags: Mapping[str, Dag] | None = None
        self._begin_nodes()
        self._begin_jobs()

    def _begin_nodes(self) -> None:
        ensemble = self._ensemble
        self._dags = ensemble.dags
        self.runs = Runs(ensemble.dags, ensemble.settings)
        self.states: dict[NodeKey, NodeState] = {}
        self.standings: dict[str, RunState] = {}
        self._begun: dict[str, SubmittedEpoch] = {}
        self.rows: dict[str, RunRow] = {}
        self.node_states: Counter[State] = Counter()
        self.epoch_states: Counter[State] = Counter()
        """Of each epoch the node that counts for it."""
        self.other_states: Counter[State] = Counter()
        """Nodes that train nothing."""
        self.counts = {key: Counts(dag.counted) for key, dag in ensemble.dags.items()}
        self.targets = self._all_targets()
        self._place = {key: place for place, key in enumerate(ensemble.dags)}
        self._failed: set[NodeKey] = set()
        self.overruled: set[NodeKey] = set()
        """Completed nodes whose job failed: their POST script let them pass."""
        self.jobless: dict[NodeKey, NodeFailure] = {}
        self.unlogged: set[NodeKey] = set()
        """Nodes whose job ran, or was submitted, and of which no log here has an execution: the log
        is missing, or begins later. What they spent is in no sum."""
        """Nodes that failed, or are tried again, for a reason that no job's events tell."""
        self._side: Counter[State] = Counter()
        self._special = self._find_special()
        self._completed: dict[NodeKey, Place] = {}
        self._weighed: dict[str, NodeStateTable] = {}
        self._alive: set[str] = set()
        self._changed: set[str] = set()
        self._owners: dict[NodeKey, Owner] = {}
        self.books = None

    def _begin_jobs(self) -> None:
        self.books = None
        self.sums = RunningTotals(self.names, self._ensemble.clock)
        self.troubles = ProblemIndex(self._ensemble.clock)
        self.ambiguous: set[JobKey] = set()
        self.strangers: dict[str, set[str]] = {}
        """By DAG, names of nodes that its nodes.log has and its file has not; by the empty name
        those of epochs that a user's log has, and no DAG file."""
        self._ensemble.stale_jobs = set(self._ensemble.jobs)
        self._ensemble.all_stale = False
        for place in self._completed.values():
            self.sums.complete(place, 1)

    def _all_targets(self) -> Mapping[str, frozenset[str]]:
        """The targets of each top-level DAG, by its key, :func:`squash`ed."""
        ensemble = self._ensemble
        named: dict[str, set[str]] = {}
        for key in ensemble.nodes:
            target = ensemble.target(key)
            if target:
                named.setdefault(ensemble.dags[key[0]].top, set()).add(target)
        return {dag: frozenset(map(squash, names)) for dag, names in named.items()}

    # --- gates --------------------------------------------------------------------------

    def note_gates(self) -> None:
        """What gates say is otherwise now: rows of runs tell it."""
        self.version += 1

    def note_targets(self, nodes: Iterable[NodeKey]) -> None:
        """These nodes go elsewhere now; their jobs are to be added up again."""
        nodes = [key for key in nodes if key in self._ensemble.nodes]
        if not nodes or self._ensemble.dags is not self._dags:
            return
        self.targets = self._all_targets()
        for key in nodes:
            self._owners.pop(key, None)
            run = self.runs.of_node.get(key)
            if run is not None and run.key in self.standings:
                self._changed.add(run.key)
        if self.books is not None:
            self.books.nodes.update(nodes)
        self.version += 1

    # --- kept ---------------------------------------------------------------------------

    def weighed(self) -> list[tuple[str, bool, NodeStateTable]] | None:
        """The DAGs' states that its counts are of, and whether each DAG's DAGMan was taken to
        be alive; None where they are of others, or of nothing yet."""
        ensemble = self._ensemble
        if ensemble.dags is not self._dags or ensemble.all_stale:
            return None
        found = [
            (dag, alive, weighed)
            for dag, weighed in self._weighed.items()
            for alive in (False, True)
            if ensemble.weighed_is(dag, alive, weighed)
        ]
        whole = all(not each.news and len(each.states) == len(each.nodes) for _, _, each in found)
        return found if whole and len(found) == len(ensemble.dags) else None

    def kept(self) -> Any:
        """As plain data the counts of nodes."""
        return {
            "states": [
                [(state.value, count) for state, count in counts.items()]
                for counts in (self.node_states, self.other_states)
            ],
            "counts": {
                dag: (each.done, each.failed, each.unknown) for dag, each in self.counts.items()
            },
            "failed": list(self._failed),
            "overruled": list(self.overruled),
            "unlogged": list(self.unlogged),
            "side": [(state.value, count) for state, count in self._side.items()],
            "completed": list(self._completed.items()),
            "ambiguous": list(self.ambiguous),
            "strangers": [(dag, list(names)) for dag, names in self.strangers.items()],
        }

    def recall(self, kept: Any) -> None:
        """What another, of the same settings and DAGs, had :meth:`kept`; its sums, trouble and
        states of nodes are still to come."""
        self._begin_nodes()
        self._begin_jobs()
        for counts, found in zip(
            (self.node_states, self.other_states), kept["states"], strict=True
        ):
            counts.update({State(state): count for state, count in found})
        for dag, (done, failed, unknown) in kept["counts"].items():
            of_dag = self.counts[dag]
            of_dag.done, of_dag.failed, of_dag.unknown = done, failed, unknown
        nodes = self._ensemble.nodes
        self._failed = {nodes[key].key for key in kept["failed"]}
        self._completed = {nodes[key].key: place for key, place in kept["completed"]}
        self.overruled = {nodes[key].key for key in kept["overruled"]}
        self.unlogged = {nodes[key].key for key in kept["unlogged"]}
        self._side.update({State(state): count for state, count in kept["side"]})
        self.ambiguous = set(kept["ambiguous"])
        self.strangers = {dag: set(names) for dag, names in kept["strangers"]}
        self._changed = set(self.runs.by_key)
        self.version += 1

    def recall_nodes(self, dag: str, weighed: NodeStateTable) -> None:
        """The states of a DAG's nodes, which its counts are of."""
        self._take_weighed(dag, weighed)
        nodes = self._ensemble.nodes
        for name, state in weighed.states.items():
            self.states[nodes[dag, name].key] = state
            self._note_jobless(nodes[dag, name].key, state)

    def _take_weighed(self, dag: str, weighed: NodeStateTable) -> None:
        self._weighed[dag] = weighed
        (self._alive.add if weighed.alive else self._alive.discard)(dag)

    # --- jobs ---------------------------------------------------------------------------

    def add_up(self, seconds: float | None = None) -> bool:
        """Add up the jobs that changed, for about ``seconds``; False while some are left."""
        ensemble = self._ensemble
        if ensemble.dags is not self._dags:
            self._begin_nodes()
            ensemble.all_stale = True
        if ensemble.all_stale:
            self._begin_jobs()
        deadline = None if seconds is None else time.monotonic() + seconds
        stale = ensemble.stale_jobs
        if stale:
            self.version += 1
        while stale:
            for _ in range(min(AT_ONCE, len(stale))):
                self._take_node(stale)
                if not stale:
                    return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
        return True

    def _take_node(self, stale: set[JobKey]) -> None:
        """Take one of the stale jobs, and those of its node with it: what all of them say is
        asked of the node as well."""
        key = stale.pop()
        placed = self._ensemble.members.get(key)
        record = None
        if placed is not None and placed.dag is not None and placed.node is not None:
            record = self._ensemble.nodes.get((placed.dag, placed.node))
        if record is None:
            self._note_stranger(key, placed)
            if placed is not None and placed.foreign:
                self._drop(key)
            else:
                self._take(key, NOBODYS)
            if self.books is not None:
                self.books.strays.add(key)
            return
        owner = self._owner(record)
        self._take(key, owner)
        for job in record.jobs:
            other = (job.cluster, job.proc, job.subproc)
            if other in stale:
                stale.discard(other)
                self._take(other, owner)
        self._ensemble.made(record.key)

    def _note_stranger(self, key: JobKey, placed: Attribution | None) -> None:
        """Note the node of a job that no DAG file here has, where it is its DAG's by the
        nodes.log, or an epoch."""
        name = self._ensemble.jobs[key].node_name if key in self._ensemble.jobs else None
        if placed is None or name is None or placed.foreign or placed.candidates:
            return
        if placed.dag is None and not is_epoch(name, self._ensemble.settings):
            return
        names = self.strangers.setdefault(placed.dag or "", set())
        if len(names) < MOST_STRANGERS:
            names.add(name)

    def _take(self, key: JobKey, owner: Owner) -> None:
        job = self._ensemble.jobs.get(key)
        if job is None or job.noop:
            return
        placed = self._ensemble.members.get(key)
        if placed is not None and placed.candidates:
            self.ambiguous.add(key)
        else:
            self.ambiguous.discard(key)
        self.sums.take(key, job, owner)
        self.troubles.take(key, job, owner.run)

    def _drop(self, key: JobKey) -> None:
        """A job of another directory's DAG adds nothing."""
        self.ambiguous.discard(key)
        self.sums.drop(key)
        self.troubles.drop(key)

    def _owner(self, record: NodeRecord) -> Owner:
        owner = self._owners.get(record.key)
        if owner is None:
            run = self.runs.of_node.get(record.key)
            owner = self._owners[record.key] = Owner(
                run.key if run is not None else None,
                self._ensemble.target(record.key),
                record.node.kind is NodeKind.SUBDAG,
            )
        return owner

    # --- nodes --------------------------------------------------------------------------

    def settle(self, live: bool, seconds: float | None = None) -> bool:
        """See what the states of nodes are now, for about ``seconds``; False while some are to
        be judged. ``live`` is as in a picture."""
        deadline = None if seconds is None else time.monotonic() + seconds
        most = None if seconds is None else NODES_AT_ONCE
        for key in self._ensemble.dags:
            while self._hear(key, self._ensemble.weighed(key, live, most)):
                if deadline is not None and time.monotonic() >= deadline:
                    return False
        self._note_begun(live)
        while self._changed:
            self._stand(self.runs.by_key[self._changed.pop()])
            if deadline is not None and self._changed and time.monotonic() >= deadline:
                return False
        return True

    def _note_begun(self, live: bool) -> None:
        """Which of the DAGs that have the same epochs began, and run: what a later one has not
        come to yet counts for it then."""
        for key, runs in self.runs.again.items():
            dag = self._ensemble.dags[key]
            starts = dag.starts(self._ensemble.clock)
            if not starts:
                self._begun.pop(key, None)
                continue
            now = SubmittedEpoch(starts[-1], live and self._ensemble.ending(dag) is None)
            if self._begun.get(key) != now:
                self._begun[key] = now
                self._changed.update(runs)
                self.version += 1

    def _stand(self, run: Run) -> None:
        """See where the run stands now; each of its epochs counts once, however many DAGs have
        it."""
        before = self.standings.get(run.key)
        if before is not None:
            self.epoch_states.subtract(before.states)
        told = self.states, self._place, self._begun, self._alive
        now = self.standings[run.key] = standing(run, *told)
        self.epoch_states.update(now.states)
        self.rows.pop(run.key, None)

    def _hear(self, dag: str, weighed: NodeStateTable) -> bool:
        """Take in what is new; whether there is more to judge."""
        if self._weighed.get(dag) is not weighed:
            self._take_weighed(dag, weighed)
            weighed.news.update(weighed.states)
        news = [(dag, name) for name in weighed.news]
        weighed.news.clear()
        for key in news:
            self._note(key, weighed.states[key[1]])
            run = self.runs.of_node.get(key)
            if run is not None:
                self._changed.add(run.key)
        if news:
            self.version += 1
        if self.books is not None:
            self.books.nodes.update(news)
        return bool(weighed.touched)

    def _note(self, key: NodeKey, now: NodeState) -> None:
        """Count a node's state, and no longer the one before."""
        before = self.states.get(key)
        self.states[key] = now
        part = self.runs.parts.get(key)
        training = part is not None and part.training
        if part is not None and not training:
            self._side[now.state] += 1
            if before is not None:
                self._side[before.state] -= 1
        self._note_overruled(key, now)
        self._note_jobless(key, now)
        self._note_unlogged(key, now)
        if before is None or before.state is not now.state:
            self._count(key, now.state, training, 1)
            if before is not None:
                self._count(key, before.state, training, -1)
        self._note_failure(key, now)
        if training:
            self._note_completion(key, now)

    def _count(self, key: NodeKey, state: State, training: bool, by: int) -> None:
        self.node_states[state] += by
        if not training:
            self.other_states[state] += by
        if state in DONE and not self._is_service(key):
            self.counts[key[0]].done += by
        if state is State.UNKNOWN:
            self.counts[key[0]].unknown += by

    def _is_service(self, key: NodeKey) -> bool:
        return self._ensemble.nodes[key].node.kind is NodeKind.SERVICE

    def _note_failure(self, key: NodeKey, now: NodeState) -> None:
        dag = self._ensemble.dags[key[0]]
        failed = has_failed(now, dag.aborted and dag.has_final) and not self._is_service(key)
        if failed is not (key in self._failed):
            self.counts[key[0]].failed += 1 if failed else -1
            (self._failed.add if failed else self._failed.discard)(key)

    def _note_jobless(self, key: NodeKey, now: NodeState) -> None:
        if now.failure is not None:
            self.jobless[key] = now.failure
        else:
            self.jobless.pop(key, None)

    def _note_unlogged(self, key: NodeKey, now: NodeState) -> None:
        record = self._ensemble.nodes[key]
        # A job that is queued has nothing to be logged yet; one that DAGMan alone tells of may.
        told = not record.jobs and now.failure is None and now.state in SUBMITTED
        ran = now.state is State.COMPLETED or told
        # What the DAG file itself marks DONE was never to run in this ensemble.
        own = record.node.kind not in NO_JOB and not record.node.noop and not record.node.done
        if ran and own and not any(job.life().executions for job in record.jobs):
            self.unlogged.add(key)
        else:
            self.unlogged.discard(key)

    def _note_overruled(self, key: NodeKey, now: NodeState) -> None:
        over = now.state is State.COMPLETED and now.job is not None
        if over and self._ensemble.nodes[key].node.post is not None:
            made = self._ensemble.made(key)
            if made is not None and made.state in FAILED_JOB:
                self.overruled.add(key)
                return
        self.overruled.discard(key)

    def special(self) -> Iterable[NodeKey]:
        """PROVISIONER, SERVICE and FINAL nodes, and where there are runs the nodes of none."""
        return self._special

    def _find_special(self) -> list[NodeKey]:
        nodes, of_node = self._ensemble.nodes, self.runs.of_node
        first = [key for key, record in nodes.items() if record.node.kind in APART]
        if self.runs.by_key:
            plain = (NodeKind.JOB, NodeKind.SUBDAG)
            first += [
                key
                for key, record in nodes.items()
                if key not in of_node and record.node.kind in plain
            ]
        # The one FINAL node goes before the hundredth of many alike.
        del first[MOST_SPECIAL:]
        first.sort(key=lambda key: _SPECIAL_ORDER[nodes[key].node.kind])
        return first

    def side_counts(self) -> tuple[int, int, int, int, int]:
        """Of the nodes of runs that train nothing: all, done, failed, overruled, removed."""
        side, parts = self._side, self.runs.parts
        if not side:
            return 0, 0, 0, 0, 0
        removed = side[State.REMOVED]
        failed = side[State.FAILED] + removed
        over = sum(key in parts and not parts[key].training for key in self.overruled)
        return sum(side.values()), sum(side[state] for state in DONE), failed, over, removed

    def _note_completion(self, key: NodeKey, now: NodeState) -> None:
        if key in self._completed:
            self.sums.complete(self._completed.pop(key), -1)
        made = self._ensemble.made(key) if now.state is State.COMPLETED else None
        if made is not None and made.success:
            place = self._completed[key] = self.names.place(made.success[0])
            self.sums.complete(place, 1)


def squash(name: str) -> str:
    """A site's or a target's name without what people write differently."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
