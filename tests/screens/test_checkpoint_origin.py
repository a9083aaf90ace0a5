"""Which job made a checkpoint, on the screens of a run and of a job."""

from __future__ import annotations

from pathlib import Path

from tests.support.screen_view import NARROW, WIDE
from tests.support.static_sessions import opened, session, until

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "lineage"


async def test_a_run_shows_who_made_its_checkpoints() -> None:
    async with opened(session(FIXTURE), WIDE) as seen:
        await seen.press("down", "enter")
        await until(seen, lambda: "made the checkpoint" in seen.text)
        assert "⇄ job 12.0 at CHTC-Spark-CE1 made the checkpoint (recorded)" in seen.text
        assert "may have done the training" not in seen.text


async def test_a_narrow_screen_shows_it_below_the_epoch() -> None:
    async with opened(session(FIXTURE), NARROW) as seen:
        await seen.press("down", "enter")
        await until(seen, lambda: "made the checkpoint" in seen.text)
        assert "MADE BY" not in seen.text


async def test_the_job_that_completed_an_epoch_names_the_one_that_trained_it() -> None:
    async with opened(session(FIXTURE), WIDE) as seen:
        seen.app.open_screen("job", 15, 0)
        await seen.settle()
        await until(seen, lambda: "Checkpoint ──" in seen.text)
        assert "made by job 12.0 at CHTC-Spark-CE1, not by this one" in seen.text
        assert "continues the checkpoint of epoch 1" in seen.text
        assert "sha256 a25706599459279b…" in seen.text


async def test_the_job_that_made_a_checkpoint() -> None:
    async with opened(session(FIXTURE), WIDE) as seen:
        seen.app.open_screen("job", 13, 0)
        await seen.settle()
        await until(seen, lambda: "Checkpoint ──" in seen.text)
        assert "made by this job in its execution 1 at Delta-GPU" in seen.text
        assert "continues an unrecorded checkpoint, sha256 " in seen.text


async def test_a_job_without_records_has_no_such_section() -> None:
    async with opened(session(FIXTURE.parent / "trainer"), WIDE) as seen:
        seen.app.open_screen("job", 444, 0)
        await seen.settle()
        await until(seen, lambda: "Transfers ──" in seen.text)
        assert "Checkpoint ──" not in seen.text
