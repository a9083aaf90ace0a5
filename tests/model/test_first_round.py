"""The generated first round: metlmon reads from its files what its generator knows. Totals, places,
labels, transfers and bytes are in ``report/test_report_usage.py``."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from metlmon.model.states import Outcome, State
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.records import Execution, Ledger
from tests.generated import first_round
from tests.generated.ensembles import live
from tests.generated.write import write
from tests.support.records import read_dagdir

TRUTH: dict[str, Any] = json.loads((first_round.DIRECTORY / "truth.json").read_text())


@pytest.fixture(name="builder", scope="module")
def _builder() -> SnapshotBuilder:
    return read_dagdir(first_round.DIRECTORY)


@pytest.fixture(name="ledger", scope="module")
def _ledger(builder: SnapshotBuilder) -> Ledger:
    return builder.ledger()


def split(entries: Iterable[Execution]) -> dict[str, float]:
    sums = {"good": 0.0, "bad": 0.0}
    for entry in entries:
        sums[entry.kind.removesuffix("put")] += entry.gpu_seconds or 0
    return sums


def by(ledger: Ledger, field: str) -> dict[str, list[Execution]]:
    groups: defaultdict[str, list[Execution]] = defaultdict(list)
    for entry in ledger.executions:
        groups[getattr(entry, field)].append(entry)
    return groups


def contents(directory: Path) -> dict[Path, bytes]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {path.relative_to(directory): path.read_bytes() for path in files}


def test_files_equal_those_of_the_generator(tmp_path: Path) -> None:
    write(live(first_round.SEED), tmp_path)
    written, kept = contents(tmp_path), contents(first_round.DIRECTORY)
    assert written.keys() == kept.keys()
    assert [name for name in kept if written[name] != kept[name]] == []


def test_totals_are_those_of_the_first_round(ledger: Ledger) -> None:
    assert len(ledger.runs) == TRUTH["runs"] == 21
    assert {run.epochs_done for run in ledger.runs} == {30}
    assert {epoch.state for epoch in ledger.epochs} == {State.COMPLETED}
    assert Counter(epoch.gpu for epoch in ledger.epochs) == {
        "A100-PCIE-40GB": 6,
        "A100-SXM4-40GB": 43,
        "A100-SXM4-80GB": 73,
        "A40": 108,
        "RTX A5000": 354,
        "V100-SXM2-32GB": 46,
    }
    assert len(ledger.jobs) == TRUTH["jobs"]
    assert len(ledger.executions) == TRUTH["executions"]


def test_only_unlogged_ends_are_warned_of(builder: SnapshotBuilder) -> None:
    notices = list(builder.notices())
    assert len(notices) == TRUTH["by_cause"]["removed"]["executions"]
    assert all("its true end is unknown" in notice.text for notice in notices)


def test_hours_by_run(ledger: Ledger) -> None:
    assert {
        run: {"uuid": entries[0].uuid, "executions": len(entries), **split(entries)}
        for run, entries in by(ledger, "run").items()
    } == TRUTH["by_run"]
    for run in ledger.runs:
        spent = {"good": run.hours.goodput * 3600, "bad": run.hours.badput * 3600}
        assert spent == pytest.approx(split(by(ledger, "run")[run.run]))


def spelled(entry: Execution) -> str:
    match entry.outcome:
        case Outcome.FAILED if entry.signal is not None:
            return f"signal {entry.signal}"
        case Outcome.FAILED:
            return f"failed {entry.return_value}"
        case Outcome.EVICTED | Outcome.HELD:
            return f"{entry.outcome} {entry.code}/{entry.subcode}"
        case _:
            return str(entry.outcome)


def test_hours_by_cause(ledger: Ledger) -> None:
    causes: dict[str, dict[str, float]] = {}
    for entry in ledger.executions:
        if entry.kind == "badput":
            sums = causes.setdefault(spelled(entry), {"executions": 0, "gpu_seconds": 0})
            sums["executions"] += 1
            sums["gpu_seconds"] += entry.gpu_seconds or 0
    assert causes == TRUTH["by_cause"]


def test_holds_are_those_of_the_truth(ledger: Ledger) -> None:
    holds = Counter(f"{hold.code}/{hold.subcode}" for job in ledger.jobs for hold in job.holds)
    assert holds == TRUTH["holds"]


def test_hidden_epochs_are_those_of_the_truth(ledger: Ledger) -> None:
    assert sorted(epoch.node for epoch in ledger.epochs if epoch.hidden) == TRUTH["hidden"]
    assert TRUTH["hidden"]
