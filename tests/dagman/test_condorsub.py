"""DAGMan's own submit file, as ``condor_submit_dag`` writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from metlmon.dagman import read_condor_sub


def test_the_command_line_of_a_recorded_ensemble(shared: Callable[[str], Path]) -> None:
    data = shared("examples/pool-ensemble/ens.dag.condor.sub").read_bytes()
    sub = read_condor_sub(data)
    assert (sub.dag_files, sub.use_dag_dir, sub.rescue_from) == (("ens.dag",), False, None)


def test_several_dag_files_make_one_workflow_in_their_order() -> None:
    # DagmanUtils::writeSubmitFile; ArgList::GetArgsStringV2Quoted for blanks and quotes
    sub = read_condor_sub(
        b"# Filename: b.dag.condor.sub\n"
        b"universe\t= scheduler\n"
        b'Arguments\t= "-p 0 -f -l . -Lockfile b.dag.lock -AutoRescue 1 -DoRescueFrom 4 '
        b"-Dag b.dag -Dag 'runs of ''may''/a \"\"x\"\".dag' -UseDagDir -Suppress_notification "
        b"-CsdVersion $CondorVersion:' '25.14.1' '2026-10-16' '$ -dagman /usr/bin/condor_dagman\"\n"
        b"environment = \"X=-Dag' 'secret.dag\"\n"
        b"queue\n"
    )
    assert sub.dag_files == ("b.dag", "runs of 'may'/a \"x\".dag")
    assert sub.use_dag_dir
    assert sub.rescue_from == 4


def test_the_old_syntax_has_no_quotes_around_it() -> None:
    sub = read_condor_sub(b"arguments = -f -l . -Dag x.dag -DoRescueFrom 0 -UseDagDir\r\nqueue\r\n")
    assert (sub.dag_files, sub.use_dag_dir, sub.rescue_from) == (("x.dag",), True, None)


def test_another_file_names_no_dag() -> None:
    assert read_condor_sub(b"JOB A a.sub\n").dag_files == ()
    assert read_condor_sub(b'arguments = "-Dag"\n').dag_files == ()
