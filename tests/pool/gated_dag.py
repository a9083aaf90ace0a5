"""A DAG of runs and epochs whose jobs wait until the test ends them.

A job runs until a file named after its node is in ``gates``; its text is the exit code. So no test
has to guess how long something takes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pools import Pool

JOB = """\
#!/bin/sh
# Waits for its gate (a file with the exit code), then ends.
mkdir -p output
echo "$2" > "output/$2"
while [ ! -s "$1/$2" ]; do sleep 0.5; done
exit "$(cat "$1/$2")"
"""

SUBMIT = """\
SUBMIT-DESCRIPTION wait {{
  executable = gated.sh
  arguments = {gates} $(node)
  should_transfer_files = YES
  when_to_transfer_output = ON_EXIT_OR_EVICT
  transfer_output_files = output
  requirements = {requirements}
  request_gpus = {gpus}
  request_memory = 64
  request_disk = 1MB
  ulog_execute_attrs = GLIDEIN_ResourceName
  output = $(node).out
  error = $(node).err
  log = metl.log
{more}}}
"""


@dataclass(frozen=True, slots=True)
class GatedDag:
    """A DAG in its directory, and its nodes by run."""

    pool: Pool
    dag: Path
    runs: tuple[tuple[str, ...], ...]

    @property
    def directory(self) -> Path:
        return self.dag.parent

    def open(self, *nodes: str, code: int = 0) -> None:
        """Let these nodes end with this exit code."""
        for node in nodes:
            self.pool.place(self.directory / "gates" / node, f"{code}\n")

    def open_all(self) -> None:
        self.open(*(node for run in self.runs for node in run))

    def submit(self) -> int:
        """Submit it with condor_submit_dag; return DAGMan's cluster."""
        output = self.pool.run(["condor_submit_dag", self.dag.name], self.directory).stdout
        return int(output.split("submitted to cluster")[1].split(".")[0])


def write(
    pool: Pool,
    name: str,
    runs: int = 1,
    epochs: int = 1,
    sites: Sequence[str] = (),
    retries: int = 0,
    gpus: int = 0,
    user: str | None = None,
    more: Sequence[str] = (),
) -> GatedDag:
    """Write runs of consecutive epochs, for any site or for the named sites in turn. They need no
    GPU, so many fit beside other tests. ``more``: further lines of the submit description."""
    directory = pool.directory(name, user)
    gates = directory / "gates"
    gates.mkdir()
    pool.give(gates, user)
    pool.place(directory / "gated.sh", JOB, 0o755)
    anywhere = '(MY.MetlSite == "any") || (TARGET.GLIDEIN_ResourceName =?= MY.MetlSite)'
    besides = "".join(f"  {line}\n" for line in more)
    lines = [SUBMIT.format(gates=gates, gpus=gpus, requirements=anywhere, more=besides)]
    names: list[tuple[str, ...]] = []
    for run in range(runs):
        uuid = hashlib.sha256(f"{name} {run}".encode()).hexdigest()[:8]
        nodes = tuple(f"run{run}-train_epoch{epoch}" for epoch in range(epochs))
        names.append(nodes)
        for epoch, node in enumerate(nodes):
            site = sites[(run + epoch) % len(sites)] if sites else "any"
            lines.append(f"JOB {node} wait")
            lines.append(
                f'VARS {node} node="{node}" run_uuid="{uuid}" epoch="{epoch + 1}"'
                f' ResourceName="{site}" My.MetlSite="\\"{site}\\""'
            )
        lines += [f"PARENT {a} CHILD {b}" for a, b in pairwise(nodes)]
    if retries:
        lines.append(f"RETRY ALL_NODES {retries}")
    lines += ["NODE_STATUS_FILE nodes.dag.status 1", "JOBSTATE_LOG ens.jobstate.log", ""]
    dag = pool.place(directory / "ens.dag", "\n".join(lines))
    return GatedDag(pool, dag, tuple(names))
