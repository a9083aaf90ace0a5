"""Linter for DAG and submit files: the rules of ``metlmon check``."""

from metlmon.authoring.lint.finding import Finding, LintResult
from metlmon.authoring.lint.rules import Severity
from metlmon.authoring.lint.run import check

__all__ = ["Finding", "LintResult", "Severity", "check"]
