"""An ensemble whose epochs are slow at one site and fail at another, written as by a user.

The job reads its site from the ad of its machine; the pool is unchanged. The outcome is read from
``condor_history`` and the DAG's metrics, not from metlmon.
"""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import truth
from pools import Pool

from tests.pool import new_ensemble

TEMPLATE = """\
# template: An epoch whose time depends on its site
# parameter: seconds = 10 | time of an epoch
# parameter: slow_site = | site where an epoch takes slow_seconds
# parameter: slow_seconds = 40 | time of an epoch there
# parameter: failing_site = | site where every job fails at once
# ship: train.sh executable
universe = vanilla
executable = train.sh
arguments = $(run_uuid) $(epoch) {seconds} {slow_site} {slow_seconds} {failing_site}
request_cpus = 1
request_gpus = {gpus}
request_memory = {memory_mb}MB
request_disk = 1MB
?requirements = {requirements}
should_transfer_files = YES
when_to_transfer_output = ON_EXIT
preserve_relative_paths = true
transfer_input_files = $(continue_from_checkpoint)
transfer_output_files = output
ulog_execute_attrs = GLIDEIN_ResourceName
log = metl.log
output = $(run_uuid)_$(epoch)_$(Cluster).out
error = $(run_uuid)_$(epoch)_$(Cluster).err
priority = $(epoch)
queue
"""

JOB = """\
#!/bin/sh
# train.sh UUID EPOCH SECONDS SLOW_SITE SLOW_SECONDS FAILING_SITE
run=output/training_logs/$1
mkdir -p "$run/checkpoints"
at() { grep -q "^GLIDEIN_ResourceName = \\"$1\\"" "$_CONDOR_MACHINE_AD"; }
if at "$6"; then
    echo "RuntimeError: No CUDA GPUs are available" >&2
    exit 1
fi
if at "$4"; then sleep "$5"; else sleep "$3"; fi
echo "$2" > "$run/checkpoints/last.ckpt"
"""


@dataclass(frozen=True, slots=True)
class Sites:
    """Where jobs run: two good sites, a slow one, and one at which every job fails."""

    good: tuple[str, str]
    slow: str
    failing: str

    @classmethod
    def of_pool(cls, pool: Pool) -> Sites:
        """Assign the pool's sites: the first one fails, the last one is slow."""
        failing, first, second, slow = list(pool.sites.values())[:4]
        return cls((first, second), slow, failing)

    @property
    def all(self) -> tuple[str, ...]:
        return (self.failing, *self.good, self.slow)


def write(
    pool: Pool, name: str, *, runs: int, epochs: int, seconds: int, slow_seconds: int
) -> new_ensemble.NewEnsemble:
    """Write it with ``metlmon new``, unsubmitted; any run may go to any of the four sites."""
    sites = Sites.of_pool(pool)
    named = ", ".join(f'"{site}"' for site in sites.all)
    description = f"""\
template = "site.sub"
runs = {runs}
epochs = {epochs}
memory = 64
sites = [{named}]
policy = "any"
[values]
seconds = {seconds}
slow_site = "{sites.slow}"
slow_seconds = {slow_seconds}
failing_site = "{sites.failing}"
"""
    home = {"site.sub": TEMPLATE, "train.sh": JOB}
    return new_ensemble.write(pool, name, description, files=home)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of the ensemble. ``makespan``: seconds from the submission of the first DAGMan to
    the end of the last job; ``done``: epochs done at each site; ``failures``: executions that
    failed; ``submissions``: of the DAG; ``last_at``: by site and run, the last epoch (from 1) that
    was tried there, 0 if none."""

    makespan: float
    done: Mapping[str, int]
    failures: int
    submissions: int
    last_at: Mapping[str, Mapping[str, int]]


def outcome(ensemble: new_ensemble.NewEnsemble) -> Outcome:
    """The outcome of an ensemble that has left the queue."""
    pool, directory = ensemble.pool, ensemble.directory
    dagmans = truth.dagmans(pool, directory)
    expected = truth.at_the_end(pool, directory)
    both = " || ".join(f"ClusterId == {each}" for each in dagmans)
    begin = min(ad["QDate"] for ad in pool.history(both))
    executions = [(job, each) for job in expected.jobs for each in job.executions]
    runs = sorted(each["name"] for each in ensemble.report_of["runs"])
    last_at = {site: dict.fromkeys(runs, 0) for site in Sites.of_pool(pool).all}
    for job, each in executions:
        run, epoch = job.node.split("-train_epoch")
        assert each.site is not None
        last_at[each.site][run] = max(last_at[each.site][run], int(epoch) + 1)
    return Outcome(
        makespan=max(each.end for _, each in executions) - begin,
        done=Counter(str(each.site) for _, each in executions if each.code == 0),
        failures=sum(each.code != 0 for _, each in executions),
        submissions=len(dagmans),
        last_at=last_at,
    )


@contextmanager
def advice(ensemble: new_ensemble.NewEnsemble, every: str) -> Iterator[None]:
    """Apply plans by ``metlmon advise`` within the context; its output is beside the dagdir."""
    words = ["metlmon", "advise", ".", "--apply", "send", "--yes", "--every", every]
    command = ensemble.pool.command(words, ensemble.directory)
    with ensemble.directory.with_name(f"{ensemble.name}-advice.txt").open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)
