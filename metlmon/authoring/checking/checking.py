"""All rules over all DAGs of a directory."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from metlmon.authoring.checking import (
    descriptions,
    exposed,
    files,
    horizon,
    shape,
    storage,
    submitcommands,
    syntax,
    trainings,
)
from metlmon.authoring.checking.look import Look, Shelf
from metlmon.authoring.checking.records import Checked, Findings, listed
from metlmon.dagman import Workflow, load_workflow
from metlmon.dagman.dagtext import shown
from metlmon.ensemble.settings import Settings
from metlmon.live.discovery import check_dagdir, read_workflows
from metlmon.live.errors import InputError

RULES: Final = (
    syntax,
    shape,
    files,
    descriptions,
    submitcommands,
    exposed,
    trainings,
    horizon,
    storage,
)


def check(path: Path, settings: Settings) -> Checked:
    """What is wrong with the DAGs in the directory ``path``, or with the DAG file ``path``.

    Only reads, and only regular files. Raises InputError where there is no DAG file.
    """
    dagdir, only = _place(path)
    shelf, found = Shelf(), Findings()
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
    return Checked(tuple(_called(flow.path, dagdir) for flow in flows), found.all())


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
    flow: Workflow, home: Path, dagdir: Path, shelf: Shelf, settings: Settings, found: Findings
) -> Look:
    called = _called(flow.path, dagdir)
    look = Look(flow, home, Path(os.path.normpath(dagdir)), shelf, settings, found, called)
    look.open()
    return look


def _called(path: Path, dagdir: Path) -> str:
    try:
        return str(path.relative_to(os.path.normpath(dagdir)))
    except ValueError:
        return str(path)


def _together(looks: list[Look], found: Findings) -> None:
    """What several DAGs share that each should have for itself."""
    logs: dict[str, list[Look]] = defaultdict(list)
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
        written: dict[str, list[Look]] = defaultdict(list)
        for look in looks:
            if file := getattr(look.flow, attribute):
                written[_written(look, file)].append(look)
        for path, some in written.items():
            if len(some) > 1:
                file = os.path.relpath(path, some[0].home)
                what = f"{listed(_others(some))} writes {shown(file)}, too"
                found.add("shared-status-file", some[0].name, None, what)


def _written(look: Look, file: str) -> str:
    """Where a file of a DAG is, as DAGMan's directory has it."""
    return os.path.normpath(look.home / file)


def _others(some: list[Look]) -> list[str]:
    return [shown(look.name) for look in some[1:]]
