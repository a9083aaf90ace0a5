"""``metlmon help``: the sections of the guide that comes with metlmon."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from metlmon.cli.exit_codes import Exit
from metlmon.live.errors import InputError

GUIDE = Path(__file__).resolve().parents[2] / "GUIDE.md"


def sections(guide: str) -> dict[str, str]:
    """The text of each section by its title, in the order of the guide."""
    parts = re.split(r"^## (.+)\n", guide, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], (text.strip() for text in parts[1::2]), strict=True))


def help(options: argparse.Namespace) -> int:
    """Print one section; without a topic, all titles. InputError where no title begins so."""
    found = sections(GUIDE.read_text(encoding="utf-8"))
    if options.topic is None:
        print("metlmon help TOPIC prints a section of the guide:\n")
        for title in found:
            print(f"  {title.lower()}")
        print("\nmetlmon COMMAND --help lists the options of a command.")
        return Exit.OK
    for title, text in found.items():
        if title.lower().startswith(options.topic.lower()):
            print(f"{title}\n\n{text}")
            return Exit.OK
    topics = ", ".join(title.lower() for title in found)
    raise InputError(f"no section of the guide begins with {options.topic!r}; there are {topics}")
