"""The parameters of an ensemble that is an MLflow project, and its request with other values.

``mlflow run . -b metlmon -P runs=6 --backend-config '{"sites": ["Delta-GPU"]}'``: parameters
determine what is trained, the configuration where. MLflow passes parameters as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.authoring.from_toml import parse_megabytes, parse_seeds, parse_sites
from metlmon.authoring.request import (
    EnsembleShape,
    PlanError,
    Policy,
    Request,
    SweepRequest,
    SweptVariable,
)
from metlmon.authoring.templates import jobs_of
from metlmon.redact import is_secret_name

_COUNTS: Final = {
    EnsembleShape.CHAIN: ("runs", "epochs"),
    EnsembleShape.SWEEP: ("epochs",),
    EnsembleShape.STAGES: ("runs",),
    EnsembleShape.BAG: ("shards",),
    EnsembleShape.MULTI_NODE: ("runs", "epochs", "machines"),
}
"""Fields of the request with numbers that may be changed, by shape."""


class ProjectParameter(Struct, frozen=True):
    """A parameter of the project. ``default``: as text; ``is_count``: a whole number."""

    name: str
    default: str
    is_count: bool = False


def project_parameters(request: Request) -> tuple[ProjectParameter, ...]:
    """Numbers of the ensemble, swept variables, and parameters of the templates.

    What is swept by a sweep file is changed there alone, and no secret is a parameter. Raises
    PlanError if a template cannot be loaded.
    """
    found: dict[str, ProjectParameter] = {}
    if request.source is None:
        for name in _COUNTS[request.shape]:
            found[name] = ProjectParameter(name, str(getattr(request, name)), is_count=True)
        if request.shape is not EnsembleShape.BAG:
            found["seeds"] = ProjectParameter("seeds", ",".join(map(str, request.seeds)))
    for variable in _swept(request):
        default = ", ".join(map(_quoted, variable.values))
        found.setdefault(variable.name, ProjectParameter(variable.name, default))
    for job in jobs_of(request):
        for parameter in job.template.parameters:
            name = parameter.name
            value = request.values.get(name, parameter.default)
            if not is_secret_name(name):
                found.setdefault(name, ProjectParameter(name, value))
    return tuple(found.values())


def _swept(request: Request) -> tuple[SweptVariable, ...]:
    return request.sweep.variables if request.sweep is not None else ()


def _quoted(value: str) -> str:
    """A value of a list as :func:`metlmon.authoring.sweeps.values.values` reads it."""
    if value == value.strip() and not any(sign in value for sign in "\"',\\"):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def with_parameters(request: Request, texts: Mapping[str, str]) -> Request:
    """The request with these values of its parameters.

    Raises PlanError with the parameter and the remedy.
    """
    known = {parameter.name: parameter for parameter in project_parameters(request)}
    swept = {variable.name: variable for variable in _swept(request)}
    fields: dict[str, Any] = {}
    values = dict(request.values)
    for name, text in texts.items():
        where = f"-P {name}"
        if name not in known:
            raise _unknown(where, name, known, "the parameters of this project")
        if known[name].is_count:
            fields[name] = _number(where, text)
        elif name == "seeds":
            fields[name] = _seeds(where, text)
        elif name in swept:
            from metlmon.authoring.sweeps.values import values as swept_values  # Rarely needed.

            swept[name] = replace(swept[name], values=swept_values(text, where), where=where)
        else:
            values[name] = text
    if fields.get("seeds") and "runs" in known and "runs" not in texts:
        fields["runs"] = len(fields["seeds"])
    if isinstance(request.sweep, SweepRequest):
        fields["sweep"] = replace(request.sweep, variables=tuple(swept.values()))
    return replace(request, values=values, **fields)


def with_configuration(request: Request, configuration: Mapping[str, object]) -> Request:
    """The request with the resources and places of a backend configuration.

    Raises PlanError with the key and the remedy.
    """
    fields = {}
    for key, value in configuration.items():
        where = f"--backend-config {key}"
        if key not in CONFIGURATION:
            raise _unknown(where, key, CONFIGURATION, "the keys of metlmon's configuration")
        field, read = CONFIGURATION[key]
        fields[field] = read(where, value)
    return replace(request, **fields)


def _unknown(where: str, name: str, known: Iterable[str], what: str) -> PlanError:
    from difflib import get_close_matches  # Imported late: rarely needed.

    names = list(known)
    similar = get_close_matches(name[:80], names, n=1)
    hint = f"did you mean {similar[0]}? " if similar else ""
    return PlanError(f"{where[:100]}: there is none; {hint}{what} are {', '.join(names)}")


# --- values -------------------------------------------------------------------------------


def _number(where: str, value: object) -> int:
    text = str(value).strip() if isinstance(value, int | str) else ""
    if isinstance(value, bool) or not text.removeprefix("-").isdecimal() or len(text) > 18:
        raise PlanError(f"{where}: {value!r} is no whole number, such as 4")
    return int(text)


def _seeds(where: str, text: str) -> tuple[int, ...]:
    try:
        return parse_seeds(text)
    except ValueError as error:
        raise PlanError(f"{where}: {error}") from None


def _names(where: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return parse_sites(value)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise PlanError(f'{where}: must be a list of texts, ["…", "…"]')
    return tuple(dict.fromkeys(value))


def _policy(where: str, value: object) -> Policy:
    if value not in list(Policy):
        raise PlanError(f"{where}: {value!r} is none of {', '.join(Policy)}")
    return Policy(str(value))


def _megabytes(where: str, value: object) -> int:
    is_size = isinstance(value, int | str) and not isinstance(value, bool)
    size = parse_megabytes(str(value)) if is_size else None
    if size is None:
        raise PlanError(f'{where}: {value!r} is no size; write it as 4096 (MB) or "4 GB"')
    return size


CONFIGURATION: Final[Mapping[str, tuple[str, Callable[[str, object], Any]]]] = {
    "sites": ("sites", _names),
    "policy": ("policy", _policy),
    "gpus": ("gpus", _number),
    "gpu_memory": ("gpu_memory_mb", _megabytes),
    "gpu_models": ("gpu_models", _names),
    "memory": ("memory_mb", _megabytes),
    "retries": ("retries", _number),
}
"""Keys of the configuration, as in a description, with the fields of the request."""
