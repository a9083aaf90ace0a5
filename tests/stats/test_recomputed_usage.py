"""Every cell of ``usage --json`` equals an independent recomputation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import shared_path
from tests.stats import recomputed_usage
from tests.support.commands import Captured, json_output
from tests.support.recordings import FIXTURES

MEASURED = {"examples/metl-aws": (86, 93), "examples/pool-ensemble": (38, 38), "usage": (15, 15)}
"""Executions with a figure, and all."""


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return all(same(found[name], value) for name, value in expected.items())
    if isinstance(expected, float | int):
        return bool(found == pytest.approx(expected, rel=1e-9, abs=1e-9))
    return bool(found == expected)


@pytest.mark.parametrize("by", ["run", "site", "gpu", "host", "request"])
@pytest.mark.parametrize("name", MEASURED)
def test_every_cell_equals_the_recomputation(name: str, by: str, capsys: Captured) -> None:
    dagdir = shared_path(name) if "/" in name else FIXTURES / name
    found = {
        (row["key"], row["ended"]): row
        for row in json_output("usage", capsys, "--by", by, dagdir)["groups"]
    }
    expected = recomputed_usage.groups(dagdir, by)
    assert found.keys() == expected.keys()
    wrong = [
        (*key, cell, found[key][cell], value)
        for key, row in expected.items()
        for cell, value in row.items()
        if not same(found[key][cell], value)
    ]
    assert wrong == []
    measured, executions = (
        sum(row[cell] for row in expected.values()) for cell in ("measured", "executions")
    )
    assert (measured, executions) == MEASURED[name]


@pytest.mark.parametrize("name", MEASURED)
def test_every_request_equals_the_recomputation(name: str, capsys: Captured) -> None:
    dagdir = shared_path(name) if "/" in name else FIXTURES / name
    rows = json_output("usage", capsys, "--requests", dagdir)["requests"]
    found = [row for row in rows if row["command"] in recomputed_usage.COMMANDS]
    expected = recomputed_usage.requests(dagdir)
    assert len(found) == len(expected)
    for row in found:
        names = ("submit", "command", "requested", "measured", "used_95", "used_most", "completed")
        (own,) = (each for each in expected if all(same(row[cell], each[cell]) for cell in names))
        limit = row["suggested"] or row["requested"]
        assert row["exceeding"] == sum(used > limit for used in own["used"])
        assert row["suggested"] in (None, own["fitting"])
