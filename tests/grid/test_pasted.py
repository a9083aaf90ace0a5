"""Words that come as a paste does, but without its marks, on the screens of a sweep and a bag."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pasted_words import WORDS

from screens.terminal.input_decoder import InputDecoder
from tests.generated import bags
from tests.support.dagdir_feed import BAG_SECONDS, DagdirFeed, bag, sweep
from tests.support.sample_trainings import until
from tests.support.screen_view import Show


@pytest.mark.parametrize("screen", ["sweep", "bag"])
async def test_a_pasted_word_does_nothing(show: Show, screen: str) -> None:
    of_sweep = screen == "sweep"
    async with show(
        DagdirFeed(sweep())
        if of_sweep
        else DagdirFeed(bag(), bags.BEGUN + timedelta(seconds=BAG_SECONDS))
    ) as seen:
        await seen.press("6", "6", *[] if of_sweep else ["6"])
        words = "best 0.2133" if of_sweep else "110 of 240"
        await until(seen.pilot, lambda: words in seen.text)
        await seen.settle()
        shown, before = type(seen.app.screen), seen.text
        for word in WORDS[3::8]:
            for message in InputDecoder().feed(word.encode()):
                seen.app.post_message(message)
            await seen.pilot.pause()
        await seen.settle()
        assert type(seen.app.screen) is shown
        assert seen.text == before
