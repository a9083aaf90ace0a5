"""The cache directory: entries come back whole or not at all, and nothing there is larger, older
or more open than it may be."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from metlmon.config.loader import cache_directory
from metlmon.home import cache as cache_module
from metlmon.home.cache import Cache, CacheMiss

CONTENT = bytes(range(200))


@pytest.fixture(name="cache")
def _cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache" / "metlmon")


@pytest.fixture(name="file")
def _file(cache: Cache) -> Path:
    """The file of one entry, called ``x``."""
    assert cache.write("x", CONTENT)
    return cache.directory / "x.stored"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def is_miss(cache: Cache, name: str = "x") -> bool:
    try:
        cache.read(name)
    except (CacheMiss, OSError):
        return True
    return False


def names(cache: Cache) -> set[str]:
    return {path.name for path in cache.directory.iterdir()}


def test_an_entry_comes_back_until_it_is_replaced(cache: Cache) -> None:
    assert is_miss(cache)
    assert cache.write("x", CONTENT)
    assert cache.read("x") == CONTENT
    assert cache.write("x", b"newer")
    assert cache.read("x") == b"newer"


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o277, 0o777])
def test_files_are_for_their_owner_alone_whatever_the_mask(tmp_path: Path, mask: int) -> None:
    cache = Cache(tmp_path / "a" / "b" / "metlmon")
    before = os.umask(mask)
    try:
        assert cache.write("x", CONTENT)
    finally:
        os.umask(before)
    for directory in ("a", "a/b", "a/b/metlmon"):
        assert mode(tmp_path / directory) == 0o700
    assert mode(tmp_path / "a/b/metlmon/x.stored") == 0o600
    assert cache.read("x") == CONTENT


def test_a_directory_that_others_could_look_into_is_closed(cache: Cache) -> None:
    cache.directory.mkdir(parents=True)
    cache.directory.chmod(0o755)
    assert cache.write("x", CONTENT)
    assert mode(cache.directory) == 0o700


# --- damage -------------------------------------------------------------------------------


def test_a_file_that_is_cut_or_changed_anywhere_is_a_miss(cache: Cache, file: Path) -> None:
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at])
        assert is_miss(cache), at
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x20]) + whole[at + 1 :])
        assert is_miss(cache), at
    file.write_bytes(whole + b"\0")
    assert is_miss(cache)


@pytest.mark.parametrize("content", [b"", b"\0\0\0", b"\1" * 4096])
def test_a_foreign_file_is_a_miss(cache: Cache, file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert is_miss(cache)


def test_a_directory_in_its_place_is_a_miss(cache: Cache, file: Path) -> None:
    file.unlink()
    file.mkdir()
    assert is_miss(cache)
    assert not cache.write("x", CONTENT)
    assert names(cache) == {"x.stored"}


def test_a_link_is_not_followed(cache: Cache, file: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    assert is_miss(cache)
    before = elsewhere.read_bytes()
    assert cache.write("x", b"new")
    assert not file.is_symlink()
    assert elsewhere.read_bytes() == before


def test_a_pipe_is_not_waited_for(cache: Cache, file: Path) -> None:
    file.unlink()
    os.mkfifo(file)
    assert is_miss(cache)


def test_an_unusable_path_is_no_cache(tmp_path: Path) -> None:
    """A circle of links, a name that no file system takes, a file as its parent."""
    (tmp_path / "one").symlink_to(tmp_path / "other")
    (tmp_path / "other").symlink_to(tmp_path / "one")
    (tmp_path / "file").write_bytes(b"")
    for parent in ("one", "x" * 300, "file"):
        cache = Cache(tmp_path / parent / "metlmon")
        assert not cache.write("x", CONTENT)
        assert is_miss(cache)


@pytest.mark.parametrize("bits", [0o602, 0o620])
def test_what_others_may_have_written_is_a_miss(cache: Cache, file: Path, bits: int) -> None:
    file.chmod(bits)
    assert is_miss(cache)


def test_an_entry_where_others_may_write_is_a_miss(cache: Cache, file: Path) -> None:
    cache.directory.chmod(0o777)
    assert is_miss(cache)


# --- limits -------------------------------------------------------------------------------


def test_the_disk_is_never_filled(
    cache: Cache, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = os.statvfs(cache.directory)
    monkeypatch.setattr(cache_module, "MIN_FREE_BYTES", free.f_bavail * free.f_frsize + (1 << 30))
    assert not cache.write("x", b"new")
    assert cache.read("x") == CONTENT


def test_an_entry_that_is_too_large_leaves_the_old_one(
    cache: Cache, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "MAX_ENTRY_BYTES", 1000)
    assert not cache.write("x", bytes(1000))
    assert cache.read("x") == CONTENT
    assert names(cache) == {"x.stored"}
    monkeypatch.setattr(cache_module, "MAX_ENTRY_BYTES", file.stat().st_size - 1)
    assert is_miss(cache)


def test_only_drafts_that_were_left_are_removed(cache: Cache, file: Path) -> None:
    (cache.directory / "notes.txt").write_text("mine")
    young, old = cache.directory / ".x.1.ab.new", cache.directory / ".x.2.cd.new"
    for path in (young, old):
        path.write_bytes(b"half")
    yesterday = time.time() - 86400
    os.utime(old, (yesterday, yesterday))
    cache.write("y", CONTENT)
    assert names(cache) == {"notes.txt", young.name, "x.stored", "y.stored"}


def test_the_cache_is_where_the_user_has_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own" / "metlmon"
    for value in ("", "relative/place"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_directory() == tmp_path / ".cache" / "metlmon"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == tmp_path / ".cache" / "metlmon"
    monkeypatch.setenv("HOME", "relative")
    assert cache_directory() is None
