"""Queries that run in a thread beside the screen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from textual.screen import Screen

from metlmon.error_text import describe_error
from metlmon.pool.types import PoolError

T = TypeVar("T")


def ask_pool(
    screen: Screen[None],
    query: Callable[[], T],
    on_answer: Callable[[T | None, str | None], None],
    failure: str,
) -> None:
    """Query the pool in a daemon thread, which does not delay quitting.

    ``on_answer`` is called by the screen, unless it is closed by then, with the answer and None, or
    with None and the reason why there is none; ``failure`` begins the reason of an unexpected
    error.
    """

    def work() -> None:
        answer, error = None, None
        try:
            answer = query()
        except PoolError as problem:
            error = str(problem)
        except Exception as problem:
            error = describe_error(failure, problem)
        # The screen may be closed when the answer arrives.
        with suppress(RuntimeError):
            screen.call_later(on_answer, answer, error)

    threading.Thread(target=work, name="metlmon-ask", daemon=True).start()
