"""XML and JSON logs: damage, expressions, and missing attributes."""

from __future__ import annotations

import pytest

from metlmon.eventlog import events
from metlmon.eventlog.classad_log import event_parts
from metlmon.eventlog.reader import parse

JSON = b"""\
{
  "Proc": 3,
  "MyType": "JobHeldEvent",
  "Cluster": 77,
  "Subproc": 0,
  "EventTime": "2026-03-29T01:59:59",
  "HoldReason": "a { b",
  "HoldReasonCode": 13,
  "EventTypeNumber": 12,
  "HoldReasonSubCode": 2
}
"""
JSON_LINE = b" ".join(line.strip() for line in JSON.splitlines()) + b"\n"
XML = b"""\
<c>
    <a n="Proc"><i>3</i></a>
    <a n="Cluster"><i>77</i></a>
    <a n="Subproc"><i>0</i></a>
    <a n="EventTime"><s>2026-03-29T01:59:59</s></a>
    <a n="HoldReason"><s>a { b</s></a>
    <a n="HoldReasonCode"><i>13</i></a>
    <a n="EventTypeNumber"><i>12</i></a>
    <a n="HoldReasonSubCode"><i>2</i></a>
</c>
"""
FORMS = pytest.mark.parametrize("event", [JSON, JSON_LINE, XML], ids=["json", "json-line", "xml"])


def whole(parsed: events.Parsed) -> list[events.Held]:
    return [
        event.detail
        for event in parsed.events
        if not event.damaged and isinstance(event.detail, events.Held)
    ]


def test_submit_of_25_14_has_its_run() -> None:
    """Written by HTCondor 25.14.1 for submit_event_notes_attrs."""
    notes = b"".join(
        b'<a n="%b">%b</a>' % each
        for each in (
            (b"RunName", b"<s>run0</s>"),
            (b"RunUuid", b"<s>75f86c77</s>"),
            (b"RunEpoch", b"<i>3</i>"),
        )
    )
    log = XML.replace(b"<i>12</i>", b"<i>0</i>")
    log = log.replace(b"</c>", b'    <a n="StructuredNotes"><c>%b</c></a>\n</c>' % notes)
    (event,) = parse(log).events
    detail = event.detail
    assert isinstance(detail, events.Submit)
    assert (detail.run_name, detail.run_uuid, detail.run_epoch) == ("run0", "75f86c77", 3)


@FORMS
def test_held_job_is_read(event: bytes) -> None:
    parsed = parse(event * 2)
    assert parsed.warnings == ()
    assert whole(parsed) == [events.Held("a { b", 13, 2)] * 2
    lines = event.count(b"\n")
    assert [each.line for each in parsed.events] == [1, 1 + lines]
    assert (parsed.after.offset, parsed.after.line) == (2 * len(event), 1 + 2 * lines)
    assert parsed.events[0].text == "Job was held."


@FORMS
def test_events_after_a_cut_event_are_found(event: bytes) -> None:
    """Only an event on the same line is lost with it."""
    for cut in range(1, len(event) - 2):
        parsed = parse(event + event[:cut] + event + event)
        found = whole(parsed)
        assert found[0] == found[-1] == events.Held("a { b", 13, 2), cut
        assert len(found) >= (3 if event[:cut].endswith(b"\n") else 2), cut
        assert len(parsed.warnings) == 1, cut
        assert parsed.after.offset == 3 * len(event) + cut


@FORMS
def test_cut_end_of_a_finished_log_is_reported(event: bytes) -> None:
    cut = event + event[:-5]
    assert len(parse(cut).events) == 1
    parsed = parse(cut, final=True)
    assert len(whole(parsed)) == 1
    assert [warning.kind for warning in parsed.warnings] == ["unterminated-event"]
    assert parsed.after.offset == len(cut)
    unended = parse(event + event.rstrip(b"\n"), final=True)
    assert len(whole(unended)) == 2
    assert unended.warnings == ()


@FORMS
def test_garbage_and_nuls_between_events_are_reported(event: bytes) -> None:
    parsed = parse(event + b"oops\n" + event + b"\0\0\n" + event)
    assert len(whole(parsed)) == 3
    assert [warning.kind for warning in parsed.warnings] == ["garbage", "nul-bytes"]
    assert parsed.warnings[0].line == 1 + event.count(b"\n")


def test_xml_log_may_have_a_frame() -> None:
    frame = b'<?xml version="1.0"?>\n<!DOCTYPE classads SYSTEM "classads.dtd">\n<classads>\n'
    parsed = parse(frame + XML + b"</classads>\n", final=True)
    assert len(whole(parsed)) == 1
    assert parsed.warnings == ()


def test_markup_quotes_and_braces_in_a_string_are_text() -> None:
    hostile = XML.replace(b"a { b", b"&lt;/c&gt;\n&lt;c&gt; &amp;amp; &quot;")
    (event,) = parse(hostile).events
    assert event.detail == events.Held('</c>\n<c> &amp; "', 13, 2)
    (event,) = parse(JSON.replace(b"a { b", rb"\"}\n{ \\")).events
    assert event.detail == events.Held('"}\n{ \\', 13, 2)


def test_missing_ids_are_negative() -> None:
    """As in the global event log's own 008: HTCondor omits an id of -1."""
    log = b'{"EventTypeNumber": 8, "EventTime": "2026-03-29T01:59:59", "Info": "Global JobLog:"}\n'
    (event,) = parse(log).events
    assert (event.cluster, event.proc, event.detail) == (-1, -1, events.Generic("Global JobLog:"))


def test_other_object_is_reported() -> None:
    parsed = parse(JSON + b'{"loss": 0.1}\n' + JSON)
    assert len(whole(parsed)) == 2
    assert [(warning.kind, warning.line) for warning in parsed.warnings] == [("bad-header", 12)]


@pytest.mark.parametrize("number", [40, 42, 70])
def test_event_without_a_text_has_its_attributes(number: int) -> None:
    ad = {"EventTypeNumber": number, "Cluster": 7, "Type": 9, "Tag": "a"}
    text, body, _ = event_parts(number, ad)
    assert (text, body) == ("", 'Tag = "a"\nType = 9')


def test_execute_has_expressions_and_gpus() -> None:
    gpus = (
        '{"EventTypeNumber": 1, "Cluster": 7, "Proc": 0, "Subproc": 0, '
        '"EventTime": "2026-03-29T01:59:59", "ExecuteHost": "<10.0.0.7:9618>", "ExecuteProps": '
        r'{"GPUs": "\/Expr(1 + 1)\/", "GLIDEIN_ResourceName": "a\"b", '
        '"AnnexName": "gpu-annex", "AvailableGPUs": ["GPUs_GPU_a"], "GPUs_Capability": 8.6, '
        '"GPUs_GPU_a": {"DeviceName": "NVIDIA A40", "GlobalMemoryMb": 45400, "ClockMhz": 1740}}}\n'
    )
    (event,) = parse(gpus.encode()).events
    assert isinstance(event.detail, events.Execute)
    assert (event.detail.gpus, event.detail.site) == (None, 'a"b')
    assert event.detail.annex == "gpu-annex"
    assert (event.detail.gpu, event.detail.gpu_memory_mb) == ("NVIDIA A40", 45400)
    assert event.detail.device == events.GpuDevice(clock_mhz=1740)


def test_resource_attributes_have_several_spellings() -> None:
    """As ``setEventUsageAd`` writes them: only the machine's own name keeps its capitals."""
    (event,) = parse(
        b'{"EventTypeNumber": 5, "Cluster": 77, "Proc": 0, "Subproc": 0, '
        b'"EventTime": "2026-03-29T01:59:59", "TerminatedNormally": true, "ReturnValue": 0, '
        b'"RunRemoteUsage": "Usr 0 00:01:00, Sys 0 00:00:00", "GPUs": 2, "RequestGpus": 1, '
        b'"GpusAverageUsage": 0.91, "GpusMemoryUsage": 41234, "AssignedGpus": "GPU-0a"}\n',
        final=True,
    ).events
    assert isinstance(event.detail, events.Terminated)
    (gpus,) = (row for row in events.usage_rows(event.detail.usage) if row.name == "Gpus")
    assert (gpus.request, gpus.allocated, gpus.assigned) == (1, 2, "GPU-0a")
    used = events.resource_usage(event.detail.usage)
    assert (used.gpus, used.gpus_requested, used.gpus_allocated) == (0.91, 1, 2)
    assert used.gpu_memory_mb == 41234
