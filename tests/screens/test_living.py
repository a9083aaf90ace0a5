"""The dashboard over a dagdir that another process writes: all without a restart."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import pytest

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import Snapshot
from metlmon.live.session import Session
from tests.support.patience import PATIENCE
from tests.support.sample_snapshots import FakeFeed
from tests.support.screen_view import Eager

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


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


class Viewer:
    """What a person at the screen sees, waited for picture by picture."""

    def __init__(self, app: Eager) -> None:
        self.app = app
        self.arrived = asyncio.Event()

    def screen(self) -> str:
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip) for strip in strips)

    def row(self, run: str, dag: str = "") -> str:
        """The line of a run in the table."""
        for line in self.screen().splitlines():
            if line.lstrip("▌★ ").startswith(f"{run} ") and dag in line:
                return line
        return ""

    async def sees(self, what: Callable[[Viewer], bool], pause: Callable[[], object]) -> None:
        """Wait, picture by picture, until ``what`` is on the screen."""
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    self.arrived.clear()
                    await pause()  # type: ignore[misc]
                    if what(self):
                        return
                    # A busy program may draw a picture later than it has arrived.
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self.arrived.wait(), 1)
        except TimeoutError:
            pytest.fail(f"never came to the screen:\n{self.screen()}")


class EnsembleReading(Session):
    """A session that also tells the viewer of every picture."""

    viewer: Viewer | None = None

    def start(self, notify: Callable[[Snapshot], None]) -> None:
        loop = asyncio.get_running_loop()

        def both(update: Snapshot) -> None:
            notify(update)
            if self.viewer is not None:
                loop.call_soon_threadsafe(self.viewer.arrived.set)

        super().start(both)


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
async def dashboard(dagdir: Path) -> AsyncIterator[tuple[Viewer, Callable[..., object]]]:
    reader = DagdirReader(dagdir)
    reader.open()
    session = EnsembleReading(reader)
    app = Eager(cast(FakeFeed, session))
    viewer = session.viewer = Viewer(app)
    async with app.run_test(size=(140, 40)) as pilot:
        try:
            yield viewer, pilot.pause
        finally:
            session.stop()


async def test_all_that_happens_to_an_ensemble_comes_to_the_screen(
    writer: Writer, dagdir: Path
) -> None:
    writer.tell("until 2026-11-21T09:43:12")
    async with dashboard(dagdir) as (viewer, pause):
        # The first jobs run.
        await viewer.sees(lambda v: "▶ running" in v.row("run0") and "idle" in v.row("run1"), pause)
        assert "0/4" in viewer.row("run0")

        # New nodes are submitted, and the epochs before them are done.
        writer.tell("until 2026-11-21T09:43:18")
        await viewer.sees(lambda v: "1/4" in (row := v.row("run0")) and "▶ running" in row, pause)
        assert "0/4" in viewer.row("run1")

        # DAGMan is removed, and its jobs with it.
        writer.tell("until 2026-11-21T09:43:22.9")
        await viewer.sees(lambda v: "removed" in v.row("run0") and "1/4" in v.row("run0"), pause)

        # It is submitted again: the nodes.log is emptied in place and grows again, and what
        # was done stays done.
        before = (dagdir / "ens.dag.nodes.log").stat()
        writer.tell("until 2026-11-21T09:43:35")
        after = (dagdir / "ens.dag.nodes.log").stat()
        assert after.st_ino == before.st_ino
        await viewer.sees(
            lambda v: (
                "2/4" in v.row("run3")
                and "2nd submission" in v.screen()
                and "idle" in (row := v.row("run0"))
                and "1/4" in row
            ),
            pause,
        )

        # An epoch fails and is tried again.
        writer.tell("until 2026-11-21T09:43:50")
        await viewer.sees(lambda v: "↻ retrying" in v.row("run2"), pause)
        writer.tell("until 2026-11-21T09:44:00")
        await viewer.sees(lambda v: "✗ failed" in v.row("run2"), pause)

        # A second DAG is put beside it while the first goes on.
        writer.tell(f"copy {FIXTURES / 'shared-log'} b.*")
        await viewer.sees(lambda v: "b.dag" in v.screen(), pause)
        writer.tell("until 2026-11-21T23:00:00")
        await viewer.sees(
            lambda v: "4/4" in v.row("run2", "ens.dag") and "✓" in v.row("run2", "b.dag"), pause
        )
        assert "28 epochs" in viewer.screen()
