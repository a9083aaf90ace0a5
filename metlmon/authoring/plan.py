"""A request → what would be written, to the byte."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from metlmon.authoring.build_graph import checkpoint_directory, graph_of, run_plans
from metlmon.authoring.gate_config import SCRIPT, rules_file, rules_text, script
from metlmon.authoring.graph import Graph, NodeRole
from metlmon.authoring.jobs import JobTemplate, jobs_of
from metlmon.authoring.manifest import kept
from metlmon.authoring.request import EnsembleShape, Plan, PlanError, PlannedFile, Request, RunPlan
from metlmon.authoring.runs import epochs_of
from metlmon.authoring.sweeps import kept_source, kept_sweep
from metlmon.authoring.target_directory import already_there, in_the_way, is_left
from metlmon.authoring.validate import validate
from metlmon.authoring.write_dag import dag_text
from metlmon.authoring.write_submit import nodes_by_file, procs, submit_text
from metlmon.dagman import NodeKind


def make_plan(request: Request, amending: bool = False) -> Plan:
    """The plan of ``request``: the same bytes whenever and wherever it is made. Nothing is
    written. ``amending``: as for :func:`validate`. Raises PlanError with the first of the
    complaints that are fatal."""
    fatal = [each for each in validate(request, amending=amending) if each.fatal]
    if fatal:
        more = f" (and {len(fatal) - 1} more)" if len(fatal) > 1 else ""
        raise PlanError(f"{fatal[0].field}: {fatal[0].text}{more}")
    jobs = jobs_of(request)
    graph, along = _graph(request, jobs)
    runs = run_plans(graph)
    using = nodes_by_file(graph)
    # A sweep file may use submit files of its own alone.
    jobs = tuple(job for job in jobs if job.file in using)
    texts = {job.file: submit_text(request, job, using[job.file]) for job in jobs}
    dags = _dags(request, graph, runs, jobs)
    submits = [
        PlannedFile(job.file, texts[job.file].encode(), False, _about(job, len(jobs)))
        for job in jobs
    ]
    files = [*dags, *submits, *_ships(jobs), *_gate(request, runs)]
    files += _beside(along, files)
    files += kept(request, files)
    _refuse_twice(request, files)
    inner = [node for nodes in using.values() for node in nodes if node.kind is not NodeKind.SUBDAG]
    each = {file: procs(text) for file, text in texts.items()}
    return Plan(
        request=request,
        dag_file=f"{request.name}.dag",
        files=tuple(_placed(request, file) for file in files),
        runs=runs,
        nodes=len(inner),
        jobs=sum(each.get(n.submit, 1) for n in inner if not n.noop),
        graph=graph,
    )


def _graph(request: Request, jobs: Sequence[JobTemplate]) -> tuple[Graph, tuple[PlannedFile, ...]]:
    """The graph, and the files that a sweep file was read with or names."""
    if request.source is None:
        return graph_of(request, jobs), ()
    from metlmon.authoring.sweeps.expand import expand  # Most ensembles sweep nothing.

    made = expand(request)
    named = kept_sweep(request.source)
    sources = [
        PlannedFile(
            named if name == request.source.name else kept_source(name), data, False, "the sweep"
        )
        for name, data in made.sources
    ]
    told = [
        PlannedFile(file.name, file.data, file.executable, f"asked for by {file.where}")
        for file in made.files
        if file.data is not None
    ]
    return made.graph, (*sources, *told)


def _beside(along: Sequence[PlannedFile], files: Sequence[PlannedFile]) -> Iterator[PlannedFile]:
    """Files that come along with a sweep; none takes the name of what is written."""
    written = {file.name: file.data for file in files}
    for file in along:
        if file.name not in written:
            written[file.name] = file.data
            yield file
        elif written[file.name] != file.data:
            text = f"{file.name} ({file.about}) has the name of a file that is written"
            raise PlanError(f"{text}; rename it, or give the DAG another name")


def _refuse_twice(request: Request, files: Sequence[PlannedFile]) -> None:
    """No file is written over by another one of the plan, and none is taken for DAGMan's."""
    found: dict[str, PlannedFile] = {}
    for file in files:
        if is_left(file.name, request.name):
            text = f"{file.name} ({file.about}) has a name that DAGMan takes for its own"
            raise PlanError(f"{text}; rename it, or give the DAG another name")
        if found.setdefault(file.name, file) is not file:
            text = f"{file.name} would be written twice ({found[file.name].about}; {file.about})"
            raise PlanError(f"{text}; rename one of them, or give the DAG another name")


def _dags(
    request: Request, graph: Graph, runs: Sequence[RunPlan], jobs: Sequence[JobTemplate]
) -> Iterator[PlannedFile]:
    about = _told(request, graph, runs, jobs)
    count = sum(len(each.nodes) for each in (graph, *graph.subdags.values()))
    count -= len(graph.subdags)
    name = f"{request.name}.dag"
    text = dag_text(graph, request.name, about)
    yield PlannedFile(name, text.encode(), False, f"the DAG: {_count(count, 'node')}")
    for file, inner in graph.subdags.items():
        text = dag_text(inner, request.name, f"a run of {name}", file)
        what = f"the DAG of one run: {_count(len(inner.nodes), 'node')}"
        yield PlannedFile(file, text.encode(), False, what)


def _told(
    request: Request, graph: Graph, runs: Sequence[RunPlan], jobs: Sequence[JobTemplate]
) -> str:
    """What the DAG file says of itself in its first line."""
    if request.source is not None:
        return f"runs {len(runs)}, nodes {len(graph.nodes)}, from {kept_sweep(request.source)}"
    names = ", ".join(dict.fromkeys(job.template.name for job in jobs if job.field != "shape"))
    template = f"template {names}" if ", " not in names else f"templates {names}"
    if request.shape is EnsembleShape.BAG:
        return f"shards {request.shards}, {template}"
    return f"runs {len(runs)}, epochs of each {epochs_of(request)}, {template}"


_ABOUT: Final = {
    NodeRole.TRAIN: "the job that trains an epoch",
    NodeRole.EVALUATE: "the job that evaluates a run",
    NodeRole.SHARD: "the job of a shard",
    NodeRole.GATHER: "the job that puts all shards together",
    NodeRole.PROVISION: "the job that comes before all others",
}


def _about(job: JobTemplate, count: int) -> str:
    if count == 1:
        return "the job that each node submits"
    return _ABOUT[job.role] if job.stage is None else f"the job of the stage {job.stage}"


def _ships(jobs: Sequence[JobTemplate]) -> Iterator[PlannedFile]:
    shipped: set[str] = set()
    for job in jobs:
        for name, data, executable in job.template.ships:
            if name not in shipped:
                shipped.add(name)
                yield PlannedFile(name, data, executable, "comes with the template")


def _gate(request: Request, runs: Sequence[RunPlan]) -> Iterator[PlannedFile]:
    if request.gate is None:
        return
    metrics = [checkpoint_directory(run.uuid) for run in runs]
    rules = rules_text(request, runs, metrics)
    yield PlannedFile(SCRIPT, script(), True, "decides before each node whether it runs")
    yield PlannedFile(rules_file(request.name), rules.encode(), False, "the gate's rules and runs")


def _placed(request: Request, file: PlannedFile) -> PlannedFile:
    """A file of these very bytes is not in the way, unless it is the DAG: that makes two of
    one ensemble."""
    path = request.directory / file.name
    is_dag = file.name == f"{request.name}.dag"
    same = not is_dag and already_there(path, file.data, file.executable)
    exists = in_the_way(path) and not same
    return PlannedFile(file.name, file.data, file.executable, file.about, exists)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
