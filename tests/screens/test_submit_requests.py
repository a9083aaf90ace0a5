"""The form begins with requests that fitted the jobs of the ensemble on the screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from screens.app import AppOptions
from tests.screens.test_submit_pane import into, row
from tests.stats.test_request_advice import dagdir
from tests.support.dagdir_feed import dagdir_feed
from tests.support.fake_pool import FakePool
from tests.support.screen_view import WIDE, Show


async def test_the_form_begins_with_what_fitted_and_keeps_what_is_typed(
    show: Show, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = dagdir(tmp_path / "past", [9000] * 6)
    options = AppOptions(submission_pool=FakePool())  # type: ignore[arg-type]
    async with show(dagdir_feed(path), size=WIDE, options=options) as seen:
        await seen.press("N")
        await seen.until(lambda: "10240" in seen.text)
        assert "6 epochs used at most" in row(seen, "Memory")
        assert "22528" in row(seen, "GPU memory")
        await into(seen, "memory_mb", "3000")
        assert "epochs used" not in row(seen, "Memory")
        await seen.press("escape", "N")
        assert "3000" in row(seen, "Memory")
