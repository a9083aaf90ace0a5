"""Write a generated ensemble as a dagdir, with its truth beside it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from math import exp
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.generated import events
from tests.generated.ensembles import EPOCHS, ZONE, DagPlan, Ensemble, Execution, Job, Life

IN_NODES_LOG: Final = frozenset(["000", "001", "004", "005", "007", "009", "012", "013", "024"])
"""What DAGMan has written to its own log: no memory, transfers, suspensions, disconnects."""

RETRIES: Final = 10

Line = tuple[int, int, int, str]


def write(lived: Ensemble, directory: Path) -> None:
    """DAG files, ``metl.log``, DAGMan's files, ``metlmon.toml`` and ``truth.json``."""
    files = dagdir_files(lived) | training_files(lived)
    files["truth.json"] = json.dumps(truth(lived), indent=1) + "\n"
    write_files(directory, files)


def dagdir_files(lived: Ensemble, until: int | None = None) -> dict[str, str]:
    """The files of user, HTCondor and DAGMan; ``until``: all goes on after that time."""
    files = {"metl.log": job_log(job_lines(lived.jobs)), "metlmon.toml": SETTINGS}
    for number, plan in enumerate(lived.dags):
        jobs = [job for job in lived.jobs if job.dag == number]
        dagmans = [(cluster, life) for cluster, dag, life in lived.dagmans if dag == number]
        files |= dagman_files(plan, jobs, dagmans, until)
        files[plan.file] = _dag(plan, lived)
    return files


def write_files(directory: Path, files: Mapping[str, str]) -> None:
    """Texts by their names below ``directory``."""
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text, encoding="utf-8", newline="\n")


SETTINGS: Final = """\
tz = "America/Chicago"
checkpoint_codes = [85]

[site_aliases]
"SDSC-PRP-CE1" = "NRP"

[gpu_aliases]
"NVIDIA A100-PCIE-40GB" = "A100-PCIE-40GB"
"NVIDIA A100-SXM4-40GB" = "A100-SXM4-40GB"
"NVIDIA A100-SXM4-80GB" = "A100-SXM4-80GB"
"NVIDIA A40" = "A40"
"NVIDIA RTX A5000" = "RTX A5000"
"Tesla V100-SXM2-32GB" = "V100-SXM2-32GB"

[[site]]
host = "*.hpc.example.edu"
name = "campus"

[[label]]
name = "heterogeneous"
runs = ["hetero*"]

[[label]]
name = "control"
runs = ["control*"]
"""


def local(when: int) -> datetime:
    """The access point's local time, without a zone."""
    return datetime.fromtimestamp(when, ZONE).replace(tzinfo=None)


# --- the job event log ------------------------------------------------------------------------


def job_lines(jobs: Iterable[Job]) -> list[Line]:
    lines = [
        (when, job.cluster, place, text(_head(job.cluster, when)))
        for job in jobs
        for place, (when, text) in enumerate(job.lines)
    ]
    return sorted(lines, key=lambda line: line[:3])


def _head(cluster: int, when: int) -> str:
    return f"({cluster}.000.000) {local(when):%Y-%m-%d %H:%M:%S}"


def job_log(lines: Iterable[Line]) -> str:
    return "".join(f"{text}\n...\n" for *_, text in lines)


# --- the DAG and DAGMan's files ---------------------------------------------------------------


def _dag(plan: DagPlan, lived: Ensemble) -> str:
    lines = [
        "SUBMIT-DESCRIPTION pretrain.sub {",
        "\tuniverse = container",
        "\tcontainer_image = osdf:///example/metl_global.sif",
        "\trequest_disk = 100GB",
        "\trequest_memory = 64000",
        "\trequest_cpus = 8",
        "\trequest_gpus = 1",
        "\texecutable = /bin/bash",
        "\ttransfer_executable = false",
        "\targuments = pretrain.sh $(epoch) $(run_uuid) $(random_seed)",
        "\ttransfer_input_files = pretrain.sh, osdf:///example/processed-global.tar.gz",
        "\ttransfer_output_files = output",
        "\toutput = $(run_uuid)/$(epoch)_$(CLUSTERID).out",
        "\terror = $(run_uuid)/$(epoch)_$(CLUSTERID).err",
        "\tlog = metl.log",
        "\tqueue",
        "}",
    ]
    nodes = [(run, uuid, n) for run, uuid in plan.runs for n in range(plan.epochs)]
    lines += [f"JOB {run}-train_epoch{n} pretrain.sub" for run, _, n in nodes]
    lines.append("")
    for run, uuid, n in nodes:
        node = f"{run}-train_epoch{n}"
        more = ' continue_from_checkpoint="true"' if n else ""
        lines.append(
            f'VARS {node} epoch="{n + 1}" run_uuid="{uuid}" random_seed="{lived.seeds[run]}" '
            f'ResourceName="{lived.targets[node]}"{more}'
        )
    lines.append("")
    lines += [
        f"PARENT {run}-train_epoch{n - 1} CHILD {run}-train_epoch{n}" for run, _, n in nodes if n
    ]
    return "\n".join([*lines, "", f"RETRY ALL_NODES {RETRIES}", ""])


def dagman_files(
    plan: DagPlan, jobs: list[Job], dagmans: list[tuple[int, Life]], until: int | None = None
) -> dict[str, str]:
    """DAGMan's files beside the DAG file, over all its lives; ``until``: it runs then."""
    files: dict[str, str] = {}
    received: list[str] = []
    own: list[Line] = []
    for number, (cluster, life) in enumerate(dagmans):
        mine = [j for j in jobs if life.start <= j.submitted and _before(j, dagmans, number)]
        is_last = number + 1 == len(dagmans)
        end = None
        if until is None or not is_last:
            end = life.end or max(job.last for job in mine) + 6
        own += _dagman_events(cluster, life, end)
        received += _dagman_out(plan, cluster, number, life, end, until, mine)
        if is_last:
            lines = [line for line in job_lines(mine) if line[3][:3] in IN_NODES_LOG]
            files[f"{plan.file}.nodes.log"] = job_log(lines)
        if end is not None and life.end is None:
            files[f"{plan.file}.metrics"] = _metrics(cluster, life, end, number, plan)
        elif end is not None:
            files[f"{plan.file}.rescue{number + 1:03d}"] = _rescue(plan, jobs, end)
    files[f"{plan.file}.dagman.log"] = job_log(own)
    files[f"{plan.file}.dagman.out"] = "\n".join(received) + "\n"
    return files


def _before(job: Job, dagmans: list[tuple[int, Life]], number: int) -> bool:
    return number + 1 == len(dagmans) or job.submitted < dagmans[number + 1][1].start


def _dagman_events(cluster: int, life: Life, end: int | None) -> list[Line]:
    started = f"001 {_head(cluster, life.start + 1)} Job executing on host: {events.SCHEDD}"
    usage = "Usr 0 00:00:00, Sys 0 00:00:00"
    run_usage = f"\t\t{usage}  -  Run Remote Usage\n\t\t{usage}  -  Run Local Usage\n"
    run_bytes = "\t0  -  Run Bytes Sent By Job\n\t0  -  Run Bytes Received By Job"
    lines: list[Line] = [
        (life.start, cluster, 0, events.submitted(_head(cluster, life.start), None)),
        (life.start + 1, cluster, 1, started),
    ]
    if end is None:
        return lines
    head = _head(cluster, end)
    if life.end is not None:
        gone = f"004 {head} Job was evicted.\n\t(0) CPU times\n{run_usage}{run_bytes}"
        lines.append((end, cluster, 2, gone))
        lines.append((end, cluster, 3, events.removed(head, "via condor_rm (by user researcher)")))
    else:
        total = run_usage.replace("Run ", "Total ") + run_bytes
        total += "\n" + run_bytes.replace("Run ", "Total ")
        done = "Job terminated.\n\t(1) Normal termination (return value 0)\n"
        lines.append((end, cluster, 2, f"005 {head} {done}{run_usage}{total}"))
    return lines


def _dagman_out(
    plan: DagPlan,
    cluster: int,
    number: int,
    life: Life,
    end: int | None,
    until: int | None,
    jobs: list[Job],
) -> Iterator[str]:
    def at(when: int, text: str) -> str:
        return f"{local(when):%m/%d/%y %H:%M:%S} {text}"

    me = f"condor_scheduniv_exec.{cluster}.0"
    yield at(life.start + 1, "*" * 54)
    yield at(life.start + 1, f"** {me} (CONDOR_DAGMAN) STARTING UP")
    yield at(life.start + 1, "** $CondorVersion: 25.3.1 2025-09-01 BuildID: 800000 $")
    yield at(life.start + 1, "*" * 54)
    if number:
        rescue = f"{plan.file}.rescue{number:03d}"
        found = f"Found rescue DAG number {number}; running {rescue} in combination with"
        yield at(life.start + 1, f"{found} normal DAG file")
    yield at(life.start + 1, f"Parsing {plan.file} ...")
    for job in sorted(jobs, key=lambda job: job.cluster):
        when = local(job.submitted)
        if until is None or job.submitted + 4 <= until:
            yield at(
                job.submitted + 4,
                f"Event: ULOG_SUBMIT for HTCondor Node {job.node} ({job.cluster}.0.0) "
                f"{{{when:%m/%d/%y %H:%M:%S}}}",
            )
    if end is None:
        return
    if life.end is not None:
        yield at(end, "Received SIGUSR1")
        yield at(end, "Aborting DAG...")
        yield at(end, f"Writing Rescue DAG to {plan.file}.rescue{number + 1:03d}...")
        yield at(end, "Removing submitted jobs...")
    status = 0 if life.end is None else 2
    yield at(end, f"**** {me} (condor_DAGMAN) pid {4100 + number} EXITING WITH STATUS {status}")


def _rescue(plan: DagPlan, jobs: list[Job], when: int) -> str:
    done = {job.node for job in jobs if job.completed and job.last < when}
    stamp = datetime.fromtimestamp(when, ZONE).astimezone(tz=None)
    utc = stamp - (stamp.utcoffset() or timedelta())
    lines = [
        "# Rescue DAG file, created after running",
        f"#   the {plan.file} DAG file",
        f"# Created {utc:%m/%d/%Y %H:%M:%S} UTC",
        "# Rescue DAG version: 2.0.1 (partial)",
        "#",
        f"# Total number of Nodes: {len(plan.runs) * plan.epochs}",
        f"# Nodes premarked DONE: {len(done)}",
        "# Nodes that failed: 0",
        "#   <ENDLIST>",
        "",
    ]
    for run, _ in plan.runs:
        for epoch in range(plan.epochs):
            node = f"{run}-train_epoch{epoch}"
            lines += [f"DONE {node}"] * (node in done) + [f"RETRY {node} {RETRIES}"]
    return "\n".join(lines) + "\n"


def _metrics(cluster: int, life: Life, end: int, rescue: int, plan: DagPlan) -> str:
    nodes = len(plan.runs) * plan.epochs
    result: dict[str, Any] = {
        "client": "condor_dagman",
        "version": "25.3.1",
        "type": "metrics",
        "start_time": float(life.start + 1),
        "end_time": float(end),
        "duration": float(end - life.start - 1),
        "exitcode": 0,
        "dagman_id": str(cluster),
        "parent_dagman_id": "",
        "rescue_dag_number": rescue,
        "jobs": nodes,
        "jobs_failed": 0,
        "jobs_succeeded": nodes,
        "dag_jobs": 0,
        "dag_jobs_failed": 0,
        "dag_jobs_succeeded": 0,
        "total_jobs": nodes,
        "total_jobs_run": nodes,
        "DagStatus": 0,
    }
    return json.dumps(result, indent=4) + "\n"


# --- files of the trainings -------------------------------------------------------------------

STEPS: Final = 51484
"""Steps of an epoch."""

SPIKE: Final = ("hetero5", 22)
"""The run and the epoch whose loss jumps, and comes down again."""

HEAD: Final = "lr-Adagrad,step,train_loss_step,epoch,val_loss,train_loss_epoch"


def training_files(lived: Ensemble) -> dict[str, str]:
    """One ``metrics.csv`` a run: sparse rows as PyTorch Lightning writes them, epochs from 0."""
    return {
        f"output/training_logs/{uuid}/version_0/metrics.csv": _losses(run, uuid)
        for plan in lived.dags
        for run, uuid in plan.runs
    }


def _losses(run: str, uuid: str) -> str:
    rng = Random(uuid)
    floor = 0.21 if run.startswith("control") else 0.24
    start, pace = rng.uniform(1.0, 1.4), rng.uniform(4.5, 6.5)
    rows = [HEAD]
    for epoch in range(EPOCHS):
        loss = floor + start * exp(-epoch / pace) + rng.gauss(0, 0.008)
        if (run, epoch) == SPIKE:
            loss += 0.9
        step = (epoch + 1) * STEPS - 1
        rows.append(f"{0.01 * (1 - epoch / EPOCHS):.6f},{step},,,,")
        rows.append(f",{step},{loss * rng.uniform(0.8, 1.1):.5f},{epoch},,")
        rows.append(f",{step},,{epoch},{loss:.5f},")
        rows.append(f",{step},,{epoch},,{loss * 0.94:.5f}")
    return "\n".join(rows) + "\n"


# --- truth ------------------------------------------------------------------------------------


def truth(lived: Ensemble) -> dict[str, Any]:
    """Totals in GPU-seconds, seconds, bytes and counts, by the generator's own accounts."""
    every = [(job, e) for job in lived.jobs for e in job.executions]
    final = {job.node: job.executions[-1] for job in lived.jobs if job.completed}
    labels = {run: name for name in ("heterogeneous", "control") for run in _runs(lived, name)}
    uuids = {run: uuid for plan in lived.dags for run, uuid in plan.runs}
    return {
        "runs": len(uuids),
        "jobs": len(lived.jobs),
        "executions": len(every),
        "gpu_seconds": _split(e for _, e in every),
        "by_site": _by(
            [(e.slot.place.site, e) for _, e in every],
            Counter(e.slot.place.site for e in final.values()),
        ),
        "by_gpu": _by(
            [(e.slot.place.gpu.name, e) for _, e in every],
            Counter(e.slot.place.gpu.name for e in final.values()),
        ),
        "by_label": _by([(labels[job.run], e) for job, e in every], None),
        "by_run": {
            run: {"uuid": uuids[run], **numbers}
            for run, numbers in _by([(job.run, e) for job, e in every], None).items()
        },
        "by_cause": _causes([e for _, e in every]),
        "longest_gpu_seconds": sum(_longest(lived, node).gpu_seconds for node in final),
        "transfers": _transfers(lived),
        "holds": dict(sorted(Counter(c for j in lived.jobs for _, c in j.holds).items())),
        "bytes": {
            "sent": sum(m[1] for j in lived.jobs for m in j.moved),
            "received": sum(m[2] for j in lived.jobs for m in j.moved),
        },
        "hidden": sorted(
            node
            for node, e in final.items()
            if 2 * (e.end - e.start) < _length(_longest(lived, node))
        ),
    }


def _runs(lived: Ensemble, label: str) -> list[str]:
    return [run for plan in lived.dags if plan.file.startswith(label) for run, _ in plan.runs]


def _length(execution: Execution) -> int:
    return execution.end - execution.start


def _longest(lived: Ensemble, node: str) -> Execution:
    return max((e for j in lived.jobs if j.node == node for e in j.executions), key=_length)


def _split(executions: Iterable[Execution]) -> dict[str, int]:
    sums = {"good": 0, "bad": 0}
    for e in executions:
        sums["bad" if e.cause else "good"] += e.gpu_seconds
    return sums


def _by(
    pairs: list[tuple[str, Execution]], completed: Counter[str] | None
) -> dict[str, dict[str, Any]]:
    groups: dict[str, list[Execution]] = defaultdict(list)
    for name, execution in pairs:
        groups[name].append(execution)
    return {
        name: {
            "executions": len(found),
            **({} if completed is None else {"completed": completed[name]}),
            **_split(found),
        }
        for name, found in sorted(groups.items())
    }


def _causes(executions: list[Execution]) -> dict[str, dict[str, int]]:
    causes: dict[str, dict[str, int]] = {}
    for e in sorted((e for e in executions if e.cause), key=lambda e: str(e.cause)):
        sums = causes.setdefault(str(e.cause), {"executions": 0, "gpu_seconds": 0})
        sums["executions"] += 1
        sums["gpu_seconds"] += e.gpu_seconds
    return causes


def _transfers(lived: Ensemble) -> dict[str, dict[str, dict[str, int]]]:
    moved: dict[str, dict[str, dict[str, int]]] = {}
    for span in (span for job in lived.jobs for span in job.transfers):
        sums = moved.setdefault(span.direction, {}).setdefault(
            span.outcome, {"count": 0, "seconds": 0}
        )
        sums["count"] += 1
        sums["seconds"] += span.end - span.start
    return moved
