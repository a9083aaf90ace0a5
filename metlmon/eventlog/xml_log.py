"""Parses the XML form of event logs: ``<c>`` lists of ``<a n="Name">`` attributes.

Source followed: ``classad::ClassAdXMLUnParser``. It writes ``<`` in values as ``&lt;``, so a tag
is always a tag. No XML parser is used: logs are untrusted, concatenated and cut off, and
their control characters are not valid XML.
"""

from __future__ import annotations

import re
from typing import Final

from metlmon.eventlog.classad_events import Ad, Expression, Value
from metlmon.eventlog.classad_log import TextSpan

_TAG: Final = re.compile(rb'(<a n="[^"\n]{0,200}">\s{0,40})?<c>|</c>|</?l>')
_FRAME: Final = re.compile(rb"<\?xml[^<>]*>|<!DOCTYPE[^<>]*>|</?(?:classads|eventlog)>")
_TOKEN: Final = re.compile(
    r'<a n="(?P<name>[^"\n]*)">|<(?P<kind>[irse]|at|rt)>(?P<text>[^<]*)</(?P=kind)>'
    r'|<b v="(?P<truth>[tf])"/>|<(?P<open>[cl])>|</(?P<close>[cl])>|<(?P<empty>s|un|er)/>'
)
_MAX_DEPTH: Final = 20
"""Levels of nested lists: an event has two. Deeper lists are omitted."""
_ENTITY: Final = re.compile("&(lt|gt|quot|apos|amp);")
_ENTITIES: Final = {"lt": "<", "gt": ">", "quot": '"', "apos": "'", "amp": "&"}


class XmlSyntax:
    """See :class:`metlmon.eventlog.classad_log.Syntax`."""

    def find(self, data: bytes, start: int) -> TextSpan | None:
        """The next top-level ``<c>``, up to its ``</c>`` and newline."""
        begin = -1
        depth = lists = 0
        for tag in _TAG.finditer(data, start):
            if begin < 0:
                if tag[0].endswith(b"<c>"):
                    begin, depth = tag.end() - len(b"<c>"), 1
            elif tag[0] == b"</c>":
                depth -= 1
                if depth == 0:
                    return _closed_span(data, begin, tag.end())
            elif tag[0].endswith(b"l>"):
                lists += 1 if tag[0] == b"<l>" else -1
            elif tag[1] is not None or (lists > 0 and data[tag.start() - 1] not in b"\n\0"):
                depth += 1
            else:
                cut = tag.start()
                return TextSpan(begin, cut, cut, whole=False, glued=data[cut - 1] not in b"\n\0")
        return None

    def find_start(self, data: bytes) -> int | None:
        """See :class:`metlmon.eventlog.classad_log.Syntax`."""
        start = data.find(b"<c>")
        return start if start >= 0 else None

    def read(self, data: bytes) -> Ad | None:
        """See :class:`metlmon.eventlog.classad_log.Syntax`."""
        if not data.rstrip().endswith(b"</c>"):
            return None
        return self.salvage(data)

    def salvage(self, data: bytes) -> Ad:
        """See :class:`metlmon.eventlog.classad_log.Syntax`."""
        attributes: dict[str, Value] = {}
        stack: list[tuple[dict[str, Value] | list[Value], str]] = []
        container: dict[str, Value] | list[Value] = attributes
        name = ""
        for token in _TOKEN.finditer(data.decode("utf-8", "replace").replace("\0", "")):
            if token["name"] is not None:
                name = token["name"]
            elif token["open"] and (stack or name):
                stack.append((container, name))
                inner: dict[str, Value] | list[Value] = {} if token["open"] == "c" else []
                if len(stack) <= _MAX_DEPTH:
                    _add_value(container, name, inner)
                container = inner
            elif token["close"]:
                container, name = stack.pop() if stack else (attributes, "")
            elif not token["open"]:
                _add_value(container, name, _attribute_value(token))
        return attributes

    def find_glued(self, data: bytes) -> int | None:
        """None: a tag is always a tag, so :meth:`find` sees the start of every list."""
        return None

    def strip_frame(self, junk: bytes) -> bytes:
        """Remove the XML declaration and the enclosing tags from ``junk``."""
        return _FRAME.sub(b"", junk)


def _closed_span(data: bytes, begin: int, end: int) -> TextSpan | None:
    """The span of a closed list; None until the bytes that follow are known."""
    follows = data[end : end + 2]
    if follows.startswith(b"\n"):
        return TextSpan(begin, end, end + 1)
    if follows == b"\r\n":
        return TextSpan(begin, end, end + 2)
    return TextSpan(begin, end, end) if follows not in (b"", b"\r") else None


def _add_value(container: dict[str, Value] | list[Value], name: str, value: Value) -> None:
    if isinstance(container, list):
        container.append(value)
    else:
        container[name] = value


def _attribute_value(token: re.Match[str]) -> Value:
    kind, text = token["kind"], token["text"]
    if kind is None:
        return token["truth"] == "t" if token["truth"] else ("" if token["empty"] == "s" else None)
    if kind in "ir":
        try:
            return int(text) if kind == "i" else float(text)
        except ValueError:
            return None
    plain = _ENTITY.sub(lambda entity: _ENTITIES[entity[1]], text)
    return Expression(plain) if kind == "e" else plain
