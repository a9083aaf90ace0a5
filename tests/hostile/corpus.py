"""Texts that attack the program that shows them, and what no output may contain.

Every place of a text is a *field* with a name of its own; every way to harm is an *attack*. A
payload combines the two, ``hold07zq`` and the attack, so that a leak names its origin, and visible
output proves that the field was reached.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

KEY: Final = b"Pl4nted00x7QwZ"
"""No issuer's shape: that it stands behind the name of a secret is all that shows what it is."""

A_KEY: Final = re.compile(r"Pl4nted", re.IGNORECASE)
"""The beginning of this key, and of those that :mod:`tests.hostile.keyed_files` writes."""

ATTACKS: Final[dict[str, bytes]] = {
    "csi": b"\x1b[2J\x1b[31m\x1b[?1049l",
    "title": b"\x1b]0;OWNED\x07\x1b]2;OWNED\x1b\\",
    "clipboard": b"\x1b]52;c;RVZJTA==\x07",
    "link": b"\x1b]8;;http://evil.example/\x1b\\here\x1b]8;;\x1b\\",
    "dcs": b'\x1bP$q"p\x1b\\\x1bPq#0!99~\x1b\\',
    "apc": b"\x1b_Ga=T,f=24;AAAA\x1b\\\x1b^pm\x1b\\\x1bXsos\x1b\\",
    "reset": b"\x1bc\x1b#8\x1b(0\x0e\x1b[6n\x1b[c\x05",
    "controls": b"\x07\x08\x08\x08\x0b\x0c\x0e\x0f\x1a\x7f",
    "c1": "\x9b31m\x9d0;OWNED\x9c\x90q\x9c\x85\x84\x8d".encode(),
    "c1-raw": b"\x9b31m\x9d0;OWNED\x9c\x90q\x9c\x85",
    "bidi": "\u202egnp.exe\u202c\u2066in\u2069\u200f\u061c\u202a".encode(),
    "zero-width": "a\u200bb\u200c\u200d\u2060\ufeff\u00ad\u180e".encode(),
    "ignored": "a\u034fb\u17b4c\u180bd\ufe0fe\u3164f\u2800g\U000e0101".encode(),
    "tags": "\U000e0001\U000e0041\U000e007f".encode(),
    "tower": ("Z" + "\u0301\u0489\u20dd" * 20).encode(),
    "invalid": b"\xed\xa0\xbd\xff\xfe\xc0\xaf\xf8\x88\x80",
    "private": "\ue000\U000f0000\ufffe\U0010ffff\u0378\ufff9".encode(),
    "rich": b"[bold_red]x[/][/nothing][link=http://evil.example]y[/link]:boom:[blink]",
    "textual": b"[@click=app.exit()]x[/][on_red]$text-error[/][@click='app.quit']",
    "markdown": b"](javascript:alert(1))|**b**`c`~~d~~http://evil.example/?a=b&c=d|www.evil.example",
    "image": b"![i](http://evil.example/x.png)<http://evil.example>[^1]:e@evil.example#1&lt;",
    "html": b"<script>alert(1)</script><img/src=x/onerror=alert(1)>",
    "attribute": b"\"'/><svg/onload=alert(1)><!--<![CDATA[</title></style></text>",
    "separators": "a\u2028b\u2029c".encode(),
    "return": b"a\rb\r\x1b[K",
    "nul": b"a\x00b",
    "lines": b"a\nb\n...\n",
    "blanks": b"a\t\tb   c\xc2\xa0\xe3\x80\x80d",
    "secret": b" --token %b " % KEY,
}
"""What is tried; none but the last five has white space of ASCII, which ends many names."""

FORMULAS: Final = (
    *("=1+1", "+1", "-1+1", "@SUM(1)"),
    *("＝1", "＋1", "－1", "＠1"),
    *("\t=1", "\r=1", "\n=1", '"=1', 'a;"=1'),
)
"""Beginnings that a spreadsheet takes for a formula; each attack begins with one of them."""

NAMES: Final = tuple(ATTACKS)


def marker(field: str, attack: int) -> str:
    """``hold07zq``: letters and digits only, so that no code has a reason to change it."""
    return f"{field}{attack:02}zq"


def payload(field: str, attack: int, formula: bool = True) -> bytes:
    """The text of a field: the beginning of a formula, the marker, the attack, and the end of the
    marker: what follows the attack counts, too."""
    begin = FORMULAS[attack % len(FORMULAS)].encode() if formula else b""
    mark = marker(field, attack).encode()
    return begin + mark + ATTACKS[NAMES[attack]] + mark[::-1]


def one_line(data: bytes) -> bytes:
    """The payload without line ends, for a file of lines."""
    return data.replace(b"\n", b"\\n")


def word(data: bytes) -> bytes:
    """The payload as one word of a DAG file: no white space, quotes, plus or secret."""
    return re.sub(rb"[\s\0\"'+\\#{}]", b"_", data.replace(KEY, b""))


def filename(data: bytes) -> bytes:
    return data.replace(KEY, b"").replace(b"/", b"_").replace(b"\0", b"_")[:200]


MARKER: Final = re.compile(r"([a-z]+)(\d\d)zq")


def fields_in(text: str) -> set[str]:
    """The fields visible in ``text``, by their beginnings or ends: where the middle of a long text
    is left out, both may be cut."""
    return {found[1] for way in (text, text[::-1]) for found in MARKER.finditer(way)}


_IGNORABLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\u2800\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Default_Ignorable_Code_Point of Unicode 15, and the empty braille cell."""


def forbidden(text: str, newlines: bool = True) -> list[str]:
    """What ``text`` must not contain, each with its context: secrets, and characters that a
    terminal obeys or does not show."""
    bad = [
        f"a key in {text[max(0, found.start() - 60) : found.end() + 20]!r}"
        for found in A_KEY.finditer(text)
    ]
    characters = set(text)
    suspects = {character for character in characters if _is_forbidden(character, newlines)}
    if not suspects and not any(map(_is_mark, characters)):
        return bad
    marks = 0
    for at, character in enumerate(text):
        marks = marks + 1 if _is_mark(character) else 0
        if character in suspects or marks > 2:
            bad.append(f"U+{ord(character):04X} in {text[max(0, at - 60) : at + 20]!r}")
    return bad


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"


def _is_forbidden(character: str, newlines: bool) -> bool:
    if character == "\n" and newlines:
        return False
    category = unicodedata.category(character)
    return (
        category in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Me")
        or (category == "Zs" and character not in " \u202f")
        or _IGNORABLE.match(character) is not None
    )
