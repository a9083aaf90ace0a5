"""The ensembles of the queue: which directories the user's DAGMan jobs name."""

from __future__ import annotations

from typing import Any, cast

from metlmon.home.queue import user_dagdirs
from metlmon.pool.protocol import QueueJob, ScheddInfo


class Queue:
    """A connection whose queue has these DAGMan jobs; asked as alice."""

    def __init__(self, *jobs: QueueJob) -> None:
        self.jobs = jobs

    def where(self) -> ScheddInfo:
        return ScheddInfo("ap40", "24.0.0", "alice@ap40", True, None)

    def dagmans(self) -> tuple[QueueJob, ...]:
        return self.jobs


def dagman(cluster: int, directory: str, dag: str, **fields: Any) -> QueueJob:
    values: dict[str, Any] = {"owner": "alice", "universe": 7, "directory": directory}
    arguments = f"-p 0 -f -l . -Lockfile {dag}.lock -AutoRescue 1 -Dag {dag} -Suppress_notification"
    return QueueJob(cluster, 0, 2, arguments=arguments, **(values | fields))


def test_the_directories_are_those_of_the_users_own_dag_files() -> None:
    queue = Queue(
        dagman(1, "/home/alice/ens", "ens.dag"),
        dagman(2, "/home/alice/ens", "ens-2.dag"),
        dagman(3, "/home/alice", "sweeps/a/sweep.dag"),
        dagman(4, "/home/alice", "/scratch/alice/b.dag"),
        dagman(5, "/home/alice/ens/stage2", "inner.dag", dagman=1),
        dagman(6, "/home/bob/ens", "ens.dag", owner="bob"),
        dagman(7, "/home/alice/x", "x.dag", universe=5),
    )
    assert user_dagdirs(cast(Any, queue)) == (
        "/home/alice/ens",
        "/home/alice/sweeps/a",
        "/scratch/alice",
    )
