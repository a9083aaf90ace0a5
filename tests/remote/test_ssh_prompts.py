"""What ssh asks before the screen opens; one connection for all; a host behind another one."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.dagdir_builder import Dagdir
from tests.support.ssh_server import Line, SshServer
from tests.support.terminal import PseudoTerminal, terminal_environment

pytestmark = pytest.mark.xdist_group("ssh")

ROOT = Path(__file__).parents[2]


def metlmon(server: SshServer, home: Path, *arguments: str) -> PseudoTerminal:
    """The real program on a terminal of its own, with this server's ``ssh``."""
    environment = terminal_environment(
        PATH=server.path_variable(),
        PYTHONPATH=os.pathsep.join([str(ROOT), *sys.path]),
        HOME=str(home),
        XDG_CACHE_HOME=None,
        XDG_CONFIG_HOME=None,
        XDG_STATE_HOME=None,
    )
    argv = [sys.executable, "-m", "metlmon", *arguments]
    return PseudoTerminal(argv, (100, 30), environment)


def answer(terminal: PseudoTerminal, prompt: str, text: str) -> None:
    """Answer a prompt, before which nothing but prompts has been written."""
    terminal.wait_for(prompt)
    assert b"\x1b" not in terminal.bytes
    terminal.command(text)


def screen(terminal: PseudoTerminal, text: str) -> str:
    """The screen as soon as it shows this text; ends the program."""
    terminal.wait_for(text)
    assert b"\x1b[?1049h" in terminal.bytes
    shown = terminal.text
    terminal.type("q")
    assert terminal.end() == 0
    assert terminal.restored()
    return shown


# --- what ssh asks ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "passphrases", "options", "answers"),
    [
        ("locked", ["open sesame"], "", {"Enter passphrase for key": "open sesame"}),
        ("two-keys", ["one", "two"], "", {"key-two-keys-0": "one", "key-two-keys-1": "two"}),
        (
            "unknown",
            [""],
            "HostKeyAlias new-machine\nStrictHostKeyChecking ask",
            {"continue connecting (yes/no/[fingerprint])?": "yes"},
        ),
    ],
    ids=["a passphrase", "a second factor", "an unknown host"],
)
def test_what_ssh_asks_is_asked_before_the_screen(
    ssh_server: SshServer,
    dagdir: Dagdir,
    tmp_path: Path,
    host: str,
    passphrases: list[str],
    options: str,
    answers: dict[str, str],
) -> None:
    port = ssh_server.two_keys_port if len(passphrases) > 1 else ssh_server.port
    with Line(port) as line:
        ssh_server.add_host(host, port=line.port, passphrases=passphrases, options=options)
        with metlmon(ssh_server, tmp_path, "watch", f"{host}:{dagdir.path}") as terminal:
            for prompt, text in answers.items():
                answer(terminal, prompt, text)

            shown = screen(terminal, "run0")
        assert line.connections == 1
    assert "passphrase" not in shown
    assert "fingerprint" not in shown
    assert b"open sesame" not in terminal.bytes
    assert terminal.bytes.count(b"Enter passphrase") == sum(map(bool, passphrases))


def test_home_asks_once_for_the_directories_of_one_host(
    ssh_server: SshServer, dagdir: Dagdir, tmp_path: Path
) -> None:
    names = ("first", "second", "third")
    for name in names:
        shutil.copytree(dagdir.path, tmp_path / name)
    with Line(ssh_server.port) as line:
        host = ssh_server.add_host("locked-home", port=line.port, passphrases=["open sesame"])
        words = [f"{host}:{tmp_path / name}" for name in names]
        with metlmon(ssh_server, tmp_path, "watch", *words) as terminal:
            answer(terminal, "Enter passphrase for key", "open sesame")

            terminal.until(lambda: terminal.text.count("▶ 1") == len(names), "not all are read")
            screen(terminal, "third")
        assert line.connections == 1
    assert terminal.bytes.count(b"Enter passphrase") == 1


# --- a host behind another one ------------------------------------------------------------------
