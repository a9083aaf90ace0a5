"""The time from an event to the screen.

    python tests/bench/latency.py            # local and polling
    python tests/bench/latency.py local      # events written by this process
    python tests/bench/latency.py polling    # the same where no wake-up comes, as on NFS
    python tests/bench/latency.py tmux       # local, in tmux, of 24 runs: alone, beside others

Measured from outside, on a pseudo-terminal of 80×24, as a person sees it: from the moment at which
this process has appended an event to a log, at random phases of metlmon's own clock, to the one at
which the row's state has changed. The emulator's reading of the screen is in it, 1–2 ms.

``TIMES`` in the environment is the number of measurements of each kind.

Printed are the number of measurements, the median, the 90th and the 99th percentile and the
worst, in seconds, and the median's and the worst's ratio to the interval in which metlmon looks
at files where no wake-up comes (a network file system; here: nobody can ask the kernel).
Goals, 99 %: 0.15 s on a local disk, 1.5 s where no wake-up comes.
"""

from __future__ import annotations

import os
import random
import re
import statistics
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "pool"), str(HERE.parents[1])]

from terminals import Terminal  # noqa: E402

from metlmon.live.session import POLL_SECONDS  # noqa: E402
from tests.bench.appended import (  # noqa: E402
    EXECUTE,
    HOLD,
    RELEASE,
    SUBMIT,
    node_name,
    write_dag,
)

SIZE = (80, 24)
TIMES = 210
"""Measurements: the 99th percentile is then not the worst."""

PAUSE = (0.3, 1.8)
"""Seconds between two events: the clock's tick, a second after the last change, falls before half
of them, at any distance; and each event is the only one."""

TMUX_TIMES = 90


def shown(screen: Terminal, pattern: str, seconds: float = 60.0) -> float:
    """Wait until it is on the screen; return the time."""
    deadline = time.monotonic() + seconds
    while not re.search(pattern, screen.text):
        if time.monotonic() > deadline:
            raise SystemExit(f"{pattern!r} does not come:\n{screen.text}")
        screen.pump(0.5)
    return time.monotonic()


def local(
    times: int = TIMES,
    wakeup: bool = True,
    *,
    runs: int = 10,
    tmux: bool = False,
    others: tuple[float, float] | None = None,
) -> list[float]:
    """Cells of a running, then held, then idle job, in a log that this process writes.

    ``others``: seconds between events of the other runs, which are written meanwhile.
    """
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        nodes = [node_name(run, 0) for run in range(runs)]
        log = write_dag(directory, runs, 1)

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
        if tmux:
            env.pop("TMUX", None)
            argv = ["tmux", "-L", f"latency-{os.getpid()}", "new-session", *argv]
        found = []

        def write_others(over: threading.Event) -> None:
            assert others is not None
            for number in cycle(number for number in range(runs) if number != 7):
                for event in (EXECUTE, HOLD, RELEASE):
                    if over.wait(random.uniform(*others)):
                        return
                    write(event, f"{number + 1:03d}.000.000", nodes[number])

        over = threading.Event()
        writer = threading.Thread(target=write_others, args=(over,))
        with Terminal(argv, SIZE, env) as screen:
            shown(screen, r"run7 .*idle")
            if others is not None:
                writer.start()
            for _ in range(-(-times // 3)):
                for event, word in ((EXECUTE, "running"), (HOLD, "held"), (RELEASE, "idle")):
                    settle(screen)
                    begun = write(event, "008.000.000", nodes[7])
                    found.append(shown(screen, rf"run7 .*{word}") - begun)
            if others is not None:
                over.set()
                writer.join()
        return found


def settle(screen: Terminal) -> None:
    """Wait for a random time, so that nothing is in step with metlmon's interval."""
    deadline = time.monotonic() + random.uniform(*PAUSE)
    while (left := deadline - time.monotonic()) > 0:
        screen.pump(left)


# --- the table ----------------------------------------------------------------------------


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


def main(what: str) -> None:
    if what not in ("all", "local", "polling", "tmux"):
        raise SystemExit(__doc__)
    rows = {}
    times = int(os.environ.get("TIMES") or (TMUX_TIMES if what == "tmux" else TIMES))
    if what == "tmux":
        rows["cell, tmux, 24 runs, alone"] = local(times, runs=24, tmux=True)
        rows["cell, tmux, 24 runs, 3 events a second"] = local(
            times, runs=24, tmux=True, others=(0.1, 0.57)
        )
    if what in ("all", "local"):
        rows["cell, own writer"] = local(times)
    if what in ("all", "polling"):
        rows["cell, own writer, no wake-up"] = local(times, wakeup=False)
    print(table(rows))


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "all")
