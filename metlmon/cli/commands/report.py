"""``metlmon report``: tables and figures, as HTML, Markdown, JSON or printed."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.json_output.objects import SCHEMA, JsonObject
from metlmon.cli.json_output.usage import WINDOW
from metlmon.cli.output import print_json
from metlmon.cli.reading import open_reader, stats_input, window_of
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.file_access import replacing
from metlmon.report import to_html, to_markdown
from metlmon.report.document import Report, Section
from metlmon.snapshot.ledger import HourUnit
from metlmon.text.formatting import plain

STDOUT: Final = "-"

BEGINNING: Final = 1000
"""Bytes in which a report names itself."""

PIPE_WIDTH: Final = 1000
"""Columns that no terminal shows: nothing is cut or left out for a script."""

REPORT_TABLE: Final = JsonObject(
    None,
    "A table of the report: rows as objects by column, and their total.",
    name="ReportTable",
    given={"rows": list[dict[str, Any]], "total": dict[str, Any] | None},
)
REPORT_OUTPUT: Final = JsonObject(
    Report,
    "metlmon report --json: the tables of the report, with raw numbers.",
    "dagdir as_of live title headline unknown=limitations",
    name="ReportOutput",
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
    optional=dict.fromkeys(("places", "labels", "best_runs", "sweep"), REPORT_TABLE),
)


def report(options: argparse.Namespace) -> int:
    """``metlmon report``."""
    from metlmon.report.build import build_report

    formats = [name for name in ("html", "md") if getattr(options, name) is not None]
    _check(options, formats)
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    zone = builder.clock.zone
    window = window_of(options, builder)
    for name in formats:
        _check_outside(getattr(options, name), reader.dagdir)
        check_replaceable(getattr(options, name), options.force)
    ledger = builder.ledger()
    # What the JSON calls GPU-hours is nothing else.
    measure = HourUnit.GPU if options.json else ledger.measure
    zone_name = str(zone) if zone is not None else "UTC" if builder.clock.utc_only else None
    document = build_report(
        builder.status(),
        ledger,
        window,
        options.title,
        zone=zone_name,
        measure=measure,
        # Metrics have no time: they are of the whole ensemble, never of a window.
        learning=_learning(reader) if window.unbounded else None,
    )
    if options.json:
        from metlmon.report.document import tables_json

        stamp = builder.clock.with_offset
        print_json(REPORT_OUTPUT.write(document, stamp, **tables_json(document)))
    elif not formats:
        _print(document)
    writers = {"html": to_html.render_html, "md": to_markdown.render_markdown}
    for name in formats:
        _deliver(getattr(options, name), writers[name](document), options.force)
    return Exit.OK


def _learning(reader: DagdirReader) -> Section | None:
    """The section about the metrics that the trainings wrote."""
    from metlmon.live.job_files import TrainingFiles
    from metlmon.report.learning import learning_section
    from metlmon.snapshot.builder import describe_dags
    from metlmon.stats.curves import curves
    from metlmon.stats.sweep import GridChoice, grid

    builder = reader.snapshot_builder()
    files = TrainingFiles(reader.dagdir, reader.ensemble.settings)
    basis = stats_input(
        reader,
        trainings=files.training_outputs(builder.ledger(), builder),
        files_read=True,
        load_description=lambda: describe_dags(builder),
    )
    return learning_section(curves(basis), grid(basis, GridChoice()))


def _print(document: Report) -> None:
    from metlmon.report.to_text import text_lines

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH
    for line in text_lines(document, width):
        print(line)


def _check(options: argparse.Namespace, formats: list[str]) -> None:
    if options.json and formats:
        raise InputError(f"--json goes to standard output: leave out --{formats[0]}, or --json")
    if [getattr(options, name) for name in formats].count(STDOUT) > 1:
        raise InputError("--html - and --md -: only one of them can go to standard output")
    if len({os.path.realpath(getattr(options, name)) for name in formats}) < len(formats):
        raise InputError(f"--html and --md both name {plain(options.html)}: give each a file")


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


def check_replaceable(name: str, force: bool) -> None:
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
    try:
        if path.exists() and not path.is_file():
            # A pipe or a device is written to, never replaced.
            path.write_bytes(data)
            return
        # Through a symbolic link: what it points to is renewed, the link stays.
        with replacing(Path(os.path.realpath(path))) as draft:
            draft.write_bytes(data)
            check_replaceable(name, force)
    except OSError as error:
        raise InputError(f"{plain(name)}: {error.strerror or error}") from None
    print(f"{plain(name)} written ({len(data) / 1000:.0f} kB)", file=sys.stderr)
