"""``.dagman.out``: what DAGMan says while it works, over all its restarts.

Source followed: ``dag.cpp``, ``dagman_main.cpp``, ``dagman_commands.cpp``, ``scriptQ.cpp`` and
``job.cpp`` (``node.cpp``) of DAGMan for the wording, ``_format_global_header`` in
``dprintf.cpp`` for what stands before a message, ``dc_main`` and ``DC_Exit`` of DaemonCore
for the first and last line of a life. The wordings are those of 7.4 to 25.14.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from metlmon.dagman.records import DagmanMessage, DagmanMessageKind
from metlmon.frozen import frozen
from metlmon.redact import redact_secrets

LONGEST_LINE: Final = 256 * 1024
"""Bytes, fewer than are read at once. A longer line is passed over, so that a file without
line ends is not read again from its beginning at every look."""

_LOOKED_AT: Final = 8 * 1024
"""Bytes of a line: node and file names end long before; a hostile line costs no more."""

_HALF_A_YEAR: Final = timedelta(days=183)
"""A yearless stamp that goes back by more than this is of the next year."""

_MOST_AWAITED: Final = 2000
"""Submissions that no event was seen of yet. DAGMan makes at most a thousand in a cycle and
then reads its log; beyond this the old ones are forgotten, and may be said a second time."""

JobId = tuple[int, int, int]


@frozen
class OutState:
    """What must be known to go on reading: pass it back with the next bytes.

    ``year`` is the year of the next line where stamps have none (HTCondor before 7.5):
    give the first line's, if it is known; without it such lines have no time. The rest is
    the reader's own: a message that speaks of the one before it.
    """

    year: int | None = None
    last: datetime | None = None
    halted: bool = False
    submitting: str | None = None
    assigned: frozenset[JobId] = frozenset()
    dag_follows: bool = False
    total: int | None = None
    columns: tuple[str, ...] = ()
    dumped: str | None = None
    dumped_value: int | None = None
    skipping: bool = False


_START: Final = OutState()


class _LifeState:
    """The state while lines are read: many change it, and one is passed on in the end."""

    __slots__ = (
        "assigned",
        "columns",
        "dag_follows",
        "dumped",
        "dumped_value",
        "halted",
        "last",
        "skipping",
        "submitting",
        "total",
        "year",
    )

    def __init__(self, state: OutState) -> None:
        self.year, self.last, self.halted = state.year, state.last, state.halted
        self.submitting, self.assigned = state.submitting, set(state.assigned)
        self.dag_follows, self.total, self.columns = state.dag_follows, state.total, state.columns
        self.dumped, self.dumped_value = state.dumped, state.dumped_value
        self.skipping = state.skipping

    def kept(self) -> OutState:
        return OutState(
            self.year,
            self.last,
            self.halted,
            self.submitting,
            frozenset(self.assigned),
            self.dag_follows,
            self.total,
            self.columns,
            self.dumped,
            self.dumped_value,
            self.skipping,
        )


def read_dagman_out(
    data: bytes, state: OutState = _START, limit_lines: int | None = None
) -> tuple[list[DagmanMessage], OutState, int]:
    """Read the complete lines of ``data``, at most ``limit_lines`` of them.

    Comes out: what they say, the state for the next call, and the number of bytes used; the
    rest is to be passed again with what follows it. A submission is said once in a life of
    DAGMan, when it is made or first seen in the log, whichever line comes first; a recovery
    says the old ones again. Never raises.
    """
    reader = _LineReader(state)
    start = lines = 0
    if state.skipping:
        start = data.find(b"\n") + 1
        if not start:
            return [], state, len(data)
        reader.now.skipping = False
    while limit_lines is None or lines < limit_lines:
        if start and limit_lines is None and not reader.now.columns:
            found = _WORTH_READING.search(data, start - 1)
            if found is not None and found.lastindex and reader.usual(found):
                start = found.end() + 1
                continue
            # The last, incomplete line, if no other is worth it.
            start = found.start() + 1 if found is not None else data.rfind(b"\n") + 1
        end = data.find(b"\n", start)
        if end < 0:
            if len(data) - start > LONGEST_LINE:
                reader.now.skipping = True
                start = len(data)
            break
        if end - start <= LONGEST_LINE:
            reader.line(data[start : min(end, start + _LOOKED_AT)])
        start = end + 1
        lines += 1
    return reader.said, reader.now.kept(), start


_HEADER: Final = re.compile(
    rb"(\d\d/\d\d/\d\d \d\d:\d\d:\d\d"
    rb"|\d{9,11}(?:\.\d+)?"
    rb"|[^:]{0,24}?\d{1,2}:\d\d:\d\d\S{0,12}(?: [AP]M)?)"
    rb" (?:\([A-Za-z][\w:|.]{0,60}\) )*"
)
"""The time in DEBUG_TIME_FORMAT (default, else what ends in a clock) or, with D_TIMESTAMP, as
seconds since 1970; then ``(fd:3) (pid:1) (tid:1) (cid:1) (bt:00ff:3) (D_ALWAYS:2)`` as
configured. A line without is a message's second line, whose text may be anybody's."""

_STAMP: Final = re.compile(
    rb"(?:(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)"
    rb"|(?P<month2>\d{1,2})/(?P<day2>\d{1,2})(?:/(?P<year2>\d{4}|\d\d))?)"
    rb"[ T](?P<hour>\d{1,2}):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,6}))?"
)

_USUAL_STAMP: Final = len("11/21/26 00:17:25")

_CENTURY: Final = 2000
"""No HTCondor wrote two-digit years before 2000."""


class _LineReader:
    """Lines in, ``said`` out; ``now`` is what the next line must know."""

    def __init__(self, state: OutState) -> None:
        self.now = _LifeState(state)
        self.said: list[DagmanMessage] = []
        self._stamp = b""
        self._time: datetime | None = None

    def line(self, line: bytes) -> None:
        head = _HEADER.match(line) or _HEADER.match(line := line.lstrip(b"\0"))
        if head is None:
            return
        start, stamp = head.end(), head[1]
        if self.now.columns and self.table_row(line[start:], stamp):
            return
        for pattern, meaning in _MEANINGS.get(line[start : start + _TOLD_APART_BY], ()):
            found = pattern.match(line, start)
            if found is None:
                continue
            if isinstance(meaning, DagmanMessageKind):
                self.say(meaning, found, stamp)
            else:
                meaning(self, found, stamp)
            return

    def usual(self, found: re.Match[bytes]) -> bool:
        """One of the usual lines; False, and nothing done, when it is not as usual."""
        stamp = found[1]
        match found.lastindex:
            case 2:
                self.now.submitting = _text(found[2])
            case 5:
                self.assign((int(found[3]), int(found[4]), int(found[5])), stamp)
            case 8:
                job = int(found[6]), int(found[7]), int(found[8])
                if job not in self.now.assigned:
                    return False
                self.now.assigned.discard(job)
            case _:
                node, cluster, proc = _text(found[9]), int(found[10]), int(found[11])
                self.said.append(
                    DagmanMessage(DagmanMessageKind.JOB_OK, self.time(stamp), node, cluster, proc)
                )
        return True

    def say(self, word: DagmanMessageKind, found: re.Match[bytes], stamp: bytes) -> None:
        """One record from the pattern's named groups."""
        groups = found.groupdict()
        value, signal = groups.get("value"), groups.get("signal")
        self.said.append(
            DagmanMessage(
                word=word,
                time=self.time(groups.get("when") or stamp),
                node=_text(groups.get("node")),
                cluster=_number(groups.get("cluster")),
                proc=_number(groups.get("proc")),
                value=-int(signal) if signal else _number(value),
                text=_words(groups.get("text")),
            )
        )

    def time(self, stamp: bytes) -> datetime | None:
        """The stamp's time; one stamp stands on many lines, so the last is kept."""
        if stamp != self._stamp or self._time is None:
            self._stamp, self._time = stamp, self._parsed(stamp)
        return self._time

    def _parsed(self, stamp: bytes) -> datetime | None:
        if len(stamp) == _USUAL_STAMP and stamp[2:9:3] == b"// ":
            with suppress(ValueError):
                text = stamp.decode("ascii")
                return datetime.fromisoformat(f"20{text[6:8]}-{text[:2]}-{text[3:5]}{text[8:]}")
        found = _STAMP.search(stamp)
        if found is None:
            return None
        written = found["year"] or found["year2"]
        if written:
            year = int(written) + (_CENTURY if len(written) == 2 else 0)
            return _moment(found, year)
        return self._yearless(found)

    def _yearless(self, found: re.Match[bytes]) -> datetime | None:
        year, last = self.now.year, self.now.last
        time = _moment(found, year) if year is not None else None
        if time is not None and last is not None and last - time > _HALF_A_YEAR:
            time = _moment(found, time.year + 1)
        if time is not None:
            self.now.year, self.now.last = time.year, time
        return time

    def started(self, found: re.Match[bytes], stamp: bytes) -> None:
        """A new life remembers only what the old one submitted and had not yet seen logged."""
        old = self.now
        assigned = frozenset(old.assigned)
        self.now = _LifeState(OutState(year=old.year, last=old.last, assigned=assigned))
        self.say(DagmanMessageKind.STARTED, found, stamp)

    def argument(self, found: re.Match[bytes], stamp: bytes) -> None:
        follows = found["text"].lower() == b"-dag"
        if self.now.dag_follows:
            self.say(DagmanMessageKind.DAG_FILE, found, stamp)
            follows = False
        if follows != self.now.dag_follows:
            self.now.dag_follows = follows

    def submitting(self, found: re.Match[bytes], stamp: bytes) -> None:
        self.now.submitting = _text(found["node"])

    def assigned(self, found: re.Match[bytes], stamp: bytes) -> None:
        self.assign(_job_id(found), stamp)

    def assign(self, job: JobId, stamp: bytes) -> None:
        node = self.now.submitting
        if node is not None:
            if len(self.now.assigned) >= _MOST_AWAITED:
                self.now.assigned.clear()
            self.now.submitting = None
            self.now.assigned.add(job)
            time = self.time(stamp)
            self.said.append(DagmanMessage(DagmanMessageKind.SUBMITTED, time, node, job[0], job[1]))

    def submit_seen(self, found: re.Match[bytes], stamp: bytes) -> None:
        job = _job_id(found)
        if job in self.now.assigned:
            self.now.assigned.discard(job)
        else:
            self.say(DagmanMessageKind.SUBMITTED, found, stamp)

    def halted(self, found: re.Match[bytes], stamp: bytes) -> None:
        """A halted DAGMan says so at every cycle: the first time counts."""
        if not self.now.halted:
            self.now.halted = True
            self.say(DagmanMessageKind.HALTED, found, stamp)

    def resumed(self, found: re.Match[bytes], stamp: bytes) -> None:
        if self.now.halted:
            self.now.halted = False
            self.say(DagmanMessageKind.RESUMED, found, stamp)

    def table_total(self, found: re.Match[bytes], stamp: bytes) -> None:
        self.now.total, self.now.columns = int(found["value"]), ()

    def table_head(self, found: re.Match[bytes], stamp: bytes) -> None:
        """Old tables have no Futile; the words are taken as they stand."""
        if self.now.total is not None:
            words = found["text"].decode("ascii").lower().replace("un-ready", "unready")
            self.now.columns = ("done", *words.split())

    def table_row(self, message: bytes, stamp: bytes) -> bool:
        """The numbers below the table's head. False: this line is something else."""
        cells = message.split()
        if cells and cells[0].startswith(b"="):
            return True
        columns, total = self.now.columns, self.now.total or 0
        self.now.total, self.now.columns = None, ()
        if len(cells) != len(columns) or not all(_CELL.fullmatch(cell) for cell in cells):
            return False
        numbers = zip(columns, map(int, cells), strict=True)
        totals = (("total", total), *numbers)
        self.said.append(DagmanMessage(DagmanMessageKind.TOTALS, self.time(stamp), totals=totals))
        return True

    def dump_name(self, found: re.Match[bytes], stamp: bytes) -> None:
        self.now.dumped, self.now.dumped_value = _text(found["node"]), None

    def dump_value(self, found: re.Match[bytes], stamp: bytes) -> None:
        self.now.dumped_value = int(found["value"])

    def dump_error(self, found: re.Match[bytes], stamp: bytes) -> None:
        """Only nodes that failed for good are dumped with an error, when the DAG ends."""
        node, value = self.now.dumped, self.now.dumped_value
        if node is not None:
            self.now.dumped, self.now.dumped_value = None, None
            time, text = self.time(stamp), _words(found["text"])
            self.said.append(
                DagmanMessage(DagmanMessageKind.NODE_FAILED, time, node, value=value, text=text)
            )


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "replace")


def _words(raw: bytes | None) -> str | None:
    """What may quote anything."""
    return None if raw is None else redact_secrets(raw.decode("utf-8", "replace"))


def _number(raw: bytes | None) -> int | None:
    return None if raw is None else int(raw)


def _job_id(found: re.Match[bytes]) -> JobId:
    cluster, proc, subproc = found.group("cluster", "proc", "subproc")
    return int(cluster), int(proc), int(subproc)


def _moment(found: re.Match[bytes], year: int) -> datetime | None:
    hour, minute, second = int(found["hour"]), int(found["minute"]), int(found["second"])
    micros = int((found["fraction"] or b"0").ljust(6, b"0"))
    month, day = found["month"] or found["month2"], found["day"] or found["day2"]
    try:
        return datetime(year, int(month), int(day), hour, minute, second, micros)
    except ValueError:
        return None


_CELL: Final = re.compile(rb"\d{1,9}")
_ID: Final = rb"\((?P<cluster>-?\d{1,12})\.(?P<proc>-?\d{1,12})\.(?P<subproc>-?\d{1,12})\)"
_NODE: Final = rb"(?:[Nn]ode|[Jj]ob) (?P<node>\S+)"
_NODE_RUNS: Final = rb"script of (?:[Nn]ode|[Jj]ob) (?P<node>\S+?)\.\.\.\s*$"
_NUMBER: Final = rb"(?P<value>-?\d{1,9})"
_SIGNAL: Final = rb"(?P<signal>\d{1,3})"
_FAILED: Final = rb" (?:failed with status " + _NUMBER + rb"|died on (?:signal " + _SIGNAL + rb")?)"
_FILE: Final = rb"(?P<text>\S.*?)"
_TO_THE_END: Final = rb"(?P<text>\S(?:.*\S)?)\s*$"
_RESCUE: Final = rb"\d+[^;]*; running " + _FILE + rb" (?:in combination with|instead of) "

_DAGMAN: Final = rb"condor_scheduniv_exec\.(?P<cluster>\d{1,12})\.\d{1,12}"
"""What the schedd calls the process of a job of its own universe."""

_Meaning = DagmanMessageKind | Callable[[_LineReader, re.Match[bytes], bytes], None]

_WORDINGS: Final[tuple[tuple[bytes, bytes, _Meaning], ...]] = (
    (b"** ", rb"(?:" + _DAGMAN + rb"|\S+) \(CONDOR_DAGMAN\) STARTING UP", _LineReader.started),
    (
        b"**** ",
        rb"(?:" + _DAGMAN + rb")?.{0,200}EXITING WITH STATUS " + _NUMBER,
        DagmanMessageKind.EXITED,
    ),
    (
        b"Aborting because it looks like another instance of DAGMan is",
        b"",
        DagmanMessageKind.REFUSED,
    ),
    (b"ERROR: ", rb"(?P<text>(?!the following )\S(?:.{0,299}\S)?)\s*$", DagmanMessageKind.ERROR),
    (b'ERROR "', rb'(?P<text>.*)" at line \d+ in file', DagmanMessageKind.EXITED),
    (b"argv[", rb'\d+\] == "(?P<text>.*)"\s*$', _LineReader.argument),
    (b"Workflow batch-id: <", rb"(?P<text>[^>]*)>", DagmanMessageKind.BATCH_ID),
    (b"Number of pre-completed ", rb"(?:nodes|jobs): " + _NUMBER, DagmanMessageKind.PRE_COMPLETED),
    (b"MultiLogFiles: truncating log file ", _TO_THE_END, DagmanMessageKind.TRUNCATED),
    (b"Running in RECOVERY mode", b"", DagmanMessageKind.RECOVERY),
    (b"Found rescue DAG number ", _RESCUE, DagmanMessageKind.RESCUE_USED),
    (b"Rescue DAG number ", _RESCUE, DagmanMessageKind.RESCUE_USED),
    (b"Loading saved progress from ", _FILE + rb" for DAG", DagmanMessageKind.RESCUE_USED),
    (b"Writing Rescue DAG to ", _FILE + rb"\.\.\.\s*$", DagmanMessageKind.RESCUE_WRITTEN),
    (
        b"Submitting ",
        rb"(?:\S+ )?(?:Node|Job) (?P<node>\S+) job\(s\)\.\.\.",
        _LineReader.submitting,
    ),
    (b"\tassigned ", rb"(?:\S+ )?ID " + _ID, _LineReader.assigned),
    (
        b"Event: ULOG_SUBMIT for ",
        rb"(?:\S+ )?" + _NODE + rb" " + _ID + rb"(?: \{(?P<when>[^}]{1,40})\})?",
        _LineReader.submit_seen,
    ),
    (b"Running PRE ", _NODE_RUNS, DagmanMessageKind.PRE_STARTED),
    (b"Running POST ", _NODE_RUNS, DagmanMessageKind.POST_STARTED),
    (b"PRE ", rb"[Ss]cript of " + _NODE + rb" completed successfully", DagmanMessageKind.PRE_OK),
    (b"PRE ", rb"[Ss]cript of " + _NODE + _FAILED, DagmanMessageKind.PRE_FAILED),
    (
        b"PRE_SKIP return value ",
        _NUMBER + rb" indicates .* with " + _NODE,
        DagmanMessageKind.PRE_SKIPPED,
    ),
    (b"POST ", rb"[Ss]cript of " + _NODE + rb" completed successfully", DagmanMessageKind.POST_OK),
    (b"POST ", rb"[Ss]cript of " + _NODE + _FAILED, DagmanMessageKind.POST_FAILED),
    (
        b"Node ",
        rb"(?P<node>\S+) job proc " + _ID + rb" completed successfully\.",
        DagmanMessageKind.JOB_OK,
    ),
    (
        b"Node ",
        rb"(?P<node>\S+) job proc "
        + _ID
        + rb" failed with (?:status "
        + _NUMBER
        + rb"|signal "
        + _SIGNAL
        + rb")",
        DagmanMessageKind.JOB_FAILED,
    ),
    (b"Retrying ", _NODE + rb" \(retry #" + _NUMBER, DagmanMessageKind.RETRYING),
    (b"Looking for retry of ", _NODE + rb" \(retry #" + _NUMBER, DagmanMessageKind.RETRYING),
    (
        b"Aborting further retries of ",
        _NODE + rb" .*\(last attempt returned " + _NUMBER,
        DagmanMessageKind.NODE_FAILED,
    ),
    (
        b"Shortcutting ",
        _NODE + rb" retries because of (?P<text>submit failure)",
        DagmanMessageKind.NODE_FAILED,
    ),
    (b"      Node Name: ", rb"(?P<node>\S+)", _LineReader.dump_name),
    (b"Node return val: ", _NUMBER, _LineReader.dump_value),
    (b"          Error: ", rb"(?P<text>.*\S)", _LineReader.dump_error),
    (b"DAG is halted because", b"", _LineReader.halted),
    (b"Halting DAGMan prog", b"", _LineReader.halted),
    (b"DAG Pause: Freezing", b"", _LineReader.halted),
    (b"DAG going from halted to running", b"", _LineReader.resumed),
    (b"Resuming DAG progress", b"", _LineReader.resumed),
    (b"DAG Un-Pause: Resuming", b"", _LineReader.resumed),
    (b"Received SIGUSR1", b"", DagmanMessageKind.REMOVED),
    (
        b"Aborting DAG because we got the ABORT exit value from ",
        rb"an? (?P<text>\w+(?: \w+)?)",
        DagmanMessageKind.ABORTED,
    ),
    (b"Of ", rb"(?P<value>\d{1,9}) nodes total:", _LineReader.table_total),
    (b" Done ", rb" *(?P<text>Pre [ A-Za-z-]{1,120})", _LineReader.table_head),
)
"""How a message starts, the pattern of its rest, and what it means."""

_TOLD_APART_BY: Final = 3
"""Bytes of a message. Nine lines of ten mean nothing here, and so many bytes say that."""


def _by_first_bytes() -> dict[bytes, list[tuple[re.Pattern[bytes], _Meaning]]]:
    meanings: dict[bytes, list[tuple[re.Pattern[bytes], _Meaning]]] = {}
    for start, rest, meaning in _WORDINGS:
        pattern = re.compile(re.escape(start) + rest)
        meanings.setdefault(start[:_TOLD_APART_BY], []).append((pattern, meaning))
    return meanings


_MEANINGS: Final = _by_first_bytes()

_STAMPED: Final = rb"\d\d/\d\d/\d\d \d\d:\d\d:\d\d "
_USUAL_ID: Final = rb"\((\d{1,9})\.(\d{1,9})\.(\d{1,9})\)"
_USUAL: Final = (
    rb"(" + _STAMPED[:-1] + rb") (?:Submitting HTCondor Node (\S{1,1000}+) job\(s\)\.\.\."
    rb"|\tassigned HTCondor ID "
    + _USUAL_ID
    + rb"|Event: ULOG_SUBMIT for HTCondor Node \S{1,1000}+ "
    + _USUAL_ID
    + rb" \{[^}\n]{1,40}\}|Node (\S{1,1000}+) job proc "
    + _USUAL_ID
    + rb" completed successfully\.)(?=\n)"
)
"""What every job has: its four lines are most of those that mean something. Which they are, and
what they mean, is said in :data:`_WORDINGS`."""

_OFTEN: Final = {b"Node ": rb"\S+ job proc ", b"Submitting ": rb"(?:\S+ )?(?:Node|Job) "}
"""Starts that every job has lines with which mean nothing, and how those go on that do not."""


def _starts() -> list[bytes]:
    """How a message starts that may mean something; one in parentheses is more header."""
    starts = {start: re.escape(start) + _OFTEN.get(start, b"") for start, _, _ in _WORDINGS}
    return [rb"\(", *starts.values()]


_WORTH_READING: Final = re.compile(
    rb"\n(?:" + _USUAL + rb"|(?!" + _STAMPED + rb"(?!" + b"|".join(_starts()) + rb")))"
)
"""The end of a line before one that may mean something: a usual one, one without the usual header,
or with a message that starts like one of the wordings. The others are passed over in C."""
