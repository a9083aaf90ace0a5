"""Causes of failed executions: reasons with their variable parts replaced.

Many hold and evict reasons differ only in slot names, hosts, files and numbers; with
placeholders, ten causes explain hundreds of attempts.

Reasons of removals also prove holds whose 012 is not in the log: a policy that removes jobs after
a long hold has its expression in the reason: ``The system macro SYSTEM_PERIODIC_REMOVE expression
'(JobStatus == 5 && time() - EnteredCurrentStatus > 3600 * 24)' evaluated to TRUE``. The job was
held for at least that time. Source followed: ``UserPolicy::FiringReason`` in
``user_job_policy.cpp``; 5 is HELD in ``proc.h``.

Names of hold and vacate codes: HTCondor manual, "Job ClassAd Attributes" (HoldReasonCode,
VacateReasonCode), and ``condor_holdcodes.h``.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from math import prod
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.eventlog.events import Aborted, Event, Held
from metlmon.model.states import Outcome

REASON: Final = "not logged (inferred: removed after it was held for {held})"

CODES_WITHOUT_CAUSE: Final = frozenset({0, 1, 3, 5, 21, 26, 27})
"""Codes that tell who held the job, not why: each of their reasons is a cause of its own."""

REQUEUED: Final = " (requeued by the job)"
"""Follows the cause of an execution that the job's own policy (max_retries) requeued."""

ANNEX_EXPIRED: Final = "annex expired"
ANNEX_EXPIRED_INFERRED: Final = "annex expired (inferred)"
"""Causes of evictions at the end of an annex, the second from the logs alone."""

MAX_REMOVAL_REASON: Final = 2000
"""Characters of a reason that are parsed: policies are far shorter."""

LONGEST_HOLD: Final = 10 * 365 * 86400
"""Seconds; no policy permits a longer hold."""

_POLICY: Final = re.compile(
    r"(SYSTEM_PERIODIC_(?:REMOVE|HOLD)\w{0,100}|PeriodicRemove|PeriodicHold|OnExitHold|OnExitRemove)"
    r" expression '([^']*)' evaluated to (?:TRUE|UNDEFINED)"
)

_IS_VANILLA: Final = re.compile(r"jobuniverse(?:=(?:=|\?=)5|(?:!=|=!=)(?:7|12))")
"""True for jobs at execution points: 5 is VANILLA, 7 SCHEDULER and 12 LOCAL."""

_IS_HELD: Final = re.compile(r"jobstatus=(?:=|\?=)5|5=(?:=|\?=)jobstatus")

_FOR_LONGER: Final = re.compile(
    r"(?:time|currenttime|servertime)-enteredcurrentstatus>=?(\d+(?:\*\d+)*)"
)

REASON_LIMIT: Final = 2000
"""Characters of a reason that are used: the first lines identify the cause, and a job can write
a megabyte there."""

_FOLDS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (
        re.compile(
            r"^DAG Removed: User removed scheduler job from queue\.\s*(?:\(by user [^)]*\))?"
        ),
        "removed by a user (condor_rm of the DAG)",
    ),
    (re.compile(r"<[^<>\s]*\d+\.\d+\.\d+\.\d+[^<>]*>"), "<host>"),
    (re.compile(r"<\[[0-9a-fA-F:]+\][^<>]*>"), "<host>"),
    (re.compile(r"\b(?:slot|dynamic_slot)\w*@\S+?(?=[:,;)\]]?(?:\s|$))"), "<slot>"),
    (re.compile(r"\bglidein\w*@\S+?(?=[:,;)\]]?(?:\s|$))"), "<slot>"),
    # Named otherwise by SLOT_TYPE_<N>_NAME_PREFIX: only its place tells it from a user's name.
    (
        re.compile(
            r"\b(Error from|Error from starter on|execution point|reconnect to) "
            r"\w+@\S+?(?=[:,;)\]]?(?:\s|$))"
        ),
        r"\1 <slot>",
    ),
    (re.compile(r"\(by user [^)]*\)"), "(by a user)"),
    (re.compile(r"\b[a-z][a-z0-9+.-]*://\S+"), "<url>"),
    (re.compile(r"(?<![\w.])(?:[\w.+-]*/)+[\w.+#%=-]*"), "<file>"),
    (re.compile(r"\b\d+\.\d+\.\d+\.\d+(?::\d+)?\b"), "<host>"),
    (re.compile(r"\b[a-zA-Z][\w-]*(?:\.[a-zA-Z][\w-]*){2,}\b"), "<host>"),
    (re.compile(r"\bip-\d+-\d+-\d+-\d+\b"), "<host>"),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b"), "<id>"),
    (re.compile(r"\s+"), " "),
)
_NUMBER: Final = re.compile(
    r"-?\b(?:\d+[dhm])*\d+(?:[.,]\d+)*(?=(?:[kKMGTP]i?[bB]?|[bB]|ms|[smhd])?\b)"
)
"""A number, perhaps with a unit at its end, or a time: ``used 1524MB``, ``after 1m2.9s``."""


EXCEEDED_CODES: Final = frozenset({3, 21, 26, 34})
"""Codes of holds by a policy, of the job, machine or access point, and by the starter (34)."""

_EXCEEDED: Final = {102: "request_memory", 104: "request_disk"}
"""The requests by the subcodes of 34; since HTCondor 23 the starter logs 0."""


RAISE_FACTOR: Final = 1.5
"""The new request after one was exceeded, as a multiple of it or of what the jobs reached."""

_REACHED: Final = re.compile(r"(?:limit of|usage:) ([0-9]{1,9}) (?:megabytes|MB)", re.IGNORECASE)


def reached_mb(reason: str | None) -> tuple[int, ...]:
    """The memory in MB that a slot had, or a job used there, by the reason of a hold."""
    return tuple(map(int, _REACHED.findall((reason or "")[:REASON_LIMIT])))


def exceeded_request(code: int | None, subcode: int | None, reason: str | None) -> str | None:
    """The exceeded request behind a hold: ``request_memory``, ``request_disk``; None: unclear."""
    if code not in EXCEEDED_CODES:
        return None
    if code == 34 and subcode in _EXCEEDED:
        return _EXCEEDED[subcode]
    text = (reason or "")[:REASON_LIMIT].lower()
    named = [request for request in _EXCEEDED.values() if request.removeprefix("request_") in text]
    return named[0] if len(named) == 1 else None


def is_expiry(cause: str | None) -> bool:
    """Whether a cause is the end of an annex."""
    return cause in (ANNEX_EXPIRED, ANNEX_EXPIRED_INFERRED)


def fold_reason(reason: str) -> str:
    """``reason`` with hosts, slots, files, ids and numbers replaced by placeholders."""
    return _NUMBER.sub("N", _fold_names(reason))


@lru_cache(maxsize=4096)
def _fold_names(reason: str) -> str:
    """``reason`` with all of these except numbers replaced."""
    text = reason[:REASON_LIMIT]
    for pattern, placeholder in _FOLDS:
        text = pattern.sub(placeholder, text)
    return text.strip()


def with_common_numbers(cause: str, reasons: Iterable[str | None]) -> str:
    """A folded reason with those numbers restored that are equal in all its ``reasons``."""
    texts = {_fold_names(reason) if reason else "" for reason in reasons}
    if len(texts) == 1 and _NUMBER.sub("N", text := texts.pop()) == cause:
        return text
    if any(_NUMBER.sub("N", text) != cause for text in texts):
        return cause
    columns = zip(*map(_NUMBER.findall, texts), strict=True)
    common = iter([column[0] if len(set(column)) == 1 else "N" for column in columns])
    return _NUMBER.sub(lambda _: next(common), min(texts)) if texts else cause


def cause_of(
    outcome: Outcome,
    code: int | None,
    reason: str | None,
    return_value: int | None,
    signal: int | None,
) -> str:
    """One line with the cause of an unsuccessful execution."""
    if outcome is Outcome.FAILED:
        if signal is not None:
            return signal_text(signal)
        if return_value is not None:
            return f"exited with return value {return_value}"
        return "ended without a return value"
    if reason and reason.strip():
        return fold_reason(reason)
    if code is not None and code >= FIRST_VACATE_CODE and code in _NAMES:
        return code_text(code)
    return {
        Outcome.EVICTED: "evicted, no reason given",
        Outcome.HELD: "held, no reason given",
        Outcome.REMOVED: "removed, no reason given",
        Outcome.SHADOW_EXCEPTION: "shadow exception, no reason given",
        Outcome.RECONNECT_FAILED: "reconnect failed, no reason given",
    }.get(outcome, str(outcome))


def lost_holds(removals: Iterable[tuple[Event, datetime]]) -> Iterator[Event]:
    """Yield a 012, at the latest possible time, for each 009 that proves one.

    ``removals``: 009 events with their local times. The log may have the 012 as well, which only
    folding the job's other events shows.
    """
    for event, local_time in removals:
        policy = find_policy(event.detail.reason) if isinstance(event.detail, Aborted) else None
        seconds = held_limit(policy.expression) if policy is not None and policy.removes else None
        if seconds is None:
            continue
        reason = REASON.format(held=_length(seconds))
        held = Held(reason, None, None, inferred=True)
        since = local_time.replace(microsecond=0) - timedelta(seconds=seconds)
        yield replace(
            event, number=12, time=since, text="Job was held (inferred).", body="", detail=held
        )


def _length(seconds: int) -> str:
    """``30 days``: in the largest unit in which it is a whole number."""
    units = {"day": 86400, "hour": 3600, "minute": 60, "second": 1}
    unit = next(unit for unit, size in units.items() if seconds % size == 0)
    number = seconds // units[unit]
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def with_holds(events: Sequence[Event], holds: Iterable[Event]) -> list[Event]:
    """Insert each hold into ``events`` of one log, before the removal or at the end."""
    pending = {hold.ids: hold for hold in holds}
    merged: list[Event] = []
    for event in events:
        if event.number == 9 and (hold := pending.pop(event.ids, None)) is not None:
            merged.append(hold)
        merged.append(event)
    return merged + list(pending.values())


class RemovalPolicy(Struct, frozen=True):
    """A policy that held or removed a job: its name, and its expression as logged."""

    name: str
    expression: str

    @property
    def is_system(self) -> bool:
        """Whether it is the access point's, not the job's."""
        return self.name.startswith("SYSTEM_")

    @property
    def removes(self) -> bool:
        return "REMOVE" in self.name.upper()


@lru_cache(maxsize=256)
def find_policy(reason: str | None) -> RemovalPolicy | None:
    """The policy that a reason names; None if it names none."""
    match = _POLICY.search(reason[:MAX_REMOVAL_REASON]) if reason else None
    return None if match is None else RemovalPolicy(match[1], match[2])


def held_limit(expression: str) -> int | None:
    """The least seconds on hold of a job that this policy removed; None without a hold."""
    minimums: list[int] = []
    for durations, is_held, _ in _alternatives(expression):
        if not durations or not is_held:
            return None
        minimums.append(max(durations))
    return min(minimums) if minimums and 0 < min(minimums) <= LONGEST_HOLD else None


def removal_limit(expression: str) -> int | None:
    """Seconds on hold after which a policy removes any job.

    None if that depends on more than the hold and its duration.
    """
    limits = [
        max(durations)
        for durations, is_held, depends in _alternatives(expression)
        if durations and is_held and not depends
    ]
    return min(limits) if limits and 0 < min(limits) <= LONGEST_HOLD else None


def _alternatives(expression: str) -> Iterator[tuple[list[int], bool, bool]]:
    """Yield of each alternative its hold durations, if it requires a hold, and other terms."""
    for alternative in _split(_strip_parentheses("".join(expression.split()).lower()), "||"):
        terms = [re.sub(r"[()]", "", term) for term in _conjuncts(alternative)]
        terms = [term for term in terms if not _IS_VANILLA.fullmatch(term)]
        matches = [_FOR_LONGER.fullmatch(term) for term in terms]
        durations = [prod(map(int, match[1].split("*"))) for match in matches if match]
        held = sum(_IS_HELD.fullmatch(term) is not None for term in terms)
        yield durations, held > 0, len(durations) + held < len(terms)


def _conjuncts(text: str) -> list[str]:
    """The terms of a conjunction and of those nested in it; a disjunction is one term."""
    pending, terms = [text], list[str]()
    while pending:
        term = _strip_parentheses(pending.pop())
        parts = _split(term, "&&") if len(_split(term, "||")) == 1 else [term]
        if len(parts) > 1:
            pending += parts
        else:
            terms += parts
    return terms


def _depths(text: str) -> list[int]:
    """Nesting depth of each character, including the parentheses themselves."""
    depths, depth = [], 0
    for char in text:
        depth += char == "("
        depths.append(depth)
        depth -= char == ")"
    return depths


def _strip_parentheses(text: str) -> str:
    """Strip parentheses around the whole text."""
    while text.startswith("(") and text.endswith(")") and min(_depths(text)) > 0:
        text = text[1:-1]
    return text


def _split(text: str, operator: str) -> list[str]:
    """Split at an operator outside of all parentheses."""
    depths, parts, start = _depths(text), list[str](), 0
    for match in re.finditer(re.escape(operator), text):
        if depths[match.start()] == 0:
            parts.append(text[start : match.start()])
            start = match.end()
    return [*parts, text[start:]]


# --- codes ----------------------------------------------------------------------

_HOLD: Final = (
    "Unspecified UserRequest GlobusGramError JobPolicy CorruptedCredential JobPolicyUndefined "
    "FailedToCreateProcess UnableToOpenOutput UnableToOpenInput UnableToOpenOutputStream "
    "UnableToOpenInputStream InvalidTransferAck TransferOutputError TransferInputError IwdError "
    "SubmittedOnHold SpoolingInput JobShadowMismatch InvalidTransferGoAhead HookPrepareJobFailure "
    "MissedDeferredExecutionTime StartdHeldJob UnableToInitUserLog FailedToAccessUserAccount "
    "NoCompatibleShadow InvalidCronSettings SystemPolicy SystemPolicyUndefined "
    "GlexecChownSandboxToUser PrivsepChownSandboxToUser GlexecChownSandboxToCondor "
    "PrivsepChownSandboxToCondor MaxTransferInputSizeExceeded MaxTransferOutputSizeExceeded "
    "JobOutOfResources InvalidDockerImage FailedToCheckpoint EC2UserError EC2InternalError "
    "EC2AdminError EC2ConnectionProblem EC2ServerError EC2InstancePotentiallyLostError "
    "PreScriptFailed PostScriptFailed SingularityTestFailed JobDurationExceeded "
    "JobExecuteExceeded HookShadowPrepareJobFailure"
)
_VACATE: Final = (
    "JobPolicyVacate SystemPolicyVacate ShadowException JobNotStarted UserVacateJob "
    "JobShouldRequeue FailedToActivateClaim StarterError ReconnectFailed ClaimDeactivated "
    "StartdVacateCommand StartdPreemptExpression StartdException StartdShutdown StartdDraining "
    "StartdCoalesce StartdHibernate StartdReleaseCommand StartdPreemptingClaimRank "
    "StartdPreemptingClaimUserPrio VMError ContainerError ScheddVacate JobRemoved "
    "ScratchDirError SuccessfulCheckpoint"
)
FIRST_VACATE_CODE: Final = 1000

_NAMES: Final = dict(enumerate(_HOLD.split())) | dict(enumerate(_VACATE.split(), FIRST_VACATE_CODE))
"""Names of hold codes (below 1000) and vacate codes."""


def code_name(code: int, reason: str | None = None) -> str:
    """``JobOutOfResources``: the name of a hold or vacate code; empty if it has none.

    ``reason``: that of a hold, since older versions swap the codes of transfers.
    """
    return _NAMES.get(transfer_code(code, reason) or code, "")


OUTPUT, INPUT = 12, 13
"""Hold codes of transfers."""

_DIRECTION: Final = re.compile(
    r"(?P<output>transfer output files|STARTER at \S{1,80} failed to (?:send|upload)"
    r"|SHADOW at \S{1,80} failed to (?:receive|download))"
    r"|(?P<input>transfer input files|SHADOW at \S{1,80} failed to (?:send|upload)"
    r"|STARTER at \S{1,80} failed to (?:receive|download))",
    re.IGNORECASE,
)


def transfer_code(code: int | None, reason: str | None) -> int | None:
    """The hold code that matches the direction of a failed transfer; others as they are.

    In older versions 12 and 13 mean a failure to receive and to send, so that 13 may also stand for
    a missing output file. Without a code the reason alone decides.
    """
    if code not in (OUTPUT, INPUT, None):
        return code
    match = _DIRECTION.search((reason or "")[:2000])
    if match is None:
        return code
    return OUTPUT if match["output"] else INPUT


def code_text(code: int, subcode: int | None = None, reason: str | None = None) -> str:
    """``34/102 JobOutOfResources``: number and name, with the subcode if it is known.

    The number is the logged one. ``reason``: as for :func:`code_name`.
    """
    number = str(code) if subcode is None else f"{code}/{subcode}"
    return f"{number} {code_name(code, reason)}".rstrip()


def signal_text(number: int) -> str:
    """``killed by signal 9 (SIGKILL; out of memory?)``."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"killed by signal {number}"
    hint = "; out of memory?" if name == "SIGKILL" else ""
    return f"killed by signal {number} ({name}{hint})"
