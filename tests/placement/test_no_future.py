"""No advice comes from the future: that of a moment follows from earlier events."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metlmon.placement.planner import PlanInput, plan_input, plan_of
from metlmon.placement.types import PlacementPlan
from tests.conftest import SHARED
from tests.support.records import read_dagdir, stats_input

ROOT = Path(__file__).resolve().parents[2]
RECORDED = (ROOT / "fixtures" / "trainer", SHARED / "examples" / "metl-aws")
STAMP = re.compile(r"^\d{3} \([\d.]+\) (\S+ \S+) ")

ALTERATIONS = (
    ("Normal termination (return value 0)", "Normal termination (return value 1)"),
    ("Normal termination (return value 1)", "Normal termination (return value 0)"),
    ("Delta-GPU", "Expanse-GPU"),
    ("Job was evicted.", "Job was aborted."),
    ("L40S", "A100"),
)


def events_of(log: Path) -> list[tuple[datetime, str]]:
    """The events of a log with their times, in order."""
    events = []
    for text in log.read_text(errors="replace").split("...\n"):
        stamp = STAMP.match(text)
        if stamp is not None:
            events.append((datetime.fromisoformat(stamp[1]), text))
    return events


def said_at(
    moment: datetime, dagdir: Path, events: Sequence[str]
) -> tuple[PlanInput, PlacementPlan]:
    """What is planned at a moment in a directory with the DAG files and a log of these events."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "ensemble"
        copy.mkdir()
        for path in (*dagdir.glob("*.dag"), *dagdir.glob("metlmon.toml"), *dagdir.glob("*.sub")):
            shutil.copy(path, copy)
        (copy / "metl.log").write_text("".join(f"{event}...\n" for event in events))
        values = plan_input(stats_input(read_dagdir(copy, as_of=moment, live=True)))
        return values, plan_of(values)


@pytest.mark.parametrize("dagdir", RECORDED, ids=lambda path: path.name)
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(share=st.floats(0.05, 0.95), seed=st.integers(0, 10**6), keep=st.floats(0, 1))
def test_a_plan_does_not_change_with_later_events(
    dagdir: Path, share: float, seed: int, keep: float
) -> None:
    if not dagdir.is_dir():
        pytest.skip(f"no {dagdir.name} beside this checkout: the real recordings are not here")
    events, random = events_of(dagdir / "metl.log"), Random(seed)
    moment = events[int(share * (len(events) - 1))][0]
    past = [event for at, event in events if at <= moment]
    future = [event for at, event in events if at > moment and random.random() < keep]
    for before, after in ALTERATIONS:
        future = [
            event.replace(before, after) if random.random() < 0.5 else event for event in future
        ]
    values, plan = said_at(moment, dagdir, past)
    assert plan.runs or plan.excluded or plan.runs_excluded
    assert said_at(moment, dagdir, past + future) == (values, plan)


def test_a_plan_does_change_with_earlier_events() -> None:
    """Else the property above would hold of anything."""
    dagdir = RECORDED[0]
    events = events_of(dagdir / "metl.log")
    moment = events[2 * len(events) // 3][0]
    past = [event for at, event in events if at <= moment]
    altered = [event.replace(*ALTERATIONS[0]) for event in past]
    _, plan = said_at(moment, dagdir, past)
    assert said_at(moment, dagdir, altered)[1] != plan
    assert said_at(moment, dagdir, past[: len(past) // 2])[1] != plan
