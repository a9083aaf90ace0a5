"""``metlmon help``, ``metlmon completion`` and ``metlmon schema``."""

from __future__ import annotations

import argparse
import re
from importlib import import_module
from pathlib import Path

from metlmon.cli.arguments import OUTPUTS
from metlmon.cli.exit_codes import Exit
from metlmon.errors import InputError

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
            print(f"{title}\n\n{text}")
            return Exit.OK
    topics = ", ".join(title.lower() for title in guide)
    raise InputError(f"no section of the guide begins with {options.topic!r}; there are {topics}")


def completion(options: argparse.Namespace) -> int:
    """Print a completion script for bash or zsh."""
    import shtab

    from metlmon.cli.main import parser

    top = parser()
    kinds = {"DIR": shtab.DIRECTORY, "DIRECTORY": shtab.DIRECTORY, "FILE": shtab.FILE}
    (commands,) = (a for a in top._actions if isinstance(a, argparse._SubParsersAction))
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

    module, name = OUTPUTS[options.output]
    types = import_module(f"metlmon.cli.{module}")
    print_json(msgspec.json.schema(getattr(types, name).type))
    return Exit.OK
