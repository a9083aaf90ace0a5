"""What a command is declared with, and the options that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from metlmon.cli.exit_codes import CONDITIONS


class Argument(NamedTuple):
    """The name of an argument or option, and the settings of ``add_argument``."""

    name: str
    settings: Mapping[str, Any]


class Command(NamedTuple):
    """A command: one-line help, arguments in the order of ``--help``, and texts.

    ``defaults``: of options that the command does not have, or has with others.
    """

    help: str
    arguments: tuple[Argument, ...]
    description: str | None = None
    epilog: str | None = None
    defaults: Mapping[str, Any] = MappingProxyType({})


def option(name: str, help: str | None, **settings: Any) -> Argument:
    """An option, or a positional argument, with a value."""
    return Argument(name, {"help": help, **settings})


def flag(name: str, help: str) -> Argument:
    """An option without a value."""
    return option(name, help, action="store_true")


def repeated(name: str, help: str, metavar: str) -> Argument:
    """An option that may be given several times."""
    return option(name, help, action="append", default=[], metavar=metavar)


LOG_COMMANDS: Final = frozenset(
    ("jobs", "nodes", "sites", "annexes", "timeline", "curves", "estimate", "report", "export")
)
"""Commands that take several event logs instead of a directory."""

DIR: Final = option(
    "dir",
    "a directory with DAGs or event logs, a DAG file, event logs, a cluster, or HOST:DIR over ssh "
    "(default: here)",
    nargs="?",
    default=".",
    metavar="DIR",
)
DIRS: Final = option(
    "dirs",
    "a directory with DAGs or event logs, a DAG file, event logs, a cluster, or HOST:DIR over ssh; "
    "of several directories, or of all below one, one line each (default: here)",
    nargs="*",
    metavar="DIR",
)
JSON: Final = flag("--json", "print one JSON object (schema 1)")
ASCII: Final = flag("--ascii", "plain characters only")
FRAME_FILES: Final = ("csv", "parquet", "json")
EXPORT_TARGETS: Final = (*FRAME_FILES, "mlflow", "openmetrics", "optuna")
"""``export --to``: files of frames, else ``commands/export_<target>.py`` exports."""
EXPORT_OPTIONS: Final = {
    "--out": (*FRAME_FILES, "openmetrics", "optuna"),
    "--only": FRAME_FILES,
    "--force": (*FRAME_FILES, "openmetrics", "optuna"),
    "--columns": FRAME_FILES,
    "--tracking-uri": ("mlflow",),
    "--experiment": ("mlflow",),
    "--dry-run": ("mlflow",),
    "--follow": ("mlflow",),
    "--listen": ("openmetrics",),
    "--dashboard": ("openmetrics",),
    "--metric": ("optuna",),
}
"""Options of ``export``, and the targets that they go with."""

SHAPES: Final = ("chain", "sweep", "stages", "bag", "multi-node")
ACTIONS: Final = (
    *("hold", "release", "remove", "vacate", "priority", "retarget"),
    *("halt", "resume", "release-dag", "remove-dag", "resubmit"),
    *("stop", "stop-now", "pause", "resume-run", "send", "exclude-site", "include-site"),
)
_CONDITIONS: Final = "; ".join(f"{name}: {text}" for name, text in CONDITIONS.items())

MOMENT: Final = (
    option(
        "--as-of",
        "show the ensemble as it was then (2025-11-14T08:14:00, '14 Nov 08:14', yesterday, 7d)",
        metavar="TIME",
    ),
    option(
        "--live",
        "durations run up to now, or end with the newest event (default: by the files)",
        action=argparse.BooleanOptionalAction,
        default=None,
    ),
    option("--tz", "the access point's time zone, e.g. America/Chicago", metavar="ZONE"),
)
ONLY: Final = option(
    "--only",
    (
        "list these runs only: names, uuids or beginnings of uuids, comma-separated "
        "(totals stay those of the whole ensemble)"
    ),
    metavar="RUNS",
)
SCREEN: Final = (
    ASCII,
    flag("--mouse", "turn the mouse on"),
)
READ_ONLY: Final = flag(
    "--read-only", "only look: nothing can be held, released, removed or submitted from here"
)
EXIT_ON: Final = (
    option(
        "--exit-on",
        f"wait until one of these (comma-separated) is so, then exit: {_CONDITIONS}",
        metavar="WHAT",
    ),
    option("--timeout", "with --exit-on: give up after this", type=float, metavar="SECONDS"),
)
NOTIFY: Final = option(
    "--notify",
    (
        "send notifications, as [notify] of your metlmon.toml says (without that: the bell); "
        "watch and run send them anyway where [notify] says how"
    ),
    action=argparse.BooleanOptionalAction,
    default=None,
)
COMMON: Final = (DIR, JSON, *MOMENT, ASCII)
WINDOW: Final = (
    option(
        "--since", "from then on (2025-11-01, '1 Nov 08:14', today, 7d: 7 days ago)", metavar="TIME"
    ),
    option("--until", "up to then, which is not in it", metavar="TIME"),
    option("--month", "that month", metavar="YYYY-MM"),
)
QUEUE: Final = flag(
    "--queue", "ask the schedd, once: priorities, places in the queue, what differs from the logs"
)
ENSEMBLE: Final = (
    option("--template", "one of submit --list-templates, or a submit description", metavar="T"),
    option("--name", "of the DAG file, without .dag (default: ensemble)", default="ensemble"),
    option("--runs", "models to train (default: one per seed, or 4)", type=int, metavar="N"),
    option("--epochs", "of each run, one job each (default: 3)", type=int, default=3, metavar="N"),
    option("--seeds", "1,2,3 or 1-3 (default: 1, 2, 3, …)", metavar="LIST"),
    option("--sites", "values of GLIDEIN_ResourceName (default: anywhere)", metavar="A,B"),
    option(
        "--policy",
        (
            "every epoch at any of the sites; each site once before one repeats; a run stays "
            "at one site; a run stays on one GPU model (default: any)"
        ),
        choices=["any", "permute", "pin", "gpu-pin"],
        default="any",
    ),
    option("--gpus", "of each job (default: 1)", type=int, default=1, metavar="N"),
    option("--gpu-memory", "the least memory of a GPU, e.g. 40GB", metavar="MB"),
    option(
        "--gpu-models",
        "DeviceNames such as 'NVIDIA A40': runs take them in turn (with --policy gpu-pin)",
        metavar="A,B",
    ),
    option("--memory", "of each job, e.g. 4GB (default: 1024)", default="1024", metavar="MB"),
    option("--retries", "of each epoch (default: 3)", type=int, default=3, metavar="N"),
    repeated("--set", "a parameter of the template; may be given again", metavar="NAME=VALUE"),
    option(
        "--gate",
        "can a run be stopped, paused, sent elsewhere? (default: chain, sweep, stages)",
        action=argparse.BooleanOptionalAction,
        default=None,
    ),
)
SHAPE: Final = (
    option("--shape", ", ".join(SHAPES), choices=SHAPES, metavar="SHAPE"),
    repeated(
        "--sweep",
        "a run for each value: 'a=0.01 to 0.1 by 0.01' or a=1,2,3; may be given again",
        metavar="NAME=VALUES",
    ),
    option("--how", "several: first with first, or each with each", choices=["zip", "product"]),
    option("--shards", "of a bag", type=int, metavar="N"),
    option("--machines", "that train an epoch together", type=int, metavar="N"),
    option(
        "--evaluate",
        "evaluate what epochs leave, by this template (default: evaluate)",
        nargs="?",
        const="",
        metavar="T",
    ),
    option("--every", "evaluate after each N epochs", type=int, metavar="N"),
    option("--stop-patience", "stop after N epochs without improvement", type=int, metavar="N"),
    option("--diverge", "stop at NaN, or at X times the best loss", type=float, metavar="X"),
    option(
        "--median-after", "from N epochs on stop what is worse than most", type=int, metavar="N"
    ),
    repeated("--var", "a variable (VARS) of every node; may be given again", metavar="NAME=VALUE"),
    option("--subdags", "each run in a sub-DAG of its own", action="store_const", const=True),
)
