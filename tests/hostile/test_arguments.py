"""Arguments that a shell may have completed from hostile file names: quoted, and visible."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from tests.hostile.corpus import KEY, forbidden
from tests.hostile.dagdir import Dagdir
from tests.hostile.pseudo_terminal import Terminal, without_own
from tests.support.command_server import Ran

ODD = b"ARG\x1b]0;OWNED\x07\x9b31m\xe2\x80\xae\xc2\x9b2J\xe2\x80\x8b[b]\nx\r\x7f\xcd\x8f"
EVIL = ODD.replace(b"ARG", b"ARG token=%b" % KEY)
"""In place of a file to write and a title, which bear the name that was asked for, stands ODD."""

CASES: tuple[tuple[str, ...], ...] = (
    ("EVIL",),
    ("--EVIL",),
    ("status", "DIR", "EVIL"),
    ("status", "--as-of", "EVIL", "DIR"),
    ("run", "EVIL", "DIR"),
    ("curves", "--metric", "EVIL", "DIR"),
    ("report", "--html", "EVIL/x", "DIR"),
    ("report", "--html", "ODD.html", "DIR"),
    ("report", "--title", "ODD", "--md", "-", "DIR"),
    ("report", "--title", "ODD", "--html", "-", "DIR"),
    ("export", "--only", "runs", "--out", "ODD", "DIR"),
    ("config", "EVIL", "DIR"),
    ("check", "EVIL"),
    ("act", "hold", "DIR", "EVIL"),
    ("act", "send", "DIR", "all", "--to", "EVIL"),
    ("grid", "--where", "EVIL=1", "DIR"),
    ("new", "EVIL.toml"),
    ("new", "--dry-run", "--sweep", "EVIL=1,2", "made"),
    ("submit", "--dry-run", "--set", "EVIL=1", "new"),
)


def filled(case: tuple[str, ...], small: Dagdir) -> list[bytes]:
    directory = str(small.path).encode("utf-8", "surrogateescape")
    words = (directory if word == "DIR" else word.encode() for word in case)
    return [word.replace(b"EVIL", EVIL).replace(b"ODD", ODD) for word in words]


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_argument_is_quoted_and_visible(
    case: tuple[str, ...], small: Dagdir, metlmon: Callable[..., Ran]
) -> None:
    ran = metlmon(*filled(case, small))
    output = (ran.stdout + ran.stderr).decode("utf-8")
    assert forbidden(output) == []
    assert "ARG" in output, "the error is not reported"
    assert "Traceback" not in output


def test_argument_is_quoted_and_visible_on_a_terminal(environment: dict[str, str]) -> None:
    argv = [sys.executable.encode(), b"-m", b"metlmon", b"status", b"--" + EVIL]
    with Terminal(argv, (80, 24), environment) as terminal:
        assert terminal.end() == 2
        text = without_own(terminal.bytes)
    assert "ARG" in text
    assert forbidden(text) == []
