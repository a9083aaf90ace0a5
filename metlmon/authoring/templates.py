"""Loads templates of submit descriptions and fills in their placeholders.

A template is a submit description with comment lines at its top that describe it::

    # template: A small protein model
    # about: Trains on any machine that has Python.
    # parameter: learning_rate = 0.001 | step of the optimizer
    # allowed: learning_rate 0..1
    # parameter: data | a file of variants (required: it has no default)
    # ship: train.py executable
    # role: train

``{name}`` is the placeholder of a parameter, or of one of :data:`BUILT_IN`, and is replaced when
the DAG is written. A line that begins with ``?`` is dropped if one of its placeholders is empty or
0. ``{{name}}`` yields ``{name}``; braces around anything but one word stay (ClassAd lists), as do
comments and HTCondor's ``$(…)``.

``# allowed`` constrains a parameter (:mod:`metlmon.authoring.templates`): a range of numbers, or
one of several words. ``# ship`` names files that are copied from beside the template to beside the
DAG. ``# role`` is the role of its nodes (:class:`metlmon.authoring.graph.NodeRole`; default:
training). All these lines are optional: any submit description is a template.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
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
from metlmon.errors import nearest
from metlmon.live.file_access import read_regular_file

BUILT_IN: Final = tuple(
    """
    name epochs gpus gpu_memory_mb memory_mb requirements require_gpus machines stage_first
    """.split()
)
"""Placeholders that every template may use without declaring them. The DAG's name, the epochs of a
run, the requested resources, the expressions that keep a job at its site and on its GPU model, the
machines per epoch, and the epochs of earlier stages (0 in the first)."""

TEMPLATE_ORDER: Final = ("trainer", "metl")
"""Order of the bundled templates; the one without dependencies is first."""

MAX_TEMPLATE_BYTES: Final = 16 << 20
"""Maximum bytes of a template or shipped file; data sets are transferred instead."""

PROVISION: Final = "provision"
"""Template and node name of the PROVISIONER of a multi-node ensemble."""

GATHER: Final = "gather"
"""Name of the node that runs after all shards of a bag."""

_HOME: Final = Path(__file__).resolve().parents[1] / "trainer"
_BUNDLED: Final = _HOME / "templates"

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_HEADER: Final = re.compile(r"#\s*(template|about|parameter|allowed|ship|role)\s*:(.*)")
_PARAMETER: Final = re.compile(r"([A-Za-z_]\w*)\s*(?:=(.*))?", re.DOTALL)
_SHIP: Final = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._-]{0,99})(\s+executable)?")
_PLACEHOLDER: Final = re.compile(r"\{\{([A-Za-z_]\w*+)\}\}|\{([A-Za-z_]\w*+)\}", re.ASCII)
_RANGE: Final = re.compile(r"(whole\s+)?(-?[\d.]*\d)?\.\.(-?\d[\d.]*)?")


def bundled_templates() -> tuple[Template, ...]:
    """The bundled templates. Raises PlanError if one is damaged."""
    return tuple(map(load_template, bundled_names()))


def bundled_names() -> list[str]:
    """Names of the bundled templates, in the order in which they are offered."""
    first = {name: position for position, name in enumerate(TEMPLATE_ORDER)}
    names = (path.stem for path in _BUNDLED.glob("*.sub"))
    return sorted(names, key=lambda name: (first.get(name, len(first)), name))


def template_for(shape: EnsembleShape, bundled: Iterable[Template] | None = None) -> str:
    """Name of the first template for the main nodes of a shape, or ""."""
    role = NodeRole.SHARD if shape is EnsembleShape.BAG else NodeRole.TRAIN
    candidates = [
        each for each in (bundled_templates() if bundled is None else bundled) if each.role is role
    ]
    if shape is EnsembleShape.MULTI_NODE:
        # Any other template trains each epoch on a single machine: the sort is stable.
        candidates.sort(key=lambda template: "machines" not in used_placeholders(template))
    return next((template.name for template in candidates), "")


def load_template(name_or_path: str) -> Template:
    """Load a bundled template by name, or a file by path. Raises PlanError."""
    names = sorted(bundled_names())
    if name_or_path in names:
        return _read_template(_BUNDLED / f"{name_or_path}.sub", (_BUNDLED, _HOME), bundled=True)
    known = ", ".join(names) or "none is bundled"
    if not name_or_path.strip():
        raise PlanError(f"no template is chosen; there are {known}")
    try:
        path = Path(name_or_path).expanduser()
        exists = path.is_file()
    except (OSError, ValueError, RuntimeError):
        exists = False
    if not exists:
        raise PlanError(
            f"no template is called {name_or_path!r}, and there is no such file; choose one of "
            f"{known}, or give the path of a submit description"
        )
    if not path.name.isprintable():
        # The name is written into comments, and names a copy of the template.
        text = "a template's file name holds a line end or another character that cannot be shown"
        raise PlanError(f"{name_or_path!r}: {text}; rename the file")
    return _read_template(path, (path.parent,))


def _read_bytes(path: Path) -> bytes:
    try:
        return read_regular_file(path, MAX_TEMPLATE_BYTES)
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error.strerror}") from None


def plain_text(data: bytes, name: str) -> str:
    """The text of the file ``name``. Raises PlanError unless it is lines of UTF-8 text."""
    try:
        text = data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise PlanError(f"{name}:{line}: not UTF-8 text; save the file as UTF-8") from None
    if control := _CONTROL.search(text):
        line = text[: control.start()].count("\n") + 1
        raise PlanError(f"{name}:{line}: a control character; take it out")
    return text


def _read_template(path: Path, folders: tuple[Path, ...], bundled: bool = False) -> Template:
    """The template at ``path``; the files that it ships are in one of the ``folders``."""
    text = plain_text(_read_bytes(path), str(path))
    header = _Header(path, folders)
    lines: dict[int, str] = {}
    at_top = True
    for number, raw in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        stripped = raw.strip()
        at_top = at_top and (not stripped or stripped.startswith("#"))
        match = _HEADER.fullmatch(stripped) if at_top else None
        if match is None:
            lines[number] = raw
        elif problem := header.add(match[1], match[2].strip()):
            raise PlanError(f"{path}:{number}: {problem}")
    first_line = next((number for number, line in lines.items() if line), 1)
    return Template(
        name=path.stem,
        title=header.title,
        about=header.about,
        text="\n".join(lines.values()).strip("\n") + "\n",
        parameters=tuple(header.parameters.values()),
        shipped_files=tuple((name, *file) for name, file in header.shipped_files.items()),
        path=None if bundled else path,
        role=header.role,
        first_line=first_line,
    )


class _Header:
    """The comment lines at the top of a template."""

    def __init__(self, path: Path, folders: tuple[Path, ...]) -> None:
        self.title = path.stem
        self.about = ""
        self.parameters: dict[str, Parameter] = {}
        self.shipped_files: dict[str, tuple[bytes, bool]] = {}
        self.role = NodeRole.TRAIN
        self._folders = folders

    def add(self, keyword: str, value: str) -> str | None:
        """Apply one header line. Returns what is wrong with it."""
        match keyword:
            case "template":
                self.title = value or self.title
            case "about":
                self.about = f"{self.about} {value}".strip()
            case "parameter":
                return self._parameter(value)
            case "allowed":
                name, _, allowed_text = value.partition(" ")
                if name not in self.parameters:
                    return f"declare the parameter {name!r} before what it may be"
                if (allowed := read_allowed(allowed_text)) is None:
                    return f"write '# allowed: {name} 0..1', or words to choose from"
                self.parameters[name] = replace(self.parameters[name], allowed=allowed)
            case "role":
                if value not in list(NodeRole):
                    return f"no node has the role {value!r}; it is {' or '.join(NodeRole)}"
                self.role = NodeRole(value)
            case _:
                return self._ship(value)
        return None

    def _parameter(self, value: str) -> str | None:
        declaration, _, help_text = f"{value} ".partition(" | ")
        match = _PARAMETER.fullmatch(declaration.strip())
        if match is None:
            return "write '# parameter: name = default | what it is'"
        name = match[1]
        if name in BUILT_IN or name in self.parameters:
            conflict = "every template has" if name in BUILT_IN else "is declared above"
            return f"{{{name}}} {conflict} already; choose another name"
        default = (match[2] or "").strip()
        self.parameters[name] = Parameter(name, default, help_text.strip(), match[2] is None)
        return None

    def _ship(self, value: str) -> str | None:
        match = _SHIP.fullmatch(value)
        if match is None:
            return "write '# ship: file.py' or '# ship: file.py executable'"
        name = match[1]
        if name in self.shipped_files:
            return f"{name} is shipped twice; take one of the lines out"
        for folder in self._folders:
            path = folder / name
            if path.is_file():
                if not path.resolve().is_relative_to(folder.resolve()):
                    return f"{name} is a link to a file elsewhere; copy it there"
                self.shipped_files[name] = (_read_bytes(path), match[2] is not None)
                return None
        return f"{name} is not beside the template; put it there"


def read_allowed(text: str) -> Constraint | None:
    """Parse the text after the parameter's name in ``# allowed:``; None if invalid."""
    text = text.strip()
    match = _RANGE.fullmatch(text)
    if match is None:
        return Constraint(words=tuple(text.split())) if text else None
    try:
        low = float(match[2]) if match[2] else -math.inf
        high = float(match[3]) if match[3] else math.inf
    except ValueError:
        return None
    return Constraint(whole=match[1] is not None, low=low, high=high) if low <= high else None


# --- filling in -----------------------------------------------------------------------------


def placeholder_names(text: str) -> frozenset[str]:
    """The names of the placeholders in a text."""
    return frozenset(match[2] for match in _PLACEHOLDER.finditer(text) if match[2])


def fill_placeholders(text: str, values: Mapping[str, str], where: str, remedy: str = "") -> str:
    """The text with these values filled in, and ``{{word}}`` as ``{word}``.

    Raises PlanError for any other placeholder, with the most similar known name.
    """
    if "{" not in text:
        return text

    def value_of(match: re.Match[str]) -> str:
        if match[1]:
            return f"{{{match[1]}}}"
        name = match[2]
        if name in values:
            return values[name]
        hint = "there are such names for nodes of runs only."
        if similar := nearest(name, values):
            hint = f"is {{{similar}}} meant?"
        elif values:
            hint = f"there are {', '.join(f'{{{each}}}' for each in sorted(values))}."
        text = f"{where}: nothing is called {{{name}}}; {hint}"
        raise PlanError(f"{text} {remedy}Write {{{{{name}}}}} to mean the braces")

    return _PLACEHOLDER.sub(value_of, text)


def _lines(template: Template) -> Iterator[tuple[int, str]]:
    """The lines that are not comments, with their numbers in the file."""
    for number, line in enumerate(template.text.split("\n"), start=template.first_line):
        if not line.lstrip().startswith("#"):
            yield number, line


def used_placeholders(template: Template) -> frozenset[str]:
    """Names of the placeholders in the text."""
    return frozenset().union(*(placeholder_names(line) for _, line in _lines(template)))


def may_be_dropped(template: Template) -> frozenset[str]:
    """Names of the placeholders in lines that are dropped if they are empty."""
    lines = (line for _, line in _lines(template) if line.lstrip().startswith("?"))
    return frozenset().union(*map(placeholder_names, lines))


def fill(template: Template, values: Mapping[str, str]) -> str:
    """Fill ``values`` into the text. Raises PlanError for an unknown placeholder."""
    lines = dict(enumerate(template.text.split("\n"), start=template.first_line))
    source = template.path or _BUNDLED / f"{template.name}.sub"
    for number, line in _lines(template):
        remedy = "Declare it with '# parameter: NAME = VALUE'. "
        filled = fill_placeholders(line, values, f"{source}:{number}", remedy)
        lines[number] = filled
        if line.lstrip().startswith("?"):
            lines[number] = filled.replace("?", "", 1)
            if any(values[name].strip() in ("", "0") for name in placeholder_names(line)):
                del lines[number]
    return "\n".join(lines.values())


# --- the submit files of a request ---------------------------------------------------------------


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
    own_values: Mapping[str, str] = {}
    stage: str | None = None
    first_epoch: int = 0


class TemplateError(PlanError):
    """A template cannot be loaded. ``field``: the field of the request that names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def jobs_of(request: Request) -> tuple[JobTemplate, ...]:
    """The submit files of the request, the main one first. Raises TemplateError."""
    jobs: list[JobTemplate] = []

    def add(name: str, suffix: str, role: NodeRole, field: str, **more: Any) -> None:
        """Add a submit file; values of the request apply to any template that has them."""
        try:
            template = load_template(name)
        except PlanError as error:
            raise TemplateError(field, str(error)) from None
        given = {**request.values, **more.get("own_values", {})}
        values = {each.name: given.get(each.name, each.default) for each in template.parameters}
        file = f"{request.name}{suffix}.sub"
        jobs.append(JobTemplate(file, template, values, role=role, field=field, **more))

    is_bag, first_epoch = request.shape is EnsembleShape.BAG, 0
    for stage in request.stages if request.shape is EnsembleShape.STAGES else ():
        where = f"stages.{stage.name}"
        add(
            stage.template or request.template,
            f"-{stage.name}",
            NodeRole.TRAIN,
            f"{where}.template" if stage.template else "template",
            own_values=stage.values,
            values_field=f"{where}.values",
            stage=stage.name,
            first_epoch=first_epoch,
        )
        first_epoch += stage.epochs
    if request.shape is not EnsembleShape.STAGES:
        add(request.template, "", NodeRole.SHARD if is_bag else NodeRole.TRAIN, "template")
    evaluation = request.evaluation
    if evaluation is None and request.source is not None:
        evaluation = Evaluation()  # The sweep file decides about evaluations.
    if evaluation is not None:
        more = {"own_values": evaluation.values, "values_field": "evaluation.values"}
        field = "evaluation.template"
        add(evaluation.template, "-evaluate", NodeRole.EVALUATE, field, **more)
    if is_bag and request.gather is not None:
        add(request.gather, f"-{GATHER}", NodeRole.GATHER, "gather")
    if request.shape is EnsembleShape.MULTI_NODE:
        add(PROVISION, f"-{PROVISION}", NodeRole.PROVISION, "shape")
    return tuple(jobs)
