"""Makes foreign text harmless: without secrets, and visible.

Visible: without what a terminal would obey or not show. Readers make the texts of their records
:func:`harmless`; names of files stay unchanged, since the files are opened, and are made
:func:`plain` where they are shown.

Real DAG files contain ``environment = "WANDB_API_KEY=…"``; keys also occur in arguments, in VARS,
in reasons that quote a command line, and in storage addresses. They are redacted on reading, so
that they can be neither shown nor exported, cached or logged. In doubt a text is redacted, except
for what users need: uuids, names of GPUs, slots, hosts and files, numbers, and plain words about
a token or a credential.

A secret is recognised by its name (``--token X``, ``password: X``), by the format of its issuer
(``ghp_…``, ``AKIA…``, a JWT, a PEM block), or, for long words, by looking random. Time is linear in
the length of the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from operator import itemgetter
from typing import Final, NamedTuple

from metlmon.remote.paths import as_typed

HIDDEN: Final = "(hidden)"
"""Replaces a secret; the name before it stays, to show what was there."""

MAX_ROUNDS: Final = 3
"""Maximum number of passes over a text. With a secret redacted, the word after it may turn out to
be an option with another secret."""

MIN_RANDOM_LENGTH: Final = 32
"""Minimum length of a word that may be taken for a random one. Keys are longer; few names of files
or hosts mix both cases and digits for that long."""


class SecretMatch(NamedTuple):
    """The position of a secret in a text, and how it was recognised.

    ``name``: the name before it (``WANDB_API_KEY``), or its format (``GitHub token``). The secret
    itself is not stored.
    """

    start: int
    end: int
    name: str


def redact_secrets(text: str) -> str:
    """``text`` with :data:`HIDDEN` in place of every value that looks like a secret."""
    for _ in range(MAX_ROUNDS):
        matches = find_secrets(text)
        if not matches:
            break
        text = _substitute(text, matches)
    return text


_ENVIRONMENT: Final = r"(?:\+|my\.)?env(?:ironment2?)?"
# As texts: re compiles them where they are first used, which few commands do.
_SET_ENVIRONMENT: Final = rf"(?im)(^|\s)({_ENVIRONMENT}[ \t]*=)(?!=)[^\n]*(?:(?<=\\)\r?\n[^\n]*)*"
_TAGGED_ENVIRONMENT: Final = (
    rf"(?ims)^([ \t]*{_ENVIRONMENT}[ \t]*@=(\S+)[ \t]*\r?\n).*?(?=^[ \t]*@\2|\Z)"
)


def redact_job_text(text: str) -> str:
    """A DAG file or submit description without environment values and other secrets."""
    text = re.sub(_TAGGED_ENVIRONMENT, rf"\1{HIDDEN}\n", text)
    text = re.sub(_SET_ENVIRONMENT, rf"\1\2 {HIDDEN}", text)
    if "-----BEGIN" in text:
        return redact_secrets(text)
    # Line by line is faster: most lines are quickly found to contain no secret.
    return "\n".join(map(redact_secrets, text.split("\n")))


def _substitute(text: str, matches: list[SecretMatch]) -> str:
    pieces: list[str] = []
    done = 0
    for start, end, _ in matches:
        pieces += (text[done:start], HIDDEN)
        done = end
    pieces.append(text[done:])
    return "".join(pieces)


def hide_value(name: str, value: str) -> str:
    """The ``value`` of something called ``name``, redacted if it is a secret."""
    if is_secret_name(name) and _is_value(value, name, colon=False):
        return HIDDEN
    if not might_contain_secret(value):
        return value
    # The name may show that a random value is a hash or an id.
    prefix = f"{name}="
    return redact_secrets(prefix + value).removeprefix(prefix)


def find_secrets(text: str) -> list[SecretMatch]:
    """The secrets in ``text``, in order, without overlaps."""
    if not might_contain_secret(text):
        return []
    merged: list[SecretMatch] = []
    # Named ones first: the stable sort keeps them before others at the same position.
    matches = [
        *_find_named(text),
        *_find_key_blocks(text),
        *_find_url_users(text),
        *_find_tokens(text),
    ]
    matches.sort(key=itemgetter(0))
    for match in matches:
        if merged and match.start < merged[-1].end:
            if match.end > merged[-1].end:
                merged[-1] = merged[-1]._replace(end=match.end)
        else:
            merged.append(match)
    return merged


# --- quick check -----------------------------------------------------------------------------

_NAMES: Final = tuple("key token secret pass pwd credential sig cookie claim auth bearer".split())
_HINTS: Final = (
    *_NAMES,
    "basic ",
    "-u ",
    *"""
    -----begin akia asia ghp_ gho_ ghs_ ghu_ ghr_ github_pat_ glpat- gldt- glrt- hf_ api_org_ sk-
    k_live_ k_test_ xox xapp- aiza ya29. gocspx- wandb_v hvs. npm_ pypi- dckr_ eyj hooks.slack
    /webhooks/ -user
    """.split(),
)
_LONG_WORD_MARK: Final = "a" * 32
_WORD_CHARACTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+/"
_TO_MARK: Final = {code: "a" if chr(code) in _WORD_CHARACTERS else " " for code in range(128)}
_URL_WITH_USER: Final = re.compile(r"://[^\s/@\"'<>]*+@")


def might_contain_secret(text: str) -> bool:
    """Whether a text must be searched: False for most, in a fraction of the time."""
    lower = text.lower()
    for hint in _HINTS:
        if hint in lower:
            return True
    if "@" in text and _URL_WITH_USER.search(text) is not None:
        return True
    return len(text) >= MIN_RANDOM_LENGTH and _LONG_WORD_MARK in text.translate(_TO_MARK)


# --- by name --------------------------------------------------------------------------------

_PASSWORD_NAME: Final = re.compile(r"passw(?:or)?d|passwd|passphrase|secret|pwd", re.IGNORECASE)
"""Names whose value may be a plain word, or a number."""

_SECRET_NAME: Final = re.compile(
    r"(?:api|access|private|account|signing|encrypt(?:ion)?|master|wandb|aws|hf|ssh|s3|auth"
    r"|shared|session|storage|deploy|license)[_-]?key"
    r"|(?<![a-z])key(?![a-z])|(?:^|[_-])pwd$|(?:^|[_-])pass$|(?:^|[_-])auth$"
    r"|token(?!i[sz])|secret|passw(?:or)?d|passphrase|credential|signature|authorization"
    r"|cookie|claim_?id|^sig$",
    re.IGNORECASE,
)
_HARMLESS_NAME: Final = (
    r"(?i)(?:^|[_-])(?:max|min|num|n|total|pad|mask|cls|sep|eos|bos|unk|class|special|per|public|pub"
    r"|primary|foreign|sort|group|cache|dict|new|prompt|image)[_-]?(?:token|key|claim_?id)s?"
    r"|(?:file|path|dir|directory|name|type|len|length|size|count|dim|dims|url|uri|host|endpoint"
    r"|location|expir\w*|ttl|lifetime|issuer|scopes?|policy|padding|mask|embed\w*|methods?"
    r"|per[_-]\w+|error|errors|services?|seconds|required|needed)$"
)
LONGEST_NAME: Final = 200
"""Characters of a name that are checked, the last ones."""

_CERTAIN_NAME: Final = (
    r"(?i)(?:api|access|private|account|signing|encrypt(?:ion)?|master|wandb|aws|hf|ssh|s3|auth"
    r"|shared|session|storage|deploy|license)[_-]?key|token|credential|authorization|cookie"
    r"|claim_?id|x-amz-signature|[_-]pass$|^PASS$"
)
"""Names that only secrets have. Values of others, such as ``key``, often are not secret."""

_ONE_WORD: Final = re.compile(r"(?:[A-Za-z0-9+/]|%2[BbFf]){16,}+={0,2}")


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether something with this name is likely a secret."""
    name = name[-LONGEST_NAME:]
    return _SECRET_NAME.search(name) is not None and re.search(_HARMLESS_NAME, name) is None


_WORD: Final = re.compile(r"[A-Za-z][\w.-]*+")
_BREAK: Final = r"(?:[ \t]|\\\r?\n)"
"""Between a name and its value: blanks, or a continued line."""

_QUOTE: Final = r"""(?:\\{0,8}["']|&quot;|&apos;|&#3[49];|%2[27])"""
_ASSIGNMENT: Final = re.compile(
    rf"{_QUOTE}{{0,2}}{_BREAK}*(:?=|=>|@=|%3[Dd]|:|%3[Aa])(?!=){_BREAK}*", re.ASCII
)
_BLANKS: Final = re.compile(rf"{_BREAK}+(?![ \t-]|\\\r?\n)")
_GAP: Final = r"(?:\\{0,8}[ \t]|%20)+"
"""Blanks in a command line or an address."""

_SCHEME: Final = re.compile(
    rf"(?:{_GAP})?(?:bearer|basic|token|digest|negotiate){_GAP}", re.IGNORECASE
)

_OPENING_QUOTE: Final = re.compile(rf"{_QUOTE}{{1,3}}")
_UNQUOTED: Final = re.compile(r"""(?:[^\s"'<>,;&|`)\]}\\]|\\(?!["'])(?:\r?\n[ \t]*+)?)+""")
_UNQUOTED_PASSWORD: Final = re.compile(
    r"""(?:[^\s"'\\,;&]|\\(?!["'])(?:\r?\n[ \t]*+)?|[,;&](?![\w.+-]*+=|\s|$))+"""
)

_NO_VALUE: Final = re.compile(
    r"\(hidden\)|\$+\(|\$ENV\(|\$\{?\w+|<|none\b|null\b|true\b|false\b|undefined\b|\*+(?![\w*])|\.\.\.",
    re.IGNORECASE,
)
"""Values that are not secrets: empty ones, macros, switches."""

_NUMBER: Final = re.compile(
    r"[-+]?[0-9]{0,9}(?:\.[0-9]*)?(?:e[-+]?[0-9]+)?(?![\w/+=])(?![.-]\w)", re.IGNORECASE
)
_PATH: Final = re.compile(r"(?:file:|osdf:|stash:|pelican:)?(?:~|\.{1,2})?/")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*+://", re.IGNORECASE)
_PLAIN_WORD: Final = re.compile(r"(?:[A-Za-z]?[a-z'-]*+|[A-Z]++)[.,;:!?)\]|]*+(?:\s|$)")
"""A word of a sentence, not a value."""

_MESSAGE_WORD: Final = (
    r"(?i)(?:no|not|none|expired|invalid|missing|unknown|denied|failed|failure|error|errno|cannot"
    r"|could|unable|permission|file|bad|wrong|incorrect|unauthorized|forbidden|required"
    r"|unavailable|refused|rejected|timeout|timed|empty|unset|is|was|has|the|a|an|must|does)\b"
)


def _find_named(text: str) -> Iterator[SecretMatch]:
    """Values after a name: ``NAME=value``, ``"name": "value"``, ``--name value``."""
    lower = text.lower()
    if not any(hint in lower for hint in _NAMES):
        return
    position = 0
    for word in _WORD.finditer(text):
        name = word[0][-LONGEST_NAME:].rstrip(".-")
        if word.start() < position or not is_secret_name(name):
            continue
        separator = _ASSIGNMENT.match(text, word.end())
        if separator is not None:
            colon = separator[1] == ":"
        elif name.lower() == "bearer" or text[word.start() - 1 : word.start()] == "-":
            separator, colon = _BLANKS.match(text, word.end()), False
        if separator is None:
            continue
        start = separator.end()
        if scheme := _SCHEME.match(text, start):
            start, colon = scheme.end(), False
        if text.startswith(HIDDEN, start):
            continue
        value_start, end = _value(text, start, name)
        if value_start < end and _is_value(
            text[value_start:end], name, colon and value_start == start
        ):
            position = end
            yield SecretMatch(value_start, end, name)


def _value(text: str, start: int, name: str) -> tuple[int, int]:
    """The start and the end of the value at ``start``."""
    opened = _OPENING_QUOTE.match(text, start)
    if opened is None:
        unquoted = (_UNQUOTED_PASSWORD if _PASSWORD_NAME.search(name) else _UNQUOTED).match(
            text, start
        )
        return start, unquoted.end() if unquoted else start
    quoted = _quoted_text(opened[0]).match(text, opened.end())
    return opened.end(), quoted.end() if quoted else len(text)


@lru_cache(maxsize=64)
def _quoted_text(quote: str) -> re.Pattern[str]:
    """The text up to the closing quote, or to the end of a line that was cut."""
    return re.compile(rf"(?:[^\n\\]|\\.)*?(?={re.escape(quote)}|\n|\\?\Z)", re.DOTALL)


def _is_value(value: str, name: str, colon: bool) -> bool:
    if _NO_VALUE.match(value):
        return False
    if _PASSWORD_NAME.search(name):
        return not (colon and re.match(_MESSAGE_WORD, value)) and not _is_path(value)
    number = _NUMBER.match(value)
    if (number and number.end()) or _is_path(value) or _URL.match(value):
        return False
    if colon and _PLAIN_WORD.match(value):
        return False
    return bool(re.search(_CERTAIN_NAME, name)) or (
        bool(_ONE_WORD.match(value)) and _has_letters_and_digits(value)
    )


def _is_path(value: str) -> bool:
    return _PATH.match(value) is not None and not any(map(_looks_random, value.split("/")))


def _has_letters_and_digits(value: str) -> bool:
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


# --- by form --------------------------------------------------------------------------------

_BEGIN: Final = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----")
_END: Final = re.compile(r"-----END [A-Z0-9 ]*-----|\Z")


def _find_key_blocks(text: str) -> Iterator[SecretMatch]:
    """Private keys in PEM format, to their end or that of the text."""
    position = 0
    while begin := _BEGIN.search(text, position):
        end = _END.search(text, begin.end())
        position = end.end() if end else len(text)
        yield SecretMatch(begin.start(), position, "private key")


_TOKEN_AS_USER: Final = re.compile(r"(?=[A-Za-z_-]*[0-9])(?=[0-9_-]*[A-Za-z])[\w-]{20,}")
"""A token in place of a user name, which would not be this long and contain digits."""

_USERINFO: Final = re.compile(r"://([^\s/@\"'<>]*+)@")


def _find_url_users(text: str) -> Iterator[SecretMatch]:
    """User and password of a URL."""
    for user in _USERINFO.finditer(text):
        if user[1] != HIDDEN and (":" in user[1] or _TOKEN_AS_USER.fullmatch(user[1])):
            yield SecretMatch(user.start(1), user.end(1), "user and password of a URL")


_TOKEN_FORMATS: Final = (
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
_TOKEN: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:" + "|".join(f"({shape})" for _, shape in _TOKEN_FORMATS) + ")"
)
_BEARER: Final = re.compile(rf"\bbearer{_GAP}([\w.+/~-]{{8,}}+=*+)", re.IGNORECASE)
_BASIC: Final = re.compile(rf"\b[Bb]asic{_GAP}((?=[\w+/]*?[A-Z])(?=[\w+/]*?[a-z])[\w+/]{{8,}}+=*+)")
_LOGIN: Final = re.compile(r"\blogin\s++\S++\s++password\s++(\S++)")
"""A line of a ``.netrc``."""

_USER_OPTION: Final = re.compile(
    r"(?<![\w-])(?:-u|--user|--proxy-user)[ \t=]++[\"']?[\w.@-]++:([^\s\"':]{6,}+)"
)
"""``curl -u me:word``; user and group ids are numbers, or plain words."""

_HEX_KEY: Final = re.compile(
    r"(?<![0-9A-Za-z/_.@#%-])(?:local-)?[0-9a-f]{40}(?![0-9A-Za-z/_-])(?!\.[A-Za-z0-9])"
)
_HASH_OR_NAME: Final = re.compile(
    r"(?:commit|sha-?[0-9]*|rev|revision|hash|digest|checksum|git|blob|tree|head|version|etag|id"
    r"|name|run|checkpoint|ckpt|model|parent|branch|ref|checkout|head is now at)"
    r"""[\s"':=\\]*$""",
    re.IGNORECASE,
)
_CONTEXT: Final = 24
"""Characters before a long word that may show it is a hash or a name, not a key."""


def _context(match: re.Match[str]) -> tuple[int, int]:
    return max(0, match.start() - _CONTEXT), match.start()


def _find_tokens(text: str) -> Iterator[SecretMatch]:
    """Words in the format of a token, whatever precedes them."""
    for match in _TOKEN.finditer(text):
        yield SecretMatch(match.start(), match.end(), _TOKEN_FORMATS[(match.lastindex or 1) - 1][0])
    for match in _BEARER.finditer(text):
        if _has_letters_and_digits(match[1]):
            yield SecretMatch(match.start(1), match.end(1), "bearer token")
    for match in _BASIC.finditer(text):
        yield SecretMatch(match.start(1), match.end(1), "user and password")
    for match in _LOGIN.finditer(text):
        if not re.match(_MESSAGE_WORD, match[1]) and not match[1].startswith(HIDDEN):
            yield SecretMatch(match.start(1), match.end(1), "password")
    for match in _USER_OPTION.finditer(text):
        if _has_letters_and_digits(match[1]) and not _is_path(match[1]):
            yield SecretMatch(match.start(1), match.end(1), "password")
    for match in _HEX_KEY.finditer(text):
        if not _HASH_OR_NAME.search(text, *_context(match)):
            yield SecretMatch(match.start(), match.end(), "W&B key")
    for match in _LONG_WORD.finditer(text):
        if _looks_random(match[0]) and not _HASH_OR_NAME.search(text, *_context(match)):
            yield SecretMatch(match.start(), match.end(), "long random word")


_LONG_WORD: Final = re.compile(
    r"[0-9A-Za-z]{32,}+={0,2}|(?<![\w/.+-])[0-9A-Za-z/+]{40}(?![\w/.+-])={0,2}"
)
_CLASSES: Final = re.compile(r"[A-Z]++|[a-z]++|[0-9]++")


def _looks_random(word: str) -> bool:
    """Whether a word mixes cases and digits like a random one (``aB3xQ9…``).

    In names, letters form words.
    """
    if len(word) < MIN_RANDOM_LENGTH:
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


# --- what a terminal obeys or does not show -------------------------------------------

_UNSAFE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Me"})
"""Unicode categories that a terminal obeys, hides or draws with undefined width: controls, formats
(bidi overrides, zero-width, tags), surrogates, private use, unassigned, line ends, enclosing marks
(not used by any language)."""

_MAX_COMBINING_MARKS: Final = 2
"""Successive combining marks that languages need; more draw over other lines."""


def harmless(text: str) -> str:
    """Foreign text on one line, visible, and without secrets."""
    return visible(redact_secrets(text))


def visible(text: str) -> str:
    """Foreign text on one line, without invisible characters.

    Characters that a terminal would obey or not show (escape sequences, control characters, bidi
    overrides, zero-width characters, stacked marks) are written as ``\\x1b`` or ``\\u202e``; white
    space of any kind becomes a blank.
    """
    return text if text.isascii() and text.isprintable() else "".join(_escape_invisible(text))


def plain(text: str, limit: int | None = None) -> str:
    """Foreign text as one visible, bounded line.

    Text that no reader has made visible passes through here before it is shown: names of files,
    messages of errors, answers of a pool. Like :func:`visible`, but runs of white space become
    single blanks, and paths on other machines are as users type them. The result has at most
    ``limit`` characters, the last of which is an ellipsis if it was cut.
    """
    if limit is not None:
        # Bounds the work for a line of megabytes; the factor leaves room for blanks that are
        # collapsed below.
        text = text[: 4 * limit + 64]
    text = as_typed(text)
    if text.isascii() and text.isprintable() and "  " not in text:
        shown = text.strip()
    else:
        shown = " ".join("".join(_escape_invisible(unicodedata.normalize("NFC", text))).split())
    return clip(shown, limit)


def clip(text: str, limit: int | None) -> str:
    """At most ``limit`` characters of ``text``, with an ellipsis at the end when cut."""
    if limit is None or len(text) <= limit:
        return text
    ellipsis = "…"
    return text[: max(0, limit - len(ellipsis))] + ellipsis[: max(0, limit)]


def _escape_invisible(text: str) -> list[str]:
    out: list[str] = []
    marks = _MAX_COMBINING_MARKS
    for character in text:
        category = unicodedata.category(character)
        if category[0] == "M":
            marks += 1
            selector = "\ufe00" <= character <= "\ufe0f" or character >= "\U000e0100"
            invisible = (
                selector
                or category == "Me"
                or marks > _MAX_COMBINING_MARKS
                or character in _INVISIBLE
            )
            out.append(_escaped(character) if invisible else character)
            continue
        marks = 0
        if character.isspace() and category != "Zl" and category != "Zp":
            out.append(" ")
        elif category in _UNSAFE_CATEGORIES or character in _INVISIBLE:
            out.append(_escaped(character))
            marks = _MAX_COMBINING_MARKS
        else:
            out.append(character)
    return out


_INVISIBLE: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\U00016fe4"
)
"""Fillers, joiners and selectors that count as letters, marks or symbols, but are not visible
(Default_Ignorable_Code_Point of Unicode, and blank cells)."""


def _escaped(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
