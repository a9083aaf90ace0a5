"""A remote machine with bad answers: none is trusted, and what it hid is shown in the end."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from metlmon.cli import Exit
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.states import State
from metlmon.remote import agent, connection
from metlmon.remote.agent import HEADER, decode, encode
from metlmon.remote.machine import MACHINES, ForeignAnswer, Machine, connect_to
from metlmon.remote.paths import HOSTS, Disconnected
from tests.support.commands import Captured, run_command, usage_error
from tests.support.dagdir_builder import NODE, Dagdir, again
from tests.support.event_logs import Log
from tests.support.hostile_machine import MODES, SILENT, HostileMachine
from tests.support.patience import PATIENCE

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


def look(reader: DagdirReader) -> State:
    """The state of the job after one more look."""
    with suppress(Disconnected):
        MACHINES["far"].look()
    again(reader)
    (job,) = reader.snapshot_builder().job_rows()
    return job.state


@pytest.mark.parametrize("mode", [*MODES, *SILENT])
def test_hold_in_a_bad_frame_is_shown_later(
    machine: HostileMachine, dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    others = set(threading.enumerate())
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
            # The second frame is the answer of the next exchange.
            while channel.connections == 1 and channel.lost_since is None:
                look(reader)
        else:
            assert "far: " in (reader.error or "")
    for thread in set(threading.enumerate()) - others:
        if thread.name == "metlmon-ssh":
            thread.join(PATIENCE)
            assert not thread.is_alive()

    assert look(reader) is State.HELD
    assert reader.error is None


@pytest.mark.parametrize(
    ("mode", "after"),
    [
        *((mode, 3) for mode in ("garbage", "null", "too deep", "ended", *SILENT)),
        *(("garbage", 0), ("null", 1), ("ended", 2), ("no marker", 0)),
    ],
)
def test_command_ends_with_a_sentence(
    machine: HostileMachine,
    dagdir: Dagdir,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    after: int,
) -> None:
    if mode in SILENT:
        monkeypatch.setattr(connection, "ANSWER_SECONDS", SOON)
    if mode == "no marker":
        monkeypatch.setattr(connection, "LOGIN_SECONDS", SOON)
    machine.spoil(mode, after, always=True)

    error = usage_error("status", capsys, f"far:{dagdir.path}")

    assert error.startswith("metlmon: far: ")
    assert "please report" not in error
    assert mode not in SILENT or "no whole answer within" in error
    assert mode != "no marker" or "no agent answers within" in error


@pytest.mark.parametrize(
    ("command", "mode", "after"),
    [
        *(("status", mode, after) for mode in (None, "null", "silent") for after in (0, 4)),
        *(("health", "null", 4), ("watch", None, 0)),
    ],
)
def test_bad_machine_does_not_hide_the_others(
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


def test_directory_with_too_many_names_is_reported(
    machine: HostileMachine, dagdir: Dagdir, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = connection._agent_source()
    small = source.replace(b"MAX_NAMES = 1000000", b"MAX_NAMES = 1")
    assert small != source
    monkeypatch.setattr(connection, "_agent_source", lambda: small)

    error = usage_error("status", capsys, f"far:{dagdir.path}")

    assert "more than 1,000,000 names" in error


# --- meaningless answers ------------------------------------------------------------------------

STATUS = [0o100644, 1, 2, 1, 0, 0, 10, 0, 0, 0]


class ForeignAgent:
    """A channel with made-up answers."""

    host = "foreign"

    def __init__(self, *responses: Any) -> None:
        hello = {"agent": "x", "time": 0, "offset": 0, "user": 0}
        self._responses = [{"hello": hello}, *responses]

    def exchange(self, frame: bytes) -> bytes:
        message, response = decode(frame[HEADER.size :])[0], self._responses.pop(0)
        if isinstance(response, dict):
            count = len(response.get("standing", "")) if "standing" in response else 0
            response = {"count": count, "later": [], **response, "number": message["number"]}
        return encode(0, response)[HEADER.size :]

    def drop(self) -> None:
        """Do nothing: it is the only connection."""


def answering(*answers: Any, once: Any = ()) -> dict[str, Any]:
    """The response with the answers to the standing queries 1, 2, …"""
    return {"standing": [*enumerate(answers, 1)], "once": list(once), "offset": 0}


@pytest.mark.parametrize(
    ("call", "response"),
    [
        *(("stat", each) for each in ({}, [], None)),
        ("stat", {"standing": 5, "once": [], "offset": 0}),
        ("stat", {"standing": [], "once": [], "offset": "x"}),
        ("stat", {"standing": [[99, STATUS]], "once": [], "offset": 0}),
        ("stat", answering()),
        *(("stat", answering(each)) for each in ([1, 2, 3], [-1] * 10, "text")),
        *(("stat", answering({"errno": each})) for each in ("x", 0, -1, 1 << 40, None)),
        # A name in a directory leads nowhere else, and a path is absolute.
        *(
            ("scandir", answering({"names": {name: ["f", 1]}}))
            for name in ("../up", "a/b", "", ".", "..", "a\0b", "\ud800")
        ),
        *(("realpath", answering(path)) for path in ("relative", "/a\0b", "/\ud800", 5, None, {})),
    ],
)
def test_meaningless_answer_is_an_error(call: str, response: Any) -> None:
    with pytest.raises(ForeignAnswer):
        getattr(Machine(ForeignAgent(response)), call)("/a")


@pytest.mark.parametrize(
    "answer",
    [
        *(None, 5, {}, {"status": STATUS}, {"errno": "x"}),
        {"status": [1], "same": True, "bytes": 0},
        {"status": STATUS, "bytes": 0},
        {"status": STATUS, "same": True, "bytes": 5},
        {"status": STATUS, "same": True, "bytes": -1},
    ],
)
def test_meaningless_bytes_are_an_error(answer: Any) -> None:
    machine = Machine(ForeignAgent(answering(STATUS), answering(once=[answer])))
    with machine.open("/a") as file, pytest.raises(ForeignAnswer):
        file.pread(10, 0)
    # Its earlier answers are discarded, too.
    with pytest.raises(ForeignAnswer):
        machine.stat("/a")


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EACCES, errno.ENOENT])
def test_remote_errors_are_errors_of_files(number: int) -> None:
    with pytest.raises(OSError, match="/a") as error:
        Machine(ForeignAgent(answering({"errno": number}))).stat("/a")
    # A closed pipe would belong to this process.
    assert error.value.errno == (errno.EIO if number == errno.EPIPE else number)


@pytest.mark.parametrize("content", [b"", b"x", encode(0, {})[5:-1], b"\0" * 1000])
def test_damaged_frame_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(content)


def test_oversized_frame_is_a_value_error() -> None:
    frame = encode(0, {}, [b"\0" * (agent.MAX_FRAME + 1)])
    assert len(frame) < 1 << 20
    with pytest.raises(ValueError, match="too large"):
        decode(frame[HEADER.size :])
