"""One ``ssh`` to a machine, and the agent at its other end.

The first connection is made before any screen, so that ssh can prompt on the terminal. When it is
lost, a thread connects again in the background, where ssh must not prompt (BatchMode).
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
import zlib
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, Protocol

from metlmon.remote.agent import HEADER, MAX_FRAME
from metlmon.remote.paths import Disconnected, UnusableMachine, ssh_host

OPTIONS: Final = tuple(
    "-T -o ServerAliveInterval=2 -o ServerAliveCountMax=3 -o ConnectTimeout=10".split()
)
"""A connection is given up if nothing arrives for 6 s."""

IN_BACKGROUND: Final = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=5")
"""These precede the other options, since ssh uses the first value of each."""

LOGIN_SECONDS: Final = 30.0
"""How long a login may take if ssh does not prompt."""

PROMPT_SECONDS: Final = 300.0
"""The same if it may prompt on the terminal: sshd itself waits for two minutes, and so does that of
a jump host."""

ANSWER_SECONDS: Final = 40.0
"""How long an answer may take, plus a second per ``SLOWEST_RATE`` bytes of it: an exchange may ask
about some thousand files, and a file server may take 10 ms for each."""

SLOWEST_RATE: Final = 8000
"""Bytes per second of the slowest supported connection."""

RETRY_SECONDS: Final = (0.0, 0.5, 1.0, 2.0, 3.0)
"""Pauses before attempts to connect again; the last one is repeated."""

STEADY_SECONDS: Final = 30.0
"""After a connection that lasted this long, the first attempt to reconnect is made at once."""

REFUSED_SECONDS: Final = 30.0
"""Pause between attempts if ssh would have to prompt: each may count as a failed login."""

NOISE_BYTES: Final = 1 << 20
"""Maximum bytes that a login shell may print before the agent starts."""

NOISE_SHOWN: Final = 400
"""Bytes of that output that are quoted as the reason why the agent did not start."""

STDERR_LINES: Final = 20

PYTHONS: Final = (
    "python3",
    "/usr/libexec/platform-python",
    *(f"python3.{minor}" for minor in range(14, 5, -1)),
)
"""Where Python is searched: Red Hat's system Python is not in PATH."""

NO_PYTHON: Final = 127
"""The exit status of the shell if none of them exists."""

NOT_THE_AGENT: Final = "its answer is not from metlmon's agent"

REMEDY: Final = "its login shell must run what ssh gives it, as in: ssh HOST echo hello"

SSH_FAILED: Final = 255
"""The exit status of ssh for its own errors."""

PROMPT_ERRORS: Final = ("permission denied", "host key verification failed")
"""Parts of ssh's last line, in lower case, when it would have had to prompt."""

NO_TERMINAL: Final = (
    "ssh has no terminal here to ask on: log in once with ssh, and keep the key in ssh-agent or "
    "share that connection (ControlMaster)"
)


def _lost(host: str, since: float | None, reason: str = "", cause: str = "") -> Disconnected:
    """The error while disconnected; ``reason``: why the last attempt failed.

    ``since``: seconds since 1970; None: never connected so far. ``cause``: why the connection was
    lost, unless ssh ended.
    """
    then = "trying again"
    if _would_prompt(reason):
        then = "ssh would have to ask: restart metlmon, or share a connection (ControlMaster)"
    if since is None:
        why = f" ({reason.removeprefix(f'{host}: ')})" if reason else ""
        return Disconnected(f"{host}: no connection yet{why}; {then}", time.time())
    at = time.strftime("%H:%M:%S", time.localtime(since))
    because = f" ({cause})" if cause else ""
    return Disconnected(f"{host}: connection lost since {at}{because}; {then}", since)


def _would_prompt(reason: str) -> bool:
    return any(part in reason.lower() for part in PROMPT_ERRORS)


def _has_terminal() -> bool:
    """Whether this process has a terminal: ssh prompts there, whatever standard input is."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


class Channel(Protocol):
    """Exchanges frames with the agent of a machine."""

    host: str

    def exchange(self, frame: bytes) -> bytes:
        """Send a frame; return the content of the response. Raises Disconnected."""

    def drop(self) -> None:
        """Reconnect, since a response was not valid."""

    def close(self) -> None:
        """End the connection."""


class _TimedOut(OSError):
    """The far side did not answer, or accept a request, in time; ``str()`` is a sentence."""


class _Deadline:
    """The time by which data from the far side must have arrived."""

    def __init__(self, seconds: float, sentence: str) -> None:
        self._end = time.monotonic() + seconds
        self._sentence = sentence

    def extend(self, size: int) -> None:
        """Allow more time for the bytes that have arrived."""
        self._end += size / SLOWEST_RATE

    def wait(self, file: IO[bytes], *, to_write: bool = False) -> None:
        """Wait until a pipe is ready. Raises _TimedOut."""
        seconds = self._end - time.monotonic()
        read, write = ([], [file]) if to_write else ([file], [])
        if seconds <= 0 or not any(select.select(read, write, [], seconds)):
            raise _TimedOut(self._sentence)


class Connection:
    """The connection to one machine; thread-safe.

    ``host``: as typed. ``ask``: whether ssh may prompt on the terminal. Connects at once, and
    raises UnusableMachine with ssh's own reason; or, without ``wait``, in the background.
    """

    def __init__(self, host: str, *, ask: bool = True, wait: bool = True) -> None:
        self.host = host
        self.lost_since: float | None = None
        self.received_bytes = self.exchanges = self.connections = 0
        self._reason = self._cause = ""
        self._connected_at = float("-inf")
        self._attempts = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._process: _Process | None = None
        if wait:
            self._connect(ask)
        else:
            self._connect_in_background()

    def exchange(self, frame: bytes) -> bytes:
        """Implement :meth:`Channel.exchange`."""
        with self._lock:
            process = self._process
            if process is None:
                raise _lost(self.host, self.lost_since, self._reason, self._cause)
            try:
                content = process.exchange(frame)
            except (OSError, ValueError) as error:
                said = isinstance(error, _TimedOut | ValueError)
                self._lose(process, str(error) if said else "")
                raise _lost(self.host, self.lost_since, "", self._cause) from error
            self.received_bytes += len(content)
            self.exchanges += 1
            return content

    def drop(self) -> None:
        """Implement :meth:`Channel.drop`."""
        with self._lock:
            if self._process is not None:
                self._lose(self._process, NOT_THE_AGENT)

    def close(self) -> None:
        """End the connection."""
        self._stopped.set()
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def _connect(self, ask: bool) -> None:
        """Connect. Raises UnusableMachine."""
        process = _Process(self.host, ask)
        try:
            process.start(PROMPT_SECONDS if ask and _has_terminal() else LOGIN_SECONDS)
        except (OSError, ValueError) as error:
            reason = process.reason() or str(error)
            process.close()
            if ask and _would_prompt(reason) and not _has_terminal():
                reason = f"{reason.rstrip('.')}; {NO_TERMINAL}"
            raise UnusableMachine(f"{self.host}: {reason}") from None
        except BaseException:
            process.close()
            raise
        with self._lock:
            self._process, self.lost_since, self._reason = process, None, ""
            self._connected_at = time.monotonic()
            self.connections += 1
        if self._stopped.is_set():
            self.close()

    def _lose(self, process: _Process, cause: str) -> None:
        """Close a connection that does not work any more, and start reconnecting."""
        process.close()
        self._process, self.lost_since, self._cause = None, time.time(), cause
        if time.monotonic() - self._connected_at > STEADY_SECONDS:
            self._attempts = 0
        self._connect_in_background()

    def _connect_in_background(self) -> None:
        threading.Thread(target=self._connect_again, name="metlmon-ssh", daemon=True).start()

    def _connect_again(self) -> None:
        while not self._stopped.is_set():
            pause = RETRY_SECONDS[min(self._attempts, len(RETRY_SECONDS) - 1)]
            self._attempts += 1
            if self._stopped.wait(REFUSED_SECONDS if _would_prompt(self._reason) else pause):
                return
            try:
                self._connect(ask=False)
                return
            except UnusableMachine as error:
                self._reason = str(error)


class _Process:
    """An ``ssh`` process whose agent is started by :meth:`start`."""

    def __init__(self, host: str, ask: bool) -> None:
        self._ask = ask
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        # Marks the beginning of the agent's output; random, so no login shell prints it.
        self.marker = f"metlmon-agent-{os.urandom(8).hex()}\n".encode()
        source = zlib.compress(_agent_source() + f"\nmain({self.marker!r})\n".encode(), 9)
        self._started = False
        self._noise = b""
        try:
            self._process = subprocess.Popen(
                ssh_command(ssh_host(host), len(source), ask=ask),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Without a controlling terminal, ssh cannot prompt, and no key interrupts it.
                start_new_session=not ask,
            )
        except FileNotFoundError:
            raise UnusableMachine("ssh is not installed here; install the OpenSSH client") from None
        self._source = source
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._input: IO[bytes] = self._process.stdin
        # A far side that does not read must not block this one.
        os.set_blocking(self._input.fileno(), False)
        self._output: IO[bytes] = self._process.stdout
        self._stderr_thread = threading.Thread(
            target=self._read_stderr, args=(self._process.stderr,), daemon=True
        )
        self._stderr_thread.start()

    @property
    def agent(self) -> str:
        return self.marker.decode().strip()

    def start(self, seconds: float) -> None:
        """Send the agent, and skip anything before its output. Raises OSError, ValueError."""
        deadline = _Deadline(seconds, f"no agent answers within {seconds:.0f} s of the login")
        self._write(self._source, deadline)
        seen, skipped = b"", 0
        while self.marker not in seen:
            deadline.wait(self._output)
            data = os.read(self._output.fileno(), 1 << 16)
            skipped += len(data)
            if not data:
                raise OSError("the connection has ended")
            if skipped > NOISE_BYTES:
                raise ValueError(f"what it answers is not from metlmon's agent; {REMEDY}")
            seen = (seen + data)[-(NOISE_SHOWN + len(data)) :]
            self._noise = seen
        _, _, self._rest = seen.partition(self.marker)
        self._started = True

    def exchange(self, frame: bytes) -> bytes:
        """Send a frame, and return the content of the next one. Raises OSError, ValueError."""
        late = f"no whole answer within {ANSWER_SECONDS:.0f} s"
        deadline = _Deadline(ANSWER_SECONDS, late)
        self._write(frame, deadline)
        length, channel = HEADER.unpack(self._read(HEADER.size, deadline))
        if length > MAX_FRAME or channel != HEADER.unpack_from(frame)[1]:
            raise ValueError(NOT_THE_AGENT)
        return self._read(length, deadline)

    def reason(self) -> str:
        """Why the agent did not start, in ssh's own words if ssh failed; may be empty."""
        if self._process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
        self._stderr_thread.join(1.0)
        code = self._process.poll()
        printed = self._noise.decode("utf-8", "replace").splitlines()
        lines = [*map(_printable, printed), *self._stderr]
        last = next((line for line in reversed(lines) if line.strip()), "")[:NOISE_SHOWN]
        if code == NO_PYTHON:
            return "there is no Python 3 to run the agent with; install python3 there"
        if code == SSH_FAILED:
            return f"ssh: {last.removeprefix('ssh: ')}" if last else "ssh could not connect"
        return f"the agent did not start: {last or REMEDY}" if code is not None else ""

    def close(self) -> None:
        """End the process."""
        for file in (self._input, self._output):
            with suppress(OSError):
                file.close()
        self._process.terminate()
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _write(self, data: bytes, deadline: _Deadline) -> None:
        rest = memoryview(data)
        while rest:
            deadline.wait(self._input, to_write=True)
            written = os.write(self._input.fileno(), rest)
            deadline.extend(written)
            rest = rest[written:]

    def _read(self, length: int, deadline: _Deadline) -> bytes:
        """Read exactly ``length`` bytes."""
        data = bytearray(self._rest[:length])
        self._rest = self._rest[length:]
        while len(data) < length:
            deadline.wait(self._output)
            piece = os.read(self._output.fileno(), min(length - len(data), 1 << 20))
            if not piece:
                raise OSError("the connection has ended")
            data += piece
            deadline.extend(len(piece))
        return bytes(data)

    def _read_stderr(self, stderr: IO[bytes]) -> None:
        """Store the last lines of ssh; until the agent runs, show them, since they may instruct."""
        show = self._ask and sys.stderr.isatty()
        with stderr:
            for line in iter(lambda: stderr.readline(1 << 12), b""):
                text = _printable(line.decode("utf-8", "replace").rstrip())
                self._stderr.append(text)
                if show and not self._started:
                    print(text, file=sys.stderr)


def ssh_command(host: str, source_bytes: int, *, ask: bool) -> list[str]:
    """The command line that runs the agent, whose compressed source then follows on stdin."""
    code = f"import sys,zlib;exec(zlib.decompress(sys.stdin.buffer.read({source_bytes})))"
    # Needs no quoting that login shells such as csh or fish read differently from sh.
    script = "; ".join(
        (
            f"for python in {' '.join(PYTHONS)}",
            f'do command -v $python > /dev/null 2>&1 && exec $python -I -c "{code}"',
            "done",
            f"exit {NO_PYTHON}",
        )
    )
    options = OPTIONS if ask else (*IN_BACKGROUND, *OPTIONS)
    return ["ssh", *options, "--", host, f"exec /bin/sh -c '{script}'"]


def _printable(text: str) -> str:
    """Text without control characters: it comes from another machine."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _agent_source() -> bytes:
    return Path(__file__).with_name("agent.py").read_bytes()
