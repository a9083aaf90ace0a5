"""Typed details, with the peculiarities of real logs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from metlmon.eventlog import events
from metlmon.eventlog.reader import parse


def detail_of(number: int, text: str, *body: str) -> events.Detail | None:
    lines = [f"{number:03d} (077.003.000) 2026-03-29 01:59:59 {text}", *body, "...", ""]
    parsed = parse("\n".join(lines).encode())
    assert parsed.warnings == ()
    (event,) = parsed.events
    assert not event.damaged
    return event.detail


FROM = "Job submitted from host: <10.0.0.1:9618>"


@pytest.mark.parametrize(
    ("body", "node"),
    [
        (["    DAG Node: run0-train_epoch0"], "run0-train_epoch0"),
        (['    [ DAGNodeName = "run0-train_epoch0"; JobBatchName = "e+1" ]'], "run0-train_epoch0"),
        (["    DAG Node: old", '    [ DAGNodeName = "new" ]'], "new"),
        (['    [ DAGNodeName = "a\\"b\\\\c"; X = 1 ]'], 'a"b\\c'),
        (["    DAG Node: A trailing words"], "A"),
        (["    seed=3"], None),
        ([], None),
    ],
)
def test_submit_has_the_node_name(body: list[str], node: str | None) -> None:
    detail = detail_of(0, FROM, *body)
    assert isinstance(detail, events.Submit)
    assert (detail.node, detail.host) == (node, "<10.0.0.1:9618>")


def test_submit_of_25_14_has_its_run() -> None:
    """Written by HTCondor 25.14.1 for submit_event_notes_attrs."""
    detail = detail_of(
        0,
        FROM,
        '    [ RunName = "run0"; RunUuid = "75f86c77"; RunEpoch = 3; DAGNodeName = "A"; '
        'JobBatchName = "n.dag+2" ]',
    )
    assert isinstance(detail, events.Submit)
    assert (detail.run_name, detail.run_uuid, detail.run_epoch) == ("run0", "75f86c77", 3)
    assert (detail.node, detail.batch_name, detail.notes) == ("A", "n.dag+2", ())


@pytest.mark.parametrize("epoch", ["0", "-1", '"3"', "99999999999"])
def test_invalid_run_epoch_is_none(epoch: str) -> None:
    detail = detail_of(0, FROM, f'    [ RunName = ""; RunUuid = 5; RunEpoch = {epoch} ]')
    assert isinstance(detail, events.Submit)
    assert (detail.run_name, detail.run_uuid, detail.run_epoch) == (None, None, None)


def test_submit_has_notes_without_warnings() -> None:
    detail = detail_of(0, FROM, "    DAG Node: A", "    seed=3", "    WARNING: Unused variable: x")
    assert isinstance(detail, events.Submit)
    assert detail.notes == ("seed=3",)


def gpu(uuid: str, model: str, memory: int) -> str:
    return (
        f'\tGPUs_GPU_{uuid} = [ Id = "GPU-{uuid}"; Capability = 8.9; DeviceName = "{model}"; '
        f'DevicePciBusId = "0000:00:00.0"; GlobalMemoryMb = {memory}; Note = "{"x" * 300}" ]'
    )


HOST = "Job executing on host: <10.0.0.7:9618?addrs=10.0.0.7-9618&alias=gpu1.example.org&noUDP>"


THIRTY = [gpu(f"{number:04x}", "NVIDIA L40S", 45488) for number in range(30)]
TWO_MODELS = [gpu("a", "NVIDIA H100", 81079), gpu("b", "NVIDIA A40", 45400)]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ["\tSlotName: slot1_1@gpu1", "\tGPUs = 30", *THIRTY],
            {"gpus": 30, "gpu": "NVIDIA L40S", "gpu_memory_mb": 45488, "slot": "slot1_1@gpu1"},
        ),
        (TWO_MODELS, {"gpu": "NVIDIA A40 + NVIDIA H100", "gpu_memory_mb": 45400}),
        (["\tGPUs = 0"], {"gpus": 0}),
        (["\tGPUs = 4"], {"gpus": 4}),
        (["\tGPUs = ifThenElse(x, 1, 2)"], {"gpus": None}),
        (["\tCpus = 1"], {"gpus": None}),
        # Older versions say nothing of the slot.
        ([], {"slot": None, "site": None, "gpus": None}),
        (
            ['\tGLIDEIN_ResourceName = "SDSC \\"PRP\\""', '\tGLIDEIN_Site = "X"'],
            {"site": 'SDSC "PRP"', "annex": None},
        ),
        (['\tAnnexName = "gpu-annex"'], {"annex": "gpu-annex"}),
        (["\tAnnexName = undefined"], {"annex": None}),
    ],
)
def test_attributes_of_an_execute(lines: list[str], expected: dict[str, object]) -> None:
    detail = detail_of(1, HOST, *lines)
    assert isinstance(detail, events.Execute)
    assert {name: getattr(detail, name) for name in expected} == expected
    assert (detail.alias, detail.has_properties) == ("gpu1.example.org", bool(lines))


TABLE = [
    "\tPartitionable Resources :       Usage   Request Allocated Assigned",
    "\t   Cpus                 :        4.45         8         8 ",
    "\t   Disk (KB)            : 60748317    104857600 104859341 ",
    '\t   GPUs                 :                     2         4 "GPU-d6041c7c,GPU-1d3f0e92"',
    "\t   Memory (MB)          :    21005       160000    160000 ",
    "\t   TimeExecute (s)      : 1747770233                     ",
    "\t   TimeSlotBusy (s)     :    18763                        ",
]


def test_secret_among_assigned_devices_is_hidden() -> None:
    devices = '"GPU-1 --token 4f6Hq0Zx7Q"'
    lines = (*TABLE[:3], TABLE[3].replace('"GPU-d6041c7c,GPU-1d3f0e92"', devices))
    detail = detail_of(4, "Job was evicted. Code 1007 Subcode 0", "\t(0) CPU times", *lines)
    assert isinstance(detail, events.Evicted)
    assert events.usage_rows(detail.usage)[-1].assigned == "GPU-1 --token (hidden)"
    parsed = (events.UsageRow("GPUs", "", None, 2, 4, devices.strip('"')),)
    assert events.usage_rows(parsed)[0].assigned == "GPU-1 --token (hidden)"


@pytest.mark.parametrize("reason", [None, "The job attribute PeriodicVacate … evaluated to TRUE"])
def test_reason_of_an_eviction_may_have_no_label(reason: str | None) -> None:
    lines = ["\t857  -  Run Bytes Received By Job", *([f"\t{reason}"] if reason else ()), *TABLE]
    detail = detail_of(4, "Job was evicted.", "\t(0) CPU times", *lines)
    assert isinstance(detail, events.Evicted)
    assert detail.reason == reason


def test_old_usage_table_without_assigned_or_allocated() -> None:
    detail = detail_of(
        5,
        "Job terminated.",
        "\t(1) Normal termination (return value 0)",
        "        Partitionable Resources :    Usage  Request",
        "           Bandwidth            :                 7",
        "           Gpus (Average)       :     0.93         ",
    )
    assert isinstance(detail, events.Terminated)
    assert events.usage_rows(detail.usage) == (
        events.UsageRow("Bandwidth", "", None, 7, None, None),
        events.UsageRow("Gpus", "Average", 0.93, None, None, None),
    )


def test_numbers_across_the_edge_of_a_column() -> None:
    """Reports in public trackers have tables that were edited: rows are shifted by a character."""
    detail = detail_of(
        5,
        "Job terminated.",
        "\t(1) Normal termination (return value 0)",
        "\tPartitionable Resources :    Usage  Request Allocated",
        "\t   Cpus                 :      0.25        1         1",
        "\t   GPUs                 :                  2         2",
        "\t   Memory (MB)          :      700     1024      2048",
    )
    assert isinstance(detail, events.Terminated)
    assert events.usage_rows(detail.usage) == (
        events.UsageRow("Cpus", "", 0.25, 1, 1, None),
        events.UsageRow("GPUs", "", None, 2, 2, None),
        events.UsageRow("Memory", "MB", 700, 1024, 2048, None),
    )
    assert events.resource_usage(detail.usage) == events.ResourceUsage(
        cpus=0.25,
        cpus_requested=1,
        cpus_allocated=1,
        gpus_requested=2,
        gpus_allocated=2,
        memory_mb=700,
        memory_mb_requested=1024,
        memory_mb_allocated=2048,
    )


def test_own_accord_line_has_the_time_in_utc() -> None:
    detail = detail_of(
        5,
        "Job terminated.",
        "    (0) Abnormal termination (signal 9)",
        "    (1) Corefile in: /x/core",
        "",
        "    Job terminated of its own accord at 2023-01-24T15:43:00Z with exit-code 0.",
    )
    assert isinstance(detail, events.Terminated)
    assert detail.ended_utc == datetime(2023, 1, 24, 15, 43, tzinfo=UTC)
    assert (detail.normal, detail.signal) == (False, 9)
