"""An ensemble on the pool for every kind of trouble."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from contextlib import suppress

import truth
from health_ensembles import (
    AT_TARGET,
    END_SECONDS,
    JOB,
    SOON,
    Ensemble,
    control_groups,
    small_disk,
    write,
)
from pools import Pool, until

HELD_FOR = {
    1: ["periodic_hold = " + SOON, 'periodic_hold_reason = "loss is NaN"'],
    2: ["max_transfer_input_mb = 1", "transfer_input_files = pad.bin"],
    3: ["max_transfer_output_mb = 1", "transfer_output_files = output, big.bin"],
    4: ["transfer_output_files = output, metrics.csv"],
    5: ["transfer_input_files = epoch0.ckpt"],
    6: [
        "allowed_execute_duration = 4",
        'My.PreCmd = "pause.sh"',
        "transfer_input_files = pause.sh",
    ],
    7: ["allowed_job_duration = 4"],
}
"""Lines of a submit description after which HTCondor holds the run's job. Without the pause the
shadow takes the beginning of the execution for an older one's: it is in its own first second."""

PAUSE = "#!/bin/sh\nsleep 3\n"


def hold_codes(pool: Pool) -> Ensemble:
    """Each run is held for another reason; run0 by its user."""
    slow = {f"run{run}-train_epoch0": {"seconds": "90"} for run in (0, 1, 6, 7)}
    made = write(pool, "hold-codes", 8, nodes=slow, submit=HELD_FOR)
    with_big = JOB.replace("sleep", "head -c 2000000 /dev/zero > big.bin\nsleep", 1)
    pool.place(made.directory / "train.sh", with_big, 0o755)
    pool.place(made.directory / "pad.bin", bytes(2_000_000))
    pool.place(made.directory / "pause.sh", PAUSE, 0o755)
    made.submit()
    pool.run(["condor_hold", *made.until_executing(1, "run0")])
    made.until_jobs(truth.HELD, 8)
    return made.until_quiet()


def policy_removal(pool: Pool) -> Ensemble:
    """The job's own policy holds two runs, and removes them after 10 s."""
    policy = [
        "periodic_hold = " + SOON,
        "periodic_remove = JobStatus == 5 && time() - EnteredCurrentStatus > 10",
    ]
    slow = {f"run{run}-train_epoch0": {"seconds": "90"} for run in (0, 1)}
    made = write(pool, "policy-removal", nodes=slow, submit={0: policy, 1: policy})
    made.submit()
    return made.until_ended()


SYSTEM_POLICY = """\
SYSTEM_PERIODIC_REMOVE = (JobUniverse == 5) && \\
  (JobStatus == 5 && time() - EnteredCurrentStatus > 30)
"""


def system_policy_removal(pool: Pool) -> Ensemble:
    """The access point removes four runs that were held for different reasons."""
    slow = {"run0-train_epoch0": {"seconds": "90"}}
    causes = {0: HELD_FOR[6], 1: HELD_FOR[2], 2: HELD_FOR[4], 3: HELD_FOR[4]}
    made = write(pool, "system-policy-removal", 4, nodes=slow, submit=causes)
    pool.place(made.directory / "pad.bin", bytes(2_000_000))
    pool.place(made.directory / "pause.sh", PAUSE, 0o755)
    made.submit()
    return made.until_ended()


def system_policy_clock(pool: Pool) -> Ensemble:
    """That policy has removed one run, and will remove another held one."""
    causes = {0: HELD_FOR[4], 1: HELD_FOR[4]}
    late = {"run1-train_epoch0": {"seconds": "25"}, "run2-train_epoch0": {"seconds": "90"}}
    made = write(pool, "removal-clock", nodes=late, submit=causes)
    made.submit()
    until(
        lambda: pool.history(made.of_dag, "JobStatus == 3") and made.jobs(truth.HELD),
        "one is removed, one is held",
        END_SECONDS,
    )
    return made


SYSTEM_HOLD = """\
SYSTEM_PERIODIC_HOLD = (JobUniverse == 5) && (JobStatus == 2 && time() - EnteredCurrentStatus > 8)
SYSTEM_PERIODIC_HOLD_REASON = "Job ran for longer than this access point allows"
SYSTEM_PERIODIC_HOLD_SUBCODE = 7
"""


def system_policy_hold(pool: Pool) -> Ensemble:
    """The access point's policy holds two runs."""
    slow = {f"run{run}-train_epoch0": {"seconds": "90"} for run in (0, 1)}
    made = write(pool, "system-policy-hold", nodes=slow)
    made.submit()
    made.until_jobs(truth.HELD, 2)
    made.until_done("run2-train_epoch1")
    return made.until_quiet()


def removed_by_user(pool: Pool) -> Ensemble:
    """condor_rm of one run's job; the others end well."""
    made = write(pool, "removed-by-user", nodes={"run0-train_epoch0": {"seconds": "90"}})
    made.submit()
    pool.run(["condor_rm", *made.until_executing(1, "run0")])
    return made.until_ended()


def dag_removed(pool: Pool) -> Ensemble:
    """condor_rm of DAGMan's job while all three runs train."""
    made = write(pool, "dag-removed", seconds=60)
    made.submit()
    made.until_executing(3)
    pool.run(["condor_rm", str(made.dagmans[0])])
    return made.until_ended()


def dag_held(pool: Pool) -> Ensemble:
    """condor_hold of DAGMan's job; running jobs end, and none follow."""
    made = write(pool, "dag-held", seconds=30)
    made.submit()
    made.until_executing(3)
    pool.run(["condor_hold", str(made.dagmans[0])])
    until(lambda: not made.jobs(truth.RUNNING), "its jobs end", END_SECONDS)
    return made.until_quiet()


def script_failed(when: str) -> Callable[[Pool], Ensemble]:
    """The PRE or POST script of run0's first epoch exits with 2."""

    def play(pool: Pool) -> Ensemble:
        lines = [f"SCRIPT {when} run0-train_epoch0 check.sh"]
        made = write(pool, f"{when.lower()}-failed", lines=lines)
        pool.place(made.directory / "check.sh", "#!/bin/sh\nexit 2\n", 0o755)
        made.submit()
        return made.until_ended()

    return play


def hold_script(pool: Pool) -> Ensemble:
    """run0's job is held for a missing output file, and its HOLD script fails."""
    lines = ["SCRIPT HOLD run0-train_epoch0 check.sh"]
    made = write(pool, "hold-script", submit={0: HELD_FOR[4]}, lines=lines)
    pool.place(made.directory / "check.sh", "#!/bin/sh\necho ran > hold.ran\nexit 2\n", 0o755)
    made.submit()
    made.until_jobs(truth.HELD, 1)
    made.until_done("run2-train_epoch1")
    made.until_done("run1-train_epoch1")
    return made.until_quiet()


def submit_failed(pool: Pool) -> Ensemble:
    """A parenthesis is missing in run0's requirements, so that its submission fails."""
    made = write(pool, "submit-failed", submit={0: ["requirements = (TARGET.HasGPU"]})
    made.submit()
    return made.until_ended()


def retries_exhausted(pool: Pool) -> Ensemble:
    """run0's first epoch exits with 3 in all of its three tries; its other two are futile."""
    code = {"run0-train_epoch0": {"code": "3"}}
    made = write(pool, "retries-exhausted", epochs=3, nodes=code, lines=["RETRY ALL_NODES 2"])
    made.submit()
    return made.until_ended()


def no_further(pool: Pool) -> Ensemble:
    """Every run fails in its first epoch."""
    code = {f"run{run}-train_epoch0": {"code": "3"} for run in range(3)}
    made = write(pool, "no-further", nodes=code)
    made.submit()
    return made.until_ended()


EATS = """\
#!/bin/sh
# train.sh SECONDS CODE: takes 600 MB where SECONDS are many.
mkdir -p output
[ "$1" -lt 10 ] || exec python3 -c "
import time
taken = []
for _ in range(60):
    taken.append(bytearray(10_000_000))
    time.sleep(0.1)
"
exit "$2"
"""


def memory(pool: Pool) -> Ensemble:
    """Two runs take more memory than their slots have; the kernel kills them."""
    eats = {f"run{run}-train_epoch0": {"seconds": "60"} for run in (0, 1)}
    made = write(pool, "memory", nodes=eats)
    pool.place(made.directory / "train.sh", EATS, 0o755)
    with control_groups(pool):
        made.submit()
        made.until_jobs(truth.HELD, 2)
        made.until_done("run2-train_epoch1")
        made.until_quiet()
    return made


def quota(pool: Pool) -> Ensemble:
    """Checkpoints of 1.5 MB go to a disk of 4 MB, which has no room for the third run's."""
    script = JOB.replace("sleep", "head -c 1500000 /dev/zero > last.ckpt\nsleep", 1)
    checkpoint = [
        "transfer_output_files = last.ckpt",
        'transfer_output_remaps = "last.ckpt=checkpoints/$(node).ckpt"',
    ]
    waits = {
        f"run{run}-train_epoch{epoch}": {"seconds": str(2 + 6 * run)}
        for run in range(3)
        for epoch in range(2)
    }
    made = write(pool, "quota", nodes=waits, submit={-1: checkpoint})
    pool.place(made.directory / "train.sh", script, 0o755)
    checkpoints = made.directory / "checkpoints"
    checkpoints.mkdir()
    pool.give(checkpoints)
    with small_disk(pool, checkpoints):
        made.submit()
        until(lambda: made.jobs(truth.HELD) and not made.jobs(truth.RUNNING), "held", END_SECONDS)
        made.until_quiet()
    return made


def black_hole(pool: Pool) -> Ensemble:
    """In the second epoch every job at Expanse-GPU fails at once; elsewhere jobs succeed. The first
    two tries of a node prefer that site, which is the first one to be free again."""
    broken = {
        f"run{run}-train_epoch{epoch}": {"broken": "Expanse-GPU", "tries": "$(RETRY)"}
        for run in range(6)
        for epoch in range(2)
    }
    first = '$(tries) < 2 && TARGET.GLIDEIN_ResourceName =?= "Expanse-GPU"'
    prefers = [
        f"rank = ifThenElse({first}, 100, 0)",
        'requirements = $(tries) < 2 || TARGET.GLIDEIN_ResourceName =!= "Expanse-GPU"',
    ]
    made = write(
        pool,
        "black-hole",
        6,
        seconds=40,
        nodes=broken,
        submit={-1: prefers},
        lines=["RETRY ALL_NODES 4"],
    )
    made.submit()
    at_fault = "JobStatus == 4 && ExitCode == 1"
    until(lambda: len(pool.history(made.of_dag, at_fault)) >= 8, "8 jobs die", END_SECONDS)
    return made.until_quiet()


PLUGIN = """\
#!/bin/sh
# A transfer plugin of a server that accepts and then sends nothing.
if [ "$1" = -classad ]; then
    printf 'PluginVersion = "0.1"\\nPluginType = "FileTransfer"\\nSupportedMethods = "slow"\\n'
    printf 'MultipleFileSupport = true\\n'
    exit 0
fi
exec sleep 600
"""


def stalled_transfer(pool: Pool) -> Ensemble:
    """The input of run0 comes from a server that sends nothing; that of the others arrives."""
    slow = [
        "transfer_plugins = slow=plugin.sh",
        "transfer_input_files = slow://data.example.org/corpus.tar",
    ]
    usual = {run: ["transfer_input_files = check.txt"] for run in (1, 2, 3)}
    made = write(pool, "stalled-transfer", 4, submit={0: slow, **usual})
    pool.place(made.directory / "plugin.sh", PLUGIN, 0o755)
    pool.place(made.directory / "check.txt", "data\n")
    made.submit()
    for run in (1, 2, 3):
        made.until_done(f"run{run}-train_epoch1")
    return made.until_quiet()


def unmatched(pool: Pool) -> Ensemble:
    """run0 requests a site that does not exist; the others request real ones."""
    sites = ["Mars-GPU", *list(pool.sites.values())[:2]]
    made = write(pool, "unmatched", sites=sites, submit={-1: [AT_TARGET]})
    made.submit()
    made.until_done("run1-train_epoch1")
    made.until_done("run2-train_epoch1")
    return made.until_quiet()


def wrong_site(pool: Pool) -> Ensemble:
    """All request Delta-GPU by name; their requirements allow only the other sites."""
    elsewhere = ['requirements = TARGET.GLIDEIN_ResourceName =!= "Delta-GPU"']
    slow = {f"run{run}-train_epoch1": {"seconds": "150"} for run in range(3)}
    submit = {-1: elsewhere, 3: [AT_TARGET]}
    made = write(pool, "wrong-site", 4, sites=["Delta-GPU"], nodes=slow, submit=submit)
    made.submit()
    made.until_done("run3-train_epoch1")
    made.until_executing(3)
    return made.until_quiet()


def diverged(pool: Pool) -> Ensemble:
    """The bundled trainer; run1 diverges in its second epoch, and is in its fourth."""
    made = Ensemble(pool, pool.base / "diverged", "ensemble.dag")
    argv = ["metlmon", "submit", "diverged", "--yes", "--no-submit", "--runs", "3"]
    argv += ["--epochs", "4", "--set", "slow_factor=6"]
    pool.run([*argv, "--sites", ",".join(pool.sites.values())])
    submit = made.directory / "ensemble.sub"
    pool.place(submit, re.sub(r"--diverge-at 0\b", "--diverge-at $(nan)", submit.read_text()))
    dag = made.directory / "ensemble.dag"
    nodes = [line.split()[1] for line in dag.read_text().splitlines() if line.startswith("JOB ")]
    macros = [f'VARS {node} nan="{2 if node.startswith("run1-") else 0}"' for node in nodes]
    pool.place(dag, "\n".join([dag.read_text(), *macros, ""]))
    made.submit()
    made.until_done("run1-train_epoch2")
    made.until_executing(1, "run1-train_epoch3")
    return made


def log_gap(pool: Pool) -> Ensemble:
    """The DAG is removed while the disk of its logs is full, so that no end is logged (the schedd
    knows it); it is submitted again once there is room. Where DAGMan's lock file could not be
    removed, DAGMan recovers from the cut log and gives up: that is ``dag-failed``."""
    made = write(pool, "log-gap", seconds=12)
    own = {path.name: path.read_bytes() for path in made.directory.iterdir()}
    kept = made.directory.with_name("log-gap-kept")
    with small_disk(pool, made.directory):
        for name, data in own.items():
            pool.place(made.directory / name, data, 0o755)
        made.submit()
        made.until_executing(3)
        filler = made.directory / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        pool.run(["condor_rm", str(made.dagmans[0])])
        made.until_ended()
        filler.unlink()
        made.submit()
        made.until_ended()
        shutil.copytree(made.directory, kept)
    shutil.copytree(kept, made.directory, dirs_exist_ok=True)
    return made


def rescue_missing(pool: Pool) -> Ensemble:
    """The DAG is removed in mid-run; then its rescue file is deleted."""
    made = write(pool, "rescue-missing", seconds=5)
    made.submit()
    made.until_done("run0-train_epoch0")
    pool.run(["condor_rm", str(made.dagmans[0])])
    made.until_ended()
    (made.directory / "ens.dag.rescue001").unlink()
    return made


def dag_changed(pool: Pool) -> Ensemble:
    """A run is added to the DAG file while its DAGMan runs."""
    made = write(pool, "dag-changed", seconds=6)
    made.submit()
    made.until_executing(3)
    text = (made.directory / "ens.dag").read_text()
    added = [line for line in text.splitlines() if line.startswith(("JOB run2", "VARS run2"))]
    added = [line.replace("run2", "run3").replace("00020003", "00030004") for line in added]
    added.append("PARENT run3-train_epoch0 CHILD run3-train_epoch1\n")
    pool.place(made.directory / "ens.dag", text + "\n".join(added))
    return made.until_ended()


def healthy_done(pool: Pool) -> Ensemble:
    """No trouble, at its end."""
    made = write(pool, "healthy-done")
    made.submit()
    return made.until_ended()


def healthy_running(pool: Pool) -> Ensemble:
    """No trouble, in the middle of its second epoch."""
    slow = {f"run{run}-train_epoch1": {"seconds": "60"} for run in range(3)}
    made = write(pool, "healthy-running", nodes=slow)
    made.submit()
    made.until_executing(3, "run")
    until(lambda: all("epoch1" in ad["DAGNodeName"] for ad in made.jobs(truth.RUNNING)), "epoch 2")
    made.until_executing(3)
    return made.until_quiet()


PLAYS: dict[str, tuple[Callable[[Pool], Ensemble], str]] = {
    "hold-codes": (hold_codes, ""),
    "policy-removal": (policy_removal, ""),
    "removed-by-user": (removed_by_user, ""),
    "dag-removed": (dag_removed, ""),
    "dag-held": (dag_held, ""),
    "pre-failed": (script_failed("PRE"), ""),
    "post-failed": (script_failed("POST"), ""),
    "hold-script": (hold_script, ""),
    "submit-failed": (submit_failed, ""),
    "retries-exhausted": (retries_exhausted, ""),
    "no-further": (no_further, ""),
    "quota": (quota, ""),
    "black-hole": (black_hole, ""),
    "stalled-transfer": (stalled_transfer, ""),
    "unmatched": (unmatched, ""),
    "wrong-site": (wrong_site, ""),
    "diverged": (diverged, ""),
    "log-gap": (log_gap, ""),
    "rescue-missing": (rescue_missing, ""),
    "dag-changed": (dag_changed, ""),
    "healthy-done": (healthy_done, ""),
    "healthy-running": (healthy_running, ""),
    "memory": (memory, "CGROUP_MEMORY_LIMIT_POLICY = hard\nBASE_CGROUP = htcondor\n"),
    "system-policy-removal": (system_policy_removal, SYSTEM_POLICY),
    "removal-clock": (system_policy_clock, SYSTEM_POLICY),
    "system-policy-hold": (system_policy_hold, SYSTEM_HOLD),
}
"""Every kind: what plays it, and the configuration of the pool that it needs."""
