"""The screens by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from textual.screen import Screen

from screens.base.screens import SnapshotScreen

SCREENS: Final = {
    "advice": "screens.advice.AdviceScreen",
    "annexes": "screens.annexes.AnnexesScreen",
    "bag": "screens.shards.ShardsScreen",
    "compare": "screens.compare.CompareScreen",
    "curves": "screens.curves.CurvesScreen",
    "estimates": "screens.estimates.EstimatesScreen",
    "executions": "screens.sites.ExecutionsScreen",
    "grid": "screens.sweep.SweepScreen",
    "health": "screens.health.screen.HealthScreen",
    "help": "screens.help.HelpScreen",
    "home": "screens.home.HomeScreen",
    "inputs": "screens.sources.SourcesScreen",
    "job": "screens.job.screen.JobScreen",
    "new": "screens.submit.screen.SubmitScreen",
    "nodes": "screens.nodes.NodesScreen",
    "output": "screens.job.output.OutputScreen",
    "overview": "screens.overview.screen.OverviewScreen",
    "run": "screens.run.RunScreen",
    "sites": "screens.sites.SitesScreen",
    "timeline": "screens.timeline.screen.TimelineScreen",
}
"""Module and class of each screen; the module is imported when the screen is first opened."""

_NAMES: Final = {path: name for name, path in SCREENS.items()}


def create_screen(name: str, *arguments: object) -> SnapshotScreen:
    """Create the screen with this name; ``arguments`` are those of its class."""
    module, _, class_name = SCREENS[name].rpartition(".")
    screen = getattr(import_module(module), class_name)(*arguments)
    assert isinstance(screen, SnapshotScreen)
    return screen


def name_of_screen(screen: Screen[Any]) -> str | None:
    """The name of a screen's class in :data:`SCREENS`."""
    return _NAMES.get(f"{type(screen).__module__}.{type(screen).__name__}")
