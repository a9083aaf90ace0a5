"""Text that is pasted without being marked as a paste, or typed by a cat: it does nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pasted_words import WORDS

from screens.actions import ACTIONS
from screens.app import CONFIRM_SECONDS, AppOptions
from screens.overview.screen import OverviewScreen
from screens.pool_actions.confirm import ConfirmScreen
from screens.terminal.input_decoder import InputDecoder
from tests.support.fake_pool import NOW, FakePool, QueuedFeed
from tests.support.sample_snapshots import update
from tests.support.screen_view import NARROW, Eager, Seen


class Patient(Eager):
    """Questions wait for their answer as they do for users."""

    CONFIRM_SECONDS = CONFIRM_SECONDS

    def now(self) -> float:
        return NOW


@asynccontextmanager
async def watched() -> AsyncIterator[tuple[Seen, FakePool]]:
    pool = FakePool()
    feed = QueuedFeed(update(), Path("/nowhere/global_pretraining"))
    options = AppOptions(pool_actions=pool, submission_pool=FakePool())  # type: ignore[arg-type]
    app = Patient(feed, options)  # type: ignore[arg-type]
    async with app.run_test(size=NARROW) as pilot:
        seen = Seen(app, feed, pilot)
        await seen.settle()
        yield seen, pool


def test_words_begin_with_each_letter_that_acts() -> None:
    letters = {key for each in ACTIONS if each.scope in ("acting", "question") for key in each.keys}
    assert {each for each in letters if len(each) == 1} <= {word[0] for word in WORDS} | set("anyq")
    assert len(set(WORDS)) >= 200


SCREENS: dict[str, tuple[str, ...]] = {
    "overview": (),
    "run": ("enter",),
    "job": ("enter", "enter"),
    "acts": ("down", "a"),
    "question": ("down", "R"),
    "health": ("2",),
    "sites": ("3",),
    "timeline": ("4",),
    "curves": ("5",),
    "estimates": ("7",),
    "warnings": ("8",),
    "nodes": ("6",),
    "help": ("question_mark",),
    "submit": ("N",),
}


@pytest.mark.parametrize("screen", SCREENS)
async def test_a_pasted_word_does_nothing(screen: str) -> None:
    """Words that come whole, without the marks of a paste; elsewhere one of each letter."""
    words = WORDS if screen == "overview" else WORDS[list(SCREENS).index(screen) % 8 :: 8]
    async with watched() as (seen, pool):
        await seen.press(*SCREENS[screen])
        shown, before = type(seen.app.screen), seen.text
        assert (shown is OverviewScreen) is (screen == "overview")
        for word in words:
            for message in InputDecoder().feed(word.encode()):
                seen.app.post_message(message)
            await seen.pilot.pause()
            assert type(seen.app.screen) is shown, word
        await seen.settle()
        assert pool.orders == []
        if screen not in ("question", "submit"):  # one says "wait", in the other is a field
            assert seen.text.split() == before.split(), "nothing changed"


async def test_words_typed_too_fast_to_be_meant_answer_no_question() -> None:
    """Each character in a read of its own: the first may ask, the second does not answer."""
    async with watched() as (seen, pool):
        asked = 0
        for word in (*WORDS[::8], "jRy", "aDy"):
            for character in word.replace("q", ""):
                for message in InputDecoder().feed(character.encode()):
                    seen.app.post_message(message)
                await seen.pilot.pause()
                asked += isinstance(seen.app.screen, ConfirmScreen)
            for _ in range(4):
                await seen.pilot.press("escape")
        assert asked, "some word asks a question"
        assert pool.orders == []


async def test_a_question_is_answered_once_it_has_been_there() -> None:
    async with watched() as (seen, pool):
        await seen.press("down", "R")
        assert "does it" not in seen.text, "it cannot be answered yet"
        await seen.press("y")
        assert isinstance(seen.app.screen, ConfirmScreen)
        assert pool.orders == []
        seen.app.CONFIRM_SECONDS = 0.0  # type: ignore[misc]
        await seen.settle()
        await seen.press("y")
        assert [order.act.value for order in pool.orders] == ["release"]
