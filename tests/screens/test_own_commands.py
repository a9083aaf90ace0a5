"""``[[command]]``: the user's own commands on keys of the dashboard."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from metlmon.config.settings import OwnCommand, Settings
from screens.app import MetlmonApp
from tests.support.sample_snapshots import RUNS, FakeFeed, status, update
from tests.support.screen_view import opened

LOOK = OwnCommand("c", "look at it", ("true", "-x", "{run}", "{dagdir}"))


@pytest.fixture(name="ran")
def _ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The arguments of the commands that ran, without the program's path."""
    ran: list[list[str]] = []

    @contextmanager
    def suspend(app: MetlmonApp) -> Iterator[None]:
        yield

    def run(words: list[str], **settings: Any) -> subprocess.CompletedProcess[bytes]:
        ran.append(words[1:])
        return subprocess.CompletedProcess(words, 3)

    monkeypatch.setattr(MetlmonApp, "suspend", suspend)
    monkeypatch.setattr("screens.own_commands.subprocess.run", run)
    return ran


def feed(*commands: OwnCommand, name: str = "run1") -> FakeFeed:
    made = FakeFeed(update(status(runs=(replace(RUNS[1], run=name),))))
    made.set = Settings(command=commands)
    return made


async def test_command_gets_the_row_under_the_cursor(ran: list[list[str]]) -> None:
    async with opened(feed(LOOK)) as seen:
        await seen.press("c")
        assert ran == [["-x", "run1", str(seen.app.feed.dagdir)]]
        assert "look at it: exit status 3" in seen.text
        await seen.press("question_mark")
        assert "look at it" in seen.text
        await seen.press("c", "escape", "colon", *"look", "enter")
        assert len(ran) == 2


async def test_occupied_key_is_refused_with_the_reason(ran: list[list[str]]) -> None:
    async with opened(feed(OwnCommand("s", "mine", ("true",)))) as seen:
        assert "mine: s is the key of 'sort'" in seen.text
        await seen.press("s")
        assert ran == []


async def test_every_reason_is_shown_whatever_key_closes_the_banner() -> None:
    """One line less above the table enlarges it, which does not move its cursor."""
    taken = [OwnCommand(key, f"mine {key}", ("true",)) for key in "sq"]
    async with opened(feed(*taken)) as seen:
        assert "mine s: s is the key of 'sort' (and 1 more)" in seen.lines[0]
        await seen.press("Z")
        assert "mine q: q is the key of" in seen.lines[0]
        await seen.press("Z")
        assert "is the key of" not in seen.text
        assert "[Z] does nothing here" in seen.text
        await seen.press("down")


@pytest.mark.parametrize("name", ["a b", "$(reboot)", "-rf", "x;y", ""])
async def test_names_with_shell_syntax_are_refused(ran: list[list[str]], name: str) -> None:
    async with opened(feed(LOOK, name=name)) as seen:
        await seen.press("c")
        assert ran == []
        assert "look at it: " in seen.text


async def test_read_only_has_no_own_commands(ran: list[list[str]]) -> None:
    async with opened(feed(LOOK), read_only=True) as seen:
        await seen.press("c", "question_mark")
        assert (ran, "look at it" in seen.text) == ([], False)
