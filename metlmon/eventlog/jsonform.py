"""The JSON form of event logs: objects one behind the other, pretty-printed or one per line.

Source followed: ``classad::ClassAdJsonUnParser``.  A string never holds a raw newline, so a line
tells by itself whether it is whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from metlmon.eventlog.ads import Span
from metlmon.eventlog.wording import Ad, Expression, Value

_TOKEN: Final = re.compile(rb'"[^"\\\n]*(?:\\.[^"\\\n]*)*"|[{}\[\]"]')
_LAST_BRACE: Final = re.compile(rb"\{[ \t]*\r?\Z")
_PAIR: Final = re.compile(
    r'"(\w+)"\s*:\s*("[^"\\\n]*(?:\\.[^"\\\n]*)*"|-?[0-9]{1,18}(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?)?'
    r"(?=\s*[,}\n])|true\b|false\b)"
)
_EXPRESSION: Final = re.compile(r"/Expr\((.*)\)/", re.DOTALL)
_MOST_HIDDEN: Final = 64
"""Braces of one damaged object that are tried as the beginning of the next one."""


class Json:
    """See :class:`metlmon.eventlog.ads.Syntax`."""

    def find(self, data: bytes, start: int) -> Span | None:
        """The next ``{`` that nothing holds, up to its ``}`` and newline."""
        begin = -1
        depth: list[int] = []
        past = start
        for token in _TOKEN.finditer(data, start):
            at, sign = token.start(), data[token.start()]
            if at < past or (begin < 0 and sign != ord("{")):
                continue
            if sign == ord('"'):
                if token.end() - at > 1:
                    continue
                newline = data.find(b"\n", at)
                if newline < 0:
                    return None
                if brace := _LAST_BRACE.search(data, at, newline):
                    return Span(begin, brace.start(), brace.start(), whole=False, glued=True)
                past = newline
            elif begin < 0:
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
        """See :class:`metlmon.eventlog.ads.Syntax`."""
        start = data.find(b"{")
        return start if start >= 0 else None

    def read(self, data: bytes) -> Ad | None:
        """See :class:`metlmon.eventlog.ads.Syntax`."""
        try:
            ad = json.loads(data.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
        return {name: _value(value) for name, value in ad.items()} if isinstance(ad, dict) else None

    def salvage(self, data: bytes) -> Ad:
        """See :class:`metlmon.eventlog.ads.Syntax`."""
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


def _cut(data: bytes, begin: int, at: int) -> Span | None:
    """An object that the ``{`` at ``at`` cuts.

    In mid-line and with more behind it on its line, as events on one line each are, that
    brace may as well stand in a string whose quotation mark was cut off: the span is
    then the whole line, and :meth:`Json.hidden` finds the event in it.
    """
    if data[at - 1] in b"\n\0":
        return Span(begin, at, at, whole=False)
    newline = data.find(b"\n", at)
    if newline < 0:
        return None
    if not data[at + 1 : newline].strip():
        return Span(begin, at, at, whole=False, glued=True)
    return Span(begin, newline, newline + 1, whole=False)


def _closed(data: bytes, begin: int, end: int) -> Span | None:
    """A closed object, when what follows tells that its line is ended or goes on."""
    follows = data[end : end + 2]
    if follows.startswith(b"\n"):
        return Span(begin, end, end + 1)
    if follows == b"\r\n":
        return Span(begin, end, end + 2)
    return Span(begin, end, end) if follows not in (b"", b"\r") else None


def _value(value: Value) -> Value:
    """A JSON value as an attribute's: expressions are strings ``/Expr(…)/``."""
    if isinstance(value, str) and (found := _EXPRESSION.fullmatch(value)):
        return Expression(found[1])
    if isinstance(value, Mapping):
        return {name: _value(each) for name, each in value.items()}
    return value
