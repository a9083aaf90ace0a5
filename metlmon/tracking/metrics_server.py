"""HTTP for Prometheus: the newest figures of an ensemble, on the loopback interface only.

A scrape is answered with the values that were computed last, even while a file system hangs, by
the handler of ``prometheus_client``. That handler answers everybody; here, requests whose Host
header names another machine are refused (:mod:`metlmon.loopback`).
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Final

from prometheus_client import CollectorRegistry, MetricsHandler

from metlmon.loopback import host_headers, listen
from metlmon.tracking.openmetrics import MetricSamples

REQUEST_SECONDS: Final = 10.0
"""Time after which a client that sends or reads nothing is dropped."""

PAGE: Final = """\
<!doctype html><html lang="en"><meta charset="utf-8"><title>metlmon</title>
<p>Figures of an ensemble, by metlmon: <a href="/metrics">/metrics</a></p></html>
"""


class MetricsServer:
    """Answers ``GET /metrics`` on 127.0.0.1, and on ::1 if the machine has it.

    ``samples``: the answer, set from any thread; while it is None, before the first one or if none
    could be computed, the status is 503, with ``reason``. Raises InputError if the port is taken.
    """

    def __init__(self, port: int) -> None:
        self.samples: MetricSamples | None = None
        self.reason = "reading"
        sockets = listen(port, "--listen")
        self.port: int = sockets[0].getsockname()[1]
        self.hosts = host_headers(self.port)
        self._servers = [_LoopbackServer(self, each) for each in sockets]

    def start(self) -> None:
        """Answer requests, in separate threads."""
        for server in self._servers:
            threading.Thread(
                target=server.serve_forever, name="metlmon-metrics", daemon=True
            ).start()

    def stop(self) -> None:
        """Stop answering, after :meth:`start`."""
        for server in self._servers:
            server.shutdown()
            server.server_close()


class _LoopbackServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, metrics: MetricsServer, listening: socket.socket) -> None:
        # HTTPServer's own binding asks the name server for the name of this machine.
        super().__init__(listening.getsockname(), _MetricsHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.metrics = metrics


class _MetricsHandler(MetricsHandler):
    server: _LoopbackServer
    timeout = REQUEST_SECONDS
    server_version = "metlmon"
    sys_version = ""

    def do_GET(self) -> None:
        metrics = self.server.metrics
        hosts = self.headers.get_all("Host", [])
        path = self.path.partition("?")[0]
        if len(hosts) != 1 or hosts[0].strip().lower() not in metrics.hosts:
            self._answer(HTTPStatus.FORBIDDEN, "the Host header names another machine\n")
        elif path == "/":
            self._answer(HTTPStatus.OK, PAGE, "text/html; charset=utf-8")
        elif path != "/metrics":
            self._answer(HTTPStatus.NOT_FOUND, "there is /metrics\n")
        elif (samples := metrics.samples) is None:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{metrics.reason}\n")
        else:
            self.registry = CollectorRegistry(auto_describe=True)
            self.registry.register(samples)
            # The client may have gone.
            with suppress(OSError):
                super().do_GET()

    def refuse_method(self) -> None:
        """Answer a request with a method other than GET."""
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, "only GET\n")

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = refuse_method
    do_OPTIONS = do_TRACE = do_CONNECT = refuse_method

    def _answer(
        self, status: HTTPStatus, body: str, kind: str = "text/plain; charset=utf-8"
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        self.end_headers()
        if self.command != "HEAD":
            with suppress(OSError):
                self.wfile.write(body.encode())

    def end_headers(self) -> None:
        """End the headers of any answer."""
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()
