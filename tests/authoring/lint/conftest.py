"""Fixtures of the check's tests."""

from __future__ import annotations

import pytest

from metlmon.authoring.lint import rule_files


@pytest.fixture(autouse=True)
def _anywhere_may_be_below_tmp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow logs below /tmp, where the directories of tests are and DAGMan wants none."""
    monkeypatch.setattr(rule_files, "TEMPORARY", "/nowhere")
