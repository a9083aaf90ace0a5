"""``metlmon check``: what is wrong with DAG and submit files, before the pool finds out.

``--json`` prints one object (schema 1)::

    schema    1
    dagdir    the argument
    strict    whether warnings count towards the exit status
    dags      the top-level DAG files that were looked at
    errors, warnings, notes   how many findings there are of each
    findings  by file and line; each has
      severity  "error", "warning" or "note"
      kind      a stable word for what is wrong, such as "no-retry"
      file      as seen from the dagdir
      line      from 1; null where it is the file as a whole
      what      one sentence: what is wrong
      todo      one sentence: what to do about it
      count     how many places of this file it stands for; ``line`` is the first

New keys and kinds may be added within a schema. Values of keys and tokens are in none of it.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any, Final

from metlmon.authoring.lint import Finding, LintResult, Severity
from metlmon.authoring.lint import check as checked
from metlmon.cli.exit_codes import Exit
from metlmon.cli.output import print_json
from metlmon.config.loader import load_configuration
from metlmon.redact import redact_secrets
from metlmon.text.formatting import count, plain

SCHEMA: Final = 1

SENTENCE: Final = 400
"""Characters of a sentence, and of a file's name."""

COLOURS: Final = {Severity.ERROR: "1;31", Severity.WARNING: "33", Severity.NOTE: "36"}
"""As compilers colour them; the word is there without."""


def check(options: argparse.Namespace) -> int:
    """``metlmon check [DIR]``. Exit status 1 for errors, with ``--strict`` for warnings too."""
    path = Path(options.dir)
    settings = load_configuration(path.parent if path.is_file() else path).settings
    found = checked(path, settings)
    if options.json:
        print_json(_as_json(options, found))
    else:
        _print(found)
    failing = found.number(Severity.ERROR)
    if options.strict:
        failing += found.number(Severity.WARNING)
    return Exit.FOUND if failing else Exit.OK


def _as_json(options: argparse.Namespace, found: LintResult) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "dagdir": options.dir,
        "strict": options.strict,
        "dags": list(found.dags),
        "errors": found.number(Severity.ERROR),
        "warnings": found.number(Severity.WARNING),
        "notes": found.number(Severity.NOTE),
        "findings": [_finding(each) for each in found.findings],
    }


def _finding(each: Finding) -> dict[str, Any]:
    return {
        "severity": each.severity.value,
        "kind": each.kind,
        "file": each.file,
        "line": each.line,
        "what": plain(redact_secrets(each.message), SENTENCE),
        "todo": each.remedy,
        "count": each.count,
    }


def _print(found: LintResult) -> None:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    coloured = coloured and os.environ.get("TERM", "") not in ("", "dumb")
    for each in found.findings:
        where = each.file if each.line is None else f"{each.file}:{each.line}"
        more = f" (and {count(each.count - 1, 'more', 'more')})" if each.count > 1 else ""
        word = _coloured(each.severity) if coloured else each.severity.value
        said = plain(redact_secrets(each.message), SENTENCE)
        print(f"{plain(where, SENTENCE)}: {word}: {said}{more} [{each.kind}]")
        print(f"    {plain(each.remedy, SENTENCE)}")
    print(_summary(found))


def _coloured(severity: Severity) -> str:
    return f"\x1b[{COLOURS[severity]}m{severity.value}\x1b[0m"


def _summary(found: LintResult) -> str:
    dags = count(len(found.dags), "DAG", "DAGs")
    if not found.findings:
        return f"{dags}: nothing found"
    told = [
        count(number, severity.value, f"{severity.value}s")
        for severity in Severity
        if (number := found.number(severity))
    ]
    return f"{dags}: {', '.join(told)}"
