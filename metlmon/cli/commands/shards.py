"""``metlmon shards``: bags of equal nodes, as tables or as JSON."""

from __future__ import annotations

import argparse
from typing import Any, Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.json_output import SCHEMA, JsonWriter, warnings
from metlmon.cli.output import print_json
from metlmon.cli.reading import open_reader
from metlmon.cli.status_text import hours_line
from metlmon.cli.text_output import TextOutput
from metlmon.cli.warnings import print_warnings
from metlmon.snapshot.dag_description import describe_dags
from metlmon.stats.estimates import Interval
from metlmon.stats.shards import Bag, Shard, ShardRate, ShardTimes, Straggler, bags
from metlmon.stats.worker import StatsInput
from metlmon.tables import estimate_text, shard_text
from metlmon.tables.layout import Heading, Row, text_columns
from metlmon.text.formatting import UNKNOWN, duration, job_id, plain
from metlmon.text.spans import BOLD, line

STRAGGLERS_SHOWN: Final = 20
"""Printed by the command; ``--json`` has them all."""


def shards(options: argparse.Namespace) -> int:
    """``metlmon shards``."""
    reader = open_reader(options)
    painter = reader.snapshot_builder()
    told = describe_dags(painter)
    basis = StatsInput(
        painter.status(), painter.ledger(), painter.ensemble.settings, load_description=lambda: told
    )
    found = bags(basis)
    if options.json:
        notices = tuple(painter.notices())
        writer = JsonWriter(painter.clock.with_offset)
        print_json(
            {
                "schema": SCHEMA,
                "dagdir": painter.dagdir,
                "as_of": writer.time(painter.as_of),
                "live": painter.live,
                "bags": [bag_json(bag, writer) for bag in found],
                "warnings": warnings(notices),
            }
        )
        print_warnings(notices)
    else:
        print_bags(found, painter.live)
    return Exit.OK


# --- JSON -------------------------------------------------------------------------------------


def bag_json(bag: Bag, writer: JsonWriter) -> dict[str, Any]:
    """A bag as JSON (schema 1).

    ``in_dag``: the DAG that holds its nodes, ``dag`` the top-level one that this one belongs to.
    ``name``: what its nodes' names have in common, ``*`` for the number. ``rate``: shards per hour
    since ``began`` and of late, with what it was counted over. ``seconds``: of the executions that
    completed shards. ``machines``: shards at work at a time, of late. ``remaining``: seconds until
    the last one is done, an interval that on generated bags held in four of five cases (in nine of
    ten early, in seven of ten when nearly all is done), and from how many shards; null where
    ``why_not`` says why, or where it is over (``ended``); ``without`` shards, held or failed, are
    left out of it.
    """
    return {
        "dag": bag.dag,
        "in_dag": bag.in_dag,
        "name": bag.name_pattern,
        "submit": bag.submit,
        "shards_total": bag.total,
        "shards_done": bag.done,
        "shards_running": bag.running,
        "shards_failed": bag.failed,
        "states": {str(state): n for state, n in bag.states.items()},
        "began": writer.time(bag.first_submitted),
        "ended": writer.time(bag.completed_at),
        "rate": {"overall": _pace(bag.overall_rate), "lately": _pace(bag.recent_rate)},
        "seconds": _spread(bag.durations),
        "machines": bag.machines,
        "remaining": _span(bag.remaining),
        "about": writer.time(bag.expected_end),
        "without": bag.excluded,
        "why_not": bag.missing_reason,
        "stragglers": [_straggler(each) for each in bag.stragglers],
        "gpu_hours": {
            "good": bag.gpu_hours.good,
            "bad": bag.gpu_hours.bad,
            "in_flight": bag.gpu_hours.in_flight,
            "total": bag.gpu_hours.total,
        },
        "executions": bag.executions,
        "executions_lost": bag.lost_executions,
        "shards": [_shard(each, writer) for each in bag.shards],
    }


def _pace(pace: ShardRate | None) -> dict[str, Any] | None:
    if pace is None:
        return None
    return {"shards": pace.shards, "seconds": pace.seconds, "per_hour": pace.per_hour}


def _spread(times: ShardTimes | None) -> dict[str, Any] | None:
    if times is None:
        return None
    return {
        "shards": times.shards,
        "min": times.minimum,
        "lower_quartile": times.lower,
        "median": times.median,
        "upper_quartile": times.upper,
        "ninetieth": times.percentile_90,
        "max": times.maximum,
    }


def _span(span: Interval | None) -> dict[str, Any] | None:
    if span is None:
        return None
    return {
        "low": span.low,
        "middle": span.median,
        "high": span.high,
        "samples": span.samples,
        "sure": estimate_text.quality(span),
    }


def _straggler(each: Straggler) -> dict[str, Any]:
    return {
        "node": each.node,
        "cluster": each.job[0],
        "proc": each.job[1],
        "site": each.site,
        "host": each.host,
        "seconds": each.seconds,
        "times_median": each.times_median,
    }


def _shard(each: Shard, writer: JsonWriter) -> dict[str, Any]:
    cluster, proc = each.job if each.job is not None else (None, None)
    return {
        "node": each.node,
        "number": each.number,
        "state": str(each.state),
        "cluster": cluster,
        "proc": proc,
        "site": each.site,
        "seconds": each.seconds,
        "since": writer.time(each.since),
        "attempts": each.attempts,
        "straggles": each.is_straggler,
    }


# --- tables -----------------------------------------------------------------------------------


def print_bags(found: tuple[Bag, ...], live: bool) -> None:
    """Each bag: how far it is, how fast, and what lags."""
    out = TextOutput()
    if not found:
        for line in shard_text.no_bag_lines():
            out.print(line)
    for place, bag in enumerate(found):
        if place:
            out.print()
        _print_bag(out, bag, live)


def _print_bag(out: TextOutput, bag: Bag, live: bool) -> None:
    told = shard_text.shard_headline(bag, live)
    dot = " · "
    parts = [each for each in (told.done, told.running, told.held, told.stragglers) if each]
    head = f"{shard_text.name_text(bag)}  {dot.join(parts)}; {told.when}"
    out.print(line((head, BOLD)))
    out.print(f"{plain(bag.in_dag, 60)}, {plain(bag.submit, 60)}")
    out.print("  ".join(text for _, text in shard_text.state_texts(bag)))
    if bag.durations is not None:
        out.print(f"A shard takes {shard_text.times_text(bag.durations)}")
    if bag.overall_rate is not None:
        rates = f"Rate: {shard_text.rate_text(bag.overall_rate)}"
        if bag.recent_rate is not None:
            window = shard_text.window_text(bag.recent_rate)
            rates += f", {shard_text.rate_text(bag.recent_rate)} in {window}"
            rates += f", {bag.machines:.1f} at a time"
        out.print(rates)
    if bag.remaining is not None:
        sure = estimate_text.quality(bag.remaining)
        out.print(f"How sure: {sure}, from {bag.remaining.samples} shards that have ended")
    out.print(hours_line(bag.gpu_hours))
    if not bag.stragglers:
        return
    out.print()
    out.table(
        text_columns(_STRAGGLERS), [_cells(each) for each in bag.stragglers[:STRAGGLERS_SHOWN]]
    )
    if len(bag.stragglers) > STRAGGLERS_SHOWN:
        out.print(f"and {len(bag.stragglers) - STRAGGLERS_SHOWN} more: see --json")


_STRAGGLERS: Final = (
    Heading("STRAGGLER"),
    Heading("JOB"),
    Heading("SITE"),
    Heading("HOST", drop=1),
    Heading("RUNS FOR", "right"),
    Heading("TIMES MEDIAN", "right", drop=2),
)


def _cells(each: Straggler) -> Row:
    return [
        plain(each.node, 40),
        job_id(*each.job),
        plain(each.site or UNKNOWN, 40),
        plain(each.host or UNKNOWN, 60),
        duration(each.seconds),
        f"{each.times_median:.1f}×",
    ]
