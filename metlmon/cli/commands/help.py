"""``metlmon help``, ``metlmon completion`` and ``metlmon schema``."""

from __future__ import annotations

import argparse
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from metlmon.cli import Exit
from metlmon.cli.arguments import load_module
from metlmon.cli.output import is_terminal, terminal_width
from metlmon.errors import InputError

COLUMNS = "Columns"
"""The section after which the columns are printed."""

GUIDE = Path(__file__).resolve().parents[2] / "GUIDE.md"


def sections(guide: str) -> dict[str, str]:
    """The text of each section by its title, in the order of the guide."""
    parts = re.split(r"^## (.+)\n", guide, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], (text.strip() for text in parts[1::2]), strict=True))


def help(options: argparse.Namespace) -> int:
    """Print one section; without a topic, all titles. Raises InputError."""
    guide = sections(GUIDE.read_text(encoding="utf-8"))
    if options.topic is None:
        print("metlmon help TOPIC prints a section of the guide:\n")
        for title in guide:
            print(f"  {title.lower()}")
        print("\nmetlmon COMMAND --help lists the options of a command.")
        return Exit.OK
    for title, text in guide.items():
        if title.lower().startswith(options.topic.lower()):
            _print_section(title, text)
            if title == COLUMNS:
                _print_columns()
            return Exit.OK
    topics = ", ".join(title.lower() for title in guide)
    raise InputError(f"no section of the guide begins with {options.topic!r}; there are {topics}")


def _print_section(title: str, text: str) -> None:
    """A section as it is in the guide; for a terminal wrapped, with its tables drawn."""
    if not is_terminal():
        print(f"{title}\n\n{text}")
        return
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.theme import Theme

    # Rich's own style of code is on black, also where the terminal is light.
    console = Console(theme=Theme({"markdown.code": "cyan"}), width=min(terminal_width(), 100))
    console.print(Markdown(f"**{title}**\n\n{text}", code_theme="ansi_light", hyperlinks=False))


def _print_columns() -> None:
    """The columns of the lists that have more than the usual ones, as they are declared."""
    from metlmon.cli.text_output import TextOutput
    from metlmon.tables import estimates, home, nodes, runs
    from metlmon.tables.layout import Column

    printed: list[Column[Column[Any]]] = [
        Column("title", lambda column: column.title or column.name, title="COLUMN"),
        Column("name", lambda column: column.name),
        Column("kind", lambda column: column.unit or column.kind.value, drop=1),
        Column("doc", lambda column: column.doc, title="MEANING"),
    ]
    for title, columns in (
        ("Overview, and metlmon status", runs.columns([], every=True)),
        ("Nodes", nodes.columns()),
        ("Estimates, and metlmon estimate", estimates.columns([], None)),
        ("Home", home.columns([], None, datetime.min)),
    ):
        TextOutput().table(printed, columns, "", f"{title}:", "")


def completion(options: argparse.Namespace) -> int:
    """Print a completion script for bash or zsh."""
    import shtab

    from metlmon.cli.main import parser

    top = parser(whole=True)
    kinds = {"DIR": shtab.DIRECTORY, "DIRECTORY": shtab.DIRECTORY, "FILE": shtab.FILE}
    (commands,) = (a for a in top._actions if isinstance(a, argparse._SubParsersAction))
    # --help lists the commands itself, and hides these; shtab would omit them.
    commands.help = None
    for command in commands.choices.values():
        for action in command._actions:
            if action.metavar in kinds:
                action.complete = kinds[action.metavar]
    print(shtab.complete(top, options.shell))
    return Exit.OK


def schema(options: argparse.Namespace) -> int:
    """Print the JSON Schema of a command's ``--json`` output."""
    import msgspec

    from metlmon.cli.output import print_json

    print_json(msgspec.json.schema(output_type(options.output)))
    return Exit.OK


def output_type(name: str) -> type:
    """The type of a JSON output, by its name in :data:`metlmon.cli.arguments.OUTPUTS`."""
    from metlmon.text.record_json import json_type

    words = name.split("-")
    module = load_module(words[0])
    return json_type(getattr(module, f"{''.join(map(str.capitalize, words))}Output"))
