"""Compact storage of events that are not in use.

A year of a troubled ensemble has a hundred thousand jobs, and each of their events is about ten
objects. Packed, a job's events are one bytes object (:mod:`marshal` of plain tuples): a tenth
of the memory, and nothing for Python's garbage collector to traverse. Texts shared by many jobs
are stored once, in :class:`StringTable`.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias, get_args

from msgspec.structs import astuple, replace

from metlmon.eventlog import (
    Aborted,
    ConnectionEvent,
    Detail,
    Event,
    Evicted,
    Execute,
    FileTransfer,
    Held,
    ImageSize,
    Released,
    RemoteError,
    ShadowException,
    Submit,
    Terminated,
    Transfer,
    UsageRow,
)
from metlmon.eventlog.events import UsageTable
from metlmon.redact import redact_secrets

SHARED_LENGTH: Final = 400
"""Maximum length of shared texts: an address with all its parameters. Longer texts are reasons,
few of which are equal."""

MAX_SEEN_ONCE: Final = 5000
"""Texts remembered after their first use: the second use makes them shared."""

MAX_CACHED_DETAILS: Final = 5000
"""Cached details of machines, transfers and holds: more than a pool has at a time."""

BODY_LIMIT: Final = 500
"""Characters stored of a body that the typed detail does not cover: enough to be understood, and
few enough for months of events to fit in memory."""

TEXT_LIMIT: Final = 8000
"""Characters stored of any text of an event: a job can write a megabyte as its reason, and the
cost of processing grows with the length."""

VERSION: Final = 4
"""Version of marshal's format, with compact short texts and tuples."""

PlainData: TypeAlias = Any
"""Tuples of numbers, texts, bytes, None, True and False, as supported by marshal."""

Identity: TypeAlias = tuple[int, int, str]
"""Identity of an event among those of one job: number, seconds, and first line."""

_EPOCH: Final = datetime(2000, 1, 1)


def redact_and_truncate(text: str) -> str:
    """Truncate a text of an event to the stored length, and redact secrets."""
    if len(text) <= SHARED_LENGTH:
        return _redact_short(text)
    if len(text) <= TEXT_LIMIT:
        return redact_secrets(text)
    # A secret truncated at the end is far beyond the stored part.
    return redact_secrets(text[: 2 * TEXT_LIMIT])[:TEXT_LIMIT]


_redact_short: Final = lru_cache(maxsize=MAX_SEEN_ONCE)(redact_secrets)
"""For the addresses of hosts, which two logs or many jobs name."""


class StringTable:
    """Texts shared by several events, by number.

    ``redact``: redacts a text of a new event; None where the events have no secrets any more.
    """

    def __init__(
        self,
        strings: Iterable[str] = (),
        redact: Callable[[str], str] | None = redact_and_truncate,
    ) -> None:
        self._redact = redact
        self.by_number = list(strings)
        self.numbers = {word: number for number, word in enumerate(self.by_number)}
        self._seen_once: set[str] = set()
        self.packed: dict[Detail | None, PlainData] = {}
        self.redacted: dict[Detail | None, Detail | None] = {}
        self.details: dict[PlainData, Detail] = {}

    def number_if_shared(self, text: str) -> int | str:
        """The number of ``text`` if shared, else the text, redacted.

        All texts of new events pass through here.
        """
        number = self.numbers.get(text)
        if number is not None:
            return number
        if text in self._seen_once:
            self._seen_once.discard(text)
            return self.number(text)
        if self._redact is not None and (redacted := self._redact(text)) != text:
            return self.numbers.get(redacted, redacted)
        if len(text) > SHARED_LENGTH:
            return text
        if len(self._seen_once) >= MAX_SEEN_ONCE:
            self._seen_once.clear()
        self._seen_once.add(text)
        return text

    def number(self, text: str) -> int:
        """The number of a text, which is made shared."""
        number = self.numbers.setdefault(text, len(self.by_number))
        if number == len(self.by_number):
            self.by_number.append(text)
        return number

    def text(self, text: PlainData) -> PlainData:
        """The text of a number; anything else is the text itself."""
        return self.by_number[text] if text.__class__ is int else text

    def shared(self, text: str) -> str:
        """The shared string object of a text."""
        return self.by_number[self.number(text)]


def pack(streams: Mapping[Any, Sequence[Event | PlainData]], strings: StringTable) -> bytes:
    """Pack the events of one job, by log (rank and file)."""
    parts = [
        (
            rank,
            strings.number(file),
            *[
                pack_event(event, strings) if event.__class__ is Event else event
                for event in events
                if event is not None
            ],
        )
        for (rank, file), events in streams.items()
    ]
    return marshal.dumps(tuple([part for part in parts if len(part) > 2]), VERSION)


def unpack(packed: bytes, strings: StringTable) -> list[tuple[int, str, list[PlainData]]]:
    """Unpack the result of :func:`pack`: rank, file and plain events of each log."""
    return [
        (rank, strings.by_number[file], events) for rank, file, *events in marshal.loads(packed)
    ]


def unpack_time(plain: PlainData) -> datetime:
    """The time that :func:`pack_event` packed."""
    if plain.__class__ is int:
        return _EPOCH + timedelta(0, plain)
    seconds, microseconds, fold = plain
    return (_EPOCH + timedelta(0, seconds, microseconds)).replace(fold=fold)


def pack_event(event: Event, strings: StringTable, body_limit: int = BODY_LIMIT) -> PlainData:
    """One event as plain data, without its job and a body covered by the detail.

    ``body_limit``: characters stored of any other body.
    """
    time, text, body, detail = event.time, event.text, event.body, event.detail
    elapsed = time - _EPOCH
    packed_time: PlainData = elapsed.days * 86400 + elapsed.seconds
    if elapsed.microseconds or time.fold:
        packed_time = (packed_time, elapsed.microseconds, time.fold)
    packed = strings.packed.get(detail) if detail.__class__ in _REPEATED_TYPES else None
    if packed is None:
        packed = _pack_detail(detail, strings)
    kind = packed[0]
    number = strings.numbers.get(text)
    if number is not None:
        packed_text: PlainData = number
    elif isinstance(detail, Submit | Execute) and text == _PREFIXES[kind] + detail.host:
        packed_text = None
    else:
        packed_text = strings.number_if_shared(text)
    if body:
        body = _stored_body(body, detail, body_limit)
    if body or event.damaged:
        packed = (~kind, body, event.damaged, *packed[1:])
    return (event.number, packed_time, event.line, packed_text, *packed)


def redacted_event(event: Event, strings: StringTable) -> Event:
    """The event without secrets, and without a body covered by the detail."""
    text, body, detail = redact_and_truncate(event.text), event.body, event.detail
    if detail.__class__ in _REPEATED_TYPES:
        known = strings.redacted.get(detail)
        if known is None:
            known = _redacted_detail(detail)
            _remember(strings.redacted, detail, known)
        detail = known
    else:
        detail = _redacted_detail(detail)
    return Event(
        event.number,
        event.cluster,
        event.proc,
        event.subproc,
        event.time,
        text,
        _stored_body(body, detail, BODY_LIMIT) if body else "",
        detail,
        event.line,
        event.damaged,
    )


def _stored_body(body: str, detail: Detail | None, limit: int) -> str:
    if detail.__class__ in _COVERING_TYPES:
        return ""
    # A secret truncated at the end is far beyond the stored part.
    return redact_secrets(body[: 8 * limit])[:limit]


def _redacted_detail(detail: Detail | None) -> Detail | None:
    if detail is None:
        return None
    changes: dict[str, Any] = {}
    for name in _TEXT_FIELDS[detail.__class__]:
        text = getattr(detail, name)
        if text:
            redacted = redact_and_truncate(text) if isinstance(text, str) else _pack_texts(text)
            if redacted != text:
                changes[name] = redacted
    return replace(detail, **changes) if changes else detail


def unpack_event(
    plain: PlainData, cluster: int, proc: int, subproc: int, strings: StringTable
) -> Event:
    """The inverse of :func:`pack_event`; frequent details are shared objects."""
    number, packed_time, line, text, kind = plain[:5]
    body, damaged, packed = "", False, tuple(plain[4:])
    if kind < 0:
        body, damaged = plain[5:7]
        packed = (~kind, *plain[7:])
    detail = strings.details.get(packed) if packed[0] in _REPEATED_KINDS else None
    if detail is None and packed[0]:
        detail = _unpack_detail(packed, strings)
    if text.__class__ is int:
        text = strings.by_number[text]
    elif text is None:
        text = _PREFIXES[packed[0]] + strings.text(packed[1])
    return Event(
        number, cluster, proc, subproc, unpack_time(packed_time), text, body, detail, line, damaged
    )


def identity(event: Event | PlainData, strings: StringTable) -> Identity:
    """The identity of an event among those of its job."""
    if isinstance(event, Event):
        elapsed = event.time - _EPOCH
        return event.number, elapsed.days * 86400 + elapsed.seconds, event.text[:TEXT_LIMIT]
    plain = event
    number, packed_time, _, text, kind = plain[:5]
    if text is None:
        text = _PREFIXES[~kind if kind < 0 else kind] + strings.text(plain[7 if kind < 0 else 5])
    # The prefix and a host of the maximum length exceed the limit for a text.
    return (
        number,
        packed_time if packed_time.__class__ is int else packed_time[0],
        strings.text(text)[:TEXT_LIMIT],
    )


def identity_unredacted(event: Event) -> Identity:
    """The identity of an event that may contain secrets.

    Most copies add nothing: only their first lines are searched for secrets.
    """
    elapsed = event.time - _EPOCH
    text = redact_and_truncate(event.text)[:TEXT_LIMIT]
    return event.number, elapsed.days * 86400 + elapsed.seconds, text


def is_damaged(event: Event | PlainData) -> bool:
    """Whether the event was truncated in the log."""
    if isinstance(event, Event):
        return event.damaged
    plain = event
    return plain[4] < 0 and bool(plain[6])


# --- details --------------------------------------------------------------------------------


def _pack_detail(detail: Detail | None, strings: StringTable) -> PlainData:
    """The kind of an event's typed detail, 0 for none, and its fields."""
    if detail is None:
        return (0,)
    kind = _KINDS[detail.__class__]
    texts, converted = _PACKERS[kind]
    values: list[Any] = [kind, *astuple(detail)]
    is_shared = kind in _REPEATED_KINDS
    for index in texts:
        value = values[index]
        if value is not None:
            values[index] = strings.number_if_shared(value)
            is_shared = is_shared and values[index].__class__ is int
    for index, pack_value, _ in converted:
        value = values[index]
        if value is not None:
            values[index] = pack_value(value)
    packed = tuple(values)
    if is_shared:
        _remember(strings.packed, detail, packed)
    return packed


def _unpack_detail(packed: PlainData, strings: StringTable) -> Detail:
    """The inverse of :func:`_pack_detail` for an event with a typed detail."""
    kind, *fields = packed
    texts, converted = _PACKERS[kind]
    for index in texts:
        fields[index - 1] = strings.text(fields[index - 1])
    for index, _, unpack_value in converted:
        if fields[index - 1] is not None:
            fields[index - 1] = unpack_value(fields[index - 1])
    detail: Detail = _DETAILS[kind - 1](*fields)
    if kind in _REPEATED_KINDS:
        _remember(strings.details, packed, detail)
    return detail


def _remember(cache: dict[Any, Any], key: Any, value: Any) -> None:
    if len(cache) >= MAX_CACHED_DETAILS:
        cache.clear()
    cache[key] = value


class EventPacker(NamedTuple):
    """How the details of one type are packed; indices are from 1.

    ``texts``: indices of text fields. ``converted``: indices of fields without a plain value,
    with functions that convert to one and back.
    """

    texts: tuple[int, ...]
    converted: tuple[tuple[int, Callable[[Any], PlainData], Callable[[PlainData], Any]], ...]


def _pack_usage(usage: Sequence[UsageRow]) -> PlainData:
    return usage.text if isinstance(usage, UsageTable) else tuple(map(astuple, usage))


def _unpack_usage(plain: PlainData) -> Sequence[UsageRow]:
    return UsageTable(plain) if isinstance(plain, str) else tuple(UsageRow(*row) for row in plain)


def _pack_moment(moment: datetime) -> PlainData:
    return moment.timestamp()


def _unpack_moment(seconds: PlainData) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _pack_texts(texts: tuple[str, ...]) -> PlainData:
    return tuple(map(redact_and_truncate, texts)) if texts else texts


_TRANSFERS: Final = tuple(Transfer)

_CONVERTERS: Final[dict[str, tuple[Callable[[Any], PlainData], Callable[[PlainData], Any]]]] = {
    "Sequence[UsageRow]": (_pack_usage, _unpack_usage),
    "Transfer | None": (_TRANSFERS.index, _TRANSFERS.__getitem__),
    "datetime | None": (_pack_moment, _unpack_moment),
    "tuple[str, ...]": (_pack_texts, tuple),
}

_TEXTS: Final = frozenset({"str", "str | None", "tuple[str, ...]"})

_PLAIN: Final = frozenset({"int", "bool", "int | None", "bool | None", "float | None"})


def _packer_of(type_: Any) -> EventPacker:
    texts, converted = [], []
    for index, name in enumerate(type_.__struct_fields__, start=1):
        annotation = type_.__annotations__[name]
        kind = getattr(annotation, "__forward_arg__", annotation)
        if kind in ("str", "str | None"):
            texts.append(index)
        elif kind in _CONVERTERS:
            converted.append((index, *_CONVERTERS[kind]))
        elif kind not in _PLAIN:
            raise TypeError(f"{type_.__name__}.{name}: {kind} has no plain form")
    return EventPacker(tuple(texts), tuple(converted))


_DETAILS: Final[tuple[Any, ...]] = get_args(Detail)
_KINDS: Final[dict[Any, int]] = {type_: kind for kind, type_ in enumerate(_DETAILS, 1)}
_PACKERS: Final = {kind: _packer_of(type_) for type_, kind in _KINDS.items()}

_TEXT_FIELDS: Final[dict[Any, tuple[str, ...]]] = {
    type_: tuple(
        name
        for name, annotation in type_.__annotations__.items()
        if getattr(annotation, "__forward_arg__", annotation) in _TEXTS
    )
    for type_ in _DETAILS
}

_REPEATED_TYPES: Final = frozenset({Execute, FileTransfer, Held, Released})
_REPEATED_KINDS: Final = frozenset(map(_KINDS.__getitem__, _REPEATED_TYPES))
"""Details that repeat: there are few machines, kinds of transfers and reasons of holds."""

_COVERING_TYPES: Final = frozenset(
    {
        *(Submit, Execute, Evicted, Terminated, ImageSize, ShadowException, Aborted, Held),
        *(Released, RemoteError, ConnectionEvent, FileTransfer),
    }
)
"""Details with all that is shown of a body. Of any other type, the body is stored, too."""

_PREFIXES: Final = {
    _KINDS[Submit]: "Job submitted from host: ",
    _KINDS[Execute]: "Job executing on host: ",
}
"""First lines that end with the host, which is in the detail, too."""
