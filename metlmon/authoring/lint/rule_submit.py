"""Submit descriptions: lines that do nothing, macros that are empty, logs, GPUs, mail.

Source followed: HTCondor manual, "condor_submit".
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from metlmon.authoring.lint.context import LintContext
from metlmon.authoring.lint.expressions import COMPARES, unfinished
from metlmon.authoring.lint.source_map import SubmitText
from metlmon.dagman import Node
from metlmon.dagman.lexer import shown

_BARE: Final = re.compile(
    r"[(\s!]*(?:TARGET|MY)\.\w+\s*(?:==|=\?=|=!=|!=|<|>|\|\||&&|\)|$)|.{0,4000}?\s(?:&&|\|\|)\s",
    re.IGNORECASE | re.DOTALL,
)
_EXPRESSIONS: Final = re.compile(
    r"(?:requirements|rank|periodic_(?:hold|release|remove|vacate)|on_exit_(?:hold|remove))\Z"
)
"""Commands whose values are expressions: condor_submit refuses one that it cannot read."""

_WITH_WORDS: Final = frozenset({"arguments", "args", "environment", "env"})
"""Commands whose values may begin with anything."""

_MACRO: Final = re.compile(r"\$\(([A-Za-z_]\w*)\)")

#: What nobody needs to set: macros of condor_submit and of DAGMan, and the checkpoint, which the
#: first epoch of a run has none of.
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

_GPU_WISHES: Final = frozenset(
    {
        *("gpus_minimum_memory", "gpus_minimum_capability", "gpus_maximum_capability"),
        *("gpus_minimum_runtime", "require_gpus"),
    }
)
_GPU_WORDS: Final = re.compile(
    r"\b(?:TARGET\.)?(?:CUDA\w+|GPUs_\w+|TotalGPUs|GPUs)\b", re.IGNORECASE
)

FEW_LOGS: Final = 20
"""Logs of one DAG that may differ: one for each run is a thing that people do."""

MUCH_MAIL: Final = 10
"""Jobs whose mail somebody may want to read."""


def check(look: LintContext) -> None:
    for text, nodes in look.texts().values():
        _lines(look, text)
        _ifs(look, text)
        if nodes:
            _macros(look, text, nodes)
            _gpus(look, text)
            _mail(look, text, nodes)
    _logs(look)


def _lines(look: LintContext, text: SubmitText) -> None:
    for each in text.statements:
        # condor_submit takes "TARGET.X == y" for the assignment of "= y" to a name that nothing
        # asks for, and says nothing; a bare condition in brackets it refuses.
        if each.key in _WITH_WORDS or each.directive:
            continue
        if each.value.startswith(COMPARES):
            name = each.key if each.file in text.descriptions else ""
            _bare(look, each.file, each.line, name)
        elif _EXPRESSIONS.match(each.key) and (why := unfinished(each.value)):
            look.found.add("unfinished-expression", each.file, each.line, f"{each.key} {why}")
    for each in text.stray:
        if _BARE.match(each.value):
            _bare(look, each.file, each.line, "")
        else:
            what = "this line is neither an assignment nor a command"
            look.found.add("submit-syntax", each.file, each.line, what)


def _bare(look: LintContext, file: str, line: int, name: str) -> None:
    said = f"a condition on {shown(name)}" if name else "a condition"
    what = f"{said} stands here by itself: no requirement comes of it, the job goes anywhere"
    look.found.add("bare-requirement", file, line, what)


def _ifs(look: LintContext, text: SubmitText) -> None:
    open_lines: list[tuple[str, int]] = []
    for each in text.statements:
        if not each.directive:
            continue
        if each.key == "if":
            open_lines.append((each.file, each.line))
        elif each.key in ("elif", "else", "endif"):
            if not open_lines:
                what = f"there is no if before this {each.key}"
                look.found.add("unbalanced-if", each.file, each.line, what)
            elif each.key == "endif":
                open_lines.pop()
    for file, line in open_lines:
        look.found.add("unbalanced-if", file, line, "this if has no endif")


def _macros(look: LintContext, text: SubmitText, nodes: list[Node]) -> None:
    """Macros that no node and no line sets. Those in capitals may be the configuration's."""
    if text.unresolved or (text.description.statements and _names_items(text)):
        return
    known = {each.key for each in text.statements} | _BUILT_IN
    asked: set[str] = set()
    for each in text.statements:
        if each.directive and each.key != "queue":
            asked |= {word.lower() for word in re.findall(r"\w+", each.value)}
    wanted: dict[str, tuple[str, int]] = {}
    for each in text.statements:
        for name in _MACRO.findall(each.value):
            if name.lower() in known or name.isupper() or name.lower() in asked:
                continue
            if each.file in text.descriptions:
                wanted.setdefault(name, (each.file, each.line))
    if not wanted:
        return
    given: set[str] = set()
    for node in nodes:
        given.update(node.vars)
    lowered = {name.lower() for name in given}
    for name, (file, line) in wanted.items():
        if name.lower() not in lowered:
            what = f"$({shown(name)}) is set by no line here and by no VARS of its nodes"
            look.found.add("undefined-macro", file, line, what)


def _names_items(text: SubmitText) -> bool:
    """Does its queue line name variables of its own (``queue name from …``)?"""
    return any(
        each.directive
        and each.key == "queue"
        and re.search(r"\b(?:in|from|matching)\b", each.value)
        for each in text.statements
    )


def _gpus(look: LintContext, text: SubmitText) -> None:
    if text.says("request_gpus") or text.unresolved:
        return
    for each in text.statements:
        wish = each.key in _GPU_WISHES
        if wish or (each.key == "requirements" and _GPU_WORDS.search(each.value)):
            what = f"{shown(each.key)} asks for a kind of GPU, and request_gpus is not set"
            look.found.add("gpus-not-requested", each.file, each.line, what)
            return


def _mail(look: LintContext, text: SubmitText, nodes: list[Node]) -> None:
    place = text.last("notification")
    if place is not None and len(nodes) > MUCH_MAIL:
        wanted = place.value.strip().lower()
        if wanted in ("always", "complete"):
            what = f"notification = {wanted} sends a mail for each of {len(nodes)} nodes"
            look.found.add("mail", place.file, place.line, what)


def _logs(look: LintContext) -> None:
    """How the logs of the trainings lie: none, one for each job, or one for all."""
    none: set[int] = set()
    logs: dict[int, set[str]] = defaultdict(set)
    texts: dict[int, SubmitText] = {}
    for node, _ in look.trainings():
        text = look.described(node)
        if text is None or text.unresolved or node.noop:
            continue
        texts[id(text)] = text
        if node.log is None:
            none.add(id(text))
        else:
            logs[id(text)].add(node.log)
    for key, text in texts.items():
        place = text.last("log", "userlog")
        if place is None and key in none:
            what = "the trainings described here write no log of their own"
            look.found.add("no-log", text.file, text.line, what)
        elif place is not None:
            some = logs[key]
            if any("$(Cluster)" in log or "$(Process)" in log for log in some):
                what = "each job writes a log of its own"
                look.found.add("log-per-job", place.file, place.line, what)
            elif len(some) > FEW_LOGS:
                what = f"the trainings write {len(some)} logs"
                look.found.add("log-per-job", place.file, place.line, what)
