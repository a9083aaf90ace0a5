"""Foreign files that are given to a command: its messages, and the files it would write, have no
control characters and no secret."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from metlmon.authoring.request import PlannedFile
from metlmon.redact import HIDDEN
from screens.submit import file_lines
from tests.hostile.corpus import KEY, NAMES, fields_in, forbidden, one_line, payload
from tests.support.command_server import Ran


def said(ran: Ran) -> str:
    """The checked output of a command."""
    text = (ran.stdout + ran.stderr).decode()
    assert text
    assert forbidden(text.replace("\t", " ")) == []
    return text


def template_line(attack: str) -> str:
    """A comment of a submit file; what is not UTF-8 is refused before."""
    text = one_line(payload("template", NAMES.index(attack), False)).decode("utf-8", "replace")
    return f"# a  comment\twith {text}\n"


def has_controls(text: str) -> bool:
    """Whether a text has ASCII control characters other than tab and line end."""
    return any(each.isascii() and not each.isprintable() and each not in "\t\n" for each in text)


def write_template(path: Path, lines: str) -> tuple[str | Path, ...]:
    """A submit file with these lines; returns the command that would use it."""
    begin = "executable = /bin/true\noutput = $(run_uuid).out\nlog = x.log\n"
    template = path / "somebody.sub"
    template.write_text(begin + lines + "arguments = --x $(epoch)\nqueue\n", newline="")
    return "submit", "--dry-run", "--template", template, "--name", "x", "new"


CONTROLS = [name for name in NAMES if has_controls(template_line(name))]


@pytest.mark.parametrize("attack", CONTROLS[::4])
def test_template_with_control_characters_is_refused(
    attack: str, tmp_path: Path, metlmon: Callable[..., Ran]
) -> None:
    ran = metlmon(*write_template(tmp_path, template_line(attack)))
    assert ran.returncode == 2
    assert "somebody.sub:4: a control character" in said(ran)


def test_preview_of_files_is_visible(tmp_path: Path, metlmon: Callable[..., Ran]) -> None:
    others = [name for name in NAMES if name not in CONTROLS]
    assert {"bidi", "rich", "zero-width"} <= set(others)
    asked = write_template(tmp_path, "".join(map(template_line, others)))
    ran = metlmon(*asked)
    assert ran.returncode == 0, ran.stderr
    shown = said(ran)
    assert "# a  comment\twith template" in shown, "blanks are as they are"
    assert "template" in fields_in(shown)
    ran = metlmon(*asked, "--json")
    assert ran.stdout.isascii()
    assert json.loads(ran.stdout)["runs"]


A = KEY.decode()

REFUSED_LINES = (
    f"JOB run1 --token {A}",
    f"VARS X --token {A}",
    f"RETRY a 3 ghp_{A}q7Xz2LmP9vRk4TbN8sWd3HyJ",
    f"RETRY a 3 --token {A * 9}",
    f"RETRY a token={A}",
    f"SCRIPT {A}=password PRE",
    f"JOB a {{\nenvironment = OMP={A}",
    f"JOB A a.sub ghp_{A}q7Xz2LmP9vRk4TbN8sWd3HyJ",
    f"ENV SOMETHING OMP={A}",
)

WRONG_SETTINGS = (
    f'[metrics]\nprimary = 3\nnonsense = "password={A}"\n',
    f'labels = "token={A}"\n',
    f'[metrics]\npatterns = ["(?P<value>token={A}("]\n',
    f'read_only = "token={A}"\n',
    f'token = "{A}"\n',
    f"password={A}\n",
    f'[tracking]\ntoken = "{A}"\n',
)


def test_refusal_of_a_dag_file_quotes_no_secret(
    tmp_path: Path, metlmon: Callable[..., Ran]
) -> None:
    for line in REFUSED_LINES:
        (tmp_path / "run.dag").write_text(line + "\n")
        for command in ("status", "check"):
            said(metlmon(command, "."))


def test_errors_of_settings_quote_no_secret(tmp_path: Path, metlmon: Callable[..., Ran]) -> None:
    (tmp_path / "run.dag").write_text("JOB a a.sub\n")
    for text in WRONG_SETTINGS:
        (tmp_path / "metlmon.toml").write_text(text)
        for command in ("status .", "config show .", "config validate .", "config show . --json"):
            assert "metlmon.toml" in said(metlmon(*command.split()))


TEMPLATE = """\
# template: One that is given a key
# parameter: wandb_key = none | the key
# parameter: colour = red | its colour
# parameter: api_token = 1 | a small one
# allowed: api_token 1..9
executable = /bin/true
arguments = --token {wandb_key} --epochs $(epoch) --colour {colour}
environment = "WANDB_API_KEY={wandb_key} OMP=sesame"
log = {name}.log
queue
"""


def test_preview_has_no_secret(tmp_path: Path, metlmon: Callable[..., Ran]) -> None:
    (tmp_path / "key.sub").write_text(TEMPLATE)
    asked = ("submit", "new", "--template", "key.sub", "--dry-run", "--set")
    for more in ((), ("--json",)):
        shown = said(metlmon(*asked, f"wandb_key={A}", *more))
        assert "--colour red" in shown
        assert "looks like a secret" in shown
        assert "sesame" not in shown
        assert f"api_token is '{HIDDEN}'" in said(metlmon(*asked, f"api_token={A}", *more))
    asked = ("new", "made", "--template", "key.sub", "--runs", "2", "--set", f"wandb_key={A}")
    for option in (
        *("--dry-run", "--dry-run --json", "--picture", "--explain", "--explain --json"),
        "--explain run0-train_epoch0",
    ):
        assert "run0" in said(metlmon(*asked, "--var", f"api_token={A}x1", *option.split()))


WRITTEN = f"""\
# a.sub: token={A}
executable = train.sh
arguments = --token {A}
environment = "OMP_NUM_THREADS={A} \\
  P={A}"
env @=end
OMP={A}
@end
+Environment = "OMP={A}"
log = metl.log
queue
"""


def test_preview_of_a_submission_is_visible() -> None:
    lines = file_lines(PlannedFile("a.sub", WRITTEN.encode(), False, ""), 100)
    seen = "\n".join("".join(map(str, each)) for each in lines)
    assert "metl.log" in seen
    dag = f'JOB A a.sub\nVARS A epoch="1" environment="OMP={A}" lr="0.1"\n'
    result = PlannedFile("a.dag", dag.encode(), False, "").text
    assert 'epoch="1"' in result
    assert A not in seen + result
