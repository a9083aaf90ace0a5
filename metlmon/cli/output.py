"""Standard output: one JSON object, or what its terminal can show."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any, TextIO


def print_json(value: dict[str, Any]) -> None:
    """One JSON object on standard output; ASCII, so that nothing in it moves a cursor."""
    indent = 2 if sys.stdout.isatty() else None
    sys.stdout.write(json.dumps(value, indent=indent, ensure_ascii=True) + "\n")
    sys.stdout.flush()


def print_json_list(
    head: dict[str, Any], name: str, items: Iterable[dict[str, Any]], rest: dict[str, Any]
) -> None:
    """The object ``{**head, name: [*items], **rest}`` as :func:`print_json` writes it; into a
    file each item is written as it is made: a hundred thousand are never there at once."""
    if sys.stdout.isatty():
        print_json({**head, name: list(items), **rest})
        return
    write = sys.stdout.write
    write(f"{json.dumps(head)[:-1]}, {json.dumps(name)}: [")
    for number, item in enumerate(items):
        write((", " if number else "") + json.dumps(item))
    write("]" + (f", {json.dumps(rest)[1:]}" if rest else "}") + "\n")
    sys.stdout.flush()


@contextmanager
def standard_output(*, ascii: bool) -> Iterator[None]:
    """Standard output that translates symbols to ASCII if asked to or if it shows nothing else.

    See :func:`metlmon.text.sanitize.to_ascii`. The stream's encoding is restored afterwards.
    """
    stream = sys.stdout
    if not isinstance(stream, TextIOWrapper) or not (ascii or not can_show(stream)):
        yield
        return
    from metlmon.text.sanitize import ENCODING_ERRORS

    encoding, errors = stream.encoding, stream.errors
    stream.reconfigure(encoding="ascii", errors=ENCODING_ERRORS)
    yield
    stream.reconfigure(encoding=encoding, errors=errors)


def can_show(stream: TextIO) -> bool:
    """Whether ``stream`` shows symbols that are not ASCII."""
    encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
    return encoding in ("utf8", "utf8sig", "utf16", "utf32")


def is_terminal() -> bool:
    """Is there a terminal that can show the dashboard? (It is drawn on standard error.)"""
    dumb = os.environ.get("TERM", "") in ("", "dumb", "unknown")
    streams: list[TextIO | None] = [sys.stdin, sys.stdout, sys.stderr]
    # One that was closed by whoever started this is None.
    return not dumb and all(each is not None and each.isatty() for each in streams)
