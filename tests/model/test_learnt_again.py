"""What an ensemble has learnt, given to another one: it goes on as if it had read it all itself."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metlmon.model import job_events
from metlmon.model.ensemble import Ensemble, LogRole
from tests.model.test_prefixes import AWS, SMALL, Growing, Model, differences, growing, whole
from tests.model.test_prefixes import some_ends as ends_of

DIRS = pytest.mark.parametrize("dagdir", [*SMALL, AWS], ids=lambda path: path.name)


@pytest.fixture(params=[0, 3, job_events.MAX_UNPACKED_JOBS], ids=lambda most: f"{most} loose")
def most_loose(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many jobs lie unpacked: none, a few that come and go, as many as usual."""
    monkeypatch.setattr(job_events, "MAX_UNPACKED_JOBS", request.param)
    monkeypatch.setattr(job_events, "MAX_CACHED_HISTORIES", 2 * request.param + 1)
    return int(request.param)


def successor(files: Growing, before: Model) -> Model:
    """A model that is told what one before it has learnt, as a file would keep it, and then the
    DAGs; DAGMan's words it reads itself."""
    kept = pickle.loads(pickle.dumps(list(before.ensemble.kept())))
    model = files.fresh()
    model.ensemble, dags = Ensemble(), model.ensemble.dags.values()
    model.ensemble.restore(kept)
    model.ensemble.set_dags(dags)
    model.at = {name: before.at[name] for name in files.logs if name in before.at}
    return model


def log_of(files: Growing) -> str:
    """The name of a log that users' jobs write."""
    return next(name for name, log in files.logs.items() if log.role is LogRole.USER)


@DIRS
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_a_successor_says_what_one_that_read_all_says(
    dagdir: Path, most_loose: int, seed: int
) -> None:
    files, dice = growing(dagdir), random.Random(seed)
    ends = ends_of(files, dice)
    model = files.fresh()
    for _ in range(3):
        for name, end in ends.items():
            reached = getattr(model.at.get(name), "offset", 0)
            if name in files.logs and end > reached:
                model.read(name, dice.randrange(reached, end + 1))
        if dice.random() < 0.5:
            model.says()
        model = successor(files, model)
    for name in sorted(ends):
        model.read(name, ends[name])
    assert differences(model.says(), whole(files, ends)) == []


def test_what_comes_after_is_not_kept() -> None:
    files = growing(SMALL[-1])
    model, log = files.fresh(), log_of(files)
    half = files.data[log].index(b"\n...\n", len(files.data[log]) // 2)
    model.read(log, half)
    expected = [job.events() for job in model.ensemble.jobs.values()]
    kept = model.ensemble.kept()
    model.read(log, len(files.data[log]))
    again = Ensemble()
    again.restore(list(kept))
    assert [job.events() for job in again.jobs.values()] == expected
    assert again.newest == max(job.newest_time for job in again.jobs.values() if job.newest_time)


def test_records_that_are_not_all_there_are_refused() -> None:
    files = growing(SMALL[-1])
    model = files.fresh()
    model.read(log_of(files), 20_000)
    assert model.ensemble.jobs
    records = list(model.ensemble.kept())
    for wrong in (
        [],
        records[:-1],
        [*records, [(1, 2)]],
        [{**records[0], "jobs": 0}, *records[1:]],
    ):
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever comes first
            Ensemble().restore(wrong)
