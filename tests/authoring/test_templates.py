"""Templates: their headers, placeholders and errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from metlmon.authoring.plan import make_plan
from metlmon.authoring.request import Parameter, PlanError, Request
from metlmon.authoring.templates import bundled_templates, fill, load_template, read_allowed
from metlmon.authoring.validate import validate
from tests.support.sample_requests import NAP_SH, a_request, nap


def own(tmp_path: Path, text: str):
    return load_template(nap(tmp_path, text))


def test_header_is_read_and_removed(tmp_path: Path) -> None:
    text = (
        "# a licence, kept\n"
        "# template: Nap\n"
        "# about: First half,\n"
        "#about:  and the other.\n"
        "# parameter: rate = 0.1 || 2 | a rate | of learning\n"
        "# parameter: empty = | may be empty\n"
        "# parameter: data | the data\n"
        "# ship: nap.sh executable\n"
        "executable = nap.sh\n"
        "# about: no header here\n"
    )
    template = own(tmp_path, text)
    assert (template.name, template.title) == ("nap", "Nap")
    assert template.about == "First half, and the other."
    assert template.parameters == (
        Parameter("rate", "0.1 || 2", "a rate | of learning"),
        Parameter("empty", "", "may be empty"),
        Parameter("data", "", "the data", required=True),
    )
    assert template.shipped_files == (("nap.sh", NAP_SH, True),)
    assert template.text == "# a licence, kept\nexecutable = nap.sh\n# about: no header here\n"
    assert template.path == tmp_path / "nap.sub"


def test_submit_description_without_header_is_a_template(tmp_path: Path) -> None:
    template = own(tmp_path, "executable = /bin/true\r\nqueue\r\n")
    assert (template.title, template.parameters, template.shipped_files) == ("nap", (), ())
    assert template.text == "executable = /bin/true\nqueue\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("# parameter: 7up = 1\n", "nap.sub:1: write '# parameter:"),
        ("#\n# parameter: gpus = 1\n", "nap.sub:2: {gpus} every template has already"),
        ("# parameter: a = 1\n# parameter: a = 2\n", "nap.sub:2: {a} is declared above already"),
        ("# ship: ../nap.sh\n", "nap.sub:1: write '# ship:"),
        ("# ship: .bashrc\n", "nap.sub:1: write '# ship:"),
        ("# ship: gone.py\n", "nap.sub:1: gone.py is not beside the template; put it there"),
        ("# ship: nap.sh\n# ship: nap.sh\n", "nap.sub:2: nap.sh is shipped twice"),
        ("# allowed: rate 0..1\n", "nap.sub:1: "),
        ("# parameter: rate = 1\n# allowed: rate\n", "nap.sub:2: "),
        ("# parameter: rate = 1\n# allowed: rate 3..1\n", "nap.sub:2: write '# allowed: "),
    ],
)
def test_bad_header_is_reported_with_its_line(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(PlanError, match=re.escape(sentence)):
        own(tmp_path, text)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.sub"
    path.write_bytes(b"a = 1\nb = \xff\n")
    with pytest.raises(PlanError, match=r"x\.sub:2: not UTF-8"):
        load_template(str(path))
    path.write_bytes(b"a = 1\n\0\n")
    with pytest.raises(PlanError, match=r"x\.sub:2: a control character"):
        load_template(str(path))
    with pytest.raises(PlanError, match="there is no such file"):
        load_template(str(tmp_path))
    with pytest.raises(PlanError, match="there is no such file"):
        load_template("no\0thing")


# --- filling in -----------------------------------------------------------------------------

VALUES = {"a": "1", "none": "", "zero": "0"}


@pytest.mark.parametrize(
    ("line", "filled"),
    [
        ("x = {a}{a}", "x = 11"),
        ("x = {{a}}", "x = {a}"),
        ("x = {{unknown}}", "x = {unknown}"),
        ('x = { "a", {a} }', 'x = { "a", 1 }'),
        ("x = $(a) $INT(b) $(c:{a})", "x = $(a) $INT(b) $(c:1)"),
        ("# {unknown}", "# {unknown}"),
        ("?x = {a}", "x = 1"),
        ("  ?x = {a}", "  x = 1"),
        ("?x = {none}", None),
        ("?x = {zero}", None),
        ("?x = {a} {zero}", None),
        ("x = {none}", "x = "),
        ("?x = y?", "x = y?"),
    ],
)
def test_placeholders_are_filled_in(tmp_path: Path, line: str, filled: str | None) -> None:
    template = own(tmp_path, f"first = 1\n{line}\nlast = 1\n")
    expected = ["first = 1", *([] if filled is None else [filled]), "last = 1", ""]
    assert fill(template, VALUES) == "\n".join(expected)


def test_values_are_not_expanded_again(tmp_path: Path) -> None:
    template = own(tmp_path, "x = {a} {b}\n")
    assert fill(template, {"a": "{b}", "b": r"\1 {a}"}) == "x = {b} \\1 {a}\n"


def test_unknown_placeholder_is_reported_with_its_line(tmp_path: Path) -> None:
    request = a_request(tmp_path, text="# template: x\n# {sed}\nlog = {name}.log\nx = {sed}\n")
    with pytest.raises(PlanError) as caught:
        make_plan(request)
    message = str(caught.value)
    assert "nap.sub:4: nothing is called {sed}; there are {epochs}, {gpu_memory_mb}," in message


# --- bundled templates ----------------------------------------------------------------------


def test_bundled_templates_are_complete() -> None:
    known = bundled_templates()
    assert [each.name for each in known[:2]] == ["trainer", "metl"]
    for each in known:
        assert load_template(each.name) == each
        assert each.path is None
        assert each.about


def test_unknown_template_is_refused() -> None:
    with pytest.raises(PlanError, match=r"choose one of .*metl, .*trainer, or give the path"):
        load_template("trianer")


# --- restrictions of parameters -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output_of", "fits", "misfits"),
    [
        ("0..1", ["0", "1", "0.25", "1e-3"], ["1.01", "-0.1", "abc", "nan", "inf", ""]),
        ("0..", ["0", "12.5"], ["-1", "inf"]),
        ("..5", ["-3", "5"], ["6"]),
        ("whole 0..", ["0", "7"], ["1.5", "1e3", "-1"]),
        ("-2..-1", ["-1.5"], ["0"]),
        ("python numpy torch", ["numpy"], ["jax", "python numpy", ""]),
    ],
)
def test_values_are_checked(output_of: str, fits: list[str], misfits: list[str]) -> None:
    allowed = read_allowed(output_of)
    assert [value for value in fits if allowed.expectation(value) is not None] == []
    assert [value for value in misfits if allowed.expectation(value) is None] == []


def test_default_is_allowed_outside_the_range(tmp_path: Path) -> None:
    text = "# parameter: capability = | of a GPU\n# allowed: capability 1..99\nqueue\n"
    request = Request(nap(tmp_path, text), tmp_path / "new")
    assert not [each for each in validate(request).problems if each.field.startswith("values")]
