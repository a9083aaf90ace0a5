"""A submit description, a description of an ensemble or a sweep file that somebody else wrote:
what would be written is shown before it is, with nothing in it that a terminal obeys."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.safety.corpus import NAMES, fields_in, forbidden, one_line, payload
from tests.support.command_server import Ran


@pytest.mark.parametrize("attacks", [NAMES[at::4] for at in range(4)], ids=" ".join)
def test_what_would_be_written_is_visible(
    attacks: tuple[str, ...], tmp_path: Path, metlmon: Callable[..., Ran]
) -> None:
    lines = b"executable = /bin/true\noutput = $(run_uuid).out\nlog = x.log\n"
    for name in attacks:
        result = one_line(payload("template", NAMES.index(name), False)).replace(b"\0", b"")
        # What is no UTF-8 is refused before.
        result = result.decode("utf-8", "replace").encode()
        lines += b"# a  comment\twith " + result + b"\n"
    template = tmp_path / "somebody.sub"
    template.write_bytes(lines + b"arguments = --x $(epoch)\nqueue\n")
    ran = metlmon("submit", "--dry-run", "--template", template, "--name", "x", "new")
    assert ran.returncode == 0, ran.stderr
    shown = ran.stdout.decode("utf-8")
    assert "# a  comment\twith template" in shown, "blanks are as they are"
    assert forbidden(shown.replace("\t", " ")) == []
    assert "template" in fields_in(shown)
    ran = metlmon("submit", "--dry-run", "--json", "--template", template, "--name", "x", "new")
    assert ran.stdout.isascii()
    assert json.loads(ran.stdout)["runs"]


DESCRIPTION = b"""\
name = "x"
note = '%b'
[runs]
'%b' = 1
"""

SWEEP = b"""\
a = %b
GEN SUBDAG %b template.dag
JOB %b x.sub
%b
"""


@pytest.mark.parametrize("name", NAMES)
def test_what_is_wrong_with_a_file_is_reported_visibly(
    name: str, tmp_path: Path, metlmon: Callable[..., Ran]
) -> None:
    result = one_line(payload("described", NAMES.index(name), False)).replace(b"'", b"_")
    options = ("--dry-run", "--json", "--picture", "--explain")
    for at, (file, text) in enumerate((("x.toml", DESCRIPTION), ("x.dag", SWEEP))):
        (tmp_path / file).write_bytes(text.replace(b"%b", result))
        # Every attack in both files, with one of the options in turn: they share the reader.
        ran = metlmon("new", file, "made", options[(NAMES.index(name) + at) % len(options)])
        output = (ran.stdout + ran.stderr).decode("utf-8")
        assert ran.returncode == 2, output
        assert file in output
        assert forbidden(output.replace("\t", " ")) == []
