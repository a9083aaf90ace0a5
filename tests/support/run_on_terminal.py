"""Run the application on this process's terminal: ``python run_on_terminal.py WHAT``.

WHAT: ``plain``, ``hostile`` (texts of the schedd), ``broken`` (a screen raises), ``worker`` (a
worker raises), ``hopeless`` (before the first screen), ``stuck`` (little patience with a signal).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from metlmon.pool.client import FeedAndPool  # noqa: E402
from screens import app as application  # noqa: E402
from screens.app import AppOptions, run_app  # noqa: E402
from screens.overview import OverviewScreen  # noqa: E402
from tests.support.fake_pool import FakePool, HostileFeed, HostilePool  # noqa: E402
from tests.support.sample_snapshots import FakeFeed, update  # noqa: E402


def main(what: str) -> int:
    feed = HostileFeed(update()) if what == "hostile" else FakeFeed(update())
    pool = HostilePool() if what == "hostile" else FakePool()

    def fail(*_: object) -> None:
        raise RuntimeError("something broke [/not-markup]")

    if what == "broken":
        OverviewScreen.action_sort = fail  # type: ignore[method-assign, assignment]
    if what == "worker":
        OverviewScreen.action_sort = lambda self: self.run_worker(fail, thread=True)  # type: ignore[method-assign, assignment, misc, return-value]
    if what == "hopeless":
        application.MetlmonApp.on_mount = fail  # type: ignore[method-assign]
    if what == "stuck":
        application.EXIT_TIMEOUT_SECONDS = 0.3  # type: ignore[misc]
    code = run_app(FeedAndPool(feed, pool), AppOptions())
    assert feed.stopped
    assert pool.closed
    return code


if __name__ == "__main__":
    # The interpreter would flush standard output, even into a closed terminal.
    os._exit(main(sys.argv[1]))
