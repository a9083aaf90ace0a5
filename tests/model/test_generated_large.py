"""Large generated ensembles at small size: the figures are those of their generator."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metlmon.config.loader import load_settings
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model import job_events
from metlmon.model.states import State
from tests.bench.totals import differences
from tests.generated.large import KINDS, write
from tests.generated.varied import varied
from tests.support.recordings import read_all

SMALL = {
    "mix": replace(KINDS["mix20"], runs=40, epochs=2, trouble=2.0),
    "storm": replace(KINDS["storm20"], runs=20, epochs=2),
    "jobs": replace(KINDS["jobs100k"], runs=30, epochs=5),
}

Ensembles = dict[str, Path]


@pytest.fixture(name="ensembles", scope="module")
def _ensembles(tmp_path_factory: pytest.TempPathFactory) -> Ensembles:
    base = tmp_path_factory.mktemp("large")
    for name, kind in SMALL.items():
        write(varied(kind, seed=9), base / name, share=0.6)
    return {name: base / name for name in SMALL}


def opened(directory: Path, live: bool | None = None) -> DagdirReader:
    return read_all(DagdirReader(directory, load_settings(directory), live=live))


def truth_of(directory: Path) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((directory / "truth.json").read_text())
    return truth


@pytest.mark.parametrize("recent", [job_events.MAX_RECENT_JOBS, 4])
@pytest.mark.parametrize("name", SMALL)
def test_figures_are_those_of_the_generator(
    ensembles: Ensembles, name: str, recent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a large ensemble, most jobs are compressed, and each query folds their events again,
    into other objects."""
    monkeypatch.setattr(job_events, "MAX_RECENT_JOBS", recent)
    reader, truth = opened(ensembles[name]), truth_of(ensembles[name])
    assert differences(reader, truth) == []
    # Ends that were not logged.
    notices = list(reader.snapshot_builder().notices())
    assert len(notices) == truth["executions"].get("removed", 0)
    epochs = reader.snapshot_builder().ledger().epochs
    assert all(epoch.site for epoch in epochs if epoch.state is State.COMPLETED)


@pytest.mark.parametrize("name", SMALL)
def test_live_ensemble_differs_only_in_durations(ensembles: Ensembles, name: str) -> None:
    """Live durations are as of now; without newer events all else is the same."""
    directory, truth = ensembles[name], truth_of(ensembles[name])
    reader = opened(directory)
    now = reader.ensemble.newest
    assert now is not None
    reader = read_all(
        DagdirReader(directory, load_settings(directory), live=True, local_now=lambda: now)
    )
    assert differences(reader, truth) == []
    assert truth["nodes"]["idle"] > 0
    assert truth["nodes"]["running"] > 0
