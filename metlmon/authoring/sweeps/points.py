"""The points of a sweep: combinations of the variables' values, one for each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Final

from metlmon.authoring.request import PlanError, SweepMode, SweepRequest, SweptVariable

MOST_POINTS: Final = 100_000
"""As many runs as a DAG may have nodes; checked before any is created."""


def points(sweep: SweepRequest) -> tuple[Mapping[str, str], ...]:
    """The values of every run by variable name, in run order.

    Zipped: the first values together, then the second ones. A product: all combinations, the last
    variable fastest. If ``sweep`` does not say which, equal lengths are zipped. Raises PlanError,
    with all lengths, if they do not allow that.
    """
    names = [variable.name for variable in sweep.variables]
    mode = resolve_mode(sweep)
    lists = [variable.values for variable in sweep.variables]
    rows = zip(*lists, strict=True) if mode is SweepMode.ZIP else product(*lists)
    return tuple(dict(zip(names, row, strict=True)) for row in rows)


def resolve_mode(sweep: SweepRequest) -> SweepMode:
    """Whether the values are zipped or multiplied. Raises PlanError as :func:`points`."""
    variables = sweep.variables
    where = f"{sweep.where}: " if sweep.where else ""
    if not variables:
        raise PlanError(f"{where}{sweep.group} sweeps nothing; name a variable and its values")
    for variable in variables:
        if not variable.values:
            raise PlanError(f"{_prefix(variable)}{variable.name} has no values; give some")
    if problem := duplicate_variable([variable.name for variable in variables]):
        raise PlanError(f"{where}{problem}")
    lengths = {len(variable.values) for variable in variables}
    product_runs = prod(len(variable.values) for variable in variables)
    if sweep.how is not SweepMode.PRODUCT and len(lengths) > 1:
        raise PlanError(f"{where}{_lengths_text(variables)}; {_remedy(sweep.how, product_runs)}")
    mode = sweep.how or SweepMode.ZIP
    runs = product_runs if mode is SweepMode.PRODUCT else max(lengths)
    if runs > MOST_POINTS:
        raise PlanError(
            f"{where}{_lengths_text(variables)}: that makes {runs} runs; {MOST_POINTS} are the most"
        )
    return mode


def duplicate_variable(names: Sequence[str]) -> str | None:
    """The message that a name occurs twice, ignoring case, or None."""
    counts = Counter(name.lower() for name in names)
    duplicates = list(dict.fromkeys(name for name in names if counts[name.lower()] > 1))
    if not duplicates:
        return None
    first, variant = (
        duplicates[0],
        next((name for name in duplicates[1:] if name.lower() == duplicates[0].lower()), ""),
    )
    suffix = f" (as {variant}, too: names know no upper and lower case)" if variant else ""
    return f"{first} is swept twice{suffix}; name each variable once"


def _remedy(mode: SweepMode | None, product_runs: int) -> str:
    if mode is SweepMode.ZIP:
        return (
            f"zip takes one of each, so give equally many; 'product' would make {product_runs} runs"
        )
    return (
        f"say 'product' for each with each ({product_runs} runs), or give equally many, to be "
        "taken one of each ('zip')"
    )


def _lengths_text(variables: tuple[SweptVariable, ...]) -> str:
    """The lengths as text: ``a has 10 values (x.dag:2) and b has 9 (x.dag:3)``."""
    parts: list[str] = []
    for variable in variables:
        count = len(variable.values)
        unit = f" value{'' if count == 1 else 's'}" if not parts else ""
        parts.append(
            f"{variable.name} has {count}{unit}{f' ({variable.where})' if variable.where else ''}"
        )
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _prefix(variable: SweptVariable) -> str:
    """The variable's position as a prefix."""
    return f"{variable.where}: " if variable.where else ""
