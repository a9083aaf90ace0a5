"""Robust decoder of terminal input into Textual messages.

Textual's own input thread ends at the first byte that is not UTF-8 and at a key number that is
not a character, and never leaves a bracketed paste whose end was lost. A briefly interrupted
line, a terminal with another encoding or an accidental paste of a file is enough for that.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Iterator
from time import monotonic
from typing import Final

from textual import events, messages
from textual.message import Message

from screens.terminal.private import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser

TYPED_LIMIT: Final = 512
"""More characters than this at once are not typed: they are a paste, and none is a key."""

PASTE_LIMIT: Final = 4096
"""Maximum length of a paste in characters; the longest field holds less."""

SEQUENCE_LIMIT: Final = 32
"""Maximum length of a key's escape sequence; longer text directly after it is cut off."""

PASTE_SECONDS: Final = 1.0
"""Time without input after which a paste without an end marker is over."""

TAIL_SECONDS: Final = 0.5
"""Time after such a text during which input still belongs to it: its end arrives in smaller
parts, and no key is pressed that soon."""

EDITING_KEYS: Final = "\t\r\x7f\x03"
"""Tab, enter, backspace and ctrl-c, which remain keys at either end of several characters: on
a slow line, typed keys arrive together."""

SEQUENCE_SECONDS: Final = 0.5
"""Timeout for the rest of a sequence that arrives in parts."""

_BEFORE_ESCAPE: Final = re.compile(r"(?=\x1b)")

_SEQUENCE_START: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*(?:[@-~]|$)|O(?:[ -~]|$)|[^\[O]|$)", re.DOTALL
)
"""The escape sequence of one key, or the beginning of one."""

_WHOLE_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~]|[^\[O])", re.DOTALL)


class InputDecoder:
    """Decodes the bytes of a terminal into messages; never raises, whatever the bytes."""

    def __init__(self) -> None:
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._parser = XTermParser()
        self._tail = ""
        self._partial = ""
        self._paste: str | None = None
        self._input_at = 0.0
        self._unmarked_paste_at = float("-inf")

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages completed by these bytes."""
        self._input_at = monotonic()
        for piece in _BEFORE_ESCAPE.split(self._decode(data)):
            if piece:
                yield from self._decode_piece(piece)

    def tick(self) -> Iterator[Message]:
        """The messages completed by a timeout; to be called several times a second.

        For example, an escape character without a sequence is the escape key.
        """
        if self._paste is not None and monotonic() - self._input_at > PASTE_SECONDS:
            yield from self._end_paste("")
        if monotonic() - self._input_at > SEQUENCE_SECONDS:
            self._partial = ""
        yield from self._parse(None)

    def _decode_piece(self, piece: str) -> Iterator[Message]:
        """Decode text that has an escape character at its start only."""
        recent = self._tail + piece
        self._tail = recent[-(len(BRACKETED_PASTE_START) - 1) :]
        if self._paste is not None:
            _, end, after = recent.partition(BRACKETED_PASTE_END)
            self._paste = (self._paste + piece)[: PASTE_LIMIT + len(BRACKETED_PASTE_END)]
            if end:
                yield from self._end_paste(after)
            return
        _, start, after = recent.partition(BRACKETED_PASTE_START)
        if start:
            # Textual's parser would decode sequences inside a paste as keys: pass it an empty
            # paste.
            visible = piece[: len(piece) - len(after)] + BRACKETED_PASTE_END
            for message in self._parse(visible):
                if not isinstance(message, events.Paste):
                    yield message
            self._paste = after[:PASTE_LIMIT]
        elif self._is_unmarked_paste(piece):
            yield from self._parse(piece[:SEQUENCE_LIMIT] if piece.startswith("\x1b") else "")
            yield events.Paste(piece[:PASTE_LIMIT].replace("\x00", ""))
        else:
            yield from self._decode_key(piece)

    def _decode_key(self, piece: str) -> Iterator[Message]:
        """Decode a key's sequence, or the rest of one, and the characters after it."""
        begin = "" if piece.startswith("\x1b") else self._partial
        match = _SEQUENCE_START.match(begin + piece)
        end = match.end() - len(begin) if match else 0
        sequence = match[0] if match else ""
        self._partial = "" if _WHOLE_SEQUENCE.fullmatch(sequence) or end < len(piece) else sequence
        yield from self._parse(piece[:end])
        yield from self._decode_characters(piece[end:])

    def _decode_characters(self, text: str) -> Iterator[Message]:
        """Decode characters; several different ones at once are a paste."""
        inner = text.strip(EDITING_KEYS)
        if len(set(inner)) <= 1:
            yield from self._parse(text)
            return
        first, _, last = text.partition(inner)
        yield from self._parse(first)
        yield events.Paste(inner[:PASTE_LIMIT].replace("\x00", ""))
        yield from self._parse(last)

    def _is_unmarked_paste(self, piece: str) -> bool:
        """Whether it belongs to a paste that the terminal did not mark as one."""
        if len(piece) > TYPED_LIMIT:
            self._unmarked_paste_at = self._input_at
        elif piece.startswith("\x1b"):
            return False
        return self._input_at - self._unmarked_paste_at < TAIL_SECONDS

    def _end_paste(self, after: str) -> Iterator[Message]:
        text, self._paste, self._tail = self._paste or "", None, ""
        text = text.partition(BRACKETED_PASTE_END)[0][:PASTE_LIMIT]
        yield events.Paste(text.replace("\x00", ""))
        if after:
            yield from self._decode_piece(after)

    def _parse(self, text: str | None) -> Iterator[Message]:
        if text == "":
            return
        try:
            for message in self._parser.tick() if text is None else self._parser.feed(text):
                # Sizes are reported by SIGWINCH; those sent as text could be forged.
                if not isinstance(message, events.Resize | messages.InBandWindowResize):
                    yield message
        except Exception:
            # An invalid sequence: start again at the next escape character.
            self._parser = XTermParser()
