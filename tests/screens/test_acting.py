"""Acting from the keyboard: the selection, the question, and the answer."""

from __future__ import annotations

import asyncio
import re
import threading

import pytest
from msgspec.structs import replace

from metlmon.model.states import ACTIVE, DagState, State
from metlmon.pool.types import PoolAction, PoolError, QueueSnapshot, ResultCode
from metlmon.text.spans import text
from screens.actions import ACTIONS, changes_something
from screens.base.screens import ChoiceScreen, job_queue_lines
from screens.health import EntryScreen
from screens.help import HelpScreen
from screens.overview import OverviewScreen
from screens.pool_actions import PRIORITY_LIMIT, ConfirmScreen, MenuScreen, ResultsScreen
from screens.widgets.line_widget import Table
from tests.support.acting_app import opened_to_act
from tests.support.fake_pool import NOW, QUEUED, WORD, FakePool, QueuedFeed
from tests.support.four_sites import placed_feed
from tests.support.queue_rows import job, row
from tests.support.sample_snapshots import DAG, MEMORY_HOLD, RUNS, job_view, run, status, update
from tests.support.screen_view import NARROW

SMALL = (60, 20)
RUN1, RUN2, RUN3, RUN4 = (RUNS[n].latest.cluster for n in (1, 2, 3, 4))  # type: ignore[union-attr]


TO_RUN1 = ("down",)
"""Keys to the held run, the second of the overview."""

HELD_ENTRY = ("2", "slash", *"memory", "enter")
"""Keys to its entry of Health."""

WAYS = ((), ("enter", "enter"), (*HELD_ENTRY, "enter"))


# --- marks -----------------------------------------------------------------------------------


async def test_rows_are_marked_and_unmarked() -> None:
    async with opened_to_act() as seen:
        await seen.press("space", "space")
        assert "run2" in seen.under_cursor
        assert seen.line("run0").startswith(" ◆")
        assert seen.line("run1").startswith(" ◆")
        assert "2 marked, [&] compares, [esc] clears" in seen.text
        await seen.press("up", "space")
        assert not seen.line("run1").startswith(" ◆")
        assert "1 marked" in seen.text
        await seen.press("up", "up")
        assert seen.under_cursor.startswith("▌◆run0"), "cursor and mark are both seen"
        await seen.press("escape", "slash", *"running", "enter", "ctrl+a")
        assert "3 marked" in seen.text, "all rows that are shown"
        await seen.press("escape")
        assert "3 marked" in seen.text
        await seen.press("ctrl+a")
        assert "10 marked" in seen.text
        await seen.press("ctrl+a")
        assert "marked" not in seen.text
        await seen.press("ctrl+a")
        await seen.publish(update(status(RUNS[:3])))
        assert "3 marked" in seen.text, "a mark goes with its row"


async def test_marks_outlive_refresh_order_and_filter() -> None:
    async with opened_to_act() as seen:
        await seen.press("down", "space", "space")
        await seen.publish(update(status(tuple(reversed(RUNS)))))
        await seen.press("s")
        assert [run for run in RUNS if seen.line(f"{run.run} ")[1] == "◆"] == list(RUNS[1:3])
        await seen.press("slash", *"anvil", "enter")
        assert "2 marked, 2 of them not shown, [&] compares, [esc] clears" in seen.text
        await seen.press("escape")
        assert "2 marked, [&] compares, [esc] clears" in seen.text, "the filter goes first"
        await seen.press("escape")
        assert "marked" not in seen.text


async def test_rows_are_clicked() -> None:
    async with opened_to_act() as seen:
        table = seen.app.screen.query_one(Table)
        assert await seen.pilot.click(table, offset=(4, 2))
        assert "run1" in seen.under_cursor
        await seen.press("a")
        menu = seen.app.screen.query_one(Table)
        assert await seen.pilot.click(menu, offset=(4, 1), times=2)
        assert isinstance(seen.app.screen, ConfirmScreen), "of the act in that row"


async def test_several_are_marked_in_a_choice() -> None:
    taken: list[tuple[str, ...] | None] = []
    async with opened_to_act() as seen:
        sites = {"aws": "12 slots", "delta": "3 slots", "anvil": "1 slot"}
        choice = ChoiceScreen("Sites", sites, ("delta", "unlisted"), several=True)
        await seen.app.push_screen(choice, taken.append)
        await seen.press("space", "down", "space")
        assert "✓ anvil  1 slot" in seen.text
        assert "✓ delta" not in seen.text
        await seen.press("enter")
        assert taken == [("anvil", "unlisted")]


# --- the selection on each screen -------------------------------------------------------------


TOUCHED = {
    "run": ((*TO_RUN1, "R"), PoolAction.RELEASE, (RUN1,)),
    "marked runs": (
        ("down", "space", "space", "down", "space", "end", "a", "X"),
        PoolAction.REMOVE,
        (RUN1, RUN2, RUN4),
    ),
    "job": (("down",) * 4 + ("enter", "enter", "a", "V"), PoolAction.VACATE, (RUN4,)),
    "health entry": ((*HELD_ENTRY, "R"), PoolAction.RELEASE, (RUN1,)),
    # run9 has failed: it has no job in the queue.
    "health entries": (("2", "ctrl+a", "a", "X"), PoolAction.REMOVE, (RUN1,)),
}


@pytest.mark.parametrize("what", TOUCHED)
async def test_action_applies_to_marked_rows_or_the_cursor(what: str) -> None:
    keys, act, clusters = TOUCHED[what]
    async with opened_to_act() as seen:
        await seen.press(*keys)
        shown = seen.app.screen_stack[1]
        assert seen.touched == []
        await seen.press("y")
        assert seen.touched == [(act, [f"{cluster}.0" for cluster in clusters])]
        await seen.press("escape")
        assert shown in seen.app.screen_stack, "leaving the answers comes back"


async def test_action_key_after_a_filter_is_not_part_of_it() -> None:
    """Typed fast, or received in one packet: each key in order and for its own widget."""
    async with opened_to_act() as seen:
        for key in ("slash", *"run3", "enter", "a", "X"):
            seen.app.simulate_key(key)
        await seen.until(lambda: f"Remove job {RUN3}.0 of run3" in seen.text)
        await seen.press("escape")
        for key in ("slash", "escape", "a", "H"):
            seen.app.simulate_key(key)
        await seen.until(lambda: f"Hold job {RUN3}.0 of run3" in seen.text)
        await seen.press("escape")
        assert "filter run3" not in seen.text
        assert seen.touched == []


async def test_jobs_of_an_entry_are_selected_by_marks() -> None:
    runs = (*RUNS[:2], run("run2", 3, 30, State.HELD, hold=MEMORY_HOLD))
    async with opened_to_act(feed=QueuedFeed(update(status(runs)))) as seen:
        await seen.press("2", "enter")
        assert isinstance(seen.app.screen, EntryScreen)
        await seen.press("down", "R", "y", "escape")
        assert seen.touched == [(PoolAction.RELEASE, [f"{RUN1}.0"])]
        await seen.press("ctrl+a", "R", "y")
        assert seen.touched[1] == (PoolAction.RELEASE, [f"{RUN1}.0", f"{RUN2}.0"])


async def test_site_is_excluded_and_included() -> None:
    waiting = tuple(row(n) for n in (5, 6))
    pool = FakePool()
    pool.queued = waiting
    pool.queue_snapshot = replace(WORD, user="anna@x", jobs=tuple(job(n) for n in (5, 6)))
    async with opened_to_act(pool, feed=placed_feed(), size=(80, 24)) as seen:
        await seen.press("3", "/", *"chtc", "enter", "a")
        assert [line.split()[:3] for line in seen.lines[3:4]] == [["▌", "J", "exclude"]]
        assert "hold" not in seen.text, "a site is not a job"
        await seen.press("J")
        assert isinstance(seen.app.screen, ConfirmScreen)
        assert "Exclude the site CHTC-Spark-CE1?" in seen.text
        assert "2 waiting jobs no longer match its machines" in seen.text
        assert "It touches 2 jobs" in seen.text
        await seen.press("y", "escape")
        (order,) = pool.orders
        assert (order.act, order.site) == (PoolAction.EXCLUDE_SITE, "CHTC-Spark-CE1")
        assert [each.id for each in order.targets] == ["5.0", "6.0"]
        excluded = tuple(replace(job(n), excluded=("CHTC-Spark-CE1",)) for n in (5, 6))
        pool.queue_snapshot = replace(pool.queue_snapshot, jobs=excluded)
        await seen.press("a")
        assert "exclude site" not in seen.text, "it is excluded already"
        await seen.press("I", "y", "escape")
        assert pool.orders[1].act is PoolAction.INCLUDE_SITE
        await seen.press("escape", "v", "a")
        assert "✗ no site is selected" in seen.text, "a GPU model is none"
        await seen.press("escape", "v", "v", "home", "a", "J")
        host = seen.text.split("Exclude the host ")[1].split("?")[0]
        await seen.press("y", "escape")
        assert (pool.orders[2].act, pool.orders[2].site) == (PoolAction.EXCLUDE_HOST, host)


@pytest.mark.parametrize("way", [("enter", "enter"), (*HELD_ENTRY, "enter")])
async def test_every_action_works_on_every_screen(way: tuple[str, ...]) -> None:
    """Held, running and halted in turn, so that each action is possible once."""
    halted = update(replace(status(), dags=(replace(status().dags[0], halted=True),)))
    over = update(replace(status(), dags=(replace(status().dags[0], state=DagState.FAILED),)))
    async with opened_to_act() as seen:
        await seen.press(*TO_RUN1, *way)
        for key, picture, done in (
            ("R", update(), PoolAction.RELEASE),
            ("X", update(), PoolAction.REMOVE),
            ("Z", update(), PoolAction.HALT),
            ("Z", halted, PoolAction.RESUME),
            ("D", update(), PoolAction.REMOVE_DAG),
            ("U", over, PoolAction.RESUBMIT),
        ):
            await seen.publish(picture)
            await seen.press("a", key)
            assert isinstance(seen.app.screen, ConfirmScreen), (key, seen.text)
            await seen.press("y", "escape")
            assert seen.pool.orders[-1].act is done
        await seen.publish(update())
        await seen.press("a", "P", "4", "2", "enter", "y")
        assert (seen.pool.orders[-1].act, seen.pool.orders[-1].value) == (PoolAction.PRIORITY, 42)
        assert len(seen.pool.orders) == 7
        dags = {order.dag for order in seen.pool.orders if order.dag is not None}
        assert dags == {DAG}


async def test_held_dagman_is_released_by_two_keys() -> None:
    """Releasing jobs has the same key, but none is held."""
    held = replace(status().dags[0], state=DagState.HELD)
    async with opened_to_act() as seen:
        await seen.publish(update(replace(status(), dags=(held,))))
        await seen.press("R")
        assert isinstance(seen.app.screen, ConfirmScreen), seen.text
        assert "■ held" in seen.text, "DAGMan's own job"
        await seen.press("y")
        assert [order.act for order in seen.pool.orders] == [PoolAction.RELEASE_DAG]


async def test_key_in_the_header_acts_on_the_named_jobs() -> None:
    async with opened_to_act(feed=QueuedFeed(update(status(RUNS[:9])))) as seen:
        assert "run0" in seen.under_cursor
        assert "[a][B]" in seen.lines[1]
        await seen.press("a")
        assert f"job {RUN1}.0 of run1" in seen.under_cursor
        await seen.press("B")
        assert f"Raise request_memory of job {RUN1}.0 of run1" in seen.text
        await seen.press("escape", "escape", "space", "a")
        assert f"{RUN1}.0" not in seen.text, "another row is marked"


async def test_dag_is_chosen_among_several() -> None:
    second = tuple(replace(row, key=f"2{row.key}", dag="second.dag") for row in RUNS[:2])
    feed = QueuedFeed(update(status((*RUNS, *second))))
    async with opened_to_act(feed=feed, size=(120, 40)) as seen:
        await seen.press("ctrl+a", "a", "Z")
        assert isinstance(seen.app.screen, MenuScreen)
        assert seen.pool.orders == []
        assert sum(" halt " in line for line in seen.lines) == 2
        await seen.press("down", "enter")
        assert "Halt second.dag?" in seen.text
        await seen.press("escape", "home", "Z", "Z", "enter")
        assert "Halt second.dag?" in seen.text, "its key goes from one to the next"
        await seen.press("y")
        assert [(order.act, order.dag) for order in seen.pool.orders] == [
            (PoolAction.HALT, "second.dag")
        ]


# --- the question -----------------------------------------------------------------------------


async def test_question_names_every_job_and_the_undo() -> None:
    async with opened_to_act(size=SMALL) as seen:
        await seen.press("ctrl+a", "a", "H")
        result = seen.text
        while "more" in seen.lines[-2]:
            await seen.press("pagedown")
            result += seen.text
        for row in RUNS:
            if row.state in ACTIVE and row.latest is not None:
                line = next(
                    each for each in result.splitlines() if f" {row.latest.cluster}.0" in each
                )
                assert row.run in line
                assert str(row.latest.epoch + 1) in line
        for word in ("Hold 5 jobs", "It touches 5 jobs", "To undo: ", "4 jobs left out",
                     "✓ completed"):  # fmt: skip
            assert word in result, word
        assert all(len(line) == SMALL[0] for line in seen.lines)


async def test_only_y_confirms() -> None:
    async with opened_to_act() as seen:
        for key in ("escape", "n", "enter", "space", "Y", "H", "X", "a"):
            await seen.press("home", *TO_RUN1, "a", "X")
            assert isinstance(seen.app.screen, ConfirmScreen)
            await seen.press(key, key)
            while not isinstance(seen.app.screen, OverviewScreen):
                await seen.press("escape")
            assert seen.pool.orders == []


async def test_dag_removal_names_its_jobs_and_has_one_answer() -> None:
    async with opened_to_act() as seen:
        await seen.press("a", "D")
        assert f"Remove {DAG} and its 6 jobs in the queue?" in seen.text
        assert "DAGMan's own job" in seen.text
        assert "14690000.0" in seen.text
        for name in ("run1", "run2", "run3", "run4", "run7", "run8"):
            assert f" {name} " in seen.text
        await seen.press("y")
        assert any(DAG in line and "✓ done" in line for line in seen.lines)
        assert "14690000.0" not in seen.text
        await seen.press("escape", "a", "Z", "y")
        assert f"Halt {DAG}" in seen.text
        assert any(DAG in line and "✓ done" in line for line in seen.lines)
        assert "1 of 1 answered" in seen.text


async def test_priority_is_typed_and_validated() -> None:
    async with opened_to_act() as seen:
        await seen.press(*TO_RUN1, "a", "P", "7", "escape")
        assert isinstance(seen.app.screen, MenuScreen)
        await seen.press("P")
        assert "Type the new priority, then enter" in seen.text
        await seen.press("y", "enter")
        assert "a whole number" in seen.text
        await seen.press(*"9999999999", "enter")
        assert f"to {PRIORITY_LIMIT} is needed" in seen.text
        await seen.press(*["backspace"] * 10, "minus", "5", "enter")
        assert f"Set the priority of job {RUN1}.0 of run1 to -5?" in seen.text
        assert seen.pool.orders == []
        await seen.press("enter")
        assert seen.pool.orders == []
        await seen.press("y")
        (order,) = seen.pool.orders
        assert (order.act, order.value) == (PoolAction.PRIORITY, -5)


async def test_request_is_raised_to_the_typed_value() -> None:
    pool = FakePool()
    queued = replace(job(RUN1 or 0, 5), request_memory=8192)
    pool.queue_snapshot = replace(WORD, user="anna@x", jobs=(queued,))
    async with opened_to_act(pool, size=(80, 24)) as seen:
        await seen.press(*TO_RUN1, "a", "B")
        assert "8GB" in seen.text, "what it is now"
        await seen.press(*"1x", "enter")
        assert "a factor above 1" in seen.text
        await seen.press(*["backspace"] * 2, *"12GB", "enter")
        assert "From 8GB to 12GB" in seen.text
        assert "request_memory = 12GB" in seen.text, "the line of the submit file"
        await seen.press("y")
        (order,) = pool.orders
        assert order.act is PoolAction.RAISE_MEMORY
        assert [each.value for each in order.targets] == [12288]


# --- the menu ---------------------------------------------------------------------------------


async def test_menu_has_every_action_with_subject_or_reason() -> None:
    async with opened_to_act(size=SMALL) as seen:
        await seen.press("down", "space", "space", "a")
        assert "Act on 2 runs" in seen.lines[0]
        for key, result in (("H", f"job {RUN2}.0 of run2"), ("R", f"job {RUN1}.0 of run1"),
                          ("X", "2 jobs of 2 runs"), ("P", "2 jobs of"), ("Z", DAG),
                          ("D", DAG), ("U", "✗ the DAG runs"),
                          ("V", f"job {RUN2}.0 of run2")):  # fmt: skip
            assert any(line[2:4] == f"{key} " and result in line for line in seen.lines), key
        await seen.press("R")
        assert isinstance(seen.app.screen, ConfirmScreen)
        await seen.press("escape")
        assert isinstance(seen.app.screen, MenuScreen)
        await seen.press("U", "enter")
        assert "not now: the DAG runs" in seen.text
        await seen.press("X", "y")
        assert seen.touched == [(PoolAction.REMOVE, [f"{RUN1}.0", f"{RUN2}.0"])]
        await seen.press("escape")
        assert isinstance(seen.app.screen, OverviewScreen)


@pytest.mark.parametrize("way", [TO_RUN1, HELD_ENTRY])
async def test_menu_opens_at_the_advised_action(way: tuple[str, ...]) -> None:
    async with opened_to_act() as seen:
        await seen.press(*way, "a")
        await seen.until(lambda: "raise memory" in seen.under_cursor)


# --- unavailable actions ----------------------------------------------------------------------


async def test_menu_without_a_pool_has_all_actions_with_the_reason() -> None:
    async with opened_to_act(no_pool="this is a recording") as seen:
        assert "a act" in seen.lines[-1]
        seen.app.opened = replace(seen.app.opened, pool=None)
        await seen.press(*TO_RUN1)
        for key in "HPZOE":
            await seen.press("a", key)
            assert isinstance(seen.app.screen, MenuScreen)
            assert "not now: this is a recording" in seen.text
            assert seen.text.count("✗ this is a recording") == 1, "one reason is one row"
            assert "15 acts" in seen.text
            await seen.press("enter", "y", "escape")
        assert seen.pool.orders == []


async def test_unavailable_key_says_where_it_works() -> None:
    pool = FakePool()
    async with opened_to_act(pool, size=(80, 24)) as seen:
        await seen.press(*HELD_ENTRY)
        await seen.until(lambda: "[a][B]" in seen.text)
        assert "where a schedd answers" not in seen.text
        pool.queue_snapshot = replace(WORD, error="no schedd on this host")
        await seen.publish(update())
        await seen.until(lambda: "[a][B] where a schedd answers" in seen.text)


async def test_actions_need_an_answer_of_the_schedd() -> None:
    pool = FakePool()
    pool.queue_snapshot = QueueSnapshot(is_pending=True)
    async with opened_to_act(pool) as seen:
        await seen.press(*TO_RUN1, "a", "X", "y")
        assert "not now: the schedd has not answered yet" in seen.text
        assert pool.orders == []
        pool.queue_snapshot = WORD
        await seen.until(lambda: "the schedd has not answered" not in seen.text)
        await seen.press("X", "y")
        assert len(pool.orders) == 1


async def test_palette_has_actions_with_subject_or_reason() -> None:
    async with opened_to_act(size=(120, 44)) as seen:
        await seen.press("colon")
        for act, why in (
            ("hold", "completed: no longer in the queue"),
            ("resubmit DAG", "the DAG runs"),
            ("exclude", "no site or host is selected: see Sites"),
        ):
            await seen.press("ctrl+u", *act)
            assert re.search(rf"{act} +✗ {why}", seen.text)
        await seen.press("ctrl+u", *"halt", "enter")
        assert isinstance(seen.app.screen, ConfirmScreen)
        await seen.press("enter", "escape")
        assert seen.pool.orders == []


async def test_read_only_has_no_changing_key() -> None:
    gone = [action for action in ACTIONS if changes_something(action)]
    assert {"acting", "overview", "submit"} <= {action.scope for action in gone}
    kept = {action.help for action in ACTIONS if not changes_something(action)}
    helps = {action.help for action in gone} - kept
    async with opened_to_act(size=(200, 160), read_only=True) as seen:
        assert "read-only" in seen.line("metlmon")
        scopes = ("acting", "acts", "overview")
        keys = [key for a in gone if a.scope in scopes for key in a.keys]
        for way in WAYS:
            await seen.press(*TO_RUN1, *way)
            screen = seen.app.screen
            for key in keys:
                seen.app.simulate_key(key)
            await seen.settle()
            assert seen.app.screen is screen, way
            assert "marked" not in seen.text
            assert "a act" not in seen.lines[-1]
            assert "N new" not in seen.lines[-1]
            await seen.press("colon")
            await seen.press("escape", "escape", "escape", "escape")
        await seen.press("question_mark")
        assert isinstance(seen.app.screen, HelpScreen)
        assert [result for result in helps if result in seen.text] == []
        assert "Acting" not in seen.text
        await seen.app.run_action("screen.hold", default_namespace=seen.app.screen_stack[1])
        assert seen.pool.orders == []


async def test_missing_schedd_for_submission_is_reported() -> None:
    async with opened_to_act(no_pool="no HTCondor here") as seen:
        await seen.press("N")
        assert "nothing can be submitted: no HTCondor here" in seen.text
        await seen.press("down")
        assert "nothing can be submitted" not in seen.text


# --- answers ----------------------------------------------------------------------------------


async def test_action_continues_after_leaving_and_reports_its_end() -> None:
    pool = FakePool()
    pool.gate = threading.Event()
    async with opened_to_act(pool) as seen:
        pressed = seen.pilot.press
        await pressed("down", "space", "space", "a", "X")
        await seen.pilot.pause()
        await pressed("y")
        await seen.until(lambda: "1 of 2 answered" in seen.text)
        assert isinstance(seen.app.screen, ResultsScreen)
        assert "· no answer yet" in seen.line(f"{RUN2}.0")
        await pressed("escape")
        await seen.until(lambda: isinstance(seen.app.screen, OverviewScreen))
        assert "remove: 1 of 2 answered" in seen.text
        await pressed("a", "H")
        await seen.until(lambda: isinstance(seen.app.screen, MenuScreen))
        assert "remove is still under way" in seen.text
        await pressed("escape")
        pool.gate.set()
        await seen.until(lambda: "remove: ✓ 2 done" in seen.text)
        await seen.press("a", "A")
        assert isinstance(seen.app.screen, ResultsScreen)
        assert "2 of 2 answered" in seen.text
        await seen.press("escape")
        assert "remove:" not in seen.text, "its end was seen"


@pytest.mark.parametrize("reply", [ResultCode.DONE, ResultCode.FAILED])
async def test_quitting_cancels_an_action_only_on_silence(reply: ResultCode) -> None:
    pool = FakePool()
    pool.gate = threading.Event()
    pool.replies = {f"{RUN2}.0": (reply, "")}
    async with opened_to_act(pool) as seen:
        await seen.press("down", "space", "space", "space", "a", "X")
        await seen.pilot.press("y")
        await seen.until(lambda: "1 of 3 answered" in seen.text)
        deed = seen.app.running_action
        assert deed is not None
        await seen.app.action_quit()
        pool.gate.set()
        while not deed.ended:
            await asyncio.sleep(0)
    result = [answer.reply for answer in deed.results]
    assert result == [ResultCode.DONE, reply] + [ResultCode.DONE] * (reply is ResultCode.DONE)


async def test_errors_are_one_sentence() -> None:
    pool = FakePool()
    pool.error = PoolError("The schedd ap40.example.org does not answer: try again in a minute.")
    async with opened_to_act(pool) as seen:
        await seen.press("down", "space", "space", "a", "X", "y")
        assert "The schedd ap40.example.org does not answer" in seen.text
        assert "1 of 2 answered" in seen.text
        assert "– not answered" in seen.line(f"{RUN2}.0")
        assert "✓ done" in seen.line(f"{RUN1}.0")


# --- the queue on screens ---------------------------------------------------------------------


async def test_lasting_difference_is_a_warning() -> None:
    feed = QueuedFeed(update())
    assert feed.queued is not None
    feed.queued = replace(feed.queued, differs="the queue says held, the log says idle")
    async with opened_to_act(feed=feed) as seen:
        await seen.press("down", "down", "down")
        assert "the queue says held, the log says idle" in seen.text
        await seen.press("enter", "enter")
        assert "! the queue says held, the log says idle" in seen.text


@pytest.mark.parametrize("size", [NARROW, (120, 40)])
async def test_idle_run_and_job_have_their_queue_position(size: tuple[int, int]) -> None:
    async with opened_to_act(size=size) as seen:
        await seen.press("down", "down", "down")
        assert "place 3 of 7 idle   rejected 4m ago: no match found" in seen.text
        await seen.press("enter")
        assert "epoch 9  place 3 of 7 idle" in seen.text
        await seen.press("enter")
        for result in ("3 of 7 idle", "priority 10", "2 matches", "asked 12s ago",
                     "last rejected 4m ago: no match found"):  # fmt: skip
            assert result in seen.text
        await seen.press("escape", "up")
        assert "3 of 7 idle" not in seen.text


@pytest.mark.parametrize(("state", "shown"), [(State.IDLE, True), (State.REMOVED, False)])
def test_job_that_has_left_has_no_place_in_the_queue(state: State, shown: bool) -> None:
    """The schedd was asked before the log had the removal."""
    view = job_view(RUNS[1], 14700390)
    view = replace(view, job=replace(view.job, state=state), queue=QUEUED, queried_at=NOW - 12)
    shown_text = "\n".join(text(each) for each in job_queue_lines(view, NOW, 78))
    assert ("in the queue" in shown_text) is shown
    differs = replace(view, queue=replace(QUEUED, differs="the queue says idle"))
    assert "the queue says idle" in text(job_queue_lines(differs, NOW, 78)[0])


async def test_warnings_name_the_schedd() -> None:
    async with opened_to_act(size=(100, 40)) as seen:
        await seen.press("8")
        for result in ("ap40.example.org", "as someone@example.org", "12s ago"):
            assert result in seen.text
        seen.pool.queue_snapshot = QueueSnapshot(
            error="no HTCondor is installed here", next_try=NOW + 90
        )
        await seen.publish(update())
        assert "no HTCondor is installed here" in seen.text
        assert "asked again in 1m" in seen.text
    async with opened_to_act(size=(100, 40), no_pool="this is a recording") as seen:
        seen.app.opened = replace(seen.app.opened, pool=None)
        await seen.press("8")
        assert "not asked: this is a recording" in seen.text
