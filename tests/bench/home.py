"""Home with many large ensembles: does the dashboard stall, and what does it cost?

    python tests/bench/home.py [--count 50] [--live 5] [DIRECTORY]

Generates ``count`` dagdirs of 20 MB each (below DIRECTORY, or in a temporary one; there already:
used again), of which the last ``live`` ones run now, and opens Home on them, without a cache:

stall      the longest time between two turns of the dashboard's event loop, less the pause that
           was asked for, from the start until every line has its figures; and the 99th percentile.
           Goal: 100 ms.
lines      seconds until the first ensemble has its figures, and until all have.
memory     greatest resident sizes of the dashboard's process and of the one that reads, MB.
idle       CPU of both together in percent of a core, over half a minute, when all is read; and
           while each of the live ones gets an event per second.
again      seconds until all lines stand in a second session.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from metlmon.home.feed import HomeFeed  # noqa: E402
from metlmon.home.summary import Phase  # noqa: E402
from metlmon.live.feed import NullFeed  # noqa: E402
from screens.app import AppOptions, MetlmonApp  # noqa: E402
from tests.bench.appended import EXECUTE, HOLD, RELEASE  # noqa: E402
from tests.generated.ensembles import live  # noqa: E402
from tests.generated.write import write  # noqa: E402

SEEDS = 5
"""Different ensembles; the others are copies of them."""

MEMORY_EVERY = 205.0
"""Seconds between two memory events of a job: the logs then have 20 MB."""

TICK = 0.002
IDLE_SECONDS = 30.0


def generate(base: Path, count: int, living: int) -> list[Path]:
    """The dagdirs; those that are there already are used again."""
    made = [base / f"ensemble{number:02}" for number in range(count)]
    for number, directory in enumerate(made):
        source = made[number % SEEDS]
        if directory.exists():
            continue
        if source is directory:
            write(live(number, MEMORY_EVERY), directory)
            (directory / "truth.json").unlink()
        else:
            shutil.copytree(source, directory)
    for directory in made[count - living :] if living else ():
        keep_running(directory)
    return made


def keep_running(directory: Path) -> None:
    """Make it an ensemble of which more than half is done, and that had an event just now."""
    for file in directory.glob("*.dag.*"):
        file.unlink()
    log = directory / "metl.log"
    data = log.read_bytes()
    if not (directory / "cut").exists():
        data = data[: data.rindex(b"\n...\n", 0, len(data) * 6 // 10) + 5]
        (directory / "cut").touch()
    stamp = re.compile(rb"^(\d\d\d \([\d.]+\) )(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)", re.M)
    *_, last = stamp.finditer(data)
    newest = datetime.fromisoformat(last[2].decode())
    shift = datetime.now().replace(microsecond=0) - newest - timedelta(minutes=1)

    def moved(found: re.Match[bytes]) -> bytes:
        return found[1] + str(datetime.fromisoformat(found[2].decode()) + shift).encode()

    log.write_bytes(stamp.sub(moved, data))


def memory(pid: int) -> float:
    """The greatest resident size of a process so far, MB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", text)[1]) * 1024 / 1e6  # type: ignore[index]


def cpu(pids: list[int]) -> float:
    """Seconds of CPU of these processes so far."""
    fields = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids)
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


@contextmanager
def appending(directories: list[Path]) -> Iterator[None]:
    """An event each second in the log of each ensemble."""
    over = threading.Event()

    def run() -> None:
        number = 0
        while not over.wait(1.0):
            event = (HOLD, RELEASE, EXECUTE)[number % 3]
            number += 1
            for directory in directories:
                with (directory / "metl.log").open("a") as log:
                    log.write(event.format(job="99999.000.000", node="x", at=now()))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def now() -> str:
    return f"{datetime.now():%Y-%m-%d %H:%M:%S}"


async def measure(base: Path, count: int, living: int) -> None:
    feed = HomeFeed([str(base)])
    app = MetlmonApp(NullFeed(base), AppOptions(home=feed))
    gaps: list[float] = []

    async def tick() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(TICK)
            gaps.append(time.perf_counter() - before - TICK)

    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        started, first = time.perf_counter(), 0.0
        ticking = asyncio.create_task(tick())
        while True:
            done = sum(each.phase is Phase.READ for each in feed.summaries)
            first = first or (time.perf_counter() - started if done else 0.0)
            if done == count and not feed.searching:
                break
            await asyncio.sleep(0.05)
        print(f"lines   first {first:.2f} s, all {time.perf_counter() - started:.1f} s")
        gaps.sort()
        most = gaps[len(gaps) * 99 // 100]
        print(f"stall   {gaps[-1] * 1000:.0f} ms, 99 % below {most * 1000:.1f} ms")
        ticking.cancel()
        pids = [os.getpid(), feed._process.pid]
        print("memory  " + ", ".join(f"{memory(pid):.0f} MB" for pid in pids))
        await asyncio.sleep(3.0)
        before = cpu(pids)
        await asyncio.sleep(IDLE_SECONDS)
        print(f"idle    {(cpu(pids) - before) / IDLE_SECONDS:.1%} of a core")
        with appending(sorted(base.iterdir())[count - living :] if living else []):
            before = cpu(pids)
            await asyncio.sleep(IDLE_SECONDS)
            print(f"busy    {(cpu(pids) - before) / IDLE_SECONDS:.1%} of a core")
        print("memory  " + ", ".join(f"{memory(pid):.0f} MB" for pid in pids))
    feed.stop()


async def again(base: Path, count: int) -> None:
    feed = HomeFeed([str(base)])
    started = time.perf_counter()
    feed.start(lambda: None)
    while sum(each.figures is not None for each in feed.summaries) < count:
        await asyncio.sleep(0.01)
    print(f"again   all lines after {time.perf_counter() - started:.2f} s")
    feed.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--live", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        base = (options.directory or Path(made) / "ensembles").absolute()
        os.environ["XDG_CACHE_HOME"] = f"{made}/cache"
        os.environ["XDG_STATE_HOME"] = f"{made}/state"
        # In a process of its own: its memory is not the dashboard's.
        worker = multiprocessing.get_context("spawn").Pool(1)
        directories = worker.apply(generate, (base, options.count, options.live))
        worker.terminate()
        size = sum((each / "metl.log").stat().st_size for each in directories)
        print(f"{len(directories)} dagdirs, {size / 1e6 / len(directories):.1f} MB each")
        asyncio.run(measure(base, options.count, options.live))
        asyncio.run(again(base, options.count))


if __name__ == "__main__":
    main()
