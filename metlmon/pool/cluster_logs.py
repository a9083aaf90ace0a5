"""Finds the event logs of a cluster by asking the schedd."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from metlmon.errors import InputError
from metlmon.pool.connection import PoolConnection
from metlmon.pool.protocol import SCHEDULER_UNIVERSE
from metlmon.pool.types import PoolError

DAGMAN_LOG: Final = ".dagman.log"
"""Suffix of the log of DAGMan's own job, after the name of its DAG file."""


def cluster_logs(cluster: int) -> list[Path]:
    """The event logs (``UserLog``) of the jobs of a cluster that are in the queue.

    Of a cluster that is a DAGMan, its DAG file. Raises InputError without a schedd, for a cluster
    that is not in its queue, and for jobs without a log.
    """
    connection = PoolConnection()
    try:
        jobs = connection.query((), (cluster,))
    except PoolError as error:
        raise InputError(f"cluster {cluster}: {error}; or give the path of its log") from None
    finally:
        connection.close()
    if not jobs:
        raise InputError(
            f"cluster {cluster} is not in the queue: it has left it, or is another schedd's; "
            "give the log that its submit file names"
        )
    logs: dict[Path, None] = {}
    for job in jobs:
        if job.log is None:
            continue
        path = Path(job.directory or "", job.log)
        if job.universe == SCHEDULER_UNIVERSE and path.name.endswith(DAGMAN_LOG):
            return [path.with_name(path.name.removesuffix(DAGMAN_LOG))]
        logs[path] = None
    if not logs:
        raise InputError(
            f"cluster {cluster} writes no event log: its submit file has no log command; "
            "condor_qedit cannot add one to jobs in the queue"
        )
    return list(logs)
