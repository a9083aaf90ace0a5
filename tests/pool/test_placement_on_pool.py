"""Retargeting in a running DAG: an idle epoch is retargeted, later epochs are sent to other sites,
and HTCondor's log and metlmon agree that they ran there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import recount
import truth
from pools import Pool, until

from tests.pool import new_ensemble

EPOCHS = 3
NOWHERE = "Nowhere-GPU"
"""A site that no machine is at: what is pinned to it stays idle."""

PINNED, AWAY = "run0", "run1"


@dataclass(frozen=True, slots=True)
class PlacedEnsemble:
    """The finished ensemble. ``sites``: the target of ``PINNED``, the first site of ``AWAY``, and
    its later target. ``at_first``: the jobs while ``PINNED`` had no site."""

    written: new_ensemble.NewEnsemble
    sites: tuple[str, str, str]
    at_first: list[dict[str, Any]]
    status: dict[str, Any]


@pytest.fixture(scope="module")
def placed(pool: Pool) -> PlacedEnsemble:
    if len(pool.sites) < 3:
        pytest.skip(f"this HTCondor's slots name {len(pool.sites)} sites, not 3")
    other, begun, sent = list(pool.sites.values())[:3]
    description = f"""\
runs = 2
epochs = {EPOCHS}
memory = 128
sites = ["{NOWHERE}", "{begun}"]
policy = "pin"
values = {{ slow_factor = 1 }}
[stop]
poll = 5
[region.until-it-is-sent-away]
runs = ["{AWAY}"]
epochs = 0
variables = {{ slow_factor = 20 }}
"""
    ensemble = new_ensemble.write(pool, "placed", description, "--submit")
    until(lambda: running(ensemble, f"{AWAY}-train_epoch0"), "the first epoch runs")
    done(ensemble.act("send", AWAY, "--to", sent))
    until(lambda: idle(ensemble, f"{PINNED}-train_epoch0"), "the pinned one is idle")
    at_first = truth.jobs_of(pool, ensemble.directory)
    done(ensemble.act("send", PINNED, "--to", other))
    done(ensemble.act("retarget", PINNED, "--to", other))
    return PlacedEnsemble(ensemble, (other, begun, sent), at_first, ensemble.end())


def running(ensemble: new_ensemble.NewEnsemble, node: str) -> bool:
    ads = ensemble.queued(node)
    return any(ad.get("JobCurrentStartExecutingDate") and ad["JobStatus"] == 2 for ad in ads)


def idle(ensemble: new_ensemble.NewEnsemble, node: str) -> bool:
    """Whether it has waited for some negotiation cycles."""
    ads = [ad for ad in ensemble.queued(node) if ad["JobStatus"] == truth.IDLE]
    return any(ad.get("LastRejMatchTime") for ad in ads)


def done(answered: dict[str, Any]) -> None:
    assert [each["reply"] for each in answered["answers"]] == ["done"], answered


def test_dagman_succeeds_and_agrees_with_metlmon(placed: PlacedEnsemble) -> None:
    expected = placed.written.as_htcondor_says(placed.status)
    assert expected.totals == truth.Totals(2 * EPOCHS, 2 * EPOCHS, 0, 0)
    assert all(len(job.executions) == 1 for job in expected.jobs), "each was placed at once"


def test_run_pinned_to_no_site_waits_until_retargeted(placed: PlacedEnsemble) -> None:
    (job,) = (each for each in placed.at_first if each["run"] == PINNED)
    assert (job["state"], job["target"], job["site"]) == ("idle", NOWHERE, None)
    assert sites_of(placed, PINNED)[0] == placed.sites[0]


def test_retargeted_run_moves_at_its_next_epoch(placed: PlacedEnsemble) -> None:
    other, begun, sent = placed.sites
    assert sites_of(placed, AWAY) == [begun, sent, sent]
    assert sites_of(placed, PINNED) == [other, other, other]


def test_each_epoch_ran_at_its_target(placed: PlacedEnsemble) -> None:
    for job in truth.jobs_of(placed.written.pool, placed.written.directory):
        assert job["target"] == job["site"], job["node"]
    for name, site in ((PINNED, placed.sites[0]), (AWAY, placed.sites[2])):
        row = placed.written.run(name, placed.status)
        assert (row["latest"]["target"], row["latest"]["site"]) == (site, site)
        assert row["gate"]["target"] == site
        assert not row["latest"]["off_target"]


def test_control_cohort_trains_on_its_gpu_model_only(pool: Pool) -> None:
    output = pool.run(["condor_status", "-af", "GPUs_DeviceName"]).stdout.splitlines()
    models = sorted({each for each in output if each and each != "undefined"})[:2]
    if len(models) < 2:
        pytest.skip(f"this HTCondor's slots name {len(models)} GPU models, not 2")
    description = f"""\
runs = 4
epochs = 2
memory = 128
policy = "gpu-pin"
gpu_memory = "1 GB"
gpu_models = ["{models[0]}", "{models[1]}"]
"""
    ensemble = new_ensemble.write(pool, "cohort", description, "--submit")
    status = ensemble.end()
    expected = ensemble.as_htcondor_says(status)
    assert expected.totals == truth.Totals(8, 8, 0, 0)
    assert [each["gpu"] for each in ensemble.report_of["runs"]] == models * 2
    for job in truth.jobs_of(pool, ensemble.directory):
        (ran,) = job["executions"]
        assert ran["gpu"] == models[int(job["run"].removeprefix("run")) % 2], job["node"]


def sites_of(placed: PlacedEnsemble, run: str) -> list[str | None]:
    """The sites of a run's epochs in order, from the log."""
    jobs = recount.recount(placed.written.directory / "metl.log").values()
    own = sorted((job.node, each.site) for job in jobs for each in job.executions)
    return [site for node, site in own if node.startswith(f"{run}-")]
