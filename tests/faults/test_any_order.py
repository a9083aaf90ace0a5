"""Faults in any order, of any file, while a recording is written: once all files are whole, the
result is that of a fresh reader.

A case is its seed: its faults are the same each time, so that a failure can be reproduced.
"""

from __future__ import annotations

import errno
import os
import random
import re
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from metlmon.errors import InputError
from metlmon.live import dagdir_reader as reader_module
from metlmon.live import follower as follower_module
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.replay import ReplayPiece
from tests.support.recordings import FIXTURES, again, opened, report_of
from tests.support.replay_pieces import replay_pieces

RECORDINGS = ("rescue", "shared-log", "demo")
SEEDS = int(os.environ.get("METLMON_CHAOS", "2"))
"""Cases of each recording; by hand some hundreds are tried."""

LOOKS = 30
"""So many times somebody looks while a recording is written."""

GOES_WRONG = 0.35
IS_MENDED = 0.5

ENDINGS = (".dag", ".log", ".dagman.out", ".metrics", ".status", ".sub")
"""Of files that are read; what a job wrote is not."""


@cache
def pieces_of(recording: str) -> list[ReplayPiece]:
    return replay_pieces(FIXTURES / recording)


class Disk:
    """A dagdir that is written piece by piece, with faults. ``whole``: what each file would hold
    without faults."""

    def __init__(self, dagdir: Path, chance: random.Random) -> None:
        self.dagdir = dagdir
        self.away = dagdir.with_name("away")
        self.chance = chance
        self.whole: dict[str, bytes] = {}
        self.wrong: dict[str, str] = {}
        self.denied: set[str] = set()
        self._tick = dagdir.with_name("tick")
        dagdir.mkdir()

    def write(self, piece: ReplayPiece) -> None:
        self.whole[piece.file] = self.whole.get(piece.file, b"") + piece.data
        if piece.file in self.wrong or not self.dagdir.exists():
            # The file has it when it is mended.
            self.wrong.setdefault(piece.file, "not written")
            return
        path = self.dagdir / piece.file
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab") as file:
            file.write(piece.data)

    def read(self, name: str) -> bool:
        return name.endswith(ENDINGS) or ".rescue" in name

    def damage(self) -> str:
        sound = [n for n in self.whole if n not in self.wrong and self.read(n)]
        if not sound or not self.dagdir.exists():
            return ""
        name = self.chance.choice(sorted(sound))
        harm = self.chance.choice(HARMS)
        self.wrong[name] = harm.__name__
        harm(self, self.dagdir / name, self.whole[name])
        self.pass_a_tick()
        return f"{harm.__name__} {name}"

    def mend(self, name: str) -> str:
        """Restore a file, in one of the ways in which people do."""
        if not self.dagdir.exists():
            return ""
        del self.wrong[name]
        self.denied.discard(name)
        path, content = self.dagdir / name, self.whole[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        elif path.is_symlink() or path.is_fifo():
            path.unlink()
        how = self.chance.choice(["in place", "by rename", "anew"])
        if path.exists() and path.stat().st_size != len(content):
            # Same inode, longer, and unchanged up to the position of the reader: that is how a log
            # grows.
            how = "by rename"
        if how == "anew" and path.exists():
            path.unlink()
        if how == "by rename":
            beside = path.with_name(f".{path.name}.new")
            beside.write_bytes(content)
            os.replace(beside, path)
        elif path.exists():
            with open(path, "r+b") as file:
                file.write(content)
                file.truncate()
        else:
            path.write_bytes(content)
        self.pass_a_tick()
        return f"mended {name} {how}"

    def mend_all(self) -> None:
        if self.away.exists():
            self.away.rename(self.dagdir)
        for name in sorted(self.wrong):
            self.mend(name)

    def pass_a_tick(self) -> None:
        """Two changes within one tick of the file system's clock cannot be distinguished."""
        self._tick.touch()
        at = self._tick.stat().st_mtime_ns
        while self._tick.stat().st_mtime_ns == at:
            self._tick.touch()


# --- faults ---------------------------------------------------------------------------------


def truncated(disk: Disk, path: Path, content: bytes) -> None:
    os.truncate(path, disk.chance.randrange(len(content) + 1))


def renamed_over(disk: Disk, path: Path, content: bytes) -> None:
    """Another file that begins or looks alike."""
    at = disk.chance.randrange(len(content) + 1)
    # The times are not earlier: a log that was truncated and continues begins later.
    other = content[:at] + content[at:].replace(b"Bytes", b"bytes").replace(b"11/", b"12/")
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(other)
    os.replace(beside, path)


def another_time(disk: Disk, path: Path, content: bytes) -> None:
    """Times of another year and zone, in place."""
    with open(path, "r+b") as file:
        file.write(content.replace(b"2026", b"2027").replace(b"17951", b"18951"))


def another_zone(disk: Disk, path: Path, content: bytes) -> None:
    """Seconds since 1970 of a machine whose clock is two hours wrong."""

    def later(found: re.Match[bytes]) -> bytes:
        return str(int(found[0]) + 7200).encode()

    with open(path, "r+b") as file:
        file.write(re.sub(rb"\b179\d{7}\b", later, content))


def denied(disk: Disk, path: Path, content: bytes) -> None:
    disk.denied.add(path.name)
    os.utime(path)


def removed(disk: Disk, path: Path, content: bytes) -> None:
    path.unlink()


def zeros_behind(disk: Disk, path: Path, content: bytes) -> None:
    with open(path, "ab") as file:
        file.write(bytes(disk.chance.choice([1, 100, 5000])))


def zeros_within(disk: Disk, path: Path, content: bytes) -> None:
    at = disk.chance.randrange(len(content) + 1)
    with open(path, "r+b") as file:
        file.write(content[:at] + bytes(len(content) - at))


def nonsense_behind(disk: Disk, path: Path, content: bytes) -> None:
    with open(path, "ab") as file:
        file.write(b"005 (000.000.000) nothing of this kind\n\xff\xfe...\n")


def doubled(disk: Disk, path: Path, content: bytes) -> None:
    with open(path, "ab") as file:
        file.write(content)


def link_to_another(disk: Disk, path: Path, content: bytes) -> None:
    others = sorted(n for n in disk.whole if (disk.dagdir / n).is_file() and disk.read(n))
    other = disk.chance.choice(others)
    path.unlink()
    path.symlink_to(other if other != path.name else "nowhere")


def directory(disk: Disk, path: Path, content: bytes) -> None:
    path.unlink()
    path.mkdir()


def pipe(disk: Disk, path: Path, content: bytes) -> None:
    path.unlink()
    os.mkfifo(path)


HARMS: list[Callable[[Disk, Path, bytes], None]] = [
    truncated,
    renamed_over,
    another_time,
    another_zone,
    denied,
    removed,
    zeros_behind,
    zeros_within,
    nonsense_behind,
    doubled,
    link_to_another,
    directory,
    pipe,
]


# --- readers --------------------------------------------------------------------------------


class Sessions:
    """One session at a time: its looks, and what disturbs it."""

    def __init__(self, disk: Disk) -> None:
        self.disk, self.clock = disk, 0.0
        self.reader: DagdirReader | None = None
        self.history: list[str] = []

    def now(self) -> float:
        return time.time() + self.clock

    def look(self) -> None:
        if self.reader is None:
            if not list(self.disk.dagdir.glob("*")):
                return
            reader = DagdirReader(self.disk.dagdir, live=False, now=self.now)
            # An incomplete DAG file is refused at the beginning.
            with suppress(InputError):
                reader.open()
                reader.read_all()
                self.reader = reader
            return
        again(self.reader)

    def disturb(self) -> str:
        deed = self.disk.chance.choice([self.clock_step, self.begin_anew, self.rename])
        deed()
        return deed.__name__

    def clock_step(self) -> None:
        self.clock = self.disk.chance.choice([-7200.0, 0.0, 3600.0, 86400.0 * 40])

    def begin_anew(self) -> None:
        if self.disk.dagdir.exists():
            self.reader = None

    def rename(self) -> None:
        if self.reader is None:
            return
        if self.disk.away.exists():
            self.disk.away.rename(self.disk.dagdir)
        else:
            self.disk.dagdir.rename(self.disk.away)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "RESTART_SECONDS", 0.0)
    monkeypatch.setattr(follower_module, "UNWRITTEN_SECONDS", 0.0)


@pytest.mark.parametrize("recording", RECORDINGS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_mended_files_are_read_as_by_a_fresh_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recording: str, seed: int
) -> None:
    chance = random.Random(f"{recording} {seed}")
    disk = Disk(tmp_path / "dagdir", chance)
    sessions = Sessions(disk)
    refuse(monkeypatch, disk)
    pieces = pieces_of(recording)
    cuts = sorted(chance.randrange(len(pieces)) for _ in range(LOOKS))
    for begin, end in zip([0, *cuts], [*cuts, len(pieces)], strict=True):
        for piece in pieces[begin:end]:
            disk.write(piece)
        did = ""
        if chance.random() < GOES_WRONG:
            did += disk.damage() + " "
        if chance.random() < GOES_WRONG / 2:
            did += sessions.disturb() + " "
        for name in sorted(disk.wrong):
            if chance.random() < IS_MENDED:
                did += disk.mend(name) + " "
        if did:
            sessions.history.append(f"{end}: {did}")
        disk.pass_a_tick()
        sessions.look()
    disk.mend_all()
    assert {n: (disk.dagdir / n).read_bytes() for n in disk.whole} == disk.whole
    sessions.look()
    sessions.look()
    assert sessions.reader is not None
    history = "\n".join(sessions.history)
    fresh = report_of(opened(disk.dagdir))
    found = report_of(sessions.reader)
    for field in fresh:
        assert found.get(field) == fresh[field], f"{field}\n{history}"


def refuse(monkeypatch: pytest.MonkeyPatch, disk: Disk) -> None:
    """Make files unreadable: root may read all."""
    for name in ("_both_ends", "_part", "_sum_of"):
        call = getattr(follower_module, name)

        def refused(path: Path, *more: Any, call: Callable[..., Any] = call) -> Any:
            if path.name in disk.denied and path.parent == disk.dagdir:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return call(path, *more)

        monkeypatch.setattr(follower_module, name, refused)
