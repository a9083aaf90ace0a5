"""Where it is remembered how far the user has seen an ensemble."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.config.user_state import (
    MAX_FILES,
    MAX_STATE_BYTES,
    read_state,
    state_lock,
    state_path,
    write_state,
)
from metlmon.health.changes import PURPOSE, LastSeen, load_last_seen, seen
from tests.support.sample_snapshots import AS_OF, status


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_what_was_seen_is_remembered_outside_of_the_dagdir(tmp_path: Path) -> None:
    dagdir, link = tmp_path / "dagdir", tmp_path / "link"
    dagdir.mkdir()
    link.symlink_to(dagdir)
    assert load_last_seen(dagdir) is None
    assert write_state(state_path(PURPOSE, dagdir), seen(status()))
    assert load_last_seen(link) == LastSeen(AS_OF), "it is the same directory"
    assert load_last_seen(tmp_path) is None
    assert list(dagdir.iterdir()) == []
    (file,) = (tmp_path / "state/metlmon/seen").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_an_end_that_dagman_wrote_after_the_newest_event_is_seen_too() -> None:
    ended = AS_OF + timedelta(seconds=2)
    made = status(live=False)
    assert seen(replace(made, dags=(replace(made.dags[0], ended=ended),))) == LastSeen(ended)


def test_what_others_may_have_written_is_not_read(tmp_path: Path) -> None:
    path = state_path("seen", tmp_path / "dagdir")
    assert path is not None
    write_state(path, {"a": 1})
    assert read_state(path, dict[str, int]) == {"a": 1}
    path.chmod(0o666)
    assert read_state(path, dict[str, int]) is None
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text('{"a": 1}')
    assert read_state(path, dict[str, int]) is None
    path.unlink()
    path.write_bytes(b"\xff{")
    assert read_state(path, dict[str, int]) is None, "damaged"


def test_the_files_are_bounded(tmp_path: Path) -> None:
    path = state_path("seen", tmp_path / "dagdir")
    assert path is not None
    assert not write_state(path, "x" * MAX_STATE_BYTES)
    assert write_state(path, "first")
    for number in range(MAX_FILES):
        file = path.with_name(f"{number:032}.json")
        file.touch()
        os.utime(file, (1, 1 + number))
    assert write_state(path, "second")
    names = {file.name for file in path.parent.iterdir()}
    assert len(names) == MAX_FILES
    assert path.name in names
    assert f"{0:032}.json" not in names


def test_a_lock_is_held_once(tmp_path: Path) -> None:
    path = state_path("seen", tmp_path / "dagdir")
    assert path is not None
    with state_lock(path) as first, state_lock(path) as second:
        assert (first, second) == (True, False)
    with state_lock(path) as third:
        assert third
