"""No idle job starts at an excluded site; including it again restores the requirements."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import truth
from pools import Pool, until

from metlmon.pool.exclusion import submit_line
from tests.pool import gated_dag, new_ensemble
from tests.pool.test_acting_on_pool import REFUSED, ActingDag, name, replies


@pytest.fixture(scope="module")
def waiting(pool: Pool) -> Iterator[ActingDag]:
    """Jobs submitted on hold: ``run0`` may run anywhere, ``run1`` at the first site only."""
    if len(pool.sites) < 3:
        pytest.skip(f"this HTCondor's slots name {len(pool.sites)} sites, not 3")
    first = next(iter(pool.sites.values()))
    dag = gated_dag.write(pool, "excluding", runs=2, sites=["any", first], more=["hold = true"])
    made = ActingDag(pool, dag, dag.submit())
    until(lambda: len(pool.queue(f"DAGManJobId == {made.dagman}")) == 2, "both are submitted")
    yield made
    dag.open_all()


def requirements(waiting: ActingDag) -> list[str]:
    return [waiting.job(run)["Requirements"] for run in (0, 1)]


def test_exclusion_of_a_site_can_be_undone(waiting: ActingDag, colleague: str) -> None:
    pool, before = waiting.pool, requirements(waiting)
    theirs = gated_dag.write(pool, "excluding", more=["hold = true"], user=colleague)
    argv = ["condor_submit_dag", theirs.dag.name]
    pool.run(argv, theirs.directory, colleague)
    of_theirs = f'Iwd == "{theirs.directory}" && JobUniverse == 5'
    (other,) = until(lambda: pool.queue(of_theirs), "a colleague's job is submitted")
    *excluded, left = pool.sites.values()
    jobs = [(name(waiting.job(run)), "done") for run in (0, 1)]
    for site in excluded:
        answered = waiting.act("exclude-site", site)
        assert replies(answered) == jobs
        assert f'TARGET.GLIDEIN_ResourceName =!= "{site}"' in answered["line"]
    changed = requirements(waiting)
    assert all(site in each for site in excluded for each in changed)
    refused = waiting.act("exclude-site", left, expect=REFUSED, user=colleague)
    assert pool.users[0] in refused["refused"]
    assert requirements(waiting) == changed
    pool.run(["condor_release", str(waiting.job(0)["ClusterId"]), str(waiting.job(1)["ClusterId"])])
    (ran,) = pool.running(1, f"ClusterId == {waiting.job(0)['ClusterId']}")
    assert pool.sites[ran["RemoteHost"].split("@")[1]] == left
    until(lambda: waiting.job(1).get("LastRejMatchTime"), "the other one is considered")
    assert waiting.job(1)["JobStatus"] == truth.IDLE
    for site in excluded:
        assert replies(waiting.act("include-site", site)) == jobs
    assert requirements(waiting) == before
    pool.running(1, f"ClusterId == {waiting.job(1)['ClusterId']}")
    assert pool.queue(of_theirs)[0]["Requirements"] == other["Requirements"]


def test_later_epochs_avoid_an_excluded_site(pool: Pool) -> None:
    *_, left = pool.sites.values()
    description = f"""\
runs = 1
epochs = 2
memory = 128
gpus = 0
sites = ["Nowhere-GPU", "{left}"]
policy = "pin"
[stop]
poll = 5
"""
    ensemble = new_ensemble.write(pool, "leaving", description, "--submit")
    (job,) = until(lambda: ensemble.queued("run0-train_epoch0"), "the first epoch is submitted")
    answered = ensemble.act("exclude-site", "Nowhere-GPU")
    assert replies(answered) == [("leaving.dag", "done"), (name(job), "done")]
    assert answered["line"] is None, "its submit file knows"
    status = ensemble.end()
    jobs = truth.jobs_of(pool, ensemble.directory)
    assert [each["executions"][0]["site"] for each in jobs] == [left, left]
    assert ensemble.as_htcondor_says(status).totals == truth.Totals(2, 2, 0, 0)
    history = pool.history(ensemble.of_dag)
    assert {each["MetlExcluded"] for each in history} == {"Nowhere-GPU"}
    assert {each["MetlSite"] for each in history} == {"Nowhere-GPU"}
    assert replies(ensemble.act("include-site", "Nowhere-GPU")) == [("leaving.dag", "done")]
    assert not (ensemble.directory / "placement" / "leaving.excluded").exists()


@pytest.mark.parametrize("before", ["", "requirements = (TARGET.A || TARGET.B)"])
def test_submit_line_extends_the_requirements(pool: Pool, before: str) -> None:
    directory = pool.directory(f"line-{len(before)}")
    lines = f"{submit_line('Bad Site, X')}\n{submit_line('gpu1.x.org', 'host')}"
    text = f"executable = /bin/true\n{before}\n{lines}\nqueue\n"
    pool.place(directory / "job.sub", text)
    output = pool.run(["condor_submit", "-dry-run", "-", "job.sub"], directory).stdout
    (line,) = (line for line in output.splitlines() if line.startswith("Requirements"))
    first = "((TARGET.A || TARGET.B))" if before else "(true)"
    clause = 'TARGET.GLIDEIN_ResourceName =!= "Bad Site, X"'
    both = f'(({first} && ({clause})) && (TARGET.Machine =!= "gpu1.x.org"))'
    assert line.replace("Requirements=", "").strip().startswith(both), line
