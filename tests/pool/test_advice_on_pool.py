"""Advice applied to a real ensemble: its next epochs leave the site where every job fails."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
import truth
from pools import SLOT_SECONDS, Ad, Pool, until

from tests.pool import new_ensemble, site_ensemble
from tests.pool.site_ensemble import Sites

RUNS, EPOCHS = 6, 6
MAX_EPOCHS = 2
"""Of a run, tried at the failing site."""
DECIDED_SECONDS = 4
"""From the gate's decision to the submission of the job, and a second of either clock."""
SENT_BEFORE = "run0"


@dataclass(frozen=True, slots=True)
class AdvisedEnsemble:
    """An ensemble at its end. ``applied``: the log of applications while they were made.

    ``is_inferred``: whether a plan then was made from logs alone.

    Requests to the gates by run: ``before`` the first application, ``advised``, and ``undone``.
    ``expected``, ``history``: its executions and ads, from HTCondor.
    """

    written: new_ensemble.NewEnsemble
    sites: Sites
    applied: list[dict[str, Any]]
    is_inferred: bool
    before: dict[str, str]
    advised: dict[str, str]
    undone: dict[str, str]
    undone_at: float
    expected: truth.Truth
    history: dict[int, Ad]

    def changes(self, run: str) -> list[tuple[float, dict[str, Any]]]:
        """The changes of a run, with their times."""
        return [
            (seconds(record["time"]), change)
            for record in self.applied
            for change in record["changes"]
            if change["run"] == run
        ]


@pytest.fixture(scope="module")
def advised(pool: Pool) -> AdvisedEnsemble:
    if len(pool.sites) < 4:
        pytest.skip(f"this HTCondor's slots name {len(pool.sites)} sites, not 4")
    sites = Sites.of_pool(pool)
    ensemble = site_ensemble.write(
        pool, "advised", runs=RUNS, epochs=EPOCHS, seconds=3, slow_seconds=9
    )
    ensemble.submit()
    first = f"{SENT_BEFORE}-train_epoch0"
    until(lambda: ensemble.was_submitted(first), "the first epoch is submitted")
    ensemble.act("send", SENT_BEFORE, "--to", sites.good[0])
    before = requests(ensemble)
    with site_ensemble.advice(ensemble, "5s"):
        until(lambda: begins_last_epoch(ensemble), "a run begins its last epoch", SLOT_SECONDS)
    planned = pool.run(["metlmon", "advise", ".", "--json"], ensemble.directory).stdout
    requested, applied = requests(ensemble), applications(ensemble)
    argv = ["metlmon", "advise", ".", "--undo", "--yes"]
    pool.run(argv, ensemble.directory, expect=None)
    undone, undone_at = requests(ensemble), applications(ensemble)[-1]["time"]
    truth.until_gone(pool, ensemble.directory, new_ensemble.END_SECONDS)
    return AdvisedEnsemble(
        written=ensemble,
        sites=sites,
        applied=applied,
        is_inferred=json.loads(planned)["plan"]["inferred"],
        before=before,
        advised=requested,
        undone=undone,
        undone_at=seconds(undone_at),
        expected=truth.at_the_end(pool, ensemble.directory),
        history={ad["ClusterId"]: ad for ad in pool.history(ensemble.of_dag)},
    )


def seconds(time: str) -> float:
    return truth.seconds(time.removesuffix("Z"))


def requests(ensemble: new_ensemble.NewEnsemble) -> dict[str, str]:
    """The site that each run's gate is asked for."""
    folder = ensemble.directory / "gate" / ensemble.name
    runs = {str(each["uuid"]): str(each["name"]) for each in ensemble.report_of["runs"]}
    return {runs[path.stem]: path.read_text().strip() for path in folder.glob("*.target")}


def applications(ensemble: new_ensemble.NewEnsemble) -> list[dict[str, Any]]:
    log = ensemble.directory / "gate" / ensemble.name / "advice.log"
    return [json.loads(line) for line in log.read_text().splitlines()]


def begins_last_epoch(ensemble: new_ensemble.NewEnsemble) -> bool:
    return any(ensemble.was_submitted(f"run{run}-train_epoch{EPOCHS - 1}") for run in range(RUNS))


def test_no_epoch_runs_at_a_site_that_the_advice_excludes(advised: AdvisedEnsemble) -> None:
    """The placement of a job is that of the last application before its gate decided."""
    checked = 0
    for job in advised.expected.jobs:
        changes = advised.changes(job.node.split("-")[0])
        submitted = advised.history[job.cluster]["QDate"]
        decided = submitted - DECIDED_SECONDS
        earlier = [change["after"] for at, change in changes if at < decided]
        later = [change["after"] for at, change in changes if decided <= at <= submitted]
        if not earlier or submitted >= advised.undone_at:
            continue
        allowed = "|".join([earlier[-1], *later]).split("|")
        for execution in job.executions:
            assert execution.site in allowed, (job.node, changes)
            checked += 1
    # The pool decides how many gates there are between the first application and the end.
    assert checked >= RUNS // 2


def test_all_runs_leave_the_failing_site_within_two_epochs(advised: AdvisedEnsemble) -> None:
    for run in range(RUNS):
        tried = {
            job.node
            for job in advised.expected.jobs
            for each in job.executions
            if job.node.startswith(f"run{run}-")
            and each.site == advised.sites.failing
            and each.start < advised.undone_at
        }
        assert len(tried) <= MAX_EPOCHS, sorted(tried)
    # One epoch at a time may try it again.
    assert sum(advised.sites.failing in sites for sites in advised.advised.values()) <= 1


def test_plan_uses_the_slots_of_the_collector(advised: AdvisedEnsemble) -> None:
    assert not advised.is_inferred


def test_running_jobs_are_not_touched(advised: AdvisedEnsemble) -> None:
    """Each job started once, and ended by itself."""
    for ad in advised.history.values():
        assert (ad["NumJobStarts"], ad["JobStatus"]) == (1, truth.COMPLETED), ad["DAGNodeName"]
        assert not {"VacateReason", "HoldReason", "RemoveReason"} & ad.keys(), ad["DAGNodeName"]


def test_log_has_each_application_with_its_reason(advised: AdvisedEnsemble) -> None:
    for run, sites in advised.advised.items():
        changes = [change for _, change in advised.changes(run)]
        assert changes[-1]["after"] == sites
        assert all(change["reason"] for change in changes), changes
        assert [change["before"] for change in changes] == [
            advised.before.get(run),
            *(change["after"] for change in changes[:-1]),
        ]
    assert len(advised.advised) == RUNS


def test_undo_restores_the_former_requests(advised: AdvisedEnsemble) -> None:
    assert advised.before == {SENT_BEFORE: advised.sites.good[0]}
    assert advised.undone == advised.before
