"""Driver: runs all rules over all DAGs of a directory."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from metlmon.authoring.lint import rule_dag, rule_files, rule_secrets, rule_submit, rule_trainings
from metlmon.authoring.lint.rules import (
    NO_REQUESTS,
    FileStore,
    Findings,
    LintContext,
    LintResult,
    RequestedAmount,
)
from metlmon.config.settings import Settings
from metlmon.dagman.lexer import shown, shown_file
from metlmon.dagman.records import Workflow
from metlmon.errors import InputError
from metlmon.live.discovery import (
    GIVE_THE_DAG,
    NO_NODES,
    dag_files_of_other_names,
    display_name,
    is_of_another_program,
    read_workflows,
)
from metlmon.live.file_access import check_dagdir
from metlmon.text.formatting import listed

RULES: Final = (rule_dag, rule_files, rule_submit, rule_secrets, rule_trainings)


def check(
    path: Path,
    settings: Settings,
    requests: Mapping[RequestedAmount, tuple[str, str]] = NO_REQUESTS,
) -> LintResult:
    """Lint the DAGs in the directory ``path``, or the DAG file ``path``.

    ``requests``: the kind and the message of a finding by requested amount. Read-only, and reads
    only regular files. Raises InputError without a DAG file.
    """
    dagdir, file_name = _dagdir_and_file(path)
    files, findings = FileStore(), Findings()
    workflows = read_workflows(dagdir, file_name, files.read, keep_descriptions=True)
    if not workflows:
        others = dag_files_of_other_names(dagdir)
        named = f", but {others[0]} has nodes" if others else ""
        raise InputError(
            f"no DAG file in {dagdir}{named}: give the directory where one is, or the file itself"
        )
    foreign = [each for each in workflows if file_name is None and is_of_another_program(each)]
    workflows = [workflow for workflow in workflows if workflow not in foreign]
    if not workflows:
        raise InputError(f"{foreign[0].path}: {NO_NODES}; {GIVE_THE_DAG}")
    for workflow in foreign:
        findings.add("not-a-dag", display_name(dagdir, workflow.path), None, NO_NODES)
    normal_dagdir = Path(os.path.normpath(dagdir))
    by_workflow: dict[int, LintContext] = {}
    pending: list[tuple[Workflow, list[LintContext]]] = [(workflow, []) for workflow in workflows]
    for workflow, outer in pending:
        if (context := by_workflow.get(id(workflow))) is None:
            context = LintContext(workflow, normal_dagdir, files, settings, findings, requests)
            by_workflow[id(workflow)] = context
            pending += [(subdag, [context]) for subdag in filter(None, workflow.subdags)]
        context.outer += outer
    contexts = list(by_workflow.values())
    for context in contexts:
        for rule in RULES:
            rule.check(context)
    _check_shared_files(contexts, findings)
    names = tuple(by_workflow[id(workflow)].name for workflow in workflows)
    return LintResult(names, findings.all())


def _dagdir_and_file(path: Path) -> tuple[Path, str | None]:
    """The dagdir, and the file's name if ``path`` is a DAG file. Raises InputError."""
    if not path.is_file():
        check_dagdir(path)
        return path, None
    try:
        path.open("rb").close()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    return path.parent, path.name


def _check_shared_files(contexts: list[LintContext], findings: Findings) -> None:
    """Findings about logs and status files that several DAGs share."""

    def sharing(
        files: Callable[[Workflow], set[str | None]],
    ) -> Iterator[tuple[str, list[LintContext]]]:
        """Each shared file, by its name in the first DAG, with the contexts that name it."""
        by_path: dict[str, list[LintContext]] = defaultdict(list)
        for context in contexts:
            for file in sorted(filter(None, files(context.workflow))):
                by_path[os.path.normpath(context.dagman_dir / file)].append(context)
        for path, group in by_path.items():
            if len(group) > 1:
                yield shown_file(os.path.relpath(path, group[0].dagman_dir)), group

    for log, group in sharing(lambda workflow: {node.log for node in workflow.nodes.values()}):
        nodes = [name for context in group for name in context.workflow.nodes]
        if len(set(nodes)) < len(nodes):
            message = f"the log {log} is shared with {_others(group)}, node names too"
            findings.add("shared-log", group[0].name, None, message)
    for file, group in (
        *sharing(lambda workflow: {workflow.node_status_file}),
        *sharing(lambda workflow: {workflow.jobstate_log}),
    ):
        message = f"{_others(group)} writes {file}, too"
        findings.add("shared-status-file", group[0].name, None, message)


def _others(contexts: list[LintContext]) -> str:
    return listed([shown(context.name) for context in contexts[1:]])
