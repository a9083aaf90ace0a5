"""What the tests of the screens share."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import pytest
from ensemble_pictures import FakeFeed, update
from eyes import MIDDLE, Seen, Show, opened

from screens.app import AppOptions


@pytest.fixture
def show() -> Show:
    """Opens the application on a feed: ``async with show(size=(80, 24)) as seen``."""

    def shown(
        feed: FakeFeed | None = None,
        size: tuple[int, int] = MIDDLE,
        options: AppOptions | None = None,
    ) -> AbstractAsyncContextManager[Seen]:
        return opened(feed or FakeFeed(update()), size, options)

    return shown
