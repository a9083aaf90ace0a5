"""How long after an event is in the log does it stand on the screen?

    python tests/bench/latency.py

Measured from outside, on a pseudo-terminal of 80×24: from the moment at which an event's bytes are
in the log to the one at which the state of its run has changed. The events are appended at random
phases of metlmon's own clock; the emulator's reading of the screen is in it, 1–2 ms. Then the same
where no wake-up comes, as on NFS.

Printed are the number of measurements, the median, the 90th and the 99th percentile and the
worst, in seconds, and the median's and the worst's ratio to the interval in which metlmon looks
at files where no wake-up comes. Goals, 99 %: 0.15 s on a local disk, 1.5 s without a wake-up.
"""

from __future__ import annotations

import os
import random
import re
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "pool"), str(HERE.parents[1])]

from terminals import Terminal  # noqa: E402

from metlmon.live.session import POLL_SECONDS  # noqa: E402
from tests.bench.appended import EXECUTE, HOLD, RELEASE, SUBMIT  # noqa: E402

SIZE = (80, 24)
TIMES = 210
"""Of each kind: the 99th percentile is then not the worst."""

PAUSE = (0.3, 1.8)
"""Seconds between two events: the clock's tick, a second after the last change,
falls before half of them, at any distance; and each event is the only one."""


def shown(screen: Terminal, pattern: str, seconds: float = 60.0) -> float:
    """Wait until it stands there; the moment."""
    deadline = time.monotonic() + seconds
    while not re.search(pattern, screen.text):
        if time.monotonic() > deadline:
            raise SystemExit(f"{pattern!r} does not come:\n{screen.text}")
        screen.pump(0.5)
    return time.monotonic()


def measured(wakeup: bool) -> list[float]:
    """Cells of a running, then held, then idle job, in a log that this process writes."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        nodes = [f"run{run}-train_epoch0" for run in range(10)]
        (directory / "ens.dag").write_text("".join(f"JOB {node} job.sub\n" for node in nodes))
        (directory / "job.sub").write_text("executable = train.sh\nlog = metl.log\n")
        log = directory / "metl.log"

        def write(event: str, job: str, node: str) -> float:
            text = event.format(job=job, node=node, at=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}")
            with log.open("ab") as file:
                file.write(text.encode())
            return time.monotonic()

        for number, node in enumerate(nodes):
            write(SUBMIT, f"{number + 1:03d}.000.000", node)
        argv = [sys.executable, "-m", "metlmon", "watch", "--live", str(directory)]
        env = {**os.environ, "TERM": "xterm-256color", "TZ": "UTC"}
        if not wakeup:
            stubs = directory / "stubs"
            stubs.mkdir()
            (stubs / "watchfiles.py").write_text("raise ImportError\n")
            (stubs / "sitecustomize.py").write_text("import ctypes\ndel ctypes.CDLL\n")
            env["PYTHONPATH"] = f"{stubs}:{env.get('PYTHONPATH', '')}"
        found = []
        with Terminal(argv, SIZE, env) as screen:
            shown(screen, r"run7 .*idle")
            for _ in range(TIMES // 3):
                for event, word in ((EXECUTE, "running"), (HOLD, "held"), (RELEASE, "idle")):
                    settle(screen)
                    begun = write(event, "008.000.000", nodes[7])
                    found.append(shown(screen, rf"run7 .*{word}") - begun)
        return found


def settle(screen: Terminal) -> None:
    """Some time, of no fixed length: nothing is in step with metlmon's own looking."""
    deadline = time.monotonic() + random.uniform(*PAUSE)
    while (left := deadline - time.monotonic()) > 0:
        screen.pump(left)


def table(rows: dict[str, list[float]]) -> str:
    head = f"{'seconds':40} {'n':>3} {'median':>7} {'90 %':>7} {'99 %':>7} {'worst':>7}"
    head += f"   ÷ {POLL_SECONDS:g} s"
    lines = [head]
    for name, values in rows.items():
        ordered = sorted(values)
        median, worst = statistics.median(ordered), ordered[-1]
        high, highest = (ordered[min(len(ordered) - 1, int(p * len(ordered)))] for p in (0.9, 0.99))
        lines.append(
            f"{name:40} {len(values):3d} {median:7.3f} {high:7.3f} {highest:7.3f}"
            f" {worst:7.3f}"
            f"   {median / POLL_SECONDS:.2f}, {worst / POLL_SECONDS:.2f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    names = {"cell": True, "cell, no wake-up": False}
    print(table({name: measured(wakeup) for name, wakeup in names.items()}))
