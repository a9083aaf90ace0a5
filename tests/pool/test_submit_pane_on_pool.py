"""The submit pane on a real terminal of 80×24: filled in by keys, and followed to the end."""

from __future__ import annotations

import json
import re

import pytest
import truth
from pools import Pool, until
from terminals import Terminal

RUNS, EPOCHS = 4, 3
CLEAR, SUBMIT = "\x15", "\x13"
END_SECONDS = 240.0


def go_to(screen: Terminal, field: str) -> None:
    """Move down to the field with this label."""
    for _ in range(40):
        if re.search(rf"^▌ +{field}\b", screen.text, re.M):
            return
        screen.press("down")
        screen.settle()
    raise AssertionError(f"no field {field}:\n{screen.text}")


def fill(screen: Terminal, field: str, value: str) -> None:
    go_to(screen, field)
    before = screen.line(rf"^▌ +{field}\b")
    screen.press(CLEAR)
    screen.until_text(lambda text: before not in text, f"an empty {field}")
    screen.press(value)
    screen.wait_for_match(rf"▌ +{field} +{re.escape(value)}")


def test_ensemble_is_previewed_submitted_and_followed(pool: Pool) -> None:
    if len(pool.sites) < RUNS:
        pytest.skip(f"this HTCondor's slots name {len(pool.sites)} sites, not {RUNS}")
    directory = pool.base / "from-pane"
    with pool.terminal(["metlmon", "submit"], pool.base, (80, 24)) as screen:
        screen.wait_for_match("Submit a new ensemble")
        screen.wait_for_match("enter: 4 sites")
        fill(screen, "Directory", directory.name)
        fill(screen, "Runs", str(RUNS))
        fill(screen, "Epochs", str(EPOCHS))
        go_to(screen, "Sites")
        screen.press("enter")
        screen.wait_for_match("Sites: which")
        for number, _ in enumerate(pool.sites):
            screen.press("space")
            screen.until_text(lambda text, n=number: text.count("✓") == n + 1, "a mark")
            screen.press("down")
            screen.settle()
        screen.press("enter")
        screen.wait_for_match("Submit a new ensemble")
        go_to(screen, "Policy")
        screen.press("right")
        screen.wait_for_match(r"‹ permute ›")
        fill(screen, "slow_factor", "1")
        screen.press("tab")
        screen.wait_for_match(rf"{RUNS} runs × {EPOCHS} epochs +12 nodes +12 jobs")
        screen.wait_for_match(r"ensemble\.sub")
        assert not directory.exists(), "nothing is written before it was seen and agreed to"
        screen.press("tab")
        screen.wait_for_match("slow_factor")
        screen.press(SUBMIT)
        screen.wait_for_match("y +writes 6 files and submits 12 jobs")
        assert not directory.exists()
        screen.press("y")
        screen.wait_for_match("PROGRESS|enter watch")
        if "PROGRESS" not in screen.text:
            screen.press("enter")
        screen.wait_for_match("PROGRESS")
        for run in range(RUNS):
            screen.wait_for_match(rf"run{run} ")
        screen.wait_for_match(r"✓ 12 (completed|done)", seconds=END_SECONDS)
        screen.wait_for_match(r"✓ done", seconds=END_SECONDS)
        last = screen.text
        screen.press("Q")
        assert screen.end() == 0
    assert len(re.findall(r"run\d .*3/3", last)) == RUNS, last
    until(lambda: not pool.queue(truth.of_dagmans(truth.dagmans(pool, directory))), "all end")
    status = truth.status_of(pool, directory)
    expected = truth.at_the_end(pool, directory)
    assert expected.totals == truth.Totals(12, 12, 0, 0)
    assert truth.differences(expected, status, truth.jobs_of(pool, directory)) == []
    sites = {each.site for job in expected.jobs for each in job.executions}
    assert sites == set(pool.sites.values())


def test_pane_and_command_line_do_the_same(pool: Pool) -> None:
    options = ["--runs", "4", "--epochs", "3", "--policy", "permute", "--set", "slow_factor=1"]
    options += ["--sites", ",".join(sorted(pool.sites.values()))]
    directory = pool.base / "from-pane"
    if not directory.exists():
        pytest.fail("the pane's test has written nothing")
    argv = ["metlmon", "new", "from-here", *options, "--dry-run", "--json"]
    output = json.loads(pool.run(argv).stdout)
    for file in output["files"]:
        assert (directory / file["name"]).read_text() == file["text"]
