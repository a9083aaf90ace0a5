"""DAGs written down in a test: file name → text, read as if they lay in one directory."""

from __future__ import annotations

from pathlib import Path

from metlmon.dagman import load_workflow
from metlmon.dagman.records import Workflow

HOME = Path("/ap/home/ensemble")


def weave(text: str | bytes, *more_dags: str, **files: str) -> Workflow:
    """The workflow of ``text`` (the file ``run.dag``), of ``more_dags`` on the same command
    line (``run1.dag``, …) and of the files they name: ``a__b_dag`` stands for ``a/b.dag``."""
    lying = {HOME / "run.dag": text}
    lying |= {HOME / f"run{i}.dag": dag for i, dag in enumerate(more_dags, start=1)}
    tops = list(lying)
    for name, content in files.items():
        stem, _, suffix = name.replace("__", "/").rpartition("_")
        lying[HOME / f"{stem}.{suffix}"] = content

    def read(path: Path) -> bytes:
        if path not in lying:
            raise FileNotFoundError(path)
        content = lying[path]
        return content if isinstance(content, bytes) else content.encode()

    return load_workflow(tops, read)


def told(workflow: Workflow) -> list[str]:
    """Its problems, as a person would read them."""
    return [str(problem) for problem in workflow.problems]


def edges(workflow: Workflow) -> set[tuple[str, str]]:
    return {(node.name, child) for node in workflow.nodes.values() for child in node.children}
