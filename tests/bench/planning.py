"""How long do a plan and a what-if table take, in CPU time, and how close are classes to exact?

    python tests/bench/planning.py

Random ensembles of 30 runs at 14 pools, three of them annexes, with one allocation; then one of
them as a user has it: ledger, profiles, and estimates. The aims: a plan in 50 ms, a table in 0.5 s.
The last rows compare with a loop of additions, as a measure of the machine and what else it does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from random import Random
from statistics import mean, median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from metlmon.placement.chains import solve_chains
from metlmon.placement.planner import PlanInput, plan_input, plan_of
from metlmon.placement.supplies import Supplies
from metlmon.placement.types import Allocation, PoolSupply, RunDemand
from metlmon.placement.what_if import what_if_table
from metlmon.stats.pool_profiles import ResourcePool
from tests.support.records import read_dagdir, stats_input

RUNS, POOLS, ANNEXES, SEEDS = 30, 14, 3, 30
ENSEMBLE = Path(__file__).resolve().parents[2] / "fixtures" / "first-round"
MIDDLE = datetime(2025, 10, 20, 12)


def generated_values(seed: int) -> PlanInput:
    random = Random(seed)
    supplies = []
    for number in range(POOLS):
        hours, wait = random.uniform(1, 6), random.uniform(0, 2)
        supplies.append(
            PoolSupply(
                pool=ResourcePool(f"site{number}", "A100", f"annex{number}" * (number < ANNEXES)),
                hours=hours + wait,
                occupancy=hours,
                gpu_hours=hours * random.choice([1, 2]),
                slots=random.randint(1, 5),
                hours_left=random.uniform(5, 40) if number < ANNEXES else None,
                wait=wait,
            )
        )
    return PlanInput(
        as_of=None,
        demands=tuple(
            RunDemand(
                run=f"run{number}", epochs_left=random.randint(8, 30), ready_in=random.uniform(0, 3)
            )
            for number in range(RUNS)
        ),
        supplies=Supplies(
            usable=tuple(supplies),
            avoided=(),
            excluded=(),
            probes=frozenset(),
            profiles={},
            inferred=True,
        ),
        allocations=(Allocation(name="award", balance=200.0, sites=("site4", "site5")),),
        runs_excluded=(),
    )


def milliseconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return 1000 * (time.process_time() - start)


def additions() -> int:
    return sum(number & 7 for number in range(100_000))


def print_times(what: str, times: Iterable[float]) -> None:
    values = sorted(times)
    print(f"{what:<44} median {median(values):7.1f} ms  most {values[-1]:7.1f} ms")


def main() -> None:
    inputs = [generated_values(seed) for seed in range(SEEDS)]
    plans = [plan_of(values) for values in inputs]
    print(f"{SEEDS} ensembles of {RUNS} runs at {POOLS} pools")
    print_times("plan", (milliseconds(lambda v=v: plan_of(v)) for v in inputs))
    pairs = list(zip(inputs, plans, strict=True))
    rows = [len(what_if_table(values, plan)) for values, plan in pairs]
    tables = [milliseconds(lambda v=v, p=p: what_if_table(v, p)) for v, p in pairs]
    print_times(f"what-if table ({mean(rows):.0f} rows in the mean)", tables)
    exact = [
        solve_chains(v.demands, v.supplies.usable, v.allocations, is_exact=True) for v in inputs[:5]
    ]
    early = [1 - plan.hours / other.hours for plan, other in zip(plans, exact, strict=False)]
    print(f"end with classes, before that without: {100 * mean(early):.2f} % in the mean")

    ensemble = stats_input(read_dagdir(ENSEMBLE, as_of=MIDDLE))
    print(f"{ENSEMBLE.name} at {MIDDLE}: {len(ensemble.ledger.executions)} executions")
    print_times(
        "profiles and estimates", (milliseconds(lambda: plan_input(ensemble)) for _ in "123")
    )
    values = plan_input(ensemble)
    plan = plan_of(values)
    print_times("plan", (milliseconds(lambda: plan_of(values)) for _ in "123"))
    print_times("what-if table", (milliseconds(lambda: what_if_table(values, plan)) for _ in "123"))
    print_times("100,000 additions", (milliseconds(additions) for _ in range(10)))


if __name__ == "__main__":
    main()
