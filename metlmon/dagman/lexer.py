"""The text of a DAG file: bytes → logical lines → tokens.

Source followed: ``DagLexer`` and ``DagParser::next`` in HTCondor's ``dag_parser.cpp`` (the
parser in use since 25.5).
"""

from __future__ import annotations

import re
from collections.abc import Container

from metlmon.frozen import frozen
from metlmon.redact import HIDDEN, find, redact_secrets

#: What C's ``isspace`` calls a blank: physical lines are trimmed of these and no others.
_BLANKS = " \t\n\v\f\r"

# No two branches can take the same character, so a hostile line of quotes is gone over once.
# Groups are not possessive: Python before 3.11.5 (Debian 12 has 3.11.2) matches those wrongly.
_DOUBLE = r'"((?:[^"\\]|\\.)*)"'
_SINGLE = r"'((?:[^'\\]|\\.)*)'"
_QUOTED = re.compile(f"{_DOUBLE}|{_SINGLE}", re.DOTALL)
_TOKEN = re.compile(rf"""[ \t]*+((?:[^ \t"']|{_DOUBLE}|{_SINGLE})*)""", re.DOTALL)
_PLAIN = re.compile(r"""[ \t]*+([^ \t"']++)(?:[ \t]++|\Z)""")
_KEYWORD = re.compile(r"[ \t]*+([A-Za-z]++)(?![^ \t])")
_KEY = re.compile(r"[ \t]*+([^ \t=]*+)")
_EQUALS = re.compile(r"[ \t]*+=[ \t]*+")
_NO_MORE = re.compile(r"[ \t]*+\Z")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_INTEGER = re.compile(rf"[{_BLANKS}]*+([+-]?[0-9]++)")

#: The official parser reads numbers into a C ``int`` and refuses what does not fit.
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1

#: Longest piece of a bad file that an error sentence quotes.
_SHOWN = 40


class SyntaxFault(Exception):
    """One command cannot be read; the message is the sentence for the user, without a place."""


@frozen
class Line:
    """One line: ``number`` counts physical lines from 1 (the first one, when continued);
    ``last`` is that of its last physical line, 0 where it has but one."""

    number: int
    text: str
    last: int = 0


class LogicalLines:
    """The lines of one DAG file, handed out once, front to back.

    Empty lines and lines that begin with ``#`` or ``//`` vanish everywhere: between commands,
    inside a continuation and inside an inline description.
    """

    def __init__(self, data: bytes) -> None:
        self._text = data.decode("utf-8", "replace")
        self._at = 0
        self.number = 1
        """Of the line that comes next, empty or not."""

    def usual(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """What ``pattern`` finds in the next line, which it must take with its newline. It stays
        the next one until :meth:`pass_over`."""
        return pattern.match(self._text, self._at)

    def pass_over(self, found: re.Match[str]) -> None:
        """The line that :meth:`usual` found has been read."""
        self._at = found.end()
        self.number += 1

    def physical(self) -> Line | None:
        """The next line as it stands, None at the end of the file."""
        whole = len(self._text)
        while self._at < whole:
            end = self._text.find("\n", self._at)
            if end < 0:
                end = whole
            text = self._text[self._at : end].strip(_BLANKS)
            self._at = end + 1
            self.number += 1
            if text and not text.startswith(("#", "//")):
                return Line(self.number - 1, text)
        return None

    def logical(self) -> Line | None:
        """The next command line, continuation lines joined by one blank.

        None at the end of the file, also when the file ends inside a continuation: the
        official parser drops such a command without a word.
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

    def block(self, end: str) -> tuple[list[str], str]:
        """The lines up to ``end`` (alone, or followed by a blank), and what follows it there."""
        found: list[str] = []
        while (line := self.physical()) is not None:
            if line.text == end or line.text.startswith(end + " "):
                return found, line.text[len(end) :]
            found.append(line.text)
        raise SyntaxFault(f"Missing inline description closing token: {shown(end)}")


def _without_quotes(match: re.Match[str]) -> str:
    inner = match[1] if match[1] is not None else match[2]
    return _ESCAPED.sub(r"\1", inner)


def _with_quotes(match: re.Match[str]) -> str:
    quote = match[0][0]
    return f"{quote}{_without_quotes(match)}{quote}"


class Tokens:
    """The words of one logical line. Blanks separate; ``"…"`` and ``'…'`` hold words together,
    with ``\\x`` inside them standing for x. DAGMan takes the quotes off the names of files, and
    off the values of VARS; elsewhere they are part of the word."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def next(self) -> str:
        """The next word with its quotes, "" at the end. Raises SyntaxFault on open quotes."""
        if plain := _PLAIN.match(self.text, self.position):
            self.position = plain.end()
            return plain[1]
        raw = self._raw()
        return _QUOTED.sub(_with_quotes, raw) if '"' in raw or "'" in raw else raw

    def file(self) -> str:
        """The next word without quotes, "" at the end; an empty pair of quotes does not count.

        Raises SyntaxFault on open quotes."""
        while raw := self._raw():
            if word := _QUOTED.sub(_without_quotes, raw):
                return word
        return ""

    def _raw(self) -> str:
        match = _TOKEN.match(self.text, self.position)
        assert match is not None  # the pattern matches the empty string
        self.position = match.end()
        if self.position < len(self.text) and self.text[self.position] in "\"'":
            raise SyntaxFault("Invalid quoting: no ending quote found")
        return match[1]

    def peek(self) -> str:
        """The next word, left where it is."""
        position = self.position
        word = self.next()
        self.position = position
        return word

    def take_keyword(self, keywords: Container[str]) -> str:
        """The next word in upper case when it is one of ``keywords``; "" (and it stays) if not."""
        match = _KEYWORD.match(self.text, self.position)
        if match is None or match[1].upper() not in keywords:
            return ""
        self.position = match.end()
        return match[1].upper()

    def rest(self) -> str:
        """All that is left of the line, quotes and all."""
        rest = self.text[self.position :].strip(_BLANKS)
        self.position = len(self.text)
        return rest

    def pair(self) -> tuple[str, str] | None:
        """The next ``key=value``, blanks allowed around the ``=``; None at the end.

        The key has no quotes. A value that begins with a quote loses its first and its last
        character; ``x=""`` is the empty string. Raises SyntaxFault.
        """
        text = self.text
        if _NO_MORE.match(text, self.position):
            return None
        found = _KEY.match(text, self.position)
        assert found is not None  # the pattern matches the empty string
        key = found[1]
        if '"' in key or "'" in key:
            raise SyntaxFault("Key contains quotation mark")
        equals = _EQUALS.match(text, found.end())
        if not key:
            raise SyntaxFault("Key value pair missing key")
        if equals is None:
            if _NO_MORE.match(text, found.end()):
                raise SyntaxFault("Key value pair missing operator and value")
            raise SyntaxFault("Key value pair missing value: Failed to locate operator")
        self.position = equals.end()
        if text.startswith("=", self.position):
            raise SyntaxFault("Key value pair missing value: Double operator")
        value = self.next()
        if not value:
            raise SyntaxFault("Key value pair missing value: No value specified")
        return key, value[1:-1] if value[0] in "\"'" else value

    def end(self) -> None:
        """Raises SyntaxFault when there are more words."""
        if extra := self.next():
            raise SyntaxFault(f"Unexpected token '{shown(extra)}'")


def integer(token: str) -> int | None:
    """The number a token begins with, as C++'s ``std::stoi`` reads it (``3x`` is 3).

    None when there is none or it does not fit an ``int``.
    """
    match = _INTEGER.match(token)
    if match is None or len(match[1]) > _SHOWN:
        return None
    number = int(match[1])
    return number if _INT_MIN <= number <= _INT_MAX else None


def without_secrets_of(line: str, complaint: str) -> str:
    """What is said of a line, without a word of it that only what stands before it tells to be a
    secret (``--token X``)."""
    for found in find(line):
        value = line[found.start : found.end]
        complaint = complaint.replace(value, HIDDEN).replace(f"'{value[:_SHOWN]}…'", f"'{HIDDEN}'")
    return complaint


def shown(token: str) -> str:
    """A token as an error sentence may quote it: short, printable, and cut behind an ``=``,
    since what follows may be a secret (``environment="KEY=…"``)."""
    head = token.split("=", 1)[0]
    hidden = redact_secrets(head[: 16 * _SHOWN])
    text = "".join(c if c.isprintable() else "?" for c in hidden[:_SHOWN])
    return text if head == token and len(head) <= _SHOWN else f"{text}…"
