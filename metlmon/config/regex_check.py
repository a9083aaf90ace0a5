"""Regular expressions of the settings, judged before anything is matched with them.

A ``metlmon.toml`` may have come with a dagdir, and a pattern that tries one line in millions of
ways stands still for ever. Python's ``re`` goes back over every choice that a pattern leaves it,
so the choices are counted in the parsed pattern (``re._parser``, as the standard library's own
compiler has it): how many ways are there at most to divide one text among them?
"""

from __future__ import annotations

import re
import re._constants as op  # type: ignore[import-not-found]  # the compiler's own, not in typeshed
import re._parser as parser  # type: ignore[import-not-found]
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from metlmon.frozen import frozen

LONGEST_PATTERN: Final = 500
"""Characters of a pattern: those that people write have less than a hundred."""

LONGEST_TEXT: Final = 2000
"""Characters of a text that is matched with a pattern."""

MOST_WAYS: Final = 2 * LONGEST_TEXT**2
"""Ways to divide a text: a repetition that may begin anywhere, and one choice more. Trying them
all takes some hundredths of a second."""

MOST_STEPS: Final = 100
"""Parts of a pattern that are tried along each of so many ways: ``x{1000}`` are a thousand."""

_CHARACTERS: Final = 128
"""Characters that are told apart; of all others only whether they are digits, spaces, other
characters of words, or none of these: four bits above those of the 128."""

_DIGITS, _SPACES, _LETTERS, _REST = (1 << (_CHARACTERS + kind) for kind in range(4))
_OTHERS: Final = _DIGITS | _SPACES | _LETTERS | _REST
_ALL: Final = (1 << (_CHARACTERS + 4)) - 1

_FOLDED: Final = sum(1 << ord(each) for each in "iIkKsS")
"""The only ones of them that others are taken for, where case does not matter: dotless i, the
Kelvin sign, long s."""

_SEPARATORS: Final = sum(1 << number for number in range(0x1C, 0x20))
"""White space, but not where only ASCII counts."""

_REPEATS: Final = (op.MAX_REPEAT, op.MIN_REPEAT)


class UnsafePattern(Exception):
    """What is wrong with a pattern, and what to write instead."""


@frozen
class _Alternative:
    """Where there are ``ways`` to go on; ``characters`` (a bit for each) may lie on either side
    of it. ``barriers``: what must stand before it, one after the other."""

    ways: int
    characters: int
    barriers: tuple[int, ...]


def compiled(text: str) -> re.Pattern[str]:
    """The pattern. Raises Refused."""
    if len(text) > LONGEST_PATTERN:
        raise UnsafePattern(f"is longer than {LONGEST_PATTERN} characters")
    try:
        with warnings.catch_warnings():
            # What may come to mean something else one day is no matter of whoever looks on.
            warnings.simplefilter("ignore")
            pattern, tree = re.compile(text), parser.parse(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise UnsafePattern(f"is no valid pattern: {error}") from None
    _BacktrackingAnalyser(pattern.flags | _group_flags(tree)).judge(tree)
    return pattern


class _BacktrackingAnalyser:
    """Walks through one parsed pattern from its beginning to its end."""

    def __init__(self, flags: int) -> None:
        # Of the pattern and of its groups: what holds for one of them is counted for all.
        self._ignore_case = bool(flags & re.IGNORECASE)
        self._ascii = bool(flags & re.ASCII)
        self._many_lines = bool(flags & re.MULTILINE)
        # Where a search begins is the first choice.
        self._choices = [_Alternative(LONGEST_TEXT, _ALL, ())]
        self._barriers: list[int] = []
        self._after_last = False

    def judge(self, tree: Any) -> None:
        """Raises Refused."""
        self._sequence(tree)
        # Where nothing is asked for behind the last choice, the first way is taken at once.
        ways = _most_ways(self._choices if self._after_last else self._choices[:-1])
        if ways > LONGEST_TEXT and _steps(tree) > MOST_STEPS:
            raise UnsafePattern(
                f"may take for ever: it may begin or go on in many places, and asks for more than "
                f"{MOST_STEPS} characters or parts at each; ask for fewer, or begin it with ^"
            )
        if ways > MOST_WAYS:
            raise UnsafePattern(
                "may take for ever: parts that repeat (*, +, ?) can share one text in "
                "too many ways; write what stands between them, and [^,]* or \\d+ in place of .*"
            )

    def _sequence(self, items: Iterable[Any]) -> None:
        for code, argument in items:
            self._item(code, argument)

    def _perhaps(self, items: Iterable[Any]) -> None:
        """A sequence that may be left out: what must stand in it, need not for what follows."""
        before = len(self._barriers)
        self._sequence(items)
        self._barriers[before:] = [_ALL] * (len(self._barriers) - before)

    def _item(self, code: Any, argument: Any) -> None:
        if code in _REPEATS or code is op.POSSESSIVE_REPEAT:
            self._repeat(*argument)
        elif code is op.SUBPATTERN:
            self._sequence(argument[3])
        elif code is op.ATOMIC_GROUP:
            self._sequence(argument)
        elif code is op.BRANCH:
            self._branch(argument[1])
        elif code in (op.ASSERT, op.ASSERT_NOT):
            if _varies(argument[1]):
                raise UnsafePattern("looks ahead or back with *, + or ?: write it without them")
        elif code in (op.GROUPREF, op.GROUPREF_EXISTS):
            raise UnsafePattern("refers back to a group of itself: write what stands there instead")
        elif code is op.AT:
            self._after_last = True
            if argument is op.AT_BEGINNING_STRING or (
                argument is op.AT_BEGINNING and not self._many_lines
            ):
                self._begins_here()
        else:
            self._after_last = True
            self._barriers.append(self._characters(code, argument))

    def _begins_here(self) -> None:
        """``^`` at the very beginning leaves no choice of where to begin."""
        if len(self._choices) == 1 and not self._barriers:
            self._choices = []

    def _repeat(self, least: int, most: int, body: Any) -> None:
        if most == 0:
            return
        if most != 1 and (_varies(body) or not self._told_apart(body)):
            raise UnsafePattern(
                "has a repetition within a repetition: write the inner one without *, +, ? and |"
            )
        if most != 1:
            self._repeat_often(least, min(most, LONGEST_TEXT), self._union(body), _takes(body))
        elif least == most:
            self._sequence(body)
        else:
            self._choose(2, self._first(body))
            self._perhaps(body)

    def _repeat_often(self, least: int, most: int, characters: int, takes: bool) -> None:
        if least > 0 and takes:
            self._barriers.append(characters)
        if most > least:
            self._choose(most - least + 1, characters)
        else:
            self._after_last = True

    def _branch(self, branches: Sequence[Any]) -> None:
        if not _apart([self._first(each) for each in branches]):
            self._choose(len(branches), _ALL)
        for each in branches:
            self._perhaps(each)
        self._after_last = True

    def _choose(self, ways: int, characters: int) -> None:
        self._choices.append(_Alternative(ways, characters, tuple(self._barriers)))
        self._after_last = False

    # --- which characters ---------------------------------------------------------------

    def _characters(self, code: Any, argument: Any) -> int:
        """Those that one item of a pattern takes; all where that is not simple."""
        if code is op.LITERAL:
            return self._one(argument)
        if code is op.NOT_LITERAL:
            return _ALL & ~_bit(argument) if argument < _CHARACTERS else _ALL
        if code is op.IN:
            return self._class(argument)
        if code is op.RANGE:
            low, high = argument
            others = _OTHERS if high >= _CHARACTERS else 0
            return self._some(range(low, min(high, _CHARACTERS - 1) + 1)) | others
        if code is op.CATEGORY:
            return _category(argument) | (_OTHERS | _SEPARATORS if self._ascii else 0)
        return _ALL

    def _class(self, items: Sequence[Any]) -> int:
        negated = items[0][0] is op.NEGATE
        found = 0
        for code, argument in items[negated:]:
            some = self._characters(code, argument) if not negated else self._surely(code, argument)
            found |= some
        return _ALL & ~found if negated else found

    def _surely(self, code: Any, argument: Any) -> int:
        """Those that are left out whatever the flags are. Where one unusual character is left
        out, others like it are not."""
        exact = _BacktrackingAnalyser(0)._characters(code, argument)
        if code is op.CATEGORY and not self._ascii:
            return exact
        return exact & ~(_OTHERS | _SEPARATORS)

    def _one(self, number: int) -> int:
        return self._some([number])

    def _some(self, numbers: Iterable[int]) -> int:
        found = 0
        for number in numbers:
            found |= _bit(number)
            if self._ignore_case:
                found |= _alike(number)
        return found

    def _union(self, items: Iterable[Any]) -> int:
        """All that may stand in a sequence."""
        found = 0
        for code, argument in items:
            if code is op.SUBPATTERN:
                found |= self._union(argument[3])
            elif code is op.ATOMIC_GROUP:
                found |= self._union(argument)
            elif code is op.BRANCH:
                for each in argument[1]:
                    found |= self._union(each)
            elif code in _REPEATS or code is op.POSSESSIVE_REPEAT:
                found |= self._union(argument[2])
            elif code is not op.AT:
                found |= self._characters(code, argument)
        return found

    def _first(self, items: Sequence[Any]) -> int:
        """What a sequence may begin with; all where that is not simple."""
        if not len(items):
            return _ALL
        code, argument = items[0]
        if code is op.SUBPATTERN:
            return self._first(argument[3])
        if code in _REPEATS and argument[0] > 0:
            return self._first(argument[2])
        if code in (op.LITERAL, op.NOT_LITERAL, op.IN):
            return self._characters(code, argument)
        return _ALL

    def _told_apart(self, items: Iterable[Any]) -> bool:
        """Do the alternatives in it begin with different characters, and is nothing else in it
        that would have to be judged?"""
        for code, argument in items:
            if code is op.BRANCH:
                parts = argument[1]
                if not _apart([self._first(each) for each in parts]):
                    return False
            elif code is op.SUBPATTERN:
                parts = [argument[3]]
            elif code in _REPEATS:
                parts = [argument[2]]
            elif code in (op.LITERAL, op.NOT_LITERAL, op.IN, op.ANY, op.AT):
                parts = []
            else:
                return False
            if not all(map(self._told_apart, parts)):
                return False
        return True


def _varies(items: Iterable[Any]) -> bool:
    """Is there a repetition in it that is not of one number?"""
    for code, argument in items:
        if code in _REPEATS or code is op.POSSESSIVE_REPEAT:
            least, most, body = argument
            if least != most or _varies(body):
                return True
        elif code is op.SUBPATTERN:
            if _varies(argument[3]):
                return True
        elif code is op.ATOMIC_GROUP:
            if _varies(argument):
                return True
        elif code is op.BRANCH and any(_varies(each) for each in argument[1]):
            return True
    return False


def _takes(items: Iterable[Any]) -> bool:
    """Does a sequence take a character, whatever happens?"""
    for code, argument in items:
        if code in _REPEATS or code is op.POSSESSIVE_REPEAT:
            if argument[0] > 0 and _takes(argument[2]):
                return True
        elif code is op.BRANCH:
            if all(map(_takes, argument[1])):
                return True
        elif code in (op.SUBPATTERN, op.ATOMIC_GROUP):
            if any(map(_takes, _within(code, argument))):
                return True
        elif code not in (op.AT, op.ASSERT, op.ASSERT_NOT):
            return True
    return False


def _steps(items: Iterable[Any]) -> int:
    """How much must be matched along one way, at most."""
    found = 0
    for code, argument in items:
        inner = [_steps(each) for each in _within(code, argument)]
        times = max(1, argument[0]) if code in _REPEATS or code is op.POSSESSIVE_REPEAT else 1
        found += times * (1 + max(inner, default=0))
    return found


def _apart(sets: Sequence[int]) -> bool:
    seen = 0
    for each in sets:
        if seen & each:
            return False
        seen |= each
    return True


def _most_ways(choices: Sequence[_Alternative]) -> int:
    """The most ways along choices of which each can share text with the next one: nothing must
    stand between two of them that both cannot take."""
    best: list[int] = []
    for number, choice in enumerate(choices):
        before = 1
        for other, ways in zip(choices[:number], best, strict=True):
            shared = other.characters & choice.characters
            between = choice.barriers[len(other.barriers) :]
            if shared and all(shared & each for each in between):
                before = max(before, ways)
        best.append(before * choice.ways)
    return max(best, default=1)


def _bit(number: int) -> int:
    if number < _CHARACTERS:
        return 1 << number
    character = chr(number)
    if character.isdecimal():
        return _DIGITS
    if character.isspace():
        return _SPACES
    return _LETTERS if character.isalnum() else _REST


def _alike(number: int) -> int:
    """What stands for a character as well where case does not matter."""
    if number >= _CHARACTERS:
        return _FOLDED
    both = _bit(ord(chr(number).lower())) | _bit(ord(chr(number).upper()))
    return both | _LETTERS if both & _FOLDED else both


def _group_flags(items: Iterable[Any]) -> int:
    """The flags that groups set for what is in them, as in ``(?i:epoch)``."""
    found = 0
    for code, argument in items:
        if code is op.SUBPATTERN:
            found |= argument[1]
        for inner in _within(code, argument):
            found |= _group_flags(inner)
    return found


def _within(code: Any, argument: Any) -> Sequence[Any]:
    """The sequences in one item."""
    if code in _REPEATS or code is op.POSSESSIVE_REPEAT:
        return (argument[2],)
    if code is op.SUBPATTERN:
        return (argument[3],)
    if code is op.ATOMIC_GROUP:
        return (argument,)
    if code is op.BRANCH:
        return argument[1]  # type: ignore[no-any-return]
    return (argument[1],) if code in (op.ASSERT, op.ASSERT_NOT) else ()


def _those(asked: Callable[[str], bool]) -> int:
    return sum(1 << number for number in range(_CHARACTERS) if asked(chr(number)))


def _category(category: Any) -> int:
    digits = _those(str.isdecimal) | _DIGITS
    spaces = _those(str.isspace) | _SPACES
    words = _those(lambda each: each.isalnum() or each == "_") | _DIGITS | _LETTERS
    return {
        op.CATEGORY_DIGIT: digits,
        op.CATEGORY_NOT_DIGIT: _ALL & ~digits,
        op.CATEGORY_SPACE: spaces,
        op.CATEGORY_NOT_SPACE: _ALL & ~spaces,
        op.CATEGORY_WORD: words,
        op.CATEGORY_NOT_WORD: _ALL & ~words,
    }.get(category, _ALL)
