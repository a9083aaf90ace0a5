"""``metlmon help``: the sections of the guide."""

from __future__ import annotations

import re
from pathlib import Path

from metlmon.cli.arguments import COMMANDS, GROUPS
from metlmon.cli.commands.help import GUIDE, sections
from metlmon.cli.main import main
from metlmon.tables import runs
from tests.support.commands import Captured, text_output

ROOT = Path(__file__).resolve().parents[2]


def test_each_command_is_in_one_group() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)


def test_without_a_topic_the_sections_are_listed(capsys: Captured) -> None:
    printed = text_output("help", capsys)
    for title in sections(GUIDE.read_text()):
        assert f"  {title.lower()}\n" in printed


def test_a_section_is_found_by_the_beginning_of_its_title(
    capsys: Captured,
) -> None:
    printed = text_output("help", capsys, "set")
    assert printed.startswith("Settings\n")
    assert "checkpoint_codes" in printed
    assert "## " not in printed


def test_the_columns_of_the_overview_are_explained(capsys: Captured) -> None:
    printed = text_output("help", capsys, "columns")
    for column in runs.every_column():
        assert column.doc
        assert re.search(rf"^{re.escape(column.title)}  .*{re.escape(column.doc)}$", printed, re.M)


def test_an_unknown_topic_names_those_that_exist(capsys: Captured) -> None:
    assert main(["help", "weather"]) == 2
    assert "'weather'; there are daily work, screens, keys" in capsys.readouterr().err


def test_commands_that_readme_and_guide_name_exist() -> None:
    text = (ROOT / "README.md").read_text() + GUIDE.read_text()
    named = set(re.findall(r"^metlmon ([a-z]+)\b", text, re.MULTILINE))
    assert named
    assert named <= COMMANDS.keys()
