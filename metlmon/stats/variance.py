"""Where the differences between epoch times come from: variance components, with intervals.

The logarithm of the time of a completed epoch is taken as mean + GPU model + site of that model +
host of that site + run + rest, all random, where runs are crossed with hosts and the numbers of
epochs are unbalanced (Searle, Casella & McCulloch, "Variance Components", 1992). Runs and hosts are
fitted together (Henderson's method III); what is left is the rest. If groups of runs share no
hosts, the differences between these groups count for the hosts, sites and models. Then, from the
bottom up, the component of hosts, sites and models is the value at which the weighted sum of
squares of the group means equals its expectation (Paule & Mandel, 1982), or 0 if it is negative.

Resampling runs would leave the few models, sites and hosts as they are: its 80 % intervals were
measured to contain the share of models in 10 to 25 % of cases, and that of hosts in 30 to 40 %.
Instead, as the weighted sums of squares follow independent chi-squared distributions, intervals
come from draws of these in place of the expectations (generalized confidence intervals: Weerahandi
1993; Iyer & Patterson 2002).
``tests/bench/README.md`` has their measured coverage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import log, sqrt
from random import Random
from statistics import fmean
from typing import Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from metlmon.eventlog.events import GpuDevice
from metlmon.live.feed import StatsInput
from metlmon.snapshot.records import Execution, Ledger
from metlmon.stats.totals import group_by
from metlmon.stats.usage import Distribution, UsageGroups, distribution
from metlmon.stats.windows import ALL, TimeWindow

Effect = Literal["gpu", "site", "host", "run", "rest"]

EFFECTS: Final[tuple[Effect, ...]] = ("gpu", "site", "host", "run", "rest")

MIN_EPOCHS: Final = 10
"""Minimum completed epochs for any share."""

MAX_EPOCHS: Final = 3000
"""Maximum number of epochs used, the latest ones: the computing time is proportional to it."""

MIN_REPEATS: Final = 5
"""Minimum degrees of freedom of the rest: with fewer, hosts cannot be distinguished from it."""

CLEAR_SHARE: Final = 0.25
"""Lower bound of the interval of a share from which its effect decides the choice of a place;
twice this for the rest means that the place hardly matters."""

MIN_SPREAD: Final = 0.05
"""Standard deviation of the logarithm (5 % of the time) below which no choice is worthwhile."""

DRAWS: Final = 400
LEVEL: Final = 0.8
SEED: Final = 20240930

EXTRA_DEGREES: Final = 0.5
"""Added to the degrees of freedom of the draws between groups. The draws of a component have a
long upper tail, so that the shares of the others would be too small. Chosen by simulation."""

TIME_RESOLUTION: Final = 1e-9
"""Minimum variance of the rest: logged times are whole seconds."""


class VarianceShare(Struct, frozen=True):
    """The share of one effect in the variance of the logarithm of epoch time.

    ``groups``: the number of models, sites of a model, hosts of a site, or runs; for the rest, the
    degrees of freedom. ``share`` and its 80 % interval ``lower`` to ``upper``: 0–1, or None for the
    reason ``missing``.
    """

    effect: Effect
    groups: int
    share: float | None = None
    lower: float | None = None
    upper: float | None = None
    missing: str | None = None


class PlaceFigures(Struct, frozen=True):
    """What may explain the epoch times of one GPU model and count at a site.

    ``cpus``, ``gpus_used``: in use on average; ``transfer``: seconds of the input transfer.
    ``devices``: what the logs say of the GPUs, the most frequent first.
    """

    gpu: str | None
    gpus: int | None
    site: str | None
    epochs: int
    cpus: Distribution
    gpus_used: Distribution
    transfer: Distribution
    devices: tuple[GpuDevice, ...]


class Variation(Struct, frozen=True):
    """Where the differences between the times of completed epochs come from.

    ``epochs``: completed ones without hidden compute whose GPU, site and host are known, the
    latest :data:`MAX_EPOCHS`; ``without``: the others. ``spread``: the standard deviation of the
    logarithm. ``shares`` sum to 1, or are all None for the reason ``missing``. ``between_numbers``:
    the share between epoch numbers, wherever the epochs ran; if it is large, what an epoch does has
    changed, and an effect may be due to what its places trained. ``choose_by``: the effect by which
    to choose where to run; "rest" for none.
    """

    epochs: int
    without: int
    spread: float | None
    shares: tuple[VarianceShare, ...]
    missing: str | None
    choose_by: Effect | None
    between_numbers: float | None
    places: tuple[PlaceFigures, ...]


class Observation(NamedTuple):
    """The logarithm of one epoch's time, and where it ran (``place``: GPU, site, host)."""

    value: float
    place: tuple[str, str, str]
    run: str
    epoch: int | None = None


def site_variation(stats_input: StatsInput) -> Variation:
    """The statistic of the Sites screen: variation of epoch times up to as-of."""
    return epoch_variation(stats_input.ledger)


def epoch_variation(ledger: Ledger, window: TimeWindow = ALL) -> Variation:
    """The variation of the epochs that were completed within ``window``."""
    groups = UsageGroups(ledger, window)
    finals = [e for e in groups.executions if e.final and not groups.is_hidden(e)]
    finals.sort(key=lambda entry: entry.start)
    observed = tuple(_observations(finals, groups))[-MAX_EPOCHS:]
    shares, spread, missing = variance_shares(observed)
    numbers = _between_numbers(observed)
    return Variation(
        epochs=len(observed),
        without=sum(e.final for e in groups.executions) - len(observed),
        spread=spread,
        shares=shares,
        missing=missing,
        choose_by=choice(shares, spread, numbers),
        between_numbers=numbers,
        places=tuple(_places(finals)),
    )


def _observations(finals: Iterable[Execution], groups: UsageGroups) -> Iterator[Observation]:
    for entry in finals:
        seconds = groups.seconds(entry)
        if entry.gpu and entry.site and entry.host and seconds:
            model = entry.gpu if entry.gpus == 1 else f"{entry.gpus} × {entry.gpu}"
            yield Observation(
                log(seconds), (model, entry.site, entry.host), entry.key or "", entry.epoch
            )


def _places(finals: Iterable[Execution]) -> Iterator[PlaceFigures]:
    by_place = group_by(finals, lambda e: (e.gpu, e.gpus, e.site))
    for place, entries in sorted(by_place.items(), key=lambda item: -len(item[1])):
        used = [entry.usage for entry in entries if entry.usage is not None]
        yield PlaceFigures(
            *place,
            epochs=len(entries),
            cpus=distribution(usage.cpus for usage in used),
            gpus_used=distribution(usage.gpus for usage in used),
            transfer=distribution(entry.transfer for entry in entries),
            devices=tuple(
                device for device, _ in Counter(e.device for e in entries if e.device).most_common()
            ),
        )


def choice(
    shares: Sequence[VarianceShare], spread: float | None, numbers: float | None = None
) -> Effect | None:
    """The effect by which to choose a place: the largest, if it is clear and matters.

    None if places cannot be distinguished from runs, or from epoch ``numbers``.
    """
    *places, run, _ = shares
    largest = max(shares, key=lambda each: each.share or 0.0)
    if all(each.share is None for each in places) or (run.share is None and run.groups > 1):
        return None
    clear = CLEAR_SHARE if largest.effect != "rest" else 2 * CLEAR_SHARE
    if spread is None or spread < MIN_SPREAD or (largest.lower or 0.0) < max(clear, numbers or 0.0):
        return None
    return largest.effect


def _between_numbers(observed: Sequence[Observation]) -> float | None:
    """The share of the variance between epoch numbers (epsilon squared: Kelley, 1935)."""
    groups = [
        [each.value for each in group]
        for group in group_by(observed, lambda each: each.epoch).values()
    ]
    degrees = len(observed) - len(groups)
    if len(groups) < 2 or degrees < MIN_REPEATS:
        return None
    within = sum(sum((x - fmean(group)) ** 2 for x in group) for group in groups)
    mean = fmean(each.value for each in observed)
    total = sum((each.value - mean) ** 2 for each in observed)
    unexplained = within / degrees * (len(observed) - 1)
    return max(0.0, 1 - unexplained / total) if total else None


# --- components of variance -------------------------------------------------------------------


Mean = tuple[float, float]
"""The mean of a group, and its variance as far as the lower levels explain it."""


Shares = tuple[tuple[VarianceShare, ...], float | None, str | None]
"""The share of each effect, the spread, and the reason if these are missing."""


def _without(missing: str) -> Shares:
    return tuple(VarianceShare(effect, 0) for effect in EFFECTS), None, missing


@lru_cache(maxsize=4)
def variance_shares(observed: Sequence[Observation]) -> Shares:
    """The shares of the effects in the variance of some observations."""
    if len(observed) < MIN_EPOCHS:
        return _without(f"{len(observed)} comparable, of at least {MIN_EPOCHS}")
    if len({round(each.value, 3) for each in observed}) < 2:
        return _without("all epochs took the same time")
    design = _Design(observed)
    if design.degrees["rest"] < MIN_REPEATS:
        hosts = design.groups["host"]
        design = _Design([each._replace(place=(*each.place[:2], "")) for each in observed])
        design.groups["host"], design.reasons["host"] = hosts, "too few epochs of one host"
    if design.degrees["rest"] < 1:
        return _without("too few epochs of one place and run")
    estimate = {effect: max(0.0, each) for effect, each in design.solve(design.degrees).items()}
    total = sum(estimate.values())
    draws = [_shares(design.solve(degrees)) for degrees in design.draws()]
    found = []
    for effect in EFFECTS:
        row = VarianceShare(effect, design.groups[effect], missing=design.reasons.get(effect))
        if row.missing is None:
            ordered = sorted(draw[effect] for draw in draws)
            share, tail = estimate[effect] / total, int((1 - LEVEL) / 2 * len(ordered))
            lower, upper = min(ordered[tail], share), max(ordered[-1 - tail], share)
            row = replace(row, share=share, lower=lower, upper=upper)
        found.append(row)
    return tuple(found), sqrt(total), None


def _shares(components: Mapping[Effect, float]) -> dict[Effect, float]:
    """Components, which may be negative, as shares from 0 to 1."""
    total = max(sum(components.values()), components["rest"])
    return {effect: min(1.0, max(0.0, each / total)) for effect, each in components.items()}


class _Design:
    """The groups of some observations, and the figures of each.

    ``degrees``: degrees of freedom between the groups of one effect; ``reasons``: why an effect
    has no share.
    """

    def __init__(self, observed: Sequence[Observation]) -> None:
        hosts, runs, self.squares = _fit(observed)
        of_host = Counter(each.place for each in observed)
        connected = _connected(observed)
        parts = len({id(part) for part in connected.values()})
        sites = group_by(sorted(hosts), lambda place: place[:2])
        models = group_by(sites, lambda site: site[0])
        self.models = [
            [[(hosts[host], 1 / of_host[host]) for host in sites[site]] for site in of_model]
            for of_model in models.values()
        ]
        information = dict.fromkeys(runs, 0.0)
        for (place, run), n in Counter((each.place, each.run) for each in observed).items():
            information[run] += n * (1 - n / of_host[place])
        by_part = group_by((r for r in runs if information[r] > 1e-9), lambda r: id(connected[r]))
        self.runs = [
            [(runs[run], 1 / information[run]) for run in part] for part in by_part.values()
        ]
        between_runs = sum(len(part) - 1 for part in self.runs)
        self.groups: dict[Effect, int] = {
            **{"gpu": len(models), "site": len(sites), "host": len(hosts), "run": len(runs)},
            "rest": len(observed) - len(hosts) - len(runs) + parts,
        }
        self.degrees: dict[Effect, float] = {
            **{"gpu": len(models) - 1, "site": len(sites) - len(models)},
            **{"host": len(hosts) - len(sites), "run": between_runs, "rest": self.groups["rest"]},
        }
        apart = "each run has hosts of its own" if len(runs) > 1 else "only one run"
        reasons: dict[Effect, str] = {
            **{"gpu": "only one GPU model", "site": "no GPU model has two sites"},
            **{"host": "no site has two hosts of one GPU model", "run": apart},
        }
        self.reasons = {name: why for name, why in reasons.items() if self.degrees[name] < 1}

    def draws(self) -> Iterator[dict[Effect, float]]:
        """Chi-squared draws in place of the degrees of freedom, the same in each call."""
        rng = Random(SEED)
        number = max(100, min(DRAWS, 40_000 // self.groups["host"]))
        for _ in range(number):
            yield {
                effect: rng.gammavariate((n + EXTRA_DEGREES * (effect != "rest")) / 2, 2)
                for effect, n in self.degrees.items()
            }

    def solve(self, sums: Mapping[Effect, float]) -> dict[Effect, float]:
        """The components at which the weighted sums of squares have these values."""
        rest = max(self.squares / sums["rest"], TIME_RESOLUTION)

        def scaled(groups: Iterable[Sequence[Mean]]) -> list[list[Mean]]:
            return [[(value, v * rest) for value, v in group] for group in groups]

        run, _ = _between(scaled(self.runs), sums["run"])
        host, means = _between(
            scaled(hosts for of_model in self.models for hosts in of_model), sums["host"]
        )
        of_sites = iter(means)
        site, means = _between(
            [[next(of_sites) for _ in of_model] for of_model in self.models], sums["site"]
        )
        gpu, _ = _between([means], sums["gpu"])
        return {"gpu": gpu, "site": site, "host": host, "run": run, "rest": rest}


def _between(groups: Sequence[Sequence[Mean]], target: float) -> tuple[float, list[Mean]]:
    """The variance within groups that makes the weighted sum of squares ``target``; their means.

    Newton's method is applied to the inverse of the sum, which is nearly linear. The variance is
    negative, after one step, if even 0 is too much; the weighted means are then those for 0.
    """
    several = [group for group in groups if len(group) > 1]
    variance = negative = 0.0
    for _ in range(50 if several else 0):
        squares = slope = 0.0
        for group in several:
            weights = [1 / (variance + v) for _, v in group]
            pairs = [(w, x) for w, (x, _) in zip(weights, group, strict=True)]
            mean = sum(w * x for w, x in pairs) / sum(weights)
            for w, x in pairs:
                square = w * (x - mean) ** 2
                squares += square
                slope += w * square
        if squares <= 1.0001 * target:
            if not variance and slope:
                least = min(v for group in several for _, v in group)
                negative = max(-least, (squares - target) / slope)
            break
        variance += squares * (squares - target) / (target * slope)
    means = []
    for group in groups:
        weights = [1 / (variance + v) for _, v in group]
        total = sum(weights)
        values = (w * x for w, (x, _) in zip(weights, group, strict=True))
        means.append((sum(values) / total, 1 / total))
    return variance or negative, means


Place = tuple[str, str, str]


def _fit(observed: Sequence[Observation]) -> tuple[dict[Place, float], dict[str, float], float]:
    """The effects of hosts and runs, fitted jointly by least squares, and the residual squares."""
    cells = [
        (place, run, len(values), sum(each.value for each in values))
        for (place, run), values in group_by(observed, lambda e: (e.place, e.run)).items()
    ]
    of_host, of_run = Counter(e.place for e in observed), Counter(e.run for e in observed)
    runs = dict.fromkeys(of_run, 0.0)
    for _ in range(100):
        hosts = dict.fromkeys(of_host, 0.0)
        for place, run, n, total in cells:
            hosts[place] += (total - n * runs[run]) / of_host[place]
        changed = dict.fromkeys(of_run, 0.0)
        for place, run, n, total in cells:
            changed[run] += (total - n * hosts[place]) / of_run[run]
        middle = sum(n * changed[run] for run, n in of_run.items()) / len(observed)
        changed = {run: each - middle for run, each in changed.items()}
        moved = max(abs(changed[run] - runs[run]) for run in runs)
        runs = changed
        if moved < 1e-6:
            break
    squares = sum((e.value - hosts[e.place] - runs[e.run]) ** 2 for e in observed)
    return hosts, runs, squares


def _connected(observed: Iterable[Observation]) -> dict[str, set[str]]:
    """For each run, the runs connected with it by common hosts; these share one set."""
    parts: dict[str, set[str]] = {}
    for here in group_by(observed, lambda each: each.place).values():
        merged = set[str]().union(*(parts.get(run, {run}) for run in {each.run for each in here}))
        parts.update(dict.fromkeys(merged, merged))
    return parts
