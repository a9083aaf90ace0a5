"""Readers of the values of settings: each converts one value of TOML, or refuses it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time
from sys import float_info
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args

from msgspec import Meta, ValidationError, convert

from metlmon.config.settings import InvalidPattern, SafePattern, SecretText
from metlmon.redact import HIDDEN, redact_secrets
from metlmon.text.visible import visible

if TYPE_CHECKING:
    from urllib.parse import SplitResult


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


def harmless(text: str) -> str:
    """A text in which nothing is invisible or secret."""
    return visible(redact_secrets(text))


def _pattern(value: object, groups: tuple[str, ...]) -> SafePattern:
    try:
        pattern = SafePattern(read_text(value))
    except InvalidPattern as error:
        raise InvalidValue(f" {error}") from None
    if not set(groups) <= pattern.groupindex.keys():
        named = " and ".join(f"(?P<{group}>…)" for group in groups)
        more = "s" if len(groups) > 1 else ""
        raise InvalidValue(f" needs the group{more} {named}")
    return pattern


def read_node_pattern(value: object) -> SafePattern:
    """A pattern of nodes, with the groups ``run`` and ``epoch``."""
    return _pattern(value, ("run", "epoch"))


def read_value_pattern(value: object) -> SafePattern:
    """A pattern with the group ``value``."""
    return _pattern(value, ("value",))


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


PROGRAM_FORM: Final = (
    " is a list: a program in PATH or with an absolute path, and its arguments, such as "
    '["sh", "-c", "notify-send \\"$METLMON_TITLE\\" \\"$METLMON_TEXT\\""]'
)

NO_PLACEHOLDERS: Final = (
    ": {{{0}}} cannot be an argument: the program could run what a log wrote. It has the variable "
    "METLMON_{1} in its environment, and all as JSON on its standard input"
)


def _read_program(value: object) -> tuple[str, ...]:
    words: tuple[str, ...] = read_texts(value)
    program = words[0] if words else ""
    if not program or "{" in program or ("/" in program and program[0] not in "/~"):
        raise InvalidValue(PROGRAM_FORM)
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
            raise InvalidValue(NO_PLACEHOLDERS.format(found[1], found[1].upper()))
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
