"""A submit description that somebody else wrote, taken as a template: what would be written is
shown before it is, with nothing in it that a terminal obeys."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.safety.conftest import Ran
from tests.safety.corpus import NAMES, fields_in, forbidden, one_line, payload


@pytest.mark.parametrize("attacks", [NAMES[at::4] for at in range(4)], ids=" ".join)
def test_what_would_be_written_is_visible(
    attacks: tuple[str, ...], tmp_path: Path, metlmon: Callable[..., Ran]
) -> None:
    lines = b"executable = /bin/true\noutput = $(run_uuid).out\nlog = x.log\n"
    for name in attacks:
        said = one_line(payload("template", NAMES.index(name), False)).replace(b"\0", b"")
        # What is no UTF-8 is refused before.
        said = said.decode("utf-8", "replace").encode()
        lines += b"# a  comment\twith " + said + b"\n"
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
