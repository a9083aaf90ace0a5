"""Groups jobs of no DAG into runs (``metlmon/README.md``, "Jobs of no DAG")."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from metlmon.config.settings import Settings
from metlmon.dagman import Node, NodeKind, Workflow
from metlmon.model.dag import Dag
from metlmon.model.job_events import NO_DAG, JobId, LoggedJob, NodeKey, NodeRecord
from metlmon.model.run import RunPart, parse_run_part

RUN_ARGUMENT: Final = re.compile(
    r"\brun_?(?:uuid|id)[\"']?(?:\s*[=:]\s*|\s+)[\"']?([0-9A-Za-z][\w.-]{3,63})", re.IGNORECASE
)
"""Matches ``--run_uuid=X``, ``run_uuid: X`` or ``RunId = "X"`` in notes and attributes of a job."""

BATCH_IN_AD: Final = re.compile(r'^\s*JobBatchName = "((?:[^"\\\n]|\\.){1,200})"', re.MULTILINE)
"""Matches the batch in a job's ClassAd (event 028)."""

MAX_PROCS: Final = 1 << 32
"""More than the number of procs in any cluster."""


class JobOutputs:
    """Output and error files whose names end in the number of a job: ``x_12.out``, ``12.3.err``."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[tuple[str, ...], str] = {}
        for name in names:
            stem, _, suffix = name.rpartition(".")
            numbers = _NUMBERS.findall(stem)
            for count in (1, 2):
                if len(numbers) >= count and stem.endswith(numbers[-1]):
                    self._names.setdefault((*numbers[-count:], suffix), name)

    def name_of(self, job: JobId, suffix: str) -> str | None:
        """The file of a job with this suffix, None where there is none."""
        cluster, proc = map(str, job)
        of_cluster = self._names.get((cluster, suffix)) if job[1] == 0 else None
        return self._names.get((cluster, proc, suffix)) or of_cluster


_NUMBERS: Final = re.compile(r"\d+")


class JobGroups:
    """The jobs of no DAG, grouped into runs.

    ``dag`` has no file and no edges; each of its nodes is a job, or all jobs that the log names
    the same DAG node for. ``parts``: the part of each node in its run, in the order in which they
    were added. ``emptied``: nodes that may have lost their last job. ``outputs``: files that the
    jobs seem to write.
    """

    def __init__(self, settings: Settings) -> None:
        self.dag = Dag(NO_DAG, "", Workflow(Path(), Path()), NO_DAG)
        self.parts: dict[str, RunPart] = {}
        self.emptied: set[str] = set()
        self.outputs = JobOutputs()
        self._settings = settings
        self._names: dict[tuple[str | None, str], str] = {}
        self._runs: dict[str, str] = {}

    def place(self, job: LoggedJob) -> str:
        """The name of the node for ``job``, which is added if it is new."""
        part = run_part_of_job(job, self._settings)
        item = job.node_name or f"{job.cluster}.{job.proc}" + (f".{job.key[2]}" * bool(job.key[2]))
        if job.node_name is None and part.epoch is not None:
            item = f"{part.run}-train_epoch{part.epoch}"
        name = self._names.get((part.group, item))
        if name is None:
            name = item if item not in self.parts else f"{item} ({part.group})"
            self._names[part.group, item] = name
            self.dag.workflow.nodes[name] = Node(name, NodeKind.JOB, "", 0)
            self.parts[name] = replace(part, run=self._run_name(part))
        return name

    def _run_name(self, part: RunPart) -> str:
        """The name of a run; of several with the same name, with the batch or uuid of each."""
        group = part.group or ""
        if self._runs.setdefault(part.run, group) == group:
            return part.run
        return f"{part.run} ({group.strip(':').partition(':')[0]})"

    def remove_emptied(self, nodes: dict[NodeKey, NodeRecord]) -> list[str]:
        """Remove the nodes that have lost their last job, also from ``nodes``; return them."""
        names = [name for name in self.emptied if not nodes[NO_DAG, name].jobs]
        for name in names:
            del nodes[NO_DAG, name], self.dag.workflow.nodes[name], self.parts[name]
        if names:
            self._names = {key: name for key, name in self._names.items() if name in self.parts}
        self.emptied.clear()
        return names


def read_group(job: LoggedJob, text: str) -> bool:
    """Read a job's run and batch in its notes or its ClassAd; return whether any is new."""
    run = RUN_ARGUMENT.search(text) if job.run_uuid is None else None
    batch = BATCH_IN_AD.search(text) if job.batch_name is None else None
    if run is not None:
        job.run_uuid = run[1]
    if batch is not None:
        job.note_batch_name(batch[1])
    return bool(run or batch)


def run_part_of_job(job: LoggedJob, settings: Settings) -> RunPart:
    """The run of a job of no DAG, and its part in it.

    A run is, in this order: the jobs with one RunUuid, or RunName, in their 000; with one
    ``run_uuid`` argument; those whose DAG nodes are named as epochs of one run; a submit batch; a
    DAG node; a cluster. Its name is RunName, the epoch's number that in the node's name.
    """
    position = job.cluster * MAX_PROCS + job.proc
    uuid, name, batch = job.run_uuid, job.node_name, job.batch_name
    if batch is not None:
        # DAGMan's default is "file+cluster": a DAG that is submitted again has another cluster.
        file, plus, cluster = batch.rpartition("+")
        batch = file if plus and cluster.isdecimal() else batch
    node = Node(name or "", NodeKind.JOB, "", 0, vars={"run_uuid": uuid} if uuid else {})
    part = parse_run_part(node, settings)
    number = job.run_epoch
    if part is not None and part.epoch is not None:
        run, training, epoch = job.run_name or part.run, part.training, part.epoch
    elif number is not None and (job.run_name or uuid):
        run, training, epoch = job.run_name or uuid or "", True, number - 1
    else:
        run = job.run_name or uuid or batch or name or str(job.cluster)
        return RunPart(run, uuid, True, None, None, uuid or f"{NO_DAG}:{run}", position)
    group = uuid or f"{NO_DAG}:{batch or ''}:{run}"
    return RunPart(run, uuid, training, epoch, number, group, position)
