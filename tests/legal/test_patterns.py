"""Patterns of the settings are judged before anything is matched with them: what people write is
taken, what may take for ever is not, and what is taken does not."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from metlmon.config.regex_check import LONGEST_TEXT, UnsafePattern, compiled
from metlmon.config.settings import SIDE_NODE, TRAIN_NODE

USUAL = (
    TRAIN_NODE,
    SIDE_NODE,
    r"^(?P<run>.*)-train_epoch(?P<epoch>\d+)$",
    r"epoch (?P<epoch>\d+): rho=(?P<value>\S+)",
    r"val_loss=(?P<value>\S+)",
    r"(?P<value>[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?) accuracy",
    r"epoch (?P<epoch>\d+).*loss (?P<value>\S+)",
    r"(?i)epoch[ :=]+(?P<epoch>\d+).*?val_loss[ :=]+(?P<value>[\d.eE+-]+)",
    r"^\s*(?P<epoch>\d+)\s+(?P<value>\S+)\s*$",
    r"^(?P<run>[^_]+)_(?P<x>[^_]+)_e(?P<epoch>\d+)$",
    r"^(?:foo|bar)-(?P<run>\w+)-(?P<epoch>\d+)$",
    r'"epoch": (?P<epoch>\d+),.*"rho": (?P<value>[-\d.e]+)',
    r"^epoch,(?P<epoch>\d+),(?P<value>[^,]*),[^,]*,[^,]*$",
    r"^(?P<run>.*?)[-_.]?(?:train|fit)_?(?P<epoch>\d+)$",
    r"^(?P<run>run\d+)(?=_)_(?P<epoch>\d{3})",
    r"[[a](?P<value>1)",
)

FOR_EVER = (
    r"(a+)+b",
    r"(a|a)*b",
    r"(a|ab)*c",
    r"(.*a){20}x",
    r".*.*.*x",
    r"\d+\d+\d+x",
    r"(?P<v>.*),(?P<w>.*),(?P<x>.*),end",
    r"(a?){30}a{30}",
    "a?" * 30 + "a" * 30,
    "(?:a|a)" * 30 + "b",
    r"(\w+\s?)*$",
    r"(x+x+)+y",
    r"(.)\1+x",
    r"(?P<q>.)(?(q)a|b)",
    r"(?=(a+)+b)a",
    r"(?<!a)(?!b*c)a",
    r"([a-z]+)*\d",
    r"(?:a{1,50}){1,50}x",
    r"a{0,500}a{0,500}a{0,500}b",
    r".*a.*b.*c",
    r"(?:(?:a*))*b",
    r"(?:|a)+b",
    r"(?>a+)+b",
    r".{0,1000}.{0,1000}.{0,1000}x",
    r"(?:é|é)*b",
    r"^(?P<run>.*)(?P<r>.*)(?P<q>.*)x$",
    "a" * 501,
    # what flags of a group, and the case of other letters, add
    r"a*(?i:A)+?(?i:A)??b++$",
    r"(?i)\u017f*s*x",
    r"(?i)\u212a*k*x",
    r"(?i:A)*a*x",
    r"(?a)\W*é*x",
    r"(?a:\W)*é*x",
    r"(?a)[^\w]*é*x",
    # what takes nothing parts nothing
    r"a{2,}(?:){1,50}a+b",
    r"a*(?:\b){3}a*b",
    r"b*(a{0}){2,}b*x",
    # much to match at each of many places
    r"b*?(a|b){1000}!",
    r"a{2,}\D{1000}b*c",
    r".*((aa){10}){20}x",
    "(" * 200 + ")" * 200 + "a" * 200,
)


@pytest.mark.parametrize("pattern", USUAL)
@pytest.mark.filterwarnings("error")
def test_what_people_write_is_taken(pattern: str) -> None:
    assert compiled(pattern).pattern == pattern


@pytest.mark.parametrize("pattern", FOR_EVER)
def test_what_may_take_for_ever_is_not(pattern: str) -> None:
    with pytest.raises(UnsafePattern):
        compiled(pattern)


def test_a_refusal_says_what_to_write() -> None:
    with pytest.raises(UnsafePattern, match=r"repetition within a repetition: write the inner one"):
        compiled(r"(a+)+b")
    with pytest.raises(UnsafePattern, match=r"\[\^,\]\* or \\d\+ in place of \.\*"):
        compiled(r".*.*.*x")
    with pytest.raises(UnsafePattern, match="no valid pattern"):
        compiled("(")


ATOMS = ("a", "b", ".", r"\d", r"\w", r"\s", r"\S", "[ab]", "[^a]", "1", " ", "-")
OFTEN = ("*", "+", "?", "*?", "+?", "??", "{0,9}", "{2}", "{1,300}")


def any_pattern(rng: Random, depth: int) -> str:
    parts = []
    for _ in range(rng.randint(1, 4)):
        part = rng.choice(ATOMS)
        if depth and rng.random() < 0.3:
            part = f"(?:{any_pattern(rng, depth - 1)})"
        elif depth and rng.random() < 0.15:
            part = f"(?:{any_pattern(rng, depth - 1)}|{any_pattern(rng, depth - 1)})"
        parts.append(part + (rng.choice(OFTEN) if rng.random() < 0.5 else ""))
    return "".join(parts)


def texts() -> list[str]:
    """On which patterns go back over their choices."""
    begun = ("a", "ab", "1", " ", "a1 -", "b", "-", "aab", "epoch 1 loss ", "1.1e", ",1", "é")
    return [(each * LONGEST_TEXT)[:LONGEST_TEXT] for each in begun]


def match_all(patterns: list[str]) -> None:
    for pattern in patterns:
        for text in texts():
            compiled(pattern).search(text)


def taken(seed: int, count: int) -> list[str]:
    rng = Random(seed)
    found: list[str] = []
    while len(found) < count:
        pattern = any_pattern(rng, 2) + rng.choice(("", "x", "$", "!", "b"))
        try:
            compiled(pattern)
        except UnsafePattern:
            continue
        found.append(pattern)
    return found


def test_what_is_taken_ends() -> None:
    """Of any shape: fifty patterns and the usual ones, each against a dozen texts, in a
    process that the kernel ends when it uses thirty times as much as it needs."""
    here = Path(__file__).resolve()
    done = subprocess.run(
        [sys.executable, str(here)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (120, 120)),
        env={"PYTHONPATH": str(here.parents[2])},
        check=False,
    )
    assert done.returncode == 0


if __name__ == "__main__":
    match_all([*USUAL, *taken(7, 50)])
