"""Parses the JSON form of event logs: pretty-printed objects or one per line.

Source followed: ``classad::ClassAdJsonUnParser``. A string never contains a raw newline, so
each line by itself shows whether it is complete.
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
_MAX_DEPTH: Final = 20
"""Levels of nested objects: an event has two. Deeper objects are omitted."""
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
"""Lone surrogates: valid in JSON, but not encodable in a file."""
_MAX_GLUED_CANDIDATES: Final = 64
"""Braces of one damaged object that are tried as the start of the next one."""


class JsonSyntax:
    """See :class:`metlmon.eventlog.classad_log.Syntax`."""

    def find(self, data: bytes, start: int) -> TextSpan | None:
        """The next top-level ``{``, up to its ``}`` and newline."""
        begin = -1
        depth: list[int] = []
        tokens = _TOKEN.finditer(data, start)
        while (token := next(tokens, None)) is not None:
            offset, symbol = token.start(), data[token.start()]
            if symbol == ord('"'):
                if token.end() - offset > 1:
                    continue
                newline = data.find(b"\n", offset)
                if newline < 0:
                    return None
                resume = newline
                if begin < 0:
                    brace = data.find(b"{", offset, newline)
                    resume = brace if brace >= 0 else newline
                elif last := _LAST_BRACE.search(data, offset, newline):
                    return TextSpan(begin, last.start(), last.start(), whole=False, glued=True)
                # No other string that begins on this line is closed on it either.
                tokens = _TOKEN.finditer(data, resume)
            elif begin < 0:
                if symbol == ord("{"):
                    begin, depth = offset, [symbol]
            elif symbol == ord("{") and _is_new(data, offset, depth):
                return _cut_span(data, begin, offset)
            elif symbol in b"{[":
                depth.append(symbol)
            else:
                depth.pop()
                if not depth:
                    return _closed_span(data, begin, token.end())
        return None

    def find_start(self, data: bytes) -> int | None:
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
        return {_clean_text(name): _attribute_value(value) for name, value in ad.items()}

    def salvage(self, data: bytes) -> Ad:
        """See :class:`metlmon.eventlog.classad_log.Syntax`."""
        text = data.decode("utf-8", "replace").replace("\0", "")
        attributes: dict[str, Value] = {}
        for name, value in _PAIR.findall(text):
            try:
                attributes.setdefault(name, _attribute_value(json.loads(value)))
            except ValueError:
                continue
        return attributes

    def find_glued(self, data: bytes) -> int | None:
        """The start of a whole event at the end of a damaged one."""
        start = data.find(b"{", 1)
        for _ in range(_MAX_GLUED_CANDIDATES):
            if start < 0:
                return None
            ad = self.read(data[start:])
            if ad is not None and "EventTypeNumber" in ad:
                return start
            start = data.find(b"{", start + 1)
        return None

    def strip_frame(self, junk: bytes) -> bytes:
        """Remove the brackets and commas of an array of events from ``junk``."""
        return junk.strip(b" \t\r\n,[]")


def _is_new(data: bytes, brace: int, depth: list[int]) -> bool:
    """Whether a ``{`` cannot be a value of the enclosing object or array."""
    if data[brace - 1] in b"\n\0":
        return True
    before = data[max(0, brace - 40) : brace].rstrip()[-1:]
    return before not in ((b":",) if depth[-1] == ord("{") else (b"[", b","))


def _cut_span(data: bytes, begin: int, brace: int) -> TextSpan | None:
    """The span of an object that is cut off by the ``{`` at ``brace``.

    In mid-line and followed by more text, as with one event per line, that brace may
    also be in a string whose quotation mark was cut off: the span is then the whole
    line, and :meth:`JsonSyntax.find_glued` finds the event in it.
    """
    if data[brace - 1] in b"\n\0":
        return TextSpan(begin, brace, brace, whole=False)
    newline = data.find(b"\n", brace)
    if newline < 0:
        return None
    if not data[brace + 1 : newline].strip():
        return TextSpan(begin, brace, brace, whole=False, glued=True)
    return TextSpan(begin, newline, newline + 1, whole=False)


def _closed_span(data: bytes, begin: int, end: int) -> TextSpan | None:
    """The span of a closed object; None until the bytes that follow are known."""
    follows = data[end : end + 2]
    if follows.startswith(b"\n"):
        return TextSpan(begin, end, end + 1)
    if follows == b"\r\n":
        return TextSpan(begin, end, end + 2)
    return TextSpan(begin, end, end) if follows not in (b"", b"\r") else None


def _attribute_value(value: Value, depth: int = _MAX_DEPTH) -> Value:
    """Convert a JSON value to an attribute value; expressions are ``"/Expr(…)/"``."""
    if isinstance(value, str):
        text = _clean_text(value)
        match = _EXPRESSION.fullmatch(text)
        return Expression(match[1]) if match else text
    if isinstance(value, Mapping):
        inner = value.items() if depth else ()
        return {_clean_text(name): _attribute_value(item, depth - 1) for name, item in inner}
    if isinstance(value, list):
        return [_attribute_value(item, depth - 1) for item in value] if depth else []
    return value


def _clean_text(text: str) -> str:
    """Remove NULs, as for the text form, and replace lone surrogates."""
    return (
        text
        if text.isascii() and "\0" not in text
        else _SURROGATE.sub("\ufffd", text).replace("\0", "")
    )
