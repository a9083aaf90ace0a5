"""Recorded logs with one event lost: what a job's history may not say, whichever event it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from metlmon.eventlog.events import Event
from metlmon.eventlog.reader import parse
from metlmon.model.job import JobHistory, fold
from metlmon.model.states import TERMINAL
from tests.support.recordings import FIXTURES


def jobs_of(recording: str) -> list[list[Event]]:
    """The events of each job of a recording, in order, without 006."""
    jobs: dict[tuple[int, int], list[Event]] = {}
    for event in parse((FIXTURES / recording / "metl.log").read_bytes()).events:
        if event.number != 6:
            jobs.setdefault((event.cluster, event.proc), []).append(event)
    return list(jobs.values())


def contradictions(history: JobHistory) -> Iterator[str]:
    """What a history says of a job that has ended, and cannot be true of it."""
    if history.state in TERMINAL:
        if history.open is not None or any(each.end is None for each in history.executions):
            yield "an execution is in flight"
        for span in history.transfers:
            if span.outcome in ("in-flight", "pending"):
                yield f"a transfer of {span.direction} is {span.outcome}"


@pytest.mark.parametrize("recording", ["checkpoints", "demo", "first-round", "holds", "machines"])
def test_nothing_of_a_job_that_has_ended_is_open(recording: str) -> None:
    found = {
        (event.number, event.text, text)
        for events in jobs_of(recording)
        for place, event in enumerate(events)
        for text in contradictions(fold(events[:place] + events[place + 1 :]))
    }
    assert not found


def test_transfers_around_a_lost_event() -> None:
    """A 005 proves the input good without the 001, the next upload the end of the one before."""
    events = next(each for each in jobs_of("checkpoints") if each[0].cluster == 1083)
    without_execute = fold(event for event in events if event.number != 1)
    assert [span.outcome for span in without_execute.transfers] == ["ok"] * 3
    ends = [each for each in events if each.text == "Finished transferring output files"]
    _, upload, output = fold(event for event in events if event is not ends[0]).transfers
    assert (upload.outcome, upload.end, output.outcome) == ("unfinished", output.start, "ok")
