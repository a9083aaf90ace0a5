"""Whoever asks goes before whoever works."""

from __future__ import annotations

import threading
import time

from metlmon.live.priority_lock import PriorityLock

PATIENCE = 20.0


def test_one_who_asks_gets_in_before_the_next_turn_of_work() -> None:
    turns, order = PriorityLock(), list[str]()
    begun = threading.Event()

    def ask() -> None:
        with turns.asking():
            order.append("asked")

    asker = threading.Thread(target=ask)

    def work() -> None:
        with turns.working():
            begun.set()
            deadline = time.monotonic() + PATIENCE
            while not turns.asked and time.monotonic() < deadline:
                begun.wait(0.001)
            order.append("worked")
        with turns.working():
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
    with turns.working(), turns.asking():
        assert not turns.asked
    with turns.still, turns.working(), turns.working():
        pass
