"""``export --to openmetrics --listen``: scrapes of a live ensemble, from this machine only."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST

from metlmon.cli.commands import export_openmetrics
from metlmon.cli.commands.export_openmetrics import LiveMetrics
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.tracking.metrics_server import MetricsServer
from metlmon.tracking.openmetrics import MetricSamples
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
)


class Answer:
    """The answer to one request."""

    def __init__(
        self,
        port: int,
        path: str = "/metrics",
        method: str = "GET",
        host: str | None = None,
        accept: str | None = None,
        address: str = "127.0.0.1",
    ) -> None:
        connection = HTTPConnection(address, port, timeout=30)
        headers = {"Accept": accept} if accept else {}
        headers |= {"Host": host} if host is not None else {}
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        self.status, self.headers = response.status, response.headers
        self.text = response.read().decode()
        connection.close()


@pytest.fixture(name="server")
def _server() -> Iterator[MetricsServer]:
    server = MetricsServer(0)
    server.samples = MetricSamples()
    server.samples.add("epochs_done", 7)
    server.start()
    yield server
    server.stop()


def test_content_type_is_negotiated(server: MetricsServer) -> None:
    types = {
        PROMETHEUS: CONTENT_TYPE_LATEST,
        "text/plain": CONTENT_TYPE_PLAIN_0_0_4,
        None: CONTENT_TYPE_PLAIN_0_0_4,
    }
    for accepted, kind in types.items():
        answer = Answer(server.port, accept=accepted)
        assert answer.status == 200
        assert "metlmon_epochs_done 7.0\n" in answer.text
        assert answer.text.endswith("# EOF\n") is (kind == CONTENT_TYPE_LATEST)
        assert answer.headers["Content-Type"].startswith(kind)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    page = Answer(server.port, "/")
    assert 'href="/metrics"' in page.text
    assert Answer(server.port, "/other").status == 404
    for method in ("HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
        answer = Answer(server.port, method=method)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET")


def test_other_host_headers_are_refused(server: MetricsServer) -> None:
    port = server.port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}"):
        assert Answer(port, host=host).status == 200
    wrong = (
        f"evil.example:{port}",
        "127.0.0.1",
        f"127.0.0.1:{port + 1}",
        f"127.0.0.1.x:{port}",
        "",
    )
    for host in wrong:
        answer = Answer(port, host=host)
        assert (answer.status, "epochs" in answer.text) == (403, False), host
    # No Host header, and two of them.
    for headers in ("", f"Host: localhost:{port}\r\nHost: evil.example\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as raw:
            raw.sendall(f"GET /metrics HTTP/1.1\r\n{headers}\r\n".encode())
            assert raw.recv(100).startswith(b"HTTP/1.0 403")


def test_server_listens_on_loopback_only(server: MetricsServer) -> None:
    with pytest.raises(ConnectionRefusedError):
        # Another address of this machine, which 0.0.0.0 would include.
        socket.create_connection(("127.0.0.2", server.port), timeout=30)
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    assert Answer(server.port, address="::1", host=f"[::1]:{server.port}").status == 200


def test_occupied_port_is_refused(server: MetricsServer) -> None:
    with pytest.raises(InputError, match=f"--listen {server.port}: .*; choose another port"):
        MetricsServer(server.port)


def scrape_until(port: int, line: str) -> str:
    """Scrape until the answer has this line; returns the answer."""
    deadline = time.monotonic() + 60
    while line not in (text := Answer(port).text):
        assert time.monotonic() < deadline, text
    return text


def test_scrape_follows_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_openmetrics, "UPDATE_SECONDS", 0.0)
    dagdir = Dagdir(tmp_path / "ensemble")
    log = Log().submit(77, NODE)
    dagdir.write("metl.log", log.data)
    reader = DagdirReader(dagdir.path, live=True)
    reader.open()
    metrics = LiveMetrics(reader, 0)
    metrics.start()
    try:
        port = metrics.server.port
        scrape_until(port, 'metlmon_jobs{state="idle"} 1.0')
        dagdir.append("metl.log", Log().execute(77).data)
        scrape_until(port, 'metlmon_jobs{state="running"} 1.0')
        assert "metlmon_last_event_timestamp_seconds" in Answer(port).text
        dagdir.path.rename(tmp_path / "away")
        scrape_until(port, "metlmon_read_errors 1.0")
        assert 'metlmon_jobs{state="running"} 1.0' in Answer(port).text
    finally:
        metrics.stop()


def test_command_serves_until_interrupted() -> None:
    words = ["export", str(ROOT / "fixtures" / "demo"), "--to", "openmetrics", "--listen", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "metlmon", *words], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    try:
        line = process.stderr.readline()
        address = re.search(r"http://127\.0\.0\.1:(\d+)/metrics", line)
        assert address, line
        port = int(address[1])
        while (answer := Answer(port, accept=PROMETHEUS)).status == 503:
            pass
        families = list(openmetrics_parser.text_string_to_metric_families(answer.text))
        assert len(families) > 40
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
