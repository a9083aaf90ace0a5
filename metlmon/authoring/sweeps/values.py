"""One value line of a sweep: a range in decimal arithmetic, or a list with commas.

A loop in floating point gives ``0.09999999999999999``, and 9 or 10 values by luck. Here value i of
``A to B by S`` is A + i·S exactly, printed with as many decimals as A and S have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Context, Decimal
from typing import Final

from metlmon.authoring.request import PlanError
from metlmon.dagman.lexer import shown
from metlmon.frozen import frozen

MOST_VALUES: Final = 100_000
"""As many as a DAG may have nodes: a slip in a step must not fill the memory."""

LONGEST_LINE: Final = 1 << 20
"""Characters of a value line: a list of :data:`MOST_VALUES` numbers."""

LONGEST_VALUE: Final = 4096
LONGEST_NUMBER: Final = 40
LARGEST_EXPONENT: Final = 40
"""Beyond these nothing that is trained has a parameter, and ``1e999999999`` would be printed."""

#: More digits than a sum of such numbers can have, so that nothing is ever rounded.
_EXACT: Final = Context(prec=4 * (LONGEST_NUMBER + LARGEST_EXPONENT))

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_ITEM: Final = re.compile(r"""[ \t]*+(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^,"']*+))""")
_LABEL: Final = re.compile(r"[ \t]++as[ \t]++([A-Za-z0-9_.-]++)", re.IGNORECASE)
_NEXT: Final = re.compile(r"[ \t]*+(,|\Z)")
_ESCAPED: Final = re.compile(r"\\(.)")

RANGE: Final = "write a range as 'A to B by S' with three numbers, such as 0.01 to 0.1 by 0.01"
_MEANT: Final = "put the value into quotes if the words are meant"


@frozen
class Value:
    """One value as it is printed, and what it is called beside it (``0.001 as low``), if it is
    called anything."""

    text: str
    label: str | None = None


def values(text: str, where: str) -> tuple[str, ...]:
    """The values of one line: ``0.01 to 0.1 by 0.01``, or ``adam, sgd, "a, b"``. ``where``: file
    and line (or the option) that says it. Raises PlanError, also for labels: only the template of
    a sweep file has places for them."""
    found = labelled_values(text, where)
    if label := next((value.label for value in found if value.label is not None), None):
        raise PlanError(
            f"{where}: 'as {label}' is a label, which only the template of a sweep file can use "
            f"({{a_label}}); take it out, or {_MEANT}"
        )
    return tuple(value.text for value in found)


def labelled_values(text: str, where: str) -> tuple[Value, ...]:
    """As :func:`values`, each with its label."""
    text = text.strip()
    if len(text) > LONGEST_LINE:
        raise PlanError(f"{where}: a value line of {len(text)} characters; shorten the list")
    words = [] if '"' in text or "'" in text else text.split(None, 5)
    if [word.lower() for word in words[1:5:2]] == ["to", "by"] and len(words) == 5:
        return tuple(Value(each) for each in _range(words[0], words[2], words[4], where))
    if not text:
        raise PlanError(f"{where}: there are no values; list some, or {RANGE}")
    return tuple(_items(text, where))


# --- ranges -----------------------------------------------------------------------------------


def _range(first: str, last: str, by: str, where: str) -> Iterator[str]:
    start, end, step = (_number(word, where) for word in (first, last, by))
    said = f"{where}: {first} to {last} by {by}"
    if step == 0:
        raise PlanError(f"{said} never gets anywhere; give a step other than 0")
    if (end - start) * step < 0:
        direction = "down" if step > 0 else "up"
        raise PlanError(f"{said} goes the wrong way; the values go {direction}, so change its sign")
    steps = int(_EXACT.divide_int(_EXACT.subtract(end, start), step))
    if steps >= MOST_VALUES:
        raise PlanError(f"{said} makes {steps + 1} values; {MOST_VALUES} are the most")
    for index in range(steps + 1):
        value = _EXACT.add(start, _EXACT.multiply(step, Decimal(index)))
        yield format(value or abs(value), "f")  # -0.0 is 0.0.


def _number(word: str, where: str) -> Decimal:
    if len(word) > LONGEST_NUMBER or not _NUMBER.fullmatch(word):
        raise PlanError(f"{where}: {shown(word)!r} is no number; {RANGE}, or {_MEANT}")
    number = Decimal(word)
    if (number and abs(number.adjusted()) > LARGEST_EXPONENT) or _decimals(number) > LONGEST_NUMBER:
        raise PlanError(f"{where}: {word} is beyond what a range can count in; list the values")
    return number


def _decimals(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)  # no infinity is spelled in digits
    return abs(exponent)


# --- lists ------------------------------------------------------------------------------------


def _items(text: str, where: str) -> Iterator[Value]:
    at = count = 0
    while True:
        match = _ITEM.match(text, at)
        assert match is not None  # the last of its branches takes nothing, too
        at = match.end()
        label = None
        if match[3] is None:
            quoted = match[1] if match[1] is not None else match[2]
            value = _ESCAPED.sub(r"\1", quoted)
            if named := _LABEL.match(text, at):
                label, at = named[1], named.end()
        else:
            value, label = _bare(match[3].strip(), where)
        behind = _NEXT.match(text, at)
        if behind is None:
            raise PlanError(
                f"{where}: value {count + 1} has quotes that do not go around all of it; quote the "
                'whole value, as "a, b", and put commas between values'
            )
        yield _checked(value, label, count, where)
        count += 1
        if count > MOST_VALUES:
            raise PlanError(f"{where}: more than {MOST_VALUES} values; make several sweeps")
        if not behind[1]:
            return
        at = behind.end()


def _bare(item: str, where: str) -> tuple[str, str | None]:
    words = item.split()
    lowered = [word.lower() for word in words]
    if "to" in lowered[1:-1] and (_NUMBER.fullmatch(words[0]) or "by" in lowered):
        raise PlanError(f"{where}: {shown(item)!r} is no list; {RANGE}, or {_MEANT}")
    if len(words) > 2 and lowered[-2] == "as":
        label = _LABEL.fullmatch(f" as {words[-1]}")
        if label is None:
            raise PlanError(
                f"{where}: {shown(words[-1])!r} cannot be a label; use letters, digits, '.', '_' "
                f"and '-' behind 'as', or {_MEANT}"
            )
        return item[: item.rindex(words[-2], 0, -len(words[-1]))].rstrip(), label[1]
    return item, None


def _checked(value: str, label: str | None, index: int, where: str) -> Value:
    what = f"{where}: value {index + 1}"
    if not value:
        raise PlanError(f"{what} is empty, which newer DAGMans refuse; give one, or take it out")
    if not value.isprintable():
        raise PlanError(f"{what} holds a control character; take it out")
    if len(value) > LONGEST_VALUE:
        raise PlanError(f"{what} has {len(value)} characters; use {LONGEST_VALUE} at most")
    return Value(value, label)
