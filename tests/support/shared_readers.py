"""Dagdirs that several commands of one process read only once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from metlmon.cli import reading
from metlmon.config.loader import load_settings
from metlmon.live.dagdir_reader import DagdirReader
from tests.support.recordings import FIXTURES


def is_fixture(path: Path) -> bool:
    return path.is_relative_to(FIXTURES)


@contextmanager
def shared_readers(is_shared: Callable[[Path], bool] = is_fixture) -> Iterator[None]:
    """Within the context, a command uses the reader of an earlier one on such a dagdir."""
    read_all = reading._read_all
    readers: dict[tuple[object, ...], DagdirReader] = {}

    def share(reader: DagdirReader) -> DagdirReader:
        key = reader.path_given, reader.as_of, reader._forced_live
        if not is_shared(Path(reader.path_given)):
            return read_all(reader)
        if key not in readers:
            readers[key] = read_all(reader)
        return readers[key]

    reading._read_all = share
    try:
        yield
    finally:
        reading._read_all = read_all


def read_shared(dagdir: Path) -> None:
    """Read ``dagdir`` for all later commands without options for reading."""
    reading._read_all(DagdirReader(dagdir, load_settings(dagdir)))
