"""Submission and resubmission of a DAG, including the checks beforehand.

DAGMan's submission deletes the halt file and may overwrite its own submit file before it reports
an error, so everything is checked here first. ``-force`` is never used: it would discard rescue
files. Manual: "DAGMan Workflows > Running and Managing DAGMan", "Rescue DAG",
*condor_submit_dag*; source: ``DagmanUtils::ensureOutputFilesExist`` in ``dagman_utils.cpp``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from metlmon.dagman.reports import CondorSub, newest_rescue, read_condor_sub
from metlmon.live.file_access import read_regular_file
from metlmon.pool.connection import PoolConnection
from metlmon.pool.types import PoolError
from metlmon.text.formatting import plain

LEFTOVER_SUFFIXES: Final = (
    ".condor.sub",
    ".dagman.out",
    ".dagman.log",
    ".lib.out",
    ".lib.err",
    ".nodes.log",
    ".metrics",
    ".lock",
)
"""Suffixes of files that exist beside the DAG file only after a submission."""

SUBMIT_SECONDS: Final = 180.0
"""Time-out of ``condor_submit_dag``, which parses the DAG and its sub-DAGs."""

MAX_SUB_BYTES: Final = 1 << 20
"""Size limit of a ``.condor.sub`` in bytes; typical files have two thousand."""

KEPT_OPTIONS: Final[dict[str, type | None]] = {
    **dict.fromkeys(("-maxidle", "-maxjobs", "-maxpre", "-maxpost", "-maxhold"), int),
    **dict.fromkeys(("-priority", "-debug", "-SubmitMethod"), int),
    **dict.fromkeys(("-notification", "-outfile_dir"), str),
    **dict.fromkeys(("-usedagdir", "-AlwaysRunPost", "-DontAlwaysRunPost"), None),
    **dict.fromkeys(("-suppress_notification", "-dont_suppress_notification"), None),
    "-import_env": None,
}
"""Options of ``condor_submit_dag`` that DAGMan gets as well, and the type of their values. They are
repeated in a resubmission."""

NO_COMMAND: Final = "condor_submit_dag is not in PATH here: submit on the access point itself"

_BATCH_NAME: Final = re.compile(r'^(?:My\.|\+)JobBatchName\s*=\s*"([^"\\]*)"\s*$', re.I | re.M)
_CLUSTER: Final = re.compile(r"submitted to cluster (\d+)\.")


CONFIRMED_OPTIONS: Final = ("-import_env", "-outfile_dir")
"""Options that are kept only if confirmed by name, since they pass the environment to the job, or
write to other directories."""

REJECTED_OPTIONS: Final = ("-insert_env", "-include_env")
"""Options that are never kept, since their values, which are in the environment, are not read."""


class PreviousSubmission(Struct, frozen=True):
    """The previous submission of a DAG, to be repeated.

    ``directory``: the working directory; ``files``: the DAG files, the DAG's own first;
    ``options``: arguments of ``condor_submit_dag``. ``refused``: why resubmitting needs a
    confirmation or is not possible, else None.
    """

    directory: Path
    files: tuple[str, ...]
    options: tuple[str, ...]
    refused: str | None = None


def leftovers(dag_file: Path) -> list[str]:
    """Names of files beside the DAG file that an earlier submission left."""
    names = [f"{dag_file.name}{suffix}" for suffix in LEFTOVER_SUFFIXES]
    names = [name for name in names if os.path.lexists(dag_file.with_name(name))]
    rescue = newest_rescue(os.listdir(dag_file.parent), dag_file.name)
    return [*names, rescue] if rescue else names


def previous_submission(dag_file: Path, confirmed: Collection[str] = ()) -> PreviousSubmission:
    """The previous submission of ``dag_file`` according to its ``.condor.sub``.

    Without that file, the defaults. Since another user may have written it, anything that leads out
    of the DAG's directory is kept only if named in ``confirmed``.
    """
    sub = dag_file.with_name(f"{dag_file.name}.condor.sub")
    try:
        data = read_regular_file(sub, MAX_SUB_BYTES)
    except OSError:
        data = b""
    condor_sub = read_condor_sub(data)
    dag_directory, files = dag_file.parent, (dag_file.name,)
    name = condor_sub.dag_files[0] if condor_sub.dag_files else ""
    directory = _directory(dag_file, name)
    if directory is None:
        if not name:
            return PreviousSubmission(dag_directory, files, _options(condor_sub, data))
        return PreviousSubmission(
            dag_directory, files, (), f"{sub.name} is of another DAG: {plain(name, 100)}"
        )
    flags = {argument.lower() for argument in condor_sub.words}
    to_confirm: list[str] = [flag for flag in CONFIRMED_OPTIONS if flag in flags]
    to_confirm += condor_sub.dag_files[1:]
    if directory != Path(os.path.realpath(dag_directory)):
        to_confirm.append(str(directory))
    rejected = [flag for flag in REJECTED_OPTIONS if flag in flags]
    unconfirmed = [item for item in to_confirm if item not in confirmed]
    refused = None
    if rejected:
        refused = f"it was submitted with {rejected[0]}: submit it with condor_submit_dag yourself"
    elif unconfirmed:
        listed = ", ".join(plain(item, 100) for item in unconfirmed)
        keep = " ".join(f"--keep={shlex.quote(plain(item, 100))}" for item in unconfirmed)
        refused = f"it was submitted with {listed}: metlmon act resubmit … {keep} keeps that"
    return PreviousSubmission(directory, condor_sub.dag_files, _options(condor_sub, data), refused)


def _directory(dag_file: Path, name: str) -> Path | None:
    """The directory from which ``name`` refers to the DAG file; None without one."""
    if not name or os.path.basename(name) != dag_file.name:
        return None
    dag_directory = Path(os.path.realpath(dag_file.parent))
    if os.path.isabs(name):
        return (
            dag_directory if os.path.realpath(os.path.dirname(name)) == str(dag_directory) else None
        )
    parts = Path(name).parts
    path = dag_directory / dag_file.name
    if path.parts[-len(parts) :] != parts:
        return None
    return Path(*path.parts[: -len(parts)])


def _options(condor_sub: CondorSub, data: bytes) -> tuple[str, ...]:
    """The options of a submission from DAGMan's arguments and the batch name."""
    known = {option.lower(): option for option in KEPT_OPTIONS}
    options: list[str] = []
    for argument, value in zip(condor_sub.words, [*condor_sub.words[1:], ""], strict=False):
        option = known.get(argument.lower())
        if option is None:
            continue
        kind = KEPT_OPTIONS[option]
        if kind is None:
            options.append(option)
        elif value.isprintable() and (kind is str or re.fullmatch(r"-?\d{1,9}", value)):
            options += [option, value]
    names = _BATCH_NAME.findall(data.decode("utf-8", "replace"))
    if names and names[-1].isprintable():
        options += ["-batch-name", names[-1]]
    return tuple(options)


def submit(
    connection: PoolConnection, directory: Path, files: tuple[str, ...], options: Sequence[str] = ()
) -> int:
    """Submit DAGMan by ``condor_submit_dag``; return its cluster. Raises PoolError."""
    command = submit_command(connection)
    # A file name must not be taken for an option.
    arguments = [f"./{file}" if file.startswith("-") else file for file in files]
    argv = [command, *options, *arguments]
    try:
        process = subprocess.run(
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
    match = _CLUSTER.search(process.stdout)
    if process.returncode or match is None:
        raise PoolError(f"condor_submit_dag: {_error_line(process.stdout + process.stderr)}")
    return int(match[1])


def submit_command(connection: PoolConnection) -> str:
    """The path of ``condor_submit_dag``. Raises PoolError if submitting is not possible here."""
    command = connection.where().submit_command
    if os.geteuid() == 0:
        raise PoolError(
            "root may not submit: HTCondor runs no job as root, so become the user whose DAG it is"
        )
    if command is None:
        raise PoolError(NO_COMMAND)
    return command


def _error_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return plain((errors or lines or ["it failed without a word"])[0], 400)
