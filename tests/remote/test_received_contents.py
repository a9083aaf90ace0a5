"""The received content of a file that grows, is truncated and rewritten: always its own bytes."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from metlmon.remote import agent
from metlmon.remote.machine import BLOCK, MIN_READ, Machine

LARGEST = 40 * BLOCK


class AgentHere:
    """A channel to an agent in this process."""

    host = "here"

    def __init__(self) -> None:
        self._standing: dict[int, Any] = {}

    def exchange(self, frame: bytes) -> bytes:
        request, data = agent.decode(frame[agent.HEADER.size :])[0], list[bytes]()
        if request["agent"] == "agent":
            response = agent.answer_request(request, self._standing, data)
        else:
            self.forget()
            response = {"hello": agent.hello("agent")}
        response["number"] = request["number"]
        return agent.encode(0, response, data)[agent.HEADER.size :]

    def forget(self) -> None:
        """Forget the standing queries, like a restarted agent."""
        self._standing.clear()

    def drop(self) -> None:
        """Do nothing: it has no connection."""


class ChangingFile:
    """A file, and the machine that reads it."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.path, self._chance = path, chance
        self._changes = 0
        self.write(self.some_bytes())
        self.machine = Machine(AgentHere())

    def some_bytes(self) -> bytes:
        return self._chance.randbytes(self._chance.choice((0, 1, 300, BLOCK, 3 * BLOCK, LARGEST)))

    def write(self, content: bytes) -> None:
        self.path.write_bytes(content)
        self._note_change()

    def _note_change(self) -> None:
        # Two changes within one tick of the file system have equal times.
        self._changes += 1
        os.utime(self.path, (self._changes, self._changes))

    def append(self) -> None:
        self.write(self.path.read_bytes() + self.some_bytes())

    def cut_off(self) -> None:
        content = self.path.read_bytes()
        self.write(content[: self._chance.randint(0, len(content))])

    def overwrite(self) -> None:
        content = bytearray(self.path.read_bytes())
        if content:
            content[self._chance.randrange(len(content))] ^= 1
        self.write(bytes(content))

    def replace(self) -> None:
        other = self.path.with_name("other")
        other.write_bytes(self.path.read_bytes())
        other.replace(self.path)
        self._note_change()

    def read_some(self) -> None:
        """Read ranges like followers and pages, and compare them."""
        content = self.path.read_bytes()
        with self.machine.open(str(self.path)) as file:
            for _ in range(4):
                length = self._chance.choice((1, 256, 5000, MIN_READ, LARGEST))
                at_end = max(0, len(content) - length)
                anywhere = self._chance.randint(0, LARGEST)
                start = self._chance.choice((0, len(content) // 2, anywhere, at_end))
                assert file.pread(length, start) == content[start : start + length]


@pytest.mark.parametrize("seed", range(15))
def test_read_bytes_are_those_of_the_file(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    file = ChangingFile(tmp_path / "file", chance)
    for _ in range(30):
        file.read_some()
        for change in chance.choices(
            (file.append, file.cut_off, file.overwrite, file.replace), k=chance.randint(0, 2)
        ):
            change()
        if chance.random() < 0.1:
            file.machine.channel.forget()
            file.machine._agent = ""
        file.machine.look()


@pytest.mark.parametrize("seed", range(5))
def test_bytes_of_a_growing_file_are_received_once(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    file = ChangingFile(tmp_path / "file", chance)
    for _ in range(20):
        file.read_some()
        chance.choice((file.append, file.replace))()
        file.machine.look()
        assert file.machine.file_bytes <= file.path.stat().st_size
    file.read_some()
