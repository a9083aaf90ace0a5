"""The boundary is hard to bypass: text is never markup, and each character that a terminal obeys or
does not show is escaped by the one sanitiser."""

from __future__ import annotations

import ast
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from metlmon.text.formatting import plain
from metlmon.text.spans import to_ascii
from tests.hostile.corpus import forbidden

ROOT = Path(__file__).resolve().parents[2]

SOURCES = sorted(
    path
    for package in ("metlmon", "screens")
    for path in (ROOT / package).rglob("*.py")
    if "trainer" not in path.parts
)

BY_MARKUP = frozenset({"from_markup", "from_ansi", "render_markup", "notify", "log"})
"""Functions of Rich and Textual that read markup or escape sequences in what they are given, or
pass it on without the boundary."""

WIDGETS = frozenset({"Static", "Label", "RichLog", "Log", "Markdown", "DataTable", "OptionList"})
"""Widgets that read markup in a text unless that is switched off; nothing here needs them."""


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_text_is_never_markup(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        where = f"{path.name}:{call.lineno}: {name}"
        assert name not in WIDGETS or "screens" not in path.parts, where
        if isinstance(call.func, ast.Attribute) and not _is_math(call.func):
            assert name not in BY_MARKUP or not _is_foreign(call), where
        for option in call.keywords:
            on = isinstance(option.value, ast.Constant) and option.value.value is True
            assert not (on and option.arg in ("markup", "emoji", "highlight")), where


def _is_math(function: ast.Attribute) -> bool:
    return isinstance(function.value, ast.Name) and function.value.id in ("math", "np")


def _is_foreign(call: ast.Call) -> bool:
    """Whether its argument is a composed text, rather than one of the program's own."""
    return any(isinstance(each, ast.JoinedStr) for each in call.args)


def test_each_character_is_shown_or_escaped() -> None:
    for code in (*range(0x20000), *range(0xE0000, 0xE0200), 0x10FFFF):
        shown = plain(f"a{chr(code)}b")
        if shown == f"a{chr(code)}b" and code >= 0x7F:
            assert unicodedata.category(chr(code))[0] not in "CZ" or code == 0x20, hex(code)
            assert forbidden(shown) == [], hex(code)
    assert forbidden(plain("a" + 9 * "\u0301")) == [], "marks that stand one above the other"


@given(st.text(st.characters()), st.integers(1, 200))
def test_hostile_texts_are_sanitised(text: str, limit: int) -> None:
    shown = plain(text, limit)
    assert forbidden(shown, newlines=False) == []
    assert len(shown) <= limit
    assert plain(shown, limit) == shown
    in_ascii = to_ascii(shown)
    assert in_ascii.isascii()
    assert cell_len(in_ascii) == cell_len(shown)
