"""What a reader has learnt, kept in the user's cache for the next one of the same dagdir.

An entry is used only by the same code, for the same dagdir and settings, and only while every
log in it is still what it was, as far as it was read: the same file (by inode), no shorter, and
the same bytes (:func:`mark_of`). Otherwise all is read anew. What has been appended since is
read on from there, and DAG files and DAGMan's small files are always read.

A file of more than :data:`WHOLLY` bytes is compared by samples. A change that keeps the inode
and each byte of the samples, in a file that is longer than before as well, goes unnoticed: no
program that writes logs does that, and an editor writes another file, or moves the bytes that
follow.
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

WHOLLY: Final = 4 << 20
"""Bytes: up to these a file is compared whole, in some milliseconds."""

SAMPLES: Final = 64
SAMPLE: Final = 4096
"""Of a larger file its beginning, its end, and so many pieces between them are compared: few
enough that a slow file system has them in a tenth of a second."""

CODE: Final = (".", "config", "dagman", "eventlog", "live", "model", "snapshot", "text")
"""The packages that decide what is made of a log's bytes."""


@frozen
class FileMark:
    """How a file was known when ``offset`` bytes of it had been read. ``start``: its first
    bytes, as a follower compares them; they are not kept, since they may hold anything, and
    are read again."""

    path: str
    offset: int
    inode: int
    size: int
    mtime: int
    digest: bytes
    start: bytes

    def holds(self) -> FileMark | None:
        """The file as it is now, if it is still that one, as far as it was read; else None."""
        try:
            now = mark_of(Path(self.path), self.offset)
        except OSError:
            return None
        if now is None or (now.inode, now.digest) != (self.inode, self.digest):
            return None
        # Written without having grown: it was changed somewhere.
        same = now.size > self.size or (now.size, now.mtime) == (self.size, self.mtime)
        return now if same else None


def mark_of(path: Path, offset: int) -> FileMark | None:
    """The mark of a file of which ``offset`` bytes have been read; None when it is no regular
    file, or shorter. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size < offset:
            return None
        digest = blake2b(digest_size=16)
        for at, length in _samples(offset):
            digest.update(os.pread(handle, length, at))
        start = os.pread(handle, min(FINGERPRINT, offset), 0)
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
        os.close(handle)


def _samples(offset: int) -> list[tuple[int, int]]:
    if offset <= WHOLLY:
        return [(0, offset)]
    last = offset - SAMPLE
    return [(last * i // (SAMPLES - 1), SAMPLE) for i in range(SAMPLES)]


@cache
def code() -> str | None:
    """What tells this code from any other: what one version learnt is nothing to another. None
    when it has been replaced while it ran, or lies in no files."""
    digest = blake2b(digest_size=16)
    digest.update(repr(sys.version_info[:2]).encode())
    here = Path(__file__).parents[1]
    files = [path for package in CODE for path in sorted((here / package).glob("*.py"))]
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
    """What had been learnt at one moment, to be written when nobody waits."""

    cache: Cache
    entry: CacheKey
    records: Iterator[Any]

    def write(self) -> bool:
        """False when that cannot be done; nobody need be told."""
        return self.cache.write(self.entry.name, self.records)


def keep_workflows(cache: Cache, entry: CacheKey, workflows: Workflows) -> CacheWrite | None:
    """What was woven from the DAG files."""
    version = code()
    if version is None:
        return None
    return CacheWrite(cache, entry, chain([(version, entry.key)], workflows.records()))


def recalled_workflows(cache: Cache, entry: CacheKey) -> Workflows:
    """Raises whatever comes first when there are none."""
    records = cache.records(entry.name)
    if next(records) != (code(), entry.key):
        raise CacheMiss("of other code, or of another dagdir")
    return workflows_of(records)


def keep(
    cache: Cache,
    entry: CacheKey,
    ensemble: Ensemble,
    logs: Iterable[LogReader],
    facts: Iterable[DagmanFiles],
    workflows: bytes | None = None,
) -> CacheWrite | None:
    """What these have learnt, as plain data; what they learn later is not in it. None when it
    cannot be said of which bytes it was learnt. ``workflows`` tells the DAG files from all others:
    without it, what jobs and nodes came to is not kept."""
    version = code()
    places = [_place(log) for log in logs if log.position.offset]
    if version is None or None in places:
        return None
    words = {each.key: _words(each, ensemble.dags[each.key]) for each in facts}
    header = {"code": version, "key": entry.key, "logs": places, "dags": words}
    said = [(key, dump_dag(ensemble.dags[key])) for key, told in words.items() if told is not None]
    came_to = dump_totals(ensemble, workflows) if workflows is not None else None
    return CacheWrite(cache, entry, _records(header, said, ensemble.kept(), came_to or ()))


def _records(
    header: dict[str, Any],
    said: list[tuple[str, Iterator[Any]]],
    learnt: Iterable[Any],
    came_to: Iterable[Any],
) -> Iterator[Any]:
    yield header
    for key, records in said:
        for record in records:
            yield key, record
    for record in learnt:
        yield None, record
    for record in came_to:
        yield _RECKONED, record
    yield _LAST


def _place(reader: LogReader) -> dict[str, Any] | None:
    """Which log it is, and where reading stands in it."""
    log, mark = reader.log, _mark(reader.follower)
    if mark is None:
        return None
    offset, line, form, year, last = astuple(reader.position)
    return {
        "log": (log.name, log.role.value, log.dag),
        "mark": mark,
        "position": (offset, line, form and form.value, year, last),
        "year": reader.year,
    }


def _mark(follower: Follower) -> tuple[Any, ...] | None:
    """Of the file that was read: another may be in its place since it was looked at."""
    try:
        mark = mark_of(follower.path, follower.offset)
    except OSError:
        return None
    if mark is None or not follower.follows(mark.inode, mark.start):
        return None
    return astuple(replace(mark, start=b""))


def _words(facts: DagmanFiles, dag: Dag) -> dict[str, Any] | None:
    """Where reading stands in the growing files of one DAGMan; None when that cannot be said."""
    marks = [_mark(each) if each.offset else () for each in facts.growing]
    if None in marks or facts.misjudged:
        return None
    out, line, problems = facts.standing()
    return {
        "marks": marks,
        "judged": _judged(dag),
        "out": astuple(out),
        "line": line,
        "problems": [astuple(problem) for problem in problems],
    }


def _judged(dag: Dag) -> bytes:
    names = "\n".join(sorted(judged_by_jobs(dag.workflow)))
    return blake2b(names.encode("utf-8", "surrogateescape"), digest_size=16).digest()


_RECKONED: Final = ("reckoned",)
"""Beside the keys of DAGs, which are texts."""

_LAST: Final = "all"
"""Behind all others: without it something is missing."""


class CachedState:
    """An entry that holds, on its way to a reader that has read nothing yet."""

    def __init__(self, cache: Cache, entry: CacheKey, ensemble: Ensemble) -> None:
        """Raises whatever comes first when there is none, or it does not hold, or is not what
        it should be; ``ensemble``, which is given what the logs had told, is then spoilt."""
        records = cache.records(entry.name)
        header = next(records)
        if header["code"] != code() or header["key"] != entry.key:
            raise CacheMiss("of other code, or of another dagdir")
        self._places = {place["log"]: place for place in header["logs"]}
        self._marks = {place["log"]: FileMark(*place["mark"]).holds() for place in header["logs"]}
        if None in self._marks.values():
            raise CacheMiss("its logs have changed")
        self._dags = header["dags"]
        self._heard: dict[str, list[Any]] = {}
        self._reckoned: list[Any] = []
        self._told: set[str] = set()
        ensemble.restore(self._learnt(records))
        known = {name for name, _, _ in self._places}
        if next(records, None) is not None or any(
            book.events and book.file not in known for book in ensemble.books.values()
        ):
            raise CacheMiss("it holds more than there is a use for")

    def _learnt(self, records: Iterator[Any]) -> Iterator[Any]:
        """What the logs had told; what the DAGs had heard stands before it, what all of it came
        to behind it."""
        for record in records:
            if record == _LAST:
                return
            key, content = record
            if key is None:
                yield content
            elif key == _RECKONED:
                self._reckoned.append(content)
            else:
                self._heard.setdefault(key, []).append(content)
        raise CacheMiss("it is not whole")

    @property
    def complete(self) -> bool:
        """Have all logs gone on that it was learnt from?"""
        return not self._places

    def resume(self, reader: LogReader) -> None:
        """Let a log go on where it was left. One that is new is read from its beginning."""
        log = reader.log
        place = self._places.get((log.name, log.role.value, log.dag))
        if place is None:
            return
        mark = self._marks[place["log"]]
        if mark is not None and mark.path == os.path.realpath(log.path):
            offset, line, form, year, last = place["position"]
            position = Position(offset, line, form and LogFormat(form), year, last)
            reader.resume(position, place["year"], mark.inode, mark.start)
            del self._places[place["log"]]

    def tell(self, facts: DagmanFiles, dag: Dag) -> None:
        """Let a DAGMan's growing files go on where they were left, where they are still what
        they were; else they are read from their beginning."""
        told = self._dags.get(dag.key)
        if told is None or told["judged"] != _judged(dag):
            return
        if len(told["marks"]) != len(facts.growing):
            return
        marks: list[FileMark | None] = []
        for plain, follower in zip(told["marks"], facts.growing, strict=True):
            mark = FileMark(*plain) if plain else None
            if mark is not None:
                same = mark.path == os.path.realpath(follower.path)
                mark = mark.holds() if same else None
                if mark is None:
                    return
            marks.append(mark)
        load_dag(dag, self._heard[dag.key])
        self._told.add(dag.key)
        out = OutState(*told["out"])
        facts.resume(out, told["line"], [Problem(*problem) for problem in told["problems"]])
        for mark, follower in zip(marks, facts.growing, strict=True):
            if mark is not None:
                follower.resume(mark.offset, mark.inode, mark.start)

    def places(
        self, ensemble: Ensemble, dags: Sequence[Dag], workflows: bytes
    ) -> list[Place] | None:
        """Where each job belongs, where that still follows from what is known; None where not,
        and then what jobs and nodes came to does not either."""
        told = self._told == {dag.key for dag in dags}
        if not told or not follows(ensemble, dags, workflows, self._reckoned):
            self._reckoned = []
            return None
        return places(ensemble, self._reckoned)

    def _given_away(self) -> Iterator[Any]:
        """What jobs and nodes came to; who takes it is the only one that has it."""
        self._reckoned.reverse()
        while self._reckoned:
            yield self._reckoned.pop()

    def reckon(self, ensemble: Ensemble) -> None:
        """Take over what jobs and nodes came to, where that is known."""
        if not self._reckoned:
            return
        try:
            load_totals(ensemble, self._given_away())
        except Exception:
            # Whatever is wrong with it: it is none.
            ensemble.reckon_anew()
