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
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias, cast, get_args

from metlmon.eventlog import (
    Detail,
    Event,
    Execute,
    FileTransfer,
    Generic,
    Held,
    Released,
    Submit,
    Transfer,
    UsageRow,
)
from metlmon.eventlog.usage_table import UsageTable
from metlmon.redact import redact_secrets

SHARED_LENGTH: Final = 400
"""Maximum length of shared texts: an address with all its parameters. Longer texts are reasons,
few of which are equal."""

MAX_SEEN_ONCE: Final = 5000
"""Texts remembered after their first use: the second use makes them shared."""

MAX_CACHED_DETAILS: Final = 5000
"""Cached details of machines, transfers and holds: more than a pool has at a time."""

BODY_LIMIT: Final = 500
"""Characters stored of the body of an event without typed detail: enough to be understood, and
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
_make: Final = cast("Callable[[type[Event], tuple[Any, ...]], Event]", tuple.__new__)


def redact_and_truncate(text: str) -> str:
    """Truncate a text of an event to the stored length, and redact secrets."""
    if len(text) <= TEXT_LIMIT:
        return redact_secrets(text)
    # A secret truncated at the end is far beyond the stored part.
    return redact_secrets(text[: 2 * TEXT_LIMIT])[:TEXT_LIMIT]


class StringTable:
    """Texts shared by several events, by number."""

    def __init__(self, strings: Iterable[str] = ()) -> None:
        self.by_number = list(strings)
        self.numbers = {word: number for number, word in enumerate(self.by_number)}
        self._seen_once: set[str] = set()
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
        redacted = redact_and_truncate(text)
        if redacted != text:
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


def pack(streams: Mapping[Any, Sequence[PlainData]], strings: StringTable) -> bytes:
    """Pack the plain events of one job, by log (rank and file)."""
    parts = [
        (rank, strings.number(file), *filter(None, events))
        for (rank, file), events in streams.items()
    ]
    return marshal.dumps(tuple([part for part in parts if len(part) > 2]), VERSION)


def unpack(packed: bytes, strings: StringTable) -> list[tuple[int, str, list[PlainData]]]:
    """Unpack the result of :func:`pack`: rank, file and plain events of each log."""
    return [
        (rank, strings.by_number[file], events) for rank, file, *events in marshal.loads(packed)
    ]


def whole_seconds(time: datetime) -> int:
    """A time in whole seconds, as used in identities."""
    elapsed = time - _EPOCH
    return elapsed.days * 86400 + elapsed.seconds


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
    number, _, _, _, time, text, body, detail, line, damaged = event
    elapsed = time - _EPOCH
    packed_time: PlainData = elapsed.days * 86400 + elapsed.seconds
    if elapsed.microseconds or time.fold:
        packed_time = (packed_time, elapsed.microseconds, time.fold)
    number_of, number_if_shared = strings.numbers.get, strings.number_if_shared
    kind: int = 0
    values: list[Any] = []
    is_redundant = False
    if detail is not None:
        kind = _KINDS[detail.__class__]
        _, get, texts, converted = _PACKERS[kind]
        values = list(get(detail))
        is_redundant = kind in _PREFIXES and text == _PREFIXES[kind] + values[0]
        for index in texts:
            value = values[index]
            if value is not None:
                text_number = number_of(value)
                values[index] = number_if_shared(value) if text_number is None else text_number
        for index, pack_value, _ in converted:
            value = values[index]
            if value is not None:
                values[index] = pack_value(value)
    text_number = number_of(text)
    text_or_number = (
        None if is_redundant else number_if_shared(text) if text_number is None else text_number
    )
    if body:
        # A secret truncated at the end is far beyond the stored part.
        is_covered = kind and kind != _GENERIC
        body = "" if is_covered else redact_secrets(body[: 8 * body_limit])[:body_limit]
    if body or damaged:
        return (number, packed_time, line, ~kind, text_or_number, body, damaged, *values)
    return (number, packed_time, line, kind, text_or_number, *values)


def unpack_event(
    plain: PlainData, cluster: int, proc: int, subproc: int, strings: StringTable
) -> Event:
    """The inverse of :func:`pack_event`; frequent details are shared objects."""
    number, packed_time, line, kind, text = plain[:5]
    body, damaged, values = "", False, plain[5:]
    if kind < 0:
        kind = ~kind
        body, damaged, *values = values
    detail = None
    if kind in _CACHED_KINDS:
        key = (kind, *values)
        detail = strings.details.get(key)
        if detail is None:
            if len(strings.details) >= MAX_CACHED_DETAILS:
                strings.details.clear()
            detail = strings.details[key] = _unpack_detail(kind, values, strings)
    elif kind:
        detail = _unpack_detail(kind, values, strings)
    if text is None:
        text = _PREFIXES[kind] + strings.text(values[0])
    time = unpack_time(packed_time)
    event = (number, cluster, proc, subproc, time, strings.text(text), body, detail, line, damaged)
    return _make(Event, event)


def _unpack_detail(kind: int, values: Sequence[PlainData], strings: StringTable) -> Detail:
    """Unpack an event's typed detail."""
    type_, _, texts, converted = _PACKERS[kind]
    fields = list(values)
    for index in texts:
        fields[index] = strings.text(fields[index])
    for index, _, unpack_value in converted:
        if fields[index] is not None:
            fields[index] = unpack_value(fields[index])
    return type_(*fields)


def identity(plain: PlainData, strings: StringTable) -> Identity:
    """The identity of a plain event among those of its job."""
    number, packed_time, _, kind, text = plain[:5]
    if text is None:
        text = _PREFIXES[~kind if kind < 0 else kind] + strings.text(plain[7 if kind < 0 else 5])
    # The prefix and a host of the maximum length exceed the limit for a text.
    return (
        number,
        packed_time if packed_time.__class__ is int else packed_time[0],
        strings.text(text)[:TEXT_LIMIT],
    )


def is_damaged(plain: PlainData) -> bool:
    """Was the event truncated in the log?"""
    return plain[3] < 0 and bool(plain[6])


# --- details --------------------------------------------------------------------------------


class EventPacker(NamedTuple):
    """Packs details of one type.

    ``values``: returns their fields. ``texts``: indices of text fields. ``converted``: indices
    of fields without a plain value, with functions that convert to one and back.
    """

    type: Callable[..., Detail]
    values: Callable[[Any], Iterable[Any]]
    texts: tuple[int, ...]
    converted: tuple[tuple[int, Callable[[Any], PlainData], Callable[[PlainData], Any]], ...]


def _fields(type_: Any) -> tuple[str, ...]:
    return tuple(type_._fields if issubclass(type_, tuple) else type_.__struct_fields__)


def _values_of(type_: Any) -> Callable[[Any], Iterable[Any]]:
    names = _fields(type_)
    if issubclass(type_, tuple):
        return tuple
    if len(names) == 1:
        return lambda record: (getattr(record, names[0]),)
    return attrgetter(*names)


_ROW: Final = _values_of(UsageRow)


def _pack_usage(usage: Sequence[UsageRow]) -> PlainData:
    return usage.text if isinstance(usage, UsageTable) else tuple(tuple(_ROW(row)) for row in usage)


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

_PLAIN: Final = frozenset({"int", "bool", "int | None", "bool | None", "float | None"})


def _packer_of(type_: Any) -> EventPacker:
    texts, converted = [], []
    for index, name in enumerate(_fields(type_)):
        annotation = type_.__annotations__[name]
        kind = getattr(annotation, "__forward_arg__", annotation)
        if kind in ("str", "str | None"):
            texts.append(index)
        elif kind in _CONVERTERS:
            converted.append((index, *_CONVERTERS[kind]))
        elif kind not in _PLAIN:
            raise TypeError(f"{type_.__name__}.{name}: {kind} has no plain form")
    return EventPacker(type_, _values_of(type_), tuple(texts), tuple(converted))


_DETAILS: Final[tuple[Any, ...]] = get_args(Detail)
_KINDS: Final[dict[Any, int]] = {type_: kind for kind, type_ in enumerate(_DETAILS, 1)}
_PACKERS: Final = {kind: _packer_of(type_) for type_, kind in _KINDS.items()}

_GENERIC: Final = _KINDS[Generic]

_CACHED_KINDS: Final = frozenset(
    {_KINDS[Execute], _KINDS[FileTransfer], _KINDS[Held], _KINDS[Released]}
)
"""Kinds whose details repeat: there are few machines, kinds of transfers and reasons of holds."""

_PREFIXES: Final = {
    _KINDS[Submit]: "Job submitted from host: ",
    _KINDS[Execute]: "Job executing on host: ",
}
"""First lines that end with the host, which is in the detail, too."""
