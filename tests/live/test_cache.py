"""The cache directory: entries come back whole or not at all, whatever has become of them, and
nothing there is larger, older or more open than it may be."""

from __future__ import annotations

import os
import pickle
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from metlmon.live import cache as cache_module
from metlmon.live.cache import Cache, CacheMiss, cache_directory, entry_of
from metlmon.model.settings import Settings

RECORDS = [
    {"a": (1, 2.5, None, True), "b": b"\x00\xff"},
    ["text", datetime(2026, 5, 4, 10), datetime(2026, 5, 4, 10, tzinfo=UTC), frozenset({1})],
    "",
]


@pytest.fixture(name="cache")
def _cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache" / "metlmon")


@pytest.fixture(name="written")
def _written(cache: Cache) -> Path:
    """The file of one entry, called ``x``."""
    assert cache.write("x", RECORDS)
    return cache.directory / "x.kept"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def lost(cache: Cache, name: str = "x") -> bool:
    """Is the entry none?"""
    try:
        list(cache.records(name))
    except (CacheMiss, OSError):
        return True
    return False


# --- what comes back ----------------------------------------------------------------------


def test_an_entry_comes_back(cache: Cache, written: Path) -> None:
    assert cache.has("x")
    assert list(cache.records("x")) == RECORDS


def test_what_was_never_written_is_not_there(cache: Cache) -> None:
    assert not cache.has("x")
    assert lost(cache)


def test_the_last_one_wins(cache: Cache, written: Path) -> None:
    assert cache.write("x", ["newer"])
    assert list(cache.records("x")) == ["newer"]


def test_files_are_for_their_owner_alone(cache: Cache, written: Path) -> None:
    assert mode(cache.directory) == 0o700
    assert mode(written) == 0o600


def test_a_directory_that_others_could_look_into_is_closed(cache: Cache) -> None:
    cache.directory.mkdir(parents=True)
    cache.directory.chmod(0o755)
    assert cache.write("x", RECORDS)
    assert mode(cache.directory) == 0o700


# --- damage -------------------------------------------------------------------------------


def test_a_file_that_is_cut_anywhere_is_none(cache: Cache, written: Path) -> None:
    whole = written.read_bytes()
    for length in range(len(whole)):
        written.write_bytes(whole[:length])
        assert lost(cache), length


def test_a_file_with_any_byte_changed_is_none(cache: Cache, written: Path) -> None:
    whole = written.read_bytes()
    for at in range(len(whole)):
        written.write_bytes(whole[:at] + bytes([whole[at] ^ 0x20]) + whole[at + 1 :])
        assert lost(cache), at


def test_something_behind_the_end_is_not_passed_over(cache: Cache, written: Path) -> None:
    written.write_bytes(written.read_bytes() + b"\0")
    assert lost(cache)


def test_records_of_two_files_are_not_mixed(cache: Cache, written: Path) -> None:
    """Each checksum is of all that stands before it, too."""
    cache.write("y", [{"a": (0, 0.0, None, True), "b": b"\x00\xff"}, *RECORDS[1:]])
    one, other = written.read_bytes(), (cache.directory / "y.kept").read_bytes()
    differ = [i for i in range(len(one)) if one[i] != other[i]]
    end_of_first = 15 + 24 + len(pickle.dumps(RECORDS[0], protocol=5))
    assert differ[-1] > end_of_first
    written.write_bytes(one[:end_of_first] + other[end_of_first:])
    assert lost(cache)


FOREIGN = {
    "nothing": b"",
    "zeros": b"\0" * 4096,
    "an earlier form": b"metlmon kept 0\n",
    "anything": os.urandom(5000),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_file_is_none(cache: Cache, written: Path, content: bytes) -> None:
    written.write_bytes(content)
    assert lost(cache)


def test_a_directory_in_its_place_is_none(cache: Cache, written: Path) -> None:
    written.unlink()
    written.mkdir()
    assert lost(cache)
    assert not cache.write("x", RECORDS)
    assert [each.name for each in cache.directory.iterdir()] == ["x.kept"]


def test_a_link_is_not_followed(cache: Cache, written: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    written.rename(elsewhere)
    written.symlink_to(elsewhere)
    assert lost(cache)
    before = elsewhere.read_bytes()
    assert cache.write("x", ["new"])
    assert not written.is_symlink()
    assert elsewhere.read_bytes() == before


def test_a_pipe_is_not_waited_for(cache: Cache, written: Path) -> None:
    written.unlink()
    os.mkfifo(written)
    assert lost(cache)


def test_a_place_that_is_none_is_no_cache(tmp_path: Path) -> None:
    """A circle of links, and a name that no file system takes."""
    (tmp_path / "one").symlink_to(tmp_path / "other")
    (tmp_path / "other").symlink_to(tmp_path / "one")
    for place in (tmp_path / "one" / "metlmon", tmp_path / ("x" * 300) / "metlmon"):
        cache = Cache(place)
        assert not cache.has("x")
        assert not cache.lies_in(tmp_path / "ensemble")
        assert not cache.write("x", RECORDS)
        assert lost(cache)


@pytest.mark.parametrize("bits", [0o602, 0o620])
def test_what_others_may_have_written_is_none(cache: Cache, written: Path, bits: int) -> None:
    written.chmod(bits)
    assert lost(cache)


def test_an_entry_in_a_directory_that_others_may_write_is_none(cache: Cache, written: Path) -> None:
    cache.directory.chmod(0o777)
    assert lost(cache)


class Bomb:
    """What a pickle could do to whoever loads it."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("bomb",)


@pytest.mark.parametrize("thing", [Bomb(), Path("x"), Settings(), [1, {"a": print}]])
def test_only_plain_data_is_loaded(
    cache: Cache, thing: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cache.write("x", [thing])
    assert lost(cache)
    assert not (tmp_path / "bomb").exists()


# --- where it cannot be written -----------------------------------------------------------


def test_where_no_directory_can_be_made_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = Cache(tmp_path / "file" / "metlmon")
    assert not cache.has("x")
    assert not cache.write("x", RECORDS)
    assert lost(cache)


def test_the_disk_is_never_filled(
    cache: Cache, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = os.statvfs(cache.directory)
    left = free.f_bavail * free.f_frsize
    monkeypatch.setattr(cache_module, "LEFT_FREE", left + (1 << 30))
    assert not cache.write("x", ["new"])
    assert list(cache.records("x")) == RECORDS


def test_one_that_is_too_large_leaves_the_old_one(
    cache: Cache, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "GREATEST_ENTRY", 1000)
    asked = []

    def endless() -> Iterator[bytes]:
        while True:
            asked.append(1)
            yield b"x" * 100

    assert not cache.write("x", endless())
    assert len(asked) < 12
    assert list(cache.records("x")) == RECORDS
    assert [each.name for each in cache.directory.iterdir()] == ["x.kept"]


def test_one_that_has_grown_too_large_is_none(
    cache: Cache, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "GREATEST_ENTRY", written.stat().st_size - 1)
    assert lost(cache)


# --- bounds -------------------------------------------------------------------------------


def names(cache: Cache) -> set[str]:
    return {each.name.removesuffix(".kept") for each in cache.directory.iterdir()}


def used(cache: Cache, name: str, when: int) -> None:
    os.utime(cache.directory / f"{name}.kept", (when, when))


def test_what_was_used_longest_ago_goes_first(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    for when, name in enumerate("abcd", start=1):
        cache.write(name, [b"x" * 1000])
        used(cache, name, when)
    list(cache.records("a"))
    monkeypatch.setattr(cache_module, "GREATEST_CACHE", 3500)
    cache.write("e", [b"x" * 1000])
    assert names(cache) == {"a", "d", "e"}


def test_there_are_no_more_than_so_many(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "MOST_ENTRIES", 2)
    for when, name in enumerate("abc", start=1):
        cache.write(name, [1])
        used(cache, name, when)
    cache.write("d", [1])
    assert names(cache) == {"c", "d"}


def test_only_what_the_cache_made_is_removed(
    cache: Cache, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache.directory / "notes.txt").write_text("mine")
    young, old = cache.directory / ".x.1.ab.new", cache.directory / ".x.2.cd.new"
    for path in (young, old):
        path.write_bytes(b"half")
    yesterday = time.time() - 86400
    os.utime(old, (yesterday, yesterday))
    monkeypatch.setattr(cache_module, "MOST_ENTRIES", 1)
    cache.write("y", [1])
    assert {each.name for each in cache.directory.iterdir()} == {"notes.txt", young.name, "y.kept"}


# --- where it lies, and what an entry is called -------------------------------------------


def test_the_cache_lies_where_the_user_has_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own" / "metlmon"
    for nothing in ("", "relative/place"):
        monkeypatch.setenv("XDG_CACHE_HOME", nothing)
        assert cache_directory() == tmp_path / ".cache" / "metlmon"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == tmp_path / ".cache" / "metlmon"


def test_where_no_home_is_no_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "relative")
    assert cache_directory() is None


def test_an_entry_is_of_a_dagdir_a_file_and_the_settings_that_matter(tmp_path: Path) -> None:
    entries = {
        entry_of(tmp_path, None, Settings()),
        entry_of(tmp_path, "run.dag", Settings()),
        entry_of(tmp_path / "x", None, Settings()),
        entry_of(tmp_path, None, Settings(checkpoint_codes=frozenset({85}))),
        entry_of(tmp_path, None, Settings(zone=UTC)),
    }
    assert len({entry.key for entry in entries}) == len({entry.name for entry in entries}) == 5
    assert entry_of(tmp_path / "x" / "..", None, Settings(read_only=True)) in entries


def test_people_recognise_their_dagdir(tmp_path: Path) -> None:
    name = entry_of(tmp_path / "metl global\x1b[2J/é", None, Settings()).name
    assert name.isascii()
    assert name.isprintable()
    assert entry_of(tmp_path / "metl-aws", None, Settings()).name.startswith("metl-aws-")
