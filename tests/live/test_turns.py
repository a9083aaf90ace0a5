"""Whoever asks goes before whoever works."""

from __future__ import annotations

import threading
import time

from metlmon.live.session import PriorityLock
from tests.support.patience import PATIENCE


def test_one_who_asks_gets_in_before_the_next_turn_of_work() -> None:
    turns, order = PriorityLock(), list[str]()
    begun = threading.Event()

    def ask() -> None:
        with turns.foreground():
            order.append("asked")

    asker = threading.Thread(target=ask)

    def work() -> None:
        with turns.background():
            begun.set()
            deadline = time.monotonic() + PATIENCE
            while not turns.foreground_waiting and time.monotonic() < deadline:
                begun.wait(0.001)
            order.append("worked")
        with turns.background():
            order.append("worked again")

    worker = threading.Thread(target=work)
    worker.start()
    assert begun.wait(PATIENCE)
    asker.start()
    for thread in (worker, asker):
        thread.join(PATIENCE)
    assert order == ["worked", "asked", "worked again"]


def test_a_thread_may_ask_while_it_works() -> None:
    turns = PriorityLock()
    with turns.background(), turns.foreground():
        assert not turns.foreground_waiting
    with turns.exclusive, turns.background(), turns.background():
        pass
