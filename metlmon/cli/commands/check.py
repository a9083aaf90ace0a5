"""``metlmon check``: mistakes in DAG and submit files, before the pool finds them."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from metlmon.authoring.lint import Finding, LintResult, LintSeverity
from metlmon.authoring.lint import check as lint
from metlmon.cli.exit_codes import Exit
from metlmon.cli.json_output.objects import SCHEMA, JsonObject
from metlmon.cli.output import print_json
from metlmon.config.loader import load_configuration
from metlmon.redact import redact_secrets
from metlmon.text.formatting import count, plain

SENTENCE: Final = 400
"""Characters of a sentence, and of a file's name."""

COLOURS: Final = {LintSeverity.ERROR: "1;31", LintSeverity.WARNING: "33", LintSeverity.NOTE: "36"}
"""SGR parameters of the severities, as compilers colour them."""

FINDING: Final = JsonObject(
    Finding,
    "What is wrong in a file, and what to do about it; values of keys are in none of it. severity: "
    "error, warning or note. kind: a stable word such as no-retry. line: from 1, null for the file "
    "as a whole. count: how many places it stands for.",
    "severity kind file line todo=remedy count",
    given={"what": str},
)
CHECK_OUTPUT: Final = JsonObject(
    None,
    "metlmon check --json: findings by file and line, and how many of each severity. dags: the "
    "top-level DAG files that were looked at. strict: whether warnings count as errors.",
    name="CheckOutput",
    given={
        **{"schema": int, "dagdir": str, "strict": bool, "dags": list[str]},
        **{"errors": int, "warnings": int, "notes": int, "findings": [FINDING]},
    },
)


def check(options: argparse.Namespace) -> int:
    """Print the findings. Returns 1 for errors, with ``--strict`` also for warnings."""
    path = Path(options.dir)
    settings = load_configuration(path.parent if path.is_file() else path).settings
    result = lint(path, settings)
    if options.json:
        print_json(
            CHECK_OUTPUT.write(
                None,
                dags=result.dags,
                schema=SCHEMA,
                dagdir=options.dir,
                strict=options.strict,
                errors=result.number(LintSeverity.ERROR),
                warnings=result.number(LintSeverity.WARNING),
                notes=result.number(LintSeverity.NOTE),
                findings=[FINDING.write(each, what=_sentence(each)) for each in result.findings],
            )
        )
    else:
        _print(result)
    failing = result.number(LintSeverity.ERROR)
    if options.strict:
        failing += result.number(LintSeverity.WARNING)
    return Exit.FOUND if failing else Exit.OK


def _print(result: LintResult) -> None:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    coloured = coloured and os.environ.get("TERM", "") not in ("", "dumb")
    for each in result.findings:
        where = each.file if each.line is None else f"{each.file}:{each.line}"
        more = f" (and {count(each.count - 1, 'more', 'more')})" if each.count > 1 else ""
        word = _coloured(each.severity) if coloured else each.severity.value
        print(f"{plain(where, SENTENCE)}: {word}: {_sentence(each)}{more} [{each.kind}]")
        print(f"    {plain(each.remedy, SENTENCE)}")
    print(_summary(result))


def _sentence(finding: Finding) -> str:
    return plain(redact_secrets(finding.message), SENTENCE)


def _coloured(severity: LintSeverity) -> str:
    return f"\x1b[{COLOURS[severity]}m{severity.value}\x1b[0m"


def _summary(result: LintResult) -> str:
    dags = count(len(result.dags), "DAG", "DAGs")
    if not result.findings:
        return f"{dags}: nothing found"
    counts = [
        count(number, severity.value, f"{severity.value}s")
        for severity in LintSeverity
        if (number := result.number(severity))
    ]
    return f"{dags}: {', '.join(counts)}"
