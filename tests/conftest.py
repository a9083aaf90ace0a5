"""Fixtures and ordering of all tests."""

from __future__ import annotations

import gc
import os
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.support.fake_pool import FakePool

# A busy machine is not a failure: no test depends on the duration of an example.
settings.register_profile("metlmon", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("metlmon")

# Scanning the objects that live as long as the tests would take a third of their time.
gc.set_threshold(50_000, 20, 100)

# With it the programs of tests would write unbuffered.
os.environ.pop("PYTHONUNBUFFERED", None)

HERE = Path(__file__).resolve().parent

SHARED = Path(__file__).resolve().parents[2] / "shared"
"""Real recordings and HTCondor's own files, beside the checkout; nothing of them is copied in."""


SLOW = ("pool/", "fuzz/", "test_wheel.py")
"""Folders and files that need not run at every change: ``-m "not slow"`` leaves them out."""

OWN_POOLS = ("second_pool", "third_pool")
"""Fixtures of pools whose tests run one after the other."""

BEGIN_FIRST = [
    f"pool/test_{name}.py"
    for name in (
        *("gate_on_pool", "states_on_pool", "project_backend_on_pool", "trouble"),
        *("submit_pane_on_pool", "training"),
        *("ownership_on_pool", "annexes_on_pool"),
    )
]
"""Files of the first pool in their order: four that take minutes, two short ones, two long ones.

A process that has two tests left takes another file, which waits for these: a short one.
"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Distribute the tests among processes: those of one file together, as they share fixtures.

    Tests on a pool come first, many files at the same time, since they mostly wait. A module may
    set a group for itself, to share an expensive server with others.
    """
    places = {item: item.path.relative_to(HERE).as_posix() for item in items}
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(_own_pool(item) or places[item]))
        if places[item].startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: _order(item, places[item]))


def _order(item: pytest.Item, place: str) -> int:
    """Tests on a pool come first, then those of the one tracking server, in one process."""
    if place.startswith("pool/"):
        if _own_pool(item):
            return 0
        return 1 + BEGIN_FIRST.index(place) if place in BEGIN_FIRST else 90
    return 91 if "tracking_server" in getattr(item, "fixturenames", ()) else 92


def pytest_collection_finish() -> None:
    """Exclude modules and tests from garbage collection."""
    gc.collect()
    gc.freeze()
    # Reading a dagdir asks for the count, and counting a million objects takes 10 to 20 ms.
    gc.get_freeze_count = lambda: 1


def pytest_sessionfinish() -> None:
    """Leave no objects to the collections at the end of a process."""
    gc.freeze()


def _own_pool(item: pytest.Item) -> str | None:
    """The pool that a test has for itself, if any."""
    return next((each for each in OWN_POOLS if each in getattr(item, "fixturenames", ())), None)


Shared = Callable[[str], Path]
"""The type of the fixture ``shared``."""


def shared_path(path: str) -> Path:
    """``path`` below :data:`SHARED`; skips the test if it does not exist."""
    found = SHARED / path
    if not found.exists():
        pytest.skip(f"no {path} beside this checkout: the real recordings are not here")
    return found


@pytest.fixture(name="shared")
def _shared() -> Shared:
    """``shared("examples/…")``: a real file or directory, or a skip with the reason."""
    return shared_path


@pytest.fixture(name="user")
def _user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's settings file, which does not exist yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "metlmon").mkdir(parents=True)
    return tmp_path / "config" / "metlmon" / "metlmon.toml"


@pytest.fixture(name="pool")
def _pool(monkeypatch: pytest.MonkeyPatch) -> FakePool:
    """The pool to which commands submit."""
    from metlmon.pool import client
    from tests.support.fake_pool import FakePool

    pool = FakePool(submitted=77)
    monkeypatch.setattr(client, "PoolClient", lambda: pool)
    return pool


@pytest.fixture(name="own")
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A template, and an empty current directory."""
    from tests.support.sample_requests import nap

    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return nap(tmp_path / "own")


@pytest.fixture(name="open_to_all")
def _open_to_all() -> Iterator[Path]:
    """A directory that an ordinary user can enter."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="session", autouse=True)
def _no_files_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Isolate tests from the user's cache, settings and state."""
    with pytest.MonkeyPatch.context() as patched:
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            patched.setenv(name, str(tmp_path_factory.mktemp(name.split("_")[1].lower())))
        yield


_made_directories: defaultdict[str, Iterator[int]] = defaultdict(count)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Like pytest's, without a link to it and without listing earlier tests' directories."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    while True:
        path = tmp_path_factory.getbasetemp() / f"{name}{next(_made_directories[name])}"
        with suppress(FileExistsError):
            path.mkdir(0o700)
            return path
