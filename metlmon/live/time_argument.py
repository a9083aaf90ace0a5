"""A moment that somebody asks for: ``--as-of``, ``--since``, ``--until``, and their like."""

from __future__ import annotations

from datetime import datetime, tzinfo

from metlmon.live.errors import InputError


def asked_moment(name: str, told: str | datetime | None, zone: tzinfo | None) -> datetime | None:
    """A moment as the logs' local time, naive. ``name``: of the option (``--as-of``) or the
    argument (``as_of=``) that tells it; ``zone``: the logs' own, where it is known. Raises
    InputError."""
    if told is None:
        return None
    said = f"{name}{told!r}" if name.endswith("=") else f"{name} {told!r}"
    try:
        moment = told if isinstance(told, datetime) else datetime.fromisoformat(told.strip())
    except ValueError:
        raise InputError(
            f"{said} is no time; write it as 2025-11-14 or 2025-11-14T08:14:00"
        ) from None
    if moment.tzinfo is not None:
        if zone is None:
            option = "tz=" if name.endswith("=") else "--tz"
            raise InputError(
                f"{said} names a zone, but the logs' own is not known: add {option}, or give the "
                "logs' local time"
            )
        try:
            return moment.astimezone(zone).replace(tzinfo=None)
        except OverflowError:
            raise InputError(f"{said} is outside the calendar") from None
    if zone is not None and not _exists(moment, zone):
        raise InputError(f"{said} is a time that the logs' zone left out: clocks went forward then")
    return moment


def _exists(moment: datetime, zone: tzinfo) -> bool:
    """False in the hour that a zone jumps over: there, the earlier reading has the smaller
    offset. (In the hour that exists twice it has the larger.)"""
    try:
        earlier = moment.replace(tzinfo=zone, fold=0).utcoffset()
        later = moment.replace(tzinfo=zone, fold=1).utcoffset()
    except OverflowError:
        return True
    return earlier is None or later is None or earlier >= later
