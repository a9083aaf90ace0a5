"""Memory reports (006) that are added up before they reach the state model come to what
they come to one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from metlmon.eventlog.events import Event, ImageSize, ImageSizes
from metlmon.eventlog.reader import parse
from metlmon.model.ensemble import Ensemble
from metlmon.model.model_state import Batch, LogRole
from metlmon.text.record_json import json_of
from tests.support.event_logs import ONE_NODE, EnsembleReading, Log, of_one_job, read_ensemble

NODE = "run0-train_epoch0"


def some_log(dice: random.Random, log: Log) -> Log:
    """A few jobs' lives, their 006 anywhere between their other events."""
    steps = {
        "submit": lambda job: log.submit(job, NODE),
        "execute": log.execute,
        "evict": log.evict,
        "terminate": log.terminate,
        "disconnect": log.disconnect,
        "reconnect": log.reconnect,
        "hold": log.hold,
        "release": log.release,
        "remove": log.remove,
    }
    for _ in range(dice.randrange(1, 30)):
        job = dice.randrange(7, 10)
        if dice.random() < 0.6:
            log.image(job, dice.randrange(1, 5000))
        else:
            steps[dice.choice(list(steps))](job)
    return log


def added_up(events: Sequence[Event], log: Log) -> Batch:
    """These events as a skimming reader gives them."""
    rest = [event for event in events if event.number != 6]
    images: dict[tuple[int, int, int], list[Event]] = {}
    for event in events:
        if event.number == 6:
            images.setdefault((event.cluster, event.proc, event.subproc), []).append(event)
    sums = []
    for job, reports in images.items():
        times = [event.time for event in reports]
        sizes = [e.detail.memory_mb for e in reports if isinstance(e.detail, ImageSize)]
        known = [size for size in sizes if size is not None]
        largest = max(known, default=None)
        sums.append(ImageSizes(*job, len(reports), min(times), max(times), largest))
    first, last = (events[0].time, events[-1].time) if events else (None, None)
    return Batch(log.file, log.role, rest, log.dag, sums, first, last)


def in_pieces(events: Sequence[Event], dice: random.Random) -> list[Sequence[Event]]:
    ends = sorted(dice.randrange(len(events) + 1) for _ in range(dice.randrange(4)))
    return [events[a:b] for a, b in zip([0, *ends], [*ends, len(events)], strict=True)]


def says(ensemble: Ensemble) -> dict[str, object]:
    painter = EnsembleReading(ensemble).painter()
    views = [painter.job_view(job.cluster, job.proc) for job in painter.real_jobs()]
    return {
        "status": json_of(painter.status(), painter.clock.with_offset),
        "jobs": [repr(view) for view in views],
        "books": [repr(book) for book in ensemble.log_stats.values()],
        "newest": ensemble.newest,
        "dagman_jobs": repr(ensemble.dags["run.dag"].logs.jobs),
    }


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_added_up_or_one_by_one_in_any_pieces(seed: int) -> None:
    dice = random.Random(seed)
    logs = [
        some_log(dice, Log("metl.log")),
        some_log(dice, Log("run.dag.nodes.log", LogRole.NODES, "run.dag")),
    ]
    one_by_one, together = read_ensemble(ONE_NODE).ensemble, read_ensemble(ONE_NODE).ensemble
    for log in logs:
        events = parse(log.data).events
        for piece in in_pieces(events, dice):
            one_by_one.apply(Batch(log.file, log.role, piece, log.dag))
        for piece in in_pieces(events, dice):
            together.apply(added_up(piece, log))
            if dice.random() < 0.2:
                says(together)
    assert says(together) == says(one_by_one)


def test_a_dagman_whose_log_begins_with_its_memory_reports_was_in_the_queue() -> None:
    log = Log("run.dag.dagman.log", LogRole.DAGMAN, "run.dag")
    log.image(5, 10, at="10:00:00").image(5, 11).terminate(5)
    log.submit(6, at="11:00:00").execute(6).image(6, 12)
    events = parse(log.data).events
    result = read_ensemble(ONE_NODE)
    result.ensemble.apply(added_up(events, log))
    assert (
        result.ensemble.dags["run.dag"].logs.jobs
        == read_ensemble(ONE_NODE, log).ensemble.dags["run.dag"].logs.jobs
    )
    assert [t.cluster for t in result.ensemble.dags["run.dag"].logs.jobs] == [5, 6]


def test_a_job_that_only_memory_reports_are_left_of_is_a_job() -> None:
    log = Log().image(7, 100).image(7, 300).image(7, 200)
    result = of_one_job()
    assert result.ensemble.apply(added_up(parse(log.data).events, log))
    view = EnsembleReading(result.ensemble).painter().job_view(7, 0)
    assert (view.memory_updates, view.job.memory_mb) == (3, 300)
