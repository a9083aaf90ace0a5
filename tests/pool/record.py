"""Record an ensemble of the bundled trainer, with trouble, as a fixture.

    python tests/pool/record.py [DIRECTORY]      # default: fixtures/trainer; needs a pool

Six runs of five epochs over four sites, in under four minutes: starts that fail, starts that
are evicted, a run that diverges; a run held and released, one vacated, one whose job is
removed; then the DAG removed, and submitted again from its rescue file.

What HTCondor and DAGMan wrote is copied as it is, but: the directory is called /home/researcher
/ensemble, checkpoints are empty, and the trainer's program is left out. Beside it comes
``truth.json``, what the schedd and DAGMan themselves say became of every job
(``truth.read``). An older recording is replaced, and only when the new one is complete.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import trouble  # noqa: E402
import truth  # noqa: E402
from pools import Pool, pool_in_use, until  # noqa: E402

RUNS, EPOCHS = 6, 5
SECONDS = 4
"""That an epoch lasts: long enough to do something to it."""

FAILING = {"run1-train_epoch1": "0.8", "run1-train_epoch3": "0.5", "run4-train_epoch2": "0.8"}
"""Chance of a start to fail; RETRIES make it unlikely that a node does."""
RETRIES = 9
EVICTED = ("run2-train_epoch0", "run2-train_epoch3", "run5-train_epoch2")
"""Jobs whose first start ends after a second."""
DIVERGING = "run4"
DIVERGES_AT = 4
HOME = b"/home/researcher/ensemble"
LEFT_OUT = {"train.py", "_condor_stdout", "_condor_stderr"}


def write(pool: Pool) -> Path:
    """The ensemble's files, with a chance of trouble for each node."""
    directory = pool.base / "ensemble"
    argv = ["metlmon", "submit", "ensemble", "--yes", "--no-submit", "--retries", str(RETRIES)]
    argv += ["--runs", str(RUNS), "--epochs", str(EPOCHS), "--policy", "permute"]
    argv += ["--sites", ",".join(pool.sites.values()), "--set", f"slow_factor={SECONDS}"]
    pool.run(argv)
    submit = directory / "ensemble.sub"
    text = submit.read_text()
    for option, macro in (("fail-rate", "fail"), ("evict-after", "evict"), ("diverge-at", "nan")):
        text = re.sub(rf"--{option} 0\b", f"--{option} $({macro})", text)
    pool.place(submit, text)
    lines = []
    for run in range(RUNS):
        for epoch in range(EPOCHS):
            node = f"run{run}-train_epoch{epoch}"
            fail, evict = FAILING.get(node, "0"), "1" if node in EVICTED else "0"
            nan = DIVERGES_AT if f"run{run}" == DIVERGING else 0
            lines.append(f'VARS {node} fail="{fail}" evict="{evict}" nan="{nan}"')
    dag = directory / "ensemble.dag"
    pool.place(dag, dag.read_text() + "\n" + "\n".join(lines) + "\n")
    return directory


def play(pool: Pool, directory: Path) -> None:
    """Submit it, and act on it as people do."""
    pool.run(["condor_submit_dag", "ensemble.dag"], directory)
    _epochs_done(pool, directory, 2)
    trouble.by_command(pool, directory, "hold", "run0")
    trouble.by_command(pool, directory, "vacate", "run3")
    _epochs_done(pool, directory, 7)
    trouble.by_command(pool, directory, "remove", "run5")
    trouble.by_command(pool, directory, "release", "run0")
    _epochs_done(pool, directory, 13)
    trouble.by_command(pool, directory, "remove-dag")
    truth.until_gone(pool, directory)
    trouble.by_command(pool, directory, "resubmit")
    _epochs_done(pool, directory, RUNS * EPOCHS)
    truth.until_gone(pool, directory)


def _epochs_done(pool: Pool, directory: Path, count: int) -> None:
    ours = truth.of_dagmans(truth.dagmans(pool, directory))
    good = ("JobStatus == 4", "ExitCode =?= 0", "ExitBySignal =?= False")
    until(lambda: len(pool.history(ours, *good)) >= count, f"{count} epochs are done", 150)


def scrubbed(directory: Path, to: Path) -> None:
    """Copy the ensemble without large files and the machine's paths."""
    for path in _files(directory):
        relative = path.relative_to(directory)
        target = to / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        data = b"" if path.suffix == ".ckpt" else path.read_bytes()
        data = data.replace(str(directory).encode(), HOME)
        data = re.sub(rb"/\S*metlmon-[-\w]*pool/client\.conf", b"/etc/condor/condor_config", data)
        target.write_bytes(data)


def _files(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.name not in LEFT_OUT and not path.name.startswith("."):
            yield path


def main(fixture: Path) -> int:
    with pool_in_use({}) as pool:
        directory = write(pool)
        play(pool, directory)
        expected = truth.at_the_end(pool, directory)
        found = truth.differences(
            expected, truth.status_of(pool, directory), truth.jobs_of(pool, directory)
        )
        with tempfile.TemporaryDirectory() as made:
            new = Path(made) / "new"
            scrubbed(directory, new)
            expected.write(new / "truth.json")
            shutil.rmtree(fixture, ignore_errors=True)
            shutil.copytree(new, fixture)
    jobs = len(expected.jobs)
    executions = sum(len(job.executions) for job in expected.jobs)
    print(json.dumps({"jobs": jobs, "executions": executions, **expected.gpu_seconds}))
    for text in found:
        print(f"metlmon differs: {text}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    named = sys.argv[1:2]
    sys.exit(main(Path(named[0]) if named else HERE.parents[1] / "fixtures" / "trainer"))
