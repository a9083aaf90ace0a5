"""A recorded ensemble counted again from the text of its files, without metlmon's code, so that no
mistake is made twice. Seconds are GPU-seconds unless stated otherwise."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.stats.recomputed_usage import events

ENDS = {4: "evicted", 5: "", 7: "lost", 9: "removed", 12: "held", 24: "lost"}


@dataclass(slots=True)
class Execution:
    """One execution; ``end`` None while it runs."""

    start: datetime
    gpus: int
    site: str | None
    end: datetime | None = None
    how: str = "in_flight"

    def spent(self, now: datetime) -> float:
        return ((self.end or now) - self.start).total_seconds() * self.gpus


@dataclass(slots=True)
class Job:
    node: str
    over: str = ""
    ran: list[Execution] = field(default_factory=list)


class Recount:
    """A whole dagdir at the time ``now`` (None: the end of its logs)."""

    def __init__(self, dagdir: Path, now: datetime | None = None) -> None:
        self.dagdir = dagdir
        self.jobs: dict[tuple[int, int], Job] = {}
        self.moments: list[datetime] = []
        for number, job, when, body in events((dagdir / "metl.log").read_text()):
            if now is None or when <= now:
                self.moments.append(when)
                cluster, proc = job.split(".")
                self._apply(int(number), (int(cluster), int(proc)), when, body)
        self.now = now or max(self.moments)
        self.uuids: dict[str, str] = {}
        self.gpu_seconds: Counter[str] = Counter()
        self.runs: dict[str, Counter[str]] = defaultdict(Counter)
        self.sites: dict[str | None, Counter[str]] = defaultdict(Counter)
        local: set[str] = set()
        for path in dagdir.glob("*.dag"):
            self.uuids |= dict(re.findall(r'VARS (\S+) .*run_uuid="([^"]+)"', path.read_text()))
            for node, submit in re.findall(r"^PROVISIONER (\S+) (\S+)", path.read_text(), re.M):
                if re.search(r"^universe = local$", (dagdir / submit).read_text(), re.M):
                    local.add(node)
        # Jobs of the access point occupy no slot.
        for each in (job for job in self.jobs.values() if job.node not in local):
            for ran in each.ran:
                kind = ran.how if ran.how in ("good", "in_flight") else "bad"
                spent = ran.spent(self.now)
                sums = (self.gpu_seconds, self.runs[self.uuids.get(each.node, "")])
                for into in (*sums, self.sites[ran.site]):
                    into[kind] += spent
                self.sites[ran.site]["executions"] += 1

    def _apply(self, number: int, key: tuple[int, int], when: datetime, body: str) -> None:
        if number == 0:
            named = re.search(r"DAG Node: (\S+)", body)
            self.jobs[key] = Job(named.group(1) if named else "")
            return
        job = self.jobs[key]
        last = job.ran[-1] if job.ran and job.ran[-1].end is None else None
        if number == 1:
            gpus = re.search(r"^\tGPUs = (\d+)", body, re.M)
            site = re.search(r'^\tGLIDEIN_ResourceName = "(.+)"', body, re.M)
            job.ran.append(Execution(when, int(gpus[1]) if gpus else 0, site[1] if site else None))
        elif number in ENDS:
            how = ENDS[number] or ("good" if "(return value 0)" in body else "failed")
            if last is not None:
                last.end, last.how = when, how
            if number in (5, 9):
                job.over = how

    # --- epochs -------------------------------------------------------------------------------

    def completed(self) -> dict[str, list[Execution]]:
        """Nodes whose processes of the last submission all ended with 0, with the last execution of
        each."""
        found: dict[str, list[Execution]] = {}
        for node in {job.node for job in self.jobs.values()}:
            own = {key: job for key, job in self.jobs.items() if job.node == node}
            last = [job for key, job in own.items() if key[0] == max(own)[0]]
            if all(job.over == "good" for job in last):
                found[node] = [job.ran[-1] for job in last]
        return found

    def epochs_of(self, uuid: str) -> set[str]:
        return {n for n, of in self.uuids.items() if of == uuid and "train_epoch" in n}

    def skipped(self) -> set[str]:
        """Nodes skipped by their PRE scripts by DAGMan's jobstate logs, and completed by no DAG."""
        found = set()
        for path in self.dagdir.glob("*.jobstate.log"):
            for line in path.read_text().splitlines():
                when, node, what, *_ = line.split()
                result = datetime.fromtimestamp(int(when), UTC).replace(tzinfo=None)
                if what == "PRESKIP" and result <= self.now:
                    found.add(node)
        return found - set(self.completed())

    # --- stops --------------------------------------------------------------------------------

    def stops(self, dag: str) -> list[dict[str, Any]]:
        """The stops that the gate of a DAG logged."""
        paths = sorted((self.dagdir / "gate" / dag).glob("*.stopped"))
        return [json.loads(path.read_bytes()) for path in paths]
