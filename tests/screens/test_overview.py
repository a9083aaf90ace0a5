"""The overview: its first lines, and a cursor that stays on its run."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.model.states import DagState, State
from metlmon.snapshot.records import GpuHours, Progress
from metlmon.tables.runs import columns
from metlmon.text import spans
from screens.app import AppOptions
from screens.widgets.line_widget import Table
from tests.support.sample_snapshots import RUNS, WHOLE, FakeFeed, run, status, update
from tests.support.screen_view import MIDDLE, NARROW, WIDE, EagerApp
from tests.support.static_sessions import FIXTURES, opened, session


async def test_columns_are_dropped_in_order() -> None:
    wanted = ["TRY", "JOB", "UUID", "GPU", "SITE", "PROGRESS", "STATE"]
    there: list[list[str]] = []
    for width in (130, 110, 100, 88, 80, 60):
        async with opened(size=(width, 24)) as seen:
            heading = seen.line("PROGRESS").split()
            there.append([title for title in wanted if title in heading])
    for titles in there:
        assert titles == wanted[len(wanted) - len(titles) :], "a column went before its turn"
    assert there[0] == wanted
    assert len(there[-1]) < len(there[0])


async def test_hold_reason_is_below_its_run_or_the_table() -> None:
    async with opened(size=MIDDLE) as seen:
        lines = seen.lines
        at = next(i for i, line in enumerate(lines) if "■ held" in line and "run1" in line)
        assert "Job has gone over cgroup" in lines[at + 1]
    async with opened(size=NARROW) as seen:
        assert "cgroup" not in seen.text
        await seen.press("down")
        below = " ".join(line.strip() for line in seen.lines[-5:-1])
        assert "cgroup memory limit of 65536 megabytes. Last measured usage" in below


async def test_cursor_stays_on_its_run() -> None:
    async with opened(size=MIDDLE) as seen:
        await seen.press("down", "down", "down", "down")
        assert "run4" in seen.under_cursor
        shuffled = list(RUNS)
        for seed in range(5):
            random.Random(seed).shuffle(shuffled)
            await seen.publish(update(status(tuple(shuffled))))
            assert "run4" in seen.under_cursor
        await seen.press("s", "s")
        assert "run4" in seen.under_cursor
        await seen.press("slash", "r", "u", "n", "4", "enter")
        assert "run4" in seen.under_cursor
        await seen.press("escape")
        assert "run4" in seen.under_cursor


async def test_cursor_stays_in_view_when_rows_are_inserted() -> None:
    many = tuple(run(f"new{n}", n % 30, 30, State.RUNNING) for n in range(60))
    async with opened(size=NARROW) as seen:
        await seen.press("end")
        assert "run9" in seen.under_cursor
        await seen.publish(update(status((*many, *RUNS))))
        assert "run9" in seen.under_cursor
        await seen.publish(update(status(many)))
        assert "new" in seen.under_cursor, "its run is gone: it goes to a neighbour"


async def test_filter_and_its_inverse() -> None:
    async with opened() as seen:
        await seen.press("slash", *"anvil")
        assert "run6" in seen.text
        assert "run4" not in seen.text
        assert "1 of 10 runs" in seen.text
        await seen.press("enter", "slash", *(["backspace"] * 5), "exclamation_mark", *"running")
        assert "run4" not in seen.text
        assert "run1 " in seen.text
        await seen.press("escape")
        assert "run4" in seen.text
        await seen.press("slash", *"zzz")
        assert "No run has this in any column: zzz" in seen.text
        assert "[esc] clears the filter" in seen.text


async def test_trouble_is_sorted_first_or_filtered() -> None:
    def order(lines: list[str]) -> list[str]:
        names = {run.run for run in RUNS}
        return list(dict.fromkeys(w for line in lines for w in line.split() if w in names))

    async with opened() as seen:
        assert order(seen.lines) == [f"run{n}" for n in range(10)]
        await seen.press("s")
        assert order(seen.lines)[:2] == ["run1", "run9"]
        assert "by what needs attention" in seen.text
        await seen.press("S")
        assert order(seen.lines)[-2:] == ["run9", "run1"]
        await seen.press("f")
        assert set(order(seen.lines)) == {"run1", "run9"}
        await seen.press("f")
        assert "run4" in seen.text


@pytest.mark.parametrize("wanted", [f"run1,{(RUNS[4].uuid or '')[:6]}", "run[14]"])
async def test_only_option_limits_the_runs(wanted: str) -> None:
    async with opened(options=AppOptions(run_filter=wanted)) as seen:
        text = {r.run for r in RUNS if any(f"{r.run} " in line for line in seen.lines)}
        assert text == {"run1", "run4"}


async def test_several_dags_are_shown_separately() -> None:
    second = tuple(replace(r, key=f"2{r.key}", dag="second.dag") for r in RUNS[:2])
    async with opened(FakeFeed(update(status((*RUNS, *second)))), size=WIDE) as seen:
        assert "DAG" in seen.line("PROGRESS").split()
        assert sum("second.dag" in line for line in seen.lines) == 3
        assert sum("run1 " in line for line in seen.lines) == 2


async def test_headings_and_tabs_can_be_clicked() -> None:
    async with opened(size=NARROW) as seen:
        heading, tabs = (seen.lines.index(seen.line(text)) for text in (" PROGRESS ", "Overview"))
        place = seen.lines[heading].index("PROGRESS")
        for mark in "▲▼":
            await seen.pilot.click(offset=(place, heading))
            await seen.settle()
            assert f"PROGRESS{mark}" in seen.lines[heading].replace(" ", "")
        await seen.pilot.click(offset=(seen.lines[tabs].index("Sites") + 3, tabs))
        await seen.settle()
        assert "[3Sites" in seen.text


async def test_details_of_the_selected_run_are_below_the_rows() -> None:
    async with opened(session(FIXTURES / "demo"), (120, 40)) as seen:
        await seen.until(lambda: "━ run0" in seen.text)
        await seen.press("down")
        await seen.until(lambda: "━ run1" in seen.text)
        assert "epoch 6  ✓ completed" in seen.text
        await seen.press("tab", "down")
        assert "run1" in seen.under_cursor
        await seen.press("escape", "down")
        assert "run2" in seen.under_cursor
        await seen.pilot.resize_terminal(119, 40)
        await seen.settle()
        assert "━ run" not in seen.text
    async with opened(size=(120, 24)) as seen:
        await seen.press("tab")
        assert "does not fit below the list" in seen.text


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_cursor_starts_on_the_run_in_trouble(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EagerApp, "last_key_time", 0.0)
    async with opened(session(FIXTURES / "demo"), size) as seen:
        await seen.until(lambda: "run4" in seen.under_cursor and "Tried to allocate" in seen.text)
        await seen.press("up")
        assert "run3" in seen.under_cursor


def test_hours_without_logs_are_unknown() -> None:
    row = replace(RUNS[0], hours=GpuHours(badput=2.0))
    known = {column.name: spans.text(column.draw(row)).split() for column in columns([row])}
    assert row.epochs_done
    assert known["good"] == ["–"]
    assert known["lost"] == ["2.0", "–"]


@pytest.mark.parametrize("lines", [9, 10, 12])
async def test_runs_are_visible_on_a_low_terminal(lines: int) -> None:
    made = status()
    dags = tuple(replace(made.dags[0], file=f"{name}.dag") for name in "ab")
    feed = FakeFeed(update(replace(made, dags=dags)))
    async with opened(feed, size=(40, lines)) as seen:
        assert sum("/30" in line for line in seen.lines) >= 2, seen.text


async def test_many_dags_are_counted_by_state() -> None:
    made = status()
    dags = tuple(replace(made.dags[0], file=f"d{n}.dag") for n in range(5))
    dags = (*dags, replace(dags[0], state=DagState.FAILED))
    async with opened(FakeFeed(update(replace(made, dags=dags)))) as seen:
        assert "6 DAGs   ▶ 5 running   ✗ 1 failed" in seen.text


WAITING = {
    ("2",): "Entries appear as the logs are read",
    ("3",): "Sites appear as the logs are read",
    ("3", "3"): "Annexes appear as the logs are read",
    ("4",): "The times of all jobs are being added up",
    ("5",): "reading what the trainings wrote",
    ("6",): "as soon as their DAG has been read",
    ("6", "6"): "A sweep appears",
    ("6", "6", "6"): "Bags appear",
    ("7",): "Estimates come as soon as the logs are read",
    ("7", "7"): "The plan comes as soon as the logs are read",
}
"""What each screen says before anything has been read, by the keys to it."""


async def test_screens_explain_themselves_before_reading() -> None:
    async with opened(FakeFeed(None)) as seen:
        for keys, text in WAITING.items():
            await seen.press(*keys)
            assert text in seen.text, seen.text
            await seen.press("1")


async def test_progress_of_reading_is_shown() -> None:
    nothing = status((), dags=(), logs=(), warnings=())
    async with opened(FakeFeed(None)) as seen:
        assert "opening the directory" in seen.text
        await seen.publish(update(nothing, Progress(12_400_000, 40_000_000)))
        assert "reading 31 % of 40.0 MB" in seen.text
        assert "nothing was logged" not in seen.text
        await seen.publish(update(status(), Progress(20_000_000, 40_000_000)))
        assert "reading 50 %" in seen.lines[0]
        assert "run4" in seen.text
        await seen.publish(update(status(), WHOLE))
        assert "reading" not in seen.text


async def test_empty_screens_explain_what_fills_them() -> None:
    nothing = status((), dags=(), logs=(), warnings=())
    async with opened(FakeFeed(update(nothing))) as seen:
        assert "There is no DAG file here yet" in seen.text
        await seen.publish(update(replace(nothing, dags=status().dags)))
        assert "no training runs" in seen.text
        await seen.press("2")
        assert "Health" in seen.text
    healthy = FakeFeed(update(status(RUNS[:1])))
    async with opened(healthy) as seen:
        await seen.press("f")
        assert "No open entry of Health [2] concerns a run." in seen.text
        assert "✓ nothing held or failed" in seen.lines[0]
        await seen.press("2", "slash", *"zebra", "enter")
        assert "No cause has this text." in seen.text


async def test_error_is_on_every_screen_until_it_is_fixed() -> None:
    silent = "metl.log: no answer from the file system since 09:10:11"
    async with opened() as seen:
        ways = ((), ("enter",), ("enter",), ("escape", "escape", "2"), ("escape", "3"), ("4",))
        for keys in ways:
            await seen.press(*keys)
            assert silent not in seen.text
            await seen.publish(replace(update(), error=silent))
            assert seen.text.count(silent) == 1
            await seen.publish(update())
            assert silent not in seen.text


async def test_ten_thousand_runs_open_quickly() -> None:
    many = tuple(run(f"run{n}", n % 30, 30, State.RUNNING, uuid=f"{n:08x}") for n in range(10_000))
    async with opened(FakeFeed(update(status(many)))) as seen:
        await seen.press("end")
        assert "run9999" in seen.under_cursor
        table = seen.app.screen.query_one(Table)
        assert table.rows_below == 0
        assert len(table._painted) <= table.size.height


@pytest.mark.parametrize("key", ["1", "4", "5", "6", "7"])
async def test_runs_with_long_names_are_told_apart(tmp_path: Path, key: str) -> None:
    """Names such as a sweep makes: they differ in their last character."""
    for file in (FIXTURES / "demo").iterdir():
        if file.is_file():
            named = re.sub(
                rb"\brun(\d)-", rb"protein_model_lr3e-4_wd0.01_seed\1-", file.read_bytes()
            )
            (tmp_path / file.name).write_bytes(named)
    async with opened(session(tmp_path), NARROW) as seen:
        await seen.press(key)
        rows = "\n".join(line[:34] for line in seen.lines[3:-4])
        assert set(re.findall(r"seed(\d)", rows)) == set("012345")
        await seen.press("2")
        assert "seed4" in seen.line("1 run: ")


async def test_pane_of_a_run_has_each_fact_once_and_its_job_the_whole_error() -> None:
    error = (FIXTURES / "demo" / "df298ac7_5_501.err").read_text().split()[-4:]
    async with opened(session(FIXTURES / "demo"), WIDE) as seen:
        await seen.press(*["down"] * 4)
        assert "run4" in seen.under_cursor
        assert seen.text.count("diverged in epoch 3") == 1
        seen.app.open_screen("job", 501, 0)
        await seen.until(lambda: "RuntimeError" in seen.text)
        assert " ".join(error) in " ".join(line[120:].strip() for line in seen.lines)
