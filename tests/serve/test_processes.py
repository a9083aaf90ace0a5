"""``metlmon serve`` as a program: its output, its end, and that it leaves no process."""

from __future__ import annotations

import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from metlmon.cli.main import main
from tests.support.commands import Captured
from tests.support.served_dashboard import DEMO, PATIENCE, needed_module, open_tab, served

needed_module("metlmon.serve.server")

MOUSE_ON = b"\x1b[?1003h"
URL = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{43})")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
async def test_signal_ends_server_and_programs(number: int, code: int) -> None:
    with served(DEMO) as program:
        assert URL.fullmatch(program.url)
        token = program.url.partition("=")[2]
        async with open_tab(program.url) as tab:
            await tab.wait_for("run5")
            pids = program.programs()
            assert len(pids) == 1
            assert MOUSE_ON not in tab.received
            arguments = Path(f"/proc/{pids[0]}/cmdline").read_bytes().split(b"\0")
            assert b"--read-only" in arguments
            for what in ("cmdline", "environ"):
                assert token.encode() not in Path(f"/proc/{pids[0]}/{what}").read_bytes()
            ended, out, err = program.end(number)
        assert ended == code
        assert out == ""
        port = program.url.split(":")[2].split("/")[0]
        assert err == (
            "metlmon: open this in a browser of this machine; read-only; ^C ends it\n"
            f"metlmon: elsewhere, first: ssh -N -L {port}:127.0.0.1:{port} {socket.gethostname()}\n"
        )
        assert all(map(is_gone, pids))


async def test_program_ends_with_its_tab() -> None:
    with served("--allow-actions", "--ascii", "--mouse", DEMO) as program:
        async with open_tab(program.url) as tab, open_tab(program.url) as other:
            await tab.wait_for("run5")
            await other.wait_for("run5")
            assert "read-only" not in tab.text
            assert tab.text.isascii()
            assert MOUSE_ON in tab.received
            pids = program.programs()
            assert len(pids) == 2
            await tab.websocket.close()
            wait_until(lambda: len(program.programs()) == 1)
            await other.press("?")
            await other.wait_for("help")
        wait_until(lambda: not program.programs())
        assert all(map(is_gone, pids))


async def test_no_program_survives_a_killed_server() -> None:
    with served(DEMO) as program:
        async with open_tab(program.url) as tab:
            await tab.wait_for("run5")
            (pid,) = program.programs()
            program.process.kill()
            wait_until(lambda: is_gone(pid))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["/nowhere/at/all"], "metlmon: /nowhere/at/all: no such directory"),
        ([DEMO, "/nowhere/at/all"], "metlmon: /nowhere/at/all: no such file or directory"),
        ([DEMO, "--tz", "Mars/Olympus"], "Mars/Olympus"),
        ([DEMO, "--as-of", "tomorrowish"], "tomorrowish"),
        ([DEMO, "--port", "70000"], "--port 70000: "),
    ],
)
def test_unusable_arguments_are_refused_at_once(
    arguments: list[str], reason: str, capsys: Captured
) -> None:
    assert main(["serve", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert reason in captured.err
    assert captured.err.count("\n") == 1


def test_missing_textual_serve_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setitem(sys.modules, "textual_serve", None)
    assert main(["serve", DEMO]) == 2
    assert capsys.readouterr().err == (
        "metlmon: serve needs textual-serve: pip install 'metlmon[serve]'\n"
    )
