"""Rules for submit descriptions: stray lines, undefined macros, logs, GPUs, mail.

Source: HTCondor manual, "condor_submit".
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from metlmon.authoring.lint.context import LintContext
from metlmon.dagman import Node
from metlmon.dagman.lexer import shown
from metlmon.dagman.submit_description import Description

COMPARISON_STARTS: Final = ("=", "?=", "!=")
"""Starts of an assigned value where ``==``, ``=?=`` or ``=!=`` was meant."""

LONGEST_EXPRESSION: Final = 10_000
"""In characters: ten times the longest real requirements."""

_BARE_CONDITION: Final = re.compile(
    r"[(\s!]*(?:TARGET|MY)\.\w+\s*(?:==|=\?=|=!=|!=|<|>|\|\||&&|\)|$)|.{0,4000}?\s(?:&&|\|\|)\s",
    re.IGNORECASE | re.DOTALL,
)
_EXPRESSIONS: Final = re.compile(
    r"(?:requirements|rank|periodic_(?:hold|release|remove|vacate)|on_exit_(?:hold|remove))\Z"
)
"""Commands with expressions, which condor_submit refuses if it cannot parse them."""

_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*+"')
_BRACKETS: Final = re.compile(r"[()]")
_OPEN_END: Final = re.compile(r"(?:&&|\|\||==|=\?=|=!=|<=?|>=?|[-+*/])\s*\Z")

_FREE_TEXT: Final = frozenset({"arguments", "args", "environment", "env"})
"""Commands whose values may start with anything."""

_MACRO: Final = re.compile(r"\$\(([A-Za-z_]\w*)\)")
_ITEMS: Final = re.compile(r"\b(?:in|from|matching)\b")

#: Macros predefined by condor_submit and DAGMan, and the checkpoint, which a run's first epoch
#: lacks.
_BUILT_IN: Final = frozenset(
    {
        *("arch", "opsys", "opsysandver", "opsysver", "opsysmajorver", "username", "hostname"),
        *("full_hostname", "ip_address", "tilde", "home", "pid", "ppid", "islinux", "iswindows"),
        *("cluster", "clusterid", "process", "procid", "node", "step", "row", "item"),
        *("itemindex", "job", "retry", "max_retries", "dag_status", "failed_count"),
        *("dagmanjobid", "dag_id", "dag_parent_names", "dollar", "submit_file", "submit_time"),
        *("year", "month", "day", "random_choice", "random_integer", "dagman_max_jobs_idle"),
        *("node_name", "continue_from_checkpoint"),
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
    for text, nodes in context.descriptions():
        _check_lines(context, text)
        _check_ifs(context, text)
        if nodes:
            _check_macros(context, text, nodes)
            _check_gpus(context, text)
            _check_mail(context, text, nodes)
    _check_logs(context)


def unfinished(value: str) -> str | None:
    """What is wrong with a ClassAd expression's quotes, brackets or end, or None."""
    if len(value) > LONGEST_EXPRESSION:
        return None
    unquoted = _QUOTED.sub('""', value)
    if '"' in unquoted.replace('""', ""):
        return "opens a quote that is not closed"
    depth = 0
    for bracket in _BRACKETS.findall(unquoted):
        depth += 1 if bracket == "(" else -1
        if depth < 0:
            return "closes a bracket that was not opened"
    if depth > 0:
        return "opens a bracket that is not closed"
    return "ends where something must follow" if _OPEN_END.search(unquoted) else None


def _check_lines(context: LintContext, text: Description) -> None:
    """Conditions without an assignment, unparsable expressions, stray lines."""
    alone = "stands here by itself: no requirement comes of it, the job goes anywhere"
    for statement in text.statements:
        # condor_submit silently parses "TARGET.X == y" as an assignment of "= y" to an unused
        # name; it refuses a bare condition in brackets.
        if statement.key in _FREE_TEXT or statement.directive:
            continue
        if statement.value.startswith(COMPARISON_STARTS):
            quoted = statement.file in text.recognized
            condition = f"a condition on {shown(statement.key)}" if quoted else "a condition"
            context.report("bare-requirement", statement, f"{condition} {alone}")
        elif _EXPRESSIONS.match(statement.key) and (problem := unfinished(statement.value)):
            context.report("unfinished-expression", statement, f"{statement.key} {problem}")
    for statement in text.stray:
        if _BARE_CONDITION.match(statement.value):
            context.report("bare-requirement", statement, f"a condition {alone}")
        else:
            message = "this line is neither an assignment nor a command"
            context.report("submit-syntax", statement, message)


def _check_ifs(context: LintContext, text: Description) -> None:
    """Unbalanced if and endif."""
    open_ifs = []
    for statement in text.statements:
        if not statement.directive or statement.key == "queue":
            continue
        if statement.key == "if":
            open_ifs.append(statement)
        elif not open_ifs:
            context.report(
                "unbalanced-if", statement, f"there is no if before this {statement.key}"
            )
        elif statement.key == "endif":
            open_ifs.pop()
    for statement in open_ifs:
        context.report("unbalanced-if", statement, "this if has no endif")


def _check_macros(context: LintContext, text: Description, nodes: list[Node]) -> None:
    """Macros that no node and no line sets.

    Those in capitals may be set by the configuration.
    """
    directives = [statement for statement in text.statements if statement.directive]
    queues = [statement for statement in directives if statement.key == "queue"]
    if text.unresolved or any(_ITEMS.search(statement.value) for statement in queues):
        return  # The queue line names variables of its own, or a file cannot be read.
    known = {statement.key for statement in text.statements} | _BUILT_IN
    for statement in directives:
        if statement.key != "queue":
            known |= {word.lower() for word in re.findall(r"\w+", statement.value)}
    undefined = {
        name: statement
        for statement in reversed(text.statements)
        if statement.file in text.recognized
        for name in _MACRO.findall(statement.value)
        if name.lower() not in known and not name.isupper()
    }
    if not undefined:
        return
    variables = {name.lower() for name in set().union(*(node.vars for node in nodes))}
    for name, statement in undefined.items():
        if name.lower() not in variables:
            message = f"$({shown(name)}) is set by no line here and by no VARS of its nodes"
            context.report("undefined-macro", statement, message)


def _check_gpus(context: LintContext, text: Description) -> None:
    """Requirements on GPUs without request_gpus."""
    if text.unresolved or text.last("request_gpus") is not None:
        return
    for statement in text.statements:
        in_requirements = statement.key == "requirements"
        if statement.key in _GPU_REQUESTS or (
            in_requirements and _GPU_ATTRIBUTES.search(statement.value)
        ):
            message = f"{shown(statement.key)} asks for a kind of GPU, and request_gpus is not set"
            context.report("gpus-not-requested", statement, message)
            return


def _check_mail(context: LintContext, text: Description, nodes: list[Node]) -> None:
    """Mail for each of many jobs."""
    statement = text.last("notification")
    event = statement.value.strip().lower() if statement is not None else ""
    if statement is not None and len(nodes) > MAX_MAILS and event in ("always", "complete"):
        message = f"notification = {event} sends a mail for each of {len(nodes)} nodes"
        context.report("mail", statement, message)


def _check_logs(context: LintContext) -> None:
    """Trainings without a log, or with many logs."""
    logs: dict[int, set[str | None]] = defaultdict(set)
    texts: dict[int, Description] = {}
    for node, _ in context.trainings():
        text = context.description_of(node)
        if text is not None and not text.unresolved and not node.noop:
            texts[id(text)] = text
            logs[id(text)].add(node.log)
    for key, text in texts.items():
        statement = text.last("log", "userlog")
        names = [log for log in logs[key] if log is not None]
        if statement is None:
            if None in logs[key]:
                message = "the trainings described here write no log of their own"
                context.report("no-log", text, message)
        elif any("$(Cluster)" in log or "$(Process)" in log for log in names):
            context.report("log-per-job", statement, "each job writes a log of its own")
        elif len(names) > MAX_LOGS:
            context.report("log-per-job", statement, f"the trainings write {len(names)} logs")
