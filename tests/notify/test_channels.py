"""The terminal, a command and a webhook: what each of them gets."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from metlmon.config.readers import read_webhook
from metlmon.notify import channels
from metlmon.notify.channels import (
    CommandChannel,
    SendError,
    TerminalChannel,
    WebhookChannel,
    terminal_sequence,
)
from metlmon.notify.events import Message, NotifyEvent
from tests.support.web_listener import WebListener

HELD = NotifyEvent(key="h", name="held", text="held; out of memory · 2 runs", runs=2)
MESSAGE = Message(ensemble="l;r", dagdir="/home/ada/lr", events=(HELD,))
SCRIPT = (
    "import json, os, sys; names = sorted(n for n in os.environ if n.startswith('METLMON_T'));"
    "json.dump([sys.argv[1:], [os.environ[n] for n in names], json.load(sys.stdin)],"
    " open({!r}, 'w'))"
)


def test_the_bell_and_the_messages_of_a_terminal() -> None:
    assert terminal_sequence(("bell",), MESSAGE, {"TMUX": "x"}) == "\a"
    assert terminal_sequence(("osc9",), MESSAGE, {}) == (
        "\x1b]9;metlmon: l;r: held: held; out of memory · 2 runs\a"
    )
    assert terminal_sequence(("bell", "osc777"), MESSAGE, {}) == (
        "\a\x1b]777;notify;metlmon: l,r: held;held; out of memory · 2 runs\a"
    )


@pytest.mark.parametrize("environment", [{"TMUX": "/tmp/tmux-0/default,1,0"}, {"TERM": "tmux"}])
def test_tmux_passes_a_message_on(environment: dict[str, str]) -> None:
    written = terminal_sequence(("osc9", "osc777"), MESSAGE, environment)
    start, end = "\x1bPtmux;", "\x1b\\"
    assert written.startswith(start)
    assert written.endswith(end)
    inside = written[len(start) : -len(end)].replace("\x1b\x1b", "\x1b")
    assert inside == terminal_sequence(("osc9", "osc777"), MESSAGE, {})


def test_a_terminal_that_cannot_be_written_to_has_not_been() -> None:
    with pytest.raises(SendError):
        TerminalChannel(("bell",), lambda text: False).send(MESSAGE)


def test_a_command_gets_texts_by_its_environment_and_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("METLMON_TRACEBACK", raising=False)
    file, victim = tmp_path / "got", tmp_path / "victim"
    evil = NotifyEvent(
        key="h", name="held", text=f"-x $(touch {victim}) ; `touch {victim}` {{title}}"
    )
    message = Message(ensemble="lr", dagdir="/lr", events=(evil,))
    program = [sys.executable, "-c", SCRIPT.format(str(file))]
    CommandChannel([*program, "{text}", "a b"]).send(message)
    arguments, texts, document = json.loads(file.read_text())
    assert arguments == ["{text}", "a b"]
    assert texts == [f" {evil.text}", "lr: held"]
    assert document == message.json()
    assert not victim.exists()


def test_a_shell_does_not_run_a_text(tmp_path: Path) -> None:
    victim, file = tmp_path / "victim", tmp_path / "got"
    evil = NotifyEvent(key="h", name="held", text=f"x; touch {victim} #`touch {victim}`")
    message = Message(ensemble="lr", dagdir="/lr", events=(evil,))
    command = f'printf "%s|%s" "$METLMON_TEXT" "$METLMON_EVENT" >{file}'
    for words in (["sh", "-c", command], ["env", "sh", "-uc", command]):
        CommandChannel(words).send(message)
        assert file.read_text() == f"{evil.text}|held"
    assert not victim.exists()


def test_a_relative_home_is_no_place_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", ".")
    with pytest.raises(SendError, match="HOME is a relative path"):
        CommandChannel(["~/tell"]).send(MESSAGE)


def test_a_command_that_fails_says_so_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say = "import sys; sys.exit('no\\x1b[2J password=hunter2secret')"
    with pytest.raises(SendError, match=r"^exit status 1: no\\x1b\[2J password=\(hidden\)$"):
        CommandChannel([sys.executable, "-c", say]).send(MESSAGE)
    with pytest.raises(SendError, match="cannot be run: No such file"):
        CommandChannel([str(tmp_path / "none")]).send(MESSAGE)
    # A program of the current directory is not found, whatever PATH says.
    (tmp_path / "tell").write_text("#!/bin/sh\n")
    (tmp_path / "tell").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}:")
    with pytest.raises(SendError, match="not in PATH"):
        CommandChannel(["tell"]).send(MESSAGE)
    monkeypatch.setattr(channels, "COMMAND_SECONDS", 0.1)
    with pytest.raises(SendError, match="did not end"):
        CommandChannel([sys.executable, "-c", "import signal; signal.pause()"]).send(MESSAGE)


def test_a_webhook_gets_json() -> None:
    with WebListener() as listener:
        channel = WebhookChannel(read_webhook(listener.url("/services/T0/secret?key=1")))
        channel.send(MESSAGE)
    (request,) = listener.requests
    assert (request.method, request.path) == ("POST", "/services/T0/secret?key=1")
    assert request.headers["Content-Type"] == "application/json"
    assert request.json() == MESSAGE.json()
    assert "secret" not in channel.target


@pytest.mark.parametrize("code", [302, 307, 404, 500])
def test_any_other_answer_is_a_failure_and_no_redirection_is_followed(code: int) -> None:
    with WebListener(code, {"Location": "/elsewhere"}) as listener:
        url = read_webhook(listener.url("/secret"))
        with pytest.raises(SendError, match=f"^answered HTTP {code}$"):
            WebhookChannel(url).send(MESSAGE)
    assert [request.path for request in listener.requests] == ["/secret"]
    with pytest.raises(SendError, match="no connection") as error:
        WebhookChannel(url).send(MESSAGE)
    assert "secret" not in str(error.value)


def test_a_listener_that_never_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "WEBHOOK_SECONDS", 0.1)
    with WebListener(answers=False) as listener, pytest.raises(SendError, match="no answer"):
        WebhookChannel(read_webhook(listener.url("/"))).send(MESSAGE)


def test_an_answer_without_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "WEBHOOK_TOTAL_SECONDS", 0.2)
    with WebListener(drips=True) as listener, pytest.raises(SendError, match="no answer in time"):
        WebhookChannel(read_webhook(listener.url("/"))).send(MESSAGE)


@pytest.mark.parametrize("proxy", ["http_proxy", "ALL_PROXY"])
def test_what_is_for_this_host_goes_through_no_proxy(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv(proxy, "http://192.0.2.1:9")
    with WebListener() as listener:
        WebhookChannel(read_webhook(listener.url("/"))).send(MESSAGE)
    assert len(listener.requests) == 1
