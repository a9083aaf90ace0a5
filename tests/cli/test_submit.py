"""``metlmon submit`` for scripts: its output, files and exit codes."""

from __future__ import annotations

import json
import shlex
from functools import partial
from pathlib import Path

import pytest

from metlmon.authoring.plan import make_plan
from metlmon.authoring.request import Policy, Request, StopRules
from metlmon.cli import Exit, session_setup
from metlmon.cli.commands import new
from metlmon.cli.main import main
from metlmon.pool.types import PoolError
from tests.support.commands import Captured, run_command
from tests.support.fake_pool import FakePool

spoken = partial(run_command, "submit")


def written() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*") if path.is_file())


FILES = [
    f"ensemble/{name}"
    for name in (
        *("ensemble.dag", "ensemble.sub", "nap.sh", "gate.py", "ensemble.gate.json"),
        *("nap.template", "ensemble.toml"),
    )
]

# --- previews -------------------------------------------------------------------------------


def test_dry_run_prints_every_file_and_writes_none(
    capsys: Captured, own: str, pool: FakePool
) -> None:
    code, out, err = spoken(
        capsys, "new", "--template", own, "--dry-run", "--runs", "2", "--epochs", "2",
        "--seeds", "5, 5", "--sites", "A,B", "--policy", "permute", "--memory", "4GB",
        "--gpu-memory", "40 GB", "--set", "seconds=a=b",
    )  # fmt: skip
    assert code == Exit.OK
    assert err.startswith("metlmon: warning: --seeds: 5 is there more than once")
    plan = make_plan(
        Request(own, Path("new"), runs=2, epochs=2, seeds=(5, 5), sites=("A", "B"),
                policy=Policy.PERMUTE, memory_mb=4096, gpu_memory_mb=40960,
                values={"seconds": "a=b"}, gate=StopRules())
    )  # fmt: skip
    assert out.startswith("ensemble.dag in new: 2 runs, 4 nodes, 4 jobs, template ")
    for run in plan.runs:
        assert f"{run.uuid}  seed {run.seed}  {' '.join(run.targets)}\n" in out
    for file in plan.files:
        assert file.data.decode() in out
    assert written() == []
    assert pool.dags == []


def test_templates_are_listed(capsys: Captured) -> None:
    code, out, _ = spoken(capsys, "--list-templates", "--json")
    names = [each["name"] for each in json.loads(out)["templates"]]
    assert code == Exit.OK
    assert names[:2] == ["trainer", "metl"]
    code, out, _ = spoken(capsys, "--list-templates")
    assert code == Exit.OK
    assert [line.split(":")[0] for line in out.splitlines() if line[0] != " "] == names


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--runs 0", "--runs: 0 runs: give a number from 1 to 500"),
        ("--seeds 1,2 --runs 3", "--seeds: 2 seeds for 3 runs"),
        ("--seeds 1,x", "--seeds '1,x' must be whole numbers"),
        ("--memory 4XB", "--memory '4XB' must be a size"),
        ("--memory 1", "--memory: 1 MB of memory: give a number"),
        ("--gpu-memory big", "--gpu-memory 'big' must be a size"),
        ("--gpu-memory 0", "--gpu-memory: 0 MB of a GPU"),
        ("--set seconds", "--set 'seconds': write it as name=value"),
        ("--var seconds", "--var 'seconds': write it as name=value, a variable of all nodes"),
        ("--set sec=1", "--set sec: the template nap has no parameter 'sec'"),
        ("--policy pin", "--policy: 'pin' needs sites"),
        ("--template nothing", "--template: no template is called 'nothing'"),
        ("--name a/b", "--name: 'a/b' cannot be a DAG's name"),
        ("gone/new", "DIR: "),
    ],
)
def test_bad_arguments_are_one_sentence(
    capsys: Captured, own: str, pool: FakePool, options: str, sentence: str
) -> None:
    for mode in ("--dry-run", "--yes", "--no-submit"):
        code, out, err = spoken(capsys, "--template", own, *shlex.split(options), mode)
        assert (code, out) == (Exit.USAGE, "")
        assert err.startswith(f"metlmon: {sentence}")
        assert err.count("\n") == 1
    assert written() == []
    assert pool.dags == []


def test_nothing_is_written_without_a_terminal_or_yes(
    capsys: Captured, own: str, pool: FakePool
) -> None:
    for options in ([], ["--json"]):
        code, out, err = spoken(capsys, "--template", own, *options)
        assert (code, out) == (Exit.USAGE, "")
        assert "say --yes to write and submit" in err
    assert (written(), pool.dags) == ([], [])


# --- writing and submitting -------------------------------------------------------------------


def test_yes_writes_and_submits(capsys: Captured, own: str, pool: FakePool) -> None:
    code, out, err = spoken(capsys, "--template", own, "--yes", "--runs", "2", "--epochs", "2")
    assert code == Exit.OK
    assert out == ("cluster 77: ensemble/ensemble.dag, 2 runs, 4 nodes, 4 jobs\n")
    assert err == "metlmon: watch it with: metlmon watch ensemble\n"
    assert written() == sorted(FILES)
    assert pool.dags == [Path.cwd() / "ensemble" / "ensemble.dag"]
    assert pool.closed
    request = Request(own, Path("other"), runs=2, epochs=2, gate=StopRules())
    for file in make_plan(request).files:
        assert (Path("ensemble") / file.name).read_bytes() == file.data


def test_refusal_of_the_pool_is_reported(capsys: Captured, own: str, pool: FakePool) -> None:
    pool.submitted = PoolError("the schedd does not answer; is HTCondor running here? \x1b[2J")
    code, out, err = spoken(capsys, "--template", own, "--yes")
    assert (code, out) == (Exit.REFUSED, "")
    assert code == 6
    assert err == (
        "metlmon: written, but not submitted: the schedd does not answer; is HTCondor running "
        "here? \\x1b[2J\n"
    )
    assert written() == sorted(FILES)
    assert pool.closed


@pytest.mark.parametrize("options", [[], ["--no-gate", "--retries", "0"]])
def test_submit_writes_the_files_of_new(capsys: Captured, own: str, options: list[str]) -> None:
    """With a gate, unless --no-gate is given."""
    spoken(capsys, "here", "--template", own, "--no-submit", *options)
    main(["new", "there", "--template", own, *options])
    one, other = ({p.name: p.read_bytes() for p in Path(d).iterdir()} for d in ("here", "there"))
    assert one == other
    assert ("gate.py" in one, b"gate.py" in one["ensemble.dag"]) == (not options, not options)


def test_gate_without_python_is_reported(
    capsys: Captured, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    for command in (["submit", "--dry-run"], ["new", "--dry-run"]):
        assert main([*command, "--template", own]) == Exit.OK
        err = capsys.readouterr().err
        assert err.startswith("metlmon: warning: --gate: python3 is not on PATH here")
    assert main(["submit", "--dry-run", "--no-gate", "--template", own]) == Exit.OK
    assert capsys.readouterr().err == ""


def test_existing_dag_is_kept_without_force(capsys: Captured, own: str, pool: FakePool) -> None:
    spoken(capsys, "--template", own, "--no-submit")
    before = {name: Path(name).read_bytes() for name in FILES}
    code, out, err = spoken(capsys, "--template", own, "--yes", "--runs", "9")
    assert (code, out) == (Exit.USAGE, "")
    assert "ensemble.dag: is there already" in err
    assert err.endswith("(--force)\n")
    assert {name: Path(name).read_bytes() for name in FILES} == before
    assert pool.dags == []
    code, _, _ = spoken(capsys, "--template", own, "--yes", "--runs", "9", "--force")
    assert code == Exit.OK
    assert b"run8-train_epoch2" in Path(FILES[0]).read_bytes()


def test_read_only_setting_refuses_submission(
    capsys: Captured, own: str, pool: FakePool, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.write_text("read_only = true\n")
    monkeypatch.setattr(new, "is_terminal", lambda: True)
    for how in (["--yes"], []):
        code, _, err = spoken(capsys, "--template", own, *how)
        assert code == Exit.USAGE
        assert "read_only" in err
    assert (written(), pool.dags) == ([], [])
    assert spoken(capsys, "--template", own, "--no-submit")[0] == Exit.OK


def test_terminal_opens_the_pane_with_the_error(
    capsys: Captured, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts: list[Request] = []

    def pane(_: object, draft: Request) -> int:
        drafts.append(draft)
        return 0

    monkeypatch.setattr(new, "is_terminal", lambda: True)
    monkeypatch.setattr(session_setup, "open_submit_pane", pane)
    assert spoken(capsys, "--template", own, "--runs", "3", "--sites", "A, B")[0] == 0
    assert drafts == [Request(own, Path("ensemble"), runs=3, sites=("A", "B"), gate=StopRules())]
    Path("ensemble").mkdir()
    spoken(capsys)
    assert drafts[-1] == Request("trainer", Path("ensemble-2"), gate=StopRules())
    spoken(capsys, "ensemble")
    assert drafts[-1].directory == Path("ensemble")
    assert written() == []
