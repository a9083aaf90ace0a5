"""A report and pictures that are saved from the dashboard."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from metlmon.cli import saved_files
from metlmon.errors import InputError
from screens.app import AppOptions
from tests.support.screen_view import MIDDLE
from tests.support.static_sessions import FIXTURES, opened, session, until

OPTIONS = AppOptions(files=saved_files)
RESCUE = FIXTURES / "rescue"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which metlmon was started."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in saved_files.DISPLAYS:
        monkeypatch.delenv(name, raising=False)
    return place


async def test_a_report_is_written_and_opened(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(session(RESCUE), MIDDLE, OPTIONS) as seen:
        await seen.press("ctrl+o")
        assert "no report was written yet" in seen.text
        await seen.press("ctrl+y")
        await until(seen, lambda: "report written" in seen.text)
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
        await until(seen, opens.exists)
    assert opens.read_text().strip() == str(report)


async def test_no_other_file_is_replaced(here: Path) -> None:
    mine = here / "rescue-report.html"
    mine.write_text("not a report of metlmon")
    async with opened(session(RESCUE), MIDDLE, OPTIONS) as seen:
        await seen.press("ctrl+y")
        await until(seen, lambda: "no report was written" in seen.text)
    assert mine.read_text() == "not a report of metlmon"


async def test_pictures_are_numbered(here: Path) -> None:
    async with opened(session(RESCUE), MIDDLE, OPTIONS) as seen:
        await seen.press("ctrl+x", "3", "ctrl+x", "ctrl+x")
        assert "picture saved" in seen.text
    names = sorted(path.name for path in here.iterdir())
    assert names == [f"rescue-{name}.svg" for name in ("overview-1", "sites-1", "sites-2")]
    assert "run3" in (here / names[0]).read_text()


def test_nothing_is_written_to_the_dagdir(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = here / "output"
    below.mkdir()
    monkeypatch.chdir(below)
    assert saved_files.output_directory(here) == here.parent
    monkeypatch.setenv("HOME", str(below))
    with pytest.raises(InputError, match="neither the current directory nor yours"):
        saved_files.output_directory(here)
