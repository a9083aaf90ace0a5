"""The dashboard over a dagdir that another process writes: all without a restart."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.session import Session
from tests.support.patience import PATIENCE
from tests.support.recordings import FIXTURES
from tests.support.sample_snapshots import FakeFeed
from tests.support.screen_view import Seen, opened


class Writer:
    """The other process: it writes on request, and is waited for."""

    def __init__(self, recording: Path, directory: Path) -> None:
        script = Path(__file__).parents[1] / "support" / "replay_writer.py"
        self._process = subprocess.Popen(
            [sys.executable, str(script), str(recording), str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=script.parents[2],
            env={"PYTHONPATH": str(script.parents[2]), "PATH": "/usr/bin:/bin"},
        )

    def tell(self, line: str) -> None:
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=PATIENCE)
        self._process.stdout.close()


@pytest.fixture
def dagdir(tmp_path: Path) -> Path:
    directory = tmp_path / "ensemble"
    directory.mkdir()
    return directory


@pytest.fixture
def writer(dagdir: Path) -> Iterator[Writer]:
    process = Writer(FIXTURES / "rescue", dagdir)
    yield process
    process.end()


@asynccontextmanager
async def dashboard(dagdir: Path) -> AsyncIterator[Seen]:
    reader = DagdirReader(dagdir)
    reader.open()
    session = Session(reader)
    async with opened(cast(FakeFeed, session), (140, 40)) as seen:
        try:
            yield seen
        finally:
            session.stop()


async def test_all_that_happens_to_an_ensemble_comes_to_the_screen(
    writer: Writer, dagdir: Path
) -> None:
    writer.tell("until 2026-11-21T09:43:12")
    async with dashboard(dagdir) as seen:

        def row(run: str, dag: str = "") -> str:
            """The line of a run in the table."""
            rows = (line for line in seen.lines if line.lstrip("▌★ ").startswith(f"{run} "))
            return next((line for line in rows if dag in line), "")

        # The first jobs run.
        await seen.until(lambda: "▶ running" in row("run0") and "idle" in row("run1"))
        assert "0/4" in row("run0")

        # New nodes are submitted, and the epochs before them are done.
        writer.tell("until 2026-11-21T09:43:18")
        await seen.until(lambda: "1/4" in row("run0") and "▶ running" in row("run0"))
        assert "0/4" in row("run1")

        # DAGMan is removed, and its jobs with it.
        writer.tell("until 2026-11-21T09:43:22.9")
        await seen.until(lambda: "removed" in row("run0") and "1/4" in row("run0"))

        # It is submitted again: the nodes.log is emptied in place and grows again, and what
        # was done stays done.
        before = (dagdir / "ens.dag.nodes.log").stat()
        writer.tell("until 2026-11-21T09:43:35")
        after = (dagdir / "ens.dag.nodes.log").stat()
        assert after.st_ino == before.st_ino
        await seen.until(lambda: "2/4" in row("run3") and "2nd submission" in seen.text)
        await seen.until(lambda: "idle" in row("run0") and "1/4" in row("run0"))

        # An epoch fails and is tried again.
        writer.tell("until 2026-11-21T09:43:50")
        await seen.until(lambda: "↻ retrying" in row("run2"))
        writer.tell("until 2026-11-21T09:44:00")
        await seen.until(lambda: "✗ failed" in row("run2"))

        # A second DAG is put beside it while the first goes on.
        writer.tell(f"copy {FIXTURES / 'shared-log'} b.*")
        await seen.until(lambda: "b.dag" in seen.text)
        writer.tell("until 2026-11-21T23:00:00")
        await seen.until(lambda: "4/4" in row("run2", "ens.dag") and "✓" in row("run2", "b.dag"))
        assert "28 epochs" in seen.text
