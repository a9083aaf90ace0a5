"""The connection to another machine: its start, loss and return, and its refusals."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.remote import agent, connection
from metlmon.remote.machine import MACHINES, connect_to
from metlmon.remote.paths import UnusableMachine, split_argument
from metlmon.snapshot.records import Snapshot
from tests.support.commands import Captured, run_command, usage_error
from tests.support.dagdir_builder import NODE, Dagdir, log_of
from tests.support.event_logs import Log
from tests.support.recordings import opened
from tests.support.ssh_server import SHELL, Line, SshServer
from tests.support.terminal import PseudoTerminal, terminal_environment
from tests.support.watched_session import WatchedSession

pytestmark = pytest.mark.xdist_group("ssh")


@contextmanager
def watched(path: str) -> Iterator[WatchedSession]:
    view = WatchedSession(DagdirReader(Path(path), live=True))
    view.begin()
    try:
        yield view
    finally:
        view.session.stop()


def clusters(view: WatchedSession) -> list[int]:
    return [job.cluster for job in view.session.queued_jobs()]


def is_complete(snapshot: Snapshot) -> bool:
    return snapshot.error is None and snapshot.progress.fraction == 1 and bool(snapshot.status.runs)


def test_cut_connection_returns_without_rereading(
    access_point: str, ssh_server: SshServer, dagdir: Dagdir
) -> None:
    with Line(ssh_server.port) as line:
        host = ssh_server.add_host("cut", port=line.port)
        with watched(connect_to(f"{host}:{dagdir.path}")) as view:
            before = view.until(is_complete)
            line.cut()
            shown = view.until(lambda snapshot: snapshot.error is not None)
            assert shown.error.startswith(f"{host}: connection lost since ")
            assert shown.error.endswith("; trying again")
            assert [run.key for run in shown.status.runs] == [run.key for run in before.status.runs]
            assert clusters(view) == [77]
            dagdir.append("metl.log", Log().submit(78, "run0-train_epoch1").data)

            line.mend()

            view.until(lambda snapshot: is_complete(snapshot) and clusters(view) == [77, 78])
            sizes = sum(path.stat().st_size for path in dagdir.path.iterdir())
            assert MACHINES[host].file_bytes == sizes


@pytest.mark.parametrize("is_killed", [True, False], ids=["a killed agent", "a silent line"])
def test_dead_or_silent_connection_is_made_again(
    access_point: str,
    ssh_server: SshServer,
    dagdir: Dagdir,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_killed: bool,
) -> None:
    soon = ("-T", "-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=1")
    monkeypatch.setattr(connection, "OPTIONS", soon)
    number = tmp_path / "process"
    with Line(ssh_server.port) as line:
        name = "killed" if is_killed else "silent-line"
        host = ssh_server.add_host(name, f"echo $$ > {number}\n{SHELL}", port=line.port)
        with watched(connect_to(f"{host}:{dagdir.path}")) as view:
            view.until(is_complete)
            first = int(number.read_text())

            if is_killed:
                os.kill(first, signal.SIGKILL)
            else:
                line.stall()

            view.until(lambda snapshot: "connection lost" in (snapshot.error or ""))
            line.mend()
            view.until(is_complete)
            assert int(number.read_text()) != first


def test_login_that_needs_a_prompt_is_reported(
    access_point: str, ssh_server: SshServer, dagdir: Dagdir
) -> None:
    keys = ssh_server.directory / "authorized_keys"
    with Line(ssh_server.port) as line:
        host = ssh_server.add_host("asks", port=line.port)
        with watched(connect_to(f"{host}:{dagdir.path}")) as view:
            view.until(is_complete)
            accepted = keys.read_text()
            keys.write_text("")
            try:
                line.cut()
                view.until(lambda snapshot: "connection lost" in (snapshot.error or ""))
                line.mend()
                shown = view.until(lambda snapshot: "would have to ask" in (snapshot.error or ""))
            finally:
                keys.write_text(accepted)
    assert shown.error is not None
    assert "restart metlmon, or share a connection (ControlMaster)" in shown.error


def test_command_ends_with_a_sentence_on_connection_loss(
    access_point: str,
    ssh_server: SshServer,
    dagdir: Dagdir,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    with Line(ssh_server.port) as line:
        host = ssh_server.add_host("lost", port=line.port)
        open_dagdir = DagdirReader.open

        def opened(reader: DagdirReader) -> None:
            open_dagdir(reader)
            line.cut()

        monkeypatch.setattr(DagdirReader, "open", opened)
        log = Log().submit(77, NODE)
        event = log.image(77, 5).events.pop()
        # More than is read ahead.
        dagdir.write("metl.log", log.data + event * ((2 << 20) // len(event)))

        error = usage_error("jobs", capsys, f"{host}:{dagdir.path}")

    assert f"{host}: connection lost since " in error


# --- start --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shell", "reason"),
    [
        ("exec head -c 3000000 /dev/zero", "what it answers is not from metlmon's agent"),
        ("echo This account is not available; exit 1", "This account is not available"),
        ("echo This account is not available >&2; exit 1", "This account is not available"),
        ("exit 0", "its login shell must run what ssh gives it"),
        (f"export PATH=/nowhere\n{SHELL}", "there is no Python 3 to run the agent with"),
    ],
)
def test_machine_without_an_agent_is_refused_with_the_reason(
    access_point: str,
    ssh_server: SshServer,
    dagdir: Dagdir,
    capsys: Captured,
    shell: str,
    reason: str,
) -> None:
    host = ssh_server.add_host(f"without-{abs(hash(shell))}", shell)

    assert reason in usage_error("status", capsys, f"{host}:{dagdir.path}")


def test_error_output_of_ssh_is_the_reason(
    access_point: str, ssh_server: SshServer, capsys: Captured
) -> None:
    with Line(ssh_server.port) as line:
        host = ssh_server.add_host("refused", port=line.port)
        line.cut()

        error = usage_error("status", capsys, f"{host}:ensemble")

    assert error.startswith(f"metlmon: {host}: ssh: ")
    assert "closed" in error or "reset" in error


@pytest.mark.parametrize(
    ("word", "host"),
    [
        ("access-point:runs/ens", "access-point"),
        ("me@access-point:/runs", "me@access-point"),
        ("access-point:", "access-point"),
        ("[::1]:runs", "[::1]"),
        ("me@[fe80::1%eth0]:~/a:b", "me@[fe80::1%eth0]"),
        ("./access-point:runs", None),
        ("/access-point:runs", None),
        ("runs/access-point:ens", None),
        ("here:it-is", None),
        ("https://example.org/ens", None),
        ("ens", None),
    ],
)
def test_remote_paths_are_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, host: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here:it-is").mkdir()
    argument = split_argument(word)
    assert (argument and argument[0]) == host


@pytest.mark.parametrize("host", ["-oProxyCommand=touch x", "-Fx", "me@-oX", "a b", "a\nb", ""])
def test_host_like_an_option_is_refused(host: str) -> None:
    with pytest.raises(UnusableMachine, match="no host can have this name"):
        split_argument(f"{host}:ens")


# --- read-only ----------------------------------------------------------------------------------


def test_commands_print_the_same_as_locally(
    access_point: str, dagdir: Dagdir, capsys: Captured
) -> None:
    commands = ("status", "health", "jobs", "nodes", "sites", "timeline", "estimate", "run run0")
    for command in commands:
        code, out, err = run_command(command, capsys, dagdir.path, "--json", "--no-live")
        there = run_command(command, capsys, f"{access_point}:{dagdir.path}", "--json", "--no-live")
        assert out.startswith("{")
        assert (there[0], as_here(there[1]), as_here(there[2])) == (code, out, err)


def as_here(text: str) -> str:
    return text.replace("access-point:", "")


@pytest.mark.parametrize(
    "command", ["act hold", "check", "submit", "continue", "advise", "config validate"]
)
def test_commands_that_write_or_use_the_pool_are_refused(
    access_point: str, dagdir: Dagdir, capsys: Captured, command: str
) -> None:
    before = MACHINES[access_point].channel.exchanges

    error = usage_error(command, capsys, f"{access_point}:{dagdir.path}")

    assert f"{access_point}:{dagdir.path}: metlmon {command.split()[0]} is for directories" in error
    assert MACHINES[access_point].channel.exchanges == before


def test_local_queue_is_not_queried(access_point: str, dagdir: Dagdir, capsys: Captured) -> None:
    error = usage_error("status --queue", capsys, f"{access_point}:{dagdir.path}")

    assert "--queue asks the schedd of this machine" in error


def test_remote_dag_opens_no_local_file(
    access_point: str, dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = dagdir.path.parent / "outside"
    outside.mkdir()
    up = "../" * 40
    for name in ("a.dag", "b.sub", "c.log", "d.status", "e.log"):
        (outside / name).write_bytes(log_of(99))
    names = (f"{outside}/", f"{up}{outside}/"[:-1] + "/")
    lines = [
        f"INCLUDE {name}a.dag\nSPLICE s{i} {name}a.dag\nSUBDAG EXTERNAL x{i} {name}a.dag\n"
        f"JOB n{i} {name}b.sub DIR {name}\nJOB m{i} b.sub DIR {up}\n"
        f"NODE_STATUS_FILE {name}d.status\nJOBSTATE_LOG {name}e.log\n"
        for i, name in enumerate(names)
    ]
    text = (dagdir.path / "run.dag").read_text()
    dagdir.write("run.dag", text.replace("metl.log", f"{outside}/c.log") + "".join(lines))
    path = connect_to(f"{access_point}:{dagdir.path}")
    used: list[str] = []
    for name in ("open", "stat", "lstat", "scandir", "listdir", "readlink"):
        call = getattr(os, name)

        def noted(path: Any, *given: Any, call: Any = call, **more: Any) -> Any:
            used.append(os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else "")
            return call(path, *given, **more)

        monkeypatch.setattr(os, name, noted)

    reader = opened(Path(path))

    assert 99 in {job.cluster for job in reader.snapshot_builder().job_rows()}
    assert not [each for each in used if "outside" in each or "ensemble" in each]


# --- the agent itself ---------------------------------------------------------------------------

MODULES = "collections.abc contextlib errno hashlib json os stat struct sys time typing zlib"

OS_CALLS = (
    "stat lstat fstat scandir open pread lseek close geteuid strerror path stat_result "
    "SEEK_DATA O_RDONLY O_NONBLOCK O_NOCTTY O_CLOEXEC"
)
"""What the agent uses of ``os``: nothing that writes, and nothing newer than Python 3.6."""


def test_agent_is_python_3_6_and_only_reads() -> None:
    tree = ast.parse(Path(agent.__file__).read_text(), feature_version=(3, 6))
    imported, used, builtins = set[str](), set[str](), set[str]()
    for node in ast.walk(tree):
        assert not isinstance(node, ast.JoinedStr)
        if isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used.update({node.attr} if node.value.id == "os" else ())
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            builtins.add(node.func.id)
    assert imported == set(MODULES.split())
    assert used == set(OS_CALLS.split())
    assert not builtins & {"open", "exec", "eval", "compile", "__import__", "getattr", "setattr"}


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
    """Answer a prompt; only prompts may have been written before."""
    terminal.wait_for(prompt)
    assert b"\x1b" not in terminal.bytes
    terminal.command(text)


def screen(terminal: PseudoTerminal, text: str) -> str:
    """The screen once it shows this text; ends the program."""
    terminal.wait_for(text)
    assert b"\x1b[?1049h" in terminal.bytes
    shown = terminal.text
    terminal.type("q")
    assert terminal.end() == 0
    assert terminal.restored()
    return shown


# --- prompts ------------------------------------------------------------------------------------


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
def test_prompts_of_ssh_come_before_the_screen(
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


def test_home_prompts_once_for_each_host(
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
