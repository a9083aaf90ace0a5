"""The dashboard of ``metlmon serve`` in a browser's tab."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from itertools import cycle
from pathlib import Path

import aiohttp
import pytest

from tests.support.commands import Captured
from tests.support.served_dashboard import (
    DEMO,
    ROOT,
    needed_module,
    open_tab,
    running_server,
    running_tab,
)

app_process = needed_module("metlmon.serve.app_process")

RESCUE = ROOT / "fixtures" / "rescue"
CONTROL_O, CONTROL_V, CONTROL_Y, CONTROL_Z = "\x0f", "\x16", "\x19", "\x1a"
DOWN = "\x1b[B"
POINTER = b"\x1b]22;default\x07"

STARTS = "import sys; write = sys.stdout.buffer.write; write(b'__GANGLION__\\n'); "
FLUSH = "sys.stdout.flush(); "


def watch(*arguments: str) -> list[str]:
    return app_process.watch_command(["--no-notify", *arguments])


async def test_keys_open_a_run() -> None:
    async with running_tab(watch("--read-only", "--", DEMO)) as tab:
        await tab.wait_for("run5")
        assert "read-only" in tab.text
        await tab.press(DOWN)
        await tab.wait_for("3a665d89")
        await tab.press("\r")
        await tab.wait_for("3a665d89   ✓ completed")
        await tab.press("q")
        await tab.wait_for("run5")
        await tab.press("q")
        await tab.wait_closed()
    assert not tab.server._processes


async def test_nothing_opens_that_needs_a_terminal() -> None:
    async with running_tab(watch("--read-only", "--", DEMO)) as tab:
        await tab.wait_for("run5")
        await tab.press_until_written(CONTROL_Z, "there is no shell to go back to")
        await tab.press("\r")
        await tab.wait_for("9 executions")
        await tab.press("\r")
        await tab.wait_for("job 504.0")
        await tab.press("\r")
        await tab.wait_for("^v")
        await tab.press_until_written(CONTROL_V, "a pager needs a terminal")


async def test_report_is_sent_to_the_browser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with (
        running_tab(watch("--read-only", "--", DEMO)) as tab,
        aiohttp.ClientSession() as session,
    ):
        await tab.wait_for("run5")
        await tab.press_until_written(CONTROL_O, "reports are in your browser's downloads")
        await tab.press(CONTROL_Y)
        while not any(kind == "open_url" for kind, _ in tab.messages):
            await tab.take()
        opened = next(each for kind, each in tab.messages if kind == "open_url")
        url = f"http://127.0.0.1:{tab.server.port}{opened['url']}"
        async with session.get(url.partition("?")[0]) as refused:
            assert refused.status == 403
        async with session.get(url) as answer:
            html = await answer.text()
            assert answer.headers["Content-Type"] == "application/octet-stream"
            assert answer.headers["Content-Disposition"] == (
                "attachment; filename*=UTF-8''demo-report.html"
            )
        assert html.startswith("<!DOCTYPE html>")
        assert html.rstrip().endswith("</html>")
        assert "run5" in html
        async with session.get(url) as again:
            assert again.status == 404
    assert not list(tmp_path.iterdir())


async def test_frames_wait_for_a_slow_tab() -> None:
    async with running_tab(watch("--read-only", "--", DEMO)) as tab:
        await tab.wait_for("run5")
        tab.replies = False
        tab.received = b""
        keys = cycle("?q")
        while b"\x1b[6n" not in tab.received:
            await tab.press(next(keys))
            # Two keys handled together may have no effect.
            with suppress(TimeoutError):
                await tab.take(1)
        # No more is written until its cursor is reported.
        at_request = len(tab.received)
        await tab.press(next(keys))
        await tab.wait_silent(1)
        # (Textual chooses the pointer's shape at any time.)
        assert not tab.received[at_request:].replace(POINTER, b"")
        await tab.press("\x1b[1;1R")
        while not tab.received[at_request:].replace(POINTER, b""):
            await tab.press(next(keys))
            with suppress(TimeoutError):
                await tab.take(1)


@pytest.mark.parametrize(
    "message",
    ["", "{", "7", "[]", '{"a": 1}', '["stdin"]', '["resize", 7]', "[[]]", '["x"]', "[" * 100_000],
)
async def test_invalid_message_ends_only_its_tab(message: str, capsys: Captured) -> None:
    program = f"{STARTS}{FLUSH}sys.stdin.buffer.read()"
    async with (
        running_server([sys.executable, "-c", program]) as server,
        open_tab(server.url) as other,
        open_tab(server.url) as tab,
    ):
        await tab.websocket.send_bytes(b"\xff")
        await tab.websocket.send_str(message)
        await other.websocket.send_json(["ping", "1"])
        await other.take()
        assert other.messages == [["pong", "1"]]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["-x", "--port=1 'a\"b\n$(touch pwned)`touch pwned`;touch pwned"])
async def test_directory_names_are_not_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    shutil.copytree(RESCUE, tmp_path / name)
    # Modules of the working directory are not imported.
    for module in ("json.py", "metlmon.py", "sitecustomize.py"):
        (tmp_path / module).write_text("open('pwned', 'w')")
    monkeypatch.chdir(tmp_path)
    async with running_tab(watch("--", name)) as tab:
        await tab.wait_for("run3")
    assert not (tmp_path / "pwned").exists()


async def test_error_output_of_a_program_is_shown() -> None:
    async with running_tab(watch("--", "/nowhere/at/all")) as tab:
        await tab.wait_closed()
    assert "metlmon: /nowhere/at/all: no such directory" in tab.text
    program = (
        "import sys; sys.stderr.write('bad \\x1b[31mred\\x1b]0;title\\x07\\nmore'); sys.exit(2)"
    )
    async with running_tab([sys.executable, "-c", program]) as tab:
        await tab.wait_closed()
    assert b"\x1b[31m" not in tab.received
    assert b"\x07" not in tab.received
    assert "bad" in tab.text
    assert "more" in tab.text


async def test_program_does_not_receive_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMUX", "/tmp/tmux-0/default,1,0")
    program = (
        "import os, sys; text = repr([dict(os.environ), sys.argv]).encode(); "
        f"{STARTS}write(b'D' + len(text).to_bytes(4, 'big') + text)"
    )
    async with running_tab([sys.executable, "-c", program]) as tab:
        await tab.wait_closed()
    assert b"'COLUMNS': '120'" in tab.received
    assert tab.server.token.encode() not in tab.received
    assert b"tmux" not in tab.received


async def test_program_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_process, "EXIT_SECONDS", 0.1)
    program = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"{STARTS}text = str(os.getpid()).encode(); "
        f"write(b'D' + len(text).to_bytes(4, 'big') + text); {FLUSH}time.sleep(1000)"
    )
    async with running_tab([sys.executable, "-c", program]) as tab:
        await tab.take()
        pid = int(tab.received)
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_large_output_reaches_the_tab(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        f"{STARTS}\nfor _ in range(200): write(b'D' + (60000).to_bytes(4, 'big') + bytes(60000))"
    )
    async with running_tab([sys.executable, "-c", program]) as tab:
        tab._stream.feed = lambda data: None  # type: ignore[method-assign]
        await tab.wait_closed()
    assert len(tab.received) == 200 * 60000
