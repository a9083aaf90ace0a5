"""Elastic trainings on idle nodes: what passive profiles gain, beside other policies.

    python tests/bench/elastic.py                  # the table: the windows that count
    python tests/bench/elastic.py --develop        # other windows and seeds, to work on policies
    python tests/bench/elastic.py --speed          # one allocation: 10 trainings, 128 nodes

A replay of idle nodes (the trace of the FreeTrain and BFTrainer authors, where it is beside this
checkout; traces and scaling curves generated from seeds otherwise). Trainings of 1 to 64 nodes are
admitted from a queue; at each change of the idle nodes, and when a training ends, a policy says how
many nodes each gets. A training that gains nodes pauses 17-19 s, one that loses some 11-13 s.

The measure is the work done in a window relative to that of FreeTrain with a linear profile in the
same window; points are hundredths of it. Work is counted in seconds on one node, since a search
wants all of its trainings; counted in images it would pay to park the nets that train slowly. All
policies but "equal share" use :func:`metlmon.placement.elastic.allocate_nodes` with FreeTrain's
objective; "oracle" knows the true scaling, but no more of the future than the others. Profiles of
as many trainings at a time as there are nodes for were the best for "profiling" (of 1, 2, 3, 5).

SETTINGS, TRACES and WINDOWS were committed before the first result of the windows that count, and
policies were developed with ``--develop`` alone: the first 30 h of the trace, and other seeds. One
change came after two rows had been seen: how "linear" chooses among equally good allocations, by
which the unit, and no policy, became better.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from metlmon.placement import elastic  # noqa: E402
from metlmon.placement.elastic import (  # noqa: E402
    ElasticRun,
    ThroughputSample,
    allocate_nodes,
    learn_throughput,
)
from tests.bench.elastic_replay import (  # noqa: E402
    MOST_NODES,
    Curve,
    Job,
    Policy,
    Replay,
    Window,
    Workload,
)

TRACE: Final = HERE.parents[2] / "shared" / "examples" / "idle-nodes"

# --- settings --------------------------------------------------------------------------------

WINDOW_SECONDS: Final = 9_000.0
WINDOW_STEP: Final = 18_000.0
FIRST_WINDOW: Final = 108_000.0
WINDOWS: Final = 30
"""Windows of 2.5 h, one in each 5 h from 30 h on, to the end of the trace."""

DEVELOPMENT_WINDOWS: Final = tuple(18_000.0 + 9_000.0 * number for number in range(10))
"""The first 30 h of the trace (before 5 h hardly a node is idle)."""

GENERATED_SEEDS: Final = tuple(range(30))
DEVELOPMENT_SEEDS: Final = tuple(range(1000, 1010))

IMAGES: Final = 1_281_167
"""Of ImageNet, which the scaling curves were measured on."""

PARALLEL: Final = 10
"""Trainings at a time: the default of the authors' replayer (``-maxJ``)."""

GUESS_SIGMA: Final = 0.5


@dataclass(frozen=True)
class Setting:
    """A row of the table.

    ``nodes``: of the machine, of which some are idle. ``epochs``: of one training; 5 is what
    MnasNet's search trained each candidate for (Tan et al. 2019). ``net``: of all trainings, empty
    for a search over all nets. ``horizon``: T_fwd in seconds. ``images``: work is counted in
    images, not in seconds on one node. ``generated``: idle nodes from seeds.
    """

    name: str
    nodes: int = 512
    epochs: int = 5
    net: str = ""
    horizon: float = 120.0
    images: bool = False
    generated: bool = False


SETTINGS: Final = (
    Setting("NAS, 512 nodes"),
    Setting("NAS, 128 nodes", nodes=128),
    Setting("NAS, 512, authors' defaults (T_fwd 10)", horizon=10.0),
    Setting("NAS, 512, trainings of 50 epochs", epochs=50),
    Setting("NAS, 512, work in images", images=True),
    Setting("NAS, 512, in images, 50 epochs", images=True, epochs=50),
    Setting("NAS, 512, generated idle nodes", generated=True),
    Setting("HPO (shufflenet), 512 nodes", net="shufflenet"),
    Setting("HPO, 512, authors' defaults (T_fwd 10)", net="shufflenet", horizon=10.0),
    Setting("NAS, 1024 nodes", nodes=1024),
)

# --- idle nodes and trainings ----------------------------------------------------------------


def recorded_windows(nodes: int, starts: Sequence[float]) -> list[Window]:
    """Windows of the recorded trace, of its first ``nodes`` nodes."""
    with numpy.load(TRACE / "summit-first-half.npz") as trace:
        times, idle = trace["t"], trace["v"][:, :nodes].astype(bool)
    windows = []
    for start in starts:
        first = int(numpy.searchsorted(times, start, "right")) - 1
        last = int(numpy.searchsorted(times, start + WINDOW_SECONDS))
        changes = []
        for index in range(first + 1, last):
            joined = frozenset(map(int, numpy.nonzero(idle[index] & ~idle[index - 1])[0]))
            left = frozenset(map(int, numpy.nonzero(idle[index - 1] & ~idle[index])[0]))
            if joined or left:
                changes.append((float(times[index] - start), joined, left))
        present = frozenset(map(int, numpy.nonzero(idle[first])[0]))
        windows.append(Window(present, tuple(changes), WINDOW_SECONDS))
    return windows


def generated_window(nodes: int, seed: int) -> Window:
    """Groups of nodes that are idle between the jobs of a batch system: 9 % in the mean."""
    rng = random.Random(seed)
    mean_size, mean_idle = nodes / 40, 900.0
    events: list[tuple[float, int, frozenset[int]]] = []
    busy_until = [0.0] * nodes
    now = -3 * mean_idle
    while now < WINDOW_SECONDS:
        now += rng.expovariate(0.09 * nodes / (mean_size * mean_idle))
        size = min(nodes // 2, max(1, round(mean_size * rng.lognormvariate(-0.5, 1.0))))
        until = now + mean_idle * rng.lognormvariate(-0.5, 1.0)
        start = rng.randrange(nodes)
        group = [(start + offset) % nodes for offset in range(size)]
        group = [node for node in group if busy_until[node] <= now]
        for node in group:
            busy_until[node] = until
        if group:
            events += [(now, 1, frozenset(group)), (until, 0, frozenset(group))]
    present: frozenset[int] = frozenset()
    changes = []
    for moment, idle, group in sorted(events, key=lambda event: event[:2]):
        if moment <= 0:
            present = present | group if idle else present - group
        elif moment < WINDOW_SECONDS:
            joined, left = (group, frozenset[int]()) if idle else (frozenset[int](), group)
            changes.append((moment, joined, left))
    return Window(present, tuple(changes), WINDOW_SECONDS)


def scaling_curves() -> dict[str, Curve]:
    """Images per second of seven nets on 0 to 64 nodes, linear between those measured."""
    path = TRACE / "scaling-curves.json"
    if path.exists():
        points = {
            name: list(zip(*xy, strict=True)) for name, xy in json.loads(path.read_text()).items()
        }
    else:
        rng = random.Random(7)
        points = {}
        for number in range(6):
            rate, exponent = rng.lognormvariate(8.0, 0.65), rng.uniform(0.82, 0.99)
            points[f"net{number}"] = [
                (n, rate * n**exponent if n else 0.0) for n in (0, 1, 4, 16, 64)
            ]
        points["shufflenet"] = [(n, 2800 * n**0.95 if n else 0.0) for n in (0, 1, 4, 16, 64)]
    return {
        name: tuple(_between(each, n) for n in range(MOST_NODES + 1))
        for name, each in points.items()
    }


def _between(points: Sequence[tuple[float, float]], nodes: int) -> float:
    for (low, a), (high, b) in pairwise(points):
        if low <= nodes <= high:
            return a + (b - a) * (nodes - low) / (high - low)
    raise ValueError(nodes)


def workload(setting: Setting, curves: Mapping[str, Curve], seed: int) -> Workload:
    """The trainings of one window, the same for each policy."""
    rng = random.Random(f"{setting.net} {seed}")
    nets = [setting.net] * 400 if setting.net else [rng.choice(sorted(curves)) for _ in range(400)]
    images = float(IMAGES * setting.epochs)
    if setting.images:
        return Workload(curves, dict.fromkeys(curves, images), nets, PARALLEL)
    truth = {name: tuple(rate / curve[1] for rate in curve) for name, curve in curves.items()}
    return Workload(
        truth, {name: images / curve[1] for name, curve in curves.items()}, nets, PARALLEL
    )


# --- policies --------------------------------------------------------------------------------

LINEAR: Final[Curve] = tuple(float(n) for n in range(MOST_NODES + 1))


class EqualShare(Policy):
    """The same number of nodes for each training, as far as they go."""

    def allocate(self, jobs: Sequence[Job], nodes: int) -> Sequence[int]:
        share, more = divmod(nodes, max(1, len(jobs)))
        # Those that have more nodes now keep them.
        order = sorted(range(len(jobs)), key=lambda index: -len(jobs[index].nodes))
        extra = set(order[:more])
        return [min(MOST_NODES, share + (index in extra)) for index in range(len(jobs))]


class Fixed(Policy):
    """FreeTrain: a profile of each training, from its admission on."""

    def __init__(self, horizon: float, curve: Callable[[Job], Curve]) -> None:
        super().__init__()
        self._horizon, self._curve = horizon, curve
        self._curves: dict[int, Curve] = {}

    def add(self, job: Job) -> None:
        self._curves[job.number] = self._curve(job)

    def remove(self, job: Job) -> None:
        del self._curves[job.number]

    def allocate(self, jobs: Sequence[Job], nodes: int) -> Sequence[int]:
        runs = [elastic_run(job, self._curves[job.number]) for job in jobs]
        return allocate_nodes(runs, nodes, self._horizon)


def elastic_run(job: Job, curve: Curve, losses: float = 0.0) -> ElasticRun:
    return ElasticRun(
        run=str(job.number),
        minimum=1,
        maximum=MOST_NODES,
        nodes=len(job.nodes),
        throughput=curve,
        grow_seconds=job.grow,
        shrink_seconds=job.shrink,
        losses=losses,
    )


class Linear(Policy):
    """FreeTrain without profiles. Many allocations are equally good: it takes any of them.

    The nearest to the present one, as ``allocate_nodes`` chooses, would do 5 to 8 points less: it
    gives most nodes to few trainings. HiGHS, without such a choice, is between the two.
    """

    def __init__(self, horizon: float, seed: int) -> None:
        super().__init__()
        self._horizon, self._rng = horizon, random.Random(f"linear {seed}")

    def allocate(self, jobs: Sequence[Job], nodes: int) -> Sequence[int]:
        runs = [elastic_run(job, self._any_curve()) for job in jobs]
        return allocate_nodes(runs, nodes, self._horizon)

    def _any_curve(self) -> Curve:
        return (0.0, *(n + 1e-6 * self._rng.random() for n in range(1, MOST_NODES + 1)))


class Profiling(Fixed):
    """MalleTrain-like: each training is profiled first; beyond 8 nodes a line in logarithms."""

    profiles = True

    def __init__(self, horizon: float) -> None:
        super().__init__(horizon, lambda _: LINEAR)

    def profiled(self, job: Job) -> None:
        points = sorted((math.log(n), math.log(rate)) for n, rate in job.rates.items())
        slope, level = 1.0, points[0][1]
        if len(points) > 1:
            line = statistics.linear_regression(*zip(*points, strict=True))
            slope, level = min(1.0, max(0.0, line.slope)), line.intercept
        curve = [0.0, *(math.exp(level) * n**slope for n in range(1, MOST_NODES + 1))]
        self._curves[job.number] = tuple(curve)


class Passive(Policy):
    """Ours: profiles from the rates that trainings log, on the nodes that they happen to have.

    As :func:`metlmon.placement.elastic.elastic_advice` it expects as many losses of nodes as
    there were so far, and maximises speedups, whatever the work is counted in; without ``speedups``
    it maximises the work.
    """

    reads = True

    def __init__(self, horizon: float, speedups: bool = True) -> None:
        super().__init__()
        self._horizon, self._speedups = horizon, speedups
        self._samples: dict[int, list[ThroughputSample]] = {}
        self._jobs: dict[int, Curve] = {}
        self._stale = True

    def add(self, job: Job) -> None:
        self._jobs[job.number] = ()
        self._stale = True

    def remove(self, job: Job) -> None:
        del self._jobs[job.number]

    def observe(self, job: Job, rate: float) -> None:
        sample = ThroughputSample(run=str(job.number), nodes=len(job.nodes), rate=rate)
        self._samples.setdefault(job.number, []).append(sample)
        self._stale = True

    def allocate(self, jobs: Sequence[Job], nodes: int) -> Sequence[int]:
        if self._stale:
            self._learn()
        # One loss in four node-hours, until there is more to go by.
        losses = (self.preemptions + 1) / (self.node_seconds + 14_400)
        runs = [elastic_run(job, self._jobs[job.number], losses) for job in jobs]
        return allocate_nodes(runs, nodes, self._horizon)

    def _learn(self) -> None:
        recent = sorted(self._samples)[-50:]
        samples = [each for number in recent for each in self._samples[number]]
        profiles = learn_throughput(samples, [str(number) for number in self._jobs])
        for number in self._jobs:
            profile = profiles[str(number)]
            # The mean of a log-normal rate: a training of which little is known gets a try.
            rate = math.exp(profile.level + profile.variances[0] / 2)
            rate = 1.0 if self._speedups else rate
            self._jobs[number] = tuple(rate * each for each in profile.speedups(MOST_NODES))
        self._stale = False


POLICIES: Final = (
    "equal share",
    "linear",
    "one guess",
    "guess σ 0.5",
    "profiling",
    "passive",
    "oracle",
)


def new_policy(name: str, setting: Setting, load: Workload, seed: int) -> Policy:
    """A policy for one window."""
    horizon = setting.horizon
    if name == "equal share":
        return EqualShare()
    if name == "linear":
        return Linear(horizon, seed)
    if name == "profiling":
        return Profiling(horizon)
    if name.startswith("passive"):
        return Passive(horizon, speedups=name == "passive")
    rng = random.Random(f"guess {seed}")
    # A user measured one net, and takes its scaling for that of all.
    guess = load.truth[rng.choice(sorted(load.truth))]

    def wrong(job: Job) -> Curve:
        factor = math.exp(random.Random(f"{seed} {job.number}").gauss(0, GUESS_SIGMA))
        return tuple(rate * factor for rate in job.truth)

    curves: dict[str, Callable[[Job], Curve]] = {
        "one guess": lambda _: guess,
        "guess σ 0.5": wrong,
        "oracle": lambda job: job.truth,
    }
    return Fixed(horizon, curves[name])


def best_totals(before: list[float], values: list[float], minimum: int) -> list[float]:
    """The same sums as ``elastic._best_totals``, several times as fast with numpy."""
    totals = numpy.asarray(before)
    best = totals + values[0]
    for count in range(minimum, min(len(values), len(before))):
        later = best[count:]
        numpy.maximum(later, totals[: len(before) - count] + values[count], out=later)
    return best.tolist()


# --- the table -------------------------------------------------------------------------------


def measure(
    setting: Setting, develop: bool, policies: Sequence[str] = POLICIES
) -> list[dict[str, float]]:
    """The work by policy of each window in which any was done."""
    curves = scaling_curves()
    if setting.generated or not (TRACE / "summit-first-half.npz").exists():
        seeds = DEVELOPMENT_SEEDS if develop else GENERATED_SEEDS
        windows = [generated_window(setting.nodes, seed) for seed in seeds]
    else:
        recorded = tuple(FIRST_WINDOW + WINDOW_STEP * number for number in range(WINDOWS))
        windows = recorded_windows(setting.nodes, DEVELOPMENT_WINDOWS if develop else recorded)
    rows = []
    for number, window in enumerate(windows):
        seed = number + (1000 if develop else 0)
        load = workload(setting, curves, seed)
        row = {}
        for name in policies:
            policy = new_policy(name, setting, load, seed)
            row[name] = Replay(window, load, policy, seed).run().work
        if row["linear"] > 0:
            rows.append({name: work / row["linear"] for name, work in row.items()})
    return rows


T_975: Final = {9: 2.262, 28: 2.048, 29: 2.045}
"""Student's t for the windows of the table, by degrees of freedom."""


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean and its 95 % interval."""
    mean = statistics.fmean(values)
    half = T_975.get(len(values) - 1, 2.1) * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def print_table(settings: Sequence[Setting], develop: bool) -> None:
    """Work of each policy relative to the linear profile, and how far passive is from others."""
    print(f"{'':42}" + "".join(f"{name:>12}" for name in POLICIES))
    for setting in settings:
        began = time.process_time()
        rows = measure(setting, develop, (*POLICIES, *(["passive raw"] if setting.images else [])))
        means = {name: statistics.fmean(row[name] for row in rows) for name in rows[0]}
        figures = "".join(f"{means[name]:12.3f}" for name in POLICIES)
        print(f"{setting.name:42}{figures}   n {len(rows)}")
        for other in ("linear", "one guess", "profiling", "oracle"):
            print_points(f"passive - {other}", [row["passive"] - row[other] for row in rows])
        less = [row["passive"] - 1 - 0.6 * (row["oracle"] - 1) for row in rows]
        print_points("passive - linear - 60 % of (oracle - linear)", less)
        if setting.images:
            print(f"{'':8}passive, of which images are maximised: {means['passive raw']:.3f}")
        print(f"{'':8}[{time.process_time() - began:.0f} s]", flush=True)


def print_points(title: str, differences: Sequence[float]) -> None:
    """The mean of paired differences in points, with its 95 % interval."""
    mean, low, high = interval([100 * each for each in differences])
    print(f"{'':8}{title:46}{mean:+6.1f} points ({low:+.1f} to {high:+.1f})")


def print_speed() -> None:
    """The time of one allocation of 128 nodes to 10 trainings."""
    curves = list(scaling_curves().values())
    runs = [
        ElasticRun(run=str(n), minimum=1, maximum=MOST_NODES, nodes=n, throughput=curves[n % 7])
        for n in range(10)
    ]
    times = []
    for _ in range(100):
        began = time.perf_counter()
        allocate_nodes(runs, 128, 120.0)
        times.append(1000 * (time.perf_counter() - began))
    print(f"10 trainings, 128 nodes: median {statistics.median(times):.1f} ms")


def main(arguments: Sequence[str]) -> None:
    """Print the table, or the settings whose names contain one of the arguments."""
    if "--speed" in arguments:
        print_speed()
        return
    elastic._best_totals = best_totals
    wanted = [each for each in arguments if not each.startswith("--")]
    settings = [each for each in SETTINGS if not wanted or any(w in each.name for w in wanted)]
    print_table(settings, "--develop" in arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
