"""Event logs and DAGMan's files written by tests in HTCondor's wording, and the state model that
has read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from metlmon.config.settings import Settings
from metlmon.dagman.dagman_out import OutState, read_dagman_out
from metlmon.dagman.reports import read_jobstate, read_metrics, read_node_status, read_rescue
from metlmon.eventlog.reader import parse
from metlmon.model.dag import Dag
from metlmon.model.ensemble import Ensemble
from metlmon.model.job import JobHistory
from metlmon.model.model_state import Batch, LogRole
from metlmon.model.node import NodeState
from metlmon.model.states import State
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.derive import Derivation
from metlmon.snapshot.records import Execution, Job, Run, Transfer
from tests.support.dag_texts import load

DAY = "2026-05-04"
A_MINUTE = timedelta(minutes=1)

SUBMIT = '    [ DAGNodeName = "{node}"; JobBatchName = "{batch}" ]\n'
OLDER_SUBMIT = "    DAG Node: {node}\n"

USAGE = """\
\t(1) Normal termination (return value {code})
\t\tUsr 0 01:02:03, Sys 0 00:00:04  -  Run Remote Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage
\t\tUsr 0 01:02:03, Sys 0 00:00:04  -  Total Remote Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Total Local Usage
\t{run_sent}  -  Run Bytes Sent By Job
\t{run_received}  -  Run Bytes Received By Job
\t{sent}  -  Total Bytes Sent By Job
\t{received}  -  Total Bytes Received By Job
\tPartitionable Resources :    Usage  Request Allocated Assigned
\t   Cpus                 :     0.98        8         8
\t   GPUs                 :                 2         2 "GPU-0a0a0a0a,GPU-0b0b0b0b"
\t   Memory (MB)          :    40321   160000    160000
"""

EVICTED = """\
\t(0) CPU times
\t\tUsr 0 01:02:03, Sys 0 00:00:04  -  Run Remote Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage
\t{sent}  -  Run Bytes Sent By Job
\t{received}  -  Run Bytes Received By Job
"""


def moment(at: str) -> datetime:
    """``10:00:00`` on the default day, ``11-02 01:30:00`` of the year, or a whole time."""
    if len(at) <= 8:
        at = f"{DAY} {at}"
    elif at[4] != "-":
        at = f"{DAY[:4]}-{at}"
    return datetime.fromisoformat(at)


class Log:
    """An event log. An event is a minute after the one before it unless ``at`` is given
    (:func:`moment`); ``job`` is a cluster, or cluster and proc."""

    def __init__(
        self, file: str = "metl.log", role: LogRole = LogRole.USER, dag: str | None = None
    ) -> None:
        self.file, self.role, self.dag = file, role, dag
        self.events: list[bytes] = []
        self.clock = moment("10:00:00")
        self.batch_name = "run.dag+900"

    @property
    def data(self) -> bytes:
        return b"".join(self.events)

    def raw(
        self, number: int, job: int | tuple[int, int], text: str, body: str = "", at: str = ""
    ) -> Log:
        """Add any event."""
        cluster, proc = job if isinstance(job, tuple) else (job, 0)
        self.clock = moment(at) if at else self.clock + A_MINUTE
        header = f"{number:03d} ({cluster:03d}.{proc:03d}.000) {self.clock} {text}"
        self.events.append(f"{header.rstrip()}\n{body}...\n".encode())
        return self

    def submit(
        self, job: int | tuple[int, int], node: str = "", at: str = "", older: bool = False
    ) -> Log:
        form = OLDER_SUBMIT if older else SUBMIT
        notes = form.format(node=node, batch=self.batch_name) if node else ""
        host = "<128.105.68.62:9618?addrs=128.105.68.62-9618&alias=ap40.uw.osg-htc.org&noUDP>"
        return self.raw(0, job, f"Job submitted from host: {host}", notes, at)

    def execute(
        self,
        job: int | tuple[int, int],
        gpus: int | None = 1,
        at: str = "",
        gpu: str = "NVIDIA L40S",
        slot: str = "slot1_1@ip-172-31-17-82.ec2.internal",
        site: str | None = None,
        alias: str | None = None,
        bare: bool = False,
        annex: str | None = None,
    ) -> Log:
        """``gpus`` None: no ``GPUs`` line; ``bare``: an old log, with no line at all."""
        address = "<172.31.17.82:37055?addrs=172.31.17.82-37055"
        address += f"&alias={alias}" if alias else ""
        lines = [f"SlotName: {slot}"] if slot else []
        if gpus:
            names = [f"GPUs_GPU_{n:08x}" for n in range(gpus)]
            lines.append(f"AvailableGPUs = {{ {','.join(names)} }}")
            lines.append(f"GPUs = {gpus}")
            lines += [
                f'{n} = [ Id = "{n[5:]}"; DeviceName = "{gpu}"; GlobalMemoryMb = 45589 ]'
                for n in names
            ]
        elif gpus == 0:
            lines.append("GPUs = 0")
        lines.append("Memory = 160000")
        if site:
            lines.append(f'GLIDEIN_ResourceName = "{site}"')
        if annex:
            lines.append(f'AnnexName = "{annex}"')
        body = "" if bare else "".join(f"\t{line}\n" for line in lines)
        return self.raw(1, job, f"Job executing on host: {address}&noUDP>", body, at)

    def evict(
        self,
        job: int | tuple[int, int],
        code: int | None = 1004,
        reason: str | None = None,
        at: str = "",
        sent: int = 0,
        received: int = 0,
    ) -> Log:
        text = "Job was evicted." + (f" Code {code} Subcode 0" if code is not None else "")
        body = EVICTED.format(sent=sent, received=received)
        return self.raw(4, job, text, body + (f"\tReason: {reason}\n" if reason else ""), at)

    def terminate(
        self,
        job: int | tuple[int, int],
        code: int = 0,
        at: str = "",
        run: tuple[int, int] = (0, 0),
        total: tuple[int, int] = (0, 0),
    ) -> Log:
        body = USAGE.format(
            code=code, run_sent=run[0], run_received=run[1], sent=total[0], received=total[1]
        )
        return self.raw(5, job, "Job terminated.", body, at)

    def killed(self, job: int | tuple[int, int], signal: int) -> Log:
        body = USAGE.format(code=0, run_sent=0, run_received=0, sent=0, received=0)
        first = f"\t(0) Abnormal termination (signal {signal})\n\t(0) No core file\n"
        return self.raw(5, job, "Job terminated.", first + body.split("\n", 1)[1])

    def requeue(self, job: int | tuple[int, int], code: int, at: str = "") -> Log:
        """004 of a job whose on_exit_remove was false: it ended, and stays in the queue."""
        body = f"\t(0) Job terminated and was requeued\n{EVICTED.split(chr(10), 1)[1]}"
        body = body.format(sent=0, received=0)
        body += f"\t(1) Normal termination (return value {code})\n"
        return self.raw(4, job, "Job was evicted.", body, at)

    def hold(
        self,
        job: int | tuple[int, int],
        code: int = 1,
        reason: str = "via condor_hold (by user ada)",
        at: str = "",
        subcode: int = 0,
    ) -> Log:
        body = f"\t{reason}\n\tCode {code} Subcode {subcode}\n"
        return self.raw(12, job, "Job was held.", body, at)

    def release(self, job: int | tuple[int, int], at: str = "") -> Log:
        return self.raw(13, job, "Job was released.", "\tvia condor_release\n", at)

    def remove(
        self, job: int | tuple[int, int], reason: str = "via condor_rm (by user ada)", at: str = ""
    ) -> Log:
        return self.raw(9, job, "Job was aborted.", f"\t{reason}\n", at)

    def suspend(self, job: int | tuple[int, int], at: str = "") -> Log:
        body = "\tNumber of processes actually suspended: 3\n"
        return self.raw(10, job, "Job was suspended.", body, at)

    def resume(self, job: int | tuple[int, int], at: str = "") -> Log:
        return self.raw(11, job, "Job was unsuspended.", "", at)

    def disconnect(self, job: int | tuple[int, int], at: str = "") -> Log:
        body = (
            "    Socket between submit and execute hosts closed unexpectedly\n"
            "    Trying to reconnect to slot1_1@ip-172-31-17-82.ec2.internal <172.31.17.82:37055>\n"
        )
        return self.raw(22, job, "Job disconnected, attempting to reconnect", body, at)

    def reconnect(self, job: int | tuple[int, int], at: str = "") -> Log:
        body = "    startd address: <172.31.17.82:37055>\n    starter address: <172.31.17.82:1>\n"
        return self.raw(23, job, "Job reconnected to slot1_1@ip-172-31-17-82", body, at)

    def reconnect_failed(self, job: int | tuple[int, int], at: str = "") -> Log:
        body = (
            "    Job disconnected too long: JobLeaseDuration (2400 seconds) expired\n"
            "    Can not reconnect to slot1_1@ip-172-31-17-82.ec2.internal, rescheduling job\n"
        )
        return self.raw(24, job, "Job reconnection failed", body, at)

    def shadow_exception(self, job: int | tuple[int, int], at: str = "") -> Log:
        body = (
            "\tError from slot1_1@ip-172-31-17-82.ec2.internal: FAILED to send files\n"
            "\t0  -  Run Bytes Sent By Job\n\t0  -  Run Bytes Received By Job\n"
        )
        return self.raw(7, job, "Shadow exception!", body, at)

    def image(self, job: int | tuple[int, int], megabytes: int, at: str = "") -> Log:
        body = (
            f"\t{megabytes}  -  MemoryUsage of job (MB)\n"
            f"\t{megabytes * 1000}  -  ResidentSetSize of job (KB)\n"
        )
        return self.raw(6, job, f"Image size of job updated: {megabytes * 1024}", body, at)

    def transfer(self, job: int | tuple[int, int], what: str, at: str = "") -> Log:
        """``what``: ``started input``, ``finished output``, ``queued input``."""
        verb, direction = what.split()
        text = {
            "started": f"Started transferring {direction} files",
            "finished": f"Finished transferring {direction} files",
            "queued": f"Entered queue to transfer {direction} files",
        }[verb]
        body = "\tTransferring to host: <172.31.17.82:37055>\n" if verb == "started" else ""
        return self.raw(40, job, text, body, at)

    def post(self, job: int | tuple[int, int], node: str, code: int = 0, at: str = "") -> Log:
        body = f"\t(1) Normal termination (return value {code})\n    DAG Node: {node}\n"
        return self.raw(16, job, "POST Script terminated.", body, at)

    def pre_skip(self, node: str, at: str = "") -> Log:
        """As DAGMan writes it for a node without a job."""
        body = f"    DAG Node: {node}\n"
        text = "PRE script return value is PRE_SKIP value"
        return self.raw(34, (0, 2147483647), text, body, at)


Event = tuple[datetime, Callable[..., Log]]
"""A time, and the method of :class:`Log` that writes what happened then, with its arguments."""


def log_of_events(events: Iterable[Event], file: str = "metl.log") -> Log:
    """The log of these events, by their times; those of one time in the order given."""
    log = Log(file)
    for when, write in sorted(events, key=lambda event: event[0]):
        write(log, at=str(when))
    return log


class Out:
    """A ``.dagman.out``; ``at`` as in :class:`Log`."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.clock = moment("09:59:00")

    @property
    def data(self) -> bytes:
        return b"".join(self.lines)

    def say(self, message: str, at: str = "") -> Out:
        self.clock = moment(at) if at else self.clock + A_MINUTE
        self.lines.append(f"{self.clock:%m/%d/%y %H:%M:%S} {message}\n".encode())
        return self

    def start(self, at: str = "", done: int | None = 0, cluster: int | None = None) -> Out:
        """``cluster``: of a process named after it; ``done`` None: it gets no further."""
        self.say(f"** {_process(cluster)} (CONDOR_DAGMAN) STARTING UP", at)
        if done is None:
            return self
        return self.say(f"Number of pre-completed nodes: {done}", at or str(self.clock))

    def recovery(self) -> Out:
        return self.say("Running in RECOVERY mode... >>>>>>>>>>>>>>>>>>>>", str(self.clock))

    def submitted(self, node: str, cluster: int, at: str = "") -> Out:
        return self.say(f"Event: ULOG_SUBMIT for HTCondor Node {node} ({cluster}.0.0) {{…}}", at)

    def exit(self, status: int = 0, at: str = "", cluster: int | None = None) -> Out:
        end = f"(condor_DAGMAN) pid 37763 EXITING WITH STATUS {status}"
        return self.say(f"**** {_process(cluster)} {end}", at)


def _process(cluster: int | None) -> str:
    return "condor_dagman" if cluster is None else f"condor_scheduniv_exec.{cluster}.0"


@dataclass
class EnsembleReading:
    """The state model after reading everything; ``as_of``, ``live``: of its snapshots."""

    ensemble: Ensemble

    def __post_init__(self) -> None:
        self.derivation = Derivation(self.ensemble)

    def builder(self, as_of: str | None = None, live: bool = False) -> SnapshotBuilder:
        self.derivation = self.derivation.renewed()
        self.derivation.update_jobs()
        self.derivation.update_nodes(live)
        return SnapshotBuilder(self.derivation, "here", moment(as_of) if as_of else None, live)

    def life(self, job: int | tuple[int, int]) -> JobHistory:
        cluster, proc = job if isinstance(job, tuple) else (job, 0)
        return self.ensemble.jobs[(cluster, proc, 0)].history()

    def job(self, job: int | tuple[int, int], as_of: str | None = None) -> Job:
        wanted = job if isinstance(job, tuple) else (job, 0)
        rows = self.builder(as_of).job_rows()
        return next(row for row in rows if (row.cluster, row.proc) == wanted)

    def executions(self, job: int | tuple[int, int], as_of: str | None = None) -> list[str]:
        return [str(e.outcome) for e in self.job(job, as_of).executions]

    def last_execution(self, job: int | tuple[int, int]) -> Execution:
        return self.job(job).executions[-1]

    def transfers(self, job: int | tuple[int, int]) -> list[Transfer]:
        return list(self.job(job).transfers)

    def node_state(self, node: str, dag: str = "run.dag", live: bool = False) -> NodeState:
        return self.ensemble.node_states(dag, live)[node]

    def node(self, node: str, dag: str = "run.dag", live: bool = False) -> State:
        return self.node_state(node, dag, live).state

    def run(self, run: str, as_of: str | None = None) -> Run:
        (found,) = self.builder(as_of).find_runs(run)
        return found


def read_ensemble(
    dags: str | dict[str, str],
    *logs: Log,
    settings: Settings | None = None,
    cut: str | None = None,
    out: dict[str, Out] | Out | None = None,
    jobstate: bytes = b"",
    rescue: str = "",
    status: bytes = b"",
    metrics: bytes = b"",
) -> EnsembleReading:
    """Read these DAGs (text of ``run.dag``, or file → text) and their logs. DAGMan's files other
    than ``out`` belong to the first DAG."""
    if isinstance(dags, str):
        dags = {"run.dag": dags}
    ensemble = Ensemble(settings, moment(cut) if cut else None)
    made = []
    for key, text in dags.items():
        workflow = load(text)
        assert workflow.used, workflow.problems
        made.append(Dag(key, key, workflow))
    ensemble.set_dags(made)
    first = made[0]
    outs = out if isinstance(out, dict) else {first.key: out} if out else {}
    for key, written in outs.items():
        ensemble.apply_dagman_messages(key, read_dagman_out(written.data, OutState())[0])
    if rescue:
        found, problems = read_rescue(Path("run.dag.rescue001"), rescue.encode())
        assert not problems
        first.rescue_files[1] = found
    if status:
        first.status_file = read_node_status(Path("nodes.dag.status"), status)[0]
        assert first.status_file is not None
    if metrics:
        first.metrics_file = read_metrics(Path("run.dag.metrics"), metrics)[0]
        assert first.metrics_file is not None
    ensemble.dag_facts_changed(first.key)
    read_logs(ensemble, logs)
    if jobstate:
        ensemble.apply_jobstate(first.key, read_jobstate(jobstate)[0])
    return EnsembleReading(ensemble)


def read_logs(ensemble: Ensemble, logs: Iterable[Log]) -> None:
    for log in logs:
        parsed = parse(log.data)
        assert not parsed.warnings
        assert parsed.after.offset == len(log.data)
        ensemble.apply(Batch(log.file, log.role, parsed.events, log.dag))


ONE_NODE = "JOB run0-train_epoch0 train.sub\n"


def of_one_job(*logs: Log, settings: Settings | None = None) -> EnsembleReading:
    """An ensemble of one node, for facts of jobs only."""
    return read_ensemble(ONE_NODE, *logs, settings=settings)
