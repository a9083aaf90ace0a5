"""A job that is held, or tried, thousands of times costs so many times what one time costs."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from metlmon.cli.reading import read_whole
from metlmon.live.feed import StatsInput
from metlmon.live.session import Session
from metlmon.snapshot.entries import latest_by
from metlmon.stats.timeline import build_timeline
from metlmon.stats.usage import site_usage
from tests.support.effort import effort

FEW: Final = 500
MANY: Final = 8 * FEW
STEEP: Final = 25.0
"""Eight times the events: a straight line is 8, a square 64."""

FLOOR_SECONDS: Final = 0.05

BEGUN: Final = datetime(2026, 1, 5, 9)
EXECUTE: Final = "Job executing on host: <10.0.0.2:9618?addrs=10>\n\tSlotName: slot1@host#\n"
HELD: Final = "Job was held.\n\tError from slot: no space left\n\tCode 12 Subcode 28\n"
RELEASED: Final = "Job was released.\n\tvia condor_release\n"
NO_USE: Final = "\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run "
EVICTED: Final = (
    f"Job was evicted.\n\t(0) CPU times\n{NO_USE}Remote Usage\n{NO_USE}Local Usage\n"
    "\t0  -  Run Bytes Sent By Job\n\t0  -  Run Bytes Received By Job\n"
)
INPUT: Final = [
    ("040", "Started transferring input files\n\tTransferring to host: <10.0.0.2:9618>\n"),
    ("040", "Finished transferring input files\n"),
]
OUTPUT: Final = [
    ("040", "Started transferring output files\n\tTransferring to host: <10.0.0.2:9618>\n"),
    ("040", "Finished transferring output files\n"),
]
ROUNDS: Final = {
    "held": [("012", HELD), ("013", RELEASED)],
    "evicted": [("001", EXECUTE), ("004", EVICTED)],
    "held while it ran": [("001", EXECUTE), ("012", HELD), ("013", RELEASED)],
    "held after transfers": [*INPUT, ("001", EXECUTE), *OUTPUT, ("012", HELD), ("013", RELEASED)],
}


def write(dagdir: Path, events: list[tuple[str, str]], times: int) -> Path:
    dagdir.mkdir()
    (dagdir / "ens.dag").write_text(
        'JOB run0-epoch0 a.sub\nVARS run0-epoch0 epoch="0" '
        'run_uuid="8f1e2d3c-0000-4000-8000-000000000000"\n'
    )
    (dagdir / "a.sub").write_text("executable = /bin/true\nlog = metl.log\nqueue\n")
    submitted = "Job submitted from host: <10.0.0.1:9618>\n    DAG Node: run0-epoch0\n"
    written = [("000", submitted), *events * times]
    with (dagdir / "metl.log").open("w") as log:
        for number, (code, text) in enumerate(written):
            when = BEGUN + timedelta(seconds=10 * number)
            log.write(f"{code} (001.000.000) {when} {text.replace('#', str(number % 7))}...\n")
    return dagdir


def picture(dagdir: Path) -> tuple[int, int]:
    """All that the commands show of it: how many holds and executions that is."""
    session = Session(read_whole(dagdir))
    status = session.take().status
    ledger = session.ledger()
    build_timeline(ledger)
    site_usage(StatsInput(status, ledger))
    session.problems()
    view = session.job_view(1, 0)
    assert view is not None
    return sum(len(job.holds) for job in ledger.jobs), len(ledger.executions)


@pytest.mark.parametrize("name", ROUNDS)
def test_time_grows_as_the_holds_and_executions_of_a_job_do(name: str, tmp_path: Path) -> None:
    events = ROUNDS[name]
    few, many = (write(tmp_path / str(n), events, n) for n in (FEW, MANY))
    codes = [code for code, _ in events]
    assert picture(few) == (FEW * codes.count("012"), FEW * codes.count("001"))
    before = max(effort(lambda: picture(few)), FLOOR_SECONDS)
    took = effort(lambda: picture(many))
    if took > STEEP * before:
        took = effort(lambda: picture(many))
    assert took < STEEP * before, f"{FEW} times: {before}, {MANY} times: {took}"


def test_lookups_are_those_of_a_plain_search() -> None:
    choose = random.Random(7)
    for _ in range(200):
        times = [BEGUN + timedelta(seconds=choose.randrange(6)) for _ in range(choose.randrange(7))]
        last = latest_by(times)
        for second in range(-1, 8):
            when = BEGUN + timedelta(seconds=second)
            before = [index for index, time in enumerate(times) if time <= when]
            assert last(when) == (before[-1] if before else None)
