"""Warnings about many nodes that say the same thing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from metlmon.cli.reading import read_whole
from metlmon.live.session import Session
from metlmon.model.model_state import Notice
from tests.support.dagdir_builder import Dagdir


def warnings_of(dagdir: Path) -> tuple[Notice, ...]:
    return Session(read_whole(dagdir)).take().status.warnings


def test_thirty_absent_submit_files_are_one_warning(shared: Callable[[str], Path]) -> None:
    (only,) = warnings_of(shared("cases/one-warning-for-each-node"))
    assert (only.kind, only.line, only.count) == ("missing-submit-file", 1, 30)
    assert "calibrate_000.sub" in only.text
    assert "29 more" in only.text


def nodes(number: int, more: str = "") -> str:
    return "".join(f"JOB n{i} n{i}.sub\n" for i in range(number)) + more


def test_a_warning_of_another_kind_stays_visible(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path, nodes(40, "FROBNICATE n0 3\n"))
    found = {notice.kind: notice.count for notice in warnings_of(dagdir.path)}
    assert found == {"missing-submit-file": 40, "unknown-command": 1}


def test_a_few_are_listed_each(tmp_path: Path) -> None:
    found = warnings_of(Dagdir(tmp_path, nodes(2)).path)
    assert [(notice.line, notice.count) for notice in found] == [(1, 1), (2, 1)]
