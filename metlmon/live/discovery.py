"""What lies in a dagdir: its top-level DAGs, and every log that belongs to it.

Only names and first bytes are looked at; reading is the followers' part. The dagdir is never
written to, and job output directories are never walked.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path, PurePath
from typing import Final, TypeAlias

from metlmon.dagman import Problem, Workflow, load_workflow, read_condor_sub
from metlmon.eventlog import current_name, looks_like_event_log
from metlmon.frozen import frozen
from metlmon.live.errors import InputError, unusable_path
from metlmon.live.fs_timeout import FsTimeout, call_all, call_with_timeout
from metlmon.model.dag import Dag
from metlmon.model.ensemble import LogRole

SNIFF: Final = 4096
"""Bytes that tell an event log from any other ``*.log``."""

LARGEST_DAG_FILE: Final = 256 << 20
"""Bytes: a hundred thousand nodes with their VARS take a tenth of this."""

BESIDE: Final = (".condor.sub", ".dagman.out", ".dagman.log", ".nodes.log", ".metrics")
"""What DAGMan and condor_submit_dag put beside a DAG file, whatever its name ends in."""

OF_A_LIFE: Final = (".nodes.log", ".dagman.out", ".dagman.log", ".metrics")
"""What only DAGMan writes beside a DAG file: it has had the DAG in its hands."""

NOT_A_DAG: Final = re.compile(r"\.(rescue\d+|old|orig|bak|tmp|swp|save)$|~$|^\.#?|^#")

MOST_FOLDERS: Final = 100
"""Directories elsewhere in which older parts of logs are looked for, each time."""

_ANY: Final = re.compile("")
_OLDER: Final = re.compile(r"(?:\.old|[.-]\d{1,8})\Z")
_LOG: Final = re.compile(rf"\.log(?:{_OLDER.pattern}|\Z)")
"""``x.log``, and what rotation makes of its name."""

Load: TypeAlias = Callable[[Sequence[Path]], Workflow]

Sniffed: TypeAlias = dict[Path, tuple[tuple[int, int, int], bool]]
"""Of a file: inode, size and mtime (ns), and whether it was an event log then."""

_JOB_MACRO: Final = re.compile(r"\$\((?:cluster|clusterid|process|procid)\)", re.IGNORECASE)


@frozen
class LogFile:
    """One event log. ``name`` is relative to the dagdir where it lies in it; ``dag`` the key
    of the DAG whose nodes.log or dagman.log it is (also of one whose file is not here)."""

    path: Path
    name: str
    role: LogRole
    dag: str | None = None


@dataclass(slots=True)
class Discovery:
    """What a look at the dagdir found. ``not_yet``: files called ``*.log`` in which no event
    begins, or that cannot be read: they may become logs. ``absent``: folder of the DAG file and
    ``log`` of a description, where no file is what that means."""

    dags: list[Dag] = field(default_factory=list)
    logs: list[LogFile] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    not_yet: list[Path] = field(default_factory=list)
    absent: set[tuple[Path, str]] = field(default_factory=set)


def named_in(dagdir: Path, path: Path) -> str:
    """``path`` as people know it: relative to the dagdir where it lies in it."""
    try:
        return path.relative_to(dagdir).as_posix()
    except ValueError:
        return path.as_posix()


def directory_name(dagdir: str) -> str:
    """The name of a directory, or DAG file, also where it was given as ``.`` or ``..``."""
    name = os.path.basename(os.path.normpath(dagdir))
    if name in (os.curdir, os.pardir):
        with suppress(OSError):  # the current directory may have been removed
            name = os.path.basename(os.path.abspath(dagdir))
    return name or dagdir


def directory_shown(dagdir: str) -> str:
    """The path as it was given, or a name where that has none (``.``, ``..``)."""
    given = os.path.basename(os.path.normpath(dagdir))
    return directory_name(dagdir) if given in (os.curdir, os.pardir) else dagdir


def check_dagdir(dagdir: Path) -> None:
    """Raises InputError unless ``dagdir`` is a directory that can be listed."""
    try:
        status = call_with_timeout(os.stat, dagdir)
    except FileNotFoundError:
        raise InputError(f"{dagdir}: no such directory; give the directory of a DAG") from None
    except OSError as error:
        refused = unusable_path(error)
        raise refused or InputError(f"{dagdir}: cannot be read: {error.strerror}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise InputError(f"{dagdir}: not a directory; give the directory its DAG file lies in")
    try:
        empty = call_with_timeout(_is_empty, dagdir)
    except OSError as error:
        refused = unusable_path(error)
        raise refused or InputError(f"{dagdir}: cannot be listed: {error.strerror}") from None
    if empty and status.st_nlink == 0:
        # Somebody is still in it, and that is all that there is of it.
        raise InputError(
            f"{dagdir}: this directory has been removed; cd to where the DAG is now, and start anew"
        )


def _is_empty(directory: Path) -> bool:
    with os.scandir(directory) as entries:
        return next(entries, None) is None


def _listing(
    directory: Path, pattern: re.Pattern[str] = _ANY, inside: Path | None = None
) -> list[str]:
    """The names of its files in which ``pattern`` is found. Links to a place that is not
    ``inside`` are left out: nobody said that what they lead to belongs here."""
    try:
        return call_with_timeout(_names_of_files, directory, pattern, inside)
    except OSError:
        return []


def _names_of_files(directory: Path, pattern: re.Pattern[str], inside: Path | None) -> list[str]:
    with os.scandir(directory) as entries:
        return sorted(
            entry.name
            for entry in entries
            if pattern.search(entry.name)
            and _is_file(entry)
            and (inside is None or not entry.is_symlink() or _leads(entry.path, inside))
        )


def _is_file(entry: os.DirEntry[str]) -> bool:
    """A link in a circle is none, and no reason to know nothing of all others."""
    try:
        return entry.is_file()
    except OSError:
        return False


def _leads(link: str | Path, inside: Path) -> bool:
    return Path(os.path.realpath(link)).is_relative_to(os.path.realpath(inside))


def dag_files(names: Iterable[str]) -> list[str]:
    """Names among ``names`` that are DAG files by their own name or by what lies beside."""
    present = set(names)
    found = {n for n in present if n.endswith(".dag") and not NOT_A_DAG.search(n)}
    for name in present:
        for ending in BESIDE:
            stem = name.removesuffix(ending)
            if stem != name and stem in present and not NOT_A_DAG.search(stem):
                found.add(stem)
    return sorted(found, key=in_order)


def in_order(name: str) -> tuple[tuple[str | int, ...], str]:
    """What DAG files are sorted by: ``ens.dag``, ``ens-2.dag`` that goes on with it, …,
    ``ens-10.dag``."""
    parts = re.split("([0-9]+)", name.removesuffix(".dag"))
    return tuple(int(part) if at % 2 else part for at, part in enumerate(parts)), name


def load_files(paths: Sequence[Path]) -> Workflow:
    """The workflow of these files, as they are now."""
    return load_workflow(paths, read_regular)


def read_workflows(
    dagdir: Path, only: str | None = None, load: Load = load_files
) -> list[Workflow]:
    """The top-level workflows of a dagdir: DAG files that no other names.

    DAG files of one command line (``.condor.sub`` says which) are one workflow. ``only``:
    the one DAG file that was asked for. ``load`` gives the workflow of some files.
    """
    names = _listing(dagdir)
    groups = _groups(dagdir, names)
    if only is not None:
        groups = [g for g in groups if g[0].name == only] or [[dagdir / only]]
    workflows = [load(group) for group in groups]
    named = {_same(path) for workflow in workflows for path in workflow.references}
    tops = [w for w in workflows if _same(w.path) not in named]
    # DAGs that name each other in a circle are all named; none of them is to be lost.
    return tops or workflows


def read_regular(path: Path, largest: int = LARGEST_DAG_FILE) -> bytes:
    """The bytes of a regular file of at most ``largest``. Raises OSError for anything else: a
    DAG file may name a pipe that never ends."""
    return call_with_timeout(_bytes_of_regular, path, largest)


def _bytes_of_regular(path: Path, largest: int) -> bytes:
    handle, status = _opened(path)
    with open(handle, "rb") as file:
        if status.st_size > largest:
            raise OSError(errno.EFBIG, "too large for a DAG or submit file", str(path))
        # A file of the kernel's has no size, and may wait for ever for something to read. By its
        # size: Python makes room for all that is asked for.
        return file.read(status.st_size) if status.st_size else b""


def _opened(path: Path) -> tuple[int, os.stat_result]:
    """A regular file, open, and how it stands. Raises OSError for anything else, which is not
    opened at all: that alone may wait for ever, or wind back a tape."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return handle, status


def _same(path: Path) -> str:
    try:
        return str(call_with_timeout(os.path.realpath, path))
    except OSError:  # a NUL in a name that a DAG file gives
        return os.path.normpath(path)


def _groups(dagdir: Path, names: list[str]) -> list[list[Path]]:
    candidates = [dagdir / name for name in dag_files(names)]
    groups: list[list[Path]] = []
    together: set[Path] = set()
    for path in candidates:
        group = _command_line(path)
        if len(group) > 1:
            groups.append(group)
            together.update(group)
    groups += [[path] for path in candidates if path not in together]
    return sorted(groups, key=lambda group: in_order(group[0].name))


def _command_line(first: Path) -> list[Path]:
    """The DAG files of one command line, of which ``first`` was the first; empty where they are
    not known, or where some are gone and none ran. They may lie in several directories."""
    try:
        said = read_condor_sub(read_regular(first.with_name(f"{first.name}.condor.sub")))
    except OSError:
        return []
    files = [Path(file) for file in said.dag_files]
    if not files or files[0].name != first.name:
        return []
    others = [_beside(first, files[0], file) for file in files[1:]]
    here = all(call_with_timeout(os.path.isfile, path) for path in others)
    return [first, *others] if here or _has_life(first) else []


def _beside(first: Path, named: Path, other: Path) -> Path:
    """The file ``other`` of a command line that called ``first`` by the name ``named``: as it lay
    to it then, else in its directory."""
    lay = os.path.join(os.path.relpath(other.parent, named.parent), other.name)
    places = [Path(os.path.normpath(first.parent / lay)), first.with_name(other.name)]
    return next(
        (p for p in places if p != first and call_with_timeout(os.path.isfile, p)), places[0]
    )


def dag_file_paths(dagdir: Path) -> list[Path]:
    """The DAG files of a dagdir, top-level or not."""
    return [dagdir / name for name in dag_files(_listing(dagdir))]


def discover_dags(dagdir: Path, only: str | None = None, load: Load = load_files) -> Discovery:
    """Read the DAG files of a dagdir; ``load`` as above. Raises InputError when none of them can
    be used."""
    check_dagdir(dagdir)
    found = Discovery()
    if only is not None:
        _refuse_event_log(dagdir, only)
    workflows = read_workflows(dagdir, only, load)
    if only is not None and _is_no_dag(workflows[0]):
        raise InputError(
            f"{dagdir / only}: not a DAG file: no line of it is a JOB or any other node; give "
            "the .dag file that you gave to condor_submit_dag, or its directory"
        )
    usable = [w for w in workflows if w.used or has_run(w)]
    refused = [w for w in workflows if w not in usable]
    for workflow in refused:
        found.problems.append(next(p for p in workflow.problems if p.error))
    if not usable:
        if refused:
            more = f" (and {len(refused) - 1} more DAG files)" if len(refused) > 1 else ""
            first = found.problems[0]
            advice = (
                "DAGMan would refuse it: mend this line, then look again"
                if first.line is not None
                else "see who may read it (ls -l), or ask its owner"
            )
            raise InputError(f"{dagdir}{os.sep}{first}{more}; {advice}")
        raise InputError(_no_dag(dagdir))
    seen: set[str] = set()
    for workflow in usable:
        dags = list(_with_subdags(dagdir, workflow, None, seen))
        found.problems += (_as_warning(problem, workflow) for problem in workflow.problems)
        for inner in (dag.workflow for dag in dags if not dag.is_top):
            found.problems += (_as_warning(each, inner) for each in inner.problems if each.error)
        found.dags += dags
    return found


def _refuse_event_log(dagdir: Path, name: str) -> None:
    with suppress(OSError):
        if is_event_log(dagdir / name):
            beside = bool(dag_files(_listing(dagdir)))
            where = "it lies in" if beside else "of the DAG whose jobs it is about"
            told = f": {dagdir}" if beside else ""
            raise InputError(
                f"{dagdir / name}: this is a job event log of HTCondor, not a DAG file; give the "
                f"directory {where}{told}"
            )


def has_run(workflow: Workflow) -> bool:
    """Do DAGMan's own files prove that it took this DAG, whatever is wrong with the file now? What
    is in it can be shown then."""
    return bool(workflow.nodes) and _has_life(workflow.path)


def _has_life(dag_file: Path) -> bool:
    beside = [dag_file.with_name(dag_file.name + ending) for ending in OF_A_LIFE]
    return any(call_with_timeout(_holds_anything, path) for path in beside)


def _holds_anything(path: Path) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False


def _as_warning(problem: Problem, workflow: Workflow) -> Problem:
    """An error in the file of a DAG that is shown all the same."""
    if not problem.error:
        return problem
    ran = ", but has run the DAG" if has_run(workflow) else ""
    text = f"{problem.text}; DAGMan would refuse this{ran}: the rest is shown"
    return replace(problem, text=text, error=False)


def _is_no_dag(workflow: Workflow) -> bool:
    """Is there nothing in it that a DAG has, and no error that says why?"""
    return workflow.used and not workflow.nodes and not workflow.references


def _no_dag(dagdir: Path) -> str:
    try:
        lost = sorted(n for n in call_with_timeout(os.listdir, dagdir) if n.endswith(".dag"))
    except OSError:
        lost = []
    if lost:
        return f"{dagdir / lost[0]}: cannot be read: not a file, or a link to one that is gone"
    return (
        f"{dagdir}: no DAG file here; give the directory that holds the .dag file "
        "you gave to condor_submit_dag"
    )


def _with_subdags(
    dagdir: Path, workflow: Workflow, top: str | None, seen: set[str]
) -> Iterator[Dag]:
    key = named_in(dagdir, workflow.path)
    if key in seen:
        return
    seen.add(key)
    yield Dag(key, key, workflow, top)
    for subdag in workflow.subdags:
        if subdag is not None:
            yield from _with_subdags(dagdir, subdag, top or key, seen)


# --- logs ---------------------------------------------------------------------------------


def discover_logs(dagdir: Path, dags: list[Dag], sniffed: Sniffed | None = None) -> Discovery:
    """The event logs of these DAGs and of whatever else logged beside them. ``sniffed``: what
    was found out by an earlier look, which is kept up to date."""
    found = Discovery(dags)
    sniffed = {} if sniffed is None else sniffed
    seen: set[tuple[int, int]] = set()
    shared: list[str] = []
    named = _named_logs(dags)
    found.absent = {each for each, paths in named.items() if not paths}
    user = [(path, LogRole.USER, None) for paths in named.values() for path in paths]
    logs = [*_dagman_logs(dags), *user, *_logs_beside(dagdir, dags, named)]
    standing = call_all(os.stat, [path for path, _, _ in logs])
    for (path, role, dag), stands in zip(logs, standing, strict=True):
        try:
            status = stands()
            # One file under two names, by links of either kind, is one log.
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            is_log = _sniff(path, status, sniffed)
        except FsTimeout:
            # The others are to be found all the same.
            found.not_yet.append(path)
            continue
        except OSError as error:
            if not call_with_timeout(os.path.lexists, path):
                continue
            why = error.strerror or str(error)
            name = named_in(dagdir, path)
            found.not_yet.append(path)
            found.problems.append(
                Problem("unreadable", name, None, f"the log cannot be read: {why}", False)
            )
            continue
        if is_log:
            name = named_in(dagdir, path)
            found.logs.append(LogFile(path, name, role, dag))
            shared += [name] if _others_write(status) else []
        else:
            found.not_yet.append(path)
    if shared:
        found.problems.append(_written_by_others(shared))
    return found


def _sniff(path: Path, status: os.stat_result, sniffed: Sniffed) -> bool:
    """Is it an event log? It is opened only when it is not what it was. Raises OSError."""
    now = (status.st_ino, status.st_size, status.st_mtime_ns)
    before = sniffed.get(path)
    if before is None or before[0] != now:
        before = sniffed[path] = (now, is_event_log(path))
    return before[1]


def _others_write(status: os.stat_result) -> bool:
    """May others than its owner write this file? A group with the owner's own number is the
    owner's alone (Debian and Red Hat give each user one)."""
    of_group = status.st_mode & stat.S_IWGRP and status.st_gid != status.st_uid
    return bool(status.st_mode & stat.S_IWOTH or of_group)


def _written_by_others(names: list[str]) -> Problem:
    also = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    text = f"others than its owner may write this log{also}: what it tells is their word, too"
    return Problem("shared-log", names[0], None, text, False)


def _dagman_logs(dags: list[Dag]) -> Iterator[tuple[Path, LogRole, str | None]]:
    for dag in dags:
        path = dag.workflow.path
        yield path.with_name(f"{path.name}.dagman.log"), LogRole.DAGMAN, dag.key
        yield path.with_name(f"{path.name}.nodes.log"), LogRole.NODES, dag.key


def _named_logs(dags: list[Dag]) -> dict[tuple[Path, str], list[Path]]:
    """Logs that submit descriptions name (their nodes' DIR is in the name already): by the DAG
    file's folder and the name, the files."""
    wanted = {
        (dag.workflow.path.parent, log)
        for dag in dags
        for log in {node.log for node in dag.workflow.nodes.values()}
        if log
    }
    return {each: _places(*each) for each in sorted(wanted)}


def _places(folder: Path, log: str) -> list[Path]:
    """The files that a description's ``log`` means, from the first place that has any.

    A copied dagdir has none of the paths it was written for: beside the DAG comes before
    an absolute path, and after a relative one.
    """
    written = Path(log)
    beside = folder / written.name
    candidates = [beside, written] if written.is_absolute() else [folder / written, beside]
    for candidate in candidates:
        found = list(_per_job(candidate)) if "$(" in str(candidate) else [candidate]
        if any(call_with_timeout(os.path.exists, path) for path in found):
            return found
    return []


def _per_job(pattern: Path) -> Iterator[Path]:
    """``metl_$(Cluster).log``: the files there are."""
    if "$(" in str(pattern.parent):
        return
    parts = _JOB_MACRO.split(pattern.name)
    if any("$(" in part for part in parts):
        return
    matching = re.compile(r"\d+".join(re.escape(part) for part in parts))
    for name in _listing(pattern.parent):
        if matching.fullmatch(name):
            yield pattern.parent / name


def _logs_beside(
    dagdir: Path, dags: list[Dag], named: dict[tuple[Path, str], list[Path]]
) -> Iterator[tuple[Path, LogRole, str | None]]:
    """All logs in the dagdir and in directories below it that DAGs of ours lie in. Elsewhere a
    DAG makes no log ours but its own and those that its submit descriptions name."""
    expected = {PurePath(log).name for _, log in named}
    folders = {dagdir: None} | {dag.workflow.path.parent: None for dag in dags}
    for folder in folders:
        if folder != dagdir and not call_with_timeout(_leads, folder, dagdir):
            continue
        names = _listing(folder, _LOG, dagdir)
        current = expected.union(names)
        for name in names:
            path = folder / name
            if not name.endswith(".log"):
                if _is_older_part(name, current):
                    yield path, LogRole.USER, None
                continue
            for ending, role in ((".nodes.log", LogRole.NODES), (".dagman.log", LogRole.DAGMAN)):
                if name.endswith(ending):
                    yield path, role, named_in(dagdir, folder / name.removesuffix(ending))
                    break
            else:
                yield path, LogRole.USER, None

    yield from _older_parts_elsewhere(named, folders)


def _is_older_part(name: str, current: Collection[str]) -> bool:
    """DAGMan never rotates its own logs: it empties them."""
    log = current_name(name)
    return log != name and log in current and not log.endswith((".nodes.log", ".dagman.log"))


def _older_parts_elsewhere(
    named: dict[tuple[Path, str], list[Path]], listed: Collection[Path]
) -> Iterator[tuple[Path, LogRole, str | None]]:
    """Beside logs that descriptions name in other directories: one log for each job is never
    rotated."""
    elsewhere: dict[Path, set[str]] = {}
    for (_, log), paths in named.items():
        for path in paths:
            if "$(" not in log and path.parent not in listed:
                elsewhere.setdefault(path.parent, set()).add(path.name)
    for folder, current in islice(elsewhere.items(), MOST_FOLDERS):
        for name in _listing(folder, _OLDER, folder):
            if _is_older_part(name, current):
                yield folder / name, LogRole.USER, None


def is_event_log(path: Path) -> bool:
    """Do the first bytes of this regular file hold an event? Raises OSError."""
    return call_with_timeout(_begins_event, path)


def _begins_event(path: Path) -> bool:
    handle, status = _opened(path)
    with open(handle, "rb") as file:
        return looks_like_event_log(file.read(SNIFF) if status.st_size else b"")
