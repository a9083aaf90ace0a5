"""What tests of the cache share."""

from __future__ import annotations

from pathlib import Path

import pytest

from metlmon.live.cache import Cache
from tests.support.dagdir_builder import Dagdir


@pytest.fixture(name="cache")
def _cache(tmp_path: Path) -> Cache:
    """A cache of logs of any size."""
    return Cache(tmp_path / "cache", min_log_bytes=1)


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Dagdir:
    return Dagdir(tmp_path / "ensemble")
