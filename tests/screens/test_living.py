"""The dashboard on a dagdir that another process writes, without a restart."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.session import Session
from tests.support.recordings import FIXTURES
from tests.support.sample_snapshots import FakeFeed
from tests.support.screen_view import RunningApp, opened


@contextmanager
def writer(directory: Path) -> Iterator[Callable[[str], None]]:
    """The other process: it writes on request, and the test waits for it."""
    script = Path(__file__).parents[1] / "support" / "replay_writer.py"
    with subprocess.Popen(
        [sys.executable, str(script), str(FIXTURES / "rescue"), str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=script.parents[2],
        env={"PYTHONPATH": str(script.parents[2]), "PATH": "/usr/bin:/bin"},
    ) as process:

        def write(line: str) -> None:
            print(line, file=process.stdin, flush=True)
            assert process.stdout.readline() == "done\n"

        yield write


async def follow(seen: RunningApp, dagdir: Path, write: Callable[[str], None]) -> None:
    """What comes to the screen while it is written."""

    def row(run: str, dag: str = "") -> str:
        """The line of a run in the table."""
        rows = (line for line in seen.lines if line.lstrip("▌★ ").startswith(f"{run} "))
        return next((line for line in rows if dag in line), "")

    # The first jobs run.
    await seen.until(lambda: "▶ running" in row("run0") and "idle" in row("run1"))
    assert "0/4" in row("run0")

    # New nodes are submitted, and the epochs before them are done.
    write("until 2026-11-21T09:43:18")
    await seen.until(lambda: "1/4" in row("run0") and "▶ running" in row("run0"))
    assert "0/4" in row("run1")

    # DAGMan is removed, and its jobs with it.
    write("until 2026-11-21T09:43:22.9")
    await seen.until(lambda: "removed" in row("run0") and "1/4" in row("run0"))

    # It is submitted again: nodes.log is truncated in place and grows again, and done nodes stay
    # done.
    before = (dagdir / "ens.dag.nodes.log").stat()
    write("until 2026-11-21T09:43:35")
    after = (dagdir / "ens.dag.nodes.log").stat()
    assert after.st_ino == before.st_ino
    await seen.until(lambda: "2/4" in row("run3") and "2nd submission" in seen.text)
    await seen.until(lambda: "idle" in row("run0") and "1/4" in row("run0"))

    # An epoch fails and is retried.
    write("until 2026-11-21T09:43:50")
    await seen.until(lambda: "↻ retrying" in row("run2"))
    write("until 2026-11-21T09:44:00")
    await seen.until(lambda: "✗ failed" in row("run2"))

    # A second DAG appears while the first one goes on.
    write(f"copy {FIXTURES / 'shared-log'} b.*")
    await seen.until(lambda: "b.dag" in seen.text)
    write("until 2026-11-21T23:00:00")
    await seen.until(lambda: "4/4" in row("run2", "ens.dag") and "✓" in row("run2", "b.dag"))
    assert "28 epochs" in seen.text


async def test_life_of_an_ensemble_reaches_the_screen(tmp_path: Path) -> None:
    with writer(tmp_path) as write:
        write("until 2026-11-21T09:43:12")
        reader = DagdirReader(tmp_path)
        reader.open()
        session = Session(reader)
        async with opened(cast(FakeFeed, session), (140, 40)) as seen:
            try:
                await follow(seen, tmp_path, write)
            finally:
                session.stop()
