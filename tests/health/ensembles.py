"""Ensembles in trouble: DAG files and job event logs in HTCondor's own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from metlmon.health.build import make_health
from metlmon.health.types import Health, HealthEntry
from metlmon.live.feed import StatsInput
from tests.support.dagdir_builder import Dagdir
from tests.support.records import stats_input

HOST = "<10.0.0.1:9618?addrs=10.0.0.1-9618&alias=c1.example.org>"
START = datetime(2026, 1, 1, 8, 0, 0)

POLICY = "(JobStatus == 5 && time() - EnteredCurrentStatus > 3600 * 24 * 30)"
REMOVED_BY_POLICY = (
    f"The system macro SYSTEM_PERIODIC_REMOVE expression '{POLICY}' evaluated to TRUE"
)
REMOVED_WITH_DAG = "DAG Removed: User removed scheduler job from queue. (by user anna)"


class EventLog:
    """A job event log, written event by event."""

    def __init__(self, start: datetime = START) -> None:
        self.time = start
        self._cluster = 100
        self.texts: list[str] = []

    def add(self, number: str, cluster: int, text: str, hours: float = 0.0) -> None:
        """Add an event, ``hours`` after the one before."""
        self.time += timedelta(hours=hours)
        self.texts.append(
            f"{number} ({cluster}.000.000) {self.time:%Y-%m-%d %H:%M:%S} {text}\n...\n"
        )

    def submit(self, node: str, hours: float = 0.0) -> int:
        """Submit a job of a node; returns its cluster."""
        self._cluster += 1
        text = f"Job submitted from host: {HOST}\n    DAG Node: {node}"
        self.add("000", self._cluster, text, hours)
        return self._cluster

    def execute(
        self, cluster: int, site: str = "Anvil", hours: float = 0.1, host: str = "c1"
    ) -> None:
        text = (
            f"Job executing on host: {HOST}\n\tSlotName: slot1@{host}.{site.lower()}.example.org\n"
            f'\tGLIDEIN_ResourceName = "{site}"\n\tCpus = 1\n\tGPUs = 1'
        )
        self.add("001", cluster, text, hours)

    def end(self, cluster: int, value: int = 0, hours: float = 2.0) -> None:
        text = f"Job terminated.\n\t(1) Normal termination (return value {value})"
        self.add("005", cluster, text, hours)

    def evict(self, cluster: int, code: int, reason: str, hours: float = 2.0) -> None:
        text = f"Job was evicted. Code {code} Subcode 0\n\tReason: {reason}"
        self.add("004", cluster, text, hours)

    def hold(
        self, cluster: int, reason: str, code: int, subcode: int = 0, hours: float = 2.0
    ) -> None:
        text = f"Job was held.\n\t{reason}\n\tCode {code} Subcode {subcode}"
        self.add("012", cluster, text, hours)

    def release(self, cluster: int, hours: float = 1.0) -> None:
        self.add("013", cluster, "Job was released.\n\tvia condor_release (by user anna)", hours)

    def remove(self, cluster: int, reason: str, hours: float = 0.0) -> None:
        self.add("009", cluster, f"Job was aborted.\n\t{reason}", hours)

    def train(self, node: str, site: str = "Anvil") -> None:
        """Run a node whose job succeeds."""
        cluster = self.submit(node)
        self.execute(cluster, site)
        self.end(cluster)

    def bytes(self) -> bytes:
        return "".join(self.texts).encode()


def chains(epochs: Mapping[str, int], retry: int = 0, extra: str = "") -> str:
    """A DAG of runs with so many epochs each, in chains."""
    lines = ["SUBMIT-DESCRIPTION train {\n    executable = train.sh\n    log = metl.log\n}"]
    for run, total in epochs.items():
        nodes = [f"{run}-train_epoch{number}" for number in range(total)]
        for number, node in enumerate(nodes):
            lines.append(f"JOB {node} train")
            lines.append(f'VARS {node} run_uuid="{run}aaaa-0000" epoch="{number + 1}"')
            if retry:
                lines.append(f"RETRY {node} {retry}")
        lines += [f"PARENT {a} CHILD {b}" for a, b in pairwise(nodes)]
    return "\n".join([*lines, extra]) + "\n"


def write(path: Path, dag: str, log: EventLog) -> Dagdir:
    dagdir = Dagdir(path, dag)
    dagdir.write("metl.log", log.bytes())
    return dagdir


def health_of(dagdir: Dagdir, as_of: datetime | None = None) -> Health:
    """The health of the files; the ensemble is live if ``as_of`` is given."""
    return make_health(input_of(dagdir, as_of))


def input_of(dagdir: Dagdir, as_of: datetime | None = None) -> StatsInput:
    reader = dagdir.reader(as_of, live=True if as_of is not None else None)
    return stats_input(reader.snapshot_builder(), dagdir.path)


def only(health: Health, kind: str, *, is_open: bool = True) -> HealthEntry:
    entries = [e for e in health.entries if e.kind == kind and e.open is is_open]
    assert len(entries) == 1, health.entries
    return entries[0]


def kinds(health: Health) -> Sequence[str]:
    """The kinds of the open entries, in their order."""
    return [entry.kind for entry in health.open_entries]


HOLDS = {
    47: ("The job exceeded allowed execute duration of 3+00:00:00", 0),
    32: ("TransferInputSizeMB (5069) is greater than MAX_TRANSFER_INPUT_MB (5000) at submit", 0),
    12: ("Transfer output files failure at access point ap40 while receiving files", 11),
}
QUOTA = ("Error from slot1@c1: SHADOW at ap1 failed to write: (errno 122) Disk quota exceeded", 122)
HELD_RUNS = {
    47: ("run0", "run5", "run8"),
    32: ("run4", "run6"),
    12: ("run1", "run9"),
    122: ("run2", "run3", "run7"),
}


def removed_after_hold(path: Path, epochs: int = 4) -> Dagdir:
    """Ten runs with an epoch each; the second one was held and removed after thirty days."""
    log = EventLog()
    runs = {f"run{number}": epochs for number in range(10)}
    for run in runs:
        log.train(f"{run}-train_epoch0")
    clusters = {run: log.submit(f"{run}-train_epoch1") for run in runs}
    for code, held in HELD_RUNS.items():
        for run in held:
            reason, subcode = QUOTA if code == 122 else HOLDS[code]
            log.execute(clusters[run])
            log.hold(clusters[run], reason, 12 if code == 122 else code, subcode)
    log.time += timedelta(days=31)
    for run in runs:
        log.remove(clusters[run], REMOVED_BY_POLICY, hours=0.01)
    return write(path, chains(runs), log)
