"""``metlmon serve`` in Chromium: driven by keys, and refused to others."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
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
    """The terminal of a page, from the bytes that it received."""

    def __init__(self, browser: Chromium, page: Page) -> None:
        self._browser, self._page = browser, page

    def size(self) -> tuple[int, int]:
        """The last reported columns and lines of the page."""
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


def test_keys_open_the_run_screen_without_other_hosts(browser: Chromium) -> None:
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

        # It follows the size of the window.
        page.resize(1000, 600)
        browser.wait_until(lambda: screen.size()[0] < columns, "a smaller terminal")

        # q ends it; the page shows that, and starts it again.
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
