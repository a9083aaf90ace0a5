"""Turns a request into a plan: the files to write, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from metlmon.authoring.description import description_files, source_copy_name, sweep_copy_name
from metlmon.authoring.gate_config import FOLDERS, SCRIPT, rules_file, rules_text, script_content
from metlmon.authoring.graph import Graph, NodeRole
from metlmon.authoring.mlproject import mlproject_files
from metlmon.authoring.request import EnsembleShape, Plan, PlanError, PlannedFile, Request, RunPlan
from metlmon.authoring.runs import build_graph, checkpoint_directory, epochs_of, run_plans
from metlmon.authoring.templates import JobTemplate
from metlmon.authoring.validate import Validation, validate
from metlmon.authoring.write_dag import dag_text, nodes_by_file, procs, submit_file_text
from metlmon.authoring.write_files import is_dagman_file, is_unchanged, path_exists
from metlmon.dagman.records import NodeKind
from metlmon.text.formatting import count

if TYPE_CHECKING:
    from metlmon.authoring.sweeps.expand import Expansion


def make_plan(request: Request, validation: Validation | None = None) -> Plan:
    """The plan of a request, which always has the same bytes. Writes nothing. Raises PlanError."""
    validation = validation or validate(request)
    if errors := validation.fatal:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise PlanError(f"{errors[0].field}: {errors[0].text}{more}")
    jobs = validation.jobs
    graph = validation.graph or build_graph(request, jobs)
    extra_files = list(_sweep_files(request, validation.expansion))
    runs = run_plans(graph)
    nodes_by_submit_file = nodes_by_file(graph)
    # A sweep file may use only its own submit files.
    jobs = tuple(job for job in jobs if job.file in nodes_by_submit_file)
    texts = [submit_file_text(request, job, nodes_by_submit_file[job.file]) for job in jobs]
    dags = _dag_files(request, graph, runs, jobs)
    submits = [
        PlannedFile(job.file, text.encode(), False, _submit_file_about(job, len(jobs)))
        for job, text in zip(jobs, texts, strict=True)
    ]
    shipped = [
        PlannedFile(name, data, executable, "comes with the template")
        for job in jobs
        for name, data, executable in job.template.shipped_files
    ]
    gate_files = _gate_files(request, runs)
    written = {file.name: file.data.decode("utf-8", "replace") for file in (*submits, *extra_files)}
    used = {name: written[name] for name in nodes_by_submit_file if name in written}
    project = mlproject_files(request, graph, used)
    files = _unique(request, [*dags, *submits, *shipped, *gate_files, *extra_files, *project])
    files = _unique(request, [*files, *description_files(request, files)])
    nodes = [node for node in graph.all_nodes if node.kind is not NodeKind.SUBDAG]
    job_counts = {job.file: procs(text) for job, text in zip(jobs, texts, strict=True)}
    directory, dag_file = request.directory, f"{request.name}.dag"

    def exists(file: PlannedFile) -> bool:
        """Whether another file of this name is there."""
        is_there = path_exists(directory / file.name)
        return is_there and not is_unchanged(directory, dag_file, file)

    return Plan(
        request=request,
        dag_file=dag_file,
        files=tuple(replace(file, exists=exists(file)) for file in files),
        runs=runs,
        nodes=len(nodes),
        jobs=sum(job_counts.get(n.submit, 1) for n in nodes if not n.noop),
        graph=graph,
    )


def _sweep_files(request: Request, expansion: Expansion | None) -> Iterator[PlannedFile]:
    """The sweep file's own sources, and the files that it names."""
    if expansion is None or request.source is None:
        return
    for name, data in expansion.sources:
        is_sweep = name == request.source.name
        copy_name = sweep_copy_name(request.source) if is_sweep else source_copy_name(name)
        yield PlannedFile(copy_name, data, False, "the sweep")
    for file in expansion.files:
        if file.data is not None:
            yield PlannedFile(file.name, file.data, file.executable, f"asked for by {file.where}")


def _unique(request: Request, files: Sequence[PlannedFile]) -> list[PlannedFile]:
    """The files, without duplicates. Raises PlanError for a name with two contents."""
    unique: dict[str, PlannedFile] = {}
    for file in files:
        if is_dagman_file(file.name, request.name):
            text = f"{file.name} ({file.about}) has a name that DAGMan takes for its own"
            raise PlanError(f"{text}; rename it, or give the DAG another name")
        if request.gate is not None and file.name in FOLDERS:
            text = f"{file.name} ({file.about}) has the name of a directory of the gate"
            raise PlanError(f"{text}; rename it, or write the DAG without a gate")
        other = unique.setdefault(file.name, file)
        if other.data != file.data:
            text = f"{file.name} would be written twice ({other.about}; {file.about})"
            raise PlanError(f"{text}; rename one of them, or give the DAG another name")
    return list(unique.values())


def _dag_files(
    request: Request, graph: Graph, runs: Sequence[RunPlan], jobs: Sequence[JobTemplate]
) -> Iterator[PlannedFile]:
    summary = _summary(request, graph, runs, jobs)
    node_count = len([*graph.all_nodes]) - len(graph.subdags)
    name = f"{request.name}.dag"
    text = dag_text(graph, request.name, summary)
    yield PlannedFile(name, text.encode(), False, f"the DAG: {count(node_count, 'node')}")
    for file, inner in graph.subdags.items():
        text = dag_text(inner, request.name, f"a run of {name}", file)
        about_run = f"the DAG of one run: {count(len(inner.nodes), 'node')}"
        yield PlannedFile(file, text.encode(), False, about_run)


def _summary(
    request: Request, graph: Graph, runs: Sequence[RunPlan], jobs: Sequence[JobTemplate]
) -> str:
    """The comment in the first line of the DAG file."""
    if request.source is not None:
        return f"runs {len(runs)}, nodes {len(graph.nodes)}, from {sweep_copy_name(request.source)}"
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


def _submit_file_about(job: JobTemplate, count: int) -> str:
    if count == 1:
        return "the job that each node submits"
    return _ABOUT[job.role] if job.stage is None else f"the job of the stage {job.stage}"


def _gate_files(request: Request, runs: Sequence[RunPlan]) -> Iterator[PlannedFile]:
    if request.gate is None:
        return
    rules = rules_text(request, runs, [checkpoint_directory(run.uuid) for run in runs])
    yield PlannedFile(SCRIPT, script_content(), True, "decides for each node if it runs")
    yield PlannedFile(rules_file(request.name), rules.encode(), False, "the gate's rules and runs")
