"""Header, rows and columns of the Shards screen.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from metlmon.model.states import State
from metlmon.stats.shard_times import RUNNING
from metlmon.stats.shards import FAILED, Bag, Shard, Straggler
from metlmon.tables import estimate_text, shard_text
from metlmon.tables.layout import Column, text_column
from metlmon.text import formatting
from metlmon.text.formatting import STATES, plain
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
    first_that_fits,
    join,
    justify,
    line,
    style_of,
    width,
)

BAR_LEAST: Final = 6
BAR_MOST: Final = 60
"""Width of the bar of a shard's duration."""

BAR_MEDIANS: Final = 3.0
"""Maximum of the bar, in medians; one outlier must not flatten the others."""

ALARM_COUNT: Final = (State.HELD, *sorted(FAILED))

STEPS: Final = "▁▂▃▄▅▆▇█"
BINS: Final = 24
"""Bins of the duration histogram, one cell each."""


# --- header -------------------------------------------------------------------------------------


def head(bag: Bag, live: bool, position: str, room: int) -> list[Line]:
    """Render progress and remaining time, a bar, throughput and cost."""
    answer = shard_text.shard_headline(bag, live)
    dot = line((" · ", DIM))
    title = line(("Shards", BOLD), "   ")
    done = line((answer.done, GOOD if bag.is_complete else BOLD))
    style = BOLD if bag.remaining is not None else NOTE if bag.missing_reason else GOOD
    finish, brief = line((answer.when, style)), line((answer.when_brief, style))
    held, lag = line((answer.held, ALARM)), line((answer.stragglers, NOTE))
    running = line((answer.running, MOVING))
    first = first_that_fits(
        (
            join((done, finish, held, lag, running), dot),
            join((done, finish, held, lag), dot),
            join((done, brief, held, lag), dot),
            join((done, brief, held), dot),
            join((done, brief), dot),
        ),
        room - width(title),
    )
    name = join(
        (
            line((shard_text.name_text(bag), BOLD)),
            line((position, NOTE)),
            line((plain(bag.in_dag, 40), DIM)),
        ),
        line("   "),
    )
    first_line = title + crop(first, room - width(title))
    lines = [first_line]
    if width(first_line) + width(name) + 3 <= room:
        lines = [justify(first_line, name, room)]
        name = ()
    counts = join((_count(bag, state) for state in bag.states), line("  "))
    if name and width(counts) + width(name) + 3 <= room:
        counts, name = justify(counts, name, room), ()
    lines += [_bar(bag, room), crop(counts, room)]
    return [*lines, *(crop(text, room) for text in _figures(bag, room))]


def _count(bag: Bag, state: State) -> Line:
    sign = STATES[state]
    text = f"{sign.glyph} {formatting.number(bag.states[state])} {sign.word}"
    return line((text, style_of(sign)))


_PARTS: Final[tuple[tuple[tuple[State, ...], str, TextStyle], ...]] = (
    ((State.COMPLETED, State.SKIPPED), "█", GOOD),
    (tuple(sorted(RUNNING)), "▓", MOVING),
    (ALARM_COUNT, "■", ALARM),
)


def _bar(bag: Bag, room: int) -> Line:
    """Render the shares done, running and stuck; each has at least one cell."""
    bar: Line = ()
    for states, glyph, style in _PARTS:
        count = bag.count_in(*states)
        cell_count = max(1, count * room // bag.total) if count else 0
        cell_count = min(cell_count, room - width(bar))
        bar += line((glyph * cell_count, style))
    if not bag.is_complete and width(bar) == room and len(bar) == 1:
        # Only a finished bag has a full bar.
        bar = line((bar[0][0][:-1], bar[0][1]))
    return bar + line(("░" * (room - width(bar)), DIM))


def _figures(bag: Bag, room: int) -> list[Line]:
    gap = line("   ")
    rates = [line((shard_text.rate_text(bag.overall_rate), PLAIN))] if bag.done else []
    if bag.recent_rate is not None and bag.done:
        recent = (
            f"{shard_text.rate_text(bag.recent_rate)} in {shard_text.window_text(bag.recent_rate)}"
        )
        rates += [line((recent, BOLD)), line((f"{bag.machines:.1f} at a time", DIM))]
    if bag.remaining is not None:
        rates.append(line((f"how sure: {estimate_text.quality(bag.remaining)}", DIM)))
    parts, total = formatting.hours_added(
        (bag.gpu_hours.good, bag.gpu_hours.bad, bag.gpu_hours.in_flight)
    )
    hours = line(f"GPU-hours {total} = {parts[0]} goodput + {parts[1]} badput + {parts[2]} running")
    times = line(("no shard has ended yet: nothing to go by", DIM))
    if bag.durations is not None:
        text = f"each {shard_text.times_text(bag.durations)}"
        times = line(text)
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
    for duration in seconds:
        bins[max(0, min(BINS - 1, int((duration - shortest) / (longest - shortest) * BINS)))] += 1
    largest = max(bins)
    bars = "".join(" " if not n else STEPS[max(0, -(-n * len(STEPS) // largest) - 1)] for n in bins)
    return line(
        (f"{estimate_text.approximate_text(shortest)} ", DIM),
        (bars, MOVING),
        (f" {estimate_text.approximate_text(longest)}", DIM),
    )


# --- rows ---------------------------------------------------------------------------------------

_ORDER: Final = (
    *(State.HELD, State.FAILED, State.REMOVED, State.DISCONNECTED, State.SUSPENDED),
    *(State.RETRYING, State.RUNNING, State.TRANSFERRING_OUTPUT, State.STARTING),
    *(State.TRANSFERRING_INPUT, State.PRE, State.POST, State.IDLE, State.UNKNOWN),
    *(State.FUTILE, State.WAITING, State.COMPLETED, State.SKIPPED),
)


def urgency(shard: Shard) -> tuple[object, ...]:
    """Sort key: needs attention, stragglers, running (longest first), rest."""
    needs_attention = shard.state in ALARM_COUNT
    order = _ORDER.index(shard.state)
    return (
        not needs_attention,
        not shard.is_straggler,
        order,
        -(shard.seconds or 0.0),
        shard.number,
    )


ORDERS: Final[tuple[tuple[str, Callable[[Shard], tuple[object, ...]] | None], ...]] = (
    ("what needs a person", None),
    ("number", lambda shard: (shard.number,)),
    ("time", lambda shard: (-(shard.seconds or 0.0),)),
    ("site", lambda shard: (shard.site is None, shard.site or "", shard.number)),
    ("tries", lambda shard: (-shard.attempts, shard.number)),
)


def filter_text(shard: Shard) -> str:
    """Return the text of a shard that the filter searches, in lower case."""
    parts = [shard.node, STATES[shard.state].word, shard.site or ""]
    parts += [formatting.job_id(*shard.job)] if shard.job is not None else []
    parts += ["straggler"] if shard.is_straggler else []
    return "\n".join(parts).lower()


def specs(bag: Bag) -> Sequence[Column[Shard]]:
    """Return the columns of the list."""
    longest = max((shard.seconds or 0.0 for shard in bag.shards), default=0.0)
    if bag.durations is not None and bag.durations.median > 0:
        longest = min(longest, BAR_MEDIANS * bag.durations.median)
    return [
        Column("shard", "SHARD", lambda s, _: line(plain(s.node, 40)), minimum=6, comfortable=10),
        Column("state", "STATE", _state, minimum=10),
        Column("time", "TIME", _time, "right", minimum=7),
        Column(
            "bar",
            "│ median",
            partial(_time_bar, bag=bag, longest=longest),
            drop=2,
            minimum=BAR_LEAST,
            grow=BAR_MOST,
        ),
        Column("site", "SITE", _site, minimum=8, comfortable=12, maximum=40),
        Column("job", "JOB", _job, drop=1),
        Column("tries", "TRIES", lambda s, _: line((str(s.attempts), DIM)), "right", drop=3),
    ]


def straggler_columns() -> list[Column[Straggler]]:
    """Return the columns of the stragglers that the command prints."""
    return [
        text_column("node", "STRAGGLER", lambda row: plain(row.node, 40)),
        text_column("job", "JOB", lambda row: formatting.job_id(*row.job)),
        text_column("site", "SITE", lambda row: plain(row.site or formatting.UNKNOWN, 40)),
        text_column("host", "HOST", lambda row: plain(row.host or formatting.UNKNOWN, 60), drop=1),
        text_column("time", "RUNS FOR", lambda row: formatting.duration(row.seconds), "right"),
        text_column("times", "TIMES MEDIAN", lambda row: f"{row.times_median:.1f}×", "right", 2),
    ]


def _state(shard: Shard, max_width: int | None) -> Line:
    sign = STATES[shard.state]
    if shard.is_straggler:
        return line((f"{sign.glyph} straggles", NOTE))
    return line((sign.text(), style_of(sign)))


def _time(shard: Shard, max_width: int | None) -> Line:
    if shard.seconds is None:
        return line((formatting.UNKNOWN, DIM))
    return line((formatting.duration(shard.seconds), NOTE if shard.is_straggler else PLAIN))


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


def _site(shard: Shard, max_width: int | None) -> Line:
    if shard.site is None:
        return line((formatting.UNKNOWN, DIM))
    return line(plain(shard.site, 40))


def _job(shard: Shard, max_width: int | None) -> Line:
    if shard.job is None:
        return line((formatting.UNKNOWN, DIM))
    return line((formatting.job_id(*shard.job), DIM))
