"""What the tests of nodes share: the screens' own eyes, by the names they have there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

EYES = str(Path(__file__).resolve().parents[1] / "screens")
"""Where the tests of screens keep what they share."""

if EYES not in sys.path:
    sys.path.append(EYES)

from tests.support.screen_view import Show, opened  # noqa: E402


@pytest.fixture
def show() -> Show:
    """Opens the application on a feed: ``async with show(feed, size=(80, 24)) as seen``."""

    return opened
