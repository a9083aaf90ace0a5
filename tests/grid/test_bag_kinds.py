"""Bags whose shards have several executions, processes or names: their figures against the written
logs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from metlmon.model.states import State
from metlmon.stats.shards import Bag, bags
from metlmon.tables import shards as shards_table
from metlmon.text.spans import text
from tests.support.dagdir_feed import dagdir_feed
from tests.support.event_logs import Log, Out, log_of_events, moment
from tests.support.records import read_dagdir, stats_input
from tests.support.screen_view import MIDDLE, opened

Job = int | tuple[int, int]

SUBMIT = "executable = infer.sh\nlog = bag.log\nqueue\n"


def bags_of(path: Path) -> tuple[Bag, ...]:
    return bags(stats_input(read_dagdir(path)))


def shards(number: int, more: str = "") -> str:
    return "".join(f"JOB shard{n:03} infer.sub\n" for n in range(number)) + more


def write(path: Path, dags: dict[str, str], log: Log, outs: dict[str, Out]) -> None:
    """Write DAG files by name, the one event log, and DAGMan's output by DAG file."""
    for name, dag in dags.items():
        (path / name).write_text(dag)
    (path / "infer.sub").write_text(SUBMIT)
    (path / "bag.log").write_bytes(log.data)
    for name, out in outs.items():
        (path / f"{name}.dagman.out").write_bytes(out.data)


def at(minute: float) -> str:
    """So many minutes after ten."""
    return str(moment("10:00:00") + timedelta(minutes=minute))


def submitted(
    log: Log, out: Out, numbers: Iterable[int], minute: float = 1, first: int = 100, procs: int = 1
) -> None:
    """Submit these shards; their clusters count from ``first``."""
    for n in numbers:
        for proc in range(procs):
            log.submit((first + n, proc), f"shard{n:03}", at=at(minute))
        out.submitted(f"shard{n:03}", first + n, at(minute))


def executed(log: Log, jobs: Iterable[Job], minute: float, site: str | None = None) -> None:
    for job in jobs:
        log.execute(job, at=at(minute), site=site)


def terminated(log: Log, jobs: Iterable[Job], minute: float) -> None:
    for job in jobs:
        log.terminate(job, at=at(minute))


def test_each_sub_dag_has_its_own_bag(tmp_path: Path) -> None:
    """Both sub-DAGs have shards shard000 to shard005. Those of x end after ten minutes, each on one
    GPU; two of y end after thirty, and four run."""
    log, outs = Log("bag.log"), {name: Out().start(at(0)) for name in ("top.dag", "x.dag", "y.dag")}
    submitted(log, outs["x.dag"], range(6))
    submitted(log, outs["y.dag"], range(6), 2, first=200)
    executed(log, range(100, 106), 5, "delta")
    executed(log, range(200, 206), 6, "expanse")
    terminated(log, range(100, 106), 15)
    terminated(log, range(200, 202), 36)
    top = "SUBDAG EXTERNAL X x.dag\nSUBDAG EXTERNAL Y y.dag\n"
    write(tmp_path, {"top.dag": top, "x.dag": shards(6), "y.dag": shards(6)}, log, outs)
    one, other = bags_of(tmp_path)
    assert (one.in_dag, other.in_dag) == ("x.dag", "y.dag")
    assert (one.dag, other.dag) == ("top.dag", "top.dag")
    assert one.key != other.key
    assert [each.job for each in one.shards] == [(100 + n, 0) for n in range(6)]
    assert [each.job for each in other.shards] == [(200 + n, 0) for n in range(6)]
    assert {each.site for each in one.shards} == {"delta"}
    assert (one.totals.executions, other.totals.executions) == (6, 6)
    assert (one.done, other.done) == (6, 2)
    assert one.completed_at == moment("10:15:00")
    assert one.totals.hours.total == pytest.approx(6 * 10 / 60)
    assert (other.totals.hours.goodput, other.totals.hours.running) == pytest.approx((1.0, 2.0))
    assert (other.durations.median, other.durations.shards) == (1800.0, 2)


@pytest.fixture(name="checkpointed")
def _checkpointed(tmp_path: Path) -> Path:
    """24 shards on two machines, each in three executions of ten minutes, one after the other: the
    first two end with 85. After 195 minutes twelve are done, and two are in their second."""
    events = [
        (moment(at(0)), partial(Log.submit, job=100 + n, node=f"shard{n:03}")) for n in range(24)
    ]
    for n in range(14):
        for part in range(3):
            begun = 1 + 30 * (n // 2) + 10 * part
            end = Log.terminate if part == 2 else partial(Log.requeue, code=85)
            events.append((moment(at(begun)), partial(Log.execute, job=100 + n, site="delta")))
            events.append((moment(at(begun + 10)), partial(end, job=100 + n)))
    log = log_of_events((e for e in events if e[0] <= moment(at(195))), "bag.log")
    write(tmp_path, {"bag.dag": shards(24)}, log, {"bag.dag": Out().start(at(0))})
    (tmp_path / "metlmon.toml").write_text("checkpoint_codes = [85]\n")
    return tmp_path


def test_time_of_a_shard_is_the_sum_of_its_executions(checkpointed: Path) -> None:
    (bag,) = bags_of(checkpointed)
    assert bag.done == bag.durations.shards == 12
    assert bag.durations.median == bag.durations.maximum == 1800.0
    by_state = {(each.state, each.seconds, each.attempts) for each in bag.shards}
    assert by_state == {
        (State.COMPLETED, 1800.0, 3),
        # As-of is the newest event, when both began their second execution.
        (State.RUNNING, 600.0, 2),
        (State.IDLE, None, 0),
    }
    assert bag.totals.executions == 12 * 3 + 2 * 2


def test_estimate_of_checkpointed_shards_has_all_executions(checkpointed: Path) -> None:
    """Two machines: twenty minutes for each of two running shards, then ten shards of thirty."""
    (bag,) = bags_of(checkpointed)
    assert bag.machines == pytest.approx(2.0, rel=0.01)
    assert bag.remaining.samples == 12, "shards, not executions"
    assert bag.remaining.median == pytest.approx(60 * (20 + 10 * 30 / 2), rel=0.15)
    assert bag.remaining.low <= 60 * (20 + 10 * 30 / 2) <= bag.remaining.high
    assert bag.stragglers == ()


def test_parallel_processes_are_one_shard(tmp_path: Path) -> None:
    """Six shards of three processes each. Of five the first process takes two hours, the others
    twenty and ten minutes; of the sixth two have run for seventy minutes, the first is done."""
    log, out = Log("bag.log"), Out().start(at(0))
    submitted(log, out, range(6), procs=3)
    first, second, third = ([(100 + n, proc) for n in range(5)] for proc in range(3))
    for minute, jobs in enumerate((first, second, third), start=5):
        executed(log, jobs, minute, "delta")
    terminated(log, third, 17)
    terminated(log, second, 26)
    executed(log, [(105, proc) for proc in range(3)], 60, "delta")
    terminated(log, first, 125)
    log.terminate((105, 0), at=at(130))
    write(tmp_path, {"bag.dag": shards(6)}, log, {"bag.dag": out})
    (bag,) = bags_of(tmp_path)
    assert (bag.done, bag.running, bag.durations.shards) == (5, 1, 5)
    assert bag.durations.minimum == bag.durations.maximum == 7200.0
    assert bag.stragglers == (), "seventy minutes of two hours"
    assert bag.shards[5].seconds == 70 * 60
    assert bag.recent_rate.shards == 5
    # Since the first start: five work for two hours, one for seventy minutes.
    assert bag.machines == pytest.approx((5 * 120 + 70) / 125)
    assert bag.remaining.samples == 5
    assert bag.remaining.median == pytest.approx(50 * 60, rel=0.1)
    assert bag.totals.executions == 18


async def test_bag_with_skipped_shards_is_over(tmp_path: Path) -> None:
    """A bag of which all but two shards were skipped, beside one that has not begun."""
    log = Log("bag.log")
    for n in range(6):
        log.pre_skip(f"shard{n:03}", at=at(1))
    for n in (6, 7):
        log.submit(100 + n, f"shard{n:03}", at=at(1)).execute(100 + n, at=at(2))
    terminated(log, (106, 107), 12)
    dag = shards(8, "PRE_SKIP ALL_NODES 42\nSCRIPT PRE ALL_NODES seen.sh\n")
    dag += "".join(f"JOB other{n} infer.sub\n" for n in range(4))
    write(tmp_path, {"bag.dag": dag}, log, {"bag.dag": Out().start(at(0))})
    bag, other = bags_of(tmp_path)
    assert (bag.is_complete, bag.done, bag.completed_at) == (True, 2, moment("10:12:00"))
    assert not other.is_complete
    *_, drawn, _counts, _rates, _times = shards_table.head(bag, "", 80)
    assert text(drawn) == "█" * 80, "a full bar is all done"
    async with opened(dagdir_feed(tmp_path), size=MIDDLE) as seen:
        await seen.press("6", "6", "6")
        # The first open bag.
        assert "bag 2 of 2" in seen.text
        assert "other*" in seen.text


def test_passed_shard_is_done_when_its_post_script_ends(tmp_path: Path) -> None:
    """Every second of eight jobs fails. The last job ends at 10:19, the last script at 10:29."""
    log, out = Log("bag.log"), Out().start(at(0))
    submitted(log, out, range(8))
    executed(log, range(100, 108), 2)
    for n in range(8):
        log.terminate(100 + n, 3 if n % 2 else 0, at=at(12 + n))
    for n in range(8):
        log.post(100 + n, f"shard{n:03}", at=at(22 + n))
    dag = shards(8, "SCRIPT POST ALL_NODES check.sh\n")
    write(tmp_path, {"bag.dag": dag}, log, {"bag.dag": out})
    (bag,) = bags_of(tmp_path)
    assert bag.done == bag.durations.shards == 8
    assert bag.completed_at == moment("10:29:00")
    assert (bag.overall_rate.shards, bag.overall_rate.seconds) == (8, 28 * 60)
    assert (bag.durations.minimum, bag.durations.maximum) == (600.0, 1020.0)
    # The hours of failed jobs are lost all the same.
    assert bag.totals.hours.badput == pytest.approx(sum(11 + n for n in range(0, 8, 2)) / 60)
    assert bag.totals.bad_executions == 4


def test_estimate_excludes_shards_in_their_post_script(tmp_path: Path) -> None:
    log, out = Log("bag.log"), Out().start(at(0))
    submitted(log, out, range(12))
    executed(log, range(100, 112), 2)
    terminated(log, range(100, 112), 62)
    for n in range(4):
        log.post(100 + n, f"shard{n:03}", at=at(63))
    dag = shards(12, "SCRIPT POST ALL_NODES check.sh\n")
    write(tmp_path, {"bag.dag": dag}, log, {"bag.dag": out})
    (bag,) = bags_of(tmp_path)
    assert (bag.done, bag.states[State.POST]) == (4, 8)
    assert bag.remaining is None
    assert bag.missing_reason == "unknown: only POST scripts are left to run"
    assert bag.overall_rate.shards == 4


def test_superseded_job_is_not_a_straggler(tmp_path: Path) -> None:
    """Ten shards of ten minutes. DAGMan ended while three of them ran, and their ends are not
    logged; they were submitted again: one is done, two have run for ten minutes."""
    log, out = Log("bag.log"), Out().start(at(0))
    submitted(log, out, range(10))
    executed(log, range(100, 110), 2, "delta")
    terminated(log, range(101, 108), 12)
    out.exit(2, at=at(15)).start(at(60), done=7)
    submitted(log, out, (0, 8, 9), 60, first=200)
    executed(log, (200, 208, 209), 61, "expanse")
    log.terminate(200, at=at(71))
    write(tmp_path, {"bag.dag": shards(10)}, log, {"bag.dag": out})
    (bag,) = bags_of(tmp_path)
    assert (bag.done, bag.running) == (8, 2)
    assert bag.stragglers == ()
    assert [(s.job, s.seconds, s.site) for s in (bag.shards[0], bag.shards[8])] == [
        ((200, 0), 600.0, "expanse"),
        ((208, 0), 600.0, "expanse"),
    ]
    assert (bag.durations.shards, bag.durations.median) == (8, 600.0)
    # Within the last hour: seven for a minute, three for ten.
    assert bag.machines == pytest.approx((7 * 1 + 3 * 10) / 60)
    assert bag.remaining.median < 300, "both have come as far as the others took"


def test_repeated_hour_counts_as_two(tmp_path: Path) -> None:
    """Four machines run shards of twenty minutes from 23:00 on; at 02:10 by the clock four hours
    and ten minutes have passed."""
    begun, chicago = datetime(2026, 11, 1, 4, tzinfo=UTC), ZoneInfo("America/Chicago")

    def local(minute: int) -> str:
        return f"{(begun + timedelta(minutes=minute)).astimezone(chicago):%Y-%m-%d %H:%M:%S}"

    log, now = Log("bag.log"), 250
    events: list[tuple[int, int, str, int]] = [(0, 0, "submit", n) for n in range(120)]
    for n in range(120):
        start = 5 * (n % 4) + 20 * (n // 4)
        events += [(start, 2, "start", n), (start + 20, 1, "end", n)]
    for minute, _, what, n in sorted(event for event in events if event[0] <= now):
        if what == "submit":
            log.submit(100 + n, f"shard{n:03}", at=local(minute))
        elif what == "start":
            log.execute(100 + n, at=local(minute))
        else:
            log.terminate(100 + n, at=local(minute))
    ends = [minute for minute, _, what, _ in events if what == "end" and minute <= now]
    write(tmp_path, {"bag.dag": shards(120)}, log, {"bag.dag": Out().start(local(0))})
    (tmp_path / "metlmon.toml").write_text('tz = "America/Chicago"\n')
    (bag,) = bags_of(tmp_path)
    assert bag.recent_rate is not None
    assert (bag.overall_rate.shards, bag.overall_rate.seconds) == (len(ends), 60 * now)
    assert bag.recent_rate.seconds == 80 * 60
    assert bag.recent_rate.shards == sum(end > now - 80 for end in ends)
    assert bag.recent_rate.per_hour == pytest.approx(12.0)
    assert bag.machines == pytest.approx(4.0)
    assert (bag.durations.minimum, bag.durations.maximum) == (1200.0, 1200.0)
    left = 120 - len(ends)
    assert bag.remaining.median == pytest.approx(60 * (20 * left / 4), rel=0.1)


def test_estimated_end_is_in_the_later_utc_offset(tmp_path: Path) -> None:
    """A shard of four hours starts at 23:00: it ends at 02:00 by the clock, which is set back at
    two."""
    log = Log("bag.log")
    for n in range(9):
        log.submit(100 + n, f"shard{n:03}", at="2026-10-31 15:00:00")
    for n in range(9):
        log.execute(100 + n, at="2026-10-31 19:00:00")
    for n in range(5):
        log.terminate(100 + n, at="2026-10-31 23:00:00")
    log.evict(105, at="2026-10-31 23:00:00")
    log.execute(105, at="2026-10-31 23:00:00")
    write(tmp_path, {"bag.dag": shards(9)}, log, {"bag.dag": Out().start("2026-10-31 15:00:00")})
    (tmp_path / "metlmon.toml").write_text('tz = "America/Chicago"\n')
    (bag,) = bags_of(tmp_path)
    assert bag.expected_end is not None
    assert bag.remaining.median > 3 * 3600, "the one that was begun anew takes four hours again"
    shown = timedelta(seconds=round(bag.remaining.median)) - timedelta(hours=1)
    assert bag.expected_end == moment("2026-10-31 23:00:00") + shown
