"""Usage of executions against their requests, in tables of HTCondor."""

from __future__ import annotations

from datetime import datetime

import pytest

from metlmon.snapshot.records import Ledger
from metlmon.stats.resources import Ended, ResourceGroup, resource_use
from metlmon.stats.windows import TimeWindow
from tests.support.event_logs import Log, read_ensemble

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
    return read_ensemble({"run.dag": DAG}, log).builder().ledger()


def groups(found: Ledger, by: str = "site", **window: datetime) -> dict[str, ResourceGroup]:
    """The groups by name and end: ``A completed``."""
    resources = resource_use(found, by, TimeWindow(**window))  # type: ignore[arg-type]
    return {f"{each.name} {each.ended}": each for each in resources.groups}


def test_execution_counts_in_the_window_of_its_end() -> None:
    found = ledger(Epochs().begin(0).end(0, table("1", "20000", average="1")))
    noon = datetime(2026, 5, 4, 8, 30)
    (before,) = groups(found, until=noon).values()
    (after,) = groups(found, since=noon).values()
    assert (before.executions, after.executions) == (0, 1)
    assert (before.gpu_hours, after.gpu_hours) == (1, 1)
    assert before.ended is after.ended is Ended.COMPLETED
    assert (before.memory_mb.measured, after.memory_mb.measured) == (0, 1)


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
def test_cores_are_cpu_time_per_execution_time(row: str) -> None:
    log = Epochs().begin(0).end(0, four_cores(3540 if row == "3540" else 3600, row))
    (group,) = groups(ledger(log)).values()
    assert group.cpus.median == 4


def test_use_of_gpus_is_that_of_the_last_execution() -> None:
    """Not that of an earlier one, elsewhere, while the last one runs."""
    log = Epochs().begin(0).lose(0, table(average="1.4"), at="08:20:00").run(0, "b", at="08:40:00")
    (job,), (epoch, *_) = ledger(log).jobs, ledger(log).epochs
    assert (job.gpu_use, epoch.gpu_use) == (None, None)
    (job,), (epoch, *_) = (found := ledger(log.end(0, table(average="0.7")))).jobs, found.epochs
    assert (job.gpu_use, epoch.gpu_use) == (0.7, 0.7)


def test_table_of_a_job_whose_start_is_not_logged() -> None:
    log = Epochs().submit(1, "run0-train_epoch0", at="08:00:00")
    (job,) = ledger(log.end(0, table(average="0.7", memory="22554"))).jobs
    assert (job.memory_mb, job.request_memory_mb, job.gpu_use) == (22554, 160000, 0.7)
