"""``metlmon serve`` under test: in this process or as a program, with tabs of a browser.

A tab does what textual.js does.
"""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import aiohttp
import pyte
import pytest

from tests.support.patience import PATIENCE
from tests.support.terminal import FillingScreen

ROOT: Final = Path(__file__).resolve().parents[2]
DEMO: Final = str(ROOT / "fixtures" / "demo")
"""Six runs: run1 is 3a665d89, and run5 the last one."""

ATTEMPT_SECONDS: Final = 5.0
"""How long a key's message is waited for before the key is pressed again."""

REQUIRED: Final = "METLMON_POOL_REQUIRED"
"""Where this is set (in the project's own checks) nothing may be missing."""


def needed_module(name: str) -> Any:
    """A module that needs textual-serve, without which the tests of a file are skipped."""
    if os.environ.get(REQUIRED):
        return import_module(name)
    return pytest.importorskip(name, reason="no textual-serve here", exc_type=ImportError)


class Tab:
    """A tab of a browser: its connection, and its terminal of 120×40.

    It replies to cursor position requests while ``replies`` is set, as every terminal does.
    """

    server: Any

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        self.websocket = websocket
        self.screen = FillingScreen(120, 40)
        self.screen.write_process_input = self._reply  # type: ignore[method-assign]
        self._stream = pyte.ByteStream(self.screen)
        self._to_send: list[str] = []
        self.replies = True
        self.received = b""
        self.messages: list[Any] = []

    def _reply(self, data: str) -> None:
        if self.replies:
            self._to_send.append(data)

    @property
    def text(self) -> str:
        """The text on the terminal."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.websocket.send_json(["stdin", key])

    async def take(self, seconds: float = PATIENCE) -> bool:
        """Take one message; False once the connection is closed. Raises TimeoutError."""
        message = await asyncio.wait_for(self.websocket.receive(), seconds)
        if message.type is aiohttp.WSMsgType.BINARY:
            self.received += message.data
            self._stream.feed(message.data)
        elif message.type is aiohttp.WSMsgType.TEXT:
            self.messages.append(message.json())
        while self._to_send:
            await self.press(self._to_send.pop(0))
        return message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT)

    async def wait_for(self, text: str) -> None:
        """Wait until this text is on the terminal."""
        while text not in self.text:
            try:
                is_open = await self.take()
            except TimeoutError:
                is_open = False
            assert is_open, f"{text!r} was not shown:\n{self.text}"

    async def press_until_written(self, key: str, text: str) -> None:
        """Press the key until the program has written this (on a busy machine a message may expire
        before it is drawn)."""
        for _ in range(int(PATIENCE // ATTEMPT_SECONDS)):
            await self.press(key)
            with suppress(TimeoutError):
                while text.encode() not in self.received:
                    assert await self.take(ATTEMPT_SECONDS), self.text
                return
        pytest.fail(f"{text!r} was not written:\n{self.text}")

    async def wait_silent(self, seconds: float) -> None:
        """Take all messages until there was none for this time."""
        with suppress(TimeoutError):
            while await self.take(seconds):
                pass

    async def wait_closed(self) -> None:
        while await self.take():
            pass


@asynccontextmanager
async def open_tab(url: str) -> AsyncIterator[Tab]:
    """A tab connected like the page of ``url``."""
    base, _, token = url.partition("/?token=")
    address = f"{base}/ws/{token}?width=120&height=40"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(address, origin=base) as websocket,
    ):
        yield Tab(websocket)


@asynccontextmanager
async def running_server(arguments: Sequence[str], title: str = "ensemble") -> AsyncIterator[Any]:
    """A server whose tabs run ``arguments``."""
    serve = needed_module("metlmon.serve.server")
    server, stopped = serve.DashboardServer(arguments, title, 0), asyncio.Event()
    task = asyncio.create_task(server.serve_until(stopped))
    try:
        yield server
    finally:
        stopped.set()
        await asyncio.wait_for(task, PATIENCE)


@asynccontextmanager
async def running_tab(arguments: Sequence[str]) -> AsyncIterator[Tab]:
    """A tab, with a server of its own, that runs ``arguments``."""
    async with running_server(arguments) as server, open_tab(server.url) as tab:
        tab.server = server
        yield tab


class ServeProcess:
    """A running ``metlmon serve``."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "metlmon", "serve", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            text=True,
        )
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], PATIENCE)[0]
        self.url = self.process.stdout.readline().rstrip("\n")

    def programs(self) -> list[int]:
        """The processes that it has started."""
        pid = self.process.pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def end(self, number: int) -> tuple[int, str, str]:
        """Send a signal; return its exit status, and its further output."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


@contextmanager
def served(*arguments: str) -> Iterator[ServeProcess]:
    program = ServeProcess(*arguments)
    try:
        yield program
    finally:
        program.process.kill()
        program.process.communicate()
