"""What the tests of the check share."""

from __future__ import annotations

import pytest

from metlmon.authoring.lint import rule_files


@pytest.fixture(autouse=True)
def _anywhere_may_be_below_tmp(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own directories are below /tmp, where DAGMan wants no log."""
    monkeypatch.setattr(rule_files, "TEMPORARY", "/nowhere")
