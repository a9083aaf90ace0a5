"""A small DAG on the pool for recordings of trouble, and changes of its machine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import truth
from pools import Pool, until

END_SECONDS = 180.0

JOB = """\
#!/bin/sh
# train.sh SECONDS CODE [BROKEN]: trains for so long and exits with the code; at once, with 1,
# where the machine is of the site BROKEN, as if its driver were missing.
mkdir -p output
if [ -n "$3" ] && grep -q "GLIDEIN_ResourceName = \\"$3\\"" "$_CONDOR_MACHINE_AD"; then
    echo "RuntimeError: No CUDA GPUs are available" >&2
    exit 1
fi
echo "trained" > output/last.ckpt
sleep "$1"
exit "$2"
"""

SUBMIT = """\
SUBMIT-DESCRIPTION {name} {{
  executable = train.sh
  arguments = $(seconds) $(code) $(broken)
  should_transfer_files = YES
  when_to_transfer_output = ON_EXIT
  transfer_output_files = output
  request_gpus = 1
  request_memory = 64
  request_disk = 1MB
  ulog_execute_attrs = GLIDEIN_ResourceName
  output = $(node).out
  error = $(node).err
  log = metl.log
{more}}}
"""

ANYWHERE = "any"
AT_TARGET = "requirements = TARGET.GLIDEIN_ResourceName =?= MY.MetlSite"
SOON = "JobStatus == 2 && time() - JobCurrentStartExecutingDate > 3"


@dataclass(frozen=True, slots=True)
class Ensemble:
    """A DAG in its directory on the pool."""

    pool: Pool
    directory: Path
    dag: str = "ens.dag"

    @property
    def dagmans(self) -> list[int]:
        return truth.dagmans(self.pool, self.directory)

    @property
    def of_dag(self) -> str:
        return truth.of_dagmans(self.dagmans)

    def submit(self, *options: str) -> None:
        self.pool.run(["condor_submit_dag", *options, self.dag], self.directory)

    def jobs(self, status: int, node: str = "") -> list[dict[str, Any]]:
        """The node jobs in the queue that have this JobStatus."""
        ads = self.pool.queue(self.of_dag, f"JobStatus == {status}")
        return [ad for ad in ads if ad["DAGNodeName"].startswith(node)]

    def until_jobs(self, status: int, count: int, node: str = "") -> list[str]:
        """Wait for this number of jobs with a JobStatus; their ids."""
        until(
            lambda: len(self.jobs(status, node)) == count,
            lambda: f"{self.directory.name}: {count} jobs with JobStatus {status}",
            END_SECONDS,
        )
        return [f"{ad['ClusterId']}.{ad['ProcId']}" for ad in self.jobs(status, node)]

    def until_executing(self, count: int, node: str = "") -> list[str]:
        """Like :meth:`until_jobs`, for jobs that execute."""

        def look() -> list[str]:
            ads = [ad for ad in self.jobs(truth.RUNNING, node) if executes(ad)]
            return [f"{ad['ClusterId']}.{ad['ProcId']}" for ad in ads] if len(ads) == count else []

        return until(look, f"{self.directory.name}: {count} jobs execute", END_SECONDS)

    def until_done(self, node: str) -> None:
        until(
            lambda: self.pool.history(self.of_dag, f'DAGNodeName == "{node}"', "JobStatus == 4"),
            f"{node} is done",
            END_SECONDS,
        )

    def until_ended(self) -> Self:
        """Wait until DAGMan and its jobs are out of the queue; the ensemble itself."""
        truth.until_gone(self.pool, self.directory, END_SECONDS)
        return self

    def until_quiet(self) -> Self:
        """Wait until no file has been written for some seconds; the ensemble itself."""
        before: list[tuple[int, int]] = []

        def look() -> bool:
            paths = [path for path in self.directory.iterdir() if path.is_file()]
            now = [(path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(paths)]
            before.append((len(now), hash(tuple(now))))
            return len(before) > 25 and len(set(before[-25:])) == 1

        until(look, f"{self.directory.name} is quiet", END_SECONDS)
        return self


def executes(ad: Mapping[str, Any]) -> bool:
    return ad.get("JobCurrentStartExecutingDate", 0) >= ad["JobCurrentStartDate"]


def write(
    pool: Pool,
    name: str,
    runs: int = 3,
    epochs: int = 2,
    *,
    sites: Sequence[str] = (),
    seconds: int = 2,
    nodes: Mapping[str, Mapping[str, str]] | None = None,
    submit: Mapping[int, Sequence[str]] | None = None,
    lines: Sequence[str] = (),
) -> Ensemble:
    """Write runs of epochs. ``nodes``: macros of single nodes; ``submit``: lines of the submit
    description of a run (-1: of all); ``lines``: of the DAG file."""
    directory = pool.directory(name)
    pool.place(directory / "train.sh", JOB, 0o755)
    submit = submit or {}
    text, rest = [], []
    for run in range(runs):
        more = "".join(f"  {line}\n" for line in [*submit.get(-1, ()), *submit.get(run, ())])
        text.append(SUBMIT.format(name=f"train{run}", more=more))
        names = [f"run{run}-train_epoch{epoch}" for epoch in range(epochs)]
        for epoch, node in enumerate(names):
            site = sites[run % len(sites)] if sites else ANYWHERE
            macros = {"node": node, "run_uuid": f"{run:04x}{run + 1:04x}", "epoch": epoch + 1}
            macros |= {"ResourceName": site, "seconds": seconds, "code": 0, "broken": ""}
            macros |= (nodes or {}).get(node, {})
            given = " ".join(f'{key}="{value}"' for key, value in macros.items())
            rest += [f"JOB {node} train{run}", f'VARS {node} {given} My.MetlSite="\\"{site}\\""']
        rest += [f"PARENT {a} CHILD {b}" for a, b in pairwise(names)]
    rest += [*lines, "NODE_STATUS_FILE nodes.dag.status 1", "JOBSTATE_LOG ens.jobstate.log", ""]
    pool.place(directory / "ens.dag", "\n".join([*text, *rest]))
    return Ensemble(pool, directory)


# --- its machine ---

CONTROLLERS = {
    "memory": "memory",
    "cpuacct": "cpu,cpuacct",
    "freezer": "freezer",
    "devices": "devices",
}
"""Hierarchies of control groups (v1), and where HTCondor looks for them."""


@contextmanager
def control_groups(pool: Pool) -> Iterator[None]:
    """Mount the machine's control groups in the chroot, so that starters can limit memory."""
    assert pool.script is not None
    inside = []
    for name, place in CONTROLLERS.items():
        path = Path(f"{pool.script.ROOT}/sys/fs/cgroup/{place}")
        path.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", f"/sys/fs/cgroup/{name}", str(path)], check=True)
        inside.append(path)
    try:
        yield
    finally:
        for path in inside:
            subprocess.run(["umount", "-l", str(path)], check=True)


@contextmanager
def small_disk(pool: Pool, directory: Path) -> Iterator[None]:
    """Mount a file system of 4 MB at the directory, inside and outside the pool's chroot."""
    assert pool.script is not None
    owner = directory.stat().st_uid
    inside = Path(f"{pool.script.ROOT}{directory}")
    options = f"size=4m,uid={owner},gid={owner},mode=755"
    for command in (
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)],
        ["mount", "--bind", str(directory), str(inside)],
    ):
        subprocess.run(command, check=True)
    try:
        yield
    finally:
        for path in (inside, directory):
            subprocess.run(["umount", "-l", str(path)], check=True)
