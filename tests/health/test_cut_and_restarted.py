"""Logs that were cut, and a restarted access point."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from metlmon.eventlog.events import Evicted, Held
from metlmon.eventlog.reader import parse
from tests.conftest import Shared
from tests.health.ensembles import EventLog, chains, health_of, only, write
from tests.support.dagdir_builder import Dagdir

QUOTA = "Error from slot1@h: couldn't write to x.out: Disk quota exceeded (-1!=93)"
POLICY = (
    "The system macro SYSTEM_PERIODIC_REMOVE expression 'JobStatus == 5 && time() - "
    "EnteredCurrentStatus > {}' evaluated to TRUE"
)
CUT = b"\t(0) CPU times\n\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Rem"


@pytest.mark.parametrize(
    ("seconds", "words", "code", "subcode"),
    [
        (86400 * 30, "30 days", 9, 122),
        (86400, "1 day", 34, 102),
        (3600 * 36, "36 hours", 13, 2),
        (5400, "90 minutes", 3, 0),
        (86400 * 30, "30 days", 3, 0),
        (86400, "1 day", 3, 0),
        (3600 * 36, "36 hours", 3, 0),
    ],
)
def test_cut_eviction_has_the_code_of_its_hold(
    tmp_path: Path, seconds: int, words: str, code: int, subcode: int
) -> None:
    """Two runs held for one cause; one lost its 012 and the rest of its 004."""
    reason = QUOTA if code == 9 else "Error from slot1@h: it went wrong"
    log = EventLog()
    jobs = [log.submit(f"run{number}-train_epoch0") for number in (0, 1)]
    for job in jobs:
        log.execute(job, hours=0)
    log.evict(jobs[1], code, reason)
    log.hold(jobs[1], reason, code, subcode, hours=0)
    log.add("004", jobs[0], f"Job was evicted. Code {code} Subcode {subcode}", hours=0)
    whole = log.bytes().removesuffix(b"...\n")
    later = EventLog(log.time)
    for job in (jobs[1], jobs[0]):
        later.add("009", job, f"Job was aborted.\n\t{POLICY.format(seconds)}")
        later.time = log.time
    text = later.bytes()
    moment = f"{log.time:%Y-%m-%d %H:%M:%S}".encode()
    removed = f"{log.time + timedelta(seconds=seconds + 7):%Y-%m-%d %H:%M:%S}".encode()
    dagdir = write(tmp_path, chains({"run0": 1, "run1": 1}), log)
    dagdir.write("metl.log", whole + CUT + text.replace(moment, removed))
    health = health_of(dagdir)
    held = [entry for entry in health.open_entries if entry.kind == "removed-by-policy"]
    texts = [f"{entry.text} {entry.reason}" for entry in held]
    assert not any(":00" in text.split("held for")[-1] for text in texts if "held for" in text)
    if code == 3:
        # The job's own policy: only its reason says why, and one of the two is not logged.
        assert any(words in text for text in texts)
        return
    (entry,) = held
    assert (entry.code, len(entry.runs)) == (code, 2)
    assert entry.reason == reason
    assert sum(each.gpu_hours for each in health.entries) == pytest.approx(4.0)


@pytest.mark.parametrize("tail", ["Code 9 Subcode 1", "Code 9 Subcode", "Code 9", "Code 9 Sub"])
def test_cut_code_is_not_read(tail: str) -> None:
    after = "009 (078.000.000) 2026-01-01 10:00:00 Job was aborted.\n\tgone\n...\n"
    line = f"004 (077.000.000) 2026-01-01 09:00:00 Job was evicted. {tail}{after}"
    first = next(iter(parse(line.encode()).events))
    assert isinstance(first.detail, Evicted)
    assert (first.detail.code, first.detail.subcode) == (None, None)
    held = f"012 (077.000.000) 2026-01-01 09:00:00 Job was held.\n\tfull disk\n\t{tail}{after}"
    first = next(iter(parse(held.encode()).events))
    assert isinstance(first.detail, Held)
    assert (first.detail.code, first.detail.subcode) == (None, None)
    assert first.detail.reason == "full disk"


def test_real_cut_eviction(shared: Shared) -> None:
    health = health_of(Dagdir(shared("cases/cut-eviction-has-code"), ""))
    entry = only(health, "removed-by-policy")
    assert (entry.code, entry.subcode, len(entry.runs)) == (9, 122, 2)
    assert "0:00:00" not in str(health)


def restarted(path: Path, *, dagmans_log: bool = True, stopped: bool = False) -> Dagdir:
    """Two jobs ran when the machine went down; their leases expired, and they ran again."""
    log, own = EventLog(), EventLog()
    own.add("000", 90, "Job submitted from host: <10.0.0.1:9618?sock=schedd>")
    own.add("001", 90, "Job executing on host: <10.0.0.1:9618?sock=schedd>")
    jobs = [log.submit(f"run{number}-train_epoch0") for number in (0, 1)]
    for job in jobs:
        log.execute(job)
    if stopped:
        own.add("004", 90, "Job was evicted.\n\t(0) CPU times", hours=1)
    own.add("001", 90, "Job executing on host: <10.0.0.1:9618?sock=schedd>", hours=5)
    log.time = own.time
    for job in jobs:
        log.execute(job)
    for job in jobs:
        log.end(job)
    dagdir = write(path, chains({"run0": 1, "run1": 1}), log)
    if dagmans_log:
        dagdir.write("run.dag.dagman.log", own.bytes())
    return dagdir


def test_restart_of_the_access_point_is_not_log_damage(tmp_path: Path) -> None:
    health = health_of(restarted(tmp_path))
    assert {"log-damage", "log-gap"}.isdisjoint(entry.kind for entry in health.entries)
    (entry,) = health.closed_entries
    assert "access point was restarted" in entry.text
    assert len(entry.runs) == 2


@pytest.mark.parametrize("options", [{"dagmans_log": False}, {"stopped": True}])
def test_missing_ends_are_reported(tmp_path: Path, options: dict[str, bool]) -> None:
    """DAGMan alone was restarted, or no file explains it."""
    health = health_of(restarted(tmp_path, **options))
    assert not {"log-damage", "log-gap"}.isdisjoint(entry.kind for entry in health.entries)
