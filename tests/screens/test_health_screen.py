"""Health on the screens: the header, the list, the faults filter, and where they lead."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.health.advice import RESUBMIT, SEE_OUTPUT
from metlmon.health.types import Health, HealthEntry, Severity
from metlmon.model.states import State
from metlmon.snapshot.records import Progress
from metlmon.text import spans
from screens.app import AppOptions
from screens.health import HealthScreen
from screens.job import JobScreen
from screens.overview import MAX_LINES, health_lines
from screens.overview import header as overview_header
from screens.run import RunScreen
from screens.sites import ExecutionsScreen
from screens.widgets.line_widget import SelectionPane
from tests.health.ensembles import REMOVED_BY_POLICY, EventLog, chains, removed_after_hold, write
from tests.support.sample_snapshots import MEMORY_HOLD, RUNS, FakeFeed, run, status, update
from tests.support.screen_view import MIDDLE, NARROW, WIDE
from tests.support.static_sessions import FIXTURES, StaticSession, opened, session


def entry(text: str, severity: Severity = Severity.BLOCKED, **more: object) -> HealthEntry:
    values = {"key": text, "kind": "held", "open": True, "steps": ("Free space", "Release")}
    return HealthEntry(**values, text=text, severity=severity, **more)  # type: ignore[arg-type]


def header(health: Health | None, cells: int = 78, roomy: bool = False) -> list[str]:
    lines = health_lines(health, status(), cells, roomy=roomy)
    assert all(spans.width(line) <= cells for line in lines)
    return [spans.text(line).rstrip() for line in lines]


@pytest.fixture
def removed(tmp_path: Path) -> StaticSession:
    return session(removed_after_hold(tmp_path).path)


# --- the header ---------------------------------------------------------------------------------


def test_header_names_one_run_and_the_key_of_the_advice() -> None:
    held = entry("disk quota", runs=("k",), act="release")
    health = Health((held, entry("b")), runs_total=3, names={"k": "run4"})
    assert header(health, 60) == [
        f"{'■ run4: disk quota':<50}1 more [2]",
        "  → 1. Free space  2. Release [R]",
    ]
    assert header(health, 90) == [
        f"{'■ run4: disk quota   → 1. Free space  2. Release [R]':<80}1 more [2]"
    ]


@pytest.mark.parametrize(("done", "stopped"), [(5, True), (4, False)])
def test_ensemble_is_not_stopped_while_a_run_is_between_epochs(done: int, stopped: bool) -> None:
    runs = run("a", 2, 5, State.FAILED), run("b", done, 5, State.COMPLETED)
    failed = entry("out of memory", Severity.STOPPED, runs=(runs[0].key,))
    health = Health((failed,), runs_total=2, runs_stopped=1, epochs_left=3)
    lines = health_lines(health, status(runs), 78, roomy=False)
    assert any("STOPPED" in spans.text(line) for line in lines) == stopped


def test_long_header_keeps_runs_and_key() -> None:
    long = entry("x" * 99, runs=("a", "b"), act="resubmit", nodes=2)
    lines = header(Health((long,)))
    assert lines[0].endswith("… · 2 runs  [2]")
    assert lines[1].endswith(" [a][U]")
    later = replace(long, steps=(SEE_OUTPUT, RESUBMIT), act_when="when the DAG has ended")
    assert header(Health((later,)))[1] == (
        "  → 1. See its output [2]  2. Submit the DAG again [a][U] when it has ended"
    )


@pytest.mark.parametrize(
    ("cells", "seen"), [(12, "error 503 at"), (10, "error 503…"), (9, "error …")]
)
def test_numbers_are_never_cut(cells: int, seen: str) -> None:
    whole = "error 503 at"
    cropped = spans.text(spans.crop(spans.line(whole), cells))
    assert cropped == seen


def test_notes_are_not_highlighted() -> None:
    lines = header(Health((entry("log gap", Severity.NOTE),)))
    assert len(lines) == 1
    assert "1 note" in lines[0]
    # Here a job is held, whatever the entries.
    assert "nothing held" not in lines[0]
    assert header(None) == []


async def test_stopped_entry_comes_first(removed: StaticSession) -> None:
    async with opened(removed, NARROW) as seen:
        first = "✗ STOPPED   10 of 10 runs · 30 epochs left · no job queued"
        assert seen.lines[0].strip() == first
        assert "held, then removed by the access point's policy (held > 30 d) · 10" in seen.lines[1]
        assert "disk quota at the access point (hold 12)   3   run2 run3 run7" in seen.lines[2]
        assert "→ Free space or raise the quota" in seen.lines[3]
        assert "failed" not in seen.text, "what was removed is not called failed anywhere"
        assert "RUN " in seen.lines[MAX_LINES]
    async with opened(removed, WIDE) as seen:
        for cause in ("disk quota", "wall-time limit", "output transfer failed", "input 5"):
            assert "→ " in seen.line(cause)
            assert "Submit the DAG again" not in seen.line(cause)


# --- the list -----------------------------------------------------------------------------------


async def test_removals_by_one_policy_share_a_heading(removed: StaticSession) -> None:
    async with opened(removed, NARROW) as seen:
        await seen.press("2")
        heading = seen.lines.index(seen.line("⌫ held, then removed by the access point's policy"))
        assert "· 10 runs" in seen.lines[heading]
        assert all("(hold " in row for row in seen.lines[heading + 1 : heading + 5])
        assert "disk quota" in seen.under_cursor
        text = " ".join(seen.text.split())
        for part in ("run2 run3 run7", "9 epochs left", "12/122", "EnteredCurrentStatus"):
            assert part in text
        assert "errno 122) Disk quota exceeded" in text, "the reason is not cut"
        await seen.press("s")
        assert "by GPU-H" in seen.text
        assert "⌫ held, then removed" not in "".join(seen.lines[2:7]), "no heading in other orders"


async def test_long_reason_can_be_scrolled() -> None:
    reason = " ".join(f"word{number}" for number in range(300))
    held = run("run1", 1, 30, State.HELD, hold=reason)
    async with opened(FakeFeed(update(status((RUNS[0], held)))), size=NARROW) as seen:
        await seen.press("2")
        assert "more lines" in seen.text
        await seen.press("down", "up")
        assert "more lines" in seen.text
        assert "word299" not in seen.text
        await seen.press("tab", "end")
        assert seen.app.screen.query_one(SelectionPane).has_focus
        assert "word299" in seen.text
        await seen.press("escape")
        assert not seen.app.screen.query_one(SelectionPane).has_focus
        assert isinstance(seen.app.screen, HealthScreen)


@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_failed_run_leads_to_its_entry(size: tuple[int, int]) -> None:
    async with opened(session(FIXTURES / "demo"), size, AppOptions(ascii=True)) as seen:
        assert seen.text.isascii(), seen.text
        await seen.press("2")
        assert seen.text.isascii(), seen.text
        assert "run4" in seen.line("> X ")
        assert "3 of 3 tries used" in seen.text
        await seen.press("enter")
        assert isinstance(seen.app.screen, JobScreen), "its error file is one key further"
        await seen.press("r")
        assert isinstance(seen.app.screen, RunScreen)
        assert "CUDA out of memory" in seen.text
        assert "Use a smaller batch" in seen.text


@pytest.mark.parametrize("cells", [80, 50, 30])
def test_crowded_header_has_the_end_beside_the_dag(cells: int) -> None:
    snapshot = update(status(RUNS))
    end = spans.line("ETA 23 Oct")
    (shown,) = overview_header(snapshot, "ens", cells, several=0, endings=[end])
    assert spans.width(shown) == cells
    assert ("ETA 23 Oct" in spans.text(shown)) is (cells >= 50)
    assert ("warnings" in spans.text(shown)) is (cells == 80), "they give way"


async def test_closed_entry_is_marked() -> None:
    runs = (*RUNS[:2], run("run2", 3, 30, State.HELD, hold=MEMORY_HOLD))
    async with opened(FakeFeed(update(status(runs)))) as seen:
        await seen.press("2", "enter")
        assert "run1" in seen.text
        await seen.publish(update(status(RUNS[:1])))
        assert "this entry is gone" in seen.text


async def test_site_entry_leads_to_its_executions(tmp_path: Path) -> None:
    log, runs = EventLog(), {f"run{number}": 1 for number in range(12)}
    for name in runs:
        job = log.submit(f"{name}-train_epoch0")
        log.execute(job, "Hole")
        log.evict(job, 1007, "StarterError")
        log.execute(job, "Anvil")
        log.end(job)
    dagdir = write(tmp_path, chains(runs), log)
    async with opened(session(dagdir.path), MIDDLE) as seen:
        await seen.press("2", "slash", *"black", "enter")
        assert isinstance(seen.app.screen, HealthScreen)
        assert "[a][J]" in seen.text
        assert seen.app.screen.selection().site == "Hole"
        await seen.press("enter")
        assert isinstance(seen.app.screen, ExecutionsScreen), seen.text
        assert "Hole" in seen.lines[0]


@pytest.mark.parametrize(("dagdir", "filter_text", "message"), [
    ("rescue-missing", "condor_rm", "[enter] lists its runs"),
    ("quota", "disk", "[enter] lists its jobs"),
    ("wrong-site", "requested", "it concerns 3 runs"),
    ("dag-held", "DAGMan", "it concerns no run"),
])  # fmt: skip
async def test_entry_of_several_runs_has_no_run_to_open(
    dagdir: str, filter_text: str, message: str
) -> None:
    async with opened(session(FIXTURES / "health" / dagdir), MIDDLE) as seen:
        await seen.press("2", "slash", *filter_text, "enter", "r")
        assert isinstance(seen.app.screen, HealthScreen)
        assert message in seen.text


async def test_cursor_stays_on_the_worst_entry_while_reading() -> None:
    part, held = Progress(1, 2), run("run1", 1, 30, State.HELD, hold=MEMORY_HOLD)
    async with opened(FakeFeed(update(status((held,)), part)), size=NARROW) as seen:
        await seen.press("2")
        assert "run1" in seen.under_cursor
        await seen.publish(update(status((held, RUNS[9])), part))
        assert "run9" in seen.under_cursor, "what failed comes before what is held"
        await seen.press("down")
        await seen.publish(update(status((held, *RUNS[8:])), part))
        assert "run1" in seen.under_cursor, "the user has moved it"


async def test_held_run_shows_its_removal_time(tmp_path: Path) -> None:
    """It is held for a day where a policy removed run0 after thirty."""
    log = EventLog()
    first, second = log.submit("run0-train_epoch0"), log.submit("run1-train_epoch0")
    log.hold(first, "via condor_hold (by user anna)", 1)
    log.time += timedelta(days=30)
    log.remove(first, REMOVED_BY_POLICY)
    log.hold(second, "the disk is full", 26)
    dagdir = write(tmp_path, chains({"run0": 1, "run1": 1}), log)
    async with opened(session(dagdir.path, log.time + timedelta(days=1)), WIDE) as seen:
        assert "■ held, removed in 29d" in seen.line(" run1 ")
        await seen.press("2", "down")
        assert "held 1d, removed in 29d" in seen.text
        await seen.press("escape", "down", "enter")
        assert "■ held epoch 1 for 1d00h, removed in 29d" in seen.lines[0]
        await seen.press("enter")
        assert "■ held for 1d00h, removed in 29d" in seen.lines[0]
