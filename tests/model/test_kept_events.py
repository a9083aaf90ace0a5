"""Compressed events are restored unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metlmon.eventlog.events import (
    BODY_LIMIT,
    SHORT,
    TEXT_LIMIT,
    Aborted,
    Event,
    Evicted,
    Execute,
    FileTransfer,
    Generic,
    PostScript,
    Submit,
    Terminated,
    Transfer,
    UsageRow,
)
from metlmon.model import job_events
from metlmon.model.job_events import LoggedJob, RecentJobs, Stream
from metlmon.model.model_state import LogRole
from metlmon.redact import visible
from tests.support.event_logs import Log, of_one_job

WHEN = datetime(2026, 5, 4, 10, 0, 0)
ROWS = (UsageRow("Cpus", "", 0.98, 8.0, 8.0, None), UsageRow("GPUs", "", None, 1.0, 1.0, "GPU-0"))

DETAILS = [
    None,
    Submit("<10.0.0.1:9618>", "run0-train_epoch0", "run.dag+900", ("a note",)),
    Execute("<10.0.0.2:9618>", None, "slot1@host", None, 2, "NVIDIA L40S", 46068, 8, 160000, True),
    Evicted(1004, 0, "a reason", False, True, None, 9, 1, 2**40, ROWS),
    Terminated(True, 0, None, None, 1, 2, 3, 4, WHEN.replace(tzinfo=UTC), "\tA table\n\tA"),
    Terminated(False, None, 11, "core.1", None, None, None, None, None, ()),
    FileTransfer(Transfer.OUTPUT_FINISHED, 17, "<10.0.0.2:9618>"),
    FileTransfer(None, None, None),
    Aborted(None),
    Generic("a line of its own"),
    PostScript("run0-train_epoch0", True, 1, None),
]

times = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).flatmap(
    lambda time: st.sampled_from([time, time.replace(microsecond=0), time.replace(fold=1)])
)
texts = st.one_of(
    st.text(max_size=20).map(visible),
    st.sampled_from(["", "Job submitted from host: <10.0.0.1:9618>", "x" * (SHORT + 1)]),
)


@st.composite
def events(draw: st.DrawFn) -> Event:
    return Event(
        draw(st.integers(0, 50)),
        7,
        1,
        0,
        draw(times),
        draw(texts),
        draw(st.sampled_from(["", "\tbody\n", "long " * BODY_LIMIT])),
        draw(st.sampled_from(DETAILS)),
        draw(st.integers(0, 2**33)),
        draw(st.booleans()),
    )


@pytest.fixture(scope="module", autouse=True)
def none_recent() -> Iterator[None]:
    """Let jobs be compressed whenever that is requested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_events, "MAX_RECENT_JOBS", 0)
        yield


@given(st.lists(st.lists(st.lists(events(), max_size=4), max_size=3), max_size=3))
def test_compression_round_trip(jobs: list[list[list[Event]]]) -> None:
    recent = RecentJobs()
    logged = [LoggedJob((7, proc, 0), recent) for proc in range(len(jobs))]
    for job, logs in zip(logged, jobs, strict=True):
        for rank, of_log in enumerate(logs):
            for event in of_log:
                job.add(event, Stream(rank, f"{rank}.log"))
    before = [job.events_by_log() for job in logged]
    recent.compress(recent.surplus())
    for job, known in reversed([*zip(logged, before, strict=True)]):
        assert job.events_by_log() == known
        for (_, found), (_, as_added) in zip(job.events_by_log(), known, strict=True):
            assert [each.time.fold for each in found] == [each.time.fold for each in as_added]


@given(events(), events())
def test_event_is_kept_once(one: Event, other: Event) -> None:
    """Equal are number, second and first line; of two copies the undamaged one is kept."""
    same = (one.number, one.time.replace(microsecond=0), one.text) == (
        other.number,
        other.time.replace(microsecond=0),
        other.text,
    )
    recent = RecentJobs()
    job = LoggedJob((7, 1, 0), recent)
    assert job.add(one, Stream(0, "a.log"))
    recent.compress(recent.surplus())
    is_better = one.damaged and not other.damaged
    assert job.add(other, Stream(1, "b.log")) is (is_better or not same)
    recent.compress(recent.surplus())
    assert len(job.events()) == (1 if same else 2)


@pytest.mark.parametrize("length", [7_900, TEXT_LIMIT - 10, TEXT_LIMIT, 9_000, 20_000])
def test_event_with_a_long_host_in_two_logs_counts_once(length: int) -> None:
    logs = [Log("metl.log"), Log("run.dag.nodes.log", LogRole.NODES, "run.dag")]
    for log in logs:
        log.submit(5, "run0-train_epoch0")
        log.raw(1, 5, f"Job executing on host: <{'a' * length}>", "\tGPUs = 1\n")
        log.terminate(5, 0)
    assert of_one_job(*logs).executions(5) == ["good"]
    assert of_one_job(*logs[::-1]).executions(5) == ["good"]
