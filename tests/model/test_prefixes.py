"""Any prefix of the logs, in any chunks and any order of files, gives the result of that prefix
read whole; and no event counts before it is complete."""

from __future__ import annotations

import random
import shutil
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from metlmon.dagman.dagman_out import OutState, read_dagman_out
from metlmon.dagman.reports import read_jobstate
from metlmon.eventlog.events import Position
from metlmon.eventlog.reader import parse, parse_fast
from metlmon.live.discovery import discover_dags, discover_logs
from metlmon.model.dag import Dag
from metlmon.model.ensemble import Ensemble
from metlmon.model.model_state import Batch, LogStats
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.derive import Derivation
from metlmon.text.record_json import json_of
from tests.conftest import SHARED, Shared
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Log
from tests.support.recordings import FIXTURES, writable_copy

SMALL = [
    path
    for path in (
        SHARED / "examples/pool-ensemble",
        *(FIXTURES / name for name in ("rescue", "shared-log", "scripts", "holds", "gated")),
    )
    if path.is_dir()
]

DIRS = pytest.mark.parametrize("dagdir", SMALL, ids=lambda path: path.name)

SEPARATOR = b"\n...\n"

Facts = dict[str, Any]


# --- the growing files of a dagdir, in memory ---------------------------------------------


class LogFiles:
    """The growing files of a dagdir, and a model that reads them piece by piece."""

    def __init__(self, dagdir: Path) -> None:
        self.dagdir = dagdir
        found = discover_dags(dagdir)
        self.logs = {log.name: log for log in discover_logs(dagdir, found.dags).logs}
        self.data = {name: log.path.read_bytes() for name, log in self.logs.items()}
        self.outs: dict[str, str] = {}
        self.jobstates: dict[str, str] = {}
        for dag in found.dags:
            for name, owners in (
                (f"{dag.key}.dagman.out", self.outs),
                (dag.workflow.jobstate_log, self.jobstates),
            ):
                if name and (dagdir / name).exists():
                    self.data[name] = (dagdir / name).read_bytes()
                    owners[name] = dag.key


class Model:
    """A model read as by the reader, with the length of each file given."""

    def __init__(self, files: LogFiles) -> None:
        self.files = files
        self.ensemble = Ensemble()
        self.derivation = Derivation(self.ensemble)
        dags = [Dag(d.key, d.file, d.workflow, d.top) for d in discovered(files.dagdir)]
        self.ensemble.set_dags(dags)
        for name, log in sorted(files.logs.items()):
            self.ensemble.log_stats[name] = LogStats(name, log.role)
        self.at: dict[str, Any] = {}

    def read(self, name: str, end: int, limit: int | None = None, fast: bool = False) -> None:
        """Read a file on to its present end ``end``."""
        data = self.files.data[name]
        if name in self.files.logs and fast:
            self._skim_log(name, data, end)
        elif name in self.files.logs:
            self._read_log(name, data, end, limit)
        elif name in self.files.outs:
            state, at = self.at.get(name, (OutState(), 0))
            result, state, used = read_dagman_out(data[at:end], state)
            self.at[name] = state, at + used
            self.ensemble.apply_dagman_messages(self.files.outs[name], result)
        else:
            at = self.at.get(name, 0)
            entries, _, used = read_jobstate(data[at:end])
            self.at[name] = at + used
            self.ensemble.apply_jobstate(self.files.jobstates[name], entries)

    def _read_log(self, name: str, data: bytes, end: int, limit: int | None) -> None:
        log = self.files.logs[name]
        at = self.at.get(name, Position())
        while True:
            parsed = parse(data[at.offset : end], at, limit=limit)
            self.ensemble.apply(Batch(name, log.role, parsed.events, log.dag))
            moved, at = parsed.after.offset > at.offset, parsed.after
            if limit is None or not moved:
                break
        self.at[name] = at

    def _skim_log(self, name: str, data: bytes, end: int) -> None:
        log = self.files.logs[name]
        at = self.at.get(name, Position())
        got = parse_fast(data[at.offset : end], at)
        batch = Batch(name, log.role, got.events, log.dag, got.images, got.first, got.after.last)
        self.ensemble.apply(batch)
        self.at[name] = got.after

    def builder(self) -> SnapshotBuilder:
        self.derivation = self.derivation.renewed()
        self.derivation.update_jobs()
        self.derivation.update_nodes(live=False)
        return SnapshotBuilder(self.derivation, "here")

    def says(self) -> Facts:
        """All of ``status``, ``jobs`` and each run."""
        builder = self.builder()
        stamp, status = builder.clock.with_offset, builder.status()
        runs = [builder.run_view(run.key) for run in status.runs]
        return json_of({"status": status, "jobs": builder.job_rows(), "runs": runs}, stamp)


@cache
def discovered(dagdir: Path) -> tuple[Dag, ...]:
    return tuple(discover_dags(dagdir).dags)


@cache
def growing(dagdir: Path) -> LogFiles:
    if not dagdir.is_dir():
        pytest.skip("the real recording is not beside this checkout")
    return LogFiles(dagdir)


def whole(files: LogFiles, ends: dict[str, int]) -> Facts:
    model = Model(files)
    for name in sorted(ends):
        model.read(name, ends[name])
    return model.says()


def differences(a: Any, b: Any, where: str = "") -> list[str]:
    """Where two answers differ, so that a failure can be read."""
    if isinstance(a, dict) and isinstance(b, dict):
        return [
            d for key in {**a, **b} for d in differences(a.get(key), b.get(key), f"{where}/{key}")
        ]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = enumerate(zip(a, b, strict=True))
        return [d for i, (x, y) in pairs for d in differences(x, y, f"{where}/{i}")]
    return [] if a == b else [f"{where}: {a!r} != {b!r}"]


def some_ends(files: LogFiles, dice: random.Random) -> dict[str, int]:
    return {name: dice.randrange(len(data) + 1) for name, data in files.data.items()}


def piecewise(files: LogFiles, ends: dict[str, int], dice: random.Random) -> Facts:
    """The same prefixes, in some ten reads of each file, alternating between files, with a limit on
    events at times, and snapshots on the way."""
    model = Model(files)
    looks = [(n, dice.randrange(end + 1)) for n, end in ends.items() for _ in range(8)]
    looks.sort(key=lambda look: look[1])
    reached = dict.fromkeys(ends, 0)
    dice.shuffle(order := list(looks))
    for name, end in order:
        if end > reached[name]:
            model.read(name, end, dice.choice([None, 1, 3, 50]), dice.random() < 0.5)
            reached[name] = end
        if dice.random() < 0.1:
            model.says()
    for name, end in ends.items():
        model.read(name, end, dice.choice([None, 7]), dice.random() < 0.5)
    return model.says()


# --- properties ---------------------------------------------------------------------------


@DIRS
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
@example(seed=73966)  # the jobstate log was ahead of .dagman.out, and read first
@example(seed=4785784)  # a job that was removed before it ran
@example(seed=823)  # a job whose end no log has, and DAGMan's files prove
def test_prefixes_of_all_logs_in_any_chunks(dagdir: Path, seed: int) -> None:
    files, dice = growing(dagdir), random.Random(seed)
    ends = some_ends(files, dice)
    assert differences(piecewise(files, ends, dice), whole(files, ends)) == []


def torn(data: bytes, dice: random.Random) -> tuple[int, int]:
    """A cut within an event, and the end of the event before it."""
    cut = dice.randrange(1, len(data))
    if data[:cut].endswith(SEPARATOR):
        cut += 1
    before = data.rfind(SEPARATOR, 0, cut)
    return cut, before + len(SEPARATOR) if before >= 0 else 0


@DIRS
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_cut_within_an_event_equals_a_cut_before_it(dagdir: Path, seed: int) -> None:
    files, dice = growing(dagdir), random.Random(seed)
    for name in files.logs:
        cut, before = torn(files.data[name], dice)
        inside, outside = Model(files), Model(files)
        inside.read(name, cut)
        outside.read(name, before)
        assert differences(inside.says(), outside.says()) == []


# --- reused ids -------------------------------------------------------------------------------

NODES = [f"run0-train_epoch{epoch}" for epoch in range(3)]

LIVES = {
    "years apart": [(NODES[0], "2022-03-01 10:00:00"), (NODES[1], "2026-05-04 10:00:00")],
    "on one day": [(NODES[0], "2026-05-04 08:01:02"), (NODES[1], "2026-05-04 13:07:13")],
    "one day, one node": [(NODES[0], "2026-05-04 08:01:02"), (NODES[0], "2026-05-04 13:07:13")],
    "three times": [
        (NODES[0], "2026-05-04 02:11:05"),
        (NODES[0], "2026-05-04 08:01:02"),
        (NODES[2], "2026-05-04 13:07:13"),
    ],
}


def life(log: Log, number: int, node: str, at: str, images: bool) -> None:
    """The life of 5.0: an hour longer than the one before, with ever less memory."""
    begun = datetime.fromisoformat(at)
    log.submit(5, node, at=at).execute(5, at=str(begun + timedelta(minutes=5)))
    for report in range(1, 5) if images else ():
        at = str(begun + timedelta(minutes=5 + 10 * report))
        log.image(5, 400_000 - 100_000 * number + report, at=at)
    log.terminate(5, number % 2, at=str(begun + timedelta(minutes=5, hours=1 + number)))
    log.post(5, node, number % 2, at=str(begun + timedelta(minutes=6, hours=1 + number)))


@pytest.fixture(name="given_out_again", params=LIVES)
def _given_out_again(request: pytest.FixtureRequest, tmp_path: Path) -> LogFiles:
    """Jobs of one number in one log, all but the first also in nodes.log."""
    dag = "SUBMIT-DESCRIPTION train {\n executable = t.sh\n log = metl.log\n}\n"
    dagdir = Dagdir(tmp_path / "d", dag + "".join(f"JOB {node} train\n" for node in NODES))
    user, nodes = Log(), Log()
    for number, (node, at) in enumerate(LIVES[request.param]):
        life(user, number, node, at, images=True)
        if number:
            life(nodes, number, node, at, images=False)
    dagdir.write("metl.log", user.data)
    dagdir.write("run.dag.nodes.log", nodes.data)
    return LogFiles(dagdir.path)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@example(seed=1062)
@example(seed=1083)
@given(seed=st.integers(0, 2**32))
def test_prefixes_of_logs_with_reused_ids(given_out_again: LogFiles, seed: int) -> None:
    files, dice = given_out_again, random.Random(seed)
    whole_ends = {name: len(data) for name, data in files.data.items()}
    ends = dice.choice([whole_ends, some_ends(files, dice)])
    assert differences(piecewise(files, ends, dice), whole(files, ends)) == []


def test_jobs_of_a_reused_id_have_their_own_hours_and_memory(given_out_again: LogFiles) -> None:
    files = given_out_again
    says = whole(files, {name: len(data) for name, data in files.data.items()})
    by_submission = sorted(says["jobs"], key=lambda job: job["submitted"])
    for number, job in enumerate(by_submission):
        (execution,) = job["executions"]
        assert execution["seconds"] == 3600 * (1 + number)
        assert job["memory_mb"] == 400_000 - 100_000 * number + 4
    hours = says["status"]["hours"]
    assert (hours["goodput"], hours["badput"]) == ((1.0, 2.0) if number == 1 else (4.0, 2.0))


# --- a log of two directories ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["f1", "f2"])
@pytest.mark.parametrize("seed", range(3))
def test_prefixes_of_a_log_of_two_directories(
    shared: Shared, tmp_path: Path, name: str, seed: int
) -> None:
    """Whichever file is ahead, the same jobs are attributed to the other directory."""
    both = shared("examples/pool-failures/shared-absolute-log")
    writable_copy(both / name, tmp_path / "d")
    shutil.copyfile(both / "f1" / "all.log", tmp_path / "d" / "all.log")
    files, dice = LogFiles(tmp_path / "d"), random.Random(seed)
    whole_ends = {name: len(data) for name, data in files.data.items()}
    for ends in (whole_ends, some_ends(files, dice)):
        assert differences(piecewise(files, ends, dice), whole(files, ends)) == []
