"""Hostile files: the check ends in bounded memory and prints one clean line for each finding."""

from __future__ import annotations

import os
import random
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metlmon.authoring.lint import rules
from metlmon.authoring.lint.rules import KINDS
from metlmon.live.discovery import read_workflows
from tests.support.command_server import Ran, run_program
from tests.support.lint_ensemble import DAG, EVALUATE, GOOD, TRAIN, findings, report_of, write

LIMITS = {resource.RLIMIT_AS: 2 << 30, resource.RLIMIT_CPU: 60}
"""A hang is ended by its seconds of CPU: each of these takes a second or two."""

ESCAPE = "\x1b]0;owned\x07\x1b[31m"
LONG = 1 << 20


def checked(directory: Path) -> Ran:
    """Run the command in a process, so that a hang ends it and its memory is its own."""
    return run_program(["check", directory], directory, os.environ, limits=LIMITS)


def word(length: int = LONG) -> str:
    return "a" * length


HOSTILE: dict[str, dict[str, str | bytes | Callable[[], str]]] = {
    "includes each other": {"ens.dag": "INCLUDE b.inc\n", "b.inc": "INCLUDE ens.dag\n"},
    "splices without end": {
        "ens.dag": "SPLICE A a.inc\nSPLICE B a.inc\n",
        **{
            f"{name}.inc": f"SPLICE A {after}.inc\nSPLICE B {after}.inc\nSPLICE C {after}.inc\n"
            for name, after in zip("abcdefghijklmnopqrs", "bcdefghijklmnopqrst", strict=True)
        },
        "t.inc": "JOB N n.sub\n",
    },
    "a million input files": {
        "ens.dag": "JOB A a.sub\nJOB B a.sub\nJOB C a.sub\n",
        "a.sub": lambda: "executable = a.sub\ntransfer_input_files = "
        + ",".join(f"f{i}" for i in range(1_000_000)),
    },
    "macros that grow": {
        "ens.dag": "JOB A a.sub\n",
        "a.sub": "".join(f"a{i} = $(a{i + 1})$(a{i + 1})\n" for i in range(64))
        + "executable = $(a0)\nlog = $(a0)\ntransfer_input_files = $(a0),$(a1)\n",
    },
    "many open quotes": {**GOOD, "ens.dag": DAG + "VARS ALL_NODES " + 'x="' * 100_000 + "\n"},
    "long arguments": {**GOOD, "train.sub": TRAIN.replace("--uuid", "-a" * LONG)},
    "a long requirement": {
        **GOOD,
        "train.sub": TRAIN + "(" * LONG + "\n" + "TARGET.a && " * (LONG // 12) + "\n",
    },
    "fifty thousand unknown commands": {"ens.dag": "JOB A a.sub\n" + "NODES A a.sub\n" * 50_000},
    "zero bytes": {
        "ens.dag": b"JOB A \0.sub\nSCRIPT PRE A \0\nINCLUDE \0\nCONFIG \0\nJOB B a.sub DIR \0\n"
        b"JOB C a.sub\nJOB r-train_epoch0 a.sub\n",
        "a.sub": b"executable = \0\ntransfer_input_files = \0,x\0/y\nlog = \0/x\ninitialdir = \0\n"
        b"arguments = \0 $(epoch)\n",
    },
    "a fan of a thousand by a thousand": {
        "ens.dag": "".join(
            f"JOB r{i}-train_epoch{e} train.sub\n" for e in range(2) for i in range(1000)
        )
        + "PARENT " + " ".join(f"r{i}-train_epoch0" for i in range(1000))
        + " CHILD " + " ".join(f"r{i}-train_epoch1" for i in range(1000)) + "\n",
        "train.sub": TRAIN,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_check_of_hostile_files_ends(tmp_path: Path, name: str) -> None:
    files = {path: text() if callable(text) else text for path, text in HOSTILE[name].items()}
    done = checked(write(tmp_path, files))
    assert done.returncode in (0, 1), done.stderr[-2000:]
    assert done.stderr == b""
    lines = done.stdout.splitlines()
    assert len(lines) <= 2 * 20 * len(KINDS)
    assert max(map(len, lines)) < 2000


def test_work_is_linear_in_the_dags_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in calls of the parser: twice the nodes, twice the calls."""
    asked = 0
    real = rules.command_values

    def counted(*words: object) -> dict[str, str | None]:
        nonlocal asked
        asked += 1
        return real(*words)

    monkeypatch.setattr(rules, "command_values", counted)
    counts = []
    for size in (200, 400):
        asked = 0
        dag = "".join(f"JOB r{i}-train_epoch0 train.sub\n" for i in range(size))
        findings(write(tmp_path / str(size), {**GOOD, "ens.dag": dag}))
        counts.append(asked)
    assert counts[1] <= 2.1 * counts[0]


def test_lookups_of_paths_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_FILES", 20)
    names = ",".join(f"f{i}" for i in range(100))
    text = EVALUATE.replace("queue", f"transfer_input_files = {names}")
    write(tmp_path, {**GOOD, "eval.sub": text, "ens.dag": "JOB A eval.sub\n"})
    assert ("too-many-files", "ens.dag", None) in report_of(tmp_path)


def test_dag_above_the_size_limit_is_reported(tmp_path: Path) -> None:
    deep = "SPLICE A {after}.inc\n"
    files = {f"{i}.inc": deep.format(after=i + 1) for i in range(60)}
    write(tmp_path, {**files, "ens.dag": "SPLICE A 0.inc\n"})
    assert [each[0] for each in report_of(tmp_path)] == ["too-large"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_pipes_are_not_opened(tmp_path: Path) -> None:
    """A pipe without a writer would block for ever."""
    pipes = ("a.sub", "judge.sh", "train.sh", "more.inc")
    for name in pipes:
        os.mkfifo(tmp_path / name)
    dag = "INCLUDE more.inc\nJOB A a.sub\nJOB B b.sub\nSCRIPT PRE B judge.sh\n"
    write(tmp_path, {"ens.dag": dag, "b.sub": EVALUATE, "zero.dag": "JOB A /dev/zero\n"})
    done = checked(tmp_path)
    assert done.returncode == 1
    assert b"more.inc" in done.stdout


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 3000), max_size=8))
def test_damaged_good_files_raise_nothing(tmp_path: Path, seed: int, cuts: list[int]) -> None:
    """Lines swapped, doubled, torn: findings, never an exception."""
    chance = random.Random(seed)
    files: dict[str, str | bytes] = dict(GOOD)
    for name in ("ens.dag", "train.sub"):
        lines = GOOD[name].encode().splitlines(keepends=True)
        lines += chance.choices(lines, k=3)
        chance.shuffle(lines)
        data = bytearray(b"".join(lines))
        for cut in cuts:
            place = cut % len(data)
            data[place : place + chance.randrange(3)] = chance.choice(
                (b"\0", b'"', b"\\", b"$(", b"=", b"\n", b"\xff", b"{", b"@=", b"+")
            )
        files[name] = bytes(data)
    for each in findings(write(tmp_path, files)):
        assert each.kind in KINDS
        assert each.message
        assert each.remedy


def test_name_with_a_nul_hides_no_dag(tmp_path: Path) -> None:
    """``watch`` looks for the same files first."""
    write(tmp_path, {"ens.dag": b"INCLUDE \0\nSUBDAG EXTERNAL S x\0y\nJOB A a.sub\n"})
    (flow,) = read_workflows(tmp_path)
    assert list(flow.nodes) == ["S", "A"]
