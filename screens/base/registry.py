"""The screens by name, and the tabs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from textual.screen import Screen

if TYPE_CHECKING:
    from screens.base.screens import SnapshotScreen


class ScreenEntry(Struct, frozen=True):
    """A screen: its class below ``screens``, its title, and the digit of its tab, if it has one.

    The module is imported when the screen is first opened.
    """

    path: str
    title: str = ""
    tab: int = 0


SCREENS: Final = {
    "overview": ScreenEntry("overview.screen.OverviewScreen", "Overview", 1),
    "health": ScreenEntry("health.screen.HealthScreen", "Health", 2),
    "sites": ScreenEntry("sites.SitesScreen", "Sites", 3),
    "annexes": ScreenEntry("annexes.AnnexesScreen", "Annexes", 3),
    "timeline": ScreenEntry("timeline.screen.TimelineScreen", "Timeline", 4),
    "curves": ScreenEntry("curves.CurvesScreen", "Curves", 5),
    "nodes": ScreenEntry("nodes.NodesScreen", "Nodes", 6),
    "grid": ScreenEntry("sweep.SweepScreen", "Grid", 6),
    "bag": ScreenEntry("shards.ShardsScreen", "Shards", 6),
    "estimates": ScreenEntry("estimates.EstimatesScreen", "Estimates", 7),
    "advice": ScreenEntry("advice.AdviceScreen", "Advice", 7),
    "inputs": ScreenEntry("sources.SourcesScreen", "Sources", 8),
    "compare": ScreenEntry("compare.CompareScreen"),
    "executions": ScreenEntry("sites.ExecutionsScreen"),
    "help": ScreenEntry("help.HelpScreen"),
    "home": ScreenEntry("home.HomeScreen"),
    "job": ScreenEntry("job.screen.JobScreen"),
    "new": ScreenEntry("submit.screen.SubmitScreen"),
    "output": ScreenEntry("job.output.OutputScreen"),
    "run": ScreenEntry("run.RunScreen"),
}
"""All screens that are opened by name; those of a tab in the order of its digit pressed again."""

TABS: Final = tuple(
    tuple(name for name, entry in SCREENS.items() if entry.tab == tab)
    for tab in range(1, 1 + max(entry.tab for entry in SCREENS.values()))
)
"""The names of the screens of each tab; the first gives the tab its title."""

_NAMES: Final = {f"screens.{entry.path}": name for name, entry in SCREENS.items()}


def title_of(name: str) -> str:
    """The title of a screen that has a tab."""
    return SCREENS[name].title


def create_screen(name: str, *arguments: object) -> SnapshotScreen:
    """Create the screen with this name; ``arguments`` are those of its class."""
    module, _, class_name = SCREENS[name].path.rpartition(".")
    screen: SnapshotScreen = getattr(import_module(f"screens.{module}"), class_name)(*arguments)
    return screen


def name_of_screen(screen: Screen[Any]) -> str | None:
    """The name of a screen's class in :data:`SCREENS`."""
    return _NAMES.get(f"{type(screen).__module__}.{type(screen).__name__}")
