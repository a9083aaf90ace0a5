"""Graphs of nodes for their tree, and DAGs of some shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from metlmon.dagman.records import Node, NodeKind
from metlmon.model.node import NodeState
from metlmon.model.states import State
from metlmon.snapshot.node_tree import DagNodes, NodeTree, TreeRow
from tests.support.event_logs import Log


def nodes_of(
    names: Iterable[str],
    edges: Iterable[tuple[str, str]] = (),
    kinds: Mapping[str, NodeKind] | None = None,
) -> dict[str, Node]:
    made = {name: Node(name, (kinds or {}).get(name, NodeKind.JOB), "a.dag", 1) for name in names}
    for parent, child in edges:
        made[parent].children = {*made[parent].children, child}
        made[child].parents = {*made[child].parents, parent}
    return made


def dag_of(
    nodes: Mapping[str, Node],
    states: Mapping[str, State] | None = None,
    inside: Mapping[str, str] | None = None,
    key: str = "a.dag",
) -> DagNodes:
    result = {name: NodeState((states or {}).get(name, State.WAITING)) for name in nodes}
    return DagNodes(key, key, nodes, result, inside or {})


def words(rows: Iterable[TreeRow]) -> list[str]:
    """The rows as text: depth, folded or not, and content."""
    mark = {None: " ", True: "-", False: "+"}
    return [f"{'  ' * row.depth}{mark[row.open]}{_word(row)}" for row in rows]


def _word(row: TreeRow) -> str:
    if row.kind == "alike":
        return f"{row.title} x {row.first}..{row.last}"
    return f"{row.first}..{row.last} ({row.size})" if row.kind == "line" else row.title


def tree(nodes: Mapping[str, Node], states: Mapping[str, State] | None = None) -> NodeTree:
    return NodeTree([dag_of(nodes, states)])


FAN = "JOB init a.sub\nRETRY ALL_NODES 2\nPROVISIONER machines p.sub\nFINAL report r.sub\n"


def fan(width: int = 40) -> str:
    """init, so many parallel workers, and a node that gathers."""
    workers = [f"work_{n:03}" for n in range(width)]
    lines = [f"JOB {name} a.sub\nPARENT init CHILD {name}\n" for name in workers]
    joined = f"JOB gather g.sub\nPARENT {' '.join(workers)} CHILD gather\n"
    return FAN.replace("RETRY", "".join(lines) + joined + "RETRY", 1)


def fan_log() -> Log:
    """init is done; of the workers one is held, one failed, some are done, running and idle."""
    log = Log().submit(1, "init").execute(1).terminate(1)
    for n in range(30):
        log.submit(10 + n, f"work_{n:03}")
        if n < 24:
            log.execute(10 + n, site="delta")
        if n == 3:
            log.hold(10 + n, 34, "memory usage exceeded request_memory")
        elif n == 7:
            log.terminate(10 + n, code=3)
        elif n < 16:
            log.terminate(10 + n)
    return log


def evaluated(runs: int = 2, epochs: int = 4) -> str:
    """Runs like the experiment's: train_epoch0's evaluation is eval_epoch1, and no evaluation may
    fail the DAG."""
    text = "JOB init a.sub\nPROVISIONER machines a.sub\nSERVICE monitor a.sub\nFINAL report a.sub\n"
    for r in range(runs):
        for e in range(epochs):
            train, judge = f"run{r}-train_epoch{e}", f"run{r}-eval_epoch{e + 1}"
            text += f"JOB {train} a.sub\nJOB {judge} e.sub\nSCRIPT POST {judge} /bin/true\n"
            for node in (train, judge):
                text += f'VARS {node} run_uuid="{r}aaa1111" epoch="{e + 1}"\n'
            text += f"PARENT {train} CHILD {judge}\n"
            before = f"run{r}-train_epoch{e - 1}" if e else "init"
            text += f"PARENT {before} CHILD {train}\n"
    return text


def evaluated_log() -> Log:
    """Epochs 0 and 1 of run0 are done, and its first evaluation; the job of the second failed and
    was passed. The provisioner and the service run."""
    log = Log().submit(1, "machines").execute(1).submit(2, "monitor").execute(2)
    log.submit(3, "init").execute(3).terminate(3)
    for e in range(2):
        log.submit(10 + e, f"run0-train_epoch{e}").execute(10 + e, site="delta")
        log.terminate(10 + e)
        judge = f"run0-eval_epoch{e + 1}"
        log.submit(20 + e, judge).execute(20 + e, site="delta").terminate(20 + e, code=e)
        log.post(20 + e, judge)
    return log.submit(12, "run0-train_epoch2").execute(12, site="delta")
