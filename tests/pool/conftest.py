"""What the tests on a real pool share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from pools import SCRIPT, NoPool, Pool, find_pool

REQUIRED = "METLMON_POOL_REQUIRED"
"""Where this is set (in the project's own checks) having no pool is a failure."""


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """A real HTCondor. Skips, with the reason, where there is none and none can be made."""
    try:
        found, started = find_pool()
    except NoPool as reason:
        if os.environ.get(REQUIRED):
            pytest.fail(f"a pool is required here: {reason}", pytrace=False)
        pytest.skip(str(reason))
    try:
        yield found
    finally:
        found.remove_everything_below(found.base)
        if started:
            subprocess.run([sys.executable, str(SCRIPT), "stop"], check=True)


@pytest.fixture(scope="session")
def colleague(pool: Pool) -> str:
    """Another user of the access point."""
    if len(pool.users) < 2 or pool.users[1] is None:
        pytest.skip("this HTCondor was there before the tests: they know no second user of it")
    return pool.users[1]
