"""The snapshots of failures on a real pool: metlmon says what HTCondor's own files say."""

from __future__ import annotations

import failure_snapshots
import pytest


@pytest.mark.parametrize("name", failure_snapshots.DIRECTORIES)
def test_metlmon_says_what_htcondor_says(name: str) -> None:
    if not (failure_snapshots.SNAPSHOTS / name).is_dir():
        pytest.skip(f"{name} is not beside this checkout")
    differing = [each for each in failure_snapshots.fields(name) if not each.agrees]
    assert differing == []
