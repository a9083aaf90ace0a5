"""Request files for a run's gate, stored beside the DAG file by the run's uuid.

The gate (``gate.py`` beside the DAG) checks for them before each node of the run; its header
describes the formats. Files are written atomically, and symbolic links are not followed, neither
for a file nor for the directories between it and the DAG file's own.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Final

from metlmon.jobfiles.gate_files import LONGEST, read_placement, read_stopped
from metlmon.live.feed import Feed
from metlmon.live.file_access import (
    UnreadableFile,
    draft_name,
    read_file_end,
    remove_stale_drafts,
)
from metlmon.pool.exclusion import can_exclude, matches_site_list
from metlmon.pool.protocol import SITE
from metlmon.pool.types import (
    AS_THE_DAG_SAYS,
    EXCLUDE_ACTS,
    ActionRequest,
    ActionResult,
    DagTarget,
    PoolAction,
    ResultCode,
    RunTarget,
    Target,
)
from metlmon.redact import redact_secrets
from metlmon.text.formatting import joined, plain, site_list

FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")
"""Uuids and node names that can be part of a file name."""

NO_GATE: Final = "needs metlmon's gate (this DAG was not written by metlmon)"
NO_RETRY: Final = (
    "DAGMan has no retry left for its node, which would fail, and with it all that comes after"
)

STOP_TAKEN: Final = "the gate has met it: metlmon continue resumes from the checkpoint"

ONE_SITE: Final = "its submit file takes one site: its requirements were changed"

NO_SITE: Final = "a site's name is one line without quotes, $ and backslash"

_EXCLUDED: Final = re.compile(r"metlmon_excluded[ \t]*=[ \t]*([^\r\n]*)")


def site_of(text: str) -> str | None:
    """The site name in user input, or None if it is not valid.

    Site names go into a submit file, on one line and in quotes.
    """
    site = text.strip()
    return site if SITE.fullmatch(site) and site.isprintable() else None


def request_file(dag: str, uuid: str, kind: str) -> str:
    """The request file relative to the DAG file: ``gate/ens/<uuid>.stop``."""
    return str(PurePath("gate", PurePath(dag).name.removesuffix(".dag"), f"{uuid}.{kind}"))


def gate_rules(dag: str) -> str:
    """The name of the DAG's gate configuration, beside the DAG file."""
    return f"{PurePath(dag).name.removesuffix('.dag')}.gate.json"


def placement_file(dag: str, node: str) -> str:
    """The file with the site of a node, relative to the directory of the DAG file."""
    return f"placement/{PurePath(dag).name.removesuffix('.dag')}/{node}.inc"


def placement_line(site: str) -> bytes:
    """The content of a placement file."""
    return f"ResourceName = {site}\n".encode()


def exclusion_file(dag: str) -> str:
    """The file with a DAG's excluded places, relative to the directory of its DAG file."""
    return f"placement/{PurePath(dag).name.removesuffix('.dag')}.excluded"


def author_line() -> bytes:
    """The line of a stop file with the user, which the gate reports as the reason."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = f"user {os.geteuid()}"
    return f"by {plain(name, 60)} with metlmon\n".encode("ascii", "backslashreplace")


def time_line(seconds: float | None = None) -> bytes:
    """The line of a request with its time in UTC; copies may lose the file's own time."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ\n", time.gmtime(seconds)).encode()


class NoFile(OSError):
    """Something other than a regular file has the file's name."""


@contextmanager
def open_directory(directory: Path, parts: tuple[str, ...], make: bool = False) -> Iterator[int]:
    """Open the directory ``parts`` below ``directory`` (a DAG file's own); yield a descriptor.

    With ``make``, missing directories are created with the group and permissions of their parent,
    since DAGMan's user writes into them, too. Raises OSError.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    descriptor = os.open(directory, flags)
    try:
        for part in parts:
            created = make and _make_directory(descriptor, part)
            child = os.open(part, flags | os.O_NOFOLLOW, dir_fd=descriptor)
            if created:
                _copy_permissions(child, os.fstat(descriptor))
            os.close(descriptor)
            descriptor = child
        yield descriptor
    finally:
        os.close(descriptor)


def _make_directory(parent: int, name: str) -> bool:
    """Create a directory; return False if it exists."""
    try:
        os.mkdir(name, 0o777, dir_fd=parent)
    except FileExistsError:
        return False
    return True


def _copy_permissions(descriptor: int, parent: os.stat_result) -> None:
    """Copy group and permissions (as root, also the owner) from the parent."""
    owner = parent.st_uid if os.geteuid() == 0 else -1
    with suppress(OSError):
        os.fchown(descriptor, owner, parent.st_gid)
    with suppress(OSError):
        os.fchmod(descriptor, (parent.st_mode & 0o2777) | stat.S_IRWXU)


def _split(file: str) -> tuple[tuple[str, ...], str]:
    """The directories and the name of a relative path."""
    *parents, name = PurePath(file).parts
    return tuple(parents), name


def write_file(directory: Path, file: str, content: bytes, *, keep: bool = False) -> bool:
    """Write a file; return False if unchanged, or kept by ``keep``. Raises OSError."""
    parents, name = _split(file)
    with open_directory(directory, parents, make=True) as parent:
        if _exists(parent, name) and (keep or _read(parent, name) == content):
            return False
        with _draft(parent, name, content) as draft:
            os.replace(draft, name, src_dir_fd=parent, dst_dir_fd=parent)
    return True


def delete_file(directory: Path, file: str) -> bool:
    """Delete a file; return False if it does not exist. Raises OSError."""
    parents, name = _split(file)
    try:
        with open_directory(directory, parents) as parent:
            if not _exists(parent, name):
                return False
            os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return False
    return True


def check_writable(directory: Path, file: str) -> None:
    """Raise OSError if ``file`` or its directories cannot be created or deleted."""
    parents, name = _split(file)
    for depth in range(len(parents), -1, -1):
        try:
            with open_directory(directory, parents[:depth]) as parent:
                if depth == len(parents):
                    _exists(parent, name)
                if not os.access(".", os.W_OK | os.X_OK, dir_fd=parent):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
                return
        except FileNotFoundError:
            if not depth:
                raise


def read_file(directory: Path, file: str) -> bytes | None:
    """A file's content up to a size limit; None if missing. Raises OSError."""
    parents, name = _split(file)
    try:
        with open_directory(directory, parents) as parent:
            return _read(parent, name) if _exists(parent, name) else None
    except FileNotFoundError:
        return None


def stop_reason(directory: Path, file: str) -> str | None:
    """The gate's reason for a stop: "" not given, None not stopped. Raises OSError."""
    content = read_file(directory, file)
    if content is None:
        return None
    stopped = read_stopped(content)
    return "" if stopped is None else stopped.reason


def _exists(parent: int, name: str) -> bool:
    """Whether the file exists. Raises NoFile if it is not a regular file."""
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(mode):
        raise NoFile(errno.EINVAL, "it is not a regular file: delete it yourself")
    return True


def _read(parent: int, name: str) -> bytes:
    """The file's content, up to a size limit."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with open(os.open(name, flags, dir_fd=parent), "rb") as stream:
        return stream.read(LONGEST)


@contextmanager
def _draft(parent: int, name: str, content: bytes) -> Iterator[str]:
    """The name of a synced temporary file with this content, removed afterwards."""
    remove_stale_drafts(parent, [name])
    draft = draft_name(name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    draft_descriptor = os.open(draft, flags, 0o644, dir_fd=parent)
    try:
        with open(draft_descriptor, "wb") as stream:
            # Override the umask: the gate runs as DAGMan's user, which may differ from ours.
            os.fchmod(draft_descriptor, 0o644)
            stream.write(content)
            stream.flush()
            os.fsync(draft_descriptor)
        yield draft
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=parent)


# --- actions -----------------------------------------------------------------------------


def change_requests(feed: Feed, request: ActionRequest, run: RunTarget) -> ActionResult:
    """Write or delete the run's request files for this action."""
    directory = (feed.dagdir / run.dag).parent
    if run.uuid is None or not FILE_NAME.fullmatch(run.uuid):
        return ActionResult(
            run.id, ResultCode.NOT_FOUND, "it has no run_uuid that could name a file"
        )
    rules = gate_rules(run.dag)
    try:
        if read_file(directory, rules) is None:
            return ActionResult(run.id, ResultCode.NOT_FOUND, f"{NO_GATE}: {rules} is not there")
        reason = stop_reason(directory, request_file(run.dag, run.uuid, "stopped"))
    except OSError as error:
        return file_error(run.id, "the files of its gate cannot be read", error)
    if reason is not None:
        text = redact_secrets("it was stopped before" + (f": {reason}" if reason else ""))
        is_stop = request.act in (PoolAction.STOP, PoolAction.STOP_NOW)
        return ActionResult(run.id, ResultCode.ALREADY if is_stop else ResultCode.BAD_STATE, text)
    sites = site_list(request.site or "")
    if len(sites) > 1 and not takes_site_lists(feed, run.uuid):
        return ActionResult(run.id, ResultCode.BAD_STATE, ONE_SITE)
    if request.act is PoolAction.STOP_NOW and run.jobs and _has_no_retry(feed, run):
        return ActionResult(run.id, ResultCode.BAD_STATE, NO_RETRY)
    content: bytes | None = author_line() + time_line()
    if request.act is PoolAction.SEND:
        content = f"{(request.site or '').strip()}\n".encode()
    if request.act is PoolAction.RESUME_RUN or request.site == AS_THE_DAG_SAYS:
        content = None
    keep = request.act is not PoolAction.SEND
    results = [
        change_file(run.id, directory, file, content, keep=keep, dry=request.dry)
        for file in run.files
    ]
    failed = [each for each in results if not each.succeeded]
    if failed or request.dry:
        return (failed or results)[0]
    if request.act is PoolAction.RESUME_RUN and _is_stopped(directory, run, run.uuid):
        return ActionResult(run.id, ResultCode.BAD_STATE, f"too late: {STOP_TAKEN}")
    done = [result for result in results if result.reply is ResultCode.DONE]
    text = "; ".join(result.text for result in done or results)
    return ActionResult(run.id, ResultCode.DONE if done else ResultCode.ALREADY, text)


def _is_stopped(directory: Path, run: RunTarget, uuid: str) -> bool:
    """Whether a readable file shows that the gate has stopped the run by now."""
    with suppress(OSError):
        return read_file(directory, request_file(run.dag, uuid, "stopped")) is not None
    return False


def takes_site_lists(feed: Feed, run: str) -> bool:
    """Whether the run's submit file takes lists of sites. Not for the UI thread."""
    file = submit_file(feed, run)
    try:
        text = read_file_end(str(feed.dagdir / file), LONGEST) if file is not None else ""
    except UnreadableFile:
        return False
    return matches_site_list(text)


def submit_file(feed: Feed, run: str) -> str | None:
    """The submit file of the run's last epoch, relative to the dagdir; None if not a file."""
    view = feed.run_view(run)
    epochs = view.epochs if view is not None else ()
    node = feed.node_row(epochs[-1].node_key) if epochs else None
    if node is None or node.submit is None:
        return None
    file = PurePath(node.dag).parent / node.submit
    return str(file) if (feed.dagdir / file).is_file() else None


def placed_sites(feed: Feed, dag: str, node: str) -> str | None:
    """The site or list of sites in a node's placement file, None without one."""
    try:
        content = read_file((feed.dagdir / dag).parent, placement_file(dag, node))
    except OSError:
        return None
    return None if content is None else read_placement(content)


def append_line(directory: Path, file: str, line: bytes) -> None:
    """Append a line to a file, which is created with its directories. Raises OSError."""
    parents, name = _split(file)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open_directory(directory, parents, make=True) as parent:
        _exists(parent, name)
        with open(os.open(name, flags, 0o644, dir_fd=parent), "ab") as stream:
            stream.write(line + b"\n")


def _has_no_retry(feed: Feed, run: RunTarget) -> bool:
    """Whether the node would fail if its job is removed, as far as is known."""
    rows = feed.latest.status.runs if feed.latest is not None else ()
    return any(row.retries_left == 0 for row in rows if row.uuid == run.uuid)


def change_file(
    subject: str,
    directory: Path,
    file: str,
    content: bytes | None,
    *,
    keep: bool = False,
    dry: bool = False,
) -> ActionResult:
    """Write a file, or delete it (``content`` None); ``dry``: only check if that is possible."""
    verb = "deleted" if content is None else "written"
    try:
        if dry:
            check_writable(directory, file)
            return ActionResult(subject, ResultCode.DONE)
        if content is None:
            changed = delete_file(directory, file)
        else:
            changed = write_file(directory, file, content, keep=keep)
    except OSError as error:
        return file_error(subject, f"{file} cannot be {verb}", error)
    if changed:
        return ActionResult(subject, ResultCode.DONE, f"{file} was {verb}")
    state = "is not there" if content is None else "is there" if keep else "says so"
    return ActionResult(subject, ResultCode.ALREADY, f"{file} {state}")


def excluded_places(directory: Path, file: str) -> tuple[str, ...]:
    """The sites and hosts in an exclusion file. Raises OSError."""
    content = read_file(directory, file) or b""
    match = _EXCLUDED.match(content.decode("utf-8", "replace"))
    return tuple(filter(can_exclude, site_list(match[1]))) if match else ()


def change_exclusion(feed: Feed, request: ActionRequest, target: DagTarget) -> ActionResult:
    """Add or remove a site or host in the file that the DAG's submit files include."""
    directory, site = (feed.dagdir / target.dag).parent, request.site or ""
    exclude = request.act in EXCLUDE_ACTS
    try:
        sites = excluded_places(directory, target.file)
    except OSError as error:
        return file_error(target.id, f"{target.file} cannot be read", error)
    others = [name for name in sites if name.casefold() != site.casefold()]
    if (len(others) < len(sites)) is exclude:
        state = "says so" if exclude else "does not name it"
        return ActionResult(target.id, ResultCode.ALREADY, f"{target.file} {state}")
    remaining = [*others, *[site] * exclude]
    content = f"metlmon_excluded = {joined(remaining)}\n".encode() if remaining else None
    return change_file(target.id, directory, target.file, content, dry=request.dry)


def write_placement(feed: Feed, target: Target, site: str) -> str:
    """Write the placement file, so that a retry of the job's node uses the site too.

    Returns text to append to the result. If the whole run is sent elsewhere, its gate overwrites
    the file at the retry.
    """
    if target.file is None or target.dag is None:
        return "; a retry goes where the DAG file says"
    directory = (feed.dagdir / target.dag).parent
    try:
        write_file(directory, target.file, placement_line(site))
    except OSError as error:
        message = error.strerror or str(error)
        return (
            f"; {target.file} cannot be written ({message}): a retry goes where the DAG file says"
        )
    return f"; {target.file} was written"


def file_error(subject: str, text: str, error: OSError) -> ActionResult:
    """The result for an error of the file system."""
    code = ResultCode.DENIED if isinstance(error, PermissionError) else ResultCode.FAILED
    return ActionResult(subject, code, f"{text}: {error.strerror or error}")
