"""What a template lets its parameters be, said beside the field and not on an execute node."""

from __future__ import annotations

from pathlib import Path

import pytest

from metlmon.authoring import load_template, validate
from metlmon.authoring.request import PlanError, Request
from metlmon.authoring.templates import read_allowed


@pytest.mark.parametrize(
    ("said", "fits", "misfits"),
    [
        ("0..1", ["0", "1", "0.25", "1e-3"], ["1.01", "-0.1", "abc", "nan", "inf", ""]),
        ("0..", ["0", "12.5"], ["-1", "inf"]),
        ("..5", ["-3", "5"], ["6"]),
        ("whole 0..", ["0", "7"], ["1.5", "1e3", "-1"]),
        ("-2..-1", ["-1.5"], ["0"]),
        ("python numpy torch", ["numpy"], ["jax", "python numpy", ""]),
    ],
)
def test_values_fit_or_not(said: str, fits: list[str], misfits: list[str]) -> None:
    allowed = read_allowed(said)
    assert [value for value in fits if allowed.expectation(value) is not None] == []
    assert [value for value in misfits if allowed.expectation(value) is None] == []


def test_a_complaint_says_what_to_give(tmp_path: Path) -> None:
    request = Request("trainer", tmp_path / "new", values={"fail_rate": "7", "backend": "jax"})
    said = {each.field: each.text for each in validate(request) if each.fatal}
    assert said == {
        "values.fail_rate": "fail_rate is '7'; give a number from 0 to 1",
        "values.backend": "backend is 'jax'; give one of python, numpy, torch, auto",
    }


def test_a_default_is_allowed_whatever_the_range_says(tmp_path: Path) -> None:
    own = tmp_path / "own.sub"
    own.write_text("# parameter: capability = | of a GPU\n# allowed: capability 1..99\nqueue\n")
    request = Request(str(own), tmp_path / "new")
    assert [each.field for each in validate(request) if each.field.startswith("values")] == []


@pytest.mark.parametrize("line", ["# allowed: rate 0..1", "# parameter: rate = 1\n# allowed: rate"])
def test_what_says_nothing_is_an_error_with_its_line(tmp_path: Path, line: str) -> None:
    own = tmp_path / "own.sub"
    own.write_text(f"{line}\nqueue\n")
    with pytest.raises(PlanError, match=r"own\.sub:\d: "):
        load_template(str(own))
