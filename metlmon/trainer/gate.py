#!/bin/sh
""":"
# DAGMan runs this file with /bin/sh, which stops at "exit 0" below; Python takes this for a string.
# A failed PRE script uses up a retry within a second: without python3, or if killed, the node runs,
# and the reason is in gate.log.
trap : HUP INT TERM
python3 "$0" "$@"
code=$?
case $code in
    0 | 42 | 75) exit $code ;;
    126) why="python3 cannot be started" ;;
    127) why="python3 is not on PATH" ;;
    *) why="python3 ended with exit status $code" ;;
esac
if [ $code -gt 128 ]; then
    why="it was killed by signal $((code - 128))"
fi
echo "gate: $why; the node runs" >&2
PATH=${PATH:+$PATH:}/usr/bin:/bin
case $1 in
    */*) cd "${1%/*}" || exit 0 ;;
esac
case ${1##*/} in
    .* | .gate.json) exit 0 ;;
    *.gate.json) name=${1##*/} ;;
    *) exit 0 ;;
esac
folder=gate/${name%.gate.json}
log=$folder/gate.log
for each in gate "$folder" "$log"; do
    if [ -h "$each" ]; then exit 0; fi
done
mkdir -p "$folder" 2>/dev/null
if [ -e "$log" ]; then
    [ -f "$log" ] && [ "$(wc -c <"$log")" -le 1048576 ] || exit 0
fi
{ printf '%s %s: %s\n' "$(date +%Y-%m-%dT%H:%M:%S)" "$5" "$why" >>"$log"; } 2>/dev/null
exit 0
"""
# ruff: noqa: UP006, UP035, UP045 (not possible in Python 3.6)

__doc__ = """\
The gate: decides before each node of a run whether it runs, waits or is skipped.

A single file beside the DAG file that requires only Python 3.6. DAGMan calls it as the PRE script
of every training and evaluation node that has a gate:

    SCRIPT DEFER 75 60 PRE run0-train_epoch4 gate.py ensemble.gate.json <uuid> 4 train $JOB
    PRE_SKIP run0-train_epoch4 42

Exit status: 0 the node runs, 42 the node is skipped (and counts as done), 75 DAGMan retries later.

User requests are files in gate/<name of the DAG>/, named by the run's uuid:

    <uuid>.stop     train no further epoch; the first line may contain a reason
    <uuid>.pause    train no further epoch while this file exists
    <uuid>.target   train the next epochs at this site (one line)

The requested site is written to placement/<name of the DAG>/<node>.inc, which the node's submit
file includes. The gate's own files are beside the requests:

    <uuid>.stopped  JSON: the rule that ended the run, the reason, and the first skipped epoch.
                    It is never removed: a retry does not start a stopped run again
    <uuid>.paused   JSON: which node waits, and since when
    <uuid>.sent     JSON: the node placed last because of <uuid>.target, and its site
    gate.log        errors of the gate

The rules are in <name>.gate.json. They apply to finished epochs before the node's, as found in the
metrics.csv files of the trainings (PyTorch Lightning's CSVLogger; epochs count from 0). "metric" is
the column, "goal" is "min" (default) or "max":

    patience      this many epochs in a row without an improvement of more than min_delta
    divergence    k: the last epoch is not a number, or above k times the best; for "max" below
                  the best divided by k. Not applied unless the best is above zero
    median_after  the last epoch, from this many on, is worse than the median of all runs

On any error the node runs, also if python3 is missing or the gate is killed: an extra epoch costs
hours, whereas a skipped epoch cannot be recovered.
"""

import contextlib
import csv
import datetime
import json
import math
import os
import re
import stat
import statistics
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

GO, SKIP, WAIT = 0, 42, 75

LONGEST_SMALL = 64 << 10
"""Bytes read of a request: a sentence, or the name of a site."""

LONGEST_RULES = 16 << 20
"""Bytes of the rules file; a hundred thousand runs need less."""

LONGEST_TABLE = 32 << 20
"""Bytes read of a metrics.csv: its header and its end.

Takes half a second, and holds more than a hundred epochs of a hundred thousand steps with a row for
every fiftieth.
"""

LONGEST_LOG = 1 << 20
"""Bytes of gate.log; a paused node may log the same error every minute."""

MOST_SECONDS = 60.0
"""Time limit for reading metrics; DAGMan runs at most 20 PRE scripts at a time."""

MOST_EPOCHS = 1000000
"""Upper limit of a valid epoch number."""

Values = Dict[int, float]
"""Values of a metric by epoch."""


class GateError(Exception):
    """An error, described in a sentence."""


# --- files --------------------------------------------------------------------------------


class SafeDirectory:
    """A directory that is opened without following symbolic links.

    Prevents another user's link from redirecting what is written here.
    """

    def __init__(self, handle: int, path: str) -> None:
        self.handle, self.path = handle, path

    def __del__(self) -> None:
        os.close(self.handle)

    def open(self, name: str) -> "Optional[SafeDirectory]":
        """The subdirectory of this name, None if it does not exist."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        path = os.path.join(self.path, name)
        try:
            return SafeDirectory(os.open(name, flags, dir_fd=self.handle), path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise GateError(f"{path} cannot be used: {describe(error)}") from None

    def make(self, name: str) -> "SafeDirectory":
        """The subdirectory of this name, made if it does not exist."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o777, dir_fd=self.handle)
        directory = self.open(name)
        if directory is None:
            raise GateError(f"{self._named(name)} was taken away")
        return directory

    def has(self, name: str) -> bool:
        """Whether the file exists. Raises GateError for a directory or a link."""
        try:
            mode = os.stat(name, dir_fd=self.handle, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return False
        except OSError as error:
            raise GateError(f"{self._named(name)} cannot be looked at: {describe(error)}") from None
        if not stat.S_ISREG(mode):
            raise GateError(f"{self._named(name)} is no file: take it away")
        return True

    def read(self, name: str, most: int = LONGEST_SMALL) -> bytes:
        """The first ``most`` bytes of a file."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            with open(os.open(name, flags, dir_fd=self.handle), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise GateError(f"{self._named(name)} is no file: take it away")
                return file.read(most)
        except OSError as error:
            raise GateError(f"{self._named(name)} cannot be read: {describe(error)}") from None

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically."""
        beside = f".{name[:100]}.{os.getpid()}.{time.time():.6f}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(beside, flags, 0o666, dir_fd=self.handle), "wb") as file:
                try:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                    self.has(name)  # raises for what is no file
                    os.replace(beside, name, src_dir_fd=self.handle, dst_dir_fd=self.handle)
                finally:
                    self.remove(beside)
        except OSError as error:
            raise GateError(f"{self._named(name)} cannot be written: {describe(error)}") from None

    def append(self, name: str, content: bytes, most: int) -> None:
        """Append to a file, unless it has more than ``most`` bytes."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        handle = os.open(name, flags | os.O_NOCTTY | os.O_CLOEXEC, 0o666, dir_fd=self.handle)
        try:
            status = os.fstat(handle)
            if stat.S_ISREG(status.st_mode) and status.st_size <= most:
                os.write(handle, content)
        finally:
            os.close(handle)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.handle)

    def _named(self, name: str) -> str:
        return os.path.join(self.path, name)


def placement_line(site: str) -> bytes:
    """The content of a placement file."""
    return f"ResourceName = {site}\n".encode()


def describe(error: OSError) -> str:
    return error.strerror or str(error)


def line_of(content: bytes, most: int = 300) -> str:
    """The first non-empty line, without unprintable characters."""
    for line in content.decode("utf-8", "replace").splitlines():
        text = "".join(each if each.isprintable() else " " for each in line)
        text = " ".join(text.split())
        if text:
            return text[:most]
    return ""


# --- metrics ------------------------------------------------------------------------------

_VERSION = re.compile(r"version_(\d{1,9})")
_WRAPPED = re.compile(r"(?:tensor|(?:np|numpy)\.float\d{1,3})\(([^,()]{1,60})[^()]{0,60}\)")


class MetricFiles:
    """The values of one metric in the metrics.csv files of one run.

    Rows are sparse, columns in any order. The last of several rows of an epoch counts; each start
    of the training has its own directory, of which the latest counts.
    """

    def __init__(self, path: str, metric: str, deadline: float, log: Callable[[str], None]) -> None:
        self._path, self._metric, self._deadline, self._log = path, metric, deadline, log

    def values(self) -> Values:
        """The values of all epochs.

        A version that cannot be read is logged and skipped; for the latest one, GateError is
        raised, since its results are unknown.
        """
        values = {}  # type: Values
        versions = self._versions()
        for version in versions:
            read = self._read if version == versions[-1] else self._read_or_skip
            values.update(read(version))
        return values

    def value_at(self, epoch: int) -> Optional[float]:
        """The value of this epoch, searched from the latest version backwards."""
        for version in reversed(self._versions()):
            values = self._read_or_skip(version)
            if epoch in values:
                return values[epoch]
        return None

    def _read_or_skip(self, path: str) -> Values:
        try:
            return self._read(path)
        except GateError as error:
            check_time(self._deadline)
            self._log(str(error))
            return {}

    def _versions(self) -> List[str]:
        try:
            names = os.listdir(self._path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise GateError(f"{self._path} cannot be read: {describe(error)}") from None
        numbered = [(_VERSION.fullmatch(name), name) for name in names]
        found = sorted((int(match.group(1)), name) for match, name in numbered if match)
        return [os.path.join(self._path, name, "metrics.csv") for _, name in found]

    def _read(self, path: str) -> Values:
        check_time(self._deadline)
        values = {}  # type: Values
        head = []  # type: List[str]
        try:
            for row in csv.reader(lines_of(path)):
                if "epoch" in row or not head:
                    # A logger that restarts in the same file repeats its header.
                    head = [name.strip().lstrip("\ufeff") for name in row]
                    if "epoch" not in head:
                        raise GateError(f"{path} has no column called epoch")
                elif self._metric in head:
                    self._take(row, head, values)
        except FileNotFoundError:
            return {}  # the training ended before it wrote any
        except OSError as error:
            raise GateError(f"{path} cannot be read: {describe(error)}") from None
        except csv.Error as error:
            raise GateError(f"{path} is no table: {error}") from None
        return values

    def _take(self, row: List[str], head: List[str], values: Values) -> None:
        of_epoch, of_metric = head.index("epoch"), head.index(self._metric)
        if max(of_epoch, of_metric) >= len(row) or not row[of_metric]:
            return
        epoch, value = number(row[of_epoch]), number(row[of_metric])
        if epoch is None or value is None or not 0 <= epoch < MOST_EPOCHS or epoch != int(epoch):
            return
        # Lightning increments the epoch before a test: its row has the number of complete epochs.
        values[max(0, int(epoch) - self._metric.startswith("test"))] = value


def check_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise GateError(f"the metrics were not read within {MOST_SECONDS:.0f} seconds")


def lines_of(path: str) -> Iterator[str]:
    """Complete lines of a file; of a long file, the first and the last ones."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with open(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise GateError(f"{path} is no file")
        yield from complete(file.readline(LONGEST_SMALL))
        if status.st_size - file.tell() > LONGEST_TABLE:
            file.seek(status.st_size - LONGEST_TABLE)
            file.readline()
        left = LONGEST_TABLE
        while left > 0:
            line = file.readline(left)
            if not line:
                return
            left -= len(line)
            yield from complete(line)


def complete(line: bytes) -> Iterator[str]:
    """The line, if it has a line end: otherwise it is being written or was cut off."""
    if line.endswith((b"\n", b"\r")):
        yield line.decode("utf-8", "replace").replace("\0", "")


def number(text: str) -> Optional[float]:
    text = text.strip()[:100]
    wrapped = _WRAPPED.fullmatch(text)
    try:
        return float(wrapped.group(1) if wrapped else text)
    except ValueError:
        return None


# --- rules --------------------------------------------------------------------------------


class Verdict(NamedTuple):
    rule: str
    reason: str


class RuleChecker:
    """Applies the rules to the finished epochs of one run.

    ``since``: earlier epochs serve for comparison only, as the run was continued after they had
    been judged.
    """

    def __init__(self, metric: str, values: Values, since: int, goal: str = "min") -> None:
        self._metric, self._values, self._since = metric, values, since
        self._sign = -1.0 if goal == "max" else 1.0
        self.last = max(values)

    def divergence(self, factor: float) -> Optional[Verdict]:
        value, before = self._values[self.last], self._best(self.last)
        if self.last < self._since:
            return None
        at = f"{self._metric} is {short(value)} at epoch {self.last + 1}"
        if not math.isfinite(value):
            return Verdict("divergence", at)
        # A multiple of a value that is not above zero is meaningless.
        if before is None or self._values[before] <= 0:
            return None
        best = f"{short(self._values[before])} at epoch {before + 1}"
        if self._sign > 0:
            text = f"{at}, more than {short(factor)} times its best ({best})"
            far = value > factor * self._values[before]
        else:
            text = f"{at}, below its best ({best}) divided by {short(factor)}"
            far = factor > 0 and value < self._values[before] / factor
        return Verdict("divergence", text) if far else None

    def patience(self, most: int, min_delta: float) -> Optional[Verdict]:
        best, waited = math.inf, 0
        for epoch in sorted(self._values):
            value = self._sign * self._values[epoch]
            if value < best - min_delta or (math.isinf(best) and value < best):
                best, waited = value, 0
            elif epoch >= self._since:
                waited += 1
        if waited < most:
            return None
        by = f" by more than {short(min_delta)}" if min_delta else ""
        text = f"{self._metric} has not improved{by} for {epochs(waited)}"
        at = self._best(self.last + 1)
        if at is not None:
            text += f"; best {short(self._values[at])} at epoch {at + 1}"
        return Verdict("patience", text)

    def median(self, after: int, others: Callable[[int], List[float]]) -> Optional[Verdict]:
        if self.last + 1 < after or self.last < self._since:
            return None
        own, values = self._values[self.last], others(self.last)
        if len(values) < 2:
            return None
        middle = statistics.median([worst_last(self._sign * each) for each in [own, *values]])
        if not worst_last(self._sign * own) > middle:
            return None
        return Verdict(
            "median",
            f"{self._metric} {short(own)} at epoch {self.last + 1} is worse than the median "
            f"of {len(values) + 1} runs, {short(self._sign * middle)}",
        )

    def _best(self, before: int) -> Optional[int]:
        """The epoch before ``before`` with the best value; None if no value is finite."""
        some = [
            (self._sign * value, epoch)
            for epoch, value in self._values.items()
            if epoch < before and math.isfinite(value)
        ]
        return min(some)[1] if some else None


def worst_last(value: float) -> float:
    return math.inf if math.isnan(value) else value


def short(value: float) -> str:
    """A number with four significant digits."""
    if math.isnan(value):
        return "NaN"
    return f"{value:.4g}" if math.isfinite(value) else ("inf" if value > 0 else "-inf")


def epochs(count: int) -> str:
    return "1 epoch" if count == 1 else f"{count} epochs"


_SITE = re.compile(r"[^\s\"'$\\\ufffd](?:[^\n\r\"'$\\\ufffd]{0,198}[^\s\"'$\\\ufffd])?")
"""A valid site name in a submit file: one line, without quotes and macros."""


# --- the gate -----------------------------------------------------------------------------


class Gate:
    """The decision for one node of one run."""

    def __init__(self, rules: str, uuid: str, epoch: int, node: str) -> None:
        self._path, file = os.path.split(os.path.abspath(rules))
        self._file = file
        if not file.endswith(".gate.json"):
            raise GateError(f"{rules!r} is not called NAME.gate.json")
        self._name = file[: -len(".gate.json")]
        for each in (self._name, uuid, node):
            if each in ("", ".", "..") or "/" in each or "\0" in each:
                raise GateError(f"{each!r} cannot be part of a file's name")
        self.uuid, self.epoch, self.node = uuid, epoch, node
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        self._base = SafeDirectory(os.open(self._path, flags), self._path)

    def log(self, text: str) -> None:
        """Write a line to gate.log, or to stderr, which DAGMan's SCRIPT DEBUG captures."""
        text = line_of(text.encode("utf-8", "replace"), 1000)
        line = f"{now()} {self.node}: {text}\n".encode("utf-8", "replace")
        try:
            self._base.make("gate").make(self._name).append("gate.log", line, LONGEST_LOG)
        except (OSError, GateError):
            print_error(text)

    def attempt(self, what: Callable[[], Any]) -> Any:
        """The result of ``what``; None if it fails, with a line in the log."""
        try:
            return what()
        except GateError as error:
            self.log(str(error))
        except Exception as error:
            self.log(f"{type(error).__name__}: {error}")
        return None

    # --- files of the run -----------------------------------------------------------------

    def _folder(self, kind: str = "gate") -> Optional[SafeDirectory]:
        """``gate/<name>/`` or ``placement/<name>/``, None if it does not exist."""
        above = self._base.open(kind)
        return above.open(self._name) if above is not None else None

    def _has(self, kind: str) -> bool:
        folder = self._folder()
        return folder is not None and folder.has(f"{self.uuid}.{kind}")

    def _read(self, kind: str) -> bytes:
        return self._base.make("gate").make(self._name).read(f"{self.uuid}.{kind}")

    def _record(self, kind: str) -> Dict[str, Any]:
        return parsed(self._read(kind), f"{self.uuid}.{kind}")

    def _write(self, kind: str, content: Dict[str, Any]) -> None:
        data = json.dumps(content, sort_keys=True).encode("ascii") + b"\n"
        self._base.make("gate").make(self._name).write(f"{self.uuid}.{kind}", data)

    def _remove(self, kind: str) -> None:
        folder = self._folder()
        if folder is not None:
            folder.remove(f"{self.uuid}.{kind}")

    # --- decisions ------------------------------------------------------------------------

    def evaluate(self) -> int:
        """Skip an evaluation if its epoch was not trained."""
        if not self._has("stopped"):
            return GO
        epoch = self._record("stopped").get("epoch")
        if not isinstance(epoch, int):
            raise GateError(f"{self.uuid}.stopped does not say from which epoch on")
        return SKIP if epoch <= self.epoch else GO

    def train(self) -> int:
        """Skip, delay or place an epoch."""
        if self.attempt(lambda: self._has("stopped")):
            self.attempt(lambda: self._remove("paused"))
            return SKIP
        if self.attempt(lambda: self._has("stop")):
            # Skip the node even if the stop cannot be recorded.
            self.attempt(self._stop_as_requested)
            return SKIP
        if self.attempt(self._stop_by_rule):
            return SKIP
        if self.attempt(lambda: self._has("pause")):
            self.attempt(self._pause)
            return WAIT
        self.attempt(lambda: self._remove("paused"))
        self.attempt(self._place)
        return GO

    def _stop_as_requested(self) -> None:
        why = self.attempt(lambda: line_of(self._read("stop"))) or ""
        # metlmon writes "by NAME with metlmon"; any other text is the user's reason.
        suffix = f" {why}" if why.startswith("by ") else f": {why}" if why else ""
        self._stop(Verdict("file", f"asked to stop{suffix}"))

    def _stop(self, verdict: Verdict) -> None:
        record = {
            "schema": 1,
            "run": self._run_name(),
            "uuid": self.uuid,
            "node": self.node,
            "epoch": self.epoch,
            "rule": verdict.rule,
            "reason": verdict.reason,
            "time": now(),
        }
        if not self._has("stopped"):  # another gate may have been faster
            self._write("stopped", record)
        self.attempt(lambda: self._remove("paused"))

    def _pause(self) -> None:
        if self._has("paused"):
            with contextlib.suppress(GateError):  # a damaged record is replaced
                if self._record("paused").get("node") == self.node:
                    return
        record = {"schema": 1, "node": self.node, "epoch": self.epoch, "time": now()}
        self._write("paused", record)

    def _place(self) -> None:
        """Write the site of the job to be submitted; its submit file includes this."""
        if not self._has("target"):
            if self._has("sent"):
                self._remove_placement()
            return
        site = self._read("target").decode("utf-8", "replace").rstrip("\r\n")
        if not _SITE.fullmatch(site) or not site.isprintable():
            raise GateError(
                f"{self.uuid}.target names no site: one line without quotes, $ and backslash "
                "is expected"
            )
        folder = self._base.make("placement").make(self._name)
        name, line = f"{self.node}.inc", placement_line(site)
        if not folder.has(name) or folder.read(name) != line:
            folder.write(name, line)
        self._write("sent", {"schema": 1, "node": self.node, "site": site})

    def _remove_placement(self) -> None:
        """Remove the node's placement after the request for it was removed.

        Also for a retry of the node. A placement that someone has edited stays.
        """
        sent, folder = self._record("sent"), self._folder("placement")
        name, line = f"{self.node}.inc", placement_line(str(sent.get("site")))
        own = folder is not None and sent.get("node") == self.node and folder.has(name)
        if folder is not None and own and folder.read(name) == line:
            folder.remove(name)
        self._remove("sent")

    # --- rules ----------------------------------------------------------------------------

    def _rules(self) -> Dict[str, Any]:
        return parsed(self._base.read(self._file, LONGEST_RULES), self._file)

    def _run_name(self) -> str:
        runs = (self.attempt(self._rules) or {}).get("runs")
        run = runs.get(self.uuid) if isinstance(runs, dict) else None
        name = run.get("name") if isinstance(run, dict) else None
        return name if isinstance(name, str) else self.node.partition("-")[0]

    def _stop_by_rule(self) -> bool:
        """Whether a rule ends the run; this is recorded then."""
        content = self._rules()
        rules, runs = content.get("rules"), content.get("runs")
        if not isinstance(rules, dict) or not any(
            rules.get(name) is not None for name in ("patience", "divergence", "median_after")
        ):
            return False
        run = runs.get(self.uuid) if isinstance(runs, dict) else None
        if not isinstance(runs, dict) or not isinstance(run, dict):
            raise GateError(f"{self._file} does not name the run {self.uuid}")
        metric, deadline = rules.get("metric"), time.monotonic() + MOST_SECONDS
        if not isinstance(metric, str):
            raise GateError(f"{self._file}: metric must be a name")
        values = self._table(run, metric, deadline).values()
        finished = {epoch: value for epoch, value in values.items() if epoch < self.epoch}
        if not finished:
            return False
        since = int(amount(run, "since", self._file) or 0)
        checker = RuleChecker(metric, finished, since, self._goal(rules))

        def others(epoch: int) -> List[float]:
            values = []
            for uuid in sorted(runs):
                if uuid == self.uuid:
                    continue
                try:
                    value = self._table(runs[uuid], metric, deadline).value_at(epoch)
                except GateError as error:
                    check_time(deadline)
                    self.log(str(error))
                    continue
                if value is not None:
                    values.append(value)
            return values

        verdict = self._verdict(checker, rules, others)
        if verdict is not None:
            self._stop(verdict)
        return verdict is not None

    def _verdict(
        self, checker: RuleChecker, rules: Dict[str, Any], others: Callable[[int], List[float]]
    ) -> Optional[Verdict]:
        factor = amount(rules, "divergence", self._file)
        patience = amount(rules, "patience", self._file)
        after = amount(rules, "median_after", self._file)
        min_delta = amount(rules, "min_delta", self._file) or 0.0
        verdict = checker.divergence(factor) if factor is not None else None
        if verdict is None and patience is not None:
            verdict = checker.patience(max(1, int(patience)), min_delta)
        if verdict is None and after is not None:
            verdict = checker.median(int(after), others)
        return verdict

    def _goal(self, rules: Dict[str, Any]) -> str:
        goal = rules.get("goal") or "min"
        if goal not in ("min", "max"):
            raise GateError(f"{self._file}: goal must be min or max")
        return str(goal)

    def _table(self, run: Any, metric: str, deadline: float) -> MetricFiles:
        path = run.get("metrics") if isinstance(run, dict) else None
        if not isinstance(path, str) or "\0" in path:
            raise GateError(f"{self._file} does not say where the metrics of a run are")
        return MetricFiles(os.path.join(self._path, path), metric, deadline, self.log)


def parsed(content: bytes, name: str) -> Dict[str, Any]:
    try:
        found = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise GateError(f"{name} cannot be read: a JSON object is expected")
    return found


def amount(content: Dict[str, Any], name: str, file: str) -> Optional[float]:
    """A non-negative number; None if it is not set."""
    value = content.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e300:
        raise GateError(f"{file}: {name} must be a number that is not negative")
    return value


def now() -> str:
    return datetime.datetime.now().strftime("%Y-%m-%dT%H:%M:%S")


def print_error(text: str) -> None:
    try:
        sys.stderr.write("gate: " + text.encode("ascii", "backslashreplace").decode() + "\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass  # no usable stderr


def main(arguments: Sequence[str]) -> int:
    """Decide for a node; returns the exit status, 0 on any error."""
    try:
        if len(arguments) != 5 or arguments[3] not in ("train", "evaluate"):
            raise GateError("usage: gate.py NAME.gate.json UUID EPOCH train|evaluate NODE")
        rules, uuid, epoch, what, node = arguments
        if not re.fullmatch(r"[0-9]{1,9}", epoch):
            raise GateError(f"{epoch!r} is no epoch")
        gate = Gate(rules, uuid, int(epoch), node)
    except (OSError, GateError) as error:
        print_error(str(error))
        return GO
    code = gate.attempt(gate.train if what == "train" else gate.evaluate)
    return code if code in (GO, SKIP, WAIT) else GO


if __name__ == "__main__":
    try:
        status = main(sys.argv[1:])
    except Exception as problem:
        print_error(str(problem))
        status = GO
    sys.exit(status)
