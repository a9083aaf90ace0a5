"""Rejects regular expressions of the settings with excessive backtracking.

A ``metlmon.toml`` may belong to another user, and a pattern that tries millions of ways to match
a line never returns. Python's ``re`` backtracks over every choice in a pattern. Therefore the
choices are counted in the parsed pattern (``re._parser``, which the compiler of the standard
library uses): the maximum number of ways to divide one text among them.
"""

from __future__ import annotations

import re
import re._constants as op  # type: ignore[import-not-found]  # the compiler's own, not in typeshed
import re._parser as parser  # type: ignore[import-not-found]
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from metlmon.frozen import frozen

MAX_PATTERN: Final = 500
"""Characters of a pattern: people write less than a hundred."""

LONGEST_TEXT: Final = 2000
"""Characters of a text that is matched with a pattern."""

MAX_WAYS: Final = 2 * LONGEST_TEXT**2
"""Ways to divide a text: a repetition that begins anywhere, and one more choice.

Trying them all takes some hundredths of a second.
"""

MAX_STEPS: Final = 100
"""Parts of a pattern that are tried along each way: ``x{1000}`` has a thousand."""

_CHARACTERS: Final = 128
"""Characters with a bit of their own; all others share four bits above these.

The four are for digits, spaces, other characters of words, and the rest.
"""

_DIGITS, _SPACES, _LETTERS, _OTHER_KINDS = (1 << (_CHARACTERS + kind) for kind in range(4))
_OTHERS: Final = _DIGITS | _SPACES | _LETTERS | _OTHER_KINDS
_ALL: Final = (1 << (_CHARACTERS + 4)) - 1

_CASE_FOLDED: Final = sum(1 << ord(letter) for letter in "iIkKsS")
"""The only ASCII letters that match others when case is ignored.

The others are dotless i, the Kelvin sign and long s.
"""

_SEPARATORS: Final = sum(1 << number for number in range(0x1C, 0x20))
"""White space, except in ASCII mode."""

_REPEATS: Final = (op.MAX_REPEAT, op.MIN_REPEAT)


class UnsafePattern(Exception):
    """The problem of a pattern, and what to write instead."""


@frozen
class _Alternative:
    """A choice between ``ways`` to continue.

    ``characters`` (a bit for each) may be on either side of it. ``barriers``: characters that must
    precede it, in order.
    """

    ways: int
    characters: int
    barriers: tuple[int, ...]


def compiled(text: str) -> re.Pattern[str]:
    """The compiled pattern. Raises UnsafePattern."""
    if len(text) > MAX_PATTERN:
        raise UnsafePattern(f"is longer than {MAX_PATTERN} characters")
    try:
        with warnings.catch_warnings():
            # FutureWarnings about the syntax do not concern users.
            warnings.simplefilter("ignore")
            pattern, tree = re.compile(text), parser.parse(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise UnsafePattern(f"is no valid pattern: {error}") from None
    _BacktrackingAnalyser(pattern.flags | _group_flags(tree)).validate(tree)
    return pattern


class _BacktrackingAnalyser:
    """Analyses one parsed pattern from its beginning to its end."""

    def __init__(self, flags: int) -> None:
        # Flags of groups are assumed for the whole pattern.
        self._ignore_case = bool(flags & re.IGNORECASE)
        self._ascii = bool(flags & re.ASCII)
        self._multiline = bool(flags & re.MULTILINE)
        # The first choice is the position at which a search begins.
        self._choices = [_Alternative(LONGEST_TEXT, _ALL, ())]
        self._barriers: list[int] = []
        self._required_after_choice = False

    def validate(self, tree: Any) -> None:
        """Raises UnsafePattern."""
        self._sequence(tree)
        # If nothing is required after the last choice, its first way matches at once.
        ways = _max_ways(self._choices if self._required_after_choice else self._choices[:-1])
        if ways > LONGEST_TEXT and _max_steps(tree) > MAX_STEPS:
            raise UnsafePattern(
                f"may take for ever: it may begin or go on in many places, and asks for more than "
                f"{MAX_STEPS} characters or parts at each; ask for fewer, or begin it with ^"
            )
        if ways > MAX_WAYS:
            raise UnsafePattern(
                "may take for ever: parts that repeat (*, +, ?) can share one text in "
                "too many ways; write what stands between them, and [^,]* or \\d+ in place of .*"
            )

    def _sequence(self, items: Iterable[Any]) -> None:
        for code, argument in items:
            self._item(code, argument)

    def _optional(self, items: Iterable[Any]) -> None:
        """A sequence that may be left out: its barriers do not hold for what follows."""
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
            if _has_variable_repeat(argument[1]):
                raise UnsafePattern("looks ahead or back with *, + or ?: write it without them")
        elif code in (op.GROUPREF, op.GROUPREF_EXISTS):
            raise UnsafePattern("refers back to a group of itself: write what stands there instead")
        elif code is op.AT:
            self._required_after_choice = True
            if argument is op.AT_BEGINNING_STRING or (
                argument is op.AT_BEGINNING and not self._multiline
            ):
                self._anchor()
        else:
            self._required_after_choice = True
            self._barriers.append(self._characters(code, argument))

    def _anchor(self) -> None:
        """``^`` at the very beginning leaves no choice of where to begin."""
        if len(self._choices) == 1 and not self._barriers:
            self._choices = []

    def _repeat(self, minimum: int, maximum: int, body: Any) -> None:
        if maximum == 0:
            return
        if maximum != 1 and (_has_variable_repeat(body) or not self._is_deterministic(body)):
            raise UnsafePattern(
                "has a repetition within a repetition: write the inner one without *, +, ? and |"
            )
        if maximum != 1:
            self._multiple(
                minimum, min(maximum, LONGEST_TEXT), self._union(body), _always_consumes(body)
            )
        elif minimum == maximum:
            self._sequence(body)
        else:
            self._add_choice(2, self._first(body))
            self._optional(body)

    def _multiple(self, minimum: int, maximum: int, characters: int, consumes: bool) -> None:
        if minimum > 0 and consumes:
            self._barriers.append(characters)
        if maximum > minimum:
            self._add_choice(maximum - minimum + 1, characters)
        else:
            self._required_after_choice = True

    def _branch(self, branches: Sequence[Any]) -> None:
        if not _are_disjoint([self._first(branch) for branch in branches]):
            self._add_choice(len(branches), _ALL)
        for branch in branches:
            self._optional(branch)
        self._required_after_choice = True

    def _add_choice(self, ways: int, characters: int) -> None:
        self._choices.append(_Alternative(ways, characters, tuple(self._barriers)))
        self._required_after_choice = False

    # --- character sets -----------------------------------------------------------------

    def _characters(self, code: Any, argument: Any) -> int:
        """The characters that one item of a pattern matches; all if not simple."""
        if code is op.LITERAL:
            return self._character_set(argument)
        if code is op.NOT_LITERAL:
            return _ALL & ~_bit(argument) if argument < _CHARACTERS else _ALL
        if code is op.IN:
            return self._class(argument)
        if code is op.RANGE:
            low, high = argument
            others = _OTHERS if high >= _CHARACTERS else 0
            return self._characters_of(range(low, min(high, _CHARACTERS - 1) + 1)) | others
        if code is op.CATEGORY:
            return _category(argument) | (_OTHERS | _SEPARATORS if self._ascii else 0)
        return _ALL

    def _class(self, items: Sequence[Any]) -> int:
        negated = items[0][0] is op.NEGATE
        characters = 0
        for code, argument in items[negated:]:
            item_characters = (
                self._characters(code, argument) if not negated else self._certain(code, argument)
            )
            characters |= item_characters
        return _ALL & ~characters if negated else characters

    def _certain(self, code: Any, argument: Any) -> int:
        """Characters that a negated class excludes whatever the flags are.

        If one unusual character is excluded, others of the same bit are not.
        """
        exact = _BacktrackingAnalyser(0)._characters(code, argument)
        if code is op.CATEGORY and not self._ascii:
            return exact
        return exact & ~(_OTHERS | _SEPARATORS)

    def _character_set(self, number: int) -> int:
        return self._characters_of([number])

    def _characters_of(self, numbers: Iterable[int]) -> int:
        characters = 0
        for number in numbers:
            characters |= _bit(number)
            if self._ignore_case:
                characters |= _case_variants(number)
        return characters

    def _union(self, items: Iterable[Any]) -> int:
        """All characters that may occur in a sequence."""
        characters = 0
        for code, argument in items:
            if code is op.SUBPATTERN:
                characters |= self._union(argument[3])
            elif code is op.ATOMIC_GROUP:
                characters |= self._union(argument)
            elif code is op.BRANCH:
                for branch in argument[1]:
                    characters |= self._union(branch)
            elif code in _REPEATS or code is op.POSSESSIVE_REPEAT:
                characters |= self._union(argument[2])
            elif code is not op.AT:
                characters |= self._characters(code, argument)
        return characters

    def _first(self, items: Sequence[Any]) -> int:
        """The characters that a sequence may begin with; all if not simple."""
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

    def _is_deterministic(self, items: Iterable[Any]) -> bool:
        """Whether the alternatives in a sequence begin with different characters.

        False also if it contains anything else that would have to be analysed.
        """
        for code, argument in items:
            if code is op.BRANCH:
                sequences = argument[1]
                if not _are_disjoint([self._first(each) for each in sequences]):
                    return False
            elif code is op.SUBPATTERN:
                sequences = [argument[3]]
            elif code in _REPEATS:
                sequences = [argument[2]]
            elif code in (op.LITERAL, op.NOT_LITERAL, op.IN, op.ANY, op.AT):
                sequences = []
            else:
                return False
            if not all(map(self._is_deterministic, sequences)):
                return False
        return True


def _has_variable_repeat(items: Iterable[Any]) -> bool:
    """Whether a sequence contains a repetition of variable length."""
    for code, argument in items:
        if code in _REPEATS or code is op.POSSESSIVE_REPEAT:
            minimum, maximum, body = argument
            if minimum != maximum or _has_variable_repeat(body):
                return True
        elif code is op.SUBPATTERN:
            if _has_variable_repeat(argument[3]):
                return True
        elif code is op.ATOMIC_GROUP:
            if _has_variable_repeat(argument):
                return True
        elif code is op.BRANCH and any(_has_variable_repeat(branch) for branch in argument[1]):
            return True
    return False


def _always_consumes(items: Iterable[Any]) -> bool:
    """Whether a sequence matches at least one character in every case."""
    for code, argument in items:
        if code in _REPEATS or code is op.POSSESSIVE_REPEAT:
            if argument[0] > 0 and _always_consumes(argument[2]):
                return True
        elif code is op.BRANCH:
            if all(map(_always_consumes, argument[1])):
                return True
        elif code in (op.SUBPATTERN, op.ATOMIC_GROUP):
            if any(map(_always_consumes, _subsequences(code, argument))):
                return True
        elif code not in (op.AT, op.ASSERT, op.ASSERT_NOT):
            return True
    return False


def _max_steps(items: Iterable[Any]) -> int:
    """The maximum number of items that are matched along one way."""
    total = 0
    for code, argument in items:
        inner_steps = [_max_steps(sequence) for sequence in _subsequences(code, argument)]
        repeats = max(1, argument[0]) if code in _REPEATS or code is op.POSSESSIVE_REPEAT else 1
        total += repeats * (1 + max(inner_steps, default=0))
    return total


def _are_disjoint(sets: Sequence[int]) -> bool:
    seen = 0
    for characters in sets:
        if seen & characters:
            return False
        seen |= characters
    return True


def _max_ways(choices: Sequence[_Alternative]) -> int:
    """The maximum number of ways along choices that can share text with the next one.

    They cannot where a barrier between two of them excludes the characters that both match.
    """
    best: list[int] = []
    for number, choice in enumerate(choices):
        previous_ways = 1
        for other, ways in zip(choices[:number], best, strict=True):
            shared = other.characters & choice.characters
            between = choice.barriers[len(other.barriers) :]
            if shared and all(shared & barrier for barrier in between):
                previous_ways = max(previous_ways, ways)
        best.append(previous_ways * choice.ways)
    return max(best, default=1)


def _bit(number: int) -> int:
    if number < _CHARACTERS:
        return 1 << number
    character = chr(number)
    if character.isdecimal():
        return _DIGITS
    if character.isspace():
        return _SPACES
    return _LETTERS if character.isalnum() else _OTHER_KINDS


def _case_variants(number: int) -> int:
    """The characters that match a character when case is ignored."""
    if number >= _CHARACTERS:
        return _CASE_FOLDED
    variants = _bit(ord(chr(number).lower())) | _bit(ord(chr(number).upper()))
    return variants | _LETTERS if variants & _CASE_FOLDED else variants


def _group_flags(items: Iterable[Any]) -> int:
    """The flags that groups set for their contents, as in ``(?i:epoch)``."""
    flags = 0
    for code, argument in items:
        if code is op.SUBPATTERN:
            flags |= argument[1]
        for inner in _subsequences(code, argument):
            flags |= _group_flags(inner)
    return flags


def _subsequences(code: Any, argument: Any) -> Sequence[Any]:
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


def _matching(predicate: Callable[[str], bool]) -> int:
    return sum(1 << number for number in range(_CHARACTERS) if predicate(chr(number)))


def _category(category: Any) -> int:
    digits = _matching(str.isdecimal) | _DIGITS
    spaces = _matching(str.isspace) | _SPACES
    words = (
        _matching(lambda character: character.isalnum() or character == "_") | _DIGITS | _LETTERS
    )
    return {
        op.CATEGORY_DIGIT: digits,
        op.CATEGORY_NOT_DIGIT: _ALL & ~digits,
        op.CATEGORY_SPACE: spaces,
        op.CATEGORY_NOT_SPACE: _ALL & ~spaces,
        op.CATEGORY_WORD: words,
        op.CATEGORY_NOT_WORD: _ALL & ~words,
    }.get(category, _ALL)
