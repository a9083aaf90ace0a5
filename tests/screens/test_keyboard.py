"""Whatever bytes a terminal sends, messages come out and nothing breaks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual import events

from screens.terminal import input_decoder
from screens.terminal.input_decoder import PASTE_LIMIT, TAIL_SECONDS, TYPED_LIMIT, InputDecoder

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
    """Let so much time pass that nothing is waited for any more."""
    later = input_decoder.monotonic() + 60
    monkeypatch.setattr(input_decoder, "monotonic", lambda: later)
    monkeypatch.setattr("textual._parser.get_time", lambda: later * 2)
    list(board.tick())


@settings(deadline=None, max_examples=400)
@given(st.lists(st.sampled_from(SEQUENCES) | st.binary(max_size=12), max_size=30))
def test_no_bytes_break_it_and_the_next_key_is_received(parts: list[bytes]) -> None:
    board = InputDecoder()
    for part in parts:
        for message in board.feed(part):
            assert not isinstance(message, events.Resize), "a size that came as text"
    with pytest.MonkeyPatch.context() as patch:
        flushed(board, patch)
        flushed(board, patch)
        # The rest of a character may be waited for; then this byte begins another.
        assert keys(board, b"\x03")[-1:] == ["ctrl+c"]


def test_bytes_that_are_no_text_are_not_the_end() -> None:
    board = InputDecoder()
    list(board.feed(b"\xff\xfe"))
    assert keys(board, b"q") == ["q"]


def test_a_key_whose_number_is_no_character_is_no_key() -> None:
    board = InputDecoder()
    assert keys(board, b"\x1b[99999999;5u") == []
    assert keys(board, b"q") == ["q"]


def test_what_nobody_can_have_typed_is_a_paste(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file pasted into a terminal that does not bracket: none of its letters is an act."""
    board = InputDecoder()
    monkeypatch.setattr(input_decoder, "monotonic", lambda: 60.0)
    messages = list(board.feed(b"X" * (TYPED_LIMIT + 1)))
    messages += board.feed(b"Dq\r")
    assert [type(m) for m in messages] == [events.Paste, events.Paste], "its end, too"
    assert keys(board, b"\x1b[A") == ["up"]
    monkeypatch.setattr(input_decoder, "monotonic", lambda: 60.0 + TAIL_SECONDS)
    assert keys(board, b"q") == ["q"]


@pytest.mark.parametrize("word", ["Dy", "Dynamics of proteins", "Hydrogen\rbonds", "é模"])
def test_several_characters_in_one_read_are_a_paste(word: str) -> None:
    """``tmux paste-buffer`` and GNU screen mark none."""
    (message,) = InputDecoder().feed(word.encode())
    assert isinstance(message, events.Paste)
    assert message.text == word


def test_a_key_that_repeats_is_a_key() -> None:
    assert keys(InputDecoder(), b"jjj") == ["j", "j", "j"]
    assert keys(InputDecoder(), b"\x1b[B\x1b[B\x1b[B") == ["down", "down", "down"]


def test_editing_keys_around_what_comes_at_once_are_keys() -> None:
    messages = list(InputDecoder().feed(b"\tepoch 3\r\x7f"))
    assert [type(m).__name__ for m in messages] == ["Key", "Paste", "Key", "Key"]
    assert keys(InputDecoder(), b"q\x03") == ["q", "ctrl+c"]


def test_a_key_right_behind_a_sequence_is_a_key() -> None:
    assert keys(InputDecoder(), b"\x1b[Ba") == ["down", "a"]
    messages = list(InputDecoder().feed(b"\x1b[BDynamics"))
    assert [type(m).__name__ for m in messages] == ["Key", "Paste"]


@pytest.mark.parametrize("escape", [b"\x1b", b"\x1bP", b"\x1b]"])
def test_a_word_behind_an_escape_is_a_paste(escape: bytes) -> None:
    messages = [m for m in InputDecoder().feed(escape + b"Dynamics") if isinstance(m, events.Key)]
    assert "D" not in [m.key for m in messages]
    assert len(messages) <= 2


@pytest.mark.parametrize("cut", range(1, 6))
def test_a_sequence_that_comes_in_parts_is_one_key(cut: int) -> None:
    board, data = InputDecoder(), b"\x1b[1;5A"
    assert keys(board, data[:cut]) + keys(board, data[cut:]) == ["ctrl+up"]
    assert keys(board, b"j") == ["j"]


def test_of_a_long_paste_its_beginning_is_taken_and_the_keys_behind_it_are_keys() -> None:
    board = InputDecoder()
    messages = list(board.feed(b"\x1b[200~"))
    for _ in range(300):
        messages += board.feed(b"X" * 4096)
    messages += board.feed(b"\x1b[201~q")
    (paste,) = (m for m in messages if isinstance(m, events.Paste))
    assert len(paste.text) == PASTE_LIMIT
    assert [m.key for m in messages if isinstance(m, events.Key)] == ["q"]


def test_a_paste_whose_end_is_lost_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    board = InputDecoder()
    assert list(board.feed(b"\x1b[200~abc")) == []
    flushed(board, monkeypatch)
    assert keys(board, b"q") == ["q"]


def test_a_paste_that_comes_in_pieces_is_one() -> None:
    board = InputDecoder()
    messages = []
    for byte in b"\x1b[200~ab\x1b[3~c\x1b[201~":
        messages += board.feed(bytes([byte]))
    messages += board.feed(b"q")
    (paste,) = (m for m in messages if isinstance(m, events.Paste))
    assert paste.text == "ab\x1b[3~c"
