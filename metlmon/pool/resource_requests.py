"""Requests for memory and disk of held jobs: which one is raised, from what to what.

Pure. Manual: "Submitting Jobs" (request_memory in MB, request_disk in kB; a MB has 1024 kB).
"""

from __future__ import annotations

import re
from collections import Counter
from math import ceil
from typing import Final

from msgspec.structs import replace

from metlmon.model.reasons import RAISE_FACTOR, exceeded_request, reached_mb
from metlmon.pool.types import ACTS, ActionPreview, PoolAction, QueueJob, QueueSnapshot
from metlmon.snapshot.records import Job
from metlmon.text.formatting import count, request_amount

UNITS: Final = {"request_memory": "MB", "request_disk": "KB"}
"""The units of the job's attributes, by the field of :class:`QueueJob`."""

RAISED: Final = f"{RAISE_FACTOR}x"
"""The new request where none is given."""

EXPECTED: Final = "a factor above 1 (1.5x) or an amount with its unit (12GB)"

USER_HOLDS: Final = (1, 15)
"""Codes of holds by the user (15: at submission): any request may be changed."""

_SIZES: Final = {"KB": 1, "MB": 1 << 10, "GB": 1 << 20, "TB": 1 << 30}
_VALUE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(x|[KMGT]B?)", re.IGNORECASE)
_LARGEST: Final = 2**31 - 1


def amount(field: str, value: int) -> str:
    """``12GB``: a request as a submit file has it, in the largest unit without a fraction."""
    return request_amount(value * _SIZES[UNITS[field]])


def is_value(text: str) -> bool:
    """Whether it is a factor above 1 or an amount."""
    match = _VALUE.fullmatch(text.strip())
    return match is not None and float(match[1]) > (1 if match[2] in "xX" else 0)


def _raised(field: str, before: int, reason: str | None, text: str) -> int:
    """A slot has more than was requested, rounded up: a factor begins at what was reached there."""
    match = _VALUE.fullmatch(text.strip())
    assert match is not None, "is_value tells"
    number, unit = float(match[1]), match[2].upper()
    if unit != "X":
        return ceil(number * _SIZES[f"{unit[0]}B"] / _SIZES[UNITS[field]])
    reached = [mb * _SIZES["MB"] // _SIZES[UNITS[field]] for mb in reached_mb(reason)]
    return ceil(max([before, *reached]) * number)


def refusal(act: PoolAction, row: Job, job: QueueJob | None) -> str | None:
    """Why a held job's request is not changed by this action, or None if it can be."""
    field = ACTS[act].value
    if job is None:
        return "the schedd did not give its request"
    hold = row.holds[-1] if row.holds else None
    code = job.hold_code if hold is None or hold.code is None else hold.code
    subcode = None if hold is None else hold.subcode
    reason = job.hold_reason or (None if hold is None else hold.reason)
    exceeded = exceeded_request(code, subcode, reason)
    if exceeded is not None and exceeded != field:
        return f"it exceeded its {exceeded}, not its {field}"
    if exceeded is None and code not in USER_HOLDS:
        return f"its hold does not say that it exceeded its {field}"
    if getattr(job, field) is None:
        return f"its {field} is an expression, which only condor_qedit replaces"
    return None


def with_request(preview: ActionPreview, text: str, snapshot: QueueSnapshot) -> ActionPreview:
    """The preview with each job's new request: a factor of its own one, or an amount.

    A factor of what its hold says was reached, if that is more.

    ``text``: as :func:`is_value` accepts it.
    """
    if preview.request is None:
        return preview
    field, changes = ACTS[preview.act].value, Counter[tuple[int, int]]()
    targets = []
    for target in preview.request.targets:
        job = snapshot.job(target.cluster, target.proc)
        before = None if job is None else getattr(job, field)
        if job is None or before is None:
            continue
        after = _raised(field, before, job.hold_reason, text)
        changes[before, after] += 1
        targets.append(replace(target, value=after))
    if not targets or max(after for _, after in changes) > _LARGEST:
        refused = "the request would be too large" if targets else "nothing is known to be raised"
        return replace(preview, request=None, refused=refused)

    def of_jobs(text: str, number: int) -> str:
        return text if len(changes) == 1 else f"{text} ({count(number, 'job')})"

    steps = [
        of_jobs(f"{amount(field, before)} to {amount(field, after)}", number)
        for (before, after), number in changes.items()
    ]
    former = Counter[int]()
    for (before, _), number in changes.items():
        former[before] += number
    values = ", ".join(of_jobs(amount(field, before), n) for before, n in former.items())
    return replace(
        preview,
        request=replace(preview.request, targets=tuple(targets)),
        effect=f"from {', '.join(steps)}, {preview.effect}",
        undo=f"hold, then {preview.act} with {values}",
        line=f"{field} = {amount(field, max(after for _, after in changes))}",
    )
