"""The ``metlmon`` command: arguments, and which module answers them.

Nothing is imported here that a version number does not need; each command imports what it
uses when it is called.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Final

from metlmon.cli.exit_codes import CONDITIONS, Exit
from metlmon.cli.parser import CommandParser

DESCRIPTION: Final = "Watch ensembles of model trainings that run as HTCondor DAGs."

EPILOG: Final = """\
exit status:
  0  readable, whatever the jobs did; or --exit-on was met and all is well
  1  check: errors were found (with --strict: or warnings)
  2  the directory or the arguments cannot be used (one sentence says why)
  3  --exit-on: a DAG failed or was removed, or can get no further
  4  --exit-on: a job, or DAGMan itself, is held
  5  --exit-on: --timeout passed first
  6  submit, new --submit: the files are written, but the pool did not take the DAG; act:
     something was refused, failed, or was not confirmed
 70  an error of metlmon itself, no memory, or no room for the output (one sentence says what)
130  ended from the keyboard; 128 and a signal's number: ended by that signal

Settings are read from metlmon.toml in the dagdir, then from metlmon/metlmon.toml in the
user's configuration directory. NO_COLOR is respected. Watching never writes to a dagdir.
"""

COLLECT: Final = (5_000, 10, 10)
"""When Python collects garbage, instead of at every 700 objects: a model grows by millions, none
of them in a cycle. Larger numbers let the garbage of screens stand for hours."""

DIR_HELP: Final = "the directory of a DAG, or the DAG file (default: here)"


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """All commands and their options; only ``command`` and its own, where that is one: to make
    the other thirteen takes longer than to answer ``--help``."""
    top: argparse.ArgumentParser = CommandParser(
        prog="metlmon",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    # Without a name argparse would print a usage line for itself, and load what that takes.
    commands = top.add_subparsers(dest="command", metavar="COMMAND", prog=top.prog)
    for add in [COMMANDS[command]] if command in COMMANDS else COMMANDS.values():
        add(commands)
    return top


def _watch(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    watch = commands.add_parser("watch", help="the live dashboard")
    watch.add_argument("dir", nargs="?", default=".", metavar="DIR", help=DIR_HELP)
    _moment(watch)
    _only(watch)
    _screen(watch)
    _read_only(watch)
    _exit_on(watch)


def _run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = commands.add_parser("run", help="one run, epoch by epoch")
    run.add_argument("run", metavar="UUID", help="a run's uuid, a prefix of it, or its name")
    run.add_argument("dir", nargs="?", default=".", metavar="DIR", help=DIR_HELP)
    run.add_argument("--json", action="store_true", help="print it as JSON and exit")
    _moment(run)
    _screen(run)
    _read_only(run)


def _status(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    status = commands.add_parser("status", help="where every run stands, once")
    status.add_argument("dir", nargs="?", default=".", metavar="DIR", help=DIR_HELP)
    status.add_argument("--json", action="store_true", help="print one JSON object (schema 1)")
    _moment(status)
    _only(status)
    _exit_on(status)
    _queue(status)
    status.add_argument("--ascii", action="store_true", help="plain characters only")


def _jobs(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    jobs = commands.add_parser("jobs", help="every job with its executions and transfers")
    jobs.add_argument("dir", nargs="?", default=".", metavar="DIR", help=DIR_HELP)
    jobs.add_argument("--json", action="store_true", help="print one JSON object (schema 1)")
    _moment(jobs)
    _only(jobs)
    _queue(jobs)
    jobs.add_argument("--ascii", action="store_true", help="plain characters only")


def _nodes(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    nodes = commands.add_parser(
        "nodes",
        help="every node of any DAG as a tree, what needs a person first",
        description="Every node, also of a DAG that trains nothing: its state, its latest job, why "
        "it is so, and what it waits for. What is alike is told together; --json has every node.",
    )
    _figures(nodes)
    nodes.add_argument(
        "--state", metavar="STATES", help="only nodes in these: held,failed,waiting, …"
    )


def _sites(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    sites = commands.add_parser("sites", help="where the hours went: sites, GPU models, causes")
    _figures(sites)
    _window(sites)


def _timeline(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    timeline = commands.add_parser("timeline", help="when what ran where, and how many at a time")
    _figures(timeline)


def _curves(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    curves = commands.add_parser("curves", help="metrics by epoch: is it learning")
    _figures(curves)
    curves.add_argument("--metric", metavar="NAME", help="this metric (default: val_loss)")


def _grid(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    grid = commands.add_parser(
        "grid", help="a sweep's points as rows and columns: which is best, and how far it is"
    )
    _figures(grid)
    grid.add_argument("--metric", metavar="NAME", help="this metric (default: val_loss)")
    grid.add_argument(
        "--rows", metavar="NAME", help="a swept variable (several that go together: a,b)"
    )
    grid.add_argument("--columns", metavar="NAME", help="another one, likewise")
    grid.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="only runs with this value of a third one (default: the best over all of them)",
    )


def _shards(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    shards = commands.add_parser(
        "shards", help="bags of equal nodes: done, rate, stragglers, and when they will be done"
    )
    _figures(shards)


def _estimate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    estimate = commands.add_parser(
        "estimate", help="when each run and the whole will be done, and how sure that is"
    )
    _figures(estimate)
    estimate.add_argument(
        "--backtest",
        action="store_true",
        help="how far off it would have been at 25, 50 and 75 %% of the way",
    )


def _report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    report = commands.add_parser(
        "report",
        help="tables and figures of the experiment, as HTML or Markdown",
        description="The report of an ensemble: GPU models, sites, totals, transfers, causes, and "
        "figures over time. Without --html or --md the tables are printed.",
    )
    report.add_argument("dir", nargs="?", default=".", metavar="DIR", help=DIR_HELP)
    report.add_argument(
        "--html",
        metavar="FILE",
        help="write one self-contained HTML file; an older report is replaced (-: standard output)",
    )
    report.add_argument("--md", metavar="FILE", help="write Markdown, likewise")
    report.add_argument(
        "--force", action="store_true", help="files that are not reports may be overwritten"
    )
    report.add_argument("--json", action="store_true", help="print its tables as one JSON object")
    report.add_argument("--title", metavar="TEXT", help="of the report (default: the directory)")
    _window(report)
    _moment(report)
    report.add_argument("--ascii", action="store_true", help="plain characters only")


def _export(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    export = commands.add_parser(
        "export",
        help="runs, epochs, jobs, executions, transfers, events as tables",
        description="Write the frames runs, epochs, jobs, executions, transfers and events, one "
        "file each. Columns, units and types: metlmon export --columns",
    )
    export.add_argument("dir", nargs="?", default=".", metavar="DIR", help=DIR_HELP)
    export.add_argument(
        "--to", choices=["csv", "parquet", "json"], default="csv", help="the format (default: csv)"
    )
    export.add_argument(
        "--out", metavar="DIRECTORY", help="where the files go (default: ./NAME-export)"
    )
    export.add_argument("--only", dest="frames", metavar="FRAMES", help="these, comma-separated")
    export.add_argument("--force", action="store_true", help="files that exist may be overwritten")
    export.add_argument("--columns", action="store_true", help="print what the columns mean")
    _moment(export)


def _config(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    config = commands.add_parser(
        "config",
        help="metlmon.toml: what is set, where it is read from, what is wrong with it",
    )
    config.add_argument(
        "what",
        nargs="?",
        default="show",
        choices=["show", "path", "validate"],
        help="show: every setting and where it comes from; path: the files that are read; "
        "validate: every error (default: show)",
    )
    config.add_argument("dir", nargs="?", default=".", metavar="DIR", help=DIR_HELP)
    config.add_argument("--json", action="store_true", help="print one JSON object (schema 1)")


def _check(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    check = commands.add_parser(
        "check",
        help="what is wrong with DAG and submit files, and what to do about it",
        description="Look for what people get wrong in DAG and submit files. Nothing is run, "
        "written, or asked of the pool. Exit status 1: there are errors.",
    )
    check.add_argument("dir", nargs="?", default=".", metavar="DIR", help=DIR_HELP)
    check.add_argument("--json", action="store_true", help="print one JSON object (schema 1)")
    check.add_argument("--strict", action="store_true", help="warnings count as errors do")
    check.add_argument("--ascii", action="store_true", help="plain characters only")


def _figures(command: argparse.ArgumentParser) -> None:
    command.add_argument("dir", nargs="?", default=".", metavar="DIR", help=DIR_HELP)
    command.add_argument("--json", action="store_true", help="print one JSON object (schema 1)")
    _moment(command)
    command.add_argument("--ascii", action="store_true", help="plain characters only")


def _window(command: argparse.ArgumentParser) -> None:
    command.add_argument("--since", metavar="TIME", help="from then on (2025-11-01, local time)")
    command.add_argument("--until", metavar="TIME", help="up to then, which is not in it")
    command.add_argument("--month", metavar="YYYY-MM", help="that month")


def _queue(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--queue",
        action="store_true",
        help="ask the schedd, once: priorities, places in the queue, what differs from the logs",
    )


ACTIONS: Final = (
    *("hold", "release", "remove", "vacate", "priority", "retarget"),
    *("halt", "resume", "release-dag", "remove-dag", "resubmit"),
    *("stop", "stop-now", "pause", "resume-run", "send"),
)


def _act(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    act = commands.add_parser(
        "act",
        help="stop, pause, send runs elsewhere; hold, release, remove jobs; halt a DAG, …",
        description="Do something to jobs, to runs or to a DAG. It says first what exactly it will "
        "touch, and asks. Then comes one line for each job or run, with what came of it.",
        epilog="stop: no epoch after the one under way; stop-now: cuts that one off, too; pause, "
        "resume-run: wait before the next epoch, and go on (also takes a stop back that no epoch "
        "has met); send: the next epochs elsewhere. These need a gate before the run's nodes, as "
        "metlmon new writes it. retarget: an idle job to another site.",
    )
    act.add_argument("action", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    act.add_argument("dir", metavar="DIR", help="the directory of a DAG, or the DAG file")
    act.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="a job (12.0), a run (its name, its uuid or how that begins), or: all. For halt, "
        "resume, release-dag, remove-dag and resubmit a DAG file (default: the only one)",
    )
    act.add_argument("--value", type=int, metavar="N", help="priority: the new one")
    act.add_argument(
        "--to", metavar="SITE", help="send, retarget: where to (send: or dag, as the DAG file says)"
    )
    act.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="NAME",
        help="resubmit: keep this of the earlier submission, too: -import_env, -outfile_dir, "
        "another DAG file, or the directory that it was submitted from (--keep=-import_env)",
    )
    act.add_argument(
        "--dry-run",
        action="store_true",
        help="say what it would touch, and what would be refused, and exit without asking",
    )
    act.add_argument("--yes", action="store_true", help="do not ask")
    act.add_argument("--json", action="store_true", help="print the answers as one JSON object")
    act.set_defaults(as_of=None, live=None, tz=None)


def _continue(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    go_on = commands.add_parser(
        "continue",
        help="write a DAG that goes on with stopped or unfinished runs",
        description="Write a DAG beside the old one (NAME-2.dag) that goes on with runs from their "
        "checkpoints: the same uuids, epochs counting on, everything else as the old DAG has it. "
        "It says first which runs, and from where. Nothing is submitted.",
    )
    go_on.add_argument(
        "dir", metavar="DIR", help="the directory of a DAG, or a DAG file: only its runs go on"
    )
    go_on.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="a run's name, its uuid or how that begins (default: all that are not complete)",
    )
    go_on.add_argument(
        "--epochs", type=int, metavar="N", help="of each run in the end (default: as before)"
    )
    go_on.add_argument("--dry-run", action="store_true", help="say what it would be, and exit")
    go_on.add_argument("--json", action="store_true", help="print one JSON object (schema 1)")
    go_on.add_argument("--ascii", action="store_true", help="plain characters only")
    go_on.set_defaults(as_of=None, live=None, tz=None)


def _submit(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    submit = commands.add_parser(
        "submit",
        help="write an ensemble, submit it, and watch it",
        description="Write an ensemble as a DAG, submit it, and watch it. On a terminal a pane "
        "shows everything before it is written; the options are what it begins with.",
    )
    submit.add_argument(
        "dir",
        nargs="?",
        metavar="DIR",
        help="where the DAG goes: a new directory, best (default: ./NAME)",
    )
    _ensemble(submit)
    submit.add_argument(
        "--dry-run", action="store_true", help="print all that would be written, and exit"
    )
    submit.add_argument(
        "--yes", action="store_true", help="write and submit without asking (no screen is opened)"
    )
    submit.add_argument("--no-submit", action="store_true", help="write the files only")
    submit.add_argument(
        "--force", action="store_true", help="files of these names that exist may be overwritten"
    )
    submit.add_argument("--json", action="store_true", help="print one JSON object (schema 1)")
    submit.add_argument(
        "--list-templates", action="store_true", help="print the templates that come along"
    )
    _screen(submit)


def _new(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    new = commands.add_parser(
        "new",
        help="write the DAG of an ensemble, a sweep, stages, or a bag of shards",
        description="Write a DAG with its submit files, scripts and gate, from a description "
        "(FILE.toml; --example prints one), a sweep file (GEN SUBDAG) or the options, which go "
        "before what FILE says. Where the DAG is there already: what differs; nodes that have run "
        "stay as they are. Nothing is submitted unless that is said.",
    )
    new.add_argument("file", nargs="?", metavar="FILE", help="a description, or a sweep file")
    new.add_argument(
        "dir",
        nargs="?",
        metavar="DIR",
        help="where the DAG goes (default: ./NAME, or where FILE was written beside a DAG)",
    )
    _ensemble(new)
    # What is not said is what the description says.
    new.set_defaults(name=None, epochs=None, policy=None, gpus=None, memory=None, retries=None)
    _shapes(new)
    new.add_argument("--dry-run", action="store_true", help="print what it would be, and exit")
    new.add_argument(
        "--force", action="store_true", help="files that were changed by hand may be overwritten"
    )
    new.add_argument("--submit", action="store_true", help="hand the DAG to the pool, unasked")
    new.add_argument("--picture", action="store_true", help="print the picture only, and exit")
    new.add_argument(
        "--explain",
        nargs="?",
        const="",
        metavar="NODE",
        help="print where each variable of a node (or of all of 'run0-*') comes from, and exit",
    )
    new.add_argument(
        "--example",
        choices=[*SHAPES, "sweep-file"],
        metavar="SHAPE",
        help="print a description to begin with; sweep-file: what a sweep file may say",
    )
    new.add_argument(
        "--past", metavar="DIR", help="say what it would cost, by what the epochs of DIR took"
    )
    new.add_argument("--json", action="store_true", help="print one JSON object (schema 1)")
    new.add_argument("--ascii", action="store_true", help="plain characters only")


SHAPES: Final = ("chain", "sweep", "stages", "bag", "multi-node")


def _shapes(new: argparse.ArgumentParser) -> None:
    """What makes a shape, and what hangs off a run."""
    new.add_argument("--shape", choices=SHAPES, metavar="SHAPE", help=", ".join(SHAPES))
    new.add_argument(
        "--sweep",
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help="a run for each value: 'a=0.01 to 0.1 by 0.01' or a=1,2,3; may be given again",
    )
    new.add_argument(
        "--how", choices=["zip", "product"], help="several: first with first, or each with each"
    )
    new.add_argument("--shards", type=int, metavar="N", help="of a bag")
    new.add_argument("--machines", type=int, metavar="N", help="that train an epoch together")
    new.add_argument(
        "--evaluate",
        nargs="?",
        const="",
        metavar="T",
        help="evaluate what epochs leave, by this template (default: evaluate)",
    )
    new.add_argument("--every", type=int, metavar="N", help="evaluate after each N epochs")
    new.add_argument(
        "--stop-patience", type=int, metavar="N", help="stop after N epochs without improvement"
    )
    new.add_argument(
        "--diverge", type=float, metavar="X", help="stop at NaN, or at X times the best loss"
    )
    new.add_argument(
        "--median-after",
        type=int,
        metavar="N",
        help="from N epochs on stop what is worse than most",
    )
    new.add_argument(
        "--var",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable (VARS) of every node; may be given again",
    )
    new.add_argument(
        "--subdags", action="store_const", const=True, help="each run in a sub-DAG of its own"
    )


def _ensemble(submit: argparse.ArgumentParser) -> None:
    """What an ensemble is made of; the same as the fields of the pane."""
    submit.add_argument(
        "--template", metavar="T", help="one of submit --list-templates, or a submit description"
    )
    submit.add_argument(
        "--name", default="ensemble", help="of the DAG file, without .dag (default: ensemble)"
    )
    submit.add_argument(
        "--runs", type=int, metavar="N", help="models to train (default: one per seed, or 4)"
    )
    submit.add_argument(
        "--epochs", type=int, default=3, metavar="N", help="of each run, one job each (default: 3)"
    )
    submit.add_argument("--seeds", metavar="LIST", help="1,2,3 or 1-3 (default: 1, 2, 3, …)")
    submit.add_argument(
        "--sites", metavar="A,B", help="values of GLIDEIN_ResourceName (default: anywhere)"
    )
    submit.add_argument(
        "--policy",
        choices=["any", "permute", "pin", "gpu-pin"],
        default="any",
        help="every epoch at any of the sites; each site once before one repeats; a run stays "
        "at one site; a run stays on one GPU model (default: any)",
    )
    submit.add_argument("--gpus", type=int, default=1, metavar="N", help="of each job (default: 1)")
    submit.add_argument("--gpu-memory", metavar="MB", help="the least memory of a GPU, e.g. 40GB")
    submit.add_argument(
        "--gpu-models",
        metavar="A,B",
        help="DeviceNames such as 'NVIDIA A40': runs take them in turn (with --policy gpu-pin)",
    )
    submit.add_argument(
        "--memory", default="1024", metavar="MB", help="of each job, e.g. 4GB (default: 1024)"
    )
    submit.add_argument(
        "--retries", type=int, default=3, metavar="N", help="of each epoch (default: 3)"
    )
    submit.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the template; may be given again",
    )
    submit.add_argument(
        "--gate",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="can a run be stopped, paused, sent elsewhere? (default: chain, sweep, stages)",
    )


def _demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    demo = commands.add_parser("demo", help="a recorded ensemble, replayed as if live")
    demo.add_argument(
        "--speed",
        type=float,
        default=None,
        metavar="N",
        help="how many times faster than it happened (default: whole story in a minute)",
    )
    demo.add_argument(
        "--status",
        action="store_true",
        help="print the recording's end as `status` does, and exit",
    )
    _screen(demo)


def _completion(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    completion = commands.add_parser("completion", help="print a shell completion script")
    completion.add_argument("shell", choices=["bash", "zsh", "fish"])


COMMANDS: Final = {
    "watch": _watch,
    "run": _run,
    "status": _status,
    "jobs": _jobs,
    "nodes": _nodes,
    "sites": _sites,
    "timeline": _timeline,
    "curves": _curves,
    "grid": _grid,
    "shards": _shards,
    "estimate": _estimate,
    "report": _report,
    "export": _export,
    "config": _config,
    "check": _check,
    "new": _new,
    "submit": _submit,
    "continue": _continue,
    "act": _act,
    "demo": _demo,
    "completion": _completion,
}
"""In the order of ``--help``."""


def _moment(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--as-of",
        metavar="TIME",
        help="show the ensemble as it was then (2025-11-14T08:14:00, the logs' local time)",
    )
    command.add_argument(
        "--live",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="durations run up to now, or end with the newest event (default: by the files)",
    )
    command.add_argument(
        "--tz", metavar="ZONE", help="the access point's time zone, e.g. America/Chicago"
    )


def _only(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--only",
        metavar="RUNS",
        help="list these runs only: names, uuids or beginnings of uuids, comma-separated "
        "(totals stay those of the whole ensemble)",
    )


def _screen(command: argparse.ArgumentParser) -> None:
    command.add_argument("--ascii", action="store_true", help="plain characters only")
    command.add_argument("--mouse", action="store_true", help="turn the mouse on")


def _read_only(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--read-only",
        action="store_true",
        help="only look: nothing can be held, released, removed or submitted from here",
    )


def _exit_on(command: argparse.ArgumentParser) -> None:
    said = "; ".join(f"{name}: {text}" for name, text in CONDITIONS.items())
    command.add_argument(
        "--exit-on",
        metavar="WHAT",
        help=f"wait until one of these (comma-separated) is so, then exit: {said}",
    )
    command.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="with --exit-on: give up after this"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_what_is_closed()
    try:
        return _answer(arguments)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has seen enough; what Python still holds must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except Exception as error:
        return _failed(error)


def _open_what_is_closed() -> None:
    """Standard descriptors that whoever started this had closed (``>&-``) lead nowhere, instead
    of into the first file that is opened."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, mode, closefd=False))  # noqa: SIM115


def _failed(error: Exception) -> int:
    """An error that nobody foresaw: Python would write its text as it is, and it may quote what
    a job wrote."""
    from metlmon.error_text import TRACEBACK, describe_error, format_traceback

    told = [f"metlmon: {describe_error('ended by an error', error)}"]
    if isinstance(error, OSError) and error.filename is None and error.strerror:
        told = [f"metlmon: the output could not be written: {error.strerror}"]
    if os.environ.get(TRACEBACK):
        told += format_traceback(error)
    with suppress(OSError, ValueError):
        print(*told, sep="\n", file=sys.stderr)
    if sys.stdout is not None:
        # What Python still holds must not complain.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return Exit.BROKEN


def _answer(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        return _version()
    gc.set_threshold(*COLLECT)
    top = parser(arguments[0] if arguments else None)
    options, rest = top.parse_known_args(arguments)
    if rest and options.command == "act" and not any(word.startswith("-") for word in rest):
        # Targets behind an option: argparse takes those before it alone.
        options.targets += rest
    elif len(rest) == 1 and options.command == "new" and not options.dir and rest[0][:1] != "-":
        # DIR behind an option.
        options.dir = rest[0]
    elif rest:
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    if options.version:
        return _version()
    return _dispatch(options)


def _version() -> int:
    from metlmon import __version__

    print(f"metlmon {__version__}")
    return Exit.OK


def _dispatch(options: argparse.Namespace) -> int:
    from metlmon.live.errors import InputError, unusable_path

    if options.command is None:
        parser().print_help()
        return Exit.OK
    if options.command == "completion":
        from metlmon.cli.commands.completion import script

        print(script(options.shell, parser()), end="")
        return Exit.OK
    from metlmon.cli.output import standard_output

    try:
        # One module each, with a function of its name; "continue" is a word of Python's.
        name = "continue_" if options.command == "continue" else options.command
        module = import_module(f"metlmon.cli.commands.{name}")
        with standard_output(ascii=getattr(options, "ascii", False)):
            return int(getattr(module, name)(options))
    except (InputError, OSError) as error:
        refused = unusable_path(error) if isinstance(error, OSError) else error
        if refused is None:
            raise
        from metlmon.redact import redact_secrets
        from metlmon.text.formatting import plain

        print(f"metlmon: {plain(redact_secrets(str(refused)), 2000)}", file=sys.stderr)
        return Exit.USAGE


if __name__ == "__main__":
    sys.exit(main())
