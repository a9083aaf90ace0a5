"""``metlmon timeline``: when what ran where, and how many at a time."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from metlmon.cli.exit_codes import Exit
from metlmon.cli.outputs import EnsembleOutput, print_record
from metlmon.cli.reading import open_reader, window_of
from metlmon.cli.text_output import TextOutput
from metlmon.snapshot.records import Execution
from metlmon.stats.timeline import Lane, Timeline, build_timeline
from metlmon.stats.windows import TimeWindow, window_text
from metlmon.tables.timeline_text import (
    SIGNS,
    Cell,
    CellKind,
    VisibleWindow,
    axis,
    cell_characters,
    chart_maximum,
    epoch_labels,
    full_window,
    kind_of,
    lane_cells,
    outcome_symbol,
    stack_rows,
    stacks,
)
from metlmon.text.formatting import count, duration, moment, number, period, plain, year_of
from metlmon.text.record_json import Flat
from metlmon.text.spans import DIM, NOTE, PLAIN, Line, join, line, style_of

PIPE_CELLS: Final = 100
"""Columns where no terminal tells how many there are (``COLUMNS`` does too)."""

NAME_CELLS: Final = 16
CHART_LINES: Final = 5
STALLS_SHOWN: Final = 5

BY_OUTCOME: Final = (SIGNS[CellKind.GOOD], SIGNS[CellKind.FLYING], SIGNS[CellKind.LOST])


class TimelineRun(Struct, frozen=True):
    """The jobs of a run, and their executions; key null: jobs of no run."""

    lane: Flat[Lane]
    executions: tuple[Execution, ...]


class TimelineOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon timeline --json``."""

    timeline: Flat[Timeline]
    runs: tuple[TimelineRun, ...]


def timeline(options: argparse.Namespace) -> int:
    """Print the timeline as a chart or as JSON. Returns the exit status."""
    builder = open_reader(options).snapshot_builder()
    window = window_of(options, builder)
    data = build_timeline(builder.ledger(), window)
    if options.json:
        ran: dict[str, list[Execution]] = {}
        for item in data.executions:
            ran.setdefault(item.run or "", []).append(item)
        runs = tuple(TimelineRun(lane, tuple(ran.get(lane.key, ()))) for lane in data.lanes)
        print_record(TimelineOutput, builder, timeline=data, runs=runs)
    else:
        _print(data, window)
    return Exit.OK


# --- printed --------------------------------------------------------------------------------


def _print(data: Timeline, time_window: TimeWindow) -> None:
    cells = shutil.get_terminal_size((PIPE_CELLS, 24)).columns
    if data.first is None and not time_window.unbounded:
        lines = [line(f"No job was in the queue: {window_text(time_window)}.")]
    else:
        lines = list(_lines(data, cells))
    TextOutput().print_cropped(lines)


def _lines(data: Timeline, cells: int) -> Iterable[Line]:
    if data.first is None:
        yield line("No job has an event yet: there is no time to show.")
        return
    names = [plain(lane.name, NAME_CELLS) for lane in data.lanes]
    indent = max([len(name) for name in names] + [len("99 GPUs")]) + 2
    window = full_window(data, max(20, cells - indent - 1))
    yield line(f"{period(data.first, data.last)}   {duration(data.length)}")
    yield from _stall_lines(data)
    if data.mean_jobs is not None:
        text = f"GPUs at a time {data.max_gpus} max, {data.mean_gpus:.2f} mean"
        yield line(f"{text} · jobs at a time {data.max_jobs} max, {data.mean_jobs:.2f} mean")
    yield ()
    yield line((" " * indent + axis(data, window).rstrip(), DIM))
    for name, lane in zip(names, data.lanes, strict=True):
        cells_of_lane = cell_characters(lane_cells(lane, window, outcome_symbol))
        yield line(f"{name:<{indent}}") + _cells(cells_of_lane)
        yield line((" " * indent + epoch_labels(lane, window), DIM))
    yield from _chart(data, window, indent)
    yield ()
    yield _legend(data)


def _stall_lines(data: Timeline) -> Iterable[Line]:
    if not data.steps:
        yield line(("nothing has run yet", NOTE))
        return
    if not data.gaps:
        yield line("never idle")
        return
    total = duration(sum(stall.seconds for stall in data.gaps))
    times = count(len(data.gaps), "time")
    yield line(f"idle {times}, {total} in total; longest:")
    longest = sorted(data.gaps, key=lambda stall: -stall.seconds)[:STALLS_SHOWN]
    for stall in longest:
        text = period(stall.start, stall.end, year_of(data.last))
        if stall.ongoing:
            text = f"since {moment(stall.start, year_of(data.last))}"
        yield line((f"  {duration(stall.seconds):>6}  {text}", NOTE))


def _chart(data: Timeline, window: VisibleWindow, indent: int) -> Iterable[Line]:
    gpus = data.max_gpus > 0
    columns = stacks(data, window, outcome_symbol, BY_OUTCOME, gpus=gpus)
    top = chart_maximum(columns)
    unit = "GPUs" if gpus else "jobs"
    for at, row in enumerate(stack_rows(columns, top, CHART_LINES)):
        label = f"{number(top)} {unit}" if at == 0 else ""
        label = "0" if at == CHART_LINES - 1 else label
        yield line((f"{label:>{indent - 1}} ", DIM)) + _cells(row)


def _legend(data: Timeline) -> Line:
    kinds = {kind_of(span) for lane in data.lanes for span in lane.spans}
    return join(
        (
            _cells([(symbol.glyph * 2, symbol)]) + line(f" {symbol.word}")
            for kind, symbol in SIGNS.items()
            if kind in kinds
        ),
        line("  "),
    )


def _cells(cells: Iterable[Cell]) -> Line:
    return line(*((text, PLAIN if symbol is None else style_of(symbol)) for text, symbol in cells))
