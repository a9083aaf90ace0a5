"""Ways to send a message: the terminal, a command, a webhook."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from shutil import which
from typing import Final, Protocol

from metlmon.config.settings import NotifySettings, SecretText
from metlmon.notify.events import Message
from metlmon.redact import redact_secrets
from metlmon.text.formatting import plain

BELL: Final = "\x07"

WEBHOOK_SECONDS: Final = 10.0
"""Timeout of connecting, and of each part of the answer."""

WEBHOOK_TOTAL_SECONDS: Final = 20.0
"""Timeout of the complete request, which covers a name server that does not answer."""

COMMAND_SECONDS: Final = 30.0

MAX_ANSWER: Final = 4096
"""Maximum bytes read of an answer, or of a command's standard error."""

MAX_VARIABLE: Final = 1000


class SendError(Exception):
    """Why a message was not sent, in one safe sentence without secrets."""


class Channel(Protocol):
    """A way to send messages. ``name``: ``terminal``, ``command`` or ``webhook``."""

    @property
    def name(self) -> str: ...

    @property
    def target(self) -> str:
        """Where messages go, without secrets."""

    def send(self, message: Message) -> None:
        """Send a message. Blocks for a bounded time. Raises SendError."""


def open_channels(
    settings: NotifySettings, write: Callable[[str], bool] | None
) -> tuple[Channel, ...]:
    """The configured channels.

    ``write`` writes to the terminal and returns whether it succeeded; None without a terminal.
    """
    channels: list[Channel] = []
    if settings.terminal and write is not None:
        channels.append(TerminalChannel(settings.terminal, write))
    if settings.command:
        channels.append(CommandChannel(settings.command))
    if settings.webhook is not None:
        channels.append(WebhookChannel(settings.webhook))
    return tuple(channels)


# --- the terminal ---------------------------------------------------------------------------


class TerminalChannel:
    """The bell, and notifications that the terminal shows (OSC 9, OSC 777)."""

    name = "terminal"

    def __init__(self, forms: Sequence[str], write: Callable[[str], bool]) -> None:
        self._forms, self._write = forms, write

    @property
    def target(self) -> str:
        return ", ".join(self._forms)

    def send(self, message: Message) -> None:
        if not self._write(terminal_sequence(self._forms, message, os.environ)):
            raise SendError("there is no terminal at the moment")


def terminal_sequence(
    forms: Sequence[str], message: Message, environment: Mapping[str, str]
) -> str:
    """The characters that ring the bell or let the terminal show a message.

    OSC 9 has one text (iTerm2), OSC 777 has a title and a text (rxvt-unicode, foot, WezTerm).
    tmux passes them on in ``ESC P tmux; … ESC \\``, if ``allow-passthrough`` is on.
    """
    # Some terminals interpret a text that begins with a number as a command.
    title = f"metlmon: {message.title}"
    sequences = {
        "osc9": f"\x1b]9;{title}: {message.text}{BELL}",
        "osc777": f"\x1b]777;notify;{title.replace(';', ',')};{message.text}{BELL}",
    }
    written = "".join(text for form, text in sequences.items() if form in forms)
    if written and ("TMUX" in environment or environment.get("TERM", "").startswith("tmux")):
        doubled = written.replace("\x1b", "\x1b\x1b")
        written = f"\x1bPtmux;{doubled}\x1b\\"
    return (BELL if "bell" in forms else "") + written


# --- a command ------------------------------------------------------------------------------


class CommandChannel:
    """A program that is run for each message, without a shell.

    The texts of the message are never among its arguments, which a shell or an interpreter could
    run: they are in its environment (``METLMON_TEXT``, …), and as JSON on its standard input. It
    runs in the user's home directory and is killed after :data:`COMMAND_SECONDS`.
    """

    name = "command"

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words

    @property
    def target(self) -> str:
        return plain(Path(self._words[0]).name, 40)

    def send(self, message: Message) -> None:
        home = os.path.expanduser("~")
        try:
            process = subprocess.Popen(
                [self._program(), *self._words[1:]],
                env=os.environ | _variables(message),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd=home if os.path.isabs(home) else "/",
                start_new_session=True,
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise SendError(f"cannot be run: {_reason(error)}") from None
        try:
            content = json.dumps(message.json()).encode()
            _, errors = process.communicate(content, COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise SendError(f"did not end within {COMMAND_SECONDS:.0f} s") from None
        if process.returncode:
            first = errors[:MAX_ANSWER].decode(errors="replace").strip().partition("\n")[0]
            detail = f": {plain(redact_secrets(first), 120)}" if first else ""
            raise SendError(f"exit status {process.returncode}{detail}")

    def _program(self) -> str:
        program = os.path.expanduser(self._words[0])
        if "/" not in program:
            # A relative entry of PATH could be in a dagdir.
            entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
            found = which(program, path=os.pathsep.join(filter(os.path.isabs, entries)))
            if found is None:
                raise SendError("is not in PATH")
            program = found
        if not os.path.isabs(program):
            raise SendError("is not run: HOME is a relative path")
        return program


def _variables(message: Message) -> dict[str, str]:
    """The texts of a message as environment variables, each at most :data:`MAX_VARIABLE` long.

    None begins like an option, which the program would obey.
    """
    values = {
        "title": message.title,
        "text": message.text,
        "event": message.event,
        "ensemble": message.ensemble,
        "dagdir": message.dagdir,
    }
    variables = {}
    for name, value in values.items():
        text = value.replace("\0", "")
        text = f" {text}" if text.startswith("-") else text
        variables[f"METLMON_{name.upper()}"] = text[:MAX_VARIABLE]
    return variables


# --- a webhook ------------------------------------------------------------------------------


class WebhookChannel:
    """A URL to which each message is posted as JSON; redirections are not followed."""

    name = "webhook"

    def __init__(self, url: SecretText) -> None:
        self._url = url

    @property
    def target(self) -> str:
        return str(self._url)

    def send(self, message: Message) -> None:
        answer: Future[None] = Future()

        def post() -> None:
            try:
                self._post(message)
                answer.set_result(None)
            except SendError as error:
                answer.set_exception(error)

        # The timeouts of the standard library do not cover the complete request.
        threading.Thread(target=post, name="metlmon-webhook", daemon=True).start()
        try:
            answer.result(WEBHOOK_TOTAL_SECONDS)
        except TimeoutError:
            raise SendError("no answer in time") from None

    def _post(self, message: Message) -> None:
        # Imported here: most people have no webhook.
        from http.client import HTTPException
        from urllib.error import HTTPError, URLError
        from urllib.request import (
            BaseHandler,
            HTTPRedirectHandler,
            ProxyHandler,
            Request,
            build_opener,
        )

        from metlmon import __version__

        class NoRedirections(HTTPRedirectHandler):
            def redirect_request(self, *_: object) -> None:
                return None

        handlers: list[BaseHandler] = [NoRedirections()]
        if self._url.value.startswith("http:"):
            # The proxy is not for this host.
            handlers.append(ProxyHandler({}))
        headers = {"Content-Type": "application/json", "User-Agent": f"metlmon/{__version__}"}
        content = json.dumps(message.json()).encode()
        request = Request(self._url.value, content, headers, method="POST")
        try:
            with build_opener(*handlers).open(request, timeout=WEBHOOK_SECONDS) as answer:
                answer.read(MAX_ANSWER)
        except HTTPError as error:
            error.close()
            raise SendError(f"answered HTTP {error.code}") from None
        except URLError as error:
            raise SendError(f"no connection: {_reason(error.reason)}") from None
        except TimeoutError:
            raise SendError(f"no answer within {WEBHOOK_SECONDS:.0f} s") from None
        except (HTTPException, OSError, ValueError) as error:
            raise SendError(f"no valid answer: {type(error).__name__}") from None


def _reason(error: object) -> str:
    """The reason of an error, without the URL or the arguments."""
    if isinstance(error, TimeoutError):
        return "timed out"
    text = error.strerror if isinstance(error, OSError) and error.strerror else ""
    return plain(text or type(error).__name__, 80)
