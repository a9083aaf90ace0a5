"""Shards: texts of a bag; header, rows and columns of the screen. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from metlmon.model.states import FAILED_JOB, URGENCY, State
from metlmon.stats.shards import RUNNING, Bag, Shard, ShardRate, ShardTimes
from metlmon.tables import estimates
from metlmon.tables.layout import Column, Kind, searched
from metlmon.text import formatting
from metlmon.text.formatting import STATES, Symbol, clip, count, duration, moment, number, plain
from metlmon.text.spans import (
    ALARM,
    BOLD,
    DIM,
    GOOD,
    MOVING,
    NOTE,
    PLAIN,
    Line,
    TextStyle,
    crop,
    join,
    join_fitting,
    justify,
    line,
    style_of,
    width,
)

BAR_LEAST: Final = 6
BAR_MOST: Final = 60
"""Width of the bar of a shard's duration."""

BAR_MEDIANS: Final = 3.0
"""Maximum of the bar, in medians, so that one outlier does not flatten the others."""

NAME_LIMIT: Final = 40

ALARM_COUNT: Final = (State.HELD, *sorted(FAILED_JOB))

STEPS: Final = "▁▂▃▄▅▆▇█"
BINS: Final = 24
"""Bins of the duration histogram, one cell each."""


# --- texts --------------------------------------------------------------------------------------


def headline_parts(bag: Bag) -> list[Line]:
    """``412 of 1 000 shards done``, ``9 h (7–12 h) left``, ``5 held``, ``3 stragglers``, …"""
    troubled = (bag.count_in(State.HELD), "held"), (bag.failed, "failed")
    held = [f"{number(n)} {word}" for n, word in troubled if n]
    lagging = len(bag.stragglers)
    done = f"{number(bag.done)} of {count(bag.total, 'shard')} done"
    style = BOLD if bag.remaining is not None else NOTE if bag.missing_reason else GOOD
    excluded = f"excludes {number(bag.excluded)} held or failed" if bag.excluded else ""
    return [
        line((done, GOOD if bag.is_complete else BOLD)),
        line((remaining_text(bag), style)),
        line((", ".join(held), ALARM)),
        line((count(lagging, "straggler") if lagging else "", NOTE)),
        line((f"{number(bag.running)} running" if bag.running else "", MOVING)),
        line((excluded if bag.remaining is not None else "", DIM)),
    ]


def remaining_text(bag: Bag) -> str:
    """``9 h (7–12 h) left``, or why it is unknown."""
    if bag.remaining is not None:
        return f"{estimates.interval_text(bag.remaining)} left"
    if bag.missing_reason is not None:
        prefix = "end " if bag.missing_reason.startswith("unknown") else ""
        return prefix + bag.missing_reason
    return f"done since {moment(bag.completed_at)}" if bag.completed_at is not None else "done"


def rate_text(rate: ShardRate | None) -> str:
    """``61 shards/h``; below one per hour, the rate per day."""
    if rate is None:
        return ""
    per_hour = rate.per_hour
    if 0 < per_hour < 1:
        return f"{24 * per_hour:.1f} shards/day"
    return f"{per_hour:.1f} shards/h" if per_hour < 9.95 else f"{number(round(per_hour))} shards/h"


def window_text(rate: ShardRate) -> str:
    """``the last 2h``."""
    return f"the last {estimates.approximate_text(rate.seconds)}"


def times_text(times: ShardTimes | None) -> str:
    """``41m10s (IQR 36–48m, 90 % below 55m) of 412``."""
    if times is None:
        return ""
    middle = estimates.range_text(times.lower_quartile, times.upper_quartile)
    most = estimates.approximate_text(times.percentile_90)
    total = number(times.shards)
    return f"{duration(times.median)} (IQR {middle}, 90 % below {most}) of {total}"


def state_texts(bag: Bag) -> list[Line]:
    """Each state that occurs, with its text ``▶ 31 running``."""
    return [
        line((f"{STATES[s].glyph} {number(n)} {STATES[s].word}", style_of(STATES[s])))
        for s, n in bag.states.items()
    ]


def name_text(bag: Bag) -> str:
    """The name pattern of its nodes: ``shard*``."""
    return clip(bag.name_pattern, NAME_LIMIT)


def no_bag_lines() -> list[str]:
    """The text shown without a bag: what a bag is, and how to create one."""
    return [
        "No bag here: a bag is four or more nodes of no run with the same submit file, whose "
        "names differ by a number only (shard000, shard001, ...), and none of which waits for "
        "another.",
        'metlmon new writes one for throughput inference (shape = "bag").',
    ]


# --- header -------------------------------------------------------------------------------------


def head(bag: Bag, position: str, room: int) -> list[Line]:
    """Render progress and remaining time, a bar, throughput and cost."""
    title = line(("Shards", BOLD), "   ")
    first = join_fitting(headline_parts(bag), line((" · ", DIM)), room - width(title))
    name = join(
        (line((name_text(bag), BOLD)), line((position, NOTE)), line((plain(bag.in_dag, 40), DIM))),
        line("   "),
    )
    first_line = crop(title + first, room)
    lines = [first_line]
    if width(first_line) + width(name) + 3 <= room:
        lines = [justify(first_line, name, room)]
        name = ()
    counts = join(state_texts(bag), line("  "))
    if name and width(counts) + width(name) + 3 <= room:
        counts, name = justify(counts, name, room), ()
    lines += [_bar(bag, room), crop(counts, room)]
    return [*lines, *(crop(text, room) for text in _figures(bag, room))]


_PARTS: Final[tuple[tuple[tuple[State, ...], str, TextStyle], ...]] = (
    ((State.COMPLETED, State.SKIPPED), "█", GOOD),
    (tuple(sorted(RUNNING)), "▓", MOVING),
    (ALARM_COUNT, "■", ALARM),
)


def _bar(bag: Bag, room: int) -> Line:
    """Render the shares done, running and stuck; each has at least one cell."""
    bar: Line = ()
    for states, glyph, style in _PARTS:
        shards = bag.count_in(*states)
        cell_count = max(1, shards * room // bag.total) if shards else 0
        cell_count = min(cell_count, room - width(bar))
        bar += line((glyph * cell_count, style))
    if not bag.is_complete and width(bar) == room and len(bar) == 1:
        # Only a finished bag has a full bar.
        bar = line((bar[0][0][:-1], bar[0][1]))
    return bar + line(("░" * (room - width(bar)), DIM))


def _figures(bag: Bag, room: int) -> list[Line]:
    gap = line("   ")
    rates = [line((rate_text(bag.overall_rate), PLAIN))] if bag.done else []
    if bag.recent_rate is not None and bag.done:
        recent = f"{rate_text(bag.recent_rate)} in {window_text(bag.recent_rate)}"
        rates += [line((recent, BOLD)), line((f"{bag.machines:.1f} at a time", DIM))]
    if bag.remaining is not None:
        rates.append(line((f"how sure: {bag.remaining.quality}", DIM)))
    spent = bag.totals.hours
    (good, bad, now), total = formatting.hours_added((spent.goodput, spent.badput, spent.running))
    hours = line(f"{spent.measure.hours} {total} = {good} goodput + {bad} badput + {now} running")
    times = line(("no shard has ended yet: nothing to go by", DIM))
    if bag.durations is not None:
        times = line(f"each {times_text(bag.durations)}")
        distribution = histogram(bag)
        if width(times) + width(distribution) + 3 <= room:
            times += line("   ") + distribution
    if width(join(rates, gap)) + width(hours) + 3 <= room:
        return [justify(join(rates, gap), hours, room), times]
    return [join(rates, gap), times, hours]


def histogram(bag: Bag) -> Line:
    """Render the histogram of durations, from shortest to longest."""
    seconds = [s.seconds for s in bag.shards if s.state is State.COMPLETED and s.seconds]
    if len(seconds) < 2 or bag.durations is None or bag.durations.maximum <= bag.durations.minimum:
        return ()
    shortest, longest = bag.durations.minimum, bag.durations.maximum
    bins = [0] * BINS
    for each in seconds:
        bins[max(0, min(BINS - 1, int((each - shortest) / (longest - shortest) * BINS)))] += 1
    largest = max(bins)
    bars = "".join(" " if not n else STEPS[max(0, -(-n * len(STEPS) // largest) - 1)] for n in bins)
    return line(
        (f"{estimates.approximate_text(shortest)} ", DIM),
        (bars, MOVING),
        (f" {estimates.approximate_text(longest)}", DIM),
    )


# --- rows ---------------------------------------------------------------------------------------


def urgency(shard: Shard) -> tuple[object, ...]:
    """Sort key: needs attention, stragglers, running (longest first), rest."""
    return (
        shard.state not in ALARM_COUNT,
        not shard.is_straggler,
        URGENCY[shard.state],
        -(shard.seconds or 0.0),
        shard.number,
    )


def filter_text(shard: Shard) -> str:
    job = formatting.job_id(*shard.job) if shard.job is not None else None
    straggler = "straggler" if shard.is_straggler else None
    return searched(shard.node, STATES[shard.state].word, shard.site, job, straggler)


def columns(bag: Bag) -> Sequence[Column[Shard]]:
    longest = max((shard.seconds or 0.0 for shard in bag.shards), default=0.0)
    if bag.durations is not None and bag.durations.median > 0:
        longest = min(longest, BAR_MEDIANS * bag.durations.median)
    return [
        Column("shard", lambda s: clip(s.node, 40), minimum=6, comfortable=10),
        Column(
            "state",
            _state,
            Kind.STATE,
            doc="state of the node; of a straggler, that it is one",
            minimum=10,
        ),
        Column(
            "time",
            lambda s: s.seconds,
            Kind.DURATION,
            style=lambda s: NOTE if s.is_straggler else PLAIN,
            minimum=7,
        ),
        Column(
            "bar",
            lambda s: s.seconds,
            Kind.DURATION,
            title="│ median",
            align="left",
            drop=2,
            cell=partial(_time_bar, bag=bag, longest=longest),
            minimum=BAR_LEAST,
            grow=BAR_MOST,
        ),
        Column(
            "site",
            lambda s: None if s.site is None else clip(s.site, 40),
            minimum=8,
            comfortable=12,
            maximum=40,
        ),
        Column("job", _job, drop=1, style=DIM),
        Column("tries", lambda s: s.attempts, Kind.COUNT, drop=3, style=DIM),
    ]


def straggler_columns() -> list[Column[Shard]]:
    """Return the columns of the stragglers that the command prints."""
    return [
        Column("node", lambda row: clip(row.node, 40), title="STRAGGLER"),
        Column("job", _job),
        Column("site", lambda row: clip(row.site or "", 40) or None),
        Column("host", lambda row: clip(row.host or "", 60) or None, drop=1),
        Column("time", lambda row: row.seconds, Kind.DURATION, title="RUNS FOR"),
        Column(
            "times",
            lambda row: row.times_median or 0.0,
            Kind.NUMBER,
            title="TIMES MEDIAN",
            drop=2,
            write=lambda times: f"{times:.1f}×",
        ),
    ]


def _state(shard: Shard) -> Symbol:
    sign = STATES[shard.state]
    return Symbol(sign.glyph, "straggles", NOTE.colour) if shard.is_straggler else sign


def _job(shard: Shard) -> str | None:
    return None if shard.job is None else formatting.job_id(*shard.job)


def _time_bar(shard: Shard, max_width: int | None, bag: Bag, longest: float) -> Line:
    """Render a shard's duration as a bar with the median marked; arrow: beyond it."""
    if shard.seconds is None or longest <= 0:
        return ()
    room = max_width or BAR_LEAST
    filled = max(1, min(room, round(shard.seconds / longest * room)))
    style = NOTE if shard.is_straggler else style_of(STATES[shard.state])
    bar = "━" * filled + " " * (room - filled)
    if shard.seconds > longest:
        bar = bar[:-1] + "►"
    if bag.durations is None:
        return line((bar, style))
    median_cell = min(room - 1, int(bag.durations.median / longest * room))
    return line((bar[:median_cell], style), ("│", DIM), (bar[median_cell + 1 :], style))
