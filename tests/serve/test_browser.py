"""``metlmon serve`` in Chromium: driven by keys, and refused to whom it is not for."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pyte
import pytest

from tests.support.chromium import BROWSER, PATIENCE, Chromium, Page
from tests.support.served_dashboard import DEMO, REQUIRED, needed_module, served
from tests.support.terminal import FillingScreen

needed_module("metlmon.serve.server")


@pytest.fixture(name="browser")
def _browser(tmp_path: Path) -> Iterator[Chromium]:
    if BROWSER is None:
        if os.environ.get(REQUIRED):
            pytest.fail("Chromium is required here", pytrace=False)
        pytest.skip("no Chromium here")
    # Another name of this machine.
    with Chromium(
        tmp_path / "profile", "--host-resolver-rules=MAP evil.example 127.0.0.1"
    ) as browser:
        yield browser


class Screen:
    """What the terminal of a page shows, by what it has received."""

    def __init__(self, browser: Chromium, page: Page) -> None:
        self._browser, self._page = browser, page

    def size(self) -> tuple[int, int]:
        """The columns and lines that the page has reported last."""
        sent = [each["response"]["payloadData"] for each in self._page.sent()]
        sizes = [json.loads(each)[1] for each in sent if each.startswith('["resize"')]
        return sizes[-1]["width"], sizes[-1]["height"]

    def text(self) -> str:
        screen = FillingScreen(*self.size())
        pyte.ByteStream(screen).feed(self._page.output())
        return "\n".join(line.rstrip() for line in screen.display)

    def wait_for(self, text: str) -> str:
        deadline = time.monotonic() + PATIENCE
        while not (self._page.sent() and text in self.text()):
            in_time = self._browser.take(deadline - time.monotonic())
            assert in_time, f"{text!r} was not shown:\n{self.text()}"
        return self.text()


def test_keys_lead_to_the_run_screen_and_no_other_host_is_asked(browser: Chromium) -> None:
    with served("--as-of", "2026-11-21T09:45", DEMO) as program:
        origin = program.url.partition("/?")[0]
        page = browser.open_page(program.url)
        screen = Screen(browser, page)
        overview = screen.wait_for("run5")
        assert "read-only" in overview
        assert page.evaluate("document.title") == "demo"
        page.press("down")
        page.press("enter")
        run = screen.wait_for("run1   3a665d89   ▶ running epoch 4")
        assert "3 of 6 epochs" in run
        assert re.search("4  ▶ running .*Expanse-GPU", run)
        columns, _ = screen.size()
        assert max(map(len, run.splitlines())) == columns

        # Of its size when the window changes.
        page.resize(1000, 600)
        browser.wait_until(lambda: screen.size()[0] < columns, "a smaller terminal")

        # q ends it; the page says so, and starts it again.
        page.press("q")
        page.press("q")
        page.wait_for("document.body?.classList.contains('-closed')")
        notice = "getComputedStyle(document.querySelector('.closed')).display"
        assert page.evaluate(notice) == "flex"
        opened = len(page.events("Network.webSocketCreated"))
        page.press("enter")
        browser.wait_until(
            lambda: len(page.events("Network.webSocketCreated")) > opened, "the dashboard again"
        )
        page.wait_for("document.body?.classList.contains('-first-byte')")

        asked = [url for url in page.requested() if not url.startswith("data:")]
        assert len(asked) > 5
        assert {urlsplit(url).netloc for url in asked} == {urlsplit(origin).netloc}
        problems = [each["entry"]["text"] for each in page.events("Log.entryAdded")]
        assert not [each for each in problems if "Content Security Policy" in each]
        assert not page.events("Runtime.exceptionThrown")


ATTACK = """
const [page, token] = [{page!r}, {token!r}];
const results = {{}};
const websocket = url => new Promise(done => {{
  const socket = new WebSocket(url);
  socket.onopen = () => done("open");
  socket.onerror = () => done("refused");
}});
const script = url => new Promise(done => {{
  const element = document.createElement("script");
  element.src = url;
  element.onload = () => done("loaded");
  element.onerror = () => done("refused");
  document.head.append(element);
}});
(async () => {{
  results.fetch = await fetch(page).then(a => a.text(), () => "refused");
  results.opaque = await fetch(page, {{mode: "no-cors"}}).then(a => a.type, () => "refused");
  results.websocket = await websocket(page.split("/?")[0].replace("http", "ws") + "/ws/" + token);
  results.script = await script(page.replace("/?", "/static/js/textual.js?"));
  const frame = document.createElement("iframe");
  frame.src = page;
  document.body.append(frame);
  await new Promise(done => {{ frame.onload = done; }});
  try {{ results.frame = frame.contentDocument ? "readable" : "closed"; }}
  catch (error) {{ results.frame = "closed"; }}
  return results;
}})()
"""


def test_a_page_of_another_origin_is_refused(browser: Chromium) -> None:
    """Even one that knows the token: on another port, or by another name, of this machine."""
    with served(DEMO) as program, other_site() as port:
        token = program.url.partition("=")[2]
        for host in ("127.0.0.1", "evil.example"):
            page = browser.open_page(f"http://{host}:{port}/")
            page.wait_for("document.readyState === 'complete'")
            results = page.evaluate(ATTACK.format(page=program.url, token=token))
            assert results["fetch"] == "refused"
            assert results["opaque"] in ("refused", "opaque")
            assert results["websocket"] == "refused"
            assert results["script"] == "refused"
            assert results["frame"] == "closed"
            answered = [each["response"] for each in page.events("Network.responseReceived")]
            ours = [each for each in answered if each["url"].startswith(program.url[:20])]
            assert not program.programs()
            handshakes = page.events("Network.webSocketHandshakeResponseReceived")
            assert [each["response"]["status"] for each in handshakes] in ([], [403])
            assert all(each["mimeType"] != "text/javascript" for each in ours)


class _OtherPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<!doctype html><title>another site</title><body></body>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def other_site() -> Iterator[int]:
    """Another web site on this machine; its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _OtherPage)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
