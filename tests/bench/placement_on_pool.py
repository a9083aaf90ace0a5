"""What does ``metlmon advise --apply send`` save on a real pool?

    python tests/bench/placement_on_pool.py             # both, three times each; 20 minutes, root
    python tests/bench/placement_on_pool.py untargeted  # without advice; or: advised

Six runs over four sites with two GPUs each: at one site an epoch takes four times as long, at
another one every job fails at once. Every epoch may go to any site (the honest competitor),
and HTCondor chooses; advised is the same ensemble with ``metlmon advise`` beside it. A DAG that
fails, its retries used up, is submitted again at once from its rescue file: a user would take
hours to see it, so this favours what fails more often.

Printed are the makespan (from the first submission to the end of the last job), the epochs done at
each site, failed executions, submissions of the DAG, and the last epoch that each run tried at the
failing and at the slow site (— for none). They come from ``condor_history``, not from metlmon.
Runs of both kinds alternate, so that the load of the machine is the same for both. Use a pool
of your own: METLMON_POOL and METLMON_POOL_PORT (see ``tests/pool/pool``). No test asserts it.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "pool"), str(HERE.parents[1])]

from pools import Pool, pool_in_use  # noqa: E402

from tests.pool import site_ensemble  # noqa: E402
from tests.pool.site_ensemble import Outcome, Sites  # noqa: E402

TIMES = 3
RUNS, EPOCHS = 6, 6
SECONDS, SLOW_SECONDS = 10, 40
EVERY = "10s"
"""Between two plans that are applied: the time of an epoch, as 12 h is with METL."""
MOST_SUBMISSIONS = 10
END_SECONDS = 1200.0

KINDS = ("untargeted", "advised")
WIDTHS = (10, 10, 14, 14, 14, 14, 8, 9, 20, 21, 4)


def measure(pool: Pool, kind: str, number: int) -> Outcome:
    """One ensemble, from its submission until all its epochs are done."""
    jobs = pool.queue()
    if jobs:
        raise SystemExit(f"{len(jobs)} jobs are in the queue of this pool: use one of your own")
    ensemble = site_ensemble.write(
        pool,
        f"{kind}-{number}",
        runs=RUNS,
        epochs=EPOCHS,
        seconds=SECONDS,
        slow_seconds=SLOW_SECONDS,
    )
    for _ in range(MOST_SUBMISSIONS):
        ensemble.submit()
        if kind == "advised":
            with site_ensemble.advice(ensemble, EVERY):
                site_ensemble.has_left(ensemble, END_SECONDS)
        else:
            site_ensemble.has_left(ensemble, END_SECONDS)
        found = site_ensemble.outcome(ensemble)
        if sum(found.done.values()) == RUNS * EPOCHS:
            return found
    raise SystemExit(f"{kind}: not done after {MOST_SUBMISSIONS} submissions")


def line(kind: str, found: Outcome, sites: Sites) -> str:
    """The row of one measurement."""
    cells = [kind, f"{found.makespan:.0f}", *(f"{found.done.get(site, 0)}" for site in sites.all)]
    cells += [str(found.failures), str(found.submissions)]
    for site in (sites.failing, sites.slow):
        cells.append(" ".join(str(epoch or "—") for epoch in found.last_at[site].values()))
    return row([*cells, f"{os.getloadavg()[1]:.1f}"])


def row(cells: Sequence[str]) -> str:
    """The cells of a row, aligned."""
    return "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))


def main(words: Sequence[str]) -> int:
    kinds = tuple(words) or KINDS
    if unknown := set(kinds) - set(KINDS):
        raise SystemExit(f"{' '.join(unknown)}: give {' or '.join(KINDS)}, or nothing")
    with pool_in_use({}) as pool:
        sites = Sites.of_pool(pool)
        head = ["", "makespan s", *sites.all, "failures", "submitted"]
        head += [f"last at {sites.failing}", f"last at {sites.slow}", "load"]
        print(time.strftime("%F %T"), f"{RUNS} runs × {EPOCHS} epochs of {SECONDS} s,", end=" ")
        print(f"{SLOW_SECONDS} s at {sites.slow}; all fail at {sites.failing}")
        print(row(head), flush=True)
        makespans: dict[str, list[float]] = {kind: [] for kind in kinds}
        for number in range(1, TIMES + 1):
            for kind in kinds:
                found = measure(pool, kind, number)
                makespans[kind].append(found.makespan)
                print(line(kind, found, sites), flush=True)
        for kind, values in makespans.items():
            print(f"{kind}: mean {statistics.mean(values):.0f} s, {min(values):.0f}–", end="")
            print(f"{max(values):.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
