"""A bag's figures, each computed independently from the lines of the event log."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median, quantiles

import pytest

from metlmon.model.states import State
from metlmon.stats.shards import Bag, bags, find_bags
from metlmon.stats.simulation import KaplanMeier, Lifetime, RemainingShards, simulate_makespan
from metlmon.tables import shards as shards_table
from metlmon.text.spans import text
from tests.conftest import Shared
from tests.generated import bags as generated
from tests.support.commands import Captured, json_output, text_output
from tests.support.dagdir_feed import BAG_AS_OF as AS_OF
from tests.support.dagdir_feed import bag as bag_dagdir
from tests.support.event_logs import Log, read_ensemble
from tests.support.records import read_dagdir, stats_input


def bags_of(path: Path, as_of: datetime | None = None) -> tuple[Bag, ...]:
    live = None if as_of is None else True
    return bags(stats_input(read_dagdir(path, as_of=as_of, live=live)))


@pytest.fixture(name="bag", scope="module")
def _bag() -> Bag:
    (found,) = bags_of(bag_dagdir(), AS_OF)
    return found


# --- an independent reading of the same log -----------------------------------------------------


@dataclass
class Job:
    """The facts of one job's lines."""

    node: str
    submitted: datetime
    state: str = "idle"
    open: datetime | None = None
    site: str = ""
    good: list[float] = field(default_factory=list)
    bad: list[float] = field(default_factory=list)
    ended: datetime | None = None


HEAD = re.compile(r"^(\d{3}) \((\d+)\.000\.000\) (\S+ \S+) ")


def read(dagdir: Path) -> list[Job]:
    """The jobs of shards; one GPU each, as every 001 has it."""
    jobs: dict[str, Job] = {}
    for event in (dagdir / "bag.log").read_text().split("...\n"):
        head = HEAD.match(event)
        if head is None:
            continue
        number, cluster, when = head[1], head[2], datetime.fromisoformat(head[3])
        if number == "000":
            node = re.search(r'DAGNodeName = "([^"]+)"', event)
            jobs[cluster] = Job(node[1], when)
            continue
        job = jobs[cluster]
        if number == "001":
            assert "GPUs = 1" in event
            site = re.search(r'GLIDEIN_ResourceName = "([^"]+)"', event)
            job.site, job.open, job.state = site[1] if site else "", when, "running"
        elif number in ("004", "005"):
            assert job.open is not None
            (job.good if number == "005" else job.bad).append((when - job.open).total_seconds())
            job.open, job.state = None, "completed" if number == "005" else "idle"
            job.ended = when if number == "005" else None
        elif number == "012":
            job.state = "held"
    return list(jobs.values())


@pytest.fixture(name="jobs", scope="module")
def _jobs() -> list[Job]:
    return read(bag_dagdir())


def test_states_agree_with_the_log(bag: Bag, jobs: list[Job]) -> None:
    assert bag.total == len(jobs) == 240
    for state in ("completed", "running", "idle", "held"):
        assert bag.states.get(State(state), 0) == sum(job.state == state for job in jobs), state
    assert sum(bag.states.values()) == bag.total
    assert bag.states[State.HELD] == 2


def test_times_are_those_of_completed_shards(bag: Bag, jobs: list[Job]) -> None:
    seconds = [job.good[-1] for job in jobs if job.good]
    assert bag.durations.shards == len(seconds)
    assert bag.durations.median == median(seconds)
    lower, _, upper = quantiles(seconds, n=4, method="inclusive")
    assert (bag.durations.lower_quartile, bag.durations.upper_quartile) == (
        pytest.approx(lower),
        pytest.approx(upper),
    )
    assert bag.durations.percentile_90 == pytest.approx(
        quantiles(seconds, n=10, method="inclusive")[8]
    )
    assert (bag.durations.minimum, bag.durations.maximum) == (min(seconds), max(seconds))


def test_rates_are_shards_per_hour(bag: Bag, jobs: list[Job]) -> None:
    ends = [job.ended for job in jobs if job.ended is not None]
    began = min(job.submitted for job in jobs)
    hours = (AS_OF - began).total_seconds() / 3600
    assert bag.first_submitted == began
    assert bag.recent_rate is not None
    assert bag.overall_rate.per_hour == pytest.approx(len(ends) / hours)
    window = timedelta(seconds=4 * median([job.good[-1] for job in jobs if job.good]))
    recent = sum(AS_OF - window < end <= AS_OF for end in ends)
    assert bag.recent_rate.seconds == pytest.approx(window.total_seconds())
    assert bag.recent_rate.per_hour == pytest.approx(recent / (window.total_seconds() / 3600))


def test_gpu_hours_are_goodput_badput_and_in_flight(bag: Bag, jobs: list[Job]) -> None:
    flying = sum((AS_OF - job.open).total_seconds() for job in jobs if job.open is not None)
    assert bag.totals.hours.goodput == pytest.approx(sum(sum(job.good) for job in jobs) / 3600)
    assert bag.totals.hours.badput == pytest.approx(sum(sum(job.bad) for job in jobs) / 3600)
    assert bag.totals.hours.running == pytest.approx(flying / 3600)
    assert bag.totals.bad_executions == sum(len(job.bad) for job in jobs)
    assert bag.totals.executions == bag.totals.bad_executions + sum(
        len(j.good) + (j.open is not None) for j in jobs
    )


def test_stragglers_are_named_with_their_site(bag: Bag, jobs: list[Job]) -> None:
    seconds = [job.good[-1] for job in jobs if job.good]
    limit = 1.5 * quantiles(seconds, n=10, method="inclusive")[8]
    slow = {
        (job.node, job.site, (AS_OF - job.open).total_seconds())
        for job in jobs
        if job.open is not None and (AS_OF - job.open).total_seconds() > limit
    }
    assert slow, "the bag has one"
    assert {(each.node, each.site, each.seconds) for each in bag.stragglers} == slow
    for each in bag.stragglers:
        assert each.times_median == pytest.approx(each.seconds / median(seconds))
        assert each.job[0] == 1000 + int(each.node.removeprefix("shard"))
    assert {s.node for s in bag.shards if s.is_straggler} == {node for node, *_ in slow}


# --- the time left ------------------------------------------------------------------------------


@pytest.mark.parametrize("machines", [6, 40])
def test_end_is_in_the_interval_in_four_of_five_cases(machines: int, tmp_path: Path) -> None:
    """With few machines for a long time or many for a short one, early and late. The constants were
    chosen with other seeds; of eighteen cases, four in five are 11 to 17 by chance."""
    inside, off = 0, []
    for seed in range(400, 406):
        lived = generated.live(150, machines, seed)
        generated.write(tmp_path, lived)
        for share in (0.3, 0.6, 0.9):
            until = int(lived.over * share)
            (found,) = bags_of(tmp_path, generated.BEGUN + timedelta(seconds=until))
            assert found.remaining is not None
            left = lived.over - until
            inside += found.remaining.low <= left <= found.remaining.high
            off.append(found.remaining.median / left)
    assert inside >= 13
    assert 0.7 < median(off) < 1.4


def test_time_left_is_proportional_to_the_bag() -> None:
    curve = KaplanMeier.fit(Lifetime(float(each)) for each in range(100, 200))

    def middle(queued: int) -> float:
        rest = RemainingShards([50.0] * 10, [0.0] * queued, 10.0, 0.1)
        trials = sorted(simulate_makespan(curve, 300.0, rest))
        return trials[len(trials) // 2]

    assert middle(10_000) == pytest.approx(10_000 * 149.5 / 10, rel=0.08)
    assert middle(400) == pytest.approx(400 * 149.5 / 10, rel=0.12)


def test_no_estimate_before_the_first_shard_is_done(tmp_path: Path) -> None:
    generated.write(tmp_path, generated.live(20, 4, 1), until=600)
    (found,) = bags_of(tmp_path, generated.BEGUN + timedelta(seconds=600))
    assert (found.remaining, found.durations) == (None, None)
    assert found.missing_reason == "unknown: no shard has ended yet"
    assert found.recent_rate.shards == 0


def test_finished_bag_has_its_end(tmp_path: Path) -> None:
    lived = generated.live(20, 4, 1)
    generated.write(tmp_path, lived)
    (found,) = bags_of(tmp_path)
    assert found.done == 20
    assert found.remaining is found.missing_reason is found.recent_rate is None
    assert found.completed_at == generated.BEGUN + timedelta(seconds=lived.over)
    assert found.overall_rate.shards == 20
    assert shards_table.remaining_text(found).startswith("done since 4 May 2026")


def test_held_shards_are_left_out_and_reported(bag: Bag) -> None:
    assert bag.excluded == 2
    assert "excludes 2 held or failed" in text(shards_table.headline_parts(bag)[-1])


# --- which nodes are a bag ----------------------------------------------------------------------


def stems(dag: str) -> list[tuple[str, int]]:
    nodes = read_ensemble({"/a/run.dag": dag}, Log()).builder().dag_description().nodes
    return [(each.name_pattern, len(each.nodes)) for each in find_bags(nodes)]


def jobs_of(*names: str, submit: str = "s.sub") -> str:
    return "".join(f"JOB {name} {submit}\n" for name in names)


FIVE = tuple(f"shard{n:03}" for n in range(5))


@pytest.mark.parametrize(
    ("dag", "why"),
    [
        (jobs_of(*FIVE[:3]), "three are few"),
        (jobs_of(*FIVE[:3]) + jobs_of("shard003", "shard004", submit="t.sub"), "two descriptions"),
        (jobs_of(*FIVE) + "PARENT shard000 CHILD shard001\n", "one waits for another"),
        (
            jobs_of(*FIVE, "mid") + "PARENT shard000 CHILD mid\nPARENT mid CHILD shard003\n",
            "by way",
        ),
        (jobs_of("a", "b", "c", "d", "e"), "no numbers"),
        (jobs_of("a1", "b2", "c3", "d4"), "names that differ otherwise"),
        (jobs_of(*(f"run{n}-train_epoch0" for n in range(5))), "epochs of runs"),
        ("".join(f"JOB {name} s.sub NOOP\n" for name in FIVE), "nothing is done"),
    ],
    ids=lambda value: value if " " in value and "\n" not in value else "",
)
def test_other_nodes_are_not_a_bag(dag: str, why: str) -> None:
    assert stems(dag) == [], why


def test_nodes_before_and_after_a_bag_are_ignored() -> None:
    dag = jobs_of(*FIVE) + jobs_of("split", "gather", submit="o.sub")
    dag += f"PARENT split CHILD {' '.join(FIVE)}\nPARENT {' '.join(FIVE)} CHILD gather\n"
    assert stems(dag) == [("shard*", 5)]


def test_each_kind_of_node_is_its_own_bag() -> None:
    names = [f"fold{fold}_shard{n}" for fold in (1, 2) for n in range(10)]
    assert stems(jobs_of(*names)) == [("fold1_shard*", 10), ("fold2_shard*", 10)]
    fetched = jobs_of(*(f"get{n}" for n in range(4)), submit="get.sub")
    fetched += jobs_of(*(f"use{n}" for n in range(4)))
    fetched += "".join(f"PARENT get{n} CHILD use{n}\n" for n in range(4))
    assert stems(fetched) == [("get*", 4), ("use*", 4)]


def test_real_ensembles_have_no_bag(shared: Shared) -> None:
    assert bags_of(shared("examples/pool-ensemble")) == ()


# --- the command --------------------------------------------------------------------------------


def test_json_has_all_figures(bag: Bag, capsys: Captured) -> None:
    output = json_output("shards", capsys, bag_dagdir(), "--as-of", AS_OF, "--live")
    (result,) = output["bags"]
    assert (result["total"], result["done"]) == (bag.total, bag.done)
    assert result["states"] == {str(state): n for state, n in bag.states.items()}
    assert result["durations"]["median"] == bag.durations.median  # type: ignore[union-attr]
    remaining = result["remaining"]
    assert remaining["low"] <= remaining["median"] <= remaining["high"]
    assert [each["node"] for each in result["stragglers"]] == [s.node for s in bag.stragglers]
    assert len(result["shards"]) == 240
    assert result["hours"]["total"] == pytest.approx(bag.totals.hours.total)


def test_table_has_all_figures(capsys: Captured) -> None:
    out = text_output("shards", capsys, bag_dagdir(), "--as-of", AS_OF, "--live", "--ascii")
    assert out.isascii()
    for words in ("shard*", "110 of 240 shards done", "shard033", "CHTC-Spark-CE1", "How sure: "):
        assert words in out


def test_command_without_a_bag_explains_bags(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "x.dag").write_text("JOB a t.sub\n")
    assert "No bag here" in text_output("shards", capsys, tmp_path)
