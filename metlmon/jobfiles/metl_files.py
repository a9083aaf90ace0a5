"""Parses METL's ``metrics.txt`` and ``args.txt``, written next to ``metrics.csv``."""

from __future__ import annotations

import re
from typing import Final

from metlmon.jobfiles.metric_values import number
from metlmon.redact import hide_value

MOST_LINES: Final = 2000
VALUE_CHARACTERS: Final = 500

_SECRET: Final = re.compile(r"token|key|secret|passw|credential|auth", re.IGNORECASE)
"""Names of arguments whose value may be a secret; deliberately too broad: values omitted here
are not written anywhere."""


def read_metrics_txt(text: str) -> dict[str, float]:
    """Parse ``metrics.txt``: lines ``key,value`` with a numeric value.

    Other lines, such as a model's path, are skipped.
    """
    metrics: dict[str, float] = {}
    for line in text.splitlines()[:MOST_LINES]:
        name, comma, field = line.partition(",")
        value = number(field) if comma else None
        if name.strip() and value is not None:
            metrics[name.strip()[:VALUE_CHARACTERS]] = value
    return metrics


def read_args_txt(text: str) -> dict[str, str]:
    """Parse ``args.txt``, written by METL's ``save_args`` for argparse's ``fromfile``.

    An argument's name is on a line of its own and its values on the lines below it;
    ``--name=value`` is accepted too. Several values are joined by blanks; an argument without
    a value is a switch, "". Values that may be secrets are omitted with their names.
    """
    arguments: dict[str, list[str]] = {}
    values: list[str] | None = None
    for line in text.splitlines()[:MOST_LINES]:
        word = line.strip()
        if re.match(r"--?[A-Za-z]", word):
            name, equals, value = word.lstrip("-").partition("=")
            values = arguments.setdefault(name[:VALUE_CHARACTERS], [])
            values.clear()
            if equals:
                values.append(value)
        elif word and values is not None:
            values.append(word)
    return {
        name: hide_value(name, " ".join(values))[:VALUE_CHARACTERS]
        for name, values in arguments.items()
        if not _SECRET.search(name)
    }
