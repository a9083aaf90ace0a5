"""A cache that others use, or spoil: a session that is killed while it writes, links that somebody
planted, a dagdir whose name is as long as names can be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from metlmon.live import cache_session
from metlmon.live.cache import Cache
from metlmon.live.dagdir_reader import DagdirReader
from tests.faults.recorded import copied, opened, told

KILLED = """
import os, signal, sys
from pathlib import Path
from metlmon.live import cache_records, cache_session
from metlmon.live.cache import Cache
from metlmon.live.dagdir_reader import DagdirReader

cache_session.WORTH_KEEPING, cache_session.SHARE_WORTH_KEEPING = 0, 0.0
left = int(sys.argv[3])

dumps = cache_records.pickle.dumps
def dump(*what, **how):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return dumps(*what, **how)
cache_records.pickle.dumps = dump
reader = DagdirReader(Path(sys.argv[1]), live=False, cache=Cache(Path(sys.argv[2])))
reader.open()
reader.read_all()
"""
"""A session that is killed before its n-th record is written."""


@pytest.fixture(autouse=True)
def _kept_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_session, "WORTH_KEEPING", 0)
    monkeypatch.setattr(cache_session, "SHARE_WORTH_KEEPING", 0.0)


def read(dagdir: Path, cache: Path) -> DagdirReader:
    reader = DagdirReader(dagdir, live=False, cache=Cache(cache))
    reader.open()
    reader.read_all()
    return reader


@pytest.mark.parametrize("records", [0, 1, 3, 6])
@pytest.mark.parametrize("there", [True, False])
def test_one_of_two_is_killed_while_it_writes(tmp_path: Path, records: int, there: bool) -> None:
    dagdir, cache = copied("rescue", tmp_path / "dagdir"), tmp_path / "cache"
    other = read(dagdir, cache) if there else None
    with open(dagdir / "metl.log", "ab") as file:
        file.write(b"000 (9999.000.000) 2026-11-21 10:00:00 Job submitted from host: <x>\n...\n")
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(dagdir), str(cache), str(records)]
    ) as made:
        assert made.wait(60) == -signal.SIGKILL
    whole = told(opened(dagdir))
    assert told(read(dagdir, cache)) == whole
    if other is not None:
        other.check()
        other.read_all()
        assert told(other) == whole
    assert told(read(dagdir, cache)) == whole


@pytest.mark.parametrize("to", ["precious", "/dev/zero", "nowhere"])
def test_links_that_somebody_planted_are_not_followed(tmp_path: Path, to: str) -> None:
    dagdir, cache = copied("rescue", tmp_path / "dagdir"), tmp_path / "cache"
    read(dagdir, cache)
    precious = tmp_path / "precious"
    precious.write_text("stays")
    for entry in list(cache.iterdir()):
        entry.unlink()
        entry.symlink_to(tmp_path / to)
    whole = told(opened(dagdir))
    assert told(read(dagdir, cache)) == whole
    assert precious.read_text() == "stays"
    assert not (tmp_path / "nowhere").exists()
    assert all(not each.is_symlink() for each in cache.iterdir())
    assert told(read(dagdir, cache)) == whole


def test_a_name_as_long_as_names_can_be(tmp_path: Path) -> None:
    deep = tmp_path
    while len(str(deep)) < 3700:
        deep = deep / ("d" * min(200, 3700 - len(str(deep))))
    os.makedirs(deep)
    dagdir = copied("rescue", deep / "dagdir")
    plain = told(opened(copied("rescue", tmp_path / "dagdir")))
    got = told(read(dagdir, tmp_path / "cache"))
    again = told(read(dagdir, tmp_path / "cache"))
    assert got["runs"] == again["runs"] == plain["runs"]
    assert got["jobs"] == again["jobs"] == plain["jobs"]
