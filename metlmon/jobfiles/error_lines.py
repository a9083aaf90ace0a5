"""Finds the line that says why a job or a script failed, near the end of its output.

That line is rarely the last one: a launcher reports that one of its processes ended,
progress bars are drawn over each other, libraries warn at exit. A line that matches one of
:data:`CAUSES` counts first, then the exception that ends a traceback, then the last line that is
none of these. Every text is bounded, visible and without secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from metlmon.redact import clip, harmless

ERROR_TAIL: Final = 64 * 1024
"""Bytes at the end of a file that are searched."""

MAX_LINES: Final = 2000
LINE_CHARACTERS: Final = 400
"""Characters kept of the line: an exception may print a tensor."""

MATCHED_CHARACTERS: Final = 2000
"""Characters of a line that are matched."""


class ErrorLine(Struct, frozen=True):
    """``text``: the line. ``cause``: what it means in a few words, ``advice``: the next step; both
    are None if no known pattern matches."""

    text: str
    cause: str | None = None
    advice: str | None = None

    @property
    def title(self) -> str:
        """The cause, or the line itself."""
        return self.cause or self.text


class JobError(Struct, frozen=True):
    """What a failed job, or a script of its node, wrote about its failure.

    ``file``: its error file, or its output file if the first says nothing, relative to the dagdir;
    None if the submit description names none. ``line``: None if nothing is found or the file is
    missing.
    """

    file: str | None = None
    line: ErrorLine | None = None

    def explain(self, result: str) -> str:
        """``CUDA out of memory (exit 3)``: the result after the cause; alone if that is unknown."""
        return result if self.line is None else f"{self.line.title} ({result})"


class Errors(Struct, frozen=True):
    """The errors of failed jobs, by job key, and of failed scripts, by node key."""

    jobs: Mapping[tuple[int, int, int], JobError] = {}
    scripts: Mapping[tuple[str, str], JobError] = {}

    def of_node(
        self, key: tuple[str, str], job: tuple[int, int, int] | None, reason: str | None
    ) -> JobError | None:
        """The error that the failed part of a node wrote; None if it was not read.

        ``reason``: DAGMan's, if a script or the submission failed rather than the job.
        """
        if key in self.scripts or reason is not None or job is None:
            return self.scripts.get(key)
        return self.jobs.get(job)


NO_ERRORS: Final = Errors()


class Cause(Struct, frozen=True):
    """A pattern of lines; ``{name}`` in ``title`` and ``advice`` is replaced by its group."""

    pattern: str
    title: str
    advice: str


CAUSES: Final[Sequence[Cause]] = (
    Cause(
        r"(?:CUDA|HIP) out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|"
        r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|RESOURCE_EXHAUSTED",
        "CUDA out of memory",
        "Use a smaller batch, or raise gpus_minimum_memory",
    ),
    Cause(
        r"insufficient shared memory|^Bus error|signal: Bus error",
        "too little shared memory",
        "Use fewer DataLoader workers (num_workers), or a larger /dev/shm",
    ),
    Cause(
        r"DefaultCPUAllocator: can't allocate|Cannot allocate memory|^MemoryError\b|"
        r"Unable to allocate [\d.]+ [KMGT]iB|oom[-_ ]?kill|std::bad_alloc",
        "out of memory",
        "Raise request_memory, or use fewer DataLoader workers (num_workers)",
    ),
    Cause(
        r"No module named '?(?P<name>[\w.]{1,80})",
        "no module named {name}",
        "Install it in the environment or the container image of the job",
    ),
    Cause(
        r"error while loading shared libraries|cannot open shared object file|"
        r"version `?GLIBC(?:XX)?_[\d.]+' not found",
        "a shared library is missing",
        "Run the job in a container image that has it, or require a newer system",
    ),
    Cause(
        r"[Cc]ommand not found|Exec format error|executable file not found|bad interpreter",
        "a command cannot be executed",
        "Check the name and the path of the command, and the container image",
    ),
    Cause(
        r"Disk quota exceeded",
        "disk quota exceeded",
        "Free space or raise the quota (quota -s)",
    ),
    Cause(
        r"No space left on device",
        "no space left on device",
        "Raise request_disk, or write less",
    ),
    Cause(
        r"Found no NVIDIA driver|No CUDA GPUs are available|no CUDA-capable device|"
        r"CUDA_ERROR_NO_DEVICE|Torch not compiled with CUDA|No supported gpu backend found",
        "no GPU found",
        "Check request_gpus and that the container sees the GPU; if it is one host, exclude it",
    ),
    Cause(
        r"driver on your system is too old|CUDA driver version is insufficient|"
        r"forward compatibility was attempted|unsupported display driver",
        "the GPU driver is too old",
        "Use an image with an older CUDA, or require a newer driver (gpus_minimum_runtime)",
    ),
    Cause(
        r"no kernel image is available|not compatible with the current PyTorch installation",
        "this build does not support the GPU",
        "Use a build for this GPU, or require another (gpus_minimum_capability)",
    ),
    Cause(
        r"device-side assert triggered",
        "an assertion failed on the GPU",
        "Often a label or an index out of range: run it with CUDA_LAUNCH_BLOCKING=1",
    ),
    Cause(
        r"uncorrectable ECC error|GPU is lost|fallen off the bus|unspecified launch failure|"
        r"illegal memory access",
        "GPU error",
        "If it happens on one host only, exclude the host",
    ),
    Cause(
        r"NCCL error|ncclSystemError|ncclUnhandledCudaError|ncclInternalError|"
        r"collective operation timeout",
        "communication between GPUs failed",
        "Often another process of the job ended first: see its output",
    ),
    Cause(
        r"(?i)\b(?:loss|gradients?|grad_norm|logits|output)\b.{0,80}\b(?:nan|inf)\b(?!-)|"
        r"\b(?:nan|inf)\b.{0,40}\b(?:loss|gradient)|non-finite|invalid values:.{0,20}",
        "NaN or infinite values",
        "Lower the learning rate or clip gradients; continue from an earlier checkpoint",
    ),
    Cause(
        r"PytorchStreamReader failed|archive is corrupted|Ran out of input|UnpicklingError|"
        r"not a gzip file|Unexpected end of (?:file|input|archive)|unexpected EOF|"
        r"[Cc]hecksum (?:mismatch|failed|error)|does not match checksum|"
        r"Unable to open file.{0,40}truncated",
        "a file is damaged",
        "Transfer the file again; if it is the checkpoint, continue from the one before",
    ),
    Cause(
        r"size mismatch for |(?:Missing|Unexpected) key\(s\) in state_dict",
        "the checkpoint does not match the model",
        "Continue with the code and the hyperparameters that wrote the checkpoint",
    ),
    Cause(
        r"Connection refused|Could not resolve host|Name or service not known|"
        r"Temporary failure in name resolution|Network is unreachable|[Cc]onnection timed out|"
        r"Max retries exceeded|Connection reset by peer",
        "no connection",
        "Usually passes: try again; if it happens at one site only, exclude the site",
    ),
    Cause(
        r"CERTIFICATE_VERIFY_FAILED|certificate has expired",
        "a certificate was refused",
        "Check the date of the certificate and the certificates in the container image",
    ),
    Cause(
        r"\b401\b.{0,20}(?i:unauthorized)|\b403\b.{0,20}(?i:forbidden)|(?i:invalid api key)|"
        r"(?i:api key not configured|authentication failed)",
        "access denied",
        "Check the credentials that the job uses",
    ),
    Cause(
        r"Permission denied|Operation not permitted|Read-only file system",
        "permission denied",
        "Check owner and permissions of the file; write only below the job's own directory",
    ),
    Cause(
        r"(?:(?P<before>[^\s:'\"]{0,200}/[^\s:'\"]{1,200}): )?No such file or directory"
        r"(?:: '?(?P<after>[^\s'\"]{1,400}))?|FileNotFoundError(?!.*No such file)",
        "a file is missing",
        "Check transfer_input_files, and that {name} exists where the job runs",
    ),
    Cause(
        r"unrecognized arguments?|error: argument |the following arguments are required|"
        r"No such option|Missing option|invalid option",
        "wrong arguments",
        "Correct arguments in the submit description; try the command by hand",
    ),
    Cause(
        r"DUE TO TIME LIMIT",
        "the time limit was reached",
        "Checkpoint more often, or ask for more time",
    ),
    Cause(
        r"Segmentation fault|SIGSEGV|signal 11\b|exit(?:ed on signal|code) *:? *-?11\b",
        "segmentation fault",
        "If it happens on one host only, exclude the host; else run it under a debugger",
    ),
    Cause(
        r"^AssertionError\b|Assertion .{0,200}failed",
        "an assertion failed",
        "See the condition, and the frame above it in the file",
    ),
    Cause(
        r"^Killed$|(?:^|\s)Killed\s+\S|signal: Killed|SIGKILL",
        "killed",
        "Often too little memory: compare the memory used with request_memory",
    ),
)
"""The first one that matches a line is its cause. Later lines take precedence over earlier ones,
except that :data:`_GENERAL` causes count only if no other is found."""

_GENERAL: Final = frozenset({"killed", "a file is missing", "communication between GPUs failed"})
"""Causes that are often the consequence of another one."""

# As texts: re compiles them where they are first used, which few commands do.
_SEQUENCES: Final = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,500}(?:\x07|\x1b\\)|.)"
_LINES: Final = r"[\r\n]+"

_EXCEPTION: Final = (
    r"(?:[A-Za-z_]\w*\.){0,8}[A-Z]\w*"
    r"(?:Error|Exception|Interrupt|Exit|Failure|Iteration|Timeout)\b(?::|$)"
)
_TRACEBACK: Final = r"Traceback \(most recent call last\)"
_PREFIX: Final = r"^(?:\[?rank ?\d+\]?: ?|\d+: |\[\d+\]: ?|\[[\w.-]+:\d+\] )(?=\S)"
"""Prefixes that launchers add to the lines of their processes."""

_NOISE: Final = (
    r"(?a)^\s*$|^ +\S|^[│╭╰]|"  # frames
    r"^\S.*\b\d{1,3}%\|| \[\d+:\d\d(?::\d\d)?<|\d(?:it/s|s/it)\b|"  # bars
    r"^Traceback \(|^File \"|^During handling of|^The above exception|^\W+$|"
    r"Warning\b|\bWARN(?:ING)?\b|\bwarnings?\.warn|\[W\d|^W\d{4} |\bINFO\b|\bDEBUG\b|^I\d{4} |"
    r"^\++ |^set [-+]|^wandb: (?!ERROR|CommError)|^To (?:suppress|fix) |^For debugging consider|"
    r"^Compile with |^CUDA kernel errors|^resource_tracker|leaked semaphore|^Aborted\b|"
    r"^Exception ignored in|^Press |^For more |^See "
)
_WRAPPER: Final = (
    r"ChildFailedError|ProcessRaisedException|CalledProcessError|returned non-zero exit|"
    r"exit(?:ed with)?[ _](?:code|status)\b|^exitcode\b|failed \(exitcode|MPI_ABORT|"
    r"^-+$|^mpirun|^orterun|^prterun|^srun: |^slurmstepd: error: \*\*\*(?!.*DUE TO TIME LIMIT)|"
    r"Sending process \d+ closing signal|ProcessExitedException|^make(?:\[\d+\])?: \*\*\*|"
    r"^error_file|^traceback :|^time +:|^host +:|^rank +:|terminate called|SignalException"
)
"""A launcher's messages about a failed process: they count only if nothing else is found."""


def find_error_line(text: str) -> ErrorLine | None:
    """The line of a job's output that says why it failed; None without one."""
    lines = [line[:MATCHED_CHARACTERS] for line in re.split(_LINES, re.sub(_SEQUENCES, "", text))]
    lines = lines[-MAX_LINES:]
    general: tuple[str, Cause] | None = None
    for line in reversed(lines):
        stripped = re.sub(_PREFIX, "", line.strip())
        if not stripped or _is_quoted(line, stripped):
            continue
        cause = next((each for each in CAUSES if re.search(each.pattern, stripped)), None)
        if cause is None:
            continue
        if cause.title not in _GENERAL:
            return _error_line(stripped, cause)
        general = general or (stripped, cause)
    exceptions = _exceptions(lines)
    if general is not None:
        return _error_line(*general)
    if exceptions:
        return _error_line(exceptions[-1], None)
    plain_lines = [
        stripped
        for line in lines
        if not re.search(_NOISE, line) and (stripped := re.sub(_PREFIX, "", line.strip()))
    ]
    own = [line for line in plain_lines if not re.search(_WRAPPER, line)]
    best = (own or plain_lines)[-1:]
    return _error_line(best[0], None) if best else None


ScriptRun: TypeAlias = tuple[str, str]
"""The name of a node, and the type of its script: PRE, POST or HOLD."""

_SCRIPT_HEADER: Final = (
    r"\*\*\* Node=(?P<node>\S{1,1000}) Type=(?P<type>PRE|POST|HOLD) Status=(?P<status>-?\d{1,9}) "
    r"Completion=-?\d{1,20} Cmd='[^\n]*\n?"
)
"""What DAGMan writes before the output of a script, which need not end with a newline.

Source: ``Script::WriteDebug`` in ``script.cpp``; the status is that of ``wait``.
"""


def find_script_lines(text: str) -> Mapping[ScriptRun, ErrorLine]:
    """The lines that say why scripts failed, in the end of a SCRIPT DEBUG file.

    DAGMan appends to it whenever a script ends: only the last run of each counts, if it failed.
    """
    headers = list(re.finditer(_SCRIPT_HEADER, text))
    ends = [*(header.start() for header in headers), len(text)][1:]
    lines: dict[ScriptRun, ErrorLine | None] = {}
    for header, end in zip(headers, ends, strict=False):
        output = text[header.end() : end] if int(header["status"]) else ""
        lines[header["node"], header["type"]] = find_error_line(output)
    return {run: line for run, line in lines.items() if line is not None}


def _is_quoted(line: str, stripped: str) -> bool:
    """Whether the line is code in a traceback, a progress bar, or a message of a launcher."""
    indented = line[:1] == " " and not re.match(_EXCEPTION, stripped)
    return indented or bool(re.search(_NOISE, stripped)) or bool(re.search(_WRAPPER, stripped))


def _exceptions(lines: Sequence[str]) -> list[str]:
    """The exceptions that end tracebacks; those of launchers only if there are no others."""
    found = []
    inside = False
    for line in lines:
        stripped = re.sub(_PREFIX, "", line.strip())
        if re.search(_TRACEBACK, line):
            inside = True
        elif inside and re.match(_EXCEPTION, stripped):
            found.append(stripped)
            inside = False
    return [line for line in found if not re.search(_WRAPPER, line)] or found


def _error_line(line: str, cause: Cause | None) -> ErrorLine:
    text = clip(harmless(line).strip(), LINE_CHARACTERS)
    if cause is None:
        return ErrorLine(text)
    match = re.search(cause.pattern, text)
    groups = match.groupdict().values() if match is not None else ()
    name = next((each for each in groups if each), "the path that it uses")
    title, advice = (each.replace("{name}", name) for each in (cause.title, cause.advice))
    return ErrorLine(text, title, advice)
