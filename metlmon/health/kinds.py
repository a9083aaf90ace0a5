"""Kinds of health entries: their titles, how serious they are, and who waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from metlmon.health.types import Severity


class Kind(Struct, frozen=True):
    """One kind of trouble.

    ``title``: a person's words for it, as a heading or a column has them. ``severity``: of an open
    entry, unless its rule knows better. ``condition``: the event that notifications call it, and
    ``--exit-on`` where it has one of that name; None for a kind that neither reports.
    """

    title: str
    severity: Severity
    condition: str | None = None


_STOPPED, _BLOCKED, _COSTLY, _NOTE = Severity

KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "dag-failed": Kind("DAG failed", _STOPPED, "failed"),
        "dag-stopped": Kind("DAG stopped", _STOPPED, "failed"),
        "dag-crashes": Kind("DAGMan crashes", _STOPPED, "failed"),
        "dag-stuck": Kind("DAGMan stuck", _BLOCKED, "stalled"),
        "dag-held": Kind("DAGMan held", _BLOCKED, "held"),
        "dag-halted": Kind("DAG halted", _BLOCKED),
        "run-failed": Kind("run failed", _STOPPED, "failed"),
        "run-removed": Kind("run removed", _STOPPED, "failed"),
        "node-failed": Kind("node failed", _STOPPED, "failed"),
        "job-failed": Kind("job failed", _STOPPED, "failed"),
        "removed-by-policy": Kind("removed by a policy", _STOPPED, "failed"),
        "removed-by-user": Kind("removed by a user", _STOPPED, "failed"),
        "script-failed": Kind("script failed", _STOPPED, "failed"),
        "submit-failed": Kind("submission failed", _STOPPED, "failed"),
        "retries-exhausted": Kind("retries exhausted", _STOPPED, "failed"),
        "futile": Kind("futile", _STOPPED, "failed"),
        "held": Kind("held", _BLOCKED, "held"),
        "quota": Kind("disk quota", _BLOCKED, "held"),
        "log-silent": Kind("log silent", _BLOCKED, "stalled"),
        "black-hole": Kind("black hole", _COSTLY, "black-hole"),
        "wrong-site": Kind("wrong site", _COSTLY),
        "transfer-stalled": Kind("stalled transfer", _COSTLY, "stalled"),
        "disconnected": Kind("disconnected", _COSTLY, "stalled"),
        "unmatched": Kind("unmatched", _COSTLY, "stalled"),
        "diverged": Kind("diverged", _COSTLY, "diverged"),
        "configuration": Kind("arguments changed", _COSTLY),
        "lineage-broken": Kind("checkpoint chain broken", _COSTLY),
        "annex-expired": Kind("annex expired", _COSTLY),
        "evictions": Kind("mass eviction", _COSTLY),
        "evicted": Kind("evicted", _COSTLY),
        "rescue-missing": Kind("rescue file missing", _COSTLY),
        "ended-early": Kind("ended early", _NOTE),
        "dag-file-changed": Kind("DAG file changed", _NOTE),
        "lineage-gap": Kind("checkpoint not recorded", _NOTE),
        "log-gap": Kind("log gap", _NOTE),
        "log-damage": Kind("log damaged", _NOTE),
    }
)
"""All kinds, in the order in which the guide lists them."""
