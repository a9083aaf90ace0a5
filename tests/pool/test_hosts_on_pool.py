"""A site of two hosts: excluding one, and how many slots match a smaller request."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import truth
from pools import Pool, until

from tests.pool import gated_dag
from tests.pool.test_acting_on_pool import ActingDag, name, replies

SITE = "Two-Hosts"
HOSTS = {"large.pool.example": 4096, "small.pool.example": 2048}
"""Their names, and MB of memory."""
LARGE, SMALL = HOSTS


@pytest.fixture(scope="module")
def hosts(changeable_pool: Pool) -> Iterator[Pool]:
    """The pool with two more machines, which take only jobs of this site."""
    annexes = changeable_pool.script.annexes()
    try:
        for host, megabytes in HOSTS.items():
            annexes.start_host(host, site=SITE, megabytes=megabytes)
        yield changeable_pool
    finally:
        for host in HOSTS:
            annexes.end(host)


def test_next_job_avoids_an_excluded_host(hosts: Pool) -> None:
    """The negotiator prefers the small host, which has room for all of the jobs."""
    dag = gated_dag.write(hosts, "hosts", runs=3, sites=[SITE], more=["hold = true"])
    made = ActingDag(hosts, dag, dag.submit())
    until(lambda: len(hosts.queue(made.of_dag)) == 3, "all are submitted")

    def ran_at(run: int) -> str:
        hosts.run(["condor_release", name(made.job(run))])
        (ran,) = hosts.running(1, f"ClusterId == {made.job(run)['ClusterId']}")
        return str(ran["RemoteHost"]).rpartition("@")[2]

    assert ran_at(0) == SMALL
    answered = made.act("exclude-host", SMALL)
    assert (name(made.job(1)), "done") in replies(answered)
    assert ran_at(1) == LARGE
    made.act("include-host", SMALL)
    assert ran_at(2) == SMALL
    dag.open_all()
    truth.until_gone(hosts, dag.directory)
    listed = hosts.run(["metlmon", "jobs", ".", "--json"], dag.directory)
    executions = [e for job in json.loads(listed.stdout)["jobs"] for e in job["executions"]]
    assert [each["host"] for each in executions] == [SMALL, LARGE, SMALL]


def test_more_slots_match_a_smaller_request(hosts: Pool) -> None:
    requested = 3000
    dag = gated_dag.write(hosts, "smaller", runs=5, more=[f"request_memory = {requested}"])
    made = ActingDag(hosts, dag, dag.submit())
    jobs = hosts.running(5, made.of_dag)
    until(
        lambda: all(job.get("MemoryUsage") for job in hosts.queue(made.of_dag, "JobUniverse == 5")),
        "their memory was measured",
    )
    dag.open_all()
    truth.until_gone(hosts, dag.directory)
    done = hosts.run(["metlmon", "usage", "--requests", ".", "--json"], dag.directory)
    rows = {row["command"]: row for row in json.loads(done.stdout)["requests"]}
    row = rows["request_memory"]
    assert (row["measured"], row["requested"], row["suggested"]) == (len(jobs), requested, 1024)
    asked = ["condor_status", "-constraint", 'SlotType =!= "Dynamic"', "-af", "TotalSlotMemory"]
    memory = [int(text) for text in hosts.run(asked).stdout.split()]
    more = [each for each in memory if row["suggested"] <= each < requested]
    assert more == [HOSTS[SMALL]]
    assert row["slots"] == len(memory)
    assert row["gain"] == pytest.approx(len(more) / len(memory))
    text = hosts.run(["metlmon", "usage", "--requests", "."], dag.directory).stdout
    assert f"{100 * len(more) / len(memory):.0f} % of the pool's slots more match" in text
