"""Every log of HTCondor's own tests against what ``htcondor2.JobEventLog`` 25.14.1 read."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from metlmon.eventlog import events
from metlmon.eventlog.reader import parse
from tests.conftest import SHARED, Shared

LOGS = SHARED / "conformance" / "logs"
NAMES = sorted(
    str(path.relative_to(LOGS)).removesuffix(".expected.json")
    for path in LOGS.glob("**/*.expected.json")
)

YEAR = 2026
"""The official reader gives yearless stamps its own current year; it ran in 2026."""

UNREADABLE = {41, 42, 43, 44, 45}
"""The official reader cannot read them in the text form; here they must be read besides."""

OURS_BESIDES = {"embedded/test_condor_history_L407.log": 1}
"""Its last ``...`` has no newline: the official reader leaves the 005, a dead log's end has it."""

C_FLOAT = 1e-6
"""Byte counts went through a C float there: equal to seven digits only. The log has it right."""

Ad = dict[str, Any]
needs_logs = pytest.mark.skipif(not NAMES, reason="no conformance logs beside this checkout")


@needs_logs
@pytest.mark.parametrize("name", NAMES)
def test_events_agree_with_the_official_reader(name: str) -> None:
    expected = json.loads((LOGS / f"{name}.expected.json").read_bytes())["events"]
    parsed = parse((LOGS / name).read_bytes(), year_hint=YEAR, final=True)
    assert parsed.warnings == ()
    assert parsed.after.offset == (LOGS / name).stat().st_size
    found = list(parsed.events)
    if besides := OURS_BESIDES.get(name):
        assert [event.number for event in found[-besides:]] == [5]
        found = found[:-besides]
    errors = [each for each in expected if "error" in each]
    if errors:
        unreadable = [event.number for event in found if event.number in UNREADABLE]
        assert unreadable == sorted(UNREADABLE)
        assert len(errors) == len(UNREADABLE)
        found = [event for event in found if event.number not in UNREADABLE]
        expected = [each for each in expected if "error" not in each]
    assert [event.number for event in found] == [each["type"] for each in expected]
    years_guessed = "legacy" in name or "not_iso" in name or "golden" not in name
    for event, each in zip(found, expected, strict=True):
        check(event, each["ad"], years_guessed)


def check(event: events.Event, ad: Ad, years_guessed: bool) -> None:
    for ours, name in ((event.cluster, "Cluster"), (event.proc, "Proc")):
        # The official reader leaves out every id below zero.
        assert ours == ad[name] if name in ad else ours < 0
    time = datetime.fromisoformat(ad["EventTime"]).replace(tzinfo=None)
    stamp = event.time.replace(tzinfo=None, microsecond=0)
    if years_guessed:  # a log over new year has two years here, and one there
        stamp = stamp.replace(year=time.year)
    assert stamp == time
    if event.number in SAME:
        kind, names = SAME[event.number]
        assert isinstance(event.detail, kind)
        for ours, theirs in names.items():
            assert getattr(event.detail, ours) == ad.get(theirs), ours
        for ours, theirs in BYTES.get(event.number, {}).items():
            size = ad[theirs]
            near = None if size is None else pytest.approx(size, rel=C_FLOAT)
            assert getattr(event.detail, ours) == near
    if event.number in CHECKS:
        CHECKS[event.number](event.detail, ad)


def ending(detail: Any, ad: Ad) -> None:
    """The official reader has -1 for "none" in old events."""
    assert bool(detail.normal) == ad["TerminatedNormally"]
    for ours, name in ((detail.return_value, "ReturnValue"), (detail.signal, "TerminatedBySignal")):
        theirs = ad.get(name, -1)
        assert (-1 if ours is None else ours) == theirs


def submit(detail: Any, ad: Ad) -> None:
    notes = ad.get("StructuredNotes", {})
    assert detail.host == ad.get("SubmitHost", "")
    named = ad.get("LogNotes", "").removeprefix("DAG Node: ")
    assert detail.node == (notes["DAGNodeName"] if notes else named or None)
    assert detail.batch_name == notes.get("JobBatchName")
    if "UserNotes" in ad:
        assert detail.notes[0] == ad["UserNotes"].strip()


def execute(detail: Any, ad: Ad) -> None:
    properties = ad.get("ExecuteProps", {})
    assert detail.host == ad.get("ExecuteHost", "")
    assert (detail.gpus, detail.cpus, detail.memory_mb) == tuple(
        properties.get(name) for name in ("GPUs", "Cpus", "Memory")
    )
    assert detail.site == properties.get("GLIDEIN_ResourceName")
    assert detail.has_properties == bool(properties)


def terminated(detail: Any, ad: Ad) -> None:
    ending(detail, ad)
    for row in events.usage_rows(detail.usage):
        if f"Request{row.name}" in ad:
            assert row.request == ad[f"Request{row.name}"]
            assert row.allocated == ad.get(row.name)
            assert row.usage == ad.get(f"{row.name}Usage")
            assert row.assigned == ad.get(f"Assigned{row.name}")


def generic(detail: Any, ad: Ad) -> None:
    assert detail.text == ad.get("Info", "").rstrip()


def held(detail: Any, ad: Ad) -> None:
    """The official reader has 0 for codes that an old log lacks."""
    assert (detail.code or 0) == ad["HoldReasonCode"]
    assert (detail.subcode or 0) == ad["HoldReasonSubCode"]


def remote_error(detail: Any, ad: Ad) -> None:
    if "CriticalError" in ad:  # which the official reader drops from the text form
        assert detail.warning == (not ad["CriticalError"])


def connection(detail: Any, ad: Ad) -> None:
    assert detail.reason == ad.get("DisconnectReason", ad.get("Reason"))


def cluster_submit(detail: Any, ad: Ad) -> None:
    assert detail.node == ad["StructuredNotes"]["DAGNodeName"]


def file_transfer(detail: Any, ad: Ad) -> None:
    assert detail.kind is list(events.Transfer)[ad["Type"] - 1]


REASON = {"reason": "Reason"}
ENDED = {"return_value": "ReturnValue", "signal": "TerminatedBySignal"}
FLAGS = {"requeued": "TerminatedAndRequeued", "checkpointed": "Checkpointed"}

SAME: dict[int, tuple[type, dict[str, str]]] = {
    0: (events.Submit, {}),
    1: (events.Execute, {"slot": "SlotName"}),
    4: (events.Evicted, {"code": "ReasonCode", **REASON, **FLAGS, **ENDED}),
    **dict.fromkeys((5, 15), (events.Terminated, {})),
    6: (events.ImageSize, {"memory_mb": "MemoryUsage"}),
    7: (events.ShadowException, {"reason": "Message"}),
    8: (events.Generic, {}),
    9: (events.Aborted, REASON),
    12: (events.Held, {"reason": "HoldReason"}),
    13: (events.Released, REASON),
    16: (events.PostScript, {"node": "DAGNodeName"}),
    21: (events.RemoteError, {"message": "ErrorMsg", "code": "HoldReasonCode"}),
    **dict.fromkeys((22, 23, 24), (events.ConnectionEvent, {"host": "StartdName"})),
    35: (events.ClusterSubmit, {"host": "SubmitHost"}),
    40: (events.FileTransfer, {"queue_seconds": "QueueingDelay", "host": "Host"}),
}
"""By event its detail, and which of its fields equal which attributes."""

RUN = {"SentBytes": "bytes_sent", "ReceivedBytes": "bytes_received"}
ALL_RUNS = {f"{sum_}_{RUN[name]}": f"{total}{name}" for name in RUN
            for sum_, total in (("run", ""), ("total", "Total"))}  # fmt: skip

BYTES: dict[int, dict[str, str]] = {
    4: {ours: theirs for theirs, ours in RUN.items()},
    **dict.fromkeys((5, 15), ALL_RUNS),
    7: {"bytes_sent": "SentBytes"},
}

CHECKS: dict[int, Callable[[Any, Ad], None]] = {
    **{0: submit, 1: execute, 5: terminated, 8: generic, 12: held, 15: terminated},
    **{16: ending, 21: remote_error, 22: connection, 23: connection, 24: connection},
    **{35: cluster_submit, 40: file_transfer},
}


AD_INFORMATION = 28
"""Its body is evidence for the job's DAGMan."""


@needs_logs
@pytest.mark.parametrize("form", ["in.json", "json", "xml"])
def test_events_are_equal_in_every_form(form: str) -> None:
    golden = LOGS / "golden"
    text = parse((golden / "all_events.txt.log").read_bytes()).events
    other = parse((golden / f"all_events.{form}.log").read_bytes())
    assert other.warnings == ()
    assert len(other.events) == len(text) == 71
    for ours, theirs in zip(other.events, text, strict=True):
        same = [
            (event.number, event.cluster, event.proc, event.subproc, event.time, event.text)
            for event in (ours, theirs)
        ]
        assert same[0] == same[1]
        if ours.number == AD_INFORMATION:
            assert ours.body == theirs.body
        if (form, ours.number) != ("in.json", 6):  # one of them has no ResidentSetSize
            assert with_rows(ours.detail) == with_rows(theirs.detail)


def with_rows(detail: events.Detail | None) -> events.Detail | None:
    """The detail with a parsed usage table, of which only text logs have the text."""
    if isinstance(detail, events.Terminated | events.Evicted):
        return replace(detail, usage=events.usage_rows(detail.usage))
    return detail


@needs_logs
def test_byte_counts_are_integers() -> None:
    for form in ("txt", "json", "in.json", "xml"):
        found = parse((LOGS / "golden" / f"all_events.{form}.log").read_bytes()).events
        totals = [
            event.detail.total_bytes_received
            for event in found
            if isinstance(event.detail, events.Terminated)
        ]
        assert 5_000_000_000_000 in totals  # 4,999,999,913,984 by way of a C float


def test_conformance_logs_exist(shared: Shared) -> None:
    assert shared("conformance/logs").is_dir()
    assert len(NAMES) >= 20
