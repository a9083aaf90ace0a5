"""Events that nobody asks for at the moment, packed.

A year of trouble has a hundred thousand jobs, and each of their events is some ten objects.
Packed, a job's events are one string of bytes (:mod:`marshal` of plain tuples): a tenth of the
memory, and nothing that Python's garbage collector has to walk over. Texts that many jobs have
are kept once, in :class:`StringTable`.
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
    Submit,
    Transfer,
    UsageRow,
)
from metlmon.eventlog.usage_table import Usage
from metlmon.redact import redact_secrets

SHARED_LENGTH: Final = 400
"""Characters of the longest text that is kept once for many jobs: an address with all its
parameters. Longer ones are reasons, and few of them are alike."""

SEEN_ONCE: Final = 5000
"""Texts remembered that one event had: a second one that has it too makes it a shared one."""

SHORTHAND: Final = (
    ("\x01", "\tPartitionable Resources :"),
    ("\x02", " Request Allocated Assigned"),
    ("\x03", "\n\t   "),
    ("\x04", " " * 9),
    ("\x05", " " * 4),
)
"""One character each for what a usage table mostly consists of: its spaces tell which column a
number is in. More of them save less than they take time."""

MOST_ALIKE: Final = 5000
"""Details of machines and transfers that are kept: more than a pool has at a time."""

BODY_LIMIT: Final = 500
"""Characters kept of the body of an event that has no typed detail: enough to read what it
is about; months of them must fit in memory."""

LOOKED_AT: Final = 8 * BODY_LIMIT
"""Characters of a body that are looked through for secrets, of which one may be cut in two at
the end: far behind what is kept."""

TEXT_LIMIT: Final = 8000
"""Characters kept of any text of an event: a job can write a megabyte as its reason, and all that
is done with a text costs what its length costs."""

VERSION: Final = 4
"""Of marshal's format: the one in which short texts and tuples are small."""

Plain: TypeAlias = Any
"""Tuples of numbers, texts, bytes, None, True and False: what marshal takes."""

Identity: TypeAlias = tuple[int, int, str]
"""What makes an event of one job this event: number, seconds, and first line."""

_EPOCH: Final = datetime(2000, 1, 1)
_make: Final = cast("Callable[[type[Event], tuple[Any, ...]], Event]", tuple.__new__)


def kept(text: str) -> str:
    """As much as is kept of a text of an event, without what looks like a secret."""
    if len(text) <= TEXT_LIMIT:
        return redact_secrets(text)
    # A secret that is cut in two stands at the end, far behind what is kept.
    return redact_secrets(text[: 2 * TEXT_LIMIT])[:TEXT_LIMIT]


class StringTable:
    """Texts that several events have, each under a number."""

    def __init__(self, strings: Iterable[str] = ()) -> None:
        self.by_number = list(strings)
        self.numbers = {word: number for number, word in enumerate(self.by_number)}
        self._once: set[str] = set()
        self.details: dict[Plain, Detail] = {}

    def numbered(self, text: str) -> int | str:
        """The number of ``text``; itself where it is nobody else's yet. Without what looks like
        a secret: all texts of events that are new come by here."""
        number = self.numbers.get(text)
        if number is not None:
            return number
        if text in self._once:
            self._once.discard(text)
            return self.number(text)
        hidden = kept(text)
        if hidden != text:
            return self.numbers.get(hidden, hidden)
        if len(text) > SHARED_LENGTH:
            return text
        if len(self._once) >= SEEN_ONCE:
            self._once.clear()
        self._once.add(text)
        return text

    def number(self, text: str) -> int:
        """The number of a text that is known to be shared."""
        number = self.numbers.setdefault(text, len(self.by_number))
        if number == len(self.by_number):
            self.by_number.append(text)
        return number

    def shared(self, text: str) -> str:
        """The one object for a text that many have."""
        return self.by_number[self.number(text)]


def pack(streams: Mapping[Any, Sequence[Plain]], strings: StringTable) -> bytes:
    """The plain events of one job, by the logs they were read in (rank and file)."""
    parts = [
        (rank, strings.number(file), *filter(None, events))
        for (rank, file), events in streams.items()
    ]
    return marshal.dumps(tuple([part for part in parts if len(part) > 2]), VERSION)


def unpack(packed: bytes, strings: StringTable) -> list[tuple[int, str, list[Plain]]]:
    """What :func:`pack` packed: rank and file of each log, and the plain events from it."""
    return [
        (rank, strings.by_number[file], events) for rank, file, *events in marshal.loads(packed)
    ]


def plain_time(time: datetime) -> Plain:
    """A time without zone: whole seconds, or those, microseconds and fold."""
    since = time - _EPOCH
    seconds = since.days * 86400 + since.seconds
    if since.microseconds or time.fold:
        return (seconds, since.microseconds, time.fold)
    return seconds


def whole_seconds(time: datetime) -> int:
    """A time as identities have it."""
    since = time - _EPOCH
    return since.days * 86400 + since.seconds


def time_of(plain: Plain) -> datetime:
    """The time that :func:`plain_time` made plain."""
    if plain.__class__ is int:
        return _EPOCH + timedelta(0, plain)
    seconds, microseconds, fold = plain
    return (_EPOCH + timedelta(0, seconds, microseconds)).replace(fold=fold)


def pack_event(event: Event, strings: StringTable) -> Plain:
    """One event as plain data, but for its job, and for a body of which the typed detail has
    said all."""
    number, _, _, _, time, text, body, detail, line, damaged = event
    since = time - _EPOCH
    when: Plain = since.days * 86400 + since.seconds
    if since.microseconds or time.fold:
        when = (when, since.microseconds, time.fold)
    known, numbered = strings.numbers.get, strings.numbered
    kind: int = 0
    values: list[Any] = []
    told = False
    if detail is not None:
        kind = _KINDS[detail.__class__]
        _, get, texts, others = _PACKINGS[kind]
        values = list(get(detail))
        told = kind in _PREFIXES and text == _PREFIXES[kind] + values[0]
        for at in texts:
            value = values[at]
            if value is not None:
                number_of = known(value)
                values[at] = numbered(value) if number_of is None else number_of
        for at, put, _ in others:
            value = values[at]
            if value is not None:
                values[at] = put(value)
    number_of = known(text)
    first = None if told else numbered(text) if number_of is None else number_of
    if body:
        body = "" if kind and kind != _GENERIC else redact_secrets(body[:LOOKED_AT])[:BODY_LIMIT]
    if body or damaged:
        return (number, when, line, ~kind, first, body, damaged, *values)
    return (number, when, line, kind, first, *values)


def unpack_event(
    plain: Plain, cluster: int, proc: int, subproc: int, strings: StringTable
) -> Event:
    """The event that :func:`pack_event` packed."""
    number, when, line, kind, text, *values = plain
    time = time_of(when)
    by_number = strings.by_number
    if text.__class__ is int:
        text = by_number[text]
    body, damaged = "", False
    if kind < 0:
        kind = ~kind
        body, damaged, *values = values
    detail = None
    if kind:
        detail = unpack_detail(kind, values, strings)
        if text is None:
            host = values[0]
            text = _PREFIXES[kind] + (by_number[host] if host.__class__ is int else host)
    return _make(Event, (number, cluster, proc, subproc, time, text, body, detail, line, damaged))


def unpack_for_fold(plain: Plain, strings: StringTable) -> Event:
    """As much of an event as its job's life is made of: number, time, detail and line. Details
    that many have are one object."""
    number, when, line, kind = plain[:4]
    time = _EPOCH + timedelta(0, when) if when.__class__ is int else time_of(when)
    if kind in _ALIKE:
        told = plain[3:]
        detail = strings.details.get(told)
        if detail is None:
            detail = unpack_detail(kind, plain[5:], strings)
            if len(strings.details) >= MOST_ALIKE:
                strings.details.clear()
            strings.details[told] = detail
    elif kind > 0:
        detail = unpack_detail(kind, plain[5:], strings)
    elif kind:
        detail = unpack_detail(~kind, plain[7:], strings) if ~kind else None
    else:
        detail = None
    return _make(Event, (number, 0, 0, 0, time, "", "", detail, line, False))


def unpack_detail(kind: int, values: tuple[Plain, ...], strings: StringTable) -> Detail:
    """An event's typed detail."""
    type_, _, texts, others = _PACKINGS[kind]
    by_number, told = strings.by_number, list(values)
    for at in texts:
        if told[at].__class__ is int:
            told[at] = by_number[told[at]]
    for at, _, take in others:
        if told[at] is not None:
            told[at] = take(told[at])
    return type_(*told)


def identity(plain: Plain, strings: StringTable) -> Identity:
    """What makes a plain event of one job this one."""
    number, when, _, kind, text = plain[:5]
    if text is None:
        host = plain[7 if kind < 0 else 5]
        host = strings.by_number[host] if host.__class__ is int else host
        text = _PREFIXES[~kind if kind < 0 else kind] + host
    elif text.__class__ is int:
        text = strings.by_number[text]
    # A host is kept as long as a whole text is.
    return number, when if when.__class__ is int else when[0], text[:TEXT_LIMIT]


def damaged(plain: Plain) -> bool:
    """Was the event cut before its end?"""
    return plain[3] < 0 and bool(plain[6])


# --- details --------------------------------------------------------------------------------


class EventPacker(NamedTuple):
    """How details of one type are packed. ``values`` gives their fields; ``texts`` are the places
    of those that are text, ``others`` of those that are no plain value, with what makes one of
    them and back."""

    type: Callable[..., Detail]
    values: Callable[[Any], Iterable[Any]]
    texts: tuple[int, ...]
    others: tuple[tuple[int, Callable[[Any], Plain], Callable[[Plain], Any]], ...]


def _fields(type_: Any) -> tuple[str, ...]:
    return tuple(type_._fields if issubclass(type_, tuple) else type_.__dataclass_fields__)


def _values_of(type_: Any) -> Callable[[Any], Iterable[Any]]:
    names = _fields(type_)
    if issubclass(type_, tuple):
        return tuple
    if len(names) == 1:
        return lambda record: (getattr(record, names[0]),)
    return attrgetter(*names)


_ROW: Final = _values_of(UsageRow)


def _put_usage(usage: Sequence[UsageRow]) -> Plain:
    if not isinstance(usage, Usage):
        return tuple(tuple(_ROW(row)) for row in usage)
    text = usage.text
    if "\0" in text or any(mark in text for mark, _ in SHORTHAND):
        return "\0" + text
    for mark, long in SHORTHAND:
        text = text.replace(long, mark)
    return text


def _take_usage(plain: Plain) -> Sequence[UsageRow]:
    if not isinstance(plain, str):
        return tuple(UsageRow(*row) for row in plain)
    return Usage(plain[1:]) if plain.startswith("\0") else _Shortened(plain)


class _Shortened(Usage):
    """A table whose text is written out when somebody asks for it: most are never looked at."""

    __slots__ = ("_short",)

    def __init__(self, short: str) -> None:
        self._short = short

    def __getattr__(self, name: str) -> str:
        if name != "text":
            raise AttributeError(name)
        text = self._short
        for mark, long in SHORTHAND:
            text = text.replace(mark, long)
        self.text = text
        return text


def _put_moment(moment: datetime) -> Plain:
    return moment.timestamp()


def _take_moment(seconds: Plain) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _put_texts(texts: tuple[str, ...]) -> Plain:
    return tuple(map(kept, texts)) if texts else texts


_TRANSFERS: Final = tuple(Transfer)

_OTHERS: Final[dict[str, tuple[Callable[[Any], Plain], Callable[[Plain], Any]]]] = {
    "Sequence[UsageRow]": (_put_usage, _take_usage),
    "Transfer | None": (_TRANSFERS.index, _TRANSFERS.__getitem__),
    "datetime | None": (_put_moment, _take_moment),
    "tuple[str, ...]": (_put_texts, tuple),
}

_PLAIN: Final = frozenset({"int", "bool", "int | None", "bool | None", "float | None"})


def _packing(type_: Any) -> EventPacker:
    texts, others = [], []
    for at, name in enumerate(_fields(type_)):
        told = type_.__annotations__[name]
        kind = getattr(told, "__forward_arg__", told)
        if kind in ("str", "str | None"):
            texts.append(at)
        elif kind in _OTHERS:
            others.append((at, *_OTHERS[kind]))
        elif kind not in _PLAIN:
            raise TypeError(f"{type_.__name__}.{name}: {kind} has no plain form")
    return EventPacker(type_, _values_of(type_), tuple(texts), tuple(others))


_DETAILS: Final[tuple[Any, ...]] = get_args(Detail)
_KINDS: Final[dict[Any, int]] = {type_: kind for kind, type_ in enumerate(_DETAILS, 1)}
_PACKINGS: Final = {kind: _packing(type_) for type_, kind in _KINDS.items()}

_GENERIC: Final = _KINDS[Generic]

_ALIKE: Final = frozenset({_KINDS[Execute], _KINDS[FileTransfer]})
"""Kinds that most events of most jobs are of: machines are few, and so are transfers' words."""

_PREFIXES: Final = {
    _KINDS[Submit]: "Job submitted from host: ",
    _KINDS[Execute]: "Job executing on host: ",
}
"""First lines that end with the host, which the detail says as well."""
