"""The ledger agrees with itself, and with a second look at the raw log lines."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from metlmon.model.job_events import JobId
from metlmon.model.states import Outcome, State
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.records import Execution, Ledger
from tests.conftest import Shared, shared_path
from tests.support.commands import Captured, json_output
from tests.support.records import read_dagdir

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
NAMES = (
    "examples/metl-aws",
    "examples/pool-ensemble",
    *sorted({f"fixtures/{path.parent.name}" for path in FIXTURES.glob("*/*.dag")}),
)

SECOND = 1 / 3600


def place(name: str) -> Path:
    kind, directory = name.split("/")
    return FIXTURES / directory if kind == "fixtures" else shared_path(name)


@cache
def painted(directory: Path) -> SnapshotBuilder:
    return read_dagdir(directory)


@pytest.fixture(name="painter", params=NAMES)
def _painter(request: pytest.FixtureRequest) -> SnapshotBuilder:
    return painted(place(request.param))


@pytest.fixture(name="ledger")
def _ledger(painter: SnapshotBuilder) -> Ledger:
    return painter.ledger()


def hours(entries: Iterable[Execution]) -> dict[str, float]:
    sums = {"goodput": 0.0, "badput": 0.0, "running": 0.0}
    for entry in entries:
        # What stored a checkpoint is good up to it.
        sums["goodput"] += entry.stored * (entry.weight or 0.0) / 3600
        sums[entry.kind] += (entry.seconds - entry.stored) * (entry.weight or 0.0) / 3600
    return sums


# --- within itself ----------------------------------------------------------------------------


def test_attempts_are_numbered_from_one(ledger: Ledger) -> None:
    by_node: defaultdict[object, list[Execution]] = defaultdict(list)
    for entry in ledger.executions:
        by_node[(entry.dag, entry.node) if entry.node else entry.job].append(entry)
    for entries in by_node.values():
        entries.sort(key=lambda entry: (entry.attempt, entry.start))
        numbers = {entry.attempt for entry in entries}
        assert sorted(numbers) == list(range(1, len(numbers) + 1))
        # Only the procs of one submission are tried together.
        assert len({(entry.job, entry.attempt) for entry in entries}) == len(entries)
        submissions = {(entry.attempt, entry.job[0]) for entry in entries}
        assert len(submissions) == len(numbers)


def test_bytes_of_a_job_add_up_over_its_executions(ledger: Ledger) -> None:
    ran = {entry.job for entry in ledger.executions}
    for name in ("bytes_sent", "bytes_received"):
        by_job: Counter[JobId] = Counter()
        for entry in ledger.executions:
            by_job[entry.job] += getattr(entry, name) or 0
        jobs = {job.job: getattr(job, name) or 0 for job in ledger.jobs if job.job in ran}
        assert by_job == Counter(jobs)


def test_time_cut_anywhere_adds_up_to_the_second(ledger: Ledger) -> None:
    """At every midnight of the access point, over both changes of the clock."""
    for entry in ledger.executions:
        end = entry.end or ledger.as_of
        assert end is not None
        here, sum_ = entry.start, 0.0
        while here < end:
            midnight = datetime(here.year, here.month, here.day) + timedelta(days=1)
            stop = min(midnight, end)
            sum_ += ledger.seconds_between(here, stop)
            here = stop
        assert sum_ == pytest.approx(entry.seconds, abs=1e-6)


def test_an_epochs_figures_are_its_executions(ledger: Ledger) -> None:
    of_node: defaultdict[object, list[Execution]] = defaultdict(list)
    for entry in ledger.executions:
        of_node[(entry.dag, entry.node)].append(entry)
    for epoch in ledger.epochs:
        mine = of_node[(epoch.dag, epoch.node)]
        assert epoch.attempts == max((entry.attempt for entry in mine), default=0)
        spent = {kind: getattr(epoch.hours, kind) for kind in ("goodput", "badput", "running")}
        assert hours(mine) == pytest.approx(spent, abs=SECOND)
        final = [entry for entry in mine if entry.final]
        if epoch.success is None:
            assert final == []
            continue
        (last,) = final
        assert last == epoch.success
        assert last.seconds == epoch.success_seconds
        assert last.end == epoch.completed
        assert epoch.longest_seconds == max(entry.trained for entry in mine)


def test_executions_lie_in_their_jobs_running_states(ledger: Ledger) -> None:
    jobs = {job.job: job for job in ledger.jobs}
    for entry in ledger.executions:
        entered = dict.fromkeys(when for when, _ in jobs[entry.job].states)
        assert entry.start in entered
        assert entry.seconds >= 0
        assert entry.end is None or entry.start <= entry.end


def test_one_picture_has_one_ledger(painter: SnapshotBuilder) -> None:
    assert painter.ledger() is painter.ledger()


# --- against the raw lines ---------------------------------------------------------------------

HEADER = re.compile(r"(\d{3}) \((\d+)\.(\d+)\.\d+\) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(.*)")


LATE: Final = -1.0
"""The end of the transfer is still to come when its 001 is logged."""


def raw_waits(log: Path, zone: ZoneInfo) -> dict[JobId, list[list[float | None]]]:
    """Of each job, before each 001: seconds idle, and seconds of the last input transfer.

    Read from header lines alone: idle from 000, 004, 007, 013 and 024 on, until an input
    transfer is queued or begins, a hold, or the 001. The end of a transfer can be logged
    right after its 001.
    """
    idle_since: dict[JobId, datetime | None] = {}
    held: set[JobId] = set()
    idle: defaultdict[JobId, float] = defaultdict(float)
    began: dict[JobId, datetime] = {}
    moved: dict[JobId, float | None] = {}
    waits: defaultdict[JobId, list[list[float | None]]] = defaultdict(list)
    for line in log.read_text(errors="replace").splitlines():
        # A line that was cut has the next header glued to it.
        found = HEADER.search(line) if re.search(r"\d{3} \(\d+\.\d{3}\.", line) else None
        if found is None:
            continue
        number = found[1]
        when = datetime.fromisoformat(found[4]).replace(tzinfo=zone).astimezone(UTC)
        job = (int(found[2]), int(found[3]))
        text = found[5].strip()
        stops = number in ("001", "012") or text.endswith("transferring input files")
        stops = stops or text == "Entered queue to transfer input files"
        if stops and idle_since.get(job) is not None:
            idle[job] += (when - idle_since.pop(job)).total_seconds()  # type: ignore[operator]
        match number:
            case "012":
                held.add(job)
            case "013" if job in held:
                held.discard(job)
                idle_since[job] = when
            case "000" | "004" | "007" | "024" if job not in held:
                idle_since.setdefault(job, when)
            case "040" if text == "Started transferring input files":
                began[job] = when
            case "040" if text == "Finished transferring input files" and job in began:
                moved[job] = (when - began.pop(job)).total_seconds()
                if waits[job] and waits[job][-1][1] is LATE:
                    waits[job][-1][1] = moved.pop(job)
            case "001":
                late = LATE if job in began else None
                waits[job].append([idle.pop(job, 0.0), moved.pop(job, late)])
                idle_since.pop(job, None)
    return waits


@pytest.mark.parametrize(
    ("name", "zone"),
    [
        ("examples/metl-aws", "America/Chicago"),
        ("fixtures/first-round", "America/Chicago"),
        ("fixtures/holds", "UTC"),
        ("fixtures/trainer", "UTC"),
    ],
)
def test_waits_and_transfers_as_a_second_reader_sees_them(name: str, zone: str) -> None:
    ledger = painted(place(name)).ledger()
    raw = raw_waits(place(name) / "metl.log", ZoneInfo(zone))
    booked: defaultdict[JobId, list[list[float | None]]] = defaultdict(list)
    for entry in ledger.executions:
        booked[entry.job].append([entry.wait, entry.transfer])
    different = {
        job: (booked[job], waits)
        for job, waits in raw.items()
        if job in booked and booked[job] != waits
    }
    assert different == {}
    assert sum(map(len, booked.values())) == sum(map(len, raw.values()))


# --- facts known of a real ensemble --------------------------------------------------------------


@pytest.fixture(name="aws")
def _aws(shared: Shared) -> Ledger:
    return painted(shared("examples/metl-aws")).ledger()


def test_nine_epochs_were_trained_by_another_execution(aws: Ledger) -> None:
    hidden = {(epoch.run_name, epoch.epoch) for epoch in aws.epochs if epoch.hidden}
    assert hidden == {
        ("run0", 0),
        ("run0", 7),
        ("run1", 0),
        ("run2", 0),
        ("run2", 4),
        ("run3", 0),
        ("run4", 0),
        ("run4", 4),
        ("run4", 7),
    }
    assert all(epoch.state is State.COMPLETED for epoch in aws.epochs if epoch.hidden)


def test_a_longer_execution_that_was_lost_is_no_hidden_compute(
    shared: Shared, capsys: Captured
) -> None:
    """17.0 h were evicted, then 11.3 h succeeded: these began again, and trained it."""
    path = str(shared("cases/trained-on-two-rules"))
    (epoch,) = json_output("run", capsys, path, "run0")["epochs"]
    assert (epoch["site"], epoch["trained_on"]) == ("SITE-B", None)
    assert epoch["checkpoint"]["site"] == "SITE-B"
    (entry,) = read_dagdir(Path(path)).ledger().epochs
    assert (entry.site, entry.longest_site, entry.hidden) == ("SITE-B", "SITE-A", False)


def test_trained_on_is_the_inferred_checkpoint_and_the_hidden_epochs(
    aws: Ledger, shared: Shared
) -> None:
    """Of 15 epochs a longer execution was lost; of nine it trained the epoch."""
    builder = painted(shared("examples/metl-aws"))
    views = (builder.run_view(run.key) for run in builder.status().runs)
    rows = [row for view in views if view is not None for row in view.epochs]
    trained = {(row.in_dag, row.node) for row in rows if row.trained_on is not None}
    assert trained == {epoch.key for epoch in aws.epochs if epoch.hidden}
    assert len(trained) == 9


def test_what_was_lost_and_why(aws: Ledger) -> None:
    lost: defaultdict[str, float] = defaultdict(float)
    for entry in aws.executions:
        if entry.kind != "badput":
            continue
        match entry.outcome:
            case Outcome.FAILED:
                key = f"return value {entry.return_value}"
            case Outcome.REMOVED:
                key = "unknown end" if entry.uncertain else "removed"
            case _:
                key = f"{entry.code}/{entry.subcode}"
        lost[key] += (entry.gpu_seconds or 0.0) / 3600
    assert {key: round(value, 2) for key, value in lost.items()} == {
        "1023/0": 222.69,
        "return value 1": 78.80,
        "1005/0": 48.58,
        "unknown end": 25.00,
        "1007/0": 14.28,
        "12/122": 11.68,
    }


def test_a_hold_lasts_to_its_release(aws: Ledger) -> None:
    # The eviction that came with this hold has the same second.
    (job,) = [job for job in aws.jobs if job.job == (12713917, 0)]
    (hold,) = job.holds
    assert (hold.start, hold.end) == (
        datetime(2025, 11, 12, 16, 40, 10),
        datetime(2025, 11, 13, 9, 22, 27),
    )
    assert hold.seconds == 60137
