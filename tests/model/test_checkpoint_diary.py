"""Figures of a recorded self-checkpointing training, against the diary of its jobs."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from metlmon.model.states import State
from metlmon.snapshot.records import Status
from tests.support.recordings import FIXTURES
from tests.support.records import read_dagdir

RECORDING = FIXTURES / "checkpoints"
STAMPS = 2.0
"""Seconds by which an execution of the log and of the diary differ: stamps are whole seconds, and a
process begins after its 001."""


class OwnAccount(NamedTuple):
    """An execution by the diary; ``stored``: the time of its last checkpoint, if it lost some.

    Times are seconds since 1970.
    """

    cluster: int
    node: str
    site: str
    gpus: int
    begun: float
    ended: float
    how: str
    stored: float

    def at(self, moment: float) -> tuple[float, float, float]:
        """GPU-seconds of goodput, of badput and running at a time."""
        if moment < self.begun:
            return 0.0, 0.0, 0.0
        if moment < self.ended:
            return 0.0, 0.0, self.gpus * (moment - self.begun)
        return self.gpus * (self.stored - self.begun), self.gpus * (self.ended - self.stored), 0.0


def executions() -> list[OwnAccount]:
    """Each is the processes that one shadow started, with stored checkpoints between them."""
    groups: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for entry in json.loads((RECORDING / "truth.json").read_text()):
        groups.setdefault((entry["cluster"], entry["start"]), []).append(entry)
    found = []
    for processes in groups.values():
        first, last = processes[0], processes[-1]
        stored = [first["begun"]] + [p["ended"] for p in processes if p["how"] == "checkpoint"]
        end = last["ended"] if last["how"] == "done" else stored[-1]
        named = [first[name] for name in ("cluster", "node", "site", "gpus", "begun")]
        found.append(OwnAccount(*named, last["ended"], last["how"], end))
    return sorted(found, key=lambda own: own.begun)


OWN = executions()


def quiet_moments() -> list[datetime]:
    """Whole seconds, in UTC, with no start or end of an execution within two seconds."""
    edges = sorted(edge for own in OWN for edge in (own.begun, own.ended))
    seconds = [
        second
        for before, after in pairwise([*edges, edges[-1] + 60])
        for second in range(int(before) + 3, int(after) - 1, 4)
    ]
    return [datetime.fromtimestamp(each, UTC).replace(tzinfo=None) for each in seconds]


def read(moment: datetime) -> tuple[Status, float]:
    status = read_dagdir(RECORDING, as_of=moment).status()
    return status, moment.replace(tzinfo=UTC).timestamp()


def test_executions_agree_with_the_diary() -> None:
    by_job = {
        (job.cluster, number): (job, execution)
        for job in read_dagdir(RECORDING).ledger().jobs
        for number, execution in enumerate(job.executions, 1)
    }
    assert len(by_job) == len(OWN)
    tries: Counter[int] = Counter()
    for own in OWN:
        tries[own.cluster] += 1
        job, execution = by_job[own.cluster, tries[own.cluster]]
        assert (job.node_name, execution.site, execution.gpus) == own[1:4]
        assert execution.seconds == pytest.approx(own.ended - own.begun, abs=STAMPS)
        assert execution.lost == pytest.approx(own.ended - own.stored, abs=STAMPS)
        outcome = "good" if own.how == "done" else own.how
        assert execution.outcome == outcome
        if execution.checkpoint is not None:
            since_1970 = execution.checkpoint - datetime(1970, 1, 1)
            assert since_1970 / timedelta(seconds=1) == pytest.approx(own.stored, abs=STAMPS)
        assert (execution.checkpoint is not None) == (own.how != "done" and own.stored > own.begun)


@pytest.mark.parametrize("moment", quiet_moments()[::8], ids=str)
def test_hours_at_every_time_agree_with_the_diary(moment: datetime) -> None:
    status, now = read(moment)
    begun = [own for own in OWN if own.begun <= now]
    hours = status.hours
    for index, figure in enumerate((hours.goodput, hours.badput, hours.running)):
        expected = sum(own.at(now)[index] for own in OWN)
        assert figure * 3600 == pytest.approx(expected, abs=STAMPS * sum(o.gpus for o in begun))
    for run in status.runs:
        ours = [own for own in OWN if own.node.startswith(run.run)]
        done = {own.node for own in ours if own.how == "done" and own.ended <= now}
        running = any(own.begun <= now < own.ended for own in ours)
        assert run.epochs_done == len(done)
        assert (run.state is State.RUNNING) == running
        assert (run.state is State.COMPLETED) == (len(done) == run.epochs_total)
        in_run = sum(sum(own.at(now)) for own in ours)
        started = sum(own.gpus for own in ours if own.begun <= now)
        assert run.hours.total * 3600 == pytest.approx(in_run, abs=STAMPS * started)


def test_failed_run_resumes_with_the_rescue_file() -> None:
    (failed,) = (own for own in OWN if own.how == "failed")
    again = next(own for own in OWN if own.begun > failed.ended and own.node == failed.node)
    moments = quiet_moments()
    after = [m for m in moments if failed.ended < m.replace(tzinfo=UTC).timestamp() < again.begun]
    states = [read(moment)[0].runs[0].state for moment in after]
    assert states[0] is State.FAILED
    assert set(states) <= {State.FAILED, State.IDLE}
    status, _ = read(moments[-1])
    (dag,) = status.dags
    assert (dag.state, dag.dagmans, dag.nodes_done) == ("done", 2, 6)
    (epoch,) = (e for e in read_dagdir(RECORDING).ledger().epochs if e.node == failed.node)
    assert (epoch.attempts, epoch.state) == (3, State.COMPLETED)
    # The failed job trained most of the epoch, and the new one continued it.
    assert (epoch.hidden, epoch.longest_site) == (True, failed.site)
