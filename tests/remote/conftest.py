"""What the tests over ssh share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.ssh_server import NoSshServer, SshServer

REQUIRED = "METLMON_POOL_REQUIRED"
"""Where this is set (in the project's own checks) having no server is a failure."""


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


@pytest.fixture
def access_point(ssh_server: SshServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a host to which this process's ``ssh`` can log in."""
    monkeypatch.setenv("PATH", ssh_server.path_variable())
    return "access-point"
