"""Ensembles that ``metlmon new`` writes, submitted to the pool as a user would."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import truth
from pools import Ad, Pool

END_SECONDS = 240
"""Generous: it is seconds where nobody else trains."""


@dataclass(frozen=True, slots=True)
class NewEnsemble:
    """A DAG in its directory. ``report_of``: what ``metlmon new --json`` printed for it."""

    pool: Pool
    directory: Path
    report_of: dict[str, Any]

    @property
    def dag(self) -> Path:
        return self.directory / Path(str(self.report_of["dag_file"])).name

    @property
    def name(self) -> str:
        return self.dag.stem

    @property
    def of_dag(self) -> str:
        """A constraint for its jobs."""
        return truth.of_dagmans(truth.dagmans(self.pool, self.directory))

    def uuid(self, run: str) -> str:
        (found,) = (each["uuid"] for each in self.report_of["runs"] if each["name"] == run)
        return str(found)

    # --- metlmon's account ---

    def status(self, *more: str) -> dict[str, Any]:
        return truth.status_of(self.pool, self.directory, *more)

    def run(self, name: str, status: dict[str, Any] | None = None) -> dict[str, Any]:
        """The row of a run."""
        rows = (status or self.status())["runs"]
        (found,) = (row for row in rows if row["run"] == name)
        return dict(found)

    def act(self, what: str, *words: str, expect: int | None = 0) -> dict[str, Any]:
        """The answer of ``metlmon act``, as JSON."""
        argv = ["metlmon", "act", what, ".", *words, "--yes", "--json"]
        done = self.pool.run(argv, self.directory, expect=expect)
        answered: dict[str, Any] = json.loads(done.stdout)
        return answered

    # --- its end ---

    def submit(self) -> None:
        """Submit it with condor_submit_dag."""
        self.pool.run(["condor_submit_dag", self.dag.name], self.directory)

    def end(self) -> dict[str, Any]:
        """The status once DAGMan has left the queue, however it ended."""
        self.status("--exit-on", "done", "--timeout", str(END_SECONDS))
        # The log has DAGMan's end last, once its job has left the queue.
        truth.until_gone(self.pool, self.directory)
        return self.status()

    def as_htcondor_says(self, status: dict[str, Any]) -> truth.Truth:
        """HTCondor's account of the ensemble; fails where metlmon differs."""
        expected = truth.at_the_end(self.pool, self.directory)
        jobs = truth.jobs_of(self.pool, self.directory)
        wrong = truth.differences(expected, status, jobs)
        assert not wrong, "\n".join(wrong)
        return expected

    def queued(self, node: str) -> list[Ad]:
        """The ads of a node's jobs in the queue."""
        return self.pool.queue(self.of_dag, f'DAGNodeName == "{node}"')

    def was_submitted(self, node: str) -> bool:
        """Whether the log has a job of the node (a short job may leave the queue unseen)."""
        log = self.directory / "metl.log"
        return log.exists() and f"DAG Node: {node}\n" in log.read_text()

    def preskipped(self) -> list[str]:
        """Nodes that DAGMan's jobstate log calls skipped by their PRE scripts."""
        text = (self.directory / f"{self.name}.jobstate.log").read_text()
        lines = (line.split() for line in text.splitlines())
        return [words[1] for words in lines if len(words) > 2 and words[2] == "PRESKIP"]


def write(
    pool: Pool,
    name: str,
    source: str,
    *options: str,
    files: Mapping[str, str] | None = None,
    suffix: str = ".toml",
) -> NewEnsemble:
    """Write ``source`` with ``metlmon new`` into the directory ``name``, beside a directory with
    the source and other ``files``."""
    home = pool.directory(f"{name}-source")
    for each, text in {f"{name}{suffix}": source, **(files or {})}.items():
        pool.place(home / each, text)
    argv = ["metlmon", "new", f"{name}{suffix}", f"../{name}", "--json", *options]
    done = pool.run(argv, home, expect=None)
    # The answer has every file, too long for the message of a failure.
    assert done.returncode == 0, done.stderr
    return NewEnsemble(pool, pool.base / name, json.loads(done.stdout))
