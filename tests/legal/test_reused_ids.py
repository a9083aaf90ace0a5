"""A reinstalled schedd counts its clusters from 1 again: jobs years apart with the same number are
two jobs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import permutations
from pathlib import Path

import pytest

from metlmon.health.build import make_health
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.report.build import build_report
from metlmon.report.document import tables_json
from metlmon.stats.estimates import make_forecast
from metlmon.stats.lineage import lineage
from metlmon.stats.pool_profiles import observations_of
from metlmon.stats.requests import advise_requests
from metlmon.stats.resources import resource_use
from metlmon.stats.shards import bags
from metlmon.stats.timeline import build_timeline
from metlmon.stats.usage import site_usage
from metlmon.text.record_json import json_of
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Log
from tests.support.records import stats_input

DAG = "SUBMIT-DESCRIPTION train {{\n executable = t.sh\n log = {log}\n}}\n"

FIRST, SECOND = "run0-train_epoch0", "run0-train_epoch1"


def dag(log: str, *nodes: str) -> str:
    return DAG.format(log=log) + "".join(f"JOB {node} train\n" for node in nodes)


def first_life(log: Log) -> Log:
    """Two good hours on a GPU."""
    log.submit(5, FIRST, at="2022-03-01 10:00:00")
    log.execute(5, at="2022-03-01 10:05:00")
    return log.terminate(5, 0, at="2022-03-01 12:05:00")


def second_life(log: Log, node: str = SECOND) -> Log:
    """An hour, then a failure."""
    log.submit(5, node, at="2026-05-04 10:00:00")
    log.execute(5, at="2026-05-04 10:10:00")
    return log.terminate(5, 1, at="2026-05-04 11:10:00")


def booked(reader: DagdirReader) -> list[tuple[str | None, str, float]]:
    builder = reader.snapshot_builder()
    jobs = reader.ensemble.jobs.values()
    rows = sorted(jobs, key=lambda job: job.first_submitted or datetime.min)
    return [
        (
            reader.ensemble.attributions[job.key].node,
            str(job.history().state and job.history().state.value),
            sum(
                builder.clock.seconds(e.start, e.end) / 3600
                for e in job.history().executions
                if e.end is not None
            ),
        )
        for job in rows
    ]


def gpu_hours(reader: DagdirReader) -> tuple[float, float]:
    """Goodput and badput."""
    hours = reader.snapshot_builder().status().hours
    return hours.goodput, hours.badput


BOTH = [(FIRST, "completed", 2.0), (SECOND, "failed", 1.0)]


def test_reused_id_in_one_log_is_two_jobs(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path / "d", dag("metl.log", FIRST, SECOND))
    dagdir.write("metl.log", second_life(first_life(Log())).data)
    reader = dagdir.reader()
    assert booked(reader) == BOTH
    status = reader.snapshot_builder().status()
    # Counted by hand: two good hours on one GPU, one bad.
    assert gpu_hours(reader) == (2.0, 1.0)
    report = build_report(stats_input(reader.snapshot_builder()), None)
    assert tables_json(report)["totals"]["jobs"] == 2
    (notice,) = [each for each in status.warnings if each.kind == "ids-again"]
    assert "5.0" in notice.text


def test_id_reused_in_two_dags_is_two_jobs(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path / "d", "")
    dagdir.write("old.dag", dag("old.log", FIRST))
    dagdir.write("new.dag", dag("new.log", SECOND))
    dagdir.write("old.log", first_life(Log()).data)
    dagdir.write("new.log", second_life(Log()).data)
    dagdir.write("old.dag.nodes.log", first_life(Log()).data)
    dagdir.write("new.dag.nodes.log", second_life(Log()).data)
    reader = dagdir.reader()
    assert booked(reader) == BOTH
    members = {member.node: member.dag for member in reader.ensemble.attributions.values()}
    assert members == {FIRST: "old.dag", SECOND: "new.dag"}


def test_late_events_belong_to_the_job_of_their_time(tmp_path: Path) -> None:
    """A late event of the old job, in a log that is read later, is not one of the new job."""
    dagdir = Dagdir(tmp_path / "d", dag("metl.log", FIRST, SECOND))
    old = Log().submit(5, FIRST, at="2022-03-01 10:00:00").execute(5, at="2022-03-01 10:05:00")
    dagdir.write("metl.log", second_life(old).data)
    dagdir.write("late.log", Log().remove(5, at="2022-03-02 10:05:00").data)
    reader = dagdir.reader()
    (_, old_state, _), new = booked(reader)
    assert old_state == "removed"
    assert new == (SECOND, "failed", 1.0)


def in_another_zone(log: Log, hours: int) -> Log:
    log.events = [
        re.sub(
            rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)",
            lambda found: str(
                datetime.fromisoformat(found[1].decode()) + timedelta(hours=hours)
            ).encode(),
            event,
        )
        for event in log.events
    ]
    return log


@pytest.mark.parametrize("hours", [-7, -1, 2, 5, 14])
def test_logs_in_two_zones_are_one_job(tmp_path: Path, hours: int) -> None:
    """Even where both have all of its events."""
    dagdir = Dagdir(tmp_path / "d", dag("metl.log", FIRST))
    dagdir.write("metl.log", first_life(Log()).data)
    dagdir.write("run.dag.nodes.log", in_another_zone(first_life(Log()), hours).data)
    reader = dagdir.reader()
    assert len(reader.ensemble.jobs) == 1
    notices = [
        each for each in reader.snapshot_builder().status().warnings if each.kind == "log-zone"
    ]
    assert "--tz" in notices[0].text, "what it comes to is in doubt, and a notice says so"
    assert len(notices) == 1


@pytest.mark.parametrize("order", list(permutations(("metl.log", "run.dag.nodes.log"))))
def test_wrongly_inferred_year_makes_no_second_job(tmp_path: Path, order: tuple[str, ...]) -> None:
    """An old log without years was copied, and has the mtime of the copy."""
    dagdir = Dagdir(tmp_path / "d", dag("metl.log", FIRST))
    data = first_life(Log()).data
    without = re.sub(rb"\d{4}-(\d\d)-(\d\d) ", rb"\1/\2 ", data)
    reader = dagdir.reader()
    for name in order:
        dagdir.write(name, without if name == "metl.log" else data)
        reader.check()
        reader.read_all()
    assert len(reader.ensemble.jobs) == 1
    assert gpu_hours(reader) == (2.0, 0.0), "not counted twice"


def trainings_of(nodes: Sequence[str], first: int, second: int, third: int) -> Log:
    """Three jobs, one after the other, with all that joins them to executions and transfers."""
    log = Log()
    log.submit(first, nodes[0], at="10:00:00")
    log.transfer(first, "started input").transfer(first, "finished input")
    log.execute(first, site="Alpha", at="10:05:00").evict(first, 1022, "Job vacated", at="15:00:00")
    log.execute(first, gpus=2, gpu="NVIDIA A100", site="Beta", at="15:30:00")
    log.terminate(first, at="16:00:00")
    log.submit(second, nodes[1], at="05-05 10:01:00")
    log.transfer(second, "started input").transfer(second, "finished input")
    log.execute(second, gpu="NVIDIA H100", site="Gamma", at="05-05 10:30:00")
    log.evict(second, 34, at="05-05 12:00:00").hold(second, 34, "memory", at="05-05 12:00:01")
    log.release(second, at="05-05 13:00:00").execute(second, site="Gamma", at="05-05 13:01:00")
    log.remove(second, at="05-05 14:00:00")
    log.submit(third, nodes[2], at="05-06 10:02:00")
    return log.execute(third, site="Alpha", at="05-06 11:00:00")


def figures(path: Path, nodes: Sequence[str], *clusters: int) -> list[str]:
    """Statistics of three jobs as JSON, without their ids."""
    dagdir = Dagdir(path, dag("metl.log", *dict.fromkeys(nodes)))
    dagdir.write("metl.log", trainings_of(nodes, *clusters).data)
    builder = dagdir.reader(now="2026-05-06 12:00:00", live=True).snapshot_builder()
    made = stats_input(builder)
    statistics = [
        *(site_usage(made), build_timeline(made.ledger), make_forecast(made)),
        *(make_health(made), advise_requests(made), observations_of(made.ledger)),
        *(resource_use(made.ledger, "request"), lineage(made).origins),
        builder.node_row(("run.dag", nodes[0])),
        *(builder.ledger().jobs, tables_json(build_report(made, None))),
    ]
    return [re.sub(r"7000\d", "70000", json.dumps(json_of(each))) for each in statistics]


@pytest.mark.parametrize("nodes", [[f"run{n}-train_epoch0" for n in range(3)], [FIRST] * 3])
def test_figures_of_jobs_with_one_id_are_those_of_several(
    nodes: Sequence[str], tmp_path: Path
) -> None:
    with_one_id = figures(tmp_path / "one", nodes, 70005, 70005, 70005)
    apart = figures(tmp_path / "apart", nodes, 70005, 70006, 70007)
    for one, several in zip(with_one_id, apart, strict=True):
        assert json.loads(one) == json.loads(several)


def test_newest_job_of_a_shard_has_the_lower_id_on_a_new_schedd(tmp_path: Path) -> None:
    """It has trained for two hours so far; the one before, for one, was lost."""
    nodes = [f"shard{number}" for number in range(20)]
    dagdir = Dagdir(tmp_path / "d", dag("metl.log", *nodes))
    log = Log().submit(900, nodes[0], at="10:00:00").execute(900, at="11:00:00")
    log.evict(900, at="12:00:00").remove(900, at="12:00:00")
    log.submit(5, nodes[0], at="05-06 10:00:00").execute(5, at="05-06 11:00:00")
    dagdir.write("metl.log", log.image(5, 100, at="05-06 13:00:00").data)
    builder = dagdir.reader(now="2026-05-06 13:00:00", live=True).snapshot_builder()
    (bag,) = bags(stats_input(builder))
    shard = bag.shards[0]
    assert (shard.job, shard.seconds, shard.attempts) == ((5, 0), 7200, 2)


def test_each_job_with_one_id_has_its_own_error_file(tmp_path: Path) -> None:
    description = (
        "SUBMIT-DESCRIPTION {0} {{\n executable = t.sh\n log = metl.log\n error = {0}\n}}\n"
    )
    text = "".join(map(description.format, ("one.err", "two.err")))
    dagdir = Dagdir(tmp_path / "d", f"{text}JOB {FIRST} one.err\nJOB {SECOND} two.err\n")
    log = Log().submit(5, FIRST, at="2022-03-01 10:00:00").execute(5).terminate(5, 1)
    dagdir.write("metl.log", second_life(log).data)
    for name in ("one.err", "two.err"):
        dagdir.write(name, f"RuntimeError: in {name}\n")
    made = stats_input(dagdir.reader().snapshot_builder(), dagdir.path)
    assert {each.error_file for each in make_health(made).entries} == {"one.err", "two.err"}
