"""Record ensembles whose use of cores, memory, disk and GPUs is known.

    python tests/pool/record_usage.py [NAME [DIRECTORY]]   # default: usage, fixtures/NAME; root

``usage``, in two minutes: four runs of three epochs. run0 computes on one of two cores (in its last
epoch for half of the time), run1 holds memory, run2 writes a file, run3 has two GPUs; each job
prints what it used. The last jobs of run2 and run3 are evicted from one site, where that of run3
computes and needs memory and disk, and go on at another one.

``usage-trouble``, in an hour: what is wrong with requests. run0 hardly uses its GPU, run1 one of
its two, for an hour each; two epochs of run2 need nearly all the memory that they request; run3
requests far more than it uses.

Three execution points have HTCondor's monitor of GPUs (``use feature: GPUsMonitor``) with a program
of ours, whose devices are in use to a known share; the fourth has none. On a pool of its own, as
the configuration is its machine's; copied as ``record.py`` copies, with ``truth.json`` beside it:
what the last execution of each job used, by cluster.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import faults  # noqa: E402
import record  # noqa: E402
import truth  # noqa: E402
from pools import PATIENCE, Pool, pool_in_use, until  # noqa: E402

OWN_POOL = {"METLMON_POOL": "/var/lib/metlmon-usage-pool", "METLMON_POOL_PORT": "9642"}

EXPANSE, DELTA, SPARK, COEUS = "Expanse-GPU", "Delta-GPU", "CHTC-Spark-CE1", "PDX-Coeus-CE1"

EVICTED_AFTER = 12


@dataclass(frozen=True, slots=True)
class Epoch:
    """What a job requests, and what it uses: for ``spin`` seconds a core, ``mb`` and ``kb``.

    ``evicted``: it starts at CHTC-Spark-CE1, is evicted there, and continues at ``site``. ``only``:
    the only site where it uses anything. ``code``: its exit code.
    """

    site: str
    seconds: float = 20
    spin: float = 0
    mb: int = 8
    kb: int = 10
    only: str = "any"
    gpus: int = 1
    cpus: int = 2
    memory: int = 512
    disk: str = "100MB"
    evicted: bool = False
    code: str = "0"


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Runs as sequences of epochs.

    ``devices``: the share of its time that a GPU is in use, and MB of its memory; none of
    PDX-Coeus-CE1.
    """

    devices: Mapping[str, tuple[float, int]]
    runs: Sequence[Sequence[Epoch]]

    @property
    def evictions(self) -> int:
        return sum(epoch.evicted for run in self.runs for epoch in run)

    def last_epochs(self) -> Ensemble:
        """The same ensemble with one epoch of each run."""
        return replace(self, runs=[run[-1:] for run in self.runs])


_CORE = Epoch(DELTA, spin=20)
_MEMORY = Epoch(DELTA, mb=300)
_FILE = Epoch(COEUS, kb=40_000)
_TWO_GPUS = Epoch(EXPANSE, gpus=2, mb=0, kb=0)

USAGE = Ensemble(
    {
        "GPU-e0": (0.9, 12000),
        "GPU-e1": (0.5, 20000),
        "GPU-d0": (0.25, 3000),
        "GPU-d1": (0.0, 0),
        "GPU-s0": (1.0, 8000),
        "GPU-s1": (1.0, 40000),
    },
    [
        [_CORE, _CORE, replace(_CORE, spin=10)],
        # The first job of the second epoch fails.
        [_MEMORY, replace(_MEMORY, code="3 - 3 * $(RETRY)"), _MEMORY],
        [_FILE, _FILE, replace(_FILE, evicted=True)],
        [
            *(_TWO_GPUS, _TWO_GPUS),
            replace(_TWO_GPUS, spin=20, mb=300, kb=20_000, only=SPARK, evicted=True),
        ],
    ],
)

_TIGHT = Epoch(COEUS, seconds=60, mb=240, memory=256)
_HUGE = Epoch(SPARK, seconds=620, spin=20, kb=40_000, cpus=4, memory=8192, disk="8GB")

USAGE_TROUBLE = Ensemble(
    {
        "GPU-e0": (0.04, 11000),
        "GPU-e1": (0.04, 11000),
        "GPU-d0": (0.97, 30000),
        "GPU-d1": (0.0, 500),
        "GPU-s0": (0.9, 20000),
        "GPU-s1": (0.9, 20000),
    },
    [
        [Epoch(EXPANSE, seconds=3630), Epoch(EXPANSE)],
        [Epoch(DELTA, seconds=3630, gpus=2), Epoch(DELTA, gpus=2)],
        [_TIGHT, _TIGHT, replace(_TIGHT, mb=40), replace(_TIGHT, mb=40)],
        [_HUGE] * 3,
    ],
)

ENSEMBLES = {"usage": USAGE, "usage-trouble": USAGE_TROUBLE}

MONITOR = """\
#!/usr/bin/python3
# Reports every second how long each GPU was in use since the last report.
import time
last = time.monotonic()
while True:
    time.sleep(1)
    now = time.monotonic()
    for gpu, (share, memory) in DEVICES.items():
        print(f'SlotMergeConstraint = StringListMember("{gpu}", AssignedGPUs)')
        print(f"UptimeGPUsSeconds = {share * (now - last):.6f}")
        print(f"UptimeGPUsMemoryPeakUsage = {memory}")
        print(f"- {gpu.replace('-', '_')}", flush=True)
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
# train.py SECONDS SPIN MB KB ONLY EVICTED CODE: computes on one core for SPIN seconds, holds MB in
# memory, writes a file of KB (all this only at the site ONLY, if it is not "any"); waits at the
# site EVICTED to be evicted; prints what it used.
import json, os, re, resource, sys, time
seconds, spin, mb, kb, only, evicted, code = sys.argv[1:]
begun = time.monotonic()
machine = open(os.environ["_CONDOR_MACHINE_AD"]).read()
site = re.search('GLIDEIN_ResourceName = "(.*)"', machine)[1]
if only not in ("any", site):
    spin = mb = kb = 0
if site == evicted:
    seconds = 600
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
    "memory_mb": int(mb), "peak_mb": used.ru_maxrss / 1024, "disk_kb": int(kb),
}))
os.unlink("scratch.bin")
sys.exit(int(code))
"""

SUBMIT = """\
SUBMIT-DESCRIPTION train {
  executable = train.py
  arguments = $(seconds) $(spin) $(mb) $(kb) $(only) $(evicted) $INT(code)
  should_transfer_files = YES
  when_to_transfer_output = ON_EXIT
  requirements = TARGET.GLIDEIN_ResourceName =?= (NumJobStarts > 0 ? MY.Then : MY.First)
  request_cpus = $(cpus)
  request_gpus = $(gpus)
  request_memory = $(memory)
  request_disk = $(disk)
  ulog_execute_attrs = GLIDEIN_ResourceName, AssignedGPUs, GPUs_DeviceName
  output = $(node).$(CLUSTER).out
  error = $(node).$(CLUSTER).err
  log = metl.log
}
"""


def write(pool: Pool, ensemble: Ensemble) -> Path:
    """Write the ensemble."""
    directory = pool.directory("ensemble")
    pool.place(directory / "train.py", JOB, 0o755)
    lines = [SUBMIT]
    for run, epochs in enumerate(ensemble.runs):
        nodes = [f"run{run}-train_epoch{epoch}" for epoch in range(len(epochs))]
        for number, (node, epoch) in enumerate(zip(nodes, epochs, strict=True), 1):
            macros = {"node": node, "run_uuid": f"{run:04x}{run + 1:04x}", "epoch": number}
            macros |= asdict(epoch) | {"ResourceName": epoch.site}
            macros["evicted"] = SPARK if epoch.evicted else "nowhere"
            sites = {"First": SPARK if epoch.evicted else epoch.site, "Then": epoch.site}
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


def play(pool: Pool, directory: Path, ensemble: Ensemble) -> None:
    """Submit it, evict jobs after some time, and wait for its end."""
    pool.run(["condor_submit_dag", "ens.dag"], directory)
    ours = until(lambda: truth.dagmans(pool, directory), "DAGMan is in the queue")
    long = f"JobStatus == 2 && time() - JobCurrentStartExecutingDate >= {EVICTED_AFTER}"
    at_spark = (truth.of_dagmans(ours), 'regexp("spark", RemoteHost)', long)
    # Not all of them fit at once.
    for _ in range(ensemble.evictions):
        (ad,) = until(lambda: pool.queue(*at_spark), f"a job has run at {SPARK}")
        name = f"{ad['ClusterId']}.{ad['ProcId']}"
        pool.run(["condor_vacate_job", name])
        until(lambda: not pool.queue(*at_spark), f"{name} has left {SPARK}")
    longest = max(sum(epoch.seconds for epoch in run) for run in ensemble.runs)
    truth.until_gone(pool, directory, PATIENCE + longest)


def used(directory: Path, ensemble: Ensemble) -> dict[str, dict[str, Any]]:
    """The usage of each job's last execution, by cluster: its own account, and of its GPUs."""
    found = {}
    for path in sorted(directory.glob("run*.out")):
        node, cluster, _ = path.name.split(".")
        own = json.loads(path.read_text())
        devices = [ensemble.devices[gpu] for gpu in own["gpus"] if gpu in ensemble.devices]
        known = {"gpus_used": sum(share for share, _ in devices)} if devices else {}
        found[cluster] = {"node": node, **own, **known}
    return found


@contextmanager
def monitored(pool: Pool, ensemble: Ensemble) -> Iterator[None]:
    """Configure the pool's execution points to monitor these GPUs."""
    root = pool.script.ROOT
    file = root / "etc/condor/config.d/99-z-usage"
    monitor = MONITOR.replace("DEVICES", repr(ensemble.devices))
    pool.script.place(root / MONITOR_PATH, monitor, 0o755)
    pool.script.place(file, CONFIGURATION, 0o644)
    try:
        faults.restart(pool)
        have = ["condor_status", "-constraint", "DeviceGPUsAverageUsage >= 0", "-af", "Name"]
        until(lambda: len(pool.run(have).stdout.split()) >= 3, "three sites have the monitor", 60)
        yield
    finally:
        file.unlink()
        faults.restart(pool)


def main(name: str, fixture: Path) -> int:
    ensemble = ENSEMBLES[name]
    with (
        pool_in_use(OWN_POOL) as pool,
        monitored(pool, ensemble),
        tempfile.TemporaryDirectory() as made,
    ):
        directory = write(pool, ensemble)
        play(pool, directory, ensemble)
        new = Path(made) / "new"
        record.scrubbed(directory, new)
        for path in new.glob("run*"):
            path.unlink()
        (new / "truth.json").write_text(json.dumps(used(directory, ensemble), indent=1) + "\n")
        shutil.rmtree(fixture, ignore_errors=True)
        shutil.copytree(new, fixture)
    return 0


if __name__ == "__main__":
    named = sys.argv[1] if len(sys.argv) > 1 else "usage"
    there = HERE.parents[1] / "fixtures" / named
    sys.exit(main(named, Path(sys.argv[2]) if len(sys.argv) > 2 else there))
