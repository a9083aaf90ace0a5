"""Timelines: steps and spans, derived independently, and the contents of a cell."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from metlmon.config.settings import Settings
from metlmon.model.clock import Clock
from metlmon.model.job_events import JobId
from metlmon.model.states import Outcome, State
from metlmon.snapshot.records import Execution, Hold, Job, Ledger, Run
from metlmon.stats.timeline import NO_RUN, Timeline, build_timeline, job_states_at
from metlmon.tables.timeline_text import (
    BADPUT,
    GOODPUT,
    HELD,
    IDLE,
    Cell,
    VisibleWindow,
    axis,
    cell_characters,
    chart,
    chart_maximum,
    epoch_labels,
    full_window,
    lane_cells,
    site_symbols,
    snap_to_step,
    stacks,
)
from metlmon.text.spans import to_ascii
from tests.conftest import Shared
from tests.support.recordings import FIXTURES
from tests.support.records import blank, read_dagdir

RECORDED = ["trainer", "holds", "rescue"]

NOON = datetime(2025, 11, 10, 12)


@cache
def read(dagdir: Path) -> tuple[Timeline, Ledger, list[Job]]:
    builder = read_dagdir(dagdir, settings=Settings())
    ledger = builder.ledger()
    return build_timeline(ledger), ledger, builder.job_rows()


# --- recorded ensembles, recounted ----------------------------------------------------------


@pytest.fixture(params=[*RECORDED, "metl-aws"], name="recorded")
def _recorded(request: pytest.FixtureRequest, shared: Shared) -> Path:
    name: str = request.param
    return shared("examples/metl-aws") if name == "metl-aws" else FIXTURES / name


def test_steps_agree_with_the_jobs_at_any_time(recorded: Path) -> None:
    made, ledger, jobs = read(recorded)
    intervals = [
        (e.start, e.end or ledger.as_of) for job in jobs for e in job.executions if e.end != e.start
    ]
    asked = [step.time for step in made.steps][:: max(1, len(made.steps) // 60)]
    for when in asked:
        running = sum(start <= when < end for start, end in intervals if end is not None)
        step = made.step_at(made.position_of(when))
        assert step.jobs == running, when
    assert made.max_jobs == max(
        sum(s <= start < e for s, e in intervals if e is not None) for start, _ in intervals
    )


def test_stalls_are_times_without_an_execution(recorded: Path) -> None:
    made, _, jobs = read(recorded)
    covered: list[list[float]] = []
    spans = sorted(
        (made.position_of(e.start), made.position_of(e.end or made.last or e.start))
        for job in jobs
        for e in job.executions
    )
    for start, end in spans:
        if covered and start <= covered[-1][1]:
            covered[-1][1] = max(covered[-1][1], end)
        elif end > start:
            covered.append([start, end])
    gaps = [b[0] - a[1] for a, b in pairwise(covered)]
    gaps += [made.seconds - covered[-1][1]] if made.seconds > covered[-1][1] else []
    assert [stall.seconds for stall in made.stalls] == pytest.approx(gaps)


def test_spans_agree_with_the_states_of_their_jobs(recorded: Path) -> None:
    made, ledger, _ = read(recorded)
    states = {job.job: job for job in ledger.jobs}
    for lane in made.lanes:
        for span in lane.spans:
            job = states[span.job]
            assert span.end_position >= span.start_position
            assert any(state is span.state and when <= span.start for when, state in job.states)
            if span.end is None:
                assert job.state is span.state
    ran = sum(s.seconds for lane in made.lanes for s in lane.spans if s.execution is not None)
    assert ran == pytest.approx(made.job_seconds, abs=0.5)


# --- made by hand ---------------------------------------------------------------------------


def job(
    number: int, states: Sequence[tuple[float, State]], run: str | None = "a", epoch: int = 0
) -> Job:
    entered = tuple((NOON + timedelta(seconds=at), state) for at, state in states)
    holds = tuple(
        Hold(when, None, 0.0, 34, 0, "too much memory", None, None)
        for when, state in entered
        if state is State.HELD
    )
    made = Job(
        job=(number, 0), dag="x.dag", in_dag="x.dag", node=f"n{number}", key=run, run=run,
        epoch=epoch, training=True, state=entered[-1][1], submitted=entered[0][0], holds=holds,
    )  # fmt: skip
    return made.with_states(entered)


def execution(
    number: int, start: float, end: float | None, outcome: Outcome, gpus: int | None = 1,
    site: str | None = "delta", last: float = 0.0,
) -> Execution:  # fmt: skip
    begun = NOON + timedelta(seconds=start)
    ended = None if end is None else NOON + timedelta(seconds=end)
    seconds = (last if end is None else end) - start
    return Execution(
        job=(number, 0), dag="x.dag", in_dag="x.dag", node=f"n{number}", key="a", run="a",
        epoch=0, training=True, site=site, gpus=gpus, start=begun, end=ended, seconds=seconds,
        outcome=outcome,
    )  # fmt: skip


def run(name: str = "a", state: State = State.RUNNING) -> Run:
    return blank(Run, key=name, run=name, dag="x.dag", state=state, began=NOON)


def ledger(
    jobs: Sequence[Job],
    executions: Sequence[Execution] = (),
    as_of: float = 0.0,
    live: bool = False,
) -> Ledger:
    return Ledger(
        "/x", NOON + timedelta(seconds=as_of), live, (run(),), (), tuple(jobs), tuple(executions)
    )


DAY = 86400.0
ONE_DAY = (
    job(1, [(0, State.IDLE), (3600, State.RUNNING), (50000, State.COMPLETED)]),
    job(2, [(50010, State.IDLE), (50060, State.HELD), (50120, State.REMOVED)], epoch=1),
)
RAN = (execution(1, 3600, 50000, Outcome.GOOD),)


def test_timelines_of_no_and_one_event() -> None:
    nothing = build_timeline(Ledger("/x", None, False))
    assert nothing.first is None
    assert nothing.lanes == ()
    assert nothing.time_at(5.0) is None
    one = build_timeline(ledger([job(1, [(0, State.IDLE)])]))
    assert (one.first, one.last, one.seconds) == (NOON, NOON, 0.0)
    [span] = one.lanes[0].spans
    assert (span.state, span.end, span.seconds) == (State.IDLE, None, 0.0)
    assert one.lanes[0].spans_at(0.0) == (span,)
    [sign, *rest] = lane_cells(one.lanes[0], full_window(one, 20))
    assert sign == IDLE
    assert set(rest) == {None}


def test_short_hold_is_visible_in_a_long_cell() -> None:
    made = build_timeline(ledger(ONE_DAY, RAN, as_of=50120))
    [lane] = made.lanes
    assert lane_cells(lane, VisibleWindow(0, DAY, 1)) == [HELD]
    before = lane_cells(lane, VisibleWindow(0, 3600, 14))
    assert before == [IDLE, *[GOODPUT] * 12, HELD]
    assert lane.spans[-1].hold_reason == "too much memory"


def test_short_failure_does_not_hide_long_work() -> None:
    jobs = [
        job(1, [(0, State.RUNNING), (1, State.FAILED)]),
        job(2, [(1, State.RUNNING), (9000, State.COMPLETED)]),
    ]
    ran = [execution(1, 0, 1, Outcome.FAILED), execution(2, 1, 9000, Outcome.GOOD)]
    made = build_timeline(ledger(jobs, ran, as_of=9000))
    [lane] = made.lanes
    assert lane_cells(lane, VisibleWindow(0, 10000, 1)) == [GOODPUT]
    assert lane_cells(lane, VisibleWindow(0, 1, 3)) == [BADPUT, GOODPUT, GOODPUT]


def test_cell_prefers_work_to_waiting() -> None:
    jobs = [job(1, [(0, State.IDLE), (90, State.RUNNING), (100, State.COMPLETED)])]
    made = build_timeline(ledger(jobs, [execution(1, 90, 100, Outcome.GOOD)], as_of=100))
    assert lane_cells(made.lanes[0], VisibleWindow(0, 100, 2)) == [GOODPUT, None]


def test_in_flight_spans_last_to_the_end() -> None:
    jobs = [job(1, [(0, State.IDLE), (10, State.RUNNING)])]
    made = build_timeline(
        ledger(jobs, [execution(1, 10, None, Outcome.IN_FLIGHT, 2, last=100)], 100)
    )
    assert made.seconds == 100
    assert [(s.position, s.jobs, s.gpus) for s in made.steps] == [(10, 1, 2)]
    assert made.stalls == ()
    [span] = made.lanes[0].spans_at(100.0)
    assert span.state is State.RUNNING
    assert job_states_at(made, 100.0) == {State.RUNNING: 1}


def test_open_stall_lasts_to_the_end() -> None:
    made = build_timeline(
        ledger(
            [
                job(1, [(0, State.RUNNING), (10, State.COMPLETED)]),
                job(2, [(12, State.IDLE)], epoch=1),
            ],
            [execution(1, 0, 10, Outcome.GOOD)],
            as_of=500,
            live=True,
        )
    )
    [stall] = made.stalls
    assert (stall.start_position, stall.end_position, stall.ongoing) == (10, 500, True)
    assert [(w.lane.run, w.span.seconds) for w in made.waits] == [("a", 488)]


def test_jobs_of_no_run_have_a_lane() -> None:
    stray = job(7, [(0, State.IDLE), (5, State.REMOVED)], run=None)
    dagman = replace(job(8, [(0, State.RUNNING), (9, State.COMPLETED)]), dagman=True)
    made = build_timeline(ledger([stray, dagman], as_of=9))
    assert [lane.key for lane in made.lanes] == ["a", NO_RUN]
    assert made.lanes[0].spans == ()
    assert [span.job for span in made.lanes[1].spans] == [(7, 0)]
    brief = replace(execution(8, 9, 9, Outcome.GOOD), key=None)
    timeline = build_timeline(ledger([dagman], [brief], as_of=9))
    assert [lane.key for lane in timeline.lanes] == ["a", NO_RUN]
    assert [lane.key for lane in timeline.drawn_lanes] == ["a"]


def test_earlier_time_does_not_reverse_the_axis() -> None:
    odd = job(1, [(0, State.IDLE), (50, State.RUNNING), (40, State.HELD), (60, State.IDLE)])
    made = build_timeline(ledger([odd], as_of=100))
    ends = [(span.start_position, span.end_position) for span in made.lanes[0].spans]
    assert all(a[1] <= b[0] for a, b in pairwise(ends))
    assert ends[-1][1] == 100


def test_repeated_hour_is_one_hour_long() -> None:
    clock = Clock(ZoneInfo("America/Chicago"))
    night = datetime(2025, 11, 2, 0, 30)
    entered = ((night, State.RUNNING), (datetime(2025, 11, 2, 3, 30), State.COMPLETED))
    one = replace(job(1, [(0, State.IDLE)]).with_states(entered), submitted=night)
    made = build_timeline(
        replace(ledger([one]), seconds_between=clock.seconds, as_of=entered[1][0])
    )
    assert made.seconds == 4 * 3600
    assert made.time_at(4 * 3600.0) == entered[1][0]
    assert made.time_at(0.0) == night
    # The axis is real time: 3 o'clock is three and a half hours on.
    line = to_ascii(axis(made, VisibleWindow(0, 300, 48)))
    assert line.index("|03:00") == round(3.5 * 3600 / 300)


def test_executions_in_the_repeated_hour_are_in_their_spans() -> None:
    """The second one is logged with an earlier time than the first."""
    clock = Clock(ZoneInfo("America/Chicago"))
    start, stop, again, end = (
        datetime(2025, 11, 2, 1, minute, fold=fold)
        for minute, fold in ((30, 0), (50, 0), (10, 1), (40, 1))
    )
    first, second = (
        replace(execution(1, 0, 600, Outcome.GOOD), start=begun, end=ended)
        for begun, ended in ((start, stop), (again, end))
    )
    entered = (
        (start, State.RUNNING),
        (stop, State.IDLE),
        (again, State.RUNNING),
        (end, State.COMPLETED),
    )
    one = replace(job(1, [(0, State.IDLE)]).with_states(entered), submitted=start)
    both = replace(ledger([one], [second, first]), seconds_between=clock.seconds, as_of=end)
    [lane] = build_timeline(both).lanes
    assert [span.execution for span in lane.spans] == [first, None, second]


# --- drawing --------------------------------------------------------------------------------


def test_area_of_the_chart_equals_the_usage() -> None:
    ran = [
        execution(1, 0, 33, Outcome.GOOD, 2),
        execution(2, 10, 47, Outcome.EVICTED, 1),
        execution(3, 20, None, Outcome.IN_FLIGHT, None, last=100),
    ]
    jobs = [job(n, [(0, State.RUNNING), (100, State.COMPLETED)]) for n in (1, 2, 3)]
    made = build_timeline(ledger(jobs, ran, as_of=100))
    window = VisibleWindow(0, 7, 15)
    drawn = stacks(made, window, gpus=True)
    assert sum(sum(stack.values()) for stack in drawn) * 7 == pytest.approx(2 * 33 + 37)
    counted = stacks(made, window, gpus=False)
    assert sum(sum(stack.values()) for stack in counted) * 7 == pytest.approx(33 + 37 + 80)
    assert chart_maximum(drawn) == 3
    rows: list[tuple[Cell, ...]] = []
    assert len(chart(counted, 4, 9, "jobs", lambda row: rows.append(tuple(row)) or ())) == 4
    assert rows[-1][0] == ("█", GOODPUT)


def test_sites_have_distinct_signs() -> None:
    names = [None, "delta", "Delta-GPU", "expanse", "anvil", "aws", "bridges2", "chtc", "hcc"]
    signs = site_symbols(names)
    letters = [sign.letter for sign in signs.values()]
    assert len(set(letters)) == len(names)
    assert len({(sign.glyph, sign.colour) for sign in signs.values()}) == len(names)
    made = build_timeline(ledger(ONE_DAY, RAN, as_of=50120))
    some = site_symbols(made.sites)
    cells = lane_cells(made.lanes[0], VisibleWindow(0, 3600, 14), some)
    assert "".join(c for c, _ in cell_characters(cells, some)) == "░D" + "█" * 11 + "╳"


def test_epochs_are_labelled_at_their_start_if_it_fits() -> None:
    made = build_timeline(ledger(ONE_DAY, RAN, as_of=50120))
    assert epoch_labels(made.lanes[0], VisibleWindow(0, 3600, 16)) == "1            2"
    assert epoch_labels(made.lanes[0], VisibleWindow(0, 40000, 2)) == "1"


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (66.0, "|12:00:15"),
        (2 * 3600.0, "|12:15"),
        (5 * DAY, "|11 Nov"),
        (90 * DAY, "|24 Nov"),
        (900 * DAY, "|Jan 2026"),
        (20000 * DAY, "|Jan 2030"),
    ],
)
def test_ticks_are_round_and_in_place(length: float, expected: str) -> None:
    made = build_timeline(ledger([job(1, [(0, State.IDLE)])], as_of=length, live=True))
    window = full_window(made, 65)
    line = to_ascii(axis(made, window))
    assert len(line) == 65
    assert expected in line
    assert 3 <= line.count("|") <= 10
    assert "  " in line


def test_cursor_snaps_to_round_times() -> None:
    made = build_timeline(ledger([job(1, [(7, State.IDLE)])], as_of=5 * DAY, live=True))
    at = snap_to_step(made, 4000.0, 3600)
    assert made.time_at(at) == datetime(2025, 11, 10, 13)
    assert made.time_at(snap_to_step(made, 4000.4, 1)) == made.time_at(4000.0)


def test_only_visible_spans_are_drawn() -> None:
    jobs = [job(n, [(n * 100, State.IDLE), (n * 100 + 50, State.COMPLETED)]) for n in range(1000)]
    made = build_timeline(ledger(jobs, as_of=100000))
    [lane] = made.lanes
    assert len(lane.spans_between(50_000, 51_000)) == 10
    ids: list[JobId] = [span.job for span in lane.spans_at(50_010)]
    assert ids == [(500, 0)]
    before, after = lane.span_before(50_060), lane.span_after(50_060)
    assert (before.job, after.job) == ((500, 0), (501, 0))
