"""What tests of the cache share."""

from __future__ import annotations

from pathlib import Path

import pytest

from metlmon.live import keeping, kept
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
    monkeypatch.setattr(keeping, "WORTH_KEEPING", 1)
    monkeypatch.setattr(keeping, "SHARE_WORTH_KEEPING", 0.0)
    # Tests run while somebody edits the code.
    monkeypatch.setattr(kept, "code", lambda: "this code")
