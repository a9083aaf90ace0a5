"""``metlmon act`` and ``--queue`` for scripts, with a schedd in memory."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from metlmon.cli import Exit
from metlmon.cli.arguments import ACTIONS
from metlmon.cli.main import main
from metlmon.pool import client
from metlmon.pool.types import PoolAction, QueueJob
from tests.support.commands import Captured, json_output, run_command
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log, Out
from tests.support.queue_rows import Schedd, dagman, job


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Dagdir:
    """Run 0: its first epoch is done, its second idle."""
    dagdir = Dagdir(tmp_path / "ensemble")
    log = Log().submit(78, NODE).execute(78, gpus=2).terminate(78, 0)
    log.submit(79, "run0-train_epoch1")
    dagdir.write("metl.log", log.data)
    return dagdir


@pytest.fixture(name="schedd")
def _schedd(dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch) -> Schedd:
    schedd = Schedd(job(79, node="run0-train_epoch1", directory=dagdir.path, rejection="no match"))
    monkeypatch.setattr(client, "PoolConnection", lambda: schedd)
    monkeypatch.setattr("metlmon.pool.connection.PoolConnection", lambda: schedd)
    return schedd


Act = Callable[..., tuple[int, str, str]]


@pytest.fixture(name="act")
def _act(dagdir: Dagdir, schedd: Schedd, capsys: Captured) -> Act:
    """Run ``metlmon act`` in the dagdir: exit status, standard output, standard error."""
    return lambda what, *words: run_command("", capsys, "act", what, dagdir.path, *words)


def test_command_has_all_actions() -> None:
    assert tuple(str(act) for act in PoolAction) == ACTIONS


@pytest.mark.parametrize("words", [("79.0", "--yes"), ("--yes", "all"), ("run0", "--yes")])
def test_jobs_are_listed_before_the_answers(
    words: tuple[str, ...], act: Act, schedd: Schedd
) -> None:
    code, out, err = act("hold", *words)
    assert (code, out) == (Exit.OK, "79.0  done\n")
    assert err.splitlines()[0].startswith("hold job 79.0 of ")
    assert schedd.acts() == [("hold", 79, 0)]


def test_unknown_options_and_targets_are_refused(dagdir: Dagdir, schedd: Schedd) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["act", "hold", str(dagdir.path), "all", "--yess"])
    assert ended.value.code == Exit.USAGE
    assert main(["jobs", str(dagdir.path), "another"]) == Exit.USAGE


def test_nothing_is_done_without_yes_or_terminal(act: Act, schedd: Schedd) -> None:
    code, out, err = act("hold", "all")
    assert (code, out) == (Exit.USAGE, "")
    assert "add --yes" in err
    assert schedd.acts() == []


@pytest.mark.parametrize("answer", ["", "n\n", "no\n", "yess\n"])
def test_only_yes_confirms(
    answer: str, act: Act, schedd: Schedd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdin, "readline", lambda: answer, raising=False)
    code, _, err = act("hold", "all")
    assert code == Exit.REFUSED
    assert "nothing was done" in err
    assert schedd.acts() == []


def test_denied_action_has_its_exit_status(act: Act, schedd: Schedd) -> None:
    schedd.answers[79] = "permission denied"
    code, out, _ = act("hold", "all", "--yes", "--json")
    assert code == Exit.REFUSED
    output = json.loads(out)
    assert output["answers"][0]["reply"] == "permission denied"
    assert output["request"]["targets"][0]["cluster"] == 79


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("priority", "all"), "--value"),
        (("priority", "all", "--value", "1.5x"), "--value N, a whole number"),
        (("hold", "all", "--value", "3"), "--value is for priority"),
        *(
            (("raise-memory", "all", "--value", value), "a factor above 1")
            for value in ("1x", "0.5x", "12", "0GB", "1e9x", "12 GiB", "x")
        ),
        (("hold", "79.0", "--keep=x"), "for resubmit"),
        (("hold",), "name jobs"),
        (("hold", "99.0"), "no log has"),
        (("hold", "nobody"), "no such run"),
        (("halt", "other.dag"), "no such DAG"),
        (("exclude-site",), "name one site"),
        (("exclude-site", "A", "B"), "name one site"),
        (("exclude-site", 'a"'), "without quotes"),
        (("exclude-site", "a|b"), "without |"),
        (("exclude-site", "A", "--to", "B"), "--to is for retarget and send"),
    ],
)
def test_invalid_arguments_are_refused(
    words: tuple[str, ...], reason: str, act: Act, schedd: Schedd
) -> None:
    code, _, err = act(*words, "--yes")
    assert code == Exit.USAGE
    assert reason in err
    assert schedd.acts() == []


def test_job_of_dagman_is_not_acted_on_as_a_job(act: Act, dagdir: Dagdir, schedd: Schedd) -> None:
    dagdir.write("run.dag.dagman.log", Log().submit(60).execute(60).data)
    code, _, err = act("hold", "60.0", "--yes")
    assert code == Exit.USAGE
    assert "60.0: DAGMan's own job of run.dag; name the DAG" in err
    assert schedd.acts() == []


def test_read_only_setting_refuses_actions(dagdir: Dagdir, act: Act, schedd: Schedd) -> None:
    dagdir.write("metlmon.toml", b"read_only = true\n")
    for what in ("hold", "exclude-site"):
        code, _, err = act(what, "all", "--yes")
        assert code == Exit.USAGE
        assert "read_only" in err
    assert schedd.asked == []


# --- --queue ------------------------------------------------------------------------------


@pytest.fixture(name="status")
def _status(dagdir: Dagdir, schedd: Schedd, capsys: Captured) -> Callable[..., dict[str, Any]]:
    """``metlmon status --json`` of the dagdir, or another command."""
    return lambda *words, command="status": json_output(command, capsys, dagdir.path, *words)


Report = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("command", ["status", "jobs"])
def test_queue_state_is_added_to_the_json(command: str, status: Report) -> None:
    word = status("--queue", command=command)["queue"]
    assert (word["schedd"], word["error"]) == ("ap.example.org", None)
    (result,) = word["jobs"]
    assert (result["status"], result["position"], result["rejection"]) == ("idle", 1, "no match")
    assert result["differs"] is None


def test_queued_jobs_make_an_old_log_live(status: Report) -> None:
    alone = status()
    assert (alone["live"], "queue" in alone) == (False, False)
    assert status("--queue")["live"] is True
    assert status("--queue", "--no-live")["live"] is False


def test_queue_state_is_missing_without_a_schedd(status: Report, schedd: Schedd) -> None:
    schedd.down = "no schedd is known here"
    output = status("--queue")
    assert output["queue"]["error"] == "no schedd is known here"
    assert output["runs"][0]["state"] == "idle"


@pytest.mark.parametrize("target", ["79.0", "all"])
def test_missing_schedd_refuses_even_a_needless_hold(
    target: str, dagdir: Dagdir, act: Act, schedd: Schedd
) -> None:
    log = Log().submit(79, "run0-train_epoch1").hold(79, "by hand", 1)
    dagdir.write("metl.log", log.data)
    code, _, err = act("hold", target, "--yes")
    assert (code, err.startswith("metlmon: no need to hold")) == (Exit.OK, True)
    schedd.down = "no schedd is known here"
    code, out, err = act("hold", target, "--yes")
    assert (code, out) == (Exit.REFUSED, "")
    assert err.startswith("metlmon: cannot hold")
    assert err.endswith(": no schedd is known here\n")


def test_queue_excludes_as_of(dagdir: Dagdir, schedd: Schedd, capsys: Captured) -> None:
    words = (dagdir.path, "--queue", "--as-of", "2026-01-05T09:00:00")
    code, _, err = run_command("status", capsys, *words)
    assert code == Exit.USAGE
    assert "leave out --as-of" in err


def test_texts_of_the_queue_are_escaped(dagdir: Dagdir, schedd: Schedd, capsys: Captured) -> None:
    schedd.jobs[79, 0] = replace(schedd.jobs[79, 0], rejection="\x1b[2J\u202eno", owner="\x1b]0;x")
    for command in ("status", "jobs"):
        _, out, _ = run_command(command, capsys, dagdir.path, "--queue")
        assert not {"\x1b", "\u202e"} & set(out)


def test_difference_between_log_and_queue_is_reported(status: Report, schedd: Schedd) -> None:
    schedd.jobs[79, 0] = replace(schedd.jobs[79, 0], status=5)
    output = status("--queue")
    assert output["queue"]["jobs"][0]["differs"] == "held"
    assert not [w for w in output["warnings"] if w["kind"] == "queue-differs"]


# --- a dry run ----------------------------------------------------------------------------------


def ended(dagdir: Dagdir) -> None:
    """The DAG was removed and left a rescue file."""
    dagdir.write("run.dag.dagman.out", Out().start("09:00:00").exit(2, "12:00:00").data)
    dagdir.write("run.dag.rescue001", "")


def test_dry_run_refuses_what_yes_refuses(
    dagdir: Dagdir, schedd: Schedd, act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    ask = schedd.job

    def refused(*words: object) -> None:
        dry = act(*words, "--dry-run")
        assert dry[0] == Exit.REFUSED
        assert dry == act(*words, "--yes")
        assert schedd.acts() == []

    def moved(cluster: int, proc: int) -> QueueJob | None:
        found = ask(cluster, proc)
        return None if found is None else replace(found, directory="/elsewhere")

    refused("priority", "79.0", "--value", 2**31)
    ended(dagdir)
    dagdir.write("run.dag.lock", "")
    refused("resubmit")
    (dagdir.path / "run.dag.lock").unlink()
    schedd.jobs[8, 0] = dagman(8, "run.dag", dagdir.path)
    refused("resubmit")
    monkeypatch.setattr(schedd, "job", moved)
    refused("hold", "79.0")


def test_dry_run_changes_nothing(dagdir: Dagdir, schedd: Schedd, act: Act) -> None:
    dagdir.write("run.dag.dagman.out", Out().start("09:00:00").data)
    dagdir.write("run.dag.dagman.log", Log().submit(900).execute(900, bare=True).data)
    schedd.jobs[900, 0] = dagman(900, "run.dag", dagdir.path)
    before = sorted(os.listdir(dagdir.path))
    for words in (["hold", "79.0"], ["priority", "79.0", "--value", "3"], ["halt"], ["remove-dag"]):
        assert act(*words, "--dry-run")[:2] == (Exit.OK, "")
    assert schedd.acts() == []
    assert sorted(os.listdir(dagdir.path)) == before


def test_unsafe_option_is_resubmitted_only_by_name(
    dagdir: Dagdir, act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    ended(dagdir)
    dagdir.write("run.dag.condor.sub", 'arguments = "-Dag run.dag -import_env"\nqueue\n')
    code, out, _ = act("resubmit", "--yes")
    assert code == Exit.REFUSED
    assert "--keep=-import_env" in out
    code, _, err = act("resubmit", "--keep=-import_env", "--dry-run")
    assert code == Exit.OK
    assert "import_env" in err, "what is kept is shown"


# --- excluding a site or a host ---------------------------------------------------------------


def test_site_is_excluded_and_included_again(act: Act) -> None:
    code, out, err = act("exclude-site", "Expanse-GPU", "--yes")
    assert (code, out) == (Exit.OK, "79.0  done\n")
    assert err.splitlines()[:2] == ["exclude the site Expanse-GPU", "  79.0  run0  epoch 2  idle"]
    assert "undo: include-site" in err
    code, out, err = act("exclude-site", "Expanse-GPU", "--yes")
    assert (code, out) == (Exit.OK, "")
    assert "no need to exclude the site Expanse-GPU: the site is excluded already" in err
    code, out, _ = act("include-site", "Expanse-GPU", "--yes", "--json")
    output = json.loads(out)
    assert (output["act"], output["request"]["site"]) == ("include-site", "Expanse-GPU")
    assert (output["request"]["dags"], output["answers"][0]["reply"]) == ([], "done")


def test_only_hosts_with_executions_are_excluded(act: Act) -> None:
    code, _, err = act("exclude-host", "gpu1.example.edu", "--yes")
    assert code == Exit.REFUSED
    assert "no job has run on a host of the name gpu1.example.edu" in err
    ran_on = "ip-172-31-17-82.ec2.internal"
    code, out, err = act("exclude-host", ran_on, "--yes")
    assert (code, out) == (Exit.OK, "79.0  done\n")
    assert err.splitlines()[0] == f"exclude the host {ran_on}"
