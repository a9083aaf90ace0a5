"""Redacts events before they are kept and shown: texts are visible, and of bounded length."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from msgspec.structs import replace

from metlmon.eventlog.events import Detail, Event, Execute, type_of
from metlmon.redact import is_secret_name, redact_secrets
from metlmon.text.visible import visible

TEXT_LIMIT: Final = 8000
"""Characters kept of any text of an event: a job can write a megabyte as its reason, and the
cost of processing grows with the length."""

BODY_LIMIT: Final = 500
"""Characters kept of a body that the typed detail does not cover: enough to be understood, and
few enough for months of events to fit in memory."""

SHORT: Final = 400
"""Maximum length of texts whose redaction is cached: an address with all its parameters. Longer
texts are reasons, few of which are equal."""

MAX_CACHED: Final = 5000
"""Cached texts and details of machines, transfers and holds: more than a pool has at a time."""

AD_ATTRIBUTE_EVENTS: Final = frozenset({28, 33})
"""Events with attributes of the job's ClassAd (job ad information, attribute update)."""

_TEXTS: Final = frozenset({"str", "str | None", "tuple[str, ...]"})

_TEXT_FIELDS: Final[dict[Any, tuple[str, ...]]] = {
    type_: tuple(
        name
        for name, annotation in type_.__annotations__.items()
        if getattr(annotation, "__forward_arg__", annotation) in _TEXTS
    )
    for type_ in Detail.__subclasses__()
}


def _redact(text: str) -> str:
    return visible(redact_secrets(text))


_redact_short: Final = lru_cache(maxsize=MAX_CACHED)(_redact)


def redact_and_truncate(text: str) -> str:
    """Truncate a text of an event to the kept length; make it visible, and redact secrets."""
    if len(text) <= SHORT:
        return _redact_short(text)
    if len(text) <= TEXT_LIMIT:
        return _redact(text)
    # A secret truncated at the end is far beyond the kept part.
    return _redact(text[: 2 * TEXT_LIMIT])[:TEXT_LIMIT]


def redact_event(event: Event) -> Event:
    """The event, visible, without secrets, and without a body covered by the detail."""
    if event.number in AD_ATTRIBUTE_EVENTS:
        event = without_environment(event)
    body, detail, kind = event.body, event.detail, type_of(event.number)
    if event.text and detail is not None and kind.is_covered:
        body = ""
    elif body:
        # A secret truncated at the end is far beyond the kept part.
        lines = redact_secrets(body[: 8 * BODY_LIMIT])[:BODY_LIMIT].split("\n")
        body = "\n".join(map(visible, lines))
    if detail is not None:
        # There are few machines, kinds of transfers and reasons.
        repeats = kind.repeats or isinstance(detail, Execute)
        detail = _redact_repeated(detail) if repeats else _redact_detail(detail)
    return Event(
        event.number,
        event.cluster,
        event.proc,
        event.subproc,
        event.time,
        redact_and_truncate(event.text),
        body,
        detail,
        event.line,
        event.damaged,
    )


def redact_first_line(event: Event) -> str:
    """The first line of the event as :func:`redact_event` leaves it."""
    if event.number in AD_ATTRIBUTE_EVENTS:
        event = without_environment(event)
    return redact_and_truncate(event.text)


def _redact_detail(detail: Detail) -> Detail:
    changes: dict[str, Any] = {}
    for name in _TEXT_FIELDS[detail.__class__]:
        text = getattr(detail, name)
        if text:
            redacted = (
                redact_and_truncate(text)
                if isinstance(text, str)
                else tuple(map(redact_and_truncate, text))
            )
            if redacted != text:
                changes[name] = redacted
    return replace(detail, **changes) if changes else detail


_redact_repeated: Final = lru_cache(maxsize=MAX_CACHED)(_redact_detail)

_ENVIRONMENT: Final = re.compile(
    r"\b(?:job)?(env(?:ironment)?2?)\b(\s*=|\s+from\b|\s+to\b)(?:[^\n]|\n(?!\s*[\w.]+ = ))*",
    re.IGNORECASE,
)
"""Matches up to the next line with an attribute: a value may contain newlines."""

_ATTRIBUTE: Final = re.compile(r"\w+ job attribute (\S+)")


def without_environment(event: Event) -> Event:
    """Return an event without the values of the environment and of secret attributes.

    API keys and tokens are passed in the environment; what is not kept cannot be shown.
    """
    changed = _ATTRIBUTE.match(event.text)
    if changed is not None and is_secret_name(changed[1]):
        # Its values may contain newlines and unbalanced quotes.
        return replace(event, text=f"{changed[0]} (not shown)", body="")
    return replace(
        event,
        text=_ENVIRONMENT.sub(r"\1\2 (not shown)", event.text),
        body="" if event.number == 33 else _ENVIRONMENT.sub(r"\1\2 (not shown)", event.body),
    )
