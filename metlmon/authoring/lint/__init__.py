"""Linter for DAG and submit files: the rules of ``metlmon check``."""

from metlmon.authoring.lint.rules import Finding, LintResult, LintSeverity
from metlmon.authoring.lint.run import check

__all__ = ["Finding", "LintResult", "LintSeverity", "check"]
