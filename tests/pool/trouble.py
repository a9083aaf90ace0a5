"""Trouble for a training ensemble, by the command line and by keys, while it trains.

Jobs of a training last seconds and may end before an action. So each action is repeated until the
schedd has answered "done".
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import truth
from pools import Ad, Pool, until
from terminals import Terminal

WATCH = ["metlmon", "watch", "."]


def jobs_of(pool: Pool, directory: Path) -> list[Ad]:
    """The ads of the node jobs in the queue."""
    ours = truth.of_dagmans(truth.dagmans(pool, directory))
    return [ad for ad in pool.queue(ours) if ad["JobUniverse"] != truth.SCHEDULER_UNIVERSE]


def held(pool: Pool, directory: Path, run: str) -> bool:
    return any(
        ad["JobStatus"] == truth.HELD and ad["DAGNodeName"].startswith(f"{run}-")
        for ad in jobs_of(pool, directory)
    )


def by_command(pool: Pool, directory: Path, what: str, *targets: str) -> None:
    """Repeat ``metlmon act`` until all is done."""

    def look() -> bool:
        argv = ["metlmon", "act", what, ".", *targets, "--yes", "--json"]
        answered: dict[str, Any] = json.loads(pool.run(argv, directory, expect=None).stdout)
        replies = [each["reply"] for each in answered["answers"]]
        return bool(replies) and all(reply == "done" for reply in replies)

    until(look, f"{what} {' '.join(targets)}")


def asked(screen: Terminal, key: str) -> bool:
    """Press an action's key in the overview; True once its question is on the screen.

    False, back in the overview, where the action is not possible yet. A busy program may show the
    question late: it then ignores the key that would have closed the menu.
    """
    screen.press("a")
    screen.wait_for_match("Act on")
    screen.press(key)
    if "touches nothing" not in screen.settle():
        screen.press("a")
        screen.wait_for_match("PROGRESS|touches nothing")
    if "touches nothing" not in screen.text:
        return False
    screen.wait_for_match("y does it")
    return True


def by_keys(screen: Terminal, run: str, key: str) -> None:
    """In the overview filter by the run, and press the action's key and y until it is done."""

    def look() -> bool:
        if not asked(screen, key):
            return False
        screen.press("y")
        screen.wait_for_match(r"(\d+) of \1 answered")
        done = bool(re.search(r"✓ \d+ done", screen.text)) and "✗" not in screen.text
        screen.press("escape")
        screen.wait_for_match("PROGRESS")
        return done

    screen.wait_for_match("PROGRESS")
    screen.press("/")
    screen.settle()
    screen.press(run, "enter")
    screen.wait_for_match(rf"filter {run} ")
    until(look, lambda: f"{key} for {run} is done:\n{screen.text}")
    screen.settle()
    screen.press("escape")
    screen.wait_for_match("PROGRESS", gone=f"filter {run}")


def remove_dag_by_keys(screen: Terminal) -> None:
    screen.press("a")
    screen.wait_for_match("Act on")
    screen.press("D")
    screen.wait_for_match("y does it")
    screen.press("y")
    screen.wait_for_match(r"1 of 1 answered")
    assert re.search(r"✓ 1 done", screen.text), screen.text
    screen.press("escape")
    screen.wait_for_match("PROGRESS")
