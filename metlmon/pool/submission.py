"""A DAG's submission: what an earlier one left, and how it is done (again).

DAGMan's submission deletes the halt file and may write over its own submit file before it
complains; so everything is looked at here first. ``-force`` is never used: it would throw away
rescue files. Manual: "DAGMan Workflows > Running and Managing DAGMan", "Rescue DAG",
*condor_submit_dag*; source: ``DagmanUtils::ensureOutputFilesExist`` in ``dagman_utils.cpp``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Final

from metlmon.dagman import CondorSub, read_condor_sub, rescue_number
from metlmon.frozen import frozen
from metlmon.live.discovery import read_regular
from metlmon.pool.connection import PoolConnection
from metlmon.pool.types import PoolError, SubmitResult
from metlmon.text.formatting import plain

LEFTOVERS: Final = (
    ".condor.sub",
    ".dagman.out",
    ".dagman.log",
    ".lib.out",
    ".lib.err",
    ".nodes.log",
    ".metrics",
    ".lock",
)
"""What a submission or a DAGMan writes beside the DAG file: with one of them there, the DAG
was submitted before."""

SUBMIT_SECONDS: Final = 180.0
"""``condor_submit_dag`` goes through the whole DAG, and through those below it."""

LARGEST_SUB: Final = 1 << 20
"""Bytes of a ``.condor.sub``: a real one has two thousand."""

Option = int | bool | str

NUMBERS: Final = {
    "-maxidle": "MaxIdle",
    "-maxjobs": "MaxJobs",
    "-maxpre": "MaxPre",
    "-maxpost": "MaxPost",
    "-maxhold": "MaxHold",
    "-priority": "Priority",
    "-debug": "DebugLevel",
    "-submitmethod": "SubmitMethod",
}
FLAGS: Final[dict[str, tuple[str, bool]]] = {
    "-usedagdir": ("UseDagDir", True),
    "-alwaysrunpost": ("PostRun", True),
    "-dontalwaysrunpost": ("PostRun", False),
    "-suppress_notification": ("SuppressNotification", True),
    "-dont_suppress_notification": ("SuppressNotification", False),
    "-import_env": ("ImportEnv", True),
}
TEXTS: Final = {"-notification": "Notification", "-outfile_dir": "OutfileDir"}
"""DAGMan's own arguments, and the options of a submission that they came from."""

COMMAND_FLAGS: Final = {
    ("PostRun", True): "-AlwaysRunPost",
    ("PostRun", False): "-DontAlwaysRunPost",
    ("SuppressNotification", True): "-suppress_notification",
    ("SuppressNotification", False): "-dont_suppress_notification",
    ("UseDagDir", True): "-usedagdir",
    ("ImportEnv", True): "-import_env",
    ("UpdateSubmit", True): "-update_submit",
}
COMMAND_NAMES: Final = {
    "MaxIdle": "-maxidle",
    "MaxJobs": "-maxjobs",
    "MaxPre": "-maxpre",
    "MaxPost": "-maxpost",
    "MaxHold": "-maxhold",
    "Priority": "-priority",
    "DebugLevel": "-debug",
    "SubmitMethod": "-SubmitMethod",
    "Notification": "-notification",
    "OutfileDir": "-outfile_dir",
    "BatchName": "-batch-name",
}
"""The same options of the command ``condor_submit_dag``."""

_BATCH_NAME: Final = re.compile(r'^(?:My\.|\+)JobBatchName\s*=\s*"([^"\\]*)"\s*$', re.I | re.M)
_CLUSTER: Final = re.compile(r"submitted to cluster (\d+)\.")


CONFIRMED: Final = ("-import_env", "-outfile_dir")
"""Options that hand the environment to the job, or write elsewhere: kept only by name."""

NEVER_KEPT: Final = ("-insert_env", "-include_env")
"""Their values, which are environment, are not read."""


@frozen
class PreviousSubmission:
    """How a DAG is submitted again: from which ``directory``, with which ``files`` (the DAG's own
    first), and the ``options`` of the earlier submission, as ``from_dag`` calls them. ``refused``:
    why that is not done before it is confirmed, None where nothing is against it."""

    directory: Path
    files: tuple[str, ...]
    options: dict[str, Option]
    refused: str | None = None

    @property
    def kept(self) -> str:
        """The options as words of a command line, for people; "" where there are none."""
        return shlex.join(command_options(self.options))


def leftovers(dag_file: Path) -> list[str]:
    """Names of what an earlier submission left beside the DAG file."""
    found = [f"{dag_file.name}{end}" for end in LEFTOVERS]
    found = [name for name in found if os.path.lexists(dag_file.with_name(name))]
    newest = newest_rescue(dag_file)
    return [*found, newest] if newest else found


def newest_rescue(dag_file: Path) -> str | None:
    """The rescue file that DAGMan would go on from: the highest number wins."""
    numbered = [
        (number, name)
        for name in os.listdir(dag_file.parent)
        if (number := rescue_number(name, dag_file.name))
    ]
    return max(numbered)[1] if numbered else None


def former(dag_file: Path, confirmed: Collection[str] = ()) -> PreviousSubmission:
    """How ``dag_file`` is submitted again, by its ``.condor.sub``; plainly, where there is none.
    Somebody else may have written that: what leads out of the DAG's directory is kept only where
    its name is among ``confirmed``."""
    sub = dag_file.with_name(f"{dag_file.name}.condor.sub")
    try:
        data = read_regular(sub, LARGEST_SUB)
    except OSError:
        data = b""
    said = read_condor_sub(data)
    home, files = dag_file.parent, (dag_file.name,)
    written = said.dag_files[0] if said.dag_files else ""
    directory = _directory(dag_file, written)
    if directory is None:
        if not written:
            return PreviousSubmission(home, files, _options(said, data))
        return PreviousSubmission(
            home, files, {}, f"{sub.name} is of another DAG: {plain(written, 100)}"
        )
    flags = {word.lower() for word in said.words}
    names: list[str] = [flag for flag in CONFIRMED if flag in flags]
    names += said.dag_files[1:]
    if directory != Path(os.path.realpath(home)):
        names.append(str(directory))
    never = [flag for flag in NEVER_KEPT if flag in flags]
    left = [name for name in names if name not in confirmed]
    refused = None
    if never:
        refused = f"it was submitted with {never[0]}: submit it with condor_submit_dag yourself"
    elif left:
        named = ", ".join(plain(name, 100) for name in left)
        keep = " ".join(f"--keep={shlex.quote(plain(name, 100))}" for name in left)
        refused = f"it was submitted with {named}: metlmon act resubmit … {keep} keeps that"
    return PreviousSubmission(directory, said.dag_files, _options(said, data), refused)


def _directory(dag_file: Path, written: str) -> Path | None:
    """From where the DAG was called ``written``; None when it cannot have been."""
    if not written or os.path.basename(written) != dag_file.name:
        return None
    home = Path(os.path.realpath(dag_file.parent))
    if os.path.isabs(written):
        return home if os.path.realpath(os.path.dirname(written)) == str(home) else None
    parts = Path(written).parts
    place = home / dag_file.name
    if place.parts[-len(parts) :] != parts:
        return None
    return Path(*place.parts[: -len(parts)])


def _options(said: CondorSub, data: bytes) -> dict[str, Option]:
    options: dict[str, Option] = {}
    for word, value in zip(said.words, [*said.words[1:], ""], strict=False):
        flag = word.lower()
        if flag in NUMBERS and re.fullmatch(r"-?\d{1,9}", value):
            options[NUMBERS[flag]] = int(value)
        elif flag in FLAGS:
            name, on = FLAGS[flag]
            options[name] = on
        elif flag in TEXTS and value.isprintable():
            options[TEXTS[flag]] = value
    names = _BATCH_NAME.findall(data.decode("utf-8", "replace"))
    if names and names[-1].isprintable():
        options["BatchName"] = names[-1]
    return options


def submit(
    connection: PoolConnection, directory: Path, files: tuple[str, ...], options: dict[str, Option]
) -> SubmitResult:
    """Submit DAGMan for ``files`` from ``directory``, through the bindings where they can, else
    by ``condor_submit_dag``. Raises PoolError."""
    command = submit_command(connection, files)
    if command is None:
        return SubmitResult(connection.submit_dag(directory, files[0], options), "htcondor2")
    return SubmitResult(_by_command(command, directory, files, options), "condor_submit_dag")


def submit_command(connection: PoolConnection, files: tuple[str, ...]) -> str | None:
    """The path of ``condor_submit_dag``; None where the bindings can submit ``files``. Raises
    PoolError where nothing can."""
    where = connection.where()
    if os.geteuid() == 0:
        raise PoolError(
            "root may not submit: HTCondor runs no job as root, so become the user whose DAG it is"
        )
    if where.dagman and len(files) == 1:
        return None
    if where.submit_command is not None:
        return where.submit_command
    lacking = "condor_submit_dag is" if where.dagman else "condor_dagman and condor_submit_dag are"
    raise PoolError(f"{lacking} not in PATH here: submit on the access point itself")


def _by_command(
    command: str, directory: Path, files: tuple[str, ...], options: dict[str, Option]
) -> int:
    argv = [command, *command_options(options), *(_no_option(file) for file in files)]
    try:
        ran = subprocess.run(
            argv,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SUBMIT_SECONDS,
            errors="replace",
        )
    except (OSError, ValueError) as error:
        raise PoolError(f"{command} cannot be run: {error}") from None
    except subprocess.TimeoutExpired:
        raise PoolError(
            f"{command} did not end in {SUBMIT_SECONDS:.0f} s, and was ended; condor_q tells "
            "whether the DAG was submitted"
        ) from None
    found = _CLUSTER.search(ran.stdout)
    if ran.returncode or found is None:
        raise PoolError(f"condor_submit_dag: {_complaint(ran.stdout + ran.stderr)}")
    return int(found[1])


def command_options(options: dict[str, Option]) -> list[str]:
    """The options as words of ``condor_submit_dag``'s command line."""
    words = []
    for name, value in options.items():
        if isinstance(value, bool):
            flag = COMMAND_FLAGS.get((name, value))
            words += [flag] if flag else []
        else:
            words += [COMMAND_NAMES[name], str(value)]
    return words


def _no_option(file: str) -> str:
    return f"./{file}" if file.startswith("-") else file


def _complaint(text: str) -> str:
    """The line of an output that says what was wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return plain((errors or lines or ["it failed without a word"])[0], 400)
