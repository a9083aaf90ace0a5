"""Failures in ``metlmon status`` that POST scripts let pass, that FINAL nodes overrule, or that are
known already."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Captured, json_output, text_output
from tests.support.event_logs import Log, Out

DAG = """\
JOB run0-train_epoch0 t.sub
JOB run0-train_epoch1 t.sub
JOB run0-eval_epoch0 t.sub
JOB tidy t.sub
FINAL last t.sub
PARENT run0-train_epoch0 CHILD run0-train_epoch1 run0-eval_epoch0
SCRIPT POST run0-train_epoch0 post.sh
"""


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> str:
    (tmp_path / "run.dag").write_text(DAG)
    (tmp_path / "t.sub").write_text("executable = /bin/true\nlog = metl.log\nqueue\n")
    log = Log().submit(77, "run0-train_epoch0", at="10:00:00").execute(77).terminate(77, 1)
    log.post(77, "run0-train_epoch0", 0).submit(78, "run0-eval_epoch0").execute(78)
    log.terminate(78, 1).submit(79, "tidy").execute(79).terminate(79, 4)
    log.submit(90, "last", at="11:00:00").execute(90).terminate(90, 0)
    (tmp_path / "metl.log").write_bytes(log.data)
    out = Out().start(at="09:59:00").submitted("run0-train_epoch0", 77, at="10:00:00")
    out.submitted("run0-eval_epoch0", 78, at="10:04:00").submitted("tidy", 79, at="10:07:00")
    out.submitted("last", 90, at="11:00:00")
    (tmp_path / "run.dag.dagman.out").write_bytes(out.exit(0, at="11:10:00").data)
    return str(tmp_path)


def test_passed_failures_are_listed_once(dagdir: str, capsys: Captured) -> None:
    lines = text_output("status", capsys, dagdir, "--no-live").splitlines()
    assert lines[0].startswith("run.dag  ✓ done with failures  ")
    (others,) = [line for line in lines if line.startswith("Other nodes:")]
    assert others == "Other nodes:  tidy ✗ failed  FINAL last ✓ completed"
    assert "1 evaluation failed" in lines
    assert "1 epoch completed although its job failed" in lines
    (row,) = [line for line in lines if line.startswith("run0 ")]
    assert "✓ between epochs, job failed" in row
    # Its only epochs took hours that are badput: neither sum is unknown.
    assert row.split()[-4:] == ["0", "0.03", "100", "%"]


def test_json_flags_overruled_epochs(dagdir: str, capsys: Captured) -> None:
    (run,) = json_output("status", capsys, dagdir, "--no-live")["runs"]
    assert (run["epochs_done"], run["epochs_overruled"]) == (1, 1)
    assert (run["latest"]["state"], run["latest"]["overruled"]) == ("completed", True)
    epochs = json_output("run", capsys, "run0", dagdir, "--no-live")["epochs"]
    assert [(epoch["state"], epoch["overruled"]) for epoch in epochs] == [
        ("completed", True),
        ("waiting", False),
    ]
