"""Values of a line, and combinations of several lines."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metlmon.authoring.request import MAX_VALUES, PlanError, SweepMode, SweepRequest, SweptVariable
from metlmon.authoring.sweeps.values import labelled_values, points, values


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("0.01 to 0.1 by 0.01", "0.01 0.02 0.03 0.04 0.05 0.06 0.07 0.08 0.09 0.10"),
        ("0.5 to 5 by 0.5", "0.5 1.0 1.5 2.0 2.5 3.0 3.5 4.0 4.5 5.0"),
        ("1 TO 3 By 1", "1 2 3"),
        ("5 to 1 by -2", "5 3 1"),
        ("-0.1 to 0.1 by 0.1", "-0.1 0.0 0.1"),
        ("-0.0 to -0.2 by -0.1", "0.0 -0.1 -0.2"),
        ("1 to 2 by 0.4", "1.0 1.4 1.8"),
        ("1 to 2.5 by 1", "1 2"),
        ("7 to 7 by 3", "7"),
        ("1e-8 to 3e-8 by 1e-8", "0.00000001 0.00000002 0.00000003"),
        ("1e3 to 3e3 by 1e3", "1000 2000 3000"),
        (".5 to 1. by .5", "0.5 1.0"),
    ],
)
def test_ranges_are_counted_in_decimals(line: str, expected: str) -> None:
    assert " ".join(values(line, "w.dag:2")) == expected


def literal(number: int, places: int) -> str:
    """``number`` / 10 ** ``places`` in decimal notation."""
    sign = "-" if number < 0 else ""
    whole, rest = divmod(abs(number), 10**places)
    return f"{sign}{whole}.{rest:0{places}}" if places else f"{sign}{whole}"


decimals = st.integers(0, 4)


@given(st.integers(-5000, 5000), st.integers(1, 300), st.integers(0, 60), decimals, st.booleans())
def test_ranges_agree_with_exact_fractions(
    first: int, step: int, steps: int, places: int, down: bool
) -> None:
    unit = Fraction(1, 10**places)
    by = -step if down else step
    last = first + by * steps
    begin, end, each = (literal(number, places) for number in (first, last, by))
    printed = values(f"{begin} to {end} by {each}", "w.dag:2")
    assert [Fraction(value) for value in printed] == [
        (first + by * index) * unit for index in range(steps + 1)
    ]
    assert all(len(value.partition(".")[2]) == places for value in printed)
    # An end between two steps adds no value and removes none.
    beyond = literal(10 * last + (-5 if down else 5), places + 1)
    assert values(f"{begin} to {beyond} by {each}", "w.dag:2") == printed


def test_lists_may_have_words_numbers_and_quoted_commas() -> None:
    found = values('adam, sgd,"a, b" , \'it"s\', "\\"q\\""', "w.dag:2")
    assert found == ("adam", "sgd", "a, b", 'it"s', '"q"')
    assert values("1", "w.dag:2") == ("1",)
    assert values("big model, small one", "w.dag:2") == ("big model", "small one")
    assert values('"1 to 5 by 1"', "w.dag:2") == ("1 to 5 by 1",)


def test_as_gives_a_label() -> None:
    found = labelled_values('0.001 as low, "a, b" AS both, 0.1, such as this', "w.dag:2")
    expected = [("0.001", "low"), ("a, b", "both"), ("0.1", None), ("such", "this")]
    assert [(each.text, each.label) for each in found] == expected


@pytest.mark.parametrize(
    ("line", "output_of"),
    [
        ("1 to 5 by 0", "w.dag:2: 1 to 5 by 0 never gets anywhere; give a step other than 0"),
        ("1 to 5 by -1", "goes the wrong way"),
        ("5 to 1 by 1", "goes the wrong way"),
        ("1 to 5", "write a range as 'A to B by S'"),
        ("1 to 5 by 1, 7", "write a range as 'A to B by S'"),
        ("1 to five by 1", "w.dag:2: 'five' is not a number"),
        ("0 to 1 by 0.00001", f"makes 100001 values; {MAX_VALUES} are the most"),
        ("0 to 1 by 1e-39", "are the most"),
        ("1e99 to 1e100 by 1e99", "beyond what a range can count in"),
        ("a,,b", "w.dag:2: value 2 is empty"),
        ('a, ""', "value 2 is empty"),
        ("", "there are no values"),
        ("it's, b", "quote the whole value"),
        ('"a" b, c', "quote the whole value"),
        ("a as /, b", "cannot be a label"),
        ("0.1 as low, 0.2 as high", "w.dag:2: 'as low' is a label, which only the template of a"),
        ("a\u2028b", "control character"),
        ("x" * 5000, "use 4096 at most"),
    ],
)
def test_invalid_values_are_reported_with_their_place(line: str, output_of: str) -> None:
    with pytest.raises(PlanError) as error:
        values(line, "w.dag:2")
    assert output_of in str(error.value)
    assert str(error.value).startswith("w.dag:2: ")


def sweep(how: SweepMode | None, *lengths: int) -> SweepRequest:
    variables = tuple(
        SweptVariable(name, tuple(f"{name}{index}" for index in range(length)), f"w.dag:{line}")
        for line, (name, length) in enumerate(zip("abc", lengths, strict=False), start=2)
    )
    return SweepRequest("flow", variables, how, "w.dag:1")


def test_zip_combines_values_by_position() -> None:
    for how in (SweepMode.ZIP, None):
        assert [*points(sweep(how, 2, 2))] == [{"a": "a0", "b": "b0"}, {"a": "a1", "b": "b1"}]
    assert len(points(sweep(None, 3))) == 3
