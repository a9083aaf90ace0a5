"""What people get wrong in DAG and submit files: the rules of ``metlmon check``."""

from metlmon.authoring.checking.checking import check
from metlmon.authoring.checking.records import Checked, Finding
from metlmon.authoring.checking.severity import Severity

__all__ = ["Checked", "Finding", "Severity", "check"]
