"""Each event is sent once, whichever process sees it, and not more often than allowed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from metlmon.config.user_state import state_lock, state_path
from metlmon.notify.channels import SendError
from metlmon.notify.delivery import PURPOSE, RETRY_AFTER, Delivery
from metlmon.notify.events import Message, NotifyEvent

INTERVAL = 60.0


class RecordingChannel:
    """Records what it is to send, or fails while ``error`` is set."""

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
    """A process that watches the dagdir, at a time that the test sets."""

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
def _dagdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "dagdir").mkdir()
    return tmp_path / "dagdir"


def test_a_restart_sends_nothing_twice(dagdir: Path) -> None:
    channel = RecordingChannel()
    Process(dagdir, channel).sees("a", "b", now=1000)
    again = Process(dagdir, channel)
    again.sees("a", "b", now=2000)
    again.sees("a", "b", "c", now=3000)
    assert channel.sent == [["a", "b"], ["c"]]
    assert list(dagdir.iterdir()) == [], "the record is not in the dagdir"


def test_what_is_over_and_comes_again_is_new(dagdir: Path) -> None:
    channel = RecordingChannel()
    for number, keys in enumerate((["a", "b"], ["b"], ["a", "b"])):
        Process(dagdir, channel).sees(*keys, now=1000 * (number + 1))
    assert channel.sent == [["a", "b"], ["a"]]


def test_what_may_be_in_an_unreadable_file_is_not_over(dagdir: Path) -> None:
    channel = RecordingChannel()
    for hour, (keys, complete) in enumerate([("a", True), ("b", False), ("ab", True)], start=1):
        delivery = Process(dagdir, channel).delivery
        delivery.deliver(events(keys), live=True, now=3600 * hour, complete=complete)
    assert channel.sent == [["a"], ["b"]]


def test_what_concerns_twice_as_many_runs_is_sent_again(dagdir: Path) -> None:
    channel = RecordingChannel()
    sent = []
    for hour, runs in enumerate((1, 2, 3, 4, 7, 2, 8), start=1):
        event = NotifyEvent(key="held 34", name="held", text="held", runs=runs)
        Process(dagdir, channel).delivery.deliver([event], live=True, now=3600 * hour)
        sent.append(len(channel.sent))
    assert sent == [1, 2, 2, 3, 3, 3, 4]


def test_many_things_at_once_are_one_message(dagdir: Path) -> None:
    channel = RecordingChannel()
    process = Process(dagdir, channel)
    assert process.sees("a", now=1000) == (None, ())
    assert process.sees("a", "b", now=1010)[0] == pytest.approx(50)
    # The limit also holds for another process.
    assert Process(dagdir, channel).sees("a", "b", "c", now=1020)[0] == pytest.approx(40)
    process.sees("a", "b", "c", now=1060)
    assert channel.sent == [["a"], ["b", "c"]]
    process.sees("d", now=1061, at_once=True)
    assert channel.sent[-1] == ["d"]


def test_an_old_copy_that_was_never_seen_sends_nothing(dagdir: Path) -> None:
    channel = RecordingChannel()
    Process(dagdir, channel).sees("a", now=1000, live=False)
    Process(dagdir, channel).sees("a", now=2000)
    assert channel.sent == []
    Process(dagdir, channel).sees("a", "b", now=3000, live=False)
    assert channel.sent == [["b"]], "from now on it has been seen"


def test_what_no_channel_has_taken_is_not_sent(dagdir: Path) -> None:
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


def test_a_dead_channel_is_given_up_and_says_so(dagdir: Path) -> None:
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


def test_two_processes_do_not_send_the_same(dagdir: Path) -> None:
    channel = RecordingChannel()
    path = state_path(PURPOSE, dagdir)
    assert path is not None
    with state_lock(path):
        state = Process(dagdir, channel).delivery.deliver(events("a"), live=True, now=1000)
    assert state.locked
    assert channel.tries == 0
    Process(dagdir, channel).sees("a", now=1000)
    assert channel.sent == [["a"]]


def test_without_a_place_for_the_record_one_process_sends_once(
    dagdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    channel = RecordingChannel()
    process = Process(dagdir, channel)
    for now in (1000, 2000):
        process.sees("a", now=now)
    assert channel.sent == [["a"]]


def test_a_clock_that_was_wrong_stops_nothing(dagdir: Path) -> None:
    channel = RecordingChannel()
    Process(dagdir, channel).sees("a", now=9e9)
    Process(dagdir, channel).sees("a", "b", now=1000)
    assert channel.sent == [["a"], ["b"]]


def test_a_next_try_that_a_wrong_clock_set_is_not_waited_for(dagdir: Path) -> None:
    channel = RecordingChannel()
    channel.error = "no route"
    Process(dagdir, channel).sees("a", now=4e9)
    channel.error = ""
    Process(dagdir, channel).sees("a", now=1000)
    assert channel.sent == [["a"]]
