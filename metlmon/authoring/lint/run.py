"""Driver: runs all rules over all DAGs of a directory."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from metlmon.authoring.lint import (
    rule_epoch_horizon,
    rule_files,
    rule_graph,
    rule_network_fs,
    rule_secrets,
    rule_submit,
    rule_syntax,
    rule_trainings,
    submit_commands,
)
from metlmon.authoring.lint.context import FileStore, LintContext
from metlmon.authoring.lint.finding import Findings, LintResult, listed
from metlmon.config.settings import Settings
from metlmon.dagman import Workflow
from metlmon.dagman.lexer import shown
from metlmon.live.discovery import check_dagdir, read_workflows
from metlmon.live.errors import InputError

RULES: Final = (
    rule_syntax,
    rule_graph,
    rule_files,
    rule_submit,
    submit_commands,
    rule_secrets,
    rule_trainings,
    rule_epoch_horizon,
    rule_network_fs,
)


def check(path: Path, settings: Settings) -> LintResult:
    """Lint the DAGs in the directory ``path``, or the DAG file ``path``.

    Read-only, and reads regular files only. Raises InputError if there is no DAG file.
    """
    dagdir, file_name = _dagdir_and_file(path)
    files, findings = FileStore(), Findings()
    workflows = read_workflows(dagdir, file_name, files.read)
    if not workflows:
        raise InputError(
            f"no DAG file in {dagdir}: give the directory where one is, or the file itself"
        )
    contexts = [
        _open_context(workflow, dagman_dir, dagdir, files, settings, findings)
        for workflow, dagman_dir in _with_subdags(workflows, Path(os.path.normpath(dagdir)))
    ]
    for context in contexts:
        for rule in RULES:
            rule.check(context)
    _check_shared_files(contexts, findings)
    return LintResult(
        tuple(_display_name(workflow.path, dagdir) for workflow in workflows), findings.all()
    )


def _dagdir_and_file(path: Path) -> tuple[Path, str | None]:
    """The dagdir, and the file's name if ``path`` is a DAG file. Raises InputError."""
    if path.is_dir():
        check_dagdir(path)
        return path, None
    if not path.exists():
        raise InputError(f"{path}: no such file or directory; give the directory of a DAG")
    if not path.is_file():
        raise InputError(f"{path}: neither a directory nor a regular file")
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    return path.parent, path.name


def _with_subdags(workflows: list[Workflow], dagman_dir: Path) -> Iterator[tuple[Workflow, Path]]:
    """The workflows and their sub-DAGs, each once, with its DAGMan's directory."""
    seen: set[int] = set()
    queue = [(workflow, dagman_dir) for workflow in workflows]
    while queue:
        workflow, dagman_dir = queue.pop(0)
        if id(workflow) not in seen:
            seen.add(id(workflow))
            yield workflow, dagman_dir
            for node in workflow.nodes.values():
                subdag = workflow.subdags[node.subdag] if node.subdag is not None else None
                if subdag is not None:
                    queue.append((subdag, Path(os.path.normpath(dagman_dir / (node.dir or "")))))


def _open_context(
    workflow: Workflow,
    dagman_dir: Path,
    dagdir: Path,
    files: FileStore,
    settings: Settings,
    findings: Findings,
) -> LintContext:
    """The context of a workflow, with its files read."""
    name = _display_name(workflow.path, dagdir)
    context = LintContext(
        workflow=workflow,
        dagman_dir=dagman_dir,
        dagdir=Path(os.path.normpath(dagdir)),
        files=files,
        settings=settings,
        findings=findings,
        name=name,
    )
    context.open()
    return context


def _display_name(path: Path, dagdir: Path) -> str:
    """A file's name in findings, relative to the dagdir if it is below it."""
    try:
        return str(path.relative_to(os.path.normpath(dagdir)))
    except ValueError:
        return str(path)


def _check_shared_files(contexts: list[LintContext], findings: Findings) -> None:
    """Findings about logs and status files that several DAGs share."""
    logs: dict[str, list[LintContext]] = defaultdict(list)
    for context in contexts:
        for log in sorted({node.log for node in context.workflow.nodes.values() if node.log}):
            logs[_absolute(context, log)].append(context)
    for path, sharing in logs.items():
        names: set[str] = set()
        common_names = False
        for context in sharing:
            common_names = common_names or not names.isdisjoint(context.workflow.nodes)
            names |= context.workflow.nodes.keys()
        if common_names:
            log = os.path.relpath(path, sharing[0].dagman_dir)
            others = listed(_other_names(sharing))
            message = f"the log {shown(log)} is shared with {others}, node names too"
            findings.add("shared-log", sharing[0].name, None, message)
    for attribute in ("node_status_file", "jobstate_log"):
        written: dict[str, list[LintContext]] = defaultdict(list)
        for context in contexts:
            if file := getattr(context.workflow, attribute):
                written[_absolute(context, file)].append(context)
        for path, sharing in written.items():
            if len(sharing) > 1:
                file = os.path.relpath(path, sharing[0].dagman_dir)
                message = f"{listed(_other_names(sharing))} writes {shown(file)}, too"
                findings.add("shared-status-file", sharing[0].name, None, message)


def _absolute(context: LintContext, file: str) -> str:
    """The normalized path of a file named relative to DAGMan's directory."""
    return os.path.normpath(context.dagman_dir / file)


def _other_names(contexts: list[LintContext]) -> list[str]:
    return [shown(context.name) for context in contexts[1:]]
