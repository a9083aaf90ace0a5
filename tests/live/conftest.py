"""Fixtures of the tests of following files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.dagdir_builder import Dagdir


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Dagdir:
    return Dagdir(tmp_path / "ensemble")
