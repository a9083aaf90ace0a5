"""Discovers the top-level DAGs of a dagdir and all event logs that belong to it.

Examines only file names and first bytes of logs. Never writes to the dagdir, and never walks
job output directories.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from itertools import islice
from pathlib import Path, PurePath
from typing import Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from metlmon.dagman.loader import load_workflow, moved
from metlmon.dagman.parser import READERS
from metlmon.dagman.records import Problem, Workflow
from metlmon.dagman.reports import CondorSub, read_condor_sub
from metlmon.errors import InputError
from metlmon.eventlog.reader import current_name, looks_like_event_log
from metlmon.live.file_access import (
    call_with_timeout,
    check_dagdir,
    open_regular,
    read_regular_file,
    stat_all,
)
from metlmon.model.dag import Dag
from metlmon.model.model_state import LogRole
from metlmon.remote import filesystem
from metlmon.remote.filesystem import Entry
from metlmon.remote.paths import NoAnswer, join, normalize, there

SNIFF_BYTES: Final = 4096
"""First bytes read to distinguish an event log from any other ``*.log``."""

DAG_FILE_SUFFIXES: Final = (".condor.sub", ".dagman.out", ".dagman.log", ".nodes.log", ".metrics")
"""Suffixes of the files that DAGMan and condor_submit_dag write next to a DAG file."""

DAGMAN_SUFFIXES: Final = (".nodes.log", ".dagman.out", ".dagman.log", ".metrics")
"""Suffixes of the files that only DAGMan writes: they prove that it has run the DAG."""

NOT_A_DAG: Final = re.compile(r"\.(rescue\d+|old|orig|bak|tmp|swp|save)$|~$|^\.#?|^#")

MAX_OUTSIDE_DIRECTORIES: Final = 100
"""Maximum number of directories outside searched for rotated logs, per check."""

_OWN_LOGS: Final = {".dagman.log": LogRole.DAGMAN, ".nodes.log": LogRole.NODES}
"""Suffixes of the logs that DAGMan writes itself."""

_ANY: Final = re.compile("")
_ROTATED: Final = re.compile(r"(?:\.old|[.-]\d{1,8})\Z")
_LOG_OR_ROTATED: Final = re.compile(rf"\.log(?:{_ROTATED.pattern}|\Z)")
"""``x.log`` and its rotated names."""

Sniffed: TypeAlias = dict[Path, tuple[tuple[int, int, int], bool]]
"""For each file: inode, size and mtime (ns), and whether it was an event log."""

MAX_READ_AHEAD: Final = 250
LARGEST_READ_AHEAD: Final = 1 << 16
"""Maximum number of files that are read together when a dagdir is opened, and of bytes of each."""

_READ_FIRST: Final = re.compile(
    r"\.(?:dag|sub|submit|log|toml|status|metrics|dagman\.out|rescue\d{1,3})\Z"
)

_OUTPUT: Final = re.compile(r"\d\.(?:out|err)\Z")

_JOB_MACRO: Final = re.compile(r"\$\((?:cluster|clusterid|process|procid)\)", re.IGNORECASE)


class LogFile(Struct, frozen=True):
    """One event log.

    ``name``: relative to the dagdir if inside it; ``dag``: key of the DAG whose nodes.log or
    dagman.log it is, even if the DAG file is missing.
    """

    path: Path
    name: str
    role: LogRole
    dag: str | None = None


HEAD_BYTES: Final = 1 << 16
"""Leading bytes of ``.dagman.out``, which have DAGMan's configuration and command line."""

MAX_NODES_TRIED: Final = 20
MAX_LEVELS_UP: Final = 4
"""Number of nodes whose files are looked for, and of directories searched for them, from the DAG
file's own upwards."""

MAX_FILES_TRIED: Final = 200
"""Number of files that are searched for nodes of a DAG if none is named ``*.dag``."""

_NODE_LINE: Final = re.compile(
    rb"^\s*(?:(?:JOB|SPLICE|FINAL|SERVICE|PROVISIONER)|SUBDAG\s+EXTERNAL)\s+\S+\s+\S",
    re.IGNORECASE | re.MULTILINE,
)

_FIRST_WORD: Final = re.compile(rb"(?:[ \t\r]*(?:(?:#|//)[^\n]*)?\n)*[ \t]*([A-Za-z_-]+)(?=[ \t])")
"""The first word of a file, after comments and empty lines."""

_PARSING: Final = re.compile(rb"^[^\n]{0,60}\bParsing (\S[^\n]*?) \.\.\.\s*$", re.MULTILINE)
_NODES_LOG: Final = re.compile(rb"Default node log file is: <(/[^\n<>]*)>\s*$", re.MULTILINE)
_IN_DAG_DIRECTORY: Final = re.compile(rb'argv\[\d+\] == "-UseDagDir"', re.IGNORECASE)
"""Lines of ``.dagman.out`` (``main_init`` in ``dagman_main.cpp``)."""


class Discovery(Struct):
    """The result of discovery.

    ``candidates``: files named ``*.log`` that are unreadable or not event logs, but may become
    event logs. ``missing_logs``: DAGMan's working directory and the submit description's ``log`` of
    each log that does not exist.
    """

    dags: list[Dag] = field(default_factory=list)
    logs: list[LogFile] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    candidates: list[Path] = field(default_factory=list)
    missing_logs: set[tuple[Path, str]] = field(default_factory=set)


def display_name(dagdir: Path, path: Path) -> str:
    """Return ``path`` for display: relative to the dagdir if inside it."""
    try:
        return path.relative_to(dagdir).as_posix()
    except ValueError:
        return there(path)


def _listing(
    directory: Path, pattern: re.Pattern[str] = _ANY, inside: Path | None = None
) -> list[str]:
    """List the file names that match ``pattern``.

    Links to files outside ``inside`` are excluded, as those do not belong to the dagdir.
    """
    try:
        return call_with_timeout(_names_of_files, directory, pattern, inside)
    except OSError:
        return []


def _names_of_files(directory: Path, pattern: re.Pattern[str], inside: Path | None) -> list[str]:
    def is_wanted(entry: Entry) -> bool:
        try:
            is_file = entry.is_file()
        except OSError:  # a circular link
            return False
        return is_file and (
            inside is None or not entry.is_symlink() or _leads_into(directory / entry.name, inside)
        )

    with filesystem.scandir(directory) as entries:
        return sorted(e.name for e in entries if pattern.search(e.name) and is_wanted(e))


def _leads_into(link: Path, inside: Path) -> bool:
    return Path(filesystem.realpath(link)).is_relative_to(filesystem.realpath(inside))


def dag_files(names: Iterable[str]) -> list[str]:
    """Select the DAG files, by their own name or by DAGMan's files next to them."""
    present = set(names)
    selected = {n for n in present if n.endswith(".dag") and not NOT_A_DAG.search(n)}
    for name in present:
        for suffix in DAG_FILE_SUFFIXES:
            stem = name.removesuffix(suffix)
            if stem != name and stem in present and not NOT_A_DAG.search(stem):
                selected.add(stem)
    return sorted(selected, key=natural_sort_key)


def natural_sort_key(name: str) -> tuple[tuple[str | int, ...], str]:
    """Sort key of DAG files: ``ens.dag``, ``ens-2.dag``, …, ``ens-10.dag``."""
    parts = re.split("([0-9]+)", name.removesuffix(".dag"))
    return tuple(int(part) if index % 2 else part for index, part in enumerate(parts)), name


def read_workflows(
    dagdir: Path,
    only: str | None = None,
    read: Callable[[Path], bytes] = read_regular_file,
    *,
    keep_descriptions: bool = False,
) -> list[Workflow]:
    """Return the top-level workflows: those of DAG files to which no other refers.

    DAG files submitted in one command line, according to ``.condor.sub``, form one workflow.
    ``only``: name of the one DAG file wanted; ``read``: returns the content of a file;
    ``keep_descriptions``: as for :func:`load_workflow`.
    """
    groups = _groups([dagdir / name for name in dag_files(_listing(dagdir))])
    if only is not None:
        groups = [g for g in groups if g[0].name == only] or [[dagdir / only]]
    workflows = [_load(group, read, keep_descriptions) for group in groups]
    references = {_real_path(path) for workflow in workflows for path in workflow.references}
    top_level = [w for w in workflows if _real_path(w.path) not in references]
    # DAGs that refer to each other in a circle would all be lost.
    return top_level or workflows


def _load(paths: list[Path], read: Callable[[Path], bytes], keep_descriptions: bool) -> Workflow:
    """Load DAG files, with paths relative to the directory of the condor_submit_dag call."""
    command = _dagman_command(paths[0])

    def load(directory: Path) -> Workflow:
        return load_workflow(
            paths,
            read,
            directory=directory,
            use_dag_dir=command.use_dag_dir,
            keep_descriptions=keep_descriptions,
        )

    workflow = load(paths[0].parent)
    directory = normalize(_submission_directory(workflow, command))
    return workflow if directory == workflow.directory else load(directory)


def _submission_directory(workflow: Workflow, command: CondorSub) -> Path:
    """The directory in which ``condor_submit_dag`` was called (manual: "File Paths in DAGs").

    It follows from DAGMan's command line, which names the DAG file relative to it; else it is the
    nearest one, from the DAG file's own upwards, that contains files that the DAG names.
    """
    path = workflow.path
    folders = PurePath(command.dag_files[0]).parent.parts if command.dag_files else ()
    if command.use_dag_dir or (command.dag_files and not folders):
        return path.parent
    if ".." in folders and (directory := _directory_of_call(path, command.dag_files[0])):
        return directory
    if folders and folders[0] != "/" and path.parent.parts[-len(folders) :] == folders:
        return path.parents[len(folders)]
    nodes = list(islice(workflow.nodes.values(), MAX_NODES_TRIED))
    submits = {os.path.join(node.dir or "", node.submit) for node in nodes if node.submit}
    names = sorted(submits | {node.log for node in nodes if node.log and "$" not in node.log})
    if _count_files(path.parent, names):
        return path.parent
    in_folders = [name for name in names if os.path.dirname(name) and not os.path.isabs(name)]
    for directory in path.parents[1:MAX_LEVELS_UP]:
        if _count_files(directory, in_folders):
            return directory
    # The parent of many dagdirs may have a file with a common name: require all of them.
    above = path.parents[1] if len(path.parents) > 1 else path.parent
    in_all = submits and _count_files(above, submits) == len(submits)
    return above if in_all else path.parent


def _directory_of_call(path: Path, named: str) -> Path | None:
    """The directory of the call that named the DAG file ``path`` with ``..``.

    The absolute path of its nodes.log begins with that directory. In a copy this is a path of
    another machine, so that only the relative path from the DAG file to it is used.
    """
    with suppress(OSError):
        head = call_with_timeout(_head, path.with_name(f"{path.name}.dagman.out"))
        for match in _NODES_LOG.finditer(head):
            log, end = os.fsdecode(match[1]), f"/{named}.nodes.log"
            if log.endswith(end):
                directory = log.removesuffix(end)
                dag_folder = os.path.join(directory, os.path.dirname(named))
                return normalize(join(path.parent, os.path.relpath(directory, dag_folder)))
    return None


def _count_files(directory: Path, names: Iterable[str]) -> int:
    return sum(
        call_with_timeout(filesystem.isfile, normalize(join(directory, name)))
        for name in names
        if "\0" not in name
    )


def _dagman_command(path: Path) -> CondorSub:
    """DAGMan's command line, from ``.condor.sub`` or the beginning of ``.dagman.out``."""
    with suppress(OSError):
        command = read_condor_sub(read_regular_file(path.with_name(f"{path.name}.condor.sub")))
        if command.dag_files and PurePath(command.dag_files[0]).name == path.name:
            return command
    head = b""
    with suppress(OSError):
        head = call_with_timeout(_head, path.with_name(f"{path.name}.dagman.out"))
    parsed = [os.fsdecode(match[1]) for match in _PARSING.finditer(head)]
    files = tuple(name for name in parsed if PurePath(name).name == path.name)
    return CondorSub(files[:1], _IN_DAG_DIRECTORY.search(head) is not None)


def _head(path: Path) -> bytes:
    with open_regular(path) as (file, size):
        return file.pread(min(size, HEAD_BYTES), 0) if size else b""


def _real_path(path: Path) -> str:
    try:
        return str(call_with_timeout(filesystem.realpath, path))
    except OSError:  # a name with a NUL in the DAG file
        return os.path.normpath(path)


def _groups(candidates: list[Path]) -> list[list[Path]]:
    groups = [group for group in map(_command_line, candidates) if len(group) > 1]
    grouped = {path for group in groups for path in group}
    groups += [[path] for path in candidates if path not in grouped]
    return sorted(groups, key=lambda group: natural_sort_key(group[0].name))


def _command_line(first: Path) -> list[Path]:
    """The DAG files of the command line whose first one is ``first``; [] if unknown."""
    try:
        data = read_regular_file(first.with_name(f"{first.name}.condor.sub"))
    except OSError:
        return []
    files = [Path(file) for file in read_condor_sub(data).dag_files]
    if not files or files[0].name != first.name:
        return []
    others = [_locate(first, files[0], file) for file in files[1:]]
    here = all(call_with_timeout(filesystem.isfile, path) for path in others)
    return [first, *others] if here or _was_run(first) else []


def _locate(first: Path, named: Path, other: Path) -> Path:
    """Locate another file of a command line: relative to ``first``, else beside it."""
    relative = os.path.join(os.path.relpath(other.parent, named.parent), other.name)
    candidates = [normalize(join(first.parent, relative)), first.with_name(other.name)]
    return next(
        (p for p in candidates if p != first and call_with_timeout(filesystem.isfile, p)),
        candidates[0],
    )


def dag_file_paths(dagdir: Path) -> list[Path]:
    """Return all DAG files of a dagdir, top-level or not."""
    return [dagdir / name for name in dag_files(_listing(dagdir))]


def read_ahead(dagdir: Path) -> None:
    """Read the first files of a dagdir together, if reading each alone would take a round trip."""
    names = islice(filter(_READ_FIRST.search, _listing(dagdir)), MAX_READ_AHEAD)
    filesystem.read_ahead(dagdir, (dagdir / name for name in names), LARGEST_READ_AHEAD)


NO_NODES: Final = "not a DAG file: no line of it is a JOB or any other node"
GIVE_THE_DAG: Final = "give the .dag file that you gave to condor_submit_dag, or its directory"


def is_of_another_program(workflow: Workflow) -> bool:
    """Whether another program wrote a file ``*.dag``, such as a graph of Snakemake."""
    if workflow.nodes or workflow.references or not (workflow.used and workflow.problems):
        return False
    try:
        return not _begins_with_command(call_with_timeout(_head, workflow.path))
    except OSError:
        return False


def discover_dags(dagdir: Path, only: str | None = None) -> Discovery:
    """Discover and load the DAGs of a dagdir. Raises InputError if none is usable."""
    check_dagdir(dagdir)
    workflows = read_workflows(dagdir, only)
    first = workflows[0] if workflows else None
    if only is not None and first and first.used and not (first.nodes or first.references):
        raise InputError(f"{dagdir / only}: {NO_NODES}; {GIVE_THE_DAG}")
    others = [w for w in workflows if only is None and is_of_another_program(w)]
    workflows = [w for w in workflows if w not in others]
    usable = [w for w in workflows if w.used or has_run_files(w)]
    errors = [next(p for p in w.problems if p.error) for w in workflows if w not in usable]
    if not usable and (errors or not others):
        raise InputError(_unusable_message(dagdir, errors))
    if not usable and not has_event_logs(dagdir):
        raise InputError(f"{others[0].path}: {NO_NODES}; {GIVE_THE_DAG}")
    discovery = Discovery(problems=errors)
    for workflow in others:
        name = display_name(dagdir, workflow.path)
        text = f"{NO_NODES}; it is left out"
        discovery.problems.append(Problem("unknown-command", name, None, text, error=False))
    seen: set[str] = set()
    for workflow in usable:
        dags = list(_with_subdags(dagdir, workflow, None, seen))
        discovery.problems += (_as_warning(problem, workflow) for problem in workflow.problems)
        for inner in (dag.workflow for dag in dags if not dag.is_top):
            discovery.problems += (
                _as_warning(problem, inner) for problem in inner.problems if problem.error
            )
        discovery.dags += dags
    return discovery


_REMEDIES: Final = {
    "missing-file": "see who may read it (ls -l), or ask its owner",
    "cycle": "DAGMan could not end it: remove one of these PARENT … CHILD lines, then look again",
}
"""What to do about an error of a whole DAG file, by its kind."""


def _unusable_message(dagdir: Path, errors: list[Problem]) -> str:
    if errors:
        more = f" (and {len(errors) - 1} more DAG files)" if len(errors) > 1 else ""
        advice = (
            "DAGMan would refuse it: mend this line, then look again"
            if errors[0].line is not None
            else _REMEDIES.get(errors[0].kind, "mend the DAG file, then look again")
        )
        return f"{dagdir}{os.sep}{errors[0]}{more}; {advice}"
    try:
        names = sorted(
            n for n in call_with_timeout(filesystem.listdir, dagdir) if n.endswith(".dag")
        )
    except OSError:
        names = []
    if links := [name for name in names if not NOT_A_DAG.search(name)]:
        return f"{dagdir / links[0]}: cannot be read: not a file, or a link to one that is gone"
    if names:
        return (
            f"{dagdir}: no DAG file here but {names[0]}, a hidden file or a copy by its name; "
            "give the file itself, or rename it"
        )
    if others := dag_files_of_other_names(dagdir):
        more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
        return f"{dagdir}: no .dag file here, but {others[0]}{more} has nodes of a DAG: give it"
    folder = next(_folders_with_logs(dagdir), None)
    hint = f", but in {folder}{os.sep}: give that" if folder is not None else ""
    return (
        f"{dagdir}: no DAG file here; give the directory that holds the .dag file "
        f"you gave to condor_submit_dag, or job event logs, of which none is here{hint}"
    )


def _folders_with_logs(dagdir: Path) -> Iterator[str]:
    """Yield the names of the folders of ``dagdir`` that have event logs."""
    try:
        names = sorted(call_with_timeout(filesystem.listdir, dagdir))
    except OSError:
        return
    for name in names[:MAX_FILES_TRIED]:
        if call_with_timeout(filesystem.isdir, dagdir / name) and has_event_logs(dagdir / name):
            yield name


def dag_files_of_other_names(dagdir: Path) -> list[str]:
    """The files in ``dagdir`` that are not named ``*.dag`` but have nodes."""
    return [n for n in _listing(dagdir)[:MAX_FILES_TRIED] if _is_dag_file(dagdir / n)]


def _is_dag_file(path: Path) -> bool:
    """Whether a file that is not named ``*.dag`` begins like a DAG file.

    A line of prose may look like a node, as in the reason of an event: ``Job not found at …``.
    """
    try:
        head = call_with_timeout(_head, path)
    except OSError:
        return False
    return _begins_with_command(head) and _NODE_LINE.search(head) is not None


def _begins_with_command(head: bytes) -> bool:
    """Whether the first word of a file is a command of DAG files."""
    first = _FIRST_WORD.match(head)
    return first is not None and first[1].decode("ascii").upper().replace("-", "_") in READERS


def has_run_files(workflow: Workflow) -> bool:
    """Whether DAGMan has run this DAG, according to its files."""
    return bool(workflow.nodes) and _was_run(workflow.path)


def _was_run(dag_file: Path) -> bool:
    paths = [dag_file.with_name(dag_file.name + suffix) for suffix in DAGMAN_SUFFIXES]
    return any(call_with_timeout(_is_nonempty, path) for path in paths)


def _is_nonempty(path: Path) -> bool:
    try:
        return filesystem.stat(path).st_size > 0
    except OSError:
        return False


def _as_warning(problem: Problem, workflow: Workflow) -> Problem:
    """Turn an error in a DAG that is shown anyway into a warning."""
    if not problem.error:
        return problem
    ran = ", but has run the DAG" if has_run_files(workflow) else ""
    text = f"{problem.text}; DAGMan would refuse this{ran}: the rest is shown"
    return replace(problem, text=text, error=False)


def _with_subdags(
    dagdir: Path, workflow: Workflow, top: str | None, seen: set[str]
) -> Iterator[Dag]:
    key = display_name(dagdir, workflow.path)
    if key in seen:
        return
    seen.add(key)
    yield Dag(key, key, workflow, top)
    for subdag in workflow.subdags:
        if subdag is not None:
            yield from _with_subdags(dagdir, subdag, top or key, seen)


# --- logs ---------------------------------------------------------------------------------


def check_logs(paths: Sequence[Path]) -> None:
    """Raise InputError unless at least one of these files is an event log.

    The others may become event logs, as an empty file does when its job is submitted.
    """
    refused: list[str] = []
    for path in paths:
        try:
            if is_event_log(path):
                return
            refused.append(f"{path}: not an event log: no event of HTCondor at its beginning")
        except OSError as error:
            refused.append(f"{path}: {error.strerror or error}")
    more = f" (and {len(refused) - 1} more files)" if len(refused) > 1 else ""
    raise InputError(f"{refused[0]}{more}; give the file that the submit file names as log")


def output_names(directory: Path) -> list[str]:
    """The names of files in this directory that look like outputs of jobs."""
    return _listing(directory, _OUTPUT, directory)


def has_event_logs(directory: Path) -> bool:
    """Whether this directory directly contains an event log."""
    for name in _listing(directory, _LOG_OR_ROTATED, directory):
        with suppress(OSError):
            if is_event_log(directory / name):
                return True
    return False


def discover_logs(
    dagdir: Path,
    dags: list[Dag],
    sniffed: Sniffed | None = None,
    only: Sequence[Path] = (),
) -> Discovery:
    """Discover the event logs of these DAGs, and other logs in their directories.

    ``sniffed``: results of earlier checks, updated by this one. ``only``: the files to read
    instead, which the user has named.
    """
    sniffed = {} if sniffed is None else sniffed
    named_logs = _named_logs(dags)
    missing = {key for key, paths in named_logs.items() if not paths}
    discovery = Discovery(dags, missing_logs=missing)
    logs = [_log_file(dagdir, path) for path in only] or _candidates(dagdir, dags, named_logs)
    statuses = stat_all(log.path for log in logs)
    seen: set[tuple[int, int]] = set()
    shared: list[str] = []
    for log in logs:
        try:
            status = statuses[log.path]
            if isinstance(status, OSError):
                # A copy, since a raised error refers to this frame and thus to the statuses.
                raise copy(status)
            # A file with two names, by hard or symbolic links, is one log.
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            signature = (status.st_ino, status.st_size, status.st_mtime_ns)
            if log.path not in sniffed or sniffed[log.path][0] != signature:
                sniffed[log.path] = (signature, is_event_log(log.path))
        except NoAnswer:
            discovery.candidates.append(log.path)
            continue
        except OSError as error:
            if call_with_timeout(filesystem.lexists, log.path):
                text = f"the log cannot be read: {error.strerror or error}"
                discovery.candidates.append(log.path)
                discovery.problems.append(Problem("unreadable", log.name, None, text, False))
            continue
        if sniffed[log.path][1]:
            discovery.logs.append(log)
            # A group with the owner's id is private to the owner (Debian and Red Hat).
            of_group = status.st_mode & stat.S_IWGRP and status.st_gid != status.st_uid
            shared += [log.name] if status.st_mode & stat.S_IWOTH or of_group else []
        else:
            discovery.candidates.append(log.path)
    if shared:
        more = f" (and {len(shared) - 1} more)" if len(shared) > 1 else ""
        text = f"others than its owner may write this log{more}: its content may be theirs"
        discovery.problems.append(Problem("shared-log", shared[0], None, text, False))
    return discovery


def _candidates(
    dagdir: Path, dags: list[Dag], named_logs: dict[tuple[Path, str], list[Path]]
) -> list[LogFile]:
    """Return the files that may be logs of these DAGs; DAGMan's own logs first.

    All logs in the dagdir and in subdirectories with DAGs belong to the ensemble; elsewhere only
    a DAG's own logs, those named in submit descriptions, and their rotated parts.
    """

    def log_file(path: Path, role: LogRole, dag: str | None = None) -> LogFile:
        return LogFile(path, display_name(dagdir, path), role, dag)

    logs: list[LogFile] = []
    for dag in dags:
        path = dag.workflow.path
        logs += [log_file(path.with_name(path.name + s), r, dag.key) for s, r in _OWN_LOGS.items()]
    logs += [log_file(path, LogRole.USER) for paths in named_logs.values() for path in paths]
    expected = {PurePath(log).name for _, log in named_logs}
    directories = {dagdir: None} | {dag.workflow.path.parent: None for dag in dags}
    for directory in directories:
        if directory != dagdir and not call_with_timeout(_leads_into, directory, dagdir):
            continue
        names = _listing(directory, _LOG_OR_ROTATED, dagdir)
        current = expected.union(names)
        for name in names:
            is_own = name.endswith(tuple(_OWN_LOGS))
            if is_own or name.endswith(".log") or _is_rotated(name, current):
                logs.append(_log_file(dagdir, directory / name))
    outside: dict[Path, set[str]] = {}
    for (_, log), paths in named_logs.items():
        for path in paths:
            # Logs per job are never rotated.
            if "$(" not in log and path.parent not in directories:
                outside.setdefault(path.parent, set()).add(path.name)
    for directory, current in islice(outside.items(), MAX_OUTSIDE_DIRECTORIES):
        rotated = _listing(directory, _ROTATED, directory)
        names = [name for name in rotated if _is_rotated(name, current)]
        logs += [log_file(directory / name, LogRole.USER) for name in names]
    return logs


def _log_file(dagdir: Path, path: Path) -> LogFile:
    """A log with the role that its name implies."""
    suffix = next((suffix for suffix in _OWN_LOGS if path.name.endswith(suffix)), None)
    if suffix is None:
        return LogFile(path, display_name(dagdir, path), LogRole.USER)
    key = display_name(dagdir, path.with_name(path.name.removesuffix(suffix)))
    return LogFile(path, display_name(dagdir, path), _OWN_LOGS[suffix], key)


def _is_rotated(name: str, current: Collection[str]) -> bool:
    """Whether a file is a rotated user log; DAGMan truncates its own logs instead."""
    log = current_name(name)
    return log != name and log in current and not log.endswith(tuple(_OWN_LOGS))


def _named_logs(dags: list[Dag]) -> dict[tuple[Path, str], list[Path]]:
    """The files of logs named in descriptions, by DAGMan's directory and the name there."""
    wanted = {
        (dag.workflow.directory, log): dag.workflow.path.parent
        for dag in dags
        for log in {node.log for node in dag.workflow.nodes.values()}
        if log
    }
    return {key: _locate_log(*key, wanted[key]) for key in sorted(wanted)}


def _locate_log(directory: Path, log: str, dag_folder: Path) -> list[Path]:
    """Return the files of a description's ``log``, from the first location with any.

    The directory of the DAG file precedes an absolute path, which may be stale in a copied
    dagdir, and follows a relative one.
    """
    path = Path(log)
    local = dag_folder / path.name
    named = join(directory, path)
    candidates = [named, directory / path.name, local]
    if path.is_absolute():
        candidates = [local, *moved(log, dag_folder), named]
    for candidate in candidates:
        paths = list(_logs_per_job(candidate)) if "$(" in str(candidate) else [candidate]
        if any(call_with_timeout(filesystem.exists, path) for path in paths):
            return paths
    return []


def _logs_per_job(pattern: Path) -> Iterator[Path]:
    """Yield the existing files of a name with job macros, as ``metl_$(Cluster).log``."""
    if "$(" in str(pattern.parent):
        return
    parts = _JOB_MACRO.split(pattern.name)
    if any("$(" in part for part in parts):
        return
    matching = re.compile(r"\d+".join(re.escape(part) for part in parts))
    for name in _listing(pattern.parent):
        if matching.fullmatch(name):
            yield pattern.parent / name


def is_event_log(path: Path) -> bool:
    """Whether this regular file begins with an event. Raises OSError."""
    return call_with_timeout(_begins_with_event, path)


def _begins_with_event(path: Path) -> bool:
    with open_regular(path) as (file, size):
        return size > 0 and looks_like_event_log(file.pread(SNIFF_BYTES, 0))
