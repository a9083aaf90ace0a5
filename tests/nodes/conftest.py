"""What the tests of nodes share."""

from __future__ import annotations

import pytest

from tests.support.screen_view import Show, opened


@pytest.fixture
def show() -> Show:
    """Opens the application on a feed: ``async with show(feed, size=(80, 24)) as seen``."""
    return opened
