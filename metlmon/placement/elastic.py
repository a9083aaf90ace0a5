"""Elastic trainings: how many workers each should have, and until when.

An elastic training (torch elastic) runs on any number of nodes between its bounds, or waits. Its
submit description has ``--nnodes min:max`` in its arguments, or its DAG sets such a value by VARS
``nnodes``. Each of its workers is a job of its own, a proc of one cluster.

Numbers of nodes come from an exact dynamic program, since changing a number interrupts the training
for some seconds. Nodes are interchangeable, so each training either only gains or only loses nodes,
and the mixed-integer program of FreeTrain and MalleTrain (Ma et al., ICPE '24) is a multiple-choice
knapsack over the numbers of nodes.

On n nodes the throughput is assumed to be n^exponent, the usual scaling: a profile of each training
would gain no more than one or two percent of the work (``tests/bench/README.md``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import add, attrgetter
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.dagman.submit_description import Description, command_values, parse_description
from metlmon.live.feed import StatsInput
from metlmon.live.file_access import read_regular_file
from metlmon.model.states import EVICTIONS, Outcome
from metlmon.placement.types import Annex, AnnexState
from metlmon.remote.paths import join
from metlmon.snapshot.records import DescribedNode, Execution, Run
from metlmon.stats.pool_profiles import most_at_once
from metlmon.text.formatting import count, moment, plain, year_of
from metlmon.text.record_json import Nullable

# --- allocation -------------------------------------------------------------------------------


GROW_SECONDS: Final = 18.0
SHRINK_SECONDS: Final = 12.0
"""Pause of a training that gains or loses nodes: 17–19 s and 11–13 s in the authors' data."""

_NEVER: Final = float("-inf")


class ElasticRun(Struct, frozen=True, kw_only=True):
    """A training on ``minimum`` to ``maximum`` nodes, now on ``nodes`` (0: it waits).

    ``throughput``: work per second on 0, 1, … nodes, at least up to ``maximum``, in any unit that
    all trainings share. ``losses``: expected number of lost nodes per second and node; each loss
    pauses the training.
    """

    key: str
    minimum: int
    maximum: int
    nodes: int
    throughput: tuple[float, ...]
    losses: float = 0.0

    def values(self, most: int, horizon: float) -> list[float]:
        """The work within ``horizon`` seconds on 0, 1, … ``most`` nodes, less that lost in pauses.

        As in FreeTrain, a change costs the work that the current nodes would do meanwhile; also,
        a training on more nodes is paused more often, since the loss of any node pauses it.
        """
        present = self.throughput[self.nodes] if self.nodes >= self.minimum else 0.0
        grow, shrink = GROW_SECONDS * present, SHRINK_SECONDS * present
        paused = self.losses * SHRINK_SECONDS
        costs = [shrink] * self.nodes + [0.0] + [grow] * most
        return [
            horizon * rate * max(0.0, 1.0 - paused * nodes) - cost
            for nodes, (rate, cost) in enumerate(zip(self.throughput[: most + 1], costs))  # noqa: B905
        ]


def allocate_nodes(runs: Sequence[ElasticRun], nodes: int, horizon: float) -> tuple[int, ...]:
    """The numbers of nodes, at most ``nodes`` in all, that maximise the work within ``horizon``.

    Exact: a multiple-choice knapsack. Each run gets 0 nodes or a number within its bounds; of
    equally good numbers, the one nearest to its current number.
    """
    nodes = min(nodes, sum(run.maximum for run in runs))
    totals = [0.0] * (nodes + 1)
    levels: list[tuple[ElasticRun, list[float], list[float]]] = []
    for run in runs:
        values = run.values(min(run.maximum, nodes), horizon)
        levels.append((run, totals, values))
        totals = _best_totals(totals, values, run.minimum)
    allocation: list[int] = []
    left = nodes
    for run, before, values in reversed(levels):
        counts = (0, *range(run.minimum, min(len(values) - 1, left) + 1))
        best = max((before[left - n] + values[n], -abs(n - run.nodes), n) for n in counts)
        allocation.append(best[2])
        left -= best[2]
    return tuple(reversed(allocation))


def _best_totals(before: list[float], values: list[float], minimum: int) -> list[float]:
    """The best totals on 0, 1, … nodes with one more run, which has these ``values``."""
    # before[k - n] for n = minimum, minimum + 1, … is a slice of the reversed list.
    waiting, running = values[0], values[minimum:]
    backwards, end = before[::-1], len(before) - 1 + minimum
    return [
        max(total + waiting, max(map(add, running, backwards[end - count :]), default=_NEVER))
        for count, total in enumerate(before)
    ]


# --- throughput -------------------------------------------------------------------------------


EXPONENT: Final = 0.93
"""Each time the number of nodes quadruples, up to 64, data-parallel training falls behind linear
scaling by a factor of 1.02 to 1.2."""


def speedups(maximum: int) -> tuple[float, ...]:
    """The speedups on 0, 1, … ``maximum`` nodes, relative to one node."""
    return (0.0, *(nodes**EXPONENT for nodes in range(1, maximum + 1)))


# --- advice -----------------------------------------------------------------------------------


NO_EXPIRY_SECONDS: Final = 3600.0
"""Horizon if no end is known: a change has to pay off within an hour."""

MAX_WORKERS: Final = 512
"""Maximum number of shared workers, more than an annex has: a slot's ad may have any number."""

_VARIABLES: Final = frozenset({"nnodes", "workers"})
_BOUNDS: Final = re.compile(r"(\d{1,4}):(\d{1,4})")
_OPTION: Final = re.compile(r"--nnodes[=\s]+[\"']?(\d{1,4}):(\d{1,4})\b")


class ElasticAdvice(Struct, frozen=True, kw_only=True):
    """How many workers an elastic run should have from ``as_of`` on.

    ``minimum``, ``maximum``: as in its submit description; ``workers``: the current number;
    ``advised``: that from now ``until`` (None: no end is known). ``annex``: the one that expires
    then. ``gain``: expected throughput relative to the current one, None if it does not train.
    ``inferred``: the number of workers for all runs is the most that ran at once.
    """

    key: str
    run: str
    minimum: int
    maximum: int
    workers: int
    advised: int
    until: datetime | None
    annex: Nullable[str]
    gain: float | None
    inferred: bool
    reason: str


def elastic_advice(
    stats_input: StatsInput, annexes: Iterable[Annex] = ()
) -> tuple[ElasticAdvice, ...]:
    """The advice for all elastic runs that are not over; empty without one.

    The nodes of the annexes that are up are distributed so as to maximize the sum of the runs'
    speedups until the first of the annexes expires; without annexes, as many workers as have run at
    once so far.
    """
    ledger, bounds = stats_input.ledger, elastic_bounds(stats_input)
    runs = [run for run in ledger.runs if run.key in bounds and not _is_over(run)]
    if not runs:
        return ()
    executions = [each for each in ledger.executions if each.key in bounds and each.training]
    up = [each for each in annexes if each.state in (AnnexState.UP, AnnexState.EXPIRING)]
    nodes = sum(each.nodes or 0 for each in up)
    first = min(
        (each for each in up if each.alive_until), key=attrgetter("alive_until"), default=None
    )
    horizon = NO_EXPIRY_SECONDS
    if first is not None and first.alive_until is not None and ledger.as_of is not None:
        horizon = max(0.0, ledger.seconds_between(ledger.as_of, first.alive_until))
    losses = loss_rate(executions)
    elastic = []
    for run in runs:
        minimum, maximum = bounds[run.key]
        running = sum(e.key == run.key and e.outcome is Outcome.IN_FLIGHT for e in executions)
        elastic.append(
            ElasticRun(
                key=run.key,
                minimum=minimum,
                maximum=maximum,
                nodes=min(maximum, running),
                throughput=speedups(maximum),
                losses=losses,
            )
        )
    available = nodes or most_at_once((each.start, each.end) for each in executions)
    available = min(available, MAX_WORKERS, sum(each.maximum for each in elastic))
    allocation = allocate_nodes(elastic, available, horizon)
    advice = []
    for run, each, advised in zip(runs, elastic, allocation, strict=True):
        present = each.throughput[each.nodes] if each.nodes >= each.minimum else 0.0
        record = ElasticAdvice(
            key=run.key,
            run=run.run,
            minimum=each.minimum,
            maximum=each.maximum,
            workers=each.nodes,
            advised=advised,
            until=first.alive_until if first is not None else None,
            annex=first.name if first is not None else "",
            gain=each.throughput[advised] / present if present else None,
            inferred=not nodes,
            reason="",
        )
        advice.append(_with_reason(record, available, year_of(ledger.as_of)))
    return tuple(advice)


def _with_reason(advice: ElasticAdvice, available: int, this_year: int | None) -> ElasticAdvice:
    name, advised = plain(advice.run), count(advice.advised, "worker")
    until = ""
    if advice.until is not None:
        until = f" until annex {plain(advice.annex)} expires ({moment(advice.until, this_year)})"
    if not advice.advised:
        text = f"{name}: wait{until}; {count(available, 'worker')} in all do more for others"
        if available < advice.minimum:
            text = f"{name}: wait{until}; it needs {count(advice.minimum, 'worker')}"
    elif advice.advised == advice.workers:
        text = f"{name}: keep {advised}{until}"
    else:
        text = f"{name}: {advised}{until}; it has {advice.workers or 'none'}"
        if advice.gain is not None:
            text += f", expected {advice.gain:.1f} times the epochs per hour"
    if advice.inferred and advice.advised:
        text += f"; {count(available, 'worker')} in all, the most that ran at once"
    return replace(advice, reason=text)


def _is_over(run: Run) -> bool:
    return run.stopped or run.failed is not None or not run.epochs_left


# --- bounds ----------------------------------------------------------------------------------


def elastic_bounds(stats_input: StatsInput) -> Mapping[str, tuple[int, int]]:
    """Minimum and maximum workers of each elastic run, by key. Not for the UI thread."""
    described: dict[str, DescribedNode] = {}
    for node in stats_input.load_description().nodes.all:
        if node.key is not None and node.training:
            described.setdefault(node.key, node)
    descriptions: dict[Path, Description | None] = {}
    found = {}
    for run, node in described.items():
        bounds = _variable_bounds(node.node.vars)
        if bounds is None and node.node.submit is not None:
            path = join(
                join(Path(stats_input.ledger.dagdir), node.node.dir or ""), node.node.submit
            )
            if path not in descriptions:
                descriptions[path] = _read_description(path)
            bounds = _argument_bounds(descriptions[path], node.node.vars)
        if bounds is not None:
            found[run] = bounds
    return found


def _variable_bounds(variables: Mapping[str, str]) -> tuple[int, int] | None:
    for name, value in variables.items():
        if name.lower() in _VARIABLES and (match := _BOUNDS.fullmatch(value.strip())):
            return _checked(match)
    return None


def _argument_bounds(
    description: Description | None, variables: Mapping[str, str]
) -> tuple[int, int] | None:
    if description is None:
        return None
    arguments = command_values(description, variables, {}, ("arguments",))["arguments"]
    match = _OPTION.search(arguments or "")
    return _checked(match) if match else None


def _checked(match: re.Match[str]) -> tuple[int, int] | None:
    minimum, maximum = int(match[1]), int(match[2])
    return (minimum, maximum) if 1 <= minimum <= maximum else None


def _read_description(path: Path) -> Description | None:
    try:
        lines = read_regular_file(path).decode("utf-8", "replace").split("\n")
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return None
    return parse_description(lines)


# --- workers ---------------------------------------------------------------------------------


def loss_rate(executions: Iterable[Execution]) -> float:
    """The rate, per second and worker, at which workers are evicted or no longer reached."""
    executions = list(executions)
    seconds = sum(each.seconds for each in executions)
    return sum(each.outcome in EVICTIONS for each in executions) / seconds if seconds else 0.0
