"""Every ``--json`` output agrees with its type, and so with ``metlmon schema``."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from metlmon.cli.arguments import OUTPUTS
from metlmon.cli.commands.help import output_type
from metlmon.cli.main import main
from tests.outputs import OF_DIRECTORIES, ROOT, printed
from tests.support.commands import Captured
from tests.support.shared_readers import shared_readers

DAGDIRS = sorted(
    {file.parent for file in (ROOT / "fixtures").rglob("*.dag")}
    - {ROOT / "fixtures" / "first-round"}
)
HEALTH = [path for path in DAGDIRS if path.parent.name == "health"]
FIXTURES = [path for path in DAGDIRS if path not in HEALTH or path in HEALTH[::4]]


def check(name: str, text: str) -> None:
    """Check that the text has the fields of the output's type, of these types, and no others."""
    value = json.loads(text)
    assert msgspec.to_builtins(msgspec.convert(value, output_type(name))) == value


@pytest.mark.parametrize("directory", FIXTURES, ids=lambda path: str(path.relative_to(ROOT)))
def test_outputs_of_a_fixture_agree_with_their_types(directory: Path) -> None:
    with shared_readers():
        texts = {
            each: printed(each, str(directory), "--no-live", "--json").splitlines()[0]
            for each in (*OF_DIRECTORIES, "check")
        }
    for command, text in texts.items():
        if text.startswith("{"):
            check(command, text)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("run", ["run", "run0", str(ROOT / "fixtures" / "demo"), "--json"]),
        ("config", ["config", "path", str(ROOT / "fixtures" / "demo"), "--json"]),
        ("config", ["config", "validate", str(ROOT / "fixtures" / "demo"), "--json"]),
        ("estimate", ["estimate", str(ROOT / "fixtures" / "demo"), "--backtest", "--json"]),
        (
            "annexes",
            ["annexes", str(ROOT / "fixtures" / "demo"), "--as-of", "2026-11-21T09:45", "--json"],
        ),
        ("submit-list-templates", ["submit", "--list-templates", "--json"]),
        ("submit", ["submit", "NEW", "--dry-run", "--json"]),
        ("new", ["new", "NEW", "--shape", "bag", "--shards", "3", "--dry-run", "--json"]),
        ("new", ["new", "NEW", "--past", str(ROOT / "fixtures" / "demo"), "--dry-run", "--json"]),
        ("new-explain", ["new", "NEW", "--shape", "chain", "--explain", "run0-*", "--json"]),
        ("continue", ["continue", str(ROOT / "fixtures" / "gated"), "--dry-run", "--json"]),
        ("act", ["act", "hold", str(ROOT / "fixtures" / "demo"), "all", "--dry-run", "--json"]),
    ],
)
def test_other_outputs_agree_with_their_types(
    name: str, words: list[str], tmp_path: Path, capsys: Captured
) -> None:
    main([str(tmp_path / "new") if word == "NEW" else word for word in words])
    check(name, capsys.readouterr().out)


def test_every_output_has_a_schema(capsys: Captured) -> None:
    for name in OUTPUTS:
        assert main(["schema", name]) == 0
        schema = json.loads(capsys.readouterr().out)
        assert schema["$ref"] == f"#/$defs/{output_type(name).__name__}"
