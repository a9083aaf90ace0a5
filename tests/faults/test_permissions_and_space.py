"""Files that may not be read for a while, and full disks: of the logs, and of the cache."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from metlmon.config.user_state import read_state, write_state
from tests.support.recordings import FIXTURES, again, copied, opened, report_of

NOBODY = 65534


@contextmanager
def nobody() -> Iterator[None]:
    """Drop the rights of root, which override permissions."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture(name="small_disk")
def _small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    library = ctypes.CDLL(None, use_errno=True)
    if library.mount(b"none", os.fsencode(place), b"tmpfs", 0, b"size=64k"):
        pytest.skip(f"nothing can be mounted here: {os.strerror(ctypes.get_errno())}")
    yield place
    library.umount2(os.fsencode(place), 2)


@pytest.mark.parametrize("name", ["metl.log", "ens.dag.dagman.out", "ens.dag.nodes.log", ""])
def test_permission_is_withdrawn_and_restored(open_to_all: Path, name: str) -> None:
    dagdir = copied("rescue", open_to_all / "dagdir")
    path = dagdir / name
    mode = stat.S_IMODE(path.stat().st_mode) | 0o055
    path.chmod(mode)
    reader = opened(dagdir)
    before = report_of(reader)
    path.chmod(0)
    if name:
        # It has grown as well, so there is something to read.
        os.utime(path)
    with nobody():
        again(reader)
    assert reader.error is not None
    assert "Permission denied" in reader.error
    assert "since " in reader.error
    path.chmod(mode)
    with nobody():
        assert again(reader) == before
    assert reader.error is None


def test_log_continues_after_a_full_disk_cut_an_event(small_disk: Path) -> None:
    for name in ("ens.dag", "train.sub"):
        with suppress(FileNotFoundError):
            shutil.copy(FIXTURES / "rescue" / name, small_disk / name)
    ballast = small_disk / "ballast"
    content = (FIXTURES / "rescue" / "metl.log").read_bytes()
    path = small_disk / "metl.log"
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    ballast.write_bytes(bytes(32 << 10))
    written = 0
    try:
        while True:
            written += os.write(log, content[written : written + 1000])
    except OSError as full:
        assert full.errno == errno.ENOSPC  # noqa: PT017
    reader = opened(small_disk)
    half = report_of(reader)
    assert half["warnings"]
    ballast.unlink()
    # The rest of that event is lost; the next one is whole.
    following = content.index(b"\n...\n", written) + 5
    os.write(log, content[following:][: 16 << 10])
    os.close(log)
    after = again(reader)
    assert after == report_of(opened(small_disk))
    assert after["logs"][0]["events"] > half["logs"][0]["events"]


def test_users_file_on_a_full_disk_is_unchanged(small_disk: Path) -> None:
    path = small_disk / "cache" / "home.json"
    assert write_state(path, "small")
    assert not write_state(path, "x" * 200_000)
    assert read_state(path, str) == "small"
    assert [each.name for each in path.parent.iterdir()] == ["home.json"]
