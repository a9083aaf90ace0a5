"""Kinds of health entries: their titles, how serious they are, and who waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from metlmon.health.types import Severity


class Kind(Struct, frozen=True):
    """One kind of trouble.

    ``title``: the wording of headings and columns. ``severity``: that of an open entry, unless its
    rule sets another one. ``condition``: the name of the event in notifications, and in
    ``--exit-on`` where it has a condition of that name; None for a kind that neither reports.
    """

    title: str
    severity: Severity
    condition: str | None = None


KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "dag-failed": Kind("DAG failed", Severity.STOPPED, "failed"),
        "dag-stopped": Kind("DAG stopped", Severity.STOPPED, "failed"),
        "dag-crashes": Kind("DAGMan crashes", Severity.STOPPED, "failed"),
        "dag-stuck": Kind("DAGMan stuck", Severity.BLOCKED, "stalled"),
        "dag-held": Kind("DAGMan held", Severity.BLOCKED, "held"),
        "dag-halted": Kind("DAG halted", Severity.BLOCKED),
        "run-failed": Kind("run failed", Severity.STOPPED, "failed"),
        "run-removed": Kind("run removed", Severity.STOPPED, "failed"),
        "node-failed": Kind("node failed", Severity.STOPPED, "failed"),
        "job-failed": Kind("job failed", Severity.STOPPED, "failed"),
        "removed-by-policy": Kind("removed by a policy", Severity.STOPPED, "failed"),
        "removed-by-user": Kind("removed by a user", Severity.STOPPED, "failed"),
        "script-failed": Kind("script failed", Severity.STOPPED, "failed"),
        "submit-failed": Kind("submission failed", Severity.STOPPED, "failed"),
        "retries-exhausted": Kind("retries exhausted", Severity.STOPPED, "failed"),
        "futile": Kind("futile", Severity.STOPPED, "failed"),
        "held": Kind("held", Severity.BLOCKED, "held"),
        "quota": Kind("disk quota", Severity.BLOCKED, "held"),
        "log-silent": Kind("log silent", Severity.BLOCKED, "stalled"),
        "black-hole": Kind("black hole", Severity.COSTLY, "black-hole"),
        "wrong-site": Kind("wrong site", Severity.COSTLY),
        "transfer-stalled": Kind("stalled transfer", Severity.COSTLY, "stalled"),
        "disconnected": Kind("disconnected", Severity.COSTLY, "stalled"),
        "unmatched": Kind("unmatched", Severity.COSTLY, "stalled"),
        "diverged": Kind("diverged", Severity.COSTLY, "diverged"),
        "configuration": Kind("arguments changed", Severity.COSTLY),
        "lineage-broken": Kind("checkpoint chain broken", Severity.COSTLY),
        "annex-expired": Kind("annex expired", Severity.COSTLY),
        "gpu-idle": Kind("GPU idle", Severity.COSTLY),
        "evictions": Kind("mass eviction", Severity.COSTLY),
        "evicted": Kind("evicted", Severity.COSTLY),
        "rescue-missing": Kind("rescue file missing", Severity.COSTLY),
        "ended-early": Kind("ended early", Severity.NOTE),
        "dag-file-changed": Kind("DAG file changed", Severity.NOTE),
        "lineage-gap": Kind("checkpoint not recorded", Severity.NOTE),
        "memory-tight": Kind("memory tight", Severity.NOTE),
        "over-requested": Kind("over-requested", Severity.NOTE),
        "log-gap": Kind("log gap", Severity.NOTE),
        "log-damage": Kind("log damaged", Severity.NOTE),
    }
)
"""All kinds, in the order in which the guide lists them."""
