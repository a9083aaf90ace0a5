"""Loads both ``metlmon.toml`` files: every setting, its origin, and all problems.

Each key has one reader, which converts the TOML value to what :class:`Settings` expects. Where
that is not possible it reports a problem, and the key is treated as not set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

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

Pairs = tuple[tuple[str, str], ...]


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

    Never raises: problems are in ``complaints``.
    """
    files = {
        "user": TomlFile(configuration_directory() / NAME),
        "dagdir": TomlFile(dagdir / NAME, within=dagdir),
    }
    values = {origin: _read(file) for origin, file in files.items()}
    return Configuration(
        tuple(
            Source(origin, file.path, file.exists, file.foreign) for origin, file in files.items()
        ),
        merge_settings(values["user"], values["dagdir"]),
        tuple(_entries(values, files)),
        tuple(
            problem
            for file in files.values()
            for problem in sorted(file.problems, key=lambda problem: problem.line or 0)
        ),
    )


# --- one file -----------------------------------------------------------------------------


def _read(file: TomlFile) -> dict[str, Any]:
    """The values of the keys in ``file``, as converted by their readers."""
    file.report_unknown_keys((), file.table, READERS)
    values = {}
    for key, reader in READERS.items():
        if key in file.table:
            value = reader(file, (key,), file.table[key])
            if value is not None:
                values[key] = value
    return values


def _text(file: TomlFile, where: Where, value: object) -> str | None:
    if isinstance(value, str) and len(value) <= MAX_TEXT:
        return value
    long = f" of at most {MAX_TEXT} characters" if isinstance(value, str) else ""
    file.report_problem(where, f"{dotted_key(where)} is a text in quotes{long}")
    return None


def _zone(file: TomlFile, where: Where, value: object) -> ZoneInfo | None:
    name = _text(file, where, value)
    if name is None:
        return None
    try:
        return time_zone(name)
    except InputError as error:
        file.report_problem(where, f"tz: {error}")
        return None


def _pattern(
    file: TomlFile, where: Where, value: object, groups: tuple[str, ...]
) -> SafePattern | None:
    text = _text(file, where, value)
    if text is None:
        return None
    try:
        pattern = SafePattern(text)
    except InvalidPattern as error:
        file.report_problem(where, f"{dotted_key(where)} {error}")
        return None
    if not set(groups) <= pattern.groupindex.keys():
        named = " and ".join(f"(?P<{group}>…)" for group in groups)
        more = "s" if len(groups) > 1 else ""
        file.report_problem(where, f"{dotted_key(where)} needs the group{more} {named}")
        return None
    return pattern


def _node_pattern(file: TomlFile, where: Where, value: object) -> SafePattern | None:
    return _pattern(file, where, value, ("run", "epoch"))


def _codes(file: TomlFile, where: Where, value: object) -> frozenset[int] | None:
    if isinstance(value, list) and all(type(code) is int for code in value):
        return frozenset(value)
    file.report_problem(where, "checkpoint_codes is a list of whole numbers, e.g. [85]")
    return None


def _boolean(file: TomlFile, where: Where, value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    file.report_problem(where, f"{dotted_key(where)} is true or false")
    return None


def _tables(
    file: TomlFile, where: Where, value: object, keys: tuple[str, ...], form: str
) -> list[tuple[Where, dict[str, Any]]]:
    """The tables of an array of tables that have all of ``keys``."""
    if not isinstance(value, list):
        file.report_problem(where, form)
        return []
    if len(value) > MAX_ITEMS:
        file.report_problem(where, f"there are more than {MAX_ITEMS} [[{dotted_key(where)}]]")
        return []
    tables: list[tuple[Where, dict[str, Any]]] = []
    for number, table in enumerate(value):
        path = (*where, number)
        if isinstance(table, dict):
            file.report_unknown_keys(path, table, keys)
        if isinstance(table, dict) and all(key in table for key in keys):
            tables.append((path, table))
        else:
            file.report_problem(path, form)
    return tables


SITE_FORM: Final = 'each [[site]] needs host = "*.example.edu" and name = "example"'
LABEL_FORM: Final = 'each [[label]] needs name = "control" and runs = ["run1*", "0ee9fad9"]'
METRIC_FORM: Final = (
    'each [[metric]] needs name = "val_loss", file = "out" and '
    "pattern = 'val_loss=(?P<value>\\S+)'"
)


def _sites(file: TomlFile, where: Where, value: object) -> Pairs | None:
    pairs = []
    for path, rule in _tables(file, where, value, ("host", "name"), SITE_FORM):
        if not (isinstance(rule["host"], str) and isinstance(rule["name"], str)):
            file.report_problem(path, SITE_FORM)
            continue
        host, name = (_text(file, (*path, key), rule[key]) for key in ("host", "name"))
        if host is not None and name is not None:
            pairs.append((host, name))
    return tuple(pairs)


def _aliases(file: TomlFile, where: Where, value: object) -> Pairs | None:
    if not isinstance(value, dict):
        file.report_problem(where, f'[{where[0]}] is a table: "as logged" = "as shown"')
        return None
    if len(value) > MAX_ITEMS:
        file.report_problem(where, f"[{where[0]}] has more than {MAX_ITEMS} names")
        return None
    pairs = []
    for logged, shown in value.items():
        if isinstance(shown, str) and len(shown) <= MAX_TEXT:
            pairs.append((logged, shown))
        else:
            message = f"{dotted_key(where)}: what {logged!r} is shown as is a text in quotes"
            file.report_problem((*where, logged), message)
    return tuple(pairs)


def _texts(file: TomlFile, where: Where, value: object) -> tuple[str, ...] | None:
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        if len(value) <= MAX_ITEMS and all(len(text) <= MAX_TEXT for text in value):
            return tuple(value)
        message = f"at most {MAX_ITEMS} of them, of {MAX_TEXT} characters"
        file.report_problem(where, f"{dotted_key(where)} is a list of texts, {message}")
        return None
    file.report_problem(where, f'{dotted_key(where)} is a list of texts, ["…", "…"]')
    return None


def _labels(file: TomlFile, where: Where, value: object) -> tuple[Label, ...]:
    labels = []
    for path, table in _tables(file, where, value, ("name", "runs"), LABEL_FORM):
        name = _text(file, (*path, "name"), table["name"])
        runs = _texts(file, (*path, "runs"), table["runs"])
        if name is not None and runs is not None:
            labels.append(Label(name, runs))
    return tuple(labels)


def _metrics(file: TomlFile, where: Where, value: object) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        file.report_problem(where, 'metrics is a table: [metrics], then primary = "val_loss"')
        return None
    file.report_unknown_keys(where, value, ("files", "primary", "goal"))
    settings: dict[str, Any] = {}
    if "files" in value:
        settings["files"] = _texts(file, (*where, "files"), value["files"])
        for pattern in settings["files"] or ():
            if not _is_valid_path(file, (*where, "files"), pattern):
                settings["files"] = None
    if "primary" in value:
        settings["primary"] = _text(file, (*where, "primary"), value["primary"])
    if "goal" in value:
        settings["goal"] = value["goal"]
        if value["goal"] not in GOALS:
            file.report_problem((*where, "goal"), 'metrics.goal is "min" or "max"')
            settings["goal"] = None
    return {key: setting for key, setting in settings.items() if setting is not None}


def _patterns(file: TomlFile, where: Where, value: object) -> tuple[MetricPattern, ...]:
    patterns = []
    for path, table in _tables(file, where, value, ("name", "file", "pattern"), METRIC_FORM):
        name = _text(file, (*path, "name"), table["name"])
        name_pattern = _text(file, (*path, "file"), table["file"])
        pattern = _pattern(file, (*path, "pattern"), table["pattern"], ("value",))
        if name_pattern is not None and not _is_valid_path(file, (*path, "file"), name_pattern):
            name_pattern = None
        if name is not None and name_pattern is not None and pattern is not None:
            patterns.append(MetricPattern(name, name_pattern, pattern))
    return tuple(patterns)


def _is_valid_path(file: TomlFile, where: Where, pattern: str) -> bool:
    """Whether it is a name pattern below the dagdir, with known placeholders."""
    if not pattern or pattern.startswith("/") or ".." in pattern.split("/"):
        file.report_problem(where, f"{dotted_key(where)}: {pattern!r} is no file below the dagdir")
        return False
    *folders, _ = pattern.split("/")
    if sum(1 for folder in folders if set(folder) & set("*?[")) > MAX_WILDCARD_FOLDERS:
        message = (
            f"{dotted_key(where)}: {pattern!r} has more than {MAX_WILDCARD_FOLDERS} folders with *"
        )
        file.report_problem(where, f"{message}: name them")
        return False
    unknown = sorted(set(re.findall(r"\{([^{}]*)\}", pattern)) - PLACEHOLDERS)
    if unknown:
        message = (
            f"{dotted_key(where)}: {{{unknown[0]}}} is not known; there are {{run}} and {{uuid}}"
        )
        file.report_problem(where, message)
    return not unknown


READERS: Final[Mapping[str, Callable[[TomlFile, Where, object], Any]]] = {
    "tz": _zone,
    "train_node": _node_pattern,
    "side_node": _node_pattern,
    "checkpoint_codes": _codes,
    "read_only": _boolean,
    "site": _sites,
    "site_aliases": _aliases,
    "gpu_aliases": _aliases,
    "label": _labels,
    "metrics": _metrics,
    "metric": _patterns,
}
"""Every key that there is."""


# --- both files ---------------------------------------------------------------------------


def merge_settings(user: Mapping[str, Any], dagdir: Mapping[str, Any]) -> Settings:
    """The effective settings.

    ``tz``, the patterns, ``checkpoint_codes`` and each key of ``[metrics]``: the dagdir's, else
    the user's. ``[[site]]``, ``[[label]]`` and ``[[metric]]``: the dagdir's first, then the
    user's. Aliases: all, the dagdir's where both have a name. ``read_only``: if either file sets
    it, so that no other file can revoke it.
    """
    defaults = Settings()
    values = {**user, **dagdir}
    metrics = {**user.get("metrics", {}), **dagdir.get("metrics", {})}
    return Settings(
        train_node=values.get("train_node", defaults.train_node),
        side_node=values.get("side_node", defaults.side_node),
        sites=dagdir.get("site", ()) + user.get("site", ()),
        site_aliases=_merged_aliases(user, dagdir, "site_aliases"),
        gpu_aliases=_merged_aliases(user, dagdir, "gpu_aliases"),
        checkpoint_codes=values.get("checkpoint_codes", defaults.checkpoint_codes),
        zone=values.get("tz"),
        read_only=user.get("read_only", False) or dagdir.get("read_only", False),
        labels=dagdir.get("label", ()) + user.get("label", ()),
        metrics=MetricSettings(
            **metrics, patterns=dagdir.get("metric", ()) + user.get("metric", ())
        ),
    )


def _merged_aliases(user: Mapping[str, Any], dagdir: Mapping[str, Any], key: str) -> Pairs:
    return tuple({**dict(user.get(key, ())), **dict(dagdir.get(key, ()))}.items())


_DEFAULTS: Final[Mapping[str, Any]] = {
    "tz": None,
    "train_node": Settings().train_node,
    "side_node": Settings().side_node,
    "checkpoint_codes": frozenset(),
    "read_only": False,
}
_LIST_KEYS: Final = ("site", "label", "metric")


def _entries(
    values: Mapping[str, Mapping[str, Any]], files: Mapping[str, TomlFile]
) -> list[SettingEntry]:
    """Every setting, in the order of the documentation."""
    entries: list[SettingEntry] = []
    order = ("dagdir", "user")
    for key in READERS:
        if key in _DEFAULTS:
            entries.append(_single(key, values, files))
        elif key == "metrics":
            entries += _metric_entries(values, files)
        elif key in _LIST_KEYS:
            items = [
                (origin, number, item)
                for origin in order
                for number, item in enumerate(values[origin].get(key, ()))
            ]
            entries += [
                _entry(key, _json_item(item), origin, files[origin], (key, number), index)
                for index, (origin, number, item) in enumerate(items)
            ]
            if key == "site":
                entries += [
                    SettingEntry(key, _json_item(rule), "built-in", number=len(items) + number)
                    for number, rule in enumerate(BUILT_IN_SITES)
                ]
        else:
            first_origin: dict[str, str] = {}
            for origin in order:
                for logged, shown in values[origin].get(key, ()):
                    if first_origin.setdefault(logged, origin) == origin:
                        value = {"logged": logged, "shown": shown}
                        entries.append(_entry(key, value, origin, files[origin], (key, logged)))
    return entries


def _single(
    key: str, values: Mapping[str, Mapping[str, Any]], files: Mapping[str, TomlFile]
) -> SettingEntry:
    origins = [origin for origin in ("dagdir", "user") if key in values[origin]]
    if key == "read_only":
        # Either file can turn it on, neither can turn it off.
        origins.sort(key=lambda origin: not values[origin][key])
    if not origins:
        return SettingEntry(key, _json(_DEFAULTS[key]), "built-in")
    return _entry(key, _json(values[origins[0]][key]), origins[0], files[origins[0]], (key,))


def _metric_entries(
    values: Mapping[str, Mapping[str, Any]], files: Mapping[str, TomlFile]
) -> list[SettingEntry]:
    entries = []
    for name in ("files", "primary", "goal"):
        origins = [
            origin for origin in ("dagdir", "user") if name in values[origin].get("metrics", {})
        ]
        if origins:
            value = values[origins[0]]["metrics"][name]
            where = ("metrics", name)
            entries.append(
                _entry(f"metrics.{name}", _json(value), origins[0], files[origins[0]], where)
            )
        else:
            entries.append(
                SettingEntry(f"metrics.{name}", _json(getattr(MetricSettings(), name)), "built-in")
            )
    return entries


def _entry(
    key: str, value: Any, origin: str, file: TomlFile, where: Where, number: int | None = None
) -> SettingEntry:
    return SettingEntry(
        key=key, value=value, origin=origin, path=file.path, line=file.line(where), number=number
    )


def _json(value: Any) -> Any:
    """A setting's value as JSON has it."""
    match value:
        case tzinfo():
            return str(value)
        case re.Pattern() | SafePattern():
            return value.pattern
        case frozenset():
            return sorted(value)
        case tuple():
            return list(value)
        case _:
            return value


def _json_item(item: Any) -> dict[str, Any]:
    """One ``[[site]]``, ``[[label]]`` or ``[[metric]]`` as JSON has it."""
    match item:
        case Label():
            return {"name": item.name, "runs": list(item.runs)}
        case MetricPattern():
            return {"name": item.metric, "file": item.file, "pattern": item.pattern.pattern}
        case _:
            host, name = item
            return {"host": host, "name": name}
