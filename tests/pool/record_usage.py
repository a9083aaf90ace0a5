"""Record an ensemble whose use of cores, memory, disk and GPUs is known.

    python tests/pool/record_usage.py [DIRECTORY]      # default: fixtures/usage; needs root

Four runs of three epochs, in two minutes. run0 computes on one of two cores (in its last epoch
for half of the time), run1 holds memory, run2 writes a file, run3 has two GPUs; each job prints
what it used. The last jobs of run2 and run3 are evicted from one site, where that of run3
computes and needs memory and disk, and go on at another one. Three execution points have
HTCondor's monitor of GPUs (``use feature: GPUsMonitor``) with a program of ours, whose devices
are in use to a known share; the fourth has none. On a pool of its own, as the configuration is
its machine's; copied as ``record.py`` copies, with ``truth.json`` beside it: what the last
execution of each job used, by cluster.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import faults  # noqa: E402
import record  # noqa: E402
import truth  # noqa: E402
from pools import Pool, pool_in_use, until  # noqa: E402

OWN_POOL = {"METLMON_POOL": "/var/lib/metlmon-usage-pool", "METLMON_POOL_PORT": "9642"}

DEVICES = {
    "GPU-e0": (0.9, 12000),
    "GPU-e1": (0.5, 20000),
    "GPU-d0": (0.25, 3000),
    "GPU-d1": (0.0, 0),
    "GPU-s0": (1.0, 8000),
    "GPU-s1": (1.0, 40000),
}
"""Share of its time that a GPU is in use, and MB of its memory; none of PDX-Coeus-CE1."""

EXPANSE, DELTA, SPARK, COEUS = "Expanse-GPU", "Delta-GPU", "CHTC-Spark-CE1", "PDX-Coeus-CE1"

MONITOR = f"""\
#!/usr/bin/python3
# Reports every second how long each GPU was in use since the last report.
import time
last = time.monotonic()
while True:
    time.sleep(1)
    now = time.monotonic()
    for gpu, (share, memory) in {DEVICES!r}.items():
        print(f'SlotMergeConstraint = StringListMember("{{gpu}}", AssignedGPUs)')
        print(f"UptimeGPUsSeconds = {{share * (now - last):.6f}}")
        print(f"UptimeGPUsMemoryPeakUsage = {{memory}}")
        print(f"- {{gpu.replace('-', '_')}}", flush=True)
    last = now
"""

MONITOR_PATH = "usr/local/libexec/gpu-use.py"
CONFIGURATION = f"""\
use feature: GPUsMonitor
GPU_MONITOR = /{MONITOR_PATH}
COEUS.STARTD_CRON_JOBLIST =
# Otherwise a job of seconds is measured once, at its start.
PROCD_MAX_SNAPSHOT_INTERVAL = 1
PID_SNAPSHOT_INTERVAL = 1
POLLING_INTERVAL = 1
"""

JOB = """\
#!/usr/bin/python3
# train.py SECONDS SPIN MB KB ONLY CODE: computes on one core for SPIN seconds, holds MB in memory,
# writes a file of KB (all this only at the site ONLY, if it is not "any"); prints what it used.
import json, os, re, resource, sys, time
seconds, spin, mb, kb, only, code = sys.argv[1:]
begun = time.monotonic()
machine = open(os.environ["_CONDOR_MACHINE_AD"]).read()
site = re.search('GLIDEIN_ResourceName = "(.*)"', machine)[1]
if only not in ("any", site):
    spin = mb = kb = 0
if site == "CHTC-Spark-CE1":
    seconds = 600  # It is evicted.
held = b"x" * (int(mb) << 20)
with open("scratch.bin", "wb") as file:
    file.write(bytes(int(kb) << 10))
while time.monotonic() - begun < float(spin):
    pass
while time.monotonic() - begun < float(seconds):
    time.sleep(0.2)
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "site": site, "gpus": os.environ.get("_CONDOR_AssignedGPUs", "").split(","),
    "seconds": time.monotonic() - begun, "cpu_seconds": used.ru_utime + used.ru_stime,
    "memory_mb": int(mb), "disk_kb": int(kb),
}))
os.unlink("scratch.bin")
sys.exit(int(code))
"""

SUBMIT = """\
SUBMIT-DESCRIPTION train {
  executable = train.py
  arguments = $(seconds) $(spin) $(mb) $(kb) $(only) $INT(code)
  should_transfer_files = YES
  when_to_transfer_output = ON_EXIT
  requirements = TARGET.GLIDEIN_ResourceName =?= (NumJobStarts > 0 ? MY.Then : MY.First)
  request_cpus = 2
  request_gpus = $(gpus)
  request_memory = 512
  request_disk = 100MB
  ulog_execute_attrs = GLIDEIN_ResourceName, AssignedGPUs, GPUs_DeviceName
  output = $(node).$(CLUSTER).out
  error = $(node).$(CLUSTER).err
  log = metl.log
}
"""

RUNS: tuple[dict[str, Any], ...] = (
    {"spin": 1, "mb": 8, "kb": 10, "only": "any", "gpus": 1, "site": DELTA},
    {"spin": 0, "mb": 300, "kb": 10, "only": "any", "gpus": 1, "site": DELTA},
    {"spin": 0, "mb": 8, "kb": 40_000, "only": "any", "gpus": 1, "site": COEUS},
    {"spin": 1, "mb": 300, "kb": 20_000, "only": SPARK, "gpus": 2, "site": EXPANSE},
)
"""``spin``: share of the time that it computes; half of that in run0's last epoch."""
EVICTED = (2, 3)
"""Runs whose last job begins at CHTC-Spark-CE1, and is evicted there."""
EVICTED_AFTER = 12


def write(pool: Pool, epochs: int = 3, seconds: int = 20) -> Path:
    """The ensemble's files. The first job of run1's second epoch exits with 3."""
    directory = pool.directory("ensemble")
    pool.place(directory / "train.py", JOB, 0o755)
    lines = [SUBMIT]
    for run, uses in enumerate(RUNS):
        nodes = [f"run{run}-train_epoch{epoch}" for epoch in range(epochs)]
        for epoch, node in enumerate(nodes):
            evicted = run in EVICTED and epoch == epochs - 1
            macros = {"node": node, "run_uuid": f"{run:04x}{run + 1:04x}", "epoch": epoch + 1}
            macros |= {key: uses[key] for key in ("mb", "kb", "only", "gpus")}
            spin = uses["spin"] * seconds / (2 if (run, epoch) == (0, 2) else 1)
            code = "3 - 3 * $(RETRY)" if (run, epoch) == (1, 1) else 0
            macros |= {"seconds": seconds, "spin": spin, "code": code, "ResourceName": uses["site"]}
            sites = {"First": SPARK if evicted else uses["site"], "Then": uses["site"]}
            given = [f'{key}="{value}"' for key, value in macros.items()]
            given += [f'My.{key}="\\"{value}\\""' for key, value in sites.items()]
            lines += [f"JOB {node} train", f"VARS {node} {' '.join(given)}"]
        lines += [f"PARENT {a} CHILD {b}" for a, b in pairwise(nodes)]
    lines += [
        "RETRY ALL_NODES 1",
        "NODE_STATUS_FILE nodes.dag.status 1",
        "JOBSTATE_LOG ens.jobstate.log",
        "",
    ]
    pool.place(directory / "ens.dag", "\n".join(lines))
    return directory


def play(pool: Pool, directory: Path) -> None:
    """Submit it, evict two jobs when they have run for some time, and wait for its end."""
    pool.run(["condor_submit_dag", "ens.dag"], directory)
    ours = until(lambda: truth.dagmans(pool, directory), "DAGMan is in the queue")
    long = f"JobStatus == 2 && time() - JobCurrentStartExecutingDate >= {EVICTED_AFTER}"
    at_spark = (truth.of_dagmans(ours), 'regexp("spark", RemoteHost)', long)
    # There is not room for both at once.
    for _ in EVICTED:
        (ad,) = until(lambda: pool.queue(*at_spark), f"a job has run at {SPARK}")
        name = f"{ad['ClusterId']}.{ad['ProcId']}"
        pool.run(["condor_vacate_job", name])
        until(lambda: not pool.queue(*at_spark), f"{name} has left {SPARK}")
    truth.until_gone(pool, directory)


def used(directory: Path) -> dict[str, dict[str, Any]]:
    """What each job's last execution used by its own account, by cluster."""
    return {
        path.name.split(".")[1]: {"node": path.name.split(".")[0], **json.loads(path.read_text())}
        for path in sorted(directory.glob("run*.out"))
    }


@contextmanager
def monitored(pool: Pool) -> Iterator[None]:
    """Give the pool's execution points the monitor."""
    assert pool.script is not None
    root = pool.script.ROOT
    file = root / "etc/condor/config.d/99-z-usage"
    pool.script.place(root / MONITOR_PATH, MONITOR, 0o755)
    pool.script.place(file, CONFIGURATION, 0o644)
    try:
        faults.restart(pool)
        have = ["condor_status", "-constraint", "DeviceGPUsAverageUsage >= 0", "-af", "Name"]
        until(lambda: len(pool.run(have).stdout.split()) >= 3, "three sites have the monitor", 60)
        yield
    finally:
        file.unlink()
        faults.restart(pool)


def main(fixture: Path) -> int:
    with pool_in_use(OWN_POOL) as pool, monitored(pool), tempfile.TemporaryDirectory() as made:
        directory = write(pool)
        play(pool, directory)
        new = Path(made) / "new"
        record.scrubbed(directory, new)
        for path in new.glob("run*"):
            path.unlink()
        (new / "truth.json").write_text(json.dumps(used(directory), indent=1) + "\n")
        shutil.rmtree(fixture, ignore_errors=True)
        shutil.copytree(new, fixture)
    return 0


if __name__ == "__main__":
    named = sys.argv[1:2]
    sys.exit(main(Path(named[0]) if named else HERE.parents[1] / "fixtures" / "usage"))
