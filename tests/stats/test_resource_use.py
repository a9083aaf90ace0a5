"""What executions used of what they requested: by tables as HTCondor writes them."""

from __future__ import annotations

from datetime import datetime

import pytest

from metlmon.snapshot.records import Ledger
from metlmon.stats.resources import Ended, ResourceGroup, resource_use
from metlmon.stats.windows import TimeWindow
from tests.conftest import Shared
from tests.support.event_logs import Log, read_ensemble
from tests.support.records import read_dagdir

TITLE = "\tPartitionable Resources :       Usage   Request Allocated Assigned\n"
DAG = "".join(f"JOB run0-train_epoch{n} e.sub\n" for n in range(9))


def table(
    cpus: str = "", memory: str = "", disk: str = "", gpus: str = "", average: str = ""
) -> str:
    """A usage table of 2 GPUs, as of the OSPool: the average in a row of its own."""
    rows = [
        ("Cpus", cpus, "8", "8"),
        ("Disk (KB)", disk, "104857600", "104859341"),
        ("GPUs", gpus, "2", "2"),
        ("Gpus (Average)", average, "", ""),
        ("GpusMemory (MB)", "65000" if average else "", "", ""),
        ("Memory (MB)", memory, "160000", "160000"),
    ]
    return TITLE + "".join(
        f"\t   {name:<20} : {used:>11} {asked:>9} {got:>9}\n" for name, used, asked, got in rows
    )


class Epochs(Log):
    """Epochs of run0 on two GPUs, one after the other: a job of an hour each, from 08:00."""

    def begin(self, epoch: int, host: str = "a", at: str = "") -> Epochs:
        self.submit(epoch + 1, f"run0-train_epoch{epoch}", at=f"{8 + epoch:02}:00:00")
        return self.run(epoch, host, at)

    def run(self, epoch: int, host: str = "a", at: str = "") -> Epochs:
        slot = f"slot1_1@{host}.example.org"
        start = at or f"{8 + epoch:02}:00:00"
        self.execute(epoch + 1, gpus=2, site=host.upper(), slot=slot, at=start)
        return self

    def end(self, epoch: int, usage: str, code: int = 0, at: str = "") -> Epochs:
        body = f"\t(1) Normal termination (return value {code})\n{usage}"
        self.raw(5, epoch + 1, "Job terminated.", body, at or f"{9 + epoch:02}:00:00")
        return self

    def lose(self, epoch: int, usage: str, at: str) -> Epochs:
        body = f"\t(0) CPU times\n{usage}"
        self.raw(4, epoch + 1, "Job was evicted. Code 1004 Subcode 0", body, at)
        return self


def ledger(log: Log) -> Ledger:
    return read_ensemble({"run.dag": DAG}, log).painter().ledger()


def groups(found: Ledger, by: str = "site", **window: datetime) -> dict[str, ResourceGroup]:
    """The groups by name and end: ``A completed``."""
    resources = resource_use(found, by, TimeWindow(**window))  # type: ignore[arg-type]
    return {f"{each.name} {each.ended}": each for each in resources.groups}


def test_what_completed_epochs_used_beside_what_was_requested() -> None:
    log = Epochs()
    for epoch, (gpus, memory) in enumerate([("1.47", "20000"), ("0.98", "30001"), ("", "21000")]):
        log.begin(epoch).end(epoch, table("0.5", memory, "57000001", "2", gpus))
    (group,) = groups(ledger(log)).values()
    assert (group.name, group.ended) == ("A", Ended.COMPLETED)
    assert (group.executions, group.measured) == (3, 3)
    memory = group.memory_mb
    assert (memory.measured, memory.median, memory.p95, memory.maximum, memory.at_most) == (
        *(3, 21000, pytest.approx(29100.9), 30001, ()),
    )
    assert (memory.requested_min, memory.requested_max) == (160000, 160000)
    assert group.gpu_memory_mb.maximum == 65000
    assert group.gpu_hours == 6
    assert group.gpus.allocated_max == 2


def test_gpu_hours_are_computed_only_where_the_use_was_measured() -> None:
    log = Epochs().begin(0).end(0, table(gpus="", average="1.47"))
    log.begin(1).end(1, table(gpus="")).begin(2).end(2, table(gpus="0"))
    (group,) = groups(ledger(log)).values()
    assert group.gpus.measured == 2, "0 was measured, a blank was not"
    assert group.gpus.median == pytest.approx(1.47 / 2)
    assert (group.gpu_hours, group.measured_gpu_hours) == (6, 4)
    assert group.computed_gpu_hours == pytest.approx(1.47)


def test_failed_lost_and_short_executions_are_groups_of_their_own() -> None:
    log = Epochs().begin(0).end(0, table("1", "20000"))
    log.begin(1).end(1, table("1", "60"), code=1)
    log.begin(2).lose(2, table("1", "31000"), at="10:50:00")
    log.run(2, at="10:52:00").end(2, table("2", "5963"), at="10:55:00")
    found = groups(ledger(log))
    assert {name: each.executions for name, each in found.items()} == {
        "A completed": 1,
        "A failed": 1,
        "A other": 2,
    }
    assert found["A completed"].memory_mb.maximum == 20000
    assert found["A other"].memory_mb.maximum == 31000, "a success too short to have trained it"


def test_use_of_cpus_is_that_of_each_execution() -> None:
    log = Epochs().begin(0, "a").lose(0, table("5.6", "20000"), at="08:20:00")
    log.run(0, "b", "08:30:00").end(0, table("0.3", "21000"), at="09:20:00")
    found = groups(ledger(log), "host")
    assert found["b.example.org completed"].cpus.maximum == 0.3
    lost = found["a.example.org other"]
    assert (lost.cpus.maximum, lost.memory_mb.measured) == (5.6, 1)


@pytest.mark.parametrize(
    ("memory", "at_most"),
    [
        (["48829", "97657"], ("median", "p95", "maximum")),
        (["22554", "22555", "22556"], ()),
        (["48829", "60001", "60002"], ()),
        (["48829", "48830", "60002"], ()),
        (["40001", "40002", "97657"], ("p95", "maximum")),
        (["18"], ()),
    ],
)
def test_a_statistic_of_rounded_figures_is_an_upper_bound(
    memory: list[str], at_most: tuple[str, ...]
) -> None:
    log = Epochs()
    for epoch, each in enumerate(memory):
        log.begin(epoch).end(epoch, table(memory=each))
    (group,) = groups(ledger(log)).values()
    assert group.memory_mb.at_most == at_most


def test_an_execution_is_counted_in_the_window_in_which_it_ended() -> None:
    found = ledger(Epochs().begin(0).end(0, table("1", "20000", average="1")))
    noon = datetime(2026, 5, 4, 8, 30)
    (before,) = groups(found, until=noon).values()
    (after,) = groups(found, since=noon).values()
    assert (before.executions, after.executions) == (0, 1)
    assert (before.gpu_hours, after.gpu_hours) == (1, 1)
    assert before.ended is after.ended is Ended.COMPLETED
    assert (before.memory_mb.measured, after.memory_mb.measured) == (0, 1)


@pytest.mark.parametrize(
    ("by", "name"),
    [
        ("run", "run0"),
        ("site", "A"),
        ("gpu", "NVIDIA L40S"),
        ("host", "a.example.org"),
        ("request", "2 GPUs, 8 CPUs, 156 GB, 100 GB disk"),
    ],
)
def test_groups_by(by: str, name: str) -> None:
    log = Epochs().begin(0).end(0, table("1", "20000")).begin(1)
    found = groups(ledger(log), by)
    assert found[f"{name} completed"].executions == 1
    running = found[f"{None if by == 'request' else name} other"]
    assert (running.executions, running.measured, running.computed_gpu_hours) == (1, 0, None)


def test_the_real_ensemble(shared: Shared) -> None:
    resources = resource_use(read_dagdir(shared("examples/metl-aws")).ledger())
    completed, failed, other = resources.total
    assert (completed.executions, completed.measured, failed.executions) == (33, 33, 16)
    assert completed.gpus.measured == 0
    assert (completed.memory_mb.median, completed.memory_mb.maximum) == (22514, 31756)
    assert completed.memory_mb.requested_max == 160000
    assert failed.memory_mb.requested_max == 192000
    # The rows say up to 0.75, which is the last sample of each.
    assert completed.cpus.median == pytest.approx(4.63, abs=0.01)
    assert sum(each.gpu_hours for each in resources.total) == pytest.approx(1011.3, abs=0.1)
    assert other.executions == 44


def four_cores(seconds: int, row: str) -> str:
    """An end after so many seconds with four cores in use; ``row``: its TimeExecute."""
    hours, minutes = divmod(seconds * 4 // 60, 60)
    spent = f"\t\tUsr 0 {hours:02}:{minutes:02}:00, Sys 0 00:00:00  -  Run Remote Usage\n"
    return spent + table("0.33") + (f"\t   TimeExecute (s)      : {row:>11}\n" if row else "")


@pytest.mark.parametrize(
    "row",
    [
        pytest.param("3540", id="without the transfer of output"),
        pytest.param("1747770233", id="of a shadow that did not see the start"),
        pytest.param("900", id="of an earlier execution"),
        pytest.param("", id="of a version without this row"),
    ],
)
def test_cores_are_the_cpu_time_by_the_time_of_the_execution(row: str) -> None:
    log = Epochs().begin(0).end(0, four_cores(3540 if row == "3540" else 3600, row))
    (group,) = groups(ledger(log)).values()
    assert group.cpus.median == 4


def test_cores_of_an_execution_that_was_lost_after_a_checkpoint() -> None:
    """Its table has the time up to the last exit that the access point recorded."""
    log = Epochs().begin(0).lose(0, four_cores(3600, "600"), at="09:00:00")
    (group,) = groups(ledger(log)).values()
    assert group.cpus.median == 4
