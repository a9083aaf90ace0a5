"""The server of the tests, and the line to it."""

from __future__ import annotations

import subprocess
import time

import pytest

from tests.support.ssh_server import Line, SshServer

pytestmark = pytest.mark.xdist_group("ssh")


def ssh(host: str, command: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["ssh", host, command], input=stdin, capture_output=True, check=False, timeout=60
    )


def test_a_login_runs_the_command_in_a_shell(access_point: str) -> None:
    ran = ssh(access_point, "cat; echo $((1 + 1))", b"from standard input\n")

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"from standard input\n2\n", b"")


def test_a_host_has_a_shell_of_its_own(access_point: str, ssh_server: SshServer) -> None:
    ssh_server.add_host("tokyo", 'TZ=Asia/Tokyo exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"')

    assert ssh("tokyo", "date +%Z").stdout == b"JST\n"


def test_a_line_counts_what_it_forwards(access_point: str, ssh_server: SshServer) -> None:
    with Line(ssh_server.port) as line:
        ssh_server.add_host("behind-a-line", port=line.port)

        assert ssh("behind-a-line", "cat", b"x" * 100_000).stdout == b"x" * 100_000
        assert 100_000 < line.sent < 130_000
        assert 100_000 < line.received < 130_000


def test_a_slow_line_delays_both_directions(access_point: str, ssh_server: SshServer) -> None:
    with Line(ssh_server.port, delay=0.02) as line:
        ssh_server.add_host("far-away", port=line.port)
        begun = time.monotonic()

        assert ssh("far-away", "cat", b"there and back").stdout == b"there and back"
        assert time.monotonic() - begun > 2 * line.delay


def test_a_line_that_is_cut_ends_its_connections(access_point: str, ssh_server: SshServer) -> None:
    with Line(ssh_server.port) as line:
        ssh_server.add_host("cut-off", port=line.port)
        client = subprocess.Popen(
            ["ssh", "cut-off", "echo begun; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with client:
            assert client.stdout is not None
            assert client.stdout.readline() == b"begun\n"
            line.cut()
            assert client.wait(60) == 255
        assert ssh("cut-off", "true").returncode == 255

        line.mend()

        assert ssh("cut-off", "true").returncode == 0
        assert line.connections == 3


def test_a_stalled_line_forwards_everything_later(access_point: str, ssh_server: SshServer) -> None:
    with Line(ssh_server.port) as line:
        ssh_server.add_host("stalled", port=line.port)
        line.stall()
        client = subprocess.Popen(["ssh", "stalled", "echo done"], stdout=subprocess.PIPE)
        with client:
            assert line.received == 0
            line.mend()
            assert client.communicate(timeout=60)[0] == b"done\n"
