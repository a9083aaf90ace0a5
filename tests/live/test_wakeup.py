"""Notice of a change: at once on Linux, by watchfiles elsewhere, and never after the end."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from metlmon.live.session import DirectoryWatcher
from tests.support.patience import PATIENCE


@contextmanager
def woken(folder: Path) -> Iterator[threading.Event]:
    """Set whenever something in ``folder`` changed."""
    result, wakeup = threading.Event(), DirectoryWatcher()
    thread = threading.Thread(target=wakeup.run, args=([folder], result.set))
    thread.start()
    try:
        yield result
    finally:
        wakeup.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def until_set(report_of: threading.Event, log: Path) -> bool:
    """Whether a change is noticed: the first may come before anybody listens."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with log.open("ab") as file:
            file.write(b"...\n")
        if report_of.wait(0.2):
            return True
    return False


@pytest.mark.parametrize("kernel", [True, False])
def test_what_is_appended_wakes(
    tmp_path: Path, kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernel:
        monkeypatch.delattr(ctypes, "CDLL")
    with woken(tmp_path) as result:
        assert until_set(result, tmp_path / "metl.log")


def test_what_lies_deeper_does_not(tmp_path: Path) -> None:
    """Jobs write their output there, all the time."""
    deeper = tmp_path / "output"
    deeper.mkdir()
    with woken(tmp_path) as result:
        assert until_set(result, tmp_path / "metl.log")
        while result.wait(0.1):
            result.clear()
        (deeper / "0.out").write_bytes(b"epoch 1")
        assert not result.wait(0.1)


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    """Nobody can tell of it: looking every second is left."""
    with woken(tmp_path / "gone") as result:
        assert not result.wait(0.1)


def test_the_end_before_the_beginning(tmp_path: Path) -> None:
    wakeup = DirectoryWatcher()
    wakeup.stop()
    wakeup.stop()
    wakeup.run([tmp_path], lambda: pytest.fail("there was no change"))
