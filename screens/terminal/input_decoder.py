"""What the terminal sends, as messages; whatever it is.

Textual's thread for it ends with the first byte that is no UTF-8, with a key whose number is no
character, and takes a paste whose end was lost for the rest of all time. A line that breaks for
a moment, a terminal of another encoding, a file that was pasted by mistake are enough.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Iterator
from time import monotonic
from typing import Final

from textual import events, messages
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.message import Message

TYPED: Final = 512
"""Characters that come at once and are more than this nobody has typed: they are a paste, and
none of them is a key."""

PASTED: Final = 4096
"""Characters of a paste that are taken: the longest field holds less."""

SEQUENCE: Final = 32
"""No sequence of a key is longer; a long text right behind one is cut there."""

PASTE_SECONDS: Final = 1.0
"""A paste whose end does not come is over when nothing more of it has come for so long: its
bytes follow one another."""

TAIL_SECONDS: Final = 0.5
"""For so long what follows on such a text is still of it: its end comes in smaller parts, and
nobody presses a key as soon."""

EDITING: Final = "\t\r\x7f\x03"
"""Tab, enter, backspace and ctrl-c at either end of several characters are keys all the same:
somebody types faster than the line carries."""

SEQUENCE_SECONDS: Final = 0.5
"""The rest of a sequence that came in parts comes sooner."""

_PIECES: Final = re.compile(r"(?=\x1b)")

_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*(?:[@-~]|$)|O(?:[ -~]|$)|[^\[O]|$)", re.DOTALL)
"""One key that is a sequence of characters, or the beginning of one."""

_WHOLE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~]|[^\[O])", re.DOTALL)


class InputDecoder:
    """Bytes of a terminal in, messages out. Never raises for what the bytes are."""

    def __init__(self) -> None:
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._parser = XTermParser()
        self._tail = ""
        self._begun = ""
        self._paste: str | None = None
        self._heard = 0.0
        self._poured = float("-inf")

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are whole with these bytes."""
        self._heard = monotonic()
        for piece in _PIECES.split(self._decode(data)):
            if piece:
                yield from self._piece(piece)

    def tick(self) -> Iterator[Message]:
        """To be called some times a second: what was waited for in vain, such as the rest of an
        escape sequence that was the escape key alone."""
        if self._paste is not None and monotonic() - self._heard > PASTE_SECONDS:
            yield from self._end_paste("")
        if monotonic() - self._heard > SEQUENCE_SECONDS:
            self._begun = ""
        yield from self._parsed(None)

    def _piece(self, piece: str) -> Iterator[Message]:
        """Text up to the next escape character."""
        recent = self._tail + piece
        self._tail = recent[-(len(BRACKETED_PASTE_START) - 1) :]
        if self._paste is not None:
            _, end, behind = recent.partition(BRACKETED_PASTE_END)
            self._paste = (self._paste + piece)[: PASTED + len(BRACKETED_PASTE_END)]
            if end:
                yield from self._end_paste(behind)
            return
        _, start, behind = recent.partition(BRACKETED_PASTE_START)
        if start:
            # Textual's parser takes what looks like a sequence in a paste for keys: it sees an
            # empty one.
            shown = piece[: len(piece) - len(behind)] + BRACKETED_PASTE_END
            for message in self._parsed(shown):
                if not isinstance(message, events.Paste):
                    yield message
            self._paste = behind[:PASTED]
        elif self._untyped(piece):
            yield from self._parsed(piece[:SEQUENCE] if piece.startswith("\x1b") else "")
            yield events.Paste(piece[:PASTED].replace("\x00", ""))
        else:
            yield from self._keys(piece)

    def _keys(self, piece: str) -> Iterator[Message]:
        """A key's sequence, or the rest of one that came in parts, and the characters behind it."""
        begun = "" if piece.startswith("\x1b") else self._begun
        found = _SEQUENCE.match(begun + piece)
        end = found.end() - len(begun) if found else 0
        sequence = found[0] if found else ""
        self._begun = "" if _WHOLE.fullmatch(sequence) or end < len(piece) else sequence
        yield from self._parsed(piece[:end])
        yield from self._characters(piece[end:])

    def _characters(self, text: str) -> Iterator[Message]:
        """Several different characters that come at once were pasted."""
        inner = text.strip(EDITING)
        if len(set(inner)) <= 1:
            yield from self._parsed(text)
            return
        first, _, last = text.partition(inner)
        yield from self._parsed(first)
        yield events.Paste(inner[:PASTED].replace("\x00", ""))
        yield from self._parsed(last)

    def _untyped(self, piece: str) -> bool:
        """Is it of a paste that the terminal did not mark as one?"""
        if len(piece) > TYPED:
            self._poured = self._heard
        elif piece.startswith("\x1b"):
            return False
        return self._heard - self._poured < TAIL_SECONDS

    def _end_paste(self, behind: str) -> Iterator[Message]:
        text, self._paste, self._tail = self._paste or "", None, ""
        text = text.partition(BRACKETED_PASTE_END)[0][:PASTED]
        yield events.Paste(text.replace("\x00", ""))
        if behind:
            yield from self._piece(behind)

    def _parsed(self, text: str | None) -> Iterator[Message]:
        if text == "":
            return
        try:
            for message in self._parser.tick() if text is None else self._parser.feed(text):
                # Sizes come by a signal; those that come as text may be anybody's.
                if not isinstance(message, events.Resize | messages.InBandWindowResize):
                    yield message
        except Exception:
            # A sequence that is none: what is behind the next escape is heard again.
            self._parser = XTermParser()
