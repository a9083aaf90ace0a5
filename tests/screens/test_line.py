"""The real program on its controlling terminal: sizes, signals, shell jobs, lost lines."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest

from screens.app import EXIT_TIMEOUT_SECONDS
from screens.widgets.line_widget import Table
from tests.support.recordings import FIXTURES
from tests.support.sample_snapshots import FakeFeed, update
from tests.support.screen_view import EagerApp
from tests.support.terminal import PATIENCE, PseudoTerminal, terminal_environment

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = (sys.executable, "-m", "metlmon")

SCREENS = {
    "overview": ("", "GPU-hours"),
    "run": ("\r", "Execution time by epoch"),
    "sites": ("3", "SUCCESS"),
    "curves": ("5", "┤"),
    "palette": (":", "Search actions"),
    "help": ("?", "Keys and signs"),
}


def on_a_line(
    *arguments: str, size: tuple[int, int] = (100, 30), argv: Sequence[str] = (), **env: str | None
) -> PseudoTerminal:
    """``metlmon`` with these arguments, or another command, on a terminal."""
    environment = terminal_environment(PYTHONPATH=str(ROOT), **env)
    return PseudoTerminal(argv or (*PROGRAM, *arguments), size, environment)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(FIXTURES / "trainer", tmp_path_factory.mktemp("line") / "ens"))


@pytest.fixture
def dagdir(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CONDOR_CONFIG", "/nonexistent")
    return copy


def started(line: PseudoTerminal) -> None:
    """Wait for its rows, the first entry of Health in its header, and the pane below the list."""
    for text in ("PROGRESS", "nothing held or failed", "best 0.2399"):
        line.wait_for(text)
    line.rest()


def seen(line: PseudoTerminal) -> list[list[tuple[object, ...]]]:
    """The visible part of each cell: of a blank only its background."""
    return [
        [(c[0], c[2], c[6], c[7]) + ((c[1], c[3]) if c[0] != " " else ()) for c in row]
        for row in line.cells()
    ]


def test_picture_is_the_same_after_any_resizes(dagdir: Path) -> None:
    with on_a_line("watch", str(dagdir), "--read-only") as t:
        started(t)
        for turn, (screen, (keys, shown)) in enumerate(SCREENS.items()):
            t.type(keys)
            t.wait_for(shown)
            t.rest()
            before = seen(t)
            for size in ((20, 5), (1, 1), (0, 0), (300, 100)):
                t.resize(*size)
                t.pump(0.1)
            for step in range(turn % 4, 16, 4):
                t.resize(30 + 9 * step, 4 + 7 * step % 30)
                t.pump(0.02)
            t.resize(39, 8)
            t.until(lambda: "needs 40x8" in t.text, f"{screen} does not say what it needs")
            t.resize(100, 30)
            t.until(lambda b=before: seen(t) == b, f"{screen}: another picture than before")  # type: ignore[misc]
            if keys:
                t.type("\x1b")
                t.wait_for("PROGRESS", gone=shown)
                t.rest()
        t.type("\x03")
        assert t.end() == 130
        assert t.restored()


RESIZED_WHILE_READING_ITS_SIZE = """
import fcntl, struct, sys, termios
from metlmon.cli.main import main
from screens.terminal import driver

def size(descriptors, read=driver.terminal_size):
    found = read(descriptors)
    if found == (70, 20):
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        for _ in range(1000):
            pass  # the signal arrives
    return found

driver.terminal_size = size
sys.exit(main(["watch", sys.argv[1], "--read-only"]))
"""


def test_latest_size_wins(dagdir: Path) -> None:
    """The next signal may interrupt a handler that has read an older size."""
    argv = (sys.executable, "-c", RESIZED_WHILE_READING_ITS_SIZE, str(dagdir))
    with on_a_line(argv=argv) as t:
        started(t)
        t.resize(70, 20)
        t.screen.resize(40, 120)
        t.until(
            lambda: any(len(line.rstrip()) > 100 for line in t.text.splitlines()), "120 columns"
        )
        t.rest()
        assert t.text.splitlines()[39].strip(), "the footer is in the last line"
        t.type("\x03")
        assert t.end() == 130


async def test_delayed_timer_still_applies_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer of 8 ms that applies a new size skipped its only call, and later sizes waited."""
    app = EagerApp(FakeFeed(update()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.resize_terminal(70, 20)
        await pilot.pause(0.1)
        clock = count(time.monotonic(), 0.02)
        with monkeypatch.context() as slow:
            slow.setattr("textual.timer._time.get_time", lambda: next(clock))
            await pilot.resize_terminal(39, 8)
            await pilot.pause(0.1)
        await pilot.resize_terminal(100, 30)
        await pilot.pause(0.1)
        assert app.screen.query_one(Table).size.width == 100


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU])
def test_signal_is_reported_after_the_screen(dagdir: Path, number: signal.Signals) -> None:
    with on_a_line("watch", str(dagdir)) as t:
        started(t)
        t.child.send_signal(number)
        before = time.monotonic()
        assert t.end() == 128 + number
        assert time.monotonic() - before < EXIT_TIMEOUT_SECONDS, "it was left by force"
        assert t.restored()
        assert f"metlmon: ended by {number.name}" in t.text_after_screen()


def test_variables_of_textual_write_no_files(
    dagdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    for name, text in (
        ("TEXTUAL_DEBUG", "1"),
        ("TEXTUAL_LOG", "log"),
        ("TEXTUAL", "devtools,debug"),
        ("TEXTUAL_SCREENSHOT", "0"),
        ("TEXTUAL_PRESS", "q"),
        ("TEXTUAL_DRIVER", "nowhere:Driver"),
        ("TEXTUAL_SHOW_RETURN", "1"),
    ):
        monkeypatch.setenv(name, text)
    with on_a_line("watch", str(dagdir)) as t:
        started(t)
        t.type("q")
        assert t.end() == 0
        assert list(here.iterdir()) == []
        assert t.restored()


def test_terminal_is_restored_after_sigstop(dagdir: Path) -> None:
    """After SIGSTOP the raw modes were taken for the original ones, and left behind."""
    with on_a_line("watch", str(dagdir)) as t:
        started(t)
        before = seen(t)
        for _ in range(2):
            t.child.send_signal(signal.SIGSTOP)
            os.waitpid(t.child.pid, os.WUNTRACED)
            entered = t.bytes.count(b"\x1b[?1049h")
            t.child.send_signal(signal.SIGCONT)
            t.until(lambda n=entered: t.bytes.count(b"\x1b[?1049h") > n, "it does not go on")  # type: ignore[misc]
        t.until(lambda: seen(t) == before, "another picture than before")
        t.type("Q")
        assert t.end() == 0
        assert t.restored()


def test_suspend_and_resume(dagdir: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash: nobody to stop it and go on")
    with on_a_line(argv=[bash, "--norc", "-i"], PS1="$ ") as t:
        t.wait_for("$")
        t.command(f"{' '.join(PROGRAM)} watch {dagdir}")
        started(t)
        before = seen(t)
        t.type("\x1a")
        t.wait_for("Stopped")
        assert t.bytes.rfind(b"\x1b[?1049l") > t.bytes.rfind(b"\x1b[?1049h")
        t.command("bg")
        t.rest()
        t.command("fg")
        t.until(lambda: seen(t) == before, "another picture than before")
        t.type("Q")
        t.rest()
        t.command("echo it re''turned $?")
        t.wait_for("it returned 0")
        t.command("exit")
        t.end()


def test_program_without_a_shell_is_not_stopped(dagdir: Path) -> None:
    """As the command of a window it would be stopped for ever."""
    with on_a_line("watch", str(dagdir)) as t:
        started(t)
        t.type("\x1a")
        t.wait_for("there is no shell to go back to")
        t.child.send_signal(signal.SIGTSTP)
        t.type("?")
        t.wait_for("Keys and signs")
        t.type("Q")
        assert t.end() == 0


def test_lost_line_leaves_no_process(dagdir: Path) -> None:
    with on_a_line("watch", str(dagdir)) as t:
        started(t)
        t.hang_up()
        assert t.child.wait(PATIENCE) == 128 + signal.SIGHUP
        assert t.processes() == []


def test_blocked_terminal_costs_no_cpu_time(dagdir: Path) -> None:
    with on_a_line("watch", str(dagdir)) as t:
        started(t)
        # Each redraws the whole screen, unread.
        for _ in range(100):
            t.type("\x0c\x14")
        deadline, used, before = time.monotonic() + PATIENCE, _cpu(t.child.pid), -1.0
        while used - before > 0.1:
            # Typed keys are drawn first; a busy loop never rests.
            assert time.monotonic() < deadline, "it takes the processor for nothing"
            time.sleep(1)
            before, used = used, _cpu(t.child.pid)
        t.rest()
        t.type("?")
        t.wait_for("Keys and signs")
        t.type("Q")
        assert t.end() == 0


def _cpu(pid: int) -> float:
    """The seconds of a processor that it has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("bracketed", [True, False])
def test_pasted_file_is_not_taken_for_keys(dagdir: Path, bracketed: bool) -> None:
    with on_a_line("watch", str(dagdir), "--read-only") as t:
        started(t)
        before = seen(t)
        data = b"Xq\x1b[31mDq\x0c\r\n" * 20_000 if bracketed else b"XDq\r\n" * 50_000
        os.set_blocking(t.master, False)
        rest = memoryview(b"\x1b[200~" + data + b"\x1b[201~" if bracketed else data)
        deadline = time.monotonic() + PATIENCE
        while rest:
            try:
                rest = rest[os.write(t.master, rest) :]
            except BlockingIOError:
                t.pump(0.01)
            assert time.monotonic() < deadline, "it does not read on"
        t.rest()
        assert t.child.poll() is None, t.text
        t.until(lambda: seen(t) == before, "another picture than before")
        t.until(lambda: _pressed(t, b"Q"), "it does not leave")
        assert t.end() == 0


def _pressed(line: PseudoTerminal, key: bytes) -> bool:
    """Press it again, for as long as the program runs."""
    if line.child.poll() is None:
        line.type(key)
    return line.child.poll() is not None


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "</dev/null"])
def test_exit_status_with_closed_descriptors(dagdir: Path, closed: str) -> None:
    command = f"{' '.join(PROGRAM)} watch {dagdir} {closed}; echo status $?"
    with on_a_line(argv=["/bin/sh", "-c", command]) as t:
        t.until(lambda: t.child.poll() is not None or "PROGRESS" in t.text, "nothing happens")
        t.rest()
        assert "status 0" in t.text, t.text
        assert "Traceback" not in t.text


def test_worker_ends_with_its_parent() -> None:
    """While the bindings wait for the schedd no other thread of Python runs."""
    worker = (
        "import ctypes\n"
        "from metlmon.pool import worker\n"
        "class Waits:\n"
        "    def where(self, *request): ctypes.PyDLL(None).sleep(600)\n"
        "worker.serve.__defaults__ = (Waits,)\n"
        "worker.main()\n"
    )
    parent = (
        "import sys, threading, time\n"
        "from metlmon.pool.connection import PoolConnection\n"
        f"line = PoolConnection([sys.executable, '-c', {worker!r}])\n"
        "threading.Thread(target=line.where, daemon=True).start()\n"
        "while line._worker is None: time.sleep(0.01)\n"
        "print(line._worker.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, cwd=ROOT)
    pid = int(process.stdout.readline())
    _until(lambda: "nanosleep" in _proc(pid, "wchan") or "hrtimer" in _proc(pid, "wchan"), pid)
    process.kill()
    process.wait()
    process.stdout.close()
    _until(lambda: _proc(pid, "stat").rpartition(")")[2][1:2] in ("", "Z"), pid)


def _proc(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""


def _until(condition: Callable[[], bool], pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            raise AssertionError("it goes on for ever")
        time.sleep(0.01)
