"""The output of a job as a screen: search, following, copying."""

from __future__ import annotations

import base64
import os
import shutil
import stat
import threading
from pathlib import Path

import pytest

from metlmon.live import output_pager
from metlmon.live.output_pager import OutputPage
from metlmon.pool.job_tools import ANALYZE, TAIL
from metlmon.remote.paths import NoAnswer
from screens.job import OutputScreen, ToolScreen
from tests.support.patience import PATIENCE
from tests.support.screen_view import MIDDLE, NARROW
from tests.support.static_sessions import FIXTURES, RunningApp, opened, session

LINES = [f"step {n:06d} loss {1 / (n + 1):.6f}" for n in range(20_000)]


@pytest.fixture
def dagdir(tmp_path: Path) -> Path:
    """A recorded ensemble in which the last job of run0 has written twenty thousand lines."""
    directory = tmp_path / "trainer"
    shutil.copytree(FIXTURES / "trainer", directory)
    return directory


async def open_job(seen: RunningApp, dagdir: Path) -> Path:
    """Open a job that has an output file; returns its path."""
    (path,) = dagdir.glob("7bcfae26*_5_478.out")
    path.write_text("\n".join(LINES) + "\n")
    seen.app.open_screen("job", 478, 0)
    await seen.settle()
    return path


async def open_output(seen: RunningApp, dagdir: Path) -> Path:
    path = await open_job(seen, dagdir)
    await seen.press("enter")
    assert isinstance(seen.app.screen, OutputScreen)
    await seen.until(lambda: "step" in seen.text)
    return path


async def test_output_opens_at_its_end_and_is_followed(dagdir: Path) -> None:
    async with opened(session(dagdir), NARROW) as seen:
        path = await open_output(seen, dagdir)
        assert LINES[-1] in seen.text
        assert "end of the file, followed" in seen.text
        with open(path, "a") as file:
            file.write("the very last line\n")
        await seen.until(lambda: "the very last line" in seen.text)
        await seen.press("g")
        await seen.until(lambda: LINES[0] in seen.text)
        await seen.press("G")
        await seen.until(lambda: "followed" in seen.text)
        await seen.press("slash")
        with open(path, "a") as file:
            file.write("one more line\n")
        await seen.until(lambda: "one more line" in seen.text)


async def test_long_lines_are_wrapped_or_cut_and_the_id_is_copied(
    dagdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    async with opened(session(dagdir), NARROW) as seen:
        path = await open_output(seen, dagdir)
        with open(path, "a") as file:
            file.write("a" * 100 + "END\n")
        await seen.until(lambda: "END" in seen.text)
        await seen.press("backslash")
        await seen.until(lambda: "END" not in seen.text)
        await seen.press("backslash")
        await seen.until(lambda: "END" in seen.text)
        written: list[str] = []
        monkeypatch.setattr(seen.app._driver, "write", written.append)
        await seen.press("Y", "enter")
        assert "copied: 478.0" in seen.text
        (sequence,) = (text for text in written if text.startswith("\x1b]52;c;"))
        assert base64.b64decode(sequence[7:-1]) == b"478.0"


async def test_key_during_reading_is_handled(dagdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, read = threading.Event(), output_pager.page_at_end

    def page_at_end(path: Path) -> OutputPage:
        slow.wait(PATIENCE)
        return read(path)

    monkeypatch.setattr(output_pager, "page_at_end", page_at_end)
    async with opened(session(dagdir), NARROW) as seen:
        await open_job(seen, dagdir)
        await seen.pilot.press("enter", "g")
        slow.set()
        await seen.until(lambda: LINES[0] in seen.text)


async def test_text_is_found_anywhere(dagdir: Path) -> None:
    async with opened(session(dagdir), MIDDLE) as seen:
        await open_output(seen, dagdir)
        await seen.press("slash", *"STEP 0123", "enter")
        await seen.until(lambda: "is not in this file" in seen.text)
        await seen.press("slash", *["backspace"] * 9, *"step 01234", "enter")
        await seen.until(lambda: seen.lines[1].startswith("step 012340"))
        await seen.press("full_stop")
        await seen.until(lambda: seen.lines[1].startswith("step 012341"))
        await seen.press("comma")
        await seen.until(lambda: seen.lines[1].startswith("step 012340"))
        await seen.press("escape")
        assert isinstance(seen.app.screen, OutputScreen), "esc clears the text first"
        await seen.press("escape")
        assert not isinstance(seen.app.screen, OutputScreen)


async def test_failed_search_ends_and_the_other_file_is_shown(
    dagdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(*_: object) -> None:
        raise NoAnswer("submit.example.org does not answer")

    async with opened(session(dagdir), MIDDLE) as seen:
        await open_output(seen, dagdir)
        with monkeypatch.context() as broken:
            broken.setattr(output_pager.Search, "find", find)
            await seen.press("slash", *"step 012345", "enter")
        assert "submit.example.org does not answer" in seen.text
        assert "searching" not in seen.text
        await seen.press("full_stop")
        await seen.until(lambda: seen.lines[1].startswith("step 012345"))
        await seen.press("v")
        await seen.until(lambda: "it is empty" in seen.text)
        assert "[v] .out" in seen.lines[0]
        monkeypatch.setenv("PAGER", "less 'unended")
        await seen.press("ctrl+v")
        assert "$PAGER is" in seen.text


def install(directory: Path, name: str, script: str) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(f"#!/bin/sh\n{script}\n")
    (directory / name).chmod(stat.S_IRWXU)


async def test_analysis_of_an_idle_job_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a job that was idle at the end of the log."""
    tools = tmp_path / "bin"
    install(
        tools, "condor_q", r"printf '%s\n' 'no slot \033[31mmatches' \"$*\"".replace('\\"', '"')
    )
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    feed = session(FIXTURES / "trainer")
    async with opened(feed, MIDDLE, read_only=True) as seen:
        seen.app.push_screen(ToolScreen(478, 0, ANALYZE))
        await seen.until(lambda: "no slot" in seen.text)
        assert "-better-analyze 478.0" in seen.text
        assert "\x1b" not in seen.text
        install(tools, "condor_tail", "echo 'Job 478.0 is not running' >&2; exit 1")
        seen.app.push_screen(ToolScreen(478, 0, TAIL))
        await seen.until(lambda: "Job 478.0 is not running" in seen.text)


async def test_ended_job_has_no_analysis(dagdir: Path) -> None:
    async with opened(session(dagdir), MIDDLE, read_only=True) as seen:
        await open_output(seen, dagdir)
        await seen.press("ctrl+n")
        assert "only an idle or a running job" in seen.text
