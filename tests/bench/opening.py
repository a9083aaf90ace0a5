"""How long does a screen take to open, once the ensemble is loaded?

    python tests/bench/opening.py            # an ensemble of 20 MB, generated for this
    python tests/bench/opening.py DIR        # any dagdir

Measured from the key press to the last thing that is painted once every figure that the screen
asked for has been computed: what comes late from another thread counts. Each time the
application is a new one, over an ensemble that is loaded; the overview is there, and what the
application computes ahead as soon as all is read: this is the first time that the screen is
opened; "again" is the second time. What is painted is turned
into the bytes of a terminal, and no terminal takes them. Printed are the medians, in
milliseconds; "CPU" is what of the first time was this process's own work, all threads together:
what else the machine does moves the other two. No test asserts them.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from metlmon.config.loader import load_settings  # noqa: E402
from metlmon.live.dagdir_reader import DagdirReader  # noqa: E402
from metlmon.live.session import Session  # noqa: E402
from screens.app import MetlmonApp  # noqa: E402
from tests.generated.ensembles import live  # noqa: E402
from tests.generated.first_round import SEED  # noqa: E402
from tests.generated.write import write  # noqa: E402

SIZES: Final = ((80, 24), (200, 50))
TIMES: Final = 3
SILENCE: Final = 0.25
"""Seconds without anything painted or computed, after which a screen is taken for complete."""

PATIENCE: Final = 20.0

GOAL: Final = 0.3

MEMORY_EVERY: Final = 540.0
"""Seconds between two memory updates: of the events of METL's logs 88 % are 006."""

TIMES_OF_THE_FIRST_ROUND: Final = 2


@dataclass(frozen=True, slots=True)
class Opening:
    """A screen: the keys that lead to where it is opened, and the one that opens it."""

    name: str
    before: tuple[str, ...]
    key: str


OPENINGS: Final = (
    Opening("Overview", ("p",), "escape"),
    Opening("Run", (), "enter"),
    Opening("Job", ("enter",), "enter"),
    Opening("Health", (), "2"),
    Opening("Sites", (), "w"),
    Opening("Timeline", (), "t"),
    Opening("Curves", (), "c"),
    Opening("Estimates", (), "e"),
    Opening("Warnings", (), "exclamation_mark"),
)


class Painted(MetlmonApp):
    """Knows when it painted last, and paints as for a terminal."""

    painted = 0.0
    worked = 0.0

    @property
    def is_headless(self) -> bool:
        return False

    def _display(self, screen: Any, renderable: Any) -> None:
        super()._display(screen, renderable)
        self.painted, self.worked = perf_counter(), process_time()

    @property
    def computing(self) -> bool:
        """Is a figure that was asked for still to come?"""
        return any(figure.stats_input is None for figure in list(self.stats._figures.values()))


async def pressed(app: Painted, press: Callable[[str], Any], key: str) -> tuple[float, float]:
    """Seconds from the press of ``key`` until all is painted, and of work in them."""
    begun, work = perf_counter(), process_time()
    await press(key)
    quiet_since = begun
    while perf_counter() - max(app.painted, quiet_since) < SILENCE:
        await asyncio.sleep(0.02)
        if app.computing:
            quiet_since = perf_counter()
        if perf_counter() - begun > PATIENCE:
            raise TimeoutError(f"{key}: painted on for {PATIENCE:.0f} s")
    return max(0.0, app.painted - begun), max(0.0, app.worked - work)


async def opened(reader: DagdirReader, opening: Opening, size: tuple[int, int]) -> list[float]:
    """Seconds that it takes to open: the first time, its work, and again."""
    session = Session(reader)
    app = Painted(session)
    try:
        async with app.run_test(size=size) as pilot:
            while session.latest is None or app.computing or perf_counter() - app.painted < SILENCE:
                await asyncio.sleep(0.02)
            for key in opening.before:
                await pressed(app, pilot.press, key)
            screen = app.screen
            first, work = await pressed(app, pilot.press, opening.key)
            if app.screen is screen:
                raise LookupError(f"{opening.key} opens no {opening.name} here")
            if opening.key == "escape":
                await pressed(app, pilot.press, opening.before[-1])
            else:
                await pressed(app, pilot.press, "escape")
            again, _ = await pressed(app, pilot.press, opening.key)
            return [first, work, again]
    finally:
        session.stop()


def loaded(directory: Path) -> DagdirReader:
    begun = perf_counter()
    reader = DagdirReader(directory, load_settings(directory))
    reader.open()
    reader.read_all()
    status = reader.snapshot_builder().status()
    size = sum(log.bytes for log in status.logs) / 1e6
    count = sum(log.events for log in status.logs)
    print(
        f"{directory.name}: {size:.1f} MB, {count} events, {len(status.runs)} runs, "
        f"{sum(status.node_states.values())} nodes; loaded in {perf_counter() - begun:.1f} s"
    )
    return reader


def measure(reader: DagdirReader) -> int:
    """Prints the table; how many screens miss the goal."""
    heads = [f"{columns}×{lines}" for columns, lines in SIZES]
    print(f"{'':12}" + "".join(f"{head:>10}{'CPU':>8}{'again':>8}" for head in heads))
    missed = 0
    for opening in OPENINGS:
        cells = ""
        slow = False
        for size in SIZES:
            try:
                took = [asyncio.run(opened(reader, opening, size)) for _ in range(TIMES)]
            except (ImportError, LookupError, TimeoutError) as problem:
                cells += f"  not measured: {problem}"
                break
            first, work, again = (statistics.median(each) for each in zip(*took, strict=True))
            slow |= max(first, again) > GOAL
            cells += f"{1000 * first:>10.0f}{1000 * work:>8.0f}{1000 * again:>8.0f}"
        missed += slow
        print(f"{opening.name:12}{cells}{'  over the goal' if slow else ''}", flush=True)
    return missed


def main() -> None:
    if len(sys.argv) > 1:
        missed = measure(loaded(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as directory:
            write(live(SEED, MEMORY_EVERY, TIMES_OF_THE_FIRST_ROUND), Path(directory) / "large")
            missed = measure(loaded(Path(directory) / "large"))
    print(f"{len(OPENINGS) - missed} of {len(OPENINGS)} within {1000 * GOAL:.0f} ms")


if __name__ == "__main__":
    main()
