"""One dashboard in its own process, for one tab of a browser.

textual-serve runs a command line in a shell, waits for its end without a limit, and prints its
messages. Here an argument list is run, without a shell; the process ends when its tab does, by
force if necessary; and its messages are shown in the tab.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from textual_serve.app_service import AppService

from metlmon.text.formatting import plain

BOOTSTRAP: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from metlmon.cli.main import main; "
    "sys.exit(main(sys.argv[2:]))"
)
"""Runs the command line with this process's import path, but never from the working directory:
that may be a dagdir, which another user may have written."""

NOT_FOR_A_BROWSER: Final = frozenset(
    ("TMUX", "TMUX_PANE", "STY", "COLORFGBG", "LINES", "BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
)
"""Variables about the server's terminal and display, which the user does not look at."""

STARTED: Final = b"__GANGLION__\n"
"""What Textual's web driver writes before its first packet."""

PRELUDE_BYTES: Final = 1 << 16
MESSAGE_BYTES: Final = 1 << 16
"""Limits of the output kept before a program's first packet, and of its messages."""

WRITE_SECONDS: Final = 10.0
"""Time for a program to accept input, after which its tab is closed."""

EXIT_SECONDS: Final = 4.0
"""Time for a program to end before it is killed: longer than the dashboard gives its threads."""


LAST_SECONDS: Final = 1.0
"""Time for the rest of its messages, and for its end after it was killed."""


def watch_command(arguments: Sequence[str]) -> list[str]:
    """The argument list of ``metlmon watch`` with these arguments, run by this Python."""
    directory = os.getcwd()
    paths = [path for path in sys.path if os.path.isabs(path) and path != directory]
    paths.append(str(Path(__file__).resolve().parents[2]))
    isolated = [sys.executable, "-I", "-X", "utf8", "-c", BOOTSTRAP]
    return [*isolated, json.dumps(paths), "watch", *arguments]


class AppProcess(AppService):
    """A process of textual-serve that is started from an argument list.

    ``arguments``: the command. ``download_url`` returns the URL of a file that it sends, by the
    file's key. ``connection``: the arguments of textual-serve's AppService.
    """

    def __init__(
        self, arguments: Sequence[str], download_url: Callable[[str], str], **connection: Any
    ) -> None:
        super().__init__("", **connection)
        self._arguments = arguments
        self._download_url = download_url

    def _build_environment(self, width: int = 80, height: int = 24) -> dict[str, str]:
        environment = super()._build_environment(width, height)
        kept = {name: text for name, text in environment.items() if name not in NOT_FOR_A_BROWSER}
        # xterm.js is compatible with this.
        return kept | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        self._process = process = await asyncio.create_subprocess_exec(
            *self._arguments,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=self._build_environment(width, height),
            # ^C in the terminal of the server ends the server, which ends this process.
            start_new_session=True,
        )
        self._stdin = process.stdin
        return process

    async def send_bytes(self, data: bytes) -> bool:
        return await self._send(b"D", data)

    async def send_meta(self, data: dict[str, str | int | bool | None]) -> bool:
        return await self._send(b"M", json.dumps(data).encode())

    async def _send(self, kind: bytes, payload: bytes) -> bool:
        """Send a packet; return whether it was accepted."""
        try:
            self.stdin.write(self.encode_packet(kind, payload))  # type: ignore[arg-type]
            await asyncio.wait_for(self.stdin.drain(), WRITE_SECONDS)
        except (OSError, RuntimeError, TimeoutError):
            return False
        return True

    async def run(self) -> None:
        """Pass on what the process writes, until it ends; then its last message."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        assert process.stderr is not None
        errors = asyncio.create_task(_read_end(process.stderr))
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._pass_on(process.stdout)
            await process.wait()
            message = ""
            # Its child processes may still hold its standard error open.
            with suppress(TimeoutError):
                message = await asyncio.wait_for(errors, LAST_SECONDS)
            if message:
                await self.remote_write_bytes(message_screen(message))
            await self.remote_close()
        except ConnectionError:
            # The tab has gone.
            pass
        finally:
            errors.cancel()

    async def _pass_on(self, stdout: asyncio.StreamReader) -> None:
        """Pass on the packets of the process. Raises IncompleteReadError at their end."""
        taken = 0
        while (line := await stdout.readline()) != STARTED:
            taken += len(line)
            if not line or taken > PRELUDE_BYTES:
                return
        while True:
            kind = await stdout.readexactly(1)
            size = int.from_bytes(await stdout.readexactly(4), "big")
            payload = await stdout.readexactly(size)
            if kind == b"D":
                await self.on_data(payload)
            elif kind == b"M":
                await self.on_meta(payload)
            elif kind == b"P":
                await self.on_packed(payload)

    async def on_meta(self, data: bytes) -> None:
        meta = json.loads(data)
        # "exit" is not handled: the tab is closed after the last message of the process.
        if meta.get("type") == "deliver_file_start":
            key = str(meta["key"])
            await self._download_manager.create_download(
                app_service=self,
                delivery_key=key,
                file_name=Path(meta["path"]).name,
                open_method="download",
                mime_type=meta["mime_type"],
            )
            opened = {"url": self._download_url(key), "new_tab": False}
            await self.remote_write_str(json.dumps(["open_url", opened]))

    async def stop(self) -> None:
        """End the process: by the end of its input, then by force."""
        task, process = self._task, self._process
        if task is None or process is None:
            return
        self._task = None
        await self._download_manager.cancel_app_downloads(app_service_id=self.app_service_id)
        self.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), EXIT_SECONDS)
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), LAST_SECONDS)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def message_screen(message: str) -> bytes:
    """The output that shows a message in a tab in place of the dashboard, in the page's colours."""
    shown = "\r\n ".join(plain(line, 2000) for line in message.splitlines())
    return f"\x1b[0;38;2;213;217;224;48;2;20;23;28m\x1b[?25l\x1b[2J\x1b[H {shown}\r\n".encode()


async def _read_end(stream: asyncio.StreamReader) -> str:
    """Everything up to the end of the stream; if that is much, its last part."""
    end = b""
    while data := await stream.read(4096):
        end = (end + data)[-MESSAGE_BYTES:]
    return end.decode("utf-8", "replace")
