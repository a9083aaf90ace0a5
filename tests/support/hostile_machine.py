"""A remote machine with bad answers: a program ``ssh`` that spoils the agent's frames.

It runs the project's own agent here and passes its frames on. A file (:class:`HostileMachine`) says
which one is spoiled and how; run as a program, this module is that ``ssh``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from metlmon.remote.agent import HEADER, LENGTH, decode

Frames = list[bytes]


def frame(content: bytes, channel: int = 0) -> bytes:
    return HEADER.pack(len(content), channel) + content


def packed(text: bytes, data: bytes = b"") -> bytes:
    return frame(zlib.compress(LENGTH.pack(len(text)) + text + data))


def changed(change: Callable[[Any], Any]) -> Callable[[bytes], Frames]:
    """A frame with another message."""

    def spoil(content: bytes) -> Frames:
        message, data = decode(content)
        return [packed(json.dumps(change(message)).encode(), data)]

    return spoil


def without(message: Any) -> Any:
    """A message in which every list is too short, and no greeting has a name."""
    return {
        key: value[:-1] if isinstance(value, list) else {} if key == "hello" else value
        for key, value in message.items()
    }


MODES: Final[dict[str, Callable[[bytes], Frames]]] = {
    "garbage": lambda content: [frame(b"\x00garbage\xff" * 9)],
    "cut content": lambda content: [frame(content[: len(content) // 2])],
    "empty": lambda content: [frame(b"")],
    "bomb": lambda content: [frame(zlib.compress(b"\0" * (80 << 20), 9))],
    "bomb of text": lambda content: [packed(b" " * (70 << 20))],
    "too deep": lambda content: [packed(b"[" * 200_000)],
    "not JSON": lambda content: [packed(b"{'standing': }")],
    "not UTF-8": lambda content: [packed(b'{"standing": "\xff"}')],
    "a long number": lambda content: [packed(b'{"standing": ' + b"9" * 10_000 + b"}")],
    "null": changed(lambda message: None),
    "a number": changed(lambda message: 5),
    "a list": changed(lambda message: []),
    "no field": changed(lambda message: {}),
    "wrong types": changed(lambda message: dict.fromkeys(message, "text")),
    "too few answers": changed(without),
    "the answer of another request": changed(lambda message: {**message, "number": 0}),
    "a greeting for ever": changed(lambda message: {"number": message["number"], "hello": 1}),
    "a length of 4 GB": lambda content: [HEADER.pack((1 << 32) - 1, 0)],
    "another channel": lambda content: [frame(content, 77)],
    "twice": lambda content: [frame(content), frame(content)],
    "ended": lambda content: [],
    "cut header": lambda content: [b"\0\0"],
    "cut frame": lambda content: [frame(content)[:-1]],
}
"""How an answer is spoiled, by a name."""

ENDS: Final = ("ended", "cut header", "cut frame")
"""Modes after which the far side ends."""

SILENT: Final = ("silent", "drip")
"""Modes in which the far side says nothing, or a byte now and then; it does not end."""


class HostileMachine:
    """The program ``ssh`` in ``directory``, to be put first in ``PATH``."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.bin = directory
        self._spoiled = directory / "spoiled.json"
        self.be_honest()
        program = directory / "ssh"
        project = Path(__file__).parents[2]
        program.write_text(
            f'#!/bin/sh\nPYTHONPATH="{project}" METLMON_SPOILED="{self._spoiled}" '
            f'exec "{sys.executable}" -m {__name__} "$@"\n'
        )
        program.chmod(0o755)

    def be_honest(self) -> None:
        """Pass all frames on."""
        self._write(None, 0, False)

    def spoil(self, mode: str, after: int = 0, *, always: bool = False) -> None:
        """Spoil a frame of the next or present connection, after so many that pass from now on.

        ``always``: also all later ones, of all connections.
        """
        self._write(mode, after, always)

    def _write(self, mode: str | None, after: int, always: bool) -> None:
        draft = self._spoiled.with_suffix(".new")
        draft.write_text(json.dumps([mode, after, always]))
        draft.replace(self._spoiled)


# --- the program ---------------------------------------------------------------------------------


def main() -> None:
    """Run the command of the last argument here, and pass its frames on."""
    spoiled = Path(os.environ["METLMON_SPOILED"])
    if mode_of(spoiled, take=False) == "no marker":
        wait_for_ever()
    agent = subprocess.Popen(
        ["/bin/sh", "-c", sys.argv[-1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert agent.stdin is not None
    assert agent.stdout is not None
    threading.Thread(target=pass_on, args=(agent.stdin,), daemon=True).start()
    write(agent.stdout.readline())
    while header := agent.stdout.read(HEADER.size):
        length, _ = HEADER.unpack(header)
        content = agent.stdout.read(length)
        mode = mode_of(spoiled)
        if mode is None:
            write(header + content)
            continue
        if mode in SILENT:
            drip(mode)
        for piece in MODES[mode](content):
            write(piece)
        if mode in ENDS:
            os._exit(0)


def mode_of(spoiled: Path, *, take: bool = True) -> str | None:
    """How the next frame is spoiled; ``take``: it counts."""
    mode, after, always = json.loads(spoiled.read_text())
    if mode is None or not take:
        return None if mode is None else str(mode)
    if after:
        spoiled.write_text(json.dumps([mode, after - 1, always]))
        return None
    if not always:
        spoiled.write_text(json.dumps([None, 0, False]))
    return str(mode)


def drip(mode: str) -> None:
    if mode != "silent":
        write(HEADER.pack(60_000_000, 0))
        while True:
            write(b"\0")
            time.sleep(0.01)
    wait_for_ever()


def wait_for_ever() -> None:
    threading.Event().wait()


def pass_on(target: Any) -> None:
    with suppress(OSError):
        while data := os.read(0, 1 << 16):
            target.write(data)
            target.flush()
    os._exit(0)


def write(data: bytes) -> None:
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError:
        os._exit(0)


if __name__ == "__main__":
    main()
