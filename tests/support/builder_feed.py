"""A feed on a snapshot builder."""

from __future__ import annotations

from pathlib import Path

from metlmon.live.feed import JobFiles
from metlmon.model.job_events import NodeKey
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.node_tree import DagNodes
from metlmon.snapshot.records import DagDescription, Job, JobView, Ledger, NodeRow, Nodes, RunView
from tests.support.sample_snapshots import FakeFeed, update


class BuilderFeed(FakeFeed):
    """Shows what was read of a dagdir called ``name``, and what its trainings wrote."""

    def __init__(
        self, builder: SnapshotBuilder, name: str = "ensemble", files: JobFiles | None = None
    ) -> None:
        super().__init__(update(builder.status()), Path("/nowhere") / name)
        self.builder = builder
        if files is not None:
            self.written, self.streamed, self.errors = files.trainings, files.streams, files.errors
        self._nodes: Nodes | None = None

    def ledger(self) -> Ledger:
        return self.builder.ledger()

    def dag_description(self) -> DagDescription:
        result = self.builder.dag_description(self._nodes)
        self._nodes = result.nodes
        return result

    def run_view(self, key: str) -> RunView | None:
        return self.builder.run_view(key)

    def job_view(self, cluster: int, proc: int) -> JobView | None:
        return self.builder.job_view(cluster, proc)

    def dag_nodes(self) -> tuple[DagNodes, ...]:
        return self.builder.dag_nodes()

    def node_row(self, key: NodeKey) -> NodeRow | None:
        return self.builder.node_row(key)

    def queued_jobs(self, run: str | None = None) -> tuple[Job, ...]:
        return self.builder.queued_jobs(run)
