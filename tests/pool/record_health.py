"""Record one small dagdir for each kind of trouble, as fixtures of health.

    python tests/pool/record_health.py [KIND…]      # default: all; needs root, five minutes

Each (``health_kinds.py``) is played on a pool of its own (``/var/lib/metlmon-health-pool``), whose
configuration some of them change, and copied as it is at the end or in the middle, but for the
directory's name. Beside it comes ``htcondor.json``: what the schedd and DAGMan say of it at that
moment, from ``condor_q``, ``condor_history`` and DAGMan's metrics. Left out are empty outputs,
``*.bin``, and what checkpoints contain.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import faults  # noqa: E402
from health_ensembles import Ensemble  # noqa: E402
from health_kinds import PLAYS  # noqa: E402
from pools import Pool, pool_in_use  # noqa: E402
from record import scrubbed  # noqa: E402

FIXTURES = HERE.parents[1] / "fixtures" / "health"
OWN_POOL = {"METLMON_POOL": "/var/lib/metlmon-health-pool", "METLMON_POOL_PORT": "9641"}
AT_ONCE = 4

JOB_ATTRIBUTES = (
    *("JobStatus", "HoldReasonCode", "HoldReasonSubCode", "HoldReason", "RemoveReason"),
    *("ExitCode", "ExitBySignal", "NumJobStarts", "EnteredCurrentStatus"),
)


def ask_htcondor(made: Ensemble) -> dict[str, Any]:
    """The schedd's present ads of DAGMan and its jobs, and DAGMan's metrics."""
    ours = made.dagmans
    both = " || ".join([made.of_dag, *(f"ClusterId == {each}" for each in ours)])
    ads = {(ad["ClusterId"], ad["ProcId"]): ad for ad in made.pool.history(both)}
    queued = {(ad["ClusterId"], ad["ProcId"]): ad for ad in made.pool.queue(both)}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    result: dict[str, Any] = {"recorded": now, "dagman": [], "jobs": [], "metrics": None}
    for key, ad in sorted((ads | queued).items()):
        answers = {"job": f"{key[0]}.{key[1]}", "in_queue": key in queued}
        answers |= {name: ad[name] for name in JOB_ATTRIBUTES if name in ad}
        if key[0] in ours:
            result["dagman"].append(answers)
        else:
            result["jobs"].append({"node": ad["DAGNodeName"], **answers})
    metrics = made.directory / f"{made.dag}.metrics"
    if metrics.exists():
        wanted = ("jobs", "jobs_succeeded", "jobs_failed", "exitcode", "rescue_dag_number")
        found = json.loads(metrics.read_text())
        result["metrics"] = {name: found.get(name) for name in wanted}
    return result


def record(pool: Pool, name: str) -> None:
    """Play one kind and replace its recording."""
    made = PLAYS[name][0](pool)
    answers = ask_htcondor(made)
    with tempfile.TemporaryDirectory() as temporary:
        new = Path(temporary) / name
        scrubbed(made.directory, new)
        for path in [*new.glob("run*"), *new.glob("*.bin")]:
            if path.suffix == ".bin" or not path.stat().st_size:
                path.unlink()
        text = json.dumps(answers, indent=1).replace(
            str(made.directory), "/home/researcher/ensemble"
        )
        (new / "htcondor.json").write_text(text + "\n")
        shutil.rmtree(FIXTURES / name, ignore_errors=True)
        shutil.copytree(new, FIXTURES / name)
    pool.remove_everything_below(made.directory)
    print(name, "is recorded", flush=True)


def configure(pool: Pool, text: str) -> None:
    """Give the pool this configuration besides its own."""
    assert pool.script is not None
    text = f"PERIODIC_EXPR_INTERVAL = 5\n{text}"
    pool.script.place(pool.script.ROOT / "etc/condor/config.d/99-z-health", text, 0o644)
    faults.administer(pool, "condor_reconfig")


def main(names: Sequence[str]) -> int:
    wanted = sorted(names or PLAYS, key=lambda name: PLAYS[name][1])
    failed = 0
    with pool_in_use(OWN_POOL) as pool:
        for config, group in groupby(wanted, key=lambda name: PLAYS[name][1]):
            configure(pool, config)
            with ThreadPoolExecutor(AT_ONCE) as threads:
                plays = {name: threads.submit(record, pool, name) for name in group}
            for name, play in plays.items():
                if problem := play.exception():
                    failed += 1
                    print(f"{name}: {problem!r}", file=sys.stderr)
        configure(pool, "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
