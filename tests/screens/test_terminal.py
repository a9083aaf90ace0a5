"""A real (pseudo) terminal: the bytes that reach it, and its state after any exit."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE
from tests.support.terminal import PseudoTerminal, terminal_environment

CHILD = Path(__file__).parents[1] / "support" / "run_on_terminal.py"


def terminal(what: str, size: tuple[int, int] = (100, 30), **env: str | None) -> PseudoTerminal:
    """A program of :mod:`on_a_terminal`, whose controlling terminal is another one."""
    argv = [sys.executable, str(CHILD), what]
    return PseudoTerminal(argv, size, terminal_environment(**env), controlling=False)


@pytest.mark.parametrize("what", ["broken", "worker"])
def test_error_is_shown_and_the_rest_goes_on(what: str) -> None:
    with terminal(what) as t:
        t.wait_for("run9")
        t.type(b"s")
        t.wait_for("something broke [/not-markup]")
        t.type(b"?")
        t.wait_for("Keys and signs")
        t.type(b"Q")
        assert t.end() == 0
        assert t.restored()


def test_fatal_error_is_one_sentence_after_the_screen() -> None:
    with terminal("hopeless") as t:
        assert t.end() == 70
        assert t.restored()
        result = t.text_after_screen()
        assert "metlmon: ended by an error: RuntimeError: something broke" in result
        assert "Traceback" not in result


def test_blocked_terminal_is_left_by_force() -> None:
    with terminal("stuck", size=(200, 50)) as t:
        t.wait_for("run9")
        # No more reads from here on: the child's writes block when the pipe is full.
        for _ in range(400):
            t.type(b"\x14")
        t.child.send_signal(signal.SIGTERM)
        assert t.child.wait(timeout=PATIENCE) == 128 + signal.SIGTERM


@pytest.mark.parametrize("what", ["plain", "stuck"])
def test_program_ends_when_its_terminal_is_gone(what: str) -> None:
    """SIGHUP goes only to processes whose controlling terminal it was. Without it the program would
    go on for ever, as fast as it can."""
    with terminal(what) as t:
        t.wait_for("run9")
        t.hang_up()
        assert t.child.wait(timeout=PATIENCE) == 128 + signal.SIGHUP


WAY = (
    (b"\r", "Execution time by epoch"),
    (b"\r", "Life"),
    (b"\x1b", "Execution time by epoch"),
    (b"\x1b", "PROGRESS"),
    (b"2", "WHAT"),
    (b"\r", "Execution time by epoch"),
    (b"\x1b", "WHAT"),
    (b"\x1b", "PROGRESS"),
    (b"8", "Sources and warnings"),
    (b"\x1b", "PROGRESS"),
    (b"?", "Keys and signs"),
    (b"\x1b", "PROGRESS"),
    (b":", "ACTION"),
    (b"\x1b", "PROGRESS"),
    (b"\x1b[H\x1b[B a", "TOUCHES"),
    (b"X", "It touches 1 job"),
    (b"y", "ANSWER"),
    (b"\x1b", "PROGRESS"),
    (b"a", "TOUCHES"),
    (b"D", "DAGMan's own job"),
    (b"y", "1 of 1 answered"),
    (b"\x1b", "PROGRESS"),
    (b"/a/zzz", "in any column: a/zzz"),
    (b"\x1b", "30/30"),
)
"""Through every screen, and what stands on that one only."""


def test_hostile_text_and_unwanted_colours_never_reach_the_terminal() -> None:
    """Texts of a schedd; ``tests/hostile`` has those of files."""
    marker = "PROGRESS"
    with terminal("hostile", (80, 24), NO_COLOR="1") as t:
        t.wait_for(marker)
        for keys, then in WAY:
            if keys == b"y":
                t.wait_for("y do it")
            t.type(keys)
            t.wait_for(then, gone=None if keys.startswith(b"/") else marker)
            marker = then
        t.type(b"Q")
        assert t.end() == 0
        found = re.findall(rb"\x1b\[([\d;]*)m", t.bytes)
        codes = {code for each in found for code in each.split(b";")}
        assert codes <= {b"", b"0", b"1", b"2", b"22", b"3", b"4", b"7", b"27", b"39", b"49"}
        assert b"7" in codes, "the cursor's row is shown by inversion"
        # Textual itself requests the ordinary mouse pointer.
        text = re.sub(r"\x1b\]22;default(\x1b\\|\x07)", "", t.bytes.decode("utf-8"))
        assert "\x1b]" not in text, "no operating system command: titles, clipboard"
        assert "OWNED" in text, "the payload is shown, so this test has seen it"
        sequences = set(re.findall(r"\x1b.[0-?]*[ -/]*[@-~]?", text))
        assert all(sequence[1] == "[" for sequence in sequences), sequences
        rest = re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]", "", text)
        for forbidden in "\x00\x07\x08\x7f\x9b\x90\x9c\t\u202e\u2066\u200b\u200d\ufeff\u2028":
            assert forbidden not in rest, f"{forbidden!r} reached the terminal"
        assert "[b]m[/]" in rest, "markup is text"


def test_idle_screen_writes_nothing_and_takes_no_mouse() -> None:
    with terminal("plain") as t:
        t.wait_for("run9")
        while t.pump(0.3):
            pass
        before = len(t.bytes)
        assert not t.pump(1.5), "something blinks, spins or ticks"
        assert len(t.bytes) == before
        t.type(b"Q")
        t.end()
        assert b"\x1b[?1000h" not in t.bytes
        assert b"\x1b[?1003h" not in t.bytes
