"""HTCondor's own DAG files, with the official parsers' verdict on each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import SHARED

INDEX = SHARED / "conformance" / "dags_index.json"


def cases() -> Iterator[Any]:
    """One parameter for each DAG file; a skipped one with the reason if they are missing."""
    if not INDEX.exists():
        reason = "no conformance files beside this checkout"
        yield pytest.param({}, marks=pytest.mark.skip(reason=reason), id="absent")
        return
    for case in json.loads(INDEX.read_text()):
        yield pytest.param(case, id=case["file"].removeprefix("dags/"))
