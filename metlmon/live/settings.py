"""``metlmon.toml``: in the dagdir, then in the user's configuration directory.

```toml
tz = "America/Chicago"            # the access point's zone, for differences over DST
train_node = '^(?P<run>.*)-train_epoch(?P<epoch>\\d+)$'
side_node  = '^(?P<run>.*)-eval_epoch(?P<epoch>\\d+)$'
checkpoint_codes = [85]           # return values that mean "run me again"
read_only = true                  # nothing can be held, released, removed or submitted

[[site]]
host = "*.example.edu"
name = "example"
```
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from metlmon.ensemble.settings import Settings
from metlmon.live.errors import InputError

NAME: Final = "metlmon.toml"

KNOWN: Final = frozenset({"tz", "train_node", "side_node", "checkpoint_codes", "read_only", "site"})


def zone(name: str) -> ZoneInfo:
    """The zone called ``name`` ("America/Chicago", "UTC"). Raises InputError."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InputError(
            f"{name!r} is no time zone; give one such as America/Chicago or UTC"
        ) from None


def configuration_directory() -> Path:
    """Where the user's own ``metlmon.toml`` lies (XDG base directories)."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "metlmon"


def load_settings(dagdir: Path) -> Settings:
    """The user's settings, and over them those of the dagdir. Raises InputError."""
    settings = Settings()
    for path in (configuration_directory() / NAME, dagdir / NAME):
        try:
            text = path.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot be read: {error}") from None
        settings = _read(path, text, settings)
    return settings


def _read(path: Path, text: str, settings: Settings) -> Settings:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None
    unknown = sorted(table.keys() - KNOWN)
    if unknown:
        known = ", ".join(sorted(KNOWN))
        raise InputError(f"{path}: no setting is called {unknown[0]!r}; there are: {known}")
    if "tz" in table:
        settings = replace(settings, zone=_zone(path, table))
    if "train_node" in table:
        settings = replace(settings, train_node=_pattern(path, table, "train_node"))
    if "side_node" in table:
        settings = replace(settings, side_node=_pattern(path, table, "side_node"))
    if "checkpoint_codes" in table:
        codes = table["checkpoint_codes"]
        if not isinstance(codes, list) or not all(type(code) is int for code in codes):
            raise InputError(f"{path}: checkpoint_codes is a list of whole numbers, e.g. [85]")
        settings = replace(settings, checkpoint_codes=frozenset(codes))
    if "read_only" in table:
        if not isinstance(table["read_only"], bool):
            raise InputError(f"{path}: read_only is true or false")
        # Whoever wants it so, user or dagdir, gets it: no other file takes it back.
        settings = replace(settings, read_only=settings.read_only or table["read_only"])
    if "site" in table:
        settings = replace(settings, sites=_sites(path, table["site"]) + settings.sites)
    return settings


def _text(path: Path, table: dict[str, Any], name: str) -> str:
    value = table[name]
    if not isinstance(value, str):
        raise InputError(f"{path}: {name} is a text in quotes")
    return value


def _zone(path: Path, table: dict[str, Any]) -> ZoneInfo:
    name = _text(path, table, "tz")
    try:
        return zone(name)
    except InputError as error:
        raise InputError(f"{path}: tz: {error}") from None


def _pattern(path: Path, table: dict[str, Any], name: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(_text(path, table, name))
    except re.error as error:
        raise InputError(f"{path}: {name} is no valid pattern: {error}") from None
    if not {"run", "epoch"} <= pattern.groupindex.keys():
        raise InputError(f"{path}: {name} needs the groups (?P<run>…) and (?P<epoch>…)")
    return pattern


def _sites(path: Path, rules: object) -> tuple[tuple[str, str], ...]:
    said = 'each [[site]] needs host = "*.example.edu" and name = "example"'
    if not isinstance(rules, list):
        raise InputError(f"{path}: {said}")
    pairs = []
    for rule in rules:
        host, name = (rule.get("host"), rule.get("name")) if isinstance(rule, dict) else ("", 0)
        if not isinstance(host, str) or not isinstance(name, str):
            raise InputError(f"{path}: {said}")
        pairs.append((host, name))
    return tuple(pairs)
