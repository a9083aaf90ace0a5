"""The time from the start of the program until something is on the screen, and until all is.

    python tests/bench/first_screen.py                # the generated ensemble of 20 MB
    python tests/bench/first_screen.py DIR … [--times N] [--size 200x50]

``metlmon watch`` runs on a pseudo-terminal whose bytes go through a terminal emulator, as a person
would see them. Elapsed milliseconds since the process was made:

frame      anything stands on the screen.
runs       the first row of a run does.
complete   the screen is as it stays: nothing is written after that while nothing happens.

"CPU" is the process's own work until then (all its threads): what else the machine does moves the
others. Printed are medians and, of "complete", the worst. No test asserts them.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

HERE: Final = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "pool"), str(HERE.parents[1])]

from terminals import Terminal  # noqa: E402

from tests.generated.large import cache_directory, generated  # noqa: E402

TIMES: Final = 5
SILENCE: Final = 1.6
"""Seconds without a byte after which the screen is taken for complete: the clock ticks, and
files are looked at, every second."""

PATIENCE: Final = 600.0
RUN: Final = re.compile(r"\brun\d+\b")
NAMES: Final = ("frame", "runs", "complete")


@dataclass(frozen=True, slots=True)
class StartTimes:
    """Seconds since the start, and of work until the screen was complete."""

    frame: float
    runs: float
    complete: float
    cpu: float


def work(pid: int) -> float:
    """CPU seconds of all threads of a process."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9


def shown(directory: Path, size: tuple[int, int], cache: Path) -> StartTimes:
    """Measure one start."""
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    env |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "TZ": "UTC"}
    env |= {"XDG_CACHE_HOME": str(cache), "XDG_CONFIG_HOME": str(cache / "none")}
    argv = [sys.executable, "-m", "metlmon", "watch", str(directory)]
    frame = runs = complete = cpu = 0.0
    begun = time.monotonic()
    with Terminal(argv, size, env) as screen:
        while True:
            if screen.pump(SILENCE):
                complete, cpu = time.monotonic(), work(screen.child.pid)
                frame = frame or (complete if screen.text.strip() else 0.0)
                runs = runs or (complete if RUN.search(screen.text) else 0.0)
            elif runs:
                break
            if screen.child.poll() is not None or time.monotonic() - begun > PATIENCE:
                raise SystemExit(f"no screen of {directory} came:\n{screen.text}")
    return StartTimes(frame - begun, runs - begun, complete - begun, cpu)


def line(name: str, many: list[StartTimes]) -> str:
    cells = [1000 * median(getattr(one, each) for one in many) for each in NAMES]
    cells.append(1000 * max(one.complete for one in many))
    cells.append(1000 * median(one.cpu for one in many))
    return f"{name:34}" + "".join(f"{cell:>10.0f}" for cell in cells)


def main() -> None:
    parser = argparse.ArgumentParser(description="How long until the screen is there?")
    parser.add_argument("directories", nargs="*", type=Path, metavar="DIR")
    parser.add_argument("--times", type=int, default=TIMES)
    parser.add_argument("--size", default="120x40")
    given = parser.parse_args()
    columns, lines = (int(number) for number in given.size.split("x"))
    directories = given.directories or [generated("mix20", cache_directory())]
    print(f"{'milliseconds':34}" + "".join(f"{name:>10}" for name in (*NAMES, "worst", "CPU")))
    for directory in directories:
        first: list[StartTimes] = []
        for _ in range(given.times):
            with tempfile.TemporaryDirectory() as cache:
                first.append(shown(directory, (columns, lines), Path(cache)))
        print(line(directory.name, first), flush=True)


if __name__ == "__main__":
    main()
