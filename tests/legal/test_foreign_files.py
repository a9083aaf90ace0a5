"""Files outside the dagdir are read only where a DAG names them, and no text is quoted from a file
of another kind than it is named as."""

from __future__ import annotations

from pathlib import Path

import pytest

from metlmon.authoring.request import PlanError
from metlmon.authoring.templates import load_template
from metlmon.cli.main import main
from metlmon.live.discovery import discover_dags, discover_logs
from tests.support.commands import Captured
from tests.support.dagdir_builder import Dagdir, log_of
from tests.support.event_logs import Log

KEY = """\
-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW
QyNTUxOQAAACAkPrivate0000one
QyNTUxOQAAACAkPrivate0000two==
-----END OPENSSH PRIVATE KEY-----
"""

ACCOUNT = """\
machine db.example.org login anna password sesame0001
[default]
sesame0002 = sesame0003
sesame0004 == sesame0005
sesame0006
x = $(sesame0007)
"""


def logs(dagdir: Dagdir) -> set[str]:
    found = discover_dags(dagdir.path)
    return {log.path.name for log in discover_logs(dagdir.path, found.dags).logs}


@pytest.fixture(name="other")
def _other(tmp_path: Path) -> Dagdir:
    other = Dagdir(tmp_path / "other", dag="")
    other.write("inner.dag", "JOB a a.sub\n")
    other.write("a.sub", "executable = t.sh\nlog = named.log\nqueue\n")
    for name in ("named.log", "inner.dag.nodes.log", "others.log", "theirs.dag.nodes.log"):
        other.write(name, log_of(7))
    other.write("inner.dag.dagman.log", Log().submit(6).execute(6).data)
    return other


@pytest.mark.parametrize("file", ["{0}/inner.dag", "../other/inner.dag", "link/inner.dag"])
def test_only_logs_of_an_outside_sub_dag_are_read(tmp_path: Path, other: Dagdir, file: str) -> None:
    dagdir = Dagdir(tmp_path / "ens", f"SUBDAG EXTERNAL s {file.format(other.path)}\n")
    (dagdir.path / "link").symlink_to(other.path)
    assert logs(dagdir) == {"inner.dag.nodes.log", "inner.dag.dagman.log", "named.log"}


@pytest.mark.parametrize("text", [KEY, ACCOUNT], ids=["key", "account"])
@pytest.mark.parametrize(
    "dag",
    ["JOB A {}", "JOB A a.sub\nINCLUDE {}", "SPLICE s {}", "SUBDAG EXTERNAL s {}", "JOB A in.sub"],
)
@pytest.mark.parametrize("command", [["check", "--json"], ["status", "--json"]], ids=" ".join)
def test_other_files_are_never_quoted(
    tmp_path: Path, capsys: Captured, dag: str, command: list[str], text: str
) -> None:
    (tmp_path / "secret").write_text(text)
    dagdir = Dagdir(tmp_path / "ens", dag.format("../secret") + "\n")
    dagdir.write("a.sub", "executable = /bin/true\nlog = a.log\nqueue\n")
    dagdir.write("in.sub", "executable = /bin/true\ninclude : ../secret\nqueue\n")
    main([*command, str(dagdir.path)])
    captured = "".join(capsys.readouterr())
    for word in ("sesame", "Private", "OPENSSH", "b3Blb", "QyNTU", "anna", "machine"):
        assert word.lower() not in captured.lower()


def test_template_ships_no_file_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(KEY)
    place = tmp_path / "templates"
    (place / "below").mkdir(parents=True)
    template = place / "mine.sub"
    template.write_text("# ship: train.py\nexecutable = train.py\nqueue\n")
    (place / "train.py").symlink_to("../secret")
    with pytest.raises(PlanError, match="is a link to a file elsewhere; copy it"):
        load_template(str(template))
    (place / "train.py").unlink()
    (place / "below/train.py").write_text("print()\n")
    (place / "train.py").symlink_to("below/train.py")
    ((name, data, _),) = load_template(str(template)).shipped_files
    assert (name, data) == ("train.py", b"print()\n")
    # The user named a link to the template itself.
    (tmp_path / "mine.sub").symlink_to(template)
    (tmp_path / "train.py").write_text("pass\n")
    assert load_template(str(tmp_path / "mine.sub")).shipped_files[0][1] == b"pass\n"
