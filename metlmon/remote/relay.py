"""Shares the connections of this process with a child process: one ``ssh`` to each machine.

The parent listens on a socket in a private directory. A child connects once for each machine, and
sends its name in a line and then requests (:mod:`metlmon.remote.agent`). Each is answered by a
frame whose header has, in place of the channel, the kind of its content.
"""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

from metlmon.remote.agent import HEADER, MAX_FRAME
from metlmon.remote.machine import MACHINES
from metlmon.remote.paths import Disconnected

RECONNECT: Final = HEADER.pack(0, 0)
"""The frame with which a child requests a new connection."""

RESPONSE: Final = 0
"""The kind of a frame with the agent's response."""

LOST: Final = 1
"""The kind of a frame with a JSON list: the error's message, and when the connection was lost."""

FIRST_CHANNEL: Final = 1
"""Channel 0 is that of the parent itself; the 255 others are used in turn."""


class Relay:
    """Passes requests of a child on to the machines of this process."""

    def __init__(self) -> None:
        self._directory = tempfile.mkdtemp(prefix="metlmon-")
        self.path = str(Path(self._directory, "relay"))
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen()
        self._numbers = count()
        threading.Thread(target=self._accept, name="metlmon-relay", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                child, _ = self._listener.accept()
            except OSError:
                return
            channel = FIRST_CHANNEL + next(self._numbers) % (256 - FIRST_CHANNEL)
            thread = threading.Thread(
                target=self._serve, args=(child, channel), name="metlmon-relay", daemon=True
            )
            thread.start()

    def _serve(self, child: socket.socket, channel: int) -> None:
        with child, child.makefile("rb") as requests, suppress(OSError):
            machine = MACHINES[requests.readline().decode().rstrip("\n")]
            while len(header := requests.read(HEADER.size)) == HEADER.size:
                if header == RECONNECT:
                    machine.channel.drop()
                    continue
                length, _ = HEADER.unpack(header)
                frame = HEADER.pack(length, channel) + requests.read(length)
                try:
                    kind, content = RESPONSE, machine.channel.exchange(frame)
                except Disconnected as lost:
                    kind, content = LOST, json.dumps([str(lost), lost.since]).encode()
                child.sendall(HEADER.pack(len(content), kind) + content)


class RelayedChannel:
    """The channel to a machine in a child process, via the parent's :class:`Relay` at ``path``."""

    def __init__(self, host: str, path: str) -> None:
        self.host = host
        self._path = path
        self._parent: socket.socket | None = None

    def exchange(self, frame: bytes) -> bytes:
        """Implement :meth:`metlmon.remote.connection.Channel.exchange`."""
        if self._parent is None:
            self._parent = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._parent.connect(self._path)
            self._parent.sendall(f"{self.host}\n".encode())
        self._parent.sendall(frame)
        length, kind = HEADER.unpack(self._read(HEADER.size))
        content = self._read(min(length, MAX_FRAME))
        if kind == LOST:
            raise Disconnected(*json.loads(content))
        return content

    def drop(self) -> None:
        """Implement :meth:`metlmon.remote.connection.Channel.drop`."""
        if self._parent is not None:
            self._parent.sendall(RECONNECT)

    def close(self) -> None:
        """Close the connection to the parent."""
        if self._parent is not None:
            self._parent.close()

    def _read(self, length: int) -> bytes:
        assert self._parent is not None
        data = bytearray()
        while len(data) < length:
            piece = self._parent.recv(min(length - len(data), 1 << 20))
            if not piece:
                raise OSError("the process that has the connection has ended")
            data += piece
        return bytes(data)
