"""The JSON form of event logs: objects one behind the other, pretty-printed or one per line.

Source followed: ``classad::ClassAdJsonUnParser``.  A string never holds a raw newline, so a line
tells by itself whether it is whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from metlmon.eventlog.classad_events import Ad, Expression, Value
from metlmon.eventlog.classad_log import TextSpan

_TOKEN: Final = re.compile(rb'"[^"\\\n]*(?:\\.[^"\\\n]*)*"|[{}\[\]"]')
_LAST_BRACE: Final = re.compile(rb"\{[ \t]*\r?\Z")
_PAIR: Final = re.compile(
    r'"(\w+)"\s*:\s*("[^"\\\n]*(?:\\.[^"\\\n]*)*"|-?[0-9]{1,18}(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?)?'
    r"(?=\s*[,}\n])|true\b|false\b)"
)
_EXPRESSION: Final = re.compile(r"/Expr\((.*)\)/", re.DOTALL)
_DEEPEST: Final = 20
"""Objects within objects: an event has two. What is deeper is left out."""
_HALF: Final = re.compile(r"[\ud800-\udfff]")
"""Half a character: JSON can spell it, and no file can hold it."""
_MOST_HIDDEN: Final = 64
"""Braces of one damaged object that are tried as the beginning of the next one."""


class Json:
    """See :class:`metlmon.eventlog.classad_log.Syntax`."""

    def find(self, data: bytes, start: int) -> TextSpan | None:
        """The next ``{`` that nothing holds, up to its ``}`` and newline."""
        begin = -1
        depth: list[int] = []
        tokens = _TOKEN.finditer(data, start)
        while (token := next(tokens, None)) is not None:
            at, sign = token.start(), data[token.start()]
            if sign == ord('"'):
                if token.end() - at > 1:
                    continue
                newline = data.find(b"\n", at)
                if newline < 0:
                    return None
                behind = newline
                if begin < 0:
                    brace = data.find(b"{", at, newline)
                    behind = brace if brace >= 0 else newline
                elif last := _LAST_BRACE.search(data, at, newline):
                    return TextSpan(begin, last.start(), last.start(), whole=False, glued=True)
                # No string that begins on the rest of this line is closed on it either.
                tokens = _TOKEN.finditer(data, behind)
            elif begin < 0:
                if sign == ord("{"):
                    begin, depth = at, [sign]
            elif sign == ord("{") and _is_new(data, at, depth):
                return _cut(data, begin, at)
            elif sign in b"{[":
                depth.append(sign)
            else:
                depth.pop()
                if not depth:
                    return _closed(data, begin, token.end())
        return None

    def begins(self, data: bytes) -> int | None:
        """See :class:`metlmon.eventlog.classad_log.Syntax`."""
        start = data.find(b"{")
        return start if start >= 0 else None

    def read(self, data: bytes) -> Ad | None:
        """See :class:`metlmon.eventlog.classad_log.Syntax`."""
        try:
            ad = json.loads(data.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
        if not isinstance(ad, dict):
            return None
        return {_text(name): _value(value) for name, value in ad.items()}

    def salvage(self, data: bytes) -> Ad:
        """See :class:`metlmon.eventlog.classad_log.Syntax`."""
        text = data.decode("utf-8", "replace").replace("\0", "")
        found: dict[str, Value] = {}
        for name, value in _PAIR.findall(text):
            try:
                found.setdefault(name, _value(json.loads(value)))
            except ValueError:
                continue
        return found

    def hidden(self, data: bytes) -> int | None:
        """Where a whole event stands at the end of a damaged one."""
        start = data.find(b"{", 1)
        for _ in range(_MOST_HIDDEN):
            if start < 0:
                return None
            ad = self.read(data[start:])
            if ad is not None and "EventTypeNumber" in ad:
                return start
            start = data.find(b"{", start + 1)
        return None

    def frame(self, junk: bytes) -> bytes:
        """``junk`` without the brackets and commas of an array of events."""
        return junk.strip(b" \t\r\n,[]")


def _is_new(data: bytes, at: int, depth: list[int]) -> bool:
    """Whether a ``{`` cannot be a value of the object or array that holds it."""
    if data[at - 1] in b"\n\0":
        return True
    before = data[max(0, at - 40) : at].rstrip()[-1:]
    return before not in ((b":",) if depth[-1] == ord("{") else (b"[", b","))


def _cut(data: bytes, begin: int, at: int) -> TextSpan | None:
    """An object that the ``{`` at ``at`` cuts.

    In mid-line and with more behind it on its line, as events on one line each are, that
    brace may as well stand in a string whose quotation mark was cut off: the span is
    then the whole line, and :meth:`Json.hidden` finds the event in it.
    """
    if data[at - 1] in b"\n\0":
        return TextSpan(begin, at, at, whole=False)
    newline = data.find(b"\n", at)
    if newline < 0:
        return None
    if not data[at + 1 : newline].strip():
        return TextSpan(begin, at, at, whole=False, glued=True)
    return TextSpan(begin, newline, newline + 1, whole=False)


def _closed(data: bytes, begin: int, end: int) -> TextSpan | None:
    """A closed object, when what follows tells that its line is ended or goes on."""
    follows = data[end : end + 2]
    if follows.startswith(b"\n"):
        return TextSpan(begin, end, end + 1)
    if follows == b"\r\n":
        return TextSpan(begin, end, end + 2)
    return TextSpan(begin, end, end) if follows not in (b"", b"\r") else None


def _value(value: Value, depth: int = _DEEPEST) -> Value:
    """A JSON value as an attribute's: expressions are strings ``/Expr(…)/``."""
    if isinstance(value, str):
        said = _text(value)
        found = _EXPRESSION.fullmatch(said)
        return Expression(found[1]) if found else said
    if isinstance(value, Mapping):
        inner = value.items() if depth else ()
        return {_text(name): _value(each, depth - 1) for name, each in inner}
    if isinstance(value, list):
        return [_value(each, depth - 1) for each in value] if depth else []
    return value


def _text(text: str) -> str:
    """A string without NULs, as the text form is read, and without halves of characters."""
    return (
        text if text.isascii() and "\0" not in text else _HALF.sub("\ufffd", text).replace("\0", "")
    )
