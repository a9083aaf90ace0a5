"""What the two ``metlmon.toml`` say together: every setting, where it is from, what is wrong.

Each key has one reader, which takes what TOML gave and returns what :class:`Settings` wants;
where that cannot be, it complains and the key is as if it were not set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from metlmon.config.toml_file import SettingProblem, TomlFile, Where, spelled
from metlmon.frozen import frozen
from metlmon.live.errors import InputError
from metlmon.model.settings import Label, MetricPattern, MetricSettings, Settings
from metlmon.model.sites import BUILT_IN_SITES

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

NAME: Final = "metlmon.toml"

GOALS: Final = ("min", "max")

LONGEST_TEXT: Final = 1000
MOST_ITEMS: Final = 1000
"""Of a list, which is tried from its beginning for each host, run or file."""

MOST_FOLDERS: Final = 3
"""Parts of a file's name with ``*``, before the last one: each lists folders by the hundred."""

PLACEHOLDERS: Final = frozenset({"uuid", "run"})
"""What may stand in braces in the name pattern of a file."""

Pairs = tuple[tuple[str, str], ...]


@frozen
class Source:
    """One of the files that are looked at. ``origin``: ``user`` or ``dagdir``; ``foreign``: it
    is somebody else's."""

    origin: str
    path: Path
    exists: bool
    foreign: bool = False


@frozen
class SettingEntry:
    """One setting as it holds, or one item of a list of them (``number``, from 0, in the order
    in which they are tried). ``value``: as JSON has it. ``origin``: ``built-in``, ``user`` or
    ``dagdir``, with the file and the line that say so; None of what is built in."""

    key: str
    value: Any
    origin: str
    path: Path | None = None
    line: int | None = None
    number: int | None = None


@frozen
class Configuration:
    """All of it. ``settings``: what holds when whatever is complained of is left out."""

    sources: tuple[Source, ...]
    settings: Settings
    entries: tuple[SettingEntry, ...]
    complaints: tuple[SettingProblem, ...]


def zone(name: str) -> ZoneInfo:
    """The zone called ``name`` ("America/Chicago", "UTC"). Raises InputError."""
    # Few set one, and what tells a slip of the pen fewer need.
    from difflib import get_close_matches
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        near = get_close_matches(name[:40], available_timezones(), n=1, cutoff=0.8)
        advice = f"did you mean {near[0]}?" if near else "give one such as America/Chicago or UTC"
        raise InputError(f"{name[:40]!r} is no time zone; {advice}") from None


def configuration_directory() -> Path:
    """Where the user's own ``metlmon.toml`` lies (XDG base directories)."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "metlmon"


def configuration(dagdir: Path) -> Configuration:
    """The user's settings, and over them those of the dagdir. Never raises: what is wrong is
    in ``complaints``."""
    files = {
        "user": TomlFile(configuration_directory() / NAME),
        "dagdir": TomlFile(dagdir / NAME, within=dagdir),
    }
    read = {origin: _read(file) for origin, file in files.items()}
    return Configuration(
        tuple(
            Source(origin, file.path, file.exists, file.foreign) for origin, file in files.items()
        ),
        merged(read["user"], read["dagdir"]),
        tuple(_entries(read, files)),
        tuple(
            complaint
            for file in files.values()
            for complaint in sorted(file.complaints, key=lambda each: each.line or 0)
        ),
    )


# --- one file -----------------------------------------------------------------------------


def _read(file: TomlFile) -> dict[str, Any]:
    """The keys that ``file`` sets, as their readers give them."""
    file.knows((), file.table, READERS)
    values = {}
    for key, read in READERS.items():
        if key in file.table:
            value = read(file, (key,), file.table[key])
            if value is not None:
                values[key] = value
    return values


def _text(file: TomlFile, where: Where, value: object) -> str | None:
    if isinstance(value, str) and len(value) <= LONGEST_TEXT:
        return value
    long = f" of at most {LONGEST_TEXT} characters" if isinstance(value, str) else ""
    file.complain(where, f"{spelled(where)} is a text in quotes{long}")
    return None


def _zone(file: TomlFile, where: Where, value: object) -> ZoneInfo | None:
    name = _text(file, where, value)
    if name is None:
        return None
    try:
        return zone(name)
    except InputError as error:
        file.complain(where, f"tz: {error}")
        return None


def _compiled(
    file: TomlFile, where: Where, value: object, groups: tuple[str, ...]
) -> re.Pattern[str] | None:
    text = _text(file, where, value)
    if text is None:
        return None
    from metlmon.config.regex_check import UnsafePattern, compiled  # Most files set none.

    try:
        pattern = compiled(text)
    except UnsafePattern as error:
        file.complain(where, f"{spelled(where)} {error}")
        return None
    if not set(groups) <= pattern.groupindex.keys():
        named = " and ".join(f"(?P<{group}>…)" for group in groups)
        more = "s" if len(groups) > 1 else ""
        file.complain(where, f"{spelled(where)} needs the group{more} {named}")
        return None
    return pattern


def _node_pattern(file: TomlFile, where: Where, value: object) -> re.Pattern[str] | None:
    return _compiled(file, where, value, ("run", "epoch"))


def _codes(file: TomlFile, where: Where, value: object) -> frozenset[int] | None:
    if isinstance(value, list) and all(type(code) is int for code in value):
        return frozenset(value)
    file.complain(where, "checkpoint_codes is a list of whole numbers, e.g. [85]")
    return None


def _yes(file: TomlFile, where: Where, value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    file.complain(where, f"{spelled(where)} is true or false")
    return None


def _tables(
    file: TomlFile, where: Where, value: object, keys: tuple[str, ...], said: str
) -> list[tuple[Where, dict[str, Any]]]:
    """The tables of an array of tables that have all of ``keys``."""
    if not isinstance(value, list):
        file.complain(where, said)
        return []
    if len(value) > MOST_ITEMS:
        file.complain(where, f"there are more than {MOST_ITEMS} [[{spelled(where)}]]")
        return []
    whole: list[tuple[Where, dict[str, Any]]] = []
    for number, each in enumerate(value):
        here = (*where, number)
        if isinstance(each, dict):
            file.knows(here, each, keys)
        if isinstance(each, dict) and all(key in each for key in keys):
            whole.append((here, each))
        else:
            file.complain(here, said)
    return whole


SITE: Final = 'each [[site]] needs host = "*.example.edu" and name = "example"'
LABEL: Final = 'each [[label]] needs name = "control" and runs = ["run1*", "0ee9fad9"]'
METRIC: Final = (
    'each [[metric]] needs name = "val_loss", file = "out" and '
    "pattern = 'val_loss=(?P<value>\\S+)'"
)


def _sites(file: TomlFile, where: Where, value: object) -> Pairs | None:
    pairs = []
    for here, rule in _tables(file, where, value, ("host", "name"), SITE):
        if not (isinstance(rule["host"], str) and isinstance(rule["name"], str)):
            file.complain(here, SITE)
            continue
        host, name = (_text(file, (*here, key), rule[key]) for key in ("host", "name"))
        if host is not None and name is not None:
            pairs.append((host, name))
    return tuple(pairs)


def _aliases(file: TomlFile, where: Where, value: object) -> Pairs | None:
    if not isinstance(value, dict):
        file.complain(where, f'[{where[0]}] is a table: "as logged" = "as shown"')
        return None
    if len(value) > MOST_ITEMS:
        file.complain(where, f"[{where[0]}] has more than {MOST_ITEMS} names")
        return None
    pairs = []
    for logged, shown in value.items():
        if isinstance(shown, str) and len(shown) <= LONGEST_TEXT:
            pairs.append((logged, shown))
        else:
            said = f"{spelled(where)}: what {logged!r} is shown as is a text in quotes"
            file.complain((*where, logged), said)
    return tuple(pairs)


def _texts(file: TomlFile, where: Where, value: object) -> tuple[str, ...] | None:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        if len(value) <= MOST_ITEMS and all(len(each) <= LONGEST_TEXT for each in value):
            return tuple(value)
        said = f"at most {MOST_ITEMS} of them, of {LONGEST_TEXT} characters"
        file.complain(where, f"{spelled(where)} is a list of texts, {said}")
        return None
    file.complain(where, f'{spelled(where)} is a list of texts, ["…", "…"]')
    return None


def _labels(file: TomlFile, where: Where, value: object) -> tuple[Label, ...]:
    labels = []
    for here, table in _tables(file, where, value, ("name", "runs"), LABEL):
        name = _text(file, (*here, "name"), table["name"])
        runs = _texts(file, (*here, "runs"), table["runs"])
        if name is not None and runs is not None:
            labels.append(Label(name, runs))
    return tuple(labels)


def _metrics(file: TomlFile, where: Where, value: object) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        file.complain(where, 'metrics is a table: [metrics], then primary = "val_loss"')
        return None
    file.knows(where, value, ("files", "primary", "goal"))
    found: dict[str, Any] = {}
    if "files" in value:
        found["files"] = _texts(file, (*where, "files"), value["files"])
        for pattern in found["files"] or ():
            if not _below(file, (*where, "files"), pattern):
                found["files"] = None
    if "primary" in value:
        found["primary"] = _text(file, (*where, "primary"), value["primary"])
    if "goal" in value:
        found["goal"] = value["goal"]
        if value["goal"] not in GOALS:
            file.complain((*where, "goal"), 'metrics.goal is "min" or "max"')
            found["goal"] = None
    return {key: each for key, each in found.items() if each is not None}


def _patterns(file: TomlFile, where: Where, value: object) -> tuple[MetricPattern, ...]:
    patterns = []
    for here, table in _tables(file, where, value, ("name", "file", "pattern"), METRIC):
        name = _text(file, (*here, "name"), table["name"])
        place = _text(file, (*here, "file"), table["file"])
        pattern = _compiled(file, (*here, "pattern"), table["pattern"], ("value",))
        if place is not None and not _below(file, (*here, "file"), place):
            place = None
        if name is not None and place is not None and pattern is not None:
            patterns.append(MetricPattern(name, place, pattern))
    return tuple(patterns)


def _below(file: TomlFile, where: Where, pattern: str) -> bool:
    """Is it a name pattern below the dagdir, with no other placeholders than there are?"""
    if not pattern or pattern.startswith("/") or ".." in pattern.split("/"):
        file.complain(where, f"{spelled(where)}: {pattern!r} is no file below the dagdir")
        return False
    *folders, _ = pattern.split("/")
    if sum(1 for each in folders if set(each) & set("*?[")) > MOST_FOLDERS:
        said = f"{spelled(where)}: {pattern!r} has more than {MOST_FOLDERS} folders with *"
        file.complain(where, f"{said}: name them")
        return False
    unknown = sorted(set(re.findall(r"\{([^{}]*)\}", pattern)) - PLACEHOLDERS)
    if unknown:
        said = f"{spelled(where)}: {{{unknown[0]}}} is not known; there are {{run}} and {{uuid}}"
        file.complain(where, said)
    return not unknown


READERS: Final[Mapping[str, Callable[[TomlFile, Where, object], Any]]] = {
    "tz": _zone,
    "train_node": _node_pattern,
    "side_node": _node_pattern,
    "checkpoint_codes": _codes,
    "read_only": _yes,
    "site": _sites,
    "site_aliases": _aliases,
    "gpu_aliases": _aliases,
    "label": _labels,
    "metrics": _metrics,
    "metric": _patterns,
}
"""Every key that there is."""


# --- both files ---------------------------------------------------------------------------


def merged(user: Mapping[str, Any], dagdir: Mapping[str, Any]) -> Settings:
    """What holds. ``tz``, the patterns, ``checkpoint_codes`` and each key of ``[metrics]``: the
    dagdir's, else the user's. ``[[site]]``, ``[[label]]`` and ``[[metric]]``: the dagdir's
    first, then the user's. Aliases: all, the dagdir's where both have a name. ``read_only``:
    if either says so, since no other file shall take it back."""
    plain = Settings()
    one = {**user, **dagdir}
    metrics = {**user.get("metrics", {}), **dagdir.get("metrics", {})}
    return Settings(
        train_node=one.get("train_node", plain.train_node),
        side_node=one.get("side_node", plain.side_node),
        sites=dagdir.get("site", ()) + user.get("site", ()),
        site_aliases=_names(user, dagdir, "site_aliases"),
        gpu_aliases=_names(user, dagdir, "gpu_aliases"),
        checkpoint_codes=one.get("checkpoint_codes", plain.checkpoint_codes),
        zone=one.get("tz"),
        read_only=user.get("read_only", False) or dagdir.get("read_only", False),
        labels=dagdir.get("label", ()) + user.get("label", ()),
        metrics=MetricSettings(
            **metrics, patterns=dagdir.get("metric", ()) + user.get("metric", ())
        ),
    )


def _names(user: Mapping[str, Any], dagdir: Mapping[str, Any], key: str) -> Pairs:
    return tuple({**dict(user.get(key, ())), **dict(dagdir.get(key, ()))}.items())


_PLAIN: Final[Mapping[str, Any]] = {
    "tz": None,
    "train_node": Settings().train_node,
    "side_node": Settings().side_node,
    "checkpoint_codes": frozenset(),
    "read_only": False,
}
_LISTS: Final = ("site", "label", "metric")


def _entries(
    read: Mapping[str, Mapping[str, Any]], files: Mapping[str, TomlFile]
) -> list[SettingEntry]:
    """Every setting, in the order of the documentation."""
    entries: list[SettingEntry] = []
    order = ("dagdir", "user")
    for key in READERS:
        if key in _PLAIN:
            entries.append(_single(key, read, files))
        elif key == "metrics":
            entries += _metric_entries(read, files)
        elif key in _LISTS:
            found = [
                (origin, number, item)
                for origin in order
                for number, item in enumerate(read[origin].get(key, ()))
            ]
            entries += [
                _placed(key, _item(item), origin, files[origin], (key, n), at)
                for at, (origin, n, item) in enumerate(found)
            ]
            if key == "site":
                entries += [
                    SettingEntry(key, _item(rule), "built-in", number=len(found) + n)
                    for n, rule in enumerate(BUILT_IN_SITES)
                ]
        else:
            said: dict[str, str] = {}
            for origin in order:
                for logged, shown in read[origin].get(key, ()):
                    if said.setdefault(logged, origin) == origin:
                        value = {"logged": logged, "shown": shown}
                        entries.append(_placed(key, value, origin, files[origin], (key, logged)))
    return entries


def _single(
    key: str, read: Mapping[str, Mapping[str, Any]], files: Mapping[str, TomlFile]
) -> SettingEntry:
    said = [origin for origin in ("dagdir", "user") if key in read[origin]]
    if key == "read_only":
        # Either file can say yes, neither can take it back.
        said.sort(key=lambda origin: not read[origin][key])
    if not said:
        return SettingEntry(key, _json(_PLAIN[key]), "built-in")
    return _placed(key, _json(read[said[0]][key]), said[0], files[said[0]], (key,))


def _metric_entries(
    read: Mapping[str, Mapping[str, Any]], files: Mapping[str, TomlFile]
) -> list[SettingEntry]:
    entries = []
    for name in ("files", "primary", "goal"):
        said = [o for o in ("dagdir", "user") if name in read[o].get("metrics", {})]
        if said:
            value = read[said[0]]["metrics"][name]
            where = ("metrics", name)
            entries.append(_placed(f"metrics.{name}", _json(value), said[0], files[said[0]], where))
        else:
            entries.append(
                SettingEntry(f"metrics.{name}", _json(getattr(MetricSettings(), name)), "built-in")
            )
    return entries


def _placed(
    key: str, value: Any, origin: str, file: TomlFile, where: Where, number: int | None = None
) -> SettingEntry:
    return SettingEntry(key, value, origin, file.path, file.line(where), number)


def _json(value: Any) -> Any:
    """A setting's value as JSON has it."""
    match value:
        case tzinfo():
            return str(value)
        case re.Pattern():
            return value.pattern
        case frozenset():
            return sorted(value)
        case tuple():
            return list(value)
        case _:
            return value


def _item(item: Any) -> dict[str, Any]:
    """One ``[[site]]``, ``[[label]]`` or ``[[metric]]`` as JSON has it."""
    match item:
        case Label():
            return {"name": item.name, "runs": list(item.runs)}
        case MetricPattern():
            return {"name": item.metric, "file": item.file, "pattern": item.pattern.pattern}
        case _:
            host, name = item
            return {"host": host, "name": name}
