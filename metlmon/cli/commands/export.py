"""``export``: frames as files, a sweep as an Optuna study, and the dispatch to other exporters."""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import sys
from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Final

from metlmon.cli import Exit
from metlmon.cli.arguments import COMMANDS
from metlmon.cli.command_line import chosen_words
from metlmon.cli.output import (
    OutputFile,
    print_message,
    print_warnings,
    require_package,
    terminal_width,
)
from metlmon.cli.reading import check_metric, input_with_trainings, open_reader
from metlmon.errors import InputError
from metlmon.live.file_access import replacing
from metlmon.stats.sweep import GridChoice, grid
from metlmon.tables.frames import TABLES, Frames, Value, listing
from metlmon.tables.layout import Kind
from metlmon.tables.sweep import no_sweep_lines
from metlmon.text.formatting import count, plain, size

PACKAGES: Final = {
    "parquet": ("pyarrow", "parquet"),
    "mlflow": ("mlflow", "mlflow"),
    "optuna": ("optuna", "optuna"),
    "openmetrics": ("prometheus_client", "prometheus"),
}
"""Packages that a value of ``--to`` needs, and the extras of metlmon that contain them."""

_FORMULA: Final = re.compile(r"(?:^|(?<=;))(?=[\s\x22]*[=+\-@＝＋－＠])")
"""Matches where a spreadsheet would begin a formula. Some accept the full-width signs of East Asia,
too; where the comma is the decimal sign, a semicolon begins another cell, in which quotes have no
effect. An apostrophe before the match makes it a text again."""

ABOUT_TEXTS: Final = """\
In CSV an apostrophe stands before a text that a spreadsheet would take for a formula (one that
begins with = + - or @, or goes on so behind a semicolon). Numbers, JSON, Parquet and the frames
of metlmon.load() have none. Texts are one line each; what a terminal would obey is written as
\\x1b or \\u202e.
"""
"""Printed below ``--columns``."""


def export(options: argparse.Namespace) -> int:
    """``metlmon export``: here, or by the module ``export_<target>`` of ``--to``."""
    _check_options(options)
    if options.to in PACKAGES and not options.columns:
        require_package(f"export --to {options.to}", *PACKAGES[options.to])
    if options.to in WRITERS:
        return _export_frames(options)
    if options.to == "optuna":
        return _export_optuna(options)
    module = import_module(f"metlmon.cli.commands.export_{options.to}")
    return int(getattr(module, f"export_{options.to}")(options))


def _check_options(options: argparse.Namespace) -> None:
    """Raise InputError for an option that belongs to another ``--to``."""
    for argument in COMMANDS["export"].arguments:
        name, targets = argument.name, argument.targets
        given = getattr(options, name.removeprefix("--").replace("-", "_"))
        is_given = given is not None and given is not False
        if targets and is_given and options.to not in targets:
            *first, last = targets
            others = f"{', '.join(first)} or {last}" if first else last
            raise InputError(f"{name}: goes with --to {others}, not with --to {options.to}")


def _export_frames(options: argparse.Namespace) -> int:
    names = list(TABLES)
    if options.only is not None:
        chosen = chosen_words("--only", options.only, TABLES, there="the frames are")
        names = [name for name in TABLES if name in chosen]
    if options.columns:
        print(listing([TABLES[name] for name in names], terminal_width()), end="")
        print(f"\n{ABOUT_TEXTS}", end="")
        return Exit.OK
    dagdir = Path(options.dir)
    out = Path(options.out) if options.out is not None else Path(f"{directory_stem(dagdir)}-export")
    OutputFile(str(out)).check_outside(dagdir.parent if dagdir.is_file() else dagdir)
    paths = {name: out / f"{name}.{options.to}" for name in names}
    for path in paths.values():
        OutputFile(str(path), options.force).check_replaceable()
    builder = open_reader(options).snapshot_builder()
    frames = Frames(builder)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: no such directory can be made: {error.strerror}") from None
    for name, path in paths.items():
        rows = _write(path, frames, name, WRITERS[options.to], force=options.force)
        numbers = f"{count(rows, 'row')}, {size(path.stat().st_size)}"
        print_message(f"{path}: {numbers}")
        if not sys.stdout.isatty():
            # For scripts; on a terminal the message on standard error suffices.
            print(plain(str(path)))
    print_warnings(builder.notices())
    return Exit.OK


def directory_stem(dagdir: Path) -> str:
    """The name of the ensemble: that of its directory, or of its only DAG file."""
    return dagdir.stem if dagdir.is_file() else Path(os.path.realpath(dagdir)).name or "ensemble"


# --- writing ------------------------------------------------------------------------------

Writer = Callable[[Path, Frames, str], int]


def _write(path: Path, frames: Frames, name: str, writer: Writer, force: bool) -> int:
    """Write a frame; returns the number of rows."""
    try:
        with replacing(path) as draft:
            rows = writer(draft, frames, name)
            OutputFile(str(path), force).check_replaceable()
    except (OSError, ImportError) as error:  # pandas may ask for a newer module than is here.
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be written: {reason}") from None
    return rows


def _csv(path: Path, frames: Frames, name: str) -> int:
    values = frames.values(name)
    columns = TABLES[name].columns
    texts = {column.name for column in columns if column.kind in (Kind.TEXT, Kind.STATE)}
    cells = [
        [_cell(frames, value, each in texts) for value in column] for each, column in values.items()
    ]
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(values)
        writer.writerows(zip(*cells, strict=True))
    return len(cells[0])


def _cell(frames: Frames, value: Value, is_text: bool) -> str:
    """A value in CSV: empty if unknown; numbers as they are."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return frames.local_time_text(value)
    text = str(value)
    return _FORMULA.sub("'", text) if is_text else text


def _json(path: Path, frames: Frames, name: str) -> int:
    values = frames.values(name)
    rows = 0
    with open(path, "w", encoding="ascii") as file:
        file.write("[")
        for record in zip(*values.values(), strict=True):
            row = {
                column: frames.local_time_text(value) if isinstance(value, datetime) else value
                for column, value in zip(values, record, strict=True)
            }
            # One line per record: legible for readers and for line-based tools.
            file.write((",\n" if rows else "\n") + json.dumps(row, allow_nan=False))
            rows += 1
        file.write("\n]\n")
    return rows


def _parquet(path: Path, frames: Frames, name: str) -> int:
    frame = frames.frame(name)
    frame.to_parquet(path, index=False)
    return len(frame)


WRITERS: Final[dict[str, Writer]] = {"csv": _csv, "json": _json, "parquet": _parquet}


# --- a sweep as an Optuna study -------------------------------------------------------------


def _export_optuna(options: argparse.Namespace) -> int:
    """``export --to optuna``: a journal file; the exit status. Raises InputError."""
    stem = directory_stem(Path(options.dir))
    name = f"{stem}.journal" if options.out is None else options.out
    file = OutputFile(name, options.force)
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    file.check(reader.dagdir)
    stats = input_with_trainings(reader)
    check_metric(options.metric, stats)
    sweep = grid(stats, GridChoice(metric=options.metric))
    if not sweep.has_sweep:
        raise InputError(f"--to optuna: {no_sweep_lines()[0]}")
    if sweep.goal is None:
        raise InputError(
            f"--to optuna: no direction of {plain(sweep.metric, 80)} is better; name another "
            "metric with --metric"
        )
    from metlmon.tracking.optuna_journal import study_journal  # Takes 0.2 s.

    file.write(study_journal(sweep, stats, stem, builder.clock.with_offset))
    print_warnings(builder.notices())
    return Exit.OK
