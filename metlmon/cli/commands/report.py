"""``metlmon report``: the experiment's tables and figures, as HTML, Markdown, JSON or printed."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.json_output.objects import SCHEMA, JsonObject
from metlmon.cli.json_output.usage import WINDOW
from metlmon.cli.output import print_json
from metlmon.cli.reading import open_reader
from metlmon.drafts import draft_name, remove_stale_drafts
from metlmon.live.errors import InputError
from metlmon.model.states import HourUnit
from metlmon.report import to_html, to_markdown
from metlmon.report.document import Report
from metlmon.stats.windows import parse_window
from metlmon.text.formatting import plain

if TYPE_CHECKING:
    from metlmon.snapshot.builder import SnapshotBuilder

STDOUT: Final = "-"

BEGINNING: Final = 1000
"""Bytes in which a report names itself."""

PIPE_WIDTH: Final = 1000
"""Columns that no terminal shows: nothing is cut or left out for a script."""

REPORT_TABLE: Final = JsonObject(
    "ReportTable",
    None,
    "A table of the report: rows as objects by column, and their total.",
    given={"rows": list[dict[str, Any]], "total": dict[str, Any] | None},
)
REPORT_OUTPUT: Final = JsonObject(
    "ReportOutput",
    Report,
    "metlmon report --json: the tables of the report, with raw numbers.",
    "dagdir as_of live title headline unknown=limitations",
    computed={
        "schema": (int, lambda report: SCHEMA),
        "window": (WINDOW, lambda report: report),
        "definitions": (
            dict[str, str],
            lambda report: {note.key: note.text for note in report.footnotes},
        ),
    },
    given={
        **{"totals": dict[str, Any], "moved": dict[str, Any]},
        **dict.fromkeys(
            ("gpus", "sites", "periods", "times", "causes", "transfers", "runs"), REPORT_TABLE
        ),
    },
    optional={"places": REPORT_TABLE, "labels": REPORT_TABLE},
)


def report(options: argparse.Namespace) -> int:
    """``metlmon report``."""
    from metlmon.report.build import build_report

    formats = [name for name in ("html", "md") if getattr(options, name) is not None]
    _check(options, formats)
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    zone = builder.clock.zone
    window = parse_window(options.since, options.until, options.month, zone)
    for name in formats:
        _check_outside(getattr(options, name), reader.dagdir)
        _check_replaceable(getattr(options, name), options.force)
    ledger = builder.ledger()
    # What the JSON calls GPU-hours is nothing else.
    measure = HourUnit.GPU if options.json else ledger.measure
    document = build_report(
        builder.status(), ledger, window, options.title, _zone(builder), measure
    )
    if options.json:
        print_json(_json(builder, document))
    elif not formats:
        _print(document)
    for name in formats:
        _deliver(getattr(options, name), _written(name, document), options.force)
    return Exit.OK


def _print(document: Report) -> None:
    from metlmon.report.to_text import text_lines

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH
    for line in text_lines(document, width):
        print(line)


def _zone(builder: SnapshotBuilder) -> str | None:
    zone = builder.clock.zone
    if zone is not None:
        return str(zone)
    return "UTC" if builder.clock.utc_only else None


def _check(options: argparse.Namespace, formats: list[str]) -> None:
    if options.json and formats:
        raise InputError(f"--json goes to standard output: leave out --{formats[0]}, or --json")
    if [getattr(options, name) for name in formats].count(STDOUT) > 1:
        raise InputError("--html - and --md -: only one of them can go to standard output")
    if len(formats) > 1 and _same(options.html, options.md):
        raise InputError(f"--html and --md both name {plain(options.html)}: give each a file")


def _same(one: str, other: str) -> bool:
    return one != STDOUT and os.path.realpath(one) == os.path.realpath(other)


def _written(name: str, document: Report) -> str:
    return (
        to_html.render_html(document) if name == "html" else to_markdown.render_markdown(document)
    )


def _json(builder: SnapshotBuilder, document: Report) -> dict[str, object]:
    from metlmon.report.to_json import tables_json

    return REPORT_OUTPUT.write(document, builder.clock.with_offset, **tables_json(document))


# --- files ----------------------------------------------------------------------------------


def _check_outside(name: str, dagdir: Path) -> None:
    """Watching never writes to a dagdir, and a report is made by watching."""
    if name == STDOUT:
        return
    path = Path(name)
    if path.is_dir():
        raise InputError(f"{plain(name)}: this is a directory; name a file")
    inside = os.path.realpath(dagdir)
    # Both: a link may lie in it, or lead into it.
    places = map(os.path.realpath, (path.parent, path))
    if any(Path(each).is_relative_to(inside) for each in places):
        raise InputError(
            f"{plain(name)}: this is in the dagdir, where metlmon report writes nothing; name a "
            "file elsewhere"
        )


def _check_replaceable(name: str, force: bool) -> None:
    """Raises InputError where another file than a report of ours is in the way."""
    path = Path(name)
    if name == STDOUT or force or not path.is_file():
        return
    with open(path, "rb") as file:
        beginning = file.read(BEGINNING)
    if not any(mark.encode() in beginning for mark in (to_html.MARK, to_markdown.MARK)):
        raise InputError(
            f"{plain(name)}: is there already; --force overwrites it, or name another file"
        )


def _deliver(name: str, text: str, force: bool) -> None:
    """To a file, which is there whole or not at all; or to standard output."""
    data = text.encode("utf-8")
    if name == STDOUT:
        sys.stdout.flush()
        out = getattr(sys.stdout, "buffer", None)
        if out is None:
            sys.stdout.write(text)
        else:
            out.write(data)
        sys.stdout.flush()
        return
    path = Path(name)
    if path.exists() and not path.is_file():
        # A pipe or a device is written to, never replaced.
        _write(path, data)
        return
    # Through a symbolic link: what it points to is renewed, the link stays.
    target = Path(os.path.realpath(path))
    try:
        remove_stale_drafts(target.parent, [target.name])
        beside = target.with_name(draft_name(target.name))
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(f"{plain(name)}: {error.strerror or error}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, _mode(target))
        _check_replaceable(name, force)
        os.replace(beside, target)
    except OSError as error:
        raise InputError(f"{plain(name)}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            os.unlink(beside)
    print(f"{plain(name)} written ({len(data) / 1000:.0f} kB)", file=sys.stderr)


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InputError(f"{plain(str(path))}: {error.strerror or error}") from None


def _mode(target: Path) -> int:
    """What an ordinary new file has, or what the file that is renewed had."""
    with suppress(OSError):
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
