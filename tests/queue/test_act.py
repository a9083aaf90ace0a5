"""``metlmon act`` and ``--queue`` as a script meets them; the schedd is one in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.cli.arguments import ACTIONS
from metlmon.cli.exit_codes import Exit
from metlmon.cli.main import main
from metlmon.pool import client, poller
from metlmon.pool.types import PoolAction, QueueJob
from tests.support.commands import Captured, run_command
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


spoken = partial(run_command, "")


def test_the_commands_actions_are_the_acts() -> None:
    assert tuple(str(act) for act in PoolAction) == ACTIONS


@pytest.mark.parametrize("words", [("79.0", "--yes"), ("--yes", "all"), ("run0", "--yes")])
def test_it_says_what_it_touches_and_then_the_answers(
    words: tuple[str, ...], dagdir: Dagdir, schedd: Schedd, capsys: Captured
) -> None:
    code, out, err = spoken(capsys, "act", "hold", dagdir.path, *words)
    assert (code, out) == (Exit.OK, "79.0  done\n")
    assert err.splitlines()[0].startswith("hold job 79.0 of ")
    assert schedd.acts() == [("hold", 79, 0)]


def test_what_no_option_or_target_is(dagdir: Dagdir, schedd: Schedd) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["act", "hold", str(dagdir.path), "all", "--yess"])
    assert ended.value.code == Exit.USAGE
    assert main(["jobs", str(dagdir.path), "another"]) == Exit.USAGE


def test_without_a_yes_and_a_terminal_nothing_is_done(
    dagdir: Dagdir, schedd: Schedd, capsys: Captured
) -> None:
    code, out, err = spoken(capsys, "act", "hold", dagdir.path, "all")
    assert (code, out) == (Exit.USAGE, "")
    assert "add --yes" in err
    assert schedd.acts() == []


@pytest.mark.parametrize("answer", ["", "n\n", "no\n", "yess\n"])
def test_only_yes_is_a_yes(
    answer: str, dagdir: Dagdir, schedd: Schedd, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "metlmon.cli.commands.act.confirmed", lambda: answer.strip() in ("y", "yes")
    )
    code, _, err = spoken(capsys, "act", "hold", dagdir.path, "all")
    assert code == Exit.REFUSED
    assert "nothing was done" in err
    assert schedd.acts() == []


def test_what_is_denied_is_an_exit_status(dagdir: Dagdir, schedd: Schedd, capsys: Captured) -> None:
    schedd.answers[79] = "permission denied"
    code, out, _ = spoken(capsys, "act", "hold", dagdir.path, "all", "--yes", "--json")
    assert code == Exit.REFUSED
    output = json.loads(out)
    assert output["answers"][0]["reply"] == "permission denied"
    assert output["request"]["targets"][0]["cluster"] == 79


def test_a_schedd_that_is_down_is_one_sentence(
    dagdir: Dagdir, schedd: Schedd, capsys: Captured
) -> None:
    schedd.down = "the schedd does not answer"
    code, _, err = spoken(capsys, "act", "hold", dagdir.path, "all", "--yes")
    assert code == Exit.REFUSED
    assert err.count("\n") == 1
    assert "the schedd does not answer" in err


def test_read_only_refuses(dagdir: Dagdir, schedd: Schedd, capsys: Captured) -> None:
    dagdir.write("metlmon.toml", b"read_only = true\n")
    code, _, err = spoken(capsys, "act", "hold", dagdir.path, "all", "--yes")
    assert code == Exit.USAGE
    assert "read_only" in err
    assert schedd.asked == []


@pytest.mark.parametrize(
    ("arguments", "output_of"),
    [
        (("priority", "all"), "--value"),
        (("hold", "all", "--value", "3"), "--value is for priority"),
        (("hold",), "name jobs"),
        (("hold", "99.0"), "no log has"),
        (("hold", "nobody"), "no such run"),
        (("halt", "other.dag"), "no such DAG"),
    ],
)
def test_what_cannot_be_meant(
    arguments: tuple[str, ...], output_of: str, dagdir: Dagdir, schedd: Schedd, capsys: Captured
) -> None:
    act, *rest = arguments
    code, _, err = spoken(capsys, "act", act, dagdir.path, *rest, "--yes")
    assert code == Exit.USAGE
    assert output_of in err
    assert schedd.acts() == []


# --- --queue ------------------------------------------------------------------------------


@pytest.fixture(name="asked")
def _asked(schedd: Schedd, monkeypatch: pytest.MonkeyPatch) -> Schedd:
    monkeypatch.setattr("metlmon.pool.connection.PoolConnection", lambda: schedd)
    return schedd


@pytest.mark.parametrize("command", ["status", "jobs"])
def test_the_queues_word_is_added_to_the_json(
    command: str, dagdir: Dagdir, asked: Schedd, capsys: Captured
) -> None:
    code, out, _ = spoken(capsys, command, dagdir.path, "--json", "--queue")
    assert code == Exit.OK
    word = json.loads(out)["queue"]
    assert (word["schedd"], word["error"]) == ("ap.example.org", None)
    (result,) = word["jobs"]
    assert (result["status"], result["position"], result["rejection"]) == ("idle", 1, "no match")
    assert result["differs"] is None


def test_a_queue_that_has_the_jobs_makes_an_old_log_live(
    dagdir: Dagdir, asked: Schedd, capsys: Captured
) -> None:
    _, out, _ = spoken(capsys, "status", dagdir.path, "--json")
    assert json.loads(out)["live"] is False
    assert "queue" not in json.loads(out)
    _, out, _ = spoken(capsys, "status", dagdir.path, "--json", "--queue")
    assert json.loads(out)["live"] is True
    _, out, _ = spoken(capsys, "status", dagdir.path, "--json", "--queue", "--no-live")
    assert json.loads(out)["live"] is False


def test_without_a_schedd_only_the_word_is_missing(
    dagdir: Dagdir, asked: Schedd, capsys: Captured
) -> None:
    asked.down = "no schedd is known here"
    code, out, _ = spoken(capsys, "status", dagdir.path, "--json", "--queue")
    output = json.loads(out)
    assert code == Exit.OK
    assert output["queue"]["error"] == "no schedd is known here"
    assert output["runs"][0]["state"] == "idle"


@pytest.mark.parametrize("target", ["79.0", "all"])
def test_without_a_schedd_nothing_is_as_it_was_wished(
    target: str, dagdir: Dagdir, asked: Schedd, capsys: Captured
) -> None:
    log = Log().submit(79, "run0-train_epoch1").hold(79, "by hand", 1)
    dagdir.write("metl.log", log.data)
    code, _, err = spoken(capsys, "act", "hold", dagdir.path, target, "--yes")
    assert (code, err.startswith("metlmon: no need to hold")) == (Exit.OK, True)
    asked.down = "no schedd is known here"
    code, out, err = spoken(capsys, "act", "hold", dagdir.path, target, "--yes")
    assert (code, out) == (Exit.REFUSED, "")
    assert err.startswith("metlmon: cannot hold")
    assert err.endswith(": no schedd is known here\n")


def test_the_queue_is_now(dagdir: Dagdir, asked: Schedd, capsys: Captured) -> None:
    code, _, err = spoken(
        capsys, "status", dagdir.path, "--queue", "--as-of", "2026-01-05T09:00:00"
    )
    assert code == Exit.USAGE
    assert "leave out --as-of" in err


def test_what_the_queue_says_cannot_move_the_cursor(
    dagdir: Dagdir, asked: Schedd, capsys: Captured
) -> None:
    asked.jobs[79, 0] = replace(asked.jobs[79, 0], rejection="\x1b[2J\u202eno", owner="\x1b]0;x")
    for command in ("status", "jobs"):
        _, out, _ = spoken(capsys, command, dagdir.path, "--queue")
        assert "\x1b" not in out
        assert "\u202e" not in out


def test_differing_at_this_moment_is_reported_as_such(
    dagdir: Dagdir, asked: Schedd, capsys: Captured
) -> None:
    asked.jobs[79, 0] = replace(asked.jobs[79, 0], status=5)
    _, out, _ = spoken(capsys, "status", dagdir.path, "--json", "--queue")
    output = json.loads(out)
    assert output["queue"]["jobs"][0]["differs"] == "held"
    assert not [w for w in output["warnings"] if w["kind"] == "queue-differs"]
    assert poller.QUERY_SECONDS == 30.0


# --- a dry run ----------------------------------------------------------------------------------


def ended(dagdir: Dagdir) -> None:
    """The DAG was removed, and a rescue file lies there."""
    dagdir.write("run.dag.dagman.out", Out().start("09:00:00").exit(2, "12:00:00").data)
    dagdir.write("run.dag.rescue001", "")


def locked(dagdir: Dagdir, schedd: Schedd) -> list[object]:
    ended(dagdir)
    dagdir.write("run.dag.lock", "")
    return ["resubmit"]


def in_the_queue(dagdir: Dagdir, schedd: Schedd) -> list[object]:
    ended(dagdir)
    schedd.jobs[8, 0] = dagman(8, "run.dag", dagdir.path)
    return ["resubmit"]


def another_directory(dagdir: Dagdir, schedd: Schedd) -> list[object]:
    ask = schedd.job

    def moved(cluster: int, proc: int) -> QueueJob | None:
        found = ask(cluster, proc)
        return None if found is None else replace(found, directory="/elsewhere")

    schedd.job = moved  # type: ignore[method-assign]
    return ["hold", "79.0"]


def sub_dag(evil: Path) -> None:
    (evil / "top.dag").write_text("SUBDAG EXTERNAL s ../ensemble/run.dag\n")


def log_elsewhere(evil: Path) -> None:
    dag = (evil / "../ensemble/run.dag").read_text()
    (evil / "run.dag").write_text(dag.replace("metl.log", "../ensemble/metl.log"))


def linked_log(evil: Path) -> None:
    (evil / "run.dag").write_text((evil / "../ensemble/run.dag").read_text())
    (evil / "metl.log").symlink_to("../ensemble/metl.log")


@pytest.mark.parametrize("prepare", [sub_dag, log_elsewhere, linked_log])
@pytest.mark.parametrize("what", ["hold", "remove"])
def test_a_prepared_directory_does_nothing_to_the_jobs_of_another(
    prepare: Callable[[Path], None],
    what: str,
    dagdir: Dagdir,
    schedd: Schedd,
    capsys: Captured,
) -> None:
    """Its files lead to the log of another directory, whose jobs its user may act on."""
    schedd.jobs[9, 0] = dagman(9, "run.dag", dagdir.path)
    evil = dagdir.path.parent / "evil"
    evil.mkdir()
    prepare(evil)
    code, _, _ = spoken(capsys, "act", what, evil, "all", "--yes")
    assert code != Exit.OK
    assert schedd.acts() == []
    # It is the ad that decides: in their own directory it is done.
    code, _, _ = spoken(capsys, "act", what, dagdir.path, "all", "--yes")
    assert (code, len(schedd.acts())) == (Exit.OK, 1)


def too_great(dagdir: Dagdir, schedd: Schedd) -> list[object]:
    return ["priority", "79.0", "--value", 2**31]


@pytest.mark.parametrize("what", [locked, in_the_queue, another_directory, too_great])
def test_a_dry_run_refuses_what_yes_refuses(
    dagdir: Dagdir,
    schedd: Schedd,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    what: Callable[[Dagdir, Schedd], list[object]],
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    act, *words = what(dagdir, schedd)
    dry = spoken(capsys, "act", act, dagdir.path, *words, "--dry-run")
    assert dry[0] == Exit.REFUSED
    assert dry == spoken(capsys, "act", act, dagdir.path, *words, "--yes")
    assert schedd.acts() == []


def test_a_dry_run_of_what_would_be_done_changes_nothing(
    dagdir: Dagdir, schedd: Schedd, capsys: Captured
) -> None:
    dagdir.write("run.dag.dagman.out", Out().start("09:00:00").data)
    dagdir.write("run.dag.dagman.log", Log().submit(900).execute(900, bare=True).data)
    schedd.jobs[900, 0] = dagman(900, "run.dag", dagdir.path)
    before = sorted(os.listdir(dagdir.path))
    for words in (["hold", "79.0"], ["priority", "79.0", "--value", "3"], ["halt"], ["remove-dag"]):
        act, *rest = words
        assert spoken(capsys, "act", act, dagdir.path, *rest, "--dry-run")[:2] == (Exit.OK, "")
    assert schedd.acts() == []
    assert sorted(os.listdir(dagdir.path)) == before


def test_what_leads_out_of_the_directory_is_resubmitted_only_by_its_name(
    dagdir: Dagdir, schedd: Schedd, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    ended(dagdir)
    dagdir.write("run.dag.condor.sub", 'arguments = "-Dag run.dag -import_env"\nqueue\n')
    code, out, _ = spoken(capsys, "act", "resubmit", dagdir.path, "--yes")
    assert code == Exit.REFUSED
    assert "--keep=-import_env" in out
    code, _, err = spoken(capsys, "act", "resubmit", dagdir.path, "--keep=-import_env", "--dry-run")
    assert code == Exit.OK
    assert "import_env" in err, "what is kept is shown"
    code, _, err = spoken(capsys, "act", "hold", dagdir.path, "79.0", "--keep=x", "--yes")
    assert (code, "for resubmit" in err) == (Exit.USAGE, True)
