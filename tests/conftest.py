"""What the tests of all packages share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no failure: nothing here depends on how long an example takes.
settings.register_profile("metlmon", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("metlmon")

HERE = Path(__file__).resolve().parent

SHARED = Path(__file__).resolve().parents[2] / "shared"
"""Real recordings and HTCondor's own files, beside the checkout; nothing of them is copied in."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Several processes may share the tests: those of one file stay together, for they share
    fixtures, and all that need the one real pool; these first, since they mostly wait."""
    places = {item: item.path.relative_to(HERE).parts for item in items}
    items.sort(key=lambda item: places[item][0] != "pool")
    for item in items:
        group = "pool" if places[item][0] == "pool" else "/".join(places[item])
        item.add_marker(pytest.mark.xdist_group(group))


def shared_path(path: str) -> Path:
    """``path`` below :data:`SHARED`; the test that asks is skipped where it is absent."""
    found = SHARED / path
    if not found.exists():
        pytest.skip(f"no {path} beside this checkout: the real recordings are not here")
    return found


@pytest.fixture(name="shared")
def _shared() -> Callable[[str], Path]:
    """``shared("examples/…")``: a real file or directory, or a skip with the reason."""
    return shared_path


@pytest.fixture(scope="session", autouse=True)
def _no_files_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's cache and settings are neither read nor written."""
    with pytest.MonkeyPatch.context() as patched:
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
            patched.setenv(name, str(tmp_path_factory.mktemp(name.split("_")[1].lower())))
        yield
