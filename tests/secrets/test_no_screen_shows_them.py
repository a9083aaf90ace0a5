"""No key of a dagdir stands on any screen, in a picture of one, or in what is copied from one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from metlmon.authoring.request import PlannedFile
from metlmon.redact import HIDDEN
from screens.app import MetlmonApp
from screens.submit import file_lines
from tests.secrets.secret_dagdir import Planted, plant
from tests.support.static_sessions import session

SIZE = (220, 120)
"""All of a screen at once."""


WAYS = {
    "job": ("enter", "enter", "pagedown", "end"),
    "the epoch after": ("enter", "up", "enter", "end"),
    "health": ("2", "tab", "end", "enter", "enter", "end"),
    "warnings": ("8", "end"),
    "lists": ("3", "end", "escape", "5", "v", "escape", "6", "plus", "end", "escape", *"666"),
    "compare": ("ctrl+a", "ampersand", "end"),
}
"""Screens with texts of logs and files; all others are gone through with hostile texts."""


@pytest.mark.parametrize("way", WAYS)
async def test_a_screen(way: str, tmp_path: Path) -> None:
    planted = plant(tmp_path / "ensemble")
    app = MetlmonApp(session(planted.path))
    seen: list[str] = []
    async with app.run_test(size=SIZE) as pilot:
        for key in (None, *WAYS[way]):
            if key is not None:
                await pilot.press(key)
            await pilot.pause()
            await app.workers.wait_for_complete()
            await asyncio.to_thread(app.stats.wait_until_idle, 10)
            await pilot.pause()
            strips = app.screen._compositor.render_strips()
            seen += ["\n".join(strip.text for strip in strips), app.export_screenshot()]
            app.screen.text_select_all()
            seen.append(app.screen.get_selected_text() or "")
            app.screen.clear_selection()
    shown = "\n".join(seen)
    assert "3f1c2d4e" in shown
    assert planted.left_in(shown.encode()) == []
    if way == "job":
        around = " ".join(seen[-3].split())
        assert f"--token {HIDDEN}" in around, "what stands around them is there"


# --- what would be submitted ------------------------------------------------------------------

WRITTEN = """\
# {name}: token={comment}
executable = train.sh
arguments = --token {arguments}
environment = "OMP_NUM_THREADS={environment} \\
  P={continued}"
env @=end
OMP={block}
@end
+Environment = "OMP={plus}"
log = metl.log
queue
"""


def test_the_preview_of_a_submission(tmp_path: Path) -> None:
    planted = Planted(tmp_path / "x")
    text = WRITTEN.replace("{name}", "a.sub").format_map(planted)
    data = text.encode()
    assert len(planted.left_in(data)) == 6
    lines = file_lines(PlannedFile("a.sub", data, False, ""), 100)
    seen = "\n".join("".join(map(str, each)) for each in lines)
    assert "metl.log" in seen
    assert planted.left_in(seen.encode()) == []
    dag = f'JOB A a.sub\nVARS A epoch="1" environment="OMP={planted.key("vars")}" lr="0.1"\n'
    result = PlannedFile("a.dag", dag.encode(), False, "").text
    assert 'epoch="1"' in result
    assert planted.left_in(result.encode()) == []
