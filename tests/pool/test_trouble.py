"""An ensemble that fails, is evicted, held, released, vacated, removed and rescued: its jobs agree
with the queue at every quiet moment, and its end with DAGMan."""

from __future__ import annotations

from pathlib import Path

import pytest
import trouble
import truth
from pools import Pool, until

RUNS, EPOCHS = 4, 4


@pytest.fixture(scope="module")
def troubled(pool: Pool) -> Path:
    """A submitted DAG; each job's first start ends after a second, and some starts fail."""
    directory = pool.base / "troubled"
    argv = ["metlmon", "submit", "troubled", "--yes", "--retries", "9"]
    argv += ["--runs", str(RUNS), "--epochs", str(EPOCHS), "--set", "slow_factor=5"]
    argv += ["--set", "fail_rate=0.25", "--set", "evict_after=1"]
    if len(pool.sites) > 1:
        argv += ["--sites", ",".join(pool.sites.values()), "--policy", "permute"]
    pool.run(argv)
    return directory


def test_states_agree_with_the_queue_and_at_the_end_with_dagman(pool: Pool, troubled: Path) -> None:
    trouble.by_command(pool, troubled, "hold", "run0")
    # This run trains after the rescue, however long that takes, so the ensemble is not done before.
    trouble.by_command(pool, troubled, "hold", "run3")
    with pool.terminal(trouble.WATCH, troubled) as screen:
        # First, since on a busy machine run1 is over soon.
        trouble.by_keys(screen, "run1", "V")
        trouble.by_keys(screen, "run2", "X")
        assert "held" in truth.quiet_moment(pool, troubled)
        trouble.by_keys(screen, "run0", "R")
        truth.quiet_moment(pool, troubled)
        trouble.remove_dag_by_keys(screen)
        truth.until_gone(pool, troubled)
        screen.wait_for_match("removed")
        between = truth.at_the_end(pool, troubled)
        result = truth.status_of(pool, troubled)
        assert truth.differences(between, result, truth.jobs_of(pool, troubled)) == []
        assert result["dags"][0]["state"] == "removed"
        trouble.by_command(pool, troubled, "resubmit")
        until(
            lambda: truth.status_of(pool, troubled)["dags"][0]["rescue"] == 1,
            "DAGMan is submitted again",
        )
        trouble.by_command(pool, troubled, "hold", "run3")
        assert "held" in truth.quiet_moment(pool, troubled)
        trouble.by_command(pool, troubled, "release", "run3")
        screen.wait_for_match("✓ done")
        screen.press("Q")
        assert screen.end() == 0
    truth.until_gone(pool, troubled)
    expected = truth.at_the_end(pool, troubled)
    assert (
        truth.differences(expected, truth.status_of(pool, troubled), truth.jobs_of(pool, troubled))
        == []
    )
    assert {"completed", "removed"} <= {job.state for job in expected.jobs}
    interrupted = [job for job in expected.jobs if len(job.executions) > 1]
    assert len(interrupted) >= RUNS, "each run's first start was evicted"
    assert expected.totals.done == RUNS * EPOCHS
