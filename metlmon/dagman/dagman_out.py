"""Parses ``.dagman.out``, the log of DAGMan over all its runs.

Source followed: ``dag.cpp``, ``dagman_main.cpp``, ``dagman_commands.cpp``, ``scriptQ.cpp`` and
``job.cpp`` (``node.cpp``) of DAGMan for the messages, ``_format_global_header`` in
``dprintf.cpp`` for the header of a message, ``dc_main`` and ``DC_Exit`` of DaemonCore
for the first and last line of a run. The messages are those of versions 7.4 to 25.14.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from metlmon.dagman.records import NOT_STARTED_TEXT, DagmanMessage, MessageKind
from metlmon.redact import harmless, plain, redact_secrets, visible

LONGEST_LINE: Final = 256 * 1024
"""Bytes, fewer than are read at once. A longer line is skipped, so that a file without line
ends is not read again from its start on each update."""

_PARSED_BYTES: Final = 8 * 1024
"""Bytes of a line that are parsed: node and file names end before it; bounds hostile lines."""

_MAX_ASSIGNED: Final = 2000
"""Submissions without a logged event yet. DAGMan submits at most 1000 per cycle and then reads
its log; beyond this the set is cleared, and a submission may be reported twice."""

JobId = tuple[int, int, int]


class OutState(Struct):
    """The parser state between calls: pass it back, unchanged, with the next bytes.

    Some messages refer to the previous one. ``with_events``: report events of jobs, too.
    ``before``: the last bytes read, which may explain an error. ``not_started``: why the script
    of a node was not started, until its failure is reported.
    ``before``: the last bytes read, which may explain an error. ``halted``: when DAGMan last
    found its halt file.
    """

    with_events: bool = False
    before: bytes = b""
    continues: bool = False
    recovering: bool = False
    event: tuple[JobId, datetime | None] | None = None
    submitting: str | None = None
    assigned: set[JobId] = field(default_factory=set)
    dumped: str | None = None
    dumped_value: int | None = None
    skipping: bool = False
    not_started: dict[str, str] = field(default_factory=dict)
    halted: datetime | None = None


HALTED: Final = "the DAG was halted, and DAGMan ended when nothing of it was queued"
"""The reason of an end by a halt: DAGMan has written a rescue file."""

_HALT_CHECK: Final = timedelta(seconds=10)
"""DAGMan reports its halt file in every cycle, also in the one in which it ends."""

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
    reader = _LineReader(state, data)
    start = 0
    if state.skipping:
        start = data.find(b"\n") + 1
        if not start:
            return [], state, len(data)
        reader.state.skipping = False
    worth_reading = _before_relevant_line(state.with_events)
    while True:
        if start:
            match = worth_reading.search(data, start - 1)
            # The last, incomplete line, if no other is relevant.
            start = match.start() + 1 if match is not None else data.rfind(b"\n") + 1
        end = data.find(b"\n", start)
        if end < 0:
            if len(data) - start > LONGEST_LINE:
                reader.state.skipping = True
                start = len(data)
            break
        if end - start <= LONGEST_LINE:
            reader.read_line(data[start : min(end, start + _PARSED_BYTES)], start, end + 1)
        start = end + 1
    reader.state.before = reader.bytes_before(start)
    reader.state.continues = reader.error_end == start
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

    def __init__(self, state: OutState, data: bytes) -> None:
        self.state = replace(state, assigned=set(state.assigned))
        self.messages: list[DagmanMessage] = []
        self.error_end = 0 if state.continues else -1
        """The start of the line after an error; without a stamp it belongs to the error."""
        self._data = data
        self._start = self._end = 0
        self._stamp = b""
        self._time: datetime | None = None

    def read_line(self, line: bytes, start: int, end: int) -> None:
        """Read the line from ``start`` to ``end``; ``line`` is its beginning."""
        head = _HEADER.match(line) or _HEADER.match(line := line.lstrip(b"\0"))
        if head is None:
            if self.error_end == start:
                self.error_end = end
                if text := _decode_redacted(line[:_QUOTED_BYTES].strip()):
                    self.messages.append(
                        DagmanMessage(MessageKind.ERROR_CONTINUED, None, text=text)
                    )
            return
        self._start, self._end = start, end
        message, stamp = line[head.end() :], head[1]
        for pattern, handler in _HANDLERS.get(message[:_PREFIX_BYTES], ()):
            match = re.match(pattern, message)
            if match is None:
                continue
            if isinstance(handler, MessageKind):
                self.add_message(handler, match, stamp)
            else:
                handler(self, match, stamp)
            return

    def add_message(self, kind: MessageKind, match: re.Match[bytes], stamp: bytes) -> None:
        """Add a message from the pattern's named groups."""
        groups = match.groupdict()
        value, signal = groups.get("value"), groups.get("signal")
        self.messages.append(
            DagmanMessage(
                kind=kind,
                time=self.cached_time(groups.get("when") or self._event_stamp(groups) or stamp),
                node=_decode(groups.get("node")),
                cluster=_parse_number(groups.get("cluster")),
                proc=_parse_number(groups.get("proc")),
                value=-int(signal) if signal else _parse_number(value),
                text=_decode_redacted(groups.get("text")),
            )
        )

    def _event_stamp(self, groups: Mapping[str, bytes | None]) -> bytes | None:
        """In a recovery, the original time of the event that a line about a node follows from.

        A recovery reads all events again: with its own time, the end of a first try would be
        newer than the second one, which has been running for hours.
        """
        if not self.state.recovering or groups.get("node") is None:
            return None
        before = self.bytes_before(self._start)
        match = _EVENT_TIME.search(before, max(0, before.rfind(_EVENT)))
        return match["when"] if match and self._parse_time(match["when"]) else None

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
        year = int(digits) + (_CENTURY if len(digits) == 2 else 0)
        month, day = match["month"] or match["month2"], match["day"] or match["day2"]
        hour, minute, second = map(int, match.group("hour", "minute", "second"))
        microsecond = int((match["fraction"] or b"0").ljust(6, b"0"))
        with suppress(ValueError):
            return datetime(year, int(month), int(day), hour, minute, second, microsecond)
        return None

    def bytes_before(self, end: int) -> bytes:
        """The last bytes before ``end``, as many as can explain an error."""
        known = self.state.before if end < _CONTEXT_BYTES else b""
        return (known + self._data[max(0, end - _CONTEXT_BYTES) : end])[-_CONTEXT_BYTES:]

    def lines_before(self) -> list[str]:
        """The lines before this one, without stamps; the newest one first."""
        lines = self.bytes_before(self._start).split(b"\n")
        # The first one is cut, unless the file begins with it.
        texts = (line[head.end() if (head := _HEADER.match(line)) else 0 :] for line in lines)
        return [plain(redact_secrets(t.decode("utf-8", "replace"))) for t in texts][::-1]

    def on_started(self, match: re.Match[bytes], stamp: bytes) -> None:
        """Begin a new DAGMan run, keeping only submissions that are not yet logged."""
        known = self.state
        self.state = OutState(
            with_events=known.with_events, before=known.before, assigned=known.assigned
        )
        self.add_message(MessageKind.STARTED, match, stamp)

    def on_recovery(self, match: re.Match[bytes], stamp: bytes) -> None:
        self.state.recovering = True
        self.add_message(MessageKind.RECOVERY, match, stamp)

    def on_recovered(self, match: re.Match[bytes], stamp: bytes) -> None:
        self.state.recovering = False

    def on_error(self, match: re.Match[bytes], stamp: bytes) -> None:
        """Report an error; in strict mode, the warning that was raised to an error."""
        text = _decode_redacted(match["text"]) or ""
        if re.match(_OF_SUBMISSION, text):
            # on_submit_failure reports it if no later try succeeds.
            return
        self.error_end = self._end
        if text.startswith(_OF_STRICT_MODE):
            lines = [line for line in self.lines_before() if line]
            warning = explanation(lines) or next(iter(lines), None)
            text = f"{warning} (an error by DAGMAN_USE_STRICT)" if warning else text
        kind = MessageKind.ERROR
        if text.startswith(_OF_READING_LOGS):
            kind = MessageKind.LOG_ERROR
        self.messages.append(DagmanMessage(kind, self.cached_time(stamp), text=text))

    def on_cycle(self, match: re.Match[bytes], stamp: bytes) -> None:
        text = f"cycle in the graph {_decode_redacted(match['text'])}"
        self.messages.append(DagmanMessage(MessageKind.ERROR, self.cached_time(stamp), text=text))

    def on_exited(self, match: re.Match[bytes], stamp: bytes) -> None:
        """Report the end; after an error, with the line that may explain it."""
        self.add_message(MessageKind.EXITED, match, stamp)
        ended, halted = self.messages[-1], self.state.halted
        if ended.value:
            self.messages[-1] = replace(ended, text=explanation(self.lines_before()))
        if ended.value == 1 and ended.time and halted and ended.time - halted < _HALT_CHECK:
            self.messages.insert(-1, DagmanMessage(MessageKind.ERROR, ended.time, text=HALTED))

    def on_halted(self, match: re.Match[bytes], stamp: bytes) -> None:
        self.state.halted = self.cached_time(stamp)

    def on_submit_failure(self, match: re.Match[bytes], stamp: bytes) -> None:
        """Report a failed submission with what its last try printed."""
        lines = self.lines_before()
        first = next((i for i, line in enumerate(lines) if re.match(_SUBMITTING, line)), None)
        time, node = self.cached_time(stamp), _decode(match["node"])
        printed = lines[:first][::-1]
        text = explanation([x for x in printed if x.startswith("submit error: ")] or printed)
        self.messages.append(DagmanMessage(MessageKind.SUBMIT_FAILED, time, node, text=text))

    def on_script_not_started(self, match: re.Match[bytes], stamp: bytes) -> None:
        """Keep why a script was not started, for the report of its failure."""
        node = _decode(match["node"]) or ""
        if len(self.state.not_started) < _MAX_ASSIGNED:
            error = next((m for t in self.lines_before()[1:3] if (m := re.search(_ERRNO, t))), None)
            why = f": {error['text']}" if error is not None else ""
            self.state.not_started[node] = f"{NOT_STARTED_TEXT}{why}"

    def on_script_failed(self, match: re.Match[bytes], stamp: bytes) -> None:
        is_post = match[0].startswith(b"POST")
        self.add_message(
            MessageKind.POST_FAILED if is_post else MessageKind.PRE_FAILED, match, stamp
        )
        text = self.state.not_started.pop(self.messages[-1].node or "", None)
        if text is not None:
            self.messages[-1] = replace(self.messages[-1], text=text)

    def on_lost_track(self, match: re.Match[bytes], stamp: bytes) -> None:
        self.add_message(MessageKind.NODE_LOST, match, stamp)
        self.on_error(match, stamp)

    def on_event(self, match: re.Match[bytes], stamp: bytes) -> None:
        """Report an event of a job, except its end, whose result is in a later line."""
        name, when = match.group("name", "when")
        if name == b"SUBMIT":
            self.on_submit_event(match, stamp)
        number = EVENT_NUMBERS.get(name.decode("ascii"))
        if not self.state.with_events or number is None or (not when and self.state.recovering):
            # A recovery repeats the events; old versions omit their original times.
            return
        job, time = _parse_job_id(match), self.cached_time(when or stamp)
        self.state.event = (job, time)
        if number != JOB_TERMINATED:
            self._add_event(number, job, time, _decode(match["node"]))

    def on_skip_event(self, match: re.Match[bytes], stamp: bytes) -> None:
        """Report a skip in a recovery, which has no other line about it."""
        if self.state.recovering:
            self.add_message(MessageKind.PRE_SKIPPED, match, stamp)

    def on_hold_reason(self, match: re.Match[bytes], stamp: bytes) -> None:
        if self.state.event is not None:
            text = _decode_redacted(match["text"])
            self._add_event(JOB_HELD, *self.state.event, None, text=text)

    def on_job_end(self, match: re.Match[bytes], stamp: bytes) -> None:
        ok = match["value"] is None and match["signal"] is None
        self.add_message(MessageKind.JOB_OK if ok else MessageKind.JOB_FAILED, match, stamp)
        event, job = self.state.event, _parse_job_id(match)
        if event is not None and event[0] == job:
            last = self.messages[-1]
            self._add_event(JOB_TERMINATED, *event, last.node, value=0 if ok else last.value)

    def _add_event(
        self, number: int, job: JobId, time: datetime | None, node: str | None, **fields: Any
    ) -> None:
        self.messages.append(
            DagmanMessage(MessageKind.JOB_EVENT, time, node, job[0], job[1], event=number, **fields)
        )

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
            self.messages.append(DagmanMessage(MessageKind.SUBMITTED, time, node, job[0], job[1]))

    def on_submit_event(self, match: re.Match[bytes], stamp: bytes) -> None:
        job = _parse_job_id(match)
        if job in self.state.assigned:
            self.state.assigned.discard(job)
        else:
            self.add_message(MessageKind.SUBMITTED, match, stamp)

    def on_dump_name(self, match: re.Match[bytes], stamp: bytes) -> None:
        self.state.dumped, self.state.dumped_value = _decode(match["node"]), None

    def on_dump_value(self, match: re.Match[bytes], stamp: bytes) -> None:
        self.state.dumped_value = int(match["value"])

    def on_dump_error(self, match: re.Match[bytes], stamp: bytes) -> None:
        """Report a failed node: only these have an error in DAGMan's dump at the end."""
        node, value = self.state.dumped, self.state.dumped_value
        if node is not None:
            self.state.dumped, self.state.dumped_value = None, None
            time, text = self.cached_time(stamp), _decode_redacted(match["text"])
            self.messages.append(
                DagmanMessage(MessageKind.NODE_FAILED, time, node, value=value, text=text)
            )


def _decode(raw: bytes | None) -> str | None:
    return None if raw is None else visible(raw.decode("utf-8", "replace"))


def _decode_redacted(raw: bytes | None) -> str | None:
    """Text that may quote anything, visible and without secrets."""
    return None if raw is None else harmless(raw.decode("utf-8", "replace"))


def _parse_number(raw: bytes | None) -> int | None:
    return None if raw is None else int(raw)


def _parse_job_id(match: re.Match[bytes]) -> JobId:
    cluster, proc, subproc = match.group("cluster", "proc", "subproc")
    return int(cluster), int(proc), int(subproc)


_CONTEXT_BYTES: Final = 4096
"""Bytes before an error that are searched for its explanation: some forty lines."""

_QUOTED_BYTES: Final = 300
"""Bytes of a line that a message quotes."""

_OF_STRICT_MODE: Final = "Warning is fatal error because of"
# As texts: re compiles them where they are first used, which few commands do.
_OF_SUBMISSION: Final = (
    r"submit attempt failed|Failed to run condor_submit|on Line \d+ of submit file|Job submit "
)
_OF_READING_LOGS: Final = ("failure to read job log", "repeated (", "unknown log error")
_ERRNO: Final = r"errno (?:= )?\d{1,4} \((?P<text>[^()]{1,80})\)"
"""How DaemonCore's ``Create_Process`` says what was wrong."""
_SUBMITTING: Final = r"Submitting (?:\S+ )?(?:Node|Job) \S+ job\(s\)"

_EXPLAINS: Final = (
    r"(?i)error|warning|fail|fatal|can'?t|cannot|could not|unable|invalid|illegal|denied|no such|"
    r"not found|unknown|exceed|missing|bad event|cycle|disallowed|must|duplicate|violate|"
    r"unrecognized|was specified"
)
_EXPLAINS_NOTHING: Final = (
    r"(?:ERROR: )?(?:"
    r"Warning is fatal error|submit attempt failed|Failed to run condor_submit for node \S+:$|"
    r"the following |Job submit attempts |job \S+ not found!$|Aborting DAG)|"
    r"(?:From submit: )?(?:ERROR: )?Failed to parse command file|Failed to parse dag file|"
    r"Error: (?:Job|PRE|POST|HTCondor) |Job submit |submit command was|Submitting|Running: |"
    r"Warning: failed to get attribute|Can't open directory|Node Status: |Note: |DAG status: |"
    r"DAGMan Runtime|Done +Pre |Shortcutting |(?:\(obsolete\) )?\[-|"
    r"\w+(?: \(\w+\))? setting: "
)
"""Summaries, lines that any DAGMan writes, and options in its usage."""

_MESSAGE_PREFIX: Final = (
    r"(?:From submit: |submit error: (?:Submit:-?\d+:)?|Failed to create new proc id: |ERROR: "
    r"|Warning: |WARNING: )*"
)


def explanation(lines: Iterable[str]) -> str | None:
    """The first of these lines that says what was wrong; None if none does."""
    for line in lines:
        if re.search(_EXPLAINS, line) and not re.match(_EXPLAINS_NOTHING, line):
            return re.sub(_MESSAGE_PREFIX, "", line, count=1)[:_QUOTED_BYTES]
    return None


JOB_TERMINATED, JOB_HELD = 5, 12

EVENT_NUMBERS: Final = {
    "SUBMIT": 0,
    "EXECUTE": 1,
    "JOB_EVICTED": 4,
    "JOB_TERMINATED": JOB_TERMINATED,
    "SHADOW_EXCEPTION": 7,
    "JOB_ABORTED": 9,
    "JOB_SUSPENDED": 10,
    "JOB_UNSUSPENDED": 11,
    "JOB_HELD": JOB_HELD,
    "JOB_RELEASED": 13,
    "JOB_DISCONNECTED": 22,
    "JOB_RECONNECTED": 23,
    "JOB_RECONNECT_FAILED": 24,
}
"""Numbers of the events that change a job's state, by ``ULogEventNumberNames``."""

_ID: Final = rb"\((?P<cluster>-?\d{1,12})\.(?P<proc>-?\d{1,12})\.(?P<subproc>-?\d{1,12})\)"
_NODE: Final = rb"(?:[Nn]ode|[Jj]ob) (?P<node>\S+)"
_WHEN: Final = rb" \{(?P<when>[^}\n]{1,40})\}"
_OF_NODE: Final = rb"(?:\S+ )?" + _NODE + rb" " + _ID + rb"(?:" + _WHEN + rb")?"
_EVENT: Final = b" Event: ULOG_"
_EVENT_TIME: Final = re.compile(_EVENT + rb"[A-Z_]{1,40} for [^\n{]{1,2000}" + _WHEN)
_NODE_RUNS: Final = rb"script of (?:[Nn]ode|[Jj]ob) (?P<node>\S+?)\.\.\.\s*$"
_NUMBER: Final = rb"(?P<value>-?\d{1,9})"
_SIGNAL: Final = rb"(?P<signal>\d{1,3})"
_FAILED: Final = rb" (?:failed with status " + _NUMBER + rb"|died on (?:signal " + _SIGNAL + rb")?)"
_FILE: Final = rb"(?P<text>\S.*?)"
_TO_THE_END: Final = rb"(?P<text>\S(?:.*\S)?)\s*$"
_RESCUE: Final = rb"\d+[^;]*; running " + _FILE + rb" (?:in combination with|instead of) "

_DAGMAN: Final = rb"condor_scheduniv_exec\.(?P<cluster>\d{1,12})\.\d{1,12}"
"""The schedd's name for the process of a scheduler universe job."""

_Handler = MessageKind | Callable[[_LineReader, re.Match[bytes], bytes], None]

_MESSAGES: Final[tuple[tuple[bytes, bytes, _Handler], ...]] = (
    (b"** ", rb"(?:" + _DAGMAN + rb"|\S+) \(CONDOR_DAGMAN\) STARTING UP", _LineReader.on_started),
    (
        b"**** ",
        rb"(?:" + _DAGMAN + rb")?.{0,200}EXITING WITH STATUS " + _NUMBER,
        _LineReader.on_exited,
    ),
    (b"Aborting because it looks like another instance of DAGMan is", b"", MessageKind.REFUSED),
    (
        b"ERROR: ",
        rb"(?P<text>DAGMan lost track of node (?P<node>\S+) \(ClusterId=(?P<cluster>\d{1,12})\).*)",
        _LineReader.on_lost_track,
    ),
    (b"ERROR: ", rb"(?P<text>(?!the following )\S(?:.{0,299}\S)?)\s*$", _LineReader.on_error),
    (b"Error: ", _TO_THE_END, _LineReader.on_error),
    (b"Cycle in the graph ", _TO_THE_END, _LineReader.on_cycle),
    (b"BAD EVENT: ", rb"(?P<text>\S.{0,299})", MessageKind.BAD_EVENT),
    (b"Pending DAG nodes:", b"", MessageKind.PENDING),
    (
        b"  Node ",
        rb"(?P<node>\S+), (?:HT)?Condor ID (?P<cluster>-?\d{1,12}), status (?P<text>\w+)",
        MessageKind.PENDING,
    ),
    (b'ERROR "', rb'(?P<text>.*)" at line \d+ in file', MessageKind.EXITED),
    (b"Number of pre-completed ", rb"(?:nodes|jobs): " + _NUMBER, MessageKind.PRE_COMPLETED),
    (b"Running in RECOVERY mode", b"", _LineReader.on_recovery),
    (b"...done with RECOVERY mode", b"", _LineReader.on_recovered),
    (b"Found rescue DAG number ", _RESCUE, MessageKind.RESCUE_USED),
    (b"Rescue DAG number ", _RESCUE, MessageKind.RESCUE_USED),
    (b"Loading saved progress from ", _FILE + rb" for DAG", MessageKind.RESCUE_USED),
    (b"Writing Rescue DAG to ", _FILE + rb"\.\.\.\s*$", MessageKind.RESCUE_WRITTEN),
    (
        b"Submitting ",
        rb"(?:\S+ )?(?:Node|Job) (?P<node>\S+) job\(s\)\.\.\.",
        _LineReader.on_submitting,
    ),
    (b"\tassigned ", rb"(?:\S+ )?ID " + _ID, _LineReader.on_assigned),
    (b"Event: ULOG_PRESKIP for ", _OF_NODE, _LineReader.on_skip_event),
    (b"Event: ULOG_", rb"(?P<name>[A-Z_]{1,40}) for " + _OF_NODE, _LineReader.on_event),
    (b"  Hold reason: ", _TO_THE_END, _LineReader.on_hold_reason),
    (b"Running PRE ", _NODE_RUNS, MessageKind.PRE_STARTED),
    (b"Running POST ", _NODE_RUNS, MessageKind.POST_STARTED),
    (b"PRE ", rb"[Ss]cript of " + _NODE + rb" completed successfully", MessageKind.PRE_OK),
    (b"PRE ", rb"[Ss]cript of " + _NODE + _FAILED, _LineReader.on_script_failed),
    (b"PRE_SKIP return value ", _NUMBER + rb" indicates .* with " + _NODE, MessageKind.PRE_SKIPPED),
    (b"POST ", rb"[Ss]cript of " + _NODE + rb" completed successfully", MessageKind.POST_OK),
    (b"POST ", rb"[Ss]cript of " + _NODE + _FAILED, _LineReader.on_script_failed),
    (
        b"  error: daemonCore->Create_Process() failed; ",
        rb"(?:PRE|POST) script of " + _NODE + rb" failed",
        _LineReader.on_script_not_started,
    ),
    (
        b"Node ",
        rb"(?P<node>\S+) job proc "
        + _ID
        + rb" (?:completed successfully\.|failed with (?:status "
        + _NUMBER
        + rb"|signal "
        + _SIGNAL
        + rb"))",
        _LineReader.on_job_end,
    ),
    (b"Retrying ", _NODE + rb" \(retry #" + _NUMBER, MessageKind.RETRYING),
    (b"Looking for retry of ", _NODE + rb" \(retry #" + _NUMBER, MessageKind.RETRYING),
    (
        b"Aborting further retries of ",
        _NODE + rb" .*\(last attempt returned " + _NUMBER,
        MessageKind.NODE_FAILED,
    ),
    (
        b"Shortcutting ",
        _NODE + rb" retries because of submit failure",
        _LineReader.on_submit_failure,
    ),
    (b"      Node Name: ", rb"(?P<node>\S+)", _LineReader.on_dump_name),
    (b"Node return val: ", _NUMBER, _LineReader.on_dump_value),
    (b"          Error: ", rb"(?P<text>.*\S)", _LineReader.on_dump_error),
    (b"Received SIGUSR1", b"", MessageKind.REMOVED),
    (b"DAG is halted because ", b"", _LineReader.on_halted),
    (
        b"Aborting DAG because we got the ABORT exit value from ",
        rb"an? (?P<text>\w+(?: \w+)?)",
        MessageKind.ABORTED,
    ),
    (b"Of ", rb"(?P<value>\d{1,9}) nodes total:", MessageKind.TOTAL),
)
"""The start of a message, the pattern of its rest, and its kind or handler."""

_PREFIX_BYTES: Final = 3
"""Bytes of a message by which the nine in ten irrelevant lines are recognized."""


def _handlers_by_prefix() -> dict[bytes, list[tuple[bytes, _Handler]]]:
    handlers: dict[bytes, list[tuple[bytes, _Handler]]] = {}
    for start, rest, handler in _MESSAGES:
        handlers.setdefault(start[:_PREFIX_BYTES], []).append((re.escape(start) + rest, handler))
    return handlers


_HANDLERS: Final = _handlers_by_prefix()
"""Patterns are compiled when they are needed: most files have few kinds of messages."""

_STAMPED: Final = rb"\d\d/\d\d/\d\d \d\d:\d\d:\d\d "

_FREQUENT: Final = {
    b"Node ": rb"\S+ job proc ",
    b"Submitting ": rb"(?:\S+ )?(?:Node|Job) ",
    b"Event: ULOG_": rb"SUBMIT ",
}
"""Starts that irrelevant lines of every job share, and how the relevant ones continue."""


@cache
def _before_relevant_line(with_events: bool) -> re.Pattern[bytes]:
    """The end of the line before a relevant one.

    That is one without the usual header, or one whose message starts like a known one. The
    regular expression skips all others in C.
    """
    frequent = {} if with_events else _FREQUENT
    starts = {start: re.escape(start) + frequent.get(start, b"") for start, _, _ in _MESSAGES}
    # A parenthesis continues the header.
    relevant = b"|".join([rb"\(", *starts.values()])
    return re.compile(rb"\n(?!" + _STAMPED + rb"(?!" + relevant + rb"))")
