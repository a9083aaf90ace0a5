"""Swept variables → the combinations of their values, one for each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Final

from metlmon.authoring.request import PlanError, SweepMode, SweepRequest, SweptVariable

MOST_POINTS: Final = 100_000
"""As many runs as a DAG may have nodes; asked before the first of them is made."""


def points(sweep: SweepRequest) -> tuple[Mapping[str, str], ...]:
    """The values of every run by the variables' names, in the order of the runs.

    Zipped: the first values together, then the second ones. A product: each with each, the last
    variable fastest. Where ``sweep`` does not say which, equal lengths are zipped. Raises PlanError
    where the lengths do not allow it, with all of them.
    """
    names = [each.name for each in sweep.variables]
    how = put_together(sweep)
    lists = [each.values for each in sweep.variables]
    rows = zip(*lists, strict=True) if how is SweepMode.ZIP else product(*lists)
    return tuple(dict(zip(names, row, strict=True)) for row in rows)


def put_together(sweep: SweepRequest) -> SweepMode:
    """Whether the values are zipped or multiplied. Raises PlanError as :func:`points` does."""
    variables = sweep.variables
    where = f"{sweep.where}: " if sweep.where else ""
    if not variables:
        raise PlanError(f"{where}{sweep.group} sweeps nothing; name a variable and its values")
    for each in variables:
        if not each.values:
            raise PlanError(f"{_place(each)}{each.name} has no values; give some")
    if twice := twice_named([each.name for each in variables]):
        raise PlanError(f"{where}{twice}")
    lengths = {len(each.values) for each in variables}
    every = prod(len(each.values) for each in variables)
    if sweep.how is not SweepMode.PRODUCT and len(lengths) > 1:
        raise PlanError(f"{where}{_told(variables)}; {_remedy(sweep.how, every)}")
    how = sweep.how or SweepMode.ZIP
    runs = every if how is SweepMode.PRODUCT else max(lengths)
    if runs > MOST_POINTS:
        raise PlanError(
            f"{where}{_told(variables)}: that makes {runs} runs; {MOST_POINTS} are the most"
        )
    return how


def twice_named(names: Sequence[str]) -> str | None:
    """What is to be said of names of which two are one; None when all differ."""
    counts = Counter(name.lower() for name in names)
    written = list(dict.fromkeys(name for name in names if counts[name.lower()] > 1))
    if not written:
        return None
    first, other = written[0], next((n for n in written[1:] if n.lower() == written[0].lower()), "")
    too = f" (as {other}, too: names know no upper and lower case)" if other else ""
    return f"{first} is swept twice{too}; name each variable once"


def _remedy(how: SweepMode | None, every: int) -> str:
    if how is SweepMode.ZIP:
        return f"zip takes one of each, so give equally many; 'product' would make {every} runs"
    return (
        f"say 'product' for each with each ({every} runs), or give equally many, to be taken "
        "one of each ('zip')"
    )


def _told(variables: tuple[SweptVariable, ...]) -> str:
    """``a has 10 values (x.dag:2) and b has 9 (x.dag:3)``"""
    said: list[str] = []
    for each in variables:
        count = len(each.values)
        what = f" value{'' if count == 1 else 's'}" if not said else ""
        said.append(f"{each.name} has {count}{what}{f' ({each.where})' if each.where else ''}")
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"


def _place(swept: SweptVariable) -> str:
    return f"{swept.where}: " if swept.where else ""
