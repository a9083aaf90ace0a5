"""Fixtures of the tests over ssh."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from metlmon.remote.connection import Connection
from metlmon.remote.machine import MACHINES, add_machine
from metlmon.remote.paths import HOSTS
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log
from tests.support.ssh_server import NoSshServer, SshServer

REQUIRED = "METLMON_POOL_REQUIRED"
"""Where this is set (in the project's own checks) having no server is a failure."""


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Dagdir:
    """A dagdir with a running job."""
    dagdir = Dagdir(tmp_path / "ensemble")
    dagdir.write("metl.log", Log().submit(77, NODE).execute(77, 1).data)
    return dagdir


@pytest.fixture(scope="session")
def ssh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """An sshd on the loopback interface; ``access-point`` is a name of its host."""
    try:
        with SshServer(tmp_path_factory.mktemp("ssh")) as server:
            yield server
    except NoSshServer as reason:
        if os.environ.get(REQUIRED):
            pytest.fail(f"an ssh server is required here: {reason}", pytrace=False)
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def shared_connection(ssh_server: SshServer) -> Iterator[Connection]:
    """A connection to ``access-point`` for all tests: a login takes half a second."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", ssh_server.path_variable())
        connection = Connection("access-point")
    yield connection
    connection.close()


@pytest.fixture
def access_point(
    ssh_server: SshServer, shared_connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The name of a host to which this process's ``ssh`` can log in, and which is connected."""
    monkeypatch.setenv("PATH", ssh_server.path_variable())
    add_machine(shared_connection)
    yield shared_connection.host
    for machine in MACHINES.values():
        if machine.channel is not shared_connection:
            machine.channel.close()
    MACHINES.clear()
    HOSTS.clear()
