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
from metlmon.stats.inputs import StatsInput
from metlmon.stats.shards import Bag, Shard, ShardRate, ShardTimes, Straggler, bags
from metlmon.tables import estimate_text, shard_text
from metlmon.tables.layout import Heading, Row, text_columns
from metlmon.text.formatting import UNKNOWN, duration, job_id, plain
from metlmon.text.spans import BOLD, line

STRAGGLERS_SHOWN: Final = 20
"""Printed by the command; ``--json`` has them all."""


def shards(options: argparse.Namespace) -> int:
    """``metlmon shards``."""
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    description = describe_dags(builder)
    basis = StatsInput(
        builder.status(),
        builder.ledger(),
        builder.ensemble.settings,
        load_description=lambda: description,
    )
    bag_list = bags(basis)
    if options.json:
        notices = tuple(builder.notices())
        writer = JsonWriter(builder.clock.with_offset)
        print_json(
            {
                "schema": SCHEMA,
                "dagdir": builder.dagdir,
                "as_of": writer.time(builder.as_of),
                "live": builder.live,
                "bags": [bag_json(bag, writer) for bag in bag_list],
                "warnings": warnings(notices),
            }
        )
        print_warnings(notices)
    else:
        print_bags(bag_list, builder.live)
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
        "stragglers": [_straggler(shard) for shard in bag.stragglers],
        "gpu_hours": {
            "good": bag.gpu_hours.good,
            "bad": bag.gpu_hours.bad,
            "in_flight": bag.gpu_hours.in_flight,
            "total": bag.gpu_hours.total,
        },
        "executions": bag.executions,
        "executions_lost": bag.lost_executions,
        "shards": [_shard(shard, writer) for shard in bag.shards],
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


def _straggler(shard: Straggler) -> dict[str, Any]:
    return {
        "node": shard.node,
        "cluster": shard.job[0],
        "proc": shard.job[1],
        "site": shard.site,
        "host": shard.host,
        "seconds": shard.seconds,
        "times_median": shard.times_median,
    }


def _shard(shard: Shard, writer: JsonWriter) -> dict[str, Any]:
    cluster, proc = shard.job if shard.job is not None else (None, None)
    return {
        "node": shard.node,
        "number": shard.number,
        "state": str(shard.state),
        "cluster": cluster,
        "proc": proc,
        "site": shard.site,
        "seconds": shard.seconds,
        "since": writer.time(shard.since),
        "attempts": shard.attempts,
        "straggles": shard.is_straggler,
    }


# --- tables -----------------------------------------------------------------------------------


def print_bags(bag_list: tuple[Bag, ...], live: bool) -> None:
    """Each bag: how far it is, how fast, and what lags."""
    out = TextOutput()
    if not bag_list:
        for line in shard_text.no_bag_lines():
            out.print(line)
    for place, bag in enumerate(bag_list):
        if place:
            out.print()
        _print_bag(out, bag, live)


def _print_bag(out: TextOutput, bag: Bag, live: bool) -> None:
    headline = shard_text.shard_headline(bag, live)
    dot = " · "
    parts = [
        part
        for part in (headline.done, headline.running, headline.held, headline.stragglers)
        if part
    ]
    head = f"{shard_text.name_text(bag)}  {dot.join(parts)}; {headline.when}"
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
        text_columns(_STRAGGLERS), [_cells(shard) for shard in bag.stragglers[:STRAGGLERS_SHOWN]]
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


def _cells(shard: Straggler) -> Row:
    return [
        plain(shard.node, 40),
        job_id(*shard.job),
        plain(shard.site or UNKNOWN, 40),
        plain(shard.host or UNKNOWN, 60),
        duration(shard.seconds),
        f"{shard.times_median:.1f}×",
    ]
