"""The output of commands: JSON, files, warnings, progress; and what their terminal can show."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO, cast

from msgspec import Struct

from metlmon.cli import Exit
from metlmon.errors import InputError, shorten_words
from metlmon.live.file_access import replacing
from metlmon.model.model_state import Notice
from metlmon.remote.paths import as_typed
from metlmon.text.formatting import plain
from metlmon.text.record_json import SCHEMA, Stamp, json_of, unstamped

if TYPE_CHECKING:
    from metlmon.snapshot.builder import SnapshotBuilder

LISTED: Final = 20
"""Maximum warnings, reasons or names printed as text; ``--json`` has all."""

WIDEST: Final = 1000
"""Maximum width in columns, as on the screens: COLUMNS may be any number."""

LONGEST_MESSAGE: Final = 2000
"""Maximum characters of a message on standard error."""

WAITING_SECONDS: Final = 1.0
"""Duration from which a task shows what it does."""

WEB_DRIVER: Final = "textual.drivers.web_driver:WebDriver"
"""The value of TEXTUAL_DRIVER that textual-serve sets for programs that it shows in a browser."""


def terminal_width() -> int:
    """Columns of the terminal, or of the variable COLUMNS, at most ``WIDEST``."""
    return min(shutil.get_terminal_size().columns, WIDEST)


def require_package(what: str, module: str, extra: str) -> None:
    """Raise InputError if a module that ``what`` needs is not installed."""
    from importlib.util import find_spec  # Most commands need no such module.

    if find_spec(module) is None:
        package = module.replace("_", "-")
        raise InputError(f"{what} needs {package}: pip install 'metlmon[{extra}]'")


def print_message(text: str, subject: str = "") -> None:
    """Print a message about ``subject`` on standard error, with secrets redacted.

    They are redacted separately: a subject such as ``api_token:`` does not make the message secret.
    """
    from metlmon.redact import redact_secrets

    message = shorten_words(redact_secrets(subject) + redact_secrets(text))
    message = f"metlmon: {plain(message, LONGEST_MESSAGE)}"
    if sys.stderr is not None and sys.stderr.isatty():
        from textwrap import fill

        message = fill(message, terminal_width(), break_long_words=False, break_on_hyphens=False)
    print(message, file=sys.stderr, flush=True)


@contextmanager
def waiting_line(text: str = "") -> Iterator[Callable[[str], None]]:
    """A line on standard error while the block takes more than a second, if it is a terminal.

    Yields a function that changes its text.
    """
    stream, is_due, shown = sys.stderr, False, ""

    def show(new_text: str) -> None:
        nonlocal text, shown
        text = new_text
        if is_due and text != shown:
            stream.write("\r\x1b[K" * bool(shown) + text)
            stream.flush()
            shown = text

    def begin() -> None:
        nonlocal is_due
        is_due = True
        show(text)

    if not stream.isatty():
        yield show
        return
    timer = threading.Timer(WAITING_SECONDS, begin)
    timer.start()
    try:
        yield show
    finally:
        timer.cancel()
        timer.join()
        show("")


def print_warnings(notices: Iterable[Notice]) -> None:
    """Print the first warnings on standard error."""
    listed = list(notices)
    for notice in listed[:LISTED]:
        print(f"metlmon: warning: {warning_line(notice)}", file=sys.stderr)
    if len(listed) > LISTED:
        print_message(f"and {len(listed) - LISTED} more warnings")


def warning_line(notice: Notice) -> str:
    """``file:line: text``, made safe to print."""
    where = f"{notice.file}:{notice.line}" if notice.line is not None else notice.file or ""
    return plain(f"{where}: {notice.text}" if where else notice.text, 400)


@contextmanager
def standard_output(*, ascii: bool) -> Iterator[None]:
    """Standard output; symbols become ASCII if required, or if it shows nothing else."""
    if not ascii and can_show(sys.stdout):
        yield
        return
    with redirect_stdout(cast(TextIO, _AsciiStream(sys.stdout))):
        yield


class _AsciiStream:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        from metlmon.text.spans import to_ascii

        return self._stream.write(to_ascii(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def can_show(stream: TextIO) -> bool:
    """Whether ``stream`` shows symbols that are not ASCII."""
    encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
    return encoding in ("utf8", "utf8sig", "utf16", "utf32")


def is_terminal() -> bool:
    """Whether a terminal (standard error, where it is drawn) or a browser can show it."""
    if os.environ.get("TEXTUAL_DRIVER") == WEB_DRIVER:
        return True
    dumb = os.environ.get("TERM", "") in ("", "dumb", "unknown")
    streams: list[TextIO | None] = [sys.stdin, sys.stdout, sys.stderr]
    # A stream that was closed by the parent process is None.
    return not dumb and all(each is not None and each.isatty() for each in streams)


# --- JSON: records, written whole -----------------------------------------------------------


class Output(Struct, frozen=True, kw_only=True):
    """The first fields of every output."""

    schema: int = SCHEMA


class EnsembleOutput(Output, frozen=True, kw_only=True):
    """The first fields of every output about an ensemble."""

    dagdir: str
    as_of: datetime | None
    live: bool
    warnings: tuple[Notice, ...]


def print_json(value: dict[str, Any], *, one_line: bool = False) -> None:
    """Print one JSON object on standard output; in ASCII, so that nothing moves a cursor."""
    indent = 2 if sys.stdout.isatty() and not one_line else None
    sys.stdout.write(json.dumps(value, indent=indent, ensure_ascii=True) + "\n")
    sys.stdout.flush()


def print_output(output: Output, stamp: Stamp = unstamped) -> None:
    """Print an output that does not belong to an ensemble, or concerns files alone."""
    print_json(json_of(output, stamp))


def print_record(
    output: type[EnsembleOutput], builder: SnapshotBuilder, *, one_line: bool = False, **fields: Any
) -> None:
    """Print an output about an ensemble, and its warnings."""
    record = _record(output, builder, fields)
    print_json(json_of(record, builder.clock.with_offset), one_line=one_line)
    print_warnings(record.warnings)


def show(
    options: argparse.Namespace,
    output: type[EnsembleOutput],
    builder: SnapshotBuilder,
    print_text: Callable[[], None],
    **fields: Any,
) -> Exit:
    """Print an output about an ensemble: with ``--json`` its ``fields``, else its text."""
    if options.json:
        print_record(output, builder, **fields)
    else:
        print_text()
    return Exit.OK


def print_records(
    output: type[EnsembleOutput],
    builder: SnapshotBuilder,
    name: str,
    records: Iterable[Struct],
    **fields: Any,
) -> None:
    """As :func:`print_record`, with many ``records`` in the field ``name``, which comes last.

    In a file, each is written as it is made, so that a hundred thousand never exist at once.
    """
    record, stamp = _record(output, builder, {name: (), **fields}), builder.clock.with_offset
    head = {field: value for field, value in json_of(record, stamp).items() if field != name}
    items = (json_of(each, stamp) for each in records)
    if sys.stdout.isatty():
        print_json({**head, name: list(items)})
    else:
        write = sys.stdout.write
        write(f"{json.dumps(head)[:-1]}, {json.dumps(name)}: [")
        for number, item in enumerate(items):
            write((", " if number else "") + json.dumps(item))
        write("]}\n")
        sys.stdout.flush()
    print_warnings(record.warnings)


def _record(
    output: type[EnsembleOutput], builder: SnapshotBuilder, fields: dict[str, Any]
) -> EnsembleOutput:
    return output(
        dagdir=as_typed(builder.dagdir),
        as_of=builder.as_of,
        live=builder.live,
        warnings=tuple(builder.notices()),
        **fields,
    )


# --- files, or standard output in the place of one ------------------------------------------

STDOUT: Final = "-"

BEGINNING: Final = 1000
"""Number of bytes at the beginning of a file that identify it."""


def is_inside(path: Path, directory: Path) -> bool:
    """Whether a path is in a directory, or leads into it through a link."""
    inside = os.path.realpath(directory)
    places = map(os.path.realpath, (path.parent, path))
    return any(Path(each).is_relative_to(inside) for each in places)


class OutputFile(NamedTuple):
    """A file that a command writes, or standard output in its place.

    An older one is replaced with ``force``, or if it begins with one of the ``marks``, as ours do.
    """

    name: str
    force: bool = False
    marks: Sequence[str] = ()

    def check(self, dagdir: Path) -> None:
        """Raise InputError for a file that cannot be written; see the other checks."""
        self.check_outside(dagdir)
        self.check_replaceable()

    def check_outside(self, dagdir: Path) -> None:
        """Raise InputError for a file in the dagdir, where watching never writes."""
        if self.name != STDOUT and is_inside(Path(self.name), dagdir):
            raise InputError(
                f"{plain(self.name)}: this is in the dagdir, where metlmon writes nothing; name a "
                "place elsewhere"
            )

    def check_replaceable(self) -> None:
        """Raise InputError for a directory, and for a file that must not be replaced."""
        path = Path(self.name)
        if path.is_dir():
            raise InputError(f"{plain(self.name)}: this is a directory; name a file")
        if self.name == STDOUT or self.force or not path.is_file():
            return
        with open(path, "rb") as file:
            beginning = file.read(BEGINNING)
        if not any(mark.encode() in beginning for mark in self.marks):
            raise InputError(
                f"{plain(self.name)}: is there already; --force overwrites it, or name another file"
            )

    def write(self, text: str) -> None:
        """Write it completely or not at all. Raises InputError."""
        data = text.encode("utf-8")
        if self.name == STDOUT:
            sys.stdout.flush()
            out = getattr(sys.stdout, "buffer", None)
            if out is None:
                sys.stdout.write(text)
            else:
                out.write(data)
            sys.stdout.flush()
            return
        path = Path(self.name)
        try:
            if path.exists() and not path.is_file():
                # A pipe or a device is written to, never replaced.
                path.write_bytes(data)
                return
            # Through a symbolic link: its target is replaced, the link stays.
            with replacing(Path(os.path.realpath(path))) as draft:
                draft.write_bytes(data)
                self.check_replaceable()
        except OSError as error:
            raise InputError(f"{plain(self.name)}: {error.strerror or error}") from None
        print(f"{plain(self.name)} written ({len(data) / 1000:.0f} kB)", file=sys.stderr)
