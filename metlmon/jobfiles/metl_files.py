"""The two small files that METL writes beside ``metrics.csv``."""

from __future__ import annotations

import re
from typing import Final

from metlmon.jobfiles.numbers import number
from metlmon.redact import hide_value

MOST_LINES: Final = 2000
VALUE_CHARACTERS: Final = 500

_SECRET: Final = re.compile(r"token|key|secret|passw|credential|auth", re.IGNORECASE)
"""Names of arguments whose value may be a secret. Too many are left out rather than one too
few: what is left out here is written nowhere."""


def read_metrics_txt(text: str) -> dict[str, float]:
    """``metrics.txt``: lines ``key,value``; those whose value is a number (a model's path is
    none)."""
    found: dict[str, float] = {}
    for line in text.splitlines()[:MOST_LINES]:
        name, comma, said = line.partition(",")
        value = number(said) if comma else None
        if name.strip() and value is not None:
            found[name.strip()[:VALUE_CHARACTERS]] = value
    return found


def read_args_txt(text: str) -> dict[str, str]:
    """``args.txt`` as METL's ``save_args`` writes it, for argparse's ``fromfile``: an argument's
    name on a line of its own, its values on the lines below it; ``--name=value`` is read too.
    Several values are joined by blanks; an argument without one is a switch, "". Values that
    may be secrets are left out together with their names."""
    found: dict[str, list[str]] = {}
    values: list[str] | None = None
    for line in text.splitlines()[:MOST_LINES]:
        said = line.strip()
        if re.match(r"--?[A-Za-z]", said):
            name, equals, value = said.lstrip("-").partition("=")
            values = found.setdefault(name[:VALUE_CHARACTERS], [])
            values.clear()
            if equals:
                values.append(value)
        elif said and values is not None:
            values.append(said)
    return {
        name: hide_value(name, " ".join(values))[:VALUE_CHARACTERS]
        for name, values in found.items()
        if not _SECRET.search(name)
    }
