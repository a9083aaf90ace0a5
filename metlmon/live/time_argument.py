"""Parses time arguments: ``--as-of``, ``--since``, ``--until``, and similar ones."""

from __future__ import annotations

from datetime import datetime, tzinfo

from metlmon.live.errors import InputError


def parse_time_argument(
    argument_name: str, value: str | datetime | None, zone: tzinfo | None
) -> datetime | None:
    """Parse a time argument as naive local time of the logs.

    ``argument_name``: of the option (``--as-of``) or argument (``as_of=``); ``zone``: of the logs,
    if known. Raises InputError.
    """
    if value is None:
        return None
    argument = (
        f"{argument_name}{value!r}" if argument_name.endswith("=") else f"{argument_name} {value!r}"
    )
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value.strip())
    except ValueError:
        raise InputError(
            f"{argument} is no time; write it as 2025-11-14 or 2025-11-14T08:14:00"
        ) from None
    if moment.tzinfo is not None:
        if zone is None:
            option = "tz=" if argument_name.endswith("=") else "--tz"
            raise InputError(
                f"{argument} names a zone, but the logs' own is not known: add {option}, or give "
                "the logs' local time"
            )
        try:
            return moment.astimezone(zone).replace(tzinfo=None)
        except OverflowError:
            raise InputError(f"{argument} is outside the calendar") from None
    if zone is not None and not _exists(moment, zone):
        raise InputError(
            f"{argument} is a time that the logs' zone left out: clocks went forward then"
        )
    return moment


def _exists(moment: datetime, zone: tzinfo) -> bool:
    """Whether a local time exists, that is, was not skipped when clocks went forward.

    In the skipped hour fold 0 has the smaller offset; in the repeated hour, the larger.
    """
    try:
        earlier = moment.replace(tzinfo=zone, fold=0).utcoffset()
        later = moment.replace(tzinfo=zone, fold=1).utcoffset()
    except OverflowError:
        return True
    return earlier is None or later is None or earlier >= later
