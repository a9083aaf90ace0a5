"""Holds in words: what they have in common, and one line on each.

Manual: "Job ClassAd Attributes" (HoldReason, HoldReasonCode, HoldReasonSubCode).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import timedelta
from typing import Final, TypeAlias

from msgspec.structs import replace

from metlmon.health.advice import INPUT, OUTPUT, Advice, hold_advice, hold_codes, transfer_urls
from metlmon.model.reasons import CODES_WITHOUT_CAUSE, find_policy
from metlmon.snapshot.records import Hold
from metlmon.stats.causes import is_quota
from metlmon.text.formatting import count, duration, number

HoldCause: TypeAlias = tuple[int | None, int | None, str]
"""Code, subcode and, where these do not identify the cause, the folded reason."""

CODES_WITH_REASON: Final = CODES_WITHOUT_CAUSE | {None}

TEXT_LIMIT: Final = 200
"""Length in characters of a reason in the line of an entry; its ``reason`` is complete."""

_TOO_LARGE: Final = re.compile(r"\((\d{1,12})\) is greater than \w{1,60} \((\d{1,12})\)")
_LIMIT: Final = re.compile(r"bytes exceeded \(max=(\d{1,12}) MB")
_WALL_TIME: Final = re.compile(r"duration of (?:(\d{1,6})\+)?(?:(\d{1,4}):)?(\d\d):(\d\d)\b")
_USER: Final = re.compile(r"\(by user ([^()\s]{1,64})\)")


def hold_cause(hold: Hold) -> HoldCause:
    """What the holds of one entry have in common."""
    hold = _with_codes(hold)
    if hold.code in CODES_WITH_REASON:
        return hold.code, None, hold.cause
    if is_quota(hold.code, hold.subcode, hold.reason):
        return None, None, "quota"
    if hold.code in (OUTPUT, INPUT):
        return hold.code, hold.subcode, hold_advice(hold.code, hold.subcode, hold.reason).title
    return hold.code, hold.subcode, ""


def hold_text(hold: Hold, urls: Collection[str] = ()) -> str:
    """``wall-time limit reached (hold 47)``; for a failed transfer with the URL.

    ``urls``: those of several holds with this cause; by default that of the hold.
    """
    advice = hold_advice(hold.code, hold.subcode, hold.reason)
    code = f" (hold {hold.code})" if hold.code else ""
    hold = _with_codes(hold)
    text = f"{_words(hold, advice)}{code}"
    urls = urls or failed_urls(hold)
    if not urls:
        return text
    more = f" and {count(len(urls) - 1, 'other URL')}" if len(urls) > 1 else ""
    return f"{text}: {shorten(next(iter(urls)))}{more}"


def failed_urls(hold: Hold) -> tuple[str, ...]:
    """The URLs whose transfer failed."""
    is_transfer = _with_codes(hold).code in (OUTPUT, INPUT)
    return transfer_urls(hold.reason) if is_transfer else ()


def _with_codes(hold: Hold) -> Hold:
    code, subcode = hold_codes(hold.code, hold.subcode, hold.reason)
    return hold if code == hold.code else replace(hold, code=code, subcode=subcode)


def _words(hold: Hold, advice: Advice) -> str:
    reason = " ".join((hold.reason or "")[: 10 * TEXT_LIMIT].split())
    if hold.code in (32, 33) and (sizes := _TOO_LARGE.search(reason)):
        what = "input" if hold.code == 32 else "output"
        return f"{what} {number(int(sizes[1]))} MB > {number(int(sizes[2]))} MB allowed"
    if hold.code in (32, 33) and (limit := _LIMIT.search(reason)):
        what = "input" if hold.code == 32 else "output"
        return f"{what} larger than the {number(int(limit[1]))} MB allowed"
    if hold.code in (46, 47) and (limit := _WALL_TIME.search(reason)):
        days, hours, minutes, seconds = (int(part or 0) for part in limit.groups())
        length = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        what = "wall-time limit" if hold.code == 47 else "allowed job duration"
        return f"{what} of {duration(length.total_seconds())} reached"
    if is_quota(hold.code, hold.subcode, reason):
        return advice.title
    policy = find_policy(reason)
    if policy is not None:
        return shorten(f"{advice.title}: {policy.expression}")
    if hold.code == 1:
        user, detail = _USER.search(reason), _USER.sub("", reason).strip()
        more = "" if not detail or detail.startswith("via ") else f": {detail}"
        return shorten(f"held by {user[1] if user else 'a user'}{more}")
    if hold.code not in CODES_WITH_REASON:
        return advice.title
    if not reason:
        return "held, no reason logged"
    return shorten(f"{advice.title}: {reason}" if hold.code else reason)


def shorten(text: str) -> str:
    """At most TEXT_LIMIT characters of a text."""
    return text if len(text) <= TEXT_LIMIT else text[: TEXT_LIMIT - 1] + "…"
