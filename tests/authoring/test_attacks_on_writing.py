"""Hostile and clumsy requests: no text leaves its line, its quotes or its file, and either all
files are written or none."""

from __future__ import annotations

import os
import shlex
import signal
import string
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from metlmon.authoring import write_files as writing_module
from metlmon.authoring.description import DescriptionError, example, read_description
from metlmon.authoring.plan import make_plan
from metlmon.authoring.request import EnsembleShape, Evaluation, PlanError, StageRequest, StopRules
from metlmon.authoring.validate import validate
from metlmon.authoring.write_files import write_plan
from metlmon.cli import Exit
from tests.support.commands import Captured, run_command
from tests.support.sample_requests import a_request, nap, read_plan

KEY: Final = "hf_AbCdEfGhIjKlMnOpQrStUv0123"
"""What an API key looks like."""

#: What ends lines, words, quotes and macros, for one or another reader.
NASTY: Final = (
    *("\n", "\r", "\t", "\0", "\x0b", "\x0c", "\x1b[31m", "\x7f", "\x85", "\u2028", "\u2029"),
    *('"', "'", "\\", "\\ ", "\\n", "$(x)", "$$(x)", "$(", ")", "$ENV(HOME)", "%", "#", "=", ";"),
    *("ALL_NODES", "DONE", "NOOP", "CHILD", "PARENT", "queue 9", "queue"),
    *("@=end", "{", "}", "{run}"),
    *(" ", "  ", "\xa0", "\ud800", "\ufeff", "\u202e", "é", "..", "/", "-", "//", "if", "x" * 5000),
)

texts = st.lists(st.sampled_from(NASTY) | st.text(string.ascii_letters, min_size=1), max_size=4)
nasty = texts.map("".join)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def output_of(capsys: Captured, words: str) -> tuple[int, str, str]:
    return run_command("new", capsys, *shlex.split(words))


# --- names of files -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a\nqueue 99\n.sub", "a\u2028b.sub", "a\x1b.sub", "a\udcff.sub"])
def test_file_name_of_a_template_injects_no_line(tmp_path: Path, name: str) -> None:
    own = Path(nap(tmp_path / "own"))
    template = own.rename(own.with_name(name))
    asked = replace(a_request(tmp_path), template=str(template))
    with pytest.raises(PlanError, match="rename the file"):
        make_plan(asked)


def test_stages_may_not_have_different_templates_of_one_name(tmp_path: Path) -> None:
    one, other = (nap(tmp_path / folder) for folder in ("a", "b"))
    stages = (StageRequest("p", 1, one), StageRequest("f", 1, other))
    asked = replace(a_request(tmp_path), shape=EnsembleShape.STAGES, stages=stages, template=one)
    assert make_plan(asked).nodes == 4, "they are the same"
    Path(other).write_text(Path(other).read_text() + "# not the same\n")
    with pytest.raises(PlanError, match=r"nap\.template would be written twice"):
        make_plan(asked)


def test_stage_named_like_the_evaluation_is_refused(tmp_path: Path) -> None:
    asked = replace(
        a_request(tmp_path),
        shape=EnsembleShape.STAGES,
        stages=(StageRequest("evaluate", 1), StageRequest("f", 1)),
        evaluation=Evaluation(),
    )
    fatal = [each.text for each in validate(asked).problems if each.fatal]
    assert fatal == [
        "two submit files would be called ensemble-evaluate.sub; give the stage another name"
    ]


@pytest.mark.parametrize(
    "name",
    [
        *("ensemble.dag", "ensemble.toml", "nap.template", "gate"),
        *("ensemble.dag.rescue001", "ensemble.jobstate.log"),
    ],
)
def test_template_may_not_ship_files_with_reserved_names(tmp_path: Path, name: str) -> None:
    own = Path(nap(tmp_path / "own"))
    (own.parent / name).write_text("x")
    asked = replace(a_request(tmp_path, gate=StopRules()), template=str(own))
    # a_request has rewritten the template.
    own.write_text(f"# ship: {name}\n{own.read_text()}")
    with pytest.raises(PlanError, match=f"^{name} .* rename"):
        make_plan(asked)


# --- the directory ------------------------------------------------------------------------------


def test_pipes_are_not_waited_for(tmp_path: Path, capsys: Captured) -> None:
    Path("D").mkdir()
    Path("D/ensemble.dag").write_text("JOB a a.sub\n")
    os.mkfifo("D/ensemble.toml")
    Path("e.toml").write_text('name = "ensemble"\n')
    assert output_of(capsys, "e.toml D")[0] == Exit.USAGE


def test_full_disk_is_not_reported_as_existing_files(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, _, err = output_of(capsys, "D --runs 1 --epochs 1")
    assert code == Exit.USAGE
    assert "No space left on device" in err
    assert "--force" not in err
    assert not Path("D").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_ctrl_c_waits_until_all_files_are_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    """A part of the files would be another ensemble."""
    assert threading.current_thread() is threading.main_thread()
    plan = make_plan(a_request(tmp_path))
    name = "replace" if overwrite else "link"
    real: Callable[..., None] = getattr(os, name)
    count = 0

    def interrupted(*args: Any, **how: Any) -> None:
        nonlocal count
        real(*args, **how)
        count += 1
        if count == 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(writing_module.os, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_plan(plan, overwrite=overwrite)
    there = sorted(os.listdir(plan.request.directory)) if plan.request.directory.exists() else []
    assert there in ([], sorted(file.name for file in plan.files))


# --- secrets ------------------------------------------------------------------------------------


def test_secrets_are_never_printed(capsys: Captured) -> None:
    Path("e.toml").write_text(
        f'runs = 1\nepochs = 1\nsites = ["{KEY}"]\n[values]\nproject = "--token {KEY}"\n'
        f'[variables]\nWANDB_API_KEY = "{KEY}"\nnote = "{KEY}"\n'
        f'[region.late]\nvariables = {{ learning_rate = "0.1", hf_token = "{KEY}" }}\n'
    )
    for words in (
        *("--dry-run", "--dry-run --json", "--explain run0-*", "--explain run0-* --json"),
        *("--picture", f"--name 'a {KEY}'", f"--template {KEY}", f"--set {KEY}=1 --dry-run"),
        *("", f"--var note={KEY}9 --dry-run", f"--var note={KEY}9 --dry-run --json"),
        *(f"--sites '{KEY}\"'", f"--var 'a b {KEY}=1'", f"--sweep '{KEY}'", f"--seeds {KEY}"),
    ):
        _, out, err = output_of(capsys, f"e.toml D {words}")
        assert KEY not in out, words
        assert KEY not in err, words
    assert KEY in Path("D/e.dag").read_text()


def test_secrets_are_warned_of_everywhere(capsys: Captured) -> None:
    Path("e.toml").write_text(
        f'runs = 1\nepochs = 1\n[values]\nproject = "{KEY}"\n[variables]\nWANDB_API_KEY = "{KEY}"\n'
        f'[region.late]\nvariables = {{ note = "{KEY}" }}\n'
    )
    err = output_of(capsys, "e.toml D --dry-run")[2]
    for name in ("project", "WANDB_API_KEY", "note"):
        assert f"{name} looks like a secret, and all who can read the directory" in err


# --- rewriting descriptions -----------------------------------------------------------------------


MINE: Final = """\
# Why there are two: the reviewers asked.
name = "e"
runs = 2      # not more
epochs = 2
"""


def test_comments_of_the_user_stay_in_the_description(capsys: Captured) -> None:
    Path("e.toml").write_text(MINE)
    assert output_of(capsys, "e.toml D")[0] == Exit.OK
    assert Path("e.toml").read_text() == MINE
    kept = Path("D/e.toml")
    machine = kept.read_text().partition("# What was written")[2]
    kept.write_text(MINE + "\n# What was written" + machine)
    before = kept.read_bytes()
    assert "nothing differs" in output_of(capsys, "D")[1]
    assert kept.read_bytes() == before
    kept.write_text(kept.read_text().replace("epochs = 2", "epochs = 3"))
    assert output_of(capsys, "D")[0] == Exit.OK
    assert kept.read_text().startswith(MINE.replace("epochs = 2", "epochs = 3"))
    assert "run0-train_epoch2" in Path("D/e.dag").read_text()
    before = kept.read_bytes()
    assert "nothing differs" in output_of(capsys, "D")[1]
    assert kept.read_bytes() == before


def test_options_that_drop_comments_of_the_user_are_reported(capsys: Captured) -> None:
    Path("e.toml").write_text(MINE)
    assert output_of(capsys, "e.toml D")[0] == Exit.OK
    assert "without comments of yours" not in output_of(capsys, "D --epochs 3")[2]
    Path("D/e.toml").write_text("# Mine.\n" + Path("D/e.toml").read_text())
    code, _, err = output_of(capsys, "D --epochs 4")
    assert code == Exit.OK
    assert "D/e.toml: options say it otherwise" in err
    assert Path("e.toml").read_text() == MINE


def test_given_description_is_not_overwritten(capsys: Captured) -> None:
    Path("e.toml").write_text(MINE)
    code, _, err = output_of(capsys, "e.toml .")
    assert code == Exit.USAGE
    assert "e.toml: is there already" in err
    assert Path("e.toml").read_text() == MINE
    assert output_of(capsys, "e.toml . --force")[0] == Exit.OK
    assert Path("e.toml").read_text().startswith(MINE)


# --- odd descriptions ---------------------------------------------------------------------------


@settings(max_examples=75, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_odd_descriptions_are_planned_or_refused(data: st.DataObject) -> None:
    """Examples with pieces removed, doubled, and with inserted ends of lines and quotes."""
    text = example(data.draw(st.sampled_from(list(EnsembleShape))), "trainer")
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 30)))
        text = text[:start] + data.draw(nasty | st.just(text[start:end] * 2)) + text[end:]
    path = Path("odd.toml")
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with suppress(DescriptionError):
        asked = read_description(path)
        if any(each.fatal for each in validate(asked).problems):
            return
        assert not [each for each in read_plan(make_plan(asked)).problems if each.error]
