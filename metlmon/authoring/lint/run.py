"""All rules over all DAGs of a directory."""

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
from metlmon.dagman import Workflow, load_workflow
from metlmon.dagman.lexer import shown
from metlmon.live.discovery import check_dagdir, read_workflows
from metlmon.live.errors import InputError
from metlmon.model.settings import Settings

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
    """What is wrong with the DAGs in the directory ``path``, or with the DAG file ``path``.

    Only reads, and only regular files. Raises InputError where there is no DAG file.
    """
    dagdir, only = _place(path)
    shelf, found = FileStore(), Findings()
    flows = read_workflows(dagdir, only, lambda paths: load_workflow(paths, shelf.read))
    if not flows:
        raise InputError(
            f"no DAG file in {dagdir}: give the directory where one is, or the file itself"
        )
    looks = [
        _look(flow, home, dagdir, shelf, settings, found)
        for flow, home in _with_inner(flows, Path(os.path.normpath(dagdir)))
    ]
    for look in looks:
        for rule in RULES:
            rule.check(look)
    _together(looks, found)
    return LintResult(tuple(_called(flow.path, dagdir) for flow in flows), found.all())


def _place(path: Path) -> tuple[Path, str | None]:
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


def _with_inner(flows: list[Workflow], home: Path) -> Iterator[tuple[Workflow, Path]]:
    """The workflows and their sub-DAGs, each once, with the directory where its DAGMan works."""
    seen: set[int] = set()
    ahead = [(flow, home) for flow in flows]
    while ahead:
        flow, home = ahead.pop(0)
        if id(flow) not in seen:
            seen.add(id(flow))
            yield flow, home
            for node in flow.nodes.values():
                inner = flow.subdags[node.subdag] if node.subdag is not None else None
                if inner is not None:
                    ahead.append((inner, Path(os.path.normpath(home / (node.dir or "")))))


def _look(
    flow: Workflow, home: Path, dagdir: Path, shelf: FileStore, settings: Settings, found: Findings
) -> LintContext:
    called = _called(flow.path, dagdir)
    look = LintContext(flow, home, Path(os.path.normpath(dagdir)), shelf, settings, found, called)
    look.open()
    return look


def _called(path: Path, dagdir: Path) -> str:
    try:
        return str(path.relative_to(os.path.normpath(dagdir)))
    except ValueError:
        return str(path)


def _together(looks: list[LintContext], found: Findings) -> None:
    """What several DAGs share that each should have for itself."""
    logs: dict[str, list[LintContext]] = defaultdict(list)
    for look in looks:
        for log in sorted({node.log for node in look.flow.nodes.values() if node.log}):
            logs[_written(look, log)].append(look)
    for path, some in logs.items():
        names: set[str] = set()
        twice = False
        for look in some:
            twice = twice or not names.isdisjoint(look.flow.nodes)
            names |= look.flow.nodes.keys()
        if twice:
            log = os.path.relpath(path, some[0].home)
            what = f"the log {shown(log)} is shared with {listed(_others(some))}, node names too"
            found.add("shared-log", some[0].name, None, what)
    for attribute in ("node_status_file", "jobstate_log"):
        written: dict[str, list[LintContext]] = defaultdict(list)
        for look in looks:
            if file := getattr(look.flow, attribute):
                written[_written(look, file)].append(look)
        for path, some in written.items():
            if len(some) > 1:
                file = os.path.relpath(path, some[0].home)
                what = f"{listed(_others(some))} writes {shown(file)}, too"
                found.add("shared-status-file", some[0].name, None, what)


def _written(look: LintContext, file: str) -> str:
    """Where a file of a DAG is, as DAGMan's directory has it."""
    return os.path.normpath(look.home / file)


def _others(some: list[LintContext]) -> list[str]:
    return [shown(look.name) for look in some[1:]]
