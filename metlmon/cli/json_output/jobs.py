"""The JSON of ``jobs``, ``nodes`` and ``--queue``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from metlmon.cli.json_output.objects import HEAD, JsonObject, job_ids, utc_time
from metlmon.model.model_state import Notice
from metlmon.pool.types import QueueJob, QueueSnapshot
from metlmon.snapshot import types
from metlmon.snapshot.ledger import Execution, Job, Transfer
from metlmon.snapshot.row_text import state_reason

if TYPE_CHECKING:
    from metlmon.pool.queue_checks import QueueDiscrepancy

ENSEMBLE: Final = {**HEAD, "warnings": list[Notice]}
"""The fields that every output about an ensemble begins with."""

# --- nodes ------------------------------------------------------------------------------------

NODE: Final = JsonObject(
    types.NodeRow,
    "Any node, or a job of no DAG, whose dag and in_dag are null. job_state, job_return: what its "
    "job came to, whatever a POST script made of it. "
    "run: the key of its run. after: the node that it stands after in the tree; below: the splice, "
    "or the SUBDAG node, that holds it (both in metlmon nodes only).",
    "node kind run state inferred since job_state job_return overruled attempts retries "
    "retries_left target site gpu gpus parents children waiting_parents=unfinished_parents "
    "waits_for reason behind=failed_ancestor submissions submit hold_reason hold_code seconds",
    computed={
        "dag": (str | None, lambda node: node.dag or None),
        "in_dag": (str | None, lambda node: node.dag_key or None),
        "jobs": (list[str], job_ids),
        "why": (str | None, lambda node: state_reason(node) or None),
    },
    optional={"after": str | None, "below": str | None},
)
NODES_OUTPUT: Final = JsonObject(
    None,
    "metlmon nodes --json: every node once, as the DAG files name them.",
    name="NodesOutput",
    given={**ENSEMBLE, "nodes": [NODE]},
)

# --- jobs -------------------------------------------------------------------------------------

EXECUTION: Final = JsonObject(
    Execution,
    "An execution of a job; uncertain: its end was not logged. checkpoint: of one that did not end "
    "well, when its last checkpoint was stored; lost_seconds: those after it, or all.",
    "start end outcome code subcode reason return_value signal site host gpu gpus uncertain "
    "checkpoint seconds suspended lost_seconds=lost gpu_hours",
    name="Execution",
)
TRANSFER: Final = JsonObject(
    Transfer,
    "A transfer of a job's files.",
    "direction start end outcome host queue_seconds seconds",
    name="Transfer",
)
JOB: Final = JsonObject(
    Job,
    "A job; dag, node and run are null for a job of no DAG. candidates: the nodes that it may "
    "belong to, where several may.",
    "dag node=node_name run=run_name uuid epoch cluster proc state since target site gpu gpus "
    "submitted executions transfers bytes_sent bytes_received memory_mb request_memory_mb "
    "hold_reason hold_code hold_subcode candidates",
    name="Job",
    computed={"in_dag": (str | None, lambda job: job.in_dag or None)},
)
QUEUE_JOB: Final = JsonObject(
    QueueJob,
    "A job in the queue; differs: its state there, where the logs say another one.",
    "cluster proc priority position waiting matches rejection",
    computed={
        "owner": (str | None, lambda job: job.owner or None),
        "rejected_at": (str | None, lambda job: utc_time(job.rejected_at)),
    },
    given={"status": str | None, "differs": str | None},
)
MISSING_JOB: Final = JsonObject(
    None,
    "A job that is queued according to the logs, but not in the queue.",
    name="MissingJob",
    given={"cluster": int, "proc": int},
)
QUEUE: Final = JsonObject(
    QueueSnapshot,
    "The queue of the schedd at this moment (times in UTC); the logs may be a moment behind.",
    "schedd version user error",
    name="Queue",
    computed={"asked": (str | None, lambda snapshot: utc_time(snapshot.queried_at))},
    given={"jobs": [QUEUE_JOB], "missing": [MISSING_JOB]},
)
JOBS_OUTPUT: Final = JsonObject(
    None,
    "metlmon jobs --json; queue with --queue only.",
    name="JobsOutput",
    given={**ENSEMBLE, "jobs": [JOB]},
    optional={"queue": QUEUE},
)


def queue_json(
    snapshot: QueueSnapshot, discrepancies: Iterable[QueueDiscrepancy]
) -> dict[str, Any]:
    """The queue's snapshot, and how it differs from the logs."""
    from metlmon.pool.queue_checks import STATUS_NAMES

    differs = {each.job: each.queue_state for each in discrepancies}
    gone = sorted(differs.keys() - {(job.cluster, job.proc) for job in snapshot.jobs})
    jobs = [
        QUEUE_JOB.write(
            job,
            status=STATUS_NAMES.get(job.status),
            differs=differs.get((job.cluster, job.proc)),
        )
        for job in snapshot.jobs
    ]
    missing = [{"cluster": cluster, "proc": proc} for cluster, proc in gone]
    return QUEUE.write(snapshot, jobs=jobs, missing=missing)
