"""The process that reads for Home: from start to end, and when it dies."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from metlmon.home import feed as feed_module
from metlmon.home.feed import HomeFeed
from metlmon.home.summary import Phase
from tests.support.recordings import FIXTURES


class Watched:
    """A feed, and a way to wait for its summaries."""

    def __init__(self, feed: HomeFeed) -> None:
        self.feed = feed
        self.changed = threading.Condition()

    def notify(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def until(self, met: Callable[[HomeFeed], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: met(self.feed), 60), self.feed.summaries

    def until_read(self, *names: str) -> None:
        self.until(
            lambda feed: (
                {Path(each.path).name for each in feed.summaries if each.phase is Phase.READ}
                == set(names)
            )
        )


@contextmanager
def started(*paths: Path) -> Iterator[Watched]:
    watched = Watched(HomeFeed(map(str, paths)))
    watched.feed.start(watched.notify)
    try:
        yield watched
    finally:
        watched.feed.stop()


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_process_reads_ensembles_and_takes_new_paths(tmp_path: Path) -> None:
    for name in ("rescue", "holds"):
        shutil.copytree(FIXTURES / name, tmp_path / "all" / name)
    with started(tmp_path / "all" / "rescue") as watched:
        watched.until_read("rescue")
        watched.feed.set_paths([str(tmp_path / "all")])
        watched.until_read("rescue", "holds")
        process = watched.feed._process
    assert process.returncode == 0
    with started(tmp_path / "all" / "holds") as watched:
        watched.until_read("holds")


def test_dead_process_is_restarted_with_the_same_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "RESTART_SECONDS", 0.0)
    errors: list[str | None] = []
    with started(FIXTURES / "rescue") as watched:
        watched.until_read("rescue")
        first = watched.feed._process
        assert first is not None
        watched.feed._by_path.clear()
        watched.feed.summaries = ()
        notify = watched.notify

        def record() -> None:
            errors.append(watched.feed.error)
            notify()

        watched.notify = record  # type: ignore[method-assign]
        first.kill()
        watched.until_read("rescue")
        assert watched.feed._process is not first
        assert watched.feed.error is None


def test_closed_feed_leaves_no_process() -> None:
    with started(FIXTURES / "rescue") as watched:
        pass
    process = watched.feed._process
    assert process is None or process.returncode is not None
