"""A loopback proxy of a tracking server that records calls, and fails on request.

Without a server behind it, every call without a fault is answered with 503.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

READING_POSTS: Final = ("runs/search", "experiments/search")
"""What is asked for by POST and writes nothing."""


class Call(NamedTuple):
    """The ``number``-th request that reached the tracker, from 0."""

    number: int
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def writes(self) -> bool:
        return self.method != "GET" and not self.path.endswith(READING_POSTS)

    def json(self) -> Any:
        return json.loads(self.body)


class Answer(NamedTuple):
    """A fault: this answer instead of the server's; ``passes_on``: the server gets the call, too.

    ``cut``: the connection closes after half of the body, or without any answer; ``drips``: the
    answer has no end.
    """

    code: int = 200
    body: bytes = b""
    type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    passes_on: bool = False
    cut: bool = False
    drips: bool = False


REFUSED: Final = Answer(401, b'{"error_code": "UNAUTHENTICATED", "message": "who are you?"}')
FORBIDDEN: Final = Answer(
    403, b'{"error_code": "PERMISSION_DENIED", "message": "not allowed to edit"}'
)
BROKEN: Final = Answer(500, b"<html><h1>Internal Server Error</h1></html>", "text/html")
BUSY: Final = Answer(429, b"{}", headers=(("Retry-After", "1"),))
NO_JSON: Final = Answer(200, b"<!doctype html><title>Log in</title>", "text/html")
TRUNCATED: Final = Answer(200, b'{"experiment": {"experiment_id": "1", "name": ', cut=True)
CUT: Final = Answer(cut=True)
"""The connection closes, and the call never reaches the server."""
LOST: Final = Answer(passes_on=True, cut=True)
"""The call reaches the server, its answer does not come back."""


class SlowAnswer:
    """A fault: no answer until it is :meth:`over`; then the server's own."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self._over = threading.Event()

    def wait(self) -> None:
        self.begun.set()
        self._over.wait()

    def over(self) -> None:
        """Release the waiting calls."""
        self._over.set()


class Kill(NamedTuple):
    """A fault: SIGKILL to the calling process; ``passes_on``: after the server has the call."""

    pid: Callable[[], int]
    passes_on: bool


Fault = Answer | SlowAnswer | Kill


class FaultyTracker:
    """The proxy. ``fault``: a function of a call that returns its fault.

    ``calls``: all calls so far. Use it with ``with``.
    """

    def __init__(self, server_url: str | None) -> None:
        self.calls: list[Call] = []
        self.fault: Callable[[Call], Fault | None] = lambda call: None
        self._upstream = urlsplit(server_url).netloc if server_url else None
        self._lock = threading.Lock()
        self._slow: list[SlowAnswer] = []
        self._connections: set[socket.socket] = set()
        self._server = self._listen()
        self.port: int = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for slow in self._slow:
            slow.over()
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    @property
    def writes(self) -> list[Call]:
        """The calls so far that write."""
        return [call for call in self.calls if call.writes]

    def always(self, fault: Fault) -> None:
        """Apply this fault to every call from now on."""
        self.fault = lambda call: fault

    def at(self, number: int, fault: Fault) -> None:
        """Apply this fault to the call with this number, counted from 0."""
        self.fault = lambda call: fault if call.number == number else None

    def reset(self) -> None:
        """Forget the calls and the fault."""
        with self._lock:
            self.calls.clear()
        self.fault = lambda call: None

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Use TLS from now on."""
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    # --- in the threads of the server -------------------------------------------------------

    def _listen(self) -> ThreadingHTTPServer:
        tracker = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            server_side: http.client.HTTPConnection | None = None

            def setup(self) -> None:
                super().setup()
                with tracker._lock:
                    tracker._connections.add(self.connection)

            def finish(self) -> None:
                with tracker._lock:
                    tracker._connections.discard(self.connection)
                if self.server_side is not None:
                    self.server_side.close()
                with suppress(OSError):
                    super().finish()

            def answer(self) -> None:
                tracker._answer(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

            def forward(self, call: Call) -> tuple[int, str, bytes]:
                if tracker._upstream is None:
                    return 503, "text/plain", b"no server behind this one"
                if self.server_side is None:
                    self.server_side = http.client.HTTPConnection(tracker._upstream, timeout=60)
                headers = {k: v for k, v in call.headers.items() if k.lower() != "host"}
                self.server_side.request(call.method, call.path, call.body, headers)
                answer = self.server_side.getresponse()
                return answer.status, answer.headers.get_content_type(), answer.read()

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        # A client may close before it has its answer.
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        return server

    def _answer(self, handler: Any) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        with self._lock:
            number = len(self.calls)
            call = Call(number, handler.command, handler.path, dict(handler.headers), body)
            self.calls.append(call)
        fault = self.fault(call)
        if isinstance(fault, SlowAnswer):
            self._slow.append(fault)
            fault.wait()
        if isinstance(fault, Kill):
            if fault.passes_on:
                handler.forward(call)
            os.kill(fault.pid(), signal.SIGKILL)
            handler.close_connection = True
        elif isinstance(fault, Answer):
            if fault.passes_on:
                handler.forward(call)
            _send(handler, fault)
        else:
            code, kind, content = handler.forward(call)
            _send(handler, Answer(code, content, kind))


def _send(handler: Any, answer: Answer) -> None:
    if not answer.cut or answer.body:
        handler.send_response(answer.code)
        while answer.drips:
            time.sleep(0.02)
            handler.send_header("X-More", "to come")
            handler.flush_headers()
        handler.send_header("Content-Type", answer.type)
        handler.send_header("Content-Length", str(len(answer.body) * (2 if answer.cut else 1)))
        for name, value in answer.headers:
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(answer.body)
    if answer.cut:
        handler.close_connection = True


# --- without a server behind it ---------------------------------------------------------------


def web_listener(answer: Fault = Answer()) -> FaultyTracker:  # noqa: B008
    """A web server with this answer to every call. Use it with ``with``."""
    listener = FaultyTracker(None)
    listener.always(answer)
    return listener


RUN: Final = {"run_id": "0123456789abcdef", "artifact_uri": "mlflow-artifacts:/1/0123/artifacts"}
ANSWERS: Final = {
    "experiments/get-by-name": {"experiment": {"experiment_id": "1"}},
    "runs/create": {"run": {"info": RUN}},
}


def take_everything(call: Call) -> Answer:
    """The answer of a tracking server in which there are no runs."""
    name = call.path.partition("/mlflow/")[2].partition("?")[0]
    return Answer(200, json.dumps(ANSWERS.get(name, {})).encode())


def canned_tracker() -> FaultyTracker:
    """A tracking server that takes everything and has nothing. Use it with ``with``."""
    tracker = FaultyTracker(None)
    tracker.fault = take_everything
    return tracker
