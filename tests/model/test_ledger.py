"""The entries of a ledger agree with each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from metlmon.model.job_events import JobId
from metlmon.snapshot.records import Execution, Ledger
from tests.conftest import Shared, shared_path
from tests.support.commands import Captured, json_output
from tests.support.recordings import FIXTURES
from tests.support.records import read_dagdir

NAMES = (
    "examples/metl-aws",
    "examples/pool-ensemble",
    *(f"fixtures/{name}" for name in ("demo", "holds", "rescue", "shared-log", "checkpoints")),
)


@cache
def ledger_of(name: str) -> Ledger:
    kind, directory = name.split("/")
    return read_dagdir(FIXTURES / directory if kind == "fixtures" else shared_path(name)).ledger()


@pytest.fixture(name="ledger", params=NAMES)
def _ledger(request: pytest.FixtureRequest) -> Ledger:
    return ledger_of(request.param)


def hours(entries: Iterable[Execution]) -> dict[str, float]:
    sums = {"goodput": 0.0, "badput": 0.0, "running": 0.0}
    for entry in entries:
        # A checkpointed execution is good up to its checkpoint.
        sums["goodput"] += entry.stored * (entry.gpus or 0) / 3600
        sums[entry.kind] += (entry.seconds - entry.stored) * (entry.gpus or 0) / 3600
    return sums


def test_attempts_are_numbered_from_one(ledger: Ledger) -> None:
    by_node: defaultdict[object, list[Execution]] = defaultdict(list)
    for entry in ledger.executions:
        by_node[(entry.dag, entry.node) if entry.node else entry.job].append(entry)
    for entries in by_node.values():
        entries.sort(key=lambda entry: (entry.attempt, entry.start))
        numbers = {entry.attempt for entry in entries}
        assert sorted(numbers) == list(range(1, len(numbers) + 1))
        # Only the procs of one submission are one try.
        assert len({(entry.job, entry.attempt) for entry in entries}) == len(entries)
        submissions = {(entry.attempt, entry.job[0]) for entry in entries}
        assert len(submissions) == len(numbers)


def test_bytes_of_a_job_are_the_sum_of_its_executions(ledger: Ledger) -> None:
    ran = {entry.job for entry in ledger.executions}
    for name in ("bytes_sent", "bytes_received"):
        by_job: Counter[JobId] = Counter()
        for entry in ledger.executions:
            by_job[entry.job] += getattr(entry, name) or 0
        jobs = {job.job: getattr(job, name) or 0 for job in ledger.jobs if job.job in ran}
        assert by_job == Counter(jobs)


def test_figures_of_an_epoch_are_those_of_its_executions(ledger: Ledger) -> None:
    of_node: defaultdict[object, list[Execution]] = defaultdict(list)
    for entry in ledger.executions:
        of_node[(entry.dag, entry.node)].append(entry)
    for epoch in ledger.epochs:
        mine = of_node[(epoch.dag, epoch.node)]
        assert epoch.attempts == max((entry.attempt for entry in mine), default=0)
        spent = {kind: getattr(epoch.hours, kind) for kind in ("goodput", "badput", "running")}
        assert hours(mine) == pytest.approx(spent, abs=1 / 3600)
        final = [entry for entry in mine if entry.final]
        if epoch.success is None:
            assert final == []
            continue
        (last,) = final
        assert last == epoch.success
        assert last.seconds == epoch.success_seconds
        assert last.end == epoch.completed
        assert epoch.longest_seconds == max(entry.trained for entry in mine)


def test_lost_longer_execution_is_not_hidden_compute(shared: Shared, capsys: Captured) -> None:
    """17.0 h were evicted, then 11.3 h succeeded: that one began again and trained it."""
    path = str(shared("cases/trained-on-two-rules"))
    (epoch,) = json_output("run", capsys, path, "run0")["epochs"]
    assert (epoch["site"], epoch["trained_on"]) == ("SITE-B", None)
    assert epoch["checkpoint"]["site"] == "SITE-B"
    (entry,) = read_dagdir(Path(path)).ledger().epochs
    assert (entry.site, entry.longest_site, entry.hidden) == ("SITE-B", "SITE-A", False)
