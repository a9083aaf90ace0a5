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

_PIECES: Final = re.compile(r"(?=\x1b)")


class Keyboard:
    """Bytes of a terminal in, messages out. Never raises for what the bytes are."""

    def __init__(self) -> None:
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._parser = XTermParser()
        self._tail = ""
        self._pasting = False
        self._pasted = 0
        self._heard = 0.0

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are whole with these bytes."""
        self._heard = monotonic()
        for piece in _PIECES.split(self._decode(data)):
            if piece:
                yield from self._piece(piece)

    def tick(self) -> Iterator[Message]:
        """To be called some times a second: what was waited for in vain, such as the rest of an
        escape sequence that was the escape key alone."""
        if self._pasting and monotonic() - self._heard > PASTE_SECONDS:
            yield from self._piece(BRACKETED_PASTE_END)
        yield from self._parsed(None)

    def _piece(self, piece: str) -> Iterator[Message]:
        """Text up to the next escape character."""
        recent = self._tail + piece
        self._tail = recent[-(len(BRACKETED_PASTE_START) - 1) :]
        if self._pasting and BRACKETED_PASTE_END not in recent:
            room = max(PASTED - self._pasted, len(BRACKETED_PASTE_END))
            self._pasted += len(piece)
            yield from self._parsed(piece[:room] if len(piece) > room else piece)
            return
        if BRACKETED_PASTE_START in recent:
            self._pasting, self._pasted = True, 0
        elif BRACKETED_PASTE_END in recent:
            self._pasting = False
        elif len(piece) > TYPED:
            yield from self._parsed(piece[:SEQUENCE] if piece.startswith("\x1b") else "")
            yield events.Paste(piece[:PASTED].replace("\x00", ""))
            return
        yield from self._parsed(piece)

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
            self._pasting = False
