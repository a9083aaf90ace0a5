"""What has changed since the user last looked, and where that is remembered."""

from __future__ import annotations

import os
from datetime import datetime
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
from metlmon.health.last_seen import PURPOSE, difference, load_last_seen, summarize
from metlmon.model.states import State
from metlmon.snapshot.records import Status
from tests.support.sample_snapshots import RUNS, status

SEEN = datetime(2025, 11, 14, 8, 14)
NOW = datetime(2025, 11, 15, 9, 0)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def later(**states: tuple[int, State]) -> Status:
    """The sample, in which the named runs have this number of epochs and this state."""
    return status(
        tuple(
            replace(run, epochs_done=states[run.name][0], state=states[run.name][1])
            if run.name in states
            else run
            for run in RUNS
        )
    )


def test_the_line_says_what_is_new_and_not_what_was_there() -> None:
    before = summarize(status(), SEEN)
    now = later(run8=(30, State.COMPLETED), run4=(30, State.COMPLETED), run7=(7, State.HELD))
    assert difference(before, summarize(now, NOW)) == (
        "since 14 Nov 08:14: 12 epochs done, 1 run held, 2 finished"
    )
    assert difference(before, summarize(status(), NOW)) is None
    assert difference(None, summarize(now, NOW)) is None


def test_a_run_that_was_held_and_is_now_removed_is_new() -> None:
    before = summarize(status(), SEEN)
    now = summarize(later(run1=(14, State.REMOVED)), NOW)
    assert difference(before, now) == "since 14 Nov 08:14: 1 run removed"


def test_a_run_that_was_released_and_is_held_again_is_new() -> None:
    before = summarize(status(), SEEN)
    held = RUNS[1]
    assert held.latest is not None
    again = replace(held, latest=replace(held.latest, since=NOW))
    now = summarize(status((RUNS[0], again, *RUNS[2:])), NOW)
    assert difference(before, now) == "since 14 Nov 08:14: 1 run held"


def test_nodes_are_counted_where_there_are_no_runs() -> None:
    empty = replace(status(), runs=(), epoch_states={})
    before = replace(empty, node_states={State.COMPLETED: 3, State.FAILED: 1})
    now = replace(empty, node_states={State.COMPLETED: 8, State.FAILED: 3})
    assert difference(summarize(before, SEEN), summarize(now, datetime(2026, 1, 1))) == (
        "since 14 Nov 2025 08:14: 5 nodes done, 2 failed"
    )


def test_what_was_seen_is_remembered_outside_of_the_dagdir(tmp_path: Path) -> None:
    dagdir, link = tmp_path / "dagdir", tmp_path / "link"
    dagdir.mkdir()
    link.symlink_to(dagdir)
    rows = *RUNS, replace(RUNS[0], key="caf\udce9")
    summary = summarize(status(rows), SEEN)
    assert load_last_seen(dagdir) is None
    assert write_state(state_path(PURPOSE, dagdir), summary)
    assert load_last_seen(link) == summary, "it is the same directory"
    assert load_last_seen(tmp_path) is None
    assert list(dagdir.iterdir()) == []
    (file,) = (tmp_path / "state/metlmon/seen").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


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
