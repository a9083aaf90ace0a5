"""What the screen costs: bytes to the terminal, work, and stalls of the event loop.

    python tests/bench/terminal.py                    # all of it
    python tests/bench/terminal.py idle row keys open loading slow

The real ``metlmon watch`` runs on a pseudo-terminal. Every byte that reaches the terminal is
counted, and replayed through a terminal emulator; "differs" is the number of cells in which the
emulator's screen then differs from the application's own picture (text, both colours, bold,
underline, reverse).

idle      nobody touches it and no log grows, but jobs run: bytes per second, and the share of a
          core that the process takes (all its threads); and the same when nobody has touched it
          for twenty seconds.
row       one event of one job is written: bytes until nothing more comes, one tick of the
          clock among them.
keys      bytes of one key, the work of all threads, and the worst of the event loop's stalls
          meanwhile: a task that sleeps 10 ms, how much later than that it was woken. "its own":
          the most that the loop's thread itself worked between two of these, which is what is
          left of a stall on a machine that has nothing else to do.
open      the same for opening a screen (and "again", for the second time).
loading   a dagdir of 20 MB from the start of the program until all is read.
slow      a terminal that takes 20 kB/s, while a key is held and logs grow: how long after the
          last key the screen shows what the application shows, and the bytes that came after
          that key.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1])]

from pyte.screens import Char  # noqa: E402

from tests.bench.appended import (  # noqa: E402
    EXECUTE,
    HOLD,
    RELEASE,
    SUBMIT,
    node_name,
    write_dag,
)
from tests.generated.large import cache_directory, generated  # noqa: E402
from tests.support.terminal import PseudoTerminal, terminal_environment  # noqa: E402

SIZES: Final = ((80, 24), (120, 40), (200, 50))
IDLE_SECONDS: Final = 30.0
SILENCE: Final = 0.4
"""Seconds without a byte after which what a key did is over; below the clock's second."""

PATIENCE: Final = 180.0
SLOW: Final = 20_000
"""Bytes per second of the slow terminal."""

PACE: Final = 0.01
"""The event loop is asked this often whether it is on time."""

KEYS: Final = {
    "enter": "\r",
    "escape": "\x1b",
    "down": "\x1b[B",
    "up": "\x1b[A",
    "pagedown": "\x1b[6~",
    "pageup": "\x1b[5~",
    "end": "\x1b[F",
    "home": "\x1b[H",
}

Cell = tuple[str, str, str, bool, bool, bool]
"""Character, foreground, background, bold, underline, reverse."""

# --- inside: the application -----------------------------------------------------------------


def inside(argv: Sequence[str]) -> int:
    """Run ``metlmon`` with these arguments, and answer at the socket named first."""
    address, *rest = argv
    from screens import app as application

    class ProbedApp(application.MetlmonApp):
        """The application, and a thread that answers queries and otherwise sleeps."""

        late = busy = 0.0
        watched: asyncio.Task[None] | None = None

        def on_mount(self) -> None:
            # Textual calls those of the classes above by itself.
            self.watched = asyncio.create_task(self.keep_time())
            loop = asyncio.get_running_loop()
            threading.Thread(target=self.answer, args=(loop,), daemon=True).start()

        async def keep_time(self) -> None:
            while True:
                before, worked = time.perf_counter(), time.thread_time()
                await asyncio.sleep(PACE)
                self.late = max(self.late, time.perf_counter() - before - PACE)
                self.busy = max(self.busy, time.thread_time() - worked)

        def answer(self, loop: asyncio.AbstractEventLoop) -> None:
            server = socket.socket(socket.AF_UNIX)
            server.bind(address)
            server.listen()
            while True:
                line, _ = server.accept()
                asked = line.recv(100).decode()
                result = asyncio.run_coroutine_threadsafe(self.report_of(asked), loop)
                line.sendall(json.dumps(result.result()).encode())
                line.close()

        async def report_of(self, asked: str) -> Any:
            if asked == "rest":
                self.watched.cancel()
            if asked == "cells":
                return [cells(strip) for strip in self.screen._compositor.render_strips()]
            if asked == "whole":
                return self.newest_snapshot.progress.fraction >= 1
            stall, self.late, self.busy = (self.late, self.busy), 0.0, 0.0
            return stall

    application.MetlmonApp = ProbedApp  # type: ignore[misc]
    from metlmon.cli.main import main

    return main(list(rest))


def cells(strip: Any) -> list[Cell]:
    """A line of the application's own picture."""
    out: list[Cell] = []
    for text, style, _ in strip:
        fore = style.color.get_truecolor().hex[1:] if style and style.color else "default"
        back = style.bgcolor.get_truecolor().hex[1:] if style and style.bgcolor else "default"
        marks = (bool(style.bold), bool(style.underline), bool(style.reverse)) if style else ()
        # Wide characters are not counted: no picture here has any.
        out += [(each, fore, back, *(marks or (False, False, False))) for each in text]
    return out


# --- outside: a terminal ---------------------------------------------------------------------


class Watched(PseudoTerminal):
    """``metlmon watch`` on a pseudo-terminal that a thread reads, at most ``rate`` bytes a
    second."""

    def __init__(self, *arguments: str, size: tuple[int, int], rate: int = 0) -> None:
        self.address = tempfile.mktemp(suffix=".probe")
        # A stored choice of columns and orders would change the rows.
        more = {"XDG_STATE_HOME": os.devnull, "COLORTERM": "truecolor", "TZ": "UTC"}
        argv = [sys.executable, __file__, "--inside", self.address, "watch", *arguments]
        self.begun = self.last = time.monotonic()
        super().__init__(argv, size, terminal_environment(**more), controlling=False)
        self.rate = rate
        self.got = bytearray()
        self.fed = 0
        self.over = False
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        """Read output no faster than such a terminal does, and answer its queries."""
        while not self.over:
            ready, _, _ = select.select([self.master], [], [], 0.2)
            if not ready:
                continue
            try:
                data = os.read(self.master, max(1, self.rate // 50) if self.rate else 65536)
            except OSError:
                return
            self.got += data
            self.last = time.monotonic()
            if self.rate:
                time.sleep(len(data) / self.rate)
            for _ in range(data.count(b"\x1b[6n")):
                os.write(self.master, b"\x1b[1;1R")

    def shown(self) -> list[list[Cell]]:
        """The text on the terminal."""
        end = len(self.got)
        data = bytes(self.got[self.fed : end])
        # Not within a sequence that is taken out.
        held = re.search(rb"\x1b(\[[<>=?]?[\d;]*)?$", data)
        if held:
            end -= len(data) - held.start()
            data = data[: held.start()]
        self.fed = end
        self._stream.feed(re.sub(rb"\x1b\[[<>=?]\d*u", b"", data))
        rows, columns = range(self.screen.lines), range(self.screen.columns)
        return [[cell(self.screen.buffer[y][x]) for x in columns] for y in rows]

    def ask(self, what: str) -> Any:
        deadline = time.monotonic() + PATIENCE
        while True:
            line = socket.socket(socket.AF_UNIX)
            try:
                line.connect(self.address)
                break
            except OSError:
                if time.monotonic() > deadline or self.child.poll() is not None:
                    self.shown()
                    raise SystemExit(f"it does not answer:\n{self.text}") from None
                time.sleep(0.005)
        line.sendall(what.encode())
        result = b""
        while piece := line.recv(1 << 20):
            result += piece
        line.close()
        return json.loads(result)

    def differs(self) -> int:
        """Cells in which terminal and application differ; the clock may tick in between."""
        for _ in range(5):
            mine = [[tuple(each) for each in line] for line in self.ask("cells")]
            shown = self.shown()
            different = differing(mine, shown)
            if not different:
                return 0
            time.sleep(0.2)
        return different

    def press(self, key: str) -> None:
        os.write(self.master, KEYS.get(key, key).encode())

    def settle(self, least: float = 0.0) -> None:
        """Wait until there was no output for a moment, and at least so many seconds."""
        begun = time.monotonic()
        while time.monotonic() - max(self.last, begun + least) < SILENCE:
            time.sleep(0.01)

    def work(self) -> float:
        """CPU seconds of all threads so far."""
        total = 0.0
        for each in Path(f"/proc/{self.child.pid}/task").iterdir():
            total += int((each / "schedstat").read_text().split()[0]) / 1e9
        return total

    def memory(self) -> float:
        """Resident megabytes."""
        text = Path(f"/proc/{self.child.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", text)
        return int(found[1]) / 1000 if found else 0.0

    def whole(self) -> float:
        """Wait until all is read; return seconds since the start."""
        while not self.ask("whole"):
            time.sleep(0.05)
        return time.monotonic() - self.begun

    def __exit__(self, *_: object) -> None:
        self.rate = 0
        self.child.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.child.wait(10)
        self.over = True
        self.reader.join()
        super().__exit__()
        Path(self.address).unlink(missing_ok=True)


def cell(of: Char) -> Cell:
    return of.data, of.fg, of.bg, of.bold, of.underscore, of.reverse


def differing(mine: list[list[Any]], shown: list[list[Cell]]) -> int:
    """Cells that look different. Pictures of different sizes (before the first) differ entirely."""
    if [len(line) for line in mine] != [len(line) for line in shown]:
        return sum(map(len, shown))
    return sum(
        not alike(a, b)
        for ours, theirs in zip(mine, shown, strict=True)
        for a, b in zip(ours, theirs, strict=True)
    )


def alike(ours: tuple[Any, ...], theirs: Cell) -> bool:
    """Whether these cells look the same; of a blank only the background is visible."""
    if ours[0] == theirs[0] == " " and not (ours[4] or ours[5] or theirs[4] or theirs[5]):
        return ours[2] == theirs[2]
    return ours == theirs


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one operation."""

    bytes: int
    work: float
    stall: float
    busy: float
    differs: int


def cost(seen: Watched, does: Callable[[], None], least: float = 0.0) -> Cost:
    seen.settle()
    seen.ask("late")
    before, worked = len(seen.got), seen.work()
    does()
    seen.settle(least)
    written, work = len(seen.got) - before, seen.work() - worked
    return Cost(written, work, *seen.ask("late"), seen.differs())


def row(name: str, size: tuple[int, int], *cells: object) -> None:
    at = f"{size[0]}×{size[1]}"
    result = "".join(
        f"{each:>10.1f}" if isinstance(each, float) else f"{each:>10}" for each in cells
    )
    print(f"{name:34}{at:>8}{result}", flush=True)


def head(*cells: str) -> None:
    print(f"\n{'':42}" + "".join(f"{each:>10}" for each in cells))


# --- ensembles -------------------------------------------------------------------------------

END = (
    "005 ({job}) {at} Job terminated.\n\t(1) Normal termination (return value 0)\n"
    "\t0  -  Run Bytes Sent By Job\n...\n"
)
UPDATE = (
    "006 ({job}) {at} Image size of job updated: {size}\n\t1  -  MemoryUsage of job (MB)\n...\n"
)


class Ensemble:
    """Forty runs of ten epochs that live now: two epochs of each are over, and of the third
    half are running, some for seconds and some for days, the others idle or held."""

    RUNS: Final = 40

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.log = write_dag(directory, self.RUNS, 10)
        random.seed(7)
        found: list[tuple[float, str, int, int]] = []
        for run in range(self.RUNS):
            age = random.choice((40, 400, 4000, 40000, 400000)) * random.uniform(0.5, 2)
            for epoch in range(2):
                back = age + 8000 * (2 - epoch)
                for ago, event in ((back, SUBMIT), (back - 60, EXECUTE), (back - 7000, END)):
                    found.append((ago, event, run, epoch))
            found.append((age + 30, SUBMIT, run, 2))
            if run % 2 == 0 or run % 5 == 0:
                found.append((age, EXECUTE, run, 2))
            if run % 10 == 0:
                found.append((age / 2, HOLD, run, 2))
        for ago, event, run, epoch in sorted(found, reverse=True):
            self.write(event, run, epoch, ago)

    def write(self, event: str, run: int, epoch: int = 2, ago: float = 0.0) -> None:
        at = f"{datetime.now(UTC) - timedelta(seconds=ago):%Y-%m-%d %H:%M:%S}"
        node = node_name(run, epoch)
        job = f"{run * 100 + epoch + 1:03d}.000.000"
        size = random.randrange(10**6)
        with self.log.open("a") as file:
            file.write(event.format(job=job, at=at, node=node, size=size))


def large_ensemble() -> str:
    """A generated ensemble of 20 MB."""
    return str(generated("mix20", cache_directory()))


# --- measurements ----------------------------------------------------------------------------

SCREENS: Final = (
    ("run", (), "enter"),
    ("job", ("enter",), "enter"),
    ("health", (), "2"),
    ("sites", (), "3"),
    ("timeline", (), "4"),
    ("curves", (), "5"),
    ("estimates", (), "7"),
    ("warnings", (), "8"),
    ("help", (), "?"),
)
"""Name, keys that lead to where it is opened, key that opens it."""


IDLE: Final = (
    *(("overview", (), size, 0.0) for size in SIZES),
    ("overview, left alone", (), SIZES[1], 22.0),
    ("run", ("down", "down", "enter"), SIZES[1], 0.0),
    ("timeline", ("4",), SIZES[1], 0.0),
)
"""What is looked at, the keys that lead there, the size, and seconds until it is measured."""


def idle(base: Path) -> None:
    head("B/s", "% of core", "differs")
    ensemble = Ensemble(base / "idle")
    for name, keys, size, rests in IDLE:
        with Watched("--live", str(ensemble.directory), size=size) as seen:
            seen.whole()
            for key in keys:
                seen.settle()
                seen.press(key)
            seen.settle(2.0)
            seen.ask("rest")
            time.sleep(rests)
            before, worked = len(seen.got), seen.work()
            time.sleep(IDLE_SECONDS)
            written, work = len(seen.got) - before, seen.work() - worked
            share = 100 * work / IDLE_SECONDS
            row(f"idle {name}", size, written / IDLE_SECONDS, f"{share:.2f}", seen.differs())


def changed_row(base: Path) -> None:
    head("bytes", "work ms", "stall ms", "its own", "differs")
    ensemble = Ensemble(base / "row")
    for size in SIZES:
        with Watched("--live", str(ensemble.directory), size=size) as seen:
            seen.whole()
            seen.settle(2.0)
            for name, event in (
                ("one row: held", HOLD),
                ("one row: released", RELEASE),
                ("one row: running", EXECUTE),
                ("an event that changes none", UPDATE),
            ):
                tell(name, size, cost(seen, lambda event=event: ensemble.write(event, 4), 1.0))


def tell(name: str, size: tuple[int, int], paid: Cost) -> None:
    times = (1000 * each for each in (paid.work, paid.stall, paid.busy))
    row(name, size, paid.bytes, *times, paid.differs)


def keys(base: Path) -> None:
    head("bytes", "work ms", "stall ms", "its own", "differs")
    for size in SIZES:
        with Watched(large_ensemble(), size=size) as seen:
            seen.whole()
            seen.settle(1.0)
            for name, key in (
                ("cursor down", "down"),
                ("cursor down again", "down"),
                ("page down", "pagedown"),
                ("to the end", "end"),
                ("to the start", "home"),
                ("sort by the next", "s"),
                ("reversed", "S"),
                ("filter: prompt", "/"),
                ("filter: a letter", "4"),
                ("filter: another", "1"),
                ("filter: cleared", "escape"),
            ):
                tell(name, size, cost(seen, lambda key=key: seen.press(key)))


def opening(base: Path) -> None:
    head("bytes", "work ms", "stall ms", "its own", "differs")
    for size in SIZES:
        with Watched(large_ensemble(), size=size) as seen:
            seen.whole()
            seen.settle(1.0)
            row("the program's start", size, len(seen.got), "", "", seen.differs())
            seen.settle(1.0)
            for name, before, key in SCREENS:
                for key_before in before:
                    cost(seen, lambda key=key_before: seen.press(key))
                tell(name, size, cost(seen, lambda key=key: seen.press(key), 0.5))
                tell(f"{name}: back", size, cost(seen, lambda: seen.press("escape"), 0.3))
                tell(f"{name}: again", size, cost(seen, lambda key=key: seen.press(key), 0.3))
                for _ in (*before, key):
                    cost(seen, lambda: seen.press("escape"))


def loading(base: Path) -> None:
    head("seconds", "bytes", "work ms", "stall ms", "its own", "MB", "differs")
    for size in SIZES:
        with Watched(large_ensemble(), size=size) as seen:
            took = seen.whole()
            stall, busy = seen.ask("late")
            seen.settle(0.5)
            work = seen.work()
            figures = len(seen.got), 1000 * work, 1000 * stall, 1000 * busy, seen.memory()
            row("loading 20 MB", size, f"{took:.2f}", *figures, seen.differs())


def slow(base: Path) -> None:
    head("behind s", "bytes then", "stall ms", "its own", "differs")
    for size in SIZES[1:]:
        with Watched(large_ensemble(), size=size, rate=SLOW) as seen:
            seen.whole()
            seen.settle(1.0)
            for name, held in (
                ("cursor key held", ("down",)),
                ("pages held", ("pagedown", "pageup")),
                ("sorting", ("s", "s", "S")),
                ("to and fro", ("4", "escape", "3", "escape")),
            ):
                behind(seen, name, size, held)
    ensemble = Ensemble(base / "slow")
    size = SIZES[1]
    with Watched("--live", str(ensemble.directory), size=size, rate=SLOW) as seen:
        seen.whole()
        seen.settle(1.0)
        seen.ask("late")
        stop = time.monotonic() + 5
        while time.monotonic() < stop:
            for run in range(ensemble.RUNS):
                ensemble.write(random.choice((HOLD, RELEASE, EXECUTE)), run)
            time.sleep(0.05)
        caught_up(seen, "all rows change, 20×/s", size)


def behind(seen: Watched, name: str, size: tuple[int, int], held: Sequence[str]) -> None:
    """How far the screen lags when keys that were held for some seconds are released."""
    seen.settle()
    seen.ask("late")
    stop = time.monotonic() + 4
    while time.monotonic() < stop:
        for key in held:
            seen.press(key)
            time.sleep(0.033 if len(held) < 4 else 0.2)
    caught_up(seen, name, size)
    for _ in range(3):
        seen.press("escape")


def caught_up(seen: Watched, name: str, size: tuple[int, int]) -> None:
    before, let_go = len(seen.got), time.monotonic()
    last = let_go
    while time.monotonic() - last < 1.5:
        mine = [[tuple(each) for each in line] for line in seen.ask("cells")]
        shown = seen.shown()
        if differing(mine, shown):
            last = time.monotonic()
        time.sleep(0.02)
        if last - let_go > 60:
            break
    stall, busy = seen.ask("late")
    figures = len(seen.got) - before, 1000 * stall, 1000 * busy, seen.differs()
    row(f"slow: {name}", size, f"{last - let_go:.2f}", *figures)


ALL: Final = {
    "idle": idle,
    "row": changed_row,
    "keys": keys,
    "open": opening,
    "loading": loading,
    "slow": slow,
}


def main(argv: Sequence[str]) -> int:
    if argv[:1] == ["--inside"]:
        return inside(argv[1:])
    with tempfile.TemporaryDirectory() as base:
        for name in argv or list(ALL):
            ALL[name](Path(base))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
