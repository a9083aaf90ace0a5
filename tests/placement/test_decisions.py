"""Decisions of a recorded ensemble, replayed: what advice counts, in which order it is given."""

from __future__ import annotations

from pathlib import Path

from metlmon.model.states import Outcome
from tests.bench.decisions import decisions, outcomes
from tests.support.records import read_dagdir

BLACK_HOLE = Path(__file__).resolve().parents[2] / "fixtures" / "health" / "black-hole"


def test_what_the_advice_of_each_moment_avoids_at_a_site_where_all_jobs_fail() -> None:
    replayed = list(decisions(BLACK_HOLE))
    ended = [
        entry
        for entry in read_dagdir(BLACK_HOLE).ledger().executions
        if entry.training and entry.end is not None
    ]
    assert len(replayed) == len(ended)
    failed = sorted(
        (e for e in ended if e.outcome is Outcome.FAILED), key=lambda e: e.end or e.start
    )
    assert {entry.site for entry in failed} == {"Expanse-GPU"}
    fifth = failed[4].end
    assert fifth is not None
    against = [each for each in replayed if each.advice.excludes(each.pool)]
    # Five losses prove it, once an epoch has completed elsewhere; none before is against advice.
    assert against
    assert all(each.moment >= fifth and each.pool.site == "Expanse-GPU" for each in against)
    avoided = outcomes(replayed)["black holes"]
    assert (avoided.executions, avoided.lost, avoided.epochs) == (len(against), len(against), 0)
    assert avoided.avoided == sum(each.entry.gpu_hours or 0.0 for each in against)
