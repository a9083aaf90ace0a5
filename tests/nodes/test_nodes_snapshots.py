"""The screens with nodes as pictures, small and large. Look at a difference before you accept it:
``pytest tests/nodes/test_nodes_snapshots.py --snapshot-update`` takes new pictures."""

from __future__ import annotations

import pytest

from screens.app import AppOptions
from tests.support.event_logs import read_ensemble
from tests.support.node_graphs import PainterFeed, evaluated, evaluated_log, fan, fan_log
from tests.support.screen_view import NARROW, WIDE, Eager, pressed

FAN = fan, fan_log
RUNS = evaluated, evaluated_log

WAYS = {
    "nodes": (FAN, ("d", "down")),
    "nodes-faults": (FAN, ("d", "f")),
    "overview-of-nodes": (FAN, ()),
    "overview": (RUNS, ()),
    "evaluations": (RUNS, ("enter", "up")),
    "evaluations-as-rows": (RUNS, ("enter", "v")),
}


def app(name: str, ascii: bool = False) -> Eager:
    dag, log = WAYS[name][0]
    painter = read_ensemble({"run.dag": dag()}, log()).painter()
    return Eager(PainterFeed(painter), AppOptions(ascii=ascii))


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "200x50"])
@pytest.mark.parametrize("screen", WAYS)
def test_screen_with_nodes(snap_compare, screen: str, size: tuple[int, int]) -> None:  # type: ignore[no-untyped-def]
    assert snap_compare(app(screen), terminal_size=size, run_before=pressed(WAYS[screen][1]))


def test_screen_with_nodes_in_ascii(snap_compare) -> None:  # type: ignore[no-untyped-def]
    made = app("nodes", ascii=True)
    assert snap_compare(made, terminal_size=(120, 30), run_before=pressed(("d",)))
