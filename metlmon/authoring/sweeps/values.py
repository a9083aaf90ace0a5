"""The values of swept variables, and their combinations.

A value line is a range in decimal arithmetic, or a list.

Floating point would give ``0.09999999999999999``, and 9 or 10 values at random. Here value i of
``A to B by S`` is exactly A + i·S, printed with as many decimals as A and S have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Context, Decimal
from itertools import product
from math import prod
from typing import Final

from metlmon.authoring.request import PlanError, SweepMode, SweepRequest, SweptVariable
from metlmon.dagman.lexer import shown
from metlmon.frozen import frozen

MOST_VALUES: Final = 100_000
"""As many as a DAG may have nodes: a wrong step must not exhaust the memory."""

MOST_POINTS: Final = 100_000
"""As many runs as a DAG may have nodes; checked before any is created."""

LONGEST_LINE: Final = 1 << 20
"""Characters of a value line: a list of :data:`MOST_VALUES` numbers."""

LONGEST_VALUE: Final = 4096
LONGEST_NUMBER: Final = 40
LARGEST_EXPONENT: Final = 40
"""No real parameter exceeds these; ``1e999999999`` would be printed in full."""

#: More digits than a sum of such numbers has, so that results are exact.
_EXACT: Final = Context(prec=4 * (LONGEST_NUMBER + LARGEST_EXPONENT))

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_ITEM: Final = re.compile(r"""[ \t]*+(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^,"']*+))""")
_LABEL: Final = re.compile(r"[ \t]++as[ \t]++([A-Za-z0-9_.-]++)", re.IGNORECASE)
_NEXT: Final = re.compile(r"[ \t]*+(,|\Z)")
_ESCAPED: Final = re.compile(r"\\(.)")

RANGE: Final = "write a range as 'A to B by S' with three numbers, such as 0.01 to 0.1 by 0.01"
_QUOTE_HINT: Final = "put the value into quotes if the words are meant"


@frozen
class Value:
    """One value as text, and its label (``0.001 as low``), if any."""

    text: str
    label: str | None = None


def values(text: str, where: str) -> tuple[str, ...]:
    """The values of one line: ``0.01 to 0.1 by 0.01``, or ``adam, sgd, "a, b"``.

    ``where``: file and line, or the option. Raises PlanError, also for labels, which only the
    template of a sweep file can use.
    """
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
        return tuple(Value(value) for value in _range(words[0], words[2], words[4], where))
    if not text:
        raise PlanError(f"{where}: there are no values; list some, or {RANGE}")
    return tuple(_items(text, where))


# --- ranges -----------------------------------------------------------------------------------


def _range(first: str, last: str, increment: str, where: str) -> Iterator[str]:
    """The values of a range. Raises PlanError."""
    start, end, step = (_number(word, where) for word in (first, last, increment))
    prefix = f"{where}: {first} to {last} by {increment}"
    if step == 0:
        raise PlanError(f"{prefix} never gets anywhere; give a step other than 0")
    if (end - start) * step < 0:
        direction = "down" if step > 0 else "up"
        raise PlanError(
            f"{prefix} goes the wrong way; the values go {direction}, so change its sign"
        )
    steps = int(_EXACT.divide_int(_EXACT.subtract(end, start), step))
    if steps >= MOST_VALUES:
        raise PlanError(f"{prefix} makes {steps + 1} values; {MOST_VALUES} are the most")
    for index in range(steps + 1):
        value = _EXACT.add(start, _EXACT.multiply(step, Decimal(index)))
        yield format(value or abs(value), "f")  # -0.0 is 0.0.


def _number(word: str, where: str) -> Decimal:
    if len(word) > LONGEST_NUMBER or not _NUMBER.fullmatch(word):
        raise PlanError(f"{where}: {shown(word)!r} is no number; {RANGE}, or {_QUOTE_HINT}")
    number = Decimal(word)
    if (number and abs(number.adjusted()) > LARGEST_EXPONENT) or _decimals(number) > LONGEST_NUMBER:
        raise PlanError(f"{where}: {word} is beyond what a range can count in; list the values")
    return number


def _decimals(number: Decimal) -> int:
    """The absolute exponent of a number."""
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)  # the pattern excludes infinity
    return abs(exponent)


# --- lists ------------------------------------------------------------------------------------


def _items(text: str, where: str) -> Iterator[Value]:
    """The items of a list. Raises PlanError."""
    position = count = 0
    while True:
        match = _ITEM.match(text, position)
        assert match is not None  # the last alternative also matches nothing
        position = match.end()
        label = None
        if match[3] is None:
            quoted = match[1] if match[1] is not None else match[2]
            value = _ESCAPED.sub(r"\1", quoted)
            if label_match := _LABEL.match(text, position):
                label, position = label_match[1], label_match.end()
        else:
            value, label = _unquoted_item(match[3].strip(), where)
        separator = _NEXT.match(text, position)
        if separator is None:
            raise PlanError(
                f"{where}: value {count + 1} has quotes that do not go around all of it; quote the "
                'whole value, as "a, b", and put commas between values'
            )
        yield _check_value(value, label, count, where)
        count += 1
        if count > MOST_VALUES:
            raise PlanError(f"{where}: more than {MOST_VALUES} values; make several sweeps")
        if not separator[1]:
            return
        position = separator.end()


def _unquoted_item(item: str, where: str) -> tuple[str, str | None]:
    """The value and label of an unquoted item. Raises PlanError."""
    words = item.split()
    lowered = [word.lower() for word in words]
    if "to" in lowered[1:-1] and (_NUMBER.fullmatch(words[0]) or "by" in lowered):
        raise PlanError(f"{where}: {shown(item)!r} is no list; {RANGE}, or {_QUOTE_HINT}")
    if len(words) > 2 and lowered[-2] == "as":
        label = _LABEL.fullmatch(f" as {words[-1]}")
        if label is None:
            raise PlanError(
                f"{where}: {shown(words[-1])!r} cannot be a label; use letters, digits, '.', '_' "
                f"and '-' behind 'as', or {_QUOTE_HINT}"
            )
        return item[: item.rindex(words[-2], 0, -len(words[-1]))].rstrip(), label[1]
    return item, None


def _check_value(value: str, label: str | None, index: int, where: str) -> Value:
    """The value, if it is valid. Raises PlanError."""
    prefix = f"{where}: value {index + 1}"
    if not value:
        raise PlanError(f"{prefix} is empty, which newer DAGMans refuse; give one, or take it out")
    if not value.isprintable():
        raise PlanError(f"{prefix} holds a control character; take it out")
    if len(value) > LONGEST_VALUE:
        raise PlanError(f"{prefix} has {len(value)} characters; use {LONGEST_VALUE} at most")
    return Value(value, label)


# --- points ----------------------------------------------------------------------------------


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
    if sweep.mode is not SweepMode.PRODUCT and len(lengths) > 1:
        raise PlanError(f"{where}{_lengths_text(variables)}; {_remedy(sweep.mode, product_runs)}")
    mode = sweep.mode or SweepMode.ZIP
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
