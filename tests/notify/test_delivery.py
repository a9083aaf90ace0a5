"""Each event is sent once, whichever process finds it, and within the rate limit."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.config.loader import read_webhook
from metlmon.config.settings import EVENT_NAMES
from metlmon.config.user_state import state_lock, state_path
from metlmon.health.types import KINDS, Health, HealthEntry, Severity
from metlmon.model.states import DagState, State
from metlmon.notify import channels
from metlmon.notify.channels import CommandChannel, SendError, WebhookChannel, terminal_sequence
from metlmon.notify.delivery import PURPOSE, RETRY_AFTER, Delivery
from metlmon.notify.events import Message, NotifyEvent, find_events, make_message
from metlmon.text.formatting import plain
from tests.support.faulty_tracker import Answer, Fault, SlowAnswer, web_listener
from tests.support.sample_snapshots import run, status

INTERVAL = 60.0


class RecordingChannel:
    """A channel that records its messages, or fails while ``error`` is set."""

    target = "there"

    def __init__(self, name: str = "webhook") -> None:
        self.name, self.error = name, ""
        self.sent: list[list[str]] = []
        self.tries = 0

    def send(self, message: Message) -> None:
        self.tries += 1
        if self.error:
            raise SendError(self.error)
        self.sent.append([event.key for event in message.events])


class Process:
    """A process that watches the dagdir at a time that the test sets."""

    def __init__(self, dagdir: Path, *channels: RecordingChannel) -> None:
        self.delivery = Delivery(dagdir, channels, INTERVAL)

    def sees(
        self, *keys: str, now: float, live: bool = True, at_once: bool = False
    ) -> tuple[float | None, tuple[str, ...]]:
        state = self.delivery.deliver(events(keys), live=live, now=now, at_once=at_once)
        return state.wait, state.problems


def events(keys: Sequence[str]) -> list[NotifyEvent]:
    return [NotifyEvent(key=key, name="held", text=f"{key} is held") for key in keys]


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Path:
    (tmp_path / "dagdir").mkdir()
    return tmp_path / "dagdir"


def test_restart_sends_no_event_twice(dagdir: Path) -> None:
    channel = RecordingChannel()
    Process(dagdir, channel).sees("a", "b", now=1000)
    again = Process(dagdir, channel)
    again.sees("a", "b", now=2000)
    again.sees("a", "b", "c", now=3000)
    assert channel.sent == [["a", "b"], ["c"]]
    assert list(dagdir.iterdir()) == [], "the record is not in the dagdir"


@pytest.mark.parametrize(("complete", "again"), [(True, [["a"]]), (False, [])])
def test_recurring_event_is_sent_again(
    dagdir: Path, complete: bool, again: list[list[str]]
) -> None:
    """Unless it may be in a file that could not be read."""
    channel = RecordingChannel()
    for hour, keys in enumerate(("ab", "b", "ab"), start=1):
        delivery = Process(dagdir, channel).delivery
        delivery.deliver(events(keys), live=True, now=3600 * hour, complete=complete)
    assert channel.sent == [["a", "b"], *again]


def test_simultaneous_events_are_one_message(dagdir: Path) -> None:
    channel = RecordingChannel()
    process = Process(dagdir, channel)
    assert process.sees("a", now=1000) == (None, ())
    assert process.sees("a", "b", now=1010)[0] == pytest.approx(50)
    # The limit applies across processes.
    assert Process(dagdir, channel).sees("a", "b", "c", now=1020)[0] == pytest.approx(40)
    process.sees("a", "b", "c", now=1060)
    assert channel.sent == [["a"], ["b", "c"]]
    process.sees("d", now=1061, at_once=True)
    assert channel.sent[-1] == ["d"]


def test_old_copy_of_a_dagdir_sends_nothing(dagdir: Path) -> None:
    channel = RecordingChannel()
    Process(dagdir, channel).sees("a", now=1000, live=False)
    Process(dagdir, channel).sees("a", now=2000)
    assert channel.sent == []
    Process(dagdir, channel).sees("a", "b", now=3000, live=False)
    assert channel.sent == [["b"]], "from now on it has been seen"


def test_undelivered_event_counts_as_unsent(dagdir: Path) -> None:
    broken, working = RecordingChannel(), RecordingChannel("command")
    broken.error = "answered HTTP 500"
    wait, problems = Process(dagdir, broken, working).sees("a", now=1000)
    assert wait == RETRY_AFTER[0]
    (problem,) = problems
    assert problem == "webhook there answered HTTP 500; 1 notification not sent, next try in 5s"
    process = Process(dagdir, broken, working)
    process.sees("a", now=1001)
    assert (broken.tries, working.sent) == (1, [["a"]]), "it waits, also in another process"
    broken.error = ""
    assert process.sees("a", "b", now=1006)[1] == ()
    assert broken.sent == [["a", "b"]], "not held up by the other channel's limit"
    assert working.sent == [["a"]]


def test_dead_channel_is_disabled_and_reported(dagdir: Path) -> None:
    channel = RecordingChannel()
    channel.error = "no connection: Connection refused"
    now, wait = 1000.0, 0.0
    while wait is not None:
        now += wait
        wait, problems = Process(dagdir, channel).sees("a", now=now)
    assert channel.tries == len(RETRY_AFTER) + 1
    assert problems == (f"webhook there {channel.error}; 1 notification given up",)
    channel.error = ""
    assert Process(dagdir, channel).sees("a", "b", now=now + 1) == (None, ())
    assert channel.sent == [["b"]]


def test_two_processes_send_an_event_once(dagdir: Path) -> None:
    channel = RecordingChannel()
    path = state_path(PURPOSE, dagdir)
    assert path is not None
    with state_lock(path):
        state = Process(dagdir, channel).delivery.deliver(events("a"), live=True, now=1000)
    assert state.locked
    assert channel.tries == 0
    Process(dagdir, channel).sees("a", now=1000)
    assert channel.sent == [["a"]]


def test_process_without_a_record_sends_once(dagdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    channel = RecordingChannel()
    process = Process(dagdir, channel)
    for now in (1000, 2000):
        process.sees("a", now=now)
    assert channel.sent == [["a"]]


@pytest.mark.parametrize(("error", "sent"), [("", [["a"], ["b"]]), ("no route", [["a", "b"]])])
def test_wrong_clock_stops_no_notification(dagdir: Path, error: str, sent: list[list[str]]) -> None:
    channel = RecordingChannel()
    channel.error = error
    Process(dagdir, channel).sees("a", now=9e9)
    channel.error = ""
    Process(dagdir, channel).sees("a", "b", now=1000)
    assert channel.sent == sent


# --- messages of terminal, command and webhook ------------------------------------------------


HELD = NotifyEvent(key="h", name="held", text="held; out of memory · 2 runs", runs=2)
MESSAGE = Message(ensemble="l;r", dagdir="/home/ada/lr", events=(HELD,))
SCRIPT = (
    "import json, os, sys; names = sorted(n for n in os.environ if n.startswith('METLMON_T'));"
    "json.dump([sys.argv[1:], [os.environ[n] for n in names], json.load(sys.stdin)],"
    " open({!r}, 'w'))"
)


def test_terminal_gets_bell_and_message() -> None:
    assert terminal_sequence(("bell",), MESSAGE, {"TMUX": "x"}) == "\a"
    assert terminal_sequence(("osc9",), MESSAGE, {}) == (
        "\x1b]9;metlmon: l;r: held: held; out of memory · 2 runs\a"
    )
    assert terminal_sequence(("bell", "osc777"), MESSAGE, {}) == (
        "\a\x1b]777;notify;metlmon: l,r: held;held; out of memory · 2 runs\a"
    )


@pytest.mark.parametrize("environment", [{"TMUX": "/tmp/tmux-0/default,1,0"}, {"TERM": "tmux"}])
def test_message_is_wrapped_for_tmux(environment: dict[str, str]) -> None:
    written = terminal_sequence(("osc9", "osc777"), MESSAGE, environment)
    start, end = "\x1bPtmux;", "\x1b\\"
    assert written.startswith(start)
    assert written.endswith(end)
    inside = written[len(start) : -len(end)].replace("\x1b\x1b", "\x1b")
    assert inside == terminal_sequence(("osc9", "osc777"), MESSAGE, {})


def test_command_gets_environment_and_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_relative_home_is_not_searched_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", ".")
    with pytest.raises(SendError, match="HOME is a relative path"):
        CommandChannel(["~/tell"]).send(MESSAGE)


def test_failed_command_is_reported_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say = "import sys; sys.exit('no\\x1b[2J password=hunter2secret')"
    with pytest.raises(SendError, match=r"^exit status 1: no\\x1b\[2J password=\(hidden\)$"):
        CommandChannel([sys.executable, "-c", say]).send(MESSAGE)
    with pytest.raises(SendError, match="cannot be run: No such file"):
        CommandChannel([str(tmp_path / "none")]).send(MESSAGE)
    # Programs in the current directory are not found, whatever PATH has.
    (tmp_path / "tell").write_text("#!/bin/sh\n")
    (tmp_path / "tell").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}:")
    with pytest.raises(SendError, match="not in PATH"):
        CommandChannel(["tell"]).send(MESSAGE)
    monkeypatch.setattr(channels, "COMMAND_SECONDS", 0.1)
    with pytest.raises(SendError, match="did not end"):
        CommandChannel([sys.executable, "-c", "import signal; signal.pause()"]).send(MESSAGE)


def test_webhook_gets_json() -> None:
    with web_listener() as listener:
        channel = WebhookChannel(read_webhook(f"{listener.url}/services/T0/secret?key=1"))
        channel.send(MESSAGE)
    (request,) = listener.calls
    assert (request.method, request.path) == ("POST", "/services/T0/secret?key=1")
    assert request.headers["Content-Type"] == "application/json"
    assert request.json() == MESSAGE.json()
    assert "secret" not in channel.target


@pytest.mark.parametrize("code", [302, 307, 404, 500])
def test_other_answers_and_redirections_are_failures(code: int) -> None:
    with web_listener(Answer(code, headers=(("Location", "/elsewhere"),))) as listener:
        url = read_webhook(f"{listener.url}/secret")
        with pytest.raises(SendError, match=f"^answered HTTP {code}$"):
            WebhookChannel(url).send(MESSAGE)
    assert [request.path for request in listener.calls] == ["/secret"]
    with pytest.raises(SendError, match="no connection") as error:
        WebhookChannel(url).send(MESSAGE)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("limit", "answer", "error"),
    [
        ("WEBHOOK_SECONDS", SlowAnswer(), "no answer"),
        ("WEBHOOK_TOTAL_SECONDS", Answer(drips=True), "no answer in time"),
    ],
)
def test_webhook_that_never_answers_times_out(
    monkeypatch: pytest.MonkeyPatch, limit: str, answer: Fault, error: str
) -> None:
    monkeypatch.setattr(channels, limit, 0.2)
    with web_listener(answer) as listener, pytest.raises(SendError, match=error):
        WebhookChannel(read_webhook(f"{listener.url}/")).send(MESSAGE)


@pytest.mark.parametrize("proxy", ["http_proxy", "ALL_PROXY"])
def test_local_webhook_uses_no_proxy(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv(proxy, "http://192.0.2.1:9")
    with web_listener() as listener:
        WebhookChannel(read_webhook(f"{listener.url}/")).send(MESSAGE)
    assert len(listener.calls) == 1


# --- events and their messages ----------------------------------------------------------------


NAMES = {"1": "run7", "2": "run8"}


def entry(kind: str = "held", *, is_open: bool = True, **fields: object) -> HealthEntry:
    severity = fields.pop("severity", KINDS[kind].severity)
    text = fields.pop("text", f"{kind} (hold 12)")
    return HealthEntry(
        key=f"{kind}:1", kind=kind, severity=severity, open=is_open, text=text, steps=(), **fields
    )  # type: ignore[arg-type]


def found(*entries: HealthEntry, about: tuple[str, ...] = EVENT_NAMES) -> list[tuple[str, str]]:
    health = Health(entries=entries, names=NAMES)
    return [(event.name, event.text) for event in find_events(health, status(), about)]


def test_event_has_its_cause_and_number_of_runs() -> None:
    assert found(entry(runs=("1", "2")), entry("black-hole"), entry("run-failed", runs=("1",))) == [
        ("held", "held (hold 12) · 2 runs"),
        ("failed", "run-failed (hold 12) · run7"),
        ("black-hole", "black-hole (hold 12)"),
    ]
    assert found(entry(runs=(f"{'x' * 60}1",)))[0][1].endswith("x1"), "cut where names are alike"
    assert found(entry(nodes=12)) == [("held", "held (hold 12) · 12 nodes")]
    # What is closed, a note, or not wanted is none; each has a name that can be chosen.
    entries = entry(is_open=False), entry("log-gap"), entry(severity=Severity.NOTE)
    assert found(*entries, entry("diverged"), about=("held",)) == []
    conditions = {kind.condition for kind in KINDS.values()} - {None}
    assert conditions == set(EVENT_NAMES) - {"done"}


def test_finished_dag_or_runs_are_an_event() -> None:
    rows = run("run0", 3, 3, State.COMPLETED), run("run1", 3, 3, State.COMPLETED)
    unknown = status(rows, live=False)
    (dag,) = unknown.dags
    done = replace(unknown, dags=(replace(dag, state=DagState.DONE, nodes_done=4),))
    for made, text in (
        (done, "global_pretraining.dag is done: 4 of 6 nodes"),
        (unknown, "all epochs of 2 runs are done"),
        (status(), None),
    ):
        texts = [event.text for event in find_events(Health(), made, EVENT_NAMES)]
        assert texts == ([text] if text else [])


def test_foreign_text_is_escaped_for_terminals_and_chats() -> None:
    text = "held\x1b]0;x\x07\n\u202e @channel <!here> slot1@host"
    health = Health(entries=(entry(text=text, runs=("\x9b1",)),))
    (event,) = find_events(health, status(), EVENT_NAMES)
    assert event.text.isprintable()
    assert plain(event.text) == event.text
    message = make_message("/tmp/\x1b[2J-evil", [event])
    assert message.title.isprintable()
    text = message.json()["text"]
    assert "@channel" not in text
    assert "<!here" not in text
    assert "slot1@host" in text
