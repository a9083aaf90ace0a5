"""Every number that is shown in more than one place is the same in all of them.

Each source (frames, the commands' JSON, the figures behind screens, what screens and reports
print) says what it shows as :class:`Said`; what has the same name must have the same value, and
every source that is to tell a number must have told it.
"""

from __future__ import annotations

import io
import json
import math
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest import mock
from zoneinfo import ZoneInfo

import pandas as pd
import pytest

import metlmon
from metlmon.cli.commands import jobs as jobs_command
from metlmon.cli.commands import report, timeline
from metlmon.cli.commands import run as run_command
from metlmon.cli.commands import sites as sites_command
from metlmon.cli.commands import status as commands_status
from metlmon.cli.main import main, parser
from metlmon.stats.frames import Frames
from metlmon.stats.inputs import StatsInput
from metlmon.stats.usage import GroupUsage, Usage, site_usage
from tests.conftest import SHARED
from tests.stats import painted
from tests.stats.said import (
    KINDS,
    TO_THE_HOUR,
    TO_THE_MILLISECOND,
    Said,
    What,
    model,
    named,
)

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


@dataclass(frozen=True, slots=True)
class Case:
    """A dagdir, as it was at ``as_of``; None: at its end."""

    path: Path
    as_of: str | None = None

    def __str__(self) -> str:
        return f"{self.path.name} at {self.as_of}" if self.as_of else self.path.name

    @property
    def is_the_first_round(self) -> bool:
        return self.path.name == "first-round" and self.as_of is None


CASES: Final = (
    *(Case(path) for path in sorted({path.parent for path in FIXTURES.glob("*/*.dag")})),
    Case(SHARED / "examples" / "metl-aws"),
    Case(SHARED / "examples" / "pool-ensemble"),
    # In the middle of it: jobs run, are held, wait and transfer.
    Case(FIXTURES / "demo", "2026-11-21T09:44:50"),
    Case(FIXTURES / "holds", "2026-11-21T09:42:40"),
    Case(FIXTURES / "scripts", "2026-11-21T09:44:20"),
    Case(FIXTURES / "shared-log", "2026-11-21T09:42:20"),
    # One run stopped, one about to be, one paused, one cut off; then one that goes on.
    Case(FIXTURES / "gated", "2026-11-22T03:24:14"),
    Case(FIXTURES / "gated", "2026-11-22T03:24:56"),
    Case(FIXTURES / "machines", "2026-11-22T03:12:40"),
    Case(SHARED / "examples" / "metl-aws", "2025-11-09T12:00:00"),
)

Source = Callable[["Ensemble"], Iterable[Said]]


class Ensemble:
    """One dagdir, and what each source makes of it."""

    def __init__(self, case: Case) -> None:
        self.case, self.path = case, case.path
        moment = ["--as-of", case.as_of] if case.as_of else []
        options = parser().parse_args(["status", str(case.path), "--no-live", *moment])
        self.reader = commands_status.open_reader(options)
        self.frames: Frames = metlmon.load(case.path, as_of=case.as_of, live=False)

    def printed(self, command: str, *arguments: str) -> str:
        """What a command prints. The directory is read once for all of them."""
        out = io.StringIO()
        with ExitStack() as stack:
            commands = (commands_status, jobs_command, run_command, report, sites_command, timeline)
            for module in commands:
                stack.enter_context(
                    mock.patch.object(module, "open_reader", return_value=self.reader)
                )
            stack.enter_context(redirect_stdout(out))
            stack.enter_context(redirect_stderr(io.StringIO()))
            code = main([command, *arguments, "--no-live"])
        assert code == 0, (command, arguments)
        return out.getvalue()

    def command(self, command: str, *arguments: str) -> dict[str, Any]:
        """What it prints as JSON."""
        told: dict[str, Any] = json.loads(
            self.printed(command, *arguments, str(self.path), "--json")
        )
        return told

    @property
    def basis(self) -> StatsInput:
        return StatsInput(self.frames.status, self.frames.ledger)


@cache
def ensemble(case: Case) -> Ensemble:
    if not case.path.exists():
        pytest.skip(f"no {case.path.name} beside this checkout: the real recordings are not here")
    return Ensemble(case)


# --- the logs themselves ----------------------------------------------------------------------

HEADER: Final = re.compile(
    r"^(\d{3}) \((\d+)\.(\d+)\.\d+\) (\d{4}-\S+ \S+) ([^\n]*)\n(.*?)^\.\.\.$",
    re.MULTILINE | re.DOTALL,
)
ENDS: Final = {"005", "004", "012", "009", "007", "024"}
NOOP: Final = 2147483647


def raw_logs(of: Ensemble) -> Iterator[Said]:
    """Seconds × GPUs of every job, read here from the logs' own lines."""
    zone = ZoneInfo("America/Chicago") if of.path.name == "first-round" else None
    seen: dict[tuple[str, ...], str] = {}
    for log in sorted(of.path.glob("*.log")):
        if not log.name.endswith(".dagman.log"):
            for number, *rest, body in HEADER.findall(log.read_text("utf-8", "replace")):
                if number in ENDS | {"001"}:
                    seen.setdefault((*rest, number), body)
    worth: defaultdict[What, float] = defaultdict(float)
    begun: dict[What, tuple[datetime, int]] = {}
    known = of.frames.as_of
    assert known is not None
    for (cluster, proc, at, _, number), body in sorted(seen.items(), key=lambda item: item[0][2]):
        if datetime.fromisoformat(at) > known:
            break
        job, when = (int(cluster), int(proc)), datetime.fromisoformat(at).replace(tzinfo=zone)
        if number == "001":
            gpus = re.search(r"^\tGPUs = (\d+)", body, re.MULTILINE)
            begun[job] = when, int(gpus[1]) if gpus else 0
        elif job in begun:
            start, n = begun.pop(job)
            worth[job] += (when.timestamp() - start.timestamp()) * n
    for job, (start, n) in begun.items():
        worth[job] += (known.replace(tzinfo=zone).timestamp() - start.timestamp()) * n
    guessed = of.frames.executions[of.frames.executions.uncertain]
    for job in worth.keys() - set(zip(guessed.cluster, guessed.proc, strict=True)):
        yield Said(("GPU-seconds by job in all", *job), worth[job])


def generated_truth(of: Ensemble) -> Iterator[Said]:
    """What the generator of the first round knows of what it wrote."""
    if not of.case.is_the_first_round:
        return
    told = json.loads((of.path / "truth.json").read_text())
    for kind in KINDS:
        yield Said(("GPU-seconds", kind), told["gpu_seconds"].get(kind, 0))
        for month, row in told["by_month"].items():
            yield Said(("GPU-seconds by month", month, kind), row.get(kind, 0))
        for label, row in told["by_label"].items():
            yield Said(("GPU-seconds by label", label, kind), row.get(kind, 0))
    for family, listed in (("site", told["by_site"]), ("GPU", told["by_gpu"])):
        for name, row in listed.items():
            yield Said((f"executions by {family}", name), row["executions"])
            yield Said((f"completed epochs by {family}", name), row["completed"])
            for kind in KINDS:
                yield Said((f"GPU-seconds by {family}", name, kind), row.get(kind, 0))
    names = {run.run_name: run for run in of.frames.runs.itertuples()}
    for name, row in told["by_run"].items():
        what = (row["uuid"], name, names[name].dag)
        yield Said(("executions by run", *what), row["executions"])
        for kind in KINDS:
            yield Said(("GPU-seconds by run", *what, kind), row.get(kind, 0))
    for outcome, row in told["transfers"]["input"].items():
        yield Said(("input transfers", outcome), row["count"])
        yield Said(("seconds of input transfers", outcome), row["seconds"])
    yield Said(("output transfers",), told["transfers"]["output"]["ok"]["count"])
    yield Said(("seconds of output transfers",), told["transfers"]["output"]["ok"]["seconds"])
    yield Said(("bytes sent",), told["bytes"]["sent"])
    yield Said(("bytes received",), told["bytes"]["received"])
    yield Said(("hidden epochs",), len(told["hidden"]))
    yield Said(("GPU-seconds of longest attempts",), told["longest_gpu_seconds"])


# --- frames -----------------------------------------------------------------------------------


def sums(family: str, frame: pd.DataFrame, by: list[str]) -> Iterator[Said]:
    """GPU-seconds by kind, and executions, of each group."""
    for key, group in frame.groupby(by, dropna=False):
        name = tuple(map(named, key))
        yield Said((f"executions by {family}", *name), len(group))
        for kind in KINDS:
            worth = group.gpu_seconds[group.kind == kind].sum()
            yield Said((f"GPU-seconds by {family}", *name, kind), float(worth))


def tries(family: str, frame: pd.DataFrame, by: list[str]) -> Iterator[Said]:
    """How often the nodes of each group were tried: the procs of a submission together."""
    for key, group in frame.groupby(by, dropna=False):
        each = group.groupby(["in_dag", "node"]).attempt.max()
        yield Said((f"tries by {family}", *map(named, key)), int(each.sum()))


def executions_frame(of: Ensemble) -> Iterator[Said]:
    every = of.frames.executions
    for kind in KINDS:
        yield Said(("GPU-seconds", kind), float(every.gpu_seconds[every.kind == kind].sum()))
    yield Said(("GPU-seconds in all",), float(every.gpu_seconds.sum()))
    placed = every[~every.dagman]
    yield Said(("seconds in all",), float(placed.seconds.sum()))
    yield from sums("site", placed, ["site"])
    yield from sums("GPU", placed, ["gpu"])
    yield from sums("GPU, number and site", placed, ["gpu", "gpus", "site"])
    bad = every[every.kind == "bad"]
    yield from sums("cause", bad, ["cause", "code", "subcode"])
    yield from sums("code", bad, ["code", "subcode"])
    yield from sums("node", every[every.node.notna()], ["dag", "node"])
    yield from tries("node", every[every.node.notna()], ["dag", "node"])
    yield from sums("job", every, ["cluster", "proc"])
    yield from sums("model", placed.assign(model=placed.gpu.map(model)), ["model"])
    yield from sums("run's name", every[every.run.notna()], ["uuid", "run_name"])
    yield from sums("label", every[every.run.notna()], ["label"])
    runs = of.frames.runs[["run", "uuid", "run_name", "dag"]]
    owned = every.drop(columns=["uuid", "run_name", "dag"]).merge(runs, on="run")
    yield from sums("run", owned, ["uuid", "run_name", "dag"])
    yield from tries("run", owned, ["uuid", "run_name", "dag"])
    for family, column in (("site", "site"), ("GPU", "gpu")):
        for name, group in placed[placed.final].groupby(column, dropna=False):
            yield Said((f"completed epochs by {family}", named(name)), len(group))
    finals = placed[placed.final]
    for family, column in (("site", "site"), ("GPU", "gpu")):
        for name, group in finals.groupby(column, dropna=False):
            yield Said((f"median epoch by {family}", named(name)), float(group.seconds.median()))
        for name, group in placed[placed.wait_seconds.notna()].groupby(column, dropna=False):
            wait = float(group.wait_seconds.median())
            yield Said((f"median wait by {family}", named(name)), wait)
    good = placed[placed.kind == "good"]
    for name, group in good.groupby("site", dropna=False):
        yield Said(("median seconds by site", named(name)), float(group.seconds.median()))
    done = of.frames.epochs[of.frames.epochs.state == "completed"][["dag", "node"]]
    training = every.merge(done, on=["dag", "node"])
    longest = training.loc[training.groupby(["dag", "node"]).seconds.idxmax()]
    yield Said(("GPU-seconds of longest attempts",), float(longest.gpu_seconds.sum()))
    yield Said(("seconds of longest attempts",), float(longest.seconds.sum()))
    for job, group in every.groupby(["cluster", "proc"]):
        if not group.uncertain.any():
            yield Said(("GPU-seconds by job in all", *job), float(group.gpu_seconds.sum()))
    for e in every.itertuples():
        attempt = (e.cluster, e.proc, e.attempt)
        yield Said(("seconds by attempt", *attempt), e.seconds)
        if not math.isnan(e.gpu_seconds):
            yield Said(("GPU-seconds by attempt", *attempt), e.gpu_seconds)
        what = (e.cluster, e.proc, named(e.start.isoformat()))
        for name in ("seconds", "suspended_seconds", "gpus", "return_value", "signal", "code"):
            yield Said((f"execution's {name}", *what), named(getattr(e, name)))
        for name in ("site", "host", "gpu", "outcome", "reason"):
            yield Said((f"execution's {name}", *what), named(getattr(e, name)))
        yield Said(("execution's end", *what), None if e.end is pd.NaT else e.end.isoformat())


def months(of: Ensemble) -> Iterator[Said]:
    """Windows of the frames."""
    first, last = of.frames.executions.start.min(), of.frames.as_of
    assert last is not None
    month = first.replace(day=1, hour=0, minute=0, second=0)
    while month.replace(tzinfo=None) <= last:
        after = (month + pd.Timedelta(days=31)).replace(day=1)
        part = of.frames.windowed(str(month.date()), str(after.date())).executions
        yield Said(("executions by month", f"{month:%Y-%m}"), int(part.counted.sum()))
        for kind in KINDS:
            worth = float(part.gpu_seconds[part.kind == kind].sum())
            yield Said(("GPU-seconds by month", f"{month:%Y-%m}", kind), worth)
        month = after


def epochs_frame(of: Ensemble) -> Iterator[Said]:
    every = of.frames.epochs
    # An epoch that several DAGs have is told once: of the DAG that counts.
    for state, count in every[every.counts].state.value_counts().items():
        yield Said(("epochs by state", state), int(count))
    done = every[(every.state == "completed") & every.seconds.notna()]
    for family, column in (("site", "site"), ("GPU", "gpu")):
        for name, group in done.groupby(column, dropna=False):
            yield Said((f"completed epochs by {family}", named(name)), len(group))
    for gone in every.itertuples():
        what = (gone.dag, gone.node)
        yield Said(("epoch's state", *what), gone.state)
        yield Said(("epoch's attempts", *what), gone.attempts)
        yield Said(("epoch's jobs", *what), gone.jobs)
        yield Said(("tries by node", *what), gone.attempts)
        for kind in KINDS:
            hours = getattr(gone, f"gpu_hours_{kind}")
            yield Said(("GPU-seconds by node", *what, kind), hours * 3600, 1e-6)
    runs = of.frames.runs.set_index("run")
    for key, group in every[every.counts].groupby("run"):
        run = runs.loc[key]
        what = (named(run.uuid), run.run_name, run.dag)
        yield Said(("run's epochs_total", *what), len(group))
        yield Said(("run's epochs_done", *what), int((group.state == "completed").sum()))
        yield Said(("run's epochs_skipped", *what), int((group.state == "skipped").sum()))
    yield Said(("hidden epochs",), int(every.hidden.sum()))
    counting = every[every.counts]
    yield Said(("completed epochs",), int((counting.state == "completed").sum()))


LATEST: Final = ("node", "cluster", "proc", "state", "attempt", "target", "site", "gpu", "gpus")
RUN_COUNTS: Final = ("epochs_total", "epochs_done", "epochs_inferred", "epochs_skipped", "state")


def runs_frame(of: Ensemble) -> Iterator[Said]:
    for run in of.frames.runs.itertuples():
        what = (named(run.uuid), run.run_name, run.dag)
        for name in RUN_COUNTS:
            yield Said((f"run's {name}", *what), getattr(run, name))
        for name in LATEST:
            yield Said((f"latest epoch's {name}", *what), named(getattr(run, f"latest_{name}")))
        seconds = named(run.latest_seconds)
        yield Said(("latest epoch's seconds", *what), seconds)
        for kind in KINDS:
            hours = getattr(run, f"gpu_hours_{kind}")
            yield Said(("GPU-seconds by run", *what, kind), hours * 3600, 1e-6)


def transfers_frame(of: Ensemble) -> Iterator[Said]:
    every = of.frames.transfers
    inputs = every[every.direction == "input"]
    for outcome in ("ok", "aborted", "unfinished"):
        some = inputs[inputs.outcome == outcome]
        yield Said(("input transfers", outcome), len(some))
        timed = int(some.seconds.notna().sum())
        yield Said(("timed input transfers", outcome), timed)
        ended = some[some.start.notna() & some.end.notna()]
        yield Said(("seconds of input transfers", outcome), float(ended.seconds.sum()))
    outputs = every[(every.direction == "output") & (every.outcome == "ok") & every.start.notna()]
    yield Said(("output transfers",), len(outputs))
    yield Said(("seconds of output transfers",), float(outputs.seconds.sum()))
    for key, group in every.groupby(["cluster", "proc"]):
        yield Said(("transfers by job", *key), len(group))
        yield Said(("transfer seconds by job", *key), float(group.seconds.sum()))


def jobs_frame(of: Ensemble) -> Iterator[Said]:
    jobs = of.frames.jobs
    yield Said(("bytes sent",), int(jobs.bytes_sent.sum()))
    yield Said(("bytes received",), int(jobs.bytes_received.sum()))
    for job in jobs.itertuples():
        what = (job.cluster, job.proc)
        for name in JOB_FIELDS:
            yield Said((f"job's {name}", *what), named(getattr(job, name)))
        yield Said(("job's submitted", *what), job.submitted.isoformat())


JOB_FIELDS: Final = (
    *("state", "dag", "node", "uuid", "epoch", "target"),
    *("bytes_sent", "bytes_received", "memory_mb", "request_memory_mb"),
)


# --- the commands' JSON -----------------------------------------------------------------------


def kinds(what: str, name: What, told: dict[str, float]) -> Iterator[Said]:
    for kind in KINDS:
        if kind in told:
            yield Said((what, *name, kind), told[kind] * 3600, TO_THE_HOUR)


def status_json(of: Ensemble) -> Iterator[Said]:
    told = of.command("status")
    yield from kinds("GPU-seconds", (), told["gpu_hours"])
    for family, listed, field in (("site", "sites", "site"), ("GPU", "gpus", "gpu")):
        for row in told[listed]:
            name = (named(row[field]),)
            yield from kinds(f"GPU-seconds by {family}", name, row)
            yield Said((f"executions by {family}", *name), row["executions"])
            yield Said((f"completed epochs by {family}", *name), row["completed_epochs"])
    for row in told["sites"]:
        median = row["seconds_median"]
        yield Said(("median seconds by site", named(row["site"])), median, TO_THE_MILLISECOND)
    for row in told["causes"]:
        name = (named(row["cause"]), row["code"], row["subcode"])
        yield Said(("executions by cause", *name), row["executions"])
        yield Said(("GPU-seconds by cause", *name, "bad"), row["bad"] * 3600, TO_THE_HOUR)
    rows = [(row["code"], row["subcode"], row["executions"], row["bad"]) for row in told["causes"]]
    yield from by_code(rows)
    for outcome, row in told["transfers"]["input"].items():
        yield Said(("input transfers", outcome), row["n"])
        yield Said(("seconds of input transfers", outcome), row["seconds"], TO_THE_MILLISECOND)
    row = told["transfers"]["output"]
    yield Said(("output transfers",), row["n"])
    yield Said(("seconds of output transfers",), row["seconds"], TO_THE_MILLISECOND)
    yield Said(("bytes sent",), told["transfers"]["bytes_sent"])
    yield Said(("bytes received",), told["transfers"]["bytes_received"])
    for state, count in told["states"]["epochs"].items():
        yield Said(("epochs by state", state), count)
    yield Said(("completed epochs",), sum(run["epochs_done"] for run in told["runs"]))
    for run in told["runs"]:
        yield from one_run_json(run)


def one_run_json(run: dict[str, Any]) -> Iterator[Said]:
    what = (run["uuid"], named(run["run"]), named(run["dag"]))
    for name in RUN_COUNTS:
        yield Said((f"run's {name}", *what), run[name])
    for name in (*LATEST, "seconds"):
        value = named(run["latest"][name]) if run["latest"] else None
        yield Said((f"latest epoch's {name}", *what), value, TO_THE_MILLISECOND)
    yield from kinds("GPU-seconds by run", what, run["gpu_hours"])


def run_json(of: Ensemble) -> Iterator[Said]:
    for key in of.frames.runs.run:
        run = of.command("run", key)
        yield from one_run_json(run)
        tries = sum(node["attempts"] for node in (*run["epochs"], *run["side_nodes"]))
        what = (run["uuid"], named(run["run"]), named(run["dag"]))
        yield Said(("tries by run", *what), tries)
        for epoch in run["epochs"]:
            what = (named(epoch["dag"]), named(epoch["node"]))
            yield Said(("epoch's state", *what), epoch["state"])
            yield Said(("epoch's attempts", *what), epoch["attempts"])
            yield Said(("epoch's jobs", *what), " ".join(epoch["jobs"]))
        for node in (*run["epochs"], *run["side_nodes"]):
            what = (named(node["dag"]), named(node["node"]))
            yield Said(("tries by node", *what), node["attempts"])
            yield from kinds("GPU-seconds by node", what, node["gpu_hours"])


def jobs_json(of: Ensemble) -> Iterator[Said]:
    """Its executions, added up here, by nothing of metlmon's."""
    told = of.command("jobs")
    dagmans = {entry.job for entry in of.frames.ledger.jobs if entry.dagman}
    worth: defaultdict[What, float] = defaultdict(float)
    number: defaultdict[What, int] = defaultdict(int)
    for job in told["jobs"]:
        what = (job["cluster"], job["proc"])
        for name in JOB_FIELDS:
            yield Said((f"job's {name}", *what), named(job[name]))
        yield Said(("job's submitted", *what), job["submitted"])
        yield Said(("transfers by job", *what), len(job["transfers"]))
        lasted = sum(t["seconds"] or 0 for t in job["transfers"])
        off = len(job["transfers"]) * TO_THE_MILLISECOND
        yield Said(("transfer seconds by job", *what), lasted, off)
        for e in job["executions"]:
            here = (*what, e["start"])
            yield Said(("execution's seconds", *here), e["seconds"], TO_THE_MILLISECOND)
            yield Said(("execution's suspended_seconds", *here), e["suspended"], TO_THE_MILLISECOND)
            for name in ("gpus", "return_value", "signal", "code", "end"):
                yield Said((f"execution's {name}", *here), e[name])
            for name in ("site", "host", "gpu", "outcome", "reason"):
                yield Said((f"execution's {name}", *here), named(e[name]))
            kind = {"good": "good", "in-flight": "in_flight"}.get(e["outcome"], "bad")
            groups: list[What] = [("job", *what)]
            if job["node"] is not None:
                groups.append(("node", named(job["dag"]), named(job["node"])))
            if kind == "bad":
                groups.append(("code", e["code"], e["subcode"]))
            if what not in dagmans:
                site, gpu = named(e["site"]), named(e["gpu"])
                groups += [("site", site), ("GPU", gpu)]
                groups.append(("GPU, number and site", gpu, e["gpus"], site))
            worth[("GPU-seconds", kind)] += e["seconds"] * (e["gpus"] or 0)
            for family, *name in groups:
                number[(f"executions by {family}", *name)] += 1
                worth[(f"GPU-seconds by {family}", *name, kind)] += e["seconds"] * (e["gpus"] or 0)
    for what, seconds in worth.items():
        yield Said(what, seconds, TO_THE_MILLISECOND)
    for what, n in number.items():
        yield Said(what, n)
    by_node: defaultdict[What, dict[int, int]] = defaultdict(dict)
    for job in told["jobs"]:
        if job["node"] is not None and job["executions"]:
            of_node = by_node[("tries by node", named(job["dag"]), named(job["node"]))]
            of_node[job["cluster"]] = max(of_node.get(job["cluster"], 0), len(job["executions"]))
    for what, by_cluster in by_node.items():
        yield Said(what, sum(by_cluster.values()))


# --- figures ----------------------------------------------------------------------------------


def places_figure(of: Ensemble) -> Iterator[Said]:
    """What the Sites screen shows."""
    told: Usage = site_usage(of.basis)
    for family, listed in (("site", told.sites), ("GPU", told.gpus)):
        for place in listed:
            yield from one_place(family, place)
    for cell in told.site_gpus:
        name = (named(cell.gpu), cell.gpus, named(cell.site))
        yield Said(("executions by GPU, number and site", *name), cell.totals.executions)
        for kind in KINDS:
            worth = getattr(cell.totals, kind)
            yield Said(("GPU-seconds by GPU, number and site", *name, kind), worth)
    yield Said(("hidden epochs",), len(told.hidden))
    yield Said(("bytes sent",), told.total.input.sent)
    yield Said(("bytes received",), told.total.input.received)
    inputs = told.total.input
    yield Said(("timed input transfers", "ok"), inputs.ok.n)
    yield Said(("input transfers", "aborted"), inputs.aborted)
    yield Said(("input transfers", "unfinished"), inputs.unfinished)


def one_place(family: str, place: GroupUsage) -> Iterator[Said]:
    name = named(place.name)
    yield Said((f"executions by {family}", name), place.totals.executions)
    yield Said((f"completed epochs by {family}", name), place.totals.completed)
    yield Said((f"median epoch by {family}", name), place.epoch.median)
    yield Said((f"median wait by {family}", name), place.wait.median)
    for kind in KINDS:
        yield Said((f"GPU-seconds by {family}", name, kind), getattr(place.totals, kind))


def sites_json(of: Ensemble) -> Iterator[Said]:
    told = of.command("sites")
    for family, listed, field in (("site", "sites", "site"), ("GPU", "gpus", "gpu")):
        for row in told[listed]:
            name = named(row[field])
            yield from kinds(f"GPU-seconds by {family}", (name,), row)
            yield Said((f"executions by {family}", name), row["executions"])
            yield Said((f"completed epochs by {family}", name), row["completed_epochs"])
            for what, field_of in (("epoch", "epoch_seconds"), ("wait", "wait_seconds")):
                median = row[field_of]["median"]
                yield Said((f"median {what} by {family}", name), median, TO_THE_MILLISECOND)
    for row in told["site_gpu"]:
        cell = (named(row["gpu"]), row["gpus"], named(row["site"]))
        yield from kinds("GPU-seconds by GPU, number and site", cell, row)
        yield Said(("executions by GPU, number and site", *cell), row["executions"])
    rows = [(row["code"], row["subcode"], row["executions"], row["bad"]) for row in told["causes"]]
    yield from by_code(rows)
    yield Said(("hidden epochs",), len(told["hidden_epochs"]))
    yield from kinds("GPU-seconds", (), told["total"])
    yield Said(("bytes sent",), told["total"]["input"]["bytes_sent"])
    yield Said(("bytes received",), told["total"]["input"]["bytes_received"])


def by_code(rows: Iterable[tuple[int | None, int | None, int, float]]) -> Iterator[Said]:
    """Executions and GPU-hours of causes, added up by code: what has none goes together."""
    codes: defaultdict[What, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for code, subcode, executions, hours in rows:
        for i, value in enumerate((executions, hours * 3600, TO_THE_HOUR)):
            codes[code, subcode][i] += value
    for what, (executions, bad, off) in codes.items():
        yield Said(("executions by code", *what), executions)
        yield Said(("GPU-seconds by code", *what, "bad"), bad, off)


# --- the report -------------------------------------------------------------------------------


def report_json(of: Ensemble) -> Iterator[Said]:
    told = of.command("report")
    totals = told["totals"]
    yield from kinds("GPU-seconds", (), totals)
    yield Said(("completed epochs",), totals["epochs"])
    yield Said(("seconds of longest attempts",), totals["longest_hours"] * 3600, TO_THE_HOUR)
    yield Said(("bytes sent",), totals["bytes_from_jobs"])
    yield Said(("bytes received",), totals["bytes_to_jobs"])
    for family, listed, field in (
        *(("site", "sites", "site"), ("model", "gpus", "gpu")),
        *(("month", "periods", "period"), ("label", "labels", "label")),
    ):
        for row in told.get(listed, {"rows": []})["rows"]:
            name = named(row[field])
            if family == "month":
                name = month_of(row[field])
                if name is None:
                    continue
            if "executions" not in row:
                # Epochs that were completed without any execution: at no site, on no GPU.
                continue
            yield from kinds(f"GPU-seconds by {family}", (name,), row)
            yield Said((f"executions by {family}", name), row["executions"])
            if family == "site":
                yield Said(("completed epochs by site", name), row["epochs"])
    names: defaultdict[What, list[dict[str, Any]]] = defaultdict(list)
    for row in told["runs"]["rows"]:
        if "uuid" in row:  # not what is of no run
            names[row["uuid"], named(row["run"])].append(row)
    for name, rows in names.items():
        yield Said(("executions by run's name", *name), sum(r["executions"] for r in rows))
        for kind in KINDS:
            worth = sum(row.get(kind, 0.0) for row in rows) * 3600
            yield Said(("GPU-seconds by run's name", *name, kind), worth, TO_THE_HOUR * len(rows))
    rows = told.get("causes", {"rows": []})["rows"]
    yield from by_code((*code_of(r["code"]), r["executions"], r["gpu_hours"]) for r in rows)
    for row in told["transfers"]["rows"]:
        if row["direction"] == "input" and row["outcome"] != "in-flight":
            yield Said(("input transfers", row["outcome"]), row["n"])
            seconds = row["hours"] * 3600
            yield Said(("seconds of input transfers", row["outcome"]), seconds, TO_THE_HOUR)


def month_of(told: str) -> str | None:
    """``2025-09`` of ``September 2025``; None of a day or a week."""
    try:
        return datetime.strptime(told, "%B %Y").strftime("%Y-%m")
    except ValueError:
        return None


def code_of(told: str | None) -> tuple[int | None, int | None]:
    found = re.fullmatch(r"(-?\d+)(?:/(-?\d+))?", told or "")
    return (int(found[1]), int(found[2]) if found[2] else None) if found else (None, None)


def timeline_json(of: Ensemble) -> Iterator[Said]:
    told = of.command("timeline")["concurrency"]
    yield Said(("GPU-seconds in all",), told["gpu_seconds"], TO_THE_MILLISECOND)
    yield Said(("seconds in all",), told["job_seconds"], TO_THE_MILLISECOND)


# --- what is printed and painted --------------------------------------------------------------


def status_printed(of: Ensemble) -> Iterator[Said]:
    return painted.hours_line(of.printed("status", str(of.path), "--ascii"))


def report_markdown(of: Ensemble) -> Iterator[Said]:
    return painted.report(painted.markdown_tables(of.printed("report", str(of.path), "--md", "-")))


def report_html(of: Ensemble) -> Iterator[Said]:
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "report.html"
        of.printed("report", str(of.path), "--html", str(file))
        return painted.report(painted.html_tables(file.read_text(encoding="utf-8")))


def screens(of: Ensemble) -> Iterator[Said]:
    runs = {run.run: run for run in of.frames.runs.itertuples()}
    return painted.screens(
        painted.screen_tables(of.path, of.frames.as_of if of.case.as_of else None), runs
    )


# --- who must tell what -----------------------------------------------------------------------

SOURCES: Final[dict[str, Source]] = {
    "logs": raw_logs,
    "truth": generated_truth,
    "windows": months,
    "frame executions": executions_frame,
    "frame epochs": epochs_frame,
    "frame runs": runs_frame,
    "frame transfers": transfers_frame,
    "frame jobs": jobs_frame,
    "status --json": status_json,
    "run --json": run_json,
    "jobs --json": jobs_json,
    "sites": places_figure,
    "sites --json": sites_json,
    "report --json": report_json,
    "timeline --json": timeline_json,
    "status": status_printed,
    "report --md": report_markdown,
    "report --html": report_html,
    "screens": screens,
}

EXECUTIONS: Final = {"frame executions", "jobs --json"}
PLACES: Final = {"sites", "sites --json"}
REPORTS: Final = {"report --json", "report --md", "report --html"}
TOLD_BY: Final[dict[str, set[str]]] = {
    "GPU-seconds": {*EXECUTIONS, "status --json", "sites --json", "report --json"},
    "GPU-seconds in all": {"frame executions", "timeline --json"},
    "seconds in all": {"frame executions", "timeline --json"},
    "GPU-seconds by site": {*EXECUTIONS, *PLACES, "status --json", "screens", *REPORTS},
    "GPU-seconds by GPU": {*EXECUTIONS, *PLACES, "status --json", "screens"},
    "GPU-seconds by model": {"frame executions", *REPORTS},
    "GPU-seconds by GPU, number and site": {*EXECUTIONS, *PLACES},
    "GPU-seconds by cause": {"frame executions", "status --json"},
    "GPU-seconds by code": {*EXECUTIONS, "status --json", "sites --json", "report --json"},
    "GPU-seconds by run's name": {"frame executions", "report --json"},
    "GPU-seconds by attempt": {"frame executions"},
    "seconds by attempt": {"frame executions"},
    "executions by run's name": {"frame executions", "report --json"},
    "executions by model": {"frame executions", "report --json"},
    "executions by label": {"frame executions"},
    "executions by month": {"windows"},
    "median epoch by site": {"frame executions", *PLACES},
    "median epoch by GPU": {"frame executions", *PLACES},
    "median wait by site": {"frame executions", *PLACES},
    "median wait by GPU": {"frame executions", *PLACES},
    "completed epochs": {"frame epochs", "status --json", "report --json"},
    "seconds of longest attempts": {"frame executions", "report --json"},
    "GPU-seconds by run": {"frame executions", "frame runs", "status --json", "run --json"},
    "GPU-seconds by node": EXECUTIONS,
    "GPU-seconds by job": EXECUTIONS,
    "GPU-seconds by job in all": {"frame executions", "logs"},
    "executions by site": {*EXECUTIONS, *PLACES, "status --json", "report --json"},
    "executions by GPU": {*EXECUTIONS, *PLACES, "status --json"},
    "executions by GPU, number and site": {*EXECUTIONS, *PLACES},
    "executions by cause": {"frame executions", "status --json"},
    "executions by code": {*EXECUTIONS, "status --json", "sites --json", "report --json"},
    "executions by node": EXECUTIONS,
    "executions by run": {"frame executions"},
    "tries by node": EXECUTIONS,
    "tries by run": {"frame executions", "run --json"},
    "executions by job": EXECUTIONS,
    "completed epochs by site": {"frame executions", "frame epochs", "status --json", *PLACES},
    "completed epochs by GPU": {"frame executions", "frame epochs", "status --json", *PLACES},
    "median seconds by site": {"frame executions", "status --json"},
    "epochs by state": {"frame epochs", "status --json"},
    "GPU-seconds by month": {"windows"},
    "GPU-seconds by label": {"frame executions"},
    "GPU-seconds of longest attempts": {"frame executions"},
    "hidden epochs": {"frame epochs", *PLACES},
    "input transfers": {"frame transfers", "status --json", "report --json"},
    "timed input transfers": {"frame transfers"},
    "seconds of input transfers": {"frame transfers", "status --json", "report --json"},
    "output transfers": {"frame transfers", "status --json"},
    "seconds of output transfers": {"frame transfers", "status --json"},
    "transfers by job": {"frame transfers", "jobs --json"},
    "transfer seconds by job": {"frame transfers", "jobs --json"},
    "bytes sent": {"frame jobs", "status --json", "report --json", *PLACES},
    "bytes received": {"frame jobs", "status --json", "report --json", *PLACES},
    "run's epochs_total": {"frame runs", "frame epochs", "status --json", "run --json"},
    "run's epochs_done": {"frame runs", "frame epochs", "status --json", "run --json"},
    "run's epochs_skipped": {"frame runs", "frame epochs", "status --json", "run --json"},
    "run's epochs_inferred": {"frame runs", "status --json", "run --json"},
    "run's state": {"frame runs", "status --json", "run --json"},
    "epoch's state": {"frame epochs"},
    "epoch's attempts": {"frame epochs"},
    "epoch's jobs": {"frame epochs"},
    **{
        f"latest epoch's {name}": {"frame runs", "status --json", "run --json"}
        for name in (*LATEST, "seconds")
    },
    **{f"job's {name}": {"frame jobs", "jobs --json"} for name in (*JOB_FIELDS, "submitted")},
    **{
        f"execution's {name}": EXECUTIONS
        for name in (
            *("seconds", "suspended_seconds", "gpus", "return_value", "signal", "code", "end"),
            *("site", "host", "gpu", "outcome", "reason"),
        )
    },
}
"""Families of numbers, and who must tell each number of them that is not nought. Others may."""


SOME_TOLD_BY: Final[dict[str, set[str]]] = {
    "GPU-seconds": {"report --md", "report --html", "status"},
    "GPU-seconds by run": {"screens"},
    "GPU-seconds by node": {"screens", "run --json"},
    "GPU-seconds by code": {"screens"},
    "GPU-seconds by GPU, number and site": {"screens"},
    "GPU-seconds by label": {"report --json"},
    "completed epochs by site": {"screens", "report --json"},
    "completed epochs by GPU": {"screens"},
    "tries by node": {"screens", "run --json"},
    "executions by site": {"report --md", "report --html", "screens"},
    "GPU-seconds by attempt": {"screens"},
    "seconds by attempt": {"screens"},
    "median epoch by site": {"screens"},
    "median wait by site": {"screens"},
    "run's epochs_done": {"screens"},
    "epoch's state": {"run --json"},
    "epoch's jobs": {"run --json"},
    "timed input transfers": {"sites"},
}
"""Who tells some of a family: a screen shows one run's epochs, and nothing in flight of a run."""


def agree(a: Said, b: Said) -> bool:
    if isinstance(a.value, int | float) and isinstance(b.value, int | float):
        return math.isclose(a.value, b.value, rel_tol=1e-12, abs_tol=a.off + b.off + 1e-9)
    return a.value == b.value


def differing(told: dict[str, list[Said]]) -> list[str]:
    """Everything in which sources differ, or that one leaves out."""
    by_what: defaultdict[What, dict[str, Said]] = defaultdict(dict)
    complaints = []
    for where, listed in told.items():
        for said in listed:
            before = by_what[said.what].setdefault(where, said)
            if not agree(before, said):
                complaints.append(f"{where} says two things of {said.what}: {before}, {said}")
    for what, by_source in by_what.items():
        family = str(what[0])
        if family not in TOLD_BY:
            complaints.append(f"{family}: nobody is to tell that")
            continue
        (first, one), *others = by_source.items()
        complaints += [
            f"{what}: {first} says {one.value!r}, {other} says {said.value!r}"
            for other, said in others
            if not agree(one, said)
        ]
        nothing = all(not said.value for said in by_source.values())
        missing = sorted((TOLD_BY[family] & told.keys()) - by_source.keys())
        if missing and not nothing:
            complaints.append(f"{what}: {', '.join(missing)} leave it out; others: {by_source}")
    return complaints


@cache
def everything_said(case: Case) -> dict[str, list[Said]]:
    of = ensemble(case)
    return {where: list(source(of)) for where, source in SOURCES.items()}


EACH = pytest.mark.parametrize("case", CASES, ids=str)


@EACH
def test_all_sources_agree_on_every_number(case: Case) -> None:
    told = everything_said(case)
    complaints = differing(told)
    assert not complaints, "\n".join(complaints[:20])


def test_they_agree_on_a_run_that_its_gate_stopped(tmp_path: Path) -> None:
    path = tmp_path / "stopped"
    shutil.copytree(FIXTURES / "scripts", path)
    dag = (path / "ens.dag").read_text(encoding="utf-8")
    asked = "gate.sh ens.gate.json 978269ce $JOB"
    lines = [
        re.sub("gate.sh .*", asked, line) if line.startswith("SCRIPT PRE run1-") else line
        for line in dag.splitlines()
    ]
    (path / "ens.dag").write_text("\n".join(lines) + "\n", encoding="utf-8")
    stopped = path / "gate" / "ens" / "978269ce.stopped"
    stopped.parent.mkdir(parents=True)
    said = {"schema": 1, "epoch": 2, "rule": "patience", "reason": "it stands still"}
    stopped.write_text(json.dumps(said), encoding="utf-8")
    told = everything_said(Case(path))
    run = next(row for row in ensemble(Case(path)).frames.status.runs if row.run == "run1")
    assert run.gate is not None
    assert run.gate.stopped is not None
    assert run.epochs_skipped == 2
    assert differing(told) == []
    before = everything_said(Case(FIXTURES / "scripts"))
    for where in ("frame executions", "status --json", "report --json", "screens"):
        assert told[where] == before[where], "a word of its gate changes no number"


def of_no_cohort(case: Case) -> bool:
    return bool(ensemble(case).frames.runs.label.isna().all())


@EACH
def test_every_source_has_its_say(case: Case) -> None:
    told = everything_said(case)
    for family, sources in TOLD_BY.items():
        # An ensemble may have no bad end, no cohort, no output that was transferred.
        nothing = not any(s.value for each in told.values() for s in each if s.what[0] == family)
        nothing |= family == "GPU-seconds by label" and of_no_cohort(case)
        for where in sources | SOME_TOLD_BY.get(family, set()):
            found = any(said.what[0] == family for said in told[where])
            assert found or nothing, (family, where)
    if case.is_the_first_round:
        for family in ("month", "label"):
            assert any(said.what[0] == f"GPU-seconds by {family}" for said in told["report --json"])
            assert any(said.what[0] == f"GPU-seconds by {family}" for said in told["truth"])
    few = {where for where, listed in told.items() if len(listed) < 5}
    few -= {"timeline --json", "status"}
    # Only one ensemble was generated; most were over within a month.
    assert few <= ({"windows"} if case.is_the_first_round else {"windows", "truth"})
    assert told["timeline --json"]
    assert told["status"]


def test_a_second_that_differs_is_found() -> None:
    told = dict(everything_said(Case(FIXTURES / "rescue")))
    assert not differing(told)
    for where, listed in told.items():
        numbers = [i for i, said in enumerate(listed) if isinstance(said.value, int | float)]
        if where in ("truth", "windows"):
            continue
        for i in (numbers[0], numbers[-1]):
            said = listed[i]
            wrong = [*listed]
            far = said.value + 1 + 4 * said.off  # type: ignore[operator]
            wrong[i] = Said(said.what, far, said.off)
            assert differing({**told, where: wrong}), (where, said)
    without = [said for said in told["status --json"] if said.what[0] != "GPU-seconds by site"]
    assert any("leave it out" in each for each in differing({**told, "status --json": without}))


# --- conservation -----------------------------------------------------------------------------


@EACH
def test_parts_sum_to_the_whole_to_the_second(case: Case) -> None:
    frames = ensemble(case).frames
    every = frames.executions
    total = every.gpu_seconds.sum()
    assert total > 0
    status = frames.status
    assert total == pytest.approx(status.gpu_hours.total * 3600, abs=1e-3)
    for parts in (["site"], ["gpu"], ["gpu", "gpus", "site"], ["dag", "node"], ["run"], ["label"]):
        assert every.groupby(parts, dropna=False).gpu_seconds.sum().sum() == total
    bad = every[every.kind == "bad"]
    causes = bad.groupby(["cause", "code", "subcode"], dropna=False).gpu_seconds.sum().sum()
    assert bad.cause.notna().all()
    good, flying = (every.gpu_seconds[every.kind == kind].sum() for kind in ("good", "in_flight"))
    assert causes + good + flying == pytest.approx(total, abs=1e-6)
    spent = [row.gpu_hours.total * 3600 for row in (*status.sites,)]
    assert sum(spent) == pytest.approx(total, abs=1e-3)
    assert sum(row.gpu_hours.total * 3600 for row in status.gpus) == pytest.approx(total, abs=1e-3)
    assert sum(row.bad * 3600 for row in status.causes) == pytest.approx(causes, abs=1e-3)
    for column in ("bytes_sent", "bytes_received"):
        by_job = every.groupby(["cluster", "proc"])[column].sum()
        whole = frames.jobs.set_index(["cluster", "proc"])[column].fillna(0)
        assert (by_job == whole.reindex(by_job.index)).all()
