"""The key scheme: one letter means one thing, digits choose screens, actions are behind one key."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

import metlmon
from metlmon.config.settings import Settings
from metlmon.model.states import State
from metlmon.tables.layout import Value, value_order
from metlmon.text import spans
from metlmon.text.formatting import STATES
from metlmon.text.spans import file_name
from screens.actions import (
    ACTIONS,
    HELP_CELLS,
    KNOWN_NAMES,
    SCOPES,
    SCREENS,
    TABS,
    actions_of,
    keymap,
    name_of_screen,
)
from screens.app import AppOptions, MetlmonApp
from screens.base.screens import SnapshotScreen, tab_line
from screens.help import context_lines
from screens.overview import header
from screens.sweep import Matrix
from screens.widgets.form import FormView
from screens.widgets.line_widget import SidePane, Table
from tests.support.four_sites import placed_feed
from tests.support.sample_snapshots import FakeFeed, status, update
from tests.support.screen_view import NARROW, opened

WIDGETS: dict[str, type] = {
    "everywhere": MetlmonApp,
    "tabs": MetlmonApp,
    "moving": Table,
    "sideways": Matrix,
    "form": FormView,
    "preview": SidePane,
}

TYPED = {"form", "typing", "submit"}
"""Scopes in which letters are text."""


def screen_classes(of: type = SnapshotScreen) -> Iterator[type[SnapshotScreen]]:
    for cls in of.__subclasses__():
        yield from screen_classes(cls)
        yield cls


for entry in SCREENS.values():
    __import__(f"screens.{entry.path.rpartition('.')[0]}", fromlist=["_"])
CLASSES = sorted({cls for cls in screen_classes() if cls.SCOPES}, key=lambda cls: cls.__name__)


def test_letter_has_one_meaning_on_every_screen() -> None:
    meanings: dict[str, set[str]] = {}
    for action in ACTIONS:
        for key in action.keys:
            if action.scope not in TYPED and len(key) == 1 and key.isalnum():
                meanings.setdefault(key, set()).add(action.name)
    # Trees and tables move alike with the letters of the arrows.
    assert meanings.pop("h") == {"before", "left"}
    assert meanings.pop("l") == {"after", "right"}
    # f filters, y confirms.
    assert {key: names for key, names in meanings.items() if len(names) > 1} == {
        "f": {"faults", "kind", "fix"},
        "y": {"confirm", "launch"},
    }


def test_no_action_has_a_navigation_key() -> None:
    acts = {key for action in actions_of(("acts",)) for key in action.keys}
    others = {key for action in ACTIONS if action.scope != "acts" for key in action.keys}
    assert not acts & others
    assert "a" in others


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_no_two_actions_of_one_screen_share_a_key(cls: type[SnapshotScreen]) -> None:
    extra = {"SweepScreen": ("sideways",), "SubmitScreen": ()}.get(cls.__name__, ())
    scopes = dict.fromkeys((*cls.SCOPES, *cls.PALETTE_SCOPES, *extra))
    if not set(scopes) & {"submit", "launch", "question"}:
        scopes |= dict.fromkeys(("everywhere", "tabs", "moving"))
    # The tree's arrows and the table's keys differ; the overview has both.
    keys = [key for action in actions_of(scopes) for key in action.keys]
    assert sorted(keys) == sorted(set(keys))


OWNERS = [
    *((cls, (*cls.SCOPES, *cls.PALETTE_SCOPES)) for cls in CLASSES),
    *((owner, (scope,)) for scope, owner in WIDGETS.items()),
]


@pytest.mark.parametrize(("owner", "scopes"), OWNERS)
def test_every_action_has_a_method(owner: type, scopes: tuple[str, ...]) -> None:
    for action in actions_of(scopes):
        cls = MetlmonApp if action.name in {"new", "palette", "help", "quit"} else owner
        assert callable(getattr(cls, f"action_{action.name.partition('(')[0]}")), action


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_help_of_each_screen_fits_one_page(cls: type[SnapshotScreen]) -> None:
    lines = context_lines(cls.HELP_SCOPES or cls.SCOPES, 80)
    assert len(lines) <= 24 - 3
    assert all(spans.width(line) <= 80 for line in lines)


def test_texts_fit_their_columns() -> None:
    assert [action.help for action in ACTIONS if len(action.help) > HELP_CELLS] == []
    in_tabs = [name for names in TABS for name in names]
    titles = {name: f"{SCREENS[name].tab}{SCREENS[name].title}]" for name in in_tabs}
    assert all(title in spans.text(tab_line(name, 80)) for name, title in titles.items())
    assert all(spans.width(tab_line(name, 80)) <= 80 for name in (*in_tabs, None))


def test_the_guide_has_every_key() -> None:
    guide = Path(metlmon.__file__).with_name("GUIDE.md").read_text()
    rows = ["| where | keys |", "|---|---|"]
    for scope, title in (("tabs", "Screens"), *SCOPES.items()):
        actions = [action for action in actions_of((scope,)) if action.keys]
        texts = (f"`{' '.join(a.keys)}` {a.help[:1].lower()}{a.help[1:]}" for a in actions)
        if actions:
            rows.append(f"| {title} | {' · '.join(texts)} |")
    assert "\n".join(rows) in guide


async def test_digits_choose_screens_and_unbound_keys_are_reported() -> None:
    async with opened(size=NARROW) as seen:
        for number, names in enumerate(TABS, 1):
            await seen.press(str(number))
            for i, name in enumerate(names):
                assert name_of_screen(seen.app.screen) == name
                assert f"[{number}" in seen.lines[-2]
                await seen.press(*[str(number)] * (i + 1 < len(names)))
        await seen.press("1")
        assert len(seen.app.screen_stack) == 2
        await seen.press("y")
        assert "[y] does nothing here" in seen.text
        await seen.press("down", "y")
        assert "does nothing" not in seen.text, "it is said once"


# --- custom keys and columns ---------------------------------------------------------------------


def test_keys_can_be_replaced_per_action_or_scope() -> None:
    keys = {"sort": "o ^o", "grid.swap": "Y", "nonsense": "x"}
    (sort,) = (action for action in actions_of(("list",), keys=keys) if action.name == "sort")
    assert (sort.keys, sort.cap) == (("o", "^o"), "o")
    assert keymap(keys) == {"list.sort": "o,ctrl+o", "grid.swap": "Y"}
    assert [name for name in keys if name not in KNOWN_NAMES["keys"]] == ["nonsense"]
    assert set(SCOPES) >= {action.scope for action in ACTIONS} - {"tabs"}


async def test_replaced_key_works_and_is_shown() -> None:
    feed = FakeFeed(update())
    feed.set = Settings(keys=(("sort", "y"),))
    async with opened(feed, size=NARROW) as seen:
        assert "y sort" in seen.lines[-1]
        await seen.press("y")
        assert " by " in seen.lines[-4] + seen.lines[-3]
        await seen.press("s")
        assert "[s] does nothing here" in seen.text


async def test_columns_are_chosen_sorted_and_stored(tmp_path: Path) -> None:
    file = tmp_path / "state" / "lists.json"
    options = AppOptions(state_file=file)
    async with opened(size=(80, 18), options=options) as seen:
        await seen.press("asterisk")
        assert "esc closes   ↓" in seen.text
        await seen.press("escape", "2")
        assert " RUNS " in seen.text
        await seen.press("asterisk", "down", "space", *["down"] * 4, "enter")
        assert " RUNS " not in seen.text
        assert "by GPU-H" in seen.text
    async with opened(size=NARROW, options=options) as seen:
        await seen.press("2")
        assert " RUNS " not in seen.text
        assert "by GPU-H" in seen.text


@pytest.mark.parametrize(
    "values",
    [
        [1_571_400.0, 5.8, 3, -1, 0.0 - 2, None],
        [5, 0, "run2", "run9", "run12", ""],
        [STATES[State.COMPLETED], STATES[State.HELD], STATES[State.RUNNING], "–"],
        [datetime(2024, 11, 14, 8, 14), datetime(2025, 1, 3, 10), None],
        [math.inf, 0.4, math.nan],
    ],
    ids=["numbers", "names", "states", "times", "metrics"],
)
def test_rows_are_sorted_by_the_values_of_a_column(values: list[Value]) -> None:
    rows = values[::-1]
    rows.sort(key=value_order)
    assert rows == values


@pytest.mark.parametrize("way", [(), ("3",), ("4",)], ids=str)
async def test_footer_offers_no_letter_while_typing(way: tuple[str, ...]) -> None:
    async with opened(placed_feed(), size=NARROW) as seen:
        await seen.press(*way, "slash", "a")
        assert seen.lines[-1].strip() == "enter keep filter   esc clear filter"
        await seen.press("enter")
        assert "esc clear filter" in seen.lines[-1]
        assert ("q back" if way else "q quit") in seen.lines[-1]
        await seen.press("escape")
        assert "esc" not in seen.lines[-1]


# --- truncation ---------------------------------------------------------------------------------


def test_similar_names_of_dags_stay_distinct() -> None:
    names = [
        f"runs/heterogeneous_pretraining_round_2_site_policy_{end}.dag" for end in ("a7", "b1")
    ]
    assert file_name(names[0], 100) == names[0].removeprefix("runs/")
    for cells in range(8, 60):
        shown = [file_name(name, cells) for name in names]
        assert max(map(len, shown)) <= cells
        if cells >= 12:
            assert shown[0] != shown[1], shown


@pytest.mark.parametrize("cells", range(60, 140, 8))
def test_done_nodes_are_shown_at_every_width(cells: int) -> None:
    now = status()
    dags = tuple(replace(dag, nodes_done=146, nodes_total=450) for dag in now.dags)
    lines = [spans.text(each) for each in header(update(replace(now, dags=dags)), "d", cells)]
    result = [each for each in lines if "146 of 450" in each]
    assert len(result) == len(dags) or cells < 80
    assert all(" done" in each for each in result)
