"""The growth of the memory of a dashboard that stays open.

    python tests/bench/soak.py                       # all four
    python tests/bench/soak.py idle growing          # some of them
    python tests/bench/soak.py --hours 24 large

The application runs headless, each scenario in a process of its own; the pauses between two looks
at the files are shortened, so that a day's looks (one each 0.9 s) pass in minutes. "looks" is how
many there were, "as of" for how long that many take in an open dashboard. Memory is the resident
set after each tenth of the time; "+%" compares it with what it was after ten minutes' worth.

idle      six live runs, no event: each look draws a picture, since time goes by.
growing   the same, and each twentieth look finds a hold and a release appended to the log.
large     16,000 nodes, some of them running.
screens   every screen, the menus and the filter opened and closed, 200 times; flat after 100.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1])]

from metlmon.cli.session_setup import share_one_arena  # noqa: E402
from metlmon.live import session as sessions  # noqa: E402
from metlmon.live.dagdir_reader import DagdirReader  # noqa: E402
from metlmon.live.session import Session  # noqa: E402
from metlmon.memory import set_thresholds  # noqa: E402
from metlmon.pool.client import FeedAndPool  # noqa: E402
from screens.app import MetlmonApp  # noqa: E402
from screens.base import stats_worker  # noqa: E402
from tests.bench import appended  # noqa: E402
from tests.support.screen_view import visit_all  # noqa: E402

LOOK_SECONDS: Final = 0.9
"""Between two looks of an open dashboard."""

TICK: Final = 0.002
"""Seconds between two looks here."""

SPEED: Final = 300.0
SPEED_LARGE: Final = 12.0
"""How many times as fast as an open dashboard this one looks, measured: of 16,000 nodes, too."""

BEGUN: Final = timedelta(hours=20)
"""How long ago the jobs began; appended events are spread over the hours since then."""

HOURS: Final = 24.0
FIRST: Final = 600.0
"""Seconds of an open dashboard whose memory the rest is compared with."""

TIMES: Final = 200


@dataclass(frozen=True, slots=True)
class Sample:
    """Resident megabytes, threads and descriptors after so many looks (or rounds)."""

    looks: int
    megabytes: float
    threads: int
    descriptors: int


def sample(looks: int) -> Sample:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    megabytes = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return Sample(looks, megabytes, threading.active_count(), len(os.listdir("/proc/self/fd")))


# --- directories ----------------------------------------------------------------------------


def stamp(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}"


def write_ensemble(directory: Path, runs: int, epochs: int, begun: datetime) -> Path:
    """Runs whose first epoch executes; returns the log."""
    events = []
    for run in range(runs):
        job = f"{run + 10:03d}.000.000"
        events.append(
            appended.SUBMIT.format(job=job, at=stamp(begun), node=appended.node_name(run, 0))
        )
        events.append(appended.EXECUTE.format(job=job, at=stamp(begun + timedelta(minutes=1))))
    dagman = "009.000.000"
    (directory / "ens.dag.dagman.log").write_text(
        f"000 ({dagman}) {stamp(begun)} Job submitted from host: <127.0.0.1:9618>\n...\n"
        f"001 ({dagman}) {stamp(begun)} Job executing on host: <127.0.0.1:9618>\n...\n"
    )
    log = appended.write_dag(directory, runs, epochs)
    log.write_text("".join(events))
    return log


# --- scenarios ------------------------------------------------------------------------------


async def looks(
    app: MetlmonApp, session: Session, wanted: int, each: Callable[[int], None]
) -> Iterator[Sample]:
    """Samples while the session checks the files ``wanted`` times; ``each`` sees each check."""
    count, seen = 0, SessionCounter(session)
    marks = sorted({int(FIRST / LOOK_SECONDS), *(wanted * tenth // 10 for tenth in range(1, 11))})
    found: list[Sample] = []
    async with app.run_test(size=(80, 24)) as pilot:
        while marks:
            await pilot.pause(TICK)
            while count < seen.looks:
                count += 1
                each(count)
            while marks and count >= marks[0]:
                found.append(sample(marks.pop(0)))
        await pilot.press("Q")
    return iter(found)


class SessionCounter:
    """The number of snapshots that a session has published."""

    def __init__(self, session: Session) -> None:
        self.looks = 0
        publish = session._publish

        def counted(notify: Any) -> None:
            self.looks += 1
            publish(notify)

        session._publish = counted  # type: ignore[method-assign]


def hasten(speed: float) -> None:
    """A look each 2 ms instead of each 0.9 s; ``speed``: how many times as fast looks then are.

    Statistics are computed as often for each look as in an open dashboard.
    """
    clock = ("CLOCK_SECONDS", "UNATTENDED_CLOCK_SECONDS")
    for name in ("POLL_SECONDS", *clock, "SNAPSHOT_SECONDS"):
        setattr(sessions, name, TICK)
    sessions.IDLE_INTERVAL_FACTOR = sessions.INTERVAL_FACTOR = 0.0  # type: ignore[misc]
    stats_worker.CLOCK_SECONDS /= speed  # type: ignore[misc]
    stats_worker.IDLE_INTERVAL_FACTOR /= speed  # type: ignore[misc]


async def watch(
    directory: Path, hours: float, *, runs: int = 6, grow: bool = False, speed: float = SPEED
) -> list[Sample]:
    begun = datetime.now() - BEGUN
    log = write_ensemble(directory, runs, 10, begun)
    wanted = int(hours * 3600 / LOOK_SECONDS)
    hasten(speed)
    reader = DagdirReader(directory)
    reader.open()
    session = Session(reader)
    share_one_arena()

    def append(look: int) -> None:
        if grow and look % 20 == 0:
            job, at = "010.000.000", stamp(begun + BEGUN * (look / wanted))
            text = appended.HOLD if look % 40 else appended.RELEASE
            with log.open("a") as file:
                file.write(text.format(job=job, at=at))

    return list(await looks(MetlmonApp(FeedAndPool(session)), session, wanted, append))


async def screens(directory: Path, times: int) -> list[Sample]:
    write_ensemble(directory, 6, 10, datetime.now() - BEGUN)
    reader = DagdirReader(directory)
    reader.open()
    share_one_arena()
    app = MetlmonApp(FeedAndPool(Session(reader)))
    found = []
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause(0.5)

        async def press(key: str) -> None:
            await pilot.press(key)
            await pilot.pause()

        for number in range(1, times + 1):
            await visit_all(press)
            if number % (times // 10) == 0:
                found.append(sample(number))
        await pilot.press("Q")
    return found


SCENARIOS: Final[dict[str, Callable[[Path, float], Any]]] = {
    "idle": watch,
    "growing": partial(watch, grow=True),
    "large": partial(watch, runs=1600, speed=SPEED_LARGE),
    "screens": lambda directory, hours: screens(directory, TIMES),
}


def run(name: str, hours: float) -> list[Sample]:
    """One scenario in a process of its own."""
    argv = [sys.executable, __file__, "--child", name, "--hours", str(hours)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True, text=True)
    return [Sample(**each) for each in json.loads(done.stdout.splitlines()[-1])]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("names", nargs="*", choices=[*SCENARIOS, []])
    options.add_argument("--hours", type=float, default=HOURS)
    options.add_argument("--child")
    given = options.parse_args()
    if given.child:
        set_thresholds()
        with tempfile.TemporaryDirectory() as directory:
            os.environ["XDG_CACHE_HOME"] = f"{directory}/cache"
            dagdir = Path(directory, "dagdir")
            dagdir.mkdir()
            samples = asyncio.run(SCENARIOS[given.child](dagdir, given.hours))
        print(json.dumps([asdict(each) for each in samples]))
        return
    for name in given.names or SCENARIOS:
        samples = run(name, given.hours)
        first = samples[0].megabytes
        for each in samples:
            hours = each.looks * LOOK_SECONDS / 3600
            what = f"{each.looks} rounds" if name == "screens" else f"{hours:5.1f} h"
            growth = 100 * (each.megabytes / first - 1)
            print(
                f"{name:8} {what:>10} {each.megabytes:7.1f} MB {growth:+6.1f} %"
                f"  {each.threads} threads {each.descriptors} descriptors",
                flush=True,
            )


if __name__ == "__main__":
    main()
