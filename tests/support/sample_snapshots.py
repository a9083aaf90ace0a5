# ruff: noqa: E501
"""Hand-made snapshots of an ensemble, and a feed on them: no files, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from metlmon.config.settings import Settings
from metlmon.eventlog.events import ResourceUsage, UsageRow
from metlmon.jobfiles.error_lines import NO_ERRORS
from metlmon.jobfiles.records import Streamed, TrainingOutput
from metlmon.live.feed import Feed, JobFiles
from metlmon.model.job_events import NodeKey
from metlmon.model.model_state import Notice
from metlmon.model.states import ACTIVE, DagState, Outcome, State
from metlmon.snapshot import records
from metlmon.snapshot.node_tree import DagNodes
from metlmon.snapshot.records import EventLine, LogRow, Snapshot
from tests.support.records import blank, execution_at, job_at

AS_OF = datetime(2025, 11, 14, 8, 14)
DAG = "global_pretraining.dag"
A40, A80, L40S = "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA L40S"
MEMORY_HOLD = (
    "Error from slot1_4@uiuc-rails-07.example.edu: Job has gone over cgroup memory limit of "
    "65536 megabytes. Last measured usage: 65511 megabytes. Consider resubmitting with a "
    "higher request_memory."
)
WHOLE = records.Progress(1, 1)


def run(
    name: str,
    done: int,
    total: int,
    state: State,
    *,
    seconds: float | None = 3600.0,
    site: str | None = "CHTC-Spark-CE1",
    target: str | None = None,
    gpu: str | None = A80,
    gpus: int | None = 1,
    attempt: int = 1,
    hold: str | None = None,
    bad: float = 0.0,
    uuid: str | None = None,
) -> records.Run:
    number = sum(map(ord, name))
    begun = state is not State.WAITING
    off = site is not None and target is not None and site.lower() != target.lower()
    latest = blank(
        records.Epoch,
        epoch=min(done, total - 1),
        epoch_var=min(done, total - 1) + 1,
        node=f"{name}-train_epoch{min(done, total - 1)}",
        cluster=14700000 + number,
        proc=0,
        target=target or site,
        job=job_at(site, gpu, gpus, hold, 34),
        state=state,
        since=None if seconds is None else AS_OF - timedelta(seconds=seconds),
        attempts=attempt,
        off_target=off,
    )
    hours = records.GpuHours(done * 9.6, bad, 3.5 if state is State.RUNNING else 0.0)
    made_up = f"{number * 2654435761 % 2**32:08x}-5d1c-4a6e-9c55-0242ac120002"
    return blank(
        records.Run,
        key=uuid or made_up,
        run=name,
        uuid=uuid or made_up,
        dag=DAG,
        epochs_total=total,
        epochs_done=done,
        state=state,
        latest=latest if begun else None,
        seconds=seconds if begun else None,
        hours=hours,
    )


RUNS = (
    run("run0", 30, 30, State.COMPLETED, seconds=302400.0),
    run("run1", 14, 30, State.HELD, seconds=187920.0, site="UIUC-RAILS", attempt=3,
        hold=MEMORY_HOLD, bad=212.4),
    run("run2", 21, 30, State.TRANSFERRING_INPUT, seconds=384.0, site=None, target="expanse",
        gpu=None, gpus=None),
    run("run3", 8, 30, State.IDLE, seconds=41400.0, site=None, target="delta", gpu=None,
        gpus=None, bad=38.0),
    run("run4", 29, 30, State.RUNNING, seconds=13270.0, attempt=2, bad=11.2),
    run("run5", 0, 30, State.WAITING),
    run("run6", 12, 30, State.RETRYING, seconds=75.0, site="anvil", gpu=A40, attempt=4, bad=96.0),
    run("run7", 7, 30, State.RUNNING, seconds=39767.0, site="Delta", target="expanse", gpu=A40,
        gpus=2),
    run("run8", 19, 30, State.RUNNING, seconds=4101.0, site="aws", gpu=L40S),
    run("run9", 3, 30, State.FAILED, seconds=93600.0, site="bridges2", gpu=A40, bad=44.7),
)  # fmt: skip


@cache
def epochs(row: records.Run) -> tuple[records.Epoch, ...]:
    made = []
    first = 14600000 + 100 * sum(map(ord, row.run)) % 90000
    for n in range(row.epochs_total):
        done, now = n < row.epochs_done, row.latest is not None and n == row.latest.epoch
        begun = done or (now and row.latest is not None)
        state = State.COMPLETED if done else row.latest.state if begun else State.WAITING  # type: ignore[union-attr]
        latest = row.latest
        jobs = ((first + n, 0),) if done else ()
        if begun and not done and latest is not None and latest.cluster is not None:
            jobs = ((first + n, 0), (latest.cluster, 0))
        wave = 10800 + (n * 7919) % 5400
        site = latest.site if now and latest else ("Delta", "CHTC-Spark-CE1", "expanse")[n % 3]
        hold = latest.hold_reason if now and latest else None
        submitted = AS_OF - timedelta(hours=6 * (row.epochs_total - n))
        made.append(
            blank(
                records.Epoch,
                node=f"{row.run}-train_epoch{n}",
                dag=row.dag,
                in_dag=row.dag,
                epoch=n,
                epoch_var=n + 1,
                state=state,
                inferred=n == 0 and row.epochs_done > 20,
                since=None,
                jobs=jobs,
                target=latest.target if latest and begun else None,
                job=job_at(site, A80, 1, hold, 34, submitted) if begun else None,
                off_target=n % 7 == 3 and begun,
                queue_wait=300.0 + 613 * n if begun else None,
                transfer=41.0 if begun else None,
                execution=float(wave) if begun else None,
                attempts=1 + (n % 5 == 4) + 2 * (n == 9) if begun else 0,
                hours=records.GpuHours(3.2 if done else 0.0, 1.1 * (n % 5 == 4)),
                success=execution_at(site, A80, 1, 1800.0) if n == 5 and done else None,
                longest=execution_at("anvil", A80, 1, 9000.0) if n == 5 and done else None,
            )
        )
    return tuple(made)


def side(row: records.Run) -> tuple[records.Epoch, ...]:
    ones = [e for e in epochs(row) if e.state is State.COMPLETED][-1:]
    return tuple(
        replace(e, node=f"{row.run}-eval_epoch{e.epoch}", jobs=((14699999, 0),)) for e in ones
    )


def execution(start: datetime, hours: float, outcome: Outcome, **more: object) -> records.Execution:
    flying = outcome is Outcome.IN_FLIGHT
    plain = records.Execution(
        job=(1, 0),
        site="UIUC-RAILS",
        host="uiuc-rails-07.example.edu",
        gpu=A80,
        gpus=1,
        start=start,
        end=None if flying else start + timedelta(hours=hours),
        seconds=hours * 3600,
        outcome=outcome,
        return_value=0 if outcome is Outcome.GOOD else None,
    )
    return replace(plain, **more)  # type: ignore[arg-type]


def job_view(row: records.Run, cluster: int) -> records.JobView:
    start = AS_OF - timedelta(days=3)
    first, second = start + timedelta(hours=2), start + timedelta(hours=9)
    held = row.state is State.HELD
    end = second + timedelta(hours=10)
    seconds = (AS_OF - end).total_seconds()
    events = [
        EventLine(start, 0, "SUBMIT", "Job submitted from host: <10.0.0.1:9618>"),
        EventLine(first - timedelta(minutes=9), 40, "FILE_TRANSFER", "Started transferring input files"),
        EventLine(first - timedelta(minutes=1), 40, "FILE_TRANSFER", "Finished transferring input files"),
        EventLine(first, 1, "EXECUTE", "Job executing on host: <10.2.3.4:9618?alias=uiuc-rails-07.example.edu>"),
        EventLine(first + timedelta(hours=4), 4, "JOB_EVICTED", "Job was evicted. Code 1008 Subcode 0"),
        EventLine(second, 1, "EXECUTE", "Job executing on host: <10.2.3.4:9618?alias=uiuc-rails-07.example.edu>"),
        EventLine(second + timedelta(hours=3), 10, "JOB_SUSPENDED", "Job was suspended. Number of processes actually suspended: 3"),
        EventLine(second + timedelta(hours=4), 11, "JOB_UNSUSPENDED", "Job was unsuspended."),
    ]  # fmt: skip
    executions = [
        execution(first, 4.0, Outcome.EVICTED, code=1008, subcode=0,
                  reason="Job disconnected too long: JobLeaseDuration (2400 seconds) expired"),
    ]  # fmt: skip
    if held:
        events.append(EventLine(end, 12, "JOB_HELD", "Job was held."))
        executions.append(
            execution(second, 10.0, Outcome.HELD, code=34, subcode=0, reason=MEMORY_HOLD,
                      suspended=3600.0)
        )  # fmt: skip
    else:
        executions.append(execution(second, 51.0, Outcome.IN_FLIGHT))
    hold = records.Hold(
        end, None, seconds, 34, 0, MEMORY_HOLD, "UIUC-RAILS", A80, reason=MEMORY_HOLD
    )
    latest = row.latest
    node = f"{row.run}-train_epoch{latest.epoch if latest else 0}"
    states = (
        (start, State.IDLE),
        (first - timedelta(minutes=9), State.TRANSFERRING_INPUT),
        (first - timedelta(minutes=1), State.STARTING),
        (first, State.RUNNING),
        (first + timedelta(hours=4), State.IDLE),
        (second, State.RUNNING),
        (second + timedelta(hours=3), State.SUSPENDED),
        (second + timedelta(hours=4), State.RUNNING),
        *(((end, State.HELD),) if held else ()),
    )
    return records.JobView(
        job=records.Job(
            dag=row.dag,
            in_dag=row.dag,
            node=node,
            node_name=node,
            key=row.key,
            run=row.run,
            uuid=row.uuid,
            epoch=latest.epoch if latest else None,
            job=(cluster, 0),
            state=State.HELD if held else State.RUNNING,
            since=end,
            target="expanse",
            submitted=start,
            executions=tuple(executions),
            transfers=(
                records.Transfer(
                    job=(cluster, 0),
                    key=row.key,
                    epoch=0,
                    direction="input",
                    start=first - timedelta(minutes=9),
                    end=first - timedelta(minutes=1),
                    seconds=480.0,
                    outcome="ok",
                    host="<10.2.3.4:9618>",
                    site=None,
                    queue_seconds=12,
                ),
            ),
            bytes_sent=131_493_599,
            bytes_received=2_302_770_316,
            memory_mb=65511,
            usage=ResourceUsage(memory_mb=65511, memory_mb_requested=65536),
            holds=(hold,) if held else (),
        ).with_states(states),
        seconds=seconds,
        off_target=True,
        events=tuple(events),
        memory_updates=214,
        usage=(
            UsageRow("Cpus", "", 3.71, 8, 8, None),
            UsageRow("Disk", "KB", 48213411, 41943040, 42991616, None),
            UsageRow("GPUs", "Average", 0.93, 1, 1, '"GPU-8a6e4f42"'),
            UsageRow("Memory", "MB", 65511, 65536, 65536, None),
        ),
        output=f"{row.run}_{cluster}.out",
        error=f"{row.run}_{cluster}.err",
        siblings=next((e.jobs for e in epochs(row) if (cluster, 0) in e.jobs), ()),
    )


WARNINGS = (
    Notice("glued-header", "metl.log", 48213, "the header of 12713917.000.000 stands behind a cut line"),
    Notice("unterminated-event", "metl.log", 48212, "event 001 of 12713911.000.000 is cut"),
)  # fmt: skip


def status(
    runs: tuple[records.Run, ...] = RUNS,
    *,
    live: bool = True,
    warnings: tuple[Notice, ...] = WARNINGS,
    **more: object,
) -> records.Status:
    states: Counter[State] = Counter(dict.fromkeys(State, 0))
    for row in runs:
        states[State.COMPLETED] += row.epochs_done
        left = row.epochs_total - row.epochs_done
        if left and row.latest is not None:
            states[row.state] += 1
            left -= 1
        states[State.WAITING] += left
    hours = records.GpuHours(
        sum(row.hours.goodput for row in runs),
        sum(row.hours.badput for row in runs),
        sum(row.hours.running for row in runs),
    )
    files = sorted({row.dag for row in runs})
    dags = tuple(
        records.DagRow(
            file=file,
            state=DagState.RUNNING if live else DagState.UNKNOWN,
            dagmans=3,
            nodes_total=sum(r.epochs_total for r in runs if r.dag == file),
            nodes_done=sum(r.epochs_done for r in runs if r.dag == file),
            nodes_failed=1,
            rescue=2,
            submissions=tuple(AS_OF - timedelta(days=d) for d in (12, 7, 3)),
        )
        for file in files
    )
    made = records.Status(
        dagdir="/home/someone/ensembles/global_pretraining",
        as_of=AS_OF,
        live=live,
        warnings=warnings,
        dags=dags,
        runs=runs,
        epoch_states=states,
        node_states=states,
        hours=hours,
        logs=(
            LogRow("metl.log", 20_423_911, 60431, AS_OF - timedelta(days=12), AS_OF - timedelta(seconds=3)),
            LogRow(f"{DAG}.nodes.log", 523_911, 2431, AS_OF - timedelta(days=3), AS_OF - timedelta(seconds=41)),
        ),
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def update(made: records.Status | None = None, progress: records.Progress = WHOLE) -> Snapshot:
    made = made or status()
    return Snapshot(made, progress)


class FakeFeed(Feed):
    """Shows the snapshots that a test publishes."""

    def __init__(self, first: Snapshot | None = None, dagdir: Path | None = None) -> None:
        self._latest = first
        self._dagdir = dagdir or Path("/home/someone/ensembles/global_pretraining")
        self._notify: Callable[[Snapshot], None] | None = None
        self.stopped = False
        self.jobs: dict[tuple[int, int], records.JobView] = {}
        self.set = Settings()
        self.book: records.Ledger | None = None
        self.known_nodes: tuple[DagNodes, ...] = ()
        self.node_rows: dict[NodeKey, records.NodeRow] = {}
        self.written: Mapping[str, TrainingOutput] = {}
        self.streamed: Mapping[tuple[int, int], Streamed] = {}
        self.errors = NO_ERRORS

    @property
    def dagdir(self) -> Path:
        return self._dagdir

    @property
    def latest(self) -> Snapshot | None:
        return self._latest

    def start(self, notify: Callable[[Snapshot], None]) -> None:
        self._notify = notify

    def stop(self) -> None:
        self.stopped = True

    def publish(self, new: Snapshot) -> None:
        """Publish a snapshot, as from the feed's thread."""
        self._latest = new
        assert self._notify is not None
        self._notify(new)

    def _row(self, key: str) -> records.Run | None:
        rows = self._latest.status.runs if self._latest else ()
        return next((row for row in rows if row.key == key), None)

    def run_view(self, key: str) -> records.RunView | None:
        row = self._row(key)
        return None if row is None else records.RunView(row, epochs(row), side(row))

    def job_view(self, cluster: int, proc: int) -> records.JobView | None:
        if (cluster, proc) in self.jobs:
            return self.jobs[cluster, proc]
        rows = self._latest.status.runs if self._latest else ()
        for row in rows:
            if row.latest is not None and (
                cluster == row.latest.cluster
                or any((cluster, proc) in epoch.jobs for epoch in epochs(row))
            ):
                return job_view(row, cluster)
        return None

    def queued_jobs(self, run: str | None = None) -> tuple[records.Job, ...]:
        rows = self._latest.status.runs if self._latest else ()
        asked = [row for row in rows if run in (None, row.key) and row.latest is not None]
        views = [self.job_view(row.latest.cluster or 0, row.latest.proc or 0) for row in asked]
        return tuple(view.job for view in views if view is not None and view.job.state in ACTIVE)

    def dag_nodes(self) -> tuple[DagNodes, ...]:
        return self.known_nodes

    def node_row(self, key: NodeKey) -> records.NodeRow | None:
        return self.node_rows.get(key)

    @property
    def settings(self) -> Settings:
        return self.set

    def ledger(self) -> records.Ledger:
        return self.book or ledger(self._latest)

    def dag_description(self) -> records.DagDescription:
        return records.DagDescription()

    def job_files(self) -> JobFiles:
        return JobFiles(self.written, self.streamed, self.errors)


def ledger(of: Snapshot | None) -> records.Ledger:
    """The runs of a snapshot, with their holds, failures and removals."""
    status = of.status if of is not None else None
    runs = status.runs if status else ()
    as_of, live = (status.as_of, status.live) if status else (None, False)
    troubled = [row for row in runs if row.state in TROUBLE]
    return records.Ledger(
        "/nowhere",
        as_of,
        live,
        runs,
        jobs=tuple(_job_entry(row) for row in troubled if row.latest is not None),
        faults=tuple(_fault(row) for row in troubled if row.latest is not None),
    )


TROUBLE = frozenset({State.HELD, State.FAILED, State.REMOVED})


def _job_entry(row: records.Run) -> records.Job:
    latest = row.latest
    since = latest.since or AS_OF
    hold = records.Hold(
        since, None, row.seconds or 0.0, latest.hold_code, None, latest.hold_reason or "",
        latest.site, latest.gpu, latest.hold_reason,
    )  # fmt: skip
    job = records.Job(
        job=(latest.cluster or 0, 0),
        state=row.state,
        dag=row.dag,
        in_dag=row.dag,
        node=latest.node,
        key=row.key,
        run=row.run,
        holds=(hold,) if row.state is State.HELD else (),
    )
    return job.with_states([(since - timedelta(hours=1), State.RUNNING), (since, row.state)])


def _fault(row: records.Run) -> records.NodeFault:
    latest = row.latest
    return records.NodeFault(
        node_key=(row.dag, latest.node),
        dag=row.dag,
        state=row.state,
        key=row.key,
        epoch=latest.epoch,
        training=True,
        since=latest.since,
        job=(latest.cluster or 0, 0, 0),
        tries=latest.attempts,
    )
