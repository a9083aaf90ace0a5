"""No combination of files makes metlmon say what the whole directory contradicts, unmarked."""

from __future__ import annotations

import pytest

from metlmon.model.states import DagState, State
from tests.live.combinations import (
    ABSENT,
    OLDER,
    PARTS,
    PRESENT,
    Claims,
    Combination,
    judge_all,
    sample,
)


@pytest.fixture(name="found", scope="module")
def _found() -> dict[Combination, Claims]:
    return judge_all(sample())


def test_nothing_is_reported_that_the_whole_directory_contradicts(
    found: dict[Combination, Claims],
) -> None:
    assert {
        combination: result.wrong for combination, result in found.items() if result.wrong
    } == {}


def test_the_whole_directory_says_what_htcondor_did(found: dict[Combination, Claims]) -> None:
    result = found[(PRESENT,) * len(PARTS)]
    assert (result.dag, result.counts) == (DagState.DONE, (16, 16))
    assert set(result.nodes.values()) == {(State.COMPLETED, False)}
    assert not result.warned
    assert set(result.runs.values()) == {State.COMPLETED}


def test_files_of_an_older_dagman_do_not_end_the_dag(found: dict[Combination, Claims]) -> None:
    names = [part.name for part in PARTS]
    older = [OLDER if name == "dagman.out" else PRESENT for name in names]
    result = found[tuple(older)]
    assert result.dag is not DagState.FAILED
    assert "log-behind" in result.warned


def test_each_claim_needs_a_file_that_supports_it(found: dict[Combination, Claims]) -> None:
    """With one file absent the others tell all; with all absent nothing is claimed to be done."""
    for at in range(1, len(PARTS)):
        result = found[tuple(ABSENT if at == n else PRESENT for n in range(len(PARTS)))]
        assert (result.dag, result.counts) == (DagState.DONE, (16, 16)), PARTS[at].name
    alone = found[(PRESENT, *(ABSENT,) * (len(PARTS) - 1))]
    assert (alone.dag, alone.counts) == (DagState.NOT_SUBMITTED, (0, 16))
