"""Look-ups in the state model that all rows of a snapshot use."""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime
from typing import Final

from metlmon.dagman import NodeKind
from metlmon.eventlog import Execute
from metlmon.model.job import Execution, JobHistory
from metlmon.model.job_events import Job, NodeKey
from metlmon.model.run import Run, variable
from metlmon.snapshot.aggregates import Aggregates, normalize_name

HOUR: Final = 3600.0

ANY_SITE_TARGETS: Final = frozenset({"any", "anywhere", "all"})
"""Targets that every site matches."""

POOL_TARGETS: Final = frozenset({"osg", "ospool"})
"""Targets that name a pool of sites: only another target's own site is off target."""


def names_other_target(target: str, site: str | None, targets: Set[str]) -> bool:
    """Does the site's name contain the name of another one of the normalized ``targets``?"""
    actual = normalize_name(site or "")
    others = targets - ANY_SITE_TARGETS - POOL_TARGETS - {normalize_name(target)}
    return any(name in actual for name in others)


def misses_target(target: str, site: str | None, targets: Set[str]) -> bool:
    """Does the target of a job exclude the site where it ran?

    A pool-wide target only excludes the sites of the DAG's other ``targets`` (normalized).
    """
    if not site:
        return False
    wanted, actual = normalize_name(target), normalize_name(site)
    if wanted in ANY_SITE_TARGETS or wanted in actual or actual in wanted:
        return False
    return wanted not in POOL_TARGETS or names_other_target(target, site, targets)


class SnapshotLookups:
    """Look-ups in an ensemble at one moment."""

    def __init__(
        self, aggregates: Aggregates, dagdir: str, as_of: datetime | None = None, live: bool = False
    ) -> None:
        self.aggregates = aggregates
        ensemble = self.ensemble = aggregates.ensemble
        # Hold the present mappings: DAG files that are re-read while this snapshot is shown make
        # the ensemble replace them.
        self.dags, self.nodes, self.attributions = (
            ensemble.dags,
            ensemble.nodes,
            ensemble.attributions,
        )
        self.dagdir = dagdir
        self.as_of = as_of or ensemble.newest
        self.live = live
        self.clock = ensemble.clock
        self.aggregates.post_jobs()
        self.aggregates.update_nodes(live)
        self.runs, self.states = self.aggregates.runs, self.aggregates.states
        self.run_states, self.targets = self.aggregates.run_states, self.aggregates.targets
        self.totals, self._rows = self.aggregates.totals, self.aggregates.rows
        self._running: dict[str, bool] = {}

    def target(self, key: NodeKey | None) -> str | None:
        """The target of a node.

        The site assigned to it while the DAG ran, else the one in its VARS.
        """
        if self.nodes is self.ensemble.nodes:
            return self.ensemble.target(key)
        record = self.nodes.get(key) if key else None
        return variable(record.node, "ResourceName") if record else None

    def site(self, machine: Execute | None) -> str | None:
        """The site of an execution, with aliases of the settings applied."""
        return self.aggregates.names.site(machine)

    def site_of_address(self, address: str) -> str | None:
        """The site of a host without executions, if a rule matches its address."""
        return self.aggregates.names.site_of_address(address)

    def gpu(self, machine: Execute | None) -> str | None:
        """The GPU model as logged, or its alias in the settings."""
        return self.aggregates.names.gpu(machine)

    def off_target(self, key: NodeKey | None, site: str | None) -> bool:
        """Whether the job of a node ran at a site that its target excludes.

        A pool-wide target is missed only where the site is named by another target of the same DAG.
        """
        target = self.target(key)
        if key is None or not target:
            return False
        return misses_target(target, site, self.targets.get(self.dags[key[0]].top, frozenset()))

    def seconds(self, start: datetime | None, end: datetime | None) -> float | None:
        """Seconds between two times; up to ``as_of`` where ``end`` is None."""
        end = end or self.as_of
        if start is None or end is None:
            return None
        return self.clock.seconds(start, end)

    def history(self, job: Job) -> JobHistory:
        """The history of a job, from its events."""
        return job.history()

    def gpu_hours(self, execution: Execution) -> float | None:
        """GPU-hours of one execution; None when its number of GPUs is not known."""
        gpus = execution.gpus
        seconds = self.seconds(execution.start, execution.end)
        if gpus is None or seconds is None:
            return None
        return seconds * gpus / HOUR

    def real_jobs(self) -> list[Job]:
        """All jobs except those of another directory's DAGs, by cluster and proc."""
        foreign = self.ensemble.unproven.foreign
        jobs = (job for k, job in self.ensemble.jobs.items() if not job.noop and k not in foreign)
        return sorted(jobs, key=lambda job: (job.cluster, job.proc))

    def node_of(self, job: Job) -> NodeKey | None:
        """The node of a job; None where it is not known."""
        attribution = self.attributions.get((job.cluster, job.proc, job.subproc))
        if attribution is None or attribution.dag is None or attribution.node is None:
            return None
        return (attribution.dag, attribution.node)

    def is_dagman(self, key: NodeKey | None) -> bool:
        """Whether the job of a node is the DAGMan of a sub-DAG.

        Such a job runs at the access point, at no site.
        """
        record = self.nodes.get(key) if key else None
        return record is not None and record.node.kind is NodeKind.SUBDAG

    def dag_file(self, key: str) -> str:
        """The file of the top-level DAG of a DAG."""
        dag = self.dags[key]
        return self.dags[dag.top].file if dag.top in self.dags else dag.file

    def naming_node(self, run: Run) -> NodeKey:
        """The node that gives a run its name and its DAG: that of its latest epoch.

        All nodes of the run go by that name, also those that another DAG or splice names
        differently.
        """
        run_state = self.run_states[run.key]
        return run_state.latest or next(iter(run_state.epochs.values()), None) or run.nodes()[0]
