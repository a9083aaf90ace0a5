"""From the overview down to a run, its jobs and their output, over to health, and back."""

from __future__ import annotations

import re
import stat
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.cli import saved_files
from metlmon.errors import InputError
from metlmon.live.file_access import NO_FILE_YET
from metlmon.model.states import State
from metlmon.text.formatting import metric_format
from screens.actions import ACTIONS
from screens.app import AppOptions
from screens.health import HealthScreen
from screens.help import HelpScreen
from screens.job import JobScreen, file_problem
from screens.overview import OverviewScreen
from screens.palette import PaletteScreen
from screens.run import RunScreen
from tests.support.commands import Captured, json_output
from tests.support.sample_snapshots import RUNS, FakeFeed, job_view, status, update
from tests.support.screen_view import MIDDLE, NARROW, WIDE
from tests.support.static_sessions import FIXTURES, opened, session


async def test_enter_drills_down_and_escape_returns() -> None:
    async with opened() as seen:
        await seen.press("down", "enter")
        assert isinstance(seen.app.screen, RunScreen)
        assert "run1" in seen.lines[0]
        await seen.press("enter")
        assert isinstance(seen.app.screen, JobScreen)
        await seen.press("escape", "escape")
        assert isinstance(seen.app.screen, OverviewScreen)
        assert "run1" in seen.under_cursor, "the cursor is where it was left"
        await seen.press("escape", "escape")
        assert isinstance(seen.app.screen, OverviewScreen), "there is nothing behind it"
        await seen.press("enter", "q")
        assert isinstance(seen.app.screen, OverviewScreen)
        await seen.pilot.press("q")
        await seen.pilot.pause()
    assert seen.app.return_code == 0


async def test_dags_tell_runs_of_the_same_name_apart() -> None:
    async with opened(session(FIXTURES / "shared-log"), NARROW) as seen:
        for keys in (*"14579", ("6", "slash", *"run0", "enter")):
            await seen.press(*keys)
            rows = [row for row in seen.lines if "run0" in row and "done since" not in row]
            for dag in ("a.dag", "b.dag"):
                assert any(f" {dag} " in row for row in rows), (keys, rows)
        await seen.press("escape", "1", "enter", "slash", *"Delta", "enter")
        assert "1 of 4 epochs" in seen.text, "rows of no other nodes"


async def test_run_and_job_show_their_history() -> None:
    async with opened(size=WIDE) as seen:
        await seen.press("down", "enter")
        assert "■ held epoch 15 for 2d04h at UIUC-RAILS" in seen.lines[0]
        assert "14 of 30 epochs" in seen.lines[1]
        assert "212.4 badput (61 %)" in seen.lines[1]
        assert "median 3h38m   longest 4h23m (epoch 3)" in seen.text
        row = seen.under_cursor
        for result in ("15", "■ held", "UIUC-RAILS", "A100-80 ×1", "2h28m", "41s", "3h47m"):
            assert result in row, "the cursor starts on the latest epoch"
        assert "a try of 2h30m at anvil" in seen.text
        assert "Delta ≠ UIUC-RAILS" in seen.text
        await seen.press("b")
        assert "Execution time by epoch" not in seen.text
        assert "side nodes" in seen.text
        await seen.press("enter")
        text = seen.text
        for result in ("job 14700390.0", "■ held for 2d05h", "UIUC-RAILS ≠ expanse",
                     "Why it is held", "code 34/0 JobOutOfResources", "2 executions", "↩ evicted",
                     "JobLeaseDuration (2400 seconds) expired (code 1008/0 ReconnectFailed)",
                     "↓ input   ok", "2.30 GB received", "Memory (MB)", "‖ suspended 1h00m",
                     "214 memory reports, not listed", "job 2 of 2"):  # fmt: skip
            assert result in text
        words = " ".join(text.split())
        assert "Consider resubmitting with a higher request_memory" in words, "the reason in full"


async def test_run_shows_curve_parameters_and_arguments(capsys: Captured) -> None:
    epochs = json_output("run", capsys, "run0", FIXTURES / "demo")["epochs"]
    async with opened(session(FIXTURES / "demo"), (120, 40)) as seen:
        await seen.press("enter")
        await seen.until(lambda: "━ run0   ⣿ all 6 runs" in seen.text)
        assert "random_seed" in seen.text
        shown = [line.split() for line in seen.lines[1:] if "✓ completed  " in line]
    values = [epoch["metric"]["value"] for epoch in epochs]
    changes = [None, *(later - before for before, later in pairwise(values))]
    for row, epoch, change in zip(shown, epochs, changes, strict=True):
        assert epoch["metric"]["change"] == (None if change is None else pytest.approx(change))
        texts = [metric_format(values)(epoch["metric"]["value"])]
        texts += ["–" if change is None else f"−{metric_format(changes, 3)(-change)}"]
        assert " ".join(texts) in " ".join(row)


@pytest.mark.parametrize(("change", "first_line"), {
    "CUDA out of memory": " Health ",
    "SIGKILL": " job 488.0 ",
    "DAGMan ended": " Sources ",
    "new best": " run0 ",
    "submitted": " Timeline ",
}.items())  # fmt: skip
async def test_enter_opens_what_a_change_concerns(change: str, first_line: str) -> None:
    async with opened(session(FIXTURES / "demo"), WIDE) as seen:
        await seen.press("9", "slash", *change, "enter", "enter")
        assert seen.lines[0].startswith(first_line)


async def test_vanished_run_is_reported() -> None:
    async with opened() as seen:
        await seen.press("down", "enter")
        await seen.publish(update(status((RUNS[0],))))
        assert "in no DAG of this directory any more" in seen.text


async def test_keys_step_among_the_jobs_of_a_node() -> None:
    async with opened() as seen:
        await seen.press("down", "enter", "enter", "left_square_bracket")
        assert "job 14639014.0" in seen.lines[0]
        assert "job 1 of 2" in seen.lines[0]
        assert "older" in seen.lines[-1]
        await seen.press("left_square_bracket")
        assert "this is the oldest job of its node" in seen.text
        await seen.press("right_square_bracket")
        assert "job 14700390.0" in seen.lines[0]
        await seen.press("right_square_bracket")
        assert "this is the newest job of its node" in seen.text


async def test_keys_jump_to_sections_of_a_job() -> None:
    async with opened(size=NARROW) as seen:
        await seen.press("down", "enter", "enter")
        assert "Why it is held" in seen.text
        assert "Resources ──" not in seen.text
        await seen.press("tab", "tab", "tab", "tab")
        assert "Resources ──" in seen.text
        await seen.press("end")
        assert " more ─" not in seen.text


async def test_output_of_a_job_is_shown(tmp_path: Path) -> None:
    (tmp_path / "run1_14700390.err").write_bytes(b"10 %\r20 %\r\x1b[31mCUDA out of memory\x1b[0m\n")
    feed = FakeFeed(update(), tmp_path)
    async with opened(feed, size=WIDE) as seen:
        await seen.press("down", "enter", "enter")
        assert "CUDA out of memory" in seen.text
        assert "20 %" not in seen.text
        assert "not shown: there is no such file yet" in seen.text
    async with opened(feed, size=NARROW) as seen:
        await seen.press("down", "enter", "enter", "end")
        assert "CUDA out of memory" in seen.text


@pytest.mark.parametrize(
    ("state", "ran", "problem"),
    [
        (State.RUNNING, True, NO_FILE_YET),
        (State.REMOVED, True, "no such file (removed before its output came back)"),
        (State.REMOVED, False, "no such file (it never ran)"),
    ],
)
def test_missing_output_file_is_explained(state: State, ran: bool, problem: str) -> None:
    job = job_view(RUNS[1], 14700390).job
    job = replace(job, state=state, executions=job.executions if ran else ())
    assert file_problem(NO_FILE_YET, job) == problem
    assert file_problem("it is not a regular file", job) == "it is not a regular file"


async def test_hosts_are_named_with_addresses_on_request() -> None:
    address = "<10.0.0.9:9618?addrs=10.0.0.9-9618&alias=ap40.example.org&noUDP>"
    feed = FakeFeed(update())
    view = job_view(RUNS[1], 14700390)
    event = replace(view.events[0], text=f"Job submitted from host: {address}")
    feed.jobs[14700390, 0] = replace(view, events=(event,))
    async with opened(feed, size=(200, 60)) as seen:
        await seen.press("down", "enter", "enter")
        assert "from host: ap40.example.org" in seen.text
        await seen.press("v")
        assert address in seen.text


async def test_output_outside_the_directory_is_not_read(tmp_path: Path) -> None:
    dagdir = tmp_path / "ensembles" / "dagdir"
    dagdir.mkdir(parents=True)
    (tmp_path / "secret").write_text("the secret\n")
    feed = FakeFeed(update(), dagdir)
    view = job_view(RUNS[1], 14700390)
    feed.jobs[14700390, 0] = replace(view, error="../../secret", output=str(tmp_path / "secret"))
    async with opened(feed, size=WIDE) as seen:
        await seen.press("down", "enter", "enter", "end")
        assert seen.text.count("not shown: it is outside this directory") == 2
        assert "the secret" not in seen.text


async def test_sources_have_warnings_and_a_held_dagman() -> None:
    async with opened() as seen:
        await seen.press("8")
        for result in ("2 warnings", "metl.log:48213", "glued-header", "12713917.000.000",
                     "DAGMan began 2 Nov", "60 431 events", "41s ago"):  # fmt: skip
            assert result in seen.text.replace("\u202f", " ")
    async with opened(session(FIXTURES / "health" / "dag-held")) as seen:
        await seen.press("8")
        assert "on hold since 23 Nov 22:28: via condor_hold (by user researcher)" in seen.text
        assert "its jobs keep running; [R] in Overview releases it" in seen.text


async def test_help_lists_the_registered_keys() -> None:
    async with opened(size=(200, 260)) as seen:
        await seen.press("question_mark", "question_mark")
        assert isinstance(seen.app.screen, HelpScreen)
        for action in ACTIONS:
            assert action.help in seen.text
        for word in ("disconnected", "retrying", "post script", "reconnect failed"):
            assert word in seen.text


FOUND_FIRST = (
    ("rel", "R +release"),
    ("report", r"\^y +report"),
    ("adv", "7 7 +Advice"),
    ("run4", "run +run4"),
    ("site", "3 +Sites"),
    ("tmln", "4 +Timeline"),
    ("", "1 +Overview"),
)
"""What is typed in the palette, and its first row then."""


async def test_palette_finds_and_runs_actions() -> None:
    async with opened() as seen:
        await seen.press("colon")
        assert isinstance(seen.app.screen, PaletteScreen)
        await seen.press(*"health", "enter")
        assert isinstance(seen.app.screen, HealthScreen)
        await seen.press("escape", "ctrl+p", *"open entry", "enter")
        assert "faults only" in seen.text
        await seen.press("f", "colon", *"run4", "enter")
        assert isinstance(seen.app.screen, RunScreen)
        await seen.press("escape", "ctrl+p", "escape")
        assert isinstance(seen.app.screen, OverviewScreen)
        for typed, first in FOUND_FIRST:
            await seen.press("colon", *typed)
            rows = seen.lines[1 + next(i for i, row in enumerate(seen.lines) if "ACTION" in row) :]
            assert re.search(first, rows[0]), typed
            await seen.press("escape")


async def test_application_can_start_on_a_run() -> None:
    async with opened(options=AppOptions(start=("run", RUNS[4].key))) as seen:
        assert isinstance(seen.app.screen, RunScreen)
        assert "run4" in seen.lines[0]
        await seen.press("escape")
        assert isinstance(seen.app.screen, OverviewScreen)
        assert "run9" in seen.text


# --- the job of a checkpoint, on the screens of a run and of a job ----------------------------


FIXTURE = FIXTURES / "lineage"


async def test_run_shows_the_jobs_of_its_checkpoints() -> None:
    async with opened(session(FIXTURE), WIDE) as seen:
        await seen.press("down", "enter")
        await seen.until(lambda: "made the checkpoint" in seen.text)
        assert "⇄ job 12.0 at CHTC-Spark-CE1 made the checkpoint (recorded)" in seen.text
        assert "may have done the training" not in seen.text


CHECKPOINTS = {
    15: (
        "made by job 12.0 at CHTC-Spark-CE1, not by this one",
        "continues the checkpoint of epoch 1",
        "sha256 a25706599459279b…",
    ),
    13: (
        "made by this job in its execution 1 at Delta-GPU",
        "continues an unrecorded checkpoint, sha256 ",
    ),
}
"""What is said of the checkpoint of a job's epoch, by its cluster."""


@pytest.mark.parametrize("cluster", CHECKPOINTS)
async def test_job_shows_the_job_of_its_checkpoint(cluster: int) -> None:
    async with opened(session(FIXTURE), WIDE) as seen:
        seen.app.open_screen("job", cluster, 0)
        await seen.settle()
        await seen.until(lambda: "Checkpoint ──" in seen.text)
        assert [text for text in CHECKPOINTS[cluster] if text not in seen.text] == []


# --- reports and pictures saved from the dashboard --------------------------------------------


OPTIONS = AppOptions(files=saved_files)
RESCUE = FIXTURES / "rescue"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of metlmon."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in saved_files.DISPLAYS:
        monkeypatch.delenv(name, raising=False)
    return place


async def test_report_is_written_and_opened(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(session(RESCUE), MIDDLE, OPTIONS) as seen:
        await seen.press("ctrl+o")
        assert "no report was written yet" in seen.text
        await seen.press("ctrl+y")
        await seen.until(lambda: "report written" in seen.text)
        report = here / "rescue-report.html"
        page = report.read_text()
        assert "16 of 16 epochs" in page
        await seen.press("ctrl+o")
        assert "no browser on this machine" in seen.text
        browser, opens = here / "browser", here / "opened"
        browser.write_text(
            f'#!/bin/sh\necho "$1" > "{opens}.part" && mv "{opens}.part" "{opens}"\n'
        )
        browser.chmod(stat.S_IRWXU)
        monkeypatch.setenv("BROWSER", str(browser))
        await seen.press("ctrl+o")
        await seen.until(opens.exists)
    assert opens.read_text().strip() == str(report)


async def test_pictures_are_numbered(here: Path) -> None:
    async with opened(session(RESCUE), MIDDLE, OPTIONS) as seen:
        await seen.press("ctrl+x", "3", "ctrl+x", "ctrl+x")
        assert "picture saved" in seen.text
    names = sorted(path.name for path in here.iterdir())
    assert names == [f"rescue-{name}.svg" for name in ("overview-1", "sites-1", "sites-2")]
    assert "run3" in (here / names[0]).read_text()


def test_nothing_is_written_into_the_dagdir(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = here / "output"
    below.mkdir()
    monkeypatch.chdir(below)
    assert saved_files.output_directory(here) == here.parent
    monkeypatch.setenv("HOME", str(below))
    with pytest.raises(InputError, match="neither the current directory nor yours"):
        saved_files.output_directory(here)
