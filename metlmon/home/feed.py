"""The ensembles of Home as the dashboard sees them; a separate process reads them."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final

import msgspec

from metlmon.home.reading import HomeUpdate
from metlmon.home.summary import HomeSummary
from metlmon.home.worker import HomeRequest
from metlmon.pool.connection import command
from metlmon.remote.paths import HOSTS

if TYPE_CHECKING:
    from metlmon.remote.relay import Relay

RESTART_SECONDS: Final = 5.0
"""Pause before the process is started again after an unexpected end."""

END_SECONDS: Final = 2.0
"""Time for the process to store the summaries after its input closes, before it is killed."""

STDERR_BYTES: Final = 2000


class HomeFeed:
    """The summaries of all ensembles below some paths, kept up to date.

    ``paths``, ``queue``, ``quiet``: as in :class:`HomeRequest`. The thread that receives the
    updates calls ``on_change``, given to :meth:`start`, after each of them.
    """

    def __init__(self, paths: Iterable[str], queue: bool = False, quiet: str | None = None) -> None:
        self.request = HomeRequest(tuple(paths), queue, quiet)
        self.summaries: tuple[HomeSummary, ...] = ()
        self.searching = True
        self.more: tuple[str, ...] = ()
        self.queue_error: str | None = None
        self.error: str | None = None
        self._by_path: dict[str, HomeSummary] = {}
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._relay: Relay | None = None
        self._thread: threading.Thread | None = None

    def start(self, on_change: Callable[[], None]) -> None:
        """Start the process; ``on_change`` is called in another thread."""
        self._thread = threading.Thread(
            target=self._run, args=(on_change,), name="metlmon-home", daemon=True
        )
        self._thread.start()

    def set_paths(self, paths: Iterable[str]) -> None:
        """Replace the paths below which ensembles are searched."""
        self.request = msgspec.structs.replace(self.request, paths=tuple(paths))
        with self._lock:
            self._send(self.request)

    def add_path(self, path: str) -> None:
        """Also search below this absolute path."""
        self.set_paths(dict.fromkeys((*self.request.paths, path)))

    def look_again(self, path: str) -> None:
        """Report that the user has looked at this ensemble, so that it is no longer new."""
        with self._lock:
            self._send(msgspec.structs.replace(self.request, again=path))

    def stop(self) -> None:
        """End the process and wait for its end."""
        self._stopped.set()
        with self._lock:
            process = self._process
        if process is None:
            return
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._thread is not None:
            self._thread.join(END_SECONDS)
        if self._relay is not None:
            self._relay.close()

    # --- in the thread ----------------------------------------------------------------------

    def _run(self, on_change: Callable[[], None]) -> None:
        while not self._stopped.is_set():
            with tempfile.TemporaryFile() as stderr:
                error = self._receive(stderr, on_change)
            if not self._stopped.is_set():
                self.error = f"{error}; it is started again"
                on_change()
                self._stopped.wait(RESTART_SECONDS)

    def _receive(self, stderr: IO[bytes], on_change: Callable[[], None]) -> str:
        """Receive updates until the process ends; return why it did."""
        try:
            with self._lock:
                process = self._process = subprocess.Popen(
                    command("metlmon.home.worker"),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    start_new_session=True,
                )
                self._send(self.request)
        except OSError as error:
            return f"the process that reads the ensembles cannot be started: {error}"
        if self._stopped.is_set():
            process.kill()
        assert process.stdout is not None
        decoder = msgspec.json.Decoder(HomeUpdate)
        for line in process.stdout:
            try:
                self._apply(decoder.decode(line))
            except msgspec.MsgspecError:
                process.kill()
                break
            on_change()
        process.stdout.close()
        status = process.wait()
        stderr.seek(0)
        lines = stderr.read(1 << 20)[-STDERR_BYTES:].decode("utf-8", "replace").split("\n")
        reason = next((f": {text.strip()}" for text in reversed(lines) if text.strip()), "")
        return f"the process that reads the ensembles ended (status {status}){reason}"

    def _send(self, request: HomeRequest) -> None:
        """Send a request; the caller holds the lock."""
        process = self._process
        if HOSTS:
            if self._relay is None:
                from metlmon.remote.relay import Relay

                self._relay = Relay()
            request = msgspec.structs.replace(
                request, machines=tuple(HOSTS), relay=self._relay.path
            )
        if process is not None and process.stdin is not None and not process.stdin.closed:
            # If the process has ended, it gets the request when it is started again.
            with suppress(OSError):
                process.stdin.write(msgspec.json.encode(request) + b"\n")
                process.stdin.flush()

    def _apply(self, update: HomeUpdate) -> None:
        for path in update.removed:
            self._by_path.pop(path, None)
        self._by_path.update((summary.path, summary) for summary in update.summaries)
        self.summaries = tuple(self._by_path.values())
        self.searching, self.more = update.searching, update.more
        self.queue_error, self.error = update.queue_error, None
