"""The screen of nodes: what is folded, opened, filtered; and the overview where nothing trains."""

from __future__ import annotations

from tests.support.event_logs import Log, read_ensemble
from tests.support.node_graphs import PainterFeed, fan, fan_log
from tests.support.screen_view import NARROW, WIDE, Show


def feed(width: int = 40, log: Log | None = None) -> PainterFeed:
    return PainterFeed(read_ensemble({"run.dag": fan(width)}, log or fan_log()).painter())


async def test_trouble_stands_first_and_what_is_alike_is_one_row(show: Show) -> None:
    async with show(feed(), size=WIDE) as seen:
        await seen.press("6")
        rows = [line for line in seen.lines if "work_" in line]
        assert "■ held" in rows[0]
        assert "✗ failed" in rows[1]
        assert "8 × work_016 … 023" in rows[2]
        assert "waits for work_003" in seen.line("gather")


async def test_rows_fold_and_unfold(show: Show) -> None:
    async with show(feed(), size=WIDE) as seen:
        await seen.press("6", "down", "down", "down")
        assert "8 × work_016" in seen.under_cursor
        await seen.press("right")
        assert "work_019" in seen.text
        await seen.press("down", "left")
        assert "8 × work_016" in seen.under_cursor
        await seen.press("left")
        assert "work_019" not in seen.text
        await seen.press("enter")
        assert "work_019" in seen.text
        await seen.press("minus")
        assert "   work_003" not in seen.text
        await seen.press("plus")
        assert "work_019" in seen.text


async def test_enter_opens_the_latest_job_or_says_why_there_is_none(show: Show) -> None:
    async with show(feed(), size=WIDE) as seen:
        await seen.press("6", "down", "enter")
        assert "13.0" in seen.text
        await seen.press("escape", "G", "enter")
        assert "it has no job to open: waits for the end of all others" in seen.text
        await seen.press("slash", *"gather", "enter", "enter")
        assert "no job to open: waits for work_003, work_007, work_016" in seen.text


async def test_filter_and_faults_show_nodes_alone(show: Show) -> None:
    async with show(feed(), size=WIDE) as seen:
        await seen.press("6", "slash", *"idle", "enter")
        assert "6 of 44 nodes" in seen.text
        await seen.press("escape", "f")
        assert "2 of 44 nodes" in seen.text
        assert "gather" not in "".join(seen.lines[3:])
        await seen.press("f")
        assert "gather" in seen.text
        await seen.press("slash", *"nothing like it", "enter")
        assert "No node has this in any column." in seen.text


async def test_a_dag_that_trains_nothing_shows_its_nodes_on_the_overview(show: Show) -> None:
    async with show(feed(), size=(80, 32)) as seen:
        assert "44 nodes" in seen.text
        assert "■ held" in seen.line("work_003")
        assert "PROVISIONER machines · waiting" in seen.text
        await seen.press("down", "enter")
        assert "13.0" in seen.text
        await seen.press("escape", "minus")
        assert "   work_003" not in seen.text
        await seen.press("6")
        assert " Nodes  44" in seen.text


async def test_the_cursor_stays_on_its_node_when_others_are_done(show: Show) -> None:
    shown = feed()
    async with show(shown, size=WIDE) as seen:
        await seen.press("6", "down", "down")
        assert "work_007" in seen.under_cursor
        log = fan_log().release(13).execute(13).terminate(13)
        later = feed(log=log)
        shown.painter = later.painter
        assert later.latest is not None
        await seen.publish(later.latest)
        assert "work_007" in seen.under_cursor
        assert "■ held" not in seen.text


async def test_ten_thousand_nodes_are_made_as_they_come_into_view(show: Show) -> None:
    shown = feed(10_000, Log().submit(1, "init").execute(1).terminate(1))
    asked: list[object] = []
    answer = shown.painter.node_row
    shown.node_row = lambda key: asked.append(key) or answer(key)  # type: ignore[method-assign]
    async with show(shown, size=WIDE) as seen:
        assert "10\u202f000 × work_000 … 9999" in seen.text
        await seen.press("plus")
        await seen.press("G")
        assert "FINAL report" in seen.under_cursor
    assert len(asked) < 400


async def test_nothing_read_yet_says_what_will_come(show: Show) -> None:
    shown = feed()
    shown._latest = None
    async with show(shown, size=NARROW) as seen:
        await seen.press("6")
        assert "as soon as their DAG has been read" in seen.text
