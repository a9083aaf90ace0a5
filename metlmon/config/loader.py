"""Loads both ``metlmon.toml`` files: every setting, its origin, and all problems.

Each key has a reader, which converts the TOML value to what :class:`Settings` expects, and a rule
for merging two files. A value that cannot be converted is a problem, and its key counts as unset.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, tzinfo
from pathlib import Path
from sys import float_info
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args

from msgspec import Meta, Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from metlmon.config.settings import (
    AllocationSettings,
    EventName,
    InvalidPattern,
    Label,
    MetricPattern,
    OwnCommand,
    SafePattern,
    SecretText,
    Settings,
    TerminalNotice,
)
from metlmon.config.toml_file import SettingProblem, TomlFile, Where, dotted_key
from metlmon.config.user_state import user_directory
from metlmon.errors import InputError, nearest
from metlmon.model.sites import BUILT_IN_SITES
from metlmon.redact import HIDDEN, harmless
from metlmon.remote import filesystem

if TYPE_CHECKING:
    from urllib.parse import SplitResult
    from zoneinfo import ZoneInfo

NAME: Final = "metlmon.toml"

MAX_REMARKS: Final = 20

ORDER: Final = ("dagdir", "user")
"""The origins in order of precedence."""


class Source(Struct, frozen=True):
    """A settings file.

    ``origin``: ``user`` or ``dagdir``; ``foreign``: it belongs to another user.
    """

    origin: str
    path: Path
    exists: bool
    foreign: bool = False


class SettingEntry(Struct, frozen=True):
    """One effective setting, or one item of a list of them.

    ``number``: position in the list, from 0, in search order. ``value``: as in
    :class:`Settings`. ``origin``: ``built-in``, ``user`` or ``dagdir``, with file and line; these
    are None for built-in settings.
    """

    key: str
    value: Any
    origin: str
    path: Path | None = None
    line: int | None = None
    number: int | None = None

    def json_value(self) -> Any:
        """The value for JSON."""
        if names := _PAIRS.get(self.key):
            return dict(zip(names, self.value, strict=True))
        return to_builtins(self.value, enc_hook=_encode, order="deterministic")


_PAIRS: Final = {
    "site": ("host", "name"),
    "site_aliases": ("logged", "shown"),
    "gpu_aliases": ("logged", "shown"),
    "keys": ("action", "key"),
    "columns": ("screen", "columns"),
}
"""Settings whose items are pairs, with the names of both in JSON."""


def _encode(value: Any) -> str:
    return str(value) if isinstance(value, tzinfo | SecretText) else str(value.pattern)


class Configuration(Struct, frozen=True):
    """All settings, with their sources and problems.

    ``settings``: the effective settings, without the invalid ones.
    """

    sources: tuple[Source, ...]
    settings: Settings
    entries: tuple[SettingEntry, ...]
    problems: tuple[SettingProblem, ...]


def time_zone(name: str) -> ZoneInfo:
    """The zone called ``name`` ("America/Chicago", "UTC"). Raises InputError."""
    # Imported here, since few users set a zone.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        near = nearest(name[:40], available_timezones(), cutoff=0.8)
        advice = f"did you mean {near}?" if near else "give one such as America/Chicago or UTC"
        raise InputError(f"{name[:40]!r} is not a time zone; {advice}") from None


def cache_directory() -> Path | None:
    """The cache directory, existing or not; None without a home directory."""
    return user_directory("XDG_CACHE_HOME", ".cache")


def load_settings(path: Path | None) -> Settings:
    """The user's settings, overridden by those of a dagdir, if one is given.

    ``path``: the dagdir, or a file in it. Raises InputError with the first problem. If the dagdir's
    file belongs to another user, who alone can correct it, its invalid settings are left out
    instead; ``Settings.remarks`` names these, and the settings in force from it.
    """
    if path is not None and filesystem.isfile(path):
        path = path.parent
    config = load_configuration(path)
    foreign_path = next(
        (source.path for source in config.sources if source.origin == "dagdir" and source.foreign),
        None,
    )
    own_problems = [problem for problem in config.problems if problem.path != foreign_path]
    if own_problems:
        first, *others = own_problems
        more = f"; {len(others)} more: metlmon config validate" if others else ""
        raise InputError(f"{first}{more}")
    if foreign_path is None:
        return config.settings
    remarks = [
        (NAME, problem.line, f"somebody else's setting, left out: {problem.message}")
        for problem in config.problems[:MAX_REMARKS]
    ]
    in_force = sorted({entry.key for entry in config.entries if entry.origin == "dagdir"})
    if in_force:
        text = f"somebody else's settings hold here: {', '.join(in_force)}; see metlmon config"
        remarks.insert(0, (NAME, None, text))
    return replace(config.settings, remarks=tuple(remarks))


def load_configuration(dagdir: Path | None) -> Configuration:
    """The user's settings, overridden by the dagdir's. Never raises: see ``problems``."""
    own = user_directory("XDG_CONFIG_HOME", ".config")
    files = {} if own is None else {"user": TomlFile(own / NAME)}
    if dagdir is not None:
        files["dagdir"] = TomlFile(dagdir / NAME, within=dagdir)
    found = {origin: _read(file, origin) for origin, file in files.items()}
    entries: list[SettingEntry] = []
    for key, setting in SETTINGS.items():
        merged = setting.merge(
            key, [each for origin in ORDER if origin in found for each in found[origin][key]]
        )
        if isinstance(setting, _Tables) and not setting.named:
            merged = [replace(each, number=number) for number, each in enumerate(merged)]
        entries += merged
    return Configuration(
        sources=tuple(
            Source(origin, file.path, file.exists, file.foreign) for origin, file in files.items()
        ),
        settings=_settings(entries),
        entries=tuple(entries),
        problems=tuple(
            problem
            for file in files.values()
            for problem in sorted(file.problems, key=lambda problem: problem.line or 0)
        ),
    )


_FIELDS: Final = {"tz": "zone", "site": "sites", "label": "labels"}
"""Fields of :class:`Settings` that have other names than their keys."""


def _settings(entries: Iterable[SettingEntry]) -> Settings:
    found: dict[str, list[Any]] = {key: [] for key in SETTINGS}
    for entry in entries:
        if entry.origin != "built-in" or isinstance(SETTINGS[entry.key], _Value):
            found[entry.key].append(entry.value)
    values: dict[str, Any] = {
        _FIELDS.get(key, key): each[0] if isinstance(SETTINGS[key], _Value) else tuple(each)
        for key, each in found.items()
    }
    for name in TABLES:
        fields = {key: values.pop(f"{name}.{key}") for key in _table_keys(name)}
        values[name] = replace(getattr(Settings(), name), **fields)
    values["metrics"] = replace(values["metrics"], patterns=values.pop("metric"))
    return Settings(**values)


def _default(key: str) -> Any:
    """The value of a setting that is in no file."""
    table, _, name = key.rpartition(".")
    return getattr(getattr(Settings(), table) if table else Settings(), _FIELDS.get(name, name))


# --- readers: each converts one value of TOML, or refuses it ------------------------------


class InvalidValue(Exception):
    """The expected value of a setting, as the text after its key: ``is true or false``."""


Reader = Callable[[Any], Any]
"""Converts a TOML value to that of a setting. Raises InvalidValue."""

MAX_TEXT: Final = 1000

MAX_ITEMS: Final = 1000
"""Items of a list, which is searched for each host, run or file."""

MAX_WILDCARD_FOLDERS: Final = 3
"""Folders with ``*`` in a file's name pattern: each lists many folders."""

PLACEHOLDERS: Final = frozenset({"uuid", "run"})
"""Names allowed in braces in the name pattern of a file."""

MESSAGE_FIELDS: Final = ("title", "text", "event", "ensemble", "dagdir")
"""Names that users may try in braces in an argument of the notification command."""

MAX_INTERVAL: Final = 86400


def typed(kind: Any, expected: str) -> Reader:
    """A reader of values of this type."""

    def read(value: object) -> Any:
        try:
            return convert(value, kind)
        except ValidationError:
            raise InvalidValue(expected) from None

    return read


Text = Annotated[str, Meta(max_length=MAX_TEXT)]

read_text: Final = typed(Text, f" is a text in quotes of at most {MAX_TEXT} characters")

read_texts: Final = typed(
    Annotated[tuple[Text, ...], Meta(max_length=MAX_ITEMS)],
    f' is a list of texts, ["…", "…"], at most {MAX_ITEMS} of {MAX_TEXT} characters',
)

read_codes: Final = typed(frozenset[int], " is a list of whole numbers, e.g. [85]")

read_flag: Final = typed(bool, " is true or false")


def read_name(value: Any) -> str:
    """A text in quotes, made safe to show."""
    return harmless(read_text(value))


def pattern_with(*groups: str) -> Reader:
    """A reader of a pattern with these groups."""

    def read(value: object) -> SafePattern:
        try:
            pattern = SafePattern(read_text(value))
        except InvalidPattern as error:
            raise InvalidValue(f" {error}") from None
        if not set(groups) <= pattern.groupindex.keys():
            named = " and ".join(f"(?P<{group}>…)" for group in groups)
            more = "s" if len(groups) > 1 else ""
            raise InvalidValue(f" needs the group{more} {named}")
        return pattern

    return read


def read_path(value: object) -> str:
    """A name pattern below the dagdir, with known placeholders."""
    pattern: str = read_text(value)
    if not pattern or pattern.startswith("/") or ".." in pattern.split("/"):
        raise InvalidValue(f": {pattern!r} is not a file below the dagdir")
    *folders, _ = pattern.split("/")
    if sum(1 for folder in folders if set(folder) & set("*?[")) > MAX_WILDCARD_FOLDERS:
        limit = f"more than {MAX_WILDCARD_FOLDERS} folders with *"
        raise InvalidValue(f": {pattern!r} has {limit}: name them")
    unknown = sorted(set(re.findall(r"\{([^{}]*)\}", pattern)) - PLACEHOLDERS)
    if unknown:
        raise InvalidValue(f": {{{unknown[0]}}} is not known; there are {{run}} and {{uuid}}")
    return pattern


def read_paths(value: object) -> tuple[str, ...]:
    """A list of name patterns below the dagdir."""
    return tuple(map(read_path, read_texts(value)))


read_goal: Final = typed(Literal["min", "max"], ' is "min" or "max"')


def choices(kind: Any) -> Reader:
    """A reader of a list of texts, each of which is one of this ``Literal``."""
    return typed(tuple[kind, ...], f" is a list of some of {', '.join(get_args(kind))}")


def _read_program(value: object) -> tuple[str, ...]:
    words: tuple[str, ...] = read_texts(value)
    program = words[0] if words else ""
    if not program or "{" in program or ("/" in program and program[0] not in "/~"):
        raise InvalidValue(
            " is a list: a program in PATH or with an absolute path, and its arguments, such as "
            '["sh", "-c", "notify-send \\"$METLMON_TITLE\\" \\"$METLMON_TEXT\\""]'
        )
    return words


OWN_FIELDS: Final = ("job", "run", "dagdir")
"""Names allowed in braces, as a whole argument, in a command of the user's own."""

RUNS_ARGUMENTS: Final = frozenset(
    """
    sh bash dash zsh ksh csh tcsh fish busybox env sudo su doas exec eval xargs ssh nohup nice
    timeout setsid
    """.split()
)
"""Programs that run their arguments, or have a shell do it."""


def read_own_command(value: object) -> tuple[str, ...]:
    """A program and its arguments, which may stand for the job, the run or the dagdir."""
    words = _read_program(value)
    for word in words:
        found = re.search(rf"\{{({'|'.join(OWN_FIELDS)})\}}", word)
        if found is not None and word != found[0]:
            raise InvalidValue(f": {word!r}: {found[0]} is an argument of its own")
        if found is not None and words[0].rpartition("/")[2] in RUNS_ARGUMENTS:
            raise InvalidValue(
                f": {words[0]} could run {found[0]}, which others wrote: name a script of yours"
            )
    return words


_CAP: Final = re.compile(r"\^[a-z]|[!-~]|f(?:[1-9]|1[0-2])")


def read_key_cap(value: object) -> str:
    """A key cap: a character, ``^`` and a letter, or a function key."""
    cap: str = read_text(value)
    if not _CAP.fullmatch(cap) or cap in ("^i", "^j", "^m", "^h"):
        raise InvalidValue(' is a key: a character, "^g" (ctrl), or "f5"')
    return cap


def read_command(value: object) -> tuple[str, ...]:
    """A program and its arguments, which are passed on unchanged."""
    words = _read_program(value)
    for word in words:
        if found := re.search(rf"\{{({'|'.join(MESSAGE_FIELDS)})\}}", word):
            raise InvalidValue(
                f": {found[0]} cannot be an argument: the program could run what a log wrote. It "
                f"has the variable METLMON_{found[1].upper()} in its environment, and all as JSON "
                "on its standard input"
            )
    return words


LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


def _url(value: object, expected: str, elsewhere: str) -> SplitResult:
    """The parts of a URL. Problems do not quote it, since it may be a secret."""
    from urllib.parse import urlsplit  # Imported here, since few users have one.

    url = read_text(value)
    try:
        parts = urlsplit(url)
        # A port that is not a number raises ValueError as well.
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidValue(expected)
    if "@" in parts.netloc:
        raise InvalidValue(f" has a user name in it{elsewhere}")
    return parts


def read_webhook(value: object) -> SecretText:
    """An https URL, or an http URL of this host; shown as the host alone."""
    parts = _url(value, " is not a valid URL", ", which is not supported")
    host, port = parts.hostname, parts.port
    if parts.scheme != "https" and not (parts.scheme == "http" and host in LOOPBACK):
        raise InvalidValue(" begins with https:// (http:// is for this host alone)")
    shown = f"{parts.scheme}://{host}" + (f":{port}" if port else "")
    is_secret = len(parts.path) > 1 or parts.query
    return SecretText(str(value), f"{shown}/{HIDDEN}" if is_secret else shown)


def read_tracking_uri(value: object) -> str:
    """The http or https address of an MLflow server."""
    expected = " is the https:// or http:// address of an MLflow server"
    parts = _url(value, expected, ": that goes into username and password")
    if parts.scheme not in ("http", "https"):
        raise InvalidValue(expected)
    return str(value)


_read_ascii: Final = typed(
    Annotated[str, Meta(pattern=r"\A[ -~]+\Z")],
    " is a text of printable ASCII characters in quotes",
)


def read_secret(value: object) -> SecretText:
    """A token or a password: one line of printable ASCII. Problems do not quote it."""
    return SecretText(_read_ascii(value))


read_seconds: Final = typed(
    Annotated[int, Meta(ge=0, le=MAX_INTERVAL)],
    f" is a whole number of seconds, at most {MAX_INTERVAL}",
)
"""A number of seconds, up to a day."""

read_amount: Final = typed(
    Annotated[float, Meta(ge=0, le=float_info.max)], " is a number, 0 or more"
)


def read_local_time(value: object) -> datetime:
    """A date, or a date and time without a zone."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value
    elif isinstance(value, date):
        return datetime.combine(value, time())
    raise InvalidValue(" is a date or a local time: 2026-05-01 or 2026-05-01T08:00:00")


# --- kinds of settings --------------------------------------------------------------------


# ``read`` returns the values in a file, each with its key there; ``merge`` those in force of the
# entries in all files, which are in order of precedence.

_Values = list[tuple[Any, Where]]


def _first_of_each(
    entries: Iterable[SettingEntry], name: Callable[[Any], str]
) -> list[SettingEntry]:
    """The first entry of each name."""
    first: dict[str, SettingEntry] = {}
    for entry in entries:
        first.setdefault(name(entry.value), entry)
    return list(first.values())


class _Value(Struct):
    """A setting with a single value: the dagdir's, else the user's.

    ``lasting``: a value that the other file cannot revoke.
    """

    reader: Reader
    lasting: Any = None

    def read(self, file: TomlFile, where: Where, value: object) -> _Values:
        fields = _read_fields(file, where[:-1], {where[-1]: value}, {str(where[-1]): self.reader})
        return [(field, where) for field in fields.values()]

    def merge(self, key: str, entries: list[SettingEntry]) -> list[SettingEntry]:
        lasting = [each for each in entries if self.lasting and each.value == self.lasting]
        return [*lasting, *entries, SettingEntry(key, _default(key), "built-in")][:1]


class _Names(Struct):
    """A table of names: those of both files; the dagdir's value if both have a name.

    ``form``: an example; ``reader``: that of the values.
    """

    form: str
    reader: Reader = read_name

    def read(self, file: TomlFile, where: Where, value: object) -> _Values:
        table = f"[{where[0]}]"
        if not isinstance(value, dict):
            file.report_problem(where, f"{table} is a table: {self.form}")
        elif len(value) > MAX_ITEMS:
            file.report_problem(where, f"{table} has more than {MAX_ITEMS} names")
        else:
            fields = _read_fields(file, where, value, dict.fromkeys(value, self.reader))
            return [((harmless(key), each), (*where, key)) for key, each in fields.items()]
        return []

    def merge(self, key: str, entries: list[SettingEntry]) -> list[SettingEntry]:
        return _first_of_each(entries, lambda value: value[0])


class _Tables(Struct):
    """Tables with the same fields: an array of them or, if ``named``, a table of them by name.

    ``make`` makes an item from the fields, which ``readers`` read; ``form``: an example with the
    fields that are ``required``, by default all. In an array, the dagdir's items come before the
    user's and then ``built_in``; in a table, the dagdir's item counts if both files have a name.
    """

    make: Callable[..., Any]
    form: str
    readers: Mapping[str, Reader]
    required: frozenset[str] | None = None
    named: bool = False
    built_in: tuple[Any, ...] = ()

    def read(self, file: TomlFile, where: Where, value: object) -> _Values:
        if not isinstance(value, dict if self.named else list):
            file.report_problem(where, self.form)
            return []
        if len(value) > MAX_ITEMS:
            header = f"[{dotted_key(where)}.NAME]" if self.named else f"[[{dotted_key(where)}]]"
            file.report_problem(where, f"there are more than {MAX_ITEMS} {header}")
            return []
        items: _Values = []
        required = self.readers.keys() if self.required is None else self.required
        for key, table in value.items() if isinstance(value, dict) else enumerate(value):
            path = (*where, key)
            if isinstance(table, dict):
                file.report_unknown_keys(path, table, self.readers)
            if not isinstance(table, dict) or not required <= table.keys() or key == "":
                file.report_problem(path, self.form)
                continue
            readers = {name: reader for name, reader in self.readers.items() if name in table}
            fields = _read_fields(file, path, table, readers)
            if fields.keys() == readers.keys():
                name = {"name": key} if self.named else {}
                items.append((self.make(**name, **fields), path))
        return items

    def merge(self, key: str, entries: list[SettingEntry]) -> list[SettingEntry]:
        if self.named:
            return _first_of_each(entries, lambda value: value.name)
        return [*entries, *(SettingEntry(key, item, "built-in") for item in self.built_in)]


TABLES: Final = {
    "metrics": 'primary = "val_loss"',
    "notify": 'terminal = ["bell"]',
    "tracking": 'uri = "https://mlflow.example.edu"',
}
"""Tables whose keys are settings of their own, with an example."""

DANGERS: Final = {
    "notify": "run a command as you",
    "command": "run a command as you",
    "tracking": "send what your ensembles do to anybody",
}
"""What each table does, and why a file of another user must not contain it."""

PRIVATE: Final = ("keys", "notify", "tracking", "command")
"""Tables allowed only in the user's own file: a dagdir may be a copy of somebody else's."""


def _table_keys(table: str) -> list[str]:
    return [key.removeprefix(f"{table}.") for key in SETTINGS if key.startswith(f"{table}.")]


def _read(file: TomlFile, origin: str) -> dict[str, list[SettingEntry]]:
    """The valid settings in ``file``, by key, such as ``metrics.primary``."""
    file.report_unknown_keys((), file.table, KEYS)
    values = dict(file.table)
    for name in PRIVATE:
        if name in values and origin != "user":
            file.report_problem((name,), f"[{name}] belongs to your own metlmon.toml")
            del values[name]
    for name, danger in DANGERS.items():
        if values.get(name) and file.foreign:
            text = f"[{name}] could {danger}, and this file belongs to another user"
            file.report_problem((name,), text)
            del values[name]
    for name, example in TABLES.items():
        table = values.pop(name, {})
        if isinstance(table, dict):
            file.report_unknown_keys((name,), table, _table_keys(name))
            values |= {f"{name}.{key}": value for key, value in table.items()}
        else:
            file.report_problem((name,), f"{name} is a table: [{name}], then {example}")
    entries: dict[str, list[SettingEntry]] = {key: [] for key in SETTINGS}
    for key, setting in SETTINGS.items():
        if key in values:
            entries[key] = [
                SettingEntry(key, value, origin, file.path, file.line(where))
                for value, where in setting.read(file, tuple(key.split(".")), values[key])
            ]
    return entries


def _read_fields(
    file: TomlFile, where: Where, table: Mapping[Any, Any], readers: Mapping[str, Reader]
) -> dict[str, Any]:
    values = {}
    for key, reader in readers.items():
        try:
            values[key] = reader(table[key])
        except InvalidValue as error:
            field = (*where, key)
            file.report_problem(field, f"{dotted_key(field)}{error}")
    return values


def _read_zone(value: object) -> ZoneInfo:
    try:
        return time_zone(read_text(value))
    except InputError as error:
        raise InvalidValue(f": {error}") from None


SETTINGS: Final[Mapping[str, _Value | _Names | _Tables]] = {
    "tz": _Value(_read_zone),
    "train_node": _Value(pattern_with("run", "epoch")),
    "side_node": _Value(pattern_with("run", "epoch")),
    "checkpoint_codes": _Value(read_codes),
    "read_only": _Value(read_flag, lasting=True),
    "site": _Tables(
        lambda host, name: (host, name),
        'each [[site]] needs host = "*.example.edu" and name = "example"',
        {"host": read_text, "name": read_name},
        built_in=BUILT_IN_SITES,
    ),
    "site_aliases": _Names('"as logged" = "as shown"'),
    "gpu_aliases": _Names('"as logged" = "as shown"'),
    "label": _Tables(
        Label,
        'each [[label]] needs name = "control" and runs = ["run1*", "0ee9fad9"]',
        {"name": read_name, "runs": read_texts},
    ),
    "metrics.files": _Value(read_paths),
    "metrics.primary": _Value(read_name),
    "metrics.goal": _Value(read_goal),
    "metric": _Tables(
        MetricPattern,
        'each [[metric]] needs name = "val_loss", file = "out" and '
        "pattern = 'val_loss=(?P<value>\\S+)'",
        {"name": read_name, "file": read_path, "pattern": pattern_with("value")},
    ),
    "keys": _Names('sort = "o"'),
    "columns": _Names('overview = ["progress", "state", "best"]', reader=read_texts),
    "notify.about": _Value(choices(EventName)),
    "notify.terminal": _Value(choices(TerminalNotice)),
    "notify.command": _Value(read_command),
    "notify.webhook": _Value(read_webhook),
    "notify.interval": _Value(read_seconds),
    "tracking.uri": _Value(read_tracking_uri),
    "tracking.experiment": _Value(read_name),
    "tracking.token": _Value(read_secret),
    "tracking.username": _Value(read_text),
    "tracking.password": _Value(read_secret),
    "advisor": _Tables(
        AllocationSettings,
        'each allocation is a table: [advisor.NAME], then balance = 5000 and sites = ["delta"]',
        {
            "balance": read_amount,
            "sites": read_texts,
            "charge": read_amount,
            "as_of": read_local_time,
        },
        required=frozenset({"balance", "sites"}),
        named=True,
    ),
    "command": _Tables(
        OwnCommand,
        'each [[command]] needs key = "^g", name = "its requirements" and '
        'command = ["condor_q", "-better-analyze", "{job}"]',
        {"key": read_key_cap, "name": read_name, "command": read_own_command},
    ),
}
"""All settings, in the order of the documentation."""

KEYS: Final = tuple(dict.fromkeys(key.partition(".")[0] for key in SETTINGS))
"""The top-level keys of a file."""
