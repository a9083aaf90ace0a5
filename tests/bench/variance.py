"""How often the 80 % intervals of the shares of epoch time's variance hold the planted share.

    python tests/bench/variance.py [SEEDS [FIRST]]

Five sizes of effect and one without any, 21 runs of 30 epochs on five GPU models. In brackets
the mean estimate and what was planted. ``FIRST``: the first of the seeds. ``EXTRA_DEGREES`` was
chosen on seeds 0 to 99: only others measure what the intervals are worth.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import mean
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from metlmon.stats.variance import EFFECTS, epoch_variation
from tests.generated.effects import Effects, planted

SIZES: Final = {
    "GPU model": Effects(0.5, 0.1, 0.05, 0.05, 0.1),
    "site": Effects(0.1, 0.4, 0.05, 0.05, 0.1),
    "host": Effects(0.1, 0.1, 0.3, 0.05, 0.1),
    "run": Effects(0.1, 0.1, 0.05, 0.4, 0.1),
    "all alike": Effects(0.15, 0.15, 0.15, 0.15, 0.15),
    "rest": Effects(0.05, 0.05, 0.05, 0.05, 0.2),
    "none": Effects(0, 0, 0, 0, 0.2),
}
"""The largest effect, and the standard deviations of all."""

SEEDS: Final = (100, 1000)
"""How many, and the first of them."""

FIVE: Final = ("GPU model", "site", "host", "run", "all alike")


def coverage(effects: Effects, seeds: range) -> tuple[dict[str, float], dict[str, float], float]:
    """By effect how often the interval holds and the mean estimate; the seconds of the longest."""
    held: dict[str, list[bool]] = {effect: [] for effect in EFFECTS}
    shares: dict[str, list[float]] = {effect: [] for effect in EFFECTS}
    longest = 0.0
    for seed in seeds:
        ledger = planted(effects, seed).ledger
        began = time.perf_counter()
        variation = epoch_variation(ledger)
        longest = max(longest, time.perf_counter() - began)
        for each in variation.shares:
            if each.share is not None and each.lower is not None and each.upper is not None:
                truth = effects.shares[each.effect]
                held[each.effect].append(each.lower - 1e-9 <= truth <= each.upper + 1e-9)
                shares[each.effect].append(each.share)
    return (
        {effect: mean(each) for effect, each in held.items()},
        {effect: mean(each) for effect, each in shares.items()},
        longest,
    )


def main() -> None:
    given = [int(word) for word in sys.argv[1:]]
    number, first = (*given, *SEEDS[len(given) :])
    seeds = range(first, first + number)
    print(f"seeds {first} to {seeds[-1]}; holds (mean estimate of planted)")
    print(f"{'largest':10}", *(f"{effect:>20}" for effect in EFFECTS), f"{'all':>6} longest")
    of_five: dict[str, list[float]] = {effect: [] for effect in EFFECTS}
    for name, effects in SIZES.items():
        holds, shares, seconds = coverage(effects, seeds)
        cells = [f"{holds[e]:5.0%} ({shares[e]:4.0%} of {effects.shares[e]:4.0%})" for e in EFFECTS]
        print(f"{name:10}", *cells, f"{mean(holds.values()):6.0%} {seconds:.2f} s", flush=True)
        if name in FIVE:
            for effect in EFFECTS:
                of_five[effect].append(holds[effect])
    cells = [f"{mean(of_five[e]):5.0%} {'':14}" for e in EFFECTS]
    print(f"{'these five':10}", *cells, f"{mean(map(mean, of_five.values())):6.0%}")


if __name__ == "__main__":
    main()
