"""HTCondor's own DAG files: errors of the official checker are errors on the same line, and what it
accepts has none."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from metlmon.authoring.lint.rules import Finding, LintSeverity
from tests.support.conformance import INDEX, cases
from tests.support.lint_ensemble import findings

OF_JOBS = {
    *("missing-submit-file", "missing-executable", "missing-input", "missing-script"),
    *("missing-directory", "missing-subdag"),
}
"""Errors that show when a node is submitted. The checker looks at DAG files alone; these DAGs lie
here without their submit files and scripts."""

CONNECT = "the checker does not carry out CONNECT; DAGMan refuses these pins, as their tests say"
OUTSIDE = "a part of another DAG: the nodes or splices it names are not in it"
TEMPLATE = "a syntax template of the manual: its node does not exist; DAGMan says so in a warning"
SPLICE = "VARS of a node in a splice: HTCondor 23.9.6 was seen to refuse this very DAG"
EXCEPTIONS = {
    "job_dagman_splice-R-upper.dag": (SPLICE, {2}),
    "job_dagman_splice_connect-A-inc1.dag": (OUTSIDE, {1, 2}),
    "job_dagman_splice_connect-A-inc2.dag": (OUTSIDE, {1, 2, 3, 5, 6, 7}),
    "job_dagman_splice_connect-D.dag": (CONNECT, {6}),
    "job_dagman_splice_connect-E.dag": (CONNECT, {6}),
    "job_dagman_splice_connect-F.dag": (CONNECT, {6}),
    "dagman-completion_L460.dag": (TEMPLATE, {1}),
    "dagman-reference_L235.dag": (TEMPLATE, {1}),
}
"""File → why there are errors that the checker does not have, and in which lines."""


@cache
def found_in(file: str) -> tuple[Finding, ...]:
    """The findings in this file of the index, computed once for all tests."""
    path = INDEX.parent / file
    return findings(path.parent, path.name)


@pytest.mark.parametrize("case", cases())
def test_errors_agree_with_the_official_checker(case: dict[str, Any]) -> None:
    path = INDEX.parent / case["file"]
    found = [f for f in found_in(case["file"]) if f.severity is LintSeverity.ERROR]
    official = case["oracle_check"]
    theirs = {(Path(e["SourceFile"]).name, e["SourceLine"]) for e in official.get("Errors", ())}
    ours = {(Path(f.file).name, f.line) for f in found if f.kind not in {*OF_JOBS, "cycle"}}
    if path.name in EXCEPTIONS:
        assert theirs != ours, "no exception any more"
        theirs |= {(path.name, line) for line in EXCEPTIONS[path.name][1]}
    assert ours == theirs
    assert any(f.kind == "cycle" for f in found) == bool(official.get("IsCyclic"))
    # What the official parser refuses, the check refuses in the same line.
    verdict = case["oracle_syntax"]
    refused = [
        f.line
        for f in found_in(case["file"])
        if f.kind in ("syntax", "unknown-command") and f.file == path.name
    ]
    assert refused[:1] == ([] if verdict.startswith("OK") else [int(verdict.split()[2])])


def test_official_examples_have_few_warnings() -> None:
    """They are tests and examples of all features of DAGMan, not trainings."""
    if not INDEX.exists():
        pytest.skip("no conformance files beside this checkout")
    kinds: dict[str, int] = {}
    for case in json.loads(INDEX.read_text()):
        for each in found_in(case["file"]):
            if each.severity is not LintSeverity.ERROR:
                kinds[each.kind] = kinds.get(each.kind, 0) + 1
    expected = {"lone-node": 5, "nested-as-job": 1, "missing-later-subdag": 2}
    assert kinds == {**expected, "abort-restarts": 2, "done-line": 1}
