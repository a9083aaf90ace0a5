"""What tests of the cache share."""

from __future__ import annotations

from pathlib import Path

import pytest

from metlmon.live import cache_entry, cache_session
from metlmon.live.cache import Cache
from tests.live.dagdirs import Dagdir


@pytest.fixture(name="cache")
def _cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Dagdir:
    return Dagdir(tmp_path / "ensemble")


@pytest.fixture
def all_is_worth_keeping(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little was read."""
    monkeypatch.setattr(cache_session, "WORTH_KEEPING", 1)
    monkeypatch.setattr(cache_session, "SHARE_WORTH_KEEPING", 0.0)
    # Tests run while somebody edits the code.
    monkeypatch.setattr(cache_entry, "code", lambda: "this code")
