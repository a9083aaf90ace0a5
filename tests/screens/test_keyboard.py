"""Any bytes of a terminal give messages, and none raises an error."""

from __future__ import annotations

import string
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual import events

from screens.app import AppOptions, MetlmonApp
from screens.overview import OverviewScreen
from screens.pool_actions import ConfirmScreen
from screens.terminal import driver
from screens.terminal.driver import PASTE_LIMIT, TAIL_SECONDS, TYPED_LIMIT, InputDecoder
from tests.support.fake_pool import NOW, FakePool, QueuedFeed
from tests.support.sample_snapshots import update
from tests.support.screen_view import NARROW, EagerApp, RunningApp, opened

SEQUENCES = (
    *(b"\x1b", b"\x1b[", b"\x1bO", b"\x1b[A", b"\x1b[I", b"\x1b[O", b"\x00", b"\xff", b"\xc3"),
    *(b"\x1b[M\xff\xff\xff", b"\x1b[<0;9999999;1M", b"\x1b[<35;-3;0m", b"\x1b[1;1R"),
    *(b"\x1b[200~", b"\x1b[201~", b"\x1b[20", b"0~", b"\x1b[?2048;2$y", b"\x1b[?2026;9$y"),
    *(b"\x1b[48;99999;99999;1;1t", b"\x1b[99999999;5u", b"\x1b[1;99999999999999999999R"),
    *(b"\x1b]52;c;AAAA\x07", b"\x1bP1$r\x1b\\", b"\x9b31m", b"\xe2\x82", b"\xf0\x9f\x92\xa9"),
)


def keys(board: InputDecoder, data: bytes) -> list[str]:
    return [m.key for m in board.feed(data) if isinstance(m, events.Key)]


def flushed(board: InputDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Advance the time until no more bytes are awaited."""
    later = driver.monotonic() + 60
    monkeypatch.setattr(driver, "monotonic", lambda: later)
    monkeypatch.setattr("textual._parser.get_time", lambda: later * 2)
    list(board.tick())


@settings(deadline=None, max_examples=400)
@given(st.lists(st.sampled_from(SEQUENCES) | st.binary(max_size=12), max_size=30))
def test_any_bytes_are_accepted_and_the_next_key_is_received(parts: list[bytes]) -> None:
    board = InputDecoder()
    for part in parts:
        for message in board.feed(part):
            assert not isinstance(message, events.Resize), "a size that came as text"
    with pytest.MonkeyPatch.context() as patch:
        flushed(board, patch)
        flushed(board, patch)
        # The rest of a character may be awaited; then this byte begins another one.
        assert keys(board, b"\x03")[-1:] == ["ctrl+c"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xff\xfe", ["replacement_character"] * 2),
        (b"\x1b[99999999;5u", []),
        (b"jjj", ["j", "j", "j"]),
        (b"\x1b[B\x1b[B\x1b[B", ["down", "down", "down"]),
        (b"q\x03", ["q", "ctrl+c"]),
        (b"\x1b[Ba", ["down", "a"]),
        (b"\x1b[BDynamics", ["down", "Paste"]),
        (b"\tepoch 3\r\x7f", ["tab", "Paste", "enter", "backspace"]),
    ],
)
def test_bytes_in_one_read_are_keys_and_pastes(data: bytes, expected: list[str]) -> None:
    board = InputDecoder()
    messages = [getattr(m, "key", "Paste") for m in board.feed(data)]
    assert messages == expected
    assert keys(board, b"z") == ["z"]


def test_input_faster_than_typing_is_a_paste(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file pasted into a terminal without bracketed paste: none of its letters is an action."""
    board = InputDecoder()
    monkeypatch.setattr(driver, "monotonic", lambda: 60.0)
    messages = list(board.feed(b"X" * (TYPED_LIMIT + 1)))
    messages += board.feed(b"Dq\r")
    assert [type(m) for m in messages] == [events.Paste, events.Paste], "its end, too"
    assert keys(board, b"\x1b[A") == ["up"]
    monkeypatch.setattr(driver, "monotonic", lambda: 60.0 + TAIL_SECONDS)
    assert keys(board, b"q") == ["q"]


@pytest.mark.parametrize("word", ["Dy", "Dynamics of proteins", "Hydrogen\rbonds", "é模"])
def test_several_characters_in_one_read_are_a_paste(word: str) -> None:
    """``tmux paste-buffer`` and GNU screen mark none."""
    (message,) = InputDecoder().feed(word.encode())
    assert isinstance(message, events.Paste)
    assert message.text == word


@pytest.mark.parametrize("cut", range(1, 6))
def test_sequence_in_parts_is_one_key(cut: int) -> None:
    board, data = InputDecoder(), b"\x1b[1;5A"
    assert keys(board, data[:cut]) + keys(board, data[cut:]) == ["ctrl+up"]
    assert keys(board, b"j") == ["j"]


def test_long_paste_is_cut_and_later_keys_are_keys() -> None:
    board = InputDecoder()
    messages = list(board.feed(b"\x1b[200~"))
    for _ in range(300):
        messages += board.feed(b"X" * 4096)
    messages += board.feed(b"\x1b[201~q")
    (paste,) = (m for m in messages if isinstance(m, events.Paste))
    assert len(paste.text) == PASTE_LIMIT
    assert [m.key for m in messages if isinstance(m, events.Key)] == ["q"]


def test_paste_without_an_end_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    board = InputDecoder()
    assert list(board.feed(b"\x1b[200~abc")) == []
    flushed(board, monkeypatch)
    assert keys(board, b"q") == ["q"]


def test_paste_in_pieces_is_one_paste() -> None:
    board = InputDecoder()
    messages = []
    for byte in b"\x1b[200~ab\x1b[3~c\x1b[201~":
        messages += board.feed(bytes([byte]))
    messages += board.feed(b"q")
    (paste,) = (m for m in messages if isinstance(m, events.Paste))
    assert paste.text == "ab\x1b[3~c"


# --- pastes without brackets, and a cat on the keyboard ---------------------------------------


class PatientApp(EagerApp):
    """Questions wait before they accept an answer, as for users."""

    CONFIRM_SECONDS = MetlmonApp.CONFIRM_SECONDS

    def now(self) -> float:
        return NOW


@asynccontextmanager
async def watched() -> AsyncIterator[tuple[RunningApp, FakePool]]:
    pool = FakePool()
    feed = QueuedFeed(update(), Path("/nowhere/global_pretraining"))
    options = AppOptions(submission_pool=FakePool())  # type: ignore[arg-type]
    async with opened(feed, NARROW, options, PatientApp, pool=pool) as seen:
        yield seen, pool


WORDS = tuple(f"{letter}y" for letter in string.ascii_letters if letter != "y")
"""One for each letter that may act, with the key of a yes behind it: yy is a key held down."""

SCREENS: dict[str, tuple[str, ...]] = {
    "overview": (),
    "acts": ("down", "a"),
    "question": ("down", "R"),
    "timeline": ("4",),
    "submit": ("N",),
}


@pytest.mark.parametrize("screen", SCREENS)
async def test_pasted_word_does_nothing(screen: str) -> None:
    """Whole words without the marks of a paste, on each screen."""
    words = WORDS if screen == "overview" else WORDS[list(SCREENS).index(screen) :: 8]
    async with watched() as (seen, pool):
        await seen.press(*SCREENS[screen])
        shown, before = type(seen.app.screen), seen.text
        assert (shown is OverviewScreen) is (screen == "overview")
        for word in words:
            for message in InputDecoder().feed(word.encode()):
                seen.app.post_message(message)
            await seen.pilot.pause()
            assert type(seen.app.screen) is shown, word
        await seen.settle()
        assert pool.orders == []
        if screen not in ("question", "submit"):  # one says "wait", in the other is a field
            assert seen.text.split() == before.split(), "nothing changed"


async def test_too_fast_input_answers_no_question() -> None:
    """Each character in its own read: the first opens a question, the second is not an answer."""
    async with watched() as (seen, pool):
        asked = 0
        for word in (*WORDS[::8], "jRy", "aDy"):
            for character in word.replace("q", ""):
                for message in InputDecoder().feed(character.encode()):
                    seen.app.post_message(message)
                await seen.pilot.pause()
                asked += isinstance(seen.app.screen, ConfirmScreen)
            for _ in range(4):
                await seen.pilot.press("escape")
        assert asked, "some word asks a question"
        assert pool.orders == []


async def test_question_accepts_an_answer_after_a_moment() -> None:
    async with watched() as (seen, pool):
        await seen.press("down", "R")
        assert "does it" not in seen.text, "it cannot be answered yet"
        await seen.press("y")
        assert isinstance(seen.app.screen, ConfirmScreen)
        assert pool.orders == []
        seen.app.CONFIRM_SECONDS = 0.0  # type: ignore[misc]
        await seen.settle()
        await seen.press("y")
        assert [order.act.value for order in pool.orders] == ["release"]
