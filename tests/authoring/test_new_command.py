"""``metlmon new`` for a person: its output, files, refusals and exit codes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from metlmon.authoring.request import EnsembleShape
from metlmon.cli import Exit
from metlmon.cli.main import main
from tests.support.commands import Captured, json_output, run_command
from tests.support.fake_pool import FakePool
from tests.support.finished_ensembles import listing, ran
from tests.support.sample_requests import nap

ROOT = Path(__file__).resolve().parents[2]


pytestmark = pytest.mark.usefixtures("own")


def run_new(capsys: Captured, words: str) -> tuple[int, str, str]:
    return run_command("new", capsys, *shlex.split(words))


def new_json(capsys: Captured, words: str) -> dict[str, Any]:
    return json_output("new", capsys, *shlex.split(words))


def files_here() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*") if path.is_file())


# --- previews and files -------------------------------------------------------------------------


def test_counts_graph_and_files_are_printed_and_written(capsys: Captured, own: str) -> None:
    code, out, err = run_new(capsys, f"--template {own} --runs 3 --epochs 12 --no-gate")
    assert code == Exit.OK
    assert out.startswith("ensemble.dag in ensemble: 3 runs, 36 nodes, 36 jobs, chain, template ")
    assert (
        "\n  run0 … run2  3 runs like this\n"
        "    train_epoch0 ─▶ train_epoch1 ─▶ … ─▶ train_epoch11\n" in out
    )
    names = ["ensemble.dag", "ensemble.sub", "nap.sh", "nap.template", "ensemble.toml"]
    for name in names:
        assert f"\n  {name} " in out
    assert files_here() == sorted(f"ensemble/{name}" for name in names)
    assert "metlmon check ensemble" in err
    assert "condor_submit_dag ensemble.dag" in err
    assert "metlmon watch ensemble" in err


def test_dry_run_writes_nothing(capsys: Captured, own: str) -> None:
    for words in ("--dry-run", "--picture", "--explain run0-train_epoch0", "--dry-run --json"):
        code, out, _ = run_new(capsys, f"--template {own} {words}")
        assert (code, files_here()) == (Exit.OK, [])
        assert "train_epoch" in out
    assert new_json(capsys, f"--template {own} --dry-run")["written"] is False


def test_json_has_all_fields(capsys: Captured, own: str) -> None:
    found = new_json(capsys, f"out --template {own} --name big --runs 2 --epochs 2")
    assert (found["schema"], found["directory"], found["dag_file"]) == (1, "out", "big.dag")
    assert (found["shape"], found["nodes"], found["jobs"]) == ("chain", 4, 4)
    assert [run["name"] for run in found["runs"]] == ["run0", "run1"]
    assert found["picture"][0] == "run0, run1  2 runs like this"
    assert found["written"] is True
    assert found["change"]["progress"] == "new"
    assert {each["name"] for each in found["files"]} == set(os.listdir("out"))


def test_ascii_option_prints_ascii_only(capsys: Captured, own: str) -> None:
    _, out, _ = run_new(capsys, f"--template {own} --ascii --epochs 30")
    assert out.isascii()
    _, out, _ = run_new(capsys, "ensemble --ascii --explain run0-train_epoch1")
    assert out.isascii()


@pytest.mark.parametrize("shape", EnsembleShape)
def test_examples_are_valid(capsys: Captured, shape: EnsembleShape) -> None:
    _, out, _ = run_new(capsys, f"--example {shape}")
    Path("mine.toml").write_text(out)
    code, out, err = run_new(capsys, "mine.toml out")
    assert code == Exit.OK
    assert ": warning" not in err
    assert f"jobs, {shape}, template" in out
    assert main(["check", "out", "--json"]) in (Exit.OK, Exit.FOUND)
    assert json.loads(capsys.readouterr().out)["errors"] == 0
    code, out, _ = run_new(capsys, "out")
    assert code == Exit.OK
    assert "nothing differs from what is there" in out


# --- descriptions and options ---------------------------------------------------------------------


def test_options_override_the_description(capsys: Captured, own: str) -> None:
    Path("mine.toml").write_text(
        f'template = "{own}"\nruns = 5\nepochs = 4\nvariables.x = "1"\n[values]\nseconds = 9\n'
    )
    found = new_json(capsys, "mine.toml --runs 2 --var y=2 --dry-run --name other")
    assert (len(found["runs"]), found["nodes"], found["directory"]) == (2, 8, "other")
    dag = next(file["text"] for file in found["files"] if file["name"] == "other.dag")
    assert 'x="1"' in dag
    assert 'y="2"' in dag
    assert new_json(capsys, "mine.toml --dry-run")["dag_file"] == "mine.dag"


def test_options_select_shapes(capsys: Captured, own: str) -> None:
    path = Path(own)
    path.write_text(path.read_text().replace("seconds}", "seconds} $(a)"))
    swept = new_json(
        capsys,
        f"--template {own} --sweep 'a=0.01 to 0.03 by 0.01' --sweep seconds=1,2 --how product "
        "--epochs 2 --dry-run",
    )
    assert (swept["shape"], len(swept["runs"]), swept["nodes"]) == ("sweep", 6, 12)
    bag = new_json(capsys, f"--template {own} --shards 7 --dry-run")
    assert (bag["shape"], bag["nodes"]) == ("bag", 7)
    evaluated = new_json(
        capsys, f"--template {own} --evaluate {own} --every 2 --epochs 4 --dry-run"
    )
    assert evaluated["nodes"] == 4 * (4 + 2)
    apart = new_json(capsys, f"--template {own} --subdags --runs 2 --dry-run")
    assert sum(file["name"].endswith(".dag") for file in apart["files"]) == 3


def test_options_set_the_rules(capsys: Captured, own: str) -> None:
    words = f"--template {own} --stop-patience 3 --diverge 4 --median-after 2 --dry-run"
    found = new_json(capsys, words)
    text = next(file["text"] for file in found["files"] if file["name"] == "ensemble.gate.json")
    rules = json.loads(text)["rules"]
    assert (rules["patience"], rules["divergence"], rules["median_after"]) == (3, 4.0, 2)
    code, _, err = run_new(capsys, f"{words} --no-gate")
    assert code == Exit.USAGE
    assert "--no-gate: nobody would follow the rules" in err


SWEEP = "GEN SUBDAG g t.subdag a from\n 1,2\n"
CHAIN = "PARENT {run}-train_epoch0 CHILD {run}-train_epoch1\n"


@pytest.mark.parametrize(
    "option",
    [
        *("--epochs 50", "--runs 9", "--every 3", "--sweep c=1,2", "--how zip", "--shape bag"),
        *("--shards 3", "--machines 4", "--evaluate"),
    ],
)
def test_options_that_a_sweep_file_excludes_are_refused(capsys: Captured, option: str) -> None:
    Path("s.dag").write_text(SWEEP)
    Path("t.subdag").write_text(CHAIN)
    Path("e.toml").write_text('source = "s.dag"\n')
    for file in ("s.dag", "e.toml"):
        code, _, err = run_new(capsys, f"{file} {option} --name o")
        assert code == Exit.USAGE
        assert err.startswith(f"metlmon: {option.split()[0]}: the sweep file says that; ")
    assert not Path("o").exists()
    kept = new_json(capsys, "s.dag o --seeds 5,6 --evaluate evaluate --name again")
    assert [run["seed"] for run in kept["runs"]] == [5, 6]
    assert "nothing differs" in run_new(capsys, "o --name again")[1]


def test_byte_order_mark_of_a_sweep_file_is_ignored(capsys: Captured) -> None:
    Path("s.dag").write_text(SWEEP, encoding="utf-8-sig")
    Path("t.subdag").write_text(CHAIN, encoding="utf-8-sig")
    assert new_json(capsys, "s.dag o --dry-run")["nodes"] == 4


def test_directory_may_follow_the_options(capsys: Captured, own: str) -> None:
    found = new_json(capsys, f"--template {own} --dry-run out")
    assert found["directory"] == "out"
    Path("mine.toml").write_text(f'template = "{own}"\n')
    assert new_json(capsys, "mine.toml --dry-run out")["directory"] == "out"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("none.toml", "none.toml: there is no such file"),
        ("none.dag", "none.dag: there is no such file"),
        ("one two", "one: is not a description: FILE ends in .toml, or is a sweep file"),
        ("plain.dag", "plain.dag: is neither a description (.toml) nor a sweep file"),
        ("bad.toml", "bad.toml:2: epochs must be a whole number, such as 4"),
        ("nul.toml", r"nul.toml:1: name: 'a\x00b' cannot be a DAG's name"),
        ("few.toml", "few.toml:1: runs: 0 runs: give a number from 1 to"),
        ("few.toml --runs -1", "--runs: -1 runs: give a number from 1 to"),
        ("--stop-patience 0", "--stop-patience: 0 epochs: give a number from 1 on"),
        ("--evaluate --every 0", "--every: "),
        ("--how zip", "--how: there is no sweep"),
        ("--sweep x", "--sweep 'x': write it as a=0.01 to 0.1 by 0.01"),
        ("--sweep 'a=1 to 0 by 1'", "--sweep a: "),
        ("--sweep nope=1,2", "--sweep nope: no template has a parameter 'nope'"),
        ("--memory big", "--memory 'big' must be a size"),
        ("--seeds x", "--seeds 'x' must be whole numbers"),
        ("--explain", "--explain: name a node, or several as 'run0-*'; there are run0-train_epoch"),
        ("--explain run0-train_epok0", "--explain 'run0-train_epok0': no node is called so; did"),
    ],
)
def test_errors_are_one_sentence(capsys: Captured, words: str, sentence: str) -> None:
    Path("bad.toml").write_text("runs = 2\nepochs = 'x'\n")
    Path("few.toml").write_text("runs = 0\n")
    Path("nul.toml").write_text('name = "a\\u0000b"\nruns = 2\nepochs = 2\n')
    Path("plain.dag").write_text("JOB a a.sub\n")
    before = files_here()
    code, out, err = run_new(capsys, words)
    assert (code, out) == (Exit.USAGE, "")
    assert err.startswith(f"metlmon: {sentence}"), err
    assert files_here() == before


# --- an existing ensemble -------------------------------------------------------------------------


def test_differences_are_printed(capsys: Captured, own: str) -> None:
    run_new(capsys, f"--template {own} --runs 2 --epochs 2")
    before = listing(Path("ensemble"))
    code, out, _ = run_new(capsys, "ensemble")
    assert code == Exit.OK
    assert out.endswith("\nnothing differs from what is there (not submitted yet)\n")
    assert listing(Path("ensemble")) == before
    _, out, _ = run_new(capsys, "ensemble --runs 3 --retries 5 --dry-run")
    _, output_, changes = out.partition("\ndiffers from what is there (not submitted yet):\n")
    assert output_
    assert changes == (
        "  + run run2\n"
        "  ~ 4 nodes: run0-train_epoch0 … run1-train_epoch1: retries from 3 to 5\n"
        "  + 2 nodes: run2-train_epoch0, run2-train_epoch1\n"
        "  ensemble.dag: changed\n"
        "  ensemble.gate.json: changed\n"
        "  ensemble.toml: changed\n"
    )
    assert listing(Path("ensemble")) == before
    assert run_new(capsys, "ensemble --runs 3")[0] == Exit.OK
    assert b"run2-train_epoch1" in Path("ensemble/ensemble.dag").read_bytes()


def test_control_characters_are_not_printed(capsys: Captured, own: str) -> None:
    bad = "\x1b[2J\u202e"
    Path("bad.toml").write_text(f'template = "{own}"\nname = "\\u001b[2J"\n', encoding="utf-8")
    texts = list(run_new(capsys, "bad.toml")[1:])
    Path("odd.toml").write_text('"\\u001b[2J" = 1\nruns = 2\n', encoding="utf-8")
    texts += run_new(capsys, "odd.toml")[1:]
    texts += run_new(capsys, f"--explain '{bad}' --template {own}")[1:]
    texts += run_new(capsys, f"'{bad}.toml'")[1:]
    run_new(capsys, f"--template {own} --runs 1")
    with Path("ensemble/ensemble.dag").open("a") as file:
        file.write(f'JOB x{bad} x.sub\nVARS x{bad} a="{bad}" run="{bad}"\n')
    texts += run_new(capsys, "ensemble --force --dry-run")[1:]
    assert any("x\\x1b" in text for text in texts)
    for text in texts:
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_written_description_can_be_edited_in_place(capsys: Captured, own: str) -> None:
    run_new(capsys, f"--template {own} --runs 2")
    kept = Path("ensemble/ensemble.toml")
    kept.write_text(kept.read_text().replace("runs = 2", "runs = 3"))
    for words in ("ensemble/ensemble.toml --dry-run", "ensemble --dry-run"):
        change = new_json(capsys, words)["change"]
        assert change["runs_added"] == ["run2"]
        assert change["protected_files"] == []
    assert run_new(capsys, "ensemble/ensemble.toml")[0] == Exit.OK
    assert new_json(capsys, "ensemble")["change"]["unchanged"]
    # The template is no longer needed.
    Path(own).unlink()
    assert new_json(capsys, "ensemble")["change"]["unchanged"]


def test_only_nodes_that_have_not_run_may_change(capsys: Captured, own: str) -> None:
    run_new(capsys, f"--template {own} --runs 2")
    ran(Path("ensemble"), done=["run0-train_epoch0", "run1-train_epoch0"])
    before = listing(Path("ensemble"))
    code, out, err = run_new(capsys, "ensemble --epochs 4")
    assert code == Exit.USAGE
    assert "differs from what is there (it ran before, 2 nodes of it have run):" in out
    assert "run0-train_epoch0, run1-train_epoch0 have run and may not be changed" in err
    assert listing(Path("ensemble")) == before
    code, out, err = run_new(capsys, "ensemble --runs 3")
    assert code == Exit.OK
    assert "the next DAGMan continues from ensemble.dag.rescue001" in out
    assert "metlmon act resubmit ensemble" in err


# --- submission -----------------------------------------------------------------------------------


def test_submit_submits_to_the_pool(capsys: Captured, own: str, pool: FakePool) -> None:
    code, out, err = run_new(capsys, f"--template {own} --submit")
    assert code == Exit.OK
    assert "cluster 77: ensemble/ensemble.dag, 4 runs, 12 nodes, 12 jobs" in out
    assert "watch it with: metlmon watch ensemble" in err
    assert pool.dags == [Path.cwd() / "ensemble" / "ensemble.dag"]


def test_second_and_read_only_submissions_are_refused(
    capsys: Captured, own: str, pool: FakePool, user: Path
) -> None:
    run_new(capsys, f"--template {own}")
    ran(Path("ensemble"), done=["run0-train_epoch0"])
    code, _, err = run_new(capsys, "ensemble --runs 5 --submit")
    assert code == Exit.USAGE
    assert "metlmon act resubmit ensemble" in err
    user.write_text("read_only = true\n")
    code, _, err = run_new(capsys, f"other --template {own} --submit")
    assert code == Exit.USAGE
    assert "read_only" in err
    assert pool.dags == []
    assert not Path("other").exists()


# --- reproducibility ------------------------------------------------------------------------------


EXAMPLES = ("chain", "sweep", "stages", "bag")

WRITE_EXAMPLES = """
import sys
from contextlib import redirect_stdout
from metlmon.cli.main import main
for shape in sys.argv[1:]:
    with open(f"{shape}.toml", "w") as file, redirect_stdout(file):
        main(["new", "--example", shape])
    template = ["--template", "own/nap.sub"] if shape == "chain" else []
    assert main(["new", f"{shape}.toml", shape, "--var", "b=2", "--var", "a=1", *template]) == 0
"""


def test_two_machines_write_the_same_files(tmp_path: Path) -> None:
    made = []
    for number, seed in enumerate(["1", "77"]):
        place = tmp_path.joinpath(*["deep"] * number, f"machine{number}")
        nap(place / "own")
        subprocess.run(
            [sys.executable, "-c", WRITE_EXAMPLES, *EXAMPLES],
            cwd=place,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
        )
        for shape in EXAMPLES:
            files = (place / shape).iterdir()
            made.append({path.name: path.read_bytes() for path in files})
    assert made[: len(EXAMPLES)] == made[len(EXAMPLES) :]
    assert all(len(files) > 3 for files in made)
