"""The tracking server of these tests, and a proxy in front of it that can fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.faulty_tracker import FaultyTracker
from tests.support.tracking_server import TrackingServer, started_server


@pytest.fixture(name="tracking_server", scope="session")
def _tracking_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackingServer]:
    """The one server of all tests in the xdist group ``tracking``."""
    with started_server(tmp_path_factory.mktemp("mlflow")) as server:
        yield server


@pytest.fixture(name="tracker")
def _tracker(tracking_server: TrackingServer) -> Iterator[FaultyTracker]:
    """A proxy in front of the server, whose answers can be chosen."""
    with FaultyTracker(tracking_server.url) as tracker:
        yield tracker
