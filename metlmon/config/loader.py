"""Loads both ``metlmon.toml`` files: every setting, its origin, and all problems.

Each key has one reader, which converts the TOML value to what :class:`Settings` expects. A value
that cannot be converted is a problem, and its key is treated as not set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from metlmon.config.safe_regex import InvalidPattern, SafePattern
from metlmon.config.settings import Label, MetricPattern, MetricSettings, Settings
from metlmon.config.toml_file import SettingProblem, TomlFile, Where, dotted_key
from metlmon.live.errors import InputError
from metlmon.model.sites import BUILT_IN_SITES

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

NAME: Final = "metlmon.toml"

GOALS: Final = ("min", "max")

MAX_TEXT: Final = 1000
MAX_ITEMS: Final = 1000
"""Items of a list, which is searched for each host, run or file."""

MAX_WILDCARD_FOLDERS: Final = 3
"""Folders with ``*`` in a file's name pattern: each lists many folders."""

PLACEHOLDERS: Final = frozenset({"uuid", "run"})
"""Names that may stand in braces in the name pattern of a file."""

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

    ``number``: position in the list, from 0, in search order. ``value``: as JSON has it.
    ``origin``: ``built-in``, ``user`` or ``dagdir``, with file and line; these are None for
    built-in settings.
    """

    key: str
    value: Any
    origin: str
    path: Path | None = None
    line: int | None = None
    number: int | None = None


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
    from difflib import get_close_matches
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        near = get_close_matches(name[:40], available_timezones(), n=1, cutoff=0.8)
        advice = f"did you mean {near[0]}?" if near else "give one such as America/Chicago or UTC"
        raise InputError(f"{name[:40]!r} is no time zone; {advice}") from None


def configuration_directory() -> Path:
    """The directory of the user's ``metlmon.toml`` (XDG base directories)."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "metlmon"


def load_configuration(dagdir: Path) -> Configuration:
    """The user's settings, overridden by those of the dagdir.

    Never raises: problems are in ``problems``.
    """
    files = {
        "user": TomlFile(configuration_directory() / NAME),
        "dagdir": TomlFile(dagdir / NAME, within=dagdir),
    }
    merged = list(_merge({origin: _read(file) for origin, file in files.items()}))
    return Configuration(
        sources=tuple(
            Source(origin, file.path, file.exists, file.foreign) for origin, file in files.items()
        ),
        settings=_settings(merged),
        entries=tuple(_entries(merged, files)),
        problems=tuple(
            problem
            for file in files.values()
            for problem in sorted(file.problems, key=lambda problem: problem.line or 0)
        ),
    )


# --- one file -----------------------------------------------------------------------------


class _InvalidValue(Exception):
    """What is expected of a setting, behind its key: ``is true or false``."""


Reader = Callable[[Any], Any]
"""Converts a TOML value to a value of :class:`Settings`. Raises _InvalidValue."""


def _read(file: TomlFile) -> dict[str, Any]:
    """The valid settings in ``file``, by key; those of ``[metrics]`` as ``metrics.primary``."""
    file.report_unknown_keys((), file.table, READERS)
    values: dict[str, Any] = {}
    for key, reader in READERS.items():
        if key not in file.table:
            continue
        value, where = file.table[key], (key,)
        if isinstance(reader, _Tables):
            values[key] = reader.read(file, where, value)
        elif key in ALIASES:
            values[key] = _read_aliases(file, where, value)
        elif isinstance(reader, dict):
            if isinstance(value, dict):
                inner = _read_fields(file, where, value, reader)
                values |= {f"{key}.{name}": field for name, field in inner.items()}
            else:
                message = 'metrics is a table: [metrics], then primary = "val_loss"'
                file.report_problem(where, message)
        elif reader is not None:
            values |= _read_fields(file, (), {key: value}, {key: reader})
    return values


def _read_fields(
    file: TomlFile, where: Where, table: Mapping[str, Any], readers: Mapping[str, Reader]
) -> dict[str, Any]:
    """The valid fields of one table."""
    if where:
        file.report_unknown_keys(where, table, readers)
    values = {}
    for key, reader in readers.items():
        if key in table:
            try:
                values[key] = reader(table[key])
            except _InvalidValue as error:
                field = (*where, key)
                file.report_problem(field, f"{dotted_key(field)}{error}")
    return values


def _read_aliases(file: TomlFile, where: Where, value: object) -> dict[str, str]:
    if where == ("keys",) and file.path.parent != configuration_directory():
        file.report_problem(where, "[keys] belongs to your own metlmon.toml")
        return {}
    if not isinstance(value, dict):
        form = 'sort = "o"' if where == ("keys",) else '"as logged" = "as shown"'
        file.report_problem(where, f"[{where[0]}] is a table: {form}")
        return {}
    if len(value) > MAX_ITEMS:
        file.report_problem(where, f"[{where[0]}] has more than {MAX_ITEMS} names")
        return {}
    for logged, shown in value.items():
        if not _is_text(shown):
            message = f"{dotted_key(where)}: what {logged!r} is shown as is a text in quotes"
            file.report_problem((*where, logged), message)
    return {logged: shown for logged, shown in value.items() if _is_text(shown)}


class _Tables:
    """The reader of an array of tables.

    ``make`` makes an item of the fields, ``readers`` read them, and ``form`` describes the table.
    """

    def __init__(self, make: Callable[..., Any], form: str, **readers: Reader) -> None:
        self._make = make
        self._form = form
        self._readers = readers

    def read(self, file: TomlFile, where: Where, value: object) -> list[tuple[int, Any]]:
        """The position and the item of each valid table."""
        if not isinstance(value, list):
            file.report_problem(where, self._form)
            return []
        if len(value) > MAX_ITEMS:
            file.report_problem(where, f"there are more than {MAX_ITEMS} [[{dotted_key(where)}]]")
            return []
        items = []
        for number, table in enumerate(value):
            path = (*where, number)
            fields = {}
            if isinstance(table, dict) and self._readers.keys() <= table.keys():
                fields = _read_fields(file, path, table, self._readers)
            else:
                if isinstance(table, dict):
                    file.report_unknown_keys(path, table, self._readers)
                file.report_problem(path, self._form)
            if len(fields) == len(self._readers):
                items.append((number, self._make(*fields.values())))
        return items


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT


def _text(value: Any) -> str:
    if not _is_text(value):
        long = f" of at most {MAX_TEXT} characters" if isinstance(value, str) else ""
        raise _InvalidValue(f" is a text in quotes{long}")
    return str(value)


def _zone(value: object) -> ZoneInfo:
    try:
        return time_zone(_text(value))
    except InputError as error:
        raise _InvalidValue(f": {error}") from None


def _pattern(value: object, groups: tuple[str, ...]) -> SafePattern:
    try:
        pattern = SafePattern(_text(value))
    except InvalidPattern as error:
        raise _InvalidValue(f" {error}") from None
    if not set(groups) <= pattern.groupindex.keys():
        named = " and ".join(f"(?P<{group}>…)" for group in groups)
        more = "s" if len(groups) > 1 else ""
        raise _InvalidValue(f" needs the group{more} {named}")
    return pattern


def _node_pattern(value: object) -> SafePattern:
    return _pattern(value, ("run", "epoch"))


def _value_pattern(value: object) -> SafePattern:
    return _pattern(value, ("value",))


def _codes(value: Any) -> frozenset[int]:
    if isinstance(value, list) and all(type(code) is int for code in value):
        return frozenset(value)
    raise _InvalidValue(" is a list of whole numbers, e.g. [85]")


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _InvalidValue(" is true or false")


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise _InvalidValue(' is a list of texts, ["…", "…"]')
    if len(value) > MAX_ITEMS or not all(map(_is_text, value)):
        limits = f"at most {MAX_ITEMS} of them, of {MAX_TEXT} characters"
        raise _InvalidValue(f" is a list of texts, {limits}")
    return tuple(value)


def _goal(value: object) -> str:
    if value not in GOALS:
        raise _InvalidValue(' is "min" or "max"')
    return str(value)


def _path(value: object) -> str:
    """A name pattern below the dagdir, with known placeholders."""
    pattern = _text(value)
    if not pattern or pattern.startswith("/") or ".." in pattern.split("/"):
        raise _InvalidValue(f": {pattern!r} is no file below the dagdir")
    *folders, _ = pattern.split("/")
    if sum(1 for folder in folders if set(folder) & set("*?[")) > MAX_WILDCARD_FOLDERS:
        limit = f"more than {MAX_WILDCARD_FOLDERS} folders with *"
        raise _InvalidValue(f": {pattern!r} has {limit}: name them")
    unknown = sorted(set(re.findall(r"\{([^{}]*)\}", pattern)) - PLACEHOLDERS)
    if unknown:
        raise _InvalidValue(f": {{{unknown[0]}}} is not known; there are {{run}} and {{uuid}}")
    return pattern


def _paths(value: object) -> tuple[str, ...]:
    return tuple(map(_path, _texts(value)))


ALIASES: Final = ("site_aliases", "gpu_aliases", "keys")
"""Tables of two texts each."""

READERS: Final[Mapping[str, Reader | dict[str, Reader] | _Tables | None]] = {
    "tz": _zone,
    "train_node": _node_pattern,
    "side_node": _node_pattern,
    "checkpoint_codes": _codes,
    "read_only": _boolean,
    "site": _Tables(
        lambda host, name: (host, name),
        'each [[site]] needs host = "*.example.edu" and name = "example"',
        host=_text,
        name=_text,
    ),
    "site_aliases": None,
    "gpu_aliases": None,
    "label": _Tables(
        Label,
        'each [[label]] needs name = "control" and runs = ["run1*", "0ee9fad9"]',
        name=_text,
        runs=_texts,
    ),
    "metrics": {"files": _paths, "primary": _text, "goal": _goal},
    "metric": _Tables(
        MetricPattern,
        'each [[metric]] needs name = "val_loss", file = "out" and '
        "pattern = 'val_loss=(?P<value>\\S+)'",
        name=_text,
        file=_path,
        pattern=_value_pattern,
    ),
    "keys": None,
}
"""Every key that there is, in the order of the documentation."""

_DEFAULTS: Final[Mapping[str, Any]] = {
    "tz": None,
    "train_node": Settings().train_node,
    "side_node": Settings().side_node,
    "checkpoint_codes": frozenset(),
    "read_only": False,
    "metrics.files": MetricSettings().files,
    "metrics.primary": MetricSettings().primary,
    "metrics.goal": MetricSettings().goal,
}
"""The built-in values of the settings of which one file's counts."""


# --- both files ---------------------------------------------------------------------------


class _Merged(NamedTuple):
    """One effective setting, or item of a list; ``origin`` as of :class:`SettingEntry`."""

    key: str
    value: Any
    origin: str
    where: Where = ()
    number: int | None = None


def _merge(values: Mapping[str, Mapping[str, Any]]) -> Iterator[_Merged]:
    """The effective settings.

    ``tz``, the patterns, ``checkpoint_codes`` and each key of ``[metrics]``: the dagdir's, else
    the user's. ``[[site]]``, ``[[label]]`` and ``[[metric]]``: the dagdir's first, then the
    user's. Aliases: all, the dagdir's where both have a name. ``read_only``: if either file sets
    it, so that no other file can revoke it.
    """
    for key, reader in READERS.items():
        if isinstance(reader, _Tables):
            items: list[tuple[Any, str, Where]] = [
                (item, origin, (key, position))
                for origin in ORDER
                for position, item in values[origin].get(key, ())
            ]
            if key == "site":
                items += [(rule, "built-in", ()) for rule in BUILT_IN_SITES]
            for number, (item, origin, where) in enumerate(items):
                yield _Merged(key, item, origin, where, number)
        elif key in ALIASES:
            seen: set[str] = set()
            for origin in ORDER:
                for logged, shown in values[origin].get(key, {}).items():
                    if logged not in seen:
                        yield _Merged(key, (logged, shown), origin, (key, logged))
                seen |= values[origin].get(key, {}).keys()
        else:
            names = [f"{key}.{name}" for name in reader] if isinstance(reader, dict) else [key]
            for name in names:
                origins = [origin for origin in ORDER if name in values[origin]]
                if key == "read_only":
                    origins.sort(key=lambda origin: not values[origin]["read_only"])
                if origins:
                    origin = origins[0]
                    yield _Merged(name, values[origin][name], origin, tuple(name.split(".")))
                else:
                    yield _Merged(name, _DEFAULTS[name], "built-in")


def _settings(merged: Iterable[_Merged]) -> Settings:
    single: dict[str, Any] = {}
    items: dict[str, list[Any]] = {}
    for each in merged:
        if each.key in _DEFAULTS:
            single[each.key] = each.value
        elif each.origin != "built-in":
            items.setdefault(each.key, []).append(each.value)
    return Settings(
        train_node=single["train_node"],
        side_node=single["side_node"],
        sites=tuple(items.get("site", ())),
        site_aliases=tuple(items.get("site_aliases", ())),
        gpu_aliases=tuple(items.get("gpu_aliases", ())),
        keys=tuple(items.get("keys", ())),
        checkpoint_codes=single["checkpoint_codes"],
        zone=single["tz"],
        read_only=single["read_only"],
        labels=tuple(items.get("label", ())),
        metrics=MetricSettings(
            files=single["metrics.files"],
            primary=single["metrics.primary"],
            goal=single["metrics.goal"],
            patterns=tuple(items.get("metric", ())),
        ),
    )


def _entries(merged: Iterable[_Merged], files: Mapping[str, TomlFile]) -> Iterator[SettingEntry]:
    for key, value, origin, where, number in merged:
        file = files.get(origin)
        yield SettingEntry(
            key=key,
            value=_as_json(key, value),
            origin=origin,
            path=file.path if file is not None else None,
            line=file.line(where) if file is not None else None,
            number=number,
        )


def _as_json(key: str, value: Any) -> Any:
    """A setting's value as JSON has it."""
    match value:
        case tzinfo():
            return str(value)
        case re.Pattern() | SafePattern():
            return value.pattern
        case frozenset():
            return sorted(value)
        case Label():
            return {"name": value.name, "runs": list(value.runs)}
        case MetricPattern():
            return {
                "name": value.metric,
                "file": value.file,
                "pattern": value.pattern.pattern,
            }
        case (host, name) if key == "site":
            return {"host": host, "name": name}
        case (action, cap) if key == "keys":
            return {"action": action, "key": cap}
        case (logged, shown) if key in ALIASES:
            return {"logged": logged, "shown": shown}
        case tuple():
            return list(value)
        case _:
            return value
