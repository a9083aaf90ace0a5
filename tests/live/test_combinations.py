"""No combination of files makes metlmon say what the whole directory contradicts, unmarked."""

from __future__ import annotations

import pytest

from metlmon.model.states import DagState, State
from tests.live.combinations import (
    ABSENT,
    OLDER,
    PARTS,
    PRESENT,
    Combination,
    Said,
    judge_all,
    sample,
)


@pytest.fixture(name="found", scope="module")
def _found() -> dict[Combination, Said]:
    return judge_all(sample())


def test_nothing_is_said_that_the_whole_directory_contradicts(
    found: dict[Combination, Said],
) -> None:
    assert {combination: said.wrong for combination, said in found.items() if said.wrong} == {}


def test_the_whole_directory_says_what_htcondor_did(found: dict[Combination, Said]) -> None:
    said = found[(PRESENT,) * len(PARTS)]
    assert (said.dag, said.counts) == (DagState.DONE, (16, 16))
    assert set(said.nodes.values()) == {(State.COMPLETED, False)}
    assert not said.warned
    assert set(said.runs.values()) == {State.COMPLETED}


def test_files_of_an_older_dagman_do_not_end_the_dag(found: dict[Combination, Said]) -> None:
    names = [part.name for part in PARTS]
    older = [OLDER if name == "dagman.out" else PRESENT for name in names]
    said = found[tuple(older)]
    assert said.dag is not DagState.FAILED
    assert "log-behind" in said.warned


def test_each_claim_needs_a_file_that_supports_it(found: dict[Combination, Said]) -> None:
    """With one file absent the others tell all; with all absent nothing is claimed to be done."""
    for at in range(1, len(PARTS)):
        said = found[tuple(ABSENT if at == n else PRESENT for n in range(len(PARTS)))]
        assert (said.dag, said.counts) == (DagState.DONE, (16, 16)), PARTS[at].name
    alone = found[(PRESENT, *(ABSENT,) * (len(PARTS) - 1))]
    assert (alone.dag, alone.counts) == (DagState.NOT_SUBMITTED, (0, 16))
