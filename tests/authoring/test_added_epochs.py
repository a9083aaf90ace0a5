"""How epochs that are added go on with those that a run has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metlmon.authoring.continuation_dag import next_site, period


@pytest.mark.parametrize(
    ("epochs", "evaluated", "found"),
    [
        (4, {0, 1, 2, 3}, (1, 0)),
        (4, {1, 3}, (2, 1)),
        (5, {2}, (3, 2)),
        (4, {3}, (4, 3)),
        (6, {0, 3}, (3, 0)),
        (4, {0}, None),
        (4, {0, 1, 3}, None),
        (4, {1, 2}, None),
    ],
)
def test_how_often_epochs_are_evaluated(
    epochs: int, evaluated: set[int], found: tuple[int, int] | None
) -> None:
    assert period(range(epochs), evaluated) == found


def added(sites: str, count: int) -> str | None:
    """The sites of so many more epochs; each is one letter."""
    result = dict(enumerate(sites))
    for epoch in range(len(sites), len(sites) + count):
        site = next_site(result, epoch)
        if site is None:
            return None
        result[epoch] = site
    return "".join(result.values())[len(sites) :]


@pytest.mark.parametrize(
    ("sites", "more"),
    [
        *(("A", "AAA"), ("AAA", "AAA"), ("ABAB", "ABA"), ("ABCA", "BCA"), ("ABCCB", "ACB")),
        *(("AAB", None), ("AABB", None), ("ABCAA", None)),
    ],
)
def test_where_added_epochs_go(sites: str, more: str | None) -> None:
    assert added(sites, 3) == more


@given(rounds=st.lists(st.permutations("ABCD"), min_size=1, max_size=3), cut=st.integers(0, 3))
def test_each_site_comes_once_before_one_repeats(rounds: list[list[str]], cut: int) -> None:
    sites = "".join("".join(each) for each in rounds)
    sites = sites[: max(4, len(sites) - cut)]
    whole = sites + (added(sites, 9) or "")
    assert len(whole) == len(sites) + 9
    for start in range(0, len(whole) - 3, 4):
        assert sorted(whole[start : start + 4]) == list("ABCD")
