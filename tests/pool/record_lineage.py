"""Record an ensemble whose checkpoints have provenance, on HTCondor 25.11 or later.

    python tests/pool/record_lineage.py [DIRECTORY]      # default: fixtures/lineage; needs a pool

Three runs of four epochs of the bundled trainer, in a minute. run1: the first job of epoch 2 fails
after it has trained it, and the second one only finds that it is done. run2: before epoch 3 its
checkpoint is replaced by one that was trained elsewhere, with another learning rate. The submit
file asks for run, uuid and epoch in event 000, so the version matters (Debian's development
distribution has 25.14.1). Copied as ``record.py`` copies; the directory is called
/home/researcher/lineage.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import record  # noqa: E402
import truth  # noqa: E402
from pools import Pool, pool_in_use  # noqa: E402

RUNS, EPOCHS, SECONDS = 3, 4, 2
WRAPPER = """\
#!/bin/sh
# Trains, and fails afterwards in the first try of a node that has fail_after.
fail_after=$1; shift
python3 train.py "$@" || exit
[ "$fail_after" != 0 ] || exit 0
exit 3
"""
RESTORE = """\
#!/bin/sh
# Replaces the checkpoint of a run by one that was trained with another learning rate.
python3 train.py --output elsewhere --uuid "$1" --seed 3 --max-epochs 4 --stop-after-epoch 2 \\
    --learning-rate 0.05 > /dev/null || exit
cp elsewhere/training_logs/"$1"/checkpoints/last.ckpt output/training_logs/"$1"/checkpoints/
rm -r elsewhere
"""


def write(pool: Pool) -> Path:
    """Write the ensemble, with trouble in two of its runs."""
    directory = pool.base / "lineage"
    argv = ["metlmon", "submit", "lineage", "--yes", "--no-submit", "--retries", "1"]
    argv += ["--runs", str(RUNS), "--epochs", str(EPOCHS), "--policy", "permute", "--no-gate"]
    argv += ["--sites", ",".join(pool.sites.values()), "--set", f"slow_factor={SECONDS}"]
    pool.run(argv)
    submit = directory / "ensemble.sub"
    text = submit.read_text().replace("executable = train.py\n", "executable = wrapper.sh\n")
    text = text.replace("arguments = --uuid", "arguments = $(fail_after) --uuid", 1)
    text = text.replace(
        "transfer_input_files = $(cont", "transfer_input_files = train.py, $(cont", 1
    )
    pool.place(submit, text)
    for name, content in (("wrapper.sh", WRAPPER), ("restore.sh", RESTORE)):
        pool.place(directory / name, content)
        (directory / name).chmod(0o755)
    dag = directory / "ensemble.dag"
    lines = [
        f'VARS run{run}-train_epoch{epoch} fail_after="{fail_after}"'
        for run in range(RUNS)
        for epoch in range(EPOCHS)
        # Evaluated at each submission: 1 in the first try, 0 in the second.
        for fail_after in ("$INT(left)" if (run, epoch) == (1, 1) else "0",)
    ]
    lines.append('VARS run1-train_epoch1 left="1 - $(RETRY)"')
    uuid = next(line for line in dag.read_text().splitlines() if "VARS run2-" in line)
    uuid = uuid.partition('run_uuid="')[2].partition('"')[0]
    lines.append(f"SCRIPT PRE run2-train_epoch2 restore.sh {uuid}")
    pool.place(dag, dag.read_text() + "\n" + "\n".join(lines) + "\n")
    return directory


def main(fixture: Path) -> int:
    with pool_in_use({}) as pool, tempfile.TemporaryDirectory() as made:
        directory = write(pool)
        pool.run(["condor_submit_dag", "ensemble.dag"], directory)
        record._epochs_done(pool, directory, RUNS * EPOCHS)
        truth.until_gone(pool, directory)
        record.HOME = b"/home/researcher/lineage"
        record.scrubbed(directory, Path(made) / "new")
        shutil.rmtree(fixture, ignore_errors=True)
        shutil.copytree(Path(made) / "new", fixture)
    return 0


if __name__ == "__main__":
    named = sys.argv[1:2]
    sys.exit(main(Path(named[0]) if named else HERE.parents[1] / "fixtures" / "lineage"))
