"""Chromium without a window, driven through its DevTools protocol over a pipe."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tests.support.patience import PATIENCE

BROWSER: Final = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
)


KEYS: Final = {
    "enter": {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"},
    "down": {"key": "ArrowDown", "code": "ArrowDown", "windowsVirtualKeyCode": 40},
    "control-y": {"key": "y", "code": "KeyY", "windowsVirtualKeyCode": 89, "modifiers": 2},
}

Message = dict[str, Any]


class Chromium:
    """A browser with a profile of its own, which loads no page by itself."""

    def __init__(self, profile: Path, *options: str) -> None:
        assert BROWSER is not None
        ours_read, theirs_write = os.pipe()
        theirs_read, ours_write = os.pipe()
        self._read, self._write = ours_read, ours_write

        def connect() -> None:
            # The descriptors of --remote-debugging-pipe; first moved out of each other's way.
            read, write = os.dup2(theirs_read, 61), os.dup2(theirs_write, 62)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self._process = subprocess.Popen(
            [
                *(BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
                *("--disable-background-networking", "--disable-component-update"),
                *("--disable-sync", "--disable-dev-shm-usage", "--disable-extensions"),
                *("--remote-debugging-pipe", f"--user-data-dir={profile}", *options),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=connect,
        )
        os.close(theirs_read)
        os.close(theirs_write)
        self._rest = b""
        self._sent = 0
        self._messages: list[Message] = []

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def call(self, method: str, session: str | None = None, **params: object) -> Message:
        """Call one command; return its result."""
        self._sent += 1
        number = self._sent
        message: Message = {"id": number, "method": method, "params": params}
        message |= {"sessionId": session} if session else {}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self.wait_for(lambda each: each.get("id") == number, f"the answer to {method}")
        assert "error" not in answer, answer["error"]
        result: Message = answer["result"]
        return result

    def wait_for(self, is_wanted: Callable[[Message], object], what: str) -> Message:
        """The first message of this kind, which is taken out of those that have come."""
        deadline = time.monotonic() + PATIENCE
        seen = 0
        while True:
            for number in range(seen, len(self._messages)):
                if is_wanted(self._messages[number]):
                    return self._messages.pop(number)
            seen = len(self._messages)
            assert self.take(deadline - time.monotonic()), f"{what} did not come"

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition that events change."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self.take(deadline - time.monotonic()), f"{what} did not come"

    def take(self, seconds: float) -> bool:
        """Receive messages within this time; False if there are none."""
        if not select.select([self._read], [], [], max(seconds, 0))[0]:
            return False
        data = os.read(self._read, 1 << 20)
        assert data, "the browser has ended"
        *whole, self._rest = (self._rest + data).split(b"\0")
        self._messages += map(json.loads, whole)
        return True

    def events(self, session: str) -> Iterator[Message]:
        """The events of a page that have come and were not waited for."""
        for message in self._messages:
            if message.get("sessionId") == session and "method" in message:
                yield message

    def open_page(self, url: str) -> Page:
        """A new tab with this URL."""
        target = self.call("Target.createTarget", url="about:blank")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = Page(self, target["targetId"], attached["sessionId"])
        for domain in ("Page", "Network", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.resize(1440, 900)
        page.call("Page.navigate", url=url)
        return page


class Page:
    """A tab."""

    def __init__(self, browser: Chromium, target: str, session: str) -> None:
        self._browser, self._target, self.session = browser, target, session

    def call(self, method: str, **params: object) -> Message:
        return self._browser.call(method, self.session, **params)

    def resize(self, width: int, height: int) -> None:
        """Set the size of the window, in pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def press(self, key: str) -> None:
        """Press and release a key: one of :data:`KEYS`, or a character."""
        event = KEYS.get(key, {"key": key, "text": key})
        self.call("Input.dispatchKeyEvent", type="keyDown", **event)
        released = {name: value for name, value in event.items() if name != "text"}
        self.call("Input.dispatchKeyEvent", type="keyUp", **released)

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression; of a promise, when it is resolved."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        deadline = time.monotonic() + PATIENCE
        while not self.evaluate(condition):
            assert time.monotonic() < deadline, f"{condition} did not become true"
            self._browser.take(0.05)

    def status(self, url: str) -> int:
        """The HTTP status of the answer to this URL."""
        answer = self._browser.wait_for(
            lambda each: (
                each.get("method") == "Network.responseReceived"
                and each["params"]["response"]["url"] == url
            ),
            f"the answer of {url}",
        )
        self.wait_for("document.readyState === 'complete'")
        status: int = answer["params"]["response"]["status"]
        return status

    def picture(self) -> bytes:
        """The tab as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def events(self, method: str) -> list[Message]:
        """The parameters of the events of this kind so far."""
        found = self._browser.events(self.session)
        return [each["params"] for each in found if each["method"] == method]

    def output(self) -> bytes:
        """The bytes that the server's programs have written to the terminals of this tab."""
        frames = [each["response"] for each in self.events("Network.webSocketFrameReceived")]
        return b"".join(
            base64.b64decode(frame["payloadData"]) for frame in frames if frame["opcode"] == 2
        )

    def sent(self) -> list[Message]:
        """The messages that this tab has sent to websockets."""
        return self.events("Network.webSocketFrameSent")

    def requested(self) -> list[str]:
        """The requested URLs, including those of websockets."""
        sent = [each["request"]["url"] for each in self.events("Network.requestWillBeSent")]
        return sent + [each["url"] for each in self.events("Network.webSocketCreated")]
