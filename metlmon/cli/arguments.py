"""Commands and their options, as data; :mod:`metlmon.cli.main` makes the parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Final, NamedTuple

from metlmon.cli import CONDITIONS


class Argument(NamedTuple):
    """The name of an argument or option, and the settings of ``add_argument``.

    ``targets``: the targets of ``export --to`` that an option goes with, under which ``--help``
    lists it. ``is_remote``: directories may be on other machines; ``takes_logs``: several event
    logs may replace one.
    """

    name: str
    settings: Mapping[str, Any]
    targets: tuple[str, ...] = ()
    is_remote: bool = False
    takes_logs: bool = False


class Command(NamedTuple):
    """A command: its line in ``--help``, its arguments in their order there, and texts.

    - ``module``: that of ``cli/commands/``, if it is not named after the command.
    - ``prints_warnings``: also in the output for readers.
    - ``makes_request``: whether it also has the options of a request for an ensemble.
    - ``own_outputs``: options with which its JSON has a separate type.
    """

    help: str
    arguments: tuple[Argument, ...]
    description: str | None = None
    epilog: str | None = None
    module: str = ""
    prints_warnings: bool = False
    makes_request: bool = False
    own_outputs: tuple[str, ...] = ()

    def all_arguments(self) -> Iterator[Argument]:
        """Its arguments, and the options of the fields of a request."""
        yield from self.arguments
        if self.makes_request:
            from metlmon.authoring.request import (
                options,  # Imported late: other commands need none.
            )

            yield from (Argument(name, settings) for name, settings in options())


def option(
    usage: str, help: str | None, targets: tuple[str, ...] = (), **settings: Any
) -> Argument:
    """An option, or a positional argument, with a value; ``usage``: ``--month YYYY-MM``."""
    name, _, value = usage.partition(" ")
    if value:
        settings["metavar"] = value
    return Argument(name, {"help": help, **settings}, targets)


def flag(name: str, help: str, targets: tuple[str, ...] = ()) -> Argument:
    """An option without a value."""
    return option(name, help, targets, action="store_true")


def repeated(usage: str, help: str) -> Argument:
    """An option that may be given several times."""
    return option(usage, help, action="append", default=[])


def directory(help: str) -> Argument:
    """The argument DIR, by default the current directory."""
    return option("dir DIR", f"{help} (default: here)", nargs="?", default=".")


SOURCES: Final = "a directory with DAGs or event logs, a DAG file, event logs"
DIR: Final = directory(f"{SOURCES}, a cluster, or HOST:DIR over ssh")._replace(is_remote=True)
LOGS: Final = DIR._replace(takes_logs=True)
DIRS: Final = option(
    "dirs DIR",
    f"{SOURCES}, a cluster, or HOST:DIR over ssh; of several directories, or of all below one, "
    "one line each (default: here)",
    nargs="*",
)._replace(is_remote=True)
JSON: Final = flag("--json", "print one JSON object (schema 1)")
ASCII: Final = flag("--ascii", "plain characters only")
FRAME_FILES: Final = ("csv", "parquet", "json")
EXPORT_TARGETS: Final = (*FRAME_FILES, "mlflow", "openmetrics", "optuna")
"""Targets of ``export --to``: files of frames; others use ``commands/export_<target>.py``."""
FILE_TARGETS: Final = (*FRAME_FILES, "openmetrics", "optuna")
SHAPES: Final = ("chain", "sweep", "stages", "bag", "multi-node")
ACTIONS: Final = tuple(
    """
    hold release remove vacate priority retarget raise-memory raise-disk halt resume release-dag
    remove-dag resubmit stop stop-now pause resume-run send exclude-site include-site exclude-host
    include-host
    """.split()
)
_CONDITIONS: Final = "; ".join(f"{name}: {text}" for name, text in CONDITIONS.items())

MOMENT: Final = (
    option(
        "--as-of TIME",
        "show the ensemble as of this time (2025-11-14T08:14:00, '14 Nov 08:14', yesterday, 7d)",
    ),
    option(
        "--live",
        "durations run up to now, or end with the newest event (default: decided by the files)",
        action=argparse.BooleanOptionalAction,
    ),
    option("--tz ZONE", "the access point's time zone, e.g. America/Chicago"),
)
ONLY: Final = option(
    "--only RUNS",
    "list only these runs: names, uuids or prefixes of uuids, comma-separated "
    "(totals remain those of the whole ensemble)",
)
SCREEN: Final = (ASCII, flag("--mouse", "enable the mouse"))
READ_ONLY: Final = flag(
    "--read-only", "only look: nothing can be held, released, removed or submitted from here"
)
EXIT_ON: Final = (
    option(
        "--exit-on WHAT",
        f"wait until one of these (comma-separated) holds, then exit: {_CONDITIONS}",
    ),
    option("--timeout SECONDS", "with --exit-on: give up after this", type=float),
)
NOTIFY: Final = option(
    "--notify",
    "send notifications, as [notify] of your metlmon.toml says (without that: the bell); "
    "watch and run send them by default if [notify] says how",
    action=argparse.BooleanOptionalAction,
)
COMMON: Final = (JSON, *MOMENT, ASCII)
METRIC: Final = option("--metric NAME", "this metric (default: val_loss)")
WINDOW: Final = (
    option("--since TIME", "from this time on (2025-11-01, '1 Nov 08:14', today, 7d: 7 days ago)"),
    option("--until TIME", "up to this time, exclusive"),
    option("--month YYYY-MM", "only this month"),
)
QUEUE: Final = flag(
    "--queue", "ask the schedd, once: priorities, positions in the queue, differences from the logs"
)
REQUEST: Final = (
    repeated("--set NAME=VALUE", "a parameter of the template; may be given again"),
    repeated("--var NAME=VALUE", "a variable (VARS) of every node; may be given again"),
    repeated(
        "--sweep NAME=VALUES",
        "a run for each value: 'a=0.01 to 0.1 by 0.01' or a=1,2,3; may be given again",
    ),
    option("--how", "of several: first with first, or each with each", choices=["zip", "product"]),
    option(
        "--gate",
        "let runs be stopped, paused, sent elsewhere (default: chain, sweep, stages)",
        action=argparse.BooleanOptionalAction,
    ),
)
"""The options of a request that do not correspond to a single field."""


# --- the commands ---------------------------------------------------------------------------

_WATCH: Final = {
    "watch": Command(
        "the live dashboard",
        (
            DIRS,
            flag("--queue", "the ensembles of your DAGMan jobs in the queue, one line each"),
            *MOMENT,
            ONLY,
            *SCREEN,
            READ_ONLY,
            *EXIT_ON,
            NOTIFY,
        ),
        description="The live dashboard of one ensemble. For several, for a directory with some "
        "below it, and with --queue: Home, every ensemble in one line. The word watch may be "
        "omitted. metlmon alone opens Home with what is in your list and below the current "
        "directory, or the dashboard if that is a dagdir and the list is empty.",
        module="status",
        prints_warnings=True,
    ),
    "serve": Command(
        "the dashboard in a browser of this machine",
        (
            DIRS,
            option("--port N", "the port on 127.0.0.1 (default: any)", type=int, default=0),
            flag(
                "--allow-actions", "hold, release, submit, … from the browser (default: only look)"
            ),
            *MOMENT,
            ONLY,
            *SCREEN,
        ),
        description="The dashboard in a browser, through textual-serve (pip install "
        "'metlmon[serve]'). Only this machine can connect, and only with the token in the URL "
        "that is printed. ^C ends it.",
    ),
    "demo": Command(
        "an ensemble of METL's size: seven weeks, replayed in two minutes, in a loop",
        (
            option(
                "--speed N",
                "how many times faster than real time (default: everything in two minutes)",
                type=float,
            ),
            flag("--still", "stay at the end"),
            flag("--no-captions", "do not say what happens"),
            flag("--status", "print its end as `status` does, and exit"),
            *SCREEN,
        ),
    ),
    "notify": Command(
        "try the notifications: send a test, or what holds in DIR, through every channel",
        (
            option(
                "dir DIR",
                "send what holds there now, even if it was sent before (default: a test)",
                nargs="?",
            ),
        ),
        description="Send one notification through each channel of [notify] in your "
        "metlmon.toml (without that: the bell), and print the results. Exit status 6: not all were "
        "sent.",
    ),
}

_LOOK: Final = {
    "status": Command(
        "where every run stands, once",
        (DIRS, JSON, *MOMENT, ONLY, *EXIT_ON, QUEUE, ASCII, NOTIFY),
        description="Where every run stands. For several ensembles, one line each; with --json, "
        "one such object per line.",
        prints_warnings=True,
    ),
    "run": Command(
        "one run, epoch by epoch",
        (
            option("run UUID", "a run's uuid, a prefix of it, or its name"),
            DIR,
            flag("--json", "print it as JSON and exit"),
            *MOMENT,
            *SCREEN,
            READ_ONLY,
            NOTIFY,
        ),
        description="The dashboard of one run. Without a terminal, its epochs as a table, once; "
        "with --json, the same as JSON.",
        module="status",
    ),
    "jobs": Command(
        "every job with its executions and transfers", (LOGS, JSON, *MOMENT, ONLY, QUEUE, ASCII)
    ),
    "nodes": Command(
        "every node of any DAG as a tree, those that need attention first",
        (LOGS, *COMMON, option("--state STATES", "only these states: held,failed,waiting, …")),
        description="Every node, also of a DAG that trains nothing: its state, its latest job, the "
        "reason, and what it waits for. Equal nodes are grouped; --json has every node.",
        module="jobs",
    ),
    "shards": Command(
        "bags of equal nodes: done, rate, stragglers, their end",
        (DIR, *COMMON),
        module="statistics",
    ),
    "annexes": Command(
        "nodes borrowed for some hours: until when, and which epochs fit",
        (LOGS, *COMMON),
        description="HPC annexes: state, GPUs, until when each is alive, whether its running "
        "epochs and the next one end before that, and the jobs that wait for it. Asks the schedd "
        "and the annexes' collectors; with --as-of, or without a schedd, it shows what is known "
        "from the logs alone, marked as inferred.",
        module="advise",
    ),
    "timeline": Command(
        "what ran when and where, how many at a time", (LOGS, *COMMON, *WINDOW), module="statistics"
    ),
    "changes": Command(
        "what has happened since yesterday, and the estimate then and now",
        (
            LOGS,
            *COMMON,
            option(
                "--since TIME",
                "since then ('14 Nov', 7d; default: yesterday, a day before the newest event)",
                default="yesterday",
            ),
        ),
        description="What has changed since then: holds and releases, removals, failures, "
        "submissions, starts and ends of DAGMan, epochs done, a new best value, sites that went "
        "bad, and the estimated end then and now.",
        module="statistics",
    ),
}

_EXPLAIN: Final = {
    "health": Command(
        "what is wrong, the worst first, and what to do about it",
        (DIRS, JSON, *MOMENT, ASCII),
        description="Everything that is held, failed, removed, futile or stalled, once: the cause "
        "with HTCondor's code, the runs, the full reason, the next step and the action of "
        "metlmon act that is offered. What is over or was retried follows in one line each. For "
        "several ensembles, --json prints one object per line.",
        module="status",
    ),
    "sites": Command(
        "where the hours went: sites, GPU models, hosts, causes",
        (
            LOGS,
            *COMMON,
            *WINDOW,
            option("--by", "only the table by host: slow ones first", choices=["host"]),
        ),
        module="statistics",
    ),
    "usage": Command(
        "what the jobs used of what they requested: GPUs, CPUs, memory, disk",
        (
            LOGS,
            *COMMON,
            option(
                "--by",
                "a row for each of these (default: site)",
                choices=("run", "site", "gpu", "host", "request"),
                default="site",
            ),
            flag("--requests", "which requests would fit, according to what completed jobs used"),
            *WINDOW,
        ),
        description="What the executions used of GPUs, their memory, CPUs, memory and disk, "
        "according to the tables in the event logs, beside what was requested and allocated. Only "
        "epochs of usual length show what an epoch needs; failed executions, and all others, have "
        "separate rows.",
        module="statistics",
        own_outputs=("--requests",),
    ),
    "curves": Command(
        "metrics by epoch: whether it is learning", (LOGS, *COMMON, METRIC), module="learning"
    ),
    "compare": Command(
        "runs side by side: what differs, results, cost",
        (
            option(
                "runs RUN", "two or more: names, uuids or prefixes of uuids", nargs="+"
            )._replace(is_remote=True),
            JSON,
            *MOMENT,
            ASCII,
            METRIC,
        ),
        description="Compare runs of one ensemble. Its directory, if not the current one, is the "
        "first or the last argument.",
        module="learning",
    ),
    "grid": Command(
        "a sweep as rows and columns: which point is best",
        (
            DIR,
            *COMMON,
            METRIC,
            option("--rows NAME", "a swept variable (several that vary together: a,b)"),
            option("--columns NAME", "another one, likewise"),
            repeated(
                "--where NAME=VALUE",
                "only runs with this value of a third one (default: the best over all its values)",
            ),
        ),
        module="learning",
    ),
    "estimate": Command(
        "when each run and the ensemble will be done, and how certain that is",
        (
            LOGS,
            *COMMON,
            flag("--backtest", "how far off it would have been at 25, 50 and 75 %% of the way"),
        ),
        module="statistics",
    ),
    "advise": Command(
        "where the next epochs should go, and send them there",
        (
            directory(f"{SOURCES}, or a cluster"),
            *COMMON,
            option(
                "--what-if POOL",
                "only what would change the end, for just this pool, site or annex",
                nargs="?",
                const="",
            ),
            option(
                "--apply HOW",
                "print; send: the next epochs, by the gate; retarget: idle jobs, by the schedd",
                choices=("print", "send", "retarget"),
            ),
            option("--every 12h", "plan again when something happens, and after 12h"),
            flag("--yes", "with --every or --undo: do not ask"),
            flag("--undo", "restore the state before plans were last applied"),
        ),
        description="Where the next epochs of each run should go, from the profiles of the sites. "
        "--apply first says what it will change, and asks. Running jobs are never touched. What "
        "was applied is in gate/DAG/advice.log.",
        own_outputs=("--undo",),
    ),
}

_ACT: Final = {
    "act": Command(
        "stop, pause, send runs elsewhere; hold, release jobs; exclude a site, a host; halt a DAG",
        (
            option("action ACTION", ", ".join(ACTIONS), choices=ACTIONS),
            option("dir DIR", "the directory of a DAG, or the DAG file"),
            option(
                "targets TARGET",
                "a job (12.0), a run (its name, its uuid or a prefix of that), or: all. For "
                "halt, resume, release-dag, remove-dag and resubmit a DAG file (default: the "
                "only one); for exclude-site and include-site a site, "
                "for exclude-host and include-host a host",
                nargs="*",
            ),
            option(
                "--value N",
                "priority: the new one; raise-memory, raise-disk: a factor on the request, or an "
                "amount (12GB); default 1.5x",
            ),
            option(
                "--to SITE",
                "send, retarget: a site, or any of A|B (send: or dag, as the DAG file says)",
            ),
            repeated(
                "--keep NAME",
                "resubmit: keep this of the earlier submission, too: -import_env, "
                "-outfile_dir, another DAG file, or the directory that it was submitted from "
                "(--keep=-import_env)",
            ),
            flag(
                "--dry-run",
                "print what it would touch and what would be refused, and exit without asking",
            ),
            flag("--yes", "do not ask"),
            flag("--json", "print the answers as one JSON object"),
        ),
        description="Act on jobs, runs or a DAG. It first says exactly what it will touch, and "
        "asks. Then it prints one line for each job or run, with the result.",
        epilog="stop: no epoch after the one in progress; stop-now: ends that one, too; pause, "
        "resume-run: wait before the next epoch, and continue (resume-run also takes back a stop "
        "that no epoch has met); send: the next epochs elsewhere. These need a gate before the "
        "run's nodes, as metlmon new writes it. retarget: an idle job to another site. "
        "raise-memory, raise-disk: a larger request for jobs that were held because they exceeded "
        "it, and their release.",
    )
}

_WRITE: Final = {
    "new": Command(
        "write the DAG of an ensemble, a sweep, stages, or a bag of shards",
        (
            option("file FILE", "a description, or a sweep file", nargs="?"),
            option(
                "dir DIR",
                "where the DAG goes (default: ./NAME, or that of FILE if it is beside its DAG)",
                nargs="?",
            ),
            *REQUEST,
            flag("--dry-run", "print what would be written, and exit"),
            flag("--force", "overwrite files that were changed by hand, too"),
            flag("--submit", "submit the DAG to the pool, without asking"),
            flag("--picture", "print only the picture, and exit"),
            option(
                "--explain NODE",
                "print where each variable of a node (or of all of 'run0-*') comes from, and exit",
                nargs="?",
                const="",
            ),
            option(
                "--example SHAPE",
                "print a description to start from; sweep-file: the syntax of sweep files",
                choices=[*SHAPES, "sweep-file"],
            ),
            option("--past DIR", "what it would cost, according to what the epochs of DIR took"),
            JSON,
            ASCII,
        ),
        description="Write a DAG with its submit files, scripts and gate, from a description "
        "(FILE.toml; --example prints one), a sweep file (GEN SUBDAG) or the options, which "
        "override FILE. If the DAG exists already, only differences are written; nodes that have "
        "run stay as they are. Nothing is submitted without --submit.",
        makes_request=True,
        own_outputs=("--explain",),
    ),
    "check": Command(
        "what is wrong with DAG and submit files, and what to do about it",
        (
            directory("a directory with DAGs, or a DAG file"),
            JSON,
            flag("--strict", "warnings count as errors"),
            ASCII,
        ),
        description="Look for common mistakes in DAG and submit files. Nothing is run, written, or "
        "asked of the pool. Exit status 1: errors were found.",
    ),
    "submit": Command(
        "write an ensemble, submit it, and watch it",
        (
            option("dir DIR", "where the DAG goes, ideally a new one (default: ./NAME)", nargs="?"),
            *REQUEST,
            flag("--dry-run", "print everything that would be written, and exit"),
            flag("--yes", "write and submit without asking (no screen is opened)"),
            flag("--no-submit", "only write the files"),
            flag("--force", "overwrite existing files of these names"),
            JSON,
            flag("--list-templates", "print the bundled templates"),
            *SCREEN,
        ),
        description="Write an ensemble as a DAG, submit it, and watch it. On a terminal, a form "
        "shows everything before it is written; the options set its initial values.",
        makes_request=True,
        module="new",
        own_outputs=("--list-templates",),
    ),
    "continue": Command(
        "write a DAG that continues stopped or unfinished runs",
        (
            option("dir DIR", "the directory of a DAG, or a DAG file: only its runs"),
            option(
                "runs RUN",
                "a run's name, its uuid or a prefix of that (default: all incomplete runs)",
                nargs="*",
            ),
            option("--epochs N", "total epochs of each run (default: as before)", type=int),
            flag("--dry-run", "print the plan, and exit"),
            JSON,
            ASCII,
        ),
        description="Write a DAG beside the old one (NAME-2.dag) that continues runs from their "
        "checkpoints: with the same uuids and consecutive epochs, everything else as in the old "
        "DAG. It first says which runs, and from where. Nothing is submitted.",
        module="new",
    ),
}

_EXPORT: Final = {
    "report": Command(
        "tables and figures of the experiment, as HTML or Markdown",
        (
            LOGS,
            option(
                "--html FILE",
                "write one self-contained HTML file; an older report is replaced "
                "(-: standard output)",
            ),
            option("--md FILE", "write Markdown, likewise"),
            flag("--force", "overwrite files that are not reports, too"),
            flag("--json", "print its tables as one JSON object"),
            option("--title TEXT", "the title of the report (default: the directory)"),
            *WINDOW,
            *MOMENT,
            ASCII,
        ),
        description="The report of an ensemble: GPU models, sites, totals, transfers, causes, and "
        "figures over time. Without --html or --md the tables are printed.",
    ),
    "export": Command(
        "tables as files; or the ensemble to MLflow, Prometheus, Optuna",
        (
            LOGS,
            option(
                "--to",
                "files of this format (default: csv); mlflow: a tracking server; openmetrics: "
                "Prometheus; optuna: a study",
                choices=EXPORT_TARGETS,
                default="csv",
            ),
            option(
                "--out PATH",
                "where the files go (default: ./NAME-export); openmetrics: a file, which "
                "replaces an older one (default: -, standard output); optuna: ./NAME.journal",
                FILE_TARGETS,
            ),
            option("--only FRAMES", "only these frames, comma-separated", FRAME_FILES),
            flag("--force", "overwrite existing files", FILE_TARGETS),
            flag("--columns", "print what the columns mean", FRAME_FILES),
            option(
                "--tracking-uri URI",
                "the server (default: MLFLOW_TRACKING_URI, or [tracking] of your metlmon.toml)",
                ("mlflow",),
            ),
            option("--experiment NAME", "the experiment (default: metlmon)", ("mlflow",)),
            flag("--dry-run", "print what would be written, and exit", ("mlflow",)),
            flag("--follow", "keep it up to date until all is over, or until ^C", ("mlflow",)),
            option(
                "--listen PORT",
                "answer GET /metrics on 127.0.0.1 and ::1, until ^C (0: any port)",
                ("openmetrics",),
                type=int,
            ),
            flag("--dashboard", "a Grafana dashboard of these metrics, as JSON", ("openmetrics",)),
            option("--metric NAME", "the value of the trials (default: val_loss)", ("optuna",)),
            *MOMENT,
        ),
        description="Write the frames runs, epochs, jobs, executions, transfers and events, one "
        "file each. Columns, units and types: metlmon export --columns. With --to mlflow: the "
        "ensemble as a run of an MLflow tracking server, its runs as child runs; only what the "
        "server lacks is written. The token is in MLFLOW_TRACKING_TOKEN, or under [tracking] in "
        "your metlmon.toml. Exit status 6: the server refused something, or failed. With "
        "--to openmetrics: metrics for Prometheus. With --to optuna: a sweep as an Optuna study "
        "in a journal file.",
        prints_warnings=True,
    ),
}

_HELP: Final = {
    "help": Command(
        "print a section of the guide, or the list of its sections",
        (option("topic TOPIC", "the name of a section, or a prefix of it", nargs="?"),),
    ),
    "config": Command(
        "the settings in metlmon.toml, their files, and mistakes in them",
        (
            option(
                "what",
                "show: every setting and where it comes from; path: the files that are read; "
                "validate: every error (default: show)",
                nargs="?",
                default="show",
                choices=["show", "path", "validate"],
            ),
            directory("its metlmon.toml is read, too"),
            JSON,
        ),
    ),
}

GROUPS: Final = {
    "watch": _WATCH,
    "look": _LOOK,
    "explain": _EXPLAIN,
    "act": _ACT,
    "write": _WRITE,
    "export": _EXPORT,
    "help and settings": _HELP,
}
"""The commands by purpose, in the order of ``--help``."""

OUTPUTS: Final = tuple(
    output
    for group in GROUPS.values()
    for name, command in group.items()
    if any(argument.name == "--json" for argument in command.arguments)
    for output in (name, *(f"{name}{option[1:]}" for option in command.own_outputs))
)
"""Names of JSON outputs; each has a type, such as ``AdviseUndoOutput`` for ``advise-undo``."""

_HELP["schema"] = Command(
    "print the JSON Schema of what a command prints with --json",
    (option("output COMMAND", ", ".join(OUTPUTS), choices=OUTPUTS),),
    module="help",
)
_HELP["completion"] = Command(
    "print a shell completion script",
    (option("shell SHELL", "bash or zsh", choices=["bash", "zsh"]),),
    module="help",
)

COMMANDS: Final[dict[str, Command]] = {
    name: command for group in GROUPS.values() for name, command in group.items()
}


def load_module(command: str) -> ModuleType:
    """The module of a command, imported."""
    return import_module(f"metlmon.cli.commands.{COMMANDS[command].module or command}")


ABSENT: Final[Mapping[str, Any]] = {
    **{
        argument.name.lstrip("-").replace("-", "_"): None
        for command in COMMANDS.values()
        for argument in command.arguments
    },
    **{"dir": ".", "more": (), "unusable": 0},
}
"""Values of options that a command does not have; ``more``: further logs, ``unusable``: the number
of directories on machines that cannot be reached."""
