"""What looks like a key or a token in the words of a log, a DAG file or a job, and its removal.

Real DAG files hold ``environment = "WANDB_API_KEY=…"``; keys also come in arguments, in VARS, in
reasons that quote a command line, in addresses of storage. What is hidden where it is read can
neither be shown nor exported, cached or logged. Guessing errs on the side of hiding, but for
what people look for: uuids, names of GPUs, slots, hosts and files, numbers, and what a reason
says of a token or a credential in plain words.

Three things tell a secret: what it is named (``--token X``, ``password: X``), the form that its
issuer gives it (``ghp_…``, ``AKIA…``, a JWT, a PEM block), and, of long words, that they look
like drawn by lot. Any text is read in time linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from operator import itemgetter
from typing import Final, NamedTuple

HIDDEN: Final = "(hidden)"
"""Stands in the place of a secret; the name before it stays, so that one knows what was there."""

ROUNDS: Final = 3
"""How often a text is looked through at most: with a secret gone, the word behind it may turn out
to be an option, whose value is another one. Nothing that is written by people needs more."""

SHORTEST_BY_LOT: Final = 32
"""Characters of a word that may be taken for one drawn by lot: keys have more, and few names of
files or hosts mix both cases and digits for so long."""


class SecretMatch(NamedTuple):
    """Where in a text a secret stands, and what tells it: the name that it is given
    (``WANDB_API_KEY``), or what it looks like (``GitHub token``). Never what it is."""

    start: int
    end: int
    name: str


def redact_secrets(text: str) -> str:
    """``text`` with :data:`HIDDEN` in the place of every value that looks like a secret."""
    for _ in range(ROUNDS):
        found = find(text)
        if not found:
            break
        text = _without(text, found)
    return text


def _without(text: str, all_found: list[SecretMatch]) -> str:
    pieces: list[str] = []
    done = 0
    for start, end, _ in all_found:
        pieces += (text[done:start], HIDDEN)
        done = end
    pieces.append(text[done:])
    return "".join(pieces)


def hide_value(name: str, value: str) -> str:
    """What may be told of the ``value`` of something with that ``name``."""
    if is_secret_name(name) and _is_value(value, name, colon=False):
        return HIDDEN
    if not might_contain_secret(value):
        return value
    # What stands behind a name may be a sum or an id, which does not look like one without it.
    before = f"{name}="
    return redact_secrets(before + value).removeprefix(before)


def find(text: str) -> list[SecretMatch]:
    """The secrets of ``text``, in their order; none overlaps another."""
    if not might_contain_secret(text):
        return []
    merged: list[SecretMatch] = []
    # What is named goes first: sorting leaves it before what else begins at the same place.
    all_found = [*_named(text), *_blocks(text), *_users(text), *_shaped(text)]
    all_found.sort(key=itemgetter(0))
    for found in all_found:
        if merged and found.start < merged[-1].end:
            if found.end > merged[-1].end:
                merged[-1] = merged[-1]._replace(end=found.end)
        else:
            merged.append(found)
    return merged


# --- whether it is worth looking ------------------------------------------------------------

_NAMES: Final = (
    *("key", "token", "secret", "pass", "pwd", "credential", "sig", "cookie", "claim", "auth"),
    "bearer",
)
_HINTS: Final = (
    *_NAMES,
    *("basic ", "-----begin", "akia", "asia", "ghp_", "gho_", "ghs_", "ghu_", "ghr_"),
    *("github_pat_", "glpat-", "gldt-", "glrt-", "hf_", "api_org_", "sk-", "k_live_", "k_test_"),
    *("xox", "xapp-", "aiza", "ya29.", "gocspx-", "wandb_v", "hvs.", "npm_", "pypi-", "dckr_"),
    *("eyj", "hooks.slack", "/webhooks/", "-u ", "-user"),
)
_LONG: Final = "a" * 32
_ALIKE: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+/"
_AS_ONE: Final = {code: "a" if chr(code) in _ALIKE else " " for code in range(128)}
_IN_USER: Final = re.compile(r"://[^\s/@\"'<>]*+@")


def might_contain_secret(text: str) -> bool:
    """Whether a text is worth looking through: False of most, in a fraction of the time."""
    lower = text.lower()
    for hint in _HINTS:
        if hint in lower:
            return True
    if "@" in text and _IN_USER.search(text) is not None:
        return True
    return len(text) >= SHORTEST_BY_LOT and _LONG in text.translate(_AS_ONE)


# --- by name --------------------------------------------------------------------------------

_PASSWORD: Final = re.compile(r"passw(?:or)?d|passwd|passphrase|secret|pwd", re.IGNORECASE)
"""Names of what may be a plain word, or a number."""

_NAMED: Final = re.compile(
    r"(?:api|access|private|account|signing|encrypt(?:ion)?|master|wandb|aws|hf|ssh|s3|auth"
    r"|shared|session|storage|deploy|license)[_-]?key"
    r"|(?<![a-z])key(?![a-z])|(?:^|[_-])pwd$|(?:^|[_-])pass$|(?:^|[_-])auth$"
    r"|token(?!i[sz])|secret|passw(?:or)?d|passphrase|credential|signature|authorization"
    r"|cookie|claim_?id|^sig$",
    re.IGNORECASE,
)
_NOT_NAMED: Final = re.compile(
    r"(?:^|[_-])(?:max|min|num|n|total|pad|mask|cls|sep|eos|bos|unk|class|special|per|public|pub"
    r"|primary|foreign|sort|group|cache|dict|new|prompt|image)[_-]?(?:token|key|claim_?id)s?"
    r"|(?:file|path|dir|directory|name|type|len|length|size|count|dim|dims|url|uri|host|endpoint"
    r"|location|expir\w*|ttl|lifetime|issuer|scopes?|policy|padding|mask|embed\w*|methods?"
    r"|per[_-]\w+|error|errors|services?|seconds|required|needed)$",
    re.IGNORECASE,
)
LONGEST_NAME: Final = 200
"""Characters of a name that are looked at, the last ones."""

_STRONG: Final = re.compile(
    r"(?:api|access|private|account|signing|encrypt(?:ion)?|master|wandb|aws|hf|ssh|s3|auth"
    r"|shared|session|storage|deploy|license)[_-]?key|token|credential|authorization|cookie"
    r"|claim_?id|x-amz-signature|[_-]pass$|^PASS$",
    re.IGNORECASE,
)
"""Names that nothing else has. Of what bears another one, such as ``key``, much is none."""

_ONE_WORD: Final = re.compile(r"(?:[A-Za-z0-9+/]|%2[BbFf]){16,}+={0,2}")


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether something of this name is likely not meant for everybody's eyes."""
    name = name[-LONGEST_NAME:]
    return _NAMED.search(name) is not None and _NOT_NAMED.search(name) is None


_WORD: Final = re.compile(r"[A-Za-z][\w.-]*+")
_BREAK: Final = r"(?:[ \t]|\\\r?\n)"
"""Between a name and its value: blanks, or a line that is continued."""

_QUOTE: Final = r"""(?:\\{0,8}["']|&quot;|&apos;|&#3[49];|%2[27])"""
_SETS: Final = re.compile(
    rf"{_QUOTE}{{0,2}}{_BREAK}*(:?=|=>|@=|%3[Dd]|:|%3[Aa])(?!=){_BREAK}*", re.ASCII
)
_BLANK: Final = re.compile(rf"{_BREAK}+(?![ \t-]|\\\r?\n)")
_GAP: Final = r"(?:\\{0,8}[ \t]|%20)+"
"""Blanks as a command line or an address has them."""

_SCHEME: Final = re.compile(
    rf"(?:{_GAP})?(?:bearer|basic|token|digest|negotiate){_GAP}", re.IGNORECASE
)

_OPEN: Final = re.compile(rf"{_QUOTE}{{1,3}}")
_BARE: Final = re.compile(r"""(?:[^\s"'<>,;&|`)\]}\\]|\\(?!["'])(?:\r?\n[ \t]*+)?)+""")
_ANY: Final = re.compile(
    r"""(?:[^\s"'\\,;&]|\\(?!["'])(?:\r?\n[ \t]*+)?|[,;&](?![\w.+-]*+=|\s|$))+"""
)

_EMPTY: Final = re.compile(
    r"\(hidden\)|\$+\(|\$ENV\(|\$\{?\w+|<|none\b|null\b|true\b|false\b|undefined\b|\*+(?![\w*])|\.\.\.",
    re.IGNORECASE,
)
"""Values that are none: empty ones, macros, switches."""

_NUMBER: Final = re.compile(
    r"[-+]?[0-9]{0,9}(?:\.[0-9]*)?(?:e[-+]?[0-9]+)?(?![\w/+=])(?![.-]\w)", re.IGNORECASE
)
_PATH: Final = re.compile(r"(?:file:|osdf:|stash:|pelican:)?(?:~|\.{1,2})?/")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*+://", re.IGNORECASE)
_SAID: Final = re.compile(r"(?:[A-Za-z]?[a-z'-]*+|[A-Z]++)[.,;:!?)\]|]*+(?:\s|$)")
"""A word of a sentence, not a value."""

_SENTENCE: Final = re.compile(
    r"(?:no|not|none|expired|invalid|missing|unknown|denied|failed|failure|error|errno|cannot"
    r"|could|unable|permission|file|bad|wrong|incorrect|unauthorized|forbidden|required"
    r"|unavailable|refused|rejected|timeout|timed|empty|unset|is|was|has|the|a|an|must|does)\b",
    re.IGNORECASE,
)


def _named(text: str) -> Iterator[SecretMatch]:
    """Values behind a name: ``NAME=value``, ``"name": "value"``, ``--name value``."""
    lower = text.lower()
    if not any(hint in lower for hint in _NAMES):
        return
    done = 0
    for word in _WORD.finditer(text):
        name = word[0][-LONGEST_NAME:].rstrip(".-")
        if word.start() < done or not is_secret_name(name):
            continue
        sets = _SETS.match(text, word.end())
        if sets is not None:
            colon = sets[1] == ":"
        elif name.lower() == "bearer" or text[word.start() - 1 : word.start()] == "-":
            sets, colon = _BLANK.match(text, word.end()), False
        if sets is None:
            continue
        start = sets.end()
        if scheme := _SCHEME.match(text, start):
            start, colon = scheme.end(), False
        if text.startswith(HIDDEN, start):
            continue
        begins, end = _value(text, start, name)
        if begins < end and _is_value(text[begins:end], name, colon and begins == start):
            done = end
            yield SecretMatch(begins, end, name)


def _value(text: str, start: int, name: str) -> tuple[int, int]:
    """Where the value begins and ends that stands at ``start``."""
    opened = _OPEN.match(text, start)
    if opened is None:
        bare = (_ANY if _PASSWORD.search(name) else _BARE).match(text, start)
        return start, bare.end() if bare else start
    inside = _inside(opened[0]).match(text, opened.end())
    return opened.end(), inside.end() if inside else len(text)


@lru_cache(maxsize=64)
def _inside(quote: str) -> re.Pattern[str]:
    """What such a quote holds: to the next one, or to the end of a line that was cut."""
    return re.compile(rf"(?:[^\n\\]|\\.)*?(?={re.escape(quote)}|\n|\\?\Z)", re.DOTALL)


def _is_value(value: str, name: str, colon: bool) -> bool:
    if _EMPTY.match(value):
        return False
    if _PASSWORD.search(name):
        return not (colon and _SENTENCE.match(value)) and not _is_path(value)
    number = _NUMBER.match(value)
    if (number and number.end()) or _is_path(value) or _URL.match(value):
        return False
    if colon and _SAID.match(value):
        return False
    return bool(_STRONG.search(name)) or (bool(_ONE_WORD.match(value)) and _mixed(value))


def _is_path(value: str) -> bool:
    return _PATH.match(value) is not None and not any(map(_by_lot, value.split("/")))


def _mixed(value: str) -> bool:
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


# --- by form --------------------------------------------------------------------------------

_BEGIN: Final = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----")
_END: Final = re.compile(r"-----END [A-Z0-9 ]*-----|\Z")


def _blocks(text: str) -> Iterator[SecretMatch]:
    """Private keys as PEM has them, to their end or that of the text."""
    at = 0
    while begin := _BEGIN.search(text, at):
        end = _END.search(text, begin.end())
        at = end.end() if end else len(text)
        yield SecretMatch(begin.start(), at, "private key")


_WORD_OF_USER: Final = re.compile(r"(?=[A-Za-z_-]*[0-9])(?=[0-9_-]*[A-Za-z])[\w-]{20,}")
"""A token in the place of a user: no user has so long a name with digits in it."""

_USERINFO: Final = re.compile(r"://([^\s/@\"'<>]*+)@")


def _users(text: str) -> Iterator[SecretMatch]:
    """User and password of a URL."""
    for user in _USERINFO.finditer(text):
        if user[1] != HIDDEN and (":" in user[1] or _WORD_OF_USER.fullmatch(user[1])):
            yield SecretMatch(user.start(1), user.end(1), "user and password of a URL")


_SHAPES: Final = (
    ("AWS key", r"(?:AKIA|ASIA)[A-Z0-9]{12,}+"),
    ("GitHub token", r"gh[pousr]_[A-Za-z0-9]{16,}+|github_pat_\w{16,}+"),
    ("GitLab token", r"gl(?:pat|dt|rt)-[\w-]{16,}+"),
    ("Hugging Face token", r"hf_[A-Za-z0-9]{16,}+|api_org_[A-Za-z0-9]{16,}+"),
    ("API key", r"(?<!-)sk-(?=[\w-]*[A-Z])(?=[\w-]*[0-9])[\w-]{20,}+|[sr]k_(?:live|test)_\w{10,}+"),
    ("Slack token", r"xox[a-z]-[\w-]{10,}+|xapp-[\w-]{10,}+"),
    ("Google key", r"AIza[\w-]{30,}+|ya29\.[\w.-]{10,}+|GOCSPX-[\w-]{10,}+"),
    ("W&B key", r"wandb_v[0-9]_\w{16,}+"),
    ("token", r"hvs\.[\w-]{16,}+|npm_\w{30,}+|pypi-[\w-]{30,}+|dckr_pat_[\w-]{16,}+"),
    ("webhook", r"hooks\.slack\.com/(?:services|workflows)/[\w/-]++"),
    ("webhook", r"discord(?:app)?\.com/api/webhooks/[0-9]++/[\w-]++"),
    ("JSON web token", r"eyJ[\w-]{8,}+(?:\.[\w-]*){0,4}"),
)
_SHAPED: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:" + "|".join(f"({shape})" for _, shape in _SHAPES) + ")"
)
_BEARER: Final = re.compile(rf"\bbearer{_GAP}([\w.+/~-]{{8,}}+=*+)", re.IGNORECASE)
_BASIC: Final = re.compile(rf"\b[Bb]asic{_GAP}((?=[\w+/]*?[A-Z])(?=[\w+/]*?[a-z])[\w+/]{{8,}}+=*+)")
_LOGIN: Final = re.compile(r"\blogin\s++\S++\s++password\s++(\S++)")
"""A line of a ``.netrc``."""

_USER_OPTION: Final = re.compile(
    r"(?<![\w-])(?:-u|--user|--proxy-user)[ \t=]++[\"']?[\w.@-]++:([^\s\"':]{6,}+)"
)
"""``curl -u me:word``; groups of users are numbers, or plain words."""

_HEX: Final = re.compile(
    r"(?<![0-9A-Za-z/_.@#%-])(?:local-)?[0-9a-f]{40}(?![0-9A-Za-z/_-])(?!\.[A-Za-z0-9])"
)
_SUM: Final = re.compile(
    r"(?:commit|sha-?[0-9]*|rev|revision|hash|digest|checksum|git|blob|tree|head|version|etag|id"
    r"|name|run|checkpoint|ckpt|model|parent|branch|ref|checkout|head is now at)"
    r"""[\s"':=\\]*$""",
    re.IGNORECASE,
)
_NEAR: Final = 24
"""Characters before a long word that may say that it is a sum or a name, not a key."""


def _near(match: re.Match[str]) -> tuple[int, int]:
    return max(0, match.start() - _NEAR), match.start()


def _shaped(text: str) -> Iterator[SecretMatch]:
    """Words that look like a key, whatever stands before them."""
    for match in _SHAPED.finditer(text):
        yield SecretMatch(match.start(), match.end(), _SHAPES[(match.lastindex or 1) - 1][0])
    for match in _BEARER.finditer(text):
        if _mixed(match[1]):
            yield SecretMatch(match.start(1), match.end(1), "bearer token")
    for match in _BASIC.finditer(text):
        yield SecretMatch(match.start(1), match.end(1), "user and password")
    for match in _LOGIN.finditer(text):
        if not _SENTENCE.match(match[1]) and not match[1].startswith(HIDDEN):
            yield SecretMatch(match.start(1), match.end(1), "password")
    for match in _USER_OPTION.finditer(text):
        if _mixed(match[1]) and not _is_path(match[1]):
            yield SecretMatch(match.start(1), match.end(1), "password")
    for match in _HEX.finditer(text):
        if not _SUM.search(text, *_near(match)):
            yield SecretMatch(match.start(), match.end(), "W&B key")
    for match in _LONG_WORD.finditer(text):
        if _by_lot(match[0]) and not _SUM.search(text, *_near(match)):
            yield SecretMatch(match.start(), match.end(), "long random word")


_LONG_WORD: Final = re.compile(
    r"[0-9A-Za-z]{32,}+={0,2}|(?<![\w/.+-])[0-9A-Za-z/+]{40}(?![\w/.+-])={0,2}"
)
_CLASSES: Final = re.compile(r"[A-Z]++|[a-z]++|[0-9]++")


def _by_lot(word: str) -> bool:
    """Whether a word mixes cases and digits as chance does: nobody writes ``aB3xQ9…``. In
    names, letters stand in words."""
    if len(word) < SHORTEST_BY_LOT:
        return False
    runs = _CLASSES.findall(word)
    in_words = sum(len(run) for run in runs if len(run) > 3)
    return (
        len(runs) > 0.4 * len(word)
        and in_words < 0.35 * len(word)
        and any(run.isdigit() for run in runs)
        and any(run.islower() for run in runs)
        and any(run.isupper() for run in runs)
    )
