"""A far machine whose answers are bad: none is believed, and what it hid is shown in the end."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import pytest

from metlmon.cli.exit_codes import Exit
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.states import State
from metlmon.remote import connection, filesystem
from metlmon.remote.machine import MACHINES, connect_to, failure_of, path_of, stat_result
from metlmon.remote.paths import HOSTS, Disconnected
from tests.support.commands import Captured, json_output, run_command, usage_error
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log
from tests.support.hostile_machine import MODES, SILENT, HostileMachine

SOON = 0.1
"""Seconds of a deadline that passes in any case: nothing comes."""


@pytest.fixture(name="machine")
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostileMachine]:
    machine = HostileMachine(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(machine.bin), prepend=os.pathsep)
    monkeypatch.setattr(connection, "_has_terminal", lambda: False)
    yield machine
    for far in MACHINES.values():
        far.channel.close()
    MACHINES.clear()
    HOSTS.clear()


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Dagdir:
    dagdir = Dagdir(tmp_path / "ensemble")
    dagdir.write("metl.log", Log().submit(77, NODE).execute(77, 1).data)
    return dagdir


def wait_for_connection() -> None:
    """Return when no connection is being made in the background."""
    for thread in threading.enumerate():
        if thread.name == "metlmon-ssh":
            thread.join()


def look(reader: DagdirReader) -> State:
    """The state of the job after one more look."""
    reader.check()
    reader.read_all()
    (job,) = reader.snapshot_builder().job_rows()
    return job.state


@pytest.mark.parametrize("mode", [*MODES, *SILENT])
def test_the_frame_that_carries_a_hold_is_bad(
    machine: HostileMachine, dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    reader = DagdirReader(Path(connect_to(f"far:{dagdir.path}")), live=True)
    reader.open()
    assert look(reader) is State.RUNNING
    dagdir.append("metl.log", Log().hold(77, 13, "no space left").data)
    machine.spoil(mode)

    channel = MACHINES["far"].channel
    with monkeypatch.context() as patched:
        if mode in SILENT:
            patched.setattr(connection, "ANSWER_SECONDS", SOON)
        look(reader)
        if mode == "twice":
            # The second one is the answer of the next exchange.
            while channel.connections == 1 and channel.lost_since is None:
                look(reader)
        else:
            assert "far: " in (reader.error or "")
    wait_for_connection()

    assert look(reader) is State.HELD
    assert reader.error is None


@pytest.mark.parametrize(
    ("mode", "after"),
    [
        *((mode, 4) for mode in (*MODES, *SILENT)),
        *product(("garbage", "null", "too deep", "ended", "drip"), (0, 1, 2)),
    ],
)
def test_a_command_ends_with_a_sentence(
    machine: HostileMachine,
    dagdir: Dagdir,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    after: int,
) -> None:
    if mode in SILENT:
        monkeypatch.setattr(connection, "ANSWER_SECONDS", SOON)
    machine.spoil(mode, after, always=True)

    error = usage_error("status", capsys, f"far:{dagdir.path}")

    assert error.startswith("metlmon: far: ")
    assert "please report" not in error
    assert mode not in SILENT or "no whole answer within" in error


def test_an_agent_that_does_not_begin(
    machine: HostileMachine, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LOGIN_SECONDS", SOON)
    machine.spoil("no marker")

    assert "no agent answers within" in usage_error("status", capsys, "far:ensemble")


def test_a_request_that_is_not_read_is_given_up(
    machine: HostileMachine, dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = MACHINES[Path(connect_to(f"far:{dagdir.path}")).parts[1][:-1]]
    machine.spoil("silent")
    monkeypatch.setattr(connection, "ANSWER_SECONDS", SOON)

    with pytest.raises(Disconnected, match="no whole answer within"):
        far.prefetch([("stat", f"/{number:01000}") for number in range(2000)])


def test_a_line_that_is_slow_but_steady_has_time_enough() -> None:
    deadline = connection._Deadline(0.0, "too late")
    deadline.extend(connection.SLOWEST * 1000)
    reading, writing = os.pipe()
    with open(reading, "rb") as far, open(writing, "wb") as near:
        near.write(b"x")
        near.flush()
        deadline.wait(far)


# --- several machines ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [None, "null", "silent"])
@pytest.mark.parametrize("after", [0, 4])
@pytest.mark.parametrize("command", ["status", "health", "watch"])
def test_a_machine_that_cannot_be_used_hides_nothing_of_the_others(
    machine: HostileMachine,
    dagdir: Dagdir,
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    mode: str | None,
    after: int,
) -> None:
    other = Dagdir(tmp_path / "other")
    other.write("metl.log", Log().submit(77, NODE).data)
    if mode is None:
        (machine.bin / "ssh").write_text("#!/bin/sh\necho no such host >&2\nexit 255\n")
    else:
        machine.spoil(mode, after, always=True)
        monkeypatch.setattr(connection, "ANSWER_SECONDS", SOON)

    code, out, err = run_command(command, capsys, dagdir.path, f"far:{dagdir.path}", other.path)

    assert code == Exit.USAGE
    assert "ensemble" in out
    assert "other" in out
    assert err.startswith("metlmon: far:")
    assert err.count("\n") == 1


def test_no_machine_can_be_used(machine: HostileMachine, capsys: Captured) -> None:
    (machine.bin / "ssh").write_text("#!/bin/sh\necho no such host >&2\nexit 255\n")

    code, out, err = run_command("status", capsys, "far:a", "away:b")

    assert (code, out) == (Exit.USAGE, "")
    assert "far: ssh: no such host" in err or "away: ssh: no such host" in err


# --- limits that an honest machine reaches ------------------------------------------------------


def test_names_that_fill_several_answers(
    machine: HostileMachine,
    dagdir: Dagdir,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(500):
        dagdir.write(f"{number:03}-{'x' * 200}", b"")
    # The agent's text is sent as it is: its limit is a number in it.
    source = connection._agent_source()
    small = source.replace(b"ANSWERED_AT_ONCE = 4 << 20", b"ANSWERED_AT_ONCE = 4 << 10")
    assert small != source
    monkeypatch.setattr(connection, "_agent_source", lambda: small)
    path = connect_to(f"far:{dagdir.path}")
    far = MACHINES["far"]

    assert sorted(filesystem.listdir(path)) == sorted(os.listdir(dagdir.path))
    assert far.channel.exchanges > 20
    assert json_output("status", capsys, f"far:{dagdir.path}")["runs"]
    # Names that come and go meanwhile are seen.
    (dagdir.path / "run.dag").rename(dagdir.path / "other.dag")
    far.look()
    assert sorted(filesystem.listdir(path)) == sorted(os.listdir(dagdir.path))


def test_a_directory_with_too_many_names_is_said_to_have_them(
    machine: HostileMachine, dagdir: Dagdir, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = connection._agent_source()
    small = source.replace(b"MAX_NAMES = 1000000", b"MAX_NAMES = 1")
    assert small != source
    monkeypatch.setattr(connection, "_agent_source", lambda: small)

    error = usage_error("status", capsys, f"far:{dagdir.path}")

    assert "more than 1,000,000 names" in error


# --- answers that can be parsed, and mean nothing -----------------------------------------------


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EACCES, errno.ENOENT])
def test_the_errors_of_another_machine_are_those_of_its_files(number: int) -> None:
    assert failure_of({"errno": number}).error("/a").errno == (
        errno.EIO if number == errno.EPIPE else number
    )


@pytest.mark.parametrize("number", [0, -1, 1 << 40, "x", None])
def test_no_error_has_this_number(number: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        failure_of({"errno": number})


def test_times_of_files_are_dates() -> None:
    for seconds in (10**30, -(10**30), 0):
        status = stat_result([0o100644, 1, 2, 1, 0, 0, 10, *[seconds] * 3])
        assert datetime.fromtimestamp(status.st_mtime, UTC)


@pytest.mark.parametrize("path", ["relative", "/a\0b", "/\ud800", 5, None, {}])
def test_no_file_has_this_path(path: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        path_of(path)
