"""Event logs without a DAG: the same jobs, states and hours as with it, grouped into runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.session import Session
from metlmon.model.states import Outcome, State
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.records import Job, Run, Status
from metlmon.stats.curves import curves
from metlmon.stats.run_figures import wall_seconds
from metlmon.stats.totals import break_down
from tests.conftest import shared_path
from tests.support.commands import Captured, text_output
from tests.support.dagdir_builder import Dagdir, again
from tests.support.event_logs import Log, moment
from tests.support.recordings import FIXTURES, read_all
from tests.support.records import read_dagdir, stats_input

RECORDED = sorted(path.parent.name for path in FIXTURES.glob("*/metl.log"))
EVENT_END = re.compile(r"(?<=\n\.\.\.\n)")


def facts(job: Job) -> tuple[object, ...]:
    """The facts of a job from the log, without its DAG, node and run."""
    executions = [
        (e.start, e.end, e.outcome, e.code, e.gpus, e.gpu, e.site, e.gpu_hours)
        for e in job.executions
    ]
    transfers = [(t.direction, t.start, t.end, t.outcome) for t in job.transfers]
    return (job.state, job.since, executions, transfers, job.bytes_sent, job.bytes_received)


def assert_same_jobs(alone: SnapshotBuilder, whole: SnapshotBuilder) -> None:
    """Compare all jobs, and all totals where DAGMan's own log has no other jobs."""
    jobs = {(job.cluster, job.proc): facts(job) for job in whole.job_rows()}
    of_log = {(job.cluster, job.proc): facts(job) for job in alone.job_rows()}
    assert of_log == {job: jobs[job] for job in of_log}
    found, expected = alone.status(), whole.status()
    of_runs = sum(run.hours.total for run in found.runs)
    assert of_runs == pytest.approx(found.hours.total)
    if len(of_log) < len(jobs):
        return
    assert found.hours == expected.hours
    by_place, expected_by_place = break_down(alone.ledger()), break_down(whole.ledger())
    assert by_place.transfers == expected_by_place.transfers
    assert [(row.site, row.hours) for row in by_place.sites] == [
        (row.site, row.hours) for row in expected_by_place.sites
    ]


@pytest.mark.parametrize("name", RECORDED)
def test_copied_log_has_the_hours_of_its_dag(name: str, tmp_path: Path) -> None:
    for file in FIXTURES.joinpath(name).glob("metl*.[lt]o[gm]*"):
        shutil.copy(file, tmp_path)  # With the zone, exit codes and names of sites of metlmon.toml.
    alone, whole = read_dagdir(tmp_path), read_dagdir(FIXTURES / name)
    assert_same_jobs(alone, whole)
    assert alone.status().dags == ()


def split_by_cluster(log: Path, directory: Path) -> list[Path]:
    """``metl_<cluster>.log`` of each cluster, as ``log = metl_$(Cluster).log`` makes them."""
    for event in EVENT_END.split(log.read_text()):
        if (header := re.match(r"\d{3} \((\d+)\.", event)) is not None:
            with (directory / f"metl_{header[1]}.log").open("a") as file:
                file.write(event)
    return sorted(directory.iterdir())


def test_logs_by_cluster_have_the_same_hours(tmp_path: Path) -> None:
    example = shared_path("examples/metl-aws")
    logs = split_by_cluster(example / "metl.log", tmp_path)
    assert len(logs) == 102
    whole = read_dagdir(example)
    for alone in (read_dagdir(tmp_path), read_dagdir(tmp_path, logs=logs)):
        assert_same_jobs(alone, whole)
        runs = {run.run: (run.epochs_done, run.state) for run in alone.status().runs}
        assert runs == {run.run: (run.epochs_done, run.state) for run in whole.status().runs}


def scheduler_universe(log: Path, cluster: int) -> bool:
    """Whether a job ran at the address that submitted it."""
    hosts = re.findall(rf"^00[01] \({cluster}\.\S+ .* host: (<[^>]*>)", log.read_text(), re.M)
    return len(hosts) > 1 and len(set(hosts)) == 1


def test_jobs_and_hours_of_htcondors_own_logs(tmp_path: Path) -> None:
    """Each job of each log is in exactly one run; the hours are those of its events.

    Jobs that the schedd ran itself, as its EVENT_LOG has them, are in no hours.
    """
    for log in sorted(shared_path("conformance/logs").glob("*.log")):
        builder = read_dagdir(log)
        views = [builder.run_view(run.key) for run in builder.status().runs]
        listed = [job for view in views if view for row in view.epochs for job in row.jobs]
        assert sorted(listed) == [(job.cluster, job.proc) for job in builder.job_rows()]
        seconds = sum(
            execution.seconds
            for job in builder.job_rows()
            if not scheduler_universe(log, job.cluster)
            for execution in job.executions
        )
        hours = builder.status().hours
        assert hours.measure.short == "wall-h" or not seconds
        assert hours.total == pytest.approx(seconds / 3600)


# --- grouping ---------------------------------------------------------------------------------


def runs_of(tmp_path: Path, *logs: Log) -> dict[str, Run]:
    dagdir = Dagdir(tmp_path, "")
    for number, log in enumerate(logs):
        dagdir.write(f"job_{number}.log", log.data)
    return {run.run: run for run in dagdir.reader().snapshot_builder().status().runs}


def described(log: Log, cluster: int, text: str, at: str = "") -> Log:
    """The ad of a job, as a log has it behind the job's submission."""
    body = f'{text}\nTriggerEventTypeName = "ULOG_SUBMIT"\n'
    return log.raw(28, cluster, "Job ad information event triggered.", body, at)


def test_jobs_without_a_dag_are_in_order(capsys: Captured, tmp_path: Path) -> None:
    log = Log().submit(300).submit(301).submit(302).submit(303)
    Dagdir(tmp_path, "JOB A a.sub\n").write("a.log", log.data)
    out = text_output("nodes", capsys, tmp_path)
    assert "jobs without a DAG  (4)" in out
    assert "4 × 300.0 … 303.0" in out


def test_graph_of_snakemake_is_no_dag(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path, "digraph snakemake_dag {\n\t1 -> 0\n}\n")
    with pytest.raises(InputError, match="not a DAG file: no line of it is a JOB"):
        read_dagdir(tmp_path)
    dagdir.write("a.log", Log().submit(5).execute(5).terminate(5, 3).data)
    status = read_dagdir(tmp_path).status()
    assert (status.dags, [run.dag for run in status.runs]) == ((), [""])
    assert ["it is left out" in warning.text for warning in status.warnings] == [True]


def test_batch_is_a_run_or_a_cluster_without_one(tmp_path: Path) -> None:
    log = Log().submit((7, 0)).submit((7, 1)).submit(8).execute((7, 0)).terminate((7, 0))
    runs = runs_of(tmp_path, log)
    assert list(runs) == ["7", "8"]
    assert (runs["7"].item, runs["7"].epochs_done, runs["7"].epochs_total) == ("job", 1, 2)
    assert runs["7"].state is State.IDLE, "one of its procs is in the queue"
    assert runs["7"].dag == ""
    log = described(Log().submit(7), 7, 'JobBatchName = "night"')
    described(log.submit(8), 8, 'JobBatchName = "night"').submit(9)
    runs = runs_of(tmp_path, log)
    assert {name: run.epochs_total for name, run in runs.items()} == {"night": 2, "9": 1}


def test_run_uuid_argument_but_no_environment_overrides_the_batch(tmp_path: Path) -> None:
    log = Log()
    for cluster, uuid in ((7, "aaaa1111"), (8, "bbbb2222"), (9, "aaaa1111")):
        body = f'Args = "train.py --run_uuid {uuid} --lr 1"\nJobBatchName = "night"'
        described(log.submit(cluster), cluster, body)
    runs = runs_of(tmp_path, log)
    assert {run.uuid: run.epochs_total for run in runs.values()} == {"aaaa1111": 2, "bbbb2222": 1}
    log = described(Log().submit(7), 7, 'Environment = "RUN_UUID=secret99 KEY=1"')
    assert list(runs_of(tmp_path, log)) == ["7"]


def test_node_names_and_post_scripts_give_runs_epochs_and_states(tmp_path: Path) -> None:
    log = Log().submit(7, "run0-train_epoch0").execute(7).terminate(7, 1)
    log.submit(8, "run0-train_epoch0").execute(8).terminate(8)
    log.submit(9, "run0-train_epoch1").submit(10, "run1-train_epoch0")
    runs = runs_of(tmp_path, log)
    assert {n: (r.item, r.epochs_done, r.epochs_total) for n, r in runs.items()} == {
        "run0": ("epoch", 1, 2),
        "run1": ("epoch", 0, 1),
    }
    assert (runs["run0"].latest.epoch, runs["run0"].latest.state) == (1, State.IDLE)
    log = Log().submit(7, "run0-train_epoch0").execute(7).terminate(7)
    assert runs_of(tmp_path, log)["run0"].state is State.COMPLETED
    assert runs_of(tmp_path, log.post(7, "run0-train_epoch0", 1))["run0"].state is State.FAILED


def test_batches_with_equal_node_names_are_separate_runs(tmp_path: Path) -> None:
    first, second = Log(), Log()
    first.batch_name, second.batch_name = "a.dag+1", "b.dag+2"
    first.submit(7, "run0-train_epoch0").submit(8, "run0-train_epoch1")
    second.submit(9, "run0-train_epoch0")
    dagdir = Dagdir(tmp_path, "")
    dagdir.write("a.log", first.data)
    dagdir.write("b.log", second.data)
    runs = dagdir.reader().snapshot_builder().status().runs
    assert [(run.run, run.epochs_total) for run in runs] == [("run0", 2), ("run0 (b.dag)", 1)]


def test_later_batch_name_moves_the_job(tmp_path: Path) -> None:
    """The 028 is in another chunk: the job moves, and its first run disappears."""
    dagdir = Dagdir(tmp_path, "")
    dagdir.write("job.log", Log().submit(7).submit(8).data)
    reader = dagdir.reader()
    assert [run.run for run in again(reader).runs] == ["7", "8"]
    log = described(Log(), 7, 'JobBatchName = "night"', at="11:00:00")
    dagdir.append("job.log", described(log, 8, 'JobBatchName = "night"').data)
    status = again(reader)
    assert [(run.run, run.epochs_total) for run in status.runs] == [("night", 2)]
    assert status.epoch_states[State.IDLE] == 2


def test_notes_in_a_log_give_runs_and_epochs(tmp_path: Path) -> None:
    """Without a DAG and node names, the runs are those of the DAG."""
    recorded = FIXTURES / "lineage"
    dagdir = Dagdir(tmp_path, "")
    data = (recorded / "metl.log").read_bytes()
    notes = rb' DAGNodeName = "[^"]*"; JobBatchName = "[^"]*"'
    dagdir.write("job.log", re.sub(notes, b"", data))
    alone, whole = dagdir.reader().snapshot_builder(), read_dagdir(recorded)
    assert b"DAGNodeName" not in (tmp_path / "job.log").read_bytes()
    assert_same_jobs(alone, whole)

    def facts_of(builder: SnapshotBuilder) -> list[tuple[object, ...]]:
        runs = []
        for run in builder.status().runs:
            view = builder.run_view(run.key)
            epochs = [(row.epoch, row.epoch_var, row.state, row.jobs) for row in view.epochs]
            runs.append((run.run, run.uuid, run.item, run.epochs_done, run.epochs_total, epochs))
        return runs

    assert facts_of(alone) == facts_of(whole)
    assert [len(run.run) for run in alone.status().runs] == [4, 4, 4]


def noted(log: Log, cluster: int, note: str) -> Log:
    return log.raw(0, cluster, "Job submitted from host: <10.0.0.1:9618>", f"    [ {note} ]\n")


def test_run_in_a_submit_event_overrides_all_else(tmp_path: Path) -> None:
    log = noted(Log(), 7, 'RunUuid = "aaaa1111"; RunName = "warm"; RunEpoch = 2')
    described(log, 7, 'Args = "train.py --run_uuid other111"\nJobBatchName = "night"')
    noted(log, 8, 'RunUuid = "aaaa1111"; RunName = "warm"; DAGNodeName = "run3-train_epoch4"')
    (run,) = runs_of(tmp_path, log).values()
    assert (run.run, run.uuid, run.item, run.epochs_total) == ("warm", "aaaa1111", "epoch", 2)
    assert run.latest.epoch == 4
    # Two jobs of an epoch are two tries.
    log = noted(Log(), 7, 'RunName = "warm"; RunEpoch = 1').execute(7).terminate(7, 1)
    noted(log, 8, 'RunName = "warm"; RunEpoch = 1').execute(8).terminate(8)
    (run,) = runs_of(tmp_path, log).values()
    assert (run.run, run.uuid, run.epochs_done, run.epochs_total) == ("warm", None, 1, 1)


def test_later_dag_file_takes_its_jobs(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path, "")
    dagdir.write("metl.log", Log().submit(7, "run0-train_epoch0").execute(7).data)
    reader = dagdir.reader()
    before = again(reader)
    assert [warning.kind for warning in before.warnings] == ["no-dag-file"]
    Dagdir(tmp_path)
    after = again(reader)
    assert [(run.dag, run.epochs_total) for run in after.runs] == [("run.dag", 2)]
    assert after.warnings == ()
    (tmp_path / "run.dag").unlink()
    assert [run.dag for run in again(reader).runs] == ["run.dag"], "what was read stays"
    assert reader.error is not None
    assert "is gone" in reader.error


def test_past_of_named_logs(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path, "")
    log = Log().submit(7, at="10:00:00").execute(7, at="10:30:00").terminate(7, 0, at="11:00:00")
    paths = [dagdir.write("a.log", log.data), dagdir.write("b.log", Log().submit(8).data)]
    dagdir.write("c.log", Log().submit(9).data)
    reader = DagdirReader(tmp_path, logs=paths, live=False)
    reader.open()
    past = Session(reader).historical(moment("10:45:00"))
    assert isinstance(past, Session)
    past._reader.read_all()
    runs = {run.run: run.state for run in past.take().status.runs}
    assert runs == {"7": State.RUNNING, "8": State.IDLE}


def test_outputs_are_found_by_job_id(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path, "")
    dagdir.write("a.log", Log().submit(1234).submit((77, 0)).submit((77, 1)).submit(9).data)
    names = ["aaaa1111_3_1234.out", "train.1234.err", "77.0.out", "x-77-1.out", "9.txt", "9_a.out"]
    for name in names:
        dagdir.write(name, "")
    builder = dagdir.reader().snapshot_builder()
    files = {job: builder.job_view(*job) for job in ((1234, 0), (77, 0), (77, 1), (9, 0))}
    assert {job: view and (view.output, view.error) for job, view in files.items()} == {
        (1234, 0): ("aaaa1111_3_1234.out", "train.1234.err"),
        (77, 0): ("77.0.out", None),
        (77, 1): ("x-77-1.out", None),
        (9, 0): (None, None),
    }


def test_curves_are_read_from_outputs_without_the_dag(tmp_path: Path) -> None:
    for file in FIXTURES.joinpath("trainer").glob("*.out"):
        shutil.copy(file, tmp_path)
    shutil.copy(FIXTURES / "trainer" / "metl.log", tmp_path)
    alone, whole = read_dagdir(tmp_path), read_dagdir(FIXTURES / "trainer")
    expected = curves(stats_input(whole, FIXTURES / "trainer"))
    found = curves(stats_input(alone, tmp_path))
    best = {c.run: round(c.best.value, 3) for c in expected.runs if c.best}
    assert len(best) == 6
    assert {c.run: round(c.best.value, 3) for c in found.runs if c.best} == best


def numbers(status: Status) -> tuple[object, ...]:
    dags = [run for run in status.runs if run.dag]
    return dags, status.epoch_states, status.node_states, status.other_states, status.dags


def test_jobs_beside_a_dag_do_not_change_its_numbers(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path)
    log = Log().submit(77, "run0-train_epoch0").execute(77).terminate(77)
    dagdir.write("metl.log", log.data)
    before = dagdir.reader().snapshot_builder()
    log.submit(5, at="08:00:00").execute(5, at="08:00:00").terminate(5, 0, at="09:00:00")
    dagdir.write("metl.log", log.data)
    after = dagdir.reader().snapshot_builder()
    status = after.status()
    assert numbers(status) == numbers(before.status())
    assert [(r.run, r.dag, r.epochs_done, r.hours.goodput) for r in status.runs[1:]] == [
        ("5", "", 1, 1.0)
    ]
    (job,) = [job for job in after.job_rows() if job.cluster == 5]
    assert (job.dag, job.node, job.key) == (None, None, None)
    assert after.ledger().runs == before.ledger().runs
    assert stats_input(after).ledger.epochs == stats_input(before).ledger.epochs
    (epoch,) = view.epochs if (view := after.run_view(status.runs[1].key)) else ()
    assert (epoch.jobs, epoch.state) == (((5, 0),), State.COMPLETED)
    assert wall_seconds(stats_input(after))[status.runs[1].key] == 3600


# --- reading and refusals ----------------------------------------------------------------------


def test_only_named_logs_are_read_and_an_empty_one_later(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path)
    dagdir.write("metl.log", Log().submit(77, "run0-train_epoch0").data)
    dagdir.write("other.log", Log().submit(5).data)
    named = read_dagdir(tmp_path / "other.log")
    assert [job.cluster for job in named.job_rows()] == [5]
    assert [log.file for log in named.status().logs] == ["other.log"]
    paths = [dagdir.write("a.log", Log().submit(7).data), dagdir.write("b.log", "")]
    reader = read_all(DagdirReader(tmp_path, logs=paths, live=True))
    dagdir.append("b.log", Log().submit(8).data)
    assert [run.run for run in again(reader).runs] == ["7", "8"]


def test_directory_without_events_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("epoch 1: loss 0.3\n")
    with pytest.raises(
        InputError, match=r"no DAG file here; .* or job event logs, of which none is here"
    ):
        DagdirReader(tmp_path).open()
    with pytest.raises(InputError, match=r"train\.log: not an event log"):
        DagdirReader(tmp_path, logs=[tmp_path / "train.log"]).open()
    Dagdir(tmp_path, "").write("logs/a.log", Log().submit(7).data)
    with pytest.raises(InputError, match=r"none is here, but in logs/: give that$"):
        DagdirReader(tmp_path).open()


def test_link_out_of_the_directory_is_not_read(tmp_path: Path) -> None:
    outside = Dagdir(tmp_path / "outside", "")
    outside.write("secret.log", Log().submit(9).data)
    inside = Dagdir(tmp_path / "inside", "")
    (inside.path / "link.log").symlink_to(outside.path / "secret.log")
    with pytest.raises(InputError, match="no DAG file here"):
        DagdirReader(inside.path).open()
    inside.write("own.log", Log().submit(7).data)
    assert [job.cluster for job in read_dagdir(inside.path).job_rows()] == [7]


def test_logs_are_live_while_a_job_is_in_the_queue(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path, "")
    log = Log().submit(7).execute(7)
    dagdir.write("a.log", log.data)
    reader = dagdir.reader()
    reader.in_queue = True
    assert again(reader).live
    dagdir.append("a.log", Log().terminate(7, at="10:30:00").data)
    assert not again(reader).live
    assert [e.outcome for e in reader.snapshot_builder().job_rows()[0].executions] == [Outcome.GOOD]
