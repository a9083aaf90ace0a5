"""``metlmon curves``: metrics by epoch, as a table or as JSON."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from typing import Any, Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.json_output import SCHEMA, JsonWriter, warnings
from metlmon.cli.output import print_json
from metlmon.cli.reading import open_reader
from metlmon.cli.status_text import NAME_LIMIT
from metlmon.cli.text_output import TextOutput
from metlmon.cli.warnings import print_warnings
from metlmon.config.settings import MetricSettings
from metlmon.jobfiles.records import Point, Streamed
from metlmon.live.errors import InputError
from metlmon.live.job_files import TrainingFiles
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.stats.curves import (
    Curves,
    MetricBand,
    MetricCurve,
    curves_summary,
    metric_names,
)
from metlmon.stats.curves import curves as curves_in
from metlmon.stats.inputs import StatsInput
from metlmon.tables.curves import specs as columns
from metlmon.tables.layout import Heading, Row, text_columns
from metlmon.text.formatting import metric as metric_told
from metlmon.text.formatting import plain
from metlmon.text.spans import BOLD, line

PROBLEMS_SHOWN: Final = 20
"""Sentences about files, printed by the command; ``--json`` has them all."""


def curves(options: argparse.Namespace) -> int:
    """``metlmon curves``. Raises InputError for a metric that no run has."""
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    ledger, settings = builder.ledger(), builder.ensemble.settings
    written = TrainingFiles(reader.dagdir, settings)
    basis = StatsInput(
        builder.status(),
        ledger,
        settings,
        written.training_outputs(ledger, builder),
        written.progress_lines(ledger, builder),
        files_read=True,
    )
    check_metric(options.metric, basis)
    result = curves_in(basis, options.metric)
    if options.json:
        print_figures(builder, curves_json(result, settings.metrics))
    else:
        print_curves(result, builder.live, settings.metrics)
    for problem in result.problems[:PROBLEMS_SHOWN]:
        print(f"metlmon: warning: {plain(problem, 400)}", file=sys.stderr)
    return Exit.OK


def print_figures(builder: SnapshotBuilder, figures: Mapping[str, Any]) -> None:
    """Print a JSON object with the fields of all commands; warnings go to standard error, too."""
    notices = tuple(builder.notices())
    print_json(
        {
            "schema": SCHEMA,
            "dagdir": builder.dagdir,
            "as_of": JsonWriter(builder.clock.with_offset).time(builder.as_of),
            "live": builder.live,
            **figures,
            "warnings": warnings(notices),
        }
    )
    print_warnings(notices)


def check_metric(name: str | None, basis: StatsInput) -> None:
    """Raises InputError for a metric that no run has."""
    names = metric_names(basis)
    if name is not None and names and name not in names:
        some = ", ".join(plain(name, NAME_LIMIT) for name in names)
        raise InputError(f"--metric {plain(name, 80)}: no run has it; there are: {some}")


# --- JSON -------------------------------------------------------------------------------------


def curves_json(result: Curves, metrics: MetricSettings) -> dict[str, Any]:
    """Curves as JSON (schema 1).

    A ``value`` that is no number is null, and ``odd`` then says which: "nan", "inf" or "-inf";
    ``odd`` is null beside every number. Epochs are numbered as nodes are, from 0; ``version``
    is the k of the ``version_<k>`` that a value comes from, null for other files; ``trend`` is
    the change per epoch. ``course``: "improves", "flat", "diverged", "nan", "early" (one value
    alone) or "none", ``since`` the epoch of it. ``band`` and those of ``labels``: by epoch the
    number of runs with a value, and what these are; ``lost`` runs had diverged by then and are
    not among them. ``running``: the progress line of the running epoch, null without one.
    """
    return {
        "metric": result.metric,
        "goal": result.goal,
        "metrics": list(result.metrics),
        "looked_in": list(metrics.files),
        "runs": [_run(curve) for curve in result.curves],
        "band": _band(result.band),
        "labels": [
            {"label": band.label, "runs": band.runs, "band": _band(band)} for band in result.bands
        ],
        "problems": list(result.problems),
    }


def _run(curve: MetricCurve) -> dict[str, Any]:
    return {
        "run": curve.run_name,
        "uuid": curve.uuid,
        "key": curve.run,
        "label": curve.label,
        "epochs_total": curve.epochs_total,
        "points": [_point(point) for point in curve.points],
        "best": None if curve.best is None else _point(curve.best),
        "last": None if curve.last is None else _point(curve.last),
        "trend": curve.trend,
        "course": str(curve.course),
        "since": curve.since,
        "odd_epochs": list(curve.nonfinite_epochs),
        "running": None if curve.streamed is None else _streamed(curve.running, curve.streamed),
    }


def _number(value: float) -> tuple[float | None, str | None]:
    """Strict JSON knows no NaN and no infinity: null, and which it is."""
    if math.isfinite(value):
        return value, None
    return None, "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def _point(point: Point) -> dict[str, Any]:
    value, odd = _number(point.value)
    return {
        "epoch": point.epoch,
        "value": value,
        "odd": odd,
        "version": point.version,
        "file": point.file,
    }


def _streamed(running: int | None, streamed: Streamed) -> dict[str, Any]:
    loss, odd = _number(streamed.loss) if streamed.loss is not None else (None, None)
    return {
        "epoch": running,
        "fraction": streamed.fraction,
        "step": streamed.done,
        "steps": streamed.total,
        "steps_per_second": streamed.rate,
        "seconds_left": streamed.remaining,
        "loss": loss,
        "loss_odd": odd,
    }


def _band(band: MetricBand) -> list[dict[str, Any]]:
    return [
        {
            "epoch": level.epoch,
            "n": level.n,
            "lost": level.excluded,
            "min": level.minimum,
            "lower_quartile": level.lower,
            "median": level.median,
            "upper_quartile": level.upper,
            "max": level.maximum,
        }
        for level in band.levels
    ]


# --- tables -----------------------------------------------------------------------------------


def print_curves(result: Curves, live: bool, metrics: MetricSettings) -> None:
    """The headline, a row per run, and the band by epoch."""
    out = TextOutput()
    if not result.curves_with_values:
        out.print("No training has written a metric here yet.")
        places = ", ".join(
            plain(f"{pattern}/version_<k>/metrics.csv", 80) for pattern in metrics.files
        )
        out.print(f"Looked for {places}, and for {plain(result.metric, 40)} in the jobs' output.")
        return
    summary = curves_summary(result, live)
    dot = " · "
    parts = [part for part in (summary.runs, summary.best, summary.diverged, summary.flat) if part]
    out.print(line((dot.join(parts), BOLD)))
    goal = {"min": ", lower is better", "max": ", higher is better", None: ""}[result.goal]
    out.print(f"{plain(result.metric, 80)}{goal}")
    out.print()
    out.table(columns(result.curves), result.curves)
    for band in (result.band, *result.bands):
        out.print()
        name = "all runs" if band is result.band else plain(band.label or "no label", NAME_LIMIT)
        out.print(line((name, BOLD)))
        out.table(text_columns(_BAND), [_level(level) for level in _band(band)])


_BAND: Final = (
    Heading("EPOCH", "right"),
    Heading("RUNS", "right"),
    Heading("MIN", "right"),
    Heading("QUARTILE", "right"),
    Heading("MEDIAN", "right"),
    Heading("QUARTILE", "right"),
    Heading("MAX", "right"),
)


def _level(level: dict[str, Any]) -> Row:
    values = ("min", "lower_quartile", "median", "upper_quartile", "max")
    return [str(level["epoch"]), str(level["n"]), *(metric_told(level[v]) for v in values)]
