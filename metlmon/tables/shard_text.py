"""Text of bags, shared by the command and the screen."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from metlmon.model.states import State
from metlmon.stats.shards import Bag, ShardRate, ShardTimes
from metlmon.tables import estimate_text
from metlmon.tables.estimate_text import range_text
from metlmon.text.formatting import STATES, count, duration, moment, number, plain

NAME_LIMIT: Final = 40


class ShardHeadline(Struct, frozen=True):
    """The progress of a bag in parts; a part that does not apply is "".

    ``412 of 1 000 shards done``, ``31 running``, ``5 held``, ``done in 9 h (7–12 h)``
    (``when_brief``: without the excluded shards), ``3 stragglers``.
    """

    done: str
    running: str
    held: str
    when: str
    when_brief: str
    stragglers: str


def shard_headline(bag: Bag, live: bool) -> ShardHeadline:
    """The headline of a bag, in the present (``live``) or as of the past."""
    total = count(bag.total, "shard")
    held = [
        f"{number(n)} {word}"
        for n, word in ((bag.count_in(State.HELD), "held"), (bag.failed, "failed"))
        if n
    ]
    lagging = len(bag.stragglers)
    return ShardHeadline(
        done=f"{number(bag.done)} of {total} done",
        running=f"{number(bag.running)} running" if bag.running else "",
        held=", ".join(held),
        when=remaining_text(bag, live),
        when_brief=remaining_text(bag, live, brief=True),
        stragglers=count(lagging, "straggler") if lagging else "",
    )


def remaining_text(bag: Bag, live: bool, brief: bool = False) -> str:
    """``done in 9 h (7–12 h) without 2 that are held or failed``, or why not."""
    if bag.remaining is None:
        if bag.missing_reason is not None:
            return (
                f"end {bag.missing_reason}"
                if bag.missing_reason.startswith("unknown")
                else bag.missing_reason
            )
        return f"done since {moment(bag.completed_at)}" if bag.completed_at is not None else "done"
    text = estimate_text.interval_text(bag.remaining)
    text = f"{text} left"
    if not bag.excluded or brief:
        return text
    return f"{text} · excludes {number(bag.excluded)} held or failed"


def rate_text(rate: ShardRate | None) -> str:
    """``61 shards/h``; below one per hour, the rate per day."""
    if rate is None:
        return ""
    per_hour = rate.per_hour
    if 0 < per_hour < 1:
        return f"{24 * per_hour:.1f} shards/day"
    return f"{per_hour:.1f} shards/h" if per_hour < 9.95 else f"{number(round(per_hour))} shards/h"


def window_text(rate: ShardRate) -> str:
    """``the last 2 h``."""
    return f"the last {estimate_text.approximate_text(rate.seconds)}"


def times_text(times: ShardTimes | None) -> str:
    """``0:41:10 (36–48 min, 9 in 10 below 55 min) of 412``."""
    if times is None:
        return ""
    middle = range_text(times.lower, times.upper)
    most = estimate_text.approximate_text(times.percentile_90)
    total = number(times.shards)
    return f"{duration(times.median)} (IQR {middle}, 90 % below {most}) of {total}"


def state_texts(bag: Bag) -> list[tuple[State, str]]:
    """Each state that occurs, with its text ``▶ 31 running``."""
    return [
        (state, f"{STATES[state].glyph} {number(n)} {STATES[state].word}")
        for state, n in bag.states.items()
    ]


def name_text(bag: Bag) -> str:
    """The name pattern of its nodes: ``shard*``."""
    return plain(bag.name_pattern, NAME_LIMIT)


def no_bag_lines() -> list[str]:
    """The text shown without a bag: what a bag is, and how to create one."""
    return [
        "No bag here: a bag is four or more nodes of no run with the same submit file, whose "
        "names differ by a number only (shard000, shard001, ...), and none of which waits for "
        "another.",
        'metlmon new writes one for throughput inference (shape = "bag").',
    ]
