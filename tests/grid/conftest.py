"""The tests of these two screens use what the other screens' tests look with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

EYES = str(Path(__file__).resolve().parents[1] / "screens")
if EYES not in sys.path:
    sys.path.append(EYES)

from tests.support.screen_view import Show, opened  # noqa: E402


@pytest.fixture
def show() -> Show:
    """Opens the application on a feed: ``async with show(feed, size=(80, 24)) as seen``."""

    return opened
