"""Sizes, seeds and sites as people type them."""

from __future__ import annotations

import pytest

from metlmon.authoring.from_toml import parse_megabytes, parse_seeds, parse_sites


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        (" 4 GB ", 4096),
        ("4g", 4096),
        ("4GiB", 4096),
        ("1 TB", 1 << 20),
        ("1025 kB", 2),
        ("0", 0),
        ("", None),
        ("-1", None),
        ("4 XB", None),
        ("4GBB", None),
        ("1.5GB", None),
        ("9" * 16, None),
    ],
)
def test_sizes(text: str, size: int | None) -> None:
    assert parse_megabytes(text) == size


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("", ()), ("7", (7,)), ("7, 11 13,", (7, 11, 13)), ("1-3,9", (1, 2, 3, 9)), ("-4", (-4,))],
)
def test_seeds(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["x", "1,x", "3-1", "1-999999999", "1.5", "1--2", "٣"])
def test_what_are_no_seeds(text: str) -> None:
    with pytest.raises(ValueError, match=r"as 1-4|or 1-4"):
        parse_seeds(text)


def test_sites() -> None:
    assert parse_sites(" A ,B,, A,C D") == ("A", "B", "C D")
    assert parse_sites("") == ()
