"""Events that were packed are what they were."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from metlmon.eventlog import (
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
    parse,
)
from metlmon.eventlog.events import UsageTable
from metlmon.model.event_store import (
    BODY_LIMIT,
    SHARED_LENGTH,
    TEXT_LIMIT,
    StringTable,
    identity,
    is_damaged,
    pack,
    pack_event,
    unpack,
    unpack_event,
)
from metlmon.model.model_state import LogRole
from tests.conftest import SHARED
from tests.support.event_logs import Log, of_one_job

WHEN = datetime(2026, 5, 4, 10, 0, 0)
ROWS = (UsageRow("Cpus", "", 0.98, 8.0, 8.0, None), UsageRow("GPUs", "", None, 1.0, 1.0, "GPU-0"))

DETAILS = [
    None,
    Submit("<10.0.0.1:9618>", "run0-train_epoch0", "run.dag+900", ("a note",), ("a warning",)),
    Execute("<10.0.0.2:9618>", None, "slot1@host", None, 2, "NVIDIA L40S", 46068, 8, 160000, True),
    Evicted(1004, 0, "a reason", False, True, None, 9, 1, 2**40, ROWS),
    Terminated(
        True, 0, None, None, 1, 2, 3, 4, WHEN.replace(tzinfo=UTC), UsageTable("\tA table\n\tA")
    ),
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
    st.text(max_size=20),
    st.sampled_from(["", "Job submitted from host: <10.0.0.1:9618>", "x" * (SHARED_LENGTH + 1)]),
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


@given(st.lists(st.tuples(st.integers(0, 1), st.lists(events(), max_size=4)), max_size=3))
def test_packed_and_unpacked(streams: list[tuple[int, list[Event]]]) -> None:
    words = StringTable()
    logs = {(rank, f"{place}.log"): held for place, (rank, held) in enumerate(streams)}
    for _ in range(3):
        # By the third time every text has been met that is going to be shared.
        plain = {log: [pack_event(event, words) for event in held] for log, held in logs.items()}
        found = {
            (rank, file): [unpack_event(each, 7, 1, 0, words) for each in held]
            for rank, file, held in unpack(pack(plain, words), words)
        }
        kept = {log: [without_body(event) for event in held] for log, held in logs.items() if held}
        assert found == kept
        assert [event.time.fold for held in found.values() for event in held] == [
            event.time.fold for held in kept.values() for event in held
        ]


def without_body(event: Event) -> Event:
    """As it is stored: what its typed detail covers is not stored twice."""
    covered = event.detail is not None and not isinstance(event.detail, Generic | PostScript)
    return replace(event, body="" if covered else event.body[:BODY_LIMIT])


@given(events(), events())
def test_told_apart_while_they_are_plain(one: Event, other: Event) -> None:
    words = StringTable()
    plain = [pack_event(event, words) for event in (one, other, one)]
    same = (one.number, one.time.replace(microsecond=0), one.text) == (
        other.number,
        other.time.replace(microsecond=0),
        other.text,
    )
    first, second, again = (identity(each, words) for each in plain)
    assert first == again
    assert (first == second) is same
    assert [is_damaged(each) for each in plain] == [one.damaged, other.damaged, one.damaged]


@pytest.mark.parametrize("name", ["metl-aws/metl.log"])
def test_a_real_log(name: str) -> None:
    path = SHARED / "examples" / name
    if not path.exists():
        pytest.skip("the real recording is not beside this checkout")
    read = sorted(parse(path.read_bytes()).events, key=lambda event: event.ids)
    words = StringTable()
    for job, each in groupby(read, key=lambda event: event.ids):
        held = list(each)
        packed = pack({(0, name): [pack_event(event, words) for event in held]}, words)
        ((_, _, plain),) = unpack(packed, words)
        found = [unpack_event(event, *job, words) for event in plain]
        assert found == [without_body(event) for event in held]


def test_a_text_that_two_events_have_is_kept_once() -> None:
    words, host = StringTable(), "<10.0.0.2:9618?alias=a-host.example.org>"
    lines = [
        Event(40, 7, 0, 0, WHEN + timedelta(minutes=n), "Started", "", detail, n)
        for n, detail in enumerate([FileTransfer(Transfer.INPUT_STARTED, None, host)] * 50)
    ]
    packed = pack({(0, "a.log"): [pack_event(event, words) for event in lines]}, words)
    assert packed.count(host.encode()) == 1
    assert host in words.by_number
    ((_, _, plain),) = unpack(packed, words)
    assert [unpack_event(event, 7, 0, 0, words) for event in plain] == lines


@pytest.mark.parametrize("length", [7_900, TEXT_LIMIT - 10, TEXT_LIMIT, 9_000, 20_000])
def test_an_event_in_two_logs_is_one_however_long_its_host(length: int) -> None:
    logs = [Log("metl.log"), Log("run.dag.nodes.log", LogRole.NODES, "run.dag")]
    for log in logs:
        log.submit(5, "run0-train_epoch0")
        log.raw(1, 5, f"Job executing on host: <{'a' * length}>", "\tGPUs = 1\n")
        log.terminate(5, 0)
    assert of_one_job(*logs).executions(5) == ["good"]
    assert of_one_job(*logs[::-1]).executions(5) == ["good"]
