"""A dagdir, read: from its files into the state model, a budget at a time.

The reader never writes, keeps no file open, and trusts ``stat`` alone; waking it early is
somebody else's part.
"""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from metlmon.dagman import Problem
from metlmon.eventlog import FastResult, LogWarning, Position, first_year, parse, parse_fast
from metlmon.frozen import frozen
from metlmon.live.cache import Cache
from metlmon.live.cache_session import CacheSession
from metlmon.live.dagman_files import DagmanFiles
from metlmon.live.discovery import (
    Discovery,
    LogFile,
    Sniffed,
    check_dagdir,
    dag_file_paths,
    discover_dags,
    discover_logs,
)
from metlmon.live.ensemble_warnings import ids_again, of_a_moment, zone_doubted
from metlmon.live.errors import InputError
from metlmon.live.file_errors import FileError, FileErrors, lasting
from metlmon.live.follower import CHUNK, GREATEST_REST, DirectoryMtimes, FileCheck, Follower
from metlmon.live.fs_timeout import FsTimeout, call_all, call_with_timeout, clock_time
from metlmon.live.gate_files import GateFiles
from metlmon.model.clock import Clock
from metlmon.model.dag import Dag
from metlmon.model.dump_dag import judged_by_jobs
from metlmon.model.ensemble import NOTICES_PER_KIND, Batch, Changes, Ensemble, LogRole, LogStats
from metlmon.model.settings import Settings
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.types import Notice, Progress

if TYPE_CHECKING:
    from metlmon.live.cache_entry import CachedState, CacheWrite

FRESH: Final = timedelta(days=1)
"""An ensemble whose newest event is older than this by its own stamp is not running: a
running one logs memory sizes every few minutes."""

YEARLESS: Final = re.compile(rb"\d{3} \([-\d.]+\) \d\d/\d\d ")
"""A header whose date has no year."""

UNWRITTEN_SECONDS: Final = 60.0
"""For so long after a file was written to, zeros in it may still become what was written: NFS
clients hold back pages for up to half a minute."""

ANEW_SECONDS: Final = 10.0
"""At least so long between two times that all is read anew: a log that somebody writes again and
again must not take a core."""

NO_LOGS_AT_ONCE: Final = 500
"""Files that are asked at one look whether they became a log: a few milliseconds."""

STEP_SECONDS: Final = 0.05
"""How long one step may take before the screen gets its turn."""


@frozen
class ReadStep:
    """What one step did. ``more``: there is more to read right now."""

    changes: Changes
    more: bool


class LogReader:
    """One event log being read: follower, position, and the role it plays."""

    def __init__(self, log: LogFile) -> None:
        self.log = log
        self.follower = Follower(log.path)
        self.position = Position()
        self.unreadable: str | None = None
        self.gone = False
        self.at_end = False
        self.other = False
        """It holds something else than what was read of it: all is to be read anew."""
        self._ended: datetime | None = None
        self._waits = False
        self._year: int | None = None

    @property
    def year(self) -> int | None:
        """The year of the first event, where a log writes none."""
        return self._year

    def resume(self, position: Position, year: int | None, inode: int, start: bytes) -> None:
        """Go on where another reader stood; see :meth:`Follower.resume`."""
        self.position, self._year = position, year
        self.follower.resume(position.offset, inode, start)

    def look(self) -> FileCheck:
        """See how the file stands."""
        look = self.follower.look()
        self.unreadable, self.gone = look.problem, look.gone
        if look.restarted:
            self._ended = self.position.last or self._ended
            self.position, self._year = Position(), None
        if look.restarted or look.grew or self._waits:
            self.at_end = False
        return look

    @property
    def behind(self) -> int:
        return 0 if self.at_end else self.follower.behind

    def read(self, clock: Clock, until: datetime | None) -> tuple[Batch, tuple[LogWarning, ...]]:
        """The next complete events, those of one chunk. ``until``: what is later will not be
        looked at."""
        if self.other:
            self.at_end = True
            return self._nothing(), ()
        size = CHUNK
        while True:
            try:
                data = self.follower.read(self.follower.offset, size)
            except OSError as error:
                self.unreadable, self.at_end = error.strerror or str(error), True
                return self._nothing(), ()
            data = self._written(data)
            year = self._first_year(data, clock)
            to_the_end, endless = len(data) < size, size >= GREATEST_REST
            got = self._skimmed(data, year, clock, until)
            if got.after.offset > self.position.offset or to_the_end:
                break
            if endless:
                got = _carefully(data, self.position, year, final=True)
                break
            # One event longer than the chunk: look further for its end.
            size *= 4
        self.at_end = to_the_end
        if self._goes_back(got, clock):
            self.other = self.at_end = True
            return self._nothing(), ()
        self.position = got.after
        self.follower.consume(got.after.offset)
        log, last = self.log, got.after.last
        return Batch(
            log.name, log.role, got.events, log.dag, got.images, got.first, last
        ), got.warnings

    def _nothing(self) -> Batch:
        return Batch(self.log.name, self.log.role, (), self.log.dag)

    def _written(self, data: bytes) -> bytes:
        """Up to where it has been written. Another client of an NFS server sees the new size
        of a file before the bytes, and zeros for them; those of a damaged disk stay."""
        hole = data.find(b"\0")
        age = time.time() - self.follower.mtime
        self._waits = hole >= 0 and -UNWRITTEN_SECONDS < age < UNWRITTEN_SECONDS
        return data[:hole] if self._waits else data

    def _goes_back(self, got: FastResult, clock: Clock) -> bool:
        """A log that was emptied, by DAGMan or to save space, goes on where it was in time; what
        begins before that is another one, or a part of what was read already."""
        first = got.first or next((event.time for event in got.events), None)
        if self._ended is None or first is None or self.log.role is LogRole.DAGMAN:
            # What a DAGMan's own job log told is forgotten when that begins anew.
            return False
        ended, self._ended = self._ended, None
        return clock.naive(first) < clock.naive(ended)

    def _skimmed(
        self, data: bytes, year: int | None, clock: Clock, until: datetime | None
    ) -> FastResult:
        got = parse_fast(data, self.position, year_hint=year, until=until)
        if clock.zone is None or not got.images:
            return got
        # A log may say UTC from some day on: only what is made local can be compared.
        times = [clock.naive(event.time) for event in got.events]
        for image in got.images:
            times += clock.naive(image.first), clock.naive(image.last)
        if clock.steady(min(times), max(times)):
            return got
        # Which pass of the hour that exists twice an event is in, only its neighbour tells.
        return _carefully(data, self.position, year)

    def _first_year(self, data: bytes, clock: Clock) -> int | None:
        """For a log that writes no years: no event in it is younger than the file."""
        if self._year is None and self.position.offset == 0 and YEARLESS.match(data.lstrip()):
            mtime = self.follower.mtime
            written = clock.local(mtime) or datetime.fromtimestamp(mtime)
            self._year = first_year(self._all_bytes(data), written)
        return self._year

    def _all_bytes(self, data: bytes) -> bytes:
        if len(data) >= self.follower.size:
            return data
        try:
            return self.follower.read(0, self.follower.size)
        except OSError:
            return data

    def rest(self) -> str:
        """What stands behind the last complete event."""
        try:
            return self.follower.read(self.follower.offset, 4096).decode("utf-8", "replace")
        except OSError:
            return ""


class DagdirReader:
    """Reads one dagdir. Not thread-safe; raises InputError from :meth:`open` only.

    ``now`` gives seconds since 1970, ``local_now`` the access point's own time where the
    caller knows it (a replay). ``as_of`` cuts off what happened later; ``live``
    overrides what the files say about being live. ``in_queue`` is set from outside: a
    reachable schedd has the jobs. ``cache``: where what was learnt is kept for the next reader
    of this dagdir (never what holds of a moment only).
    """

    def __init__(
        self,
        dagdir: Path,
        settings: Settings | None = None,
        *,
        as_of: datetime | None = None,
        live: bool | None = None,
        now: Callable[[], float] = time.time,
        local_now: Callable[[], datetime] | None = None,
        cache: Cache | None = None,
    ) -> None:
        self.given = str(dagdir)
        self._only = dagdir.name if dagdir.is_file() else None
        self.dagdir = dagdir.parent if self._only else dagdir
        self.as_of = as_of
        self.ensemble = Ensemble(settings or Settings(), as_of)
        self.error: str | None = None
        self.in_queue = False
        self._forced = live
        self._now = now
        self._given_now = local_now
        self._logs: dict[str, LogReader] = {}
        self._facts: list[DagmanFiles] = []
        self._gates = GateFiles(now)
        self._found_problems: list[Problem] = []
        self._log_problems: list[Problem] = []
        self._absent: set[tuple[Path, str]] = set()
        self._folders = DirectoryMtimes()
        self._dag_paths: list[Path] = []
        self._no_logs: dict[Path, tuple[int, int]] = {}
        self._no_log_turn = 0
        self._sniffed: Sniffed = {}
        self._dag_signature: dict[Path, tuple[int, int]] = {}
        self._turn = 0
        self._grew = False
        self._caught_up = False
        self._keeping: CacheSession | None = None
        if cache is not None and as_of is None and not cache.lies_in(self.dagdir):
            self._keeping = CacheSession(cache, self.dagdir, self._only, self.ensemble.settings)
        self._recalled: CachedState | None = None
        self._diverged = False
        self._faults = FileErrors(now)
        self._unusable: tuple[str, float] | None = None
        self._folder: tuple[int, int] | None = None
        self._rewritten: dict[str, Notice] = {}
        self.remarks: dict[str, Notice] = {}
        """What whoever uses this reader has to tell beside."""
        self._read_anew = float("-inf")

    # --- looking ------------------------------------------------------------------------

    def open(self) -> Changes:
        """The first look. Raises InputError when the dagdir cannot be used."""
        with _collection_paused(settled=True):
            changes = self._take_over()
            if self._recalled is not None:
                self._recalled.reckon(self.ensemble)
        # In the order in which they were found: an earlier reader may have met them in another.
        self.ensemble.books = {name: self.ensemble.books[name] for name in self._logs}
        self._recalled = None
        if self._keeping is not None:
            self._keeping.holds(self.consumed)
        return changes | self.look()

    def _take_over(self) -> Changes:
        """Begin with what was kept, if that holds, else with nothing."""
        self._recall()
        try:
            changes = self._take_dags()
        except InputError:
            raise
        except Exception:
            # What was kept is not of the shape that it should be of.
            if self._recalled is None:
                raise
            changes = self._take_dags_anew()
        if self._recalled is not None and not self._recalled.complete:
            changes = self._take_dags_anew()
        return changes

    def _recall(self) -> None:
        """Take over what an earlier reader learnt of this dagdir, where that still holds."""
        if self._keeping is not None:
            self._recalled = self._keeping.recall(self.ensemble)
            if self._recalled is None:
                self._forget()

    def _take_dags_anew(self) -> Changes:
        self._forget()
        return self._take_dags()

    def _forget(self) -> None:
        """Begin with nothing."""
        self.ensemble = Ensemble(self.ensemble.settings, self.as_of)
        self._logs, self._facts, self._recalled = {}, [], None
        self._gates = GateFiles(self._now)

    @property
    def consumed(self) -> int:
        """Bytes of the files that grow, as far as the model has them."""
        logs = sum(reader.position.offset for reader in self._logs.values())
        return logs + sum(each.offset for facts in self._facts for each in facts.growing)

    def keep(self) -> list[CacheWrite]:
        """What is worth keeping of what has been learnt, to be written when nobody waits."""
        if self._keeping is None:
            return []
        # A model that knows what is in no file any more says more than a new reader would.
        consumed = 0 if self._diverged else self.consumed
        if not self._keeping.due(consumed):
            return []
        with _collection_paused():
            return self._keeping.keep(consumed, self.ensemble, self._logs.values(), self._facts)

    def look(self) -> Changes:
        """See what is new in the dagdir; reads only small files. A dagdir that has become
        unusable leaves the model as it is and sets ``error``."""
        changes = Changes()
        error: str | None = None
        try:
            check_dagdir(self.dagdir)
            listing_changed = self._folders.changed(self.watched(), self._now())
            if listing_changed:
                self._dag_paths = dag_file_paths(self.dagdir)
            if self._dag_files_signature() != self._dag_signature:
                changes |= self._take_dags()
            elif listing_changed or self._may_have_become_logs():
                self._find_logs()
            if self._is_another():
                return changes | self._begin_anew()
        except InputError as problem:
            error = self._gone() or str(problem)
        except FsTimeout as problem:
            error = f"{problem.path}: {problem}{lasting(problem.since)}"
            # All names are looked for again, when there is an answer.
            self._folders = DirectoryMtimes()
        for reader in self._logs.values():
            size = reader.follower.size
            look = reader.look()
            if look.problem is None:
                self.ensemble.books[reader.log.name].bytes = look.size
            if look.restarted:
                self._diverged = True
                self._note_emptied(reader)
                changes |= self.ensemble.forget_log(reader.log.name, reader.log.dag)
            # A torn tail is read again when its file is only touched: that is no growth.
            if self._caught_up and look.grew and (look.restarted or look.size > size):
                self._grew = True
        listed: dict[Path, list[str]] = {}
        for facts in self._facts:
            changes |= facts.look(self.ensemble, listed)
        changes |= self._gates.look(self.ensemble)
        self._find_fault(error)
        return changes

    def _is_another(self) -> bool:
        """Has the directory itself been put in the place of the one that was read?"""
        try:
            status = call_with_timeout(os.stat, self.dagdir)
        except OSError:
            return False
        before, self._folder = self._folder, (status.st_dev, status.st_ino)
        return before not in (None, self._folder)

    def _find_fault(self, error: str | None) -> None:
        """What keeps the model from being told what happens: the dagdir, else a file of it that
        could be read before."""
        if error is None:
            self._unusable = None
        elif self._unusable is None or self._unusable[0] != error:
            since = self._now() if self._unusable is None else self._unusable[1]
            self._unusable = (error, since)
        for reader in self._logs.values():
            self._faults.take(reader.log.name, reader.follower, reader.unreadable, reader.gone)
        self.error = None
        if self._unusable is not None:
            told, since = self._unusable
            known = not self._caught_up or "since" in told
            # The end of a long sentence is cut off where the terminal is narrow.
            self.error = told if known else f"since {clock_time(since)}: {told}"
            return
        faults = [fault for fault in self._all_faults() if fault.since is not None]
        if faults:
            more = f" (and {len(faults) - 1} more files)" if len(faults) > 1 else ""
            self.error = faults[0].sentence(faults[0].name) + more

    def _gone(self) -> str | None:
        """That no DAG file is there any more, of those that were."""
        dags = [dag.workflow.path.name for dag in self.ensemble.dags.values() if dag.top == dag.key]
        if self._dag_paths or not dags or not _is_folder(self.dagdir):
            return None
        more = f" (and {len(dags) - 1} more)" if len(dags) > 1 else ""
        return f"{dags[0]}{more} is gone; what it told before stays"

    def _all_faults(self) -> list[FileError]:
        return self._faults.all() + [fault for each in self._facts for fault in each.faults.all()]

    def _dag_files_signature(self) -> dict[Path, tuple[int, int]]:
        """Changes when a DAG file comes, goes or is written anew."""
        files = {path for dag in self.ensemble.dags.values() for path in dag.workflow.files}
        return _changed_at(files.union(self._dag_paths))

    def _take_dags(self) -> Changes:
        self._dag_paths = dag_file_paths(self.dagdir)
        before = self._dag_files_signature()
        found = self._discover_dags()
        shared = _shared_names(found.dags)
        facts = {each.key: each for each in self._facts}
        dags = []
        for dag in found.dags:
            known = self.ensemble.dags.get(dag.key)
            if known is None or not facts[dag.key].fits(dag, shared):
                facts[dag.key] = DagmanFiles(dag, shared)
                if self._recalled is not None:
                    self._recalled.tell(facts[dag.key], dag)
                dags.append(dag)
                continue
            if judged_by_jobs(known.workflow) != judged_by_jobs(dag.workflow):
                facts[dag.key].misjudged = True
            known.replace_workflow(dag.workflow)
            known.top = dag.top
            dags.append(known)
        self._found_problems = found.problems
        self._facts = [facts[dag.key] for dag in dags]
        placed = None
        if self._keeping is not None and self._recalled is not None:
            placed = self._keeping.places(self._recalled, self.ensemble, dags)
        changes = self.ensemble.set_dags(dags, placed)
        # A file that was still being written while it was read is to be read again.
        now = self._dag_files_signature()
        self._dag_signature = {path: before.get(path, stat) for path, stat in now.items()}
        self._find_logs()
        return changes

    def _discover_dags(self) -> Discovery:
        if self._keeping is None:
            return discover_dags(self.dagdir, self._only)
        return discover_dags(self.dagdir, self._only, self._keeping.load)

    def _find_logs(self) -> None:
        found = discover_logs(self.dagdir, list(self.ensemble.dags.values()), self._sniffed)
        self._log_problems = found.problems
        self._absent = found.absent
        self._no_logs = _changed_at(found.not_yet)
        for log in found.logs:
            reader = self._logs.get(log.name)
            if reader is None:
                reader = self._logs[log.name] = LogReader(log)
                if self._recalled is not None:
                    self._recalled.resume(reader)
                self.ensemble.books.setdefault(log.name, LogStats(log.name, log.role))
            else:
                self._diverged |= (log.role, log.dag) != (reader.log.role, reader.log.dag)
                reader.log = log
        self._as_found([log.name for log in found.logs])

    def _as_found(self, names: list[str]) -> None:
        """The logs in the order in which a new reader finds them, whenever they came."""
        self._logs = {**{name: self._logs[name] for name in names}, **self._logs}
        books = self.ensemble.books
        self.ensemble.books = {**{name: books[name] for name in self._logs}, **books}

    def _may_have_become_logs(self) -> bool:
        """Did a file change that was no log yet? Where they are many (outputs of jobs called
        ``*.log``), some of them are asked at each look, in turn."""
        first = self._no_log_turn if self._no_log_turn < len(self._no_logs) else 0
        self._no_log_turn = first + NO_LOGS_AT_ONCE
        some = list(islice(self._no_logs, first, first + NO_LOGS_AT_ONCE))
        return any(now != self._no_logs[path] for path, now in _changed_at(some).items())

    # --- reading ------------------------------------------------------------------------

    def step(self, seconds: float = STEP_SECONDS) -> ReadStep:
        """Read and apply for about ``seconds``: a piece of what one DAGMan says, its own job
        log, then the other logs."""
        deadline = time.monotonic() + seconds
        changes = Changes()
        waiting = [facts for facts in self._facts if facts.behind]
        if waiting:
            self._turn += 1
            changes |= waiting[self._turn % len(waiting)].read_some(self.ensemble)
        order = sorted(self._logs.values(), key=lambda r: r.log.role is not LogRole.DAGMAN)
        for reader in order:
            while reader.behind and time.monotonic() < deadline:
                changes |= self._apply(reader)
        more = any(r.behind for r in order) or any(f.behind for f in self._facts)
        others = any(reader.other for reader in order)
        if others and time.monotonic() - self._read_anew >= ANEW_SECONDS:
            return ReadStep(changes | self._begin_anew(), True)
        if not more:
            self._caught_up = True
        return ReadStep(changes, more)

    def _apply(self, reader: LogReader) -> Changes:
        batch, warnings = reader.read(self.ensemble.clock, self.as_of)
        changes = self.ensemble.apply(batch)
        book = self.ensemble.books[reader.log.name]
        book.bytes = reader.follower.size
        for warning in warnings:
            self._note(book, warning)
        return changes

    def _note_emptied(self, reader: LogReader) -> None:
        """DAGMan's own logs begin anew whenever DAGMan does; of others people should know."""
        name = reader.log.name
        if reader.log.role is LogRole.USER:
            text = (
                f"it was emptied or replaced at {clock_time(self._now())}; what it told before "
                "stays until metlmon is started anew"
            )
            self._rewritten[name] = Notice("rewritten-log", name, None, text)

    def _begin_anew(self) -> Changes:
        """A log holds something else than what was read of it: forget all, and read what there
        is. It is what a new reader would do, but for the sentence about it."""
        at = clock_time(self._now())
        others = [name for name, reader in self._logs.items() if reader.other]
        for name in others:
            text = f"at {at} what had been read of it was not in it any more: all was read anew"
            self._rewritten[name] = Notice("rewritten-log", name, None, text)
        if not others:
            text = f"at {at} another directory was in its place: all was read anew"
            self._rewritten[""] = Notice("rewritten-log", self.given, None, text)
        self._forget()
        self._dag_signature, self._no_logs, self._folders = {}, {}, DirectoryMtimes()
        self._grew = self._caught_up = self._diverged = False
        self._faults = FileErrors(self._now)
        self._read_anew = time.monotonic()
        if self._keeping is not None:
            self._keeping.holds(0)
        return self.look()

    def _note(self, book: LogStats, warning: LogWarning) -> None:
        count = book.notices[warning.kind] = book.notices.get(warning.kind, 0) + 1
        if count > NOTICES_PER_KIND:
            return
        text = warning.text
        if count == NOTICES_PER_KIND:
            text += " (and more of this kind further on)"
        self.ensemble.notices.append(Notice(warning.kind, book.file, warning.line, text))

    def read_all(self, progress: Callable[[Progress], None] | None = None) -> None:
        """Read until there is nothing more to read, and add it up."""
        with _collection_paused(settled=True):
            while self.step(0.25).more:
                if progress is not None:
                    progress(self.progress())
            # Who asked for all of it wants to know what it comes to, and so will the next one.
            self.ensemble.summary.add_up()
            self.ensemble.summary.settle(self.live())
        for kept in self.keep():
            kept.write()

    def progress(self) -> Progress:
        """How far reading is, over all files."""
        total = sum(r.follower.size for r in self._logs.values())
        behind = sum(r.behind for r in self._logs.values())
        total += sum(f.total for f in self._facts)
        behind += sum(f.behind for f in self._facts)
        return Progress(total - behind, total)

    def watched(self) -> list[Path]:
        """The directories in which something may change: never their subdirectories."""
        folders = {self.dagdir, *(r.log.path.parent for r in self._logs.values())}
        folders.update(dag.workflow.path.parent for dag in self.ensemble.dags.values())
        return sorted(f for f in folders if _is_folder(f))

    # --- answers ------------------------------------------------------------------------

    def live(self) -> bool:
        """Is an ensemble running here, by ``domain.md``'s definition?"""
        if self._forced is not None:
            return self._forced
        if self.as_of is not None or not self.ensemble.unfinished():
            return False
        newest = self.ensemble.newest
        if newest is None:
            return False
        return self._grew or self.in_queue or abs(self._local_now() - newest) < FRESH

    def _local_now(self) -> datetime:
        if self._given_now is not None:
            return self._given_now()
        now = self._now()
        local = self.ensemble.clock.local(now) or datetime.fromtimestamp(now)
        return local.replace(microsecond=0)

    def moment(self, live: bool) -> datetime | None:
        """The moment for which durations hold."""
        if self.as_of is not None:
            return self.as_of
        newest = self.ensemble.newest
        if newest is not None and not (live and self._caught_up):
            # What is read of a log is the ensemble as it was then, and not for weeks since.
            return newest
        if not live:
            return None
        # An access point in another zone, or with a faster clock, is not behind itself.
        return max(self._local_now(), newest) if newest else self._local_now()

    def painter(self) -> SnapshotBuilder:
        """A painter of the ensemble as it stands now."""
        # Before anybody asks for the states of nodes: what a job comes to is then at hand for both.
        self.ensemble.summary.add_up()
        live = self.live()
        self._gather_notices(live)
        return SnapshotBuilder(self.ensemble, self.given, self.moment(live), live)

    def _gather_notices(self, live: bool) -> None:
        """What is wrong with the input now, besides what the logs' own bytes told."""
        notices = [_notice(p) for p in (*self._found_problems, *self._log_problems)]
        notices += [Notice("settings", *remark) for remark in self.ensemble.settings.remarks]
        for facts in self._facts:
            notices += [_notice(p) for ps in facts.problems.values() for p in ps]
        faults = self._all_faults()
        logs = {reader.log.name for reader in self._logs.values()}
        # A look at names may have told of them already.
        told = {fault.name for fault in faults}
        notices = [n for n in notices if n.kind != "unreadable" or n.file not in told]
        for fault in faults:
            text = fault.sentence("the log" if fault.name in logs else "the file")
            notices.append(Notice("unreadable", fault.name, None, text))
        notices += (*self._rewritten.values(), *self.remarks.values(), *self._gates.notices())
        for reader in self._logs.values():
            if not live and reader.at_end and reader.follower.behind:
                notices += self._torn(reader)
        notices += self._missing_dags()
        notices += self._missing_logs(told)
        notices += zone_doubted(self.ensemble.clock)
        notices += of_a_moment(self.ensemble)
        if self.ensemble.lives:
            notices.append(ids_again(self.ensemble.lives))
        self.ensemble.conditions = notices

    def _torn(self, reader: LogReader) -> list[Notice]:
        if not reader.rest().strip():
            return []
        text = "the log ends in the middle of an event, which is not counted"
        line = reader.position.line
        return [Notice("unterminated-event", reader.log.name, line, text)]

    def _missing_dags(self) -> list[Notice]:
        lost: dict[str, str] = {}
        for reader in self._logs.values():
            dag = reader.log.dag
            if dag is not None and dag not in self.ensemble.dags and reader.position.offset:
                lost.setdefault(dag, reader.log.name)
        return [
            Notice(
                "missing-dag",
                log,
                None,
                f"the DAG file {dag} is not here: its jobs are listed without run and node; "
                "put it beside its logs",
            )
            for dag, log in lost.items()
        ]

    def _missing_logs(self, told: set[str]) -> Iterator[Notice]:
        """Logs that are not here though jobs of their nodes were submitted: what DAGMan's own log
        tells of them may be their last submission alone. ``told``: files of which that is said."""
        if not self._absent:
            return
        said = {Path(name).name for name in told}
        for key, record in self.ensemble.nodes.items():
            log, folder = record.node.log, self.ensemble.dags[key[0]].workflow.path.parent
            if log and record.jobs and (folder, log) in self._absent and Path(log).name not in said:
                said.add(Path(log).name)
                text = (
                    "this log, which the submit description names, is not here: of its jobs only "
                    "what DAGMan's own log has is counted; put it beside the DAG file"
                )
                yield Notice("missing-log", Path(log).name, None, text)


def _carefully(data: bytes, at: Position, year: int | None, final: bool = False) -> FastResult:
    parsed = parse(data, at, year_hint=year, final=final)
    return FastResult(parsed.events, (), parsed.warnings, parsed.after)


@contextmanager
def _collection_paused(settled: bool = False) -> Iterator[None]:
    """No garbage collection: a million objects come at once when a cache entry is loaded or made,
    none of them in a cycle, and the collector takes as long as all the rest, or longer.

    ``settled``: at the end all objects count as old. That resets the collector's counters, so it
    is only for what happens once: done at every look, nothing would ever be collected.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if settled and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if enabled:
            gc.enable()


def _changed_at(paths: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """Size and ctime: the latter tells that a file may be read now, too."""
    changed = {}
    listed = list(paths)
    for path, stands in zip(listed, call_all(os.stat, listed), strict=True):
        try:
            status = stands()
            changed[path] = (status.st_size, status.st_ctime_ns)
        except OSError:
            changed[path] = (-1, -1)
        except FsTimeout:
            changed[path] = (-2, -2)
    return changed


def _is_folder(path: Path) -> bool:
    try:
        return call_with_timeout(os.path.isdir, path)
    except FsTimeout:
        return True


def _notice(problem: Problem) -> Notice:
    return Notice(problem.kind, problem.file, problem.line, problem.text)


def _shared_names(dags: list[Dag]) -> frozenset[str]:
    """Jobstate logs that more than one DAG of one directory names."""
    seen: set[tuple[Path, str]] = set()
    shared: set[str] = set()
    for dag in dags:
        name = dag.workflow.jobstate_log
        if name is None:
            continue
        place = (dag.workflow.path.parent, name)
        if place in seen:
            shared.add(name)
        seen.add(place)
    return frozenset(shared)
