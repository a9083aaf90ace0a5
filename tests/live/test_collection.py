"""Garbage is collected while a dashboard stays open."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from metlmon.live.fs_timeout import FsExecutor, calls_through

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "gated"


def test_an_error_of_the_file_system_holds_no_frame(tmp_path: Path) -> None:
    asker = FsExecutor(lambda: None)
    missing = tmp_path / "missing"
    with calls_through(asker), asker.prefetched():
        for _ in range(2):
            with pytest.raises(FileNotFoundError):
                asker.call(Path.stat, missing)
    gc.collect()
    held = [each for each in gc.get_objects() if isinstance(each, FileNotFoundError)]
    assert not [each for each in held if each.filename == str(missing) and each.__traceback__]
