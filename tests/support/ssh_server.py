"""An OpenSSH server on the loopback interface, and a connection to it that can be cut.

The server, its keys and the client's configuration are in one directory; the user's ``~/.ssh`` is
not read. Programs that start ``ssh`` use the configuration through the directory
:attr:`SshServer.bin`, put first in ``PATH``.
"""

from __future__ import annotations

import getpass
import os
import selectors
import shlex
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

SSHD: Final = shutil.which("sshd", path=f"{os.defpath}:/usr/sbin:/usr/local/sbin")
SSH: Final = shutil.which("ssh")
SHELL: Final = 'exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"'
"""What a login runs by default, as sshd does it without a forced command."""

_SERVER: Final = """\
Port {port}
Port {two_keys_port}
ListenAddress 127.0.0.1
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/authorized_keys
PidFile {directory}/sshd.pid
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
PrintMotd no
Match LocalPort {two_keys_port}
  AuthenticationMethods publickey,publickey
"""

_CLIENT: Final = """\
Include {directory}/hosts
Host *
  HostName 127.0.0.1
  User {user}
  IdentitiesOnly yes
  IdentityAgent none
  StrictHostKeyChecking yes
  HostKeyAlias access-point
  UserKnownHostsFile {directory}/known_hosts
  GlobalKnownHostsFile none
"""


class NoSshServer(Exception):
    """No OpenSSH server can be used; ``str()`` is the reason."""


class SshServer:
    """A running sshd that its own user can log in to, by host names of its client's configuration.

    ``bin``: a directory with an ``ssh`` that uses this configuration. ``two_keys_port``: where a
    login needs two keys. Use it with ``with``.
    """

    def __init__(self, directory: Path) -> None:
        if SSHD is None or SSH is None:
            raise NoSshServer("no OpenSSH server or client here (openssh-server, openssh-client)")
        self.directory = directory
        self.bin = directory / "bin"
        self.port, self.two_keys_port = free_port(), free_port()
        self._config = directory / "ssh_config"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        directory = self.directory
        self.bin.mkdir()
        client = self.bin / "ssh"
        client.write_text(f'#!/bin/sh\nexec {SSH} -F {shlex.quote(str(self._config))} "$@"\n')
        client.chmod(0o755)
        _make_key(directory / "host_key")
        host_key = (directory / "host_key.pub").read_text()
        (directory / "known_hosts").write_text(f"access-point {host_key}")
        self._config.write_text(_CLIENT.format(user=getpass.getuser(), directory=directory))
        (directory / "sshd_config").write_text(
            _SERVER.format(port=self.port, two_keys_port=self.two_keys_port, directory=directory)
        )
        self.add_host("access-point")
        if os.geteuid() == 0:
            # The directory for privilege separation is a constant of the binary.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        assert SSHD is not None
        with (directory / "sshd.log").open("wb") as log:
            self._process = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(directory / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        self._wait_for_port()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def add_host(
        self,
        name: str,
        shell: str = SHELL,
        port: int | None = None,
        passphrases: Sequence[str] = ("",),
        options: str = "",
    ) -> str:
        """Add a host to the client's configuration; its login runs ``shell`` for a command.

        ``port``: of a :class:`Line` to the server. ``passphrases``: one for each of its keys.
        ``options``: lines of its configuration. Returns the name.
        """
        login = self.directory / f"login-{name}"
        login.write_text(f"#!/bin/sh\n{shell}\n")
        login.chmod(0o755)
        section = f"Host {name}\nPort {port or self.port}\n{options}\n"
        for number, passphrase in enumerate(passphrases):
            key = self.directory / f"key-{name}-{number}"
            _make_key(key, passphrase)
            with (self.directory / "authorized_keys").open("a") as keys:
                keys.write(f'command="exec {login}" {Path(f"{key}.pub").read_text()}')
            section += f"IdentityFile {key}\n"
        with (self.directory / "hosts").open("a") as hosts:
            hosts.write(section)
        return name

    def path_variable(self) -> str:
        """A ``PATH`` whose first ``ssh`` is that of this server."""
        return f"{self.bin}:{os.environ['PATH']}"

    def _wait_for_port(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + 30
        while self._process.poll() is None and time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                self._log_in()
                return
            time.sleep(0.01)
        reason = (self.directory / "sshd.log").read_text("utf-8", "replace").strip()
        self.__exit__()
        raise NoSshServer(f"sshd does not start here: {reason or 'no reason given'}")

    def _log_in(self) -> None:
        """Raise NoSshServer if a command cannot be run: an account may be locked."""
        command = [str(self.bin / "ssh"), "access-point", "true"]
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60)
        if ran.returncode != 0:
            self.__exit__()
            raise NoSshServer(f"no login at sshd here: {ran.stderr.decode(errors='replace')}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _make_key(path: Path, passphrase: str = "") -> None:
    # One round of key derivation: the default takes a second on a busy machine.
    kind = ["-t", "ed25519", "-a", "1", "-N", passphrase, "-C", path.name]
    command = ["ssh-keygen", "-q", *kind, "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


class Line:
    """Forwards a port of the loopback interface to another one.

    ``connections``: how many there were. Use it with ``with``.
    """

    def __init__(self, to_port: int) -> None:
        self.connections = 0
        self._to_port = to_port
        self._is_cut = self._is_stalled = self._is_closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, woken = socket.socketpair()
        self._selector.register(woken, selectors.EVENT_READ)
        self._woken = woken
        self._peers: dict[socket.socket, socket.socket] = {}
        self._thread = threading.Thread(target=self._forward, name="line", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        # The thread may have closed it, when it woke up.
        with suppress(OSError):
            self._wake.send(b"x")
        self._thread.join()

    def cut(self) -> None:
        """Close all connections, and refuse new ones until :meth:`mend`."""
        self._is_cut, self._is_stalled = True, False
        self._wake.send(b"x")

    def stall(self) -> None:
        """Forward nothing until :meth:`mend`: connections stay open."""
        self._is_stalled = True
        self._wake.send(b"x")

    def mend(self) -> None:
        """Forward again, and take new connections."""
        self._is_cut = self._is_stalled = False
        self._wake.send(b"x")

    # --- in the thread ----------------------------------------------------------------------

    def _forward(self) -> None:
        while not self._is_closed:
            if self._is_stalled:
                self._woken.recv(64)
                continue
            for key, _ in self._selector.select():
                source = key.fileobj
                assert isinstance(source, socket.socket)
                if source is self._woken:
                    source.recv(64)
                elif source is self._listener:
                    self._accept()
                elif source in self._peers:
                    self._receive(source)
            if self._is_cut:
                self._close_all()
        self._close_all()
        for each in (self._listener, self._wake, self._woken, self._selector):
            each.close()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        self.connections += 1
        if self._is_cut:
            client.close()
            return
        server = socket.create_connection(("127.0.0.1", self._to_port))
        for source, target in ((client, server), (server, client)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peers[source] = target
            self._selector.register(source, selectors.EVENT_READ)

    def _receive(self, source: socket.socket) -> None:
        data = b""
        with suppress(OSError):
            data = source.recv(1 << 16)
        if not data:
            self._selector.unregister(source)
        with suppress(OSError):
            if data:
                self._peers[source].sendall(data)
            else:
                self._peers[source].shutdown(socket.SHUT_WR)

    def _close_all(self) -> None:
        for source in self._peers:
            with suppress(KeyError, ValueError):
                self._selector.unregister(source)
            source.close()
        self._peers.clear()
