"""The check of real ensembles: no finding where they are good, and correct ones elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from metlmon.authoring.lint.rules import Finding
from tests.conftest import Shared
from tests.support.commands import Captured, text_output
from tests.support.lint_ensemble import findings
from tests.support.recordings import FIXTURES

Kinds = list[tuple[str, str, int | None, int]]


def kinds(found: tuple[Finding, ...]) -> Kinds:
    return [(each.kind, each.file, each.line, each.count) for each in found]


def copied(dag: str, horizons: int) -> Kinds:
    """Its jobs' files are not in the recording, and its trainings get the epoch alone."""
    return [("files-not-here", dag, None, 1), ("no-horizon", dag, 5, horizons)]


EXPECTED: dict[str, Kinds] = {
    # Two of its three evaluations have no POST script; the third shows how it is done.
    "demo": [("side-node-fails-dag", "ens.dag", 293, 2)],
    "trainer": [("files-not-here", "ensemble.dag", None, 1)],
    # Like the experiment's own DAGs: only the epoch is given. The logs have sites although no
    # description asks for them.
    "first-round": [
        (kind, f"{dag}.dag", line, 1)
        for dag in ("control", "heterogeneous")
        for kind, line in (
            ("files-not-here", None),
            ("no-horizon", 10),
            ("queue-in-description", 16),
        )
    ],
    "rescue": copied("ens.dag", 3),
    "holds": copied("ens.dag", 8),
    "shared-log": [
        ("files-not-here", "a.dag", None, 1),
        ("shared-log", "a.dag", None, 1),
        ("no-horizon", "a.dag", 5, 3),
        *copied("b.dag", 3),
    ],
    "scripts": [
        ("side-node-fails-dag", "check.dag", 28, 1),
        *copied("ens.dag", 1),
        *copied("extra.dag", 1),
    ],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_recordings_have_the_expected_findings(name: str) -> None:
    assert kinds(findings(FIXTURES / name)) == EXPECTED[name]


def test_aws_experiment_has_five_findings(shared: Shared) -> None:
    """150 nodes, 150 missing scripts, one key: five lines."""
    found = findings(shared("examples/metl-aws"))
    name = "global_pretraining_in_aws.dag"
    assert kinds(found) == [
        ("files-not-here", name, None, 1),
        ("no-site", name, 2, 1),
        ("secret", name, 13, 1),
        ("no-horizon", name, 21, 1),
        ("queue-in-description", name, 39, 1),
    ]
    assert "WANDB_API_KEY" in found[2].message
    assert "000000" not in "".join(each.message for each in found)


def test_pool_ensemble_has_three_findings(shared: Shared) -> None:
    assert kinds(findings(shared("examples/pool-ensemble"))) == [
        ("files-not-here", "ens.dag", None, 1),
        ("queue-in-description", "ens.dag", 17, 3),
        ("failure-hidden", "ens.dag", 59, 6),
    ]


def test_ensembles_of_submit_are_clean(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "pretrain.sh").write_text("#!/bin/bash\npython train.py --epoch $1\n")
    metl = ("--template", "metl", "--set", "container=osdf:///example/metl.sif")
    text_output("submit", capsys, tmp_path, *metl, "--runs", "3", "--no-submit", "--yes")
    assert findings(tmp_path) == ()
