"""How far off are the estimates, and do their intervals hold?

    python tests/bench/backtest.py                 # generated ensembles and all fixtures
    python tests/bench/backtest.py DIR [DIR …]     # and these dagdirs among the recordings
    python tests/bench/backtest.py --slots         # 30 ensembles of 10 to 40 runs on 2 to 8 slots
    python tests/bench/backtest.py --slots 100     # the same of seeds 100 to 129

Ensembles of a dozen kinds are generated twice: the first ones are those that constants were
chosen on ("tuned"), the second ones were only looked at ("held out"). For each the estimates
are replayed at 25, 50 and 75 % of the way (:mod:`metlmon.stats.backtest`). Printed are the signed
errors of the ensemble's estimate, "!" where the truth lay outside of its interval, and of the
single runs' the median size of the error, the plain guess's beside it, and how many of their
intervals held; at last the same of each group. No test asserts them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from metlmon.config.loader import load_settings  # noqa: E402
from metlmon.live.dagdir_reader import DagdirReader  # noqa: E402
from metlmon.live.feed import StatsInput  # noqa: E402
from metlmon.stats.backtest import (  # noqa: E402
    SHARES,
    Backtest,
    Prediction,
    backtest,
    median_error,
    median_naive_error,
)
from tests.generated.ensembles import Lived  # noqa: E402
from tests.generated.slot_limited import drawn, slot_limited  # noqa: E402
from tests.generated.varied import KINDS, varied  # noqa: E402
from tests.generated.write import write  # noqa: E402

FIXTURES: Final = HERE.parents[1] / "fixtures"
TUNED: Final = 1
HELD_OUT: Final = 2
SLOT_SEEDS: Final = 30


def replayed(directory: Path) -> Backtest:
    """The backtest of a dagdir."""

    def at(moment: datetime | None) -> StatsInput:
        as_of = None if moment is None else moment.replace(tzinfo=None)
        reader = DagdirReader(directory, load_settings(directory), as_of=as_of)
        reader.open()
        reader.read_all()
        painter = reader.snapshot_builder()
        return StatsInput(painter.status(), painter.ledger(), reader.ensemble.settings)

    return backtest(at(None), at)


def generated(lived: Lived) -> Backtest:
    """The backtest of a generated ensemble."""
    with tempfile.TemporaryDirectory() as place:
        write(lived, Path(place))
        return replayed(Path(place))


def share(value: float | None, signed: bool = False) -> str:
    if value is None:
        return "-"
    return f"{100 * value:+.0f} %" if signed else f"{100 * value:.0f} %"


def inside(trials: Sequence[Prediction]) -> str:
    return f"{sum(trial.covered for trial in trials)}/{len(trials)}"


def one(name: str, tested: Backtest) -> None:
    """The line of one ensemble."""
    whole = {trial.share: trial for trial in tested.ensemble_predictions()}
    result = ""
    for at in SHARES:
        trial = whole.get(at)
        error = "-" if trial is None else share(trial.error, signed=True)
        result += f"{error + ('' if trial is None or trial.covered else ' !'):>10}"
    runs = tested.run_predictions()
    naive = share(median_naive_error(tested.ensemble_predictions()))
    result += f"{naive:>9}   {share(median_error(runs)):>6}{share(median_naive_error(runs)):>9}"
    print(f"{name:20}{result}{inside(runs):>9}", flush=True)


def all_of(name: str, tests: Sequence[Backtest]) -> None:
    """The lines of a group."""
    for what in ("ensembles", "runs"):
        every: list[Prediction] = []
        for tested in tests:
            every += (
                tested.ensemble_predictions() if what == "ensembles" else tested.run_predictions()
            )
        result = f"{share(median_error(every)):>7}{share(median_naive_error(every)):>9}"
        held = sum(trial.covered for trial in every) / max(1, len(every))
        result += f"{share(held):>9}   "
        for at in SHARES:
            then = [trial for trial in every if trial.share == at]
            result += f"{share(median_error(then)):>7}{inside(then):>9}"
        print(f"{name:12}{what:10}{result}")


def recordings(further: Sequence[Path]) -> Iterator[tuple[str, Backtest]]:
    # What was found by trying hostile input are pieces of files, no ensembles.
    fixtures = sorted(path for path in FIXTURES.iterdir() if any(path.glob("*.dag")))
    for path in (*fixtures, *further):
        yield path.resolve().name, replayed(path)


def all_ones(further: Sequence[str]) -> Iterator[tuple[str, str, Backtest]]:
    """Group, name and backtest of each."""
    for group, seed in (("tuned", TUNED), ("held out", HELD_OUT)):
        for kind in KINDS:
            yield group, f"{kind.name} {seed}", generated(varied(kind, seed))
    for name, tested in recordings([Path(each) for each in further]):
        yield "recorded", name, tested


def slot_limited_ones(first: int) -> Iterator[tuple[str, str, Backtest]]:
    """As :func:`all_ones`, of ensembles whose runs take turns, from seed ``first``."""
    for seed in range(first, first + SLOT_SEEDS):
        kind = drawn(seed)
        name = f"{kind.runs} on {'+'.join(map(str, kind.slots))}, {kind.order[-5:]}"
        yield "slots", name, generated(slot_limited(kind, seed))


def main(arguments: Sequence[str]) -> None:
    runs = f"   {'RUNS':>6}{'NAIVE':>9}{'INSIDE':>9}"
    print(f"{'ENSEMBLE':20}{'25 %':>10}{'50 %':>10}{'75 %':>10}{'NAIVE':>9}{runs}")
    groups: dict[str, list[Backtest]] = {}
    if arguments[:1] == ["--slots"]:
        tests = slot_limited_ones(int(arguments[1]) if arguments[1:] else 0)
    else:
        tests = all_ones(arguments)
    for group, name, tested in tests:
        groups.setdefault(group, []).append(tested)
        one(name, tested)
    ways = "".join(f"{f'{at:.0%}':>7}{'INSIDE':>9}" for at in SHARES)
    print(f"\n{'GROUP':12}{'OF':10}{'ERROR':>7}{'NAIVE':>9}{'INSIDE':>9}   {ways}")
    for group, members in groups.items():
        all_of(group, members)


if __name__ == "__main__":
    main(sys.argv[1:])
