"""Loads templates of submit descriptions and fills in their placeholders.

A template is a submit description with comment lines at its top that describe it::

    # template: A small protein model
    # about: Trains on any machine that has Python.
    # parameter: learning_rate = 0.001 | step of the optimizer
    # allowed: learning_rate 0..1
    # parameter: data | a file of variants (required: it has no default)
    # ship: train.py executable
    # later: learning_rate
    # role: train

``{name}`` is the placeholder of a parameter, or of one of :data:`BUILT_IN`, and is replaced when
the DAG is written. A line that begins with ``?`` is dropped if one of its placeholders is empty or
0. ``{{name}}`` yields ``{name}``; braces around anything but one word stay (ClassAd lists), as do
comments and HTCondor's ``$(…)``.

``# allowed`` constrains a parameter (:mod:`metlmon.authoring.templates`): a range of numbers, or
one of several words. ``# ship`` names files that are copied from beside the template to beside the
DAG. ``# later`` names parameters added when runs had uuids already: at their defaults they are not
part of a run's uuid. ``# role`` is the role of its nodes
(:class:`metlmon.authoring.graph.NodeRole`; default: training). All these lines are optional: any
submit description is a template.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec import field as dataclass_field
from msgspec.structs import replace

from metlmon.authoring.graph import NodeRole
from metlmon.authoring.request import (
    Constraint,
    EnsembleShape,
    Evaluation,
    Parameter,
    PlanError,
    Request,
    Template,
)

BUILT_IN: Final = (
    "name",
    "epochs",
    "gpus",
    "gpu_memory_mb",
    "memory_mb",
    "requirements",
    "require_gpus",
    "machines",
    "stage_first",
)
"""Placeholders that every template may use without declaring them.

The DAG's name, the epochs of a run, the requested resources, the expressions that keep a job at its
site and on its GPU model, the machines per epoch, and the epochs of earlier stages (0 in the
first).
"""

TEMPLATE_ORDER: Final = ("trainer", "metl")
"""Order of the bundled templates; the one without dependencies is first."""

MAX_TEMPLATE_BYTES: Final = 16 << 20
"""Maximum bytes of a template or of a file shipped with it.

Data sets are not shipped but named in transfer_input_files.
"""

_HOME: Final = Path(__file__).resolve().parents[1] / "trainer"
_BUNDLED: Final = _HOME / "templates"

_HEADER: Final = re.compile(r"#\s*(template|about|parameter|allowed|ship|later|role)\s*:(.*)")
_PARAMETER: Final = re.compile(r"([A-Za-z_]\w*)\s*(?:=(.*))?", re.DOTALL)
_SHIP: Final = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._-]{0,99})(\s+executable)?")
_PLACEHOLDER: Final = re.compile(r"\{\{(\w+)\}\}|\{([A-Za-z_]\w*)\}")


def templates() -> tuple[Template, ...]:
    """The bundled templates. Raises PlanError if one is damaged."""
    return tuple(_bundled(name) for name in bundled_names())


def bundled_names() -> list[str]:
    """Names of the bundled templates, in the order in which they are offered."""
    names = [path.stem for path in _BUNDLED.glob("*.sub")]
    names.sort(
        key=lambda name: (
            TEMPLATE_ORDER.index(name) if name in TEMPLATE_ORDER else len(TEMPLATE_ORDER),
            name,
        )
    )
    return names


def _bundled(name: str) -> Template:
    path = _BUNDLED / f"{name}.sub"
    return _read_template(path, name, None, (_BUNDLED, _HOME))


def load_template(name_or_path: str) -> Template:
    """Load a bundled template by name, or a template file by path.

    Raises PlanError with file, line and remedy.
    """
    names = sorted(path.stem for path in _BUNDLED.glob("*.sub"))
    if name_or_path in names:
        return _bundled(name_or_path)
    if not name_or_path.strip():
        raise PlanError(f"no template is chosen; there are {_name_list(names)}")
    try:
        path = Path(name_or_path).expanduser()
        exists = path.is_file()
    except (OSError, ValueError, RuntimeError):
        exists = False
    if not exists:
        raise PlanError(
            f"no template is called {name_or_path!r}, and there is no such file; choose one of "
            f"{_name_list(names)}, or give the path of a submit description"
        )
    if not path.name.isprintable():
        # The name is written into comments, and names a copy of the template.
        text = "a template's file name holds a line end or another character that cannot be shown"
        raise PlanError(f"{name_or_path!r}: {text}; rename the file")
    return _read_template(path, path.stem, path, (path.parent,))


def _name_list(names: list[str]) -> str:
    return ", ".join(names) or "none that come along"


def _read_template(
    path: Path, name: str, user_file: Path | None, folders: tuple[Path, ...]
) -> Template:
    try:
        text = _read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise PlanError(f"{path}:{line}: not UTF-8 text; save the template as UTF-8") from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise PlanError(f"{path}:{line}: a NUL byte; a template is plain text")
    return parse_template(text=text, name=name, user_file=user_file, source=path, folders=folders)


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TEMPLATE_BYTES + 1)
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > MAX_TEMPLATE_BYTES:
        limit = f"{MAX_TEMPLATE_BYTES >> 20} MB"
        raise PlanError(f"{path}: larger than {limit}; name data in transfer_input_files instead")
    return data


def parse_template(
    text: str, name: str, user_file: Path | None, source: Path, folders: tuple[Path, ...]
) -> Template:
    """Parse the template in ``text``.

    ``user_file``: the user's file; None for a bundled template. ``source``: the path for messages.
    ``folders``: the directories of the files that it ships.
    """
    header = _Header(source, name, folders)
    lines = []
    at_top = True
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        stripped = line.strip()
        at_top = at_top and (not stripped or stripped.startswith("#"))
        match = _HEADER.fullmatch(stripped) if at_top else None
        if match is None:
            lines.append(line)
        else:
            header.add(number, match[1], match[2].strip())
    return Template(
        name=name,
        title=header.title,
        about=header.about,
        text="\n".join(lines).strip("\n") + "\n",
        parameters=tuple(header.parameters.values()),
        shipped_files=tuple(header.ships),
        path=user_file,
        role=header.role,
    )


class _Header:
    """The comment lines at the top of a template."""

    def __init__(self, source: Path, name: str, folders: tuple[Path, ...]) -> None:
        self.title = name
        self.about = ""
        self.parameters: dict[str, Parameter] = {}
        self.ships: list[tuple[str, bytes, bool]] = []
        self.role = NodeRole.TRAIN
        self._source = source
        self._folders = folders

    def add(self, line: int, keyword: str, value: str) -> None:
        """Apply one header line. Raises PlanError."""
        where = f"{self._source}:{line}"
        if keyword == "template":
            self.title = value or self.title
        elif keyword == "about":
            self.about = f"{self.about} {value}".strip()
        elif keyword == "parameter":
            self._parameter(where, value)
        elif keyword == "allowed":
            self._allowed(where, value)
        elif keyword == "later":
            self._later(where, value.split())
        elif keyword == "role":
            self._role(where, value)
        else:
            self._ship(where, value)

    def _parameter(self, where: str, value: str) -> None:
        declaration, _, help_text = f"{value} ".partition(" | ")
        match = _PARAMETER.fullmatch(declaration.strip())
        if match is None:
            raise PlanError(f"{where}: write '# parameter: name = default | what it is'")
        name = match[1]
        if name in BUILT_IN or name in self.parameters:
            conflict = "every template has" if name in BUILT_IN else "is declared above"
            raise PlanError(f"{where}: {{{name}}} {conflict} already; choose another name")
        default = (match[2] or "").strip()
        required = match[2] is None
        self.parameters[name] = Parameter(name, default, help_text.strip(), required)

    def _allowed(self, where: str, value: str) -> None:
        name, _, allowed_text = value.partition(" ")
        allowed = read_allowed(allowed_text)
        if name not in self.parameters:
            raise PlanError(f"{where}: declare the parameter {name!r} before what it may be")
        if allowed is None:
            raise PlanError(f"{where}: write '# allowed: {name} 0..1', or words to choose from")
        self.parameters[name] = replace(self.parameters[name], allowed=allowed)

    def _later(self, where: str, names: list[str]) -> None:
        for name in names:
            if name not in self.parameters:
                raise PlanError(
                    f"{where}: declare the parameter {name!r} before saying when it came"
                )
            self.parameters[name] = replace(self.parameters[name], added_later=True)

    def _role(self, where: str, name: str) -> None:
        roles = {role.value: role for role in NodeRole}
        if name not in roles:
            raise PlanError(f"{where}: no node has the role {name!r}; it is {' or '.join(roles)}")
        self.role = roles[name]

    def _ship(self, where: str, value: str) -> None:
        match = _SHIP.fullmatch(value)
        if match is None:
            raise PlanError(f"{where}: write '# ship: file.py' or '# ship: file.py executable'")
        name = match[1]
        if name in (shipped[0] for shipped in self.ships):
            raise PlanError(f"{where}: {name} is shipped twice; take one of the lines out")
        for folder in self._folders:
            if (folder / name).is_file():
                if not Path(os.path.realpath(folder / name)).is_relative_to(
                    os.path.realpath(folder)
                ):
                    raise PlanError(f"{where}: {name} is a link to a file elsewhere; copy it there")
                self.ships.append((name, _read_bytes(folder / name), match[2] is not None))
                return
        raise PlanError(f"{where}: {name} is not beside the template; put it there")


# --- filling in -----------------------------------------------------------------------------


def used_placeholders(template: Template) -> frozenset[str]:
    """Names of the placeholders in the text."""
    lines = template.text.split("\n")
    matches_by_line = (_PLACEHOLDER.finditer(line) for line in lines if not _is_comment(line))
    return frozenset(match[2] for matches in matches_by_line for match in matches if match[2])


def may_be_dropped(template: Template) -> frozenset[str]:
    """Names of the placeholders in lines that are dropped if they are empty."""
    lines = [line for line in template.text.split("\n") if line.lstrip().startswith("?")]
    matches_by_line = (_PLACEHOLDER.finditer(line) for line in lines)
    return frozenset(match[2] for matches in matches_by_line for match in matches if match[2])


def fill(template: Template, values: Mapping[str, str]) -> str:
    """Fill ``values`` into the text. Raises PlanError for an unknown placeholder."""
    result = []
    for line in template.text.split("\n"):
        if _is_comment(line):
            result.append(line)
            continue
        optional = line.lstrip().startswith("?")
        names = [match[2] for match in _PLACEHOLDER.finditer(line) if match[2]]
        for name in names:
            if name not in values:
                raise _unknown_placeholder(template, name, values)
        if optional and any(values[name].strip() in ("", "0") for name in names):
            continue
        content = line.replace("?", "", 1) if optional else line
        result.append(_PLACEHOLDER.sub(lambda m: f"{{{m[1]}}}" if m[1] else values[m[2]], content))
    return "\n".join(result)


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _unknown_placeholder(template: Template, name: str, values: Mapping[str, str]) -> PlanError:
    source = template.path or _BUNDLED / f"{template.name}.sub"
    line = _placeholder_line(source, name)
    known = ", ".join(sorted(values))
    return PlanError(
        f"{source}{line}: nothing is called {{{name}}}; there are {known}; "
        f"declare it with '# parameter: {name} = …', or write {{{{{name}}}}} to mean the braces"
    )


def _placeholder_line(source: Path, name: str) -> str:
    """``:7``, the line of ``{name}`` in the file; the parsed text lacks the header."""
    try:
        lines = source.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        return ""
    for number, line in enumerate(lines, start=1):
        if not _is_comment(line) and any(match[2] == name for match in _PLACEHOLDER.finditer(line)):
            return f":{number}"
    return ""


# --- constraints of parameters -------------------------------------------------------------------


_RANGE: Final = re.compile(r"(whole\s+)?(-?[\d.]*\d)?\.\.(-?\d[\d.]*)?")


def read_allowed(text: str) -> Constraint | None:
    """Parse the text after the parameter's name in ``# allowed:``; None if invalid."""
    text = text.strip()
    if not text:
        return None
    match = _RANGE.fullmatch(text)
    if match is None:
        return Constraint(words=tuple(text.split()))
    try:
        low = float(match[2]) if match[2] else -math.inf
        high = float(match[3]) if match[3] else math.inf
    except ValueError:
        return None
    return Constraint(whole=match[1] is not None, low=low, high=high)


# --- the submit files of a request ---------------------------------------------------------------


PROVISION: Final = "provision"
"""Template and node name of the PROVISIONER of a multi-node ensemble."""

GATHER: Final = "gather"
"""Name of the node that runs after all shards of a bag."""

_MAIN_ROLE: Final = {EnsembleShape.BAG: NodeRole.SHARD}


class JobTemplate(Struct, frozen=True):
    """A submit file: a template with parameter values.

    ``file``: its name beside the DAG. ``values``: of all parameters of the template. ``field``: the
    field of the request that names the template. ``own_values``: values for this job only;
    ``values_field``: the field that contains these. ``first_epoch``: number of epochs in earlier
    stages.
    """

    file: str
    template: Template
    values: Mapping[str, str]
    role: NodeRole
    field: str = "template"
    values_field: str = "values"
    own_values: Mapping[str, str] = dataclass_field(default_factory=dict)
    stage: str | None = None
    first_epoch: int = 0


class TemplateError(PlanError):
    """A template cannot be loaded. ``field``: the field of the request that names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def parameter_values(values: Mapping[str, str], template: Template) -> dict[str, str]:
    """The values of the template's parameters, with defaults for missing ones."""
    return {p.name: values.get(p.name, p.default) for p in template.parameters}


def jobs_of(request: Request) -> tuple[JobTemplate, ...]:
    """The submit files of the request, the main one first. Raises TemplateError."""
    name = request.name
    jobs = (
        list(_stage_jobs(request))
        if request.shape is EnsembleShape.STAGES
        else [_main_job(request)]
    )
    evaluation = request.evaluation
    if evaluation is None and request.source is not None:
        evaluation = Evaluation()  # The sweep file decides about evaluations.
    if evaluation is not None:
        template = _load_template(evaluation.template, "evaluation.template")
        # Parameters of the training also apply to its evaluation, if that template has them.
        values = parameter_values({**request.values, **evaluation.values}, template)
        jobs.append(
            JobTemplate(
                file=f"{name}-evaluate.sub",
                template=template,
                values=values,
                role=NodeRole.EVALUATE,
                field="evaluation.template",
                values_field="evaluation.values",
                own_values=evaluation.values,
            )
        )
    if request.shape is EnsembleShape.BAG and request.gather is not None:
        jobs.append(
            _extra_job(
                request=request,
                template_name=request.gather,
                suffix=GATHER,
                role=NodeRole.GATHER,
                field="gather",
            )
        )
    if request.shape is EnsembleShape.MULTI_NODE:
        jobs.append(
            _extra_job(
                request=request,
                template_name=PROVISION,
                suffix=PROVISION,
                role=NodeRole.PROVISION,
                field="shape",
            )
        )
    return tuple(jobs)


def _main_job(request: Request) -> JobTemplate:
    template = _load_template(request.template, "template")
    values = parameter_values(request.values, template)
    return JobTemplate(
        f"{request.name}.sub", template, values, _MAIN_ROLE.get(request.shape, NodeRole.TRAIN)
    )


def _stage_jobs(request: Request) -> list[JobTemplate]:
    jobs, first_epoch = [], 0
    for stage in request.stages:
        field = f"stages.{stage.name}.template" if stage.template else "template"
        template = _load_template(stage.template or request.template, field)
        jobs.append(
            JobTemplate(
                file=f"{request.name}-{stage.name}.sub",
                template=template,
                values=parameter_values({**request.values, **stage.values}, template),
                role=NodeRole.TRAIN,
                field=field,
                values_field=f"stages.{stage.name}.values",
                own_values=stage.values,
                stage=stage.name,
                first_epoch=first_epoch,
            )
        )
        first_epoch += stage.epochs
    return jobs


def _extra_job(
    request: Request, template_name: str, suffix: str, role: NodeRole, field: str
) -> JobTemplate:
    template = _load_template(template_name, field)
    values = parameter_values(request.values, template)
    return JobTemplate(
        file=f"{request.name}-{suffix}.sub",
        template=template,
        values=values,
        role=role,
        field=field,
    )


def _load_template(name: str, field: str) -> Template:
    try:
        return load_template(name)
    except PlanError as error:
        raise TemplateError(field, str(error)) from None
