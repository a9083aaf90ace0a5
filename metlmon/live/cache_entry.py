"""Stores a reader's state in the cache, for the next reader of the same dagdir.

An entry is valid only for the same code, dagdir and settings, and only while every log in it is
unchanged up to the read offset: same inode, not shorter, same bytes (:func:`mark_of`). Otherwise
everything is read again. Appended data is read from the offset; DAG files and DAGMan's small
files are always read.

A file of more than :data:`MAX_FULL_COMPARE` bytes is compared by samples. A change in a file that
has also grown, which preserves the inode and all samples, goes unnoticed: no program that writes
logs makes one, and an editor writes another file or moves the bytes that follow.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, replace
from functools import cache
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from metlmon.dagman import OutState, Problem
from metlmon.eventlog import LogFormat, Position
from metlmon.frozen import frozen
from metlmon.live.cache import STARTED, Cache, CacheKey, CacheMiss
from metlmon.live.cached_workflows import Workflows, workflows_of
from metlmon.live.dagman_files import DagmanFiles
from metlmon.live.follower import FINGERPRINT, Follower
from metlmon.model.dag import Dag
from metlmon.model.dump_dag import dump_dag, judged_by_jobs, load_dag
from metlmon.model.ensemble import Ensemble, Place
from metlmon.snapshot.dump_totals import dump_totals, follows, load_totals, places

if TYPE_CHECKING:
    from metlmon.live.dagdir_reader import LogReader

MAX_FULL_COMPARE: Final = 4 << 20
"""Bytes up to which a file is compared completely, in some milliseconds."""

SAMPLES: Final = 64
SAMPLE: Final = 4096
"""Number of samples of a larger file, including both ends, and their bytes: a slow file system
reads them in a tenth of a second."""

CODE: Final = (".", "config", "dagman", "eventlog", "live", "model", "snapshot", "text")
"""The packages that determine how logs are interpreted."""


@frozen
class FileMark:
    """Identifies a file of which ``offset`` bytes have been read.

    ``start``: its first bytes, as compared by a follower; not stored, since they may contain
    anything, but read again.
    """

    path: str
    offset: int
    inode: int
    size: int
    mtime: int
    digest: bytes
    start: bytes

    def holds(self) -> FileMark | None:
        """Return the current mark, if the file is unchanged up to the offset."""
        try:
            now = mark_of(Path(self.path), self.offset)
        except OSError:
            return None
        if now is None or (now.inode, now.digest) != (self.inode, self.digest):
            return None
        # Written but not longer: it was changed somewhere.
        unchanged = now.size > self.size or (now.size, now.mtime) == (self.size, self.mtime)
        return now if unchanged else None


def mark_of(path: Path, offset: int) -> FileMark | None:
    """Return the mark of a file of which ``offset`` bytes have been read.

    None if it is no regular file, or shorter. Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size < offset:
            return None
        digest = blake2b(digest_size=16)
        for start_offset, length in _sampled_ranges(offset):
            digest.update(os.pread(descriptor, length, start_offset))
        start = os.pread(descriptor, min(FINGERPRINT, offset), 0)
        return FileMark(
            os.path.realpath(path),
            offset,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            digest.digest(),
            start,
        )
    finally:
        os.close(descriptor)


def _sampled_ranges(offset: int) -> list[tuple[int, int]]:
    if offset <= MAX_FULL_COMPARE:
        return [(0, offset)]
    last = offset - SAMPLE
    return [(last * i // (SAMPLES - 1), SAMPLE) for i in range(SAMPLES)]


@cache
def code() -> str | None:
    """Return a digest of this code: an entry is valid for one version only.

    None if the code was replaced while running, or is not in files.
    """
    digest = blake2b(digest_size=16)
    digest.update(repr(sys.version_info[:2]).encode())
    package_root = Path(__file__).parents[1]
    files = [path for package in CODE for path in sorted((package_root / package).glob("*.py"))]
    try:
        for path in files:
            if path.stat().st_ctime > STARTED:
                return None
            digest.update(path.read_bytes())
    except OSError:
        return None
    return digest.hexdigest() if files else None


@frozen
class CacheWrite:
    """A snapshot of the state, to be written to the cache later."""

    cache: Cache
    entry: CacheKey
    records: Iterator[Any]

    def write(self) -> bool:
        """Write the entry; return False if that fails, which needs no report."""
        return self.cache.write(self.entry.name, self.records)


def keep_workflows(cache: Cache, entry: CacheKey, workflows: Workflows) -> CacheWrite | None:
    """Return the cache entry of the workflows."""
    version = code()
    if version is None:
        return None
    return CacheWrite(cache, entry, chain([(version, entry.key)], workflows.records()))


def recalled_workflows(cache: Cache, entry: CacheKey) -> Workflows:
    """Load the cached workflows. Raises any exception if there are none."""
    records = cache.records(entry.name)
    if next(records) != (code(), entry.key):
        raise CacheMiss("of other code, or of another dagdir")
    return workflows_of(records)


def keep(
    cache: Cache,
    entry: CacheKey,
    ensemble: Ensemble,
    logs: Iterable[LogReader],
    files: Iterable[DagmanFiles],
    workflows: bytes | None = None,
) -> CacheWrite | None:
    """Return the cache entry of the current state, unaffected by later changes.

    None if the bytes from which it was read cannot be identified. ``workflows``: digest of the
    DAG files; without it, the totals and node states are not stored.
    """
    version = code()
    log_states = [_dump_log(log) for log in logs if log.position.offset]
    if version is None or None in log_states:
        return None
    dagman_states = {
        dagman.key: _dump_dagman_files(dagman, ensemble.dags[dagman.key]) for dagman in files
    }
    header = {"code": version, "key": entry.key, "logs": log_states, "dags": dagman_states}
    dag_records = [
        (key, dump_dag(ensemble.dags[key]))
        for key, state in dagman_states.items()
        if state is not None
    ]
    totals = dump_totals(ensemble, workflows) if workflows is not None else None
    return CacheWrite(cache, entry, _records(header, dag_records, ensemble.kept(), totals or ()))


def _records(
    header: dict[str, Any],
    dag_records: list[tuple[str, Iterator[Any]]],
    log_records: Iterable[Any],
    totals: Iterable[Any],
) -> Iterator[Any]:
    yield header
    for key, records in dag_records:
        for record in records:
            yield key, record
    for record in log_records:
        yield None, record
    for record in totals:
        yield _TOTALS_KEY, record
    yield _END_MARK


def _dump_log(reader: LogReader) -> dict[str, Any] | None:
    """Return the identity and read position of a log."""
    log, mark = reader.log, _dump_mark(reader.follower)
    if mark is None:
        return None
    offset, line, form, year, last = astuple(reader.position)
    return {
        "log": (log.name, log.role.value, log.dag),
        "mark": mark,
        "position": (offset, line, form and form.value, year, last),
        "year": reader.year,
    }


def _dump_mark(follower: Follower) -> tuple[Any, ...] | None:
    """Return the mark of a followed file; None if it has been replaced since."""
    try:
        mark = mark_of(follower.path, follower.offset)
    except OSError:
        return None
    if mark is None or not follower.follows(mark.inode, mark.start):
        return None
    return astuple(replace(mark, start=b""))


def _dump_dagman_files(files: DagmanFiles, dag: Dag) -> dict[str, Any] | None:
    """Return the read positions of a DAG's growing files; None if not identifiable."""
    marks = [_dump_mark(follower) if follower.offset else () for follower in files.growing]
    if None in marks or files.misinterpreted:
        return None
    out, line, problems = files.standing()
    return {
        "marks": marks,
        "judged": _job_states_digest(dag),
        "out": astuple(out),
        "line": line,
        "problems": [astuple(problem) for problem in problems],
    }


def _job_states_digest(dag: Dag) -> bytes:
    names = "\n".join(sorted(judged_by_jobs(dag.workflow)))
    return blake2b(names.encode("utf-8", "surrogateescape"), digest_size=16).digest()


_TOTALS_KEY: Final = ("reckoned",)
"""Key of records with totals; keys of DAGs are strings."""

_END_MARK: Final = "all"
"""The last record; without it the entry is incomplete."""


class CachedState:
    """A valid entry, to be loaded into a reader that has read nothing yet."""

    def __init__(self, cache: Cache, entry: CacheKey, ensemble: Ensemble) -> None:
        """Load the entry's log records into ``ensemble``.

        Raises any exception if the entry is absent, outdated or malformed; ``ensemble`` is then
        partly filled and must be discarded.
        """
        records = cache.records(entry.name)
        header = next(records)
        if header["code"] != code() or header["key"] != entry.key:
            raise CacheMiss("of other code, or of another dagdir")
        self._places = {log_state["log"]: log_state for log_state in header["logs"]}
        self._marks = {
            log_state["log"]: FileMark(*log_state["mark"]).holds() for log_state in header["logs"]
        }
        if None in self._marks.values():
            raise CacheMiss("its logs have changed")
        self._dags = header["dags"]
        self._dag_records: dict[str, list[Any]] = {}
        self._total_records: list[Any] = []
        self._restored_dags: set[str] = set()
        ensemble.restore(self._log_records(records))
        known = {name for name, _, _ in self._places}
        if next(records, None) is not None or any(
            stats.events and stats.file not in known for stats in ensemble.log_stats.values()
        ):
            raise CacheMiss("it holds more than there is a use for")

    def _log_records(self, records: Iterator[Any]) -> Iterator[Any]:
        """Yield the records of logs; collect those of DAGs before and totals after them."""
        for record in records:
            if record == _END_MARK:
                return
            key, content = record
            if key is None:
                yield content
            elif key == _TOTALS_KEY:
                self._total_records.append(content)
            else:
                self._dag_records.setdefault(key, []).append(content)
        raise CacheMiss("it is not whole")

    @property
    def complete(self) -> bool:
        """Whether all logs of the entry have been resumed."""
        return not self._places

    def resume(self, reader: LogReader) -> None:
        """Resume a log at its cached position; a new log is read from its beginning."""
        log = reader.log
        log_state = self._places.get((log.name, log.role.value, log.dag))
        if log_state is None:
            return
        mark = self._marks[log_state["log"]]
        if mark is not None and mark.path == os.path.realpath(log.path):
            offset, line, form, year, last = log_state["position"]
            position = Position(offset, line, form and LogFormat(form), year, last)
            reader.resume(position, log_state["year"], mark.inode, mark.start)
            del self._places[log_state["log"]]

    def restore_dagman_files(self, files: DagmanFiles, dag: Dag) -> None:
        """Resume a DAG's growing files if unchanged, else leave them to be read again."""
        state = self._dags.get(dag.key)
        if state is None or state["judged"] != _job_states_digest(dag):
            return
        if len(state["marks"]) != len(files.growing):
            return
        marks: list[FileMark | None] = []
        for dumped, follower in zip(state["marks"], files.growing, strict=True):
            mark = FileMark(*dumped) if dumped else None
            if mark is not None:
                unchanged = mark.path == os.path.realpath(follower.path)
                mark = mark.holds() if unchanged else None
                if mark is None:
                    return
            marks.append(mark)
        load_dag(dag, self._dag_records[dag.key])
        self._restored_dags.add(dag.key)
        out = OutState(*state["out"])
        files.resume(out, state["line"], [Problem(*problem) for problem in state["problems"]])
        for mark, follower in zip(marks, files.growing, strict=True):
            if mark is not None:
                follower.resume(mark.offset, mark.inode, mark.start)

    def places(
        self, ensemble: Ensemble, dags: Sequence[Dag], workflows: bytes
    ) -> list[Place] | None:
        """Return the attribution of jobs; None, and drop the totals, if outdated."""
        complete = self._restored_dags == {dag.key for dag in dags}
        if not complete or not follows(ensemble, dags, workflows, self._total_records):
            self._total_records = []
            return None
        return places(ensemble, self._total_records)

    def _drain_totals(self) -> Iterator[Any]:
        """Yield the records of totals, removing each so that it can be freed."""
        self._total_records.reverse()
        while self._total_records:
            yield self._total_records.pop()

    def restore_totals(self, ensemble: Ensemble) -> None:
        """Restore the totals and node states, if stored."""
        if not self._total_records:
            return
        try:
            load_totals(ensemble, self._drain_totals())
        except Exception:
            # An invalid record counts as none.
            ensemble.reckon_anew()
