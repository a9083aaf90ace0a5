"""The time from an event to the screen.

    python tests/bench/latency.py            # local, polling and pool
    python tests/bench/latency.py pool       # a real pool; needs root, or an HTCondor
    python tests/bench/latency.py local      # events written by this process, no HTCondor
    python tests/bench/latency.py polling    # the same where no wake-up comes, as on NFS
    python tests/bench/latency.py tmux       # local, in tmux, of 24 runs: alone, beside others

Measured from outside, on a pseudo-terminal of 80×24, as a person sees it:

first row     from the return of condor_submit_dag to the first row of a run on the screen of
              ``metlmon watch``, started at that moment (so its own start is in it), and to the
              first job's state in that row, of which most is DAGMan's own start.
already open  the same for a screen that was opened before, on the same directory.
cell          from the moment at which an event's bytes are in the log to the one at which the
              row's state has changed. The log is looked at every millisecond for that. On the
              pool the events are real (hold, release, execute of a running job); locally this
              process appends them to a recorded form of log, at random phases of metlmon's
              own clock: the emulator's reading of the screen is in it, 1–2 ms.

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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "pool"), str(HERE.parents[1])]

import gated_dag  # noqa: E402
from pools import Pool, is_below, pool_in_use, until  # noqa: E402
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
TIMES = 20
"""Measurements of each kind on the pool, at least."""

LOCAL_TIMES = 210
"""Of our own writer: the 99th percentile is then not the worst."""

PAUSE = (0.3, 1.8)
"""Seconds between two events of our own writer: the clock's tick, a second after the last change,
falls before half of them, at any distance; and each event is the only one."""

TMUX_TIMES = 90

LOOK_SECONDS = 0.001


@dataclass
class Growth:
    """A log that is looked at every millisecond: what came, and when."""

    path: Path
    came: list[tuple[float, bytes]] = field(default_factory=list)
    over: bool = False

    def follow(self) -> None:
        offset = 0
        while not self.over:
            try:
                size = self.path.stat().st_size
            except FileNotFoundError:
                size = 0
            if size > offset:
                now = time.monotonic()
                with self.path.open("rb") as file:
                    file.seek(offset)
                    data = file.read(size - offset)
                offset += len(data)
                self.came.append((now, data))
            time.sleep(LOOK_SECONDS)

    def when(self, pattern: bytes, after: float) -> float | None:
        """When an event of this form came first, after that moment."""
        for moment, data in self.came:
            if moment >= after and re.search(pattern, data, re.M):
                return moment
        return None


@contextmanager
def growth(path: Path) -> Iterator[Growth]:
    watched = Growth(path)
    thread = threading.Thread(target=watched.follow)
    thread.start()
    try:
        yield watched
    finally:
        watched.over = True
        thread.join()


def shown(screen: Terminal, pattern: str, seconds: float = 60.0) -> float:
    """Wait until it stands there; the moment."""
    deadline = time.monotonic() + seconds
    while not re.search(pattern, screen.text):
        if time.monotonic() > deadline:
            raise SystemExit(f"{pattern!r} does not come:\n{screen.text}")
        screen.pump(0.5)
    return time.monotonic()


# --- a writer of our own ------------------------------------------------------------------


def local(
    times: int = LOCAL_TIMES,
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
                    settle(screen, PAUSE)
                    begun = write(event, "008.000.000", nodes[7])
                    found.append(shown(screen, rf"run7 .*{word}") - begun)
            if others is not None:
                over.set()
                writer.join()
        return found


def settle(screen: Terminal, pause: tuple[float, float] = (0.3, 1.5)) -> None:
    """Some time, of no fixed length: nothing is in step with metlmon's own looking."""
    deadline = time.monotonic() + random.uniform(*pause)
    while (left := deadline - time.monotonic()) > 0:
        screen.pump(left)


# --- the real pool ------------------------------------------------------------------------


def cells_on_pool(pool: Pool, times: int = TIMES) -> dict[str, list[float]]:
    """Cells of a job that is held and released while it runs; the screen lies in tmux."""
    dag = gated_dag.write(pool, "cells", runs=24)
    of_dag = f"DAGManJobId == {dag.submit()}"
    node = 'DAGNodeName == "run0-train_epoch0"'
    job = str(pool.running(1, f"{of_dag} && {node}")[0]["ClusterId"])
    found: dict[str, list[float]] = {"held": [], "running": []}
    with (
        growth(dag.directory / "metl.log") as log,
        watching(pool, dag.directory, tmux=True) as screen,
    ):
        shown(screen, r"run0 .*running")
        for _ in range(times):
            for word, command, event in (
                ("held", "condor_hold", rb"^012 \("),
                ("running", "condor_release", rb"^001 \("),
            ):
                settle(screen)
                asked = time.monotonic()
                pool.run([command, job])
                seen = shown(screen, rf"run0 .*{word}")
                written = log.when(event, asked)
                assert written is not None, f"{word} stands there, and no event does"
                found[word].append(seen - written)
    dag.open_all()
    return found


def first_rows(pool: Pool, times: int = TIMES) -> dict[str, list[float]]:
    """From condor_submit_dag's return to rows and states; each time a DAG of its own."""
    found: dict[str, list[float]] = {
        "first row": [],
        "first job's state": [],
        "its event to its cell": [],
        "first job's state, already open": [],
    }
    for number in range(times):
        dag = gated_dag.write(pool, f"first-{number}", runs=2)
        with growth(dag.directory / "metl.log") as log:
            dag.submit()
            begun = time.monotonic()
            with watching(pool, dag.directory) as screen:
                found["first row"].append(shown(screen, r"run0 ") - begun)
                seen = shown(screen, r"run0 .*(idle|transferring|starting|running)")
                found["first job's state"].append(seen - begun)
                written = log.when(rb"^000 \(", begun - 1)
                assert written is not None
                found["its event to its cell"].append(seen - max(written, begun))
        dag.open_all()
        dag = gated_dag.write(pool, f"open-{number}", runs=2)
        with watching(pool, dag.directory) as screen:
            shown(screen, r"run0 ")
            dag.submit()
            begun = time.monotonic()
            seen = shown(screen, r"run0 .*(idle|transferring|starting|running)")
            found["first job's state, already open"].append(seen - begun)
        dag.open_all()
    return found


def ours_gone(pool: Pool) -> bool:
    return not any(is_below(ad["Iwd"], pool.base) for ad in pool.queue())


@contextmanager
def watching(pool: Pool, directory: Path, tmux: bool = False) -> Iterator[Terminal]:
    argv = ["metlmon", "watch", "."]
    if tmux:
        argv = ["tmux", "-L", f"latency-{os.getpid()}", "new-session", *argv]
    with pool.terminal(argv, directory, SIZE) as screen:
        yield screen


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
    if what not in ("all", "local", "polling", "pool", "tmux"):
        raise SystemExit(__doc__)
    rows = {}
    given = os.environ.get("TIMES")
    if what == "tmux":
        times = int(given or TMUX_TIMES)
        rows["cell, tmux, 24 runs, alone"] = local(times, runs=24, tmux=True)
        rows["cell, tmux, 24 runs, 3 events a second"] = local(
            times, runs=24, tmux=True, others=(0.1, 0.57)
        )
        print(table(rows))
        return
    if what in ("all", "local"):
        rows["cell, own writer"] = local(int(given or LOCAL_TIMES))
    if what in ("all", "polling"):
        rows["cell, own writer, no wake-up"] = local(int(given or LOCAL_TIMES), wakeup=False)
    if what in ("all", "pool"):
        with pool_in_use({}) as pool:
            cells = cells_on_pool(pool, int(given or TIMES))
            rows |= {f"cell, pool, tmux, 24 runs: {word}": each for word, each in cells.items()}
            rows |= first_rows(pool, int(given or TIMES))
            until(lambda: ours_gone(pool), "all DAGs end")
    print(table(rows))


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "all")
