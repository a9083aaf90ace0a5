"""Texts about rows: nodes, and the gates of runs; matching of runs by name.

Pure functions, shared by commands and screens.
"""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from typing import Final, Protocol

from metlmon.jobfiles.error_lines import NO_ERRORS, Errors
from metlmon.jobfiles.gate_files import ABORT_RULE, Stopped
from metlmon.model.reasons import RemovalPolicy, find_policy, held_limit
from metlmon.model.run import GateStatus
from metlmon.model.states import FAILED_JOB, TERMINAL, DagState, State
from metlmon.snapshot.records import DagRow, Epoch, NodeRow, Run, SideCounts, Status, job_key
from metlmon.text.formatting import (
    STATES,
    Colour,
    Symbol,
    clip,
    clip_middle,
    count,
    duration,
    epoch_number,
    moment,
    number,
    ordinal,
    plain,
    site_list,
)

MAX_NAME: Final = 60
MAX_REASON: Final = 400
"""Characters of names and reasons; ``--json`` has them in full."""

KINDS: Final = frozenset({"final", "provisioner", "service"})
"""Kinds of nodes outside the graph, written in capitals as in the DAG file."""

WAITS: Final = "waits for "
"""Prefix of the names of unfinished parents."""

MIN_COMMON_PREFIX: Final = 4
"""Minimum length of a common prefix that the second name omits."""


class OfRun(Protocol):
    """A row about one run: the run's key and name, and the file of its DAG."""

    @property
    def key(self) -> str: ...

    @property
    def run(self) -> str: ...

    @property
    def dag(self) -> str: ...


def run_labels(runs: Sequence[OfRun]) -> dict[str, str]:
    """The names of runs by key; ``run0 (b.dag)`` where several runs have the same name."""
    number_of = Counter(row.run for row in runs)
    return {
        row.key: f"{row.run} ({row.dag})" if number_of[row.run] > 1 and row.dag else row.run
        for row in runs
    }


def name_range(first: str, last: str) -> str:
    """``run0-train_epoch0 … 4``: two names, with their common prefix once."""
    if first == last:
        return clip_middle(first, MAX_NAME)
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    # Numbers are not split: 18 … 20, not 18 … 0.
    prefix = "".join(character for character, _ in pairs).rstrip("0123456789")
    rest = last[len(prefix) :] if len(prefix) >= MIN_COMMON_PREFIX else last
    return f"{clip_middle(first, MAX_NAME)} … {clip_middle(rest or last, MAX_NAME)}"


def job_result_text(row: NodeRow | Epoch, errors: Errors) -> str:
    """``CUDA out of memory (exit 3)``, ``return value 3``: the result of a node's failed job."""
    last = row.job.last_execution if row.job else None
    error = errors.jobs.get(job_key(row.job)) if row.job else None
    if row.job_return is not None:
        known = error is not None and error.line is not None
        text = f"exit {row.job_return}" if known else f"return value {row.job_return}"
    elif row.job_state is State.REMOVED:
        removal = row.job.removal if row.job else None
        text = f"its job was {policy_remover(removal) or 'removed'}"
    else:
        text = last.cause if last is not None and last.cause else "its job failed"
    return error.explain(text) if error is not None else text


def policy_remover(reason: str | None) -> str | None:
    """``removed by the job's policy (held > 1 d)``; None if a reason names no such policy."""
    text = " ".join((reason or "").split())
    policy = find_policy(text)
    if policy is not None and policy.removes:
        return policy_words(policy)
    if _NAMES_POLICY.search(text[:2000]):
        # SYSTEM_PERIODIC_REMOVE_REASON replaces the text that names the expression.
        whose = "the access point's policy" if "SYSTEM_" in text else "the job's policy"
        return f"removed by {whose}: {text}"
    return None


def policy_words(policy: RemovalPolicy) -> str:
    """``removed by the access point's policy (held > 1 d)``."""
    whose = "the access point's policy" if policy.is_system else "the job's policy"
    limit = held_limit(policy.expression)
    if limit is None:
        return f"removed by {whose}"
    days = limit // _DAY
    length = f"{days} d" if limit % _DAY == 0 else duration(limit)
    return f"removed by {whose} (held > {length})"


_NAMES_POLICY: Final = re.compile(r"periodic_?remove", re.IGNORECASE)
_DAY: Final = 86400


def submission_text(dag: DagRow, this_year: int | None, last: bool = False) -> str:
    """``15th submission (rescue012), last 14 Nov 08:14``; empty for a DAG never run.

    ``last``: add the time of the last submission.
    """
    rescue = f"rescue{dag.rescue:03}" if dag.rescue else ""
    if not dag.submitted:
        return rescue
    text = f"{ordinal(dag.submitted)} submission"
    parts = [f"{text} ({rescue})" if rescue else text]
    parts += [f"recovered {dag.recoveries}×"] * bool(dag.recoveries)
    if last and dag.submissions:
        parts.append(f"last {moment(dag.submissions[-1], this_year)}")
    return ", ".join(parts)


def running_text(status: Status, dag: DagRow) -> str:
    """``▶ 5 jobs running`` for a single DAG whose files do not show its DAGMan."""
    running = status.jobs_running
    if dag.state is not DagState.UNKNOWN or len(status.dags) > 1 or not running:
        return ""
    return f"{STATES[State.RUNNING].glyph} {count(running, 'job')} running"


def failed_nodes_text(status: Status, failed: int) -> str:
    """``3 failed``, ``3 removed``: nodes that DAGMan counts as failed, by their own states."""
    states = status.node_states
    words = [STATES[s].word for s in (State.FAILED, State.REMOVED) if states.get(s)]
    return f"{number(failed)} {' or '.join(words) or STATES[State.FAILED].word}"


def failed_evaluations(side: SideCounts) -> tuple[str, str]:
    """``2 evaluations failed``, and the result of their nodes after POST scripts."""
    overruled, failed = side.overruled, side.failed
    if not overruled + failed:
        return "", ""
    text = f"{count(overruled + failed, 'evaluation')} failed"
    if not failed:
        return text, "POST script passed" if overruled == 1 else "POST scripts passed"
    return text, f"{number(failed)} for good" if overruled else ""


def state_reason(row: NodeRow, errors: Errors = NO_ERRORS) -> str:
    """The reason for the state of a node; empty if the state is self-explanatory.

    ``errors``: what failed jobs and scripts wrote.
    """
    match row.state:
        case State.HELD:
            return clip(row.hold_reason or "the log gives no reason", MAX_REASON)
        case State.UNKNOWN | State.WAITING | State.FUTILE if row.reason:
            return plain(row.reason, MAX_REASON)
        case State.WAITING:
            return _waiting(row)
        case State.UNKNOWN if row.job_state in TERMINAL:
            return "no file here has the result of its POST script"
        case State.FUTILE:
            return f"cannot run: {clip(row.failed_ancestor or 'a node before it', MAX_NAME)} failed"
        case State.FAILED | State.REMOVED | State.RETRYING:
            return _with_retries(failure_text(row, errors), row)
        case State.SKIPPED if row.stopped_by is not None:
            by = "somebody asked for it" if row.stopped_by == "file" else row.stopped_by
            return f"skipped: the run was stopped ({plain(by, MAX_NAME)})"
        case State.SKIPPED:
            return "its PRE script ended it without a job"
        case State.COMPLETED if row.ended_with_dag:
            return "ended with its DAG"
        case State.COMPLETED if row.overruled:
            return f"{job_result_text(row, errors)}: its POST script succeeded"
        case State.COMPLETED if row.inferred:
            return "inferred: a node after it was submitted"
        case _:
            return ""


def _waiting(row: NodeRow) -> str:
    if row.waits_for:
        return f"{WAITS}{name_list(row.waits_for, row.unfinished_parents)}"
    if row.kind == "final":
        return "waits for the end of all others"
    if row.job_state is State.COMPLETED:
        return "its job succeeded, but DAGMan ended before its POST script did"
    if row.parents:
        return "nothing is before it any more: DAGMan has not submitted it"
    return "not submitted yet"


def name_list(names: Sequence[str], total: int, limit: int = 3) -> str:
    """``a, b, c and 9 more``."""
    shown = ", ".join(clip(name, MAX_NAME) for name in names[:limit])
    more = total - min(limit, len(names))
    return f"{shown} and {number(more)} more" if more > 0 else shown


def failure_text(row: NodeRow | Epoch, errors: Errors) -> str:
    """Why a node failed: what its job or script wrote, with the result."""
    if row.reason is not None:
        reason, error = (
            plain(row.reason, MAX_REASON),
            errors.of_node(row.node_key, None, row.reason),
        )
        return error.explain(reason) if error is not None else reason
    if row.job_state is None:
        return "DAGMan reports that it failed, without a reason"
    return job_result_text(row, errors) if row.job_state in FAILED_JOB else "its POST script failed"


def brief_reason(text: str) -> str:
    """A reason without what the state beside it says, for a narrow column."""
    return text.removeprefix("Job submit failed: ").replace(WAITS, "after ", 1)


def _with_retries(text: str, row: NodeRow) -> str:
    """``text`` with the tries of a node without a job in any log, and with the retries left."""
    if row.reason is not None and not row.jobs and row.submissions > 1:
        text += f", after {count(row.submissions, 'try', 'tries')}"
    if not row.retries:
        return text
    left = row.retries_left or 0
    return f"{text}, {count(left, 'retry', 'retries') if left else 'no retries'} left"


# --- gates ------------------------------------------------------------------------------

STOPPED: Final = Symbol("□", "stopped", Colour.ORANGE)
"""Its gate, or ABORT-DAG-ON with RETURN 0, ended it before its last epoch."""

PAUSED: Final = Symbol("◧", "paused", Colour.YELLOW)
"""Its next epoch waits at the gate until the pause is removed."""

REQUESTED: Final = Symbol("◇", "asked", Colour.YELLOW)
"""Shown beside its state: a request that its gate has not acted on yet."""

MAX_GATE_REASON: Final = 1000
MAX_SITE: Final = 60

_RULE_TEXT: Final = {
    "patience": " by patience",
    "divergence": " by divergence",
    "median": " by the median",
    ABORT_RULE: " by ABORT-DAG-ON (return 0)",
}


def gate_symbol(row: Run) -> Symbol | None:
    """The symbol of the gate if it replaces that of the run's state; else None.

    An epoch in progress keeps its own symbol, whatever was requested.
    """
    return STOPPED if row.stopped else PAUSED if row.paused else None


def is_waiting_at(row: Run, epoch: Epoch) -> bool:
    """Whether the gate of the run holds back this epoch."""
    return row.paused and epoch.state is State.PRE


def waits_since(gate: GateStatus) -> str:
    """The text below an epoch that waits at its gate."""
    return f"waits at the gate since {moment(gate.paused)}"


def epoch_target(row: Run, epoch: Epoch) -> str | None:
    """The target of an epoch: until its gate lets it through, the one set at the gate, if any."""
    gate = row.gate
    if gate is None or gate.target is None or epoch.state not in (State.WAITING, State.PRE):
        return epoch.target
    return epoch.target if epoch.jobs else gate.target


def gate_sentences(row: Run) -> list[str]:
    """Sentences about a run's gate, the most important one first."""
    gate = row.gate
    if gate is None:
        return []
    if gate.stopped is not None:
        return [_stopped(gate.stopped)]
    if row.is_complete:
        return []
    sentences = []
    if gate.stop_requested is not None:
        sentences.append(_request_text("stops", row))
    elif gate.paused is not None:
        sentences.append(_paused(gate, row))
    elif gate.pause_requested is not None:
        sentences.append(_request_text("pauses", row))
    if gate.target is not None:
        sentences.append(
            f"sends its next epochs to {clip(' or '.join(site_list(gate.target)), MAX_SITE)}"
        )
    return sentences


def _stopped(stopped: Stopped) -> str:
    rule = _RULE_TEXT.get(stopped.rule, "")
    before = f" before epoch {epoch_number(stopped.epoch)}" if stopped.epoch is not None else ""
    time = f" at {moment(stopped.time)}" if stopped.time is not None else ""
    reason = plain(stopped.reason, MAX_GATE_REASON)
    return f"stopped{rule}{before}{time}" + (f": {reason}" if reason else "")


def _paused(gate: GateStatus, row: Run) -> str:
    since = f" since {moment(gate.paused)}"
    number = row.next_epoch
    before = f" before epoch {epoch_number(number)}" if number is not None else ""
    if gate.pause_requested is None:
        return f"paused{before}{since}; continues when its gate is asked next"
    return f"paused{before}{since}"


def _request_text(verb: str, row: Run) -> str:
    """``stops before epoch 7, when epoch 6 has ended``."""
    number = row.next_epoch
    if number is None:
        return f"{verb} before its next epoch"
    latest = row.latest
    before = f"{verb} before epoch {epoch_number(number)}"
    if latest is not None and latest.state is not State.COMPLETED:
        return f"{before}, when epoch {number} has ended"
    return before


# --- runs by name -----------------------------------------------------------------------

MAX_LISTED_RUNS = 8
"""Maximum number of runs listed in a message."""


def matches_name(only: str, uuid: str | None, *names: str | None) -> bool:
    """Whether ``only`` matches this uuid or any of these names."""
    for pattern in filter(None, (pattern.strip() for pattern in only.split(","))):
        values = [name for name in (uuid, *names) if name]
        if any(name == pattern or fnmatch.fnmatchcase(name, pattern) for name in values):
            return True
        if uuid and fnmatch.fnmatchcase(uuid, f"{pattern}*"):
            return True
    return False


def matches_run(run: Run, only: str) -> bool:
    """Whether ``only`` matches this run."""
    return matches_name(only, run.uuid, run.run, run.key)


def format_run_list(runs: tuple[Run, ...]) -> str:
    """A list of runs for messages: ``there are run0 (aaaa1111), run1 (…), …``."""
    known = [f"{r.run} ({r.uuid[:8]})" if r.uuid else r.run for r in runs[: MAX_LISTED_RUNS + 1]]
    some = ", ".join(known[:MAX_LISTED_RUNS]) + (", …" if len(known) > MAX_LISTED_RUNS else "")
    return f"there are {some}" if known else "this dagdir has no runs"
