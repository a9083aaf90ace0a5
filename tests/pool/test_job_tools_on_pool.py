"""condor_q -better-analyze and condor_tail on real jobs, called as a screen does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pools import Pool, until

ASK = """
import sys
from metlmon.pool.job_tools import ANALYZE, TAIL
from metlmon.pool.types import PoolError
try:
    job = int(sys.argv[2]), int(sys.argv[3])
    print(*{"analyze": ANALYZE, "tail": TAIL}[sys.argv[1]].run(job), sep="\\n")
except PoolError as error:
    print("refused:", error)
"""

SUBMIT = """
executable = /bin/sh
arguments = "-c 'echo epoch 3 val_loss 0.25; sleep 600'"
output = job.out
log = job.log
request_memory = 16
should_transfer_files = yes
queue
requirements = TARGET.NoSuchAttribute == 7
queue
"""


@pytest.fixture(scope="module")
def jobs(pool: Pool) -> Iterator[tuple[Path, int]]:
    """A cluster whose job 0 runs, and whose job 1 has requirements that nothing meets."""
    directory = pool.directory("tools")
    pool.place(directory / "job.sub", SUBMIT)
    done = pool.run(["condor_submit", "-terse", "job.sub"], directory)
    cluster = int(done.stdout.split(".")[0])
    pool.running(1, f"ClusterId == {cluster}")
    yield directory, cluster
    pool.run(["condor_rm", str(cluster)], directory)


def ask(pool: Pool, directory: Path, tool: str, *job: int) -> str:
    return pool.run([sys.executable, "-c", ASK, tool, *map(str, job)], directory).stdout


def test_tail_reads_the_output_of_a_running_job(pool: Pool, jobs: tuple[Path, int]) -> None:
    directory, cluster = jobs
    printed = "epoch 3 val_loss 0.25"
    until(lambda: printed in ask(pool, directory, "tail", cluster, 0), "nothing is printed")
    assert not any(path.read_bytes() for path in directory.glob("job.out"))


def test_analysis_says_why_a_job_is_idle(pool: Pool, jobs: tuple[Path, int]) -> None:
    directory, cluster = jobs
    assert "NoSuchAttribute" in ask(pool, directory, "analyze", cluster, 1)


def test_tail_of_an_unknown_job_is_refused(pool: Pool, jobs: tuple[Path, int]) -> None:
    assert ask(pool, jobs[0], "tail", 99999999, 0).startswith("refused: condor_tail: ")
