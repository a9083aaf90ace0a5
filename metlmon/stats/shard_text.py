"""Text of bags, shared by the command and the screen."""

from __future__ import annotations

from typing import Final

from metlmon.frozen import frozen
from metlmon.model.states import State
from metlmon.stats import estimate_text
from metlmon.stats.estimate_text import between
from metlmon.stats.shards import Bag, ShardRate, ShardTimes
from metlmon.text.formatting import STATES, count, duration, number, plain

NAME_LIMIT: Final = 40


@frozen
class ShardHeadline:
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


def answer(bag: Bag, live: bool) -> ShardHeadline:
    """The headline of a bag, in the present (``live``) or as of the past."""
    total = count(bag.total, "shard")
    held = [
        f"{number(n)} {word}"
        for n, word in ((bag.counted(State.HELD), "held"), (bag.failed, "failed"))
        if n
    ]
    lagging = len(bag.stragglers)
    return ShardHeadline(
        done=f"{number(bag.done)} of {total} done",
        running=f"{number(bag.running)} running" if bag.running else "",
        held=", ".join(held),
        when=when(bag, live),
        when_brief=when(bag, live, brief=True),
        stragglers=count(lagging, "straggler") if lagging else "",
    )


def when(bag: Bag, live: bool, brief: bool = False) -> str:
    """``done in 9 h (7–12 h) without 2 that are held or failed``, or why not."""
    if bag.span is None:
        if bag.why_not is not None:
            if bag.why_not.startswith("not "):
                return f"no estimate {bag.why_not.removeprefix('not ')}"
            return f"end {bag.why_not}" if bag.why_not.startswith("unknown") else bag.why_not
        return f"done since {estimate_text.minute(bag.ended)}" if bag.ended is not None else "done"
    text = estimate_text.span(bag.span)
    text = f"done in {text}" if live else f"{text} to go then"
    if not bag.without or brief:
        return text
    verb = "is" if bag.without == 1 else "are"
    return f"{text} without {number(bag.without)} that {verb} held or failed"


def rate(pace: ShardRate | None) -> str:
    """``61 shards/h``; below one per hour, the rate per day."""
    if pace is None:
        return ""
    per_hour = pace.per_hour
    if 0 < per_hour < 1:
        return f"{24 * per_hour:.1f} shards/day"
    return f"{per_hour:.1f} shards/h" if per_hour < 9.95 else f"{number(round(per_hour))} shards/h"


def window(pace: ShardRate) -> str:
    """``the last 2 h``."""
    return f"the last {estimate_text.about(pace.seconds)}"


def times(spread: ShardTimes | None) -> str:
    """``0:41:10 (36–48 min, 9 in 10 below 55 min) of 412``."""
    if spread is None:
        return ""
    middle = between(spread.lower, spread.upper)
    most = estimate_text.about(spread.ninetieth)
    total = number(spread.shards)
    return f"{duration(spread.median)} (half {middle}, 9 in 10 below {most}) of {total}"


def states(bag: Bag) -> list[tuple[State, str]]:
    """Each state that occurs, with its text ``▶ 31 running``."""
    return [
        (state, f"{STATES[state].glyph} {number(n)} {STATES[state].word}")
        for state, n in bag.states.items()
    ]


def name(bag: Bag) -> str:
    """The name pattern of its nodes: ``shard*``."""
    return plain(bag.stem, NAME_LIMIT)


def no_bag() -> list[str]:
    """The text shown without a bag: what a bag is, and how to create one."""
    return [
        "No bag here: a bag is four or more nodes of no run with the same submit file, whose "
        "names differ by a number only (shard000, shard001, ...), and none of which waits for "
        "another.",
        'metlmon new writes one for throughput inference (shape = "bag").',
    ]
