"""The hostile dagdir, written once, and the program run on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hostile.corpus import A_KEY, NAMES
from tests.hostile.dagdir import Dagdir, write
from tests.hostile.keyed_files import write_keyed_files
from tests.support.command_server import ROOT, Ran, read_before, run_program
from tests.support.terminal import terminal_environment


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Dagdir:
    """A dagdir with every attack in every field, and secrets that only their places reveal."""
    dagdir = write(tmp_path_factory.mktemp("hostile"))
    write_keyed_files(dagdir.path)
    read_before(dagdir.path)
    return dagdir


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Dagdir:
    """A dagdir with three of the attacks, which is read faster."""
    dagdir = write(tmp_path_factory.mktemp("small"), (0, 1, NAMES.index("secret")))
    read_before(dagdir.path)
    return dagdir


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment without a pool and without settings of the user."""
    own = {
        f"XDG_{name}_HOME": str(tmp_path / "home" / name)
        for name in ("CONFIG", "CACHE", "DATA", "STATE")
    }
    return terminal_environment(
        **own, CONDOR_CONFIG=str(tmp_path / "no-pool"), COLUMNS=None, PYTHONPATH=str(ROOT)
    )


@pytest.fixture
def metlmon(environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Ran]]:
    """Run the program in an empty directory; the files it keeps must have no secret."""

    def run(*arguments: str | bytes | Path) -> Ran:
        return run_program(arguments, tmp_path, environment)

    yield run
    for path in (tmp_path / "home").rglob("*"):
        assert path.is_dir() or not A_KEY.search(path.read_bytes().decode("latin-1"))
