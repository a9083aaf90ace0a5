"""The lexer of DAG files: bytes → logical lines → tokens.

Source followed: ``DagLexer`` and ``DagParser::next`` in HTCondor's ``dag_parser.cpp`` (the
parser in use since 25.5).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Container

from msgspec import Struct

from metlmon.redact import HIDDEN, find_secrets, redact_secrets, visible

#: The characters of C's ``isspace``: only these are stripped from physical lines.
_BLANKS = " \t\n\v\f\r"

# No two branches match the same character, so a hostile line of quotes is scanned once.
# Groups are not possessive: Python before 3.11.5 (Debian 12 has 3.11.2) matches those wrongly.
_DOUBLE = r'"((?:[^"\\]|\\.)*)"'
_SINGLE = r"'((?:[^'\\]|\\.)*)'"
_QUOTED = re.compile(f"{_DOUBLE}|{_SINGLE}", re.DOTALL)
_TOKEN = re.compile(rf"""[ \t]*+((?:[^ \t"']|{_DOUBLE}|{_SINGLE})*)""", re.DOTALL)
_PLAIN = re.compile(r"""[ \t]*+([^ \t"']++)(?:[ \t]++|\Z)""")
_KEYWORD = re.compile(r"[ \t]*+([A-Za-z]++)(?![^ \t])")
_KEY = re.compile(r"[ \t]*+([^ \t=]*+)")
_EQUALS = re.compile(r"[ \t]*+=[ \t]*+")
_USUAL_PAIR = re.compile(r"""[ \t]*+([^ \t"'=]++)="([^"\\]++)"(?:[ \t]++|\Z)""")
_NO_MORE = re.compile(r"[ \t]*+\Z")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_INTEGER = re.compile(rf"[{_BLANKS}]*+([+-]?[0-9]++)")

#: The official parser reads numbers into a C ``int`` and rejects others.
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1

#: Characters of an invalid file that an error message quotes.
_QUOTED_CHARACTERS = 40


class SyntaxFault(Exception):
    """A command cannot be parsed; the message is for the user, without file and line."""


class Line(Struct, frozen=True):
    """A logical line.

    ``number`` is that of its first physical line, from 1; ``last`` that of its last physical
    line, 0 when it has only one.
    """

    number: int
    text: str
    last: int = 0


class LogicalLines:
    """Reads the lines of one DAG file in order.

    Empty lines and lines that begin with ``#`` or ``//`` are skipped everywhere: between
    commands, inside a continuation and inside an inline description.
    """

    def __init__(self, data: bytes, file: str = "") -> None:
        self._lines = iter(data.decode("utf-8", "replace").split("\n"))
        self.file = file
        """The file's name in problems."""
        self.number = 1
        """The number of the next physical line, empty or not."""

    def physical(self) -> Line | None:
        """The next physical line, None at the end of the file."""
        for text in self._lines:
            self.number += 1
            text = text.strip(_BLANKS)
            if text and not text.startswith(("#", "//")):
                return Line(self.number - 1, text)
        return None

    def logical(self) -> Line | None:
        """The next command line, continuation lines joined by one blank.

        None at the end of the file, even if the file ends inside a continuation: the
        official parser drops such a command silently.
        """
        first = line = self.physical()
        parts = []
        while line is not None and line.text.endswith("\\"):
            parts.append(line.text[:-1])
            line = self.physical()
        if first is None or line is None:
            return None
        if not parts:
            return line
        parts.append(line.text)
        return Line(first.number, " ".join(parts), line.number)

    def block(self, end: str) -> tuple[list[Line], str]:
        """The lines up to ``end`` (alone, or followed by a blank), and the text after it."""
        block: list[Line] = []
        while (line := self.physical()) is not None:
            if line.text == end or line.text.startswith(end + " "):
                return block, line.text[len(end) :]
            block.append(line)
        raise SyntaxFault(f"Missing inline description closing token: {shown(end)}")


def _without_quotes(match: re.Match[str]) -> str:
    inner = match[1] if match[1] is not None else match[2]
    return _ESCAPED.sub(r"\1", inner)


def _with_quotes(match: re.Match[str]) -> str:
    quote = match[0][0]
    return f"{quote}{_without_quotes(match)}{quote}"


class Tokens:
    """The tokens of one logical line.

    Blanks separate tokens; ``"…"`` and ``'…'`` quote, and ``\\x`` inside them means x. DAGMan
    removes the quotes from file names and from the values of VARS; elsewhere they are part
    of the token.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def next(self) -> str:
        """The next token with its quotes, "" at the end. Raises SyntaxFault."""
        if self.position == len(self.text):
            return ""
        if plain := _PLAIN.match(self.text, self.position):
            self.position = plain.end()
            return plain[1]
        raw = self._raw()
        return _QUOTED.sub(_with_quotes, raw) if '"' in raw or "'" in raw else raw

    def file(self) -> str:
        """The next token without quotes, "" at the end; empty quotes are skipped.

        Raises SyntaxFault on open quotes.
        """
        while raw := self._raw():
            if token := _QUOTED.sub(_without_quotes, raw):
                return token
        return ""

    def _raw(self) -> str:
        match = _TOKEN.match(self.text, self.position)
        assert match is not None  # the pattern matches the empty string
        self.position = match.end()
        if self.position < len(self.text) and self.text[self.position] in "\"'":
            raise SyntaxFault("Invalid quoting: no ending quote found")
        return match[1]

    def peek(self) -> str:
        """The next token, without consuming it."""
        position = self.position
        token = self.next()
        self.position = position
        return token

    def take_keyword(self, keywords: Container[str]) -> str:
        """Consume the next token if it is one of ``keywords``: in upper case, else ""."""
        match = _KEYWORD.match(self.text, self.position)
        if match is None or match[1].upper() not in keywords:
            return ""
        self.position = match.end()
        return match[1].upper()

    def rest(self) -> str:
        """The rest of the line, including quotes."""
        rest = self.text[self.position :].strip(_BLANKS)
        self.position = len(self.text)
        return rest

    def pair(self) -> tuple[str, str] | None:
        """The next ``key=value``, blanks allowed around the ``=``; None at the end.

        The key has no quotes. The first and last character of a value that begins with a
        quote are removed; ``x=""`` is the empty string. Raises SyntaxFault.
        """
        text = self.text
        if usual := _USUAL_PAIR.match(text, self.position):
            self.position = usual.end()
            return usual[1], usual[2]
        if _NO_MORE.match(text, self.position):
            return None
        match = _KEY.match(text, self.position)
        assert match is not None  # the pattern matches the empty string
        key = match[1]
        if '"' in key or "'" in key:
            raise SyntaxFault("Key contains quotation mark")
        equals = _EQUALS.match(text, match.end())
        if not key:
            raise SyntaxFault("Key value pair missing key")
        if equals is None:
            if _NO_MORE.match(text, match.end()):
                raise SyntaxFault("Key value pair missing operator and value")
            raise SyntaxFault("Key value pair missing value: Failed to locate operator")
        self.position = equals.end()
        if text.startswith("=", self.position):
            raise SyntaxFault("Key value pair missing value: Double operator")
        value = self.next()
        if not value:
            raise SyntaxFault("Key value pair missing value: No value specified")
        return key, value[1:-1] if value[0] in "\"'" else value

    def require(self, message: str) -> str:
        """The next token. Raises SyntaxFault with ``message`` at the end."""
        token = self.next()
        if not token:
            raise SyntaxFault(message)
        return token

    def require_file(self, message: str) -> str:
        """The next token without quotes. Raises SyntaxFault with ``message`` at the end."""
        token = self.file()
        if not token:
            raise SyntaxFault(message)
        return token

    def require_node(self) -> str:
        """The next token, the name of a node."""
        return node_name(self.require("No node name specified"))

    def require_number(
        self, missing: str, invalid: str, low: int = -sys.maxsize, high: int = sys.maxsize
    ) -> int:
        """The next token as a number; ``{}`` in ``invalid`` stands for the token."""
        token = self.require(missing)
        number = integer(token)
        if number is None or not low <= number <= high:
            raise SyntaxFault(invalid.format(shown(token)))
        return number

    def end(self) -> None:
        """Raise SyntaxFault if there are more tokens."""
        if extra := self.next():
            raise SyntaxFault(f"Unexpected token '{shown(extra)}'")


def node_name(token: str) -> str:
    """The name of a node or splice, in which nothing is invisible."""
    return sys.intern(visible(token))


def integer(token: str) -> int | None:
    """The leading number of a token, as C++'s ``std::stoi`` reads it (``3x`` is 3).

    None without a number, or when it does not fit a C ``int``.
    """
    match = _INTEGER.match(token)
    if match is None or len(match[1]) > _QUOTED_CHARACTERS:
        return None
    number = int(match[1])
    return number if _INT_MIN <= number <= _INT_MAX else None


def without_secrets_of(line: str, message: str) -> str:
    """Redact the secrets of ``line`` in an error message about it.

    Covers secrets that are recognizable only by what precedes them (``--token X``).
    """
    for secret in find_secrets(line):
        value = line[secret.start : secret.end]
        message = message.replace(value, HIDDEN)
        message = message.replace(f"'{value[:_QUOTED_CHARACTERS]}…'", f"'{HIDDEN}'")
    return message


def shown(token: str) -> str:
    """Format a token for an error message: short, printable, and without secrets.

    It is cut before an ``=``, since a secret may follow (``environment="KEY=…"``).
    """
    head = token.split("=", 1)[0]
    redacted = redact_secrets(head[: 16 * _QUOTED_CHARACTERS])
    text = "".join(c if c.isprintable() else "?" for c in redacted[:_QUOTED_CHARACTERS])
    return text if head == token and len(head) <= _QUOTED_CHARACTERS else f"{text}…"


def shown_file(name: str) -> str:
    """Format the name of a file for a message: as :func:`shown`, but a long path keeps its end."""
    # A longer one would be cut before secrets are found in it, perhaps within one.
    if not _QUOTED_CHARACTERS < len(name) <= 16 * _QUOTED_CHARACTERS or "=" in name:
        return shown(name)
    redacted = redact_secrets(name)
    if len(redacted) <= _QUOTED_CHARACTERS or "/" not in redacted:
        return shown(name)
    return "…" + "".join(c if c.isprintable() else "?" for c in redacted[-_QUOTED_CHARACTERS:])
