"""How many planted slow hosts are found, and how many others are called slow.

``python -m tests.bench.hosts [SEEDS [FIRST]]`` prints it for several sizes of the other effects.
The rule was chosen on seeds 0 to 59; ``FIRST``: the first of the seeds.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import product

from metlmon.stats.hosts import EpochTime, compare_hosts
from tests.generated.effects import Effects, planted

SEEDS = (60, 0)
"""How many, and the first of them."""


@dataclass
class Rates:
    """Hosts of some ensembles: compared, planted as slow, called slow, and both."""

    compared: int = 0
    planted: int = 0
    slow: int = 0
    right: int = 0

    @property
    def false_alarms(self) -> float:
        """Per 1,000 hosts that are not slow."""
        return 1000 * (self.slow - self.right) / (self.compared - self.planted)

    @property
    def recall(self) -> float:
        return self.right / self.planted

    @property
    def precision(self) -> float:
        return self.right / self.slow

    def __str__(self) -> str:
        text = f"{self.compared} hosts compared, {self.false_alarms:.1f} false alarms per 1,000"
        if self.planted:
            text += f", recall {self.recall:.2f}, precision {self.precision:.2f}"
        return text


def rates(effects: Effects, seeds: range) -> Rates:
    """The rates over the ensembles of these seeds."""
    counts = Rates()
    for seed in seeds:
        ensemble = planted(effects, seed)
        found = compare_hosts(
            EpochTime((each.host, each.site, each.gpu, 1), each.run, each.start, each.seconds)
            for each in ensemble.trained
        )
        compared = {place[0] for place, each in found.items() if each.relative_time}
        slow = {place[0] for place, each in found.items() if each.slow}
        counts.compared += len(compared)
        counts.planted += len(ensemble.slow & compared)
        counts.slow += len(slow)
        counts.right += len(ensemble.slow & slow)
    return counts


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    number, first = (*given, *SEEDS[len(given) :])
    seeds = range(first, first + number)
    for host, run, slow_hosts in product((0, 0.1), (0.05, 0.2), (0, 4)):
        size = f"hosts ± {host}, runs ± {run}, {slow_hosts} slow"
        print(f"{size}: {rates(Effects(host=host, run=run, slow_hosts=slow_hosts), seeds)}")
