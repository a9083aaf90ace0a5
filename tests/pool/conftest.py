"""Fixtures of the tests on a real pool."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import pytest
from pools import SECOND, THIRD, NoPool, Pool, pool_in_use

REQUIRED = "METLMON_POOL_REQUIRED"
"""Where this is set (in the project's own checks) having no pool is a failure."""


@contextmanager
def _required(environment: Mapping[str, str]) -> Iterator[Pool]:
    """Skip, with the reason, without HTCondor and where none can be made."""
    with ExitStack() as stack:
        try:
            pool = stack.enter_context(pool_in_use(environment))
        except NoPool as reason:
            if os.environ.get(REQUIRED):
                pytest.fail(f"a pool is required here: {reason}", pytrace=False)
            pytest.skip(str(reason))
        yield pool


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """A real HTCondor, shared with other tests at the same time."""
    with _required({}) as pool:
        yield pool


@pytest.fixture(scope="session")
def second_pool() -> Iterator[Pool]:
    """A pool for one test at a time, where it can be made; else the installed HTCondor."""
    with _required(SECOND) as pool:
        yield pool


@pytest.fixture(scope="session")
def third_pool() -> Iterator[Pool]:
    """Another such pool."""
    with _required(THIRD) as pool:
        yield pool


@pytest.fixture(scope="session")
def changeable_pool(second_pool: Pool) -> Pool:
    """A pool of the tests whose machines and monitors may be changed."""
    return _ours(second_pool)


@pytest.fixture(scope="session")
def breakable_pool(third_pool: Pool) -> Pool:
    """A pool of the tests whose daemons may be stopped and killed."""
    return _ours(third_pool)


def _ours(pool: Pool) -> Pool:
    if pool.script is None:
        pytest.skip("this HTCondor was there before the tests: nothing of it is broken")
    return pool


def _colleague_of(pool: Pool) -> str:
    if len(pool.users) < 2 or pool.users[1] is None:
        pytest.skip("this HTCondor was there before the tests: they know no second user of it")
    return pool.users[1]


@pytest.fixture(scope="session")
def colleague(pool: Pool) -> str:
    """Another user of the access point."""
    return _colleague_of(pool)


@pytest.fixture(scope="session")
def second_colleague(second_pool: Pool) -> str:
    """Another user of the second pool's access point."""
    return _colleague_of(second_pool)
