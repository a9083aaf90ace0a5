"""The values of swept variables, and their combinations.

A value line is a range in decimal arithmetic, or a list. Floating point would give
``0.09999999999999999``, and 9 or 10 values unpredictably. Here value i of ``A to B by S`` is
exactly A + i·S, printed with as many decimals as A and S have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Context, Decimal
from itertools import product
from math import prod
from typing import Final, NamedTuple

from metlmon.authoring.request import (
    LONGEST_VALUE,
    MAX_VALUES,
    PlanError,
    SweepMode,
    SweepRequest,
    SweptVariable,
)
from metlmon.dagman.lexer import shown
from metlmon.errors import prefix

LONGEST_LINE: Final = 1 << 20
LONGEST_NUMBER: Final = 40
"""Maximum characters, and exponent, of a number in a range; ``1e999999999`` is printed in full."""

#: More digits than a sum of such numbers has, so that results are exact.
_EXACT: Final = Context(prec=8 * LONGEST_NUMBER)

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_ITEM: Final = re.compile(r"""[ \t]*+(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^,"']*+))""")
_LABEL: Final = re.compile(r"[ \t]++as[ \t]++([A-Za-z0-9_.-]++)", re.IGNORECASE)
_NEXT: Final = re.compile(r"[ \t]*+(,|\Z)")

RANGE: Final = "write a range as 'A to B by S' with three numbers, such as 0.01 to 0.1 by 0.01"
_QUOTE_HINT: Final = "put the value into quotes if the words are meant"


class Value(NamedTuple):
    """One value as text, and its label (``0.001 as low``), if any."""

    text: str
    label: str | None = None


def values(text: str, where: str) -> tuple[str, ...]:
    """The values of one line: a range by steps, or a list. Raises PlanError."""
    labelled = labelled_values(text, where)
    if label := next((value.label for value in labelled if value.label is not None), None):
        raise PlanError(
            f"{where}: 'as {label}' is a label, which only the template of a sweep file can use "
            f"({{a_label}}); take it out, or {_QUOTE_HINT}"
        )
    return tuple(value.text for value in labelled)


def labelled_values(text: str, where: str) -> tuple[Value, ...]:
    """As :func:`values`, with labels."""
    text = text.strip()
    if len(text) > LONGEST_LINE:
        raise PlanError(f"{where}: a value line of {len(text)} characters; shorten the list")
    words = [] if '"' in text or "'" in text else text.split(None, 5)
    if [word.lower() for word in words[1:5:2]] == ["to", "by"] and len(words) == 5:
        return tuple(map(Value, _range(words[0], words[2], words[4], where)))
    if not text:
        raise PlanError(f"{where}: there are no values; list some, or {RANGE}")
    return tuple(_items(text, where))


# --- ranges -----------------------------------------------------------------------------------


def _range(first: str, last: str, increment: str, where: str) -> Iterator[str]:
    start, end, step = (_number(word, where) for word in (first, last, increment))
    prefix = f"{where}: {first} to {last} by {increment}"
    if step == 0:
        raise PlanError(f"{prefix} never gets anywhere; give a step other than 0")
    if (end - start) * step < 0:
        way = "down" if step > 0 else "up"
        raise PlanError(f"{prefix} goes the wrong way; the values go {way}, so change its sign")
    steps = int(_EXACT.divide_int(_EXACT.subtract(end, start), step))
    if steps >= MAX_VALUES:
        raise PlanError(f"{prefix} makes {steps + 1} values; {MAX_VALUES} are the most")
    for index in range(steps + 1):
        value = _EXACT.add(start, _EXACT.multiply(step, Decimal(index)))
        yield format(value or abs(value), "f")  # -0.0 is 0.0.


def _number(word: str, where: str) -> Decimal:
    if len(word) > LONGEST_NUMBER or not _NUMBER.fullmatch(word):
        raise PlanError(f"{where}: {shown(word)!r} is not a number; {RANGE}, or {_QUOTE_HINT}")
    number = Decimal(word)
    exponents = (number.adjusted() if number else 0, int(number.as_tuple().exponent))
    if max(map(abs, exponents)) > LONGEST_NUMBER:
        raise PlanError(f"{where}: {word} is beyond what a range can count in; list the values")
    return number


# --- lists ------------------------------------------------------------------------------------


def _items(text: str, where: str) -> Iterator[Value]:
    position = 0
    for number in range(1, MAX_VALUES + 1):
        item = _ITEM.match(text, position)
        assert item is not None  # the last alternative also matches nothing
        position = item.end()
        if item[3] is not None:
            value, label = _unquoted_item(item[3].strip(), where)
        else:
            quoted = item[1] if item[1] is not None else item[2]
            value, label = re.sub(r"\\(.)", r"\1", quoted), None
            if match := _LABEL.match(text, position):
                label, position = match[1], match.end()
        separator = _NEXT.match(text, position)
        if separator is None:
            raise PlanError(
                f"{where}: value {number} has quotes that do not go around all of it; quote the "
                'whole value, as "a, b", and put commas between values'
            )
        if problem := _value_problem(value):
            raise PlanError(f"{where}: value {number} {problem}")
        yield Value(value, label)
        if not separator[1]:
            return
        position = separator.end()
    raise PlanError(f"{where}: more than {MAX_VALUES} values; make several sweeps")


def _unquoted_item(item: str, where: str) -> tuple[str, str | None]:
    """The value and label of an unquoted item. Raises PlanError."""
    words = item.split()
    lowered = [word.lower() for word in words]
    if "to" in lowered[1:-1] and (_NUMBER.fullmatch(words[0]) or "by" in lowered):
        raise PlanError(f"{where}: {shown(item)!r} is not a list; {RANGE}, or {_QUOTE_HINT}")
    if len(words) < 3 or lowered[-2] != "as":
        return item, None
    label = _LABEL.fullmatch(f" as {words[-1]}")
    if label is None:
        raise PlanError(
            f"{where}: {shown(words[-1])!r} cannot be a label; use letters, digits, '.', '_' "
            f"and '-' behind 'as', or {_QUOTE_HINT}"
        )
    return item[: item.rindex(words[-2], 0, -len(words[-1]))].rstrip(), label[1]


def _value_problem(value: str) -> str | None:
    if not value:
        return "is empty, which newer DAGMans refuse; give one, or take it out"
    if not value.isprintable():
        return "holds a control character; take it out"
    if len(value) > LONGEST_VALUE:
        return f"has {len(value)} characters; use {LONGEST_VALUE} at most"
    return None


# --- points ----------------------------------------------------------------------------------


def points(sweep: SweepRequest) -> tuple[Mapping[str, str], ...]:
    """The values of every run by variable name, in run order.

    Zipped: the first values together, then the second ones. A product: all combinations, the last
    variable fastest. If ``sweep`` does not say which, equal lengths are zipped. Raises PlanError,
    with all lengths, if they do not allow that.
    """
    variables = sweep.variables
    where = prefix(sweep.where)
    if not variables:
        raise PlanError(f"{where}{sweep.group} sweeps nothing; name a variable and its values")
    for variable in variables:
        if not variable.values:
            raise PlanError(f"{prefix(variable.where)}{variable.name} has no values; give some")
    if problem := duplicate_variable([variable.name for variable in variables]):
        raise PlanError(f"{where}{problem}")
    lists = [variable.values for variable in variables]
    lengths = {len(items) for items in lists}
    combinations = prod(map(len, lists))
    if sweep.mode is not SweepMode.PRODUCT and len(lengths) > 1:
        remedy = (
            f"zip takes one of each, so give equally many; 'product' would make {combinations} runs"
            if sweep.mode is SweepMode.ZIP
            else f"say 'product' for each with each ({combinations} runs), or give equally many, "
            "to be taken one of each ('zip')"
        )
        raise PlanError(f"{where}{_lengths_text(variables)}; {remedy}")
    zipped = sweep.mode is not SweepMode.PRODUCT
    runs = max(lengths) if zipped else combinations
    if runs > MAX_VALUES:
        text = f"{_lengths_text(variables)}: that makes {runs} runs; {MAX_VALUES} are the most"
        raise PlanError(f"{where}{text}")
    names = [variable.name for variable in variables]
    rows = zip(*lists, strict=True) if zipped else product(*lists)
    return tuple(dict(zip(names, row, strict=True)) for row in rows)


def duplicate_variable(names: Sequence[str]) -> str | None:
    """The message that a name occurs twice, ignoring case, or None."""
    for index, name in enumerate(names):
        others = [other for other in names[index + 1 :] if other.lower() == name.lower()]
        if others:
            variant = next((other for other in others if other != name), "")
            suffix = f" (as {variant}, too: names know no upper and lower case)" if variant else ""
            return f"{name} is swept twice{suffix}; name each variable once"
    return None


def _lengths_text(variables: tuple[SweptVariable, ...]) -> str:
    """The lengths as text: ``a has 10 values (x.dag:2) and b has 9 (x.dag:3)``."""
    parts: list[str] = []
    for variable in variables:
        number = len(variable.values)
        unit = "" if parts else " value" if number == 1 else " values"
        where = f" ({variable.where})" if variable.where else ""
        parts.append(f"{variable.name} has {number}{unit}{where}")
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
