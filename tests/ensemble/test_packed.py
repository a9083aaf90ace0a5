"""Events that were packed are what they were."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metlmon.ensemble.packed import SHARED_LENGTH, SHORTHAND, Words, pack, unpack
from metlmon.eventlog import (
    Aborted,
    Event,
    Evicted,
    Execute,
    FileTransfer,
    Generic,
    Submit,
    Terminated,
    Transfer,
    UsageRow,
    parse,
)
from metlmon.eventlog.usage import Usage
from tests.conftest import SHARED

WHEN = datetime(2026, 5, 4, 10, 0, 0)
ROWS = (UsageRow("Cpus", "", 0.98, 8.0, 8.0, None), UsageRow("GPUs", "", None, 1.0, 1.0, "GPU-0"))

DETAILS = [
    None,
    Submit("<10.0.0.1:9618>", "run0-train_epoch0", "run.dag+900", ("a note",), ("a warning",)),
    Execute("<10.0.0.2:9618>", None, "slot1@host", None, 2, "NVIDIA L40S", 46068, 8, 160000, True),
    Evicted(1004, 0, "a reason", False, True, None, 9, 1, 2**40, ROWS),
    Terminated(True, 0, None, None, 1, 2, 3, 4, WHEN.replace(tzinfo=UTC), Usage("\tA table\n\tA")),
    Terminated(False, None, 11, "core.1", None, None, None, None, None, ()),
    FileTransfer(Transfer.OUTPUT_FINISHED, 17, "<10.0.0.2:9618>"),
    FileTransfer(None, None, None),
    Aborted(None),
    Generic("a line of its own"),
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
        draw(st.sampled_from(["", "\tbody\n"])),
        draw(st.sampled_from(DETAILS)),
        draw(st.integers(0, 2**33)),
        draw(st.booleans()),
    )


@given(st.lists(st.tuples(st.integers(0, 1), st.lists(events(), max_size=4)), max_size=3))
def test_packed_and_unpacked(streams: list[tuple[int, list[Event]]]) -> None:
    words = Words()
    logs = {(rank, f"{place}.log"): held for place, (rank, held) in enumerate(streams)}
    for _ in range(3):
        # By the third time every text has been met that is going to be shared.
        found = unpack(pack(logs, words), 7, 1, 0, words)
        assert {(rank, file): held for rank, file, held in found} == {
            log: held for log, held in logs.items() if held
        }
        for _, _, held in found:
            assert [event.time.fold for event in held] in [
                [event.time.fold for event in each] for each in logs.values()
            ]


@given(st.text(alphabet=[" ", "\t", "\n", "\0", "1", *(mark for mark, _ in SHORTHAND)]))
def test_a_usage_table_of_any_characters(text: str) -> None:
    words = Words()
    detail = Terminated(True, 0, None, None, 1, 2, 3, 4, None, Usage(text))
    event = Event(5, 7, 0, 0, WHEN, "Job terminated.", "", detail, 1)
    ((_, _, (found,)),) = unpack(pack({(0, "a.log"): [event]}, words), 7, 0, 0, words)
    assert isinstance(found.detail, Terminated)
    assert isinstance(found.detail.usage, Usage)
    assert found.detail.usage.text == text


@pytest.mark.parametrize("name", ["metl-aws/metl.log"])
def test_a_real_log(name: str) -> None:
    path = SHARED / "examples" / name
    if not path.exists():
        pytest.skip("the real recording is not beside this checkout")
    found = sorted(parse(path.read_bytes()).events, key=lambda event: event[1:4])
    words = Words()
    for job, each in groupby(found, key=lambda event: event[1:4]):
        held = list(each)
        packed = pack({(0, name): held}, words)
        assert unpack(packed, *job, words) == [(0, name, held)]


def test_a_text_that_two_events_have_is_kept_once() -> None:
    words, host = Words(), "<10.0.0.2:9618?alias=a-host.example.org>"
    lines = [
        Event(40, 7, 0, 0, WHEN + timedelta(minutes=n), "Started", "", detail, n)
        for n, detail in enumerate([FileTransfer(Transfer.INPUT_STARTED, None, host)] * 50)
    ]
    packed = pack({(0, "a.log"): lines}, words)
    assert packed.count(host.encode()) == 1
    assert host in words.by_number
    assert unpack(packed, 7, 0, 0, words) == [(0, "a.log", lines)]
