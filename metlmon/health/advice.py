"""What a person can do, in steps: by hold code, by vacate code, else by kind of entry.

A title names the cause in one line. ``act`` is an action of ``metlmon act``. Manual: "Job ClassAd
Attributes", HoldReasonCode with HoldReasonSubCode, and VacateReasonCode; names and numbers are in
``condor_holdcodes.h``. Subcodes of the codes of transfers and files are Unix errno numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from errno import EACCES, EDQUOT, ENOENT, ENOEXEC, ENOSPC
from os import strerror
from types import MappingProxyType
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.dagman.records import NOT_STARTED_TEXT
from metlmon.model.reasons import INPUT, OUTPUT, exceeded_request, transfer_code
from metlmon.stats.causes import is_quota


class Advice(Struct, frozen=True):
    """The words for a cause, the next steps, and the action that is offered, if any."""

    title: str
    steps: tuple[str, ...]
    act: str | None = None


RELEASE: Final = "Release"
RESUBMIT: Final = "Submit the DAG again"
RESUBMIT_JOBS: Final = "Submit the jobs again"
RUN_THE_REST: Final = (
    "Submit the unfinished nodes as a DAG of their own: resubmitting this one runs all its nodes"
)
"""For a DAG that is done, which leaves no rescue file."""
DAG_IS_DONE: Final = "Nothing to resubmit: its DAG is done"
PUT_RESCUE_BACK: Final = "Put the rescue file back"
RECOVER: Final = (
    "Run condor_submit_dag -update_submit: DAGMan, which was removed on hold, has written no "
    "rescue file, and recovers from its nodes.log"
)
GENERAL_STEPS: Final = frozenset(
    {RELEASE, RESUBMIT, RESUBMIT_JOBS, RUN_THE_REST, DAG_IS_DONE, PUT_RESCUE_BACK, RECOVER}
)
"""Steps that many causes have in common."""


def own_steps(steps: Sequence[str]) -> tuple[str, ...]:
    """The steps specific to the cause; all steps if it has none of its own."""
    return tuple(step for step in steps if step not in GENERAL_STEPS) or tuple(steps)


def _hold(title: str, step: str) -> Advice:
    return Advice(title, (step, RELEASE), "release")


_PASSES: Final = "Usually passes; if it comes back, see the reason: file and host"
_FREE_SPACE: Final = "Free space or raise the quota (quota -s, df)"
_ASK: Final = "Ask the administrator of the access point"
_RAISE: Final = {
    "request_memory": Advice(
        "memory limit reached", ("Raise request_memory", RELEASE), "raise-memory"
    ),
    "request_disk": Advice("disk limit reached", ("Raise request_disk", RELEASE), "raise-disk"),
}
"""Advice by the request that a held job exceeded."""
_OPEN_FILE: Final = "Make sure that its directory at the access point exists and is writable"
_EC2: Final = "See the reason; correct it in the submit description"

HOLD_ADVICE: Final[Mapping[tuple[int, int | None], Advice]] = MappingProxyType(
    {
        (1, None): Advice("held by a user", ("Release when it may continue",), "release"),
        (3, None): _hold(
            "held by the job's policy", "Remove the cause: see its periodic_hold and on_exit_hold"
        ),
        (4, None): _hold("credentials invalid", "Renew the credentials (condor_store_cred)"),
        (5, None): _hold(
            "job policy undefined", "Correct the periodic_ and on_exit_ expressions (condor_qedit)"
        ),
        (6, None): _hold(
            "executable not started",
            "Check that the executable exists and is built for that system",
        ),
        (6, ENOENT): _hold(
            "executable or its interpreter missing",
            "Check its path and the interpreter in its first line (#!), which must exist there; "
            "a script must not have Windows line ends",
        ),
        (6, EACCES): _hold("executable without permission", "Make it executable (chmod +x)"),
        (6, ENOEXEC): _hold(
            "executable not a program or script",
            "Begin a script with its interpreter (#!/bin/bash, #!/usr/bin/env python3); "
            "a binary must be built for that system",
        ),
        (7, None): _hold("output file not opened", _OPEN_FILE),
        (8, None): _hold("input file not opened", _OPEN_FILE),
        (9, None): _hold("output stream not opened", _OPEN_FILE),
        (10, None): _hold("input stream not opened", _OPEN_FILE),
        (11, None): _hold("transfer protocol error", _PASSES),
        (12, None): _hold("output transfer failed", _PASSES),
        (12, ENOENT): _hold(
            "output file missing", "See in the job's output why it did not write the file"
        ),
        (12, EACCES): _hold(
            "output not writable", "Make the directory that receives the output writable"
        ),
        (12, ENOSPC): _hold("disk full at the access point", _FREE_SPACE),
        (12, EDQUOT): _hold("disk quota at the access point", _FREE_SPACE),
        (13, None): _hold("input transfer failed", _PASSES),
        (13, ENOENT): _hold("input file missing", "Put the input file where the reason names it"),
        (13, EACCES): _hold("input not readable", "Make the input file readable"),
        (14, None): _hold(
            "initial directory not accessible", "Check initialdir and its permissions"
        ),
        (15, None): Advice("submitted on hold", ("Release when it may run",), "release"),
        (16, None): Advice("input is being spooled", ("Wait: it is released by itself",)),
        (17, None): Advice("shadow does not match", ("Submit it again",), "remove"),
        (18, None): _hold("transfer protocol error", _PASSES),
        (19, None): _hold(
            "prepare hook failed", "Check the container image: the site could not prepare the job"
        ),
        (20, None): _hold("deferred start missed", "Correct deferral_time"),
        (21, None): _hold(
            "held by the machine's policy", "Raise request_memory or request_disk: often too little"
        ),
        (22, None): _hold(
            "event log not writable", "Check the directory of the log, its permissions and quota"
        ),
        (23, None): _hold("user account not accessible", _ASK),
        (24, None): _hold("no compatible shadow", _ASK),
        (25, None): _hold("cron settings invalid", "Correct the cron_ commands"),
        (26, None): _hold(
            "held by the access point's policy",
            "Remove the cause: see SYSTEM_PERIODIC_HOLD (condor_config_val)",
        ),
        (27, None): _hold("access point's policy undefined", _ASK),
        (32, None): _hold("input larger than allowed", "Shrink the checkpoint or use osdf://"),
        (33, None): _hold("output larger than allowed", "Write less or use osdf:// for output"),
        (34, None): _hold(
            "more memory or disk than requested",
            "Raise request_memory or request_disk (condor_qedit)",
        ),
        (34, 102): _RAISE["request_memory"],
        (34, 104): _RAISE["request_disk"],
        (35, None): _hold("container image invalid", "Correct the image"),
        (36, None): _hold(
            "checkpoint upload failed",
            "Check transfer_checkpoint_files and checkpoint_destination of the submit description: "
            "the files must exist at each checkpoint, and the destination be writable",
        ),
        (37, None): _hold("EC2: user error", _EC2),
        (38, None): _hold("EC2: internal error", _EC2),
        (39, None): _hold("EC2: not set up here", _ASK),
        (40, None): _hold("EC2: connection problem", _PASSES),
        (41, None): _hold("EC2: server error", _PASSES),
        (42, None): _hold("EC2: instance perhaps lost", "See whether the instance still runs"),
        (43, None): _hold("PRE command failed", "See why its pre command failed"),
        (44, None): _hold("POST command failed", "See why its post command failed"),
        (45, None): _hold("container test failed at the machine", "Usually passes elsewhere"),
        (46, None): _hold(
            "allowed job duration exceeded", "Checkpoint more often, or raise allowed_job_duration"
        ),
        (47, None): _hold(
            "wall-time limit reached", "Checkpoint more often, or raise allowed_execute_duration"
        ),
        (48, None): _hold("shadow's prepare hook failed", _ASK),
    }
)
"""Advice by code and subcode of a hold; the subcode None stands for all others."""

UNKNOWN_HOLD: Final = _hold("held", "See the reason; remove the cause")

QUOTA: Final = _hold("disk quota or full disk", _FREE_SPACE)

_ONE_OFF: Final = "Nothing to do: HTCondor queues the job again"
_ONE_OFF_HOST: Final = f"{_ONE_OFF}; if it comes back, leave the host out"

SEE_OUTPUT: Final = "See in the job's output why"
REMOVE_CAUSE: Final = "Remove the cause: HTCondor starts the job again, and it gets no further"

VACATE_STEPS: Final[Mapping[int, str]] = MappingProxyType(
    {
        **dict.fromkeys(range(1001, 1025), _ONE_OFF),
        1000: "See what its periodic_vacate tests",
        1002: f"{_ONE_OFF}; see the reason if it comes back",  # shadow exception
        1007: f"{_ONE_OFF}; if it comes back at one site, leave it out",  # starter error
        1012: _ONE_OFF_HOST,  # machine error
        1021: f"{_ONE_OFF}; check the image if it comes back",  # container error
        1023: "Nothing to do",  # job removed
        1024: _ONE_OFF_HOST,  # scratch directory error
        1025: "Nothing to do",  # checkpointed
    }
)
"""The step by vacate code."""

KIND_ADVICE: Final[Mapping[str, tuple[tuple[str, ...], str | None]]] = MappingProxyType(
    {
        "dag-failed": (("See its .dagman.out for the error", RESUBMIT), "resubmit"),
        "dag-stopped": ((RESUBMIT,), "resubmit"),
        "dag-crashes": (
            (
                "Remove the DAG: it will not get past this place",
                f"{RESUBMIT}: nodes that its rescue file does not mark DONE run again",
            ),
            None,
        ),
        "dag-stuck": (
            (
                "See its .dagman.out and condor_q: what it waits for may never come",
                "Remove the DAG, which writes a rescue file",
                RESUBMIT,
            ),
            None,
        ),
        "dag-held": (("Release DAGMan: it continues",), "release-dag"),
        "dag-halted": (("Resume the DAG when it may submit jobs again",), "resume"),
        "run-failed": ((SEE_OUTPUT, RESUBMIT), "resubmit"),
        "run-removed": ((RESUBMIT,), "resubmit"),
        "node-failed": ((SEE_OUTPUT, RESUBMIT), "resubmit"),
        "removed-by-policy": (("Remove the cause", RESUBMIT), "resubmit"),
        "removed-by-user": ((RESUBMIT,), "resubmit"),
        "script-failed": (("See why the script failed", RESUBMIT), "resubmit"),
        "submit-failed": (("Check its submit description (metlmon check)", RESUBMIT), "resubmit"),
        "retries-exhausted": ((SEE_OUTPUT, "Remove the cause", RESUBMIT), "resubmit"),
        "futile": (("See why the node before them failed", RESUBMIT), "resubmit"),
        "ended-early": (("Nothing to do: its DAG had ended",), None),
        "job-failed": (("Nothing to do: the job ran again",), None),
        "annex-expired": (
            (
                "HTCondor queues the jobs again; metlmon annexes says before an epoch starts "
                "whether it fits: request a longer lifetime",
            ),
            None,
        ),
        "evicted": ((_ONE_OFF,), None),
    }
)
"""The advice and the action for kinds whose cause has no code."""

OUT_OF_RESOURCES: Final = 34

REASON_LIMIT: Final = 20_000
"""Length in characters up to which a reason is searched."""

_URL: Final = re.compile(r"[a-zA-Z][\w+.-]{0,40}://[^\s|,;)\"']{1,2000}")

_FAILED_URL: Final = re.compile(r"URL file = (\S{1,2000}) \)")
_REMOTE_URL: Final = re.compile(r"remote URL (\S{1,2000}?):? ")
"""How HTCondor, or else an older client of Pelican, names the URL of a transfer."""


def _status(codes: str) -> str:
    """A pattern of HTTP statuses as curl, Pelican and Python's requests write them."""
    return (
        rf"(?:HTTP(?:/[\d.]+)?|status(?: code)?|returned(?: error)?|response(?: code)?|error)"
        rf"[\s:=]{{1,3}}(?:{codes})\b|\b(?:{codes}) (?:Client Error|Not Found|Forbidden"
        rf"|Unauthorized|Gone|Conflict)|\b(?:{codes}): "
    )


# As texts: re compiles them where they are first used, which few commands do.
_EXISTS: Final = rf"(?i)FileAlreadyExists|already exists|{_status('409|412')}"
_DENIED: Final = (
    rf"(?i)Authorization(?:\.\w+)? Error|token (?:file )?not found|access ?denied|permission denied"
    rf"|unauthorized|forbidden|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken"
    rf"|{_status('401|403|407')}"
)
_MISSING: Final = (
    rf"(?i)FileNotFound|no such (?:file|key|bucket|object)|NoSuch(?:Key|Bucket)"
    rf"|(?:file|folder|object|path|key|bucket)(?: was)? not found|no namespace found"
    rf"|\bno (?:origins?|sources)\b"
    rf"|(?:does not|doesn't) exist|couldn't (?:open|read) (?:a )?file|\[errno 2\]"
    rf"|\(errno 2\)|{_status('404|410')}"
)
_REFUSED: Final = (
    r"\b(?:Specification|Parameter|Resolution(?!\.(?:Timeout|ConnectionFailure)))(?:\.\w+)? Error"
)
"""Pelican's classes of errors that a retry does not cure (``docs/error_codes.yaml``)."""

_CHECK_URL: Final = "Correct the URL in the submit description"
_NO_ACCESS: Final = "Check the URL, its permissions and the job's token"

_REFUSALS: Final = (
    (
        _EXISTS,
        None,
        None,
        _hold("output exists already", "Remove the file at the destination, or write another name"),
    ),
    (
        _DENIED,
        EACCES,
        _hold("input not readable", _NO_ACCESS),
        _hold("output not writable", _NO_ACCESS),
    ),
    (r"Parameter\.FileNotFound", None, None, HOLD_ADVICE[OUTPUT, ENOENT]),
    (
        _MISSING,
        ENOENT,
        _hold("input file missing", f"{_CHECK_URL}, or put the file there"),
        _hold("output destination missing", f"{_CHECK_URL}, or create it"),
    ),
    (
        _REFUSED,
        None,
        _hold("input URL refused", _CHECK_URL),
        _hold("output URL refused", _CHECK_URL),
    ),
)
"""Permanent failures of transfers: a pattern of the reason, the errno of the same failure of a
file without a URL, and the advice for input and for output.

One such answer among several tries is enough, as for Pelican's client. Others may be transient.
"""

_WRITING: Final = re.compile(r"writing to file .{1,4096}: \(errno 2\)")

_NO_DIRECTORY: Final = _hold(
    "output directory missing", "Create the directory that receives the output at the access point"
)

_WANDB_LINK: Final = _hold(
    "link latest-run of W&B not transferred",
    "Set WANDB_SYMLINK=false in the job's environment: HTCondor transfers no link to a directory",
)

_ERRNO: Final = re.compile(r"\(errno[ =](\d{1,4})\b")
_NOT_STARTED: Final = re.compile(r"Failed to execute .{1,4096}\(errno=", re.DOTALL)
NOT_STARTED: Final = 6


def hold_codes(
    code: int | None, subcode: int | None, reason: str | None
) -> tuple[int | None, int | None]:
    """The codes of a hold; where none are logged, those that its reason implies.

    It does so for a transfer, and for an executable that could not be started.
    """
    implied = transfer_code(None, reason) if code is None else None
    if implied is None and code is None and _NOT_STARTED.search((reason or "")[:REASON_LIMIT]):
        implied = NOT_STARTED
    if implied is None:
        return code, subcode
    errno = _ERRNO.search(reason or "")
    return implied, int(errno[1]) if errno else None


def start_step(reason: str | None) -> str | None:
    """What to do about a script that DAGMan could not start; None for any other failure."""
    if reason is None or NOT_STARTED_TEXT not in reason:
        return None
    errors = (error for error in (EACCES, ENOENT, ENOEXEC) if strerror(error) in reason)
    return next((HOLD_ADVICE[NOT_STARTED, error].steps[0] for error in errors), None)


def transfer_urls(reason: str | None) -> tuple[str, ...]:
    """The URLs whose transfer failed, according to the reason of a hold."""
    text = (reason or "")[:REASON_LIMIT]
    return tuple(dict.fromkeys(_FAILED_URL.findall(text) or _REMOTE_URL.findall(text)))


def _transfer_refusal(code: int, reason: str) -> Advice | None:
    """The advice on a permanent failure of a transfer; None if it may be transient."""
    # A name in a URL says nothing about what happened.
    text = _URL.sub("URL", reason[:REASON_LIMIT])
    of_url = "using protocol" in text or bool(transfer_urls(reason))
    for pattern, errno, on_input, on_output in _REFUSALS:
        advice = on_output if code == OUTPUT else on_input
        if advice is not None and re.search(pattern, text) is not None:
            return advice if of_url or errno is None else HOLD_ADVICE[code, errno]
    return None


def hold_advice(code: int | None, subcode: int | None, reason: str | None) -> Advice:
    """The advice on a hold; taken from its reason where that says more than the codes."""
    code, subcode = hold_codes(code, subcode, reason)
    code = transfer_code(code, reason)
    request = exceeded_request(code, subcode, reason)
    if request is not None and code == OUT_OF_RESOURCES:
        subcode = 102 if request == "request_memory" else 104
    elif request is not None:
        return replace(_RAISE[request], title=HOLD_ADVICE[code or 0, None].title)
    known = HOLD_ADVICE.get((code, subcode)) if code is not None else None
    if code == OUTPUT and "/latest-run" in (reason or "")[:REASON_LIMIT]:
        return _WANDB_LINK
    if code == OUTPUT and subcode == ENOENT and _WRITING.search((reason or "")[:REASON_LIMIT]):
        return _NO_DIRECTORY
    if known is None and is_quota(code, subcode, reason):
        return QUOTA
    if known is None and code is not None and code in (OUTPUT, INPUT):
        known = _transfer_refusal(code, reason or "")
    if known is None and code is not None:
        known = HOLD_ADVICE.get((code, None))
    return known or UNKNOWN_HOLD
