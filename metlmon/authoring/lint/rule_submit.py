"""Rules for submit descriptions: stray lines, undefined macros, logs, GPUs, mail.

Source: HTCondor manual, "condor_submit".
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from metlmon.authoring.lint.context import LintContext
from metlmon.authoring.lint.expressions import COMPARISON_STARTS, unfinished
from metlmon.authoring.lint.source_map import SubmitText
from metlmon.dagman import Node
from metlmon.dagman.lexer import shown

_BARE_CONDITION: Final = re.compile(
    r"[(\s!]*(?:TARGET|MY)\.\w+\s*(?:==|=\?=|=!=|!=|<|>|\|\||&&|\)|$)|.{0,4000}?\s(?:&&|\|\|)\s",
    re.IGNORECASE | re.DOTALL,
)
_EXPRESSIONS: Final = re.compile(
    r"(?:requirements|rank|periodic_(?:hold|release|remove|vacate)|on_exit_(?:hold|remove))\Z"
)
"""Commands with expressions, which condor_submit refuses if it cannot parse them."""

_FREE_TEXT: Final = frozenset({"arguments", "args", "environment", "env"})
"""Commands whose values may start with anything."""

_MACRO: Final = re.compile(r"\$\(([A-Za-z_]\w*)\)")

#: Macros predefined by condor_submit and DAGMan, and the checkpoint, which a run's first epoch
#: lacks.
_BUILT_IN: Final = frozenset(
    {
        *("arch", "opsys", "opsysandver", "opsysver", "opsysmajorver", "username", "hostname"),
        *("full_hostname", "ip_address", "tilde", "home", "pid", "ppid", "islinux", "iswindows"),
        "continue_from_checkpoint",
        *("cluster", "clusterid", "process", "procid", "node", "step", "row", "item"),
        *("itemindex", "job", "retry", "max_retries", "dag_status", "failed_count"),
        *("dagmanjobid", "dag_id", "dag_parent_names", "dollar", "submit_file", "submit_time"),
        *("year", "month", "day", "random_choice", "random_integer", "dagman_max_jobs_idle"),
        *("node_name",),
    }
)

_GPU_REQUESTS: Final = frozenset(
    {
        *("gpus_minimum_memory", "gpus_minimum_capability", "gpus_maximum_capability"),
        *("gpus_minimum_runtime", "require_gpus"),
    }
)
_GPU_ATTRIBUTES: Final = re.compile(
    r"\b(?:TARGET\.)?(?:CUDA\w+|GPUs_\w+|TotalGPUs|GPUs)\b", re.IGNORECASE
)

MAX_LOGS: Final = 20
"""Most logs of one DAG without a finding: one log per run is common."""

MAX_MAILS: Final = 10
"""Most jobs with mail without a finding."""


def check(context: LintContext) -> None:
    """Check every description, and the logs of the trainings."""
    for text, nodes in context.submit_texts().values():
        _check_lines(context, text)
        _check_ifs(context, text)
        if nodes:
            _check_macros(context, text, nodes)
            _check_gpus(context, text)
            _check_mail(context, text, nodes)
    _check_logs(context)


def _check_lines(context: LintContext, text: SubmitText) -> None:
    """Conditions without an assignment, unparsable expressions, stray lines."""
    for statement in text.statements:
        # condor_submit silently parses "TARGET.X == y" as an assignment of "= y" to an unused
        # name; it refuses a bare condition in brackets.
        if statement.key in _FREE_TEXT or statement.directive:
            continue
        if statement.value.startswith(COMPARISON_STARTS):
            name = statement.key if statement.file in text.descriptions else ""
            _report_bare_condition(context, statement.file, statement.line, name)
        elif _EXPRESSIONS.match(statement.key) and (problem := unfinished(statement.value)):
            context.report("unfinished-expression", statement, f"{statement.key} {problem}")
    for statement in text.stray:
        if _BARE_CONDITION.match(statement.value):
            _report_bare_condition(context, statement.file, statement.line, "")
        else:
            message = "this line is neither an assignment nor a command"
            context.report("submit-syntax", statement, message)


def _report_bare_condition(context: LintContext, file: str, line: int, name: str) -> None:
    condition = f"a condition on {shown(name)}" if name else "a condition"
    message = (
        f"{condition} stands here by itself: no requirement comes of it, the job goes anywhere"
    )
    context.findings.add("bare-requirement", file, line, message)


def _check_ifs(context: LintContext, text: SubmitText) -> None:
    """Unbalanced if and endif."""
    open_lines: list[tuple[str, int]] = []
    for statement in text.statements:
        if not statement.directive:
            continue
        if statement.key == "if":
            open_lines.append((statement.file, statement.line))
        elif statement.key in ("elif", "else", "endif"):
            if not open_lines:
                message = f"there is no if before this {statement.key}"
                context.report("unbalanced-if", statement, message)
            elif statement.key == "endif":
                open_lines.pop()
    for file, line in open_lines:
        context.findings.add("unbalanced-if", file, line, "this if has no endif")


def _check_macros(context: LintContext, text: SubmitText, nodes: list[Node]) -> None:
    """Macros that no node and no line sets.

    Those in capitals may be set by the configuration.
    """
    if text.unresolved or (text.description.statements and _has_item_variables(text)):
        return
    known = {statement.key for statement in text.statements} | _BUILT_IN
    tested: set[str] = set()
    for statement in text.statements:
        if statement.directive and statement.key != "queue":
            tested |= {word.lower() for word in re.findall(r"\w+", statement.value)}
    undefined: dict[str, tuple[str, int]] = {}
    for statement in text.statements:
        for name in _MACRO.findall(statement.value):
            if name.lower() in known or name.isupper() or name.lower() in tested:
                continue
            if statement.file in text.descriptions:
                undefined.setdefault(name, (statement.file, statement.line))
    if not undefined:
        return
    variables: set[str] = set()
    for node in nodes:
        variables.update(node.vars)
    lowered = {name.lower() for name in variables}
    for name, (file, line) in undefined.items():
        if name.lower() not in lowered:
            message = f"$({shown(name)}) is set by no line here and by no VARS of its nodes"
            context.findings.add("undefined-macro", file, line, message)


def _has_item_variables(text: SubmitText) -> bool:
    """Whether the queue line names its own variables (``queue name from …``)."""
    return any(
        statement.directive
        and statement.key == "queue"
        and re.search(r"\b(?:in|from|matching)\b", statement.value)
        for statement in text.statements
    )


def _check_gpus(context: LintContext, text: SubmitText) -> None:
    """Requirements on GPUs without request_gpus."""
    if text.sets("request_gpus") or text.unresolved:
        return
    for statement in text.statements:
        is_request = statement.key in _GPU_REQUESTS
        if is_request or (
            statement.key == "requirements" and _GPU_ATTRIBUTES.search(statement.value)
        ):
            message = f"{shown(statement.key)} asks for a kind of GPU, and request_gpus is not set"
            context.report("gpus-not-requested", statement, message)
            return


def _check_mail(context: LintContext, text: SubmitText, nodes: list[Node]) -> None:
    """Mail for each of many jobs."""
    statement = text.last("notification")
    if statement is not None and len(nodes) > MAX_MAILS:
        event = statement.value.strip().lower()
        if event in ("always", "complete"):
            message = f"notification = {event} sends a mail for each of {len(nodes)} nodes"
            context.report("mail", statement, message)


def _check_logs(context: LintContext) -> None:
    """Trainings without a log, or with many logs."""
    without_log: set[int] = set()
    logs: dict[int, set[str]] = defaultdict(set)
    texts: dict[int, SubmitText] = {}
    for node, _ in context.trainings():
        text = context.submit_text_of(node)
        if text is None or text.unresolved or node.noop:
            continue
        texts[id(text)] = text
        if node.log is None:
            without_log.add(id(text))
        else:
            logs[id(text)].add(node.log)
    for key, text in texts.items():
        statement = text.last("log", "userlog")
        if statement is None and key in without_log:
            message = "the trainings described here write no log of their own"
            context.report("no-log", text, message)
        elif statement is not None:
            names = logs[key]
            if any("$(Cluster)" in log or "$(Process)" in log for log in names):
                message = "each job writes a log of its own"
                context.report("log-per-job", statement, message)
            elif len(names) > MAX_LOGS:
                message = f"the trainings write {len(names)} logs"
                context.report("log-per-job", statement, message)
