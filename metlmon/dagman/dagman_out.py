"""Parses ``.dagman.out``, the log of DAGMan over all its runs.

Source followed: ``dag.cpp``, ``dagman_main.cpp``, ``dagman_commands.cpp``, ``scriptQ.cpp`` and
``job.cpp`` (``node.cpp``) of DAGMan for the messages, ``_format_global_header`` in
``dprintf.cpp`` for the header of a message, ``dc_main`` and ``DC_Exit`` of DaemonCore
for the first and last line of a run. The messages are those of versions 7.4 to 25.14.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from metlmon.dagman.records import DagmanMessage, DagmanMessageKind
from metlmon.redact import redact_secrets

LONGEST_LINE: Final = 256 * 1024
"""Bytes, fewer than are read at once. A longer line is skipped, so that a file without line
ends is not read again from its start on each update."""

_PARSED_BYTES: Final = 8 * 1024
"""Bytes of a line that are parsed: node and file names end before; bounds hostile lines."""

_MAX_ASSIGNED: Final = 2000
"""Submissions without a logged event yet. DAGMan submits at most 1000 per cycle and then reads
its log; beyond this the set is cleared, and a submission may be reported twice."""

JobId = tuple[int, int, int]


class OutState(Struct):
    """The parser state between calls: pass it back, unchanged, with the next bytes.

    Some messages refer to the previous one.
    """

    halted: bool = False
    submitting: str | None = None
    assigned: set[JobId] = field(default_factory=set)
    dag_follows: bool = False
    total: int | None = None
    columns: tuple[str, ...] = ()
    dumped: str | None = None
    dumped_value: int | None = None
    skipping: bool = False


_START: Final = OutState()


def read_dagman_out(
    data: bytes, state: OutState = _START
) -> tuple[list[DagmanMessage], OutState, int]:
    """Read the complete lines of ``data``.

    Returns the messages, the state for the next call, and the number of bytes used; the rest
    must be passed again with the bytes that follow. A submission is reported once per DAGMan
    run, when it is made or first seen in the log, whichever line comes first; a recovery
    reports the old ones again. Never raises.
    """
    reader = _LineReader(state)
    start = 0
    if state.skipping:
        start = data.find(b"\n") + 1
        if not start:
            return [], state, len(data)
        reader.state.skipping = False
    while True:
        if start and not reader.state.columns:
            match = _WORTH_READING.search(data, start - 1)
            if match is not None and match.lastindex and reader.read_usual_line(match):
                start = match.end() + 1
                continue
            # The last, incomplete line, if no other is relevant.
            start = match.start() + 1 if match is not None else data.rfind(b"\n") + 1
        end = data.find(b"\n", start)
        if end < 0:
            if len(data) - start > LONGEST_LINE:
                reader.state.skipping = True
                start = len(data)
            break
        if end - start <= LONGEST_LINE:
            reader.read_line(data[start : min(end, start + _PARSED_BYTES)])
        start = end + 1
    return reader.messages, reader.state, start


_HEADER: Final = re.compile(
    rb"(\d\d/\d\d/\d\d \d\d:\d\d:\d\d"
    rb"|\d{9,11}(?:\.\d+)?"
    rb"|[^:]{0,24}?\d{1,2}:\d\d:\d\d\S{0,12}(?: [AP]M)?)"
    rb" (?:\([A-Za-z][\w:|.]{0,60}\) )*"
)
"""The time in DEBUG_TIME_FORMAT (default, else any text that ends in a clock) or, with
D_TIMESTAMP, in seconds since 1970; then ``(fd:3) (pid:1) (tid:1) (cid:1) (bt:00ff:3)
(D_ALWAYS:2)`` as configured. A line without it is a message's second line: untrusted text."""

_STAMP: Final = re.compile(
    rb"(?:(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)"
    rb"|(?P<month2>\d{1,2})/(?P<day2>\d{1,2})/(?P<year2>\d{4}|\d\d))"
    rb"[ T](?P<hour>\d{1,2}):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,6}))?"
)

_USUAL_STAMP: Final = len("11/21/26 00:17:25")

_CENTURY: Final = 2000
"""No HTCondor wrote two-digit years before 2000."""


class _LineReader:
    """Parses lines into ``messages``; ``state`` is carried from line to line."""

    def __init__(self, state: OutState) -> None:
        self.state = replace(state, assigned=set(state.assigned))
        self.messages: list[DagmanMessage] = []
        self._stamp = b""
        self._time: datetime | None = None

    def read_line(self, line: bytes) -> None:
        head = _HEADER.match(line) or _HEADER.match(line := line.lstrip(b"\0"))
        if head is None:
            return
        start, stamp = head.end(), head[1]
        if self.state.columns and self.read_table_row(line[start:], stamp):
            return
        for pattern, handler in _HANDLERS.get(line[start : start + _PREFIX_BYTES], ()):
            match = pattern.match(line, start)
            if match is None:
                continue
            if isinstance(handler, DagmanMessageKind):
                self.add_message(handler, match, stamp)
            else:
                handler(self, match, stamp)
            return

    def read_usual_line(self, fields: re.Match[bytes]) -> bool:
        """Handle one of the usual lines; False, without effect, if it is an exception."""
        stamp = fields[1]
        match fields.lastindex:
            case 2:
                self.state.submitting = _decode(fields[2])
            case 5:
                self.add_submission((int(fields[3]), int(fields[4]), int(fields[5])), stamp)
            case 8:
                job = int(fields[6]), int(fields[7]), int(fields[8])
                if job not in self.state.assigned:
                    return False
                self.state.assigned.discard(job)
            case _:
                node, cluster, proc = _decode(fields[9]), int(fields[10]), int(fields[11])
                self.messages.append(
                    DagmanMessage(
                        DagmanMessageKind.JOB_OK, self.cached_time(stamp), node, cluster, proc
                    )
                )
        return True

    def add_message(self, kind: DagmanMessageKind, match: re.Match[bytes], stamp: bytes) -> None:
        """Add a message from the pattern's named groups."""
        groups = match.groupdict()
        value, signal = groups.get("value"), groups.get("signal")
        self.messages.append(
            DagmanMessage(
                kind=kind,
                time=self.cached_time(groups.get("when") or stamp),
                node=_decode(groups.get("node")),
                cluster=_parse_number(groups.get("cluster")),
                proc=_parse_number(groups.get("proc")),
                value=-int(signal) if signal else _parse_number(value),
                text=_decode_redacted(groups.get("text")),
            )
        )

    def cached_time(self, stamp: bytes) -> datetime | None:
        """The time of a timestamp; the last one is cached, since many lines share it."""
        if stamp != self._stamp or self._time is None:
            self._stamp, self._time = stamp, self._parse_time(stamp)
        return self._time

    def _parse_time(self, stamp: bytes) -> datetime | None:
        if len(stamp) == _USUAL_STAMP and stamp[2:9:3] == b"// ":
            with suppress(ValueError):
                text = stamp.decode("ascii")
                return datetime.fromisoformat(f"20{text[6:8]}-{text[:2]}-{text[3:5]}{text[8:]}")
        match = _STAMP.search(stamp)
        if match is None:
            return None
        digits = match["year"] or match["year2"]
        return _datetime(match, int(digits) + (_CENTURY if len(digits) == 2 else 0))

    def on_started(self, match: re.Match[bytes], stamp: bytes) -> None:
        """Begin a new DAGMan run, keeping only submissions that are not yet logged."""
        self.state = OutState(assigned=self.state.assigned)
        self.add_message(DagmanMessageKind.STARTED, match, stamp)

    def on_argument(self, match: re.Match[bytes], stamp: bytes) -> None:
        follows = match["text"].lower() == b"-dag"
        if self.state.dag_follows:
            self.add_message(DagmanMessageKind.DAG_FILE, match, stamp)
            follows = False
        if follows != self.state.dag_follows:
            self.state.dag_follows = follows

    def on_submitting(self, match: re.Match[bytes], stamp: bytes) -> None:
        self.state.submitting = _decode(match["node"])

    def on_assigned(self, match: re.Match[bytes], stamp: bytes) -> None:
        self.add_submission(_parse_job_id(match), stamp)

    def add_submission(self, job: JobId, stamp: bytes) -> None:
        node = self.state.submitting
        if node is not None:
            if len(self.state.assigned) >= _MAX_ASSIGNED:
                self.state.assigned.clear()
            self.state.submitting = None
            self.state.assigned.add(job)
            time = self.cached_time(stamp)
            self.messages.append(
                DagmanMessage(DagmanMessageKind.SUBMITTED, time, node, job[0], job[1])
            )

    def on_submit_event(self, match: re.Match[bytes], stamp: bytes) -> None:
        job = _parse_job_id(match)
        if job in self.state.assigned:
            self.state.assigned.discard(job)
        else:
            self.add_message(DagmanMessageKind.SUBMITTED, match, stamp)

    def on_halted(self, match: re.Match[bytes], stamp: bytes) -> None:
        """Report only the first message: a halted DAGMan repeats it in every cycle."""
        if not self.state.halted:
            self.state.halted = True
            self.add_message(DagmanMessageKind.HALTED, match, stamp)

    def on_resumed(self, match: re.Match[bytes], stamp: bytes) -> None:
        if self.state.halted:
            self.state.halted = False
            self.add_message(DagmanMessageKind.RESUMED, match, stamp)

    def on_table_total(self, match: re.Match[bytes], stamp: bytes) -> None:
        self.state.total, self.state.columns = int(match["value"]), ()

    def on_table_head(self, match: re.Match[bytes], stamp: bytes) -> None:
        """Read the column names from the table; older tables have no Futile."""
        if self.state.total is not None:
            names = match["text"].decode("ascii").lower().replace("un-ready", "unready")
            self.state.columns = ("done", *names.split())

    def read_table_row(self, message: bytes, stamp: bytes) -> bool:
        """Read the numbers below the table's head; False for any other line."""
        cells = message.split()
        if cells and cells[0].startswith(b"="):
            return True
        columns, total = self.state.columns, self.state.total or 0
        self.state.total, self.state.columns = None, ()
        if len(cells) != len(columns) or not all(_CELL.fullmatch(cell) for cell in cells):
            return False
        numbers = zip(columns, map(int, cells), strict=True)
        totals = (("total", total), *numbers)
        self.messages.append(
            DagmanMessage(DagmanMessageKind.TOTALS, self.cached_time(stamp), totals=totals)
        )
        return True

    def on_dump_name(self, match: re.Match[bytes], stamp: bytes) -> None:
        self.state.dumped, self.state.dumped_value = _decode(match["node"]), None

    def on_dump_value(self, match: re.Match[bytes], stamp: bytes) -> None:
        self.state.dumped_value = int(match["value"])

    def on_dump_error(self, match: re.Match[bytes], stamp: bytes) -> None:
        """Report a failed node: at the end, DAGMan dumps only these with an error."""
        node, value = self.state.dumped, self.state.dumped_value
        if node is not None:
            self.state.dumped, self.state.dumped_value = None, None
            time, text = self.cached_time(stamp), _decode_redacted(match["text"])
            self.messages.append(
                DagmanMessage(DagmanMessageKind.NODE_FAILED, time, node, value=value, text=text)
            )


def _decode(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "replace")


def _decode_redacted(raw: bytes | None) -> str | None:
    """Text that may quote anything, without secrets."""
    return None if raw is None else redact_secrets(raw.decode("utf-8", "replace"))


def _parse_number(raw: bytes | None) -> int | None:
    return None if raw is None else int(raw)


def _parse_job_id(match: re.Match[bytes]) -> JobId:
    cluster, proc, subproc = match.group("cluster", "proc", "subproc")
    return int(cluster), int(proc), int(subproc)


def _datetime(match: re.Match[bytes], year: int) -> datetime | None:
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"])
    microsecond = int((match["fraction"] or b"0").ljust(6, b"0"))
    month, day = match["month"] or match["month2"], match["day"] or match["day2"]
    try:
        return datetime(year, int(month), int(day), hour, minute, second, microsecond)
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
"""The schedd's name for the process of a scheduler universe job."""

_Handler = DagmanMessageKind | Callable[[_LineReader, re.Match[bytes], bytes], None]

_MESSAGES: Final[tuple[tuple[bytes, bytes, _Handler], ...]] = (
    (b"** ", rb"(?:" + _DAGMAN + rb"|\S+) \(CONDOR_DAGMAN\) STARTING UP", _LineReader.on_started),
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
    (b"argv[", rb'\d+\] == "(?P<text>.*)"\s*$', _LineReader.on_argument),
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
        _LineReader.on_submitting,
    ),
    (b"\tassigned ", rb"(?:\S+ )?ID " + _ID, _LineReader.on_assigned),
    (
        b"Event: ULOG_SUBMIT for ",
        rb"(?:\S+ )?" + _NODE + rb" " + _ID + rb"(?: \{(?P<when>[^}]{1,40})\})?",
        _LineReader.on_submit_event,
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
    (b"      Node Name: ", rb"(?P<node>\S+)", _LineReader.on_dump_name),
    (b"Node return val: ", _NUMBER, _LineReader.on_dump_value),
    (b"          Error: ", rb"(?P<text>.*\S)", _LineReader.on_dump_error),
    (b"DAG is halted because", b"", _LineReader.on_halted),
    (b"Halting DAGMan prog", b"", _LineReader.on_halted),
    (b"DAG Pause: Freezing", b"", _LineReader.on_halted),
    (b"DAG going from halted to running", b"", _LineReader.on_resumed),
    (b"Resuming DAG progress", b"", _LineReader.on_resumed),
    (b"DAG Un-Pause: Resuming", b"", _LineReader.on_resumed),
    (b"Received SIGUSR1", b"", DagmanMessageKind.REMOVED),
    (
        b"Aborting DAG because we got the ABORT exit value from ",
        rb"an? (?P<text>\w+(?: \w+)?)",
        DagmanMessageKind.ABORTED,
    ),
    (b"Of ", rb"(?P<value>\d{1,9}) nodes total:", _LineReader.on_table_total),
    (b" Done ", rb" *(?P<text>Pre [ A-Za-z-]{1,120})", _LineReader.on_table_head),
)
"""The start of a message, the pattern of its rest, and its kind or handler."""

_PREFIX_BYTES: Final = 3
"""Bytes of a message by which the nine in ten irrelevant lines are recognized."""


def _handlers_by_prefix() -> dict[bytes, list[tuple[re.Pattern[bytes], _Handler]]]:
    handlers: dict[bytes, list[tuple[re.Pattern[bytes], _Handler]]] = {}
    for start, rest, handler in _MESSAGES:
        pattern = re.compile(re.escape(start) + rest)
        handlers.setdefault(start[:_PREFIX_BYTES], []).append((pattern, handler))
    return handlers


_HANDLERS: Final = _handlers_by_prefix()

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
"""The four lines of every job, most of the relevant lines. :data:`_MESSAGES` defines their
meaning."""

_FREQUENT: Final = {b"Node ": rb"\S+ job proc ", b"Submitting ": rb"(?:\S+ )?(?:Node|Job) "}
"""Starts that irrelevant lines of every job share, and how the relevant ones continue."""


def _relevant_starts() -> list[bytes]:
    """The starts of relevant messages; a parenthesis continues the header."""
    starts = {start: re.escape(start) + _FREQUENT.get(start, b"") for start, _, _ in _MESSAGES}
    return [rb"\(", *starts.values()]


_WORTH_READING: Final = re.compile(
    rb"\n(?:" + _USUAL + rb"|(?!" + _STAMPED + rb"(?!" + b"|".join(_relevant_starts()) + rb")))"
)
"""The end of the line before a relevant one: a usual line, one without the usual header, or one
whose message starts like a known one. The regular expression skips all others in C."""
