"""A request → what would be written, to the byte."""

from __future__ import annotations

from metlmon.authoring.complaints import complaints, parameter_values, placeholders
from metlmon.authoring.dagtext import dag_text
from metlmon.authoring.place import already_there, in_the_way
from metlmon.authoring.records import Plan, PlanError, PlannedFile, Request, Template
from metlmon.authoring.runs import run_plans
from metlmon.authoring.submittext import queues
from metlmon.authoring.templates import fill, load_template
from metlmon.dagman.submit import parse_description, submission


def make_plan(request: Request) -> Plan:
    """The plan of ``request``: the same bytes whenever and wherever it is made. Nothing is
    written. Raises PlanError with the first of the complaints that are fatal."""
    fatal = [each for each in complaints(request) if each.fatal]
    if fatal:
        more = f" (and {len(fatal) - 1} more)" if len(fatal) > 1 else ""
        raise PlanError(f"{fatal[0].field}: {fatal[0].text}{more}")
    template = load_template(request.template)
    values = parameter_values(request, template)
    runs = run_plans(request, template.name, values)
    submit = _submit_text(request, template, fill(template, placeholders(request, values)))
    submit_file = f"{request.name}.sub"
    dag_file = f"{request.name}.dag"
    dag = dag_text(request, template.name, submit_file, runs)
    nodes = sum(len(run.targets) for run in runs)
    files = [
        PlannedFile(dag_file, dag.encode(), False, f"the DAG: {_count(nodes, 'node')}"),
        PlannedFile(submit_file, submit.encode(), False, "the job that each node submits"),
    ]
    for name, data, executable in template.ships:
        files.append(PlannedFile(name, data, executable, "comes with the template"))
    return Plan(
        request=request,
        dag_file=dag_file,
        files=tuple(_placed(request, file, is_dag=file.name == dag_file) for file in files),
        runs=runs,
        nodes=nodes,
        jobs=nodes * _procs(submit),
    )


def _submit_text(request: Request, template: Template, text: str) -> str:
    head = f"# Written for {request.name}.dag, from the template {template.name}.\n"
    tail = "" if queues(text) else "queue\n"
    return head + text + tail


def _procs(submit: str) -> int:
    """Jobs that one node makes; 1 where the text alone cannot tell."""
    return submission(parse_description(submit.split("\n")), {}, {}).queue_count or 1


def _placed(request: Request, file: PlannedFile, is_dag: bool) -> PlannedFile:
    """A file of these very bytes is not in the way, unless it is the DAG: that makes two of
    one ensemble."""
    path = request.directory / file.name
    same = not is_dag and already_there(path, file.data, file.executable)
    exists = in_the_way(path) and not same
    return PlannedFile(file.name, file.data, file.executable, file.about, exists)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
