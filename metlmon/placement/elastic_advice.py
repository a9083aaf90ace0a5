"""Advice for elastic trainings: how many workers each should have, and until when.

An elastic training's submit description says ``--nnodes min:max`` (torchrun) in its arguments, or
its DAG sets such a value by VARS ``nnodes``. Each of its workers is a job of its own, a process of
one cluster. Throughput is learned from epochs and progress lines (``elastic_profile.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.dagman.submit_description import Description, command_values, parse_description
from metlmon.live.feed import StatsInput
from metlmon.live.file_access import read_regular_file
from metlmon.model.states import Outcome
from metlmon.placement.elastic import ElasticRun, allocate_nodes
from metlmon.placement.elastic_profile import ThroughputSample, learn_throughput
from metlmon.placement.types import Annex, AnnexState
from metlmon.remote.paths import join
from metlmon.snapshot.records import DescribedNode, Execution, Ledger, Run
from metlmon.text.formatting import count, moment, plain, year_of
from metlmon.text.record_json import Nullable

NO_EXPIRY_SECONDS: Final = 3600.0
"""Horizon where no end is known: a change has to pay off within an hour."""

MOST_WORKERS: Final = 512
"""Workers that are shared at most: more than an annex has. A slot's ad may say any number."""

_LOSSES: Final = (Outcome.EVICTED, Outcome.SHADOW_EXCEPTION, Outcome.RECONNECT_FAILED)
_VARIABLES: Final = frozenset({"nnodes", "workers"})
_BOUNDS: Final = re.compile(r"(\d{1,4}):(\d{1,4})")
_OPTION: Final = re.compile(r"--nnodes[=\s]+[\"']?(\d{1,4}):(\d{1,4})\b")


class ElasticAdvice(Struct, frozen=True, kw_only=True):
    """How many workers an elastic run should have from ``as_of`` on.

    ``minimum``, ``maximum``: as its submit description says; ``workers``: now; ``advised``: from
    now ``until`` (None: no end is known). ``annex``: the one that expires then. ``gain``: expected
    throughput relative to the present one, None if it does not train. ``samples``: rates that it
    logged; ``inferred``: the number of workers for all runs is the most that ran at once.
    """

    run: str
    run_name: str
    minimum: int
    maximum: int
    workers: int
    advised: int
    until: datetime | None
    annex: Nullable[str]
    gain: float | None
    samples: int
    inferred: bool
    reason: str


def elastic_advice(
    stats_input: StatsInput, annexes: Iterable[Annex] = ()
) -> tuple[ElasticAdvice, ...]:
    """The advice for all elastic runs that are not over; empty without one.

    The nodes of the annexes that are up are shared so that the sum of the runs' speedups until the
    first of them expires is largest; without annexes as many workers as ran at once so far.
    """
    ledger, bounds = stats_input.ledger, elastic_bounds(stats_input)
    runs = [run for run in ledger.runs if run.key in bounds and not _is_over(run)]
    if not runs:
        return ()
    executions = [each for each in ledger.executions if each.run in bounds and each.training]
    up = [each for each in annexes if each.state in (AnnexState.UP, AnnexState.EXPIRING)]
    nodes = sum(each.nodes or 0 for each in up)
    first = min((each for each in up if each.alive_until), key=_end, default=None)
    horizon = NO_EXPIRY_SECONDS
    if first is not None and first.alive_until is not None and ledger.as_of is not None:
        horizon = max(0.0, ledger.seconds_between(ledger.as_of, first.alive_until))
    profiles = learn_throughput(throughput_samples(stats_input, bounds), [run.key for run in runs])
    losses = loss_rate(executions)
    elastic = []
    for run in runs:
        minimum, maximum = bounds[run.key]
        now = min(maximum, len(_running(executions, run.key)))
        curve = profiles[run.key].speedups(maximum)
        elastic.append(
            ElasticRun(
                run=run.key,
                minimum=minimum,
                maximum=maximum,
                nodes=now,
                throughput=curve,
                losses=losses,
            )
        )
    available = nodes or most_at_once(executions)
    available = min(available, MOST_WORKERS, sum(each.maximum for each in elastic))
    allocation = allocate_nodes(elastic, available, horizon)
    advice = []
    for run, each, advised in zip(runs, elastic, allocation, strict=True):
        present = each.throughput[each.nodes] if each.nodes >= each.minimum else 0.0
        record = ElasticAdvice(
            run=run.key,
            run_name=run.name,
            minimum=each.minimum,
            maximum=each.maximum,
            workers=each.nodes,
            advised=advised,
            until=first.alive_until if first is not None else None,
            annex=first.name if first is not None else "",
            gain=each.throughput[advised] / present if present else None,
            samples=profiles[run.key].samples,
            inferred=not nodes,
            reason="",
        )
        advice.append(_with_reason(record, available, year_of(ledger.as_of)))
    return tuple(advice)


def _with_reason(advice: ElasticAdvice, available: int, this_year: int | None) -> ElasticAdvice:
    name, advised = plain(advice.run_name), count(advice.advised, "worker")
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
    if not advice.samples:
        text += "; usual scaling, since it has logged no rate"
    return replace(advice, reason=text)


def _is_over(run: Run) -> bool:
    return run.stopped or run.failed is not None or run.epochs_done >= run.epochs_total


def _end(annex: Annex) -> datetime:
    assert annex.alive_until is not None
    return annex.alive_until


# --- bounds ----------------------------------------------------------------------------------


def elastic_bounds(stats_input: StatsInput) -> Mapping[str, tuple[int, int]]:
    """The least and the most workers of each elastic run, by run key.

    Reads the submit descriptions of the runs' first epochs: not for the UI thread.
    """
    described: dict[str, DescribedNode] = {}
    for node in stats_input.load_description().nodes.all:
        if node.run is not None and node.training:
            described.setdefault(node.run, node)
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


# --- workers and samples ---------------------------------------------------------------------


def throughput_samples(stats_input: StatsInput, runs: Iterable[str]) -> Iterator[ThroughputSample]:
    """Epochs per second of these runs, with the number of workers.

    One sample of each completed epoch, on the mean number of its workers, and one of the progress
    lines of the running epoch.
    """
    ledger, wanted = stats_input.ledger, frozenset(runs)
    attempts: dict[tuple[object, int], list[Execution]] = {}
    for each in ledger.executions:
        if each.run in wanted and each.training:
            attempts.setdefault((each.key, each.attempt), []).append(each)
    for executions in attempts.values():
        if any(each.final for each in executions):
            yield from _epoch_sample(ledger, executions)
        running = [each for each in executions if each.outcome is Outcome.IN_FLIGHT]
        rates = []
        for each in running:
            streamed = stats_input.streams.get(each.job)
            if streamed is not None and streamed.rate and streamed.total:
                rates.append(streamed.rate / streamed.total)
        if rates and (run := running[0].run) is not None:
            rate = sum(rates) / len(rates)
            yield ThroughputSample(run=run, nodes=len(running), rate=rate)


def _epoch_sample(ledger: Ledger, executions: Sequence[Execution]) -> Iterator[ThroughputSample]:
    run, ends = executions[0].run, [each.end for each in executions if each.end is not None]
    seconds = ledger.seconds_between(min(each.start for each in executions), max(ends))
    if run is not None and seconds > 0:
        workers = sum(each.seconds for each in executions) / seconds
        yield ThroughputSample(run=run, nodes=max(1, round(workers)), rate=1 / seconds)


def most_at_once(executions: Iterable[Execution]) -> int:
    """The most executions that ran at the same time."""
    changes = []
    for each in executions:
        changes.append((each.start, 1))
        if each.end is not None:
            changes.append((each.end, -1))
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def loss_rate(executions: Iterable[Execution]) -> float:
    """Workers lost per second and worker: evicted, or no longer reached."""
    seconds, losses = 0.0, 0
    for each in executions:
        seconds += each.seconds
        losses += each.outcome in _LOSSES
    return losses / seconds if seconds else 0.0


def _running(executions: Iterable[Execution], run: str) -> list[Execution]:
    return [each for each in executions if each.run == run and each.outcome is Outcome.IN_FLIGHT]
