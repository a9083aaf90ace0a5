"""A web server on the loopback interface that records what is posted to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self


class PostedRequest(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class WebListener:
    """Answers every request with ``code``, or never with ``answers=False``.

    ``drips``: its answer has no end.
    """

    def __init__(
        self,
        code: int = 200,
        headers: Mapping[str, str] | None = None,
        answers: bool = True,
        drips: bool = False,
    ) -> None:
        self.requests: list[PostedRequest] = []
        self.arrived = threading.Event()
        self._closed = threading.Event()
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = PostedRequest("POST", self.path, dict(self.headers), body)
                listener.requests.append(request)
                listener.arrived.set()
                if not answers:
                    listener._closed.wait()
                    return
                self.send_response(code)
                while drips and not listener._closed.wait(0.02):
                    self.send_header("X-More", "to come")
                    self.flush_headers()
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()

            def do_GET(self) -> None:
                listener.requests.append(PostedRequest("GET", self.path, {}, b""))
                self.send_error(404)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        # Whoever posted may not wait for the answer.
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{path}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
