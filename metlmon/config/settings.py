"""User settings for reading an ensemble (``metlmon.toml``)."""

from __future__ import annotations

import math
import re
import time
import warnings
from datetime import datetime, tzinfo
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, get_args

from msgspec import Struct

from metlmon.redact import HIDDEN

MAX_PATTERN: Final = 500
"""Characters of a pattern: people write less than a hundred."""

MAX_REPEATS: Final = 10_000
"""Maximum product of all ``{n}`` of a pattern, which ``regex`` expands in memory."""

LONGEST_TEXT: Final = 2000
"""Characters of a text that are matched with a pattern."""

SEARCH_SECONDS: Final = 0.5
TOTAL_SECONDS: Final = 10.0
"""Time limits of one search and of all slow searches with one pattern."""

SLOW_SECONDS: Final = 0.0002
"""A search that takes longer counts towards the total; usual ones take microseconds."""


class InvalidPattern(Exception):
    """The problem of a pattern."""


class SafePattern:
    """A compiled pattern in Python's syntax that is disabled when it takes too long.

    A ``metlmon.toml`` may belong to another user, and catastrophic backtracking would never
    return. A disabled pattern matches nothing. Raises InvalidPattern.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_PATTERN:
            raise InvalidPattern(f"is longer than {MAX_PATTERN} characters")
        if math.prod(max(1, int(n)) for n in re.findall(r"(\d+)\}", text)) > MAX_REPEATS:
            raise InvalidPattern(f"repeats its parts more than {MAX_REPEATS:,} times")
        import regex  # Imported here, since few users set a pattern.

        try:
            with warnings.catch_warnings():
                # FutureWarnings about the syntax do not concern users.
                warnings.simplefilter("ignore")
                re.compile(text)
                self._compiled: Any = regex.compile(text, regex.VERSION0)
        except (re.error, regex.error, OverflowError, RecursionError) as error:
            raise InvalidPattern(f"is not a valid pattern: {error}") from None
        self.pattern = text
        self.groupindex: dict[str, int] = dict(self._compiled.groupindex)
        self.disabled = False
        self._seconds_left = TOTAL_SECONDS

    def match(self, text: str) -> re.Match[str] | None:
        """Match at the beginning of ``text``, using its first LONGEST_TEXT characters."""
        return self._within_limit(self._compiled.match, text)

    def search(self, text: str) -> re.Match[str] | None:
        """Search the first LONGEST_TEXT characters of ``text``."""
        return self._within_limit(self._compiled.search, text)

    def _within_limit(self, function: Any, text: str) -> re.Match[str] | None:
        if self.disabled:
            return None
        start = time.thread_time()
        match: re.Match[str] | None = None
        try:
            match = function(text[:LONGEST_TEXT], timeout=SEARCH_SECONDS)
        except (TimeoutError, MemoryError):
            self.disabled = True
        seconds = time.thread_time() - start
        if seconds > SLOW_SECONDS:
            self._seconds_left -= seconds
            self.disabled |= self._seconds_left < 0
        return match


Pattern = re.Pattern[str] | SafePattern


TRAIN_NODE: Final = r"^(?P<run>.*?)[-_.+]?train[-_]?epoch[-_]?(?P<epoch>\d+)$"
"""Pattern of a training node: the first part is the run's name, the number is the epoch."""


SIDE_NODE: Final = r"^(?P<run>.*?)[-_.+]?eval(?:uate|uation)?[-_]?epoch[-_]?(?P<epoch>\d+)$"
"""Pattern of a node of a run that does not train."""


class Label(Struct, frozen=True):
    """A cohort of runs.

    ``runs``: names, uuids, prefixes of uuids, or patterns (``run1*``).
    """

    name: str
    runs: tuple[str, ...]

    def matches(self, run: str, uuid: str | None) -> bool:
        """Whether the cohort contains the run with this name and uuid."""
        return any(
            fnmatchcase(run, pattern)
            or (uuid is not None and (fnmatchcase(uuid, pattern) or uuid.startswith(pattern)))
            for pattern in self.runs
        )


class MetricPattern(Struct, frozen=True):
    """A pattern for a metric's values in text files of jobs.

    ``file``: a name pattern relative to the dagdir with the placeholders ``{uuid}`` and
    ``{run}``, or ``out`` for the jobs' stdout. ``pattern`` has a group ``value`` and optionally
    a group ``epoch`` (as in the node's name), by default the epoch of the job's node.
    """

    name: str
    file: str
    pattern: Pattern


class MetricSettings(Struct, frozen=True):
    """Settings for the metrics of trainings.

    ``files``: name patterns, relative to the dagdir, of the directories that contain METL's
    ``version_<k>`` or W&B's ``wandb``, with ``{uuid}`` and ``{run}``. ``primary``: the metric that
    is shown first. ``goal``: "min" or "max", its best value.
    """

    files: tuple[str, ...] = ("*/training_logs/{uuid}", "training_logs/{uuid}")
    primary: str = "val_loss"
    goal: str = "min"
    patterns: tuple[MetricPattern, ...] = ()


class SecretText:
    """A token, a password or a secret URL; ``str()`` is ``shown``, by default hidden."""

    def __init__(self, value: str, shown: str = HIDDEN) -> None:
        self.value = value
        self._shown = shown

    def __str__(self) -> str:
        return self._shown

    def __repr__(self) -> str:
        return f"SecretText({self._shown!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretText) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)


EventName = Literal["held", "failed", "done", "stalled", "diverged", "black-hole"]
EVENT_NAMES: Final[tuple[EventName, ...]] = get_args(EventName)
"""The kinds of events that notifications can be about."""

TerminalNotice = Literal["bell", "osc9", "osc777"]
"""Escape sequences that make a terminal notify its user."""


class NotifySettings(Struct, frozen=True):
    """Settings for notifications, from the user's own file alone.

    ``command``: a program and its arguments. ``interval``: the minimum number of seconds between
    two notifications about one ensemble.
    """

    about: tuple[EventName, ...] = EVENT_NAMES
    terminal: tuple[TerminalNotice, ...] = ()
    command: tuple[str, ...] = ()
    webhook: SecretText | None = None
    interval: int = 60

    @property
    def configured(self) -> bool:
        """Whether any channel is configured."""
        return bool(self.terminal or self.command or self.webhook)


class TrackingSettings(Struct, frozen=True):
    """``[tracking]``: the MLflow server, from the user's own file alone.

    ``token``, or ``username`` and ``password``, are for the server at ``uri`` only.
    """

    uri: str | None = None
    experiment: str | None = None
    token: SecretText | None = None
    username: str | None = None
    password: SecretText | None = None


class AllocationSettings(Struct, frozen=True):
    """``[advisor.NAME]``: an allocation of compute time, which limits plans.

    ``balance``: in the facility's unit, at local time ``as_of`` (None: now); each GPU-hour at
    ``sites`` costs ``charge`` of it.
    """

    name: str
    balance: float
    sites: tuple[str, ...]
    charge: float = 1.0
    as_of: datetime | None = None


class OwnCommand(Struct, frozen=True):
    """``[[command]]``: a command on a key of the dashboard, from the user's own file alone.

    ``key``: its key cap. In ``command``, ``{job}``, ``{run}`` and ``{dagdir}`` are whole arguments.
    """

    key: str
    name: str
    command: tuple[str, ...]


class Settings(Struct, frozen=True):
    """User settings for reading an ensemble.

    ``sites``: (host pattern, site), applied before the built-in table. ``site_aliases`` and
    ``gpu_aliases``: (as logged, as shown and counted). ``checkpoint_codes``: return values that
    mean "checkpointed, to be run again". ``labels``: cohorts; the first match determines the
    label of a run. ``read_only``: no pool actions. ``keys``: (action, key caps) of the screens.
    ``columns``: (screen, names of its columns in their order). ``advisor``: allocations;
    ``command``: the user's own commands.
    ``remarks``: notices about the settings: file, line and message.
    """

    train_node: Pattern = re.compile(TRAIN_NODE)
    side_node: Pattern = re.compile(SIDE_NODE)
    sites: tuple[tuple[str, str], ...] = ()
    site_aliases: tuple[tuple[str, str], ...] = ()
    gpu_aliases: tuple[tuple[str, str], ...] = ()
    checkpoint_codes: frozenset[int] = frozenset()
    zone: tzinfo | None = None
    read_only: bool = False
    labels: tuple[Label, ...] = ()
    metrics: MetricSettings = MetricSettings()
    keys: tuple[tuple[str, str], ...] = ()
    columns: tuple[tuple[str, tuple[str, ...]], ...] = ()
    notify: NotifySettings = NotifySettings()
    tracking: TrackingSettings = TrackingSettings()
    advisor: tuple[AllocationSettings, ...] = ()
    command: tuple[OwnCommand, ...] = ()
    remarks: tuple[tuple[str, int | None, str], ...] = ()

    def columns_of(self, screen: str) -> tuple[str, ...]:
        """The names of the columns of a screen; empty if they are not set."""
        return dict(self.columns).get(screen, ())

    def safe_patterns(self) -> list[tuple[str, SafePattern]]:
        """The patterns that the user has set, which may become disabled, with their keys."""
        patterns = [("train_node", self.train_node), ("side_node", self.side_node)]
        patterns += [(f"metric {m.name}", m.pattern) for m in self.metrics.patterns]
        return [(key, pattern) for key, pattern in patterns if isinstance(pattern, SafePattern)]
